"""Temperature scaling: probabilities to a power, p_k^b / Σ_j p_j^b, where left-out rows ask for it.

A posterior is wider than it need be where the prior is unlike the data, such as independent weights of neighbouring
pixels; its probabilities are then nearer to even than the left-out rows are.  A power b > 1 sharpens them, b < 1
flattens them; 1 / b is the temperature (Guo et al. 2017, arXiv:1706.04599).  The b of highest likelihood is no good
guess: a hundred rows that are nearly all right ask for an infinite one.  So b = 1 has most of the prior probability,
the other powers share the rest, and where the rows speak for them they are averaged over, not maximised.
Shapes: N rows, K classes, S powers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector
from blr.predictive.mixture import Prediction, replaced

__all__ = ["Temperature", "estimate_temperature"]

POWERS = 2.0 ** np.arange(-1.0, 2.5, 0.5)
"""From half to four, in steps of the root of two."""

SPREAD = 0.5
"""Sd of ln b under the prior of the powers beside 1."""

UNCHANGED = 0.8
"""Prior probability of b = 1."""

FAVOURED = 0.5
"""Posterior probability of the other powers, up to which probabilities stay as they are."""

TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Temperature:
    """The powers (S,) that probabilities are taken to, inverse temperatures, and each one's `share` (S,), sum one."""

    power: Vector
    share: Vector

    @property
    def mean_power(self) -> float:
        """The mean of the powers: how much steeper logits become, about."""
        return float(self.power @ self.share)

    def scaled(self, p: Matrix, shift: Vector | None = None) -> Matrix:
        """Return probabilities (N, K), scaled.

        `shift` (K,) is the logarithm of class priors' ratios that `p` holds already: it is not taken to the power.
        """
        log_p = np.log(np.maximum(p, TINY))
        total = np.zeros_like(log_p)
        for power, share in zip(self.power, self.share, strict=True):
            a = power * log_p
            if shift is not None:
                a = a + (1 - power) * shift
            e = np.exp(a - a.max(axis=1, keepdims=True))
            total += share / e.sum(axis=1, keepdims=True) * e
        return total

    def prediction(
        self, base: Prediction, shift: Vector | None = None, *, kept: NDArray[np.intp] | None = None
    ) -> Prediction:
        """Return a prediction with its probabilities scaled, but for the rows that are `kept` as they are.

        The expected entropy keeps its ratio to the entropy, so the mutual information does too.  The activation's mean
        and spread grow with the mean power.
        """
        p, power = self.scaled(base.probability, shift), self.mean_power
        ratio = _entropy(p) / np.maximum(_entropy(base.probability), TINY)
        scaled = Prediction(p, base.expected_entropy * ratio, base.mean * power, base.covariance * power**2)
        if kept is None or not len(kept):
            return scaled
        return replaced(scaled, kept, Prediction(*(x[kept] for x in vars(base).values())))

    def to_dict(self) -> dict[str, Any]:
        """Return arrays that `from_dict` makes it of."""
        return {"power": self.power, "share": self.share}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Temperature:
        """Return the temperature of `to_dict`."""
        return cls(np.asarray(d["power"], dtype=np.float64), np.asarray(d["share"], dtype=np.float64))


def estimate_temperature(p: Matrix, shares: Matrix) -> Temperature | None:
    """Return the powers that left-out rows ask for, with their posterior probabilities; None where they do not.

    Parameters
    ----------
    p
        Probabilities (N, K) of rows under fits that have not seen them.
    shares
        What the rows are: each class's share, times the row's weight, (N, K).
    """
    log_p = np.log(np.maximum(p, TINY))
    beside = POWERS != 1.0
    prior = np.exp(-0.5 * (np.log(POWERS) / SPREAD) ** 2) * beside
    prior = (1 - UNCHANGED) * prior / prior.sum() + UNCHANGED * ~beside
    log_likelihood = np.array([_log_likelihood(power * log_p, shares) for power in POWERS])
    log_posterior = np.log(prior) + log_likelihood
    posterior = np.exp(log_posterior - log_posterior.max())
    posterior /= posterior.sum()
    return Temperature(POWERS.copy(), posterior) if posterior[beside].sum() > FAVOURED else None


def _log_likelihood(a: Matrix, shares: Matrix) -> float:
    top = a.max(axis=1, keepdims=True)
    log_total = top + np.log(np.exp(a - top).sum(axis=1, keepdims=True))
    return float((shares * (a - log_total)).sum())


def _entropy(p: Matrix) -> Vector:
    H: Vector = -(p * np.log(np.maximum(p, TINY))).sum(axis=1)
    return H
