"""Left-out probabilities of a candidate: what its fits say of rows that they have not seen.

A row that lacks features has two predictions: with these at their conditional means, as training rows are fitted, and
with these integrated out.  The model serves a mixture of both, in which the integral has the share that left-out rows
ask for (`integrated_share`).  Shapes: N training rows, n of them, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from blr.basis.base import Basis
from blr.classifier import Classifier, Member
from blr.likelihood.confusion import recorded_probability
from blr.missing.domain import Domain
from blr.missing.excess import excess_spread
from blr.missing.moments import FeatureMoments
from blr.posterior.posterior import Posterior
from blr.selection.compare import leave_one_out_probability, recorded_shares
from blr.selection.folds import Predict, fold_probabilities
from blr.selection.stacking import stacking_weights
from flows.training._candidate_data import CandidateData
from flows.training._candidate_parts import CandidateProblem, Part
from flows.training._rows import write_array

__all__ = ["IncompleteRows", "LeftOut", "integrated_share", "left_out", "left_out_of_sample", "mixed"]

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

FOLD_WORK = 1e8
"""Most work for folds, as rows times the squared number of weights; above it, one step is used where it is good."""
MOST_INFLUENTIAL = 0.01
"""Largest share of influential rows with which one step is used; their own curvature is over half of the total."""
SAMPLED_AT_ONCE = 16_384
"""Rows of a sample whose design matrix is held in memory at once."""
MOST_INCOMPLETE = 5000
"""Rows that are predicted with missing features integrated out, evenly spaced: each takes tens of predictions."""
_WHOLE = (0.1, 0.9)
"""Prior probabilities of the prediction at the conditional means, and of the integral."""


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Left-out probabilities of the true classes (N, K), and the weighted `share` (N, K) of the classes in each row.

    `filled` are those at the conditional means of missing features, `integrated` those with the features' excess
    spread integrated out; None where no row lacks any, or all rows lie on the disk.  `by` says how they were found.
    """

    filled: Floats
    share: Floats
    integrated: Floats | None = None
    by: str = "folds"

    def at(self, integrated: float) -> Floats:
        """Return the probabilities (N, K) of the mixture in which the integral has the share `integrated`."""
        if self.integrated is None:
            return self.filled
        return (1 - integrated) * self.filled + integrated * self.integrated

    def recorded(self, confusion: Floats | None) -> LeftOut:
        """Return the probabilities of the recorded classes, where labels may be wrong."""
        integrated = None if self.integrated is None else recorded_probability(self.integrated, confusion)
        return replace(self, filled=recorded_probability(self.filled, confusion), integrated=integrated)

    def loss(self) -> float:
        """Return the mean log loss, in nats, of the integral."""
        p = np.maximum(self.at(1.0), np.finfo(float).tiny)
        return float(-(self.share * np.log(p)).sum() / self.share.sum())

    def write(self, path: Path) -> None:
        """Write the arrays to one file."""
        more = [] if self.integrated is None else [self.integrated]
        write_array(np.stack([self.filled, self.share, *more]), path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the arrays of `write`."""
        filled, share, *more = np.load(path, allow_pickle=False)
        return cls(filled, share, more[0] if more else None)


@dataclass(frozen=True, eq=False)
class IncompleteRows:
    """The training rows that lack features, X (N, F) without a value where `missing`, and how these are integrated out.

    `frame` is a classifier without members, which knows how features vary.  `columns` are those of the candidate.
    """

    frame: Classifier
    X: Floats
    missing: NDArray[np.bool_]
    columns: tuple[int, ...]

    @classmethod
    def of(cls, data: CandidateData, features: Sequence[str], columns: tuple[int, ...]) -> Self | None:
        """Return the training rows of some data; None where no row lacks a feature of the candidate."""
        rows, training = data.rows, data.rows.training
        X, missing = rows.X[training], rows.missing[training]
        lacking = missing[:, columns].any(axis=1) & ~missing.all(axis=1)
        if not lacking.any():
            return None
        weight = None if rows.weight is None else rows.weight[training]
        moments = data.moments or FeatureMoments.estimate(X, missing, weight=weight)
        moments = replace(moments, spread=excess_spread(moments, X, missing, weight))
        frame = Classifier(tuple(features), data.classes, (), moments, Domain(moments, np.inf))
        left = np.flatnonzero(lacking)
        step = -(-len(left) // MOST_INCOMPLETE)
        chosen = np.zeros(len(X), dtype=bool)
        chosen[left[::step]] = True
        return cls(frame, X, missing & chosen[:, None], columns)

    def predict(self, basis: Basis, Phi: Floats) -> Predict:
        """Return the prediction (n, 2, K) of rows: at the conditional means, of design matrix Phi, and integrated."""

        def both(q: Posterior, rows: Places) -> Floats:
            filled = q.prediction(Phi[rows]).probability
            return np.stack([filled, self._integrated(basis, q, rows, filled)], axis=1)

        return both

    def _integrated(self, basis: Basis, q: Posterior, rows: Places, filled: Floats) -> Floats:
        """Return the probabilities (n, K) of rows; `filled` (n, K) of those that lack nothing."""
        p = filled.copy()
        lacking = self.missing[rows].any(axis=1)
        if lacking.any():
            classifier = replace(self.frame, members=(Member(basis, q, self.columns),))
            some = rows[lacking]
            p[lacking] = classifier.score(self.X[some], self.missing[some]).probability
        return p

    def stepped(self, basis: Basis, q: Posterior, Phi: Floats, unseen: Floats) -> Floats:
        """Return `unseen` probabilities (N, K) at conditional means, changed as integration changes those of `q`."""
        both = self.predict(basis, Phi)(q, np.arange(len(unseen)))
        p = unseen * (both[:, 1] / np.maximum(both[:, 0], np.finfo(float).tiny))
        return np.asarray(p / p.sum(axis=1, keepdims=True))


def left_out(
    parts: Sequence[Part],
    fold: Places,
    incomplete: IncompleteRows | None,
    *,
    n_influential: int,
    refined: bool,
    on_part: Callable[[], None],
) -> LeftOut:
    """Return the rows' left-out probabilities, of fits without each `fold` (N,).

    Where folds cost too much, they come from the whole fit by one Newton step, provided that only a few rows are so
    influential that one step is inaccurate; `n_influential` counts these, for the first part.
    """
    share, weight = recorded_shares(parts[0].laplace)
    costly = len(share) * float(parts[0].laplace.problem.n_solved) ** 2 > FOLD_WORK
    one_step = costly and n_influential <= MOST_INFLUENTIAL * len(share)
    p = np.zeros((len(share), 2, share.shape[1]))
    for same_width in _by_width(parts):
        found = (
            _one_step(same_width, incomplete)
            if one_step
            else _by_folds(same_width, fold, incomplete, refined=refined)
        )
        for part, both in zip(same_width, found, strict=True):
            p += part.weight * both
            on_part()
    integrated = None if incomplete is None else p[:, 1]
    return LeftOut(p[:, 0], weight[:, None] * share, integrated, "one step" if one_step else "folds")


def _by_folds(
    parts: Sequence[Part], fold: Places, incomplete: IncompleteRows | None, *, refined: bool
) -> Iterator[Floats]:
    """Yield the probabilities (N, 2, K) of parts with one design matrix; (N, 1, K) where no row lacks a feature."""
    Phi = parts[0].laplace.problem.require_rows().Phi
    predict = None if incomplete is None else incomplete.predict(parts[0].basis, Phi)
    found = fold_probabilities([part.laplace for part in parts], fold, refined=refined, predict=predict)
    return (p if p.ndim == 3 else p[:, None] for p in found)


def _one_step(parts: Sequence[Part], incomplete: IncompleteRows | None) -> Iterator[Floats]:
    """Yield what `_by_folds` does, by one Newton step from the fit to all rows."""
    for part in parts:
        unseen = leave_one_out_probability(part.served, records=False)[0]
        if incomplete is None:
            yield unseen[:, None]
            continue
        Phi = part.laplace.problem.require_rows().Phi
        yield np.stack([unseen, incomplete.stepped(part.basis, part.served, Phi, unseen)], axis=1)


def _by_width(parts: Sequence[Part]) -> list[list[Part]]:
    """Return the parts in groups of equal width, which share a design matrix."""
    return [
        [part for part in parts if part.width == width] for width in sorted({part.width for part in parts})
    ]


def left_out_of_sample(
    problem: CandidateProblem, parts: Sequence[Part], *, on_rows: Callable[[int], None]
) -> LeftOut:
    """Return what `left_out` returns, for the rows in memory: by one step from the fits to all rows.

    `on_rows` is called with the number of rows that are done since the last call.
    """
    found = []
    for start in range(0, len(problem.X), SAMPLED_AT_ONCE):
        some = slice(start, start + SAMPLED_AT_ONCE)
        p: Floats | float = 0.0
        for part in parts:
            q = problem.sampled(part.served, part.basis, some)
            unseen, share, weight = leave_one_out_probability(q, records=False)
            p = p + part.weight * unseen
        found.append(np.stack([p, weight[:, None] * share]))
        on_rows(len(share))
    filled, share = np.concatenate(found, axis=1)
    return LeftOut(filled, share, by="one step")


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
