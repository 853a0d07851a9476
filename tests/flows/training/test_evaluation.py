"""The report's numbers are those of scikit-learn, and of counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss

from flows.models.description import Metrics
from flows.training.steps import REVIEWED, evaluate


@pytest.fixture(params=[2, 5])
def held_out(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(request.param), size=2000)
    truth = np.array([rng.choice(request.param, p=row) for row in p])
    sharper = p**1.5 / (p**1.5).sum(axis=1, keepdims=True)
    return p, sharper, truth


def evaluated(p: np.ndarray, q: np.ndarray, truth: np.ndarray) -> Metrics:
    K = p.shape[1]
    return evaluate(p, q, truth, class_shares=np.full(K, 1 / K), classes=tuple(f"c{k}" for k in range(K)))


def test_scores_are_those_of_scikit_learn(held_out: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    p, q, truth = held_out
    found = evaluated(p, q, truth)
    assert found.log_loss == pytest.approx(log_loss(truth, p), abs=1e-12)
    assert found.log_loss_plugin == pytest.approx(log_loss(truth, q), abs=1e-12)
    assert found.log_loss_baseline == pytest.approx(np.log(p.shape[1]), abs=1e-12)
    assert found.accuracy == accuracy_score(truth, p.argmax(axis=1))


def test_review_finds_what_counting_finds(held_out: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    p, q, truth = held_out
    wrong = p.argmax(axis=1) != truth
    order = np.argsort(p.max(axis=1))
    for review, share in zip(evaluated(p, q, truth).reviews, REVIEWED, strict=True):
        n = round(share * len(truth))
        assert review["moderated"] == pytest.approx(wrong[order[:n]].sum() / wrong.sum(), abs=1e-12)
        assert review["random"] == share
        assert review["moderated"] > review["random"]


def test_calibrated_probabilities_lie_within_their_intervals(
    held_out: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    found = evaluated(*held_out)
    inside = [b["low"] <= b["predicted"] <= b["high"] for b in found.reliability]
    assert np.mean(inside) > 0.7
    assert sum(b["n"] for b in found.reliability) == found.n


def test_unclassifiable_rows_get_the_class_shares(
    held_out: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    p, q, truth = (a.copy() for a in held_out)
    p[::4] = q[::4] = np.nan
    found = evaluated(p, q, truth)
    told = p.copy()
    told[::4] = 1 / p.shape[1]
    assert found.n_unclassified == 500
    assert found.log_loss == pytest.approx(log_loss(truth, told), abs=1e-12)
