"""How one batch of a labelled catalogue becomes training rows.

Shapes: n rows of the batch.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.expressions.expression import parse
from catalogs.profile.split import name_keys
from catalogs.sky.photometry import State, floats
from catalogs.sky.positions import PositionUnit
from flows.errors import TrainingError
from flows.features.reader import FeatureReader, training_reader
from flows.features.split import position_unit, split_columns, split_places
from flows.features.units import in_units_of_the_first
from flows.labels.conflicts import name_hashes
from flows.labels.reader import LabelReader, label_texts
from flows.labels.source import LabelSource
from flows.labels.votes import VoteReader, most_voted
from flows.specification.specification import Specification
from flows.training._collected import Part
from flows.training._objects import identifiers, magnitude_column, magnitudes, place_columns, places
from flows.training._row_labels import row_labels

__all__ = ["BatchOfRows", "ContentHash", "Readers", "RowReading", "spelled"]

Floats = NDArray[np.float64]


class ContentHash:
    """A hash of columns, each hashed on its own, so that the boundaries of batches do not matter."""

    def __init__(self, names: Iterable[str]) -> None:
        self._columns = {name: hashlib.sha256() for name in names}

    def feed(self, spelled: Mapping[str, bytes]) -> None:
        """Add the rows of a batch, as `spelled` writes them."""
        for name, column in self._columns.items():
            column.update(spelled[name])

    def hexdigest(self, also: Iterable[tuple[str, str]] = ()) -> str:
        """Return the hash of all columns, and of the texts in `also`, in order: labels from other tables, by object."""
        digests = {name: column.hexdigest() for name, column in self._columns.items()}
        # Of the list as Python shows it, since that was hashed before; but the list is never held.
        listed, n = hashlib.sha256(b"["), 0
        for pair in also:
            listed.update(f"{', ' if n else ''}{pair!r}".encode())
            n += 1
        if n:
            listed.update(b"]")
            digests[""] = listed.hexdigest()
        return hashlib.sha256("\n".join(f"{n} {digests[n]}" for n in sorted(digests)).encode()).hexdigest()


def spelled(batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, bytes]:
    """Return columns as bytes, which are the same whatever the format of the file."""
    found = {}
    for name, values in batch_values(batch, names).items():
        if values.dtype.kind in "OUS":
            found[name] = b"".join(b"%d:%s" % (len(t), t) for t in (str(v).encode() for v in values.ravel()))
        else:
            plain = np.ma.filled(np.ma.asanyarray(values).astype("<f8"), np.nan)
            one_nan = np.where(np.isnan(plain), np.nan, plain)  # NaN has many bit patterns
            found[name] = one_nan.tobytes()
    return found


@dataclass(frozen=True)
class Counted:
    """What was counted in a batch: rows, labels of the selected rows, and the states of photometry."""

    n_read: int
    n_selected: int
    seen: Counter[str]
    states: Counter[tuple[str, State]]


@dataclass(frozen=True, eq=False)
class BatchOfRows:
    """What a batch contributes: its training rows, their columns as bytes, and what was counted on the way."""

    part: Part
    content: Mapping[str, bytes]
    counted: Counted


@dataclass(frozen=True)
class Readers:
    """The reader of the labelled catalogues, and groups of its columns.

    `general` reads all columns.  `names` are those whose content decides the version of the model.  `located` and
    `brightness` are the columns of positions and of magnitudes.
    """

    general: FeatureReader
    names: tuple[str, ...]
    located: tuple[str, ...]
    brightness: tuple[str, ...]

    @classmethod
    def of(cls, specification: Specification, catalogs: Sequence[Catalog]) -> Self:
        """Return the readers for the catalogues of a specification."""
        plain = training_reader(specification, split_by=split_columns(specification))
        located = place_columns(specification, catalogs)
        # A magnitude that features use is read as theirs, so that its unit is converted.  A magnitude from which
        # [photometry] makes another one is not read a second time.
        featured = {name for expression in plain.features.values() for name in expression.names}
        brightness = tuple(
            name
            for name in magnitude_column(specification, catalogs)
            if name in featured or name not in plain.names
        )
        more = dict.fromkeys(located, "catalog.ra and catalog.dec") | dict.fromkeys(
            set(brightness) - featured, "the report"
        )
        return cls(replace(plain, also=more | dict(plain.also)), plain.names, located, brightness)


@dataclass(frozen=True)
class RowReading:
    """Turns the batches of one catalogue into training rows."""

    specification: Specification
    readers: Readers
    labels: LabelReader
    reader: FeatureReader
    catalog: Catalog
    unit: PositionUnit

    @classmethod
    def of(
        cls,
        specification: Specification,
        readers: Readers,
        labels: LabelReader,
        catalog: Catalog,
        first: Catalog,
    ) -> Self:
        """Return the reading of a catalogue, in the units of the `first` one."""
        reader = in_units_of_the_first(readers.general, catalog, first)
        return cls(specification, readers, labels, reader, catalog, position_unit(specification, catalog))

    def without_files(self) -> Self:
        """Return the same reading without the list of files, which may be long and which workers do not need."""
        return replace(self, catalog=replace(self.catalog, partitions=(), whole=None))

    def read(self, batch: pa.RecordBatch, source: LabelSource) -> BatchOfRows:
        """Return the training rows of a batch; the source gives their labels."""
        specification, label = self.specification, self.specification.label
        selected = self.reader.select(batch)
        values = self.reader.values(batch)
        counts = VoteReader.of(label).counts(values) if label.votes else None
        texts = (
            source.texts(values, self.unit)
            if counts is None
            else most_voted(counts, tuple(label.votes or ()))
        )
        chosen = selected & (self.labels.read(texts) >= 0)
        labels = row_labels(specification, source.reviews, self.labels, values, texts, chosen)
        row = labels.row
        rows = batch.take(pa.array(row))
        target = self.labels.read(labels.texts)
        part = self._part(rows, target, None if counts is None else counts[row])
        named = None
        if counts is None and specification.catalog.id in values:
            hashed = name_hashes(values[specification.catalog.id][row])
            named = np.where(labels.shared, np.uint64(0), hashed)
        whole = replace(
            part,
            weight=labels.weighted(part.weight),
            identifier=identifiers(specification, values, row),
            position=places(specification, self.catalog, self.readers.located, values, row),
            magnitude=magnitudes(self.readers.brightness, values, row),
            named=named,
        )
        return BatchOfRows(
            whole,
            spelled(rows, self.readers.names),
            Counted(
                batch.num_rows,
                int(selected.sum()),
                Counter(texts[selected].tolist()),
                Counter(self.reader.count_states(rows)),
            ),
        )

    def _part(self, batch: pa.RecordBatch, target: NDArray[np.intp], votes: Floats | None) -> Part:
        """Return the arrays of a batch that holds training rows only."""
        specification = self.specification
        features = self.reader.evaluate(batch)
        values = self.reader.values(batch)
        text = specification.catalog.weight
        weight = None if text is None else _weight(text, values)
        if weight is not None and not (np.isfinite(weight) & (weight >= 0)).all():
            bad = int((~(np.isfinite(weight) & (weight >= 0))).sum())
            raise TrainingError(
                f'catalog.weight: got {bad} training rows where "{text}" is negative or missing, expected a weight of '
                "0 or more in each; leave such rows out with catalog.where"
            )
        place = split_places(specification, values, self.unit)
        column = specification.label.annotator
        who = None if column is None else label_texts(values[column]).astype(str)
        identifier = specification.catalog.id
        name = name_keys([values[identifier]]) if identifier in values else None
        index = target.astype(np.int16)
        return Part(features.X, features.missing, index, place, weight, votes, features.errors, who, name)


def _weight(text: str, values: Mapping[str, np.ndarray[Any, Any]]) -> Floats:
    weight = parse(text).evaluate(values)
    if weight.dtype.kind not in "biuf":
        raise TrainingError(
            f'catalog.weight: got "{text}", which gives text, expected numbers of 0 or more; choose '
            "another column"
        )
    return np.asarray(np.broadcast_to(floats(weight), next(iter(values.values())).shape[:1]))
