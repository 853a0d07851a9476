"""The split of rows on the disk, and the hashes of their objects' names, read piece by piece.

Shapes: n rows of a piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from catalogs.profile.split import SplitSummary
from flows.features.split import sides
from flows.specification.specification import Specification
from flows.training._collected import Part, joined
from flows.training._stored_rows import StoredRows

__all__ = ["NamedRows", "held_out_function", "named_pieces", "write_split"]

NamedRows = tuple[NDArray[np.uint64], NDArray[np.integer]]
"""Hashes of names and class indices of rows, (n,) each."""

Places = NDArray[np.int64] | NDArray[np.uint64]

PIECE_ROWS = 1_000_000
"""Approximate number of rows whose hashes are sorted at once."""


def held_out_function(specification: Specification) -> Callable[[Places], NDArray[np.bool_]] | None:
    """Return a function that says by their places which rows are held out; None if that depends on other rows."""
    if specification.split.by == "healpix" or not specification.split.held_out:
        return None
    return lambda places: sides(specification, places, None)[0]


def write_split(specification: Specification, stored: StoredRows, summary: SplitSummary) -> SplitSummary:
    """Write which rows are held out, and their groups; return the summary of the split of all rows.

    `summary` is that of a sample of the rows, from which the order of the pixels was chosen.
    """
    order = summary.healpix_order
    stored.add("held_out", lambda shard: sides(specification, stored.read("place", shard), order)[0])
    stored.add("group", lambda shard: sides(specification, stored.read("place", shard), order)[1])
    n_held_out = sum(int(stored.read("held_out", shard).sum()) for shard in stored.shards)
    n_places = sum(len(np.unique(group)) for group, _ in _pieces(stored, "group"))
    return replace(summary, share=n_held_out / stored.n_rows, n_places=n_places)


def named_pieces(stored: StoredRows | None, parts: Sequence[Part]) -> Iterator[NamedRows] | None:
    """Return pieces of hashes and classes, all rows of a name in the same piece; None where objects have no names."""
    if stored is not None:
        return _pieces(stored, "named") if stored.has("named") else None
    named = joined(parts, "named")
    return None if named is None else iter([(named, joined(parts, "target"))])


def _pieces(stored: StoredRows, name: str) -> Iterator[NamedRows]:
    """Yield pieces of hashes with classes; a piece has the hashes of one remainder, so that equal ones are together."""
    n = max(1, -(-stored.n_rows // PIECE_ROWS))
    for piece in range(n):
        found = []
        for shard in stored.shards:
            hashes = stored.read(name, shard)
            mine = hashes % np.uint64(n) == piece
            found.append(_distinct(hashes[mine], stored.read("target", shard)[mine]))
        yield np.concatenate([h for h, _ in found]), np.concatenate([t for _, t in found])


def _distinct(hashes: NDArray[np.uint64], target: NDArray[np.integer]) -> NamedRows:
    """Return each pair of hash and class once."""
    order = np.lexsort((target, hashes))
    h, t = hashes[order], target[order]
    first = np.ones(len(h), dtype=bool)
    first[1:] = (h[1:] != h[:-1]) | (t[1:] != t[:-1])
    return h[first], t[first]
