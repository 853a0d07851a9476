"""Laplace fits against the dense twin, scikit-learn, quadrature, and unchanged by what must not matter."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.linear_model import LogisticRegression

from blr.arrays import Vector
from blr.gaussian import GaussianPrior
from blr.posterior.kinds import LaplacePosterior, Posterior
from blr.posterior.laplace import fit
from blr.posterior.variational import refine
from blr.selection.evidence import fit_evidence
from tests.blr import dense
from tests.blr.conftest import hard_inputs


def distance(q: LaplacePosterior, mean: Vector) -> float:
    """Return how far the mean is from another one, in posterior sd."""
    d = q.mean - mean
    return float(np.sqrt(d @ q.precision @ d))


# The twin: plain, dense, in all K M weights


@pytest.mark.parametrize("seed", range(3))
def test_logistic_is_the_twins(seed: int) -> None:
    Phi, t = dense.binary(seed, N=150, M=4)
    rng = np.random.default_rng(seed)
    m0, S0, weight = rng.standard_normal(4), dense.covariance(rng, 4), rng.gamma(2.0, size=150)
    q = fit(Phi, t, GaussianPrior(m0, S0), sample_weight=weight)
    twin = dense.fit(Phi, t, m0, S0, weight=weight)
    assert distance(q, twin.mean) < 1e-8
    assert q.precision == pytest.approx(twin.precision, rel=1e-10)
    log_det = np.linalg.slogdet(twin.precision)[1]
    assert 2 * np.log(np.diag(q.cholesky)).sum() == pytest.approx(log_det, abs=1e-8)
    assert q.log_likelihood == pytest.approx(twin.log_likelihood, abs=1e-8)
    assert q.log_evidence == pytest.approx(twin.log_evidence, abs=1e-8)
    assert q.log_evidence == q.log_likelihood + q.log_occam_factor
    assert q.bic == pytest.approx(twin.log_likelihood - 2 * np.log(weight.sum()), abs=1e-8)


@pytest.mark.parametrize("form", ["shared", "shared, with means", "classes unlike", "classes coupled"])
def test_softmax_is_the_twins(form: str) -> None:
    """Solved in contrasts where the prior treats classes alike, in all weights where it does not: the same."""
    Phi, t = dense.softmax(1, N=120, M=3, K=3)
    rng = np.random.default_rng(1)
    S = dense.covariance(rng, 3)
    m0 = np.zeros(9) if form == "shared" else rng.standard_normal(9)
    full = {
        "shared": np.kron(np.eye(3), S),
        "shared, with means": np.kron(np.eye(3), S),
        "classes unlike": np.diag(rng.gamma(3.0, size=9)),
        "classes coupled": dense.covariance(rng, 9),
    }[form]
    prior = GaussianPrior(0.0, S) if form == "shared" else GaussianPrior(m0, full)
    q = fit(Phi, t, prior, "softmax")
    twin = dense.fit(Phi, t, m0, full, "softmax")
    assert q.problem.likelihood.contrasts == form.startswith("shared")
    assert distance(q, twin.mean) < 1e-8
    assert q.precision == pytest.approx(twin.precision, rel=1e-9, abs=1e-9)
    assert q.log_evidence == pytest.approx(twin.log_evidence, abs=1e-8)
    assert q.log_likelihood == pytest.approx(twin.log_likelihood, abs=1e-8)
    assert q.bic == pytest.approx(twin.log_likelihood - 3 * np.log(120), abs=1e-8)


@pytest.mark.parametrize("precision", [1e-3, 1.0, 1e3])
def test_many_classes_are_the_twins(precision: float) -> None:
    """Steps without a Hessian lead to the mode that Newton's lead to, rare classes and few rows included."""
    Phi, t = dense.softmax(3, N=80, M=3, K=12)
    m0 = np.random.default_rng(0).standard_normal(36)
    q = fit(Phi, t, GaussianPrior(m0, np.full(36, 1 / precision)), "softmax")
    twin = dense.fit(Phi, t, m0, np.eye(36) / precision, "softmax")
    assert q.converged
    assert distance(q, twin.mean) < 1e-8
    assert q.log_evidence == pytest.approx(twin.log_evidence, abs=1e-8)


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "softmax"])
def test_not_a_bit_depends_on_the_threads(likelihood: str) -> None:
    Phi, t = dense.drawn(likelihood, N=9000, M=60)
    fits = [fit(Phi, t, GaussianPrior(0.0, 1.0), likelihood, threads=n) for n in (1, 2, 4)]
    for q in fits[1:]:
        assert np.array_equal(q.mean, fits[0].mean)
        assert np.array_equal(q.precision, fits[0].precision)
        assert q.log_evidence == fits[0].log_evidence


