"""How far a catalogue's features are from those that the model was trained with.

At training each feature's distribution is kept as shares of bins, tenths of the rows each.  A value that a tenth of the
rows have is a bin of its own, and so is every value of a feature that has ten or fewer: a rare mark would be in one bin
with its absence otherwise.  When classifying, rows are counted in the same bins.  The population stability index
Σ (q − p) ln(q / p) is the symmetric Kullback-Leibler divergence of the two; of B bins and n and m rows it is about
(B − 1)(1/n + 1/m) where nothing has changed, which is subtracted first.  Yurdakul (2018),
Statistical properties of PSI.
Shapes: n rows, F features, B bins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from blr.arrays import Floats, Mask
from catalogs.profile.columns import Distribution
from flows.runs.results import FeatureCounts, FeatureDrift

Reference = Mapping[str, "Distribution"]

BINS = 10
FAR = 1e100
LEAST = 0.5
"""Rows that an empty bin is taken to hold: zero has no logarithm."""


def feature_distribution(X: Floats, missing: Mask, features: Sequence[str]) -> dict[str, Distribution]:
    """Return what `drift` needs of the training rows, X (n, F), as a model carries it."""
    return {name: _distribution(X[~missing[:, j], j], len(X)) for j, name in enumerate(features)}


def _distribution(x: Floats, n: int) -> Distribution:
    edges = _edges(x) if len(x) else np.empty(0)
    return Distribution(
        edges=tuple(edges.tolist()),
        counts=_binned(x, edges.tolist()),
        mean=float(x.mean()) if len(x) else 0.0,
        sd=float(np.clip(x, -FAR, FAR).std()) if len(x) else 0.0,
        missing=1 - len(x) / max(1, n),
    )


def _edges(x: Floats) -> Floats:
    """Return the edges between the bins of values (n,), in ascending order."""
    values, counts = np.unique(x, return_counts=True)
    own = (counts >= len(x) / BINS) | (len(values) <= BINS)
    if not own.any():
        return np.unique(np.quantile(x, np.arange(1, BINS) / BINS))
    # Between two values with bins of their own the others have bins of about a tenth of all rows.
    others = np.where(own, 0, counts).cumsum()
    begun = np.maximum.accumulate(np.where(own, others, 0))
    tenth = (others - counts - begun) * BINS // len(x)
    cut = own[1:] | own[:-1] | (tenth[1:] != tenth[:-1])
    low, high = values[:-1][cut], values[1:][cut]
    # Values that were rounded otherwise, as in single precision, stay in their bin.
    middle = low / 2 + high / 2
    return np.where(middle > low, middle, high)


def _binned(x: Floats, edges: Sequence[float]) -> tuple[int, ...]:
    """Return how many values are below the first edge, between two, and from the last on: quicker than a search."""
    least = [len(x), *(int(np.count_nonzero(x >= edge)) for edge in edges), 0]
    return tuple(m - n for m, n in pairwise(least))


def feature_counts(X: Floats, missing: Mask, reference: Reference, features: Sequence[str]) -> FeatureCounts:
    """Return the counts of a batch, X (n, F), against the training's distributions."""
    columns = [
        x[~gone] if gone.any() else np.ascontiguousarray(x) for x, gone in zip(X.T, missing.T, strict=True)
    ]
    trained = [reference[name] for name in features]
    # About the training mean, since large numbers would cancel; their squares have to be finite.
    deviations = [np.clip(x - d.mean, -FAR, FAR) for x, d in zip(columns, trained, strict=True)]
    return FeatureCounts(
        n_rows=len(X),
        known=tuple(len(x) for x in columns),
        total=tuple(float(d.sum()) for d in deviations),
        squares=tuple(float(d @ d) for d in deviations),
        bins=tuple(_binned(x, d.edges) for x, d in zip(columns, trained, strict=True)),
    )


def drift(counts: FeatureCounts, reference: Reference, features: Sequence[str]) -> dict[str, FeatureDrift]:
    """Return by feature how its distribution differs from the training's."""
    return {name: _feature_drift(counts, j, reference[name]) for j, name in enumerate(features)}


def _feature_drift(counts: FeatureCounts, j: int, trained: Distribution) -> FeatureDrift:
    n, m = counts.known[j], sum(trained.counts)
    missing = 1 - n / max(1, counts.n_rows)
    unmoved = FeatureDrift(
        rows=n,
        missing=missing,
        missing_change=missing - trained.missing,
        missing_error=math.sqrt(trained.missing * (1 - trained.missing) / max(1, counts.n_rows)),
        index=0.0,
        expected_index=0.0,
        index_error=0.0,
        mean_shift=0.0,
        sd_ratio=0.0,
    )
    if not n or not m:
        return unmoved
    mean = counts.total[j] / n  # about the training mean
    sd = math.sqrt(max(0.0, counts.squares[j] / n - mean**2))
    scale = trained.sd or 1.0
    freedom, rate = len(trained.edges), 1 / n + 1 / m
    q, p = (np.maximum(np.asarray(c, np.float64), LEAST) for c in (counts.bins[j], trained.counts))
    q, p = q / q.sum(), p / p.sum()
    return replace(
        unmoved,
        index=float(np.sum((q - p) * np.log(q / p))),
        expected_index=freedom * rate,
        index_error=math.sqrt(2 * freedom) * rate,  # it is rate times χ² where nothing has changed
        mean_shift=mean / scale,
        sd_ratio=sd / scale,
    )
