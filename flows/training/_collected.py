"""Labelled rows as they are read: kept in memory or, if they are too many, on the disk with a sample in memory.

The sample is drawn by a hash of the objects' names.  So it does not depend on the order of the rows, and most of its
objects are drawn again when the catalogue grows.  Where objects have no names, the rows' numbers are hashed.
Shapes: n rows of a batch, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.labels.annotators import AnnotatorNames
from flows.training._stored_rows import ArrayWriter, StoredRows

__all__ = ["MOST_IN_MEMORY", "Collected", "Part", "joined"]

Floats = NDArray[np.float64]

MOST_IN_MEMORY = 200_000
"""Most rows that are held in memory.  Of more rows, a sample of this size is; it gives all that is no sum over rows."""

ON_DISK = ("X", "missing", "target", "place", "weight", "votes", "named", "annotators")
"""Arrays of all rows that are written to the disk."""


@dataclass(frozen=True, eq=False)
class Part:
    """The training rows of one batch; each array has a row for each of them (n, ...)."""

    X: Floats
    missing: NDArray[np.bool_]
    target: NDArray[np.int16]
    place: NDArray[np.int64] | NDArray[np.uint64]
    weight: Floats | None
    votes: Floats | None = None
    errors: Floats | None = None
    annotators: NDArray[np.str_] | NDArray[np.int32] | None = None  # names; numbers once they are collected
    name: NDArray[np.uint64] | None = None
    identifier: NDArray[np.bytes_] | None = None
    position: Floats | None = None
    magnitude: Floats | None = None
    number: NDArray[np.uint64] | None = None  # among all rows, once they are collected
    named: NDArray[np.uint64] | None = None  # a hash of the name; 0 where a repeated name is no conflict

    def chosen(self, rows: NDArray[np.bool_]) -> Part:
        """Return the rows of a mask (n,)."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: a[rows] for name, a in arrays.items() if a is not None})


def joined(parts: Sequence[Part], name: str) -> Any:
    """Return an array of all parts; None where one of them lacks it."""
    arrays = [getattr(part, name) for part in parts]
    return None if any(a is None for a in arrays) else np.concatenate(arrays)


@dataclass
class Collected:
    """The parts that were read so far; at most `most` rows stay in memory, None for all.

    `folder` makes the folder for larger numbers of rows; without it, all rows stay in memory.  `held_out` says by their
    places which rows are held out.  Half of the sample are then held-out rows, so that many rows judge the model.
    """

    most: int | None
    folder: Callable[[], Path] | None
    held_out: Callable[[Any], NDArray[np.bool_]] | None = None
    parts: list[Part] = field(default_factory=list)
    n_rows: int = 0
    annotators: AnnotatorNames = field(default_factory=AnnotatorNames)
    _keys: list[NDArray[np.uint64]] = field(default_factory=list)
    _place: Path | None = None
    _files: dict[str, ArrayWriter] = field(default_factory=dict)

    def add(self, part: Part) -> None:
        """Take the next part."""
        if part.annotators is not None:
            part = replace(part, annotators=self.annotators.numbered(part.annotators))
        number = np.arange(self.n_rows, self.n_rows + len(part.X), dtype=np.uint64)
        self._keys.append(_mixed(number if part.name is None else part.name))
        part = replace(part, number=number)
        self.parts.append(part)
        self.n_rows += len(part.X)
        if self.most is None or self.folder is None or self.n_rows <= self.most:
            return
        new = self.parts if self._place is None else [part]
        if self._place is None:
            self._place = self.folder().absolute() / "rows"  # workers may be in another folder
            self._place.mkdir()
        for one in new:
            self._write(one, self._place)
        if sum(len(key) for key in self._keys) > 2 * self.most:
            self._draw(self.most)

    def finish(self) -> StoredRows | None:
        """Return all rows if they are on the disk, and leave the sample in `parts`; None if all rows are in memory."""
        if self._place is None or self.most is None:
            return None
        self._draw(self.most)
        for written in self._files.values():
            written.close()
        return StoredRows(self._place)

    def _write(self, part: Part, folder: Path) -> None:
        for name in ON_DISK:
            rows = getattr(part, name)
            if rows is not None:
                self._files.setdefault(name, ArrayWriter(folder / f"{name}.npy")).append(rows)

    def _draw(self, n: int) -> None:
        """Keep the n rows with the smallest keys, in the order of reading; half of them held out, if that is known."""
        key = np.concatenate(self._keys)
        chosen = np.zeros(len(key), dtype=bool)
        order = np.argsort(key, kind="stable")
        if self.held_out is None:
            chosen[order[:n]] = True
        else:
            out = self.held_out(joined(self.parts, "place"))[order]
            n_out = min(int(out.sum()), max(n // 2, n - int((~out).sum())))
            chosen[order[out][:n_out]] = True
            chosen[order[~out][: n - n_out]] = True
        masks = np.split(chosen, np.cumsum([len(k) for k in self._keys])[:-1])
        kept = [part.chosen(mask) for part, mask in zip(self.parts, masks, strict=True)]
        # They become one part: many small arrays would keep the system from reusing the memory of large ones.
        self.parts = [Part(**{f.name: joined(kept, f.name) for f in fields(Part)})]
        self._keys = [key[chosen]]


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash (n,) of numbers, which is independent of the hash that holds rows out.

    SplitMix64: Steele et al. (2014), doi:10.1145/2714064.2660195.
    """
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
