"""Temperature scaling: probabilities are taken to a power b, p_k^b / Σ_j p_j^b, where left-out rows favour one.

A posterior is too wide where its prior does not suit the data, for example independent weights for neighbouring pixels.
Its probabilities are then nearer to even than left-out rows show.  A power b > 1 sharpens probabilities, b < 1 flattens
them; 1 / b is the temperature (Guo et al. 2017, arXiv:1706.04599).

The power of highest likelihood is a bad estimate: of a hundred rows that the model classifies all correctly, it is
infinite.  So the powers have a prior, and b = 1 has most of it.  Where the posterior favours other powers, predictions
are averaged over all powers.  Shapes: N rows, K classes, S powers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector, as_stored
from blr.predictive.mixture import Prediction, replaced

POWERS = 2.0 ** np.arange(-1.0, 2.5, 0.5)
"""The powers b that are tried: from 1/2 to 4, in steps of a factor √2."""

SPREAD = 0.5
"""Standard deviation of ln b in the prior of the powers other than 1: a Gaussian about 0."""

UNCHANGED = 0.8
"""Prior probability of b = 1."""

FAVOURED = 0.5
"""Posterior probability that the powers other than 1 must exceed together; otherwise probabilities stay as they are."""

TINY = np.finfo(np.float64).tiny
"""Smallest probability whose logarithm is taken."""


@dataclass(frozen=True, eq=False)
class Temperature:
    """The powers b that probabilities are taken to (inverse temperatures), each with a share of the average.

    `power` is (S,).  `share` (S,) sums to one.
    """

    power: Vector
    share: Vector

    @property
    def mean_power(self) -> float:
        """Mean of the powers by their shares: about the factor by which logits grow."""
        return float(self.power @ self.share)

    def scaled(self, p: Matrix, shift: Vector | None = None) -> Matrix:
        """Return the probabilities p (N, K) taken to the powers, and averaged over these.

        `shift` (K,) is ln of new over old class priors, where `p` includes it already: it is not taken to the power.
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
        """Return a prediction with its probabilities scaled, as by `scaled`, except in the rows `kept`.

        `kept` holds the indices of rows that stay as they are.  The ratio of the expected entropy to the entropy stays
        the same, and so does that of the mutual information.  The activation's mean and standard deviation are
        multiplied by the mean power.
        """
        p, power = self.scaled(base.probability, shift), self.mean_power
        ratio = _entropy(p) / np.maximum(_entropy(base.probability), TINY)
        scaled = Prediction(p, base.expected_entropy * ratio, base.mean * power, base.covariance * power**2)
        if kept is None or not len(kept):
            return scaled
        return replaced(scaled, kept, Prediction(*(x[kept] for x in vars(base).values())))

    def to_dict(self) -> dict[str, Any]:
        """Return the powers and their shares, for `from_dict`."""
        return {"power": self.power, "share": self.share}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Temperature:
        """Return the temperature that `to_dict` stored."""
        shape = (np.size(stored["power"]),)
        return cls(as_stored(stored, "power", shape), as_stored(stored, "share", shape))


def estimate_temperature(p: Matrix, shares: Matrix) -> Temperature | None:
    """Return all powers with their posterior probabilities; None where these do not favour a power other than 1.

    Parameters
    ----------
    p
        Probabilities (N, K) of left-out rows, from fits that did not see them.
    shares
        Known classes of the rows (N, K): the share of each class (1 and 0 for a single label), times the row's weight.
    """
    log_p = np.log(np.maximum(p, TINY))
    changed = POWERS != 1.0
    prior = np.exp(-0.5 * (np.log(POWERS) / SPREAD) ** 2) * changed
    prior = (1 - UNCHANGED) * prior / prior.sum() + UNCHANGED * ~changed
    log_likelihood = np.array([_log_likelihood(power * log_p, shares) for power in POWERS])
    log_posterior = np.log(prior) + log_likelihood
    posterior = np.exp(log_posterior - log_posterior.max())
    posterior /= posterior.sum()
    return Temperature(POWERS.copy(), posterior) if posterior[changed].sum() > FAVOURED else None


def _log_likelihood(a: Matrix, shares: Matrix) -> float:
    top = a.max(axis=1, keepdims=True)
    log_total = top + np.log(np.exp(a - top).sum(axis=1, keepdims=True))
    return float((shares * (a - log_total)).sum())


def _entropy(p: Matrix) -> Vector:
    H: Vector = -(p * np.log(np.maximum(p, TINY))).sum(axis=1)
    return H
