"""Which nodes a pattern of missing features gets, and what they say of rows, beside very many nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import blr
from blr.classifier import Classifier, Member
from blr.missing.moments import ActiveSubspace, FeatureMoments
from blr.missing.patterns import normal_nodes
from blr.predictive.mixture import Prediction, mix, mix_nodes, spread

F = 5
SLOPE = np.array([1.0, 0.5, 0.0, 0.0, -0.7])


def linear(classes: int = 2, *, size: float = 1.0) -> tuple[Classifier, np.ndarray]:
    """Return a stack of five members, whose logits rise along `SLOPE`, and its training rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, F))
    activation = size * np.outer(X @ SLOPE, np.arange(classes))
    y = (activation + rng.gumbel(size=activation.shape)).argmax(axis=1)
    members = []
    for kind, share in (
        ("linear", 0.4),
        ("polynomial", 0.3),
        ("sigmoid", 0.1),
        ("rbf", 0.1),
        ("linear", 0.1),
    ):
        basis = blr.fit_basis(kind, X, rng=np.random.default_rng(1))
        q = blr.fit_evidence(basis(X), y, "logistic" if classes == 2 else "softmax", classes=range(classes))
        members.append(Member(basis, q, tuple(range(F)), share))
    missing = np.zeros(X.shape, dtype=bool)
    missing[::3, 1] = True
    names = [f"x{j}" for j in range(F)]
    return Classifier.build(members, X, missing, features=names, classes=list("abc")[:classes]), X


def pattern(*columns: int) -> np.ndarray:
    """Return the pattern (F,) that misses some columns."""
    return np.isin(np.arange(F), columns)


def test_axes_are_orthonormal_and_the_first_lies_along_the_slope() -> None:
    c, _ = linear()
    _, axes = c._subspace.rule(pattern(0, 4))
    np.testing.assert_allclose(axes.T @ axes, np.eye(axes.shape[1]), atol=1e-12)
    _, L = c.moments.conditional(pattern(0, 4))
    along = (SLOPE[[0, 4]] * c.moments.spread[[0, 4]]) @ L
    assert abs(along @ axes[:, 0]) / np.linalg.norm(along) > 0.98


def test_directions_that_say_nothing_get_no_nodes_and_their_variance_stays() -> None:
    moments = FeatureMoments(np.zeros(3), np.eye(3))
    slopes = np.zeros((2, 3, 2, 3))
    for size, j in ((0.8, 0), (0.03, 1), (0.0, 2)):
        slopes[:, j, :, j] = size**2 * np.array([[0.25, -0.25], [-0.25, 0.25]])
    subspace, gone = ActiveSubspace(moments, slopes), np.ones((1, 3), dtype=bool)
    n, axes = subspace.rule(gone[0])
    assert n == 8
    np.testing.assert_allclose(np.abs(axes), [[1], [0], [0]], atol=1e-12)
    q = Prediction(np.full((1, 2), 0.5), np.zeros(1), np.zeros(1), np.array([0.64]))
    whole = spread(q, np.array([0]), subspace.left_out(np.zeros((1, 3)), gone, np.array([0])))
    np.testing.assert_allclose(whole.covariance, [0.64 + 0.03**2])


def test_rows_outside_the_support_have_nodes_along_all_directions_and_nothing_is_left_out() -> None:
    moments = FeatureMoments(np.zeros(3), np.eye(3))
    slopes = np.zeros((2, 3, 2, 3))
    slopes[:, 0, :, 0] = np.array([[0.25, -0.25], [-0.25, 0.25]])
    slopes[:, 1, :, 1] = 0.03**2 * slopes[:, 0, :, 0]
    subspace = ActiveSubspace(moments, slopes, np.array([[-2.0] * 3, [2.0] * 3]))
    X, missing = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]]), np.array([[True, True, False]] * 2)
    both = np.array([0, 1])
    dimension = {
        row: d for rows, _, _, d in subspace.nodes(X, missing, both, most=1000) for row in rows.tolist()
    }
    assert dimension == {0: 1, 1: 2}
    left_out = subspace.left_out(X, missing, both)
    np.testing.assert_allclose(left_out[0], 0.03**2 * slopes[:, 0, :, 0])
    np.testing.assert_array_equal(left_out[1], 0)


