"""Parquet: one file or a folder of files, in batches of their row groups."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from io import BufferedIOBase, BufferedReader
from itertools import groupby, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from catalogs.arrays import common_type, is_text, value_type
from catalogs.catalog.catalog import (
    BATCH_ROWS,
    ONE_ANNOTATED,
    Annotation,
    Catalog,
    Column,
    Partition,
    annotated_names,
    apart,
    each_batch,
    exactly,
    require_same_units,
)
from catalogs.errors import (
    CatalogError,
    DamagedFileError,
    FormatError,
    require_alone,
    require_columns,
    require_once,
)
from catalogs.files import (
    HiveValue,
    expand,
    files_below,
    hive_constants,
    missing,
    open_bytes,
    require_file,
    stamp,
)
from catalogs.metadata.astropy_header import ASTROPY, masked, masks_of
from catalogs.parquet._footer import ENCRYPTED, MAGIC, damaged, read_footer, wrong_page
from catalogs.parquet.metadata import ARROW, DESCRIPTIONS, columns_of, recorded_provenance, text_pairs
from catalogs.parquet.writer import append_columns, new_table
from catalogs.remote.remote_file import RemoteFile

FORMAT = "parquet"

READ_BUFFER = 1 << 18
"""Bytes of a column chunk read at a time, so that a row group of any size is streamed."""

LARGEST_TEXTS = 3 << 27
"""Bytes that the texts of a batch may take."""
LARGEST_PIECE = 1 << 26
"""Bytes that the texts of a piece of a batch may take, where their dictionary tells."""
TEXT_ROWS = 4096
"""Rows of a piece with texts of a dictionary; larger ones are not read faster."""


@dataclass(frozen=True)
class ParquetPartition(Partition):
    """One Parquet file.

    `constants` are the columns that its folders' names give it; `absent` those that other files of the catalogue
    have, which are null here; `types` those of another type there (int64 for its int32, text for its nulls).  Of a
    `remote` file, `path` is the name that its copy takes.  `row_groups` are those that are read, None for all.
    Where pages are `checked`, one with another checksum than it states is an error.
    """

    constants: Mapping[str, HiveValue] = field(default_factory=dict)
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    remote: RemoteFile | None = None
    row_groups: tuple[int, ...] | None = None
    checked: bool = True

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self.remote.n_bytes if self.remote else self.path.stat().st_size

    def content(self) -> AbstractContextManager[BufferedIOBase]:
        """Open the file's bytes."""
        return self.remote.open() if self.remote else open_bytes(self.path)

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, exactly `rows` rows at a time (fewer in the last), dictionaries decoded."""
        stored = dict.fromkeys(c for c in columns if c not in self.constants and c not in self.absent)
        with opened(self.remote or self.path, checked=self.checked) as file:
            schema = file.schema_arrow  # made anew each time it is asked for
            known = dict(zip(schema.names, schema.types, strict=True))
            require_columns(self.remote or self.path, stored, known)
            masks = {n: mask for n, mask in masks_of_file(file).items() if n in stored and mask in known}
            # Without any stored column there is nothing to count rows by.
            wanted = dict.fromkeys([*stored, *masks.values()]) or list(known)[:1]
            for batch in exactly(self.pieces(file, {name: known[name] for name in wanted}, rows), rows):
                arrays = [self.values(batch, name, masks) for name in columns]
                yield pa.record_batch(arrays, names=list(columns)) if columns else batch.select([])

    def pieces(
        self, file: pq.ParquetFile, columns: Mapping[str, pa.DataType], rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield some or all of a batch's rows; CatalogError where the texts of a batch are too long together.

        Few bytes may stand for very many long texts, so of these few rows are read at a time.
        """
        groups = range(file.metadata.num_row_groups) if self.row_groups is None else self.row_groups
        types = {name: value_type(datatype) for name, datatype in columns.items()}
        flat = [name for name, datatype in types.items() if is_text(datatype)]
        nested = [name for name, datatype in types.items() if pt.is_nested(datatype)]
        most = min(rows, TEXT_ROWS) if flat or nested else rows
        n = n_bytes = 0
        for at_once, some in self.grouped(file, groups, flat, most):
            for piece in file.iter_batches(at_once, row_groups=some, columns=list(columns)):
                for name in (*flat, *nested):  # pyarrow reads texts that are not UTF-8
                    try:
                        piece.column(name).validate(full=True)
                    except pa.ArrowInvalid as error:
                        raise damaged(
                            self.remote or self.path, f"the column '{name}' holds {error}"
                        ) from None
                texts = {name: piece.column(name).nbytes for name in flat}
                n, n_bytes = n + piece.num_rows, n_bytes + sum(texts.values())
                if n_bytes > LARGEST_TEXTS:
                    raise CatalogError(
                        f"{self.remote or self.path}: {n:,} rows have texts of {n_bytes:,} bytes, those of "
                        f"'{max(texts, key=texts.__getitem__)}' the longest, expected at most {LARGEST_TEXTS:,} bytes "
                        "in the rows that are read at a time; write the file without that column"
                    )
                yield piece
                if n >= rows:
                    n, n_bytes = n % rows, 0

    def grouped(
        self, file: pq.ParquetFile, groups: Iterable[int], texts: list[str], most: int
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield row groups with the number of their rows that are read at a time: fewer where texts may be long."""
        if not texts or self.remote is not None:
            yield most, list(groups)
            return
        with opened(self.path, checked=self.checked, dictionaries=texts, metadata=file.metadata) as encoded:

            def at_once(group: int) -> int:
                longest = 1
                for name in texts:
                    with suppress(OSError):  # "Not yet implemented": an encoding that has no dictionary
                        for first in islice(encoded.iter_batches(1, row_groups=[group], columns=[name]), 1):
                            if pt.is_dictionary(first.column(name).type):
                                lengths = pc.binary_length(first.column(name).dictionary)
                                longest = max(longest, pc.max(lengths).as_py() or 1)
                return max(1, min(most, LARGEST_PIECE // longest))

            for number, some in groupby(groups, at_once):
                yield number, list(some)

    def verified(self) -> tuple[ParquetPartition, str | None, bool]:
        """Verify the checksums of all pages; of a remote file those of the pages that are read, when they are."""
        wrong = None if self.remote else wrong_page(self.path, stamp(self.path))
        return (replace(self, checked=False) if wrong else self), wrong, bool(wrong)

    def same_columns(self, other: Partition) -> dict[str, int | None]:
        """Return the flat columns whose pages another file has in the same bytes, those with masks left out."""
        if not isinstance(other, ParquetPartition) or self.remote or other.remote:
            return {}
        if self.row_groups is not None or other.row_groups is not None:  # parts of files
            return {}
        with opened(self.path) as here, opened(other.path) as there:
            theirs, masks = flat_columns(there), masks_of_file(here) | masks_of_file(there)
            with open_bytes(self.path) as a, open_bytes(other.path) as b:
                return {
                    name: None
                    for name, (column, chunks) in flat_columns(here).items()
                    if name in theirs and name not in masks and column.equals(theirs[name][0])
                    if len(chunks) == len(theirs[name][1])
                    and all(same_pages(a, x, b, y) for x, y in zip(chunks, theirs[name][1], strict=True))
                }

    def divided(self, rows: int) -> list[ParquetPartition]:
        """Return parts to be read, of whole row groups that together have so many rows or more."""
        if self.remote is not None or self.n_rows <= rows:
            return [self]
        with opened(self.path) as file:
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        found: list[ParquetPartition] = []
        first, n = 0, 0
        for i, size in enumerate(sizes):
            n += size
            if n >= rows or i == len(sizes) - 1:
                found.append(replace(self, row_groups=tuple(range(first, i + 1)), n_rows=n))
                first, n = i + 1, 0
        return found or [self]

    def values(self, batch: pa.RecordBatch, name: str, masks: Mapping[str, str]) -> pa.Array:
        """Return one column of a batch, decoded, masked, of the catalogue's type."""
        if name in self.constants:
            return pa.repeat(pa.scalar(self.constants[name], self.types.get(name)), batch.num_rows)
        if name in self.absent:
            return pa.nulls(batch.num_rows, self.types.get(name, pa.null()))
        array = batch.column(name)
        while pt.is_dictionary(array.type):
            array = array.dictionary_decode()
        if name in masks:
            array = masked(array, batch.column(masks[name]))
        try:
            return array.cast(self.types.get(name, value_type(array.type)))
        except pa.ArrowInvalid as error:
            raise FormatError(
                f"{self.remote or self.path}: '{name}' is {array.type} in this file but {self.types[name]} "
                f"in the whole catalogue, and some values cannot be converted ({error}); write it with one "
                "type in all files, or open the files one by one"
            ) from None

    def write_annotated(self, out: Path, annotation: Annotation) -> None:
        """Write a copy with the new columns to `out`, streamed and atomic; old columns keep their bytes."""
        with self.remote.fetched(out.parent) if self.remote else nullcontext(self.path) as path:
            here = replace(self, path=path, remote=None)
            known = open_file(path)
            if known.n_rows != self.n_rows:
                raise DamagedFileError(
                    f"{self.remote or path} has {known.n_rows:,} rows, but had {self.n_rows:,} when it was "
                    "opened; open it again when it is complete"
                )
            # Converted in the threads: texts in Arrow take a fifth of the memory of those in NumPy.
            computed = each_batch(
                here.batches(annotation.read, annotation.rows),
                lambda batch: new_table(annotation.compute(batch), annotation.columns),
                annotation,
            )
            with closing(computed):
                append_columns(path, out, annotation, computed, old=known.columns)


def masks_of_file(file: pq.ParquetFile) -> dict[str, str]:
    """Return the columns for which astropy has written masks, each with the column of its mask."""
    text = (file.metadata.metadata or {}).get(ASTROPY.encode(), b"")
    return dict(masks_of(text.decode("utf-8", "replace")))


def flat_columns(file: pq.ParquetFile) -> dict[str, tuple[pq.ColumnSchema, list[pq.ColumnChunkMetaData]]]:
    """Return the columns that are not nested, each with its chunks."""
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    columns = [(i, file.schema.column(i)) for i in range(len(file.schema))]
    # What is a part of another column has a path beyond its name.
    return {c.name: (c, [group.column(i) for group in groups]) for i, c in columns if c.path == c.name}


def same_pages(
    a: BufferedReader, one: pq.ColumnChunkMetaData, b: BufferedReader, other: pq.ColumnChunkMetaData
) -> bool:
    """Say whether two column chunks of two files hold the same bytes, and mean the same by them."""
    known = [(c.compression, c.num_values, c.total_compressed_size) for c in (one, other)]
    if known[0] != known[1]:
        return False
    for stream, chunk in ((a, one), (b, other)):
        stream.seek(min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset))
    left = one.total_compressed_size
    while left and (piece := a.read(min(left, READ_BUFFER))):
        if piece != b.read(len(piece)):
            return False
        left -= len(piece)
    return not left


