"""The sums of a map: a first pass for pixels, ranges and labelled rows, their fit, and a second pass for the fractions.

The model predicts whether an object is of the class, from the classifier's probability, the quantities and the region.
For a contamination, it is fitted to the selected labelled objects only: which of them are of other classes.
Shapes: n rows, S draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blr.census.fraction_map import (
    REGION_SCALES,
    FractionDesign,
    Fractions,
    FractionSums,
    counted,
    drawn_fractions,
    mixed_draws,
)
from blr.likelihood.prior import GaussianPrior
from blr.posterior.laplace import fit
from flows.classification._map_rows import KnownObjects, MapRows
from flows.classification.map_results import What

__all__ = ["FractionModel", "Labelled", "MapSums", "Survey", "bin_of", "fitted", "summed", "surveyed"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Pixels = NDArray[np.int64]
Read = Callable[[], Iterator[MapRows]]

DRAWS = 128
REGION_ORDER = 1
"""Finest order of the regions with an effect of their own: 29 degrees; a coarser map has coarser regions."""
BINS = 8
SAMPLE = 100_000
"""Most rows, at equal distances, from which the edges of the bins are computed."""
ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows whose class is known: whether they are of it (n,), and how many objects each stands for (n,)."""

    rows: MapRows
    is_class: Mask
    weight: Floats

    def counts(self, what: What) -> tuple[Mask, Mask]:
        """Return which rows count as n in the fraction k of n, and which of these count as k; (n,) each."""
        selected = self.rows.selected
        if what == "completeness":
            return self.is_class, self.is_class & selected
        if what == "contamination":
            return selected, selected & ~self.is_class
        return np.ones(len(selected), dtype=bool), self.is_class


@dataclass(frozen=True, eq=False)
class Survey:
    """The results of the first pass: pixels with objects, the edges of each quantity's bins, the labelled rows.

    `n_classified` counts the rows with a position, `unmatched` the labels of no row.
    """

    pixels: Pixels
    edges: tuple[Floats, ...]
    n_classified: int
    labelled: Labelled
    unmatched: int


def surveyed(
    read: Read, known: KnownObjects | None, *, class_name: str, what: What, n_rows: int, n_quantities: int
) -> Survey:
    """Read all rows once, and return what was found; `n_rows` is their approximate number."""
    touched: Pixels = np.empty(0, dtype=np.int64)
    nothing = np.empty(0)
    none = MapRows(
        touched, nothing, nothing.astype(bool), np.empty((0, n_quantities)), nothing.astype(object)
    )
    parts, samples = [none], [[nothing] for _ in range(n_quantities)]
    step = max(1, math.ceil(n_rows / SAMPLE))
    n, seen = 0, set[str]()
    for rows in read():
        use = rows.selected if what == "contamination" else np.ones(len(rows), dtype=bool)
        touched = np.union1d(touched, rows.pixel[use])
        for j, sample in enumerate(samples):
            sample.append(rows.X[use, j][::step])
        n += len(rows)
        if known is not None and rows.names is not None:
            parts.append(rows[_first_of(rows.names.tolist(), known.classes, seen)])
    labelled = _joined(parts)
    names = [] if labelled.names is None else labelled.names.tolist()
    is_class = np.array(
        [known is not None and known.classes[name] == class_name for name in names], dtype=bool
    )
    weight = np.array([known.weights[name] if known else 1.0 for name in names], dtype=float)
    edges = tuple(_edges(np.concatenate(sample)) for sample in samples)
    unmatched = 0 if known is None else len(known.classes) - len(seen)
    return Survey(touched, edges, n, Labelled(labelled, is_class, weight), unmatched)


def _first_of(names: Sequence[str], known: Collection[str], seen: set[str]) -> NDArray[np.intp]:
    """Return the places of names that are known and were not seen before, and note them as seen."""
    places = []
    for i, name in enumerate(names):
        if name in known and name not in seen:
            seen.add(name)
            places.append(i)
    return np.array(places, dtype=np.intp)


def _joined(parts: Sequence[MapRows]) -> MapRows:
    names = np.concatenate([part.names for part in parts if part.names is not None])
    return MapRows(
        np.concatenate([part.pixel for part in parts]),
        np.concatenate([part.p for part in parts]),
        np.concatenate([part.selected for part in parts]),
        np.concatenate([part.X for part in parts]),
        names,
    )


def _edges(values: Floats) -> Floats:
    """Return the edges of bins with equal numbers of values; there are fewer bins where values repeat."""
    values = values[np.isfinite(values)]
    return np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1))) if values.size else np.empty(0)


