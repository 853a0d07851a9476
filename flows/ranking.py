"""Which candidate becomes the model, from the rows of the evidence table alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

__all__ = ["Ranking", "rank"]


@dataclass(frozen=True)
class Ranking:
    """The row chosen, each row's posterior probability, and whether the second-order term was counted in."""

    selected: int
    weights: tuple[float, ...]
    second_order_applied: bool


def rank(rows: Sequence[Mapping[str, Any]], *, by: str) -> Ranking:
    """Return the ranking of candidates by "evidence", "bic" or "loo", higher being better.

    A red fit is no contender unless all are.  The second-order term counts for all contenders, where all are
    green, or for none.
    """
    trusted = np.array([row["verdict"] != "red" for row in rows])
    contender = trusted if trusted.any() else np.ones(len(rows), dtype=bool)
    applied = all(row["verdict"] == "green" for row, c in zip(rows, contender, strict=True) if c)
    evidence = np.array([row["log_evidence"] + (row["second_order"] or 0.0) * applied for row in rows])
    prior = np.log([row["prior_probability"] for row in rows])
    score = {"evidence": evidence + prior}.get(
        by, np.array([row.get(by, np.nan) for row in rows], dtype=float)
    )
    log_weight = np.where(contender, evidence + prior, -np.inf)
    weights = np.exp(log_weight - logsumexp(log_weight))
    best = int(np.where(contender & ~np.isnan(score), score, -np.inf).argmax())
    return Ranking(best, tuple(weights.tolist()), bool(applied))
