"""An audit: how many objects of each stratum are drawn for people to look at, and what their answers say of all.

A stratum holds the objects of one class (the most probable one) within a range of its probability.  Half of the objects
are drawn in proportion to the strata's sizes, so that no model can hide a class.  The other half follow Neyman's rule
(1934, doi:10.2307/2342192): more where the classes are uncertain, and of those more where a rare class is likely.

The intervals of what the answers say hold whatever the model is.  Objects are drawn without replacement, each object of
a stratum with the same probability.  A share is A/(A + B), of two totals over the catalogue: of all objects, those of a
class (its count); of those selected, those of the class (purity); of those of the class, those selected (completeness).
The limit r of a share is where a quantile of D(r) = (1 - r) A - r B is 0 (Fieller).  The totals have the distribution
of the Bayesian bootstrap in each stratum (Rubin 1981, doi:10.1214/aos/1176345338), with the variance of sampling
without replacement, and D the Pearson distribution of type III with its mean, variance and skewness.  Before that,
one object more is put into the stratum where it moves the limit most: a stratum in which no error was seen is not
known to be pure.  With a single stratum and few objects these are the limits of Clopper and Pearson (1934,
doi:10.1093/biomet/26.4.404).
Shapes: K classes, G levels of the probability, H strata; samples (..., H) for many audits at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from blr.arrays import Mask, Matrix, Places, Vector

Counts = NDArray[np.int64]
Strata = tuple[Counts, Counts]
"""How many objects each stratum has (H,), and how many of them were looked at (H,), at least one."""
Possible = tuple[Mask, Mask, Mask]
"""In which strata (H,) an unseen object may count as a hit, as a miss, and as neither."""
_Totals = tuple[Vector, Vector, Vector, Vector, Vector]
"""Shares a and b (R, H) of hits and misses in strata of weight W (H,), each from n (R, H) objects.

The last (R, H) is what the variance of the bootstrap is multiplied by, for that of the estimate.
"""
FEW = 10
"""Number of objects seen in a stratum up to which one unseen object is added; with more, half an object is added."""
MOST_STEPS = 60  # steps of the search for a limit at most; about nine are taken
TOLERANCE = 1e-9  # error of a limit
LEAST_SKEWNESS = 1e-3  # below it the Pearson distribution is the normal one, to rounding
ROUNDING = 1e-14
FEWEST = 4  # objects drawn of a stratum at least, where it has so many
DOUBT = 0.02
"""Weight of the class shares in a stratum's probabilities, since models state too much certainty."""
LEVELS = 200
FINEST = 1e-4  # smallest 1 - p that has a level of its own
SMALLEST_STRATUM = 10  # objects that a stratum has at least, unless its class has fewer
ROUNDS = 50


def level_edges(thresholds: Sequence[float] = ()) -> Vector:
    """Return the edges (G - 1,) of the levels of the largest probability, ascending; thresholds are among them.

    A probability is at the level `np.searchsorted(edges, p, side="right")`.
    """
    fine = 1 - np.geomspace(FINEST, 1 - 1 / LEVELS, LEVELS)
    return np.unique(np.concatenate([fine, np.asarray(thresholds, dtype=np.float64)]))


def uncertainty(mean: Matrix, share: Vector) -> Vector:
    """Return the standard deviation (...) of the class of an object with mean probabilities (..., K), as Neyman has it.

    Each class counts by one over its `share` (K,): errors of rare classes are as costly as those of frequent ones.
    """
    p = (1 - DOUBT) * mean + DOUBT * share
    deviation: Vector = np.sqrt((p * (1 - p) / np.maximum(share, np.finfo(float).tiny)).sum(axis=-1))
    return deviation


def cut_levels(n_rows: Counts, deviation: Matrix, n_strata: int, begins: Mask | None = None) -> Places:
    """Return the stratum (K, G) of each level within its class, 0 the least probable; -1 where it has no object.

    `n_rows` (K, G) counts objects, `deviation` (K, G) is their `uncertainty`.  Strata are about equal in their product
    (Dalenius and Hodges 1959, doi:10.1080/01621459.1959.10501501); there are about `n_strata`, at least one a class.
    A stratum begins wherever `begins` (K, G) says so.
    """
    mass = n_rows * deviation
    total, objects = mass.sum(axis=1), n_rows.sum(axis=1)
    pieces = (objects > 0).astype(int)
    while pieces.sum() < n_strata:
        more = np.where(objects >= (pieces + 1) * SMALLEST_STRATUM, total / np.maximum(pieces, 1), 0.0)
        if not more.any():
            break
        pieces[int(more.argmax())] += 1
    strata = np.full(n_rows.shape, -1, dtype=np.intp)
    for k in np.flatnonzero(pieces):
        middle = (np.cumsum(mass[k]) - mass[k] / 2) / total[k]
        piece = np.minimum((middle * pieces[k]).astype(np.intp), pieces[k] - 1)
        if begins is not None:
            piece += np.cumsum(begins[k]) * (n_strata + len(pieces))  # more than any piece
        filled = n_rows[k] > 0
        strata[k, filled] = np.unique(piece[filled], return_inverse=True)[1]
    return strata


