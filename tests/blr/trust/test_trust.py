"""Verdicts and the corrections that they rest on: green where the probabilities of a fit are right, else a reason."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import genpareto

import blr.trust.verdict
from blr.arrays import Matrix, Vector
from blr.fitting.newton import maximise
from blr.gaussian import Gaussian, GaussianPrior
from blr.likelihood.likelihoods import (
    LINKS,
    Bernoulli,
    Categorical,
    MislabelledBernoulli,
    MislabelledCategorical,
    unpack,
)
from blr.posterior.kinds import LaplacePosterior, Posterior
from blr.posterior.laplace import fit
from blr.posterior.variational import refine
from blr.sums import Rows, likelihood_terms
from blr.trust.verdict import (
    Trust,
    corrections,
    evidence_left,
    fit_pareto,
    laplace_ratios,
    smooth,
)
from tests.blr import dense


def reasons(q: LaplacePosterior) -> str:
    return " | ".join(q.trust.reasons)


def test_plenty_of_data_is_green() -> None:
    Phi, t = dense.binary(0, N=2000, M=4)
    trust = fit(Phi, t, GaussianPrior(0.0, 1.0)).trust
    assert trust.verdict == "green"
    assert trust.reasons == ("probabilities of this fit err by 0.001 on average, at most by 0.00",)
    assert trust.second_order_holds
    assert trust.numbers["shift"] < 0.1
    assert abs(trust.numbers["second_order"]) < 0.01
    assert trust.numbers["effective_draws"] > 0.95
    assert trust.numbers["separation"] == 0


def test_few_rows_are_amber() -> None:
    Phi, t = dense.binary(3, N=30, M=6, scale=2.0)
    q = fit(Phi, t, GaussianPrior(0.0, 10.0))
    assert q.trust.verdict != "green"
    assert re.match(
        r"probabilities of this fit err by 0\.0\d\d on average, at most by 0\.\d\d: refine", reasons(q)
    )
    assert not q.trust.second_order_holds


def test_separable_with_a_broad_prior_is_red() -> None:
    said = "tell early and late apart without error; "
    for N, prior, verdict, ending in (
        (60, GaussianPrior(0.0, 1e4), "red", "only the prior keeps the weights finite"),
        (200, GaussianPrior(0.0, 0.05), "green amber", "only the prior keeps the weights finite"),
        (60, None, "red", "there is no maximum likelihood"),
    ):
        Phi, _ = dense.binary(0, N=N, M=3)
        q = fit(Phi, np.where(Phi[:, 1] > 0, "late", "early"), prior)
        assert q.trust.verdict in verdict.split()
        assert "complete separation: column(s) 1" in reasons(q)
        assert said + ending in reasons(q)
        assert q.trust.numbers["separation"] == 2


@pytest.mark.parametrize(("prior", "verdict"), [(GaussianPrior(0.0, 1.0), "green"), (None, "red")])
def test_redundant_columns_are_named(prior: GaussianPrior | None, verdict: str) -> None:
    Phi, t = dense.binary(0, N=500, M=3)
    wide = np.column_stack([Phi, 3 * Phi[:, 1], np.zeros(500)])
    q = fit(wide, t, prior)
    assert q.trust.verdict == verdict
    assert "is a linear combination of column(s)" in reasons(q)
    assert "column(s) 4 hold zeros only" in reasons(q)
    assert q.trust.numbers["redundant_columns"] == 2


def test_a_search_that_stopped_short_is_red() -> None:
    Phi, t = dense.binary(0, N=500, M=3, scale=3.0)
    q = fit(Phi, t, GaussianPrior(0.0, 100.0), max_iter=2)
    assert q.trust.verdict == "red"
    assert "did not converge: iterations exhausted" in reasons(q)


@pytest.mark.parametrize("separable", [False, True])
def test_a_softmax_of_two_classes_has_the_logistic_verdict(*, separable: bool) -> None:
    Phi, t = dense.binary(0, N=60, M=3)
    t = (Phi[:, 1] > 0).astype(int) if separable else t.astype(int)
    one, two = fit(Phi, t, GaussianPrior(0.0, 4.0)), fit(Phi, t, GaussianPrior(0.0, 2.0), "softmax")
    assert one.trust.verdict == two.trust.verdict
    assert one.trust.numbers["mean_error"] == pytest.approx(two.trust.numbers["mean_error"], abs=1e-4)
    assert one.trust.numbers["separation"] == (2.0 if separable else 0.0)
    for name in ("shift", "second_order", "separation", "redundant_columns"):
        assert two.trust.numbers[name] == pytest.approx(one.trust.numbers[name], rel=1e-9)


def on_a_grid(q: LaplacePosterior, variance: Any) -> tuple[Matrix, Vector, float]:
    """Return weights about those of a fit of two classes, the log posterior there, and the log of a cell's area.

    `variance` (2,) is that of the weights' prior.
    """
    L, z, data = np.linalg.inv(q.cholesky).T, np.linspace(-14, 14, 281), q.problem.require_rows()
    W = q.mean + np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1).reshape(-1, 2) @ L.T
    log_p = -np.logaddexp(0.0, np.where(data.t > 0, -1, 1) * (W @ data.Phi.T)).sum(axis=1)
    log_p -= (0.5 * W**2 / variance + 0.5 * np.log(2 * np.pi * np.asarray(variance))).sum(axis=1)
    return W, log_p, 2 * np.log(z[1] - z[0]) + np.log(abs(np.linalg.det(L)))


def _two_weights(seed: int) -> tuple[LaplacePosterior, float]:
    """Return a small problem, and the true log evidence of its Laplace fit's prior, by the trapezoid rule."""
    rng = np.random.default_rng(seed)
    N = int(rng.integers(3, 30))
    Phi = np.column_stack([np.ones(N), rng.normal(size=N) * rng.choice([1, 3])])
    t, S = rng.random(N) < 1 / (1 + np.exp(-Phi[:, 1])), 10.0 ** rng.uniform(-1, 2, 2)
    q = fit(Phi, t, GaussianPrior(0.0, S))
    _, log_p, log_area = on_a_grid(q, S)
    return q, logsumexp(log_p) + log_area


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


