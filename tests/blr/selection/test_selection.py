"""Leave-one-out against fits without the row; averaging against its sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import blr
from blr.arrays import Matrix, Vector
from blr.gaussian import Gaussian, GaussianPrior
from blr.likelihood.likelihoods import unpack
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import fit
from blr.predictive.binary import binary_exact
from blr.predictive.expectations import expected_derivatives
from blr.predictive.softmax import softmax_exact
from blr.selection.compare import average, compare, leave_one_out, leave_one_out_probability, weights
from tests.blr.conftest import Twin


def refitted(q: LaplacePosterior, Phi: Matrix, t: Vector, row: int) -> Vector:
    """Return the probabilities of a row under a fit without it."""
    keep = np.arange(len(Phi)) != row
    found = fit(Phi[keep], t[keep], q.prior, q.likelihood, classes=q.classes)
    p = found.predict_proba(Phi[[row]])
    return np.array([1 - p[0], p[0]]) if q.problem.binary else p[0]


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "softmax"])
def test_rows_left_out_are_nearly_those_of_fits_without_them(dense: Twin, likelihood: str) -> None:
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
def test_many_classes_by_the_formula(dense: Twin, refined: bool) -> None:  # noqa: FBT001
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


def test_binary_rows_by_the_formula(dense: Twin) -> None:
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


def test_the_score_is_the_sum_over_the_rows(dense: Twin) -> None:
    Phi, _ = dense.binary(5, N=50, M=3)
    votes = np.random.default_rng(5).multinomial(6, [0.5, 0.3, 0.2], 50).astype(float)
    q = fit(Phi, votes, GaussianPrior(0.0, 1.0), "softmax")
    p, share, weight = leave_one_out_probability(q)
    rows = weight * np.sum(share * np.log(p), axis=1)
    found = leave_one_out(q)
    assert found.log_density == pytest.approx(rows.sum(), rel=1e-10)
    assert found.standard_error == pytest.approx(np.sqrt(50 * rows.var(ddof=1)), rel=1e-8)
    assert found.n_influential == 0
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
    refined, laplace = (leave_one_out(x).log_density for x in (blr.refine(q), q))
    assert refined == pytest.approx(truth, abs=1.0)
    assert abs(refined - truth) < abs(laplace - truth)


@pytest.mark.parametrize("K", [2, 3])
def test_a_search_that_stopped_early_leaves_rows_out_all_the_same(K: int) -> None:
    """Its precision may be less than a row's own curvature, of which no variance is left."""
    rng = np.random.default_rng(5)
    Phi = np.column_stack([np.ones(12), 5 * rng.normal(size=(12, 3))])
    prior = GaussianPrior.isotropic(4, precision=1e-3, intercept=0)
    q = fit(Phi, np.arange(12) % K, prior, likelihood="logistic" if K == 2 else "softmax", classes=range(K))
    refined = blr.refine(q)
    early = replace(refined, gaussian=Gaussian(refined.gaussian.mean, 0.3 * refined.gaussian.precision))
    p, _, _ = leave_one_out_probability(early)
    assert np.isfinite(p).all()
    assert np.all((p >= 0) & (p <= 1))
    assert leave_one_out(early).n_influential > 0


def test_a_row_that_stands_alone_is_influential() -> None:
    Phi = np.column_stack([np.ones(20), np.eye(20)[:, 0]])
    q = fit(Phi, np.arange(20) % 2 == 0, GaussianPrior(0.0, 100.0))
    assert leave_one_out(q).n_influential == 1


def test_an_average_is_the_sum_of_its_parts(dense: Twin) -> None:
    Phi, t = dense.binary(7, N=60, M=4)
    designs = [Phi[:, :m] for m in (2, 3, 4)]
    posteriors = [blr.fit_evidence(X, t) for X in designs]
    share = weights(posteriors, [1.0, 2.0, 1.0])
    found = average(posteriors, designs, [1.0, 2.0, 1.0])
    expected = sum(w * q.predict_proba(X) for w, q, X in zip(share, posteriors, designs, strict=True))
    np.testing.assert_allclose(found.probability[:, 1], expected, rtol=1e-12)
    assert compare(posteriors).best["loo"] == np.argmax([leave_one_out(q).log_density for q in posteriors])


def test_says_what_is_wrong(dense: Twin) -> None:
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
