"""Labelled rows: in memory or, if they are too many, on the disk with a sample in memory.

Each array is a `.npy` file, so that no candidate has to parse a catalogue again.  A shard is a range of consecutive
rows on the disk; its boundaries depend on the number of rows alone, not on the engine.  The sample is drawn by a hash
of the objects' names: it does not depend on the order of the rows, and most of its objects are drawn again when the
catalogue grows.  Where objects have no names, the rows' numbers are hashed.
Shapes: N rows, n of a shard, batch or piece, F features, K classes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import product
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Array, Floats, Mask
from blr.basis.base import Basis, Standardisation
from blr.candidates.fits import fit_targets
from blr.candidates.rows import LabelledRows, TrainingSet
from blr.sums import Chunk, ChunkFunction, Terms, added, chunk_rows
from blr.threads import single_threaded_blas
from catalogs.arrays import mixed
from catalogs.files import StorageError, atomic_write_array
from catalogs.profile.split import SplitSummary
from flows.engines.engine import Engine, ThreadEngine
from flows.errors import EngineError, TrainingError
from flows.features.reader import SplitPlaces, sides
from flows.labels.reader import numbered
from flows.specification.specification import Specification


@dataclass(frozen=True, eq=False)
class TrainingRows(LabelledRows):
    """The rows that fits see and that judge them, with what a catalogue says of their objects."""

    name: NDArray[np.uint64] | None = None  # (N,), a hash of the object's identifier, if it has one
    identifier: NDArray[np.bytes_] | None = None  # (N,) the object's identifier: 100 bytes of UTF-8 at most
    position: Floats | None = None  # (N, 2) right ascension and declination in degrees; NaN where unknown
    magnitude: Floats | None = None  # (N,), NaN where missing
    magnitude_name: NDArray[np.str_] | None = None  # () the column of the magnitudes
    number: NDArray[np.intp] | None = None  # (N,) the rows' numbers among all, if these are a sample

    @property
    def numbers(self) -> NDArray[np.intp]:
        """The rows' numbers among all rows (N,)."""
        return np.arange(len(self.target)) if self.number is None else self.number


def rows_of(data: TrainingSet) -> TrainingRows:
    """Return the rows of data that were made of a catalogue's rows."""
    rows = data.rows
    assert isinstance(rows, TrainingRows)  # noqa: S101  `blr` changes their arrays, not their type
    return rows


def write_arrays(folder: Path, **arrays: Array | None) -> None:
    """Write the arrays that there are, a file for each, whole or not at all."""
    for name, array in arrays.items():
        if array is not None:
            atomic_write_array(folder / f"{name}.npy", array)


def read_arrays(folder: Path, *names: str) -> tuple[Any, ...]:
    """Return arrays that `write_arrays` wrote; None in the place of each that is not there."""
    paths = [folder / f"{name}.npy" for name in names]
    return tuple(np.load(path, allow_pickle=False) if path.is_file() else None for path in paths)


SHARD_ROWS = 65_536
"""Rows of a shard: about ten megabytes, which fit into the memory of any worker."""

WEIGHT_OF_ALL = "weight_of_all"
"""Array of the weights for fits to all rows, where they are not those for fits to the training rows."""

Shard = tuple[int, int]
"""The number of a shard's first row, and of the row after its last."""


def shards_of(n_rows: int) -> list[Shard]:
    """Return the shards of so many rows, in order."""
    return [(i, min(i + SHARD_ROWS, n_rows)) for i in range(0, n_rows, SHARD_ROWS)]


def check_seen(folder: Path) -> None:
    """Raise EngineError where this process, a worker, does not see the folder of the rows."""
    if not folder.is_dir():
        raise EngineError(
            f"{folder}: a worker does not see this folder, expected a model store on a disk that all "
            "machines share under one path; choose such a store with --store"
        )