def test_effective_parameters_are_the_trace() -> None:
    Phi, t = dense.binary(0)
    q = fit(Phi, t, GaussianPrior(0.0, 0.5))
    H = q.precision - 2 * np.eye(4)
    assert q.effective_parameters == pytest.approx(np.trace(H @ np.linalg.inv(q.precision)), rel=1e-10)


# Other people's modes


@pytest.mark.parametrize("K", [2, 3])
def test_scikit_learn_finds_the_same_mode(K: int) -> None:
    Phi, t = dense.binary(2) if K == 2 else dense.softmax(2)
    labels = t if K == 2 else t.argmax(axis=1)
    q = fit(Phi, labels, GaussianPrior(0.0, 0.5), "logistic" if K == 2 else "softmax")
    theirs = LogisticRegression(C=0.5, fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=500)
    theirs.fit(Phi, labels)
    assert q.mean == pytest.approx(theirs.coef_.ravel(), abs=1e-6)
    expected = theirs.predict_proba(Phi)
    ours = q.predict_proba(Phi, "plugin")
    assert ours == pytest.approx(expected[:, 1] if K == 2 else expected, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "link"),
    [("logistic", "Logit"), ("probit", "Probit"), ("cauchit", "Cauchy"), ("cloglog", "CLogLog")],
)
def test_statsmodels_finds_the_same_maximum_likelihood(name: str, link: str) -> None:
    sm = pytest.importorskip("statsmodels.api")
    Phi, t = dense.binary(4, N=300, M=3)
    family = sm.families.Binomial(getattr(sm.families.links, link)())
    theirs = sm.GLM(t, Phi, family=family).fit(tol=1e-12, maxiter=300)
    q = fit(Phi, t, None, name)
    assert q.mean == pytest.approx(theirs.params, abs=1e-6)
    assert q.log_likelihood == pytest.approx(theirs.llf, abs=1e-8)
    assert np.isnan(q.log_evidence)


# Evidence by brute force


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "cauchit", "cloglog"])
def test_evidence_in_one_dimension_by_quadrature(likelihood: str) -> None:
    rng = np.random.default_rng(5)
    Phi = rng.normal(1.0, 1.0, (300, 1))
    t = (rng.random(300) < 1 / (1 + np.exp(-0.7 * Phi[:, 0]))).astype(float)
    q = fit(Phi, t, GaussianPrior(0.3, 2.0), likelihood)

    def joint(w: float) -> float:
        prior = -0.25 * (w - 0.3) ** 2 - 0.5 * np.log(4 * np.pi)
        return np.exp(dense.log_likelihood(Phi, t, np.array([w]), likelihood) + prior - q.log_evidence)

    sd = 1 / np.sqrt(q.precision[0, 0])
    ratio, _ = quad(joint, q.mean[0] - 12 * sd, q.mean[0] + 12 * sd, epsabs=0, epsrel=1e-10)
    assert np.log(ratio) == pytest.approx(0.0, abs=0.015)
    assert np.log(ratio) == pytest.approx(q.second_order, abs=2e-4)


# What must not matter


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "softmax"])
def test_row_order_does_not_matter(likelihood: str) -> None:
    Phi, t = dense.drawn(likelihood)
    order = np.random.default_rng(0).permutation(len(t))
    orders = (Phi, t), (Phi[order], t[order])
    one, other = (fit(P, x, GaussianPrior(0.0, 1.0), likelihood) for P, x in orders)
    assert distance(one, other.mean) < 1e-8
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-9)


