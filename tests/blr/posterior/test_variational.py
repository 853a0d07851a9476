"""The refined posterior: a stationary point of its bound, a lower bound, and close to the references."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from blr.basis.kinds import fit_basis
from blr.gaussian import GaussianPrior
from blr.posterior import variational
from blr.posterior.kinds import RefinedPosterior
from blr.posterior.laplace import fit
from blr.posterior.variational import mean_shift, refine
from blr.predictive import expectations
from blr.predictive.expectations import expected_terms
from blr.selection.evidence import fit_evidence
from blr.sums import Rows
from tests.blr import dense
from tests.blr.conftest import fitted

REFERENCES = json.loads(
    (Path(__file__).parents[2] / "reference" / "posteriors.json").read_text(encoding="utf-8")
)
# No Gaussian describes a separable problem; the others are ordinary.
HARD = {
    "separable line",
    "separable line, broad prior",
    "one row of a class",
    "separable in eight",
    "three classes, separable",
}

each = pytest.mark.parametrize("reference", REFERENCES, ids=[r["name"] for r in REFERENCES])


def errors(q: RefinedPosterior, reference: dict[str, Any]) -> tuple[float, ...]:
    """Return the largest and the mean error of the predictive probabilities."""
    p = q.predict_proba(np.array(reference["test"]))
    d = np.abs(p - np.array(reference["probability"]))
    return float(d.max()), float(d.mean())


@each
def test_probabilities_of_the_reference_posteriors(reference: dict[str, Any]) -> None:
    q = fitted(reference)
    r = refine(q)
    largest, mean = errors(r, reference)
    assert r.converged
    if reference["name"] in HARD:
        assert not q.trust.second_order_holds or reference["name"] == "one row of a class"
        assert largest < 0.07
        assert mean < errors(q, reference)[1]
    else:
        assert largest < 0.01 + 3 * reference["error"]
        # 1e-3 to its digits: 0.00101 for the cauchit, whose verdict is amber.
        assert mean < 0.00105 + reference["error"]


@each
def test_typical_errors_are_those_of_the_reference_posteriors(reference: dict[str, Any]) -> None:
    """Within a factor of 2.5, where errors are not below 0.001."""
    r, new = refine(fitted(reference)), np.array(reference["test"])
    off = np.abs(r.predict_proba(new) - np.array(reference["probability"])).reshape(len(new), -1)
    true, typical = float(off.max(axis=1).mean()), float(r.typical_error(new).mean())
    slack = 0.001 + 3 * reference["error"]
    assert true / 2.5 - slack < typical < 2.5 * true + slack


def test_widening_brings_hard_posteriors_nearer_to_the_reference() -> None:
    hard = [(reference, refine(fitted(reference))) for reference in REFERENCES if reference["name"] in HARD]
    before = np.mean([errors(r, reference) for reference, r in hard], axis=0)
    after = np.mean([errors(r.widened(), reference) for reference, r in hard], axis=0)
    assert (after < 0.95 * before).all(), (before, after)


@each
def test_the_bound_is_one_and_the_evidence_stays_laplaces(reference: dict[str, Any]) -> None:
    q = fitted(reference)
    r = refine(q)
    assert r.elbo < reference["log_evidence"] + 4 * reference["log_evidence_error"] + 1e-3
    assert r.elbo > reference["log_evidence"] - 1.5
    for name in ("log_evidence", "log_likelihood", "bic", "effective_parameters", "n_effective"):
        assert getattr(r, name) == getattr(q, name)
    assert r.trust.numbers["shift"] == q.trust.numbers["shift"]
    assert r.trust.numbers["mean_error"] < 0.5 * q.trust.numbers["mean_error"]
    assert (r.kind, q.kind, r.laplace) == ("refined", "laplace", q)


@each
def test_evidence_of_the_references_where_the_second_order_holds(reference: dict[str, Any]) -> None:
    q = fitted(reference)
    if q.trust.second_order_holds:
        error = 0.015 + 4 * reference["log_evidence_error"]
        assert q.log_evidence + q.second_order == pytest.approx(reference["log_evidence"], abs=error)


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "cloglog", "cauchit"])
def test_the_mean_is_where_the_expected_gradient_vanishes(likelihood: str) -> None:
    Phi, t = dense.binary(1, N=60, M=3)
    r = refine(fit(Phi, t, GaussianPrior(0.2, 2.0), likelihood))
    value, gradient, H = Rows(Phi, t).accumulate(
        expected_terms(r.problem.likelihood, r.mean, r.gaussian.inverse_cholesky)
    )
    pull = gradient - (r.mean - 0.2) / 2
    assert np.sqrt(pull @ np.linalg.solve(r.precision, pull)) < 3e-3
    assert np.linalg.norm(np.linalg.solve(r.precision, H + np.eye(3) / 2) - np.eye(3)) < 1e-2
    S = np.linalg.inv(r.precision)
    divergence = 0.5 * (
        np.trace(S) / 2 + np.sum((r.mean - 0.2) ** 2) / 2 - 3 + 3 * np.log(2) - np.linalg.slogdet(S)[1]
    )
    assert r.elbo == pytest.approx(value - divergence, abs=1e-8)


@pytest.mark.parametrize("likelihood", ["logistic", "softmax"])
def test_rows_classes_weights_and_threads_do_not_matter(likelihood: str) -> None:
    softmax = likelihood == "softmax"
    Phi, t = dense.drawn(likelihood, N=80)
    prior = GaussianPrior(0.0, 1.0)
    r = refine(fit(Phi, t, prior, likelihood))
    order = np.random.default_rng(0).permutation(80)
    turned = refine(fit(Phi, t[:, ::-1] if softmax else 1 - t, prior, likelihood))
    rows = refine(fit(Phi[order], t[order], prior, likelihood))
    p = r.predict_proba(Phi)
    assert turned.elbo == pytest.approx(r.elbo, abs=1e-3)
    assert turned.predict_proba(Phi) == pytest.approx(p[:, ::-1] if softmax else 1 - p, abs=1e-3)
    assert rows.elbo == pytest.approx(r.elbo, abs=1e-6)
    twice = refine(fit(np.r_[Phi, Phi[:9]], np.r_[t, t[:9]], prior, likelihood))
    weighted = refine(fit(Phi, t, prior, likelihood, sample_weight=np.where(np.arange(80) < 9, 2.0, 1.0)))
    assert weighted.elbo == pytest.approx(twice.elbo, abs=1e-6)
    runs = [refine(fit(Phi, t, prior, likelihood, threads=n)) for n in (1, 2)]
    assert np.array_equal(runs[0].mean, runs[1].mean)
    chunks = [(Phi[i : i + 30], t[i : i + 30], None) for i in (0, 30, 60)]
    assert refine(fit(chunks, None, prior, likelihood)).elbo == pytest.approx(r.elbo, abs=1e-8)


def test_the_shift_is_cheap_and_good_where_laplace_is() -> None:
    Phi, t = dense.binary(3, N=150, M=4)
    q = fit_evidence(Phi, t)
    s, r = mean_shift(q), refine(q)
    assert q.trust.second_order_holds
    laplace, shifted = (np.abs(x.predict_proba(Phi) - r.predict_proba(Phi)).max() for x in (q, s))
    assert shifted < 0.2 * laplace
    assert np.array_equal(s.precision, q.precision)
    d = s.mean - q.mean
    assert np.sqrt(d @ q.precision @ d) == pytest.approx(q.trust.numbers["shift"], rel=1e-9)
    assert (s.kind, s.log_evidence) == ("shifted", q.log_evidence)


def test_refining_twice_is_refining_once() -> None:
    Phi, t = dense.binary(0)
    r = refine(fit(Phi, t, GaussianPrior(0.0, 1.0)))
    again = refine(r)
    assert np.array_equal(again.mean, r.mean)
    assert again.laplace is r.laplace


def test_without_a_prior_there_is_nothing_to_refine() -> None:
    Phi, t = dense.binary(0)
    q = fit(Phi, t, None)
    for function in (refine, mean_shift):
        with pytest.raises(
            ValueError, match=r"maximum-likelihood fit has no posterior to refine.*fit with a prior"
        ):
            function(q)


@pytest.mark.parametrize(
    ("module", "name", "nats", "error"),
    [(variational, "_COARSE_NODES", 0.02, 0.01), (expectations, "_MANY_NODES", 2e-3, 2e-3)],
    ids=["few nodes", "single precision"],
)
def test_a_quick_draft_ends_where_a_slow_one_does(
    module: ModuleType, name: str, nats: float, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five classes, of which some rows are far from any border."""
    rng, t = np.random.default_rng(5), np.arange(80) % 5
    centre = 2 * rng.normal(size=(5, 3))
    Phi = np.column_stack([np.ones(80), centre[t] + rng.normal(size=(80, 3))])
    q = fit(Phi, t, GaussianPrior.isotropic(4, 0.1), "softmax", classes=range(5))
    quick = refine(q, draft=True)
    monkeypatch.setattr(module, name, 10**9)
    plain = refine(q, draft=True)
    assert quick.elbo == pytest.approx(plain.elbo, abs=nats)
    np.testing.assert_allclose(quick.predict_proba(Phi), plain.predict_proba(Phi), atol=error)


