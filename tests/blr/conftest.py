"""Problems that the tests of the numerics share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from blr.arrays import Matrix, Vector
from blr.gaussian import GaussianPrior
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import fit


def hard_inputs() -> dict[str, tuple[Matrix, Vector]]:
    """Return design matrices and labels of which a fit has to make something all the same, by what is hard."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 3))
    one = np.ones((80, 1))
    t = (x[:, 0] + rng.standard_normal(80) > 0).astype(float)
    rare = np.zeros(80)
    rare[0] = 1
    return {
        "separable": (np.hstack([one, x]), (x[:, 0] > 0).astype(float)),
        "collinear": (np.hstack([one, x, x[:, :1] + x[:, 1:2]]), t),
        "constant columns": (np.hstack([one, x, 5 * one, 0 * one]), t),
        "more columns than rows": (rng.standard_normal((20, 60)), (np.arange(20) < 7).astype(float)),
        "scales": (np.hstack([one, x * [1e-12, 1.0, 1e12]]), t),
        "one row of a class": (np.hstack([one, x]), rare),
        "one class only": (np.hstack([one, x]), np.ones(80)),
        "one row": (np.ones((1, 2)), np.ones(1)),
        "huge values": (1e6 * np.hstack([one, x]), t),
    }


def fitted(reference: Mapping[str, Any]) -> LaplacePosterior:
    """Return the Laplace fit of a problem of `tests/reference/posteriors.json`."""
    softmax = reference["likelihood"] == "softmax"
    return fit(
        np.array(reference["Phi"]),
        np.array(reference["t"]),
        GaussianPrior(reference["prior_mean"], np.array(reference["prior_covariance"])),
        reference["likelihood"],
        sample_weight=reference["weight"],
        classes=range(len(reference["t"][0]) if softmax else 2),
    )


def scaled_covariance(A: np.ndarray, spread: float) -> np.ndarray:
    """Return the covariances A Aᵀ (n, K, K), scaled to the given largest sd of a contrast."""
    V = A @ A.transpose(0, 2, 1)
    d = np.einsum("nkk->nk", V)
    largest = (d[:, :, None] + d[:, None, :] - 2 * V).reshape(len(V), -1).max(axis=1)
    return V * (spread**2 / largest)[:, None, None]