def test_survives_saving_once_computed() -> None:
    Phi, t = dense.binary(0, N=100, M=3)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0))
    with pytest.raises(
        RuntimeError, match=r"loaded from a file, which does not hold the training data that.*before you save"
    ):
        _ = Posterior.from_dict(q.to_dict()).trust
    assert Trust.from_dict(q.trust.to_dict()) == q.trust
    assert Posterior.from_dict(q.to_dict()).second_order == q.second_order


@pytest.mark.parametrize("seed", range(8))
def test_the_stated_error_is_that_of_the_probabilities(seed: int) -> None:
    """Against the trapezoid rule over both weights, at new rows: within a factor of two, for separable rows too."""
    rng = np.random.default_rng(seed)
    N = int(rng.integers(8, 40))
    Phi = np.column_stack([np.ones(N), 2 * rng.normal(size=N)])
    t = Phi[:, 1] > 0.1 if seed % 4 == 0 else rng.random(N) < 1 / (1 + np.exp(-Phi[:, 1]))
    q = fit(Phi, t, GaussianPrior(0.0, 10.0))
    W, log_p, _ = on_a_grid(q, [10.0, 10.0])
    new = np.column_stack([np.ones(25), np.linspace(-5, 5, 25)])
    exact = np.exp(log_p - logsumexp(log_p)) @ (1 / (1 + np.exp(-(W @ new.T))))
    error = np.abs(q.predict_proba(new) - exact).mean()
    assert 0.5 < q.trust.numbers["mean_error"] / error < 2.0
    r = refine(q)
    assert r.trust.numbers["mean_error"] < 0.2 * q.trust.numbers["mean_error"]
    assert np.abs(r.predict_proba(new) - exact).mean() < 4 * r.trust.numbers["mean_error"] + 1e-3


CASES = {
    **{name: Bernoulli(link) for name, link in LINKS.items()},
    "softmax": Categorical(3),
    "softmax, all activations": Categorical(3, contrasts=False),
}


def prior_of(data: Rows, likelihood: Bernoulli | Categorical, mean: float = 0.0) -> Gaussian:
    D = likelihood.n_outputs * data.n_functions
    return Gaussian(np.full(D, mean), np.eye(D))


def fitted(data: Rows, likelihood: Bernoulli | Categorical, mean: float = 0.0) -> Gaussian:
    prior = prior_of(data, likelihood, mean)
    mode = maximise(lambda w: data.accumulate(likelihood_terms(likelihood, w)), prior, 0 * prior.mean)
    return Gaussian(mode.theta, mode.hessian + prior.precision)


