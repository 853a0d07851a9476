"""The quick softmax predicts as the exact mode does."""

from __future__ import annotations

import numpy as np
import pytest

import blr
from blr.fitting.quick import softmax_quickly


@pytest.mark.parametrize(("K", "spread"), [(2, 1.0), (5, 1.0), (5, 6.0), (20, 2.0)])
def test_probabilities_are_near_those_of_the_mode(K: int, spread: float) -> None:
    """Classes of unlike shares, the third separable: the last has a row in a hundred."""
    rng = np.random.default_rng(K)
    share = np.geomspace(1, 0.05, K)
    t = rng.choice(K, size=1500, p=share / share.sum())
    X = spread * rng.normal(size=(K, 4))[t] + rng.normal(size=(1500, 4))
    Phi = np.column_stack([np.ones(1500), X])
    prior = blr.GaussianPrior.isotropic(5, precision=0.3, intercept=0)
    twin = blr.fit(Phi, t, prior, "logistic" if K == 2 else "softmax", classes=range(K)).plugin(Phi)
    found = softmax_quickly(Phi.astype(np.float32), t, Phi.astype(np.float32), K, 0.3)
    assert np.abs(found - twin).mean() < 0.01
    rows = np.arange(len(t))
    loss, exact = (-np.log(p[rows, t]).mean() for p in (found, twin))
    assert loss == pytest.approx(exact, abs=0.01)
