"""Purity and completeness: against a closed form, and by repeated simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import beta, binom

from blr.census.purity import (
    _SEED,
    LEFT_OUT_ERROR,
    MODEL_ROWS,
    _taken,
    learnt_threshold,
    n_selected,
    selection,
    threshold_for,
)
from blr.census.shares import LabelledRows, TargetRows


def labelled_of(right: int, wrong: int, n: int) -> tuple[LabelledRows, np.ndarray]:
    """Return n rows of each of two classes: `right` of class 1 are chosen, `wrong` of class 0."""
    y = np.repeat(np.array([0, 1], dtype=np.intp), n)
    chosen = np.concatenate([np.arange(n) < wrong, np.arange(n) < right])
    return LabelledRows(np.full((2 * n, 2), 0.5), y, np.ones(2 * n), np.zeros((2 * n, 1))), chosen


def test_purity_of_very_many_rows_is_bayes_rule() -> None:
    labelled, chosen = labelled_of(80_000, 10_000, 100_000)
    shares = np.tile([0.7, 0.3], (4000, 1))
    found = selection(labelled, chosen, 1, shares, n_selected=10**8, n_objects=10**9)
    assert abs(found.purity.mean() - 0.3 * 0.8 / (0.3 * 0.8 + 0.7 * 0.1)) < 1e-3
    assert abs(found.completeness.mean() - 0.8) < 1e-3
    assert found.purity.std() < 5e-3


def test_no_error_seen_is_not_no_error() -> None:
    labelled, chosen = labelled_of(50, 0, 50)
    found = selection(labelled, chosen, 1, np.tile([0.5, 0.5], (4000, 1)), n_selected=1000, n_objects=2000)
    low, high = found.interval(found.purity)
    assert 0.9 < low < 0.975
    assert high == 1.0
    assert found.interval(found.completeness)[0] < 0.97


def test_intervals_hold() -> None:
    rng = np.random.default_rng(1)
    hits = []
    for _ in range(150):
        n, m, share, recall, taken = 60, 800, 0.3, 0.85, 0.1
        labelled, chosen = labelled_of(rng.binomial(n, recall), rng.binomial(n, taken), n)
        of_class = rng.binomial(m, share)
        right, wrong = rng.binomial(of_class, recall), rng.binomial(m - of_class, taken)
        shares = np.tile([1 - of_class / m, of_class / m], (1000, 1))
        found = selection(labelled, chosen, 1, shares, n_selected=right + wrong, n_objects=m)
        for draws, truth in ((found.purity, right / (right + wrong)), (found.completeness, right / of_class)):
            low, high = found.interval(draws)
            hits.append(low <= truth <= high)
    assert 0.9 <= np.mean(hits) <= 0.99


def test_fractions_are_a_mixture_of_what_rows_say_with_and_without_the_model() -> None:
    """The slow twin: a grid of fractions, the binomial of the class's rows times each of the two priors."""
    rng = np.random.default_rng(5)
    n, y = 60, np.repeat(np.array([0, 1], dtype=np.intp), 30)
    p = expit(rng.normal(1.5 * (2 * y - 1), 1.0))
    labelled = LabelledRows(np.column_stack([1 - p, p]), y, np.ones(n), np.zeros((n, 1)))
    chosen = p >= 0.6
    drawn = _taken(labelled, chosen, 1, np.random.default_rng(6), 200_000)
    grid = (np.arange(20_000) + 0.5) / 20_000
    for k in (0, 1):
        soft = labelled.calibrated[:, k]
        expected, hits, rows = soft @ chosen / soft.sum(), chosen[y == k].sum(), 30
        weight = (y == k) / (30 + MODEL_ROWS) + soft / soft.sum() * MODEL_ROWS / (30 + MODEL_ROWS)
        worth = 1 / (weight @ weight + MODEL_ROWS / (30 + MODEL_ROWS) ** 2)
        both = worth * (weight @ chosen)
        evidence = [
            np.mean(beta.pdf(grid, *prior) * binom.pmf(hits, rows, grid))
            for prior in (
                (0.5, 0.5),
                (0.5 + MODEL_ROWS * expected, 0.5 + MODEL_ROWS * (1 - expected)),
            )
        ]
        trust = evidence[1] / sum(evidence)
        means = [(0.5 + hits) / (1 + rows), (0.5 + both) / (1 + worth)]
        assert drawn[:, k].mean() == pytest.approx((1 - trust) * means[0] + trust * means[1], abs=1e-3)


