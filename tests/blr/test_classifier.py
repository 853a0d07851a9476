"""The classifier: a mixture over weights, missing features, measurement errors and models; and its flags."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import blr
from blr.classifier import Classifier
from blr.decisions import Flag, entropy
from blr.member import Member
from blr.missing.moments import FeatureMoments
from blr.missing.patterns import missing_patterns
from blr.predictive.mixture import Temperature, mix

N, F = 1500, 3
BINARY, MANY = ("early", "late"), ("E", "S", "I")


def training_set(n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X (N, F), missing (N, F), class indices (N,)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, F))
    X[:, 1] += X[:, 0]
    activation = np.stack([k * X[:, 0] - 0.5 * k * X[:, 2] ** 2 for k in range(n_classes)], axis=1)
    y = (activation + rng.gumbel(size=activation.shape)).argmax(axis=1)
    missing = rng.random((N, F)) < 0.05
    missing[:, 0] = False
    return X, missing, y


def member(kind: str, X: np.ndarray, y: np.ndarray, n_classes: int, weight: float = 1.0) -> Member:
    """Return a fitted model of all features."""
    basis = blr.fit_basis(kind, X, rng=np.random.default_rng(1))
    likelihood = "logistic" if n_classes == 2 else "softmax"
    q = blr.fit_evidence(basis(X), y, likelihood, classes=range(n_classes), threads=1)
    return Member(basis, q, tuple(range(F)), weight)


def build(kinds: tuple[str, ...], n_classes: int) -> tuple[Classifier, np.ndarray, np.ndarray]:
    """Return a classifier that averages the kinds, and its training rows."""
    X, missing, y = training_set(n_classes)
    filled = FeatureMoments.estimate(X, missing).impute(X, missing)
    members = [member(kind, filled, y, n_classes, 1 / len(kinds)) for kind in kinds]
    classes = BINARY if n_classes == 2 else MANY
    return Classifier.build(members, X, missing, features="abc", classes=classes), X, missing


@pytest.fixture(scope="module", params=[2, 3])
def trained(request: pytest.FixtureRequest) -> tuple[Classifier, np.ndarray, np.ndarray]:
    return build(("polynomial",), request.param)


def test_complete_rows_are_the_posteriors_own_prediction(trained: tuple) -> None:
    c, X, _ = trained
    scores = c.score(X, np.zeros((N, F), dtype=bool))
    expected = c.members[0].posterior.prediction(c.members[0].design(X))
    np.testing.assert_allclose(scores.probability, expected.probability, atol=1e-9)
    np.testing.assert_allclose(scores.mutual_information, expected.mutual_information, atol=1e-7)
    np.testing.assert_allclose(scores.probability.sum(axis=1), 1, atol=1e-9)


def test_missing_features_and_errors_are_integrated_as_by_many_nodes_and_the_members_own_predictions(
    trained: tuple,
) -> None:
    """The slow twin: pattern by pattern, node by node, each with the whole integral over the weights."""
    c, X, missing = trained
    X, gone = X[:120], missing[:120].copy()
    gone[:60] = [False, True, True]
    gone[60:90] = [False, True, False]
    errors = np.where(np.arange(120) % 2, 0.3, 0.0)[:, None] * np.ones(F)
    for sigma in (None, errors):
        scores = c.score(X, gone, sigma)
        for pattern, rows in missing_patterns(gone):
            if not pattern.any():
                continue
            e = None if sigma is None else np.where(gone, 0.0, sigma)[rows]
            points, weight = c.moments.nodes(X[rows], pattern, 512 if sigma is None else 64, errors=e)
            q, design = c.members[0].posterior, c.members[0].design
            slow = mix((w, q.prediction(design(x))) for w, x in zip(weight, points, strict=True))
            moved = slice(None) if sigma is None else (e > 0).any(axis=1)
            error = np.abs(scores.probability[rows] - slow.probability)[moved].max(axis=1)
            alone = pattern.sum() == 1 and sigma is None
            assert error.mean() < (2e-4 if alone else 2e-3)
            assert error.max() < (1e-3 if alone else 4e-3)
            assert scores.logit_std[rows][moved] == pytest.approx(slow.logit_std[moved], rel=0.05)
            information = scores.mutual_information[rows] - slow.mutual_information
            assert np.abs(information[moved]).mean() < 3e-3


PATTERNS = (([0, 0, 0], 1.0), ([0, 1, 0], 0.25), ([0, 1, 1], 0.25), ([1, 0, 0], 1.0), ([1, 1, 0], 1.0))
"""Which features are missing, and the share of the integral where 0 is never missing in training rows."""


def test_a_share_of_the_integral_is_of_features_that_training_rows_lack(trained: tuple) -> None:
    """The rest is at the conditional mean.  A row that lacks another feature has the integral alone."""
    c, X, missing = trained
    parts = Classifier.build(c.members, X, missing, features="abc", classes=c.classes, integrated=0.25)
    assert np.asarray(parts.integrated).tolist() == [1.0, 0.25, 0.25]
    held = replace(c, moments=c.moments.held)
    rows = X[:40]
    for pattern, share in PATTERNS:
        gone = np.broadcast_to(np.array(pattern, dtype=bool), rows.shape)
        for errors in (None, np.full(rows.shape, 0.3)):
            whole, mean, both = (one.score(rows, gone, errors).probability for one in (c, held, parts))
            assert both == pytest.approx((1 - share) * mean + share * whole, abs=2e-3)
    again = Classifier.from_dict(parts.to_dict())
    assert np.array_equal(again.score(X, missing).probability, parts.score(X, missing).probability)


def test_what_a_missing_cell_holds_does_not_matter(trained: tuple) -> None:
    c, X, missing = trained
    scores = [c.score(np.where(missing, junk, X), missing) for junk in (0.0, 1e6)]
    assert np.array_equal(scores[0].probability, scores[1].probability)


@pytest.mark.parametrize("kind", ["polynomial", "rbf"])
@pytest.mark.parametrize("direction", range(F))
def test_rows_thirty_sd_away_are_out_of_domain(kind: str, direction: int) -> None:
    """Local bases forget distance: their variance falls back far from the data, the features' distance does not."""
    c, X, missing = build((kind,), 2)
    far = X.copy()
    far[:, direction] += 30 * X[:, direction].std()
    assert (c.score(far, np.zeros_like(missing)).flags & Flag.OUT_OF_DOMAIN > 0).all()
    near = c.score(X, missing).flags & Flag.OUT_OF_DOMAIN > 0
    assert near.mean() < 0.01