def test_class_order_does_not_matter() -> None:
    Phi, t = dense.softmax(0, K=4)
    order = [2, 0, 3, 1]
    one = fit(Phi, t, GaussianPrior(0.0, 1.0), "softmax")
    other = fit(Phi, t[:, order], GaussianPrior(0.0, 1.0), "softmax")
    assert other.mean.reshape(4, -1) == pytest.approx(one.mean.reshape(4, -1)[order], abs=1e-10)
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-9)
    assert other.predict_proba(Phi) == pytest.approx(one.predict_proba(Phi)[:, order], abs=2e-4)
    mean, covariance = one.logit_moments(Phi)
    assert other.logit_moments(Phi)[0] == pytest.approx(mean[:, order], abs=1e-10)
    assert other.logit_moments(Phi)[1] == pytest.approx(covariance[:, order][:, :, order], abs=1e-10)
    assert one.predict_proba(np.empty((0, 4))).shape == (0, 4)


@pytest.mark.parametrize("likelihood", ["logistic", "cauchit", "softmax"])
def test_a_duplicated_row_is_a_weight_of_two(likelihood: str) -> None:
    Phi, t = dense.drawn(likelihood)
    rows = np.r_[: len(t), :40]
    twice = fit(Phi[rows], t[rows], GaussianPrior(0.0, 1.0), likelihood)
    weight = np.where(np.arange(len(t)) < 40, 2.0, 1.0)
    weighted = fit(Phi, t, GaussianPrior(0.0, 1.0), likelihood, sample_weight=weight)
    assert distance(twice, weighted.mean) < 1e-8
    for name in ("log_evidence", "log_likelihood", "bic", "n_effective", "effective_parameters"):
        assert getattr(weighted, name) == pytest.approx(getattr(twice, name), abs=1e-8)


def test_a_count_row_is_its_split_rows() -> None:
    Phi, _ = dense.binary(0, N=50)
    rng = np.random.default_rng(0)
    n = rng.integers(0, 6, 50)
    k = rng.binomial(n, 0.4)
    counts = fit(Phi, k, GaussianPrior(0.0, 1.0), trials=n)
    t = np.concatenate([np.r_[np.ones(a), np.zeros(b - a)] for a, b in zip(k, n, strict=True)])
    split = fit(np.repeat(Phi, n, axis=0), t, GaussianPrior(0.0, 1.0))
    assert distance(counts, split.mean) < 1e-8
    assert counts.log_evidence == pytest.approx(split.log_evidence, abs=1e-8)
    assert counts.bic == pytest.approx(split.bic, abs=1e-8)
    votes = rng.multinomial(5, [0.2, 0.3, 0.5], 50)
    counts = fit(Phi, votes, GaussianPrior(0.0, 1.0), "softmax")
    labels = np.concatenate([np.repeat([0, 1, 2], v) for v in votes])
    split = fit(np.repeat(Phi, 5, axis=0), labels, GaussianPrior(0.0, 1.0), "softmax")
    assert distance(counts, split.mean) < 1e-8
    assert counts.log_evidence == pytest.approx(split.log_evidence, abs=1e-8)


def test_two_class_softmax_is_the_logistic_with_the_matching_prior() -> None:
    """The logit is a difference of two weights, so its prior variance is twice theirs."""
    Phi, t = dense.binary(0)
    S, m0 = dense.covariance(np.random.default_rng(0), 4), np.random.default_rng(1).standard_normal(8)
    softmax = fit(Phi, np.column_stack([1 - t, t]), GaussianPrior(m0, np.kron(np.eye(2), S)), "softmax")
    logistic = fit(Phi, t, GaussianPrior(m0[4:] - m0[:4], 2 * S))
    assert softmax.log_evidence == pytest.approx(logistic.log_evidence, abs=1e-8)
    assert softmax.mean[4:] - softmax.mean[:4] == pytest.approx(logistic.mean, abs=1e-9)
    assert softmax.predict_proba(Phi)[:, 1] == pytest.approx(logistic.predict_proba(Phi), abs=1e-7)


