"""Sampled posteriors, their chains and their evidence against references, quadrature, and themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import blr.posterior.sampling
from blr.arrays import Matrix, Vector
from blr.fitting.problem import Problem
from blr.gaussian import Gaussian, GaussianPrior
from blr.likelihood.likelihoods import LINKS, Bernoulli, Categorical
from blr.posterior.kinds import Posterior
from blr.posterior.laplace import fit
from blr.posterior.sampling import (
    Hamiltonian,
    _mean_autocovariance,
    bridge_evidence,
    convergence,
    effective_size,
    sample_posterior,
    warm_up,
)
from blr.sums import Rows, likelihood_terms
from blr.trust.verdict import draw_terms, log_posterior, whitened_density
from tests.blr import dense
from tests.blr.conftest import fitted

REFERENCES = json.loads(
    (Path(__file__).parents[2] / "reference" / "posteriors.json").read_text(encoding="utf-8")
)


QUICKEST = 4  # every so many of the references is tried by `make test`, all by `make long`


@pytest.mark.parametrize(
    "reference",
    [
        pytest.param(r, id=r["name"], marks=[pytest.mark.long] if i % QUICKEST else [])
        for i, r in enumerate(REFERENCES)
    ],
)
def test_probabilities_of_the_reference_posteriors(reference: dict[str, Any]) -> None:
    s = sample_posterior(fitted(reference))
    p = s.predict_proba(np.array(reference["test"]))
    assert np.abs(p - np.array(reference["probability"])).max() < 0.01 + reference["error"]
    assert s.trust.verdict == "green", s.trust
    assert s.trust.numbers["r_hat"] < 1.01


@pytest.mark.parametrize(
    "likelihood",
    [*(Bernoulli(link) for link in LINKS.values()), Categorical(3), Categorical(3, contrasts=False)],
    ids=[*LINKS, "softmax", "softmax, all activations"],
)
def test_terms_of_many_weights_are_those_of_each(likelihood: Bernoulli | Categorical) -> None:
    softmax = isinstance(likelihood, Categorical)
    Phi, t = dense.softmax(0, N=50, M=3, K=3) if softmax else dense.binary(0, N=50, M=3)
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((4, 3 * likelihood.n_outputs))
    for weight in (None, rng.gamma(2.0, size=50)):
        data = Rows(Phi, t, weight)
        value, gradient = data.accumulate(draw_terms(likelihood, theta))
        for s in range(4):
            one = data.accumulate(likelihood_terms(likelihood, theta[s], hessian=False))
            assert value[s] == pytest.approx(one[0], rel=1e-12)
            assert gradient[s] == pytest.approx(one[1], rel=1e-9, abs=1e-10)


def test_the_density_is_the_posterior_in_white_coordinates() -> None:
    Phi, t = dense.softmax(0, N=50, M=2, K=3)
    q = fit(Phi, t, GaussianPrior(0.3, [4.0, 1.0]), "softmax")
    evaluate = whitened_density(q.problem, q.gaussian)
    z, h = 0.5 * np.random.default_rng(0).standard_normal((1, 4)), 1e-5
    value, gradient = evaluate(z)
    numeric = [(evaluate(z + h * e)[0] - evaluate(z - h * e)[0])[0] / (2 * h) for e in np.eye(4)]
    assert gradient[0] == pytest.approx(numeric, rel=1e-6, abs=1e-6)
    _, at_mode = evaluate(np.zeros((1, 4)))
    assert at_mode == pytest.approx(np.zeros((1, 4)), abs=1e-8)
    far = q.gaussian.mean + z[0] @ q.gaussian.inverse_cholesky
    other = dense.log_likelihood(Phi, t, q.problem.class_weights(far).reshape(3, 2), "softmax")
    assert value[0] == pytest.approx(other - q.problem.solver_prior.energy(far), rel=1e-10)


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("likelihood", ["logistic", "softmax"])
def test_the_interface_is_the_same(likelihood: str) -> None:
    softmax = likelihood == "softmax"
    Phi, t = dense.drawn(likelihood, N=60, M=3)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0), likelihood)
    s = sample_posterior(q)
    D = 9 if softmax else 3
    assert (s.kind, s.laplace) == ("sampled", q)
    assert s.mean.shape == (D,)
    assert s.precision.shape == s.cholesky.shape == (D, D)
    for name in ("log_evidence", "log_likelihood", "bic", "effective_parameters", "second_order"):
        assert getattr(s, name) == getattr(q, name)
    assert s.trust != q.trust
    mean, covariance = s.logit_moments(Phi)
    draws = s.sample(len(s.draws), np.random.default_rng(0))
    assert draws.shape == (len(s.draws), D)
    a = draws.reshape(-1, 3, 3) @ Phi.T if softmax else draws @ Phi.T
    if softmax:
        a = a - a.mean(axis=1, keepdims=True)
        assert mean == pytest.approx(a.mean(axis=0).T, abs=1e-9)
        assert covariance == pytest.approx(np.stack([np.cov(x.T) for x in a.transpose(2, 0, 1)]), abs=1e-9)
    else:
        assert mean == pytest.approx(a.mean(axis=0), abs=1e-9)
        assert covariance == pytest.approx(a.var(axis=0, ddof=1), abs=1e-9)
    prediction = s.prediction(Phi)
    p = s.predict_proba(Phi)
    assert prediction.probability[:, 1] == pytest.approx(p[:, 1] if softmax else p, abs=1e-12)
    assert np.all(prediction.mutual_information >= 0)
    assert prediction.mean == pytest.approx(mean, abs=1e-9)
    for method in ("plugin", "probit", "exact", "monte_carlo"):
        assert s.predict_proba(Phi, method) == pytest.approx(p, abs=0.1)
    assert s.plugin(Phi) == pytest.approx(q.plugin(Phi), abs=1e-12)
    assert s.deviations(50, np.random.default_rng(0)).shape == (50, len(q.gaussian.mean))


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("likelihood", ["logistic", "probit", "softmax"])
def test_predictions_are_those_of_one_draw_after_another(likelihood: str) -> None:
    softmax = likelihood == "softmax"
    Phi, t = dense.drawn(likelihood, N=60, M=3)
    s = sample_posterior(fit(Phi, t, GaussianPrior(0.0, 9.0), likelihood), n_draws=64)
    shift = None if likelihood == "probit" else np.log([0.2, 0.3, 0.5][: 3 if softmax else 2])
    a = [s.problem.activations(Phi, theta) for theta in s.draws]
    if shift is not None:
        a = [x + (shift if softmax else shift[1] - shift[0]) for x in a]
    p = np.stack([s.problem.response(x) for x in a])
    p = p if softmax else np.stack([1 - p, p], axis=2)
    entropy = -np.sum(np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0.0), axis=2).mean(axis=0)
    for single, tolerance in ((False, 1e-12), (True, 1e-6)):
        found = s.prediction(Phi, shift=shift, single=single)
        assert found.probability == pytest.approx(p.mean(axis=0), abs=tolerance)
        assert found.expected_entropy == pytest.approx(entropy, abs=10 * tolerance)
        if not softmax:
            assert found.mean == pytest.approx(np.mean(a, axis=0), abs=1e-10)
            assert found.covariance == pytest.approx(np.var(a, axis=0), rel=max(tolerance, 1e-9) * 10)


@pytest.mark.usefixtures("few_draws")
def test_seeded_whatever_the_threads() -> None:
    Phi, t = dense.softmax(0, N=60, M=3, K=3)
    runs = [
        sample_posterior(
            fit(Phi, t, GaussianPrior(0.0, 1.0), "softmax", threads=n), rng=np.random.default_rng(s)
        )
        for n, s in ((1, 5), (2, 5), (1, 6))
    ]
    assert np.array_equal(runs[0].draws, runs[1].draws)
    assert not np.array_equal(runs[0].draws, runs[2].draws)


@pytest.mark.usefixtures("few_draws")
def test_fewer_draws_keep_the_moments_of_all() -> None:
    Phi, t = dense.binary(0, N=60, M=3)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0))
    many, few = (sample_posterior(q, n_draws=n) for n in (4096, 256))
    assert len(few.draws) == 256
    assert few.mean == pytest.approx(many.mean, abs=1e-10)
    assert np.cov(few.draws.T) == pytest.approx(np.linalg.inv(few.precision), rel=1e-8)
    assert few.predict_proba(Phi) == pytest.approx(many.predict_proba(Phi), abs=0.01)


@pytest.mark.usefixtures("few_draws")
def test_the_sum_direction_keeps_its_prior() -> None:
    """The data say nothing of a common shift of all classes' weights: exact, not sampled by the chains."""
    Phi, t = dense.softmax(0, N=60, M=2, K=3)
    s = sample_posterior(fit(Phi, t, GaussianPrior(0.5, [4.0, 1.0]), "softmax"))
    draws = s.sample(2000, np.random.default_rng(0)).reshape(-1, 3, 2).sum(axis=1) / np.sqrt(3)
    assert draws.mean(axis=0) == pytest.approx(np.full(2, 1.5 / np.sqrt(3)), abs=0.15)
    assert draws.var(axis=0) == pytest.approx([4.0, 1.0], rel=0.15)


