"""Skill against the class shares: the gain, its interval, and rows that count as one group."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import log_loss

from blr.calibration import skill

SHARES = np.array([0.5, 0.3, 0.2])


def drawn(rng: np.random.Generator, n: int, sharpness: float) -> tuple[np.ndarray, np.ndarray]:
    """Return honest probabilities (n, 3), nearer to the class shares the larger the sharpness, and classes (n,)."""
    p = rng.dirichlet(sharpness * SHARES, size=n)
    return p, (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(max=2)


def test_the_gain_is_the_difference_of_log_losses_and_the_interval_is_of_the_paired_t_test() -> None:
    p, t = drawn(np.random.default_rng(0), 300, 3.0)
    found = skill(p, t, class_shares=SHARES)
    base = np.broadcast_to(SHARES, p.shape)
    assert found.gain == pytest.approx(log_loss(t, base) - log_loss(t, p), abs=1e-12)
    assert found.baseline == pytest.approx(log_loss(t, base), abs=1e-12)
    rows = np.arange(len(t))
    paired = stats.ttest_rel(-np.log(base[rows, t]), -np.log(p[rows, t])).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((paired.low, paired.high), abs=1e-12)
    assert found.verdict == "better"


def test_nineteen_of_twenty_intervals_hold_the_true_gain() -> None:
    rng = np.random.default_rng(1)
    p, t = drawn(rng, 400_000, 4.0)
    truth = skill(p, t, class_shares=SHARES).gain
    parts = np.arange(len(t)).reshape(1000, 400)
    found = [skill(p[i], t[i], class_shares=SHARES) for i in parts]
    assert np.mean([f.low < truth < f.high for f in found]) == pytest.approx(0.95, abs=0.02)


def test_a_model_that_knows_nothing_and_one_that_is_wrong_have_no_skill() -> None:
    rng = np.random.default_rng(2)
    t = rng.choice(3, p=SHARES, size=500)
    near = rng.dirichlet(2000 * SHARES, size=500)  # noise about the shares
    assert skill(near, t, class_shares=SHARES).verdict == "none shown"
    constant = skill(np.broadcast_to(SHARES, (500, 3)), t, class_shares=SHARES)
    assert (constant.gain, constant.low, constant.high, constant.verdict) == (0, 0, 0, "none shown")
    assert skill(rng.dirichlet(SHARES, size=500), t, class_shares=SHARES).verdict == "worse"


def test_copies_of_a_row_in_a_group_count_once_and_weights_as_often_as_they_say() -> None:
    p, t = drawn(np.random.default_rng(3), 80, 3.0)
    once = skill(p, t, class_shares=SHARES)
    copies = np.repeat(np.arange(80), 5)
    together = skill(p[copies], t[copies], class_shares=SHARES, group=copies)
    assert (together.gain, together.low) == pytest.approx((once.gain, once.low), abs=1e-12)
    assert (together.n, together.n_groups) == (400, 80)
    apart = skill(p[copies], t[copies], class_shares=SHARES)
    assert apart.high - apart.low < 0.5 * (once.high - once.low)
    weight = np.repeat([1.0, 0.0], 40)
    half = skill(p, t, class_shares=SHARES, weight=weight)
    first = skill(p[:40], t[:40], class_shares=SHARES)
    assert (half.gain, half.low) == pytest.approx((first.gain, first.low), abs=1e-12)
    assert (half.n, half.n_groups) == (40, 40)


def test_votes_and_shares_of_folds() -> None:
    rng = np.random.default_rng(4)
    p = rng.dirichlet(3 * SHARES, size=200)
    votes = np.array([rng.multinomial(10, row) for row in p]) / 10
    found = skill(p, votes, class_shares=np.broadcast_to(SHARES, p.shape))
    by_hand = (votes * (np.log(p) - np.log(SHARES))).sum(axis=1)
    assert found.gain == pytest.approx(by_hand.mean(), abs=1e-12)


def test_one_group_leaves_the_error_unknown() -> None:
    p, t = drawn(np.random.default_rng(5), 30, 3.0)
    found = skill(p, t, class_shares=SHARES, group=np.zeros(30))
    assert (found.low, found.high, found.verdict) == (-np.inf, np.inf, "none shown")


def test_wrong_shapes_are_named() -> None:
    p, t = drawn(np.random.default_rng(6), 30, 3.0)
    with pytest.raises(ValueError, match=r"class_shares of shape \(2,\)"):
        skill(p, t, class_shares=[0.5, 0.5])
    with pytest.raises(ValueError, match=r"group of shape \(3,\)"):
        skill(p, t, class_shares=SHARES, group=[1, 2, 3])
    with pytest.raises(ValueError, match="level"):
        skill(p, t, class_shares=SHARES, level=95)
