"""Stacking: the mixture of models that predicts the left-out rows best.

Evidence asks which model made the data, and its weights go to one model as rows grow, right or not.  Stacking asks
which mixture predicts: the weights s on the simplex that maximise Σ_n w_n Σ_k t_nk ln Σ_j s_j p_j(k | x_n, D_-n).
Yao et al. (2018), doi:10.1214/17-BA1091.  Shapes: J models, N rows, K classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Vector

__all__ = ["stacking_weights"]

_GAP = 1e-3  # nats below the maximum at which the search may stop
_MAX_ITER = 200
_TINY = np.finfo(float).tiny


def stacking_weights(
    left_out: ArrayLike,
    share: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    prior_probability: ArrayLike | None = None,
) -> Vector:
    """Return the models' weights (J,), which sum to one.

    Few rows overfit the weights too, so each model has a prior of its own: a Dirichlet density that counts as J rows,
    shared out by prior probability, which the models explain alone.  The objective is concave, and Newton's
    steps climb it until the gradient bounds what is left by 0.001 nats.

    Parameters
    ----------
    left_out
        Probabilities (J, N, K) of each row under each model without the row, as of `leave_one_out_probability`.
    share
        Of the classes in each row, (N, K): one-hot labels, or fractions of votes.
    weight
        Of the rows (N,), their trials included; default: 1.
    prior_probability
        Of the models (J,); default: equal.

    Raises
    ------
    ValueError
        If the shapes differ, there are no models or rows, or a number is negative or not finite.
    """
    p, t = np.asarray(left_out, dtype=np.float64), np.asarray(share, dtype=np.float64)
    w = np.ones(len(t)) if weight is None else np.asarray(weight, dtype=np.float64)
    prior = np.ones(len(p)) if prior_probability is None else np.asarray(prior_probability, dtype=np.float64)
    if (
        p.ndim != 3
        or 0 in p.shape
        or t.shape != p.shape[1:]
        or w.shape != t.shape[:1]
        or prior.shape != p.shape[:1]
    ):
        raise ValueError(
            f"expected probabilities (J, N, K), shares (N, K), weights (N,) and priors (J,), got shapes {p.shape}, "
            f"{t.shape}, {w.shape} and {prior.shape}; give each model's left-out probabilities of the same rows"
        )
    if not all(np.isfinite(x).all() and (x >= 0).all() for x in (p, t, w, prior)) or not prior.min() > 0:
        raise ValueError(
            "expected finite numbers of 0 or more, and positive priors, got others among the probabilities, shares, "
            "weights or priors; leave out models whose left-out probabilities could not be computed"
        )
    mass = (w[:, None] * t).ravel()
    rows = np.maximum(p.reshape(len(p), -1)[:, mass > 0], _TINY)  # (J, outcomes that were seen)
    mass = mass[mass > 0]
    count = len(p) * prior / prior.sum()
    s: Vector = prior / prior.sum()

    def objective(s: Vector) -> float:
        return float(mass @ np.log(s @ rows) + count @ np.log(s))

    value = objective(s)
    for _ in range(_MAX_ITER):
        ratio = rows / (s @ rows)
        gradient = ratio @ mass + count / s
        # Concave: the maximum is no more than this above.
        if gradient.max() - s @ gradient < _GAP:
            break
        # Newton's step, along which the weights still sum to one.
        inverse = np.linalg.inv((ratio * mass) @ ratio.T + np.diag(count / s**2))
        step = inverse @ (gradient - (inverse.sum(axis=0) @ gradient) / inverse.sum())
        length = min(1.0, 0.9 / max(float((-step / s).max()), _TINY))
        while (after := objective(s + length * step)) < value and length > _TINY:
            length /= 2
        s, value = s + length * step, after
    return s / s.sum()
