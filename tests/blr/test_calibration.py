"""Scores against scikit-learn, their parts against identities, intervals against SciPy and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, binomtest
from sklearn import metrics

from blr.arrays import Matrix, Vector
from blr.calibration import (
    brier_parts,
    brier_score,
    calibration_error,
    calibration_error_interval,
    log_loss,
    reliability_curve,
    reliability_curves,
    share_interval,
)


def example(
    K: int = 3, n: int = 400, seed: int = 0, temperature: float = 1.0
) -> tuple[Matrix, np.ndarray, Vector]:
    """Return probabilities (n, K), classes drawn from them at another temperature, and weights."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(K), n)
    q = p ** (1 / temperature)
    q /= q.sum(axis=1, keepdims=True)
    t = (rng.random((n, 1)) > np.cumsum(q, axis=1)).sum(axis=1)
    return p, np.minimum(t, K - 1), rng.gamma(1, 1, n)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("K", [2, 3])
def test_scores_against_scikit_learn(K: int, *, weighted: bool) -> None:
    p, t, w = example(K)
    weight = w if weighted else None
    assert log_loss(p, t, weight=weight) == pytest.approx(
        metrics.log_loss(t, p, sample_weight=weight), rel=1e-12
    )
    if K == 2:
        theirs = metrics.brier_score_loss(t, p[:, 1], sample_weight=weight)
        assert brier_score(p[:, 1], t, weight=weight) == pytest.approx(theirs, rel=1e-12)
        assert brier_score(p, t, weight=weight) == pytest.approx(2 * theirs, rel=1e-12)
    else:
        theirs = metrics.brier_score_loss(t, p, sample_weight=weight, scale_by_half=False)
        assert brier_score(p, t, weight=weight) == pytest.approx(theirs, rel=1e-12)


def test_a_probability_of_one_may_be_rounded_up_but_not_more() -> None:
    p, t = np.array([[1.0000000000000004, 1e-257], [0.5, 0.5]]), np.array([0, 1])
    assert log_loss(p, t) == pytest.approx(np.log(2) / 2)
    with pytest.raises(ValueError, match="expected probabilities between 0 and 1"):
        log_loss(p + 1e-6, t)


def test_certain_and_wrong_costs_what_it_costs_scikit_learn() -> None:
    p, t = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 0])
    assert log_loss(p, t) == pytest.approx(metrics.log_loss(t, p, labels=[0, 1]), rel=1e-12)


