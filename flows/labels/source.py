"""Where a row's label comes from: a column, a separate table joined by identifier or position, or a review's answers.

A label table, of one file or several, is held in memory, and rows are joined to it batch by batch: by hashes of
identifiers, or in a tree of positions.  An object that a table labels twice, differently, has a conflict: it is
reported, and has no label.  What came back from review (`flows.labels.reader`) replaces what the catalogue says.
Before any row is kept, labels are counted as they are found, and rows of one name with several classes are looked for.
Shapes: n rows of a batch, L labels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import merge
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import catalogs
from blr.arrays import Array, Places
from catalogs.arrays import batch_values, hashed, hashed_strings, plain_texts
from catalogs.catalog.catalog import BATCH_ROWS, Catalog, Column, Partition
from catalogs.catalog.new_columns import standard_columns
from catalogs.errors import NameClashError, brief, nearest
from catalogs.sky.positions import PositionTree, PositionUnit, positions, unit_of_position
from flows.errors import SpecificationError, TrainingError
from flows.features.reader import FeatureReader, in_units_of_the_first, label_columns_reader, position_unit
from flows.inputs.opening import Piece, Workers
from flows.inputs.source import fetched_sources, resolve_sources
from flows.labels.reader import (
    NO_REVIEWS,
    Conflicts,
    LabelReader,
    Reviews,
    plain_number,
    read_reviews,
    require_exact,
)
from flows.specification.specification import Specification


@dataclass
class LabelSource:
    """Labels of batches, and what was met on the way: how many matched, and which objects have two labels."""

    column: str
    identifier: str | None = None
    by_id: LabelNames | None = None
    by_place: LabelPlaces | None = None
    place: tuple[str, str] | None = None
    reviews: Reviews = NO_REVIEWS
    n_reviewed: int = 0
    n_joined: int = 0
    n_unplaced: int = 0
    taken: Array | None = None  # of each labelled place: how many rows have its label, 2 for more
    first_met: str = ""
    numbered: bool = False  # whether identifiers are numbers, in the table or in the catalogue

    @classmethod
    def of(cls, specification: Specification, opened: Sequence[Catalog]) -> LabelSource:
        """Return the source that a specification names; its tables are read.

        A table's names are taken as numbers where identifiers of any of these catalogues are, before a row is read.
        So the label of a row depends neither on the rows before it nor on who reads it.
        """
        label, catalog, base = specification.label, specification.catalog, Path(specification.base_folder)
        place = (catalog.ra, catalog.dec) if catalog.ra and catalog.dec else None
        types = [column.datatype for one in opened for column in one.columns if column.name == catalog.id]
        numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        numbered = any(is_number(one) for one in types for is_number in numbers)
        source = cls(label.column or "", catalog.id, place=place, numbered=numbered)
        if label.table is not None:
            places = resolve_sources([label.table.path], base, key="label.table.path")
            named = (label.table.id, label.table.ra, label.table.dec, label.column)
            with fetched_sources(places) as here:
                columns = [name for name in named if name]
                tables = [catalogs.open(file.path, columns=columns) for file in here]
                if label.table.id is not None:
                    source._join_by_id(tables, label.table.id)
                else:
                    source._join_by_place(specification, tables)
        if label.extra:
            with fetched_sources(resolve_sources(label.extra, base, key="label.extra")) as lists:
                paths = [one.path for one in lists]
                source.reviews = read_reviews(paths, catalog.id, label, numbered=numbered)
        return source

    def texts(self, values: Mapping[str, Array], unit: PositionUnit = "deg") -> Array:
        """Return the labels (n,) of rows, '' where it is missing, from the columns under our names."""
        given, names = self.reviews.answers, []
        if self.by_id is not None or given:
            names = plain_texts(values[str(self.identifier)]).tolist()
            self.first_met = self.first_met or next((name for name in names if name), "")
        if self.by_id is not None:
            require_exact(values[str(self.identifier)], "catalog.id", str(self.identifier))
            labels = self.by_id.texts([*map(plain_number, names)] if self.numbered else names)
            self.n_joined += int(np.count_nonzero(labels != ""))
        elif self.by_place is not None and self.place:
            ra, dec = (values[name] for name in self.place)
            here = positions(ra, dec, unit)
            labels, numbers = self.by_place.nearest(here.ra, here.dec)
            self._take(self.by_place, *np.unique(numbers[numbers >= 0], return_counts=True))
            self.n_joined += int(np.count_nonzero(labels != ""))
        else:
            labels = plain_texts(values[self.column])
        if not given:
            return labels
        answers = np.array([given.get(name, "") for name in names], dtype=object)
        self.n_reviewed += int(np.count_nonzero(answers != ""))
        return np.where(answers != "", answers, labels)

    def counting(self) -> LabelSource:
        """Return the same source with counts of its own, which begin at nothing."""
        return replace(self, n_reviewed=0, n_joined=0, taken=None, first_met="")

    def counts_alone(self) -> LabelSource:
        """Return the counts, without the tables that labels come from; of places, those that are taken alone."""
        numbers = np.empty(0, np.intp) if self.taken is None else np.flatnonzero(self.taken)
        taken = None if self.taken is None else np.stack([numbers, self.taken[numbers]])
        return replace(self, by_id=None, by_place=None, reviews=NO_REVIEWS, taken=taken)

    def add(self, other: LabelSource) -> None:
        """Add the `counts_alone` of another, which gave labels to rows that come after those of this one."""
        self.n_reviewed += other.n_reviewed
        self.n_joined += other.n_joined
        self.first_met = self.first_met or other.first_met
        if other.taken is not None and self.by_place is not None:
            self._take(self.by_place, *other.taken)

    def require_match(self, *, trial: bool = False) -> None:
        """Raise `TrainingError` where a table has labels, or reviews have answers, and no row that was read has any.

        The few rows of a `trial` may have no answers.
        """
        given = self.reviews.answers
        if given and not self.n_reviewed and not trial:
            raise TrainingError(
                f"label.extra: got answers to {len(given):,} objects such as '{brief(next(iter(given)))}', but "
                f"catalog.id = \"{self.identifier}\" holds others, such as '{brief(self.first_met)}', expected the "
                "same names in both; correct them, or add the catalogue of these objects to catalog.paths"
            )
        if self.n_joined:
            return
        if self.by_id:
            theirs, ours = brief(self.by_id.first), brief(str(self.first_met))
            raise TrainingError(
                f"label.table: got {len(self.by_id):,} labelled identifiers such as '{theirs}', but "
                f"catalog.id = \"{self.identifier}\" holds others, such as '{ours}', expected the same names "
                "in both; correct label.table.id or catalog.id, or join by position"
            )
        if self.by_place:
            raise TrainingError(
                f"label.table: got {len(self.by_place):,} labelled places, none within "
                f"{self.by_place.radius:g} arcseconds of a row; expected the same part of the sky, equinox and "
                "unit in both; correct label.table.ra and dec, or widen its radius"
            )

    def content(self) -> Iterator[tuple[str, str]]:
        """Yield what tables say, by object or place, in order: part of what makes a model's version."""
        table, last, found = self.by_id or self.by_place, "", self.reviews
        reviewed = {f"reviewed {name}": text for name, text in found.answers.items()}
        reviewed |= {f"votes {name}": repr(sorted(shares.items())) for name, shares in found.votes.items()}
        reviewed |= {f"weight {name}": repr(weight) for name, weight in found.weights.items()}
        for name, text in merge(sorted(reviewed.items()), () if table is None else table.content()):
            if name != last or name not in reviewed:  # of a review and a table, the review counts
                yield name, reviewed.get(name, text)
            last = name

    def _take(self, table: LabelPlaces, numbers: Array, rows: Array) -> None:
        """Count that so many rows have the labels of these numbers; counts end at 2, and copies keep theirs."""
        taken = np.zeros(len(table), np.uint8) if self.taken is None else self.taken.copy()
        taken[numbers] += np.minimum(rows, 2).astype(np.uint8)
        self.taken = np.minimum(taken, 2)

    def _join_by_id(self, tables: Sequence[Catalog], key: str) -> None:
        if self.identifier is None:
            raise SpecificationError(
                "label.table: got labels to join by identifier without a catalog.id, expected the column that names "
                'an object; add id = "..." under [catalog]'
            )
        kinds: dict[str, int] = {}
        names, codes = [pa.array([], pa.large_string())], [np.empty(0, np.int32)]
        for keys, texts in chain.from_iterable(_columns(table, [key, self.column]) for table in tables):
            require_exact(keys, "label.table", key)
            self.numbered |= keys.dtype.kind in "iuf"
            found = plain_texts(keys)
            known = (found != "") & (texts != "")
            names.append(pa.array(found[known].tolist(), pa.large_string()))
            of_batch = (kinds.setdefault(text, len(kinds)) for text in texts[known].tolist())
            codes.append(np.fromiter(of_batch, np.int32, int(known.sum())))
        every = pa.concat_arrays(names)
        if self.numbered:  # '0001234' is 1234, and two names of one number may be in conflict
            every = pa.array([*map(plain_number, every.to_pylist())], pa.large_string())
        self.by_id = LabelNames.of(every, np.concatenate(codes), list(kinds))

    def _join_by_place(self, specification: Specification, tables: Sequence[Catalog]) -> None:
        columns = specification.label.table
        if columns is None or columns.ra is None or columns.dec is None:
            return
        if self.place is None:
            raise SpecificationError(
                "label.table: got labels to join by position without catalog.ra and catalog.dec, expected the "
                "columns of the position; add them under [catalog]"
            )
        parts: list[tuple[Array, ...]] = [(np.empty(0), np.empty(0), np.empty(0, dtype=object))]
        for table in tables:
            unit = unit_of_position(
                table, columns.ra, columns.dec, stated=columns.position_unit, table="[label.table]"
            )
            for ra, dec, texts in _columns(table, [columns.ra, columns.dec, self.column]):
                place = positions(ra, dec, unit)
                self.n_unplaced += int(np.count_nonzero(np.isnan(place.ra) & (texts != "")))
                parts.append((place.ra, place.dec, texts))
        ra, dec, texts = map(np.concatenate, zip(*parts, strict=True))
        self.by_place = LabelPlaces.of(ra, dec, texts, columns.radius)


