"""The choice of the candidates that make the model, from the rows of the evidence table alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from blr.selection import compare as selection
from blr.selection.stacking import stacking_weights
from flows.models.candidates import JudgedCandidate
from flows.training._left_out import LeftOut, integrated_share, mixed

__all__ = ["Ranking", "rank", "stacked", "with_integrated"]

ENOUGH = 0.05
"""Change of the integral's share, below which the candidates' shares stay the same."""
MOST_ROUNDS = 4
"""Times that the candidates' shares and the integral's are sought in turn."""
LEAST_WEIGHT = 1e-3
"""Smallest share of a candidate in a mixture: a smaller one costs as much time, and changes no prediction."""


@dataclass(frozen=True)
class Ranking:
    """The chosen row, each row's posterior probability, and whether the evidence includes the second-order term.

    `members` are the rows that make the model, each with its share: the chosen one, or those of the mixture.
    `integrated` is the share that the integral over missing features has in a prediction.
    """

    selected: int
    members: tuple[tuple[int, float], ...]
    weights: tuple[float, ...]
    second_order_applied: bool
    integrated: float = 1.0

    @property
    def shares(self) -> list[float]:
        """The share of each row in the model, 0 for those that are not in it."""
        shares = dict(self.members)
        return [shares.get(i, 0.0) for i in range(len(self.weights))]


def rank(candidates: Sequence[JudgedCandidate], *, by: str, shares: Sequence[float] | None = None) -> Ranking:
    """Return the ranking of candidates by "evidence", "bic" or "loo", where higher is better, or as a mixture.

    The second-order term is included for all candidates if all verdicts are green, otherwise for none.  An "average"
    mixes candidates by their posterior probabilities, a "stack" by the `shares` of `stacked`.
    """
    order = selection.rank(
        [candidate.log_evidence for candidate in candidates],
        [candidate.second_order or 0.0 for candidate in candidates],
        [candidate.verdict or "unknown" for candidate in candidates],
        [candidate.prior_probability for candidate in candidates],
    )
    weights = order.weight
    best = order.best([_score(one, by) for one in candidates] if by in ("bic", "loo") else weights)
    members = [(best, 1.0)]
    if by in ("average", "stack"):
        mixed = weights if shares is None else np.asarray(shares, dtype=float)
        kept = np.flatnonzero(mixed >= LEAST_WEIGHT)
        members = list(zip(kept.tolist(), (mixed[kept] / mixed[kept].sum()).tolist(), strict=True))
        best = int(mixed.argmax()) if by == "stack" else best
    return Ranking(best, tuple(members), tuple(weights.tolist()), order.second_order_applied)


def _score(candidate: JudgedCandidate, by: str) -> float:
    """Return the number that ranks a candidate; NaN where it is not known."""
    score = candidate.bic if by == "bic" else candidate.loo
    return np.nan if score is None else score


def stacked(candidates: Sequence[JudgedCandidate], left_out: Sequence[LeftOut]) -> list[float]:
    """Return each candidate's share in the mixture that predicts left-out rows best.

    The integral over missing features has the share that the mixture asks for.
    """
    prior = np.array([candidate.prior_probability for candidate in candidates])
    integrated, shares = 1.0, list[float]()
    for _ in range(MOST_ROUNDS):
        unseen = [one.at(integrated) for one in left_out]
        shares = stacking_weights(unseen, left_out[0].share, prior_probability=prior).tolist()
        before, integrated = integrated, integrated_share(mixed(left_out, shares))
        if abs(integrated - before) < ENOUGH:
            break
    return shares


def with_integrated(ranking: Ranking, left_out: Sequence[LeftOut]) -> Ranking:
    """Return the ranking with the share of the integral over missing features that its mixture asks for."""
    return replace(ranking, integrated=integrated_share(mixed(left_out, ranking.shares)))
