"""Intervals of class probabilities: what the weights leave open of each.  Shapes: N rows, K classes.

The activation is Gaussian, so that an interval of the probability of two classes is that of the logit, exactly.  Of
more classes each probability depends on all activations: its quantiles are those over Sobol nodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from blr.arrays import Matrix
from blr.likelihood.links import LINKS
from blr.predictive._sobol import normal_nodes

__all__ = ["credible_interval"]

# An end of a 95 % interval errs by 0.02 at worst, where the probability itself is uncertain by 0.3.
_NODES = 512
_BLOCK = 512  # rows at a time: their nodes fill the cache and not the memory


def credible_interval(
    mean: Matrix, covariance: Matrix, share: float = 0.95, *, link: str = "logistic"
) -> tuple[Matrix, Matrix]:
    """Return the lower and the upper end, (N, K) each, of the central `share` of each class probability.

    `mean` and `covariance` of the activation are (N,) and (N,) for two classes, whose `link` counts, else (N, K) and
    (N, K, K); where they are of a mixture, it is taken for a Gaussian of the same moments.
    """
    if not 0 < share < 1:
        raise ValueError(
            f"got {share} as the share inside an interval, expected a number between 0 and 1, such as 0.95"
        )
    tail = (1 - share) / 2
    if mean.ndim == 1:
        by, spread = LINKS[link], -ndtri(tail) * np.sqrt(covariance)
        low, high = mean - spread, mean + spread
        return (
            np.exp(np.stack([by.log_sf(high), by.log_cdf(low)], axis=1)),
            np.exp(np.stack([by.log_sf(low), by.log_cdf(high)], axis=1)),
        )
    ends = [
        _quantiles(mean[i : i + _BLOCK], covariance[i : i + _BLOCK], tail)
        for i in range(0, len(mean), _BLOCK)
    ]
    if not ends:
        return np.empty_like(mean), np.empty_like(mean)
    both = np.concatenate(ends, axis=1)
    return both[0], both[1]


def _quantiles(mean: Matrix, covariance: Matrix, tail: float) -> Matrix:
    """Return both ends (2, n, K) from the probabilities at the nodes.

    In single precision, whose rounding is far below the error of the nodes, and with the nodes last: sorting numbers
    that lie side by side takes a tenth of the time.
    """
    n, K = mean.shape
    values, axes = np.linalg.eigh(covariance)
    root = axes * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    z = normal_nodes(_NODES, K).T.astype(np.float32)
    p = (root.reshape(n * K, K).astype(np.float32) @ z).reshape(n, K, _NODES)
    p += (mean - mean.max(axis=1, keepdims=True))[:, :, None]
    p -= p.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    p.sort(axis=2)
    return np.stack([_sorted_quantile(p, share) for share in (tail, 1 - tail)])


def _sorted_quantile(values: NDArray[np.float32], share: float) -> Matrix:
    """Return the quantile (...) of sorted values (..., S), on the line between the two that are nearest."""
    place = share * (values.shape[-1] - 1)
    below = int(place)
    above = min(below + 1, values.shape[-1] - 1)
    ends = values[..., [below, above]].astype(np.float64)
    return np.asarray(ends[..., 0] + (place - below) * (ends[..., 1] - ends[..., 0]))
