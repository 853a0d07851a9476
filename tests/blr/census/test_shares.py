"""Class shares of a target and whether it looks like the labels: closed forms, slow twins, repeated simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import f
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from blr.census.counts import (
    PRECISION,
    ROWS_A_COMPONENT,
    _area,
    _logistic,
    count_classes,
    means_test,
    propensity,
)
from blr.census.shares import (
    MODEL_ROWS,
    LabelledRows,
    TargetRows,
    _class_moments,
    _log_prior,
    central_interval,
    draws_on_simplex,
    em_shares,
    learned_scaling,
    scaled,
    shares_if_features,
    shares_if_same,
    shares_if_shares,
)


def two_normals(
    n: int, share: float, seed: int, *, distance: float = 2.0, moved: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return probabilities at equal class shares (n, 2), classes and one feature (n, 1) of two normal classes."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(np.intp)
    x = rng.normal(size=n) + distance * (y - 0.5) + moved
    p = expit(distance * x)
    return np.column_stack([1 - p, p]), y, np.column_stack([x])


def sets(
    seed: int, *, n: int = 300, N: int = 2000, share: float = 0.5, moved: float = 0.0
) -> tuple[LabelledRows, TargetRows, np.ndarray]:
    p, y, X = two_normals(n, 0.5, seed)
    q, truth, Z = two_normals(N, share, seed + 10_000, moved=moved)
    labelled = LabelledRows(p, y, np.ones(n), X)
    return labelled, TargetRows(q, np.ones(N), Z, N), np.bincount(truth, minlength=2) / N


def test_scaling_finds_the_mode_that_a_general_optimiser_finds() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(80, 3)) * 2
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = np.array([rng.choice(3, p=row**0.5 / (row**0.5).sum()) for row in p])
    weight = rng.uniform(0.5, 2, 80)

    share = np.bincount(y, weight, minlength=3) / weight.sum()

    def probability(theta: np.ndarray) -> np.ndarray:
        joint = share * np.exp(theta[0] * np.log(p / share) + theta[1:])
        return np.asarray(joint / joint.sum(axis=1, keepdims=True))

    def loss(theta: np.ndarray) -> float:
        fit = np.log(probability(theta)[np.arange(80), y])
        return float(-weight @ fit + 0.5 * ((theta[0] - 1) / 0.5) ** 2 + 0.5 * (theta[1:] ** 2).sum())

    slow = minimize(loss, [1.0, 0, 0, 0], method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(scaled(p, learned_scaling(p, y, weight)), probability(slow.x), atol=1e-5)


def test_em_finds_the_most_probable_shares() -> None:
    _, target, _ = sets(4, share=0.2)
    odds = target.probability / 0.5
    grid = np.linspace(0.001, 0.999, 9981)
    value = [np.log(odds @ [1 - s, s]).sum() for s in grid]
    found = em_shares(odds, target.weight, np.array([0.5, 0.5]))
    assert abs(found[1] - grid[np.argmax(value)]) < 2e-4


@pytest.mark.parametrize(("K", "steps"), [(2, 600), (4, 600), (40, 180)])
def test_draws_are_of_the_density_that_was_asked_for(K: int, steps: int) -> None:
    alpha = np.tile([5.0, 2.0, 3.0, 4.0], 10)[:K]  # Dirichlet: moments in closed form
    start = np.concatenate([[1e-4], np.full(K - 1, (1 - 1e-4) / (K - 1))])
    draws = draws_on_simplex(lambda s: np.log(s) @ alpha, start, steps=steps)
    mean, total = alpha / alpha.sum(), alpha.sum()
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.01)
    spread = np.sqrt(mean * (1 - mean) / (total + 1))
    np.testing.assert_allclose(draws.std(axis=0), spread, rtol=0.08 if K < 40 else 0.5)


def test_class_means_are_those_of_a_row_by_row_sum() -> None:
    labelled, _, _ = sets(12, n=50)
    calibrated = labelled.calibrated
    scores = calibrated**2
    mean, V, worth = _class_moments(scores, labelled)
    for k in range(2):
        own, soft = np.flatnonzero(labelled.y == k), calibrated[:, k]
        n, total = len(own), soft.sum()
        weight = [
            (i in own) / (n + MODEL_ROWS) + MODEL_ROWS * soft[i] / total / (n + MODEL_ROWS) for i in range(50)
        ]
        centre = sum(w * s for w, s in zip(weight, scores, strict=True))
        spread = sum(w * np.outer(s - centre, s - centre) for w, s in zip(weight, scores, strict=True))
        np.testing.assert_allclose(mean[:, k], centre)
        np.testing.assert_allclose(V[k], spread)
        variance = sum(w**2 for w in weight) + (MODEL_ROWS / (n + MODEL_ROWS)) ** 2 / MODEL_ROWS
        np.testing.assert_allclose(worth[k], 1 / variance - 1)


def test_the_prior_knows_no_class_but_by_its_labelled_share() -> None:
    """A factor counts the same of a rare class as of a frequent one, and a class that is not there is not excluded."""
    labelled, target, _ = sets(13, share=0.0)
    y = np.repeat([0, 1, 2], [2, 100, 100])
    three, _ = of(np.zeros((202, 1)), np.zeros((1, 1)), 3, y)
    before = three.shares
    changed = before * np.array([[1, 1, 1], [2, 1, 1], [1, 2, 1], [1, 1, 0.5]])
    value = _log_prior(changed / changed.sum(axis=1, keepdims=True), three)
    np.testing.assert_allclose(value[1:], value[1])
    assert value[0] > value[1]
    assert shares_if_shares(labelled, target).mean(axis=0)[1] < 0.1


def coverage(assumes: str, share: float, repeats: int = 80) -> tuple[float, float, float]:
    """Return the coverage of 95 % intervals, their mean width, and the root mean square error."""
    hits, widths, errors = [], [], []
    for seed in range(repeats):
        labelled, target, truth = sets(seed, n=200, N=1000, share=share)
        if assumes == "shares":
            found = shares_if_shares(labelled, target)
        elif assumes == "same":
            found = shares_if_same(labelled, target)
        else:
            found = shares_if_features(labelled, target, np.ones(200))
        low, high = central_interval(found)
        hits.append(low[1] <= truth[1] <= high[1])
        widths.append(high[1] - low[1])
        errors.append(found.mean(axis=0)[1] - truth[1])
    return float(np.mean(hits)), float(np.mean(widths)), float(np.sqrt(np.mean(np.square(errors))))


@pytest.mark.parametrize(
    ("assumes", "share"), [("shares", 0.5), ("shares", 0.15), ("same", 0.5), ("features", 0.5)]
)
def test_intervals_hold_under_their_assumption(assumes: str, share: float) -> None:
    """Of 80 repeats three standard deviations are 7 %; widths are those that the errors ask for."""
    held, width, error = coverage(assumes, share)
    assert held >= 0.88
    assert 0.75 < width / (3.92 * error) < 1.5


def test_the_test_chooses_shares_and_names_it() -> None:
    """Of thirty such draws one is refused, as unlike the labelled objects; this is another."""
    labelled, target, _ = sets(7, share=0.1)
    counted = count_classes(labelled, target, assumes="same")
    assert counted.shares is None
    assert "standard deviations apart" in counted.reason
    labelled, target, truth = sets(11, share=0.15)
    counted = count_classes(labelled, target)
    assert counted.assumes == "shares"
    assert counted.shares is not None
    assert "no test contradicts it" in counted.reason
    low, high = central_interval(counted.shares, 0.999)
    assert low[1] < truth[1] < high[1]


def test_objects_that_look_otherwise_cannot_be_counted() -> None:
    labelled, target, _ = sets(9, moved=2.5)
    counted = count_classes(labelled, target)
    assert counted.shares is None
    assert "audit" in counted.reason
    assert count_classes(labelled, target, assumes="shares").shares is None
    far = count_classes(labelled, target, assumes="features")
    assert far.shares is None
    assert "overlap too little" in far.reason
    near, target, _ = sets(9, share=0.4)
    counted = count_classes(near, target, assumes="features")
    assert counted.assumes == "features"
    assert counted.shares is not None
    without = count_classes(replace(near, y=0 * near.y), target)  # no rows of the second class
    assert without.shares is None
    assert "fewer than 2 labelled rows" in without.reason


def test_a_sample_of_the_target_has_wider_intervals_than_the_target() -> None:
    labelled, target, _ = sets(11, N=4000)
    some = slice(None, None, 40)
    thin = TargetRows(target.probability[some], np.full(100, 40.0), target.X[some], 4000)
    whole, part = shares_if_shares(labelled, target), shares_if_shares(labelled, thin)
    assert np.ptp(central_interval(part), axis=0)[1] > 1.3 * np.ptp(central_interval(whole), axis=0)[1]


def of(
    X: np.ndarray, Z: np.ndarray, K: int = 2, y: np.ndarray | None = None
) -> tuple[LabelledRows, TargetRows]:
    """Return labelled rows, of each class in turn or of classes y, and a target: all classes equally probable."""
    y = np.arange(len(X)) % K if y is None else y
    p, q = (np.full((len(values), K), 1 / K) for values in (X, Z))
    return LabelledRows(p, y, np.ones(len(X)), X), TargetRows(q, np.ones(len(Z)), Z, len(Z))


def test_area_is_scikit_learns_with_ties_and_weights() -> None:
    rng = np.random.default_rng(1)
    score, weight = rng.integers(0, 6, 200).astype(float), rng.uniform(0.1, 3, 200)
    positive = rng.random(200) < 0.4
    assert abs(_area(score, positive, weight) - roc_auc_score(positive, score, sample_weight=weight)) < 1e-12
    assert _area(np.zeros(200), positive, weight) == 0.5


def test_the_logistic_model_is_scikit_learns() -> None:
    rng = np.random.default_rng(2)
    Z, weight = rng.normal(size=(300, 4)), rng.uniform(0.2, 2, 300)
    t = (rng.random(300) < 1 / (1 + np.exp(-Z[:, 0]))).astype(float)
    fitted = LogisticRegression(C=1 / PRECISION, tol=1e-10, max_iter=5000).fit(Z, t, sample_weight=weight)
    w = _logistic(np.column_stack([np.ones(300), Z]), t, weight)
    np.testing.assert_allclose(w, [*fitted.intercept_, *fitted.coef_[0]], atol=1e-4)


def test_equal_sets_are_not_distinguished_and_moved_ones_are() -> None:
    rng = np.random.default_rng(3)
    X, Z = rng.normal(size=(250, 5)), rng.normal(size=(900, 5))
    auc, error, _ = propensity(*of(X, Z), np.ones(250))
    assert abs(auc - 0.5) < 3 * error
    for other, least in (
        (Z + np.array([1, 0, 0, 0, 0]), 0.7),
        (Z * [2, 1, 1, 1, 1], 0.6),  # the same means: squares say it
        (np.where(rng.random(Z.shape) < [0.6, 0, 0, 0, 0], np.nan, Z), 0.65),  # what is missing says it
    ):
        assert propensity(*of(X, other), np.ones(250))[0] > least


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


def surveys(
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
    labelled, target = of(X[chosen], features(truth, rng), K, y[chosen])
    return labelled, target, np.tile(np.bincount(truth, minlength=K) / N, (10, 1))


@pytest.mark.parametrize("K", [2, 5])
def test_the_statistic_is_that_of_a_loop_over_classes_and_rows(K: int) -> None:
    rng = np.random.default_rng(1)
    n, N = 300, 400
    y = np.arange(n) % K
    X, Z = rng.normal(size=(n, 3)) + 0.3 * y[:, None], rng.normal(size=(N, 3)) * [1, 1.2, 1]
    draws = rng.dirichlet(np.full(K, 50.0), 1000)
    found = means_test(*of(X, Z, K), draws)
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
    p = np.array([means_test(*surveys(K, seed, n=n))[2] for seed in range(draws)])  # type: ignore[index]
    assert (p < 0.05).mean() < 0.08
    assert (p < 0.005).mean() < 0.015


def test_colours_that_are_missing_together_raise_no_alarm() -> None:
    """Of three bands: a flag of two colours is a sum of the bands' where no labelled row lacks two bands."""
    alarms = 0
    for seed in range(40):
        rng, n, N = np.random.default_rng(seed), 600, 1500
        bands = rng.normal(size=(n + N, 6))
        bands[rng.random(bands.shape) < 0.02] = np.nan
        X = np.hstack([np.diff(bands, axis=1), bands])
        found = means_test(*of(X[:n], X[n:]), rng.dirichlet([500, 500], 50))
        alarms += found is not None and found[2] < 0.005
    assert alarms <= 2


def test_a_mild_tilt_is_seen_with_enough_labels() -> None:
    for n, least, most in ((1000, 0.95, 1.0), (200, 0.1, 0.9)):
        seen = [means_test(*surveys(2, seed, n=n, tilt=0.3))[2] < 0.005 for seed in range(40)]  # type: ignore[index]
        assert least <= np.mean(seen) <= most


def test_many_features_are_tested_by_few_components() -> None:
    rng = np.random.default_rng(2)
    X, Z = rng.normal(size=(60, 80)), rng.normal(size=(500, 80))
    found = means_test(*of(X, Z), np.full((5, 2), 0.5))
    assert found is not None
    assert found[1] == 58 // ROWS_A_COMPONENT
    assert found[2] > 1e-3


def test_scales_and_copies_of_features_change_nothing() -> None:
    labelled, target, shares = surveys(2, 3)
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


def test_without_rows_or_features_there_is_no_test() -> None:
    for X in (np.zeros((20, 2)), np.random.default_rng(5).normal(size=(10, 2))):
        assert means_test(*of(X, X), np.full((5, 2), 0.5)) is None