def open_file(path: Path) -> Catalog:
    """Open one file as a catalogue of one partition."""
    metadata, schema, pairs = describe(path)
    partition = ParquetPartition(path, path.name, metadata.num_rows)
    return Catalog(FORMAT, path, columns_of(schema, pairs), (partition,), pairs)


def describe(place: Path | RemoteFile) -> tuple[pq.FileMetaData, pa.Schema, dict[str, str]]:
    """Return what a file's footer says: its metadata, Arrow schema and key-value pairs."""
    with opened(place) as file:
        metadata, schema = file.metadata, file.schema_arrow
    require_once(place, schema.names)
    pairs = text_pairs(metadata.metadata)
    pairs.pop(ARROW, None)  # the schema states it more precisely
    return metadata, schema, pairs | recorded_provenance(pairs)


@contextmanager
def opened(
    place: Path | RemoteFile,
    *,
    checked: bool = True,
    dictionaries: Sequence[str] = (),
    metadata: pq.FileMetaData | None = None,
) -> Iterator[pq.ParquetFile]:
    """Open a file for streaming; what goes wrong while it is read is said in our words.

    Columns named as `dictionaries` are not decoded; `metadata` are the file's, where they are known.
    """
    try:
        with place.open() if isinstance(place, RemoteFile) else nullcontext(require_file(place)) as source:
            options = {"buffer_size": READ_BUFFER, "pre_buffer": False, "page_checksum_verification": checked}
            with pq.ParquetFile(
                source, read_dictionary=[*dictionaries], metadata=metadata, **options
            ) as file:
                if metadata is None:
                    known = file.metadata
                    counts = [known.row_group(i).num_rows for i in range(known.num_row_groups)]
                    # What plans by another number goes wrong.
                    if known.num_rows != sum(counts) or min(counts, default=0) < 0:
                        what = f"its footer counts {known.num_rows:,} rows, and {sum(counts):,} in its row groups"
                        raise damaged(place, what)
                yield file
    except pa.ArrowNotImplementedError as error:
        raise FormatError(
            f"{place} uses a feature of Parquet that pyarrow cannot read: {error}; write it again without that feature"
        ) from error
    except FileNotFoundError:
        raise missing(Path(str(place))) from None
    except UnicodeDecodeError as error:
        raise damaged(place, f"{error.object!r}, a name in it, is not UTF-8 text") from error
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, PermissionError):
            raise PermissionError(error.errno, os.strerror(error.errno or 0), str(place)) from error
        if isinstance(error, OSError) and error.errno is not None:
            raise CatalogError(
                f"{place} cannot be read: {error.strerror or error}; check the disk"
            ) from error
        if isinstance(place, Path):
            read_footer(place)  # If the footer is damaged, this tells what is wrong with it.
        raise damaged(place, str(error)) from error


