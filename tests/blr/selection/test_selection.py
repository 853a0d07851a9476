"""Scores that select and weigh models, and groups of classes: against refits, optimisers and formulas."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.metrics import log_loss

import blr
from blr.arrays import Matrix, Vector
from blr.calibration import skill
from blr.fitting.problem import pose
from blr.gaussian import Gaussian, GaussianPrior
from blr.likelihood.likelihoods import unpack
from blr.likelihood.targets import most_likely_class
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import fit
from blr.predictive.binary import binary_exact
from blr.predictive.expectations import expected_derivatives
from blr.predictive.softmax import softmax_exact
from blr.selection.compare import (
    average,
    compare,
    leave_one_out,
    leave_one_out_probability,
    stacking_weights,
    weights,
)
from blr.selection.grouping import APART, group_classes
from blr.selection.label_noise import NoiseDensity, estimate_label_noise
from tests.blr import dense


def refitted(q: LaplacePosterior, Phi: Matrix, t: Vector, row: int) -> Vector:
    """Return the probabilities of a row under a fit without it."""
    keep = np.arange(len(Phi)) != row
    found = fit(Phi[keep], t[keep], q.prior, q.likelihood, classes=q.classes)
    p = found.predict_proba(Phi[[row]])
    return np.array([1 - p[0], p[0]]) if q.problem.binary else p[0]


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "softmax"])
def test_rows_left_out_are_nearly_those_of_fits_without_them(likelihood: str) -> None:
    Phi, t = dense.softmax(3, N=40, M=2, K=3) if likelihood == "softmax" else dense.binary(3, N=40, M=3)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0), likelihood, classes=range(3 if likelihood == "softmax" else 2))
    p, share, _ = leave_one_out_probability(q)
    exact = np.array([refitted(q, Phi, t, row) for row in range(40)])
    seen = share > 0
    gap = np.abs(np.log(p[seen]) - np.log(exact[seen]))
    within = np.abs(np.log(q.prediction(Phi).probability[seen]) - np.log(exact[seen]))
    assert gap.max() < 0.06
    assert gap.sum() < 0.2 * within.sum()  # the row's own say is what is left out


@pytest.mark.parametrize("refined", [False, True])
def test_many_classes_by_the_formula(refined: bool) -> None:  # noqa: FBT001
    """V' = (I - V R)⁻¹ V in all K - 1 contrasts, whichever classes a row's curvature is in."""
    K = 12
    Phi, t = dense.softmax(4, N=60, M=3, K=K, scale=2.0)
    laplace = fit(Phi, t, GaussianPrior(0.0, 1.0), "softmax")
    q = blr.refine(laplace) if refined else laplace
    p, _, _ = leave_one_out_probability(q)
    a, V = q.logit_moments(Phi)
    T = q.problem.transform
    for n in range(60):
        m, S = T.T @ a[n], T.T @ V[n] @ T
        if refined:
            _, gradient, packed = expected_derivatives(q.problem.likelihood, m[None], S[None], t[n : n + 1])
        else:
            _, gradient, packed = q.problem.likelihood.derivatives(m[None], t[n : n + 1])
        left = np.linalg.solve(np.eye(K - 1) - S @ unpack(packed, K - 1)[0], S)
        mean = m - left @ gradient[0]
        exact = softmax_exact((T @ mean)[None], (T @ left @ T.T)[None])[0][0]
        assert np.abs(p[n] - exact).max() < 5e-3  # 512 nodes where the series does not serve


def test_binary_rows_by_the_formula() -> None:
    """Means a - h (t - y)/(1 - r h) and variances h/(1 - r h), with the weight in r and in the step."""
    Phi, t = dense.binary(4, N=30, M=3)
    w = np.random.default_rng(4).gamma(2.0, 0.5, 30)
    q = fit(Phi, t, GaussianPrior(0.1, 2.0), sample_weight=w)
    p, _, weight = leave_one_out_probability(q)
    a, h = Phi @ q.mean, np.einsum("ni,ij,nj->n", Phi, np.linalg.inv(q.precision), Phi)
    y = 1 / (1 + np.exp(-a))
    left = 1 - w * y * (1 - y) * h
    np.testing.assert_allclose(p[:, 1], binary_exact(a - h * w * (t - y) / left, h / left), rtol=1e-9)
    np.testing.assert_array_equal(weight, w)


def test_the_score_is_the_sum_over_the_rows() -> None:
    Phi, _ = dense.binary(5, N=50, M=3)
    votes = np.random.default_rng(5).multinomial(6, [0.5, 0.3, 0.2], 50).astype(float)
    q = fit(Phi, votes, GaussianPrior(0.0, 1.0), "softmax")
    p, share, weight = leave_one_out_probability(q)
    rows = weight * np.sum(share * np.log(p), axis=1)
    found = leave_one_out(q)
    assert found[0] == pytest.approx(rows.sum(), rel=1e-10)
    assert found[1] == pytest.approx(np.sqrt(50 * rows.var(ddof=1)), rel=1e-8)
    assert found[2] == 0
    np.testing.assert_array_equal(weight, 6.0)


@pytest.mark.parametrize("K", [2, pytest.param(3, marks=pytest.mark.long)])
def test_a_refined_fit_is_judged_by_itself(K: int) -> None:
    """One step without the row, against refining again without it."""
    rng = np.random.default_rng(2)
    Phi = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    t = np.argmax(Phi @ rng.normal(size=(3, K)) * 3 + rng.gumbel(size=(40, K)), axis=1)
    names = {"likelihood": "logistic" if K == 2 else "softmax", "classes": range(K)}
    prior = GaussianPrior.isotropic(3, precision=0.05, intercept=0)

    def left_out(row: int) -> float:
        kept = np.arange(40) != row
        q = blr.refine(fit(Phi[kept], t[kept], prior, **names))
        return float(np.log(q.prediction(Phi[[row]]).probability[0, t[row]]))

    truth = sum(left_out(row) for row in range(40))
    q = fit(Phi, t, prior, **names)
    refined, laplace = (leave_one_out(x)[0] for x in (blr.refine(q), q))
    assert refined == pytest.approx(truth, abs=1.0)
    assert abs(refined - truth) < abs(laplace - truth)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("together", [1, 3, 6])
def test_a_search_that_stopped_early_leaves_rows_out_all_the_same(K: int, together: int) -> None:
    """Its precision may be less than the curvature of a row, or of a group's, of which no variance is left."""
    rng = np.random.default_rng(5)
    Phi = np.column_stack([np.ones(12), 5 * rng.normal(size=(12, 3))])
    prior = GaussianPrior.isotropic(4, precision=1e-3, intercept=0)
    q = fit(Phi, np.arange(12) % K, prior, likelihood="logistic" if K == 2 else "softmax", classes=range(K))
    refined = blr.refine(q)
    early = replace(refined, gaussian=Gaussian(refined.gaussian.mean, 0.3 * refined.gaussian.precision))
    p, _, _ = leave_one_out_probability(early, group=np.arange(12) // together)
    assert np.isfinite(p).all()
    assert np.all((p >= 0) & (p <= 1))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert leave_one_out(early)[2] > 0


def test_a_row_that_stands_alone_is_influential() -> None:
    Phi = np.column_stack([np.ones(20), np.eye(20)[:, 0]])
    q = fit(Phi, np.arange(20) % 2 == 0, GaussianPrior(0.0, 100.0))
    assert leave_one_out(q)[2] == 1


def test_an_average_is_the_sum_of_its_parts() -> None:
    Phi, t = dense.binary(7, N=60, M=4)
    designs = [Phi[:, :m] for m in (2, 3, 4)]
    posteriors = [blr.fit_evidence(X, t) for X in designs]
    share = weights(posteriors, [1.0, 2.0, 1.0])
    found = average(posteriors, designs, [1.0, 2.0, 1.0])
    expected = sum(w * q.predict_proba(X) for w, q, X in zip(share, posteriors, designs, strict=True))
    np.testing.assert_allclose(found.probability[:, 1], expected, rtol=1e-12)
    assert compare(posteriors).best["loo"] == np.argmax([leave_one_out(q)[0] for q in posteriors])


def test_says_what_is_wrong() -> None:
    Phi, t = dense.binary(8, N=30, M=2)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0))
    with pytest.raises(ValueError, match="got nothing to compare"):
        weights([])
    with pytest.raises(ValueError, match="prior_probability must be 1 positive numbers"):
        weights([q], [0.0])
    with pytest.raises(ValueError, match="same rows and weights"):
        compare([q, fit(Phi[:20], t[:20], GaussianPrior(0.0, 1.0))])
    with pytest.raises(ValueError, match=r"same targets, got weights of the classes \[.*\] in the first"):
        compare([q, fit(Phi, 1 - t, GaussianPrior(0.0, 1.0))])
    three = fit(Phi, np.arange(len(t)) % 3, GaussianPrior(0.0, 1.0), "softmax")
    with pytest.raises(ValueError, match=r"different classes, \[0, 1\] and \[0, 1, 2\]"):
        compare([three, q])
    with pytest.raises(ValueError, match=r"different classes"):
        average([three, q], [Phi, Phi])
    with pytest.raises(ValueError, match=r"design matrices have \[\d+, \d+\] rows, expected the same"):
        average([q, q], [Phi, Phi[:5]])
    with pytest.raises(ValueError, match="a design matrix for each of 1 posteriors, got 2"):
        average([q], [Phi, Phi])
    with pytest.raises(RuntimeError, match="data"):
        leave_one_out_probability(blr.Posterior.from_dict(q.to_dict()))