def bin_of(x: Floats, edges: Floats) -> NDArray[np.intp]:
    """Return the bin (n,) of values, -1 outside; the last bin has its upper end."""
    if len(edges) < 2:
        return np.full(len(x), -1, dtype=np.intp)
    place = np.minimum(np.searchsorted(edges, x, side="right") - 1, len(edges) - 2)
    return np.where((x >= edges[0]) & (x <= edges[-1]), place, -1)


@dataclass(frozen=True, eq=False)
class FractionModel:
    """The fraction of an object: the design, draws of its weights (S, M), and what it is a fraction of."""

    what: What
    order: int
    design: FractionDesign
    draws: Floats

    def covariates(self, rows: MapRows) -> tuple[Floats, Floats, NDArray[np.intp]]:
        """Return the classifier's expectation (n,), the quantities with whether a row is selected, and its region."""
        expected = 1 - rows.p if self.what == "contamination" else rows.p
        # All rows of a contamination's fit are selected: there the last column is constant and has no effect.
        X = np.column_stack([rows.X, rows.selected.astype(float)])
        region = rows.pixel >> (2 * (self.order - min(self.order, REGION_ORDER)))
        return expected, X, region.astype(np.intp)

    def parts(self, rows: MapRows) -> tuple[Mask, tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Return which rows count (n,), part and whole by the classifier (n,), and both under each draw (n, S)."""
        expected, X, region = self.covariates(rows)
        pi = drawn_fractions(self.design, self.draws, expected, X, region)
        every, one = np.ones(len(rows), dtype=bool), np.ones(len(rows))
        if self.what == "completeness":
            chosen = rows.selected.astype(float)
            return every, (expected * chosen, expected), (pi * chosen[:, None], pi)
        use = rows.selected if self.what == "contamination" else every
        return use, (expected, one), (pi, np.ones_like(pi))


def fitted(labelled: Labelled, *, what: What, order: int, seed: int) -> FractionModel:
    """Return the model of the fraction; it has no draws without labelled objects that count."""
    rows, success, weight = labelled.rows, labelled.is_class, labelled.weight
    if what == "contamination":
        chosen = rows.selected
        rows, success, weight = rows[chosen], ~success[chosen], weight[chosen]
    n_regions = 12 * 4 ** min(order, REGION_ORDER)
    bare = FractionModel(
        what, order, FractionDesign.learn(np.empty((0, rows.X.shape[1] + 1)), n_regions), np.empty(0)
    )
    expected, X, region = bare.covariates(rows)
    design = FractionDesign.learn(X, n_regions)
    if not len(rows):
        return FractionModel(what, order, design, np.empty((0, design.n_functions)))
    groups = counted(design.matrix(expected, X, region), success, weight)
    rng = np.random.default_rng(seed)
    evidence, draws = [], []
    for scale in REGION_SCALES:
        mean, variance = design.prior(scale)
        q = fit(
            groups.Phi, groups.k, GaussianPrior(mean, variance), trials=groups.n, sample_weight=groups.weight
        )
        evidence.append(q.log_evidence)
        draws.append(q.sample(DRAWS, rng))
    return FractionModel(what, order, design, mixed_draws(evidence, draws, DRAWS, rng))


@dataclass(frozen=True, eq=False)
class MapSums:
    """The fractions of all objects together, of the pixels, and of the bins of each quantity."""

    whole: Fractions
    cells: Fractions
    bins: tuple[Fractions, ...]


def summed(read: Read, survey: Survey, model: FractionModel) -> MapSums:
    """Read all rows a second time, and return the sums of their fractions."""
    S = len(model.draws)
    whole, cells = FractionSums(1, S), FractionSums(len(survey.pixels), S)
    bins = [FractionSums(max(len(edges) - 1, 0), S) for edges in survey.edges]
    for large in read():
        for start in range(0, len(large), ROWS_AT_ONCE):
            rows = large[slice(start, start + ROWS_AT_ONCE)]
            use, expected, drawn = model.parts(rows)
            whole.add(np.zeros(len(rows), dtype=np.intp), expected, drawn, use)
            cells.add(np.searchsorted(survey.pixels, rows.pixel), expected, drawn, use)
            for j, (edges, sums) in enumerate(zip(survey.edges, bins, strict=True)):
                place = bin_of(rows.X[:, j], edges)
                sums.add(place, expected, drawn, use & (place >= 0))
    return MapSums(whole.fractions(), cells.fractions(), tuple(sums.fractions() for sums in bins))
