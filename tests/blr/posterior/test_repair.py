"""The posterior that is served in place of a red fit, against long chains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blr.posterior.repair
import blr.posterior.sampling
from blr.arrays import Matrix
from blr.gaussian import GaussianPrior
from blr.posterior.ensemble import averaged
from blr.posterior.kinds import LaplacePosterior, Posterior, SampledPosterior
from blr.posterior.laplace import fit
from blr.posterior.repair import by_chains, by_importance, served
from blr.posterior.sampling import centred_at, matched, sample_posterior
from blr.posterior.variational import refine
from tests.blr.conftest import Twin


def separable(
    seed: int = 0, N: int = 60, F: int = 6, K: int = 2, sd: float = 25.0
) -> tuple[LaplacePosterior, Matrix]:
    """Return the Laplace fit of classes that a plane separates, and 100 new rows (100, M)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N + 100, F))
    Phi = np.column_stack([np.ones(len(X)), X])
    t = np.argmax(X @ rng.standard_normal((F, K)), axis=1)
    likelihood = "softmax" if K > 2 else "logistic"
    q = fit(Phi[:N], t[:N], GaussianPrior.isotropic(F + 1, sd**-2), likelihood, classes=range(K))
    return q, Phi[N:]


@pytest.fixture
def no_importance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blr.posterior.repair, "by_importance", lambda *_: None)


def difference(p: LaplacePosterior | SampledPosterior, other: SampledPosterior, rows: Matrix) -> Matrix:
    return np.abs(p.prediction(rows).probability - other.prediction(rows).probability)


@pytest.mark.parametrize(
    ("F", "K", "sd"),
    [
        (6, 2, 25.0),
        pytest.param(12, 2, 25.0, marks=pytest.mark.long),
        pytest.param(5, 3, 25.0, marks=pytest.mark.long),
    ],
)
def test_what_is_served_is_the_exact_posterior(
    F: int, K: int, sd: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blr.posterior.sampling, "_ERROR", 0.004)
    monkeypatch.setattr(blr.posterior.sampling, "_WORK", 1.0)
    q, new = separable(F=F, K=K, sd=sd)
    assert q.trust.verdict == "red"
    refined = refine(q)
    found = served(q, refined)
    exact = sample_posterior(q)
    d = difference(found.posterior, exact, new)
    assert d.mean() < 0.006
    assert d.max() < 0.06
    assert d.mean() < 0.3 * difference(q, exact, new).mean()
    assert found.way in ("confirmed", "matched", "sampled")
    assert found.posterior.trust.verdict in ("green", "amber")
    assert found.posterior.trust.reasons[0] == found.reason
    assert found.posterior.laplace is q
    assert np.isfinite(found.evidence).all()


def test_a_fit_that_holds_costs_nothing(dense: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    Phi, t = dense.binary(0, N=2000, M=3)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0))
    monkeypatch.setattr(blr.posterior.repair, "by_importance", None)  # called, it would raise
    refined = refine(q)
    found = served(q, refined)
    assert found.posterior is refined
    assert (found.way, found.evidence, found.chains) == ("unchanged", None, None)


@pytest.mark.usefixtures("no_importance")
def test_each_way_follows_from_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    q, new = separable()
    refined = refine(q)
    ways = {}
    for bound in (1.0, 0.0):
        monkeypatch.setattr(blr.posterior.repair, "MEAN_DIFFERENCE", bound)
        monkeypatch.setattr(blr.posterior.repair, "LARGEST_DIFFERENCE", bound)
        found = served(q, refined)
        ways[found.way] = found
    assert set(ways) == {"confirmed", "sampled"}
    confirmed, sampled = ways["confirmed"], ways["sampled"]
    assert confirmed.posterior.gaussian is refined.gaussian
    assert "chains confirm the refined posterior: its probabilities differ by 0." in confirmed.reason
    assert "no Gaussian describes this posterior" in sampled.reason
    assert len(sampled.posterior.draws) in (256, 512, 1024)
    assert len(sampled.chains.draws) > len(sampled.posterior.draws)
    assert difference(sampled.posterior, sampled.chains, new).mean() < 0.003
    assert confirmed.mean_difference == sampled.mean_difference > 0


@pytest.mark.usefixtures("no_importance")
def test_without_draws_the_gaussian_that_errs_less_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MEAN_DIFFERENCE", "LARGEST_DIFFERENCE"):
        monkeypatch.setattr(blr.posterior.repair, name, 0.0)
    kinds = set()
    for F, sd in ((12, 25.0), (3, 3.0)):
        q, new = separable(F=F, sd=sd)
        refined = refine(q)
        found, drawn = (served(q, refined, rows=new, draws=draws) for draws in (False, True))
        assert (found.way, drawn.way) == ("nearest", "sampled")
        kinds.add(found.posterior.kind)
        exact = found.posterior.prediction(new).probability - found.left
        off = np.abs(found.left).max(axis=1).mean()
        assert off <= np.abs(refined.prediction(new).probability - exact).max(axis=1).mean()
        assert found.mean_difference == drawn.mean_difference >= off
        assert np.abs(drawn.posterior.prediction(new).probability - exact).max(axis=1).mean() < 0.005
    assert kinds == {"refined", "matched"}


