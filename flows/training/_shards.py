"""Fits to rows on the disk, by sums over shards that the workers of an engine compute.

A worker gets a function and the bounds of a shard, and returns the sum of the function over the shard's rows.
Density ratios are fits as well, of which set a row is in: the results are those of `blr.density_ratio` and
`density_weights` for rows in memory.  Rows of both sets are numbered together: those of the target come last.
Shapes: N labelled rows, T rows of the target, n rows of a shard, F features in use, M basis functions, K classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from blr.basis.base import Basis
from blr.basis.kinds import fit_basis
from blr.basis.standardisation import Standardisation
from blr.candidates.fits import fit_targets
from blr.candidates.rows import LabelledRows
from blr.posterior.kinds import LaplacePosterior
from blr.selection.evidence import fit_evidence
from blr.shift import FOLDS, ComparedScores, compare_scores, require_enough_rows
from blr.sums import Chunk, ChunkFunction, Terms, added, chunk_rows
from blr.threads import single_threaded_blas
from flows.engines.engine import Engine
from flows.training._rows import (
    WEIGHT_OF_ALL,
    Shard,
    StoredRows,
    TrainingRows,
    check_seen,
    shards_of,
    write_array,
)

Floats = NDArray[np.float64]


class RowReader(Protocol):
    """Reads what a fit needs of a shard, on a worker too."""

    @property
    def stored(self) -> StoredRows:
        """The rows on the disk."""
        ...

    @property
    def confusion(self) -> Floats | None:
        """The confusion of each annotator (A, K, K), where targets are likelihoods of what was recorded."""
        ...

    @property
    def shards(self) -> list[Shard]:
        """The shards that a sum is made of."""
        ...

    def __call__(self, shard: Shard) -> Chunk:
        """Return features (n, F), targets (n,) or (n, K) and weights (n,) or None."""
        ...


@dataclass(frozen=True)
class ShardReader:
    """Reads what a fit needs of a shard: the `columns` of the filled features, targets as fractions, and weights.

    It reads the training rows, or all rows if `held_out_too`.  Where annotators differ in their `confusion` (A, K, K),
    targets are likelihoods (n, K) of what the annotator of each row has recorded.
    """

    stored: StoredRows
    columns: tuple[int, ...]
    n_classes: int
    binary: bool
    held_out_too: bool
    confusion: Floats | None = None

    @property
    def shards(self) -> list[Shard]:
        """The shards of all rows."""
        return self.stored.shards

    def __call__(self, shard: Shard) -> Chunk:
        """Return features (n, F), targets (n,) or (n, K) and weights (n,) or None."""
        read = self.stored.read
        chosen = np.ones(shard[1] - shard[0], bool) if self.held_out_too else ~read("held_out", shard)
        filled = "refilled" if self.held_out_too and self.stored.has("refilled") else "filled"
        X = read(filled, shard)[chosen][:, self.columns]
        weight = None
        if self.stored.has("weight"):
            weight = self.stored.weights(shard, held_out_too=self.held_out_too)[chosen]
        if not len(X):
            return X, np.empty(0), weight
        voted = self.stored.has("votes")
        t = read("votes", shard)[chosen] if voted else read("target", shard)[chosen]
        confusion = None if self.confusion is None else self.confusion[read("annotator", shard)[chosen]]
        return X, *fit_targets(t, weight, self.n_classes, binary=self.binary, confusion=confusion)


def _summed(function: ChunkFunction, chunk: Chunk, basis: Basis | None) -> Terms | None:
    """Return the sum of a function over rows, whose design matrix is computed in pieces; None without rows."""
    X, t, weight = chunk
    size, total = chunk_rows(X.shape[1] if basis is None else basis.n_functions), None
    with single_threaded_blas():
        for start in range(0, len(X), size):
            some = slice(start, start + size)
            Phi = X[some] if basis is None else basis(X[some])
            total = added(total, function(Phi, t[some], None if weight is None else weight[some]))
    return total


@dataclass(frozen=True, eq=False)
class ShardSum:
    """Sums a function over a shard; the sum is None where no row of the shard counts."""

    read: RowReader
    basis: Basis | None
    function: ChunkFunction

    def __call__(self, shard: Shard) -> Terms | None:
        """Return the sum over a shard."""
        check_seen(self.read.stored.folder)
        return _summed(self.function, self.read(shard), self.basis)


@dataclass(frozen=True, eq=False)
class SampledDesign:
    """A sample that represents all rows of a design matrix: features (n, F), targets, weights, and the basis."""

    chunk: Chunk
    basis: Basis
    mislabelled: bool = False

    @property
    def n_functions(self) -> int:
        """M, the number of basis functions."""
        return self.basis.n_functions

    def accumulate(self, function: ChunkFunction) -> Terms:
        """Return the sum of a function over the rows."""
        total = _summed(function, self.chunk, self.basis)
        assert total is not None  # noqa: S101  there are many rows
        return total


def _added(parts: Sequence[Terms | None]) -> Terms | None:
    """Return the sum of the parts, from left to right."""
    some = [part for part in parts if part is not None]
    return reduce(added, some) if some else None


@dataclass(frozen=True, eq=False)
class DesignShards:
    """A design matrix that is computed anew at each pass over the rows, in the form that `blr.fit` accepts.

    `basis` computes it from the features; None means the features themselves.  `sample` are rows in memory that
    represent all rows.  A worker that gets a posterior gets None in place of these rows.
    """

    read: RowReader
    basis: Basis | None
    n_functions: int
    n_effective: float
    sample: SampledDesign | None
    engine: Engine

    @property
    def mislabelled(self) -> bool:
        """Whether targets are likelihoods of what was recorded."""
        return self.read.confusion is not None

    def accumulate(self, function: ChunkFunction) -> Terms:
        """Return the sum of a function over all rows; the order of additions depends on the number of rows alone."""
        work = ShardSum(self.read, self.basis, function)
        total = self.engine.reduce(work, self.read.shards, add=_added)
        if total is None:
            raise ValueError("there are no rows to sum over; give at least one")
        return total

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


@dataclass(frozen=True, eq=False)
class TrainingShards:
    """All rows of a fit, on the disk, and the engine that computes sums.

    `held_out_too` and `confusion` are those of `ShardReader`.
    """

    stored: StoredRows
    n_classes: int
    engine: Engine
    held_out_too: bool
    confusion: Floats | None = None

    @property
    def n_rows(self) -> int:
        """N, the number of all rows."""
        return self.stored.n_rows

    def each(self) -> Iterator[LabelledRows]:
        """Yield the rows of each shard; those that fits see are the ones that are not held out."""
        for rows in self.stored.each(held_out_too=self.held_out_too):
            yield replace(rows, held_out=np.zeros_like(rows.held_out)) if self.held_out_too else rows

    def standardised(self, basis: Basis, columns: tuple[int, ...], X: Floats) -> Standardisation:
        """Return the standardisation that a basis has for all rows; `X` (n, F) are the rows in memory."""
        raw = self._design(columns, None, len(columns), binary=self.n_classes == 2, n_effective=1.0)
        return Standardisation.learn_by_sums(raw.accumulate, X, basis.standardisation.softening)

    def design(
        self,
        basis: Basis,
        columns: tuple[int, ...],
        X: Floats,
        t: NDArray[Any],
        weight: Floats | None,
        confusion: Floats | None = None,
    ) -> DesignShards:
        """Return the design matrix of all rows.

        X (n, F), t (n,) or (n, K), weight and the confusion by row (n, K, K) are those of the rows in memory.
        """
        binary = self.n_classes == 2
        total = self._n_effective(columns, binary=binary)
        share, given = fit_targets(t, weight, self.n_classes, binary=binary, confusion=confusion)
        own = np.ones(len(share)) if given is None else given
        sample = SampledDesign((X, share, own * (total / own.sum())), basis, confusion is not None)
        M = basis.n_functions
        return self._design(columns, basis, M, binary=binary, n_effective=total, sample=sample)

    def _n_effective(self, columns: tuple[int, ...], *, binary: bool) -> float:
        """Return the sum of the rows' weights."""
        stored = self.stored
        if stored.has("weight") or stored.has("votes"):
            raw = self._design(columns, None, len(columns), binary=binary, n_effective=1.0)
            (total,) = raw.accumulate(lambda X, _t, w: (float(len(X) if w is None else w.sum()),))
            return float(total)
        if self.held_out_too:
            return float(stored.n_rows)
        return float(sum((~stored.read("held_out", shard)).sum() for shard in stored.shards))

    def _design(
        self,
        columns: tuple[int, ...],
        basis: Basis | None,
        n_functions: int,
        *,
        binary: bool,
        n_effective: float,
        sample: SampledDesign | None = None,
    ) -> DesignShards:
        read = ShardReader(self.stored, columns, self.n_classes, binary, self.held_out_too, self.confusion)
        return DesignShards(read, basis, n_functions, n_effective, sample, self.engine)


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
    write_array(target, stored.folder / f"{TARGET}.npy")
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