class ArrayWriter:
    """Writes a `.npy` file row by row; the header gets the number of rows when the writer is closed.

    The file is open only while rows are written, so that a run that fails leaves no open file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._n = path, 0
        self._like: Array | None = None  # no rows, of the type and shape of all

    def append(self, rows: Array) -> None:
        """Add rows; all get the type of the first ones.  StorageError if there is no room on the disk."""
        like = np.empty_like(rows[:0]) if self._like is None else self._like
        try:
            with self._path.open("wb" if self._like is None else "ab") as stream:
                if self._like is None:
                    self._write_header(stream, like)
                stream.write(np.ascontiguousarray(rows, dtype=like.dtype).tobytes())
        except OSError as error:
            raise StorageError(
                f"{self._path.parent}: got '{error.strerror}' after {self._n:,} labelled rows, expected enough space "
                "for all of them; free some space, or choose a model store on another disk with --store"
            ) from error
        self._n, self._like = self._n + len(rows), like

    def close(self) -> None:
        """Write the header with the final number of rows; without rows, no file is made."""
        if self._like is not None:
            with self._path.open("r+b") as stream:
                self._write_header(stream, self._like)

    def _write_header(self, stream: IO[bytes], like: Array) -> None:
        # NumPy pads the header, so that a larger number of rows fits into the same bytes.
        header = np.lib.format.header_data_from_array_1_0(like) | {"shape": (self._n, *like.shape[1:])}
        np.lib.format.write_array_header_1_0(stream, header | {"fortran_order": False})


@dataclass(frozen=True)
class StoredRows:
    """All labelled rows in a folder, a `.npy` file for each array."""

    folder: Path

    def __post_init__(self) -> None:
        """Keep the memory of this process small from now on."""
        return_freed_arrays()

    @cached_property
    def n_rows(self) -> int:
        """N, the number of rows."""
        return len(self._mapped("target"))

    @property
    def shards(self) -> list[Shard]:
        """The shards of all rows, in order."""
        return shards_of(self.n_rows)

    def has(self, name: str) -> bool:
        """Say whether there is an array of that name."""
        return (self.folder / f"{name}.npy").is_file()

    def read(self, name: str, shard: Shard) -> Array:
        """Return a copy of a shard's rows: a memory map that stays open would count as memory in use."""
        return np.array(self._mapped(name)[slice(*shard)])

    def at(self, name: str, numbers: Array) -> Array:
        """Return a copy of the rows with these numbers (n,)."""
        return np.array(self._mapped(name)[numbers])

    def weights(self, shard: Shard, *, held_out_too: bool = False) -> Array:
        """Return the weights of a shard's rows: ones where rows have none."""
        name = WEIGHT_OF_ALL if held_out_too and self.has(WEIGHT_OF_ALL) else "weight"
        return self.read(name, shard) if self.has(name) else np.ones(shard[1] - shard[0])

    def _mapped(self, name: str) -> Array:
        check_seen(self.folder)
        mapped: Array = np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return mapped

    def rows(self, shard: Shard, *, held_out_too: bool = False) -> TrainingRows:
        """Return a shard's rows in the form of rows in memory, with the arrays that fits and their judgement need."""
        return TrainingRows(
            X=self.read("X", shard),
            missing=self.read("missing", shard),
            target=self.read("target", shard).astype(np.intp),
            held_out=self.read("held_out", shard),
            weight=self.weights(shard, held_out_too=held_out_too) if self.has("weight") else None,
            votes=self.read("votes", shard) if self.has("votes") else None,
            annotator=self.read("annotator", shard) if self.has("annotator") else None,
        )

    def each(self, *, held_out_too: bool = False) -> Iterator[TrainingRows]:
        """Yield the rows of each shard; `held_out_too` as for `rows`."""
        return (self.rows(shard, held_out_too=held_out_too) for shard in self.shards)

    def add(self, name: str, of: Callable[[Shard], Array]) -> None:
        """Write an array, shard by shard; it replaces an array of the same name."""
        unfinished = self.folder / f"{name}.part"
        written = ArrayWriter(unfinished)
        for shard in self.shards:
            written.append(of(shard))
        written.close()
        unfinished.replace(unfinished.with_suffix(".npy"))


M_MMAP_THRESHOLD = -3
"""The name of the bound in glibc's malloc.h."""


