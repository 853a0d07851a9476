"""Fits to rows on the disk: sums over shards, wherever the engine has them made.

What is sent to a worker is a function of a chunk and the bounds of a shard; what comes back is a sum.
Shapes: n rows of a shard, F features in use, M basis functions, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.basis.base import Basis
from blr.basis.standardisation import Standardisation
from blr.likelihood.targets import resolve_targets
from blr.sums import Chunk, ChunkFunction, Rows, Terms, added, chunk_rows
from blr.threads import single_threaded_blas
from flows.engines.engine import Engine
from flows.errors import EngineError
from flows.training._stored_rows import Shard, StoredRows

__all__ = ["DesignShards", "ShardReader", "ShardSum", "TrainingShards"]

Floats = NDArray[np.float64]

SAMPLE_NUMBERS = 2_000_000
"""Numbers in the design matrix of the sample at which a fit starts, at most."""
ROWS_A_FUNCTION = 160
"""Rows of that sample for each function, at least."""


@dataclass(frozen=True)
class ShardReader:
    """Reads what a fit needs of a shard: the `columns` of the filled features, targets as fractions, weights.

    Of the training rows; `held_out_too`: of all rows.
    """

    stored: StoredRows
    columns: tuple[int, ...]
    n_classes: int
    binary: bool
    held_out_too: bool

    def __call__(self, shard: Shard) -> Chunk:
        """Return features (n, F), targets (n,) or (n, K) and weights (n,) or None."""
        read = self.stored.read
        chosen = np.ones(shard[1] - shard[0], bool) if self.held_out_too else ~read("held_out", shard)
        filled = "refilled" if self.held_out_too and self.stored.has("refilled") else "filled"
        X = read(filled, shard)[chosen][:, self.columns]
        weight = read("weight", shard)[chosen] if self.stored.has("weight") else None
        if not len(X):
            return X, np.empty(0), weight
        voted = self.stored.has("votes")
        t = read("votes", shard)[chosen] if voted else read("target", shard)[chosen]
        targets = resolve_targets(t, binary=self.binary, sample_weight=weight, classes=range(self.n_classes))
        return X, targets.fraction, targets.weight


@dataclass(frozen=True, eq=False)
class ShardSum:
    """Sums a function over the chunks of a shard; None where no row of it counts."""

    read: ShardReader
    basis: Basis | None
    function: ChunkFunction

    def __call__(self, shard: Shard) -> Terms | None:
        if not self.read.stored.folder.is_dir():
            raise EngineError(
                f"{self.read.stored.folder}: got a worker that does not see this folder, expected the model store on a "
                "disk that all machines share, under one path; choose such a store with --store"
            )
        X, t, weight = self.read(shard)
        M = X.shape[1] if self.basis is None else self.basis.n_functions
        size, total = chunk_rows(M), None
        with single_threaded_blas():
            for start in range(0, len(X), size):
                some = slice(start, start + size)
                Phi = X[some] if self.basis is None else self.basis(X[some])
                part = self.function(Phi, t[some], None if weight is None else weight[some])
                total = added(total, part)
        return total


def _added(parts: Sequence[Terms | None]) -> Terms | None:
    """Return the sum of the parts, from left to right."""
    some = [part for part in parts if part is not None]
    return reduce(added, some) if some else None


@dataclass(frozen=True, eq=False)
class DesignShards:
    """Rows of a design matrix that is made anew at each pass, as `blr.fit` takes them.

    `basis` makes it of the features; None for the features themselves.  `sample` are rows of it in memory that stand
    for all.  A worker that is sent a posterior gets None in place of its rows.
    """

    read: ShardReader
    basis: Basis | None
    n_functions: int
    n_effective: float
    sample: Rows | None
    engine: Engine

    def accumulate(self, function: ChunkFunction) -> Terms:
        """Return the sum of a function over all rows, added in a tree whose shape depends on their number alone."""
        work = ShardSum(self.read, self.basis, function)
        total = self.engine.reduce(work, self.read.stored.shards, add=_added)
        if total is None:
            raise ValueError("there are no rows to sum over; give at least one")
        return total

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


@dataclass(frozen=True, eq=False)
class TrainingShards:
    """All rows that a fit is of, on the disk, and the engine that adds over them; `held_out_too`: as `ShardReader`."""

    stored: StoredRows
    n_classes: int
    engine: Engine
    held_out_too: bool

    def standardised(self, basis: Basis, columns: tuple[int, ...], X: Floats) -> Standardisation:
        """Return the standardisation of a basis as all rows have it; `X` (n, F) are the rows in memory."""
        raw = self._design(columns, None, len(columns), binary=self.n_classes == 2, n_effective=1.0)
        return Standardisation.learn_by_sums(raw.accumulate, X, basis.standardisation.softening)

    def design(
        self, basis: Basis, columns: tuple[int, ...], X: Floats, t: NDArray[Any], weight: Floats | None
    ) -> DesignShards:
        """Return the design matrix of all rows; X (n, F), t (n,) or (n, K) and weight are those in memory."""
        binary = self.n_classes == 2
        total = self._n_effective(columns, binary=binary)
        M = basis.n_functions
        most = max(SAMPLE_NUMBERS // M, ROWS_A_FUNCTION * M)
        some = slice(None, None, max(1, -(-len(X) // most)))
        targets = resolve_targets(
            t[some],
            binary=binary,
            sample_weight=None if weight is None else weight[some],
            classes=range(self.n_classes),
        )
        own = np.ones(len(targets.fraction)) if targets.weight is None else targets.weight
        sample = Rows(basis(X[some]), targets.fraction, own * (total / own.sum()))
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
        sample: Rows | None = None,
    ) -> DesignShards:
        read = ShardReader(self.stored, columns, self.n_classes, binary, self.held_out_too)
        return DesignShards(read, basis, n_functions, n_effective, sample, self.engine)
