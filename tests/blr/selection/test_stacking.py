"""Stacking weights against a general optimiser, and their properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from blr.arrays import Matrix, Vector
from blr.selection.compare import stacking_weights


@pytest.fixture
def case() -> tuple[np.ndarray, Matrix, Vector]:
    """Return left-out probabilities (J, N, K), vote fractions (N, K) and weights (N,)."""
    rng = np.random.default_rng(0)
    J, N, K = 4, 120, 3
    p = rng.dirichlet(np.ones(K), (J, N))
    truth = 0.6 * p[1] + 0.4 * p[2]
    share = rng.multinomial(5, truth) / 5
    return p, share, rng.gamma(2.0, 1.0, N)


def objective(s: Vector, p: np.ndarray, share: Matrix, weight: Vector, prior: Vector) -> float:
    mixed = np.tensordot(s, p, axes=1)
    return weight @ np.sum(share * np.log(mixed), axis=1) + len(p) * (prior / prior.sum()) @ np.log(s)


def test_no_other_weights_predict_better(case: dict[str, Any] | tuple[np.ndarray, Matrix, Vector]) -> None:
    prior = np.array([1.0, 2.0, 1.0, 0.5])
    found = stacking_weights(*case[:2], weight=case[2], prior_probability=prior)

    def energy(z: Vector) -> float:
        s = np.exp(z - z.max())
        return -objective(s / s.sum(), *case, prior)

    best = -minimize(energy, np.zeros(4), method="BFGS", options={"gtol": 1e-6}).fun
    assert best - 2e-3 < objective(found, *case, prior) < best + 1e-9
    assert found.sum() == pytest.approx(1)
    assert found[1] > found[2] > 0.2


def test_a_weight_of_two_is_a_row_twice(case: dict[str, Any] | tuple[np.ndarray, Matrix, Vector]) -> None:
    p, share, _ = case
    twice = np.arange(len(share)) < 30
    index = np.r_[np.arange(len(share)), np.flatnonzero(twice)]
    a = stacking_weights(p, share, weight=1.0 + twice)
    np.testing.assert_allclose(a, stacking_weights(p[:, index], share[index]), atol=1e-9)


def test_models_that_say_the_same_share_by_prior_probability(
    case: dict[str, Any] | tuple[np.ndarray, Matrix, Vector],
) -> None:
    p, share, weight = case
    found = stacking_weights(np.stack([p[0]] * 2), share, weight=weight, prior_probability=[3.0, 1.0])
    np.testing.assert_allclose(found, [0.75, 0.25], rtol=1e-6)


def test_one_model_and_a_probability_of_zero() -> None:
    share = np.array([[1.0, 0.0], [0.0, 1.0]])
    sure = np.array([[1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(stacking_weights(sure[None], share), [1.0])
    found = stacking_weights(np.stack([sure, np.full((2, 2), 0.5)]), np.tile(share[1], (2, 1)))
    np.testing.assert_allclose(
        found, [0.25, 0.75], atol=1e-3
    )  # two rows, and one of the prior's for each model


def test_left_out_rows_choose_what_training_rows_would_not() -> None:
    """A model that knows its rows by heart is found out by the rows left out."""
    rng = np.random.default_rng(1)
    t = rng.random(300) < 0.7
    share = np.stack([~t, t], axis=1).astype(float)
    plain = np.tile([0.3, 0.7], (300, 1))
    overconfident = np.where(rng.random((300, 1)) < 0.7, [0.02, 0.98], [0.98, 0.02])
    found = stacking_weights(np.stack([plain, overconfident]), share)
    assert found[0] > 0.9


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 5, 3), (5, 2), (5,), (2,)), r"expected probabilities \(J, N, K\)"),
        (((2, 5, 3), (5, 3), (4,), (2,)), "left-out probabilities of the same rows"),
        (((2, 5, 3), (5, 3), (5,), (3,)), "left-out probabilities of the same rows"),
        (((0, 5, 3), (5, 3), (5,), (0,)), "left-out probabilities of the same rows"),
    ],
)
def test_says_which_shapes_do_not_fit(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    p, share, weight, prior = (np.ones(shape) for shape in shapes)
    with pytest.raises(ValueError, match=message):
        stacking_weights(p, share, weight=weight, prior_probability=prior)


@pytest.mark.parametrize("bad", [np.nan, -0.1, np.inf])
def test_says_what_is_no_probability(bad: float) -> None:
    p = np.full((2, 3, 2), 0.5)
    p[1, 2, 0] = bad
    with pytest.raises(ValueError, match="finite numbers of 0 or more"):
        stacking_weights(p, np.eye(2)[[0, 1, 1]])