@cache
def return_freed_arrays() -> None:
    """Have glibc give freed arrays of a megabyte or more back to the system: a training takes 530 MB, else 640."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 20)


class RowCounts(NamedTuple):
    """Counts of rows by class (K,) and by feature (F,).

    By class: the training rows, the held-out rows, and the weights of the training rows.  By feature: the rows without
    it, the training rows without it, and its smallest and largest value, inf and -inf where it has no values.
    """

    training: NDArray[np.intp]
    held_out: NDArray[np.intp]
    weight: Floats
    missing: Array
    missing_in_training: Array
    low: Array
    high: Array


def row_counts(shards: Iterable[TrainingRows], n_classes: int) -> RowCounts:
    """Return the counts of rows that come in shards."""
    (training, held_out), weight = np.zeros((2, n_classes), dtype=np.intp), np.zeros(n_classes)
    missing = missing_in_training = np.zeros((), dtype=np.intp)
    low, high = np.array(np.inf), np.array(-np.inf)
    for rows in shards:
        seen, target = rows.training, rows.target
        training += np.bincount(target[seen], minlength=n_classes)
        held_out += np.bincount(target[rows.held_out], minlength=n_classes)
        own = None if rows.weight is None else rows.weight[seen]
        weight += np.bincount(target[seen], weights=own, minlength=n_classes)
        missing = missing + rows.missing.sum(axis=0)
        missing_in_training = missing_in_training + rows.missing[seen].sum(axis=0)
        low = np.minimum(low, np.where(rows.missing, np.inf, rows.X).min(axis=0, initial=np.inf))
        high = np.maximum(high, np.where(rows.missing, -np.inf, rows.X).max(axis=0, initial=-np.inf))
    return RowCounts(training, held_out, weight, missing, missing_in_training, low, high)


MOST_IN_MEMORY = 200_000
"""Most rows that are held in memory.  Of more rows, a sample of this size is; it gives all that is no sum over rows."""

ON_DISK = ("X", "missing", "target", "place", "weight", "votes", "named", "annotators")
"""Arrays of all rows that are written to the disk."""


Part = dict[str, Any]
"""Training rows, of one batch or more: arrays (n, ...) by the names that `TrainingRows` has, and by further ones.

