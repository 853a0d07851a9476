"""Where a row's label comes from: a column, a separate table joined by identifier or position, or a review's answers.

A label table is small against the catalogue, and is read whole.  An object that a table labels twice, differently,
has a conflict: it is reported, and has no label.  What came back from review (`flows.labels.reviews`) replaces what the
catalogue says.
Shapes: n rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import catalogs
from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.errors import brief, nearest
from catalogs.sky.positions import PositionUnit, match_positions, near_others, positions, unit_of_position
from flows.errors import SpecificationError, TrainingError
from flows.inputs.fetching import fetched
from flows.inputs.resolve import resolve_sources
from flows.labels.reader import label_texts, require_exact
from flows.labels.reviews import Reviews, read_reviews
from flows.specification.specification import Specification

__all__ = ["LabelSource"]

Array = np.ndarray[Any, Any]


@dataclass
class LabelSource:
    """Labels of batches, and what was met on the way: how many matched, and which objects have two labels."""

    column: str
    identifier: str | None = None
    by_id: Mapping[str, str] | None = None
    by_place: tuple[Array, Array, Array, float] | None = None
    place: tuple[str, str] | None = None
    reviews: Reviews = field(default_factory=Reviews)
    conflicts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    n_reviewed: int = 0
    n_joined: int = 0
    n_unplaced: int = 0
    n_rows_of_label: Array | None = None  # of each labelled place: more than one may be two objects
    first_met: str = ""
    numbered: bool = False  # whether identifiers are numbers, in the table or in the catalogue

    @classmethod
    def of(cls, specification: Specification) -> LabelSource:
        """Return the source that a specification names; its tables are read."""
        label, catalog, base = specification.label, specification.catalog, Path(specification.base_folder)
        source = cls(
            label.column or "",
            catalog.id,
            place=(catalog.ra, catalog.dec) if catalog.ra and catalog.dec else None,
        )
        if label.table is not None:
            places = resolve_sources([label.table.path], base, key="label.table.path")
            named = (label.table.id, label.table.ra, label.table.dec, label.column)
            with fetched(places[:1]) as (path, *_):
                table = catalogs.open(path, columns=[name for name in named if name])
                if label.table.id is not None:
                    source.by_id = source._joined_by_id(table, label.table.id, source.column, "label.table")
                else:
                    source._join_by_place(specification, table)
        if label.extra:
            with fetched(resolve_sources(label.extra, base, key="label.extra")) as paths:
                source.reviews = read_reviews(paths, catalog.id, label)
        return source

    def texts(self, values: Mapping[str, Array], unit: PositionUnit = "deg") -> Array:
        """Return the labels (n,) of rows, '' where it is missing, from the columns under our names."""
        if self.by_id is not None:
            identifiers = values[str(self.identifier)]
            require_exact(identifiers, "catalog.id", str(self.identifier))
            if identifiers.dtype.kind in "iuf":
                self._number_the_names()
            names = label_texts(identifiers).tolist()
            self.first_met = self.first_met or next((name for name in names if name), "")
            labels = np.array(
                [self.by_id.get(_number(n) if self.numbered else n, "") for n in names], dtype=object
            )
            self.n_joined += int(np.count_nonzero(labels != ""))
        elif self.by_place is not None and self.place:
            labels = self._nearest(values, unit)
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
        return replace(
            self, conflicts=dict(self.conflicts), n_reviewed=0, n_joined=0, n_rows_of_label=None, first_met=""
        )

    def counts_alone(self) -> LabelSource:
        """Return the counts, without the tables that labels come from."""
        return replace(self, by_id=None, by_place=None, reviews=Reviews(), conflicts={})

    def add(self, other: LabelSource) -> None:
        """Add what another has counted, which gave labels to rows that come after those of this one."""
        self.n_reviewed += other.n_reviewed
        self.n_joined += other.n_joined
        self.first_met = self.first_met or other.first_met
        if other.n_rows_of_label is not None:
            mine = 0 if self.n_rows_of_label is None else self.n_rows_of_label
            self.n_rows_of_label = mine + other.n_rows_of_label
        if other.numbered:
            self._number_the_names()

    def require_match(self) -> None:
        """Raise `TrainingError` where a table has labels, and no row that was read has one of them."""
        if self.n_joined:
            return
        if self.by_id:
            theirs, ours = brief(next(iter(self.by_id))), brief(str(self.first_met))
            raise TrainingError(
                f"label.table: got {len(self.by_id):,} labelled identifiers such as '{theirs}', but "
                f"catalog.id = \"{self.identifier}\" holds others, such as '{ours}', expected the same names "
                "in both; correct label.table.id or catalog.id, or join by position"
            )
        if self.by_place is not None and len(self.by_place[0]):
            raise TrainingError(
                f"label.table: got {len(self.by_place[0]):,} labelled places, none within "
                f"{self.by_place[3]:g} arcseconds of a row; expected the same part of the sky, equinox and "
                "unit in both; correct label.table.ra and dec, or widen its radius"
            )

    @property
    def labels_by_object(self) -> dict[str, str]:
        """What tables say, by object or place: part of what makes a model's version."""
        joined = dict(self.by_id or {})
        if self.by_place is not None:
            ra, dec, texts, _ = self.by_place
            joined |= {f"{r!r} {d!r}": t for r, d, t in zip(ra.tolist(), dec.tolist(), texts, strict=True)}
        return joined | self.reviews.content

    def _nearest(self, values: Mapping[str, Array], unit: PositionUnit) -> Array:
        ra, dec, texts, radius = self.by_place or (np.empty(0),) * 3 + (0.0,)
        here = positions(values[(self.place or ("", ""))[0]], values[(self.place or ("", ""))[1]], unit)
        index = match_positions(here.ra, here.dec, ra, dec, radius=radius)
        if not len(texts):
            return np.full(len(index), "", dtype=object)
        taken = np.bincount(index[index >= 0], minlength=len(texts))
        self.n_rows_of_label = taken if self.n_rows_of_label is None else self.n_rows_of_label + taken
        return np.where(index >= 0, texts[index], "")

    def _joined_by_id(self, table: Catalog, key: str, column: str, who: str) -> dict[str, str]:
        if self.identifier is None:
            raise SpecificationError(
                f"{who}: got labels to join by identifier without a catalog.id, expected the column that names "
                'an object; add id = "..." under [catalog]'
            )
        labels: dict[str, str] = {}
        for keys, texts in _columns(table, [key, column], who, texts=1):
            require_exact(keys, who, key)
            self.numbered |= keys.dtype.kind in "iuf" and who == "label.table"
            for name, text in zip(label_texts(keys).tolist(), texts.tolist(), strict=True):
                if name and text:
                    self._note(labels, name, text)
        return {name: text for name, text in labels.items() if name not in self.conflicts}

    def _number_the_names(self) -> None:
        """Make '0001234' of the table the number that it is in the catalogue; two names of one may be in conflict."""
        if self.numbered or self.by_id is None:
            return
        labels: dict[str, str] = {}
        for name, text in self.by_id.items():
            self._note(labels, _number(name), text)
        self.by_id = {name: text for name, text in labels.items() if name not in self.conflicts}
        self.numbered = True

    def _note(self, labels: dict[str, str], name: str, text: str) -> None:
        """Take a label; a second one that differs is a conflict."""
        before = labels.setdefault(name, text)
        if before != text:
            self.conflicts[name] = tuple(dict.fromkeys((*self.conflicts.get(name, (before,)), text)))

    def _join_by_place(self, specification: Specification, table: Catalog) -> None:
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
        parts = list(_columns(table, [columns.ra, columns.dec, self.column], "label.table", texts=1))
        ra, dec, texts = (np.concatenate(column) for column in zip(*parts, strict=True))
        place = positions(ra, dec, unit)
        self.n_unplaced = int(np.count_nonzero(np.isnan(place.ra) & (texts != "")))
        self.by_place = self._agreed(place.ra, place.dec, texts, columns.radius)

    def _agreed(
        self, ra: Array, dec: Array, texts: Array, radius: float
    ) -> tuple[Array, Array, Array, float]:
        """Return the labelled places; where two within the radius of each other differ, neither has a label."""
        known = np.isfinite(ra) & (texts != "")
        ra, dec, texts = ra[known], dec[known], texts[known]
        agreed = np.ones(len(ra), dtype=bool)
        for i, others in enumerate(near_others(ra, dec, radius=radius)):
            differing = tuple(dict.fromkeys([texts[i], *texts[others]]))
            if len(differing) > 1:
                agreed[i] = False
                self.conflicts[f"{ra[i]:.6f} {dec[i]:+.6f}"] = tuple(sorted(differing))
        return ra[agreed], dec[agreed], texts[agreed], radius

    @property
    def n_shared(self) -> int:
        """How many labels of a table by position are the nearest of several rows."""
        return 0 if self.n_rows_of_label is None else int(np.count_nonzero(self.n_rows_of_label > 1))

    @property
    def shown_conflicts(self) -> dict[str, tuple[str, ...]]:
        """The labels of some of the objects that have two, by name or place."""
        return dict(sorted(self.conflicts.items())[:SHOWN])


SHOWN = 20
"""Objects in conflict that are named."""


def _number(name: str) -> str:
    """Return a whole number without the zeros in front, by which texts are made as long as each other."""
    return name.lstrip("0") or "0" if name.isdecimal() else name


def _columns(table: Catalog, names: Sequence[str], who: str, *, texts: int) -> Any:
    """Yield batches of a table's columns, the last `texts` as label texts, the others as they are."""
    for name in names:
        if name not in table.names:
            raise SpecificationError(
                f"{who}: got '{name}', which is not a column of {table.path}, expected one of its columns; "
                f"{nearest(name, table.names)}"
            )
    for batch in table.batches(list(names)):
        values = batch_values(batch, names)
        yield tuple(
            label_texts(values[name]) if i >= len(names) - texts else values[name]
            for i, name in enumerate(names)
        )
