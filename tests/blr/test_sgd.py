"""Averaged stochastic gradient ascent against Newton's mode, on streams that are read once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import blr


def stream(Phi: np.ndarray, t: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, None]]:
    for start in range(0, len(Phi), size):
        yield Phi[start : start + size], t[start : start + size], None


@pytest.mark.parametrize("K", [2, 3])
def test_a_long_stream_ends_within_a_posterior_sd_a_weight(K: int) -> None:
    """The stated tolerance: the distance, in posterior sd, is below one for each weight (root mean square)."""
    rng = np.random.default_rng(K)
    Phi = rng.standard_normal((20_000, 6)) * np.logspace(0, 1.5, 6)  # features of unlike scales
    Phi[:, 0] = 1.0
    W = rng.standard_normal((6, K)) / np.logspace(0, 1.5, 6)[:, None]
    y = (Phi @ W + rng.gumbel(size=(len(Phi), K))).argmax(axis=1)
    likelihood, prior = ("logistic", "softmax")[K > 2], blr.GaussianPrior.isotropic(6)
    q = blr.fit(Phi, y, prior, likelihood, classes=range(K), threads=1)
    s = blr.fit_sgd(stream(Phi, y, 500), prior, likelihood, classes=range(K))
    d = s.gaussian.mean - q.gaussian.mean
    assert np.sqrt(d @ q.gaussian.precision @ d / len(d)) < 1
    assert np.abs(s.predict_proba(Phi) - q.predict_proba(Phi)).mean() < 0.01
    assert s.converged
    assert s.n_effective == len(Phi)


def test_a_short_stream_says_so() -> None:
    rng = np.random.default_rng(0)
    Phi, t = rng.standard_normal((60, 4)), (rng.random(60) < 0.5).astype(float)
    s = blr.fit_sgd(stream(Phi, t, 20), blr.GaussianPrior.isotropic(4))
    assert not s.converged
    assert "only 60 rows" in s.status


def test_an_empty_stream_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one chunk"):
        blr.fit_sgd(iter([]), blr.GaussianPrior.isotropic(2))
