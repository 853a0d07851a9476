"""Which columns of a FITS table a copy keeps: their bytes in the row, their new numbers, the cards of the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from catalogs.fits.columns import FitsColumn, Table

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection:
    """The columns of a table that stay; of a `slim` copy the other HDUs go too, and a heap that nobody needs."""

    table: Table
    names: frozenset[str] | None = None
    slim: bool = False

    @cached_property
    def columns(self) -> tuple[FitsColumn, ...]:
        """The columns that stay, in the file's order."""
        return tuple(c for c in self.table.columns if self._stays(c))

    @property
    def dropped(self) -> tuple[str, ...]:
        """The names of those that do not."""
        return tuple(c.name for c in self.table.columns if not self._stays(c))

    @cached_property
    def numbers(self) -> dict[int, int]:
        """From the old numbers, which count from 1, of the columns that stay to their new ones."""
        old = (n for n, c in enumerate(self.table.columns, 1) if self._stays(c))
        return {n: i for i, n in enumerate(old, 1)}

    @property
    def keeps_heap(self) -> bool:
        """Whether the heap stays: always, but in a slim copy without a column that needs it."""
        return not self.slim or any(c.heap for c in self.columns)

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Places and lengths in the old row of the bytes that stay; neighbours are one."""
        return tuple(merged((c.offset, c.n_bytes) for c in self.columns))

    @property
    def row_bytes(self) -> int:
        """Bytes of the old row that stay."""
        return sum(size for _, size in self.runs)

    @property
    def old_row(self) -> np.dtype[Any]:
        """The old row as the fields `old0`, `old1`, ... of its runs."""
        return np.dtype(
            {
                "names": [f"old{i}" for i in range(len(self.runs))],
                "formats": [f"V{size}" for _, size in self.runs],
                "offsets": [place for place, _ in self.runs],
                "itemsize": self.table.row_bytes,
            }
        )

    def _stays(self, column: FitsColumn) -> bool:
        return self.names is None or column.name in self.names


def merged(pieces: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pieces, in order, with those that touch put together and the empty ones left out."""
    runs: list[tuple[int, int]] = []
    for place, size in pieces:
        if runs and sum(runs[-1]) == place:
            runs[-1] = (runs[-1][0], runs[-1][1] + size)
        elif size:
            runs.append((place, size))
    return runs