`place` decides which rows are held out, `annotators` are names (numbers once rows are collected), `number` is that of
the row among all, and `named` a hash of the name, 0 where a repeated name is no conflict.
"""


def collected(
    parts: Iterable[Part],
    most: int,
    folder: Callable[[], Path] | None,
    held_out: Callable[[SplitPlaces], Mask] | None = None,
) -> tuple[Part, dict[str, int], StoredRows | None]:
    """Return the rows of all parts, the numbers of the annotators by name in the order of meeting, and the stored rows.

    Of more than `most` rows a sample of so many stays in memory, and all are stored in the folder that `folder` makes;
    without it, all rows stay in memory.  `held_out` says by their places which rows are held out.  Half of the sample
    are then held-out rows, so that many rows judge the model.
    """
    kept: list[Part] = []
    annotators: dict[str, int] = {}
    files: dict[str, ArrayWriter] = {}
    place: Path | None = None
    n_rows = 0
    for part in parts:
        number = np.arange(n_rows, n_rows + len(part["X"]), dtype=np.uint64)
        # A hash that is independent of the one that holds rows out.
        key = mixed(part.get("name", number) + np.uint64(0x9E3779B97F4A7C15))
        new = part | {"number": number, "key": key}
        if "annotators" in part:
            new["annotators"] = numbered(part["annotators"], annotators)
        kept.append(new)
        n_rows += len(number)
        if folder is None or n_rows <= most:
            continue
        unwritten = [new]
        if place is None:
            unwritten = kept
            place = folder().absolute() / "rows"  # workers may be in another folder
            place.mkdir()
        for one, name in product(unwritten, ON_DISK):
            if name in one:
                files.setdefault(name, ArrayWriter(place / f"{name}.npy")).append(one[name])
        if sum(len(one["key"]) for one in kept) > 2 * most:
            kept = [_drawn(kept, most, held_out)]
    if place is None:
        return _joined(kept), annotators, None
    for written in files.values():
        written.close()
    return _drawn(kept, most, held_out), annotators, StoredRows(place)


def _drawn(parts: Sequence[Part], n: int, held_out: Callable[[SplitPlaces], Mask] | None) -> Part:
    """Return the n rows with the smallest keys, in the order of reading; half of them held out, if that is known."""
    key = np.concatenate([part["key"] for part in parts])
    chosen = np.zeros(len(key), dtype=bool)
    order = np.argsort(key, kind="stable")
    if held_out is None:
        chosen[order[:n]] = True
    else:
        out = held_out(np.concatenate([part["place"] for part in parts]))[order]
        n_out = min(int(out.sum()), max(n // 2, n - int((~out).sum())))
        chosen[order[out][:n_out]] = True
        chosen[order[~out][: n - n_out]] = True
    masks = np.split(chosen, np.cumsum([len(part["key"]) for part in parts])[:-1])
    pairs = zip(parts, masks, strict=True)
    return _joined([{name: array[mask] for name, array in part.items()} for part, mask in pairs])


def _joined(parts: Sequence[Part]) -> Part:
    """Return the parts as one, with the arrays that all of them have.

    Many small arrays would keep the system from reusing the memory of large ones.
    """
    if not parts:
        raise TrainingError(
            "got catalogues of 0 rows, expected labelled objects to learn from; name the catalogues that have them"
        )
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


NamedRows = tuple[NDArray[np.uint64], NDArray[np.integer]]
"""Hashes of names and class indices of rows, (n,) each."""

PIECE_ROWS = 1_000_000
"""Approximate number of rows whose hashes are sorted at once."""


def held_out_function(specification: Specification) -> Callable[[SplitPlaces], Mask] | None:
    """Return a function that says by their places which rows are held out; None if that depends on other rows."""
    if specification.split.by == "healpix" or not specification.split.held_out:
        return None
    return lambda places: sides(specification, places, None)[0]


def write_split(specification: Specification, stored: StoredRows, summary: SplitSummary) -> SplitSummary:
    """Write which rows are held out, and their groups; return the summary of the split of all rows."""
    order = summary.healpix_order
    stored.add("held_out", lambda shard: sides(specification, stored.read("place", shard), order)[0])
    stored.add("group", lambda shard: sides(specification, stored.read("place", shard), order)[1])
    n_held_out = sum(int(stored.read("held_out", shard).sum()) for shard in stored.shards)
    n_places = sum(len(np.unique(group)) for group, _ in _pieces(stored, "group"))
    return replace(summary, share=n_held_out / stored.n_rows, n_places=n_places)


def named_pieces(stored: StoredRows | None, part: Part) -> Iterator[NamedRows] | None:
    """Return pieces of hashes and classes, all rows of a name in the same piece; None where objects have no names."""
    if stored is not None:
        return _pieces(stored, "named") if stored.has("named") else None
    return iter([(part["named"], part["target"])]) if "named" in part else None


def _pieces(stored: StoredRows, name: str) -> Iterator[NamedRows]:
    """Yield pieces of hashes with classes; a piece has the hashes of one remainder, so that equal ones are together."""
    n = max(1, -(-stored.n_rows // PIECE_ROWS))
    for piece in range(n):
        found = []
        for shard in stored.shards:
            hashes, target = stored.read(name, shard), stored.read("target", shard)
            mine = np.flatnonzero(hashes % np.uint64(n) == piece)
            order = mine[np.lexsort((target[mine], hashes[mine]))]
            h, t = hashes[order], target[order]
            first = np.ones(len(h), dtype=bool)  # of equal ones
            first[1:] = (h[1:] != h[:-1]) | (t[1:] != t[:-1])
            found.append((h[first], t[first]))
        yield np.concatenate([h for h, _ in found]), np.concatenate([t for _, t in found])


# Fits to rows on the disk, by sums over shards that the workers of an engine compute.
#
# A worker gets a function and the bounds of a shard, and returns the sum of the function over the shard's rows.
# Shapes: n rows of a shard, F features in use, M basis functions, K classes.

ShardReader = Callable[[Shard], Chunk]


def read_shard(
    stored: StoredRows,
    columns: tuple[int, ...],
    n_classes: int,
    held_out_too: bool,  # noqa: FBT001  a partial of this function is pickled
    confusion: Floats | None,
    shard: Shard,
) -> Chunk:
    """Return the `columns` of the filled features (n, F), targets as fractions (n,) or (n, K), and weights (n,).

    Weights are None where rows have none.  All are of the training rows, or of all rows if `held_out_too`.  Where
    annotators differ in their `confusion` (A, K, K), targets are likelihoods (n, K) of what was recorded.
    """
    read = stored.read
    chosen = np.ones(shard[1] - shard[0], bool) if held_out_too else ~read("held_out", shard)
    filled = "refilled" if held_out_too and stored.has("refilled") else "filled"
    X, weight = read(filled, shard)[chosen][:, columns], None
    if stored.has("weight"):
        weight = stored.weights(shard, held_out_too=held_out_too)[chosen]
    if not len(X):
        return X, np.empty(0), weight
    t = read("votes" if stored.has("votes") else "target", shard)[chosen]
    of_row = None if confusion is None else confusion[read("annotator", shard)[chosen]]
    return X, *fit_targets(t, weight, n_classes, binary=n_classes == 2, confusion=of_row)


def _summed(read: ShardReader, basis: Basis | None, function: ChunkFunction, shard: Shard) -> Terms | None:
    """Return the sum of a function over rows, whose design matrix is computed in pieces; None without rows."""
    X, t, weight = read(shard)
    size = chunk_rows(X.shape[1] if basis is None else basis.n_functions)
    pieces = [slice(start, start + size) for start in range(0, len(X), size)]

    def of(some: slice) -> Terms:
        Phi = X[some] if basis is None else basis(X[some])
        return function(Phi, t[some], None if weight is None else weight[some])

    with single_threaded_blas():
        return added(map(of, pieces)) if pieces else None


@dataclass(frozen=True, eq=False)
class DesignShards:
    """A design matrix that is computed anew at each pass over the rows, in the form that `blr.fit` accepts.

    `read` reads a shard, on a worker too.  `basis` computes the matrix from the features; None means the features
    themselves.  `sample` are rows in memory that represent all rows.  A worker that gets a posterior gets None in place
    of these rows.
    """

    read: ShardReader
    shards: list[Shard]
    engine: Engine
    basis: Basis | None
    n_functions: int
    n_effective: float | None = None  # the sum of weights; None where it is not known yet
    sample: DesignShards | None = None
    mislabelled: bool = False  # whether targets are likelihoods of what was recorded

    def accumulate(self, function: ChunkFunction) -> Terms:
        """Return the sum of a function over all rows; the order of additions depends on the number of rows alone."""

        def add(parts: Sequence[Terms | None]) -> Terms | None:
            some = [part for part in parts if part is not None]
            return added(some) if some else None

        total = self.engine.reduce(partial(_summed, self.read, self.basis, function), self.shards, add=add)
        if total is None:
            raise ValueError("there are no rows to sum over; give at least one")
        return total

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    @classmethod
    def of_sample(cls, chunk: Chunk, basis: Basis, *, mislabelled: bool = False) -> DesignShards:
        """Return the design of rows in memory that represent all rows: features (n, F), targets and weights."""
        whole, here = [(0, len(chunk[0]))], ThreadEngine(1)
        return cls(lambda _: chunk, whole, here, basis, basis.n_functions, mislabelled=mislabelled)


@dataclass(frozen=True, eq=False)
class TrainingShards:
    """All rows of a fit, on the disk, and the engine that computes sums."""

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
        raw = self._design(columns)
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
        """Return the design matrix of all rows."""
        total = self._n_effective(columns)
        share, given = fit_targets(t, weight, self.n_classes, binary=self.n_classes == 2, confusion=confusion)
        own = np.ones(len(share)) if given is None else given
        weights, wrong = own * (total / own.sum()), confusion is not None
        sample = DesignShards.of_sample((X, share, weights), basis, mislabelled=wrong)
        whole = self._design(columns)
        return replace(whole, basis=basis, n_functions=basis.n_functions, n_effective=total, sample=sample)

    def _n_effective(self, columns: tuple[int, ...]) -> float:
        stored = self.stored
        if stored.has("weight") or stored.has("votes"):
            (total,) = self._design(columns).accumulate(
                lambda X, _t, w: (float(len(X) if w is None else w.sum()),)
            )
            return float(total)
        if self.held_out_too:
            return float(stored.n_rows)
        return float(sum((~stored.read("held_out", shard)).sum() for shard in stored.shards))

    def _design(self, columns: tuple[int, ...]) -> DesignShards:
        stored, confusion = self.stored, self.confusion
        read = partial(read_shard, stored, columns, self.n_classes, self.held_out_too, confusion)
        wrong = confusion is not None
        return DesignShards(read, stored.shards, self.engine, None, len(columns), mislabelled=wrong)
