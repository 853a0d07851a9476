"""Gaussians by their precision, their error as rows grow, and corrections for a shifted target."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import blr
from blr.census.shares import class_priors, log_prior_shift
from blr.gaussian import Gaussian, cholesky_of_precision
from blr.predictive.binary import binary_exact
from blr.shift import density_ratio, sandwich
from tests.blr import dense


@pytest.fixture
def gaussian() -> Gaussian:
    rng = np.random.default_rng(0)
    return Gaussian(rng.standard_normal(5), np.linalg.inv(dense.covariance(rng, 5)))


def test_moments_and_density_are_scipys(gaussian: Gaussian) -> None:
    theirs = multivariate_normal(gaussian.mean, np.linalg.inv(gaussian.precision))
    assert gaussian.covariance == pytest.approx(theirs.cov, rel=1e-12)
    assert gaussian.solve(np.arange(5.0)) == pytest.approx(theirs.cov @ np.arange(5), rel=1e-11)
    assert theirs.logpdf(gaussian.mean) - theirs.logpdf(w := gaussian.mean + 0.3) == pytest.approx(
        gaussian.energy(w)
    )
    assert gaussian.log_det_precision == pytest.approx(np.linalg.slogdet(gaussian.precision)[1], rel=1e-12)


@pytest.mark.parametrize("known", [(), ("cholesky",), ("cholesky", "inverse_cholesky", "covariance")])
def test_about_another_mean_it_is_the_gaussian_made_anew(gaussian: Gaussian, known: tuple[str, ...]) -> None:
    computed = {name: getattr(gaussian, name) for name in known}
    mean = gaussian.mean + 1.5
    moved, anew = gaussian.about(mean), Gaussian(mean, gaussian.precision)
    for name, value in computed.items():
        assert getattr(moved, name) is value  # not computed again
    for name in ("mean", "precision", "cholesky", "inverse_cholesky", "covariance"):
        assert np.array_equal(getattr(moved, name), getattr(anew, name))


def test_samples_have_its_moments(gaussian: Gaussian) -> None:
    draws = gaussian.sample(200_000, np.random.default_rng(2))
    sd = np.sqrt(np.diag(gaussian.covariance))
    assert np.abs(draws.mean(axis=0) - gaussian.mean).max() < 5 * sd.max() / np.sqrt(200_000)
    assert np.cov(draws.T) == pytest.approx(gaussian.covariance, abs=0.02)


def test_scales_from_1e_minus_12_to_1e12_side_by_side() -> None:
    A = np.linalg.inv(dense.covariance(np.random.default_rng(0), 5))
    scale = np.array([1e-12, 1e-6, 1.0, 1e6, 1e12])
    L, jitter = cholesky_of_precision(A * np.outer(scale, scale))
    assert jitter == 0
    assert pytest.approx(cholesky_of_precision(A)[0], rel=1e-10) == L / scale[:, None]


def test_collinear_and_flat_weights_take_a_jitter_that_is_told() -> None:
    x = np.array([1.0, 2.0, 3.0])
    A = np.outer(x, x)
    L, jitter = cholesky_of_precision(A)
    assert 0 < jitter < 1e-12
    assert pytest.approx(A, rel=1e-12) == L @ L.T
    L, jitter = cholesky_of_precision(np.diag([4.0, 0.0]))
    assert 0 < jitter < 1e-12
    assert L[0, 0] == pytest.approx(2.0)
    assert L[1, 1] > 0


def test_refuses_what_is_no_precision() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="precision is not positive definite"):
        cholesky_of_precision(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(np.linalg.LinAlgError, match="every entry must be positive and finite"):
        cholesky_of_precision(np.diag([1.0, -1.0]))


def gaussian_sets(shift: float, n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    train, target = rng.standard_normal((n, 1)), rng.standard_normal((n, 1)) + shift
    return np.hstack([np.ones((n, 1)), train]), np.hstack([np.ones((n, 1)), target])


def test_ratio_of_two_gaussians_is_the_closed_form() -> None:
    train, target = gaussian_sets(0.7)
    found = density_ratio(train, target, threads=1)
    exact = np.exp(0.7 * train[:, 1] - 0.5 * 0.7**2)
    exact = np.minimum(exact, np.quantile(exact, 0.99))
    ratio = found.weight / found.weight.mean() * exact.mean()
    np.testing.assert_allclose(np.log(ratio), np.log(exact), atol=0.25)
    assert found.weight.sum() == pytest.approx(found.n_effective)
    assert found.n_effective == pytest.approx(exact.sum() ** 2 / (exact**2).sum(), rel=0.1)
    assert found.auc == pytest.approx(0.69, abs=0.03)  # Phi(0.7 / sqrt 2)
    assert "weights help" in found.advice
    mean = np.average(train[:, 1], weights=found.weight)
    assert mean == pytest.approx(target[:, 1].mean(), abs=0.12)  # clipping costs some
    few = density_ratio(*gaussian_sets(0.7, 500), threads=1)
    assert 0 < few.auc_low < 0.69 < few.auc_high < 1
    assert few.auc_high - few.auc_low < 0.08


def test_equal_sets_need_no_weights() -> None:
    found = density_ratio(*gaussian_sets(0.0), threads=1)
    assert found.auc == pytest.approx(0.5, abs=0.03)
    assert found.n_effective > 0.98 * 4000
    assert "no weights" in found.advice


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"train": np.ones((3, 2))}, "3 training rows"),
        ({"train": np.ones((9, 3))}, "columns"),
        ({"train_weight": -np.ones(50)}, "not negative"),
        ({"train_weight": np.ones(49)}, r"must be \(50,\)"),
        ({"target": np.full((50, 2), np.nan)}, "target holds 100"),
    ],
)
def test_density_ratio_names_what_is_wrong(given: dict[str, Any], said: str) -> None:
    train, target = gaussian_sets(0.5, 50)
    options: dict[str, Any] = {"train": train, "target": target, "threads": 1} | given
    with pytest.raises(ValueError, match=said):
        density_ratio(**options)


def test_rows_far_out_leave_the_others_their_weight() -> None:
    train, target = gaussian_sets(0.5)
    train[:3, 1] = 1e6
    found = density_ratio(train, target, threads=1)
    assert np.isfinite(found.weight).all()
    assert found.n_effective > 100


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(
    "fitted", [blr.fit, lambda *a, **k: blr.sample_posterior(blr.fit(*a, **k), n_draws=40)]
)
def test_class_shares_move_logits_alone(fitted: Callable[..., blr.Posterior]) -> None:
    Phi = np.hstack([np.ones((60, 1)), np.random.default_rng(4).standard_normal((60, 1))])
    q = fitted(Phi, Phi[:, 1] > 0.3, blr.GaussianPrior.isotropic(2), likelihood="probit", threads=1)
    with pytest.raises(ValueError, match="shift of class priors for the probit link"):
        q.prediction(Phi, shift=np.array([0.1, -0.1]))


@pytest.mark.parametrize("K", [2, 3])
def test_counts_under_draws_are_taken_where_the_shift_leads(K: int) -> None:
    rng = np.random.default_rng(5)
    Phi = np.hstack([np.ones((40, 1)), rng.standard_normal((40, 2))])
    prior, likelihood = blr.GaussianPrior.isotropic(3), "logistic" if K == 2 else "softmax"
    q = blr.fit(Phi, rng.integers(0, K, 40), prior, likelihood, threads=1)
    shift = np.log(np.arange(1.0, K + 1))
    deviations = q.deviations(5, rng)

    def counts(theta: np.ndarray) -> np.ndarray:
        a = q.problem.activations(Phi, theta)
        p = q.problem.response(a + (shift[1] - shift[0] if K == 2 else shift))
        return np.array([len(p) - p.sum(), p.sum()]) if K == 2 else p.sum(axis=0)

    expected = np.stack([counts(q.mode + d) for d in deviations])
    np.testing.assert_allclose(q.counts_under(Phi, deviations, shift=shift), expected, rtol=1e-9)


def test_shift_is_of_shares_whatever_their_sum() -> None:
    np.testing.assert_allclose(log_prior_shift([3, 1], [50, 50]), np.log([1.5, 0.5]))
    with pytest.raises(ValueError, match="positive share of each of 2"):
        log_prior_shift([1.0, 0.0], [0.5, 0.5])
    with pytest.raises(ValueError, match="positive share of each class"):
        class_priors(np.full((3, 2), 0.5), [1.0, 0.0])


def test_class_priors_are_found_under_prior_shift() -> None:
    rng = np.random.default_rng(2)
    # The target has a tenth of class 1, the model was trained on half.
    y = (rng.random(20_000) < 0.1).astype(int)
    x = rng.standard_normal(20_000) + 2.0 * y
    p1 = 1 / (1 + np.exp(-(2.0 * x - 2.0)))  # exact posterior at even shares
    p = np.stack([1 - p1, p1], axis=1)
    p[:7] = np.nan
    found = class_priors(p, [0.5, 0.5])
    assert found[1] == pytest.approx(y.mean(), abs=0.01)
    none = class_priors(p[7:107] * [1, 0] + [0, 1e-12], [0.5, 0.5])
    assert none[1] == pytest.approx(0.005 / 1.005)  # half an object


def test_sandwich_is_the_posterior_where_the_model_holds_and_wider_where_rows_repeat() -> None:
    rng = np.random.default_rng(3)
    Phi = np.hstack([np.ones((3000, 1)), rng.standard_normal((3000, 2))])
    t = (rng.random(3000) < 1 / (1 + np.exp(-Phi @ [0.3, 1.0, -0.5]))).astype(float)
    prior = blr.GaussianPrior.isotropic(3, 1e-4)
    q = blr.fit(Phi, t, prior, threads=1)
    np.testing.assert_allclose(sandwich(q).gaussian.covariance, q.gaussian.covariance, rtol=0.15, atol=1e-4)
    # Five copies of each row: the likelihood believes in 15,000 objects, the sandwich knows better by a factor.
    repeated = blr.fit(Phi, t, prior, sample_weight=np.full(3000, 5.0), threads=1)
    ratio = sandwich(repeated).gaussian.covariance / repeated.gaussian.covariance
    np.testing.assert_allclose(np.diag(ratio), 5, rtol=0.15)


@pytest.mark.parametrize("improve", [lambda q: q, blr.refine, lambda q: blr.sample_posterior(q, n_draws=256)])
def test_a_sandwich_keeps_the_evidence_and_the_verdict_and_predicts_by_its_own_covariance(
    improve: Callable[..., Any],
) -> None:
    rng = np.random.default_rng(6)
    Phi = np.column_stack([np.ones(60), rng.standard_normal(60)])
    t, weight = (rng.random(60) < 0.5).astype(float), np.full(60, 5.0)
    q = blr.fit(Phi, t, blr.GaussianPrior(0.0, 10.0), sample_weight=weight)
    found = sandwich(improve(q))
    assert found.log_evidence == q.log_evidence
    assert found.effective_parameters == q.effective_parameters
    assert found.trust == q.trust
    assert blr.leave_one_out(found) == blr.leave_one_out(q)
    np.testing.assert_array_equal(found.predict_proba(Phi), binary_exact(*found.logit_moments(Phi)))
    assert np.all(found.logit_moments(Phi)[1] > 2 * q.logit_moments(Phi)[1])


SCRIPT = Path(__file__).parents[2] / "benchmarks" / "plot_error.py"
FEW, MANY, DATA_SETS = 64, 512, 6


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_errors_fall_by_the_power_that_is_drawn(script: dict[str, Any]) -> None:
    few, many = (script["medians"](n, DATA_SETS) for n in (FEW, MANY))
    for name, power in (script["PROBABILITIES"] | script["EVIDENCES"]).items():
        found = np.log(many[name] / few[name]) / np.log(MANY / FEW)
        assert found == pytest.approx(power, abs=0.35), name
    assert many["refined"] < 1e-5 < many["plug-in"] < many["Laplace"] < 5e-3
