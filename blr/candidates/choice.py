"""The choice among candidates: which make the model, and what share each has.

They are ranked by their rows of the table, or mixed so that rows left out of the fits are predicted best.  A row that
lacks features has two predictions: with these at their conditional means, as training rows are fitted, and with these
integrated out.  The model serves a mixture of both, in which the integral has the share that left-out rows ask for.
Shapes: N training rows, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix
from blr.candidates.candidate import CandidateRow
from blr.likelihood.targets import recorded_probability
from blr.predictive.mixture import estimate_temperature
from blr.selection import compare as selection
from blr.selection.compare import stacking_weights
from blr.trust.verdict import second_order_holds

ENOUGH = 0.05
"""Change of the integral's share, below which the candidates' shares stay the same."""
MOST_ROUNDS = 4
"""Times that the candidates' shares and the integral's are sought in turn."""
MOST_STACKED = 4
"""Candidates in a stack, unless left-out rows ask for more by more than their error: each costs time in every row."""
LEAST_WEIGHT, LEAST_SHARE = 1e-3, 0.02
"""Smallest share of a candidate in an average, and in a stack: a smaller one costs as much time, and gains nothing."""
_WHOLE = (0.1, 0.9)
"""Prior probabilities of the prediction at the conditional means, and of the integral."""
_TINY = np.finfo(float).tiny
_ROUNDING = 1e-12  # nats a row: candidates that say the same differ by less


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Left-out probabilities of the true classes (N, K), and the weighted `share` (N, K) of the classes in each row.

    `filled` are those at the conditional means of missing features, `integrated` those with the features' excess
    spread integrated out; None where no row lacks any, or the rows are streamed.
    """

    filled: Matrix
    share: Matrix
    integrated: Matrix | None = None

    def at(self, integrated: float) -> Matrix:
        """Return the probabilities (N, K) of the mixture in which the integral has the share `integrated`."""
        if self.integrated is None:
            return self.filled
        return (1 - integrated) * self.filled + integrated * self.integrated

    def rows(self, chosen: NDArray[np.bool_]) -> LeftOut:
        """Return the probabilities of some of the rows (N,)."""
        integrated = None if self.integrated is None else self.integrated[chosen]
        return LeftOut(self.filled[chosen], self.share[chosen], integrated)

    def recorded(self, confusion: Matrix | None) -> LeftOut:
        """Return the probabilities of the recorded classes, where labels may be wrong."""
        integrated = None if self.integrated is None else recorded_probability(self.integrated, confusion)
        return replace(self, filled=recorded_probability(self.filled, confusion), integrated=integrated)

    def log_density(self, n_effective: float) -> tuple[float, float]:
        """Return the log density of rows of so much weight, each left out, in nats, and its standard error.

        The rows here may be a sample of them.
        """
        of_row = (self.share * np.log(np.maximum(self.at(1.0), _TINY))).sum(axis=1)
        scale = n_effective / float(self.share.sum())
        return scale * float(of_row.sum()), scale * float(of_row.std(ddof=1) * np.sqrt(len(of_row)))


def mixed(left_out: Sequence[LeftOut], shares: Sequence[float]) -> LeftOut:
    """Return the left-out probabilities of the mixture of candidates with these shares, which sum to one."""
    filled = sum(s * one.filled for s, one in zip(shares, left_out, strict=True))
    integrated = None
    if any(one.integrated is not None for one in left_out):
        integrated = np.asarray(sum(s * one.at(1.0) for s, one in zip(shares, left_out, strict=True)))
    return LeftOut(np.asarray(filled), left_out[0].share, integrated)


def integrated_share(mixture: LeftOut) -> float:
    """Return the share, 0 to 1, that left-out rows ask for the integral over missing features.

    It is a weight of stacking, with a prior: nearly 1 where few rows lack features.
    """
    if mixture.integrated is None:
        return 1.0
    lacking = (mixture.integrated != mixture.filled).any(axis=1)
    if not lacking.any():
        return 1.0
    both = [mixture.filled[lacking], mixture.integrated[lacking]]
    return float(stacking_weights(both, mixture.share[lacking], prior_probability=_WHOLE)[1])


