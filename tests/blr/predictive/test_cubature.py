"""Nodes: rules along one axis against closed forms, Sobol points against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import qmc

from blr.predictive._cubature import (
    RULES,
    axis_rule,
    normal_nodes,
    product_rule,
    sobol_points,
    sobol_rule,
)
from blr.predictive.binary import binary_exact

rule_sizes = pytest.mark.parametrize(("n", "step", "reach"), RULES, ids=[str(n) for n, _, _ in RULES])


@rule_sizes
def test_rules_are_symmetric_and_sum_to_one(n: int, step: float, reach: float) -> None:  # noqa: ARG001
    z, weight = axis_rule(n, step)
    assert len(z) == n
    np.testing.assert_allclose(z, -z[::-1], atol=1e-15)
    np.testing.assert_allclose(weight, weight[::-1], rtol=1e-12)
    assert weight.sum() == pytest.approx(1, abs=1e-15)
    assert weight.min() > 0


@rule_sizes
def test_rules_reach_as_far_as_stated(n: int, step: float, reach: float) -> None:
    z, weight = axis_rule(n, step)
    for r in np.linspace(0.05, 1, 12) * reach:
        mean = np.linspace(-5 * r - 4, 5 * r + 4, 201)
        found = expit(mean[:, None] + r * z) @ weight
        error = np.abs(found - binary_exact(mean, np.full(mean.shape, r**2))).max()
        assert error < (2.6e-5 if n < 21 else 1.05e-4)


def test_sobol_points_are_those_of_scipy() -> None:
    theirs = qmc.Sobol(21, scramble=False).random(512)
    np.testing.assert_array_equal(sobol_points(512, 21) / 2**30, theirs)
    with pytest.raises(ValueError, match="22 dimensions for Sobol points, expected at most 21"):
        sobol_points(8, 22)


@pytest.mark.parametrize(("n", "d"), [(128, 2), (1024, 9), (256, 30)])
def test_normal_nodes_have_the_normal_moments(n: int, d: int) -> None:
    z = normal_nodes(n, d)
    assert z.shape == (n, d)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose(z.T @ z / n, np.eye(d), atol=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        z[0] = 0


@pytest.mark.parametrize("K", [3, 4])
def test_both_rules_agree(K: int) -> None:
    rng = np.random.default_rng(K)
    mean, axes = rng.normal(0, 2, (20, K)), rng.normal(0, 0.4, (K - 1, K, 20))
    axes -= axes.mean(axis=1, keepdims=True)
    p, h = product_rule(mean, axes, (6,) * (K - 1))
    p_sobol, h_sobol = sobol_rule(mean, axes, 16384, spread=4.0)
    np.testing.assert_allclose(p_sobol, p, atol=3e-5)
    np.testing.assert_allclose(h_sobol, h, atol=1e-4)
    checked, _ = sobol_rule(mean, axes, 16384, spread=100.0)
    np.testing.assert_allclose(checked, p_sobol, atol=1e-6)
