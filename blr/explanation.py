"""Why a row has its class: what each feature contributes, which labelled rows are like it, and whether none is.

A feature's contribution is to the logit of the class against the runner-up.  The reference is a row at the training
set's mean.  A feature contributes what the logit gains when the feature takes the row's value in place of the
reference's, averaged over the orders in which the features may do so: baseline Shapley values (Sundararajan & Najmi
2020, arXiv:1908.08474).  The contributions add up to the logit's difference from the reference.  A logit is linear in
the weights, and so is a contribution: draws of the weights give its uncertainty.  Features that are missing contribute
nothing: they are at their mean given those present.
Shapes: F features, P of them present, K classes, S draws, M basis functions, C coalitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from blr.arrays import Mask, Matrix, Vector, as_vector
from blr.classifier import Classifier
from blr.likelihood.likelihoods import LINKS
from blr.member import Member
from blr.missing.patterns import largest_share

_MOST_EXACT = 10  # features present, of which all coalitions are evaluated: 1,024
_ORDERS, _MOST_DRAWN = (
    128,
    2**14,
)  # drawn of more, each with its reverse, and the coalitions that they may take
_DRAWS = 400


@dataclass(frozen=True, eq=False)
class Contributions:
    """How the logit of class `of` against class `against` comes about, in nats.

    `value` (F,) is each feature's contribution and `std` (F,) its standard deviation under the posterior of the
    weights, NaN where the feature is missing.  `reference` is the logit at the training set's mean, `shift` what other
    class shares add, and `logit` their sum with all contributions; `logit_std` is its standard deviation.
    """

    of: int
    against: int
    value: Vector
    std: Vector
    reference: float
    shift: float
    logit: float
    logit_std: float


def contributions(
    classifier: Classifier,
    x: ArrayLike,
    missing: ArrayLike,
    *,
    of: int,
    against: int,
    n_draws: int = _DRAWS,
) -> Contributions:
    """Return what the features of a row (F,) contribute to the logit of class `of` against class `against`.

    Up to ten features are exact; of more, 256 orders of the features are drawn, from 64 on fewer.  Beyond the labels'
    range the logit is the mixture of its two continuations, as probabilities are.
    ValueError if x or missing is not of the classifier's features, nothing is present, or the classes are not two of
    its own.
    """
    x, missing = _checked_row(classifier, x, missing)
    K = len(classifier.classes)
    if of == against or not {of, against} <= set(range(K)):
        raise ValueError(f"got classes {of} and {against}, expected two different numbers from 0 to {K - 1}")
    row = classifier.moments.impute(x[None], missing[None], limits=classifier.support)[0]
    present = np.flatnonzero(~missing)
    rng = np.random.default_rng(0)
    P = len(present)
    coalitions, share = _all_coalitions(P) if P <= _MOST_EXACT else _drawn_coalitions(P, rng)
    Z = np.tile(row, (len(coalitions), 1))
    Z[:, present] = np.where(coalitions, row[present], classifier.moments.mean[present])
    # One row each: the reference's logit, the row's own, and the contributions.
    size = coalitions.sum(axis=1)
    combine = np.zeros((P + 2, len(Z)))
    combine[0, size.argmin()], combine[1, size.argmax()], combine[2:] = 1.0, 1.0, share
    sign = np.zeros(K)
    sign[of], sign[against] = 1.0, -1.0
    members, weights = classifier.members, _weights(classifier)
    parts = [_combined(m.continuations(Z, classifier.support), combine, sign) for m in members]
    means = [part(m.posterior.mean[None])[0] for part, m in zip(parts, members, strict=True)]
    mean = np.tensordot(weights, np.stack(means), axes=1)
    drawn = zip(parts, members, _counts(weights, n_draws), strict=True)
    draws = np.concatenate([part(m.posterior.sample(n, rng)) for part, m, n in drawn if n])
    spread = np.sqrt(np.mean((draws - mean) ** 2, axis=0))
    priors = classifier.log_prior_shift
    shift = 0.0 if priors is None else float(priors[of] - priors[against])
    value, std = np.full(len(x), np.nan), np.full(len(x), np.nan)
    value[present], std[present] = mean[2:], spread[2:]
    return Contributions(
        of=of,
        against=against,
        value=value,
        std=std,
        reference=float(mean[0]),
        shift=shift,
        logit=float(mean[1]) + shift,
        logit_std=float(spread[1]),
    )


def sampled_probability(
    classifier: Classifier, x: ArrayLike, missing: ArrayLike, *, n_draws: int = 2000
) -> tuple[Vector, Vector]:
    """Return the mean of a row's class probabilities over draws of the weights, and its standard error, (K,) each.

    A check of the predictive integral.

    What is missing is integrated out under the training set, by the classifier's own nodes, with the classifier's share
    at its mean.  Measurement errors and the temperature are left out.  ValueError as of `contributions`.
    """
    x, missing = _checked_row(classifier, x, missing)
    rng, K = np.random.default_rng(0), len(classifier.classes)
    nodes, weight = classifier.moments.nodes(x[None], missing, 64, limits=classifier.support)
    at_mean = classifier.moments.impute(x[None], missing[None], limits=classifier.support)
    share = largest_share(classifier.integrated, missing[None])
    Z, weight = np.concatenate([nodes[:, 0], at_mean]), np.concatenate([share * weight, 1 - share])
    shift = np.zeros(K) if classifier.log_prior_shift is None else classifier.log_prior_shift
    draws = []
    for member, n in zip(classifier.members, _counts(_weights(classifier), n_draws), strict=True):
        if n:
            W = member.posterior.sample(n, rng)
            mixed = (
                s * _probabilities(member, Phi, W, shift)
                for s, Phi in member.continuations(Z, classifier.support)
            )
            draws.append(np.einsum("snk,n->sk", sum(mixed), weight))
    p = np.concatenate(draws)
    return p.mean(axis=0), p.std(axis=0, ddof=1) / np.sqrt(len(p))


def _checked_row(classifier: Classifier, x: ArrayLike, missing: ArrayLike) -> tuple[Vector, Mask]:
    F = len(classifier.features)
    absent = np.asarray(missing, dtype=np.bool_)
    if np.shape(x) != (F,) or absent.shape != (F,):
        raise ValueError(
            f"expected x and missing of {F} features, got shapes {np.shape(x)} and {absent.shape}"
        )
    if absent.all():
        raise ValueError(
            "got a row in which every feature is missing, expected at least one value, since there is "
            "nothing to explain otherwise; choose another row"
        )
    return as_vector(np.where(absent, 0.0, np.asarray(x, dtype=np.float64)), "x"), absent


def _all_coalitions(P: int) -> tuple[Mask, Matrix]:
    """Return which features take the row's value (C, P), and the share of each in the contributions (P, C)."""
    sets = [s for size in range(P + 1) for s in combinations(range(P), size)]
    inside = np.array([[j in s for j in range(P)] for s in sets])
    size, weight = inside.sum(axis=1), 1 / (P * np.array([comb(P - 1, n) for n in range(P)]))
    return inside, np.where(inside.T, weight[size - 1], -weight[np.minimum(size, P - 1)])


