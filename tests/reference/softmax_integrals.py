"""Make softmax_integrals.npz: expected softmax of 5, 10 and 20 classes, by brute force.

For each K and largest contrast sd, rows of five kinds (isotropic, one wide direction, one certain class, ordered
classes, nearly tied means) and E[p] as the mean over 32 independently scrambled Sobol sets of SciPy, of 2^16 points
each.  The spread of the sets gives the standard error, which is kept too.  Takes ten minutes.  Run:

    python tests/reference/softmax_integrals.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri, softmax
from scipy.stats import qmc

CLASSES, SPREADS = (5, 10, 20), (1.0, 4.0, 12.0)
SETS, POINTS = 32, 2**16


def factors(K: int, rng: np.random.Generator) -> Any:
    """Return factors B (5, K, K) of covariances of five kinds."""
    isotropic = rng.standard_normal((K, K))
    wide = 0.2 * isotropic + 3 * np.outer(rng.standard_normal(K), np.eye(K)[0])
    certain = isotropic * np.where(np.arange(K) == 0, 0.01, 1.0)[:, None]
    ordered = np.tril(np.ones((K, K))) / np.sqrt(K)
    return np.stack([isotropic, wide, certain, ordered, rng.standard_normal((K, K))])


def scaled(B: np.ndarray, spread: float) -> Any:
    V = B @ B.transpose(0, 2, 1)
    d = np.einsum("nkk->nk", V)
    largest = (d[:, :, None] + d[:, None, :] - 2 * V).reshape(len(B), -1).max(axis=1)
    return B * (spread / np.sqrt(largest))[:, None, None]


def integral(mean: Any, B: np.ndarray, rng: np.random.Generator) -> Any:
    """Return E[softmax] (K,) and its standard error."""
    K = len(mean)
    estimates = np.empty((SETS, K))
    for s in range(SETS):
        u = qmc.Sobol(K, scramble=True, rng=rng).random(POINTS)
        estimates[s] = softmax(mean + ndtri(np.clip(u, 1e-12, 1 - 1e-12)) @ B.T, axis=1).mean(axis=0)
    return estimates.mean(axis=0), estimates.std(axis=0, ddof=1) / np.sqrt(SETS)


def main() -> None:
    rng = np.random.default_rng(7)
    kept = {}
    for K in CLASSES:
        for spread in SPREADS:
            B = scaled(factors(K, rng), spread)
            mean = rng.standard_normal((5, K)) * max(1.0, spread / 2) * np.array([1, 1, 1, 1, 0.1])[:, None]
            found = [integral(m, b, rng) for m, b in zip(mean, B, strict=True)]
            name = f"{K}_{spread:g}"
            kept |= {
                f"{name}_mean": mean,
                f"{name}_factor": B,
                f"{name}_probability": np.stack([p for p, _ in found]),
                f"{name}_error": np.stack([e for _, e in found]),
            }
            print(name, "largest standard error", kept[f"{name}_error"].max())
    np.savez_compressed(Path(__file__).with_suffix(".npz"), **kept)


if __name__ == "__main__":
    main()