def problem(likelihood: Bernoulli | Categorical, N: int = 60, M: int = 3) -> Rows:
    make = dense.softmax if isinstance(likelihood, Categorical) else dense.binary
    Phi, t = make(0, N=N, M=M)
    return Rows(Phi, t, np.random.default_rng(0).gamma(2.0, size=N))


def tensors(data: Rows, likelihood: Bernoulli, gaussian: Gaussian) -> tuple[Vector, float]:
    """Return the mean's shift and the second-order term from ψ_ijk and ψ_ijkl in full."""
    C, S = likelihood.n_outputs, gaussian.covariance
    D = len(gaussian.mean)
    third, fourth = np.zeros((D, D, D)), 0.0
    for phi, t, w in zip(data.Phi, data.t, data.weight, strict=True):
        J = np.kron(np.eye(C), phi)
        a = (J @ gaussian.mean)[None]
        packed = likelihood.curvature_along(a, t[None], np.eye(C)[None])
        R = np.stack([unpack(packed[:, :, i], C)[0] for i in range(C)])
        third += w * np.einsum("abc,ai,bj,ck->ijk", R, J, J, J, optimize=True)
        fourth += w * likelihood.fourth_on(a, t[None], (J @ S @ J.T)[None])[0]
    g = np.einsum("ijk,jk->i", third, S)
    sunset = np.einsum("ijk,lmn,il,jm,kn", third, third, S, S, S, optimize=True)
    return -0.5 * S @ g, -fourth / 8 + g @ S @ g / 8 + sunset / 12


@pytest.mark.parametrize("likelihood", CASES.values(), ids=CASES)
def test_equal_the_whole_tensors(likelihood: Bernoulli | Categorical) -> None:
    data = problem(likelihood)
    gaussian = fitted(data, likelihood)
    found = corrections(data, likelihood, gaussian)
    shift, second_order = tensors(data, likelihood, gaussian)
    assert found[0] == pytest.approx(shift, rel=1e-10, abs=1e-12)
    assert found[2] == pytest.approx(second_order, rel=1e-10)
    assert found[1] == pytest.approx(np.sqrt(shift @ gaussian.precision @ shift), rel=1e-10)
    assert found[3] == 60