def _drawn_coalitions(P: int, rng: np.random.Generator) -> tuple[Mask, Matrix]:
    orders = [rng.permutation(P) for _ in range(min(_ORDERS, 1 + _MOST_DRAWN // (2 * P + 2)))]
    place = np.argsort([order for drawn in orders for order in (drawn, drawn[::-1])], axis=1)[:, None]
    step = np.arange(P + 1)[:, None]
    share = ((place == step - 1) * 1.0 - (place == step)) / len(place)
    return (place < step).reshape(-1, P), share.reshape(-1, P).T


def _weights(classifier: Classifier) -> Vector:
    weights = np.array([m.weight for m in classifier.members])
    return weights / weights.sum()


def _combined(
    designs: list[tuple[float, Matrix]], combine: Matrix, sign: Vector
) -> Callable[[Matrix], Matrix]:
    """Return the function from weights (S, D) to the combined logits (S, P + 2)."""
    V = np.asarray(sum(s * (combine @ Phi) for s, Phi in designs))

    def combined(W: Matrix) -> Matrix:
        outputs = W.reshape(len(W), -1, V.shape[1])
        if outputs.shape[1] == 1:  # of two classes: the logit of the second
            return np.asarray(sign[1] * (outputs[:, 0] @ V.T))
        return np.asarray(np.einsum("k,skm,pm->sp", sign, outputs, V))

    return combined


def _probabilities(member: Member, Phi: Matrix, W: Matrix, shift: Vector) -> Matrix:
    """Return (S, C, K) probabilities under draws of the weights (S, D)."""
    outputs = W.reshape(len(W), -1, Phi.shape[1]) @ Phi.T
    if outputs.shape[1] == 1:
        second = np.exp(LINKS[member.posterior.link].log_cdf(outputs[:, 0] + shift[1] - shift[0]))
        return np.stack([1 - second, second], axis=2)
    return np.asarray(softmax(np.moveaxis(outputs, 1, 2) + shift, axis=2))


def _counts(weights: Vector, n: int) -> list[int]:
    """Return how many of n draws each member gets, by its weight."""
    return np.diff(np.rint(np.concatenate([[0.0], np.cumsum(weights)]) * n)).astype(int).tolist()


# The labelled rows that are nearest to a row, which may have missing features.
#
# The distance is Mahalanobis' under the training set's moments, over the features that both rows have, divided by the
# root of their number: 1 is a typical difference.  Shapes: N labelled rows, F features.


def nearest_rows(
    classifier: Classifier, x: ArrayLike, X: ArrayLike, *, n: int = 5
) -> tuple[NDArray[np.intp], Vector, NDArray[np.intp]]:
    """Return the n rows of X (N, F) that are nearest to x (F,), and their distances; NaN is a missing feature.

    The nearest is first.  Distances (n,) are in typical differences; last is how many features were compared (n,).
    Rows that share fewer than half of the features of x are left out while others are there.
    """
    row, rows = np.asarray(x, dtype=np.float64), np.asarray(X, dtype=np.float64)
    difference = rows - row
    shared = np.isfinite(difference)
    compared = shared.sum(axis=1)
    distance = np.full(len(rows), np.inf)
    # An array without rows has no pattern.
    patterns, which = np.unique(shared, axis=0, return_inverse=True) if len(shared) else (shared, compared)
    for i, pattern in enumerate(patterns):
        if pattern.any():
            index = np.flatnonzero(which.ravel() == i)
            L = np.linalg.cholesky(classifier.moments.covariance[np.ix_(pattern, pattern)])
            z = np.linalg.solve(L, difference[np.ix_(index, pattern)].T)
            distance[index] = np.sqrt(np.mean(z**2, axis=0) / 2)
    few = 2 * compared < np.isfinite(row).sum()
    order = np.lexsort((distance, few))
    order = order[np.isfinite(distance[order])][:n]
    return order, distance[order], compared[order]


# How unlike all labelled rows a row is: whether there are more rows like it than labelled ones.
#
# A row's novelty is its distance to the k-th nearest labelled row over that to the k'-th nearest row of a sample of the
# catalogue.  Both distances estimate densities (Loftsgaarden & Quesenberry 1965, doi:10.1214/aoms/1177700079), so their
# ratio is large where there are many rows and few labels, as for a type of objects without labels. In the tails of
# known classes both distances are large, so the first distance alone would list the tails.  Shapes: N labelled rows, n
# rows, D dimensions.

MOST_COMPARED = 10_000
"""Most labelled rows, evenly spaced, and most rows of the catalogue that a row is compared with."""
_LABELLED, _ALIKE = 3, 30
_SHARE = 100
"""In a small sample, k' is the number of rows divided by this."""
_BY_PRODUCTS = 8
"""Dimensions from which a product of matrices rules points out faster than a tree does."""
_NEARLY = 1.01
"""Times a radius within which rows count, for rounding in single precision."""
_LEAST = 1e-3
"""Least distance, so that equal rows have a finite novelty."""


Distances = Callable[[Matrix], tuple[Vector, NDArray[np.intp]]]
"""How far points (n, D) are from their k-th nearest labelled row (n,), and the nearest row (n,)."""


def distances_from(labelled: Matrix) -> Distances:
    """Return the distances from labelled rows at points (N, D), of which there is at least one."""
    row = np.linspace(0, len(labelled) - 1, min(len(labelled), MOST_COMPARED)).round().astype(np.intp)
    tree = scipy.spatial.cKDTree(labelled[row])

    def distances(points: Matrix) -> tuple[Vector, NDArray[np.intp]]:
        distance, index = _nearest(tree, points, min(_LABELLED, len(row)))
        return distance, row[index]

    return distances


def relative(
    distance: Vector, points: Matrix, sample: scipy.spatial.cKDTree, *, least: float = 0.0
) -> Vector:
    """Return the novelty (n,) of points (n, D) at a distance (n,) from labelled rows, beside a sample of all rows.

    It may be given as 0 where it is below `least`.
    """
    k = min(_ALIKE, max(_LABELLED, sample.n // _SHARE), sample.n)
    asked = np.arange(len(points))
    if least > 0 and points.shape[1] >= _BY_PRODUCTS:
        # Only points that have, or nearly have, k rows within that radius are near enough.
        rows = np.asarray(sample.data)
        within = (_NEARLY * (distance / least)) ** 2 - np.einsum("nd,nd->n", points, points)
        gaps = points.astype(np.float32) @ (-2 * rows.T).astype(np.float32)
        gaps += np.einsum("nd,nd->n", rows, rows).astype(np.float32)
        near = np.count_nonzero(gaps < within[:, None].astype(np.float32), axis=1)
        asked = np.flatnonzero(near >= k)
    novelty = np.zeros(len(points))
    novelty[asked] = distance[asked] / (_nearest(sample, points[asked], k)[0] + _LEAST)
    return novelty


def _nearest(tree: scipy.spatial.cKDTree, points: Matrix, k: int) -> tuple[Vector, NDArray[np.intp]]:
    """Return the distance (n,) of the k-th nearest row of a tree, and the nearest row (n,)."""
    found = tree.query(points, k=[1, k])
    distance, index = np.asarray(found[0]), np.asarray(found[1])
    return distance[:, 1], index[:, 0]