def test_the_wider_the_logit_the_more_nodes() -> None:
    moments = FeatureMoments(np.zeros(2), np.eye(2))
    for one in (pattern(0)[:2], np.ones(2, dtype=bool)):
        sizes = []
        for size in (0.1, 0.7, 1.3, 5.0):
            logit = np.einsum("k,l,f,g->kflg", [-0.5, 0.5], [-0.5, 0.5], [size, size], [size, size])
            sizes.append(ActiveSubspace(moments, logit).rule(one)[0])
        assert sizes == sorted(sizes)
        assert sizes[-1] >= 2 * sizes[0]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "missing",
    [
        (0,),
        pytest.param((0, 1), marks=pytest.mark.long),
        pytest.param((1, 2, 4), marks=pytest.mark.long),
        (0, 1, 3, 4),
    ],
)
def test_a_stack_is_integrated_as_by_very_many_nodes_one_by_one(
    classes: int, missing: tuple[int, ...]
) -> None:
    c, X = linear(classes)
    gone, rows = pattern(*missing), X[:40]
    scores = c.score(rows, np.broadcast_to(gone, rows.shape))
    nodes, weight = c.moments.nodes(rows, gone, 64 if len(missing) == 1 else 2048)
    flat = nodes.reshape(-1, F)
    slow = mix_nodes(weight, mix((m.weight, m.posterior.prediction(m.design(flat))) for m in c.members))
    error = np.abs(scores.probability - slow.probability).max(axis=1)
    assert error.mean() < (3e-4 if len(missing) == 1 else 1.5e-3)
    assert error.max() < (1e-3 if len(missing) == 1 else 4e-3)
    np.testing.assert_allclose(scores.logit_std, slow.logit_std, rtol=0.03)
    assert np.abs(scores.mutual_information - slow.mutual_information).mean() < 4e-3


def test_a_shift_of_class_priors_is_taken_into_the_integral_of_two_classes() -> None:
    c, X = linear()
    shift = np.log([0.3, 2.0])
    gone, rows = pattern(0), X[:20]
    scores = replace(c, log_prior_shift=shift).score(rows, np.broadcast_to(gone, rows.shape))
    nodes, weight = c.moments.nodes(rows, gone, 64)
    flat = nodes.reshape(-1, F)
    parts = ((m.weight, m.posterior.prediction(m.design(flat), shift=shift)) for m in c.members)
    np.testing.assert_allclose(scores.probability, mix_nodes(weight, mix(parts)).probability, atol=1e-3)


def test_rows_are_scored_alike_in_any_order_and_any_number() -> None:
    c, X = linear(3)
    missing = np.random.default_rng(2).random(X.shape) < 0.3
    missing[:, 2] = False
    whole = c.score(X, missing)
    order = np.random.default_rng(3).permutation(len(X))
    np.testing.assert_allclose(
        c.score(X[order], missing[order]).probability, whole.probability[order], atol=2e-6
    )
    few = np.concatenate([c.score(X[i : i + 7], missing[i : i + 7]).probability for i in range(0, 70, 7)])
    np.testing.assert_allclose(few, whole.probability[:70], atol=2e-6)


def test_nodes_along_all_axes_have_the_conditional_moments() -> None:
    moments = FeatureMoments(np.arange(3.0), np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.3], [0.1, 0.3, 1.5]]))
    axes = np.linalg.qr(np.random.default_rng(0).standard_normal((2, 2)))[0]
    gone = np.array([False, True, True])
    nodes, weight = moments.nodes(np.ones((1, 3)), gone, 32, axes=axes)
    _, L = moments.conditional(gone)
    about = nodes[:, 0, 1:] - weight @ nodes[:, 0, 1:]
    np.testing.assert_allclose((about * weight[:, None]).T @ about, L @ L.T, atol=1e-12)
    assert len(normal_nodes(2, 32)[0]) == len(nodes)
