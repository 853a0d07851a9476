"""Flags, decisions and calibration against slow loops, scikit-learn and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from scipy.stats import entropy as scipy_entropy
from sklearn import metrics

from blr.arrays import Matrix, Vector
from blr.calibration import (
    brier_parts,
    brier_score,
    calibration_error,
    calibration_error_interval,
    log_loss,
    reliability_curve,
    share_interval,
)
from blr.decisions import (
    FLAG_MEANINGS,
    REJECTED,
    Flag,
    decide,
    entropy,
    errors_caught,
    flag_confidence,
    flag_flipped,
    most_probable,
    mutual_information,
    pairwise_confidence,
    risk_coverage,
)

NAN = np.full(3, np.nan)


def test_flags_are_those_of_the_contract() -> None:
    names = ["LOW_CONFIDENCE", "CLOSE_CALL", "FLIPPED", "OUT_OF_DOMAIN", "MISSING_INPUT", "UNCLASSIFIABLE"]
    names += ["UNTRUSTED_MODEL", "UNCERTAIN_INPUT", "NOT_DETECTED", "BEYOND_LABELS"]
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
    moderated, plugin = [[0.6, 0.4], [0.4, 0.6], NAN[:2]], [[0.4, 0.6], [0.1, 0.9], [0.4, 0.6]]
    assert flag_flipped(moderated, plugin).tolist() == [int(Flag.FLIPPED), 0, 0]


@pytest.mark.parametrize("K", [2, 3])
def test_the_most_probable_class_is_the_first_of_equal_ones(K: int) -> None:
    p = np.random.default_rng(0).integers(0, 3, (50, K)) / 4
    p[7] = np.nan
    assert most_probable(p).tolist() == p.argmax(axis=1).tolist()


def test_decisions_are_those_of_least_expected_cost() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    np.testing.assert_array_equal(decide(p, 1 - np.eye(3)), p.argmax(axis=1))
    # PRML §1.5.2: to miss a cancer costs 1000, a false alarm 1; truth and decision are cancer or normal.
    assert decide([[0.0009, 0.9991], [0.0011, 0.9989]], [[0, 1000], [1, 0]]).tolist() == [1, 0]
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
    curve = np.array(risk_coverage(confidence, wrong))
    np.testing.assert_allclose(curve, slow_curve(confidence.tolist(), wrong.tolist()), rtol=1e-14)


def test_errors_caught_against_random_orders_of_ties() -> None:
    rng = np.random.default_rng(1)
    confidence, wrong = rng.choice([0.5, 0.7, 0.9], 15), (rng.random(15) < 0.4).astype(float)
    fractions = [0.0, 0.13, 0.4, 0.77, 1.0]
    found = errors_caught(confidence, wrong, fractions)
    slow = [slow_errors_caught(confidence, wrong, f, rng) for f in fractions]
    np.testing.assert_allclose(found, slow, atol=0.02)
    assert found[[0, -1]].tolist() == [0, 1]
    assert errors_caught(np.ones(3), np.zeros(3), [0.1]).tolist() == [1.0]


def test_review_curves_say_what_is_wrong() -> None:
    of_two = [([0.6, 0.9], [2, 0]), ([0.6, 0.9], [-1, 0])]
    for confidence, wrong in [(np.ones(3), np.ones(2)), (NAN, np.ones(3)), *of_two]:
        with pytest.raises(ValueError, match="without NaN, and wrong between 0 and 1"):
            risk_coverage(confidence, wrong)


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
    theirs = metrics.log_loss(t, p, sample_weight=weight)
    assert log_loss(p, t, weight=weight) == pytest.approx(theirs, rel=1e-12)
    if K == 2:
        theirs = metrics.brier_score_loss(t, p[:, 1], sample_weight=weight)
        assert brier_score(p[:, 1], t, weight=weight) == pytest.approx(theirs, rel=1e-12)
        assert brier_score(p, t, weight=weight) == pytest.approx(2 * theirs, rel=1e-12)
    else:
        theirs = metrics.brier_score_loss(t, p, sample_weight=weight, scale_by_half=False)
        assert brier_score(p, t, weight=weight) == pytest.approx(theirs, rel=1e-12)


def test_a_probability_of_one_may_be_rounded_up_and_costs_what_it_costs_scikit_learn() -> None:
    p, t = np.array([[1.0000000000000004, 1e-257], [0.5, 0.5]]), np.array([0, 1])
    assert log_loss(p, t) == pytest.approx(np.log(2) / 2)
    with pytest.raises(ValueError, match="expected probabilities between 0 and 1"):
        log_loss(p + 1e-6, t)
    wrong, t = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 0])  # and certain of it
    assert log_loss(wrong, t) == pytest.approx(metrics.log_loss(t, wrong, labels=[0, 1]), rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("bins", [1, 10])
def test_brier_parts_add_up(K: int, *, weighted: bool, bins: int) -> None:
    p, t, w = example(K)
    parts = brier_parts(p, t, bins=bins, weight=w if weighted else None)
    signs = {"resolution": -1, "within_covariance": -1}
    total = sum(signs.get(name, 1) * part for name, part in parts.items())
    assert brier_score(p, t, weight=w if weighted else None) == pytest.approx(total, rel=1e-12)
    if bins == 1:
        assert parts["resolution"] == pytest.approx(0, abs=1e-15)


def test_brier_parts_of_few_forecast_values_have_no_terms_within_bins() -> None:
    rng = np.random.default_rng(0)
    p = rng.choice([0.1, 0.4, 0.8], 600)
    t = rng.random(600) < p
    parts = brier_parts(p, t)
    share = np.array([t[p == v].mean() for v in (0.1, 0.4, 0.8)])
    mass = np.array([(p == v).mean() for v in (0.1, 0.4, 0.8)])
    expected = {
        "reliability": mass @ (share - [0.1, 0.4, 0.8]) ** 2,
        "resolution": mass @ (share - t.mean()) ** 2,
        "uncertainty": t.mean() * (1 - t.mean()),
        "within_variance": 0,
        "within_covariance": 0,
    }
    assert parts == pytest.approx(expected, rel=1e-12, abs=1e-15)


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
    np.testing.assert_allclose(curve["mass"], 0.1, atol=1e-3)
    assert np.all(np.diff(curve["predicted"]) > 0)
    assert curve["count"].sum() == 1000
    weighted = reliability_curve(p, t, bins=10, weight=w)
    np.testing.assert_allclose(weighted["mass"], 0.1, atol=0.01)
    tied = reliability_curve(np.r_[np.zeros(900), p[:100]], np.r_[np.zeros(900), t[:100]], bins=10)
    assert tied["count"].max() >= 900
    assert tied["predicted"][0] == 0


def test_a_weight_of_two_is_a_row_twice() -> None:
    p, t, _ = example(3, 60)
    w = np.random.default_rng(1).integers(0, 3, 60)
    again = np.repeat(np.arange(60), w)
    for score in (log_loss, brier_score, calibration_error):
        assert score(p, t, weight=w) == pytest.approx(score(p[again], t[again]), rel=1e-12)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_against_scipy(level: float) -> None:
    p = np.repeat([0.1, 0.5, 0.9], 20)
    t = np.r_[np.zeros(20), np.arange(20) < 7, np.ones(20)]
    wilson = reliability_curve(p, t, level=level)
    for i, k in enumerate((0, 7, 20)):
        theirs = binomtest(k, 20).proportion_ci(level, method="wilson")
        assert (wilson["low"][i], wilson["high"][i]) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


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
    for said, score in (
        ("expected class indices 0 to 2", lambda: log_loss(p, t + 1)),
        (r"t has shape \(5,\) for p of \(400, 3\)", lambda: log_loss(p, t[:5])),
        ("expected probabilities between 0 and 1", lambda: log_loss(p * 2, t)),
        ("p holds 1 value", lambda: log_loss(np.array([[np.nan, 1.0]]), [0])),
        (r"weight must be \(400,\)", lambda: log_loss(p, t, weight=-np.ones(400))),
        ("the probabilities of one class", lambda: reliability_curve(p, t)),
        ("level is 90", lambda: reliability_curve(p[:, 0], t == 0, level=90)),
        ("bins is 0", lambda: calibration_error(p, t, bins=0)),
        ("expected 0 to 1", lambda: brier_score(p, 3 * p)),
    ):
        with pytest.raises(ValueError, match=said):
            score()


def test_the_interval_of_a_share_is_wilsons() -> None:
    """Wilson (1927), doi:10.1080/01621459.1927.10502953: both ends solve (p - k/n)² = z² p (1 - p) / n."""
    k, n, z = np.array([1, 3, 9, 10]), np.array([10, 10, 10, 400]), 1.959963984540054
    for end in share_interval(k, n):
        np.testing.assert_allclose((end - k / n) ** 2, z**2 * end * (1 - end) / n, atol=1e-12)
    (none, _), (_, every) = share_interval(0, 10), share_interval(10, 10)
    assert (none, every) == (0.0, 1.0)
    assert [x.item() for x in share_interval(0, 0)] == [0.0, 1.0]