# Which files of a folder are Parquet, and which folders are no catalogue though they hold such files.

SUFFIXES = (".parquet", ".parq", ".pq")

CODEC = re.compile(r"\.(?:parquet|parq|pq)\.(?:gz|gzip|snappy|zst|zstd|br|brotli|lz4|bz2|xz)$", re.IGNORECASE)
"""Names that say how pages are compressed, as pandas' own example does, or that the file is as a whole."""

LOGS = {
    "_delta_log": "Delta Lake",
    "metadata/*.metadata.json": "Apache Iceberg",
    ".hoodie": "Apache Hudi",
    "_spark_metadata": "Spark's streaming sink",
}
"""Folders in which tables with changing rows list their present files; the other files hold old rows."""


def is_parquet(path: Path) -> bool:
    """Say whether a file is named as Parquet is, or begins as it does under no suffix (Hive's) or a codec's."""
    if path.name.lower().endswith(SUFFIXES):
        return True
    return (not path.suffix or CODEC.search(path.name) is not None) and begins_as_parquet(path)


def begins_as_parquet(path: Path) -> bool:
    """Say whether a file begins as Parquet does."""
    with open_bytes(path) as stream:
        return stream.read(len(MAGIC)) in {MAGIC, ENCRYPTED}


# Parquet files that are unlike, as one catalogue: its columns, their types, and what a file lacks of them.  Releases
# are written file by file, and drift: a column that a file lacks is null in it, types widen, the order is the first
# file's.  What files say of columns is compared once for all files that say the same, so that there may be many.

