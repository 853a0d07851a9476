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


@pytest.mark.parametrize("seed", range(4))
def test_votes_and_weights_keep_the_tolerance(seed: int) -> None:
    """Each row is five votes, so that the posterior is narrower than the rows alone would make it."""
    rng, n = np.random.default_rng(seed), 30_000
    Phi = np.hstack([np.ones((n, 1)), rng.standard_normal((n, 1))])
    t, weight = rng.binomial(5, 1 / (1 + np.exp(-Phi[:, 1]))) / 5, np.full(n, 5.0)
    q = blr.fit(Phi, t, blr.GaussianPrior.isotropic(2), sample_weight=weight, threads=1)
    s = blr.fit_sgd([(Phi, t, weight)], blr.GaussianPrior.isotropic(2))
    d = s.mean - q.mean
    assert np.sqrt(d @ q.precision @ d / 2) < 1
    assert s.n_effective == q.n_effective == 5 * n


@pytest.mark.parametrize("n", [60, 10_000])
def test_a_short_stream_says_so(n: int) -> None:
    rng = np.random.default_rng(0)
    Phi, t = rng.standard_normal((n, 4)), (rng.random(n) < 0.5).astype(float)
    s = blr.fit_sgd(stream(Phi, t, 20 if n == 60 else 5000), blr.GaussianPrior.isotropic(4))
    assert not s.converged
    assert f"only {n} rows" in s.status


def test_an_empty_stream_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one chunk"):
        blr.fit_sgd(iter([]), blr.GaussianPrior.isotropic(2))


def test_no_prior_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"prior is None, expected a GaussianPrior.*or use fit"):
        blr.fit_sgd([(np.ones((2, 1)), [0, 1], None)], None)  # type: ignore[arg-type]


def test_rows_of_weight_zero_are_not_there() -> None:
    Phi, t = np.random.default_rng(0).standard_normal((600, 2)), np.arange(600) % 2
    first, nothing, rest = ((Phi[i : i + 200], t[i : i + 200]) for i in (0, 200, 400))
    prior = blr.GaussianPrior(0.0, 1.0)
    with_zero = blr.fit_sgd([(*first, None), (*nothing, np.zeros(200)), (*rest, None)], prior)
    assert np.array_equal(with_zero.mean, blr.fit_sgd([(*first, None), (*rest, None)], prior).mean)
