"""Newton's method, and the starts, sums and streams that end at its mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import blr
import blr.posterior.laplace
from blr.arrays import Matrix, Vector
from blr.basis.base import Standardisation, learn_softening, softened
from blr.fitting.newton import maximise, newton_step
from blr.fitting.problem import pose
from blr.gaussian import Gaussian, GaussianPrior
from blr.likelihood.likelihoods import LINKS, Bernoulli
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import CLOSE, approach, fit, part_of
from blr.posterior.variational import refine
from blr.selection.compare import leave_one_out
from blr.selection.evidence import fit_evidence
from blr.selection.grouping import softmax_quickly
from blr.sums import Chunk, Rows, added, likelihood_terms
from tests.blr import dense

FLAT = Gaussian(np.zeros(3), np.zeros((3, 3)))


@pytest.mark.parametrize("diagonal", [True, False])
def test_the_priors_trace_and_determinant_are_the_dense_ones(*, diagonal: bool) -> None:
    rng = np.random.default_rng(4)
    P, A = np.linalg.inv(dense.covariance(rng, 4)), np.linalg.inv(dense.covariance(rng, 4))
    P = np.diag(np.diag(P)) if diagonal else P
    prior, q = Gaussian(np.zeros(4), P), Gaussian(np.zeros(4), A)
    assert prior.trace(q.inverse_cholesky) == pytest.approx(np.trace(P @ np.linalg.inv(A)), rel=1e-12)
    away = rng.normal(size=(3, 4))
    np.testing.assert_allclose(prior.pull(away), away @ P, rtol=1e-12)
    assert prior.log_det_precision == pytest.approx(np.linalg.slogdet(P)[1], rel=1e-12)


def quadratic() -> tuple[Callable[..., Any], Vector]:
    H = dense.covariance(np.random.default_rng(0), 3)
    centre = np.array([1.0, -2.0, 3.0])

    def evaluate(theta: Vector) -> tuple[float, Vector, Matrix]:
        d = theta - centre
        return -0.5 * d @ H @ d, -H @ d, H

    return evaluate, centre


def problem(Phi: Matrix, t: Vector, link: str = "logistic") -> Callable[..., Any]:
    data, likelihood = Rows(Phi, t), Bernoulli(LINKS[link])
    return lambda theta: data.accumulate(likelihood_terms(likelihood, theta))


def test_a_gradient_rounded_coarsely_is_an_end() -> None:
    """With huge weights beside a broad prior rounding leaves 1e-5 sd, which no step makes smaller."""
    evaluate, centre = quadratic()
    rng = np.random.default_rng(0)

    def rounded(theta: Vector) -> tuple[float, Vector, Matrix]:
        value, gradient, H = evaluate(theta)
        return value - 1e6, gradient + 1e-5 * rng.standard_normal(3), H

    mode = maximise(rounded, FLAT, np.zeros(3))
    assert mode.converged
    assert mode.n_iter < 40
    assert mode.theta == pytest.approx(centre, abs=1e-4)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("start", [0.0, 8.0, -8.0])
def test_finds_the_mode_from_far(link: str, start: float) -> None:
    Phi, t = dense.binary(1, N=150, M=3)
    evaluate, prior = problem(Phi, t, link), Gaussian(np.zeros(3), 0.1 * np.eye(3))
    if link == "cauchit" and start:
        start = np.sign(start)  # its likelihood is flat far out, so that the far ends are ends
    mode = maximise(evaluate, prior, np.full(3, start))

    def energy(w: Vector) -> tuple[float, Vector]:
        value, gradient, _ = evaluate(w)
        return prior.energy(w) - value, prior.precision @ w - gradient

    theirs = minimize(energy, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-9})
    sd = 1 / np.sqrt(np.linalg.eigvalsh(mode.hessian + prior.precision)[0])
    assert mode.converged
    assert np.abs(mode.theta - theirs.x).max() < 1e-6 * sd


def test_an_indefinite_curvature_still_descends() -> None:
    g = np.array([1.0, 1.0])
    for A in (np.diag([1.0, -1.0]), np.diag([1.0, 0.0]), np.array([[1.0, 3.0], [3.0, 1.0]])):
        step, decrement = newton_step(g, A)
        assert g @ step > 0
        assert np.isfinite(decrement)


def test_running_out_of_iterations_is_data() -> None:
    Phi, t = dense.binary(1, N=150, M=3)
    mode = maximise(problem(Phi, t), FLAT, np.full(3, 5.0), max_iter=2)
    assert not mode.converged
    assert mode.status == "iterations exhausted"
    assert mode.n_iter == 2


@dataclass(eq=False)
class Pieces:
    """Rows in pieces, as a user may write them: `passes` counts the passes over all."""

    pieces: list[Chunk]
    sample: Rows | None = None
    passes: list[int] = field(default_factory=list)

    @property
    def n_functions(self) -> int:
        return self.pieces[0][0].shape[1]

    def accumulate(self, function: Callable[..., Any]) -> tuple[Any, ...]:
        self.passes.append(1)
        return added(function(*piece) for piece in self.pieces)


def in_pieces(Phi: Matrix, t: Vector, weight: Vector | None = None, *, step: int | None = None) -> Pieces:
    """Return the rows in pieces of unequal size; every `step`-th one is in memory too."""
    edges = [0, 700, 701, 2000, len(Phi)]
    cut = [slice(a, b) for a, b in pairwise(edges)]
    pieces = [(Phi[c], t[c], None if weight is None else weight[c]) for c in cut]
    if step is None:
        return Pieces(pieces)
    w = np.ones(len(Phi)) if weight is None else weight
    own = w[::step] * (w.sum() / w[::step].sum())
    return Pieces(pieces, Rows(Phi[::step], t[::step], own))


PRIOR = GaussianPrior.isotropic(5, precision=0.5)


@pytest.mark.parametrize("step", [None, 8])
@pytest.mark.parametrize("likelihood", ["logistic", "cloglog", "softmax"])
def test_the_fit_is_that_of_the_array(likelihood: str, step: int | None) -> None:
    Phi, t = dense.drawn(likelihood, N=4000, M=5)
    shares = np.asarray(t, dtype=float)  # of a softmax one-hot already
    weight = np.random.default_rng(1).uniform(0.5, 2, 4000)
    whole = fit(Phi, t, PRIOR, likelihood, sample_weight=weight)
    found = fit(in_pieces(Phi, shares, weight, step=step), None, PRIOR, likelihood)
    sd = np.sqrt(np.diag(whole.gaussian.covariance))
    assert np.abs((found.gaussian.mean - whole.gaussian.mean) / sd).max() < 1e-8
    assert found.log_evidence == pytest.approx(whole.log_evidence, abs=1e-3)
    assert found.n_effective == pytest.approx(whole.n_effective)
    assert leave_one_out(found)[0] == pytest.approx(leave_one_out(whole)[0], abs=1e-3)


def test_evidence_refinement_and_verdict() -> None:
    Phi, t = dense.binary(3, N=4000, M=5)
    whole, found = fit_evidence(Phi, t), fit_evidence(in_pieces(Phi, t.astype(float), step=8), None)
    assert found.log_evidence == pytest.approx(whole.log_evidence, abs=1e-3)
    np.testing.assert_allclose(found.prior.precision(5), whole.prior.precision(5), rtol=1e-3)
    assert refine(found).elbo == pytest.approx(refine(whole).elbo, abs=1e-3)
    assert found.trust.verdict == whole.trust.verdict


def test_passes_of_a_fit_whose_sample_is_one_row_in_25() -> None:
    """A pass each: the rows, checked; the way from the sample to the mode; the Hessians there."""
    Phi, t = dense.binary(4, N=50_000, M=5)
    data = in_pieces(Phi, t.astype(float), step=25)
    data.n_effective = 50_000.0
    fit_evidence(data, None)
    assert len(data.passes) <= 6


def test_labels_that_may_be_wrong() -> None:
    Phi, t = dense.binary(5, N=4000, M=5)
    confusion = [[0.9, 0.1], [0.2, 0.8]]
    whole = fit(Phi, t, PRIOR, confusion=confusion)
    found = fit(in_pieces(Phi, t.astype(float)), None, PRIOR, confusion=confusion)
    assert found.problem.mislabelled
    np.testing.assert_allclose(found.gaussian.mean, whole.gaussian.mean, rtol=1e-7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda Phi, t: (Phi, 2 * t), "got [0-9]+ rows with wrong columns, targets or weights"),
        (lambda Phi, t: (np.where(Phi == Phi[7, 2], np.nan, Phi), t), "got 1 rows with wrong columns"),
        (lambda Phi, t: (Phi, np.eye(3)[t.astype(int)]), "targets of 3 classes, expected 2"),
    ],
)
def test_rows_that_are_no_data(change: Callable[..., Any], message: str) -> None:
    Phi, t = change(*dense.binary(6, N=4000, M=5))
    with pytest.raises(ValueError, match=message):
        fit(in_pieces(Phi, np.asarray(t, dtype=float)), None, PRIOR)


def test_the_standardisation_of_all_rows_by_sums() -> None:
    rng = np.random.default_rng(7)
    n = 5000
    X = np.stack(
        [rng.normal(1e6, 2, n), (rng.random(n) < 0.03) * 5.0, np.full(n, 3.0), rng.standard_t(2, n)], 1
    )
    weight = rng.uniform(0.5, 2, n)
    data = in_pieces(X, np.zeros(n), weight)
    exact = Standardisation.learn(X, weight)
    found = Standardisation.learn_by_sums(data.accumulate, X[::10])
    np.testing.assert_allclose(found.mean, exact.mean, rtol=1e-13)
    np.testing.assert_allclose(found.scale, exact.scale, rtol=1e-12)
    softening = learn_softening(X[:, 3:])
    soft = in_pieces(X[:, 3:], np.zeros(n), weight)
    expected = replace(Standardisation.learn(softened(X[:, 3:], softening), weight), softening=softening)
    after = Standardisation.learn_by_sums(soft.accumulate, X[::10, 3:], softening)
    np.testing.assert_allclose(after(X[:50, 3:]), expected(X[:50, 3:]), rtol=1e-11)
    np.testing.assert_array_equal(after.softening, softening)


def stream(Phi: np.ndarray, t: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, None]]:
    for start in range(0, len(Phi), size):
        yield Phi[start : start + size], t[start : start + size], None


@pytest.mark.parametrize("K", [2, 3])
def test_a_long_stream_ends_within_a_posterior_sd_a_weight(K: int) -> None:
    """The stated tolerance: the distance, in posterior sd, is below one for each weight (root mean square)."""
    rng = np.random.default_rng(K)
    Phi = rng.standard_normal((20_000, 6)) * np.logspace(0, 1.5, 6)  # features of unlike scales
    Phi[:, 0] = 1.0
    W = rng.standard_normal((6, K)) / np.logspace(0, 1.5, 6)[:, None]
    y = (Phi @ W + rng.gumbel(size=(len(Phi), K))).argmax(axis=1)
    likelihood, prior = ("logistic", "softmax")[K > 2], blr.GaussianPrior.isotropic(6)
    q = blr.fit(Phi, y, prior, likelihood, classes=range(K), threads=1)
    s = blr.fit_sgd(stream(Phi, y, 500), prior, likelihood, classes=range(K))
    d = s.gaussian.mean - q.gaussian.mean
    assert np.sqrt(d @ q.gaussian.precision @ d / len(d)) < 1
    assert np.abs(s.predict_proba(Phi) - q.predict_proba(Phi)).mean() < 0.01
    assert s.converged
    assert s.n_effective == len(Phi)


@pytest.mark.parametrize("seed", range(4))
def test_votes_and_weights_keep_the_tolerance(seed: int) -> None:
    """Each row is five votes, so that the posterior is narrower than the rows alone would make it."""
    rng, n = np.random.default_rng(seed), 30_000
    Phi = np.hstack([np.ones((n, 1)), rng.standard_normal((n, 1))])
    t, weight = rng.binomial(5, 1 / (1 + np.exp(-Phi[:, 1]))) / 5, np.full(n, 5.0)
    q = blr.fit(Phi, t, blr.GaussianPrior.isotropic(2), sample_weight=weight, threads=1)
    s = blr.fit_sgd([(Phi, t, weight)], blr.GaussianPrior.isotropic(2))
    d = s.mean - q.mean
    assert np.sqrt(d @ q.precision @ d / 2) < 1
    assert s.n_effective == q.n_effective == 5 * n


@pytest.mark.parametrize("n", [60, 10_000])
def test_a_short_stream_says_so(n: int) -> None:
    rng = np.random.default_rng(0)
    Phi, t = rng.standard_normal((n, 4)), (rng.random(n) < 0.5).astype(float)
    s = blr.fit_sgd(stream(Phi, t, 20 if n == 60 else 5000), blr.GaussianPrior.isotropic(4))
    assert not s.converged
    assert f"only {n} rows" in s.status


def test_an_empty_stream_and_no_prior_are_errors() -> None:
    with pytest.raises(ValueError, match="at least one chunk"):
        blr.fit_sgd(iter([]), blr.GaussianPrior.isotropic(2))
    with pytest.raises(ValueError, match=r"prior is None, expected a GaussianPrior.*or use fit"):
        blr.fit_sgd([(np.ones((2, 1)), [0, 1], None)], None)  # type: ignore[arg-type]


def test_rows_of_weight_zero_are_not_there() -> None:
    Phi, t = np.random.default_rng(0).standard_normal((600, 2)), np.arange(600) % 2
    first, nothing, rest = ((Phi[i : i + 200], t[i : i + 200]) for i in (0, 200, 400))
    prior = blr.GaussianPrior(0.0, 1.0)
    with_zero = blr.fit_sgd([(*first, None), (*nothing, np.zeros(200)), (*rest, None)], prior)
    assert np.array_equal(with_zero.mean, blr.fit_sgd([(*first, None), (*rest, None)], prior).mean)


@pytest.mark.parametrize(("K", "spread"), [(2, 1.0), (5, 1.0), (5, 6.0), (20, 2.0)])
def test_probabilities_are_near_those_of_the_mode(K: int, spread: float) -> None:
    """Classes of unlike shares, the third separable: the last has a row in a hundred."""
    rng = np.random.default_rng(K)
    share = np.geomspace(1, 0.05, K)
    t = rng.choice(K, size=1500, p=share / share.sum())
    X = spread * rng.normal(size=(K, 4))[t] + rng.normal(size=(1500, 4))
    Phi = np.column_stack([np.ones(1500), X])
    prior = blr.GaussianPrior.isotropic(5, precision=0.3, intercept=0)
    twin = blr.fit(Phi, t, prior, "logistic" if K == 2 else "softmax", classes=range(K)).plugin(Phi)
    found = softmax_quickly(Phi.astype(np.float32), t, Phi.astype(np.float32), K, 0.3)
    assert np.abs(found - twin).mean() < 0.01
    rows = np.arange(len(t))
    loss, exact = (-np.log(p[rows, t]).mean() for p in (found, twin))
    assert loss == pytest.approx(exact, abs=0.01)


@pytest.fixture(name="from_few")
def _from_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 4,000 rows be many."""
    monkeypatch.setattr(blr.posterior.laplace, "_FEWEST_ROWS", 500)


