"""Left-out probabilities of a candidate: what its fits say of rows that they have not seen.

A row that lacks features has two predictions: with these at their conditional means, as training rows are fitted, and
with these integrated out.  The model serves a mixture of both, in which the integral has the share that left-out rows
ask for (`integrated_share`).  Shapes: N training rows, n of them, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from blr.selection.stacking import stacking_weights
from flows.training._candidate_data import CandidateData
from flows.training._candidate_parts import CandidateProblem, Part
from flows.training._rows import write_array

__all__ = ["IncompleteRows", "LeftOut", "integrated_share", "left_out", "left_out_of_sample", "mixed"]

Floats = NDArray[np.float64]

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
    spread integrated out; None where no row lacks any, or all rows lie on the disk.
    """

    filled: Floats
    share: Floats
    integrated: Floats | None = None

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

    def log_density(self, n_effective: float) -> tuple[float, float]:
        """Return the log density of rows of so much weight, each left out, in nats, and its standard error.

        The rows here may be a sample of them.
        """
        of_row = (self.share * np.log(np.maximum(self.at(1.0), np.finfo(float).tiny))).sum(axis=1)
        scale = n_effective / float(self.share.sum())
        return scale * float(of_row.sum()), scale * float(of_row.std(ddof=1) * np.sqrt(len(of_row)))

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

    `frame` is a classifier without members, which knows how features vary.  `columns` are those of the candidate, and
    `filled` (N, len(columns)) their values with missing ones at conditional means.
    """

    frame: Classifier
    X: Floats
    filled: Floats
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
        return cls(frame, X, data.filled[training][:, columns], missing & chosen[:, None], columns)

    def stepped(self, basis: Basis, q: Posterior, unseen: Floats) -> Floats:
        """Return `unseen` probabilities (N, K) at conditional means, changed as integration changes those of `q`."""
        lacking = np.flatnonzero(self.missing.any(axis=1))
        classifier = replace(self.frame, members=(Member(basis, q, self.columns),))
        whole = classifier.score(self.X[lacking], self.missing[lacking]).probability
        filled = q.prediction(basis(self.filled[lacking])).probability
        p = unseen.copy()
        p[lacking] *= whole / np.maximum(filled, np.finfo(float).tiny)
        return np.asarray(p / p.sum(axis=1, keepdims=True))


def left_out(
    parts: Sequence[Part],
    incomplete: IncompleteRows | None,
    *,
    group: NDArray[np.uint64] | None,
    on_part: Callable[[], None],
) -> LeftOut:
    """Return the rows' left-out probabilities: of each part by one Newton step from its fit to all rows.

    Rows of an equal `group` (N,) are left out together.
    """
    share, weight = recorded_shares(parts[0].laplace)
    filled: Floats | float = 0.0
    integrated: Floats | float = 0.0
    for part in parts:
        unseen = leave_one_out_probability(part.served, records=False, group=group)[0]
        filled = filled + part.weight * unseen
        if incomplete is not None:
            integrated = integrated + part.weight * incomplete.stepped(part.basis, part.served, unseen)
        on_part()
    whole = None if incomplete is None else np.asarray(integrated)
    return LeftOut(np.asarray(filled), weight[:, None] * share, whole)


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
    return LeftOut(filled, share)


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