def test_a_step_that_was_halved_often_grows_again() -> None:
    """Of separable classes under a broad prior: steps that stay short seem to gain nothing long before the end."""
    rng = np.random.default_rng(1)
    t = rng.integers(0, 5, 100)
    X = rng.normal(size=(5, 7))[t] + rng.normal(size=(100, 7)) * rng.lognormal(0, 0.3, (100, 1))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    Phi = fit_basis("polynomial", X, degree=2)(X)
    prior = GaussianPrior.isotropic(Phi.shape[1], 25.0**-2, intercept=0)
    q = fit(Phi, t, prior, "softmax", classes=range(5))
    draft = refine(q, draft=True)
    assert draft.n_iter < 120
    assert draft.elbo > refine(q, start=draft).elbo - 6.0


def test_a_search_that_is_lost_begins_again_with_a_narrower_posterior() -> None:
    """The Laplace fit of thirty separable classes is so wide that its expected curvature is nothing."""
    rng = np.random.default_rng(0)
    K, N = 30, 700
    centre, t = 2.2 * rng.normal(size=(K, 10)), rng.integers(0, K, N)
    X = centre[t] + rng.normal(size=(N, 10))
    X = np.column_stack([np.ones(N), (X - X.mean(axis=0)) / X.std(axis=0)])
    prior = GaussianPrior.isotropic(11, precision=25.0**-2, intercept=0)
    refined = refine(fit(X, t, prior=prior, likelihood="softmax", classes=range(K)), draft=True)
    assert refined.elbo > -1.0 * N
    assert refined.prediction(X).probability[np.arange(N), t].mean() > 0.9
