"""The principal basis: its definition, and the prior that it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

from blr.basis.kinds import fit_basis
from blr.gaussian import GaussianPrior
from blr.posterior.laplace import fit


def correlated(rows: int = 60, seed: int = 0) -> np.ndarray:
    """Return four features that vary along two directions for the most part."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 2)) @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(size=(rows, 4))


@pytest.mark.parametrize("power", [0.0, 0.25, 1.0])
def test_components_are_those_of_scikit_learn(power: float) -> None:
    X = correlated()
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    peer = PCA().fit(Z)
    variance = peer.explained_variance_ * (len(X) - 1) / len(X)
    expected = peer.transform(Z) * variance**power
    expected /= np.sqrt(np.mean(expected.var(axis=0)))
    Phi = fit_basis("principal", X, power=power)(X)[:, 1:]
    np.testing.assert_allclose(np.abs(Phi), np.abs(expected), atol=1e-10)
    assert np.mean(Phi.var(axis=0)) == pytest.approx(1)


def test_power_zero_is_the_linear_basis_turned() -> None:
    X = correlated()
    t = (X[:, 0] > X[:, 1]).astype(float)
    evidence = [
        fit(fit_basis(kind, X, **options)(X), t, GaussianPrior.isotropic(5, 0.1, intercept=0)).log_evidence
        for kind, options in (("linear", {}), ("principal", {"power": 0.0}))
    ]
    assert evidence[0] == pytest.approx(evidence[1], rel=1e-9)


def test_weights_are_counts_of_rows() -> None:
    X = correlated(20)
    twice = fit_basis("principal", np.vstack([X, X[:5]]))
    weighted = fit_basis("principal", X, weight=np.r_[np.full(5, 2.0), np.ones(15)])
    np.testing.assert_allclose(weighted.components, twice.components, atol=1e-10)


def test_directions_without_variance_are_left_out() -> None:
    X = correlated()
    doubled = fit_basis("principal", np.hstack([X, X[:, :1]]))
    assert doubled.n_functions == 1 + 4


@pytest.mark.parametrize("power", [-0.1, 2.5, True])
def test_a_power_out_of_range_is_refused(power: float) -> None:
    with pytest.raises(ValueError, match="power must be a number from 0 to 2, got"):
        fit_basis("principal", correlated(), power=power)