Place = Path | RemoteFile


class Union:
    """The columns of files that are added one after another; `pairs` are the first one's key-value metadata.

    Of each `known` column there are the files from which its type and its unit are; it is `guessed` as long as no file
    with rows has it.  Of the kinds of files, each of which says the same of its columns, there are the
    first file with the columns' types, and the number of files.
    """

    def __init__(self) -> None:
        self.pairs: Mapping[str, str] = {}
        self.known: dict[str, Column] = {}
        self.typed: dict[str, Place] = {}
        self.stated: dict[str, Place] = {}
        self.guessed: set[str] = set()
        self.kinds: list[tuple[Place, Mapping[str, pa.DataType]]] = []
        self.n_files = Counter[int]()
        self.numbers: dict[tuple[object, ...], int] = {}

    def add(self, place: Place) -> tuple[int, int]:
        """Return the rows of a file and the number of its kind; FormatError where it goes with none before it.

        The types of a file without rows, which are a guess of its writer's, give way to those of others.
        """
        metadata, schema, pairs = describe(place)
        empty = not metadata.num_rows
        # Equal schemas may tell different units, the bytes of them do not.
        fields = schema.remove_metadata().serialize().to_pybytes()
        kind_key = (empty, fields, *(pairs.get(key) for key in DESCRIPTIONS), annotated_names(pairs))
        number = self.numbers.get(kind_key)
        if number is None:
            if not self.kinds:
                self.pairs = pairs
            elif annotated_names(pairs) != annotated_names(self.pairs):
                raise apart(self.kinds[0][0], place, ONE_ANNOTATED)
            number = self.numbers[kind_key] = len(self.kinds)
            columns = columns_of(schema, pairs)
            for column in columns:
                self.join(place, column, empty=empty)
            self.kinds.append((place, {c.name: c.datatype for c in columns}))
        self.n_files[number] += 1
        return metadata.num_rows, number

    def join(self, place: Place, column: Column, *, empty: bool) -> None:
        """Add what a file tells of a column."""
        name = column.name
        if name not in self.known:
            self.known[name], self.typed[name], self.stated[name] = column, place, place
            if empty:
                self.guessed.add(name)
            return
        known = self.known[name]
        require_same_units(self.stated[name], [known], place, [column])
        if known.unit is None and column.unit is not None:
            self.stated[name] = place
        datatype: pa.DataType | None
        if (name in self.guessed) != empty:
            datatype = known.datatype if empty else column.datatype
        else:
            datatype = common_type(known.datatype, column.datatype)
        shapes = {c.shape for c in (known, column) if c.shape}
        reshaped = len(shapes) > 1 and known.datatype.equals(column.datatype)
        if datatype is None or reshaped:
            what = f"'{name}' is {shown(known)} in the first and {shown(column)} in the second"
            remedy = "write it with one type in all files, or open the files one by one"
            raise apart(self.typed[name], place, what, remedy)
        if not datatype.equals(known.datatype):
            self.typed[name] = place
        if not empty:
            self.guessed.discard(name)
        said = {key: getattr(known, key) or getattr(column, key) for key in ("unit", "ucd", "description")}
        null = column.null if known.null is None else known.null
        shape = (known.shape or column.shape) if pt.is_fixed_size_list(datatype) else ()
        self.known[name] = replace(known, datatype=datatype, null=null, shape=shape, **said)

    def columns(self) -> tuple[Column, ...]:
        """Return the columns, the first file's first; FormatError where a file is of another table."""
        first, usual = self.kinds[self.n_files.most_common(1)[0][0]]
        for place, types in self.kinds:
            shared = len(types.keys() & usual.keys())
            if 2 * shared < max(len(types), len(usual)):
                what = f"of their {len(usual)} and {len(types)} columns, {shared} have the same name"
                raise apart(first, place, f"{what}, expected half of them or more")
        lacking = Counter[str]()
        for number, (_, types) in enumerate(self.kinds):
            lacking.update(dict.fromkeys(self.known.keys() - types.keys(), self.n_files[number]))
        return tuple(replace(column, absent=lacking[name]) for name, column in self.known.items())

    def views(self) -> Sequence[tuple[Mapping[str, pa.DataType], frozenset[str]]]:
        """Return how the files of each kind are read: the columns of another type there, and those that they lack."""
        types = {name: column.datatype for name, column in self.known.items()}
        found = []
        for _, own in self.kinds:
            others = {name: t for name, t in types.items() if not t.equals(own.get(name, pa.null()))}
            found.append((others, frozenset(types.keys() - own.keys())))
        return found


