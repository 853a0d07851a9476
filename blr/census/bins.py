"""Class shares and selections in bins of the target: shares shrunk to the whole, purity, completeness, thresholds.

What a bin is expected to be follows from the whole: the mean calibrated probability of its objects, at the class shares
of the whole target.  Labelled rows in the bin show how wrong this is there: the difference of class and probability,
which is shrunk to zero as far as the bins do not differ more than their errors.  Such intervals hold on average over
bins, not in each one (Efron and Morris 1975, doi:10.1080/01621459.1975.10479864).  The bins add up to the whole.
Shapes: n labelled rows, N target rows, K classes, B bins, S draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Floats, Matrix, Places, Vector
from blr.census.counts import Counted
from blr.census.purity import Selection, Stated, as_target, first_threshold, rounded_threshold
from blr.census.shares import LabelledRows, TargetRows, central_interval, moved, scaled

_DRAWS = 300
_SEED = 20_100_002
_TAU = np.array([0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45, 0.65])
"""Differences between bins beyond their errors that are tried, in standard deviations of an object's class."""
_TAU_SCALE = 0.4  # scale of the half-Cauchy prior of these differences (Gelman 2006, doi:10.1214/06-BA117A)
_UNKNOWN = 1e6  # variance of the difference in a bin without labelled rows
_RIDGE = 1e-9
_EXPECTED_ROWS = 5.0  # labelled rows of each class that the model's expectation counts as in each bin
_PSEUDO = 0.5
_STEPS = np.concatenate([np.linspace(0, 0.95, 20), [0.97, 0.98, 0.99, 0.995]])
"""Quantiles of a bin's probability that are tried as thresholds."""
_FINE = 8  # thresholds between two of those that are tried next


@dataclass(frozen=True, eq=False)
class BinShares:
    """Draws (S, B, K) of the shares of the classes in bins, and what is known of these.

    `n_objects` (B,) of the target and `n_labelled` (B,) labelled rows are in a bin; `probability` (N, K) is that of the
    target's rows at the expected class shares of the whole.  `labelled_bin` (n,) and `target_bin` (N,) are the rows'
    bins.  `alternatives`: where the counts of the whole span several assumptions, those under each, whose draws are
    pooled in that order; all else here is of the first.
    """

    draws: Floats
    n_objects: Vector
    n_labelled: NDArray[np.intp]
    probability: Matrix
    labelled: LabelledRows
    target: TargetRows
    labelled_bin: Places
    target_bin: Places
    alternatives: tuple[BinShares, ...] = ()

    @property
    def interval(self) -> tuple[Matrix, Matrix]:
        """The lower and the upper ends (B, K) of the central 95 % intervals."""
        return central_interval(self.draws)


def bin_shares(
    target: TargetRows, counted: Counted, labelled_bin: Places, target_bin: Places, n_bins: int
) -> BinShares:
    """Return the shares of the classes in bins, under the assumption of the counts of the whole.

    `labelled_bin` (n,) and `target_bin` (N,) are the rows' bins.
    """
    assert counted.shares is not None  # noqa: S101  the bins are parts of a whole that is counted
    labelled, bins = counted.labelled, (labelled_bin, target_bin, n_bins)
    if counted.alternatives:
        under_each = tuple(bin_shares(target, part, *bins) for part in counted.alternatives)
        draws = np.concatenate([one.draws for one in under_each])
        return replace(under_each[0], draws=draws, alternatives=under_each)
    # Calibrated probabilities move with the class shares where objects of a class look alike; else they stay.
    p, p_labelled = (scaled(rows.probability, counted.scaling) for rows in (target, labelled))
    before = labelled.shares if counted.assumes == "shares" else None

    def at_shares(p: Matrix, shares: Vector) -> Matrix:
        return p if before is None else moved(p, shares / before)

    def expected(shares: Vector) -> Matrix:
        """Return the means (B, K - 1) of the target's probabilities at class shares (K,) of the whole."""
        return _bin_means(at_shares(p, shares)[:, :-1], target, target_bin, n_bins)

    def residuals(shares: Vector) -> tuple[Vector, Matrix]:
        """Return weights (n,) of labelled rows, and class minus probability (n, K - 1)."""
        weight = labelled.weight if before is None else labelled.weight * (shares / before)[labelled.y]
        return weight, (np.eye(len(shares))[labelled.y] - at_shares(p_labelled, shares))[:, :-1]

    weight = np.bincount(target_bin, target.weight, minlength=n_bins)
    fraction = weight / weight.sum()
    n_objects = fraction * target.n_objects
    p_mean = at_shares(p, counted.shares.mean(axis=0))
    whole = counted.shares[np.random.default_rng(_SEED).permutation(len(counted.shares))[:_DRAWS]]
    realised = _realised(p_mean, target, target_bin, n_objects)
    draws = _drawn(whole, expected, residuals, realised, fraction, labelled_bin)
    draws = np.clip(np.concatenate([draws, 1 - draws.sum(axis=2, keepdims=True)], axis=2), 0, None)
    draws /= np.maximum(draws.sum(axis=2, keepdims=True), 1e-300)
    n_labelled = np.bincount(labelled_bin, minlength=n_bins)
    return BinShares(draws, n_objects, n_labelled, p_mean, labelled, target, labelled_bin, target_bin)


