"""Diagnostics of chains on series whose autocorrelation is known."""

from __future__ import annotations

import numpy as np
import pytest

from blr.posterior.sampling import _mean_autocovariance, convergence, effective_size


def autoregressive(phi: float, chains: int = 8, n: int = 4000, D: int = 2, seed: int = 0) -> np.ndarray:
    """Return AR(1) chains of unit variance, whose effective size is C n (1 - φ)/(1 + φ)."""
    rng = np.random.default_rng(seed)
    x = np.empty((chains, n, D))
    x[:, 0] = rng.standard_normal((chains, D))
    for i in range(1, n):
        x[:, i] = phi * x[:, i - 1] + np.sqrt(1 - phi**2) * rng.standard_normal((chains, D))
    return x


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9, -0.5])
def test_effective_size_of_known_series(phi: float) -> None:
    found = effective_size(autoregressive(phi))
    assert found == pytest.approx(32_000 * (1 - phi) / (1 + phi), rel=0.12)


@pytest.mark.parametrize("n", [40, 51])
def test_autocovariances_are_the_sums_of_products(n: int) -> None:
    x = autoregressive(0.7, chains=5, n=n, D=3)
    centred = x - x.mean(axis=1, keepdims=True)
    products = [(centred[:, : n - lag] * centred[:, lag:]).sum(axis=1).mean(axis=0) / n for lag in range(n)]
    np.testing.assert_allclose(_mean_autocovariance(x), products, atol=1e-12)


def test_converged_chains_agree() -> None:
    found = convergence(autoregressive(0.5))
    assert np.all(found[0] < 1.005)
    assert np.all(found[1] > 8000)
    assert np.all(found[2] > 8000)


def test_a_chain_that_is_elsewhere_is_seen() -> None:
    x = autoregressive(0.3, n=500)
    x[3] += 3.0
    found = convergence(x)
    assert np.all(found[0] > 1.05)
    assert np.all(found[1] < 200)


def test_a_chain_of_another_width_is_seen() -> None:
    """The folded draws show what the means do not."""
    x = autoregressive(0.3, n=500)
    x[3] *= 5.0
    assert np.all(convergence(x)[0] > 1.02)


def test_a_drift_is_seen_in_the_halves() -> None:
    x = autoregressive(0.0, n=500) + np.linspace(0, 3, 500)[None, :, None]
    assert np.all(convergence(x)[0] > 1.1)


def test_heavy_tails_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    found = convergence(rng.standard_cauchy((8, 1000, 2)))
    assert np.all(found[0] < 1.01)
    assert found[1] == pytest.approx(8000, rel=0.15)


def test_what_never_moves_has_converged() -> None:
    x = np.zeros((4, 100, 1))
    assert convergence(x)[0][0] == 1.0
    assert effective_size(x)[0] == 400