def test_shares_are_averages_over_labels() -> None:
    p, _, _ = example()
    votes = np.random.default_rng(1).multinomial(7, [0.2, 0.3, 0.5], len(p))
    rows, classes = np.repeat(np.arange(len(p)), 3), np.tile(np.arange(3), len(p))
    for score in (log_loss, brier_score):
        split = score(p[rows], classes, weight=votes.ravel())
        if score is brier_score:  # plus the variance of the votes, which no forecast can take away
            split -= (votes / 7 * (1 - votes / 7)).sum() / len(p)
        assert score(p, votes / 7) == pytest.approx(split, rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("bins", [1, 10])
def test_brier_parts_add_up(K: int, *, weighted: bool, bins: int) -> None:
    p, t, w = example(K)
    parts = brier_parts(p, t, bins=bins, weight=w if weighted else None)
    total = (
        parts.reliability
        - parts.resolution
        + parts.uncertainty
        + parts.within_variance
        - parts.within_covariance
    )
    assert parts.score == pytest.approx(total, rel=1e-12)
    assert parts.score == brier_score(p, t, weight=w if weighted else None)
    if bins == 1:
        assert parts.resolution == pytest.approx(0, abs=1e-15)


def test_brier_parts_of_few_forecast_values_have_no_terms_within_bins() -> None:
    rng = np.random.default_rng(0)
    p = rng.choice([0.1, 0.4, 0.8], 600)
    t = rng.random(600) < p
    parts = brier_parts(p, t)
    assert parts.within_variance == pytest.approx(0, abs=1e-15)
    assert parts.within_covariance == pytest.approx(0, abs=1e-15)
    share = np.array([t[p == v].mean() for v in (0.1, 0.4, 0.8)])
    mass = np.array([(p == v).mean() for v in (0.1, 0.4, 0.8)])
    assert parts.reliability == pytest.approx(mass @ (share - [0.1, 0.4, 0.8]) ** 2, rel=1e-12)
    assert parts.resolution == pytest.approx(mass @ (share - t.mean()) ** 2, rel=1e-12)
    assert parts.uncertainty == pytest.approx(t.mean() * (1 - t.mean()), rel=1e-12)


def test_calibration_error_of_an_example() -> None:
    p = np.repeat([0.2, 0.6], 50)
    t = np.r_[np.arange(50) < 20, np.arange(50) < 30]  # shares 0.4 and 0.6
    assert calibration_error(p, t, bins=2) == pytest.approx(0.5 * 0.2)
    both = np.stack([1 - p, p], axis=1)
    assert calibration_error(both, t.astype(int), bins=2) == pytest.approx(0.5 * 0.2)


def test_bins_hold_equal_mass_and_never_part_equal_values() -> None:
    rng = np.random.default_rng(0)
    p, w = rng.random(1000), rng.gamma(1, 1, 1000)
    t = rng.random(1000) < p
    curve = reliability_curve(p, t, bins=10)
    np.testing.assert_allclose(curve.mass, 0.1, atol=1e-3)
    assert np.all(np.diff(curve.predicted) > 0)
    assert curve.count.sum() == 1000
    weighted = reliability_curve(p, t, bins=10, weight=w)
    np.testing.assert_allclose(weighted.mass, 0.1, atol=0.01)
    tied = reliability_curve(np.r_[np.zeros(900), p[:100]], np.r_[np.zeros(900), t[:100]], bins=10)
    assert tied.count.max() >= 900
    assert tied.predicted[0] == 0


def test_a_weight_of_two_is_a_row_twice() -> None:
    p, t, _ = example(3, 60)
    w = np.random.default_rng(1).integers(0, 3, 60)
    again = np.repeat(np.arange(60), w)
    for score in (log_loss, brier_score, calibration_error):
        assert score(p, t, weight=w) == pytest.approx(score(p[again], t[again]), rel=1e-12)
    assert brier_parts(p, t, weight=w).resolution == pytest.approx(brier_parts(p[again], t[again]).resolution)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_against_scipy(level: float) -> None:
    p = np.repeat([0.1, 0.5, 0.9], 20)
    t = np.r_[np.zeros(20), np.arange(20) < 7, np.ones(20)]
    wilson = reliability_curve(p, t, level=level)
    for i, k in enumerate((0, 7, 20)):
        theirs = binomtest(k, 20).proportion_ci(level, method="wilson")
        assert (wilson.low[i], wilson.high[i]) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    jeffreys = reliability_curve(p, t, level=level, interval="jeffreys")
    theirs = beta(7.5, 13.5).interval(level)
    assert (jeffreys.low[1], jeffreys.high[1]) == pytest.approx(theirs, rel=1e-10)
    assert jeffreys.low[0] == 0
    assert jeffreys.high[2] == 1


def test_curves_of_all_classes() -> None:
    p, t, w = example(3)
    curves = reliability_curves(p, t, bins=5, weight=w)
    assert len(curves) == 3
    one = reliability_curve(p[:, 2], t == 2, bins=5, weight=w)
    np.testing.assert_allclose(curves[2].observed, one.observed, rtol=1e-14)
    np.testing.assert_allclose(curves[2].low, one.low, rtol=1e-14)


def test_the_interval_covers_and_is_seeded() -> None:
    p, t, _ = example(2, 2000, temperature=2.0)
    low, high = calibration_error_interval(p, t, rng=np.random.default_rng(3))
    assert low < calibration_error(p, t) < high
    assert (low, high) == calibration_error_interval(p, t, rng=np.random.default_rng(3))
    truth = calibration_error(*example(2, 200_000, seed=9, temperature=2.0)[:2])
    assert low < truth < high
    calm = example(2, 500, temperature=1.0)
    assert calibration_error_interval(*calm[:2], rng=np.random.default_rng(0))[0] < 0.02


def test_errors_say_what_to_do() -> None:
    p, t, _ = example()
    with pytest.raises(ValueError, match="expected class indices 0 to 2"):
        log_loss(p, t + 1)
    with pytest.raises(ValueError, match=r"t has shape \(5,\) for p of \(400, 3\)"):
        log_loss(p, t[:5])
    with pytest.raises(ValueError, match="expected probabilities between 0 and 1"):
        log_loss(p * 2, t)
    with pytest.raises(ValueError, match="p holds 1 value"):
        log_loss(np.array([[np.nan, 1.0]]), [0])
    with pytest.raises(ValueError, match=r"weight must be \(400,\)"):
        log_loss(p, t, weight=-np.ones(400))
    with pytest.raises(ValueError, match="unknown interval 'wald'; expected one of wilson, jeffreys"):
        reliability_curve(p[:, 0], t == 0, interval="wald")
    with pytest.raises(ValueError, match="use reliability_curves"):
        reliability_curve(p, t)
    with pytest.raises(ValueError, match="level is 90"):
        reliability_curve(p[:, 0], t == 0, level=90)
    with pytest.raises(ValueError, match="bins is 0"):
        calibration_error(p, t, bins=0)
    with pytest.raises(ValueError, match="expected outcomes or shares between 0 and 1"):
        brier_score(p, 3 * p)


def test_the_interval_of_a_share_is_wilsons() -> None:
    """Wilson (1927), doi:10.1080/01621459.1927.10502953: both ends solve (p - k/n)² = z² p (1 - p) / n."""
    k, n, z = np.array([1, 3, 9, 10]), np.array([10, 10, 10, 400]), 1.959963984540054
    for end in share_interval(k, n):
        np.testing.assert_allclose((end - k / n) ** 2, z**2 * end * (1 - end) / n, atol=1e-12)
    (none, _), (_, every) = share_interval(0, 10), share_interval(10, 10)
    assert (none, every) == (0.0, 1.0)
    assert [x.item() for x in share_interval(0, 0)] == [0.0, 1.0]
    with pytest.raises(ValueError, match="each count must lie between 0 and n"):
        share_interval(11, 10)
