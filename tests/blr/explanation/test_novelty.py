"""Novelty: a cluster without labels comes before the tails of what is labelled; distances as a loop finds them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree

from blr.explanation import Novelty, relative
from blr.missing.moments import FeatureMoments


def test_distances_are_those_of_a_loop_over_all() -> None:
    rng = np.random.default_rng(0)
    labelled, points = rng.normal(size=(50, 3)), rng.normal(size=(20, 3))
    distance, row = Novelty.of(labelled).distance(points)
    gaps = np.linalg.norm(points[:, None] - labelled, axis=2)
    assert distance == pytest.approx(np.sort(gaps, axis=1)[:, 2])
    assert row.tolist() == gaps.argmin(axis=1).tolist()
    near = np.sort(np.linalg.norm(points[:, None] - points, axis=2), axis=1)[:, 2]
    assert relative(distance, points, cKDTree(points)) == pytest.approx(distance / (near + 1e-3))


def test_a_type_of_its_own_comes_before_the_tails() -> None:
    """A dense cluster beside two labelled ones with long tails, which a distance alone lists first."""
    rng = np.random.default_rng(1)
    centres = np.array([[-5.0, 0.0], [5.0, 0.0]])
    known = rng.standard_t(3, size=(300, 2)) + np.tile(centres, (150, 1))
    tails = rng.standard_t(3, size=(3000, 2)) + np.tile(centres, (1500, 1))
    rows = np.concatenate([0.4 * rng.normal(size=(150, 2)), tails])
    distance = Novelty.of(known).distance(rows)[0]
    novelty = relative(distance, rows, cKDTree(rows))
    assert (np.argsort(-novelty)[:20] < 150).mean() > 0.9
    assert (np.argsort(-distance)[:20] < 150).mean() < 0.1


def test_no_labelled_rows_are_refused_and_few_serve() -> None:
    with pytest.raises(ValueError, match="got no labelled rows"):
        Novelty.of(np.empty((0, 2)))
    distance, _ = Novelty.of(np.zeros((1, 2))).distance(np.ones((2, 2)))
    assert distance == pytest.approx([2**0.5] * 2)
    assert relative(distance, np.ones((2, 2)), cKDTree(np.ones((2, 2)))) == pytest.approx(2**0.5 / 1e-3)


def test_the_mean_square_distance_in_the_whitened_space_is_one() -> None:
    """Also where a feature is the difference of two others; what is missing is at its conditional mean."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 2)) @ [[3.0, 1.0], [0.0, 0.2]] + [10, -4]
    X = np.column_stack([X, X[:, 0] - X[:, 1]])
    nothing = np.zeros(X.shape, dtype=bool)
    space = FeatureMoments.estimate(X, nothing)
    points = space.whitened(X, nothing)
    assert points.shape == (400, 2)
    square = np.sum((points[:, None] - points) ** 2, axis=2).sum() / (400 * 399)
    assert square == pytest.approx(1, rel=0.01)
    gone = nothing.copy()
    gone[:, 2] = True
    assert space.whitened(X, gone) == pytest.approx(points, abs=1e-3)
    gone[:] = True
    assert space.whitened(X, gone) == pytest.approx(np.zeros((400, 2)))