def test_few_rows_of_many_features_do_not_make_others_strange() -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(3, size=400)
    X = 0.2 * rng.normal(size=(3, 300))[y] + rng.normal(size=(400, 300))
    scores = blr.fit_default(X[:100], y[:100], candidates=["linear"]).score(X[100:])
    assert (scores.flags & Flag.OUT_OF_DOMAIN > 0).mean() < 0.08


@pytest.mark.parametrize("n_classes", [2, 3])
def test_an_average_is_the_mixture_of_its_members(n_classes: int) -> None:
    """Of two classes exactly; more are integrated together, at points."""
    c, X, missing = build(("polynomial", "rbf"), n_classes)
    scores = c.score(X, np.zeros_like(missing))
    parts = [m.posterior.prediction(m.design(X)) for m in c.members]
    p = sum(0.5 * part.probability for part in parts)
    expected = entropy(p) - sum(0.5 * part.expected_entropy for part in parts)
    exact = n_classes == 2
    np.testing.assert_allclose(scores.probability, p, atol=1e-9 if exact else 2e-3)
    np.testing.assert_allclose(
        scores.mutual_information, np.maximum(expected, 0), atol=1e-7 if exact else 2e-3
    )


def test_unclassifiable_rows_say_nothing(trained: tuple) -> None:
    c, X, missing = trained
    nothing = missing.copy()
    nothing[:8] = True
    scores = c.score(X, nothing)
    assert np.isnan(scores.probability[:8]).all()
    assert np.isnan(scores.logit_std[:8]).all()
    assert (scores.flags[:8] & Flag.UNCLASSIFIABLE > 0).all()
    assert not (
        scores.flags[:8] & (Flag.LOW_CONFIDENCE | Flag.CLOSE_CALL | Flag.FLIPPED | Flag.OUT_OF_DOMAIN)
    ).any()
    assert not (scores.flags[8:] & Flag.UNCLASSIFIABLE).any()
    assert np.isfinite(scores.probability[8:]).all()


