"""Verdicts: green where the probabilities of a fit are right, amber and red where they are not, with the reason."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from blr.gaussian import GaussianPrior
from blr.posterior.kinds import LaplacePosterior, Posterior
from blr.posterior.laplace import fit
from blr.posterior.variational import refine
from blr.selection.evidence import fit_evidence
from blr.trust.verdict import Trust, named_reasons
from tests.blr.conftest import Twin


def reasons(q: LaplacePosterior) -> str:
    return " | ".join(q.trust.reasons)


def test_plenty_of_data_is_green(dense: Twin) -> None:
    Phi, t = dense.binary(0, N=2000, M=4)
    trust = fit(Phi, t, GaussianPrior(0.0, 1.0)).trust
    assert trust.verdict == "green"
    assert trust.reasons == ("probabilities of this fit err by 0.001 on average, at most by 0.00",)
    assert trust.second_order_holds
    assert trust.numbers["shift"] < 0.1
    assert abs(trust.numbers["second_order"]) < 0.01
    assert trust.numbers["effective_draws"] > 0.95
    assert trust.numbers["separation"] == 0


def test_few_rows_are_amber(dense: Twin) -> None:
    Phi, t = dense.binary(3, N=30, M=6, scale=2.0)
    q = fit(Phi, t, GaussianPrior(0.0, 10.0))
    assert q.trust.verdict != "green"
    assert re.match(
        r"probabilities of this fit err by 0\.0\d\d on average, at most by 0\.\d\d: refine", reasons(q)
    )
    assert not q.trust.second_order_holds


def test_separable_with_a_broad_prior_is_red(dense: Twin) -> None:
    Phi, _ = dense.binary(0, N=60, M=3)
    t = np.where(Phi[:, 1] > 0, "late", "early")
    q = fit(Phi, t, GaussianPrior(0.0, 1e4))
    assert q.trust.verdict == "red"
    assert "complete separation: column(s) 1" in reasons(q)
    assert "tell early and late apart without error; only the prior keeps the weights finite" in reasons(q)
    assert q.trust.numbers["separation"] == 2


def test_reasons_with_names_of_functions_and_classes(dense: Twin) -> None:
    Phi, _ = dense.binary(0, N=60, M=3)
    wide = np.column_stack([Phi, 3 * Phi[:, 1], np.zeros(60)])
    q = fit(wide, (Phi[:, 1] > 0).astype(int), GaussianPrior(0.0, 1e4))
    functions, classes = ("1", "g_r", "r_i", "3 g_r", "none"), ("1", "0")
    named = named_reasons(q.trust.reasons, functions, classes)
    told = "; ".join(named)
    assert "tell 1 and 0 apart" in told
    assert "basis function(s) none hold zeros only" in told
    assert "basis function 3 g_r is a linear combination of basis function(s) g_r" in told
    assert "column" not in told
    assert named_reasons(named, functions, classes) == named


def test_separable_with_a_firm_prior_is_told_and_not_condemned(dense: Twin) -> None:
    Phi, _ = dense.binary(0, N=200, M=3)
    q = fit(Phi, (Phi[:, 1] > 0).astype(float), GaussianPrior(0.0, 0.05))
    assert q.trust.verdict in {"green", "amber"}
    assert "complete separation" in reasons(q)


def test_no_maximum_likelihood_is_red(dense: Twin) -> None:
    Phi, _ = dense.binary(0, N=60, M=3)
    q = fit(Phi, (Phi[:, 1] > 0).astype(float), None)
    assert q.trust.verdict == "red"
    assert "there is no maximum likelihood" in reasons(q)


@pytest.mark.parametrize(("prior", "verdict"), [(GaussianPrior(0.0, 1.0), "green"), (None, "red")])
def test_redundant_columns_are_named(dense: Twin, prior: GaussianPrior | None, verdict: str) -> None:
    Phi, t = dense.binary(0, N=500, M=3)
    wide = np.column_stack([Phi, 3 * Phi[:, 1], np.zeros(500)])
    q = fit(wide, t, prior)
    assert q.trust.verdict == verdict
    assert "is a linear combination of column(s)" in reasons(q)
    assert "column(s) 4 hold zeros only" in reasons(q)
    assert q.trust.numbers["redundant_columns"] == 2


def test_a_search_that_stopped_short_is_red(dense: Twin) -> None:
    Phi, t = dense.binary(0, N=500, M=3, scale=3.0)
    q = fit(Phi, t, GaussianPrior(0.0, 100.0), max_iter=2)
    assert q.trust.verdict == "red"
    assert "did not converge: iterations exhausted" in reasons(q)


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "cauchit", "cloglog", "softmax"])
def test_every_likelihood_has_a_verdict(dense: Twin, likelihood: str) -> None:
    Phi, t = dense.softmax(0, N=300, M=3, K=3) if likelihood == "softmax" else dense.binary(0, N=300, M=3)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0), likelihood)
    assert q.trust.verdict in {"green", "amber"}
    assert np.isfinite(q.second_order)


@pytest.mark.parametrize("separable", [False, True])
def test_a_softmax_of_two_classes_has_the_logistic_verdict(dense: Twin, *, separable: bool) -> None:
    Phi, t = dense.binary(0, N=60, M=3)
    t = (Phi[:, 1] > 0).astype(int) if separable else t.astype(int)
    one, two = fit(Phi, t, GaussianPrior(0.0, 4.0)), fit(Phi, t, GaussianPrior(0.0, 2.0), "softmax")
    assert one.trust.verdict == two.trust.verdict
    assert one.trust.numbers["mean_error"] == pytest.approx(two.trust.numbers["mean_error"], abs=1e-4)
    assert one.trust.numbers["separation"] == (2.0 if separable else 0.0)
    for name in ("shift", "second_order", "separation", "redundant_columns"):
        assert two.trust.numbers[name] == pytest.approx(one.trust.numbers[name], rel=1e-9)


def test_softmax_with_a_prior_that_couples_classes(dense: Twin) -> None:
    Phi, t = dense.softmax(0, N=300, M=3, K=3)
    S = dense.covariance(np.random.default_rng(0), 9)
    q = fit(Phi, t, GaussianPrior(np.arange(9) / 9, S), "softmax")
    assert q.trust.verdict in {"green", "amber"}


def test_a_stream_has_the_rows_verdict(dense: Twin) -> None:
    Phi, t = dense.binary(0, N=300, M=3)
    chunks = [(Phi[i : i + 70], t[i : i + 70], None) for i in range(0, 300, 70)]
    prior = GaussianPrior(0.0, 1.0)
    ours, theirs = fit(chunks, None, prior).trust, fit(Phi, t, prior).trust
    assert ours.verdict == theirs.verdict
    for name, value in theirs.numbers.items():
        if name not in ("mean_error", "largest_error"):  # of other rows
            assert ours.numbers[name] == pytest.approx(value, rel=1e-6)


def test_votes_and_weights_count(dense: Twin) -> None:
    """Ten votes a row are ten rows."""
    Phi, t = dense.binary(0, N=100, M=3)
    votes = fit(Phi, 7 * t + 1, GaussianPrior(0.0, 1.0), trials=np.full(100, 10.0))
    split = fit(
        np.repeat(Phi, 2, axis=0),
        np.tile([0.0, 1.0], 100),
        GaussianPrior(0.0, 1.0),
        sample_weight=np.column_stack([9 - 7 * t, 7 * t + 1]).ravel(),
    )
    assert votes.second_order == pytest.approx(split.second_order, rel=1e-9)
    assert votes.trust.numbers["shift"] == pytest.approx(split.trust.numbers["shift"], rel=1e-9)


def _two_weights(seed: int) -> tuple[LaplacePosterior, float]:
    """Return a small problem, and the true log evidence of its Laplace fit's prior, by the trapezoid rule."""
    rng = np.random.default_rng(seed)
    N = int(rng.integers(3, 30))
    Phi = np.column_stack([np.ones(N), rng.normal(size=N) * rng.choice([1, 3])])
    t, S = rng.random(N) < 1 / (1 + np.exp(-Phi[:, 1])), 10.0 ** rng.uniform(-1, 2, 2)
    q = fit(Phi, t, GaussianPrior(0.0, S))
    L = np.linalg.inv(q.cholesky).T
    z = np.linspace(-14, 14, 225)
    W = q.mean + np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1).reshape(-1, 2) @ L.T
    log_p = -np.logaddexp(0.0, np.where(t, -1, 1) * (W @ Phi.T)).sum(axis=1) - 0.5 * (W**2 / S).sum(axis=1)
    log_p -= 0.5 * np.log(S).sum() + np.log(2 * np.pi)
    return q, logsumexp(log_p) + 2 * np.log(z[1] - z[0]) + np.log(abs(np.linalg.det(L)))