def _drawn(
    whole: Matrix,
    expected: Callable[[Vector], Matrix],
    residuals: Callable[[Vector], tuple[Vector, Matrix]],
    realised: Floats,
    fraction: Vector,
    place: Places,
) -> Floats:
    """Return draws (S, B, K - 1) of the shares in bins, for draws (S, K) of those of the whole.

    `place` (n,) are the bins of the labelled rows.
    """
    rng = np.random.default_rng(_SEED)
    pi = whole.mean(axis=0)
    # The covariance (K - 1, K - 1) of the class of an object drawn at random.
    spread = np.diag(pi[:-1]) - np.outer(pi[:-1], pi[:-1]) + _RIDGE * np.eye(len(pi) - 1)
    found = _difference(*residuals(pi), place, len(fraction))
    error = _error(*residuals(pi), place, len(fraction), spread)
    ridge = _RIDGE * np.eye(len(pi) - 1)
    tau = _TAU[rng.choice(len(_TAU), len(whole), p=_weights(found, error, spread))]
    draws = np.empty((len(whole), *found.shape))
    for t in np.unique(tau):
        prior = t**2 * spread
        shrink = prior @ np.linalg.inv(error + prior)
        covariance = prior - shrink @ prior + realised
        root = np.linalg.cholesky(covariance + ridge)
        # The bins add up to the whole: conditioned on that, as Gaussians are.
        total = np.einsum("b,bij->ij", fraction**2, covariance) + ridge
        gain = fraction[:, None, None] * covariance @ np.linalg.inv(total)
        for s in np.flatnonzero(tau == t):
            difference = _difference(*residuals(whole[s]), place, len(fraction))
            x = expected(whole[s]) + np.einsum("bij,bj->bi", shrink, difference)
            x += np.einsum("bij,bj->bi", root, rng.standard_normal(x.shape))
            draws[s] = x + np.einsum("bij,j->bi", gain, whole[s, :-1] - fraction @ x)
    return draws


def _difference(weight: Vector, residual: Matrix, place: Places, B: int) -> Matrix:
    """Return the mean residual of labelled rows in bins, (B, K - 1); 0 in a bin without."""
    total = np.bincount(place, weight, minlength=B)
    sums = [np.bincount(place, weight * r, minlength=B) for r in residual.T]
    return np.asarray(np.column_stack(sums) / np.maximum(total, 1e-300)[:, None])


def _error(weight: Vector, residual: Matrix, place: Places, B: int, spread: Matrix) -> Floats:
    """Return the covariance (B, K - 1, K - 1) of these means; `spread` is that of the class of an object."""
    mean, found = _difference(weight, residual, place, B), np.empty((B, *spread.shape))
    for b in range(B):
        w, r = weight[place == b], residual[place == b]
        n = w.sum() ** 2 / max((w**2).sum(), 1e-300)
        if not n:
            found[b] = _UNKNOWN * np.eye(len(spread))
            continue
        centred = (w / w.sum())[:, None] * (r - mean[b])
        # One more row with the spread of an object drawn at random: few residuals may all be small.
        found[b] = centred.T @ centred * n / max(n - 1, 0.5) + spread / n**2
    return found + _RIDGE * np.eye(len(spread))


def _bin_means(values: Matrix, target: TargetRows, place: Places, B: int) -> Matrix:
    """Return the means (B, M) of values (N, M) in bins; for an empty bin the mean of all."""
    weight = np.bincount(place, target.weight, minlength=B)
    sums = np.column_stack([np.bincount(place, target.weight * v, minlength=B) for v in values.T])
    return np.where(weight[:, None] > 0, sums / np.maximum(weight, 1e-300)[:, None], target.mean(values))


def _weights(found: Matrix, error: Floats, spread: Matrix) -> Vector:
    """Return the posterior probabilities of `_TAU`."""
    log_p = -np.log1p((_TAU / _TAU_SCALE) ** 2)
    for i, tau in enumerate(_TAU):
        V = error + tau**2 * spread
        whitened = np.linalg.solve(V, found[..., None])[..., 0]
        log_p[i] -= 0.5 * ((found * whitened).sum() + np.linalg.slogdet(V)[1].sum())
    p = np.exp(log_p - log_p.max())
    return np.asarray(p / p.sum())


def _realised(p: Matrix, target: TargetRows, place: Places, n: Vector) -> Floats:
    """Return the covariance (B, K - 1, K - 1) of the classes of a bin's objects, and of a sample of these."""
    q = p[:, :-1]
    K = q.shape[1]
    pairs = np.einsum("ni,nj->nij", q, q).reshape(len(q), -1)
    square = _bin_means(pairs, target, place, len(n)).reshape(-1, K, K)
    mean = _bin_means(q, target, place, len(n))
    own = np.einsum("bi,ij->bij", mean, np.eye(K)) - square
    between = square - np.einsum("bi,bj->bij", mean, mean)
    rows, objects = np.maximum(np.bincount(place, minlength=len(n)), 1), np.maximum(n, 1.0)
    thinned = np.maximum(0.0, 1 / rows - 1 / objects)
    return np.asarray(own / objects[:, None, None] + between * thinned[:, None, None])


