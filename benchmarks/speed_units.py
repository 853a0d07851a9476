"""What the machine itself can do, the units in which `bench_speed.py` counts: plain NumPy, no product of ours.

A *pass* is one Newton evaluation of N rows of M columns: activations, sigmoid, gradient and weighted Gram matrix, in
chunks, on Python threads with one BLAS thread each.  A *product* is the N x M x M product in float32, in such chunks.
Both add nothing up in a fixed order, and keep no promise about rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations_with_replacement, count
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

__all__ = ["newton_pass", "polynomial", "product"]

Floats = np.ndarray[Any, np.dtype[np.floating]]
CHUNK = 4096


def polynomial(n: int, m: int, k: int, *, seed: int = 0) -> tuple[Floats, np.ndarray[Any, Any]]:
    """Return correlated columns (n, m), the first one 1, and k classes drawn from a softmax of them.

    All products of eight correlated features, of one factor, two, three and so on, each of unit scale.
    """
    rng = np.random.default_rng([seed, n, m, k])
    mixing = 0.2 * np.eye(8) + 0.6 * rng.standard_normal((8, 8)) / np.sqrt(8)
    X = rng.standard_normal((n, 8)) @ (mixing / np.linalg.norm(mixing, axis=0))
    products = (chosen for degree in count(1) for chosen in combinations_with_replacement(range(8), degree))
    Phi = np.empty((n, m))
    Phi[:, 0] = 1.0
    for j, factors in zip(range(1, m), products, strict=False):
        Phi[:, j] = X[:, factors].prod(axis=1)
        Phi[:, j] /= Phi[:, j].std()
    weights = 0.3 * rng.standard_normal((m, k))
    return Phi, (Phi @ weights + rng.gumbel(size=(n, k))).argmax(axis=1)


def _in_chunks(work: Callable[[slice], object], n: int, threads: int) -> None:
    chunks = [slice(i, min(i + CHUNK, n)) for i in range(0, n, CHUNK)]
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, chunks):
            pass


def newton_pass(Phi: Floats, t: Floats, w: Floats, *, threads: int) -> None:
    """Do one Newton evaluation of rows Phi (N, M), t (N,) of 0 and 1, at weights w (M,)."""

    def work(rows: slice) -> tuple[Floats, Floats]:
        chunk = Phi[rows]
        y = 1 / (1 + np.exp(-(chunk @ w)))
        scaled = chunk * np.sqrt(y * (1 - y))[:, None]
        return chunk.T @ (t[rows] - y), scaled.T @ scaled

    _in_chunks(work, len(Phi), threads)


def product(Phi: Floats, U: Floats, *, threads: int) -> None:
    """Multiply rows Phi (N, M) in float32 with a matrix U (M, M) in float32."""
    _in_chunks(lambda rows: Phi[rows] @ U, len(Phi), threads)