@pytest.mark.parametrize(
    "likelihood",
    [*CASES.values(), MislabelledBernoulli(), MislabelledCategorical(3)],
    ids=[*CASES, "mislabelled logistic", "mislabelled softmax"],
)
def test_pairs_of_rows_give_what_slices_of_the_tensor_give(
    likelihood: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = problem(likelihood)
    if likelihood in (MislabelledBernoulli(), MislabelledCategorical(3)):
        one_hot = data.t if data.t.ndim == 2 else np.stack([1 - data.t, data.t], axis=1)
        data = Rows(data.Phi, 0.9 * one_hot + 0.05, data.weight)
    gaussian = fitted(data, likelihood)
    found = []
    for cube in (-1e9, 1e30):  # pairs that cost nothing, and pairs that cost too much
        monkeypatch.setattr(blr.trust.verdict, "_CUBE", cube)
        monkeypatch.setattr(blr.trust.verdict, "_HELD", 5000)  # in blocks
        found.append(corrections(data, likelihood, gaussian)[2])
    assert found[0] == pytest.approx(found[1], rel=1e-10)


def test_scales_and_collinear_columns_lose_no_digits() -> None:
    """1, x, x² and x³ of x about 30, by 1e9: a Gram matrix of condition 1e20."""
    Phi, t = dense.binary(0, N=200, M=2)
    x = Phi[:, 1]
    good = np.column_stack([np.ones(200), x, x**2, x**3])
    mix = np.array([[1, 30, 900, 27000], [0, 1, 60, 2700], [0, 0, 1, 90], [0, 0, 0, 1.0]]) * [1, 1e9, 1, 1e-9]
    data = Rows(good, t)
    reference = corrections(data, Bernoulli(), fitted(data, Bernoulli()))
    A = fitted(data, Bernoulli())
    back = np.linalg.inv(mix)
    moved = Gaussian(back @ A.mean, mix.T @ A.precision @ mix)
    found = corrections(Rows(good @ mix, t), Bernoulli(), moved)
    assert found[2] == pytest.approx(reference[2], rel=1e-3)
    assert found[1] == pytest.approx(reference[1], rel=1e-3)


@pytest.mark.parametrize("K", [2, 4])
def test_some_rows_tell_the_term_of_all(monkeypatch: pytest.MonkeyPatch, K: int) -> None:
    likelihood = Bernoulli() if K == 2 else Categorical(K)
    Phi, t = dense.binary(0, N=4000, M=8) if K == 2 else dense.softmax(0, N=4000, M=8, K=K)
    data = Rows(Phi, t)
    gaussian = fitted(data, likelihood)
    exact = corrections(data, likelihood, gaussian)
    monkeypatch.setattr(blr.trust.verdict, "_FLOPS", 3e5 if K == 2 else 6e6)
    part = corrections(data, likelihood, gaussian)
    assert exact[3] == 4000
    assert part[3] <= 1000
    assert part[2] == pytest.approx(exact[2], abs=2e-4)
    assert part[1] == exact[1]


@pytest.mark.parametrize("k", [-0.3, 0.2, 0.7, 1.5])
def test_the_pareto_shape_is_found(k: float) -> None:
    x = np.sort(genpareto.rvs(k, scale=3.0, size=20_000, random_state=np.random.default_rng(0)))
    shape, scale = fit_pareto(x)
    assert shape == pytest.approx(k, abs=0.03)
    assert scale == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize(("sd", "low", "high"), [(1.2, -np.inf, 0.2), (0.6, 0.45, 1.0), (0.45, 0.6, 1.2)])
def test_k_hat_tells_a_proposal_that_is_too_narrow(sd: float, low: float, high: float) -> None:
    """For a normal target of sd 1 and a proposal of sd s the ratios' tail has k = 1 - s²."""
    x = sd * np.random.default_rng(0).standard_normal(4000)
    found = smooth(-0.5 * x**2 + 0.5 * (x / sd) ** 2)
    assert low < found[1] < high
    assert found[0].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)], ids=["logistic", "softmax"])
def test_ratios_are_posterior_over_approximation(likelihood: Any) -> None:
    data = problem(likelihood, N=80)
    prior, gaussian = prior_of(data, likelihood, 0.2), fitted(data, likelihood, 0.2)
    ratio = laplace_ratios(data, likelihood, gaussian, 80)
    draws = np.random.default_rng(0).standard_normal((len(ratio), len(gaussian.mean)))
    w = gaussian.mean + draws @ gaussian.inverse_cholesky
    terms = likelihood_terms(likelihood, gaussian.mean, hessian=False)
    posterior = [
        data.accumulate(likelihood_terms(likelihood, x, hessian=False))[0] - prior.energy(x) for x in w
    ]
    at_mode = data.accumulate(terms)[0] - prior.energy(gaussian.mean)
    expected = np.array(posterior) - at_mode + 0.5 * np.sum(draws**2, axis=1)
    assert ratio == pytest.approx(expected, abs=1e-9)


def test_equal_ratios_are_a_perfect_approximation_and_those_of_any_range_are_finite() -> None:
    assert smooth(np.full(500, 3.0))[1:] == (0.0, pytest.approx(1.0))
    _, k, effective = smooth(np.linspace(0.0, 1e5, 500))
    assert 5 < k < np.inf
    assert effective == pytest.approx(1 / 500, rel=0.01)


@pytest.mark.parametrize("variance", [0.5, 4.0, 50.0])
def test_is_that_of_quadrature(variance: float) -> None:
    t, x = np.array([1.0, 1.0, 0.0, 1.0]), np.array([0.3, 1.0, -0.5, 2.0])
    q = fit(x[:, None], t, GaussianPrior(0.0, variance))

    def joint(w: float) -> float:
        log_p = -np.logaddexp(0.0, np.where(t > 0, -1, 1) * x * w).sum() - 0.5 * w**2 / variance
        return np.exp(log_p) / np.sqrt(2 * np.pi * variance)

    truth = np.log(quad(joint, -100, 100, points=[0, 5], limit=200)[0])
    left, error = evidence_left(q.problem, q.gaussian, q.second_order, 0.01, len(t))
    assert left == pytest.approx(truth - q.log_evidence - q.second_order, abs=0.002 + 4 * error)
