"""The joint sum over members and nodes, beside its slow twin: every member at every node by itself."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import blr
import blr.compiled
from blr.classifier import Classifier
from blr.member import Designs, Member
from blr.missing.patterns import interpolation, kept_nodes, missing_patterns, normal_nodes
from blr.predictive.mixture import Prediction, Scores, mix, mix_nodes
from blr.predictive.softmax import cholesky_factors

N, F, K = 260, 4, 5
SHARES = (0.4, 0.3, 0.2, 0.1)


@cache
def stack(*, beyond: bool = False) -> tuple[Classifier, np.ndarray]:
    """Return a classifier of four members, two of them with one basis, and its training rows."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((N, F)) @ rng.standard_normal((F, F))
    activation = 1.5 * X @ rng.standard_normal((F, K)) + 0.3 * (X**2) @ rng.standard_normal((F, K))
    y = (activation + rng.gumbel(size=activation.shape)).argmax(axis=1)
    members = []
    for share, kind, scale in zip(
        SHARES, ("rbf", "polynomial", "polynomial", "linear"), (2, 1, 4, 5), strict=True
    ):
        basis = blr.fit_basis(kind, X, rng=np.random.default_rng(2))
        M = basis(X).shape[1]
        q = blr.fit(basis(X), y, blr.GaussianPrior.isotropic(M, scale**-2.0), "softmax", classes=range(K))
        q = blr.refine(q)
        members.append(Member(basis, q, tuple(range(F)), share))
    whole = np.zeros(X.shape, dtype=bool)
    names = [f"x{j}" for j in range(F)]
    built = Classifier.build(members, X, whole, features=names, classes=list("abcde"), averaged_beyond=beyond)
    return built, X


@pytest.fixture(scope="module", params=["gaussian", "beyond"])
def stacked(request: pytest.FixtureRequest) -> tuple[Classifier, np.ndarray]:
    return stack(beyond=request.param == "beyond")


def one_by_one(c: Classifier, X: np.ndarray) -> Prediction:
    """Return the slow twin at points: each member's own integral, to 1e-3, and what is beyond the range continued."""
    own = mix((m.weight, m.posterior.prediction(m.design(X))) for m in c.members)
    if c.support is None:
        return own
    inside = np.clip(X, *c.support)
    near = mix((m.weight, m.posterior.prediction(m.design(inside))) for m in c.members)
    share = np.where((inside != X).any(axis=1), 0.9, 0.0)
    return mix([(1 - share, own), (share, near)])


def agree(scores: Scores, slow: Prediction, rows: np.ndarray, *, mean: float = 1.2e-3) -> None:
    """Compare where it is hardest: the contrasts' sds are 7 to 12 here."""
    error = np.abs(scores.probability[rows] - slow.probability).max(axis=1)
    assert error.mean() < mean
    assert error.max() < 4 * mean
    np.testing.assert_allclose(scores.logit_std[rows], slow.logit_std, rtol=0.02)
    information = scores.mutual_information[rows] - slow.mutual_information
    assert np.abs(information).mean() < 3 * mean


def test_complete_rows(stacked: tuple) -> None:
    c, X = stacked
    some = 1.3 * X[:60]
    complete = np.zeros(some.shape, dtype=bool)
    agree(c.score(some, complete), one_by_one(c, some), np.arange(60), mean=8e-4)


def test_missing_features(stacked: tuple) -> None:
    c, X = stacked
    X = X[:24]
    missing = np.zeros(X.shape, dtype=bool)
    missing[:, 1] = True
    missing[8:16, 3] = True
    missing[16:, 0] = missing[20:, 2] = True
    scores = c.score(X, missing)
    for pattern, rows in missing_patterns(missing):
        n, axes, _ = c._subspace.rule(pattern)
        nodes, weight = c.moments.nodes(X[rows], pattern, n, limits=c.support, axes=axes)
        slow = mix_nodes(weight, one_by_one(c, nodes.reshape(-1, F)))
        agree(scores, slow, rows, mean=5e-4 if pattern.sum() == 1 else 1.5e-3)