def allocated(n_rows: Counts, deviation: Vector, n: int) -> Counts:
    """Return how many objects (H,) are drawn of strata with `n_rows` (H,): `n` together, or all there are.

    ValueError if there are more than n/2 strata.
    """
    H, N = len(n_rows), n_rows.astype(np.float64)
    if n >= N.sum():
        return n_rows.astype(np.int64)
    if n < 2 * H:
        raise ValueError(
            f"n: got {n} objects for {H} strata, expected at least two for each stratum; draw more objects"
        )
    least = np.minimum(N, min(FEWEST, n // H))
    neyman = N * deviation
    wanted = 0.5 * n * (N / N.sum() + (neyman / neyman.sum() if neyman.any() else N / N.sum()))
    size = np.clip(wanted, least, N)
    for _ in range(ROUNDS):
        free, missing = (size > least) & (size < N), n - size.sum()
        if abs(missing) < 1e-9 or not free.any():
            break
        size[free] *= 1 + missing / size[free].sum()
        size = np.clip(size, least, N)
    # Whole numbers that are close to these and sum to n.
    whole = np.floor(size + 1e-9).astype(np.int64)
    order = np.argsort(whole - size, kind="stable")
    while whole.sum() < n:
        for i in order:
            if whole.sum() < n and whole[i] < n_rows[i]:
                whole[i] += 1
    while whole.sum() > n:
        whole[int(np.argmax(whole))] -= 1
    return whole


def joined_strata(n_rows: Counts, n_seen: Counts, kind: Places) -> Places:
    """Return the group (H,) of each stratum, after those of too few answers were joined with a neighbour.

    Fewer than two objects seen say nothing of a stratum's variance, unless they are all it has.  A neighbour is next
    to it, of the same `kind` (H,) where there is one.
    """
    group = np.arange(len(n_rows))
    while True:
        names = np.unique(group)
        seen, rows = (np.bincount(group, weights=x)[names] for x in (n_seen, n_rows))
        poor = np.flatnonzero((seen < 2) & (seen < rows))
        if not len(poor) or len(names) == 1:
            return np.searchsorted(names, group)
        i = int(poor[0])
        beside = [j for j in (i - 1, i + 1) if 0 <= j < len(names)]
        alike = [j for j in beside if kind[group == names[j]][0] == kind[group == names[i]][0]]
        other = min(alike or beside, key=lambda j: (seen[j], j))
        group[group == names[max(i, other)]] = names[min(i, other)]


def audited_share(
    hits: Counts, misses: Counts, strata: Strata, *, possible: Possible | None = None, level: float = 0.95
) -> tuple[Vector, Vector, Vector]:
    """Return the share of hits among hits and misses in the catalogue, and the ends of its interval, (...) each.

    `hits` and `misses` (..., H) count the objects seen in each stratum; what is neither does not count.  `possible`
    says what the unseen objects may be; without it all objects are hits or misses.  The share is NaN where neither a
    hit nor a miss was seen.
    """
    N, n = strata
    a, b = np.asarray(hits, dtype=np.float64), np.asarray(misses, dtype=np.float64)
    every = np.ones(len(N), dtype=bool)
    known = possible or (every, every, ~every)
    flat_a, flat_b = a.reshape(-1, len(N)), b.reshape(-1, len(N))
    A, B = (x @ (N / n) for x in (flat_a, flat_b))
    with np.errstate(invalid="ignore"):
        share = A / (A + B)
    tail = (1 + level) / 2
    high = _upper_limit(flat_a, flat_b, strata, known, tail)
    low = 1 - _upper_limit(flat_b, flat_a, strata, (known[1], known[0], known[2]), tail)
    least, most = _extremes(flat_a, flat_b, strata, known)
    # fmin and fmax ignore NaN.
    low = np.clip(np.fmin(low, share), least, most)
    high = np.clip(np.fmax(high, share), least, most)
    shape = a.shape[:-1]
    return share.reshape(shape), low.reshape(shape), high.reshape(shape)


def _extremes(a: Vector, b: Vector, strata: Strata, possible: Possible) -> tuple[Vector, Vector]:
    """Return the smallest and the largest share (R,) that the objects seen leave possible."""
    unseen = strata[0] - strata[1]
    seen_a, seen_b = a.sum(axis=1), b.sum(axis=1)
    more_a, more_b = float(unseen @ possible[0]), float(unseen @ possible[1])
    with np.errstate(invalid="ignore"):
        least = np.nan_to_num(seen_a / (seen_a + seen_b + more_b), nan=0.0)
        most = np.nan_to_num((seen_a + more_a) / (seen_a + more_a + seen_b), nan=1.0)
    return least, most


def _upper_limit(a: Vector, b: Vector, strata: Strata, possible: Possible, tail: float) -> Vector:
    """Return the upper limits (R,) of the share of a, (R, H), among a and b; 1 where no b was seen."""
    totals = _with_unseen(a, b, strata, possible)
    A, B = (share @ totals[2] for share in totals[:2])
    with np.errstate(invalid="ignore"):
        share = np.where(A + B > 0, A / (A + B), 1.0)
    return np.where(B > 0, _root(lambda r: _total_quantile(totals, r, tail), share, np.ones(len(a))), 1.0)


def _root(f: Callable[[Vector], Vector], low: Vector, high: Vector) -> Vector:
    """Return where falling functions (R,) are 0, between `low` and `high`; an end where they have one sign.

    Chandrupatla (1997, doi:10.1016/S0965-9978(96)00051-8): inverse quadratic interpolation where it can be trusted,
    else halving.
    """
    x1, x2, f1, f2 = low, high, f(low), f(high)
    end = np.where(f1 <= ROUNDING, low, high)
    inside = (f1 > ROUNDING) & (f2 < 0)
    x3, f3, t = x1, f1, np.full(len(low), 0.5)
    for _ in range(MOST_STEPS):
        x = x1 + t * (x2 - x1)
        fx = f(x)
        same = np.sign(fx) == np.sign(f1)
        x3, f3 = np.where(same, x1, x2), np.where(same, f1, f2)
        x2, f2 = np.where(same, x2, x1), np.where(same, f2, f1)
        x1, f1 = x, fx
        width = np.abs(x2 - x1)
        if not (inside & (width > TOLERANCE) & (f1 != 0)).any():
            break
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
            trusted = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
            first = f1 / (f2 - f1) * f3 / (f2 - f3)
            second = (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
            t = np.where(trusted & np.isfinite(first + second), first + second, 0.5)
            least = np.minimum(0.5, TOLERANCE / 2 / width)
        t = np.clip(t, np.nan_to_num(least, nan=0.5), 1 - np.nan_to_num(least, nan=0.5))
    return np.where(inside, x1, end)


def _total_quantile(totals: _Totals, r: Vector, tail: float) -> Vector:
    """Return that quantile (R,) of (1 - r) A - r B."""
    a, b, W, n, spread = totals
    up, down = (1 - r)[:, None], -r[:, None]
    mean = up * a + down * b
    second = up**2 * a + down**2 * b
    third = up**3 * a + down**3 * b
    variance = np.maximum(second - mean**2, 0) * spread / (n + 1)
    # Of the Dirichlet distribution with these shares and n.
    skewed = 2 * (third - 3 * mean * second + 2 * mean**3) * spread**1.5
    V = variance @ W**2
    K = (skewed / ((n + 1) * (n + 2))) @ W**3
    sd = np.sqrt(V)
    with np.errstate(invalid="ignore", divide="ignore"):
        skewness = np.where(V > 0, K / (V * sd), 0.0)
    shape = 4 / np.maximum(np.abs(skewness), LEAST_SKEWNESS) ** 2
    standard = (gammaincinv(shape, np.where(skewness >= 0, tail, 1 - tail)) - shape) / np.sqrt(shape)
    quantile: Vector = mean @ W + sd * np.where(skewness >= 0, standard, -standard)
    return quantile


def _with_unseen(a: Vector, b: Vector, strata: Strata, possible: Possible) -> _Totals:
    """Return the totals after one object more was put where it raises A/(A + B) most: a hit, or neither."""
    N, n = (x.astype(np.float64) for x in strata)
    W, rest = N / N.sum(), 1 - n / N
    H, rows = len(N), np.arange(len(a))
    open_ = rest > 0
    size = n / np.where(open_, rest, 1.0)  # Size of a sample with replacement of the same accuracy.
    pa, pb = a / n, b / n
    A, B = pa @ W, pb @ W
    c = 0.5 * (1 + np.minimum(1.0, FEW / size))
    less = (c / (size + c)) * W
    with np.errstate(invalid="ignore", divide="ignore"):
        now = np.where(A + B > 0, A / (A + B), 0.0)
        raised = [A[:, None] + less * (1 - pa), A[:, None] - less * pa]
        moved = [new / (new + B[:, None] - less * pb) for new in raised]
    allowed = [possible[0] & open_, possible[2] & open_]
    gain = np.hstack([np.where(ok & np.isfinite(m), m, -1.0) for ok, m in zip(allowed, moved, strict=True)])
    best = gain.argmax(axis=1)
    taken = rows[gain[rows, best] > now]
    place, is_hit = best[taken] % H, best[taken] < H
    sizes = np.tile(size, (len(a), 1))
    # The bootstrap's variance is too small by (n - 1)/(n + 1) in the mean.
    spread = np.tile(np.where(open_, (size + 1) / np.maximum(size - 1, 0.5), 1.0), (len(a), 1))
    grown = size[place] + c[place]
    pa[taken, place] = (pa[taken, place] * size[place] + c[place] * is_hit) / grown
    pb[taken, place] *= size[place] / grown
    sizes[taken, place], spread[taken, place] = grown, 1.0
    spread[:, ~open_] = 0.0
    return pa, pb, W, sizes, spread
