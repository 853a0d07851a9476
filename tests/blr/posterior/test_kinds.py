"""Each kind of posterior has just its own fields, and one stored form for all."""

from __future__ import annotations

import numpy as np
import pytest

import blr
from blr.posterior.kinds import (
    KINDS,
    SampledPosterior,
)
from blr.posterior.variational import mean_shift
from blr.shift import sandwich

STORED = [
    "kind",
    "likelihood",
    "mislabelled",
    "classes",
    "n_functions",
    "n_effective",
    "prior",
    "solver_mean",
    "solver_precision",
    "log_likelihood",
    "converged",
    "n_iter",
    "status",
    "laplace",
    "elbo",
    "draws",
    "trust",
]
NULL = {
    "laplace": {"laplace", "elbo", "draws"},
    "shifted": {"elbo", "draws"},
    "sandwich": {"elbo", "draws"},
    "refined": {"draws"},
    "sampled": {"elbo"},
}


def every_kind() -> dict[str, blr.Posterior]:
    """Return a posterior of each kind, all of one small problem of three classes."""
    rng = np.random.default_rng(0)
    Phi = np.column_stack([np.ones(40), rng.standard_normal(40)])
    q = blr.fit(Phi, rng.integers(0, 3, 40), blr.GaussianPrior(0.0, 1.0), "softmax", classes=range(3))
    r = blr.refine(q)
    all_of_them = (q, mean_shift(q), sandwich(q), r, blr.sample_posterior(q, n_draws=64))
    return {each.kind: each for each in all_of_them}


@pytest.fixture(scope="module")
def posteriors() -> dict[str, blr.Posterior]:
    return every_kind()


def test_every_kind_gives_the_laplace_fit_behind_it(posteriors: dict[str, blr.Posterior]) -> None:
    q = posteriors["laplace"]
    for other in posteriors.values():
        assert other.laplace is q
        assert other.fitted is q
        assert (other.log_evidence, other.bic) == (q.log_evidence, q.bic)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_trees_have_the_same_keys_for_every_kind(
    kind: str, posteriors: dict[str, blr.Posterior]
) -> None:
    tree = posteriors[kind].to_dict()
    assert list(tree) == STORED
    assert {key for key, value in tree.items() if value is None} - {"trust"} == NULL[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_tree_is_read_as_its_kind(kind: str, posteriors: dict[str, blr.Posterior]) -> None:
    q, new = posteriors[kind], np.array([[1.0, 0.3], [1.0, -2.0]])
    _ = q.trust  # stored with it: a posterior without data cannot compute it
    tree = q.to_dict()
    for again in (blr.Posterior.from_dict(tree), KINDS[kind].from_dict(tree)):
        assert type(again) is KINDS[kind]
        assert again.trust == q.trust
        assert np.array_equal(again.prediction(new).probability, q.prediction(new).probability)
        assert np.array_equal(again.plugin(new), q.plugin(new))
        np.testing.assert_equal(again.to_dict(), tree)


def test_a_tree_of_another_kind_is_refused(posteriors: dict[str, blr.Posterior]) -> None:
    tree = posteriors["refined"].to_dict()
    with pytest.raises(
        ValueError, match=r"expected a stored sampled posterior, got kind 'refined'; use Posterior"
    ):
        SampledPosterior.from_dict(tree)
    with pytest.raises(ValueError, match=r"has the kind 'averaged'; expected one of laplace, shifted"):
        blr.Posterior.from_dict(tree | {"kind": "averaged"})


def test_isinstance_knows_a_posterior_and_computes_nothing() -> None:
    for q in every_kind().values():
        before = set(vars(q))
        assert isinstance(q, blr.Posterior)
        assert set(vars(q)) == before
    assert not isinstance(q.gaussian, blr.Posterior)