def distance(one: LaplacePosterior, other: LaplacePosterior) -> float:
    """Return how far the means of two posteriors lie apart, in sd of the first."""
    d = one.gaussian.mean - other.gaussian.mean
    return float(np.sqrt(d @ one.gaussian.precision @ d))


def hessian_passes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which each pass over all 4,000 rows adds whether it made a Hessian."""
    passes, accumulate = [], Rows.accumulate

    def counted(self: object, function: Callable[..., Any]) -> tuple[Any, ...]:
        terms = accumulate(self, function)
        if len(self.Phi) == 4000:
            passes.append(len(terms) == 3)
        return terms

    monkeypatch.setattr(Rows, "accumulate", counted)
    return passes


@pytest.mark.parametrize("likelihood", ["logistic", "probit", "cauchit", "cloglog", "softmax"])
def test_the_fit_is_that_of_newtons_method(likelihood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Phi, t = dense.drawn(likelihood, N=4000, M=5)
    whole = fit(Phi, t, PRIOR, likelihood)
    with monkeypatch.context() as patch:
        patch.setattr(blr.posterior.laplace, "_FEWEST_ROWS", 500)
        passes = hessian_passes(patch)
        part = fit(Phi, t, PRIOR, likelihood)
    assert sum(passes) == 1
    assert distance(whole, part) < 1e-8
    assert part.converged
    np.testing.assert_allclose(part.gaussian.precision, whole.gaussian.precision, rtol=1e-3, atol=1e-2)
    assert part.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-7)
    assert part.log_evidence == pytest.approx(whole.log_evidence, abs=1e-3)


@pytest.mark.usefixtures("from_few")
def test_rows_in_a_bad_order_are_fitted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every eighth row is of one class: the sample says nothing of the other."""
    Phi, t = dense.binary(2, N=4000, M=5)
    order = np.argsort(t, kind="stable")
    first, rest = order[-500:], order[:-500]
    place = np.empty(4000, dtype=np.intp)
    place[::8], place[np.arange(4000) % 8 != 0] = first, rest
    Phi, t = Phi[place], t[place]
    assert part_of(pose(Phi, t, PRIOR)).data.t.min() == 1
    part, part_evidence = fit(Phi, t, PRIOR), fit_evidence(Phi, t)
    monkeypatch.setattr(blr.posterior.laplace, "_FEWEST_ROWS", 10_000)
    assert distance(fit(Phi, t, PRIOR), part) < 1e-8
    assert part_evidence.log_evidence == pytest.approx(fit_evidence(Phi, t).log_evidence, abs=1e-5)


def test_approach_comes_near_and_says_where_it_does_not() -> None:
    Phi, t = dense.binary(3, N=4000, M=5)
    problem = pose(Phi, t, PRIOR)
    mode = maximise(problem.evaluate, problem.solver_prior, np.zeros(5))
    rough = 1.1 * mode.hessian
    away = mode.theta + np.linalg.solve(mode.hessian, np.random.default_rng(0).standard_normal(5))
    near = approach(problem, problem.solver_prior, away, rough)
    d = near - mode.theta
    assert np.sqrt(d @ mode.hessian @ d) < 2 * CLOSE
    assert approach(problem, problem.solver_prior, away, 0.01 * rough) is None  # steps far too long
    assert approach(problem, problem.solver_prior, away, 10 * rough) is None  # far too short
    assert approach(problem, problem.solver_prior, away, -rough) is None


def test_few_rows_and_streams_are_not_thinned() -> None:
    Phi, t = dense.binary(0, N=400, M=5)
    assert part_of(pose(Phi, t, PRIOR)) is None
    assert part_of(pose([(Phi, t, None)], None, PRIOR)) is None
