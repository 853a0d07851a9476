"""Principal axes against the covariance that they stand for, graded and degenerate ones included."""

from __future__ import annotations

import numpy as np
import pytest

from blr.predictive._cubature import principal_axes


def covariances(K: int, kind: str, n: int = 300) -> np.ndarray:
    rng = np.random.default_rng(K)
    if kind == "random":
        A = rng.standard_normal((n, K, K))
    elif kind == "graded":
        A = rng.standard_normal((n, K, K)) * np.exp(rng.normal(0, 5, (n, 1, K)))
    elif kind == "isotropic":
        A = np.broadcast_to(2.0 * np.eye(K), (n, K, K))
    elif kind == "one direction":
        A = rng.standard_normal((n, K, 1))
    else:
        A = np.zeros((n, K, K)) + 1e-160 * rng.standard_normal((n, K, K))
    return A @ A.transpose(0, 2, 1)


@pytest.mark.parametrize("K", [2, 3, 4, 5, 9])
@pytest.mark.parametrize("kind", ["random", "graded", "isotropic", "one direction", "vanishing"])
def test_axes_make_up_the_centred_covariance(K: int, kind: str) -> None:
    V = covariances(K, kind)
    B = principal_axes(V)
    P = np.eye(K) - 1 / K
    # Of a variance of 1e-320 no digit is left, nor is any needed.
    scale = np.maximum(np.abs(V).max(axis=(1, 2), keepdims=True), 1e-150)
    np.testing.assert_allclose(np.einsum("dkn,dln->nkl", B, B) / scale, P @ (V / scale) @ P, atol=1e-12)
    if kind != "vanishing":
        lengths = np.sqrt((B**2).sum(axis=1))
        assert np.all(np.diff(lengths, axis=0) <= 1e-12 * lengths[:-1])
        overlap = np.einsum("dkn,ekn->den", B, B)[np.triu_indices(K - 1, 1)]
        assert overlap.size == 0 or np.abs(overlap / scale.ravel()).max() < 1e-12


@pytest.mark.parametrize("K", [3, 4, 6])
def test_axes_move_with_the_classes(K: int) -> None:
    V = covariances(K, "random")
    order = np.random.default_rng(0).permutation(K)
    np.testing.assert_allclose(
        principal_axes(V[:, order][:, :, order]), principal_axes(V)[:, order], atol=1e-9
    )
