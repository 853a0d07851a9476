"""Rows of the catalogue to classify, read at the training: what the labelled ones are compared with.

Shapes: N labelled rows, T rows of the target, F features.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from catalogs.catalog.catalog import Catalog, ColumnMetadata
from catalogs.errors import CatalogError
from flows.documents import read_document, write_document
from flows.errors import SpecificationError, UsageError
from flows.features.reader import FeatureReader, target_reader
from flows.features.sentinels import check_target_marks
from flows.features.table_choice import target_table
from flows.features.units import converted
from flows.inputs.opening import opened, thinned
from flows.inputs.resolve import resolve_sources
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._read_rows import ContentHash, spelled
from flows.training._rows import write_array

__all__ = [
    "TARGET_ROWS",
    "StagedShift",
    "TargetRows",
    "is_asked",
    "is_needed",
    "pass_over",
    "read_shift",
    "read_target",
    "version_content",
    "write_shift",
]

Floats = NDArray[np.float64]

TARGET_ROWS = 50_000
"""Rows of the target that are looked at, at equal distances: the AUC is then known to 0.003."""
MOST_READ = 5_000_000
"""Rows of the target above which some of its files are left unread, evenly."""


@dataclass(frozen=True, eq=False)
class TargetRows:
    """Rows of the target: X (T, F) with 0 where `missing` (T, F), and which of how many they are."""

    X: Floats
    missing: NDArray[np.bool_]
    name: str
    n_rows: int
    content_hash: str


@dataclass(frozen=True, kw_only=True)
class TargetOrigin:
    """Where rows of the target come from, as it waits beside them."""

    name: str
    n_rows: int
    content_hash: str


@dataclass(frozen=True, eq=False)
class StagedShift:
    """What waits beside the training rows: rows of the target, and the density ratio of the labelled ones (N,)."""

    target: TargetRows | None = None
    ratio: Floats | None = None


def write_shift(target: TargetRows, ratio: Floats, folder: Path) -> None:
    """Write rows of the target and density ratios, each whole or not at all."""
    for name, array in (("target_X", target.X), ("target_missing", target.missing), ("ratio", ratio)):
        write_array(array, folder / f"{name}.npy")
    origin = TargetOrigin(name=target.name, n_rows=target.n_rows, content_hash=target.content_hash)
    write_document(folder / STAGED, origin)


def read_shift(folder: Path) -> StagedShift:
    """Return what `write_shift` wrote, nothing where no target is named."""
    if not (folder / STAGED).is_file():
        return StagedShift()
    X, missing, ratio = (
        np.load(folder / f"{name}.npy", allow_pickle=False)
        for name in ("target_X", "target_missing", "ratio")
    )
    origin = read_document(TargetOrigin, folder / STAGED)
    return StagedShift(TargetRows(X, missing, **vars(origin)), ratio)


STAGED = "target.json"


def is_needed(specification: Specification) -> bool:
    """Say whether the model itself depends on the target, and not its report alone."""
    return specification.shift.density_weights or specification.shift.class_prior == "em"


def read_target(
    specification: Specification, trained: Mapping[str, ColumnMetadata], *, limit: int | None = None
) -> TargetRows | None:
    """Return rows of the target that a specification names, None where it names none.

    `trained` says of the columns what the labelled catalogue does.  A target that only a report asks for may be
    absent or damaged still; what the model depends on may not: SpecificationError, UsageError or CatalogError.
    """
    shift, needed = specification.shift, is_needed(specification)
    named = shift.target or specification.target.paths
    if named is None:
        if needed:
            raise SpecificationError(
                f"shift.{'density_weights' if shift.density_weights else 'class_prior'}: got no target, "
                'expected the catalogue with which the training rows are compared; add target = "..." '
                "under [shift], or paths under [target]"
            )
        return None
    try:
        reader = target_reader(specification, specification.features)
        key = "shift.target" if shift.target else "target.paths"
        sources = resolve_sources(named, Path(specification.base_folder), key=key)
        with opened(sources, target_table(specification, reader), key=key) as catalogs:
            return _read(specification, reader, catalogs, trained, limit)
    except (CatalogError, UsageError, OSError) as error:
        if is_asked(specification):
            raise
        pass_over(error)
        return None


def is_asked(specification: Specification) -> bool:
    """Say whether the comparison is asked for, and not made because the catalogue to classify is at hand."""
    return is_needed(specification) or specification.shift.target is not None


def pass_over(error: Exception) -> None:
    """Tell why there is no comparison, where nobody has asked for it."""
    tell().note(f"the target is not compared with the training rows: {error}")


def _read(
    specification: Specification,
    general: FeatureReader,
    catalogs: Sequence[Catalog],
    trained: Mapping[str, ColumnMetadata],
    limit: int | None,
) -> TargetRows:
    content = ContentHash(general.read)
    parts = [(c, part) for c in catalogs for part in c.partitions if part.counted]
    n_rows = sum(part.n_rows for _, part in parts)
    parts = parts[:: max(1, math.ceil(n_rows / MOST_READ))]
    wanted = TARGET_ROWS if limit is None else min(limit, TARGET_ROWS)
    step = max(1, math.ceil(sum(part.n_rows for _, part in parts) / wanted))
    X, missing = (
        [np.empty((0, len(specification.features)))],
        [np.empty((0, len(specification.features)), bool)],
    )
    for catalog, part in parts:
        reader = converted(general, catalog, trained=trained, stated=specification.target.units)
        check_target_marks(specification.target, catalog)
        for batch in thinned(part.batches(reader.read), step):
            content.feed(spelled(batch, general.read))
            features = reader.evaluate(batch)
            kept = features.inside & ~features.missing.all(axis=1)
            X.append(features.X[kept])
            missing.append(features.missing[kept])
    name = (
        catalogs[0].path.name
        if len(catalogs) == 1
        else f"{catalogs[0].path.name} and {len(catalogs) - 1} more"
    )
    rows = TargetRows(np.concatenate(X), np.concatenate(missing), name, n_rows, content.hexdigest())
    if not len(rows.X):
        raise CatalogError(
            f"{catalogs[0].path}: no row that fulfils target.where has any feature; correct the condition, "
            "the columns or the target"
        )
    return rows


def version_content(content_hash: str, specification: Specification, target: TargetRows | None) -> str:
    """Return the hash of all rows that a model depends on, the target's too where it does."""
    if target is None or not is_needed(specification):
        return content_hash
    return hashlib.sha256(f"{content_hash}\n{target.content_hash}".encode()).hexdigest()
