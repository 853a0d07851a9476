"""What the log evidence lacks beyond its second-order term, by importance draws from the Laplace posterior.

The second-order term may be small because its parts cancel, or because there are hardly any rows, and still be wrong by
more than it says.  Draws come in pairs ±z, in which the cubic of the log posterior, most of the ratio's spread, cancels
to first order; they go on until the answer is clear.  Shapes: S pairs of D weights.
"""

from __future__ import annotations

__all__ = ["evidence_left"]

import numpy as np

from blr.fitting.problem import Problem
from blr.gaussian import Gaussian
from blr.trust.whitened import whitened_density

_PAIRS = 250  # a batch: its activations stay in a core's cache where rows are few
_WORK = 5e6  # activations at most
_FEWEST, _MOST = 8, 60  # batches
_CLEAR = 2.5  # standard errors


def evidence_left(
    problem: Problem, laplace: Gaussian, second_order: float, limit: float, n_rows: int
) -> tuple[float, float]:
    """Return what is to be added beyond Laplace and `second_order`, nats, and its standard error.

    Batches of draws end when the size of that is clearly below or above `limit`, or at a second's work at most.
    """
    log_density, D = whitened_density(problem, laplace), len(laplace.mean)
    peak = float(log_density(np.zeros((1, D)))[0][0])
    batches = int(np.clip(_WORK / (2 * _PAIRS * n_rows * problem.likelihood.n_outputs), _FEWEST, _MOST))
    rng, ratios = np.random.default_rng(0), np.empty(0)
    left, error = 0.0, np.inf
    for batch in range(batches):
        z = rng.standard_normal((_PAIRS, D))
        log_ratio = log_density(np.concatenate([z, -z]))[0] - peak + 0.5 * np.tile(np.sum(z**2, axis=1), 2)
        # A ratio of the peak's own size is ordinary; what overflows is a posterior wider than this Gaussian by far.
        pairs = np.exp(np.minimum(log_ratio, 600.0)).reshape(2, -1).mean(axis=0)
        ratios = np.concatenate([ratios, pairs])
        mean = float(ratios.mean())
        left = float(np.log(mean)) - second_order
        error = float(ratios.std()) / mean / np.sqrt(len(ratios))
        if batch + 1 >= _FEWEST and abs(abs(left) - limit) > _CLEAR * error:
            break
    return left, error