@pytest.mark.parametrize("likelihood", ["logistic", "softmax"])
def test_a_linear_change_of_basis_with_its_prior_changes_nothing(likelihood: str) -> None:
    Phi, t = dense.drawn(likelihood)
    rng = np.random.default_rng(2)
    B = rng.standard_normal((4, 4)) + 2 * np.eye(4)
    m0, S = rng.standard_normal(4), dense.covariance(rng, 4)
    back = np.linalg.inv(B)
    K = 3 if likelihood == "softmax" else 1
    one = fit(Phi, t, GaussianPrior(m0, S), likelihood)
    other = fit(Phi @ B, t, GaussianPrior(back @ m0, back @ S @ back.T), likelihood)
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)
    assert (B @ other.mean.reshape(K, 4).T).T.ravel() == pytest.approx(one.mean, abs=1e-8)
    assert other.predict_proba(Phi @ B) == pytest.approx(one.predict_proba(Phi), abs=2e-4)


def test_a_stream_is_its_rows() -> None:
    for likelihood in ("logistic", "softmax"):
        Phi, t = dense.drawn(likelihood)
        w = np.linspace(0.5, 2, len(Phi))
        chunks = [(Phi[i : i + 33], t[i : i + 33], w[i : i + 33]) for i in range(0, len(Phi), 33)]
        ours = fit(chunks, None, GaussianPrior(0.0, 1.0), likelihood)
        theirs = fit(Phi, t, GaussianPrior(0.0, 1.0), likelihood, sample_weight=w)
        assert distance(ours, theirs.mean) < 1e-8
        assert ours.log_evidence == pytest.approx(theirs.log_evidence, abs=1e-8)
        assert ours.bic == pytest.approx(theirs.bic, abs=1e-8)


def test_named_classes_in_a_stream() -> None:
    Phi, t = dense.softmax(0, K=3)
    names = np.array(["E", "S", "I"])[t.argmax(axis=1)]
    chunks = [(Phi[i : i + 70], names[i : i + 70], None) for i in range(0, len(Phi), 70)]
    q = fit(chunks, None, GaussianPrior(0.0, 1.0), "softmax", classes=("E", "S", "I"))
    assert q.classes == ("E", "S", "I")
    theirs = fit(Phi, names, GaussianPrior(0.0, 1.0), "softmax", classes=("E", "S", "I"))
    assert distance(q, theirs.mean) < 1e-8


# Hard inputs: a result, finite, with its verdict


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "cloglog", "softmax"])
@pytest.mark.parametrize("name", hard_inputs())
def test_hard_inputs_give_a_result(name: str, likelihood: str) -> None:
    Phi, t = hard_inputs()[name]
    if likelihood == "softmax":
        t = np.column_stack([1 - t, t, np.zeros(len(t))])  # a third class is absent
    q = fit(Phi, t, GaussianPrior.isotropic(Phi.shape[1], 1.0), likelihood)
    r = refine(q)
    assert r.elbo <= 0
    for found in (q, fit_evidence(Phi, t, likelihood), r):
        assert found.converged, found.status
        assert np.all(np.isfinite(found.mean))
        assert np.isfinite(found.log_evidence)
        p = found.predict_proba(Phi)
        assert np.all((p >= 0) & (p <= 1))
    assert q.trust.verdict in {"green", "amber", "red"}


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scales_change_nothing_but_the_weights(scale: float) -> None:
    Phi, t = dense.binary(0)
    s = np.array([1.0, scale, 1.0, 1 / scale])
    one = fit(Phi, t, GaussianPrior(0.0, np.ones(4)))
    other = fit(Phi * s, t, GaussianPrior(0.0, 1 / s**2))
    assert other.mean * s == pytest.approx(one.mean, rel=1e-8)
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)
    assert other.predict_proba(Phi * s) == pytest.approx(one.predict_proba(Phi), abs=1e-9)


# Prediction from draws, and saving


