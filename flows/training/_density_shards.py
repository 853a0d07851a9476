"""Density ratios of labelled rows on the disk: a comparison with the target, and weights, by sums over shards.

The results are those of `blr.density_ratio` and `density_weights` for rows in memory.  Rows of both sets are
numbered together: those of the target follow the labelled ones.
Shapes: N labelled rows, T rows of the target, n rows of a shard, F features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from blr.basis.base import Basis
from blr.basis.kinds import fit_basis
from blr.basis.standardisation import Standardisation
from blr.posterior.kinds import LaplacePosterior
from blr.selection.evidence import fit_evidence
from blr.shift import FOLDS, ComparedScores, compare_scores, require_enough_rows
from blr.sums import Chunk, chunk_rows
from flows.engines.engine import Engine
from flows.training._rows import TrainingRows
from flows.training._shards import DesignShards, SampledDesign
from flows.training._stored_rows import WEIGHT_OF_ALL, Shard, StoredRows, shards_of

__all__ = ["RATIO", "FoldReader", "compare_shards", "weight_shards"]

Floats = NDArray[np.float64]

RATIO = "ratio"
"""Array of the density ratios of the labelled rows."""
TARGET, SCORE = "target_filled", "score"
"""Arrays, for the time of the comparison, of the target's features and of the scores of the labelled rows."""


@dataclass(frozen=True)
class FoldReader:
    """Reads the rows of both sets that are not in a fold; the targets of fits say which set a row is in.

    `fold` is None for all rows.  `mean_weight` is that of the labelled rows, by which their weights are divided; None
    gives rows without weights.
    """

    stored: StoredRows
    n_target: int
    fold: int | None
    mean_weight: float | None
    confusion: None = None

    @property
    def shards(self) -> list[Shard]:
        """The shards of the labelled rows, then those of the target's."""
        N = self.stored.n_rows
        return [*self.stored.shards, *((N + start, N + stop) for start, stop in shards_of(self.n_target))]

    def __call__(self, shard: Shard) -> Chunk:
        """Return features (n, F), 1 for a row of the target and 0 for a labelled one (n,), and weights (n,) or None."""
        chosen = np.arange(*shard) % FOLDS != self.fold if self.fold is not None else slice(None)
        N, weight = self.stored.n_rows, None
        if shard[0] >= N:
            X = self.stored.read(TARGET, (shard[0] - N, shard[1] - N))[chosen]
            return X, np.ones(len(X)), None if self.mean_weight is None else np.ones(len(X))
        X = self.stored.read("filled", shard)[chosen]
        if self.mean_weight is not None:
            weight = self.stored.weights(shard)[chosen] / self.mean_weight
        return X, np.zeros(len(X)), weight


def compare_shards(
    stored: StoredRows, rows: TrainingRows, filled: Floats, target: Floats, engine: Engine, *, degree: int
) -> ComparedScores:
    """Return how the labelled rows differ from the target (T, F), and write the density ratio of each labelled row.

    `rows` are the sample of the labelled rows in memory, `filled` (n, F) its features.  `degree` is that of the
    polynomial that distinguishes the sets.

    Raises
    ------
    ValueError
        If there are too few rows.
    """
    require_enough_rows(stored.n_rows, len(target))
    np.save(stored.folder / f"{TARGET}.npy", target)
    basis = _basis(stored, filled, target, engine, degree)
    fits = [_fit(stored, rows, filled, target, basis, engine, fold) for fold in range(FOLDS)]
    stored.add(SCORE, lambda shard: _scores(fits, basis, stored.read("filled", shard), shard[0]))
    theirs = _scores(fits, basis, target, stored.n_rows)
    compared = compare_scores(lambda: (stored.read(SCORE, shard) for shard in stored.shards), theirs)
    stored.add(RATIO, lambda shard: compared.ratio(stored.read(SCORE, shard)))
    for name in (SCORE, TARGET):
        stored.remove(name)
    return compared


