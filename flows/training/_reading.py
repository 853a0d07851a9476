"""How batches of labelled catalogues become training rows, in this process or by the workers of an engine.

An object whose reviewers differ has one row for each class that they gave it, with the share of the answers for that
class as its weight, so that the log likelihood is that of the shares.  Names, positions and magnitudes are kept so that
people can look at objects later: no fit uses them, and the version of a model does not depend on them.
A worker writes each batch of its piece into a folder that all machines share.  Here the batches are read again one by
one, in catalogue order, so that rows, shards and hashes are the same as with a single process.
Shapes: n rows of a batch, m training rows of it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import BATCH_ROWS, Catalog, Column
from catalogs.column_names import column_names
from catalogs.errors import CatalogError
from catalogs.expressions.expression import parse
from catalogs.files.atomic import atomic_path
from catalogs.profile.split import name_keys
from catalogs.sky.photometry import State, floats
from catalogs.sky.positions import PositionUnit, positions, unit_of_position
from flows.engines.engine import Engine, in_order
from flows.errors import TrainingError
from flows.features.reader import FeatureReader, training_reader
from flows.features.split import position_unit, split_columns, split_places
from flows.features.units import in_units_of_the_first
from flows.inputs.opening import Piece, Workers
from flows.labels.classes import name_hashes
from flows.labels.reader import LabelReader, label_texts, most_voted, vote_counts
from flows.labels.reviews import Reviews
from flows.labels.source import LabelSource
from flows.specification.specification import Specification
from flows.training._rows import Part, check_seen

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
        counts = vote_counts(label, values) if label.votes else None
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


@dataclass(frozen=True, eq=False)
class RowLabels:
    """Training rows: their numbers in the batch (m,), labels (m,), weights (m,), and which share an object (m,)."""

    row: NDArray[np.intp]
    texts: NDArray[np.object_]
    weight: Floats | None  # None where all weights are 1 in every batch
    shared: NDArray[np.bool_]

    def weighted(self, given: Floats | None) -> Floats | None:
        """Return the weights (m,) that the catalogue gives, multiplied by the weights from reviews."""
        return given if self.weight is None else self.weight if given is None else given * self.weight


def row_labels(
    specification: Specification,
    reviews: Reviews,
    labels: LabelReader,
    values: Mapping[str, np.ndarray[Any, Any]],
    texts: NDArray[np.object_],
    chosen: NDArray[np.bool_],
) -> RowLabels:
    """Return the labels of the training rows that the `chosen` rows (n,) give, whose labels are the `texts` (n,)."""
    row, identifier = np.flatnonzero(chosen), specification.catalog.id
    if identifier is None or not (reviews.votes or reviews.weights):
        return RowLabels(row, texts[row], None, np.zeros(len(row), dtype=bool))
    found: list[tuple[int, str, float, bool]] = []
    for i, name in zip(row.tolist(), label_texts(values[identifier][row]).tolist(), strict=True):
        weight = reviews.weights.get(name, 1.0)
        known = {text: share for text, share in reviews.votes.get(name, {}).items() if labels.knows(text)}
        for text, share in (known or {str(texts[i]): 1.0}).items():
            found.append((i, text, weight * share / (sum(known.values()) or 1.0), len(known) > 1))
    return RowLabels(
        np.array([i for i, *_ in found], dtype=np.intp),
        np.array([text for _, text, *_ in found], dtype=object),
        np.array([weight for *_, weight, _ in found], dtype=np.float64),
        np.array([shared for *_, shared in found], dtype=bool),
    )


LONGEST_IDENTIFIER = 100
"""Most bytes of an identifier that are kept: a column of long texts must not fill the memory."""

BRIGHTEST, FAINTEST = -30.0, 60.0
"""Limits of plausible magnitudes: values outside are taken as marks of missing values."""

Columns = Mapping[str, np.ndarray[Any, Any]]


def place_columns(specification: Specification, catalogs: Sequence[Catalog]) -> tuple[str, ...]:
    """Return the columns of right ascension and declination; none where a catalogue lacks one or its unit."""
    ra, dec = specification.catalog.ra, specification.catalog.dec
    if ra is None or dec is None or not all({ra, dec} <= set(c.names) for c in catalogs):
        return ()
    try:
        for catalog in catalogs:
            unit_of_position(catalog, ra, dec, stated=specification.catalog.position_unit)
    except CatalogError:
        return ()
    return ra, dec


def places(
    specification: Specification,
    catalog: Catalog,
    columns: tuple[str, ...],
    values: Columns,
    chosen: NDArray[np.intp],
) -> NDArray[np.float64] | None:
    """Return right ascension and declination (n, 2) of the chosen rows, in degrees; None without such columns."""
    if not columns:
        return None
    ra, dec = columns
    unit = unit_of_position(catalog, ra, dec, stated=specification.catalog.position_unit)
    place = positions(values[ra][chosen], values[dec][chosen], unit)
    return np.stack([place.ra, place.dec], axis=1)


def identifiers(
    specification: Specification, values: Columns, chosen: NDArray[np.intp]
) -> NDArray[np.bytes_] | None:
    """Return the identifiers of the chosen rows, cut at 100 bytes; None where the specification names no column."""
    name = specification.catalog.id
    if name is None or name not in values:
        return None
    texts = label_texts(values[name][chosen])
    return np.array([text.encode()[:LONGEST_IDENTIFIER] for text in texts.tolist()], dtype=np.bytes_)


def magnitude_column(specification: Specification, catalogs: Sequence[Catalog]) -> tuple[str, ...]:
    """Return the column of the magnitude by which the report shows performance; empty without magnitudes.

    A magnitude that features use comes before the others.
    """
    common = set[str].intersection(*(set(c.names) for c in catalogs))
    used = {name for text in specification.features.values() for name in parse(text).names}
    found = [c for c in catalogs[0].columns if c.name in common and _is_magnitude(c)]
    best = sorted(found, key=lambda c: c.name not in used)  # a stable sort keeps the catalogue's order
    return (best[0].name,) if best else ()


def magnitudes(
    column: tuple[str, ...], values: Columns, chosen: NDArray[np.intp]
) -> NDArray[np.float64] | None:
    """Return the magnitudes (n,) of the chosen rows, NaN where missing; None without a column of numbers."""
    if not column or values[column[0]].dtype.kind not in "iuf":
        return None
    magnitude = floats(values[column[0]][chosen])
    return np.where((magnitude > BRIGHTEST) & (magnitude < FAINTEST), magnitude, np.nan)


def _is_magnitude(column: Column) -> bool:
    """Say whether a column holds magnitudes: by its UCD or, without one, by its unit and name."""
    ucd, name = (column.ucd or "").lower(), column.name
    if ucd:
        return "phot.mag" in ucd and "stat.error" not in ucd and "color" not in ucd
    named = column_names().magnitude.fits(name)
    return named and (column.unit or "mag").strip().lower() in {"mag", "mags"} and "err" not in name.lower()


R = TypeVar("R")

CONTENT = "content-"
"""Prefix of the names of those arrays that hold a column as bytes."""


@dataclass(frozen=True)
class ByEngine:
    """Hands pieces out to the workers of an engine; an error calls a piece by its file."""

    engine: Engine

    def __call__(self, work: Callable[[Piece], R], pieces: Sequence[Piece], /) -> Generator[tuple[Piece, R]]:
        """Yield each piece with what a worker found in it, in their order."""
        return in_order(
            self.engine, work, pieces, number=lambda p: p.number, name=lambda p: str(p.partition.path)
        )


@dataclass(frozen=True)
class Report:
    """What a worker reports on a piece: the counts of each batch, and those of its source of labels."""

    batches: tuple[Counted, ...]
    source: LabelSource


@dataclass(frozen=True, eq=False)
class PieceReader:
    """Reads a piece on a worker, and writes its batches into the folder."""

    readings: tuple[RowReading, ...]
    source: LabelSource
    folder: Path

    def __call__(self, piece: Piece) -> Report:
        """Read a piece and write its batches; return what was counted."""
        check_seen(self.folder)
        reading, source = self.readings[piece.catalog], self.source.counting()
        counted: list[Counted] = []
        for batch in piece.partition.batches(reading.readers.general.read, BATCH_ROWS):
            read = reading.read(batch, source)
            _write(_file(self.folder, piece.number, len(counted)), read)
            counted.append(read.counted)
        return Report(tuple(counted), source.counts_alone())


def read_by_workers(
    readings: Sequence[RowReading], source: LabelSource, workers: Workers, folder: Path
) -> Iterator[BatchOfRows]:
    """Yield the batches of catalogues in their order; the source of labels gets the counts of the workers."""
    reader = PieceReader(tuple(reading.without_files() for reading in readings), source, folder.absolute())
    for piece, report in workers.in_order(reader):
        source.add(report.source)
        for j, counted in enumerate(report.batches):
            yield _read_and_remove(_file(folder, piece.number, j), counted)


def _file(folder: Path, piece: int, batch: int) -> Path:
    return folder / f"{piece:06d}-{batch:04d}.npz"


def _write(path: Path, read: BatchOfRows) -> None:
    """Write a batch to its final name at once: another worker may have begun this file, or may still write it."""
    arrays: dict[str, Any] = {
        f.name: a for f in fields(Part) if (a := getattr(read.part, f.name)) is not None
    }
    arrays |= {CONTENT + name: np.frombuffer(text, np.uint8) for name, text in read.content.items()}
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)


def _read_and_remove(path: Path, counted: Counted) -> BatchOfRows:
    """Return a batch from its file, and remove the file."""
    with np.load(path, allow_pickle=False) as stored:
        arrays: dict[str, Any] = {name: stored[name] for name in stored.files}
    path.unlink()
    content = {
        n.removeprefix(CONTENT): arrays.pop(n).tobytes() for n in list(arrays) if n.startswith(CONTENT)
    }
    part: dict[str, Any] = {f.name: arrays.get(f.name) for f in fields(Part)}
    return BatchOfRows(Part(**part), content, counted)