@pytest.mark.parametrize("seed", [6, 17, 23, 144])
def test_a_second_order_term_that_is_small_and_wrong_does_not_hold(seed: int) -> None:
    """Its parts cancel, or three rows are too few for any order: by itself the term would pass."""
    q, log_evidence = _two_weights(seed)
    assert abs(q.second_order) < 0.12
    assert abs(q.log_evidence + q.second_order - log_evidence) > 0.015
    assert not q.trust.second_order_holds
    assert abs(q.trust.numbers["evidence_left"]) > 0.01


@pytest.mark.parametrize("seed", range(30, 40))
def test_evidence_of_small_problems_where_the_second_order_holds(seed: int) -> None:
    q, log_evidence = _two_weights(seed)
    left = abs(q.log_evidence + q.second_order - log_evidence)
    assert left < 0.015 or not q.trust.second_order_holds


def test_survives_saving_once_computed(dense: Twin) -> None:
    Phi, t = dense.binary(0, N=100, M=3)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0))
    with pytest.raises(
        RuntimeError, match=r"loaded from a file, which does not hold the training data that.*before you save"
    ):
        _ = Posterior.from_dict(q.to_dict()).trust
    trust = q.trust
    again = Posterior.from_dict(q.to_dict())
    assert again.trust == trust
    assert again.second_order == q.second_order
    assert Trust.from_dict(trust.to_dict()) == trust