def shown(column: Column) -> str:
    """Return a column's type, with the shape of arrays."""
    return str(column.datatype) + (f" of shape {column.shape}" if len(column.shape) > 1 else "")


# Parquet: a file, a folder of files, or a pattern; `name=value` folders are columns of their files.


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a file is Parquet, or a folder holds such files."""
    if path.is_dir():
        return any(is_parquet(p) for p in files_below(path))
    return head.startswith((MAGIC, ENCRYPTED))


def open(path: Path, table: str | int | None = None) -> Catalog:  # noqa: A001 -- every format's verb
    """Open a file, a folder or a pattern; Parquet files hold one table each, so `table` is left out."""
    require_alone(path, table)
    if path.is_file():
        return open_file(path)
    below = files_below(path) if path.is_dir() else ()
    for file in below:
        if CODEC.search(file.name) and not begins_as_parquet(file):  # it would be left out in silence
            raise FormatError(
                f"{file} is compressed as a whole, expected a Parquet file, which compresses its own pages; "
                "decompress the file"
            )
    root, files = expand(path, is_parquet)
    if not files:
        raise FormatError(f"{path} holds no Parquet file; expected names ending in {', '.join(SUFFIXES)}")
    return open_files(root, files)


def open_files(root: Path, files: Sequence[Path]) -> Catalog:
    """Open files as one catalogue, which has the columns of all."""
    for log, kind in LOGS.items():
        if next(root.glob(log), None) is not None:
            raise FormatError(
                f"{root} is a table of {kind}, in which {log} says which files hold the present rows; expected a "
                "folder in which every file does: export the table to plain Parquet with the program that wrote it"
            )
    return opened_together(root, [path.relative_to(root).as_posix() for path in files], files)


def opened_together(root: Path, keys: Sequence[str], files: Sequence[Path | RemoteFile]) -> Catalog:
    """Open files, which have those keys, as one catalogue."""
    union = Union()
    rows_and_kinds = [union.add(place) for place in files]
    columns, views = union.columns(), union.views()
    constants = hive_constants(keys)
    stored, hive = {c.name for c in columns}, dict[str, pa.DataType]()
    for name, value in (pair for values in constants for pair in values.items() if pair[0] not in stored):
        if isinstance(value, str) or name not in hive:
            hive[name] = pa.string() if isinstance(value, str) else pa.int64()
    partitions = []
    for place, key, (n_rows, kind), named in zip(files, keys, rows_and_kinds, constants, strict=True):
        types, absent = views[kind]
        for name in absent.intersection(named):
            raise FormatError(
                f"{place} is in a folder '{name}={named[name]}' and has no column '{name}', but other "
                "files of the catalogue have this column; write the column into all files, or leave it out of all"
            )
        own = {name: named.get(name) for name in hive}
        types = {**types, **hive} if hive else types
        remote = place if isinstance(place, RemoteFile) else None
        here = ParquetPartition(
            root / key, key, n_rows, constants=own, types=types, absent=absent, remote=remote
        )
        partitions.append(here)
    columns += tuple(Column(name, datatype) for name, datatype in hive.items())
    return Catalog(FORMAT, root, columns, tuple(partitions), union.pairs)