def _basis(stored: StoredRows, filled: Floats, target: Floats, engine: Engine, degree: int) -> Basis:
    """Return the polynomials of the features, standardised as in both sets together."""
    some = np.concatenate([filled, target])
    basis = fit_basis("polynomial", some, degree=degree)
    everything = FoldReader(stored, len(target), fold=None, mean_weight=None)
    raw = DesignShards(everything, None, some.shape[1], float(stored.n_rows + len(target)), None, engine)
    return replace(basis, standardisation=Standardisation.learn_by_sums(raw.accumulate, some))


def _fit(
    stored: StoredRows,
    rows: TrainingRows,
    filled: Floats,
    target: Floats,
    basis: Basis,
    engine: Engine,
    fold: int,
) -> LaplacePosterior:
    """Return the fit, to the rows of both sets outside a fold, of which set a row is in."""
    N = stored.n_rows
    total = outside = 0.0
    for shard in stored.shards:
        weight = stored.weights(shard)
        total += float(weight.sum())
        outside += float(weight[np.arange(*shard) % FOLDS != fold].sum())
    mean = total / N
    mine = rows.numbers % FOLDS != fold
    own = (np.ones(len(mine)) if rows.weight is None else rows.weight)[mine]
    theirs = target[np.arange(N, N + len(target)) % FOLDS != fold]
    weight = np.concatenate([own * (outside / mean / own.sum()), np.ones(len(theirs))])
    is_target = np.concatenate([np.zeros(len(own)), np.ones(len(theirs))])
    sample = SampledDesign((np.concatenate([filled[mine], theirs]), is_target, weight), basis)
    reader = FoldReader(stored, len(target), fold, mean)
    design = DesignShards(reader, basis, basis.n_functions, outside / mean + len(theirs), sample, engine)
    return fit_evidence(design, None, classes=range(2))


def _scores(fits: list[LaplacePosterior], basis: Basis, X: Floats, first: int) -> Floats:
    """Return the logits (n,) that rows X (n, F), numbered from `first` on, are of the target: by the other fold."""
    score, size = np.empty(len(X)), chunk_rows(basis.n_functions)
    for start in range(0, len(X), size):
        some = slice(start, start + size)
        Phi = basis(X[some])
        fold = np.arange(first + start, first + start + len(Phi)) % FOLDS
        score[some] = np.choose(fold, [Phi @ q.mean for q in fits])
    return score


def weight_shards(stored: StoredRows) -> tuple[int, float]:
    """Weight the stored rows by their density ratios; return the number of training rows and their effective number.

    Weights of training rows sum to their effective number.  A second array has the weights for fits to all rows.
    """
    n_training = 0
    sums = np.zeros((2, 2))  # Σ g r and Σ g r², of the training rows and of all
    for held_out, weighted, ratio in _ratios(stored):
        n_training += int((~held_out).sum())
        for i, some in enumerate((~held_out, np.ones_like(held_out))):
            sums[i] += weighted[some].sum(), weighted[some] @ ratio[some]
    training, all_rows = sums[:, 0] / sums[:, 1]
    stored.add(WEIGHT_OF_ALL, lambda shard: all_rows * stored.weights(shard) * stored.read(RATIO, shard))
    stored.add(
        "weight",
        lambda shard: (
            stored.weights(shard)
            * stored.read(RATIO, shard)
            * np.where(stored.read("held_out", shard), 1.0, training)
        ),
    )
    return n_training, float(sums[0, 0] * training)


def _ratios(stored: StoredRows) -> Iterator[tuple[NDArray[np.bool_], Floats, Floats]]:
    """Yield, shard by shard, which rows are held out, their weights times their density ratios, and these (n,)."""
    for shard in stored.shards:
        ratio = stored.read(RATIO, shard)
        yield stored.read("held_out", shard), stored.weights(shard) * ratio, ratio