@pytest.fixture
def case() -> tuple[np.ndarray, Matrix]:
    """Return left-out probabilities (J, N, K), and vote fractions (N, K) times the rows' weights."""
    rng = np.random.default_rng(0)
    J, N, K = 4, 120, 3
    p = rng.dirichlet(np.ones(K), (J, N))
    truth = 0.6 * p[1] + 0.4 * p[2]
    share = rng.multinomial(5, truth) / 5
    return p, share * rng.gamma(2.0, 1.0, (N, 1))


def objective(s: Vector, p: np.ndarray, share: Matrix, prior: Vector) -> float:
    return np.sum(share * np.log(np.tensordot(s, p, axes=1))) + len(p) * (prior / prior.sum()) @ np.log(s)


def test_no_other_weights_predict_better(case: tuple[np.ndarray, Matrix]) -> None:
    prior = np.array([1.0, 2.0, 1.0, 0.5])
    found = stacking_weights(*case, prior_probability=prior)

    def energy(z: Vector) -> float:
        s = np.exp(z - z.max())
        return -objective(s / s.sum(), *case, prior)

    best = -minimize(energy, np.zeros(4), method="BFGS", options={"gtol": 1e-6}).fun
    assert best - 2e-3 < objective(found, *case, prior) < best + 1e-9
    assert found.sum() == pytest.approx(1)
    assert found[1] > found[2] > 0.2


