"""Where a row's label comes from: a column, a separate table joined by identifier or position, or a review's answers.

A label table is sorted into a file, of which each batch reads its part.  An object that a
table labels twice, differently, has a conflict: it is reported, and has no label.  What came back from review
(`flows.labels.reviews`) replaces what the catalogue says.
Shapes: n rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

import numpy as np
import pyarrow as pa

import catalogs
from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.errors import brief, nearest
from catalogs.sky.positions import PositionUnit, positions, unit_of_position
from flows.errors import SpecificationError, TrainingError
from flows.inputs.fetching import fetched_sources
from flows.inputs.source import resolve_sources
from flows.labels._stored_labels import LabelNames, LabelPlaces
from flows.labels.reader import Conflicts, label_texts, require_exact
from flows.labels.reviews import Reviews, read_reviews
from flows.specification.specification import Specification

Array = np.ndarray[Any, Any]


@dataclass
class LabelSource:
    """Labels of batches, and what was met on the way: how many matched, and which objects have two labels."""

    column: str
    identifier: str | None = None
    by_id: LabelNames | None = None
    by_place: LabelPlaces | None = None
    place: tuple[str, str] | None = None
    reviews: Reviews = field(default_factory=Reviews)
    n_reviewed: int = 0
    n_joined: int = 0
    n_unplaced: int = 0
    taken: Array | None = None  # of each labelled place: how many rows have its label, 2 for more
    first_met: str = ""
    numbered: bool = False  # whether identifiers are numbers, in the table or in the catalogue

    @classmethod
    def of(cls, specification: Specification, folder: Callable[[], Path] | None = None) -> LabelSource:
        """Return the source that a specification names; its tables are read.

        `folder` makes the folder for the table's file; without it, the file is temporary, and goes with the source.
        """
        label, catalog, base = specification.label, specification.catalog, Path(specification.base_folder)
        source = cls(
            label.column or "",
            catalog.id,
            place=(catalog.ra, catalog.dec) if catalog.ra and catalog.dec else None,
        )
        if label.table is not None:
            places = resolve_sources([label.table.path], base, key="label.table.path")
            named = (label.table.id, label.table.ra, label.table.dec, label.column)
            with fetched_sources(places[:1]) as (here, *_):
                table = catalogs.open(here.path, columns=[name for name in named if name])
                if folder is None:
                    below = Path(mkdtemp(prefix="blr-labels-"))
                    finalize(source, rmtree, below, ignore_errors=True)
                else:
                    below = folder().absolute()
                file = below / "labels.sqlite"
                if label.table.id is not None:
                    source._join_by_id(table, label.table.id, file)
                else:
                    source._join_by_place(specification, table, file)
        if label.extra:
            with fetched_sources(resolve_sources(label.extra, base, key="label.extra")) as lists:
                source.reviews = read_reviews([one.path for one in lists], catalog.id, label)
        return source

    def compare_with(self, opened: Sequence[Catalog]) -> None:
        """Take the table's names as numbers where identifiers of any of these catalogues are, before a row is read.

        So the label of a row depends neither on the rows before it nor on who reads it.
        """
        if self.by_id is None or self.identifier is None:
            return
        types = [catalog.column(self.identifier).datatype for catalog in opened]
        if any(pa.types.is_integer(one) or pa.types.is_floating(one) for one in types):
            self._number_the_names()

    def texts(self, values: Mapping[str, Array], unit: PositionUnit = "deg") -> Array:
        """Return the labels (n,) of rows, '' where it is missing, from the columns under our names."""
        if self.by_id is not None:
            identifiers = values[str(self.identifier)]
            require_exact(identifiers, "catalog.id", str(self.identifier))
            if identifiers.dtype.kind in "iuf":
                self._number_the_names()
            names = label_texts(identifiers).tolist()
            self.first_met = self.first_met or next((name for name in names if name), "")
            labels = self.by_id.texts(names)
            self.n_joined += int(np.count_nonzero(labels != ""))
        elif self.by_place is not None and self.place:
            ra, dec = (values[name] for name in self.place)
            here = positions(ra, dec, unit)
            labels, numbers = self.by_place.nearest(here.ra, here.dec)
            self._take(self.by_place, *np.unique(numbers[numbers >= 0], return_counts=True))
            self.n_joined += int(np.count_nonzero(labels != ""))
        else:
            labels = label_texts(values[self.column])
        if not self.reviews.labels:
            return labels
        names = label_texts(values[str(self.identifier)])
        answers = np.array([self.reviews.labels.get(name, "") for name in names.tolist()], dtype=object)
        self.n_reviewed += int(np.count_nonzero(answers != ""))
        return np.where(answers != "", answers, labels)

    def counting(self) -> LabelSource:
        """Return the same source with counts of its own, which begin at nothing."""
        return replace(self, n_reviewed=0, n_joined=0, taken=None, first_met="")

    def counts_alone(self) -> LabelSource:
        """Return the counts, without the tables that labels come from; of places, those that are taken alone."""
        taken = None
        if self.taken is not None:
            numbers = np.flatnonzero(self.taken)
            taken = np.stack([numbers, self.taken[numbers]])
        return replace(self, by_id=None, by_place=None, reviews=Reviews(), taken=taken)

    def add(self, other: LabelSource) -> None:
        """Add the `counts_alone` of another, which gave labels to rows that come after those of this one."""
        self.n_reviewed += other.n_reviewed
        self.n_joined += other.n_joined
        self.first_met = self.first_met or other.first_met
        if other.taken is not None and self.by_place is not None:
            numbers, rows = other.taken
            self._take(self.by_place, numbers, rows)
        if other.numbered:
            self._number_the_names()

    def require_match(self) -> None:
        """Raise `TrainingError` where a table has labels, and no row that was read has one of them."""
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
        table = self.by_id or self.by_place
        reviewed, last = self.reviews.content, ""
        for name, text in merge(sorted(reviewed.items()), () if table is None else table.content()):
            if name != last or name not in reviewed:  # of a review and a table, the review counts
                yield name, reviewed.get(name, text)
            last = name

    def _take(self, table: LabelPlaces, numbers: Array, rows: Array) -> None:
        """Count that so many rows have the labels of these numbers; counts end at 2, and copies keep theirs."""
        taken = np.zeros(table.n_numbers, np.uint8) if self.taken is None else self.taken.copy()
        taken[numbers] += np.minimum(rows, 2).astype(np.uint8)
        self.taken = np.minimum(taken, 2)

    def _join_by_id(self, table: Catalog, key: str, file: Path) -> None:
        if self.identifier is None:
            raise SpecificationError(
                "label.table: got labels to join by identifier without a catalog.id, expected the column that names "
                'an object; add id = "..." under [catalog]'
            )

        def batches() -> Iterator[Iterator[tuple[str, str]]]:
            for keys, texts in _columns(table, [key, self.column]):
                require_exact(keys, "label.table", key)
                self.numbered |= keys.dtype.kind in "iuf"
                yield zip(label_texts(keys).tolist(), texts.tolist(), strict=True)

        self.by_id = LabelNames.of(batches(), file)
        if self.numbered:
            self.by_id = self.by_id.numbered()

    def _number_the_names(self) -> None:
        """Make '0001234' of the table the number that it is in the catalogue; two names of one may be in conflict."""
        if self.numbered or self.by_id is None:
            return
        self.by_id, self.numbered = self.by_id.numbered(), True

    def _join_by_place(self, specification: Specification, table: Catalog, file: Path) -> None:
        columns = specification.label.table
        if columns is None or columns.ra is None or columns.dec is None:
            return
        if self.place is None:
            raise SpecificationError(
                "label.table: got labels to join by position without catalog.ra and catalog.dec, expected the "
                "columns of the position; add them under [catalog]"
            )
        unit = unit_of_position(
            table, columns.ra, columns.dec, stated=columns.position_unit, table="[label.table]"
        )
        names = [columns.ra, columns.dec, self.column]

        def batches() -> Iterator[tuple[Array, Array, Array]]:
            for ra, dec, texts in _columns(table, names):
                place = positions(ra, dec, unit)
                self.n_unplaced += int(np.count_nonzero(np.isnan(place.ra) & (texts != "")))
                yield place.ra, place.dec, texts

        self.by_place = LabelPlaces.of(batches(), file, columns.radius, n_rows=table.n_rows)

    @property
    def n_shared(self) -> int:
        """How many labels of a table by position are the nearest of several rows."""
        return 0 if self.taken is None else int(np.count_nonzero(self.taken > 1))

    @property
    def conflicts(self) -> Conflicts:
        """The objects that a table labels twice, differently."""
        table = self.by_id if self.by_id is not None else self.by_place
        return Conflicts() if table is None else table.conflicts


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
        yield (*others, label_texts(texts))
