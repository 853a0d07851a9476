"""Mid-ranks against SciPy's; quantiles and areas under ROC curves of parts against those of all values at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from blr.arrays import mid_ranks
from blr.shift import auc, quantile


@pytest.mark.parametrize("x", [[], [3.0], [2, 2, 2], [0.0, -0.0, 1.0], [5, 1, 5, -np.inf, 2, np.inf]])
def test_small(x: list[Any]) -> None:
    assert np.array_equal(mid_ranks(x), rankdata(x))


def test_with_many_ties() -> None:
    x = np.random.default_rng(3).integers(0, 50, 1000) / 7
    assert np.array_equal(mid_ranks(x), rankdata(x))


def in_parts(x: np.ndarray, n: int) -> Callable[[], list[np.ndarray]]:
    """Return what gives x in n parts, one of them empty."""
    return lambda: [*np.array_split(x, n), x[:0]]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("q", [0.0, 0.3, 0.5, 0.99, 1.0])
def test_a_quantile_has_the_bits_of_numpys(n: int, q: float) -> None:
    x = np.random.default_rng(n).standard_cauchy(n)
    for values in (x, np.round(x), np.full(n, -2.5), 1e-310 * x):
        assert quantile(in_parts(values, 3), q) == np.quantile(values, q)


def test_a_quantile_of_nothing() -> None:
    with pytest.raises(ValueError, match="got no values"):
        quantile(lambda: [np.empty(0)], 0.5)


def test_auc_is_scikit_learns() -> None:
    rng = np.random.default_rng(1)
    score, positive = np.round(rng.standard_normal(300), 1), rng.random(300) < 0.3
    for n in (1, 4):
        found, _ = auc(in_parts(score[~positive], n), score[positive])
        assert found == pytest.approx(roc_auc_score(positive, score), abs=1e-12)


def test_deviation_of_the_auc_is_delongs_of_all_pairs() -> None:
    rng = np.random.default_rng(1)
    score, positive = np.round(rng.standard_normal(60), 1), rng.random(60) < 0.3
    score[positive] += 0.5
    gap = score[positive][:, None] - score[~positive]
    pairs = np.where(gap == 0, 0.5, gap > 0)
    variance = (
        pairs.mean(axis=1).var(ddof=1) / positive.sum() + pairs.mean(axis=0).var(ddof=1) / (~positive).sum()
    )
    for n in (1, 5):
        found = auc(in_parts(score[~positive], n), score[positive])
        assert found == pytest.approx((pairs.mean(), np.sqrt(variance)), rel=1e-12)
