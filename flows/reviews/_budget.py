"""The objects of a review's budget: drawn where labels help most, spread over the features, each with its weight.

Two passes.  The first adds up mutual information by stratum; the second draws a pool of bounded size in proportion to
it, of which `blr.census.spread` draws the list.  Shapes: n rows, D dimensions, H strata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from blr.census.spread import informed_sizes, spread_sample
from catalogs.errors import ColumnNotFoundError
from catalogs.expressions.expression import Expression, parse
from flows.reviews._files import Chosen, Outlier
from flows.reviews._outliers import OutlierSearch
from flows.reviews._population import Bins, ValueSample, check_expression
from flows.reviews._rows import ReviewRows, ReviewSource, Space
from flows.reviews.request import ReviewRequest

__all__ = ["BudgetDraw", "draw_budget"]

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

POOL, POOL_OF_ONE = 10_000, 20
"""Objects in the pool: so many, or so many for each that is wanted."""
NEAR = 0.05
"""Distance of near-duplicates: that of two labelled objects, drawn at random, is 1."""
LEAST_P = 1e-3
"""Least probability of a class where probabilities are what objects are spread over."""
NO_SPACE = (
    "spread over the probabilities only, and without a list of outliers, since slim copies have no feature "
    'columns; write full copies with mode = "annotated" under [output]'
)


@dataclass(frozen=True)
class BudgetDraw:
    """The list in random order, the outliers, the farthest first, rows to choose from, and what is to be said."""

    chosen: list[Chosen]
    outliers: list[Outlier]
    n_rows: int
    remarks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Strata:
    """Classes and bins between which a budget is shared: H of them."""

    classes: tuple[str, ...]  # empty where they share nothing
    bins: Bins

    @property
    def n(self) -> int:
        return max(len(self.classes), 1) * len(self.bins.names)

    def places(self, rows: ReviewRows) -> Places:
        """Return the stratum (n,) of each row."""
        bins = self.bins.places(rows.by, len(rows.names))
        if not self.classes:
            return bins
        return np.asarray(rows.probability.argmax(axis=1) * len(self.bins.names) + bins)


@dataclass
class _Pool:
    """What was drawn at first: objects, their information, stratum, probability and point."""

    rows: list[Chosen] = field(default_factory=list)
    information: list[Floats] = field(default_factory=list)
    stratum: list[Places] = field(default_factory=list)
    first: list[Floats] = field(default_factory=list)
    points: list[Floats] = field(default_factory=list)


def draw_budget(
    sources: Sequence[ReviewSource], classes: Sequence[str], request: ReviewRequest, space: Space | None
) -> BudgetDraw:
    """Return the objects of a budget, and the outliers."""
    budget, rng = request.budget or 0, np.random.default_rng([request.seed, 2])
    by: Expression | None = None if request.by is None else parse(request.by)
    bound, remarks = _bound(sources, space)
    strata = _Strata(tuple(classes) if request.per_class else (), _bins(sources, by, request, rng))
    search = OutlierSearch(request.outliers, NEAR, rng) if _searched(bound, request) else None
    if bound and request.outliers and search is None:
        remarks = (
            *remarks,
            "there is no list of outliers, since the model keeps no labelled objects; train it again",
        )
    count, total = np.zeros(strata.n, dtype=np.int64), np.zeros(strata.n)
    spaces: Sequence[Space | None] = bound or [None] * len(sources)
    for source, there in zip(sources, spaces, strict=True):
        for rows in source.rows(by=by, space=there if search else None):
            place = strata.places(rows)
            count += np.bincount(place, minlength=strata.n)
            total += np.bincount(place, weights=rows.information, minlength=strata.n)
            if search is not None:
                search.sample(rows)
    quota = shared_out(budget, count)
    mean = total / np.maximum(count, 1)
    pool = _Pool()
    most = max(POOL, POOL_OF_ONE * budget) / max(int(np.count_nonzero(count)), 1)
    rate = np.where(count > most, most / np.maximum(count, 1), np.inf)  # of a row of mean size
    passed = rng.random(strata.n)
    for source, there in zip(sources, spaces, strict=True):
        for rows in source.rows(by=by, space=there):
            place = strata.places(rows)
            size = informed_sizes(rows.information, mean[place])
            first = np.minimum(1.0, size * rate[place])
            _take(pool, rows, place, first, passed)
            if search is not None and there is not None:
                search.add(rows, there)
    chosen = _drawn(pool, mean, quota, rng)
    outliers = [] if search is None else search.found(classes, {c.name for c in chosen})
    return BudgetDraw(chosen, outliers, int(count.sum()), remarks)


def shared_out(budget: int, count: NDArray[np.int64]) -> Places:
    """Return how many objects of each stratum (H,): as many of each, and of a small one all that it has."""
    quota = np.zeros(len(count), dtype=np.intp)
    left = min(budget, int(count.sum()))
    while left:
        free = np.flatnonzero(quota < count)
        share = max(left // len(free), 1)
        # What cannot be shared equally goes to the strata of most rows.
        for h in free[np.argsort(-count[free], kind="stable")].tolist():
            more = min(share, int(count[h] - quota[h]), left)
            quota[h] += more
            left -= more
    return quota


def _bound(
    sources: Sequence[ReviewSource], space: Space | None
) -> tuple[list[Space] | None, tuple[str, ...]]:
    """Return the space for each catalogue, or None and a remark where one lacks the features."""
    if space is None:
        return None, ()
    try:
        return [space.on(source.table.catalog) for source in sources], ()
    except ColumnNotFoundError:
        return None, (NO_SPACE,)


def _searched(bound: list[Space] | None, request: ReviewRequest) -> bool:
    return bool(bound) and request.outliers > 0 and all(space.knows_labelled for space in bound or ())


def _bins(
    sources: Sequence[ReviewSource], by: Expression | None, request: ReviewRequest, rng: np.random.Generator
) -> Bins:
    """Return the bins of the expression, from a pass of their own; one without it."""
    if by is None:
        return Bins()
    sample = ValueSample.empty(rng)
    for source in sources:
        check_expression(by, source.table.catalog)
        for rows in source.rows(by=by):
            if rows.by is not None:
                sample.add(rows.by)
    return Bins.of(by.text, sample, request.bins, request.edges)


def _take(pool: _Pool, rows: ReviewRows, place: Places, first: Floats, passed: Floats) -> None:
    """Add a systematic sample of a batch, stratum by stratum, with probabilities `first` (n,).

    `passed` (H,) is how far each stratum has come, modulo 1, and moves on.
    """
    taken = first >= 1.0
    for h in np.unique(place).tolist():
        mine = np.flatnonzero(place == h)
        marks = np.concatenate([[passed[h]], passed[h] + np.cumsum(first[mine])])
        taken[mine] |= np.floor(marks[1:]) > np.floor(marks[:-1])
        passed[h] = marks[-1] % 1.0
    index = np.flatnonzero(taken)
    pool.rows += [rows.chosen(int(i), "drawn", 1.0) for i in index]
    pool.information.append(rows.information[index])
    pool.stratum.append(place[index])
    pool.first.append(first[index])
    points = np.log(np.maximum(rows.probability, LEAST_P)) if rows.points is None else rows.points
    pool.points.append(points[index])


def _drawn(pool: _Pool, mean: Floats, quota: Places, rng: np.random.Generator) -> list[Chosen]:
    """Return the objects of the list in random order, so that its beginning is a random sample too."""
    if not pool.rows:
        return []
    names = np.array([row.name for row in pool.rows], dtype=object)
    # Rows without a name are objects of their own.
    _, groups = np.unique([name or f"\0{i}" for i, name in enumerate(names.tolist())], return_inverse=True)
    stratum = np.concatenate(pool.stratum)
    size = informed_sizes(np.concatenate(pool.information), mean[stratum])
    sample = spread_sample(
        size,
        np.concatenate(pool.first),
        np.concatenate(pool.points),
        groups,
        stratum,
        quota,
        radius=NEAR,
        rng=rng,
    )
    order = rng.permutation(len(sample.row))
    return [
        pool.rows[i].weighted(1 / p)
        for i, p in zip(sample.row[order], sample.probability[order], strict=True)
    ]
