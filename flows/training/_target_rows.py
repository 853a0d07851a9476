"""Rows of the target, the catalogue to classify, which a training compares with the labelled rows.

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
    "model_needs_target",
    "note_no_comparison",
    "read_shift",
    "read_target",
    "requires_comparison",
    "version_content",
    "write_shift",
]

Floats = NDArray[np.float64]

TARGET_ROWS = 50_000
"""Most rows of the target that are compared, taken at equal distances: the error of the AUC is then 0.003."""
MOST_READ = 5_000_000
"""Approximate number of rows that are read at most: of a larger target, only every n-th file is read."""


@dataclass(frozen=True, eq=False)
class TargetRows:
    """Rows of the target: X (T, F), 0 where `missing`; and the name, number of rows and hash of the whole target."""

    X: Floats
    missing: NDArray[np.bool_]
    name: str
    n_rows: int
    content_hash: str


@dataclass(frozen=True, kw_only=True)
class TargetOrigin:
    """The name, the number of rows and the hash of a target, in a file beside its rows."""

    name: str
    n_rows: int
    content_hash: str


@dataclass(frozen=True, eq=False)
class StagedShift:
    """What the staging folder holds of the comparison: rows of the target, density ratios (N,) of labelled rows."""

    target: TargetRows | None = None
    ratio: Floats | None = None


def write_shift(target: TargetRows, ratio: Floats, folder: Path) -> None:
    """Write rows of the target and density ratios, each file whole or not at all."""
    for name, array in (("target_X", target.X), ("target_missing", target.missing), ("ratio", ratio)):
        write_array(array, folder / f"{name}.npy")
    origin = TargetOrigin(name=target.name, n_rows=target.n_rows, content_hash=target.content_hash)
    write_document(folder / STAGED, origin)


def read_shift(folder: Path) -> StagedShift:
    """Return what `write_shift` wrote; an empty result where there was no comparison."""
    if not (folder / STAGED).is_file():
        return StagedShift()
    X, missing, ratio = (
        np.load(folder / f"{name}.npy", allow_pickle=False)
        for name in ("target_X", "target_missing", "ratio")
    )
    origin = read_document(TargetOrigin, folder / STAGED)
    return StagedShift(TargetRows(X, missing, **vars(origin)), ratio)


STAGED = "target.json"


def model_needs_target(specification: Specification) -> bool:
    """Say whether the model itself depends on the target, not only its report."""
    return specification.shift.density_weights or specification.shift.class_prior == "em"


def read_target(
    specification: Specification, trained: Mapping[str, ColumnMetadata], *, limit: int | None = None
) -> TargetRows | None:
    """Return rows of the target that a specification names; None where it names none.

    `trained` is the metadata of the labelled catalogue's columns.  A target that cannot be read is an error
    (SpecificationError, UsageError, CatalogError or OSError) if the specification requires the comparison.  A target
    that is only named under [target] may be missing or damaged: a note says so, and the result is None.
    """
    shift, needed = specification.shift, model_needs_target(specification)
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
        if requires_comparison(specification):
            raise
        note_no_comparison(error)
        return None


def requires_comparison(specification: Specification) -> bool:
    """Say whether a training fails without the comparison; otherwise it is made only if the target can be read."""
    return model_needs_target(specification) or specification.shift.target is not None


def note_no_comparison(error: Exception) -> None:
    """Tell the user why the target is not compared with the training rows."""
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
    """Return the hash of all rows that a model depends on; those of the target count if the model needs them."""
    if target is None or not model_needs_target(specification):
        return content_hash
    return hashlib.sha256(f"{content_hash}\n{target.content_hash}".encode()).hexdigest()