def bin_selection(shares: BinShares, b: int, k: int, threshold: float) -> Selection:
    """Return how pure and how complete the objects of a bin are whose probability of class `k` is so large."""
    rows = (shares.target.probability[:, k] >= threshold, shares.labelled.probability[:, k] >= threshold)
    return bin_taken(shares, b, k, *rows)


def bin_taken(
    shares: BinShares, b: int, k: int, of_target: NDArray[np.bool_], of_labelled: NDArray[np.bool_]
) -> Selection:
    """Return how pure and how complete a selection of class `k` is in a bin, of rows of the target (N,), and labelled.

    The fraction of each class that is taken has a Beta posterior: of the labelled rows in the bin, and a few that are
    as the model expects.  Where the shares span several assumptions, the draws under all are pooled.
    """
    if shares.alternatives:
        return Selection.pooled([bin_taken(one, b, k, of_target, of_labelled) for one in shares.alternatives])
    labelled, target = shares.labelled, shares.target
    inside, ours = shares.target_bin == b, shares.labelled_bin == b
    chosen = of_target[inside]
    weight, p = target.weight[inside], shares.probability[inside]
    taken_expected = (weight * chosen) @ p / np.maximum(weight @ p, 1e-300)
    K = labelled.n_classes
    y, w = labelled.y[ours], labelled.weight[ours]
    own, squares, hits = (np.bincount(y, x, minlength=K) for x in (w, w**2, w * of_labelled[ours]))
    rows, taken = own**2 / np.maximum(squares, 1e-300), hits / np.maximum(own, 1e-300)
    before = np.where(np.arange(K) == k, _PSEUDO, _PSEUDO / (K - 1))
    a = before + taken * rows + taken_expected * _EXPECTED_ROWS
    c = _PSEUDO + (1 - taken) * rows + (1 - taken_expected) * _EXPECTED_ROWS
    rng = np.random.default_rng([_SEED, b])  # bins are drawn independently, and may be added up
    drawn = rng.beta(a, c, size=(len(shares.draws), K))
    of_class = shares.draws[:, b] * drawn
    purity = of_class[:, k] / np.maximum(of_class.sum(axis=1), 1e-300)
    n = shares.n_objects[b]
    n_selected = round(float(weight @ chosen / max(weight.sum(), 1e-300)) * n)
    n_class = np.maximum(np.rint(shares.draws[:, b, k] * n).astype(np.int64), 1)
    return Selection.of(n_selected, purity, drawn[:, k], n_class, rng)


def bin_threshold(shares: BinShares, b: int, k: int, stated: Stated) -> tuple[float, Selection] | None:
    """Return the threshold with a stated purity or completeness in a bin; None where none has it, or no row is there.

    As `blr.census.purity.threshold_for` does for the whole: the lowest for a purity, the highest for a completeness.
    """
    inside = shares.target_bin == b
    if not inside.any():
        return None
    p = np.sort(shares.target.probability[inside, k])
    return first_threshold(p, _STEPS, _FINE, partial(bin_selection, shares, b, k), stated)


def joined_selection(shares: BinShares, k: int, chosen: Mapping[int, Selection]) -> Selection:
    """Return how pure and how complete selections of class `k`, one of each bin, are together.

    Bins without a selection select nothing: what they have of the class is lost.
    """
    n_selected = sum(one.n_selected for one in chosen.values())
    n_class = shares.draws[:, :, k] * shares.n_objects
    right = sum((one.n_selected * one.purity for one in chosen.values()), start=np.zeros(len(n_class)))
    found = sum((n_class[:, b] * one.completeness for b, one in chosen.items()), start=np.zeros(len(n_class)))
    return Selection(n_selected, right / max(n_selected, 1), found / np.maximum(n_class.sum(axis=1), 1e-300))


def learnt_thresholds(
    labelled: LabelledRows, places: Places, n_bins: int, k: int, shares: Vector, stated: Stated
) -> tuple[Mapping[int, float], Selection] | None:
    """Return the threshold of class `k` by the bin's place, and the selection that all make together; None if none.

    Each has a stated purity or completeness; a bin without such a threshold is left out: it selects nothing.
    `places` (n,) are the bins of the labelled rows, `shares` (K,) those of the classes in the whole target.  As in
    `blr.census.purity.learnt_threshold`, thresholds are rounded: up for a purity, down for a completeness.
    """
    target = as_target(labelled, shares)
    known = np.broadcast_to(shares, (_DRAWS, len(shares)))
    found = bin_shares(target, Counted(labelled, known, "shares", "as given"), places, places, n_bins)
    best = {b: bin_threshold(found, b, k, stated) for b in range(n_bins)}
    up = stated[0] == "purity"
    thresholds = {b: rounded_threshold(one[0], up=up) for b, one in best.items() if one is not None}
    if not thresholds:
        return None
    chosen = {b: bin_selection(found, b, k, t) for b, t in thresholds.items()}
    return thresholds, joined_selection(found, k, chosen)