def test_one_model_and_a_probability_of_zero() -> None:
    share = np.array([[1.0, 0.0], [0.0, 1.0]])
    sure = np.array([[1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(stacking_weights(sure[None], share), [1.0])
    found = stacking_weights(np.stack([sure, np.full((2, 2), 0.5)]), np.tile(share[1], (2, 1)))
    # Two rows, and one of the prior's for each model.
    np.testing.assert_allclose(found, [0.25, 0.75], atol=1e-3)


SHARES = np.array([0.5, 0.3, 0.2])


def drawn(rng: np.random.Generator, n: int, sharpness: float) -> tuple[np.ndarray, np.ndarray]:
    """Return honest probabilities (n, 3), nearer to the class shares the larger the sharpness, and classes (n,)."""
    p = rng.dirichlet(sharpness * SHARES, size=n)
    return p, (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(max=2)


def test_the_gain_is_the_difference_of_log_losses_and_the_interval_is_of_the_paired_t_test() -> None:
    p, t = drawn(np.random.default_rng(0), 300, 3.0)
    found = skill(p, t, class_shares=SHARES)
    base = np.broadcast_to(SHARES, p.shape)
    assert found.gain == pytest.approx(log_loss(t, base) - log_loss(t, p), abs=1e-12)
    assert found.baseline == pytest.approx(log_loss(t, base), abs=1e-12)
    rows = np.arange(len(t))
    paired = stats.ttest_rel(-np.log(base[rows, t]), -np.log(p[rows, t])).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((paired.low, paired.high), abs=1e-12)
    assert found.verdict == "better"


def test_a_model_that_knows_nothing_and_one_that_is_wrong_have_no_skill() -> None:
    rng = np.random.default_rng(2)
    t = rng.choice(3, p=SHARES, size=500)
    near = rng.dirichlet(2000 * SHARES, size=500)  # noise about the shares
    assert skill(near, t, class_shares=SHARES).verdict == "none shown"
    constant = skill(np.broadcast_to(SHARES, (500, 3)), t, class_shares=SHARES)
    assert (constant.gain, constant.low, constant.high, constant.verdict) == (0, 0, 0, "none shown")
    assert skill(rng.dirichlet(SHARES, size=500), t, class_shares=SHARES).verdict == "worse"


def test_copies_of_a_row_in_a_group_count_once() -> None:
    p, t = drawn(np.random.default_rng(3), 80, 3.0)
    once = skill(p, t, class_shares=SHARES)
    copies = np.repeat(np.arange(80), 5)
    together = skill(p[copies], t[copies], class_shares=SHARES, group=copies)
    assert (together.gain, together.low) == pytest.approx((once.gain, once.low), abs=1e-12)
    assert (together.n, together.n_groups) == (400, 80)
    apart = skill(p[copies], t[copies], class_shares=SHARES)
    assert apart.high - apart.low < 0.5 * (once.high - once.low)


def test_votes_and_shares_of_folds() -> None:
    rng = np.random.default_rng(4)
    p = rng.dirichlet(3 * SHARES, size=200)
    votes = np.array([rng.multinomial(10, row) for row in p]) / 10
    found = skill(p, votes, class_shares=np.broadcast_to(SHARES, p.shape))
    by_hand = (votes * (np.log(p) - np.log(SHARES))).sum(axis=1)
    assert found.gain == pytest.approx(by_hand.mean(), abs=1e-12)


def test_one_group_leaves_the_error_unknown() -> None:
    p, t = drawn(np.random.default_rng(5), 30, 3.0)
    found = skill(p, t, class_shares=SHARES, group=np.zeros(30))
    assert (found.low, found.high, found.verdict) == (-np.inf, np.inf, "none shown")


def information(p: np.ndarray, t: np.ndarray) -> float:
    """Return what probabilities gain over the shares of the classes, row by row."""
    share = np.array([np.mean(t == k) for k in range(p.shape[1])])
    return float(sum(np.log(p_n[k] / share[k]) for p_n, k in zip(p, t, strict=True)))


def joined(p: np.ndarray, t: np.ndarray, groups: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    number = {k: g for g, group in enumerate(groups) for k in group}
    return np.stack([p[:, group].sum(axis=1) for group in groups], axis=1), np.array([number[k] for k in t])


def twin(p: np.ndarray, t: np.ndarray) -> list[list[int]]:
    """Return the groups by trying every merge, each judged by all rows."""
    groups = [[k] for k in range(p.shape[1])]
    while len(groups) > 2:
        before, found = information(*joined(p, t, groups)), []
        for i, j in combinations(range(len(groups)), 2):
            tried = [g for m, g in enumerate(groups) if m not in (i, j)] + [sorted(groups[i] + groups[j])]
            loss = before - information(*joined(p, t, tried))
            n = np.array([np.isin(t, groups[m]).sum() for m in (i, j)])
            if loss < APART * -(n @ np.log(n / n.sum())):
                found.append((loss, tried))
        if not found:
            break
        groups = min(found)[1]
    return sorted(groups)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_groups_are_those_of_every_merge_tried_and_their_pairs_are_taken_for_each_other(seed: int) -> None:
    """Of seven classes in three heaps, drawn by their probabilities."""
    rng = np.random.default_rng(seed)
    heap = rng.normal(size=(300, 3)) * 3
    a = heap[:, [0, 0, 1, 1, 1, 2, 2]] + 0.3 * rng.normal(size=(300, 7)) + np.linspace(-1, 1, 7)
    p = softmax(a, axis=1)
    t = (p.cumsum(axis=1) > rng.random((300, 1))).argmax(axis=1)
    found = group_classes(p, t)
    groups = [list(g) for g in found.groups]
    assert groups == twin(p, t)
    assert len(groups) < 7
    assert found.kept == pytest.approx(information(*joined(p, t, groups)) / information(p, t), rel=1e-10)
    pairs = {frozenset(pair) for g in groups for pair in combinations(g, 2)}
    assert {frozenset(m[:2]) for m in found.mistaken} == pairs
    j, k, *shares = found.mistaken[0]
    assert shares == pytest.approx(
        [np.mean((p[:, k] > p[:, j])[t == j]), np.mean((p[:, j] > p[:, k])[t == k])]
    )


def test_classes_that_are_told_apart_stay_and_so_do_those_without_rows() -> None:
    t = np.repeat([0, 1, 3], 20)
    assert group_classes(np.full((60, 4), 0.02) + 0.92 * np.eye(4)[t], t).groups == ((0,), (1,), (2,), (3,))
    alike = np.where(t[:, None] == 3, [0.04, 0.04, 0.04, 0.88], [0.46, 0.46, 0.04, 0.04])
    assert group_classes(alike, t).groups == ((0, 1), (2,), (3,))
    told = np.full((60, 4), 1e-3) + 0.996 * np.eye(4)[t]
    told[0] = [1e-14, 1.0, 0.0, 0.0]  # so sure of another class that of the two less is known than by shares
    assert group_classes(told, t).groups == ((0,), (1,), (2,), (3,))
    nothing = group_classes(np.full((60, 4), 0.25), t)
    assert nothing.groups == ((0,), (1,), (2,), (3,)), "who knows nothing cannot tell which are alike"
    assert not nothing.mistaken


def simulated(
    seed: int, n: int = 800, rate: tuple[float, ...] = (0.0, 0.2), slope: float = 1.5, F: int = 3
) -> tuple[Matrix, np.ndarray, np.ndarray]:
    """Return Phi (n, F + 1), recorded classes and true ones; a class k is recorded as another at rate[k]."""
    rng, K = np.random.default_rng(seed), len(rate)
    Phi = np.hstack([np.ones((n, 1)), rng.normal(size=(n, F))])
    W = rng.normal(size=(F + 1, K))
    apart = W - W.mean(axis=1, keepdims=True)
    W *= slope / np.sqrt(np.mean(apart[1:] ** 2))  # none too weak to tell anything
    W[0] *= 0.3
    p = np.exp(Phi @ W)
    truth = (rng.random((n, 1)) > np.cumsum(p / p.sum(axis=1, keepdims=True), axis=1)).sum(axis=1)
    wrong = rng.random(n) < np.asarray(rate)[truth]
    return Phi, np.where(wrong, (truth + rng.integers(1, K, n)) % K, truth), truth


@pytest.mark.parametrize(("K", "A"), [(2, 1), (3, 1), (2, 3)])
def test_the_gradient_is_that_of_the_density(K: int, A: int) -> None:
    Phi, label, _ = simulated(0, n=200, rate=(0.1,) * K)
    name = "logistic" if K == 2 else "softmax"
    weight = np.random.default_rng(1).random(200) + 0.5
    problem = pose(Phi, label, None, name, classes=range(K), confusion=0.1, sample_weight=weight)
    who = np.arange(200) % A
    shape = np.zeros((A, K)) + 0.5, np.full((A, K), 3.0)
    density = NoiseDensity(problem, most_likely_class(problem.data.t), who, *shape)
    x = np.concatenate([[0.4], np.linspace(0.05, 0.2, A * K)])
    gradient = density.gradient(x, density.posterior(x))
    for i in range(len(x)):
        step = np.where(np.arange(len(x)) == i, 1e-4, 0.0)
        numeric = (density.density(x + step) - density.density(x - step)) / 2e-4
        assert gradient[i] == pytest.approx(numeric, rel=1e-4, abs=1e-4)


def covered(rate: Any, seeds: Any, n: int) -> Any:
    name = "logistic" if len(rate) == 2 else "softmax"
    hits = []
    for seed in seeds:
        Phi, label, _ = simulated(seed, n=n, rate=rate)
        found = estimate_label_noise(Phi, label, name, classes=range(len(rate)))
        hits.append((found.low <= rate) & (found.high >= rate))
    return np.mean(hits, axis=0)


@pytest.mark.long
@pytest.mark.parametrize("rate", [(0.0, 0.2), (0.05, 0.2)])
def test_intervals_cover(rate: tuple[float, ...]) -> None:
    hits = covered(rate, range(100, 160), 800)
    assert hits.min() >= 0.9
    assert hits.mean() <= 0.995


def test_annotators_are_told_apart_and_who_labels_little_is_as_the_others() -> None:
    Phi, _, truth = simulated(3, n=1500)
    rng = np.random.default_rng(0)
    who = rng.choice(3, size=1500, p=[0.5, 0.495, 0.005])
    rate = np.array([0.02, 0.3, 0.3])[who]
    label = np.where(rng.random(1500) < rate, 1 - truth, truth)
    found = estimate_label_noise(Phi, label, annotator=who, classes=(0, 1))
    assert found.rate.shape == found.low.shape == (3, 2)
    assert found.high[0].max() < found.rate[1].min()
    assert (found.low[1] <= 0.3).all()
    assert (found.high[1] >= 0.3).all()
    assert found.common is not None
    assert np.abs(found.rate[2] - found.common.rate).max() < 0.1
    assert (found.standard_error[2] > found.standard_error[0]).all()
    assert found.confusion[who][:, 0, 1] == pytest.approx(found.rate[who, 0])


def test_what_is_no_annotator_is_said() -> None:
    Phi, label, _ = simulated(0, n=60)
    with pytest.raises(ValueError, match="60 integers from 0"):
        estimate_label_noise(Phi, label, annotator=np.array(["a"] * 60), classes=(0, 1))
    with pytest.raises(TypeError, match="got a posterior that was fitted to a stream"):
        estimate_label_noise([(Phi, label, None)], None, classes=(0, 1))
