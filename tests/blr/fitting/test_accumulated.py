"""Data that compute their own sums over rows: the fits are the same as those to arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from blr.arrays import Matrix, Vector
from blr.basis.base import Softening, Standardisation
from blr.gaussian import GaussianPrior
from blr.posterior.laplace import fit
from blr.posterior.variational import refine
from blr.selection.compare import leave_one_out
from blr.selection.evidence import fit_evidence
from blr.sums import Chunk, Rows, added
from tests.blr.conftest import Twin


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
        total = None
        for piece in self.pieces:
            total = added(total, function(*piece))
        return total


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
def test_the_fit_is_that_of_the_array(dense: Twin, likelihood: str, step: int | None) -> None:
    Phi, t = dense.softmax(0, N=4000, M=5, K=3) if likelihood == "softmax" else dense.binary(0, N=4000, M=5)
    shares = np.asarray(t, dtype=float)  # of a softmax one-hot already
    weight = np.random.default_rng(1).uniform(0.5, 2, 4000)
    whole = fit(Phi, t, PRIOR, likelihood, sample_weight=weight)
    found = fit(in_pieces(Phi, shares, weight, step=step), None, PRIOR, likelihood)
    sd = np.sqrt(np.diag(whole.gaussian.covariance))
    assert np.abs((found.gaussian.mean - whole.gaussian.mean) / sd).max() < 1e-8
    assert found.log_evidence == pytest.approx(whole.log_evidence, abs=1e-3)
    assert found.n_effective == pytest.approx(whole.n_effective)
    assert leave_one_out(found).log_density == pytest.approx(leave_one_out(whole).log_density, abs=1e-3)


def test_evidence_refinement_and_verdict(dense: Twin) -> None:
    Phi, t = dense.binary(3, N=4000, M=5)
    whole, found = fit_evidence(Phi, t), fit_evidence(in_pieces(Phi, t.astype(float), step=8), None)
    assert found.log_evidence == pytest.approx(whole.log_evidence, abs=1e-3)
    np.testing.assert_allclose(found.prior.precision(5), whole.prior.precision(5), rtol=1e-3)
    assert refine(found).elbo == pytest.approx(refine(whole).elbo, abs=1e-3)
    assert found.trust.verdict == whole.trust.verdict


def test_passes_of_a_fit_whose_sample_is_one_row_in_25(dense: Twin) -> None:
    """A pass each: the rows, checked; the way from the sample to the mode; the Hessians there."""
    Phi, t = dense.binary(4, N=50_000, M=5)
    data = in_pieces(Phi, t.astype(float), step=25)
    data.n_effective = 50_000.0
    fit_evidence(data, None)
    assert len(data.passes) <= 6


def test_labels_that_may_be_wrong(dense: Twin) -> None:
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
def test_rows_that_are_no_data(dense: Twin, change: Callable[..., Any], message: str) -> None:
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
    softening = Softening.learn(X[:, 3:])
    soft = in_pieces(X[:, 3:], np.zeros(n), weight)
    expected = Standardisation.learn(softening(X[:, 3:]), weight).after(softening)
    after = Standardisation.learn_by_sums(soft.accumulate, X[::10, 3:], softening)
    np.testing.assert_allclose(after(X[:50, 3:]), expected(X[:50, 3:]), rtol=1e-11)
    assert after.softening is softening
