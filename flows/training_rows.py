"""The labelled rows of a training: gathered once from the catalogues, the same for all candidates.

Kept as one `.npy` file an array, so that every candidate reads them without parsing a catalogue again.
Shapes: N rows, F features.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalogs.annotations import standard_columns
from catalogs.atomic import atomic_path
from catalogs.catalog import BATCH_ROWS, Catalog
from catalogs.expressions import parse
from catalogs.values import batch_values
from flows.config import Specification
from flows.errors import TrainingError
from flows.features import FeatureReader, training_reader
from flows.holdout import check_positions, held_out, split_columns
from flows.labels import LabelReader, check_classes, label_texts
from flows.progress import tell

__all__ = ["Gathered", "TrainingRows", "gather", "read_rows", "write_array", "write_rows"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """X (N, F) with 0 where `missing` (N, F); `target` (N,) class indices; `held_out` (N,); `weight` (N,) or None."""

    X: Floats
    missing: Mask
    target: NDArray[np.intp]
    held_out: Mask
    weight: Floats | None = None

    @property
    def training(self) -> Mask:
        """The rows (N,) that fits see."""
        return ~self.held_out


@dataclass(frozen=True)
class Gathered:
    """The rows, and what was met on the way to them."""

    rows: TrainingRows
    classes: tuple[str, ...]
    content_hash: str  # of the columns' values in the rows: the same from FITS and from Parquet
    n_read: int
    n_selected: int
    seen: Counter[str]  # labels of the selected rows, '' where there is none

    @property
    def unknown_labels(self) -> dict[str, int]:
        """Labels that are in no class, by frequency, the empty one left out."""
        return {text: n for text, n in self.seen.most_common() if text}


@dataclass(frozen=True, eq=False)
class _Part:
    """What one batch contributes."""

    X: Floats
    missing: Mask
    texts: NDArray[np.object_]
    held_out: Mask
    weight: Floats | None


def gather(
    specification: Specification, catalogs: Sequence[Catalog], *, limit: int | None = None
) -> Gathered:
    """Return the labelled rows of the catalogues; `TrainingError` where they cannot carry a fit.

    `limit` reads that many rows only, for a trial.
    """
    column = specification.label.column or ""
    reader = training_reader(specification, split_by=split_columns(specification))
    known = LabelReader.of(specification.label, Counter()) if specification.label.classes else None
    seen: Counter[str] = Counter()
    content = {name: hashlib.sha256() for name in reader.names}
    parts, n_read, n_selected = [], 0, 0
    for catalog in catalogs:
        reader.check(catalog)
        check_positions(specification, catalog)
    for batch in _batches(catalogs, reader, limit):
        tell().advance(batch.num_rows)
        n_read += batch.num_rows
        selected = reader.select(batch)
        n_selected += int(selected.sum())
        texts = label_texts(reader.values(batch, [column])[column])
        seen.update(texts[selected].tolist())
        labelled = (texts != "") if known is None else known.read(texts) >= 0
        chosen = batch.filter(pa.array(selected & labelled))
        parts.append(_part(specification, reader, chosen))
        _feed(content, chosen)
    labels = known or LabelReader.of(specification.label, seen)
    rows = _joined(parts, labels)
    _check(specification, rows, labels, seen)
    for text in labels.spellings:
        del seen[text]
    return Gathered(rows, labels.classes, _combined(content), n_read, n_selected, seen)


def _batches(
    catalogs: Iterable[Catalog], reader: FeatureReader, limit: int | None
) -> Iterable[pa.RecordBatch]:
    left = limit
    for catalog in catalogs:
        for batch in catalog.batches(reader.read, min(BATCH_ROWS, left or BATCH_ROWS)):
            yield batch if left is None else batch.slice(0, left)
            if left is not None:
                left -= batch.num_rows
                if left <= 0:
                    return


def _part(specification: Specification, reader: FeatureReader, batch: pa.RecordBatch) -> _Part:
    """Return the contribution of a batch that holds training rows only."""
    found = reader.evaluate(batch)
    values = reader.values(batch)
    text = specification.catalog.weight
    weight = None if text is None else np.asarray(parse(text).evaluate(values), dtype=np.float64)
    if weight is not None and not (np.isfinite(weight) & (weight >= 0)).all():
        bad = int((~(np.isfinite(weight) & (weight >= 0))).sum())
        raise TrainingError(
            f'catalog.weight: got {bad} training rows where "{text}" is negative or missing, expected a weight of 0 '
            "or more in each; leave such rows out with catalog.where"
        )
    texts = label_texts(values[specification.label.column or ""])
    return _Part(found.X, found.missing, texts, held_out(specification, values), weight)


def _joined(parts: Sequence[_Part], labels: LabelReader) -> TrainingRows:
    weights = [p.weight for p in parts if p.weight is not None]
    return TrainingRows(
        X=np.concatenate([p.X for p in parts]),
        missing=np.concatenate([p.missing for p in parts]),
        target=labels.read(np.concatenate([p.texts for p in parts])),
        held_out=np.concatenate([p.held_out for p in parts]),
        weight=np.concatenate(weights) if weights else None,
    )


def _check(specification: Specification, rows: TrainingRows, labels: LabelReader, seen: Counter[str]) -> None:
    K = len(labels.classes)
    check_classes(specification.label, labels, seen, np.bincount(rows.target, minlength=K).tolist())
    standard_columns(labels.classes, specification.output.prefix)  # whose names must differ
    for part, mask in (("training", rows.training), ("held-out", rows.held_out)):
        for name, count in zip(labels.classes, np.bincount(rows.target[mask], minlength=K), strict=True):
            if not count:
                raise TrainingError(
                    f"split: got class '{name}' without {part} rows ({int(mask.sum())} {part} rows in all), expected "
                    "some of each class; change split.held_out or split.by, or merge the class with another"
                )
    for j, name in enumerate(specification.features):
        if rows.missing[rows.training, j].all():
            text = specification.features[name]
            raise TrainingError(
                f'features.{name}: got no value of "{text}" in any of the {int(rows.training.sum())} training rows, '
                "expected some; check the expression and the sentinels, or leave the feature out"
            )


def _feed(content: Mapping[str, Any], batch: pa.RecordBatch) -> None:
    """Hash the columns' values one by one, so that the boundaries of batches do not matter."""
    for name, values in batch_values(batch, content).items():
        if values.dtype.kind in "OUS":
            content[name].update(
                b"".join(b"%d:%s" % (len(t), t) for t in (str(v).encode() for v in values.ravel()))
            )
        else:
            plain = np.ma.filled(np.ma.asanyarray(values).astype("<f8"), np.nan)
            content[name].update(np.where(np.isnan(plain), np.nan, plain).tobytes())  # one NaN of the many


def _combined(content: Mapping[str, Any]) -> str:
    text = "\n".join(f"{name} {content[name].hexdigest()}" for name in sorted(content))
    return hashlib.sha256(text.encode()).hexdigest()


def write_rows(rows: TrainingRows, folder: Path) -> None:
    """Write the rows, one file an array, each whole or not at all."""
    for field in fields(rows):
        array = getattr(rows, field.name)
        if array is not None:
            write_array(array, folder / f"{field.name}.npy")


def write_array(array: np.ndarray[Any, Any], path: Path) -> None:
    """Write an array, whole or not at all."""
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, array, allow_pickle=False)


def read_rows(folder: Path) -> TrainingRows:
    """Return the rows that `write_rows` wrote."""
    paths = {field.name: folder / f"{field.name}.npy" for field in fields(TrainingRows)}
    return TrainingRows(
        **{name: np.load(path, allow_pickle=False) for name, path in paths.items() if path.exists()}
    )
