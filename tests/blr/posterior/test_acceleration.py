"""Accelerated steps come to rest where plain ones do, after fewer passes over the rows."""

from __future__ import annotations

import numpy as np
import pytest

from blr.gaussian import Gaussian
from blr.likelihood.prior import GaussianPrior
from blr.posterior import _acceleration as acceleration
from blr.posterior import variational
from blr.posterior._acceleration import Acceleration
from blr.posterior.laplace import fit


def test_a_linear_iteration_is_solved_once_its_directions_are_known():
    rng = np.random.default_rng(0)
    B = rng.normal(size=(3, 3))
    B *= 1.5 / np.abs(np.linalg.eigvals(B)).max()  # plain steps would run away
    rest = rng.normal(size=3)
    q = Gaussian(np.zeros(3), np.eye(3))
    found = Acceleration(q)
    for _ in range(5):
        found.add(q, B @ (q.mean - rest), np.eye(3))
        q = found.proposal() or Gaussian(q.mean + 0.3 * (B @ (q.mean - rest)), np.eye(3))
    np.testing.assert_allclose(q.mean, rest, atol=1e-8)


def test_many_weights_are_measured_along_some_directions_as_along_all(monkeypatch):
    rng = np.random.default_rng(2)
    D = 60
    x = rng.normal(size=(3 * D, D))
    q = Gaussian(np.zeros(D), x.T @ x)

    def proposed() -> Gaussian:
        found, steps = Acceleration(q), np.random.default_rng(3)
        for length in (1.0, 0.6, 0.5):
            residual = np.diag(length * steps.uniform(0.9, 1.1, D)) * q.precision
            found.add(q, length * steps.uniform(0.9, 1.1, D), q.precision + residual)
        proposal = found.proposal()
        assert proposal is not None
        return proposal

    some = proposed()
    monkeypatch.setattr(acceleration, "_DIRECTIONS", D)
    every = proposed()
    np.testing.assert_allclose(some.mean, every.mean, rtol=0.1)
    np.testing.assert_allclose(np.diag(some.precision), np.diag(every.precision), rtol=0.1)


def test_what_is_no_gaussian_is_not_proposed():
    q = Gaussian(np.zeros(2), np.eye(2))
    found = Acceleration(q)
    assert found.proposal() is None
    found.add(q, np.zeros(2), 0.5 * np.eye(2))
    found.add(Gaussian(np.zeros(2), 0.5 * np.eye(2)), np.zeros(2), 0.1 * np.eye(2))
    assert found.proposal() is None


def separable(seed):
    """Return five classes of 60 rows that a line tells apart but for a few, under a broad prior."""
    rng = np.random.default_rng(seed)
    t = np.repeat(np.arange(5), 60)
    centre = rng.normal(size=(5, 4)) * 3
    Phi = np.column_stack([np.ones(300), centre[t] + rng.normal(size=(300, 4))])
    return fit(Phi, t, GaussianPrior.isotropic(5, 1e-3), "softmax")


@pytest.mark.long
@pytest.mark.parametrize("problems", [1, 4])
def test_separable_classes_take_fewer_passes_and_end_as_high(problems, monkeypatch):
    """To where the plain search ends; of one problem alone, rounding decides some steps."""

    def bounds(q) -> list[float]:
        seen, steps = [], []
        with monkeypatch.context() as patch:
            evaluate = variational._evaluate

            def evaluated(*arguments: object, **named: object) -> object:
                state = evaluate(*arguments, **named)
                seen.append(state.elbo)
                return state

            patch.setattr(variational, "_evaluate", evaluated)
            found = variational.refine(q, on_step=lambda: steps.append(1))
        assert found.converged
        assert found.n_iter == len(steps) + 1
        return [*seen, found.elbo]

    fits = [separable(seed) for seed in range(1, 1 + problems)]
    accelerated = [bounds(q) for q in fits]
    monkeypatch.setattr(Acceleration, "proposal", lambda _: None)
    plain = [bounds(q) for q in fits]
    taken, needed = 0, 0
    for own, other in zip(accelerated, plain, strict=True):
        # Expectations at nodes tell no more of separable classes: the searches end some tenths of a nat apart.
        assert own[-1] > other[-1] - 0.2
        goal = min(own[-1], other[-1]) - 0.01
        taken += next(i for i, bound in enumerate(own, 1) if bound >= goal)
        needed += next(i for i, bound in enumerate(other, 1) if bound >= goal)
    assert sum(own[-1] for own in accelerated) > sum(other[-1] for other in plain) - 0.01
    assert taken < (0.9 if problems > 1 else 1.0) * needed
