"""The rows of annotated catalogues that a review chooses from: classified, and without a label.

Shapes: n rows, K classes, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from blr.decisions import FLAG_MEANINGS
from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.catalog.new_columns import safe_name
from catalogs.expressions.expression import Expression
from catalogs.sky.positions import positions
from flows.labels.reader import label_texts, require_exact
from flows.reviews._files import Chosen, Outlier
from flows.reviews._population import ObjectTable
from flows.runs.object_names import LabelledNames

__all__ = ["ReviewRows", "ReviewSource", "Space", "flag_words"]

Floats = NDArray[np.float64]
SCORES = ("class", "p_max", "mutual_info", "flags")


class Space(Protocol):
    """Rows as points, in which 1 is a typical difference; `flows.classification.feature_space` has one."""

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that are needed."""

    @property
    def knows_labelled(self) -> bool:
        """Whether there are labelled objects to compare with."""

    def on(self, catalog: Catalog) -> Space:
        """Return the space for one catalogue; ColumnNotFoundError where it lacks a column."""

    def points(self, batch: pa.RecordBatch) -> Floats:
        """Return the points (n, D) of a batch's rows."""

    def distances(self, points: Floats) -> tuple[Floats, NDArray[np.intp]]:
        """Return how far points (n, D) are from the labelled objects (n,), and the nearest one's class (n,)."""


@dataclass(frozen=True)
class ReviewRows:
    """Classified rows of a batch: texts and numbers, (n,) each, and where they were asked for, points (n, D)."""

    names: NDArray[Any]
    classes: NDArray[Any]
    ra: Floats
    dec: Floats
    probability: Floats  # (n, K)
    p_max: Floats
    runner_up: NDArray[Any]
    p_runner_up: Floats
    information: Floats
    flags: NDArray[np.int64]
    by: NDArray[Any] | None = None
    points: Floats | None = None

    def _first(self, i: int) -> tuple[str, float, float, str, float, str, float]:
        """Return the fields of `ListedObject`."""
        return (
            str(self.names[i]),
            float(self.ra[i]),
            float(self.dec[i]),
            str(self.classes[i]),
            float(self.p_max[i]),
            str(self.runner_up[i]),
            float(self.p_runner_up[i]),
        )

    def outlier(self, i: int, novelty: float, distance: float) -> Outlier:
        """Return a row as one of the outliers, at a distance from the labelled objects."""
        return Outlier(
            *self._first(i),
            int(self.flags[i]),
            flag_words(int(self.flags[i])),
            novelty,
            distance,
        )

    def chosen(self, i: int, how: str, probability: float) -> Chosen:
        """Return a row as one of the list, chosen with a probability."""
        return Chosen(
            *self._first(i),
            float(self.information[i]),
            int(self.flags[i]),
            flag_words(int(self.flags[i])),
            how,
            1.0 / probability,
        )


def flag_words(flags: int) -> str:
    """Return the names of the flags that are raised."""
    return ", ".join(str(flag.name) for flag in FLAG_MEANINGS if flags & int(flag.value))


@dataclass(frozen=True)
class ReviewSource:
    """A catalogue to choose from, the classes of its model, and the objects that have a label."""

    table: ObjectTable
    classes: tuple[str, ...]
    labelled: LabelledNames | None

    def rows(self, *, by: Expression | None = None, space: Space | None = None) -> Iterator[ReviewRows]:
        """Yield the classified rows of objects without a label, batch by batch.

        With the values of an expression, and points in the `space` of this catalogue, where they are asked for.
        """
        table, prefix = self.table, self.table.prefix
        chances = [f"{prefix}p_{safe_name(name)}" for name in self.classes]
        wanted = [*(by.names if by else ()), *(space.read if space else ())]
        read = table.read(*(prefix + name for name in SCORES), *chances, *wanted)
        plain = table.read(*(prefix + name for name in SCORES), *chances)
        for batch in table.catalog.batches(read):
            values = batch_values(batch, plain)
            require_exact(values[table.identifier], f"{table.catalog.path}: --id", table.identifier)
            names = label_texts(values[table.identifier])
            p = np.asarray(values[prefix + "p_max"], dtype=np.float64)
            kept = np.isfinite(p) if self.labelled is None else np.isfinite(p) & ~self.labelled.among(names)
            rest = batch.filter(pa.array(kept))
            yield self._rows(
                {name: column[kept] for name, column in values.items()},
                chances,
                by.evaluate_batch(rest) if by else None,
                space.points(rest) if space else None,
            )

    def _rows(
        self,
        values: Mapping[str, NDArray[Any]],
        chances: Sequence[str],
        by: NDArray[Any] | None,
        points: Floats | None,
    ) -> ReviewRows:
        table, prefix = self.table, self.table.prefix
        name, p, information, flags = (values[prefix + key] for key in SCORES)
        nowhere = np.full(len(p), np.nan)
        ra, dec = table.place or (table.identifier,) * 2
        place = positions(values[ra], values[dec], table.unit) if table.place else None
        p_all = np.stack([np.asarray(values[c], dtype=np.float64) for c in chances] or [p], axis=1)
        runner_up, p_runner_up = self._second(p_all)
        return ReviewRows(
            label_texts(values[table.identifier]),
            label_texts(name),
            place.ra if place else nowhere,
            place.dec if place else nowhere,
            p_all,
            np.asarray(p, dtype=np.float64),
            runner_up,
            p_runner_up,
            np.maximum(np.asarray(information, dtype=np.float64), 0.0),
            np.asarray(flags, dtype=np.int64),
            by,
            points,
        )

    def _second(self, p: Floats) -> tuple[NDArray[Any], Floats]:
        """Return the second most probable class (n,) and its probability (n,); of classes that are not known, none."""
        if len(self.classes) < 2:
            return np.full(len(p), "", dtype=object), np.full(len(p), np.nan)
        second = np.argsort(p, axis=1, kind="stable")[:, -2]
        return np.array(self.classes, dtype=object)[second], p[np.arange(len(p)), second]