def test_errors_are_integrated_with_what_is_missing() -> None:
    c, X = stack()
    X, missing = X[:20], np.zeros((20, F), dtype=bool)
    missing[10:, 2] = True
    errors = np.full(X.shape, 0.3)
    scores = c.score(X, missing, errors)
    for pattern, rows in missing_patterns(missing):
        sigma = np.where(missing, 0.0, errors)[rows]
        nodes, weight = c.moments.nodes(X[rows], pattern, 64, errors=sigma, limits=c.support)
        agree(scores, mix_nodes(weight, one_by_one(c, nodes.reshape(-1, F))), rows)


def test_a_row_is_scored_alike_whatever_its_neighbours() -> None:
    c, X = stack(beyond=True)
    missing = np.random.default_rng(3).random(X.shape) < 0.3
    missing[:, 0] = False
    order = np.random.default_rng(4).permutation(N)
    whole, shuffled = c.score(X, missing), c.score(X[order], missing[order])
    np.testing.assert_allclose(whole.probability[order], shuffled.probability, atol=1e-12)
    alone = [c.score(X[i : i + 1], missing[i : i + 1]).probability for i in range(60)]
    np.testing.assert_allclose(whole.probability[:60], np.concatenate(alone), atol=1e-12)


def test_a_shift_of_class_priors_is_taken_into_the_integral() -> None:
    c, X = stack()
    moved = replace(c, log_prior_shift=np.log([0.2, 2.0, 1.0, 0.5, 1.3]))
    nodes, weight = c.moments.nodes(X[:10], np.array([False, True, False, False]), 32, limits=c.support)
    slow = mix_nodes(
        weight,
        mix(
            (m.weight, m.posterior.prediction(m.design(nodes.reshape(-1, F)), shift=moved.log_prior_shift))
            for m in c.members
        ),
    )
    missing = np.zeros((10, F), dtype=bool)
    missing[:, 1] = True
    agree(moved.score(X[:10], missing), slow, np.arange(10))


def test_members_with_the_same_basis_share_a_design_matrix() -> None:
    c, X = stack()
    loaded = Classifier.from_dict(c.to_dict())
    designs = Designs(loaded.members)
    first, second, third, fourth = loaded.members
    assert [members for _, members in designs.bases()] == [(first,), (second, third), (fourth,)]
    for member, Phi in designs(X):
        np.testing.assert_array_equal(Phi, member.design(X))


def test_very_wide_activations_do_not_overflow() -> None:
    c, X = stack()
    far = 40 * X[:30]
    p = c.score(far, np.zeros(far.shape, dtype=bool)).probability
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(("dimension", "n"), [(1, 32), (1, 64), (2, 64), (3, 64), (6, 64)])
def test_interpolation_keeps_constants_and_what_is_smooth(dimension: int, n: int) -> None:
    kept, Z, weight = kept_nodes(dimension, n)
    full, all_weights = normal_nodes(dimension, n)
    assert all_weights[kept].sum() > 1 - 1e-4
    np.testing.assert_array_equal(full[kept], Z)
    chosen, to_all = interpolation(dimension, n, {1: 8, 2: 16}.get(dimension, 24))
    np.testing.assert_allclose(to_all.sum(axis=1), 1, atol=1e-6)
    smooth = np.exp(0.2 * Z[:, 0])
    near = np.abs(Z).max(axis=1) < 3
    error = np.abs(to_all @ smooth[chosen] - smooth)[near]
    assert error @ weight[near] < (2e-3 if dimension == 1 else 0.05)


def test_factors_are_those_of_each_covariance_by_itself() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((50, 4, 4))
    V = A @ A.transpose(0, 2, 1)
    V[0] = 0.0
    L = cholesky_factors(V).transpose(2, 0, 1)
    np.testing.assert_allclose(L[1:], np.linalg.cholesky(V[1:]), atol=1e-9)
    assert not L[0].any()
