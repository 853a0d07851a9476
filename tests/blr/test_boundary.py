"""Boundaries: straight lines where theory says so, on the level to 1e-6 everywhere, with the posterior of real fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from blr.arrays import Matrix, Vector
from blr.basis.kinds import fit_basis
from blr.boundary import decision_boundary
from blr.posterior.kinds import LaplacePosterior
from blr.predictive.binary import binary_exact
from blr.predictive.softmax import softmax_exact

EXTENT = (-4.0, 4.0, -3.0, 3.0)


@dataclass(frozen=True)
class StandIn:
    """A posterior in two lines: weights (D,) and their covariance (D, D)."""

    mean: np.ndarray
    covariance: np.ndarray
    likelihood: str = "logistic"

    def predict_proba(self, Phi: Matrix, method: str = "exact") -> Vector:
        if self.likelihood == "softmax":
            K = self.mean.size // Phi.shape[1]
            V = self.covariance.reshape(K, Phi.shape[1], K, Phi.shape[1])
            covariance = np.einsum("nm,kmlr,nr->nkl", Phi, V, Phi)
            means = Phi @ self.mean.reshape(K, -1).T
            return softmax_exact(means, covariance * (method == "exact"))[0]
        variance = np.einsum("nm,mr,nr->n", Phi, self.covariance, Phi)
        return binary_exact(Phi @ self.mean, variance * (method == "exact"))

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        return rng.multivariate_normal(self.mean, self.covariance, n)


@pytest.fixture(scope="module")
def linear() -> Any:
    """Standardised coordinates that are the coordinates themselves, but for a third feature with mean 5."""
    X = np.array([[s, t, u] for s in (-1, 1) for t in (-1, 1) for u in (4, 6)], dtype=float)
    return fit_basis("linear", X)


def probabilities(
    q: LaplacePosterior | StandIn,
    basis: Any,
    points: Matrix,
    axes: tuple[int, ...] = (0, 1),
    at: None = None,
    method: str = "exact",
) -> np.ndarray:
    X = np.tile(basis.standardisation.mean if at is None else at, (len(points), 1))
    X[:, list(axes)] = points
    return q.predict_proba(basis(X), method)


def test_the_plugin_boundary_of_a_linear_basis_is_a_straight_line(linear: Any) -> None:
    q = StandIn(np.array([0.5, 1.0, 2.0, 0.0]), np.eye(4))
    (line,) = decision_boundary(q, linear, 0.8, extent=EXTENT)
    np.testing.assert_allclose(0.5 + line @ [1.0, 2.0], np.log(4), atol=1e-8)
    assert line[:, 0].min() == pytest.approx(-4)
    assert line[:, 0].max() == pytest.approx(4)


@pytest.mark.parametrize("level", [0.001, 0.1, 0.5, 0.9, 0.97])
@pytest.mark.parametrize(("kind", "method"), [("plugin", "plugin"), ("moderated", "exact")])
def test_points_are_on_the_level(linear: Any, level: float, kind: str, method: str) -> None:
    q = StandIn(np.array([0.5, 1.0, 2.0, 0.0]), 0.1 * np.eye(4))
    curves = decision_boundary(q, linear, level, kind=kind, extent=EXTENT, resolution=40)
    for curve in curves:
        p = probabilities(q, linear, curve, method=method)
        np.testing.assert_allclose(p, level, atol=1e-8)
    assert curves or level in {0.001, 0.97}


def test_moderation_leaves_one_half_and_bends_other_levels_away(linear: Any) -> None:
    q = StandIn(np.array([0.0, 2.0, 0.0, 0.0]), np.diag([0.1, 0.0, 0.5, 0.0]))
    (half,) = decision_boundary(q, linear, kind="moderated", extent=EXTENT)
    np.testing.assert_allclose(half[:, 0], 0, atol=1e-8)
    (bent,) = decision_boundary(q, linear, 0.9, kind="moderated", extent=EXTENT)
    (straight,) = decision_boundary(q, linear, 0.9, extent=EXTENT)
    assert np.ptp(straight[:, 0]) < 1e-8
    far, near = np.abs(bent[:, 1]) > 2.9, np.abs(bent[:, 1]) < 0.1
    assert bent[near, 0].mean() > straight[0, 0]
    assert bent[far, 0].min() > bent[near, 0].max() + 0.2


def test_sampled_boundaries_scatter_about_the_plugin(linear: Any) -> None:
    q = StandIn(np.array([0.0, 2.0, 1.0, 0.0]), 0.02 * np.eye(4))
    sampled = decision_boundary(
        q, linear, kind="sampled", extent=EXTENT, n_samples=40, rng=np.random.default_rng(0), resolution=30
    )
    assert len(sampled) == 40
    at_zero = [curve[np.abs(curve[:, 1]).argmin(), 0] for curve in sampled]
    assert abs(np.mean(at_zero)) < 0.05
    assert 0.04 < np.std(at_zero) < 0.12


def test_other_axes_and_other_values_of_the_rest(linear: Any) -> None:
    q = StandIn(np.array([0.0, 1.0, 0.0, 2.0]), np.zeros((4, 4)))
    (line,) = decision_boundary(q, linear, axes=(2, 1), at=[0.6, 0, 0], extent=(4.0, 6.0, -1.0, 1.0))
    np.testing.assert_allclose(line[:, 0], 4.7, atol=1e-8)
    (default,) = decision_boundary(q, linear, axes=(2, 0))
    np.testing.assert_allclose(default[:, 1] + 2 * (default[:, 0] - 5), 0, atol=1e-8)
    assert decision_boundary(q, linear, axes=(0, 1), at=[0, 0, 50], extent=EXTENT) == []


def test_closed_curves_close() -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    basis = fit_basis("polynomial", X, degree=2)
    names = basis.names(("x", "y"))
    w = np.zeros(basis.n_functions)
    w[0], w[names.index("x^2") if "x^2" in names else 3] = 2.0, -1.0
    w[-1] = -1.0
    q = StandIn(w, np.zeros((w.size, w.size)))
    curves = decision_boundary(q, basis, extent=(-6.0, 6.0, -6.0, 6.0), resolution=60)
    assert len(curves) == 1
    np.testing.assert_array_equal(curves[0][0], curves[0][-1])


def three_classes() -> tuple[StandIn, Any, Vector]:
    """Return a posterior whose class k wins in its own third of the plane, and its basis."""
    X = np.array([[s, t] for s in (-1, 1) for t in (-1, 1)], dtype=float)
    angle = np.array([0.5, 0.5 + 2 / 3 * np.pi, 0.5 + 4 / 3 * np.pi])
    W = 3 * np.stack([np.zeros(3), np.cos(angle), np.sin(angle)], axis=1)
    return StandIn(W.ravel(), 0.05 * np.eye(9), "softmax"), fit_basis("linear", X), angle


@pytest.mark.parametrize(("kind", "method"), [("plugin", "plugin"), ("moderated", "exact")])
def test_three_classes_tie_along_three_rays(kind: str, method: str) -> None:
    q, basis, angle = three_classes()
    curves = decision_boundary(q, basis, kind=kind, extent=EXTENT, resolution=80)
    assert len(curves) == 3
    for curve in curves:
        p = np.sort(probabilities(q, basis, curve, method=method), axis=1)
        np.testing.assert_allclose(p[:, 2], p[:, 1], atol=1e-6)
        # All the way to the centre, within a cell of the grid.
        assert np.hypot(*curve.T).min() < 0.15
    ends = np.concatenate([c[np.hypot(*c.T) > 2] for c in curves])
    opposite = (np.arctan2(*ends.T[::-1])[:, None] - angle + np.pi) % (2 * np.pi)
    np.testing.assert_allclose(np.minimum(opposite, 2 * np.pi - opposite).min(axis=1), 0, atol=1e-3)


def test_the_level_of_one_class_of_three() -> None:
    q, basis, _ = three_classes()
    for kind, method in (("plugin", "plugin"), ("moderated", "exact")):
        curves = decision_boundary(q, basis, 0.7, kind=kind, of=2, extent=EXTENT, resolution=60)
        p = probabilities(q, basis, np.concatenate(curves), method=method)
        np.testing.assert_allclose(p[:, 2], 0.7, atol=1e-6 if kind == "plugin" else 1e-4)


def test_the_sampled_boundary_knows_softmax_and_links(linear: Any) -> None:
    q, basis, _ = three_classes()
    drawn = decision_boundary(
        q, basis, kind="sampled", rng=np.random.default_rng(0), n_samples=2, extent=EXTENT
    )
    assert len(drawn) == 6
    probit = StandIn(np.array([0.0, 1.0, 0.0, 0.0]), np.zeros((4, 4)), "probit")
    (line,) = decision_boundary(
        probit,
        linear,
        0.8413447460685429,
        kind="sampled",
        rng=np.random.default_rng(0),
        n_samples=1,
        extent=EXTENT,
    )
    np.testing.assert_allclose(line[:, 0], 1.0, atol=1e-8)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"level": 1}, "level is 1; give a probability between 0 and 1"),
        ({"kind": "bayes"}, "unknown kind 'bayes'; expected one of plugin, sampled, moderated"),
        ({"kind": "sampled"}, r"pass a numpy\.random\.Generator"),
        (
            {"axes": (0, 3)},
            r"axes are \(0, 3\); expected the indices of two different features, each from 0 to 2",
        ),
        ({"at": [0, 0]}, r"at has shape \(2,\); expected \(3,\), one value for each feature"),
        ({"extent": (1, 0, 0, 1)}, "expected x from < x to"),
    ],
)
def test_errors_say_what_to_do(linear: Any, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decision_boundary(StandIn(np.zeros(4), np.eye(4)), linear, **asked)