def test_rows_override_a_model_that_is_wrong() -> None:
    labelled, chosen = labelled_of(54, 0, 60)  # the model expects the same fraction of both classes
    drawn = _taken(labelled, chosen, 1, np.random.default_rng(7), 4000)
    assert abs(drawn[:, 1].mean() - 0.9) < 0.02
    assert drawn[:, 0].mean() < 0.02


def test_the_number_selected_tells_of_the_fractions() -> None:
    """The slow twin: draws weighted by the normal density of the observed share, without drawing again."""
    labelled, chosen = labelled_of(15, 2, 20)
    shares = np.tile([0.5, 0.5], (20_000, 1))
    found = selection(labelled, chosen, 1, shares, n_selected=480, n_objects=1000, n_seen=1000)
    taken = _taken(labelled, chosen, 1, np.random.default_rng(_SEED), 20_000)
    variance = (0.48 * 0.52 + 1e-3) / 1000 + (LEFT_OUT_ERROR * 0.48) ** 2
    weight = np.exp(-0.5 * (taken.mean(axis=1) - 0.48) ** 2 / variance)
    purity = np.average(taken[:, 1] / taken.sum(axis=1), weights=weight)
    assert found.purity.mean() == pytest.approx(purity, abs=0.005)
    assert found.completeness.mean() == pytest.approx(np.average(taken[:, 1], weights=weight), abs=0.005)
    unseen = selection(labelled, chosen, 1, shares, n_selected=480, n_objects=1000)
    assert found.completeness.std() < 0.97 * unseen.completeness.std()


def test_a_number_that_no_draw_expects_leaves_enough_draws() -> None:
    labelled, chosen = labelled_of(50, 0, 50)
    shares = np.tile([0.999, 0.001], (1000, 1))
    found = selection(labelled, chosen, 1, shares, n_selected=900, n_objects=1000, n_seen=1000)
    assert len(np.unique(found.purity)) > 20


def test_a_stated_purity_or_completeness_has_a_threshold() -> None:
    """Two normal classes, equally frequent: purity and completeness at a threshold are known."""
    rng = np.random.default_rng(2)
    n, N = 4000, 20_000
    y, truth = (rng.random(n) < 0.5).astype(np.intp), rng.random(N) < 0.5
    x, z = rng.normal(size=n) + 2 * y, rng.normal(size=N) + 2 * truth
    p, q = expit(2 * x - 2), expit(2 * z - 2)
    labelled = LabelledRows(np.column_stack([1 - p, p]), y, np.ones(n), x[:, None])
    target = TargetRows(np.column_stack([1 - q, q]), np.ones(N), z[:, None], N)
    shares = np.tile([0.5, 0.5], (200, 1))
    threshold, pure = threshold_for(labelled, target, 1, shares, purity=0.95)
    assert abs(truth[q >= threshold].mean() - 0.95) < 0.015
    assert pure.n_selected == n_selected(target, 1, threshold) == (q >= threshold).sum()
    threshold, _ = threshold_for(labelled, target, 1, shares, completeness=0.9)
    assert abs((q >= threshold)[truth].mean() - 0.9) < 0.03
    assert threshold_for(labelled, target, 1, np.tile([1.0, 1e-9], (1000, 1)), purity=0.9) is None


def test_a_threshold_before_any_target_is_that_of_the_target_it_stands_for() -> None:
    """The slow twin: labelled rows drawn again at the stated shares, and counted."""
    rng = np.random.default_rng(4)
    y = rng.choice(2, 4000, p=[0.5, 0.5])
    score = expit(rng.normal(2.0 * (2 * y - 1), 1.5))
    labelled = LabelledRows(np.column_stack([1 - score, score]), y, np.ones(4000), np.zeros((4000, 1)))
    shares = np.array([0.8, 0.2])
    for stated in ({"purity": 0.9}, {"completeness": 0.7}):
        threshold, found = learnt_threshold(labelled, 1, shares, **stated)
        assert threshold == float(np.float32(threshold))
        recall = [np.mean(score[y == k] >= threshold) for k in (0, 1)]
        purity = 0.2 * recall[1] / (0.2 * recall[1] + 0.8 * recall[0])
        assert found.purity.mean() == pytest.approx(purity, abs=0.01)
        assert found.completeness.mean() == pytest.approx(recall[1], abs=0.01)
        reached = {"purity": purity, "completeness": recall[1]}
        for what, value in stated.items():
            assert value - 0.003 < reached[what] < value + 0.015
    other = learnt_threshold(labelled, 1, np.array([0.5, 0.5]), completeness=0.7)
    assert other[0] == pytest.approx(threshold, rel=1e-9)  # whatever the shares
    assert learnt_threshold(labelled, 1, shares, purity=0.99999) is None