def test_chains_that_do_not_mix_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Phi, t = dense.binary(0, N=60, M=3)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0))

    def apart(_problem: Problem, white: Gaussian) -> Callable[..., Any]:
        """Return a density of two far hills."""

        def evaluate(z: Matrix) -> tuple[Vector, Matrix]:
            near, far = -0.5 * np.sum((z - 9) ** 2, axis=1), -0.5 * np.sum((z + 9) ** 2, axis=1)
            left = (far > near)[:, None]
            return np.maximum(near, far), np.where(left, -(z + 9), -(z - 9))

        assert isinstance(white, Gaussian)
        return evaluate

    monkeypatch.setattr(blr.posterior.sampling, "whitened_density", apart)
    monkeypatch.setattr(blr.posterior.sampling, "_MOST_BLOCKS", 4)
    s = sample_posterior(q)
    assert s.trust.verdict == "red"
    assert not s.converged
    assert "the chains disagree (R-hat" in " ".join(s.trust.reasons)


def test_says_what_is_wrong() -> None:
    Phi, t = dense.binary(0)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0))
    with pytest.raises(ValueError, match=r"at least the number of chains, got 3 draws and 32 chains"):
        sample_posterior(q, n_draws=3)
    with pytest.raises(ValueError, match=r"maximum-likelihood fit has no posterior to refine or sample"):
        sample_posterior(fit(Phi, t, None))


