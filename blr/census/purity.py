"""How pure and how complete a selection by probability is, with draws that say how well that is known.

A selection takes the objects whose probability of a class is at or above a threshold.  Shapes: n labelled rows,
K classes, S draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, expit

from blr.arrays import Matrix, Places, Vector
from blr.census.shares import LabelledRows, TargetRows, central_interval

Parts = Sequence[tuple[LabelledRows, Matrix]]
"""Labelled rows with the weights under an assumption, and draws (S, K) of the class shares under it: for each that may
hold."""
Stated = tuple[str, float]
"""What a selection is to have, "purity" or "completeness", and how much of it."""

_PSEUDO = 0.5
"""Jeffreys' prior: half a row selected, half a row not.  All other classes together have half a row selected."""
_SEED = 20_100_001
MODEL_ROWS = 10.0
"""Rows of each class of which a selection takes the fraction that the calibrated model expects."""
LEFT_OUT_ERROR = 0.1
"""Relative error of the number that a selection takes as fits without a tenth of the rows lead to expect it."""
_FEWEST_DRAWS = 4000
_FEWEST_LEFT = 200  # fewest draws that what was observed is to leave: where it leaves fewer, it counts less
_STEPS = np.concatenate([np.linspace(0, 0.9, 46), np.linspace(0.91, 0.999, 30)])
"""Quantiles of the target's probability that are tried as thresholds."""
_FINE = 12  # thresholds between two of those that are tried next
_DRAWS = 1000
MANY_OBJECTS = 10**9  # objects of a target of any size: so many that their number adds no error
_STEPS_OF_TWO = 4096
"""Thresholds are this many steps between powers of two: they are the same number in single and double precision."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Draws (S,) of purity and completeness among `n_selected` objects."""

    n_selected: int
    purity: Vector
    completeness: Vector

    def interval(self, of: Vector) -> tuple[float, float]:
        """Return the ends of the central interval of draws."""
        low, high = central_interval(of)
        return float(low), float(high)

    @classmethod
    def of(
        cls, n_selected: int, purity: Vector, completeness: Vector, n_class: Places, rng: np.random.Generator
    ) -> Selection:
        """Return the draws for the objects themselves: of `n_selected`, and of `n_class` (S,) of the class."""
        some = max(n_selected, 1)
        return cls(
            n_selected, rng.binomial(some, purity) / some, rng.binomial(n_class, completeness) / n_class
        )

    @classmethod
    def pooled(cls, selections: Sequence[Selection]) -> Selection:
        """Return the selection of the same objects with the draws of all, which were made under several assumptions."""
        purity = np.concatenate([one.purity for one in selections])
        completeness = np.concatenate([one.completeness for one in selections])
        return cls(selections[0].n_selected, purity, completeness)


def selection(
    parts: Parts, chosen: NDArray[np.bool_], k: int, *, n_selected: int, n_objects: int, n_seen: float = 0.0
) -> Selection:
    """Return how pure and complete a selection of class `k` is in a target of `n_objects`.

    `chosen` (n,) says which labelled rows it takes, by probabilities of fits without them.  The fraction of each class
    that is taken has a Beta posterior, and purity is the share of class k among all that is taken.  How many are taken
    in all was counted on `n_seen` rows of the target (0: on none), and draws that lead to expect other numbers count
    less.  Both are drawn once more for the objects themselves, of which there are so many.  As many draws are made of
    each of the `parts`.
    """
    found = []
    for labelled, draws in parts:
        rng = np.random.default_rng(_SEED)
        shares = draws[np.arange(max(len(draws), _FEWEST_DRAWS)) % len(draws)]
        taken = _taken(labelled, chosen, k, rng, len(shares))
        if n_seen > 0:
            kept = _as_observed((shares * taken).sum(axis=1), n_selected / n_objects, n_seen, rng)
            shares, taken = shares[kept], taken[kept]
        of_class = shares * taken
        n_class = np.maximum(np.rint(shares[:, k] * n_objects).astype(np.int64), 1)
        purity = of_class[:, k] / of_class.sum(axis=1)
        found.append(Selection.of(n_selected, purity, taken[:, k], n_class, rng))
    return Selection.pooled(found)