def choose(
    candidates: Sequence[CandidateRow], left_out: Sequence[LeftOut], *, by: str
) -> tuple[CandidateRow, ...]:
    """Return the candidates with their posterior probabilities, and their shares of the model.

    By "evidence", "bic" or "loo", where higher is better, one has the whole; else they are a mixture.

    The second-order term is included for all candidates if it holds for all, otherwise for none.  An "average"
    mixes candidates by their posterior probabilities; a "stack" predicts left-out rows best.  A basis that is learnt
    from the labels has no evidence beside others that are not, and so no probability.
    """
    known = [candidate.comparable for candidate in candidates]
    weights = selection.rank(
        [
            candidate.log_evidence if one or not any(known) else -np.inf
            for candidate, one in zip(candidates, known, strict=True)
        ],
        [candidate.second_order or 0.0 for candidate in candidates],
        [second_order_holds(candidate.numbers) for candidate in candidates],
        [candidate.prior_probability for candidate in candidates],
    )
    shares = np.zeros(len(candidates))
    if by in ("average", "stack"):
        mixture = _stacked(candidates, left_out) if by == "stack" else weights
        kept = np.flatnonzero(mixture >= (LEAST_SHARE if by == "stack" else LEAST_WEIGHT))
        shares[kept] = mixture[kept] / mixture[kept].sum()
    else:
        scores: dict[str, Any] = {
            "evidence": weights,
            "bic": [one.bic if one.comparable else np.nan for one in candidates],
            "loo": np.array([one.loo for one in candidates], dtype=np.float64),  # None becomes NaN
        }
        shares[selection.highest(scores[by])] = 1.0
    rows = zip(candidates, weights.tolist(), shares.tolist(), strict=True)
    return tuple(replace(one, weight=weight, share=share) for one, weight, share in rows)


def crossed(
    candidates: Sequence[CandidateRow],
    left_out: Sequence[LeftOut],
    fold: NDArray[np.intp],
    *,
    by: str,
    scaled: bool,
) -> Matrix:
    """Return the model's probabilities of the rows (N, K), of each `fold` (N,) by what the other folds ask for.

    That is shares, the integral's share and, where they are `scaled`, the power: found from all rows they fit these
    better than new ones.
    """
    p = np.empty_like(left_out[0].filled)
    for k in np.unique(fold):
        own = fold == k
        rest = [one.rows(~own) for one in left_out]
        shares = [row.share for row in choose(candidates, rest, by=by)]
        seen, unseen = mixed(rest, shares), mixed([one.rows(own) for one in left_out], shares)
        integrated = integrated_share(seen)
        p[own] = unseen.at(integrated)
        temperature = estimate_temperature(seen.at(integrated), seen.share) if scaled else None
        if temperature is not None:
            p[own] = temperature.scaled(p[own])
    return p


def _stacked(candidates: Sequence[CandidateRow], left_out: Sequence[LeftOut]) -> Matrix:
    """Return each candidate's share in the mixture that predicts left-out rows best.

    The integral over missing features has the share that the mixture asks for.  Where more than `MOST_STACKED` have a
    share, the smallest is left out again and again, as long as left-out rows lose less by it than their error.
    """
    prior = np.array([candidate.prior_probability for candidate in candidates])
    integrated, shares = 1.0, prior / prior.sum()
    for _ in range(MOST_ROUNDS):
        unseen = np.stack([one.at(integrated) for one in left_out])
        shares = stacking_weights(unseen, left_out[0].share, prior_probability=prior)
        before, integrated = integrated, integrated_share(mixed(left_out, shares.tolist()))
        if abs(integrated - before) < ENOUGH:
            break
    of_row = left_out[0].share

    def log_density(mixture: Matrix) -> Matrix:
        return np.asarray((of_row * np.log(np.maximum(np.tensordot(mixture, unseen, 1), _TINY))).sum(axis=1))

    every = log_density(shares)
    while (used := np.flatnonzero(shares >= LEAST_SHARE)).size > MOST_STACKED:
        kept = used[used != used[shares[used].argmin()]]
        fewer = np.zeros(len(prior))
        fewer[kept] = stacking_weights(unseen[kept], of_row, prior_probability=prior[kept])
        lost = every - log_density(fewer)
        if lost.sum() > lost.std() * np.sqrt(len(lost)) + _ROUNDING * len(lost):
            break
        shares = fewer
    return shares
