"""Rows that come in chunks from elsewhere, disk or network, read anew at each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from blr.arrays import Matrix, Vector, as_design
from blr.sums import Chunk, ChunkFunction, Terms, added, chunk_rows
from blr.threads import default_threads, ordered_map, single_threaded_blas

__all__ = ["Stream"]


@dataclass(frozen=True, eq=False)
class Stream:
    """Chunks that come from elsewhere (disk, network), anew at each pass.

    `resolve` makes fractions and weight of (t, weight) as given.
    """

    source: Iterable[Any]
    resolve: Callable[[Any, Any], tuple[Matrix, Vector | None]]
    n_functions: int
    threads: int = field(default_factory=default_threads)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the source's chunks, checked, cut to at most the usual size."""
        size = chunk_rows(self.n_functions)
        for Phi, t, weight in self.source:
            matrix = as_design(Phi)
            if matrix.shape[1] != self.n_functions:
                raise ValueError(
                    f"a chunk has {matrix.shape[1]} columns but the first had {self.n_functions}; give all "
                    "chunks the same columns"
                )
            fraction, w = self.resolve(t, weight)
            if len(fraction) != len(matrix):
                raise ValueError(
                    f"a chunk's Phi has {len(matrix)} rows but its targets have {len(fraction)}; give one "
                    "target for each row"
                )
            for i in range(0, len(matrix), size):
                part = slice(i, i + size)
                yield matrix[part], fraction[part], None if w is None else w[part]

    def accumulate(self, function: ChunkFunction) -> Terms:
        """Return the sum of `function` over one pass of the source."""
        total: Terms | None = None
        with single_threaded_blas():
            for part in ordered_map(lambda chunk: function(*chunk), self.chunks(), threads=self.threads):
                total = added(total, part)
        if total is None:
            raise ValueError(
                "the stream has no chunks; give a list, or an object whose __iter__ starts again, and not a "
                "generator that has been read already"
            )
        return total
