"""Whether the target's features have the means that its shares lead to expect: a slow twin, level and power."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import f

from blr.census.counts import ROWS_A_COMPONENT, means_test
from blr.census.shares import LabelledRows, TargetRows

FEATURES = 6


def features(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return features of classes: unequal spreads, a skew one, a rare flag, and one that is missing in some rows."""
    n, k = len(y), y.astype(float)
    X = rng.normal(size=(n, FEATURES)) * (1 + 0.5 * k[:, None])
    X[:, 0] += k
    X[:, 2] = np.exp(0.7 * X[:, 2])
    X[:, 3] = X[:, 0] + 0.1 * X[:, 3]
    X[:, 4] = rng.random(n) < 0.01 * (1 + k)
    X[rng.random(n) < 0.03 * (1 + k), 5] = np.nan
    return X


def sets(
    K: int, seed: int, *, n: int = 200, N: int = 1500, tilt: float = 0.0
) -> tuple[LabelledRows, TargetRows, np.ndarray]:
    """Return labelled rows, a target with other shares, and draws of these as they are.

    The chance of a label falls with the second feature, by `tilt` in the logarithm.
    """
    rng = np.random.default_rng([seed, K])
    y = rng.integers(K, size=4 * n).astype(np.intp)
    X = features(y, rng)
    chance = np.exp(-tilt * X[:, 1])
    chosen = rng.choice(4 * n, n, replace=False, p=chance / chance.sum())
    before = np.linspace(1, 2, K) / np.linspace(1, 2, K).sum()
    truth = rng.choice(K, N, p=before).astype(np.intp)
    labelled = LabelledRows(np.full((n, K), 1 / K), y[chosen], np.ones(n), X[chosen])
    target = TargetRows(np.full((N, K), 1 / K), np.ones(N), features(truth, rng), N)
    return labelled, target, np.tile(np.bincount(truth, minlength=K) / N, (10, 1))


@pytest.mark.parametrize("K", [2, 5])
def test_the_statistic_is_that_of_a_loop_over_classes_and_rows(K: int) -> None:
    rng = np.random.default_rng(1)
    n, N = 300, 400
    y = np.arange(n) % K
    X, Z = rng.normal(size=(n, 3)) + 0.3 * y[:, None], rng.normal(size=(N, 3)) * [1, 1.2, 1]
    labelled = LabelledRows(np.full((n, K), 1 / K), y, np.ones(n), X)
    draws = rng.dirichlet(np.full(K, 50.0), 1000)
    found = means_test(labelled, TargetRows(np.full((N, K), 1 / K), np.ones(N), Z, N), draws)
    assert found is not None
    both = np.vstack([X, Z])
    X, Z = ((A - both.mean(axis=0)) / both.std(axis=0) for A in (X, Z))
    pi, D, v = draws.mean(axis=0), 3, n - K
    miss, C = Z.mean(axis=0), np.zeros((D, D))
    own = [[X[i] for i in range(n) if y[i] == k] for k in range(K)]
    mean = [sum(rows) / len(rows) for rows in own]
    W = [sum(np.outer(r - m, r - m) for r in rows) for rows, m in zip(own, mean, strict=True)]
    for k in range(K):
        V = (W[k] + (D + 1) * sum(W) / v) / (len(own[k]) + D)
        miss = miss - pi[k] * mean[k]
        C += V * (pi[k] ** 2 / len(own[k]) + pi[k] / N)
        for j in range(K):
            C += np.outer(mean[k], mean[j]) * np.cov(draws.T)[k, j]
    statistic = miss @ np.linalg.inv(C) @ miss * (v - D + 1) / (v * D)
    assert found[1] == D
    assert found[0] == pytest.approx(statistic, rel=1e-3)  # a ridge of a millionth
    assert found[2] == pytest.approx(f.sf(statistic, D, v - D + 1), rel=1e-2)


@pytest.mark.parametrize(
    ("K", "n", "draws"),
    [
        (2, 60, 250),
        *(
            pytest.param(*sizes, marks=pytest.mark.long)
            for sizes in ((2, 200, 500), (5, 200, 250), (5, 1000, 250))
        ),
    ],
)
def test_false_alarms_are_as_many_as_stated(K: int, n: int, draws: int) -> None:
    """Also with a flag that one object in a hundred has, skew features, and missing ones; of 500, 5 % ± 3 sd."""
    p = np.array([means_test(*sets(K, seed, n=n))[2] for seed in range(draws)])  # type: ignore[index]
    assert (p < 0.05).mean() < 0.08
    assert (p < 0.005).mean() < 0.015


