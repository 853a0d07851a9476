"""Probabilities made to agree with the classes of labelled rows that the model has not seen.

The logits of all classes are multiplied by one slope and moved by one offset a class (vector scaling: Guo et al. 2017,
arXiv:1706.04599, with one temperature).  Weak Gaussian priors limit the effect of a few rows.  They are of the logits
less those of the class shares: a slope of zero then says that every row has the shares, as it should where the features
tell nothing.  With priors of the offsets themselves a small slope would make all classes equally probable.
Shapes: N rows, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blr.arrays import Matrix, Vector

SLOPE_SPREAD = 0.5
OFFSET_SPREAD = 1.0
"""Standard deviations of the priors: of the slope about 1, of the offsets of logits less the shares' about 0."""
SMALLEST = 1e-6
"""Smallest probability that is used: no labelled set contains rarer events."""
_MOST_STEPS = 50


@dataclass(frozen=True, eq=False)
class Scaling:
    """The slope and the offsets (K,), together `parameters` (1 + K,), and their covariance (1 + K, 1 + K).

    The covariance is that of repeated labelled sets with the same number of rows of each class.
    """

    parameters: Vector
    covariance: Matrix

    def __call__(self, probability: Matrix) -> Matrix:
        """Return the probabilities (N, K) scaled."""
        return scaled(probability, self.parameters)

    @classmethod
    def learn(cls, probability: Matrix, y: np.ndarray, weight: Vector) -> Scaling:
        """Return the scaling under which labelled rows (N, K) of classes y (N,) are most probable."""
        Z = _logits(probability)
        N, K = Z.shape
        prior_mean = np.concatenate([[1.0], np.zeros(K)])
        prior_precision = _prior_precision(np.bincount(y, weight, minlength=K).astype(np.float64))
        theta = prior_mean.copy()
        onehot = np.eye(K)[y]

        def objective(at: Vector) -> float:
            p = scaled(probability, at)
            log_p = np.log(np.maximum(p[np.arange(N), y], 1e-300))
            return float(weight @ log_p - 0.5 * (at - prior_mean) @ prior_precision @ (at - prior_mean))

        value = objective(theta)
        for _ in range(_MOST_STEPS):
            p = scaled(probability, theta)
            scores = _scores(Z, onehot - p)
            gradient = weight @ scores - prior_precision @ (theta - prior_mean)
            H = _information(Z, p, weight) + prior_precision
            step = np.linalg.solve(H, gradient)
            size = 1.0
            while (new := objective(theta + size * step)) < value and size > 1e-6:
                size /= 2
            theta, gain, value = theta + size * step, new - value, new
            if abs(gain) < 1e-9 * (1 + abs(value)):
                break
        p = scaled(probability, theta)
        H = _information(Z, p, weight) + prior_precision
        scores = weight[:, None] * _scores(Z, onehot - p)
        total = np.zeros((K + 1, K + 1))
        for k in range(K):
            of_class = scores[y == k]
            if len(of_class):
                centred = of_class - np.average(of_class, axis=0)
                total += centred.T @ centred * len(of_class) / max(len(of_class) - 1, 1)
        half = np.linalg.solve(H, total)
        return cls(theta, np.linalg.solve(H, half.T))


def _prior_precision(class_weight: Vector) -> Matrix:
    """Return the prior's precision (1 + K, 1 + K) for classes of such weights (K,).

    Logits z become b z + c, and logits less those of the shares, z - ln s, become b (z - ln s) + d.  The priors are of
    the slope b and of the offsets d = c + (b - 1) ln s.
    """
    K = len(class_weight)
    log_share = np.log(np.maximum(class_weight, 0.5) / class_weight.sum())
    of_offsets = np.eye(K + 1)
    of_offsets[1:, 0] = log_share - log_share.mean()
    precision = np.concatenate([[SLOPE_SPREAD**-2], np.full(K, OFFSET_SPREAD**-2)])
    return np.asarray(of_offsets.T @ (precision[:, None] * of_offsets))


def scaled(probability: Matrix, parameters: Vector) -> Matrix:
    """Return probabilities (N, K) with logits times parameters[0] plus parameters[1:]."""
    return normalised(parameters[0] * _logits(probability) + parameters[1:])


def normalised(logits: Matrix) -> Matrix:
    """Return the softmax of logits (N, K)."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def _logits(probability: Matrix) -> Matrix:
    return np.log(np.maximum(probability, SMALLEST))


def _scores(Z: Matrix, residual: Matrix) -> Matrix:
    """Return the gradient (N, 1 + K) of each row's log probability."""
    return np.column_stack([(Z * residual).sum(axis=1), residual])


def _information(Z: Matrix, p: Matrix, weight: Vector) -> Matrix:
    """Return the sum over rows of J' (diag p - p p') J, J = (z, identity)."""
    wp = weight[:, None] * p
    mean = (p * Z).sum(axis=1)
    slope = float((wp * Z**2).sum() - weight @ mean**2)
    cross = (wp * (Z - mean[:, None])).sum(axis=0)
    block = np.diag(wp.sum(axis=0)) - p.T @ wp
    return np.block([[np.array([[slope]]), cross[None, :]], [cross[:, None], block]])