def _as_observed(expected: Vector, share: float, n_seen: float, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return numbers of draws (S,), resampled: those that expect the selected share that was observed come oftener.

    Sampling importance resampling: Rubin (1988), "Using the SIR algorithm to simulate posterior distributions".
    """
    variance = (share * (1 - share) + 1 / n_seen) / n_seen + (LEFT_OUT_ERROR * share) ** 2
    distance = (expected - share) ** 2
    distance = distance - distance.min()
    while True:
        weight = np.exp(-0.5 * distance / variance)
        weight /= weight.sum()
        if 1 / (weight @ weight) >= _FEWEST_LEFT:
            return rng.choice(len(weight), len(weight), p=weight)
        variance *= 2


def _taken(
    labelled: LabelledRows, chosen: NDArray[np.bool_], k: int, rng: np.random.Generator, S: int
) -> Matrix:
    """Return draws (S, K) of the fraction of each class that is taken.

    Its prior is Jeffreys' or, as probably, the model's expectation as so many rows: what the class's own rows say of
    both decides, so that they override a model which is wrong (Schmidli et al. 2014, doi:10.1111/biom.12242).
    """
    K, drawn = labelled.n_classes, np.empty((S, labelled.n_classes))
    taken = np.bincount(labelled.y, labelled.weight * chosen, minlength=K)
    of_own = labelled.class_rows * taken / np.maximum(labelled.class_weight, 1e-300)
    for j, (rows, hits) in enumerate(zip(labelled.class_rows, of_own, strict=True)):
        weight, worth = labelled.class_weights(j, MODEL_ROWS)
        both = worth * min(float(weight @ chosen), 1.0)
        soft = labelled.weight * labelled.calibrated[:, j]
        expected = min(float(soft @ chosen / max(soft.sum(), 1e-300)), 1.0) * MODEL_ROWS
        a, b = _PSEUDO if j == k else _PSEUDO / (K - 1), _PSEUDO
        alone = betaln(a + hits, b + rows - hits) - betaln(a, b)
        model_a, model_b = a + expected, b + MODEL_ROWS - expected
        beside = betaln(model_a + hits, model_b + rows - hits) - betaln(model_a, model_b)
        with_model = rng.random(S) < expit(beside - alone)
        right, wrong = np.where(with_model, both, hits), np.where(with_model, worth - both, rows - hits)
        drawn[:, j] = rng.beta(a + right, b + wrong)
    return drawn


def threshold_for(
    parts: Parts, target: TargetRows, k: int, stated: Stated, *, observed: bool = True
) -> tuple[float, Selection] | None:
    """Return the threshold whose selection has a stated purity or completeness; None where no threshold has it.

    For a purity the lowest such threshold, which loses fewest objects of class `k`; for a completeness the highest,
    whose selection is purest.  The expected purity or completeness is what is stated, not the low end of its interval.
    `observed` is False where the labelled rows stand for the target: its numbers tell nothing more then.
    """
    p = np.sort(target.probability[:, k])
    return first_threshold(p, _STEPS, _FINE, partial(_selected, parts, target, k, observed=observed), stated)


def first_threshold(
    p: Vector, steps: Vector, fine: int, select: Callable[[float], Selection], stated: Stated
) -> tuple[float, Selection] | None:
    """Return the first threshold whose selection has what is stated, in the order of `threshold_for`, or None.

    Tried are quantiles of the probabilities p (N,), ascending, at `steps`, then as many as `fine` probabilities between
    the two quantiles where it is reached.
    """
    what, least = stated

    def first(thresholds: Vector) -> tuple[float, float, Selection] | None:
        """Return the first of them that has what is stated, the one tried before it, and its selection."""
        tried = np.unique(thresholds)[:: 1 if what == "purity" else -1].tolist()
        for before, threshold in zip([tried[0], *tried], tried, strict=False):
            found = select(threshold)
            if (found.purity if what == "purity" else found.completeness).mean() >= least:
                return threshold, before, found
        return None

    # Purity may fall again among the very last objects, where it rests on few rows: the first that reaches it.
    coarse = first(np.quantile(p, steps))
    if coarse is None:
        return None
    low, high = np.searchsorted(p, sorted(coarse[:2])).clip(max=len(p) - 1).tolist()
    threshold, _, found = first(p[np.linspace(low, high, fine).round().astype(np.intp)]) or coarse
    return threshold, found


def learnt_threshold(
    labelled: LabelledRows, k: int, shares: Vector, stated: Stated
) -> tuple[float, Selection] | None:
    """Return the threshold with a stated purity or completeness where the classes have `shares` (K,); None if none has.

    For use before any row of the target is seen: the labelled rows stand for it, each class at its share.  So purity
    holds where the shares do, completeness whatever they are.  The threshold is rounded, so that single precision has
    it too: up for a purity, down for a completeness.
    """
    target = as_target(labelled, shares)
    parts = [(labelled, np.broadcast_to(shares, (_DRAWS, len(shares))))]
    found = threshold_for(parts, target, k, stated, observed=False)
    if found is None:
        return None
    threshold = rounded_threshold(found[0], up=stated[0] == "purity")
    return threshold, _selected(parts, target, k, threshold, observed=False)


def as_target(labelled: LabelledRows, shares: Vector) -> TargetRows:
    """Return labelled rows as those of a target of any size, where the classes have `shares` (K,)."""
    weight = labelled.weight * (shares / labelled.shares)[labelled.y]
    return TargetRows(labelled.probability, weight, labelled.X, MANY_OBJECTS)


def rounded_threshold(threshold: float, *, up: bool) -> float:
    """Return the next threshold above or below that is the same number in single precision."""
    fraction, power = math.frexp(threshold)
    steps = fraction * _STEPS_OF_TWO
    return math.ldexp((math.ceil(steps) if up else math.floor(steps)) / _STEPS_OF_TWO, power)


def _selected(parts: Parts, target: TargetRows, k: int, threshold: float, *, observed: bool) -> Selection:
    return selection(
        parts,
        parts[0][0].probability[:, k] >= threshold,
        k,
        n_selected=n_selected(target, k, threshold),
        n_objects=target.n_objects,
        n_seen=target.n_effective if observed else 0.0,
    )


def n_selected(target: TargetRows, k: int, threshold: float | Vector) -> int:
    """Return how many of the target's objects have at least a probability of class `k`, one for all rows or (N,)."""
    chosen = target.probability[:, k] >= threshold
    return round(float(target.weight @ chosen / target.weight.sum()) * target.n_objects)