def normal(D: int = 4, scale: float = 1.0) -> tuple[Callable[..., Any], Matrix]:
    """Return the log density and gradient of a correlated normal, and its covariance."""
    S = scale * dense.covariance(np.random.default_rng(0), D)
    P = np.linalg.inv(S)
    return lambda z: (-0.5 * np.einsum("sd,de,se->s", z, P, z), -z @ P), S


def test_invariance_with_a_step_far_too_large() -> None:
    """Whatever the step, exact draws stay exact: here a coarse one, that errs much before Metropolis mends it."""

    def evaluate(z: Matrix) -> tuple[Vector, Matrix]:  # a skewed density: Gumbel
        return (z - np.exp(z)).sum(axis=1), 1 - np.exp(z)

    rng = np.random.default_rng(1)
    start = stats.gumbel_l.rvs(size=(20_000, 1), random_state=rng)
    sampler = Hamiltonian(evaluate, np.zeros(1), np.eye(1), 1.3)
    state = sampler.at(start)
    for _ in range(6):
        state, probability = sampler.move(state, rng)
    assert 0.3 < probability.mean() < 0.95
    assert stats.kstest(state[0][:, 0], stats.gumbel_l.cdf).pvalue > 1e-3


def test_warming_up_finds_the_coordinates() -> None:
    """From draws that are a hundred times too narrow in one direction and ten times too wide in another."""
    evaluate, S = normal()
    rng = np.random.default_rng(0)
    stretch = np.diag([0.01, 10.0, 1.0, 1.0]) @ np.linalg.inv(np.linalg.cholesky(S))
    white = np.linalg.inv(stretch)

    def stretched(x: Matrix) -> tuple[Vector, Matrix]:
        value, gradient = evaluate(x @ white.T)
        return value, gradient @ white

    sampler, state = warm_up(stretched, rng.standard_normal((32, 4)), rng)
    state, z, value, acceptance = sampler.run(state, 300, rng)
    truth = stretch @ S @ stretch.T
    found = np.cov(z.reshape(-1, 4).T)
    sd = np.sqrt(np.diag(truth))
    assert found / np.outer(sd, sd) == pytest.approx(truth / np.outer(sd, sd), abs=0.08)
    assert 0.6 < acceptance < 0.99
    assert value.shape == z.shape[:2] == (32, 300)


def test_a_density_that_overflows_is_not_accepted() -> None:
    def evaluate(z: Matrix) -> tuple[Vector, Matrix]:
        return -np.exp(z**2).sum(axis=1), -2 * z * np.exp(z**2)

    rng = np.random.default_rng(0)
    sampler = Hamiltonian(evaluate, np.zeros(1), np.eye(1), 50.0)
    state, probability = sampler.move(sampler.at(np.zeros((4, 1))), rng)
    assert np.all(np.isfinite(state[0]))
    assert np.all(probability < 1e-6)


def autoregressive(phi: float, chains: int = 8, n: int = 4000, D: int = 2, seed: int = 0) -> np.ndarray:
    """Return AR(1) chains of unit variance, whose effective size is C n (1 - φ)/(1 + φ)."""
    rng = np.random.default_rng(seed)
    x = np.empty((chains, n, D))
    x[:, 0] = rng.standard_normal((chains, D))
    for i in range(1, n):
        x[:, i] = phi * x[:, i - 1] + np.sqrt(1 - phi**2) * rng.standard_normal((chains, D))
    return x


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9, -0.5])
def test_effective_size_of_known_series(phi: float) -> None:
    found = effective_size(autoregressive(phi))
    assert found == pytest.approx(32_000 * (1 - phi) / (1 + phi), rel=0.12)


