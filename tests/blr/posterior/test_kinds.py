"""Each kind of posterior has just its own fields, and one stored form for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln

import blr
from blr.posterior.kinds import KINDS, SampledPosterior
from blr.posterior.variational import mean_shift
from blr.shift import sandwich

STORED = [
    *("kind", "likelihood", "mislabelled", "classes", "n_functions", "n_effective", "prior"),
    *("solver_mean", "solver_precision", "log_likelihood", "converged", "n_iter", "status"),
    *("laplace", "elbo", "draws", "trust"),
]
NULL = {
    "laplace": {"laplace", "elbo", "draws"},
    "shifted": {"elbo", "draws"},
    "sandwich": {"elbo", "draws"},
    "refined": {"draws"},
    "sampled": {"elbo"},
}


@pytest.fixture(scope="module")
def posteriors() -> dict[str, blr.Posterior]:
    """Return a posterior of each kind, all of one small problem of three classes."""
    rng = np.random.default_rng(0)
    Phi = np.column_stack([np.ones(40), rng.standard_normal(40)])
    q = blr.fit(Phi, rng.integers(0, 3, 40), blr.GaussianPrior(0.0, 1.0), "softmax", classes=range(3))
    r = blr.refine(q)
    all_of_them = (q, mean_shift(q), sandwich(q), r, blr.sample_posterior(q, n_draws=64))
    return {each.kind: each for each in all_of_them}


def test_every_kind_gives_the_laplace_fit_behind_it(posteriors: dict[str, blr.Posterior]) -> None:
    q = posteriors["laplace"]
    for other in posteriors.values():
        assert other.laplace is q
        assert other.fitted is q
        assert (other.log_evidence, other.bic) == (q.log_evidence, q.bic)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_tree_is_read_as_its_kind(kind: str, posteriors: dict[str, blr.Posterior]) -> None:
    q, new = posteriors[kind], np.array([[1.0, 0.3], [1.0, -2.0]])
    _ = q.trust  # stored with it: a posterior without data cannot compute it
    tree = q.to_dict()
    assert list(tree) == STORED
    assert {key for key, value in tree.items() if value is None} == NULL[kind]
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


def gaussian(
    mean: np.ndarray[Any, Any], precision: np.ndarray[Any, Any], log_factor: float = 0.0
) -> tuple[Any, ...]:
    return (
        lambda z: log_factor - 0.5 * (z - mean) @ precision @ (z - mean),
        lambda z: -precision @ (z - mean),
        lambda z: -precision,  # noqa: ARG005 - a density's Hessian is a function of z
    )


def test_a_gaussian_is_its_own() -> None:
    rng = np.random.default_rng(0)
    root, mean = rng.standard_normal((4, 4)), rng.standard_normal(4)
    precision = root @ root.T + 0.1 * np.eye(4)
    found, log_integral = blr.laplace_approximation(*gaussian(mean, precision, 3.0), np.zeros(4))
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)
    np.testing.assert_allclose(found.precision, precision, rtol=1e-12)
    exact = 3.0 + 2 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]
    assert log_integral == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("a", [2.0, 7.0, 400.0])
def test_the_gamma_integral_is_stirlings(a: float) -> None:
    """∫ exp(a z - b e^z) dz = Γ(a) b^-a; Laplace's approximation of it is Stirling's formula, 1/12a off."""
    b = 2.0
    found, log_integral = blr.laplace_approximation(
        lambda z: a * z[0] - b * np.exp(z[0]),
        lambda z: [a - b * np.exp(z[0])],
        lambda z: [[-b * np.exp(z[0])]],
        [0.0],
    )
    assert found.mean[0] == pytest.approx(np.log(a / b), abs=1e-8)
    assert gammaln(a) - a * np.log(b) - log_integral == pytest.approx(1 / (12 * a), rel=0.01)


@pytest.mark.parametrize(
    ("density", "said"),
    [
        ((lambda z: z @ z, lambda z: 2 * z, lambda _: 2 * np.eye(1)), "no maximum near"),
        ((lambda z: -z @ z, lambda z: -2 * z, lambda _: [-2.0]), r"Hessian \(1, 1\); got \(1,\) and \(1,\)"),
        ((lambda _: np.nan, lambda z: -2 * z, lambda _: -2 * np.eye(1)), "at the start .* density is nan"),
        (
            (lambda z: -z @ z, lambda z: z / 0.0 * np.nan, lambda _: -2 * np.eye(1)),
            "a derivative is not finite",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_says_what_is_wrong(density: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        blr.laplace_approximation(*density, [1.0])