def test_samples_have_the_posteriors_moments() -> None:
    Phi, t = dense.softmax(0, N=100, M=2, K=3)
    q = fit(Phi, t, GaussianPrior(0.0, [4.0, 1.0]), "softmax")
    draws = q.sample(100_000, np.random.default_rng(0))
    assert draws.shape == (100_000, 6)
    covariance = np.linalg.inv(q.precision)
    assert draws.mean(axis=0) == pytest.approx(q.mean, abs=5 * np.sqrt(covariance.max() / 1e5))
    assert np.cov(draws.T) == pytest.approx(covariance, abs=0.03 * covariance.max())


def test_the_formula_of_moderation_is_the_links_own() -> None:
    Phi, t = dense.binary(0, N=60, M=3)
    probit, cauchit = (fit(Phi, t, GaussianPrior(0.0, 10.0), link) for link in ("probit", "cauchit"))
    assert np.array_equal(probit.predict_proba(Phi, "probit"), probit.predict_proba(Phi))
    said = "formula for the logistic link, but this fit has the cauchit link; use 'exact'"
    with pytest.raises(ValueError, match=said):
        cauchit.predict_proba(Phi, "probit")


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "softmax"])
def test_monte_carlo_agrees_with_the_integral_within_its_error(likelihood: str) -> None:
    Phi, t = dense.drawn(likelihood, N=40)
    q = fit(Phi, t, GaussianPrior(0.0, 4.0), likelihood)
    drawn = partial(q.predict_proba, Phi, "monte_carlo", n_samples=4000)
    p, error = drawn(rng=np.random.default_rng(0), return_error=True)
    assert p.shape == error.shape == q.predict_proba(Phi).shape
    z = (p - q.predict_proba(Phi)) / error
    assert np.abs(z).max() < 5
    assert np.array_equal(p, drawn(rng=np.random.default_rng(0)))


def test_logit_moments_are_linear_maps_of_the_weights() -> None:
    Phi, t = dense.softmax(0, N=50, M=2, K=3)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0), "softmax")
    mean, covariance = q.logit_moments(Phi[:5])
    centre = np.eye(3) - 1 / 3
    for n in range(5):
        J = centre @ np.kron(np.eye(3), Phi[n])
        assert mean[n] == pytest.approx(J @ q.mean, abs=1e-10)
        assert covariance[n] == pytest.approx(J @ np.linalg.inv(q.precision) @ J.T, abs=1e-10)


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "softmax"])
@pytest.mark.parametrize("prior", [GaussianPrior(0.0, 2.0), None])
def test_survives_its_dictionary(likelihood: str, prior: GaussianPrior | None) -> None:
    Phi, t = dense.drawn(likelihood)
    q = fit(Phi, t, prior, likelihood)
    again = Posterior.from_dict(q.to_dict())
    assert np.array_equal(again.predict_proba(Phi), q.predict_proba(Phi))
    np.testing.assert_equal(again.to_dict(), q.to_dict())


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "cauchit", "cloglog"])
def test_a_prior_mean_far_from_the_data_is_no_obstacle(likelihood: str) -> None:
    """Newton's steps are of a unit of activation where the link is all but flat: a hundred are not enough."""
    Phi, t = dense.binary(0, N=60, M=4)
    q = fit(Phi, t, GaussianPrior([150.0, 90.0, -120.0, 60.0], 1e4), likelihood)
    assert q.converged
    assert q.n_iter < 30
    near = fit(Phi, t, GaussianPrior(0.0, 1e4), likelihood)
    assert q.predict_proba(Phi) == pytest.approx(near.predict_proba(Phi), abs=0.02)


