"""Mid-ranks against SciPy's, areas under ROC curves against scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from blr.arrays import mid_ranks
from blr.shift import auc


@pytest.mark.parametrize("x", [[], [3.0], [2, 2, 2], [0.0, -0.0, 1.0], [5, 1, 5, -np.inf, 2, np.inf]])
def test_small(x: list[Any]) -> None:
    assert np.array_equal(mid_ranks(x), rankdata(x))


def test_with_many_ties() -> None:
    x = np.random.default_rng(3).integers(0, 50, 1000) / 7
    assert np.array_equal(mid_ranks(x), rankdata(x))


def test_auc_is_scikit_learns() -> None:
    rng = np.random.default_rng(1)
    score, positive = np.round(rng.standard_normal(300), 1), rng.random(300) < 0.3
    found, _ = auc(score[~positive], score[positive])
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
    found = auc(score[~positive], score[positive])
    assert found == pytest.approx((pairs.mean(), np.sqrt(variance)), rel=1e-12)