@pytest.mark.parametrize("seed", range(6))
def test_evidence_is_right_where_its_second_order_holds(dense: Twin, seed: int) -> None:
    """Against a long importance sample, within 0.015 nats."""
    Phi, t = dense.softmax(seed, N=120, M=2, K=3) if seed % 2 else dense.binary(seed, N=60, M=3)
    likelihood = "softmax" if seed % 2 else "logistic"
    q = fit_evidence(Phi, t, likelihood, intercept_variance=10.0)
    rng, S = np.random.default_rng(1), 10_000
    A, n = q.gaussian, len(q.gaussian.mean)
    z = rng.standard_normal((S, n)) * np.sqrt(9 / rng.chisquare(9, (S, 1)))  # Student's t: no light tails
    log_q = -0.5 * (9 + n) * np.log1p(np.sum(z**2, axis=1) / 9)
    theta = A.mean + z @ A.inverse_cholesky
    prior = q.problem.solver_prior
    T = q.problem.transform
    W = theta[:, None] if likelihood == "logistic" else np.einsum("kc,scm->skm", T, theta.reshape(S, 2, -1))
    a = np.einsum("skm,nm->snk", W, Phi)
    if likelihood == "logistic":
        log_p = -np.logaddexp(0.0, np.where(t > 0, -1, 1) * a[:, :, 0]).sum(axis=1)
    else:
        log_p = np.sum(t * a, axis=2).sum(axis=1) - logsumexp(a, axis=2).sum(axis=1)
    log_p -= [prior.energy(x) for x in theta]
    norm = gammaln((9 + n) / 2) - gammaln(4.5) - 0.5 * n * np.log(9 * np.pi) + 0.5 * A.log_det_precision
    log_prior = 0.5 * np.linalg.slogdet(prior.precision / (2 * np.pi))[1]
    log_evidence = logsumexp(log_p - log_q) - np.log(S) - norm + log_prior
    left = abs(q.log_evidence + q.second_order - log_evidence)
    assert left < 0.015 or not q.trust.second_order_holds


@pytest.mark.parametrize("seed", range(8))
def test_the_stated_error_is_that_of_the_probabilities(seed: int) -> None:
    """Against the trapezoid rule over both weights, at new rows: within a factor of two, for separable rows too."""
    rng = np.random.default_rng(seed)
    N = int(rng.integers(8, 40))
    Phi = np.column_stack([np.ones(N), 2 * rng.normal(size=N)])
    t = Phi[:, 1] > 0.1 if seed % 4 == 0 else rng.random(N) < 1 / (1 + np.exp(-Phi[:, 1]))
    q = fit(Phi, t, GaussianPrior(0.0, 10.0))
    L = np.linalg.inv(q.cholesky).T
    z = np.linspace(-14, 14, 281)
    W = q.mean + np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1).reshape(-1, 2) @ L.T
    log_p = -np.logaddexp(0.0, np.where(t, -1, 1) * (W @ Phi.T)).sum(axis=1) - 0.05 * (W**2).sum(axis=1)
    new = np.column_stack([np.ones(25), np.linspace(-5, 5, 25)])
    exact = np.exp(log_p - logsumexp(log_p)) @ (1 / (1 + np.exp(-(W @ new.T))))
    error = np.abs(q.predict_proba(new) - exact).mean()
    assert 0.5 < q.trust.numbers["mean_error"] / error < 2.0
    r = refine(q)
    assert r.trust.numbers["mean_error"] < 0.2 * q.trust.numbers["mean_error"]
    assert np.abs(r.predict_proba(new) - exact).mean() < 4 * r.trust.numbers["mean_error"] + 1e-3