def test_errors_blur_and_are_flagged_where_they_move_the_probability(trained: tuple) -> None:
    c, X, _ = trained
    whole = np.zeros((N, F), dtype=bool)
    exact = c.score(X, whole)
    assert np.array_equal(exact.probability, c.score(X, whole, np.zeros((N, F))).probability)
    blurred = c.score(X, whole, np.full((N, F), 1.0))
    moved = np.abs(blurred.probability - exact.probability).max(axis=1) > 0.1
    assert np.array_equal(blurred.flags & Flag.UNCERTAIN_INPUT > 0, moved)
    assert 0.1 < moved.mean() < 1
    assert entropy(blurred.probability).mean() > entropy(exact.probability).mean()


def test_class_counts_of_separable_classes_vary_as_draws_say() -> None:
    """The weights are hardly known and the classes are: to first order in the weights counts varied by many rows."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 90)
    X = 2.0 * np.eye(3)[y] + 0.5 * rng.standard_normal((90, 3))
    whole = np.zeros(X.shape, dtype=bool)
    basis = blr.fit_basis("linear", X)
    prior = blr.GaussianPrior.isotropic(4, 0.05)
    q = blr.refine(blr.fit(basis(X), y, prior, "softmax", threads=1))
    refined = Member(basis, q, (0, 1, 2))
    c = Classifier.build([refined], X, whole, features="abc", classes=MANY)
    scores = c.score(X, whole)
    theta = q.gaussian.mean + q.deviations(64, np.random.default_rng(0))
    exact = np.stack(
        [q.problem.response(q.problem.activations(refined.design(X), t)).sum(axis=0) for t in theta]
    )
    expected = scores.probability.sum(axis=0)
    np.testing.assert_allclose(scores.count_draws, expected + exact - exact.mean(axis=0), rtol=1e-6)
    assert 0.1 < scores.count_draws.std(axis=0).max() < 3


@pytest.mark.parametrize(("reach", "n_far"), [(0.0, 5), (100.0, 0)])
def test_a_temperature_scales_rows_within_the_labels_range_and_its_reach(
    trained: tuple, reach: float, n_far: int
) -> None:
    c, X, missing = trained
    X = np.concatenate([X, np.add(X[:5], [40.0, 0.0, 0.0])])
    missing = np.concatenate([missing, missing[:5]])
    low, high = X[:N].min(axis=0), X[:N].max(axis=0)
    c = replace(c, support=np.stack([low, high]))
    hot = replace(c, temperature=Temperature(np.array([0.5, 2.0]), np.array([0.2, 0.8]), reach))
    plain, scaled = c.score(X, missing), hot.score(X, missing)
    beyond = (plain.flags & int(Flag.BEYOND_LABELS)) > 0
    assert beyond.sum() == 5
    beyond &= n_far > 0
    wanted = hot.temperature.scaled(plain.probability[~beyond])
    np.testing.assert_allclose(scaled.probability[~beyond], wanted, rtol=1e-9)
    np.testing.assert_array_equal(scaled.probability[beyond], plain.probability[beyond])
    again = Classifier.from_dict(hot.to_dict()).score(X, missing)
    np.testing.assert_array_equal(again.probability, scaled.probability)


def test_errors_that_cannot_be_are_refused_and_a_shift_of_other_classes_too(trained: tuple) -> None:
    c, X, missing = trained
    errors = np.full(X.shape, np.nan)
    errors[missing] = -1.0  # what lies beneath a missing feature does not matter
    assert np.array_equal(c.score(X, missing, errors).probability, c.score(X, missing).probability)
    for wrong in (np.inf, -1.0):
        errors[8, 0] = wrong
        with pytest.raises(ValueError, match=rf"errors hold {wrong} at row 8, column 0 \(1 such rows\)"):
            c.score(X, missing, errors)
    with pytest.raises(ValueError, match=rf"errors have shape \({N}, 2\)"):
        c.score(X, missing, errors[:, :2])
    for wrong_shift in (np.zeros(1), np.zeros(4)):
        with pytest.raises(ValueError, match=rf"expected \({len(c.classes)},\), one number for each class"):
            replace(c, log_prior_shift=wrong_shift).score(X, missing)


def test_wrong_features_are_named(trained: tuple) -> None:
    c, X, missing = trained
    with pytest.raises(ValueError, match=r"3 features \['a', 'b', 'c'\]"):
        c.score(X[:, :2], missing[:, :2])
    empty = c.score(X[:0], missing[:0])
    assert empty.probability.shape == (0, len(c.classes))
