"""Catalogues that are opened: file by file, damaged ones set aside; whole; one object's row; or pieces for workers."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogs import hats
from catalogs.arrays import plain
from catalogs.catalog.catalog import BATCH_ROWS, Catalog, Checksums, Partition, verified
from catalogs.errors import CatalogError, FormatError
from catalogs.formats import TableChoice, joined, open_files, open_listing, tables_of
from catalogs.parquet import dataset as parquet
from catalogs.remote.remote_file import Listing
from catalogs.writing import copied
from flows.errors import UsageError
from flows.inputs.source import (
    InputCatalogue,
    RemoteSource,
    Source,
    check_links,
    fetched_sources,
    listing_of,
)
from flows.runs.manifest import FileState
from flows.runs.progress import tell

# The files of what the user named, opened as catalogues; damaged ones are set aside, not in the way of the others. A
# folder or a pattern is one catalogue of many files.  Where it does not open, each file is tried by itself, and the
# catalogue is opened without those that fail.

Check = Callable[[Catalog], object]


OpenedFile = tuple[InputCatalogue, FileState, Partition, str]
"""A file that was opened: the catalogue as it was opened, the file's state, its partition, and the name of its copy."""


def find_files(
    catalogues: Iterable[InputCatalogue], check: Check, *, tolerated: tuple[type[Exception], ...]
) -> tuple[list[OpenedFile], dict[Path, Exception]]:
    """Return the files of the catalogues, opened and checked, and why others failed.

    Errors that are not `tolerated` in a file end the search.
    """
    opened: list[OpenedFile] = []
    failed: dict[Path, Exception] = {}
    for catalogue in catalogues:
        try:
            if catalogue.source.is_folder or catalogue.files:
                opened += _files_of(catalogue, check)
        except tolerated as error:
            if not catalogue.source.is_folder:
                failed[catalogue.source.path] = error
                continue
            failing = _failing(catalogue, check, tolerated, error)
            opened += _files_of(catalogue.lacking(failing), check)
            failed |= failing
    return opened, failed


def _files_of(catalogue: InputCatalogue, check: Check) -> list[OpenedFile]:
    catalog, opened = open_source(catalogue), list[OpenedFile]()
    check(catalog)
    check_links(catalog, catalogue.source)
    for name, partition in copied(catalog, catalogue.form).items():
        if name.startswith("."):
            raise UsageError(
                f"{partition.path}: got a hidden file, expected a name without a '.' before it, since the copy "
                "would be hidden in the output folder too; rename the file"
            )
        with suppress(FileNotFoundError):  # it has gone since it was opened
            # Parts of HATS need not be listed.
            seen = catalogue.files.get(partition.path) or FileState.of(partition.path)
            opened.append((catalogue, seen, partition, name))
    return opened


def _failing(
    catalogue: InputCatalogue, check: Check, tolerated: tuple[type[Exception], ...], error: Exception
) -> dict[Path, Exception]:
    """Return why files of a folder that have rows fail, by themselves or beside most.

    Where each fails by itself, the `error` of all together is raised.  Where the others do not go together either,
    kinds are files with the same columns; that of the most files comes first, then each that goes with those before.
    Of a kind that does not, one file is tried for all.
    """
    failing: dict[Path, Exception] = {}
    kinds: dict[object, list[Path]] = defaultdict(list)
    files = [*catalogue.files]
    if catalogue.source.kind == "hats":
        known, left_out = hats.files_with_rows(catalogue.source.path), {*catalogue.without}
        files = [f for f in known if catalogue.source.name_of(f) not in left_out and f.exists()]
    for file in files:
        try:
            catalog = catalogue.choice.open(file)
            check(catalog)
            kind = frozenset((c.name, str(c.datatype), c.unit, c.shape) for c in catalog.columns)
            kinds[kind].append(file)
        except tolerated as fault:
            failing[file] = fault
    if not kinds:
        raise error
    if failing:
        with suppress(*tolerated):
            _files_of(catalogue.lacking(failing), check)
            return failing
    together: set[Path] = set()
    for alike in sorted(kinds.values(), key=len, reverse=True):
        try:
            _files_of(catalogue.lacking({*files} - together - {alike[0]}), check)
            together.add(alike[0])
        except tolerated as fault:
            failing |= dict.fromkeys(alike, fault)
    return failing


@lru_cache(maxsize=4)
def open_source(catalogue: InputCatalogue) -> Catalog:
    """Return an input, opened, without some of a folder's files.

    Remembered for one state of its files, since a folder of a thousand takes seconds, and each of them is asked for.
    """
    path, without, choice = catalogue.source.path, catalogue.without, catalogue.choice
    if not without:
        return choice.open(path)
    if catalogue.source.kind == "hats":
        return hats.open_without(path, without)
    root, files = tables_of(path)
    kept = [f for f in files if f.relative_to(root).as_posix() not in without]
    if not kept:
        raise FormatError(f"{path}: none of its files can be read; correct or replace them")
    return open_files(root, kept, choice.open)


@contextmanager
def opened(
    sources: Sequence[Source], choice: TableChoice, *, key: str | None = None
) -> Iterator[list[Catalog]]:
    """Give the catalogues at sources, as long as the block lasts; of a pattern each file is one.

    Parquet at a URL is read where it is; other formats are fetched.  `key` says in errors who named them.
    """
    with ExitStack() as stack:
        catalogs: list[Catalog] = []
        for source in map(_asked, sources):
            if listing := _remote_parquet(source):
                each = [listing]
                if listing.kind == "pattern":
                    alone = [replace(p, key=PurePosixPath(p.key).name) for p in listing.places]
                    each = [Listing(p.path.rpartition("/")[0], (p,), "file") for p in alone]
                catalogs += [open_listing(one, choice.table) for one in each]
            else:
                catalogs += stack.enter_context(opened_whole([source], choice, key=key))
        yield catalogs