def test_colours_that_are_missing_together_raise_no_alarm() -> None:
    """Of three bands: a flag of two colours is a sum of the bands' where no labelled row lacks two bands."""
    alarms = 0
    for seed in range(40):
        rng, n, N = np.random.default_rng(seed), 600, 1500
        bands = rng.normal(size=(n + N, 6))
        bands[rng.random(bands.shape) < 0.02] = np.nan
        X, y = np.hstack([np.diff(bands, axis=1), bands]), np.arange(n) % 2
        labelled = LabelledRows(np.full((n, 2), 0.5), y, np.ones(n), X[:n])
        target = TargetRows(np.full((N, 2), 0.5), np.ones(N), X[n:], N)
        found = means_test(labelled, target, rng.dirichlet([500, 500], 50))
        alarms += found is not None and found[2] < 0.005
    assert alarms <= 2


def test_a_mild_tilt_is_seen_with_enough_labels() -> None:
    for n, least, most in ((1000, 0.95, 1.0), (200, 0.1, 0.9)):
        seen = [means_test(*sets(2, seed, n=n, tilt=0.3))[2] < 0.005 for seed in range(40)]  # type: ignore[index]
        assert least <= np.mean(seen) <= most


def test_a_feature_that_is_missing_more_often_is_seen() -> None:
    labelled, target, shares = sets(2, 1, n=1000)
    X = target.X.copy()
    X[::5, 1] = np.nan
    without, now = (means_test(labelled, t, shares) for t in (target, replace(target, X=X)))
    assert without is not None
    assert now is not None
    assert now[2] < 1e-6 < without[2]


def test_many_features_are_tested_by_few_components() -> None:
    rng = np.random.default_rng(2)
    y = np.arange(60) % 2
    X, Z = rng.normal(size=(60, 80)), rng.normal(size=(500, 80))
    labelled = LabelledRows(np.full((60, 2), 0.5), y, np.ones(60), X)
    target = TargetRows(np.full((500, 2), 0.5), np.ones(500), Z, 500)
    found = means_test(labelled, target, np.full((5, 2), 0.5))
    assert found is not None
    assert found[1] == 58 // ROWS_A_COMPONENT
    assert found[2] > 1e-3


def test_scales_and_copies_of_features_change_nothing() -> None:
    labelled, target, shares = sets(2, 3)
    one = means_test(labelled, target, shares)
    wider = [
        replace(rows, X=np.column_stack([rows.X * 1e6 + 3, rows.X[:, 0], np.full(len(rows.X), 7.0)]))
        for rows in (labelled, target)
    ]
    other = means_test(wider[0], wider[1], shares)
    assert one is not None
    assert other is not None
    assert one[1] == other[1]
    assert one[2] == pytest.approx(other[2], rel=0.02)


def test_a_row_of_weight_two_moves_the_mean_as_two_rows_do() -> None:
    labelled, target, shares = sets(2, 4)
    twice = np.concatenate([np.arange(200), np.arange(200)])
    doubled = LabelledRows(
        labelled.probability[twice], labelled.y[twice], np.full(400, 0.5), labelled.X[twice]
    )
    # Weights alone say nothing: halves of rows count as rows do.
    p = [means_test(rows, target, shares) for rows in (doubled, replace(doubled, weight=np.ones(400)))]
    assert p[0] == p[1]


@pytest.mark.parametrize("constant", [True, False])
def test_without_rows_or_features_there_is_no_test(*, constant: bool) -> None:
    n = 20 if constant else 10
    y = np.arange(n) % 2
    X = np.zeros((n, 2)) if constant else np.random.default_rng(5).normal(size=(n, 2))
    labelled = LabelledRows(np.full((n, 2), 0.5), y, np.ones(n), X)
    assert (
        means_test(labelled, TargetRows(labelled.probability, np.ones(n), X, n), np.full((5, 2), 0.5)) is None
    )
