"""Predictions and their mixtures: over models, over missing features, over measurement errors.

A mixture of predictive distributions is again one: its probability is the mean of the parts', its mutual information
H(p) - Σ w E[H], and its activation's variance comes from the law of total variance.  Shapes: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector
from blr.decisions import mutual_information
from blr.missing.patterns import Nodes
from blr.predictive.binary import binary_integrals
from blr.predictive.softmax import softmax_exact


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """What a posterior says of N rows.

    `probability` (N, K); `expected_entropy` (N,), E[H] over the posterior, nats; mean and covariance of the activation:
    (N,) and (N,) for two classes, else (N, K) and (N, K, K) with the common shift projected out.
    """

    probability: Matrix
    expected_entropy: Vector
    mean: Matrix
    covariance: Matrix

    def __repr__(self) -> str:
        n, K = self.probability.shape
        return f"<Prediction: {n} rows, {K} classes, mean sd of the logit {self.logit_std.mean():.3g}>"

    def rows(self, chosen: slice | NDArray[np.intp]) -> Prediction:
        """Return the prediction of some of the rows."""
        return Prediction(*(x[chosen] for x in vars(self).values()))

    @property
    def mutual_information(self) -> Vector:
        """H(p) - E[H], (N,), nats: the part of the uncertainty that more labels would take away."""
        return mutual_information(self.probability, self.expected_entropy)

    @property
    def logit_std(self) -> Vector:
        """Sd of the logit (K = 2), or the largest sd of a pair's contrast (K > 2), (N,)."""
        V = self.covariance
        if V.ndim == 1:
            return np.sqrt(V)
        d = np.einsum("nkk->nk", V)
        contrasts = d[:, :, None] + d[:, None, :] - 2 * V
        return np.sqrt(np.maximum(contrasts.max(axis=(1, 2)), 0.0))


def predicted(
    mean: Matrix,
    covariance: Matrix,
    *,
    link: str = "logistic",
    shift: Vector | None = None,
    most_nodes: int | None = None,
) -> Prediction:
    """Return the prediction of Gaussian activations by the predictive integral.

    Parameters
    ----------
    mean, covariance
        (N,) and (N,), or (N, K) and (N, K, K) with the common shift projected out.
    link
        Of two classes.
    shift
        (K,) added to the activations inside the integral, such as ln of new over old class priors.  Of two classes,
        with the logistic link only: no other activation is a logit.
    most_nodes
        As of `softmax_exact`.

    Raises
    ------
    ValueError
        If there is a shift, and the link is not the logistic one.
    """
    require_logit(link, shift)
    if mean.ndim == 2 and mean.shape[1] == 2:
        # Two classes, however parameterised, are told by their difference; of a centred pair it is twice either.
        mean, covariance = mean[:, 1] - mean[:, 0], 4.0 * covariance[:, 1, 1]
    if shift is not None:
        mean = mean + (shift[1] - shift[0] if mean.ndim == 1 else shift - shift.mean())
    if mean.ndim == 1:
        p, expected = binary_integrals(mean, covariance, link=link)
        return Prediction(np.stack([1 - p, p], axis=1), expected, mean, covariance)
    p, expected = softmax_exact(mean, covariance, most_nodes=most_nodes)
    return Prediction(p, expected, mean, covariance)


def require_logit(link: str, shift: Vector | None) -> None:
    """Raise ValueError where activations are to be shifted by ln of class priors, and are not logits."""
    if shift is not None and link not in ("logistic", "softmax"):
        raise ValueError(
            f"got a shift of class priors for the {link} link, expected the logistic link, since the "
            "logarithm of the priors' ratio is added to logits; fit with likelihood='logistic'"
        )


def require_shift(shift: Vector | None, n_classes: int) -> None:
    """Raise ValueError unless a shift of the activations is a number a class, (K,)."""
    if shift is not None and np.shape(shift) != (n_classes,):
        raise ValueError(
            f"shift has shape {np.shape(shift)}, expected ({n_classes},), one number for each class, as "
            "shift.log_prior_shift returns"
        )