def _columns(table: Catalog, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield batches of a label table's columns, the last one as label texts, the others as they are."""
    for name in names:
        if name not in table.names:
            raise SpecificationError(
                f"label.table: got '{name}', which is not a column of {table.path}, expected one of its columns; "
                f"{nearest(name, table.names)}"
            )
    for batch in table.batches(list(names)):
        values = batch_values(batch, names)
        *others, texts = (values[name] for name in names)
        yield (*others, plain_texts(texts))


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledFile(Partition):
    """A file of a catalogue, whose column `label` holds what `source` says of its rows; `unit` is that of positions."""

    file: Partition
    label: str
    source: LabelSource
    unit: PositionUnit

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, of which the label is joined."""
        keys = [name for name in (self.source.identifier, *(self.source.place or ())) if name]
        own = [*dict.fromkeys([*(name for name in columns if name != self.label), *keys])]
        for batch in self.file.batches(own, rows):
            texts = self.source.texts(batch_values(batch, keys), self.unit)
            found = dict(zip(own, batch.columns, strict=True)) | {self.label: pa.array(texts, pa.string())}
            yield pa.record_batch({name: found[name] for name in columns})


def with_labels(catalog: Catalog, specification: Specification) -> tuple[Catalog, LabelSource]:
    """Return a catalogue that has the labels of a specification's table as a column, and what gives them."""
    source, unit = LabelSource.of(specification, [catalog]), position_unit(specification, catalog)
    label = source.column
    files = (
        LabelledFile(
            path=p.path,
            key=p.key,
            n_rows=p.n_rows,
            counted=p.counted,
            file=p,
            label=label,
            source=source,
            unit=unit,
        )
        for p in catalog.partitions
    )
    own = (column for column in catalog.columns if column.name != label)
    columns = (*own, Column(label, pa.string()))
    return replace(catalog, columns=columns, partitions=tuple(files)), source


SHOWN = 20
"""Objects in conflict, or in dispute, that are named."""


def place_conflicts(ra: Array, dec: Array, texts: Array, radius: float) -> dict[int, tuple[str, ...]]:
    """Return the labels within the radius of those places where they differ, by the place's index."""
    pairs = PositionTree(ra, dec, radius=radius).pairs()
    differing = pairs[texts[pairs[:, 0]] != texts[pairs[:, 1]]]
    found: dict[int, set[str]] = {}
    for i, j in np.concatenate([differing, differing[:, ::-1]]).tolist():
        found.setdefault(i, {texts[i]}).add(texts[j])
    return {i: tuple(sorted(found[i])) for i in sorted(found)}


@dataclass(frozen=True, eq=False)
class LabelNames:
    """Labels by identifier: the `names` of a table's rows, by `codes` the place of each one's label in `kinds`.

    `keys` (L,) are hashes, in order, of the names that have one label; `rows` (L,) is the first row of each.
    """

    names: pa.Array
    codes: NDArray[np.int32]
    kinds: tuple[str, ...]
    keys: NDArray[np.uint64]
    rows: Places
    conflicts: Conflicts

    @classmethod
    def of(cls, names: pa.Array, codes: NDArray[np.int32], kinds: Sequence[str]) -> LabelNames:
        """Return the labels of a table's rows, each with a name and a label."""
        hashes = hashed_strings(names) if len(names) else np.empty(0, np.uint64)
        keys, first, group = np.unique(hashes, return_index=True, return_inverse=True)
        bad = np.zeros(len(keys), dtype=bool)
        bad[group[codes != codes[first[group]]]] = True
        called = names.take(pa.array(first[bad])).to_pylist()
        differing = dict(zip(called, np.flatnonzero(bad).tolist(), strict=True))
        shown = {
            name: tuple(dict.fromkeys(kinds[code] for code in codes[group == differing[name]].tolist()))
            for name in sorted(differing)[:SHOWN]
        }
        return cls(names, codes, tuple(kinds), keys[~bad], first[~bad], (len(differing), shown))

    def __len__(self) -> int:
        """L, the number of objects with a label."""
        return len(self.keys)

    @property
    def first(self) -> str:
        """The first identifier of the table that has a label."""
        return str(self.names[int(self.rows.min())]) if len(self) else ""

    def texts(self, names: Sequence[str]) -> Array:
        """Return the labels (n,) of objects by identifier, '' of an object without one."""
        texts = np.full(len(names), "", dtype=object)
        if len(self) and len(names):
            wanted = hashed(np.array(names, dtype=object))
            place = np.minimum(np.searchsorted(self.keys, wanted), len(self) - 1)
            known = self.keys[place] == wanted
            texts[known] = np.array(self.kinds, dtype=object)[self.codes[self.rows[place[known]]]]
        return texts

    def content(self) -> Iterator[tuple[str, str]]:
        """Yield the identifiers with their labels, in order."""
        order = self.rows[pc.sort_indices(self.names.take(self.rows)).to_numpy()]
        for start in range(0, len(order), BATCH_ROWS):
            rows = order[start : start + BATCH_ROWS]
            labels = (self.kinds[code] for code in self.codes[rows].tolist())
            yield from zip(self.names.take(pa.array(rows)).to_pylist(), labels, strict=True)


@dataclass(frozen=True, eq=False)
class LabelPlaces:
    """Labels (L,) by position, in degrees; `radius` is that within which positions match, in arcseconds."""

    ra: Array
    dec: Array
    labels: Array
    radius: float
    conflicts: Conflicts
    tree: PositionTree

    @classmethod
    def of(cls, ra: Array, dec: Array, texts: Array, radius: float) -> LabelPlaces:
        """Return the labels of a table's rows; those that differ from another one within the radius are left out."""
        known = np.isfinite(ra) & np.isfinite(dec) & (texts != "")
        ra, dec, texts = ra[known], dec[known], texts[known]
        differing = place_conflicts(ra, dec, texts, radius)
        names: dict[str, tuple[str, ...]] = {}
        for i, labels in differing.items():
            name = f"{ra[i]:.6f} {dec[i]:+.6f}"
            names[name] = tuple(dict.fromkeys([*names.get(name, ()), *labels]))
        ra, dec, texts = (np.delete(x, list(differing)) for x in (ra, dec, texts))
        conflicts = (len(names), {name: names[name] for name in sorted(names)[:SHOWN]})
        return cls(ra, dec, texts, radius, conflicts, PositionTree(ra, dec, radius=radius))

    def __len__(self) -> int:
        """L, the number of places with a label."""
        return len(self.labels)

    def nearest(self, ra: Array, dec: Array) -> tuple[Array, Places]:
        """Return the labels (n,) of the nearest places within the radius, '' where none is, and their numbers or -1."""
        number = self.tree.nearest(ra, dec)
        texts = np.full(len(ra), "", dtype=object)
        texts[number >= 0] = self.labels[number[number >= 0]]
        return texts, number

    def content(self) -> Iterator[tuple[str, str]]:
        """Yield the places with their labels, in order."""
        pairs = zip(self.ra.tolist(), self.dec.tolist(), self.labels.tolist(), strict=True)
        # Of one place that the table has twice, the labels do not differ.
        yield from sorted({f"{ra!r} {dec!r}": text for ra, dec, text in pairs}.items())


MOST_KNOWN = 10_000
"""Objects of several classes among which those are looked for that are named."""


def repeated_in_conflict(
    pieces: Iterable[tuple[NDArray[np.uint64], NDArray[np.integer]]],
    classes: Sequence[str],
    hashes: NDArray[np.uint64],
    names: NDArray[np.bytes_],
) -> Conflicts:
    """Return how many names have rows of several classes, and the first of them among rows in memory.

    The rows stay: they may be several observations, or two objects whose names were rounded to one.

    `pieces` are hashes of names and class indices of rows, (n,) each; all rows of a name are in one piece.  `hashes`
    and `names` (N,) are those of the rows in memory.
    """
    n, known = 0, dict[int, tuple[str, ...]]()
    for found, target in pieces:
        order = np.lexsort((target, found))
        name, index = found[order], target[order]
        differ = (name[1:] == name[:-1]) & (index[1:] != index[:-1]) & (name[1:] != 0)
        repeated = np.unique(name[1:][differ])
        n += len(repeated)
        some = repeated[: MOST_KNOWN - len(known)]
        rows = zip(np.searchsorted(name, some), np.searchsorted(name, some, side="right"), strict=True)
        for one, (first, last) in zip(some.tolist(), rows, strict=True):
            known[one] = tuple(classes[k] for k in np.unique(index[first:last]).tolist())
    here = np.isin(hashes, np.array([*known], dtype=np.uint64))
    pairs = dict(zip(names[here].tolist(), hashes[here].tolist(), strict=True))
    return n, {name.decode(errors="replace"): known[pairs[name]] for name in [*pairs][:SHOWN]}


RARE = 20
"""Rows below which a class may have none that is held out: the other classes' judge the model."""


def label_reader(
    specification: Specification,
    catalogs: Sequence[Catalog],
    source: LabelSource,
    *,
    limit: int | None = None,
    workers: Workers | None = None,
) -> LabelReader:
    """Return the classes that the specification lists, or those met; `TrainingError` where two clash as columns.

    Those met come of a pass over the labels alone, so that names that clash are refused before any other work.
    """
    label = specification.label
    if label.classes or label.votes:
        return LabelReader.of(label, Counter())
    general = label_columns_reader(specification)
    readings = [
        (in_units_of_the_first(general, one, catalogs[0]), position_unit(specification, one))
        for one in catalogs
    ]
    if workers is None:
        counts = _labels_of_batches(source, readings, first_batches(catalogs, general, limit))
    else:
        work = partial(_labels_of_piece, specification, source, readings, general.read)
        counts = (found for _, found in workers(work))
    return LabelReader.of(label, _distinct_labels(specification, counts))


Readings = Sequence[tuple[FeatureReader, PositionUnit]]
"""The reader of each catalogue's labels, and the unit of its positions."""


def _labels_of_piece(
    specification: Specification,
    source: LabelSource,
    readings: Readings,
    columns: tuple[str, ...],
    piece: Piece,
) -> Counter[str]:
    batches = ((piece.catalog, batch) for batch in piece.partition.batches(columns, BATCH_ROWS))
    return _distinct_labels(specification, _labels_of_batches(source, readings, batches))


def _labels_of_batches(
    source: LabelSource, readings: Readings, batches: Iterable[tuple[int, pa.RecordBatch]]
) -> Iterator[Counter[str]]:
    """Yield how often a batch's selected rows have each label; a batch comes with the number of its catalogue."""
    own = source.counting()  # the counts of `source` are of the rows, once each
    for number, batch in batches:
        reader, unit = readings[number]
        yield Counter(own.texts(reader.values(batch), unit)[reader.select(batch)].tolist())


def _distinct_labels(specification: Specification, counts: Iterable[Counter[str]]) -> Counter[str]:
    """Return the sum of counts, in the labels' order; `TrainingError` as soon as two of them clash."""
    seen: Counter[str] = Counter()
    for found in counts:
        n_labels = len(seen)
        seen.update(found)
        if len(seen) > n_labels:
            check_names(specification, LabelReader.of(specification.label, seen).classes)
    return seen


def check_names(specification: Specification, classes: Sequence[str]) -> None:
    """Raise `TrainingError` where columns of classes would have one name."""
    output = specification.output
    if len(classes) < 2:
        return
    try:
        specification.check_sets(len(classes))
    except ValueError as error:
        raise TrainingError(str(error)) from error
    try:
        standard_columns(classes, output.prefix, columns=output.columns)
    except NameClashError as error:
        raise TrainingError(
            f"label.column: {error}; to join classes that differ only in upper and lower case, set "
            "case_sensitive = false under [label]"
        ) from error


def first_batches(
    catalogs: Iterable[Catalog], reader: FeatureReader, limit: int | None
) -> Iterable[tuple[int, pa.RecordBatch]]:
    """Yield what a reader reads of catalogues, of so many rows at most: batches with the catalogues' numbers."""
    left = math.inf if limit is None else limit
    for number, catalog in enumerate(catalogs):
        for batch in catalog.batches(reader.read, int(min(BATCH_ROWS, left))):
            yield number, batch.slice(0, int(min(left, batch.num_rows)))
            left -= batch.num_rows
            if left <= 0:
                return