@contextmanager
def opened_whole(
    sources: Sequence[Source], choice: TableChoice, *, key: str | None = None, folder: Path | None = None
) -> Iterator[list[Catalog]]:
    """Give the catalogues at sources, whose files are all fetched first where they are at URLs: into a `folder`."""
    with fetched_sources(sources, folder) as here:
        yield [check_links(choice.open(source.path), source, key=key) for source in here]


@contextmanager
def opened_together(source: Source, choice: TableChoice) -> Iterator[Catalog]:
    """Give the one catalogue of all that a source means, a pattern's files too, as long as the block lasts."""
    source = _asked(source)
    if listing := _remote_parquet(source):
        yield open_listing(listing, choice.table)
    else:
        with fetched_sources([source]) as here:
            paths = [place.path for place in here]
            catalogs = [choice.open(path) for path in paths]
            several = len(catalogs) > 1
            yield joined(Path(os.path.commonpath(paths)), paths, catalogs) if several else catalogs[0]


def _asked(source: Source) -> Source:
    """Return a source, of a URL with the files that its server names: it is asked once."""
    return replace(source, listing=listing_of(source.url)) if isinstance(source, RemoteSource) else source


def _remote_parquet(source: Source) -> Listing | None:
    """Return the files of a URL that are all Parquet, which is read where it is."""
    listing = source.listing if isinstance(source, RemoteSource) else None
    is_parquet = listing and all(place.key.lower().endswith(parquet.SUFFIXES) for place in listing.places)
    return listing if is_parquet else None


def with_checksums(catalog: Catalog, checksums: Checksums) -> Catalog:
    """Return a catalogue once the checksums of its files are verified; tell which are wrong."""
    catalog, wrong = verified(catalog, checksums)
    for what in wrong:
        tell().note(what)
    return catalog


def first_rows(catalog: Catalog, columns: Sequence[str], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of a catalogue."""
    left = limit
    for batch in catalog.batches(columns, max(1, min(BATCH_ROWS, limit))):
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows


def thinned(batches: Iterable[pa.RecordBatch], step: int, *, start: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield every `step`-th row, counted over all batches; `start` is the number of the first row."""
    first = -start % step
    for batch in batches:
        yield batch if step == 1 else batch.take(pa.array(np.arange(first, batch.num_rows, step)))
        first = (first - batch.num_rows) % step


ObjectRow = tuple[Partition, int, int]
"""Where the first row of an object is, counted from 0 in its partition, and how many rows the object has."""


def find_object(catalog: Catalog, column: str, identifier: str) -> ObjectRow | None:
    """Return where the object is whose `column` holds the identifier, blanks at its ends aside; None where nowhere.

    A number is compared as a number: 7 finds 7 and 7.0, but not the text 007.
    """
    wanted = identifier.strip()
    found: tuple[Partition, int] | None = None
    n = 0
    for partition in catalog.partitions:
        first = 0
        for batch in partition.batches([column], BATCH_ROWS):
            rows = np.flatnonzero(_holds(batch.column(0), wanted))
            n += len(rows)
            if found is None and len(rows):
                found = partition, first + int(rows[0])
            first += batch.num_rows
    return None if found is None else (*found, n)


def _holds(column: pa.Array, wanted: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        try:
            number = pa.scalar(wanted).cast(column.type)
        except pa.ArrowInvalid:
            return np.zeros(len(column), dtype=bool)
        same = pc.equal(column, number)
    else:
        same = pc.equal(pc.utf8_trim_whitespace(plain(column)), wanted)
    return np.asarray(pc.fill_null(same, fill_value=False).to_numpy(zero_copy_only=False), dtype=bool)


def read_object(place: ObjectRow, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Return the row of an object, as a batch of one row."""
    partition, left, _ = place
    for batch in partition.batches(columns, BATCH_ROWS):
        if left < batch.num_rows:
            return batch.slice(left, 1)
        left -= batch.num_rows
    raise CatalogError(f"{partition.path} has lost rows since it was opened, expected all; try again")


PIECE_ROWS = 8 * BATCH_ROWS
"""Rows of a part of a large file: whole batches, seconds of work."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A file, or a part of one: its number among all, its catalogue's number, and its rows.

    `first` is the number of its first row among the rows of all catalogues.
    """

    number: int
    catalog: int
    partition: Partition
    first: int = 0


Workers = Callable[[Callable[[Piece], Any]], Generator[tuple[Piece, Any]]]
"""Has other processes than this one read all pieces, and yields what they found in catalogue order."""


def pieces_of(catalogs: Sequence[Catalog], choice: TableChoice) -> tuple[Piece, ...]:
    """Return what workers read of catalogues, in order: their files, large ones in parts, by absolute paths."""
    pieces: list[Piece] = []
    first = 0
    for number, catalog in enumerate(catalogs):
        # A worker may run in another folder.
        here = catalog if catalog.path.is_absolute() else choice.open(catalog.path.absolute())
        for file in (file for file in here.partitions if file.counted):
            for part in file.divided(PIECE_ROWS):
                pieces.append(Piece(len(pieces), number, part, first))
                first += part.n_rows
    return tuple(pieces)
