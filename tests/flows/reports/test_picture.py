"""The boundary picture shows the two features that separate best, over the range of the data."""

from __future__ import annotations

import numpy as np

from blr.basis.kinds import fit_basis
from blr.classifier import Classifier, Member
from blr.selection.evidence import fit_evidence
from flows.reports.data import boundary_picture


def rows(rng: np.random.Generator, n: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    labels = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 3))
    X[:, 2] += 2.0 * labels
    X[:, 0] += 1.0 * labels
    missing = np.zeros(X.shape, dtype=bool)
    missing[::9, 2] = True
    X[missing] = 0.0
    return X, missing, labels


def fitted(X: np.ndarray, missing: np.ndarray, labels: np.ndarray) -> Classifier:
    basis = fit_basis("linear", X)
    member = Member(basis, fit_evidence(basis(X), labels), tuple(range(X.shape[1])))
    names = [f"x{j}" for j in range(X.shape[1])]
    return Classifier.build([member], X, missing, features=names, classes=["a", "b"])


def test_shows_the_two_features_that_separate_most() -> None:
    X, missing, labels = rows(np.random.default_rng(0))
    picture = boundary_picture(fitted(X, missing, labels), X, missing, labels, names=("x0", "x1", "x2"))
    assert picture is not None
    assert (picture["x_name"], picture["y_name"]) == ("x2", "x0")
    assert picture["moderated"].shape == (picture["y"].size, picture["x"].size, 2)
    np.testing.assert_allclose(picture["moderated"].sum(axis=2), 1, atol=1e-9)
    # The second class grows along both axes.
    assert np.all(np.diff(picture["moderated"][20, :, 1]) > 0)
    assert np.all(np.diff(picture["moderated"][:, 25, 1]) > 0)


def test_points_are_of_objects_that_have_both_features() -> None:
    X, missing, labels = rows(np.random.default_rng(1))
    picture = boundary_picture(fitted(X, missing, labels), X, missing, labels, names=("x0", "x1", "x2"))
    assert picture is not None
    shown = ~missing[:, 2]
    np.testing.assert_array_equal(picture["point_x"], X[shown, 2])
    np.testing.assert_array_equal(picture["point_class"], labels[shown])


def test_a_feature_of_two_values_is_an_axis_only_where_others_are_lacking() -> None:
    X, missing, labels = rows(np.random.default_rng(4))
    X[:, 1] = labels ^ (np.random.default_rng(5).random(len(X)) < 0.02)
    picture = boundary_picture(fitted(X, missing, labels), X, missing, labels, names=("x0", "x1", "x2"))
    assert picture is not None
    assert (picture["x_name"], picture["y_name"]) == ("x2", "x0")
    X[:, 0] = 1.0
    picture = boundary_picture(fitted(X, missing, labels), X, missing, labels, names=("x0", "x1", "x2"))
    assert picture is not None
    assert (picture["x_name"], picture["y_name"]) == ("x2", "x1")
