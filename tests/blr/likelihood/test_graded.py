"""Graded nodes: the Gaussian's own moments, closed forms through a link, and few of them."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from blr.likelihood.targets import graded_nodes

MEAN, SD = (
    x.ravel() for x in np.meshgrid([-3e3, -20.0, -0.3, 0.0, 1.0, 500.0], [0.0, 0.2, 0.9, 1.7, 3.0, 40.0, 1e4])
)


def test_every_row_has_the_moments_of_its_gaussian() -> None:
    seen = np.zeros(len(MEAN), dtype=int)
    for rows, a, w in graded_nodes(MEAN, SD):
        seen[rows] += 1
        size = 1 + np.abs(MEAN[rows]) + SD[rows]
        mean = np.einsum("ns,ns->n", a, w)
        variance = np.einsum("ns,ns->n", (a - MEAN[rows, None]) ** 2, w)
        assert np.abs(w.sum(axis=1) - 1).max() < 1e-14
        assert np.all(np.abs(mean - MEAN[rows]) < 1e-10 * size)
        assert np.all(np.abs(variance - SD[rows] ** 2) < 1e-10 * size**2)
    assert np.all(seen == 1)


def test_a_step_is_averaged_as_its_closed_form_says_however_wide_the_gaussian() -> None:
    for rows, a, w in graded_nodes(MEAN, SD):
        exact = ndtr(MEAN[rows] / np.sqrt(1 + SD[rows] ** 2))
        assert np.abs(np.einsum("ns,ns->n", ndtr(a), w) - exact).max() < 1e-10


def test_nodes_grow_with_the_logarithm_of_the_sd() -> None:
    widest = [
        max(a.shape[1] for _, a, _ in graded_nodes(np.zeros(1), np.full(1, sd))) for sd in (1e2, 1e4, 1e6)
    ]
    assert widest[2] - widest[1] <= widest[1] - widest[0] + 8
    assert widest[2] < 300
