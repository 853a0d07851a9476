"""A candidate, and a classifier made of such, for tests of what is done with them: `dataclasses.replace` changes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from blr.candidates.candidate import CandidateRow
from blr.candidates.training import TrainedClassifier

CANDIDATE = CandidateRow(
    features=("b_j",),
    basis="linear",
    n_functions=2,
    log_evidence=-10.0,
    second_order=0.0,
    log_likelihood=-8.0,
    log_occam_factor=-2.0,
    bic=0.0,
    loo=None,
    loo_standard_error=None,
    effective_parameters=2.0,
    log_loss=0.5,
    parts=(),
    verdict="green",
    reasons=(),
    numbers={},
    converged=True,
    n_iter=5,
    prior_probability=1.0,
    weight=1.0,
    share=0.0,
)


def judged(p: np.ndarray, q: np.ndarray, outcome: np.ndarray, **more: Any) -> TrainedClassifier:
    """Return what was trained, by the moderated and the plug-in probabilities (N, K) of the rows that judge."""
    N, K = p.shape
    share, of = np.full(K, 1 / K), SimpleNamespace(classes=tuple(f"c{k}" for k in range(K)))
    shares = {"class_share": share, "class_share_kept": share, "group": None, "noise": {}}
    made: dict[str, Any] = {"judged": None, "candidates": (), "selected": 0, "trust": None}
    rows = {"seen": np.ones(N, bool), "probability": p, "plugin": q, "outcome": outcome}
    return TrainedClassifier(**{"classifier": of, "log_loss_logistic": None} | shares | made | rows | more)