@pytest.mark.usefixtures("no_importance")
def test_a_gaussian_of_the_chains_moments_is_stored_and_loaded() -> None:
    q, new = separable(F=12, sd=25.0)
    found = served(q, rows=new)  # at rows that were not trained on, the moments serve
    assert found.way == "matched"
    again = Posterior.from_dict(found.posterior.to_dict())
    assert again.kind == "matched"
    assert again.trust == found.posterior.trust
    assert not hasattr(again, "draws")
    assert np.array_equal(again.prediction(new).probability, found.posterior.prediction(new).probability)
    assert again.deviations(5, np.random.default_rng(0)).shape == (5, 13)
    assert again.log_evidence == q.log_evidence


@pytest.mark.usefixtures("no_importance")
def test_what_could_not_be_repaired_stays_red(monkeypatch: pytest.MonkeyPatch) -> None:
    q, _ = separable()
    refined = refine(q)
    found = served(q, refined, work=10.0)
    assert (found.way, found.posterior) == ("unchecked", refined)
    assert "would take too long" in found.reason
    assert found.evidence is None
    monkeypatch.setattr(blr.posterior.repair, "_EFFECTIVE", 1e9)
    found = served(q, refined)
    assert (found.way, found.posterior.trust.verdict) == ("failed", "red")
    assert "did not mix" in found.reason
    assert found.posterior.gaussian is refined.gaussian


@pytest.mark.usefixtures("few_draws")
def test_seeded() -> None:
    q, new = separable(K=3, F=4)
    refined = refine(q)
    p = [
        served(q, refined, rng=np.random.default_rng(s)).posterior.prediction(new).probability for s in (1, 1)
    ]
    assert np.array_equal(*p)


def test_importance_draws_and_chains_agree() -> None:
    q, new = separable(K=3, F=3, sd=3.0)
    start = refine(q).gaussian
    rng = np.random.default_rng(0)
    found = by_importance(q.problem, start, new, rng)
    chains = by_chains(q.problem, start, new, 60, rng, error=1e-3, work=1e8)
    assert found is not None
    error = np.hypot(found.error, chains.error)
    assert np.all(np.abs(found.probability - chains.probability) < 5 * error + 1e-3)
    assert 0.5 < np.sqrt(np.mean(((found.probability - chains.probability) / error) ** 2)) < 1.6
    assert found.mean == pytest.approx(chains.mean, abs=0.2 * np.sqrt(np.diag(chains.covariance)).max())


@pytest.mark.parametrize("hopeless", [False, True])
def test_a_look_at_the_first_importance_draws_changes_no_answer(
    *, hopeless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, new = separable(F=20, sd=25.0) if hopeless else separable(K=3, F=3, sd=3.0)
    start = q.gaussian if hopeless else refine(q).gaussian
    looked = by_importance(q.problem, start, new, np.random.default_rng(0))
    monkeypatch.setattr(blr.posterior.repair, "_HOPELESS", 0.0)
    whole = by_importance(q.problem, start, new, np.random.default_rng(0))
    assert (looked is None) == (whole is None) == hopeless
    if looked is not None and whole is not None:
        np.testing.assert_allclose(looked.probability, whole.probability, rtol=0, atol=1e-12)


def test_work_bounds_the_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    q, new = separable()
    start = refine(q).gaussian
    sizes = [
        len(by_chains(q.problem, start, new, 60, np.random.default_rng(0), error=0.0, work=w).draws)
        for w in (4e6, 8e6)
    ]
    assert sizes[0] < sizes[1]
    unmixed = by_chains(q.problem, start, new, 60, np.random.default_rng(0), error=0.0, work=4e6, enough=1e9)
    assert len(unmixed.draws) == sizes[1]
    monkeypatch.setattr(blr.posterior.repair, "_MOST_MOVES", 32)
    one = by_chains(q.problem, start, new, 60, np.random.default_rng(0), error=0.0, work=1e9)
    assert len(one.draws) == 32 * 32


@pytest.mark.long
def test_the_draws_served_are_moved_as_the_probabilities_are_kept_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    q, new = separable(K=3, F=8, sd=25.0)
    start, rng = refine(q).gaussian, np.random.default_rng(0)
    exact = by_chains(q.problem, start, new, 60, rng, error=1e-4, work=1e9)
    some = exact.draws[np.linspace(0, len(exact.draws) - 1, 256).round().astype(int)]

    def error(draws: Any) -> Any:
        p = averaged(q.problem, new, draws)[0].probability
        return np.abs(p - exact.probability).max(axis=1).mean()

    ways = [centred_at(some, exact.mean), matched(some, exact.mean, exact.covariance)]
    assert ways[0].mean(axis=0) == pytest.approx(exact.mean)
    assert min(map(error, ways)) < error(some)
    for name, other in (("centred_at", ways[1]), ("matched", ways[0])):
        with monkeypatch.context() as patch:
            patch.setattr(blr.posterior.repair, name, lambda draws, *_: draws + 5.0)
            draws, p = blr.posterior.repair._thinned(q.problem, new, exact, 256)
        assert np.array_equal(draws, other)
        assert np.array_equal(p, averaged(q.problem, new, other)[0].probability)
