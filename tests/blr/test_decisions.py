"""Flags, decisions and review curves against slow loops and worked examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy

from blr.arrays import Matrix, Vector
from blr.decisions import (
    FLAG_MEANINGS,
    REJECTED,
    Flag,
    budget_threshold,
    decide,
    entropy,
    errors_caught,
    flag_confidence,
    flag_flipped,
    mutual_information,
    pairwise_confidence,
    risk_coverage,
)

NAN = np.full(3, np.nan)


def test_flags_are_those_of_the_contract() -> None:
    names = [
        "LOW_CONFIDENCE",
        "CLOSE_CALL",
        "FLIPPED",
        "OUT_OF_DOMAIN",
        "MISSING_INPUT",
        "UNCLASSIFIABLE",
        "UNTRUSTED_MODEL",
        "UNCERTAIN_INPUT",
        "NOT_DETECTED",
        "BEYOND_LABELS",
    ]
    assert [(f.name, f.value) for f in Flag] == [(name, 2**bit) for bit, name in enumerate(names)]
    assert list(FLAG_MEANINGS) == list(Flag)
    # FITS header cards have 80 characters.
    assert max(len(m) for m in FLAG_MEANINGS.values()) < 80
    with pytest.raises(TypeError, match="does not support item assignment"):
        FLAG_MEANINGS[Flag.FLIPPED] = ""


def test_entropy() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(4), 20)
    np.testing.assert_allclose(entropy(p), scipy_entropy(p, axis=1), rtol=1e-13)
    np.testing.assert_array_equal(entropy([[1.0, 0.0], [0.5, 0.5]]), [0.0, np.log(2)])
    assert not np.signbit(entropy([[1.0, 0.0]])[0])
    assert np.isnan(entropy(NAN))
    assert mutual_information([[0.5, 0.5]], [np.log(2) + 1e-17])[0] == 0
    np.testing.assert_allclose(mutual_information([[0.5, 0.5]], [0.2]), np.log(2) - 0.2)


def test_pairwise_confidence() -> None:
    p = np.array([[0.2, 0.5, 0.3], [0.9, 0.1, 0.0], [1 / 3, 1 / 3, 1 / 3], NAN])
    np.testing.assert_allclose(pairwise_confidence(p), [0.5 / 0.8, 0.9, 0.5, np.nan])


@given(st.integers(2, 6), st.integers(0, 1000))
def test_pairwise_confidence_is_that_of_the_sorted_pair(K: int, seed: int) -> None:
    p = np.random.default_rng(seed).dirichlet(np.ones(K), 5)
    top = np.sort(p, axis=1)[:, -2:]
    np.testing.assert_allclose(pairwise_confidence(p), top[:, 1] / top.sum(axis=1), rtol=1e-14)


def test_confidence_flags() -> None:
    p = np.array([[0.31, 0.69], [0.3, 0.7], [0.45, 0.55], [0.05, 0.95], [np.nan, np.nan]])
    low, close = int(Flag.LOW_CONFIDENCE), int(Flag.CLOSE_CALL)
    flags = flag_confidence(p, close_call=0.11)
    assert flags.dtype == np.int32
    assert flags.tolist() == [low, 0, low | close, 0, 0]
    assert flag_confidence(p, low_confidence=0.5, close_call=0.0).tolist() == [0] * 5
    # Three classes: unlikely third classes do not make a close race confident, nor many classes a clear one doubtful.
    assert flag_confidence([[0.4, 0.35, 0.25]]).tolist() == [low | close]
    assert flag_confidence([[0.6, 0.05, 0.35]], low_confidence=0.6).tolist() == [0]


def test_flipped() -> None:
    moderated = np.array([[0.6, 0.4], [0.4, 0.6], NAN[:2]])
    plugin = np.array([[0.4, 0.6], [0.1, 0.9], [0.4, 0.6]])
    assert flag_flipped(moderated, plugin).tolist() == [int(Flag.FLIPPED), 0, 0]
    with pytest.raises(ValueError, match="give equal shapes"):
        flag_flipped(moderated, plugin[:2])


@given(st.floats(0, 1), st.integers(1, 40), st.integers(0, 99))
def test_a_budget_is_spent_and_never_overspent(budget: float, n: int, seed: int) -> None:
    confidence = np.random.default_rng(seed).choice(np.linspace(0.5, 1, 15), n)
    threshold = budget_threshold(confidence, budget)
    flagged = np.count_nonzero(confidence < threshold)
    assert flagged <= budget * n
    ties = np.count_nonzero(confidence == threshold)
    assert flagged + max(ties, 1) > int(budget * n)


def test_budget_of_distinct_confidences_is_exact() -> None:
    confidence = np.append(np.random.default_rng(0).permutation(1000) / 2000 + 0.5, np.nan)
    assert np.count_nonzero(confidence < budget_threshold(confidence, 0.1)) == 100
    assert np.count_nonzero(confidence < budget_threshold(confidence, 1.0)) == 1000
    with pytest.raises(ValueError, match=r"budget is 10; give the fraction"):
        budget_threshold(confidence, 10)
    with pytest.raises(ValueError, match="no row has probabilities, so the review threshold cannot be set"):
        budget_threshold(NAN, 0.1)


def test_decisions_under_equal_costs_are_the_largest_probability() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    np.testing.assert_array_equal(decide(p, 1 - np.eye(3)), p.argmax(axis=1))


def test_decisions_of_the_textbook() -> None:
    """PRML §1.5.2: to miss a cancer costs 1000, a false alarm 1."""
    cost = [[0, 1000], [1, 0]]  # truth: cancer, normal; decision: cancer, normal
    assert decide([[0.0009, 0.9991], [0.0011, 0.9989]], cost).tolist() == [1, 0]


def test_reject_option() -> None:
    p = np.array([[0.95, 0.05], [0.8, 0.2], [0.5, 0.5], [np.nan, np.nan]])
    assert decide(p, 1 - np.eye(2), reject=0.2).tolist() == [0, 0, REJECTED, REJECTED]
    assert decide(p, 1 - np.eye(2)).tolist() == [0, 0, 0, REJECTED]


@pytest.mark.parametrize(
    ("p", "reject", "said"),
    [
        ([[1.2, 0.8]], None, r"p of row 0 is \[1.2, 0.8\], which sums to 2"),
        ([[0.5, 0.5], [1.5, -0.5]], None, r"p of row 1 .* \(1 such rows\)"),
        ([[0.5, 0.5]], np.nan, "reject is NaN"),
    ],
)
def test_decisions_say_what_is_wrong(p: list[list[float]], reject: float | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decide(p, np.eye(2), reject=reject)


def test_rows_without_probabilities_are_rejected() -> None:
    assert decide([[np.nan, np.nan], [0.4, 0.6]], 1 - np.eye(2)).tolist() == [-1, 1]


def test_more_decisions_than_classes() -> None:
    cost = [[0.0, 1.0, 0.3], [1.0, 0.0, 0.3]]  # the third: observe again
    assert decide([[0.9, 0.1], [0.6, 0.4]], cost).tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"cost has shape \(3, 2\); expected \(2, number of decisions\)"):
        decide([[0.9, 0.1]], np.ones((3, 2)))
    with pytest.raises(ValueError, match="cost holds NaN or infinity"):
        decide([[0.9, 0.1]], [[0, np.inf], [1, 0]])
    with pytest.raises(ValueError, match=r"p has shape \(2,\); expected \(N, K\)"):
        decide([0.9, 0.1], cost)


def slow_curve(confidence: list[float], wrong: list[bool]) -> Matrix:
    points = []
    for c in sorted(set(confidence), reverse=True):
        kept = [w for q, w in zip(confidence, wrong, strict=True) if q >= c]
        points.append((len(kept) / len(wrong), sum(kept) / len(kept), c))
    return np.array(points).T


def slow_errors_caught(
    confidence: Vector, wrong: Vector, fraction: float, rng: np.random.Generator, n: int = 3000
) -> float:
    """Return the mean share found over random orders of ties; a fractional row counts as far as it goes."""
    total = 0.0
    for _ in range(n):
        order = np.lexsort((rng.random(len(wrong)), confidence))
        reviewed = fraction * len(wrong)
        whole = int(reviewed)
        found = wrong[order[:whole]].sum()
        if whole < len(wrong):
            found += (reviewed - whole) * wrong[order[whole]]
        total += found / wrong.sum()
    return total / n


@given(st.integers(1, 60), st.integers(0, 50))
def test_risk_coverage_against_a_loop(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence, wrong = rng.choice(np.linspace(0.5, 1, 9), n), rng.random(n) < 0.3
    curve = risk_coverage(confidence, wrong)
    coverage, risk, threshold = slow_curve(confidence.tolist(), wrong.tolist())
    np.testing.assert_allclose(curve.coverage, coverage, rtol=1e-14)
    np.testing.assert_allclose(curve.risk, risk, rtol=1e-14)
    np.testing.assert_array_equal(curve.threshold, threshold)


def test_area_under_the_risk_coverage_curve() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.choice(np.linspace(0.5, 1, 7), 300)
    wrong = rng.random(300) < 1 - confidence
    curve = risk_coverage(confidence, wrong)
    fine = (np.arange(200_000) + 0.5) / 200_000
    errors = np.interp(fine, [0, *curve.coverage], [0, *curve.coverage * curve.risk])
    assert curve.area == pytest.approx((errors / fine).mean(), rel=1e-6)
    # One tie: the error rate, whatever is kept.
    assert risk_coverage(np.ones(10), np.arange(10) < 3).area == pytest.approx(0.3)


def test_errors_caught_against_random_orders_of_ties() -> None:
    rng = np.random.default_rng(1)
    confidence, wrong = rng.choice([0.5, 0.7, 0.9], 15), (rng.random(15) < 0.4).astype(float)
    fractions = [0.0, 0.13, 0.4, 0.77, 1.0]
    found = errors_caught(confidence, wrong, fractions)
    slow = [slow_errors_caught(confidence, wrong, f, rng) for f in fractions]
    np.testing.assert_allclose(found, slow, atol=0.02)
    assert found[[0, -1]].tolist() == [0, 1]


def test_errors_caught_when_confidence_is_perfect_or_useless() -> None:
    wrong = np.arange(100) < 20
    np.testing.assert_allclose(errors_caught(np.arange(100), wrong, [0.1, 0.2, 0.5]), [0.5, 1, 1])
    np.testing.assert_allclose(errors_caught(np.ones(100), wrong, [0.1, 0.2]), [0.1, 0.2])
    assert errors_caught(np.ones(3), np.zeros(3), [0.1]).tolist() == [1.0]


def test_review_curves_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="expected the same"):
        risk_coverage(np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match="holds NaN"):
        risk_coverage(NAN, np.ones(3))
    with pytest.raises(ValueError, match="each between 0 and 1"):
        errors_caught(np.ones(3), np.ones(3), [10])


@pytest.mark.parametrize("wrong", [[2, 0], [-1, 0]])
def test_more_errors_than_rows_are_refused(wrong: list[int]) -> None:
    for curve in (lambda: risk_coverage([0.6, 0.9], wrong), lambda: errors_caught([0.6, 0.9], wrong, [0.5])):
        with pytest.raises(ValueError, match="expected 0, 1, or the share"):
            curve()
