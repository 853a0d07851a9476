"""Fractions over covariates and the sky: labelled objects as the target of a logistic regression, and its sums.

The logit of the fraction is that of the classifier's own expectation, corrected by what the labelled objects say:
a + b logit p, with b about one, a parabola in each covariate and an effect for each region of the sky.  All have
Gaussian priors, so that a place where all or none of the labelled objects count, or without any, has an interval too.
Shapes: N rows, F covariates, R regions, M = 2 + 2 F + R functions, S draws of the weights, C cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from scipy.special import expit, logit, ndtri

from blr.arrays import Mask, Matrix, Places, Vector

REGION_SCALES = (0.3, 0.6, 1.2)
"""Standard deviations, in the logit, of the regions' effects, averaged by their evidence.

Smaller ones would make intervals of few labelled objects too short: 86 % where 95 % is stated, from 0.05 on.
"""
INTERCEPT_SD, SLOPE_SD, COVARIATE_SD = 1.5, 0.5, 1.0
FARTHEST = 3.0
"""Standard deviations from the labelled objects' mean at which a covariate's effect stays as it is."""
LARGEST_LOGIT = 8.0


Scales = tuple[Vector, Vector]
"""Mean and standard deviation (F,) of the labelled rows' covariates."""


def _smooth(scales: Scales, expected: Vector, X: Matrix) -> Matrix:
    """Return all functions but the regions', (N, M - R); a missing covariate has no effect."""
    z = np.clip(np.nan_to_num((X - scales[0]) / scales[1]), -FARTHEST, FARTHEST)
    e = np.clip(logit(np.clip(expected, 1e-12, 1 - 1e-12)), -LARGEST_LOGIT, LARGEST_LOGIT)
    return np.column_stack([np.ones(len(e)), e, z, z**2])


def design_matrix(scales: Scales, expected: Vector, X: Matrix, region: Places, n_regions: int) -> Matrix:
    """Return the functions (N, M) of rows; a row of region -1 is in none."""
    regions = np.zeros((len(region), n_regions))
    inside = np.flatnonzero(region >= 0)
    regions[inside, region[inside]] = 1.0
    return np.hstack([_smooth(scales, expected, X), regions])


def fraction_prior(n_covariates: int, n_regions: int, region_sd: float) -> tuple[Vector, Vector]:
    """Return mean and variance (M,) of the weights' prior."""
    F = n_covariates
    mean, sd = np.zeros(2 + 2 * F + n_regions), np.full(2 + 2 * F + n_regions, region_sd)
    mean[1] = 1.0
    sd[: 2 + 2 * F] = [INTERCEPT_SD, SLOPE_SD, *[COVARIATE_SD] * F, *[COVARIATE_SD / 2] * F]
    return mean, sd**2


def mixed_draws(
    log_evidence: Sequence[float], draws: Sequence[Matrix], n_draws: int, rng: np.random.Generator
) -> Matrix:
    """Return draws (S, M) of several posteriors in proportion to their evidence; each has S draws or more to give."""
    weight = np.exp(np.asarray(log_evidence) - np.max(log_evidence))
    chosen = rng.choice(len(weight), size=n_draws, p=weight / weight.sum())
    return np.stack([draws[j][i] for i, j in enumerate(chosen.tolist())])


class FractionSums:
    """Sums of a part and of the whole by cell (C,), from batches: as the classifier expects them, and under S draws.

    `whole` is the number of objects that the fraction is of.
    """

    def __init__(self, n_cells: int, n_draws: int) -> None:
        """Begin with nothing in C cells."""
        self.part, self.whole = np.zeros(n_cells), np.zeros(n_cells)
        self.part_draws, self.whole_draws = np.zeros((n_cells, n_draws)), np.zeros((n_cells, n_draws))

    def add(
        self, cell: Places, expected: tuple[Vector, Vector], drawn: tuple[Matrix, Matrix], use: Mask
    ) -> None:
        """Add the objects to `use` (n,) of those in cells (n,): parts and wholes, (n,) each, and (n, S) each."""
        chosen = np.flatnonzero(use)
        if not chosen.size:
            return
        order = chosen[np.argsort(cell[chosen], kind="stable")]
        there, start = np.unique(cell[order], return_index=True)
        for total, values in zip(
            (self.part, self.whole, self.part_draws, self.whole_draws), (*expected, *drawn), strict=True
        ):
            if total.size:
                total[there] += np.add.reduceat(values[order], start, axis=0)

    @property
    def expected(self) -> Vector:
        """The fractions (C,) by the classifier; NaN where a cell has nothing."""
        return np.where(self.whole > 0, self.part / np.where(self.whole > 0, self.whole, 1.0), np.nan)

    @cached_property
    def corrected(self) -> tuple[Vector, Vector, Vector]:
        """The fractions (C,) that labelled objects correct, and the ends of 95 % intervals, Gaussian in the logit.

        NaN where a cell has nothing, and without draws.
        """
        if not self.part_draws.shape[1]:
            nothing = np.full(len(self.whole), np.nan)
            return nothing, nothing, nothing
        share = np.clip(self.part_draws / np.maximum(self.whole_draws, 1e-300), 1e-12, 1 - 1e-12)
        a = logit(share)
        mean, half = a.mean(axis=1), ndtri(0.975) * a.std(axis=1, ddof=1)
        values = (share.mean(axis=1), expit(mean - half), expit(mean + half))
        fraction, low, high = (np.where(self.whole > 0, x, np.nan) for x in values)
        return fraction, low, high


def drawn_fractions(scales: Scales, W: Matrix, expected: Vector, X: Matrix, region: Places) -> Matrix:
    """Return the fraction of each row under each draw of the weights (S, M), (N, S)."""
    smooth = _smooth(scales, expected, X)
    # The last column is that of no region.
    regions = np.hstack([W[:, smooth.shape[1] :], np.zeros((len(W), 1))])
    return np.asarray(expit(smooth @ W[:, : smooth.shape[1]].T + regions[:, region].T))