# Bad input: what was got, what was expected, what to do


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Phi": np.array([[1, np.nan], [1, 2], [np.inf, 1]])}, r"2 value\(s\).*2 row\(s\).*row 0, column 1"),
        ({"Phi": np.ones((2, 2))}, r"Phi has 2 rows but the targets have 3"),
        ({"Phi": np.ones(3)}, r"Phi must have 2 dimension\(s\), got shape \(3,\)"),
        ({"Phi": np.empty((0, 2))}, r"Phi is empty, got shape \(0, 2\); give at least one row"),
        ({"Phi": [["a", "b"]] * 3}, r"Phi must be numeric"),
        ({"Phi": np.ones((3, 2)) * 1j}, r"Phi must be real numbers, got complex128"),
        ({"Phi": np.ma.masked_equal(np.eye(3), 1)}, r"masked values in 3 row\(s\).*row 0.*impute"),
        ({"Phi": np.diag([1, 1e200, 1])}, r"Phi holds 1e\+200 at row 1, column 1; expected .* below 1e\+100"),
        ({"t": [0, 1, 2]}, r"must lie in \[0, 1\], got 2.0 at row 2.*'softmax'"),
        ({"t": []}, r"targets are empty"),
        ({"sample_weight": [1, -1, 1]}, r"sample_weight must not be negative, got -1.0 at row 1"),
        ({"sample_weight": [1, 1]}, r"sample_weight has 2 rows but the targets have 3"),
        ({"sample_weight": [0, 0, 0]}, r"every row has weight zero; give at least one row a positive"),
        ({"t": None}, r"Phi is a stream of chunks.*got a first chunk that is a ndarray"),
        ({"prior": GaussianPrior(0.0, np.ones(3))}, r"prior has 3 weights but the model has 2"),
        (
            {"likelihood": "probit", "t": ["a", "b", "c"]},
            r"two classes, got \['a', 'b', 'c'\]; use 'softmax'",
        ),
        ({"likelihood": "softmax", "t": [[1, 0, -1]] * 3}, r"counts must not be negative, got -1.0 at row 0"),
    ],
)
def test_says_what_is_wrong(change: dict[str, Any], message: str) -> None:
    given = {"Phi": np.eye(3)[:, :2] + 1, "t": [0, 1, 0], "prior": GaussianPrior(0.0, 1.0)} | change
    with pytest.raises(ValueError, match=message):
        fit(given.pop("Phi"), given.pop("t"), given.pop("prior"), **given)


@pytest.mark.parametrize(
    ("stream", "options", "message"),
    [
        (iter([]), {}, r"give a list, or an object whose __iter__ starts again"),
        ([], {}, r"the stream is empty"),
        ([(np.ones((2, 2)), [0, 1, 1], None)], {}, r"a chunk's Phi has 2 rows but its targets have 3"),
        ([(np.ones((2, 2)), [0, 1], None)], {"likelihood": "softmax"}, r"a stream of labels needs classes="),
        ([(np.ones((2, 2)), ["a", "b"], None)], {}, r"a stream of labels needs classes="),
        ([(np.ones((2, 2)), [0, 1], None), (np.ones((2, 3)), [0, 1], None)], {}, r"3 columns.*first had 2"),
        ([(np.ones((2, 2)), [0, 1])], {}, r"got a first chunk that is a tuple of 2; give such chunks, or t"),
        ([(np.ones((2, 2)), [0, 1], None)], {"trials": [1, 1]}, r"trials .* cannot be used with a stream"),
    ],
)
def test_says_what_is_wrong_with_a_stream(stream: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(stream, None, GaussianPrior(0.0, 1.0), **options)


def test_says_what_is_wrong_with_a_prediction_or_a_prior() -> None:
    Phi, t = dense.binary(0)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0))
    with pytest.raises(ValueError, match=r"design matrix has 3 columns but the posterior has 4"):
        q.predict_proba(Phi[:, :3])
    with pytest.raises(ValueError, match=r"unknown method 'bridge'; expected one of plugin, probit"):
        q.predict_proba(Phi, "bridge")
    with pytest.raises(ValueError, match=r"no sampling error; use return_error with 'monte_carlo'"):
        q.predict_proba(Phi, return_error=True)
    with pytest.raises(ValueError, match=r"n_samples is 1; expected 2 or more draws"):
        q.predict_proba(Phi, "monte_carlo", n_samples=1)
    with pytest.raises(TypeError, match=r"prior is a float, expected a GaussianPrior, or None"):
        fit(Phi, t, 1.0)