def mix(parts: Iterable[tuple[Vector | float, Prediction]]) -> Prediction:
    """Return the mixture of (weight, prediction) pairs; weights, scalars or (N,), sum to one row by row."""
    total: tuple[Matrix, ...] | None = None
    for weight, part in parts:
        w = np.broadcast_to(np.asarray(weight, dtype=np.float64), part.expected_entropy.shape)
        second = part.covariance + _square(part.mean)
        terms = tuple(_scaled(w, x) for x in (part.probability, part.expected_entropy, part.mean, second))
        total = terms if total is None else tuple(a + b for a, b in zip(total, terms, strict=True))
    if total is None:
        raise ValueError("a mixture needs at least one part, got none; give a posterior")
    return of_moments(*total)


def mixed(parts: Sequence[tuple[float, Prediction]]) -> Prediction:
    """Return the mixture of (weight, prediction) pairs; one alone as it is."""
    return parts[0][1] if len(parts) == 1 else mix(parts)


def mix_nodes(weight: Vector, part: Prediction) -> Prediction:
    """Return the mixture of S parts that lie one behind the other in `part`, S N rows; weights (S,) sum to one.

    It is `mix` of them, for many parts of few rows.
    """
    second = part.covariance + _square(part.mean)
    arrays = (part.probability, part.expected_entropy, part.mean, second)
    S = len(weight)
    return of_moments(*(np.tensordot(weight, x.reshape(S, -1, *x.shape[1:]), axes=1) for x in arrays))


def mix_blocks(
    groups: Iterable[Sequence[Nodes]], predict: Callable[[Matrix], Prediction]
) -> Iterator[tuple[NDArray[np.intp], Prediction]]:
    """Yield rows and their mixtures over nodes, for groups of nodes that are predicted together.

    Patterns of missing features are many and have few rows each.  `predict` is of features (N, F).
    """
    for group in groups:
        whole = predict(np.concatenate([nodes.reshape(-1, nodes.shape[2]) for _, nodes, _, _ in group]))
        start = 0
        for rows, nodes, weight, _ in group:
            stop = start + nodes.shape[0] * nodes.shape[1]
            yield rows, mix_nodes(weight, whole.rows(slice(start, stop)))
            start = stop


def spread(q: Prediction, rows: NDArray[np.intp], flat: Matrix) -> Prediction:
    """Return a prediction with covariances (n, K, K) of class activations added to those of some rows (n,)."""
    covariance = q.covariance.copy()
    covariance[rows] += 4 * flat[:, 1, 1] if covariance.ndim == 1 else flat
    return replace(q, covariance=covariance)


def stacked(parts: Sequence[Prediction]) -> Prediction:
    """Return predictions of several sets of rows as one."""
    return Prediction(*(np.concatenate(x) for x in zip(*(vars(p).values() for p in parts), strict=True)))


def of_moments(probability: Matrix, expected_entropy: Vector, mean: Matrix, second: Matrix) -> Prediction:
    """Return the prediction with the second moment E[a a'] of its activation."""
    covariance = second - _square(mean)
    if covariance.ndim == 1:
        covariance = np.maximum(covariance, 0.0)  # what rounding leaves of a variance of zero
    return Prediction(probability, expected_entropy, mean, covariance)


def replaced(base: Prediction, rows: NDArray[np.intp], part: Prediction) -> Prediction:
    """Return a prediction in which `rows` are those of `part`."""
    arrays = []
    for old, new in zip(vars(base).values(), vars(part).values(), strict=True):
        filled = old.copy()
        filled[rows] = new
        arrays.append(filled)
    return Prediction(*arrays)


def with_rows(base: Prediction, parts: Sequence[tuple[NDArray[np.intp], Prediction]]) -> Prediction:
    """Return the prediction `base` with those of some rows replaced."""
    if not parts:
        return base
    return replaced(base, np.concatenate([rows for rows, _ in parts]), stacked([p for _, p in parts]))


def _square(mean: Matrix) -> Matrix:
    return mean**2 if mean.ndim == 1 else mean[:, :, None] * mean[:, None, :]


def _scaled(w: Vector, x: Matrix) -> Matrix:
    return w.reshape((-1,) + (1,) * (x.ndim - 1)) * x