@pytest.mark.parametrize("n", [40, 51])
def test_autocovariances_are_the_sums_of_products(n: int) -> None:
    x = autoregressive(0.7, chains=5, n=n, D=3)
    centred = x - x.mean(axis=1, keepdims=True)
    products = [(centred[:, : n - lag] * centred[:, lag:]).sum(axis=1).mean(axis=0) / n for lag in range(n)]
    np.testing.assert_allclose(_mean_autocovariance(x), products, atol=1e-12)


def test_chains_that_disagree_or_drift_are_seen() -> None:
    x = autoregressive(0.3, n=500)
    x[3] += 3.0
    found = convergence(x)
    assert np.all(found[0] > 1.05)
    assert np.all(found[1] < 200)
    wide = autoregressive(0.3, n=500)
    wide[3] *= 5.0  # the folded draws show what the means do not
    assert np.all(convergence(wide)[0] > 1.02)
    drifting = autoregressive(0.0, n=500) + np.linspace(0, 3, 500)[None, :, None]
    assert np.all(convergence(drifting)[0] > 1.1)


def test_heavy_tails_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    found = convergence(rng.standard_cauchy((8, 1000, 2)))
    assert np.all(found[0] < 1.01)
    assert found[1] == pytest.approx(8000, rel=0.15)


def test_what_never_moves_has_converged() -> None:
    x = np.zeros((4, 100, 1))
    assert convergence(x)[0][0] == 1.0
    assert effective_size(x)[0] == 400


BRIDGED = json.loads((Path(__file__).parents[2] / "reference" / "bridge.json").read_text(encoding="utf-8"))
REPEATS = 2


@pytest.mark.long
@pytest.mark.usefixtures("few_draws")
def test_evidence_of_separable_problems() -> None:
    """Within 0.05 nats of brute force, with an error that is neither too small nor meaningless."""
    z = []
    for reference in BRIDGED:
        Phi, t, likelihood = np.array(reference["Phi"]), np.array(reference["t"]), reference["likelihood"]
        prior = GaussianPrior(0.0, np.array(reference["prior_variance"])[: Phi.shape[1]])
        classes = range(t.shape[1] if likelihood == "softmax" else 2)
        q = fit(Phi, t, prior, likelihood, classes=classes)
        for seed in range(REPEATS):
            s = sample_posterior(q, rng=np.random.default_rng(seed))
            value, error = bridge_evidence(s, rng=np.random.default_rng(100 + seed))
            assert value == pytest.approx(reference["log_evidence"], abs=0.05), reference["name"]
            assert error < 0.03
            z.append((value - reference["log_evidence"]) / np.hypot(error, reference["error"]))
    assert 0.4 < np.sqrt(np.mean(np.square(z))) < 1.3
    assert np.abs(z).max() < 3.5


def test_a_bridge_of_few_draws_is_not_biased() -> None:
    """Laplace's evidence is exact where votes are many: the halves of the draws were not independent, 0.1 nats off."""
    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(100, 10))
    votes = rng.binomial(200, 1 / (1 + np.exp(-0.5 * Phi[:, 0])))
    q = fit(Phi, votes, GaussianPrior(0.0, 1.0), trials=np.full(100, 200))
    found = [
        bridge_evidence(sample_posterior(q, n_draws=256, rng=np.random.default_rng(seed)), rng=rng)
        for seed in range(4)
    ]
    value, error = np.mean(found, axis=0)
    assert value == pytest.approx(q.log_evidence + q.second_order, abs=3 * error / 2)
    assert error < 0.03


def test_the_log_posterior_is_normalised_by_its_prior() -> None:
    Phi, t = dense.softmax(0, N=40, M=2, K=3)
    for likelihood, target in (("softmax", t), ("logistic", t[:, 0])):
        q = fit(Phi, target, GaussianPrior(0.3, [4.0, 1.0]), likelihood)
        at_mode = log_posterior(q.problem, q.mode[None])[0]
        D = len(q.mode)
        laplace = at_mode + 0.5 * D * np.log(2 * np.pi) - 0.5 * q.gaussian.log_det_precision
        assert laplace == pytest.approx(q.log_evidence, abs=1e-9)


@pytest.mark.usefixtures("few_draws")
def test_a_bridge_says_what_is_wrong() -> None:
    Phi, t = dense.binary(0, N=40, M=2)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0))
    with pytest.raises(ValueError, match=r"needs a posterior with 64 draws or more, got one with none"):
        bridge_evidence(q)
    with pytest.raises(ValueError, match=r"got one with 32"):
        bridge_evidence(sample_posterior(q, n_draws=32))
    with pytest.raises(RuntimeError, match="does not hold the training data"):
        bridge_evidence(Posterior.from_dict(sample_posterior(q, n_draws=256).to_dict()))
