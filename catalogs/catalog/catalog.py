"""What a catalogue is, whatever its format: columns, partitions, batches, new columns, and the old ones of copies."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from io import BufferedIOBase
from itertools import product
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.catalog.new_columns import (
    OWN,
    NewColumn,
    Provenance,
    selected_column,
    standard_columns,
)
from catalogs.errors import CatalogError, DamagedFileError, FormatError, require_columns

# The elements of vector columns, as columns of their own: SDSS keeps the magnitudes of five bands in one.  Only short
# vectors of numbers: the elements of a spectrum or a light curve are too many to be columns.

MOST_ELEMENTS = 12
"""Longest vector whose elements become columns: the number of bands of J-PLUS and S-PLUS."""


class Element(str):
    """The name of an element, `MODELMAG[2]`, with its vector and place, since a column may have the same name."""

    __slots__ = ("__dict__",)
    vector: str
    place: int

    @classmethod
    def of(cls, vector: str, place: int) -> Element:
        """Return the name of a vector's element."""
        name = cls(f"{vector}[{place}]")
        name.vector, name.place = vector, place
        return name


def element_columns(column: Column, names: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the elements of a short vector column as columns; none if one of `names` is called like an element."""
    datatype = column.datatype
    if not pt.is_fixed_size_list(datatype) or not 1 < datatype.list_size <= MOST_ELEMENTS:
        return ()
    if not (pt.is_integer(datatype.value_type) or pt.is_floating(datatype.value_type)):
        return ()
    elements = [Element.of(column.name, i) for i in range(datatype.list_size)]
    if set(elements) & set(names):
        return ()
    return tuple(replace(column, name=e, datatype=datatype.value_type, shape=()) for e in elements)


Checksums = Literal["quarantine", "warn", "ignore"]
"""What happens to a file that has other checksums than it states: it is an error, a warning, or read without a word."""


def verified(catalog: Catalog, checksums: Checksums) -> tuple[Catalog, tuple[str, ...]]:
    """Verify what a catalogue's files state of themselves; return the catalogue as it can be read, and warnings.

    With "quarantine" a wrong checksum raises `DamagedFileError`, but for one that was copied from another table.
    """
    partitions: list[Partition] = []
    wrong: list[str] = []
    for here, what, damaged in (partition.verified() for partition in catalog.partitions):
        if damaged and checksums == "quarantine":
            raise DamagedFileError(
                f"{what}: the file changed after it was written; get another copy, or, if its writer kept the sums of "
                'another table, as astropy does without checksum=True, put checksums = "warn" under [catalog]'
            )
        partitions.append(here)
        if what and checksums != "ignore":
            wrong.append(what)
    return replace(catalog, partitions=tuple(partitions)), tuple(wrong)


# Batches of exactly so many rows, whatever the pieces that a file gives, and the bytes that a cell takes.

TEXT_BYTES, LIST_ITEMS = 32, 16
"""What a text and a list of unknown length are taken to need."""


def exactly(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of `rows` (fewer in the last): boundaries then are the same on any disk."""
    if rows < 1:
        raise ValueError(f"got batches of {rows} rows; expected at least one row in each")
    waiting: list[pa.RecordBatch] = []
    n_waiting = 0
    for batch in batches:
        rest = batch
        while rest.num_rows:
            waiting.append(rest.slice(0, rows - n_waiting))
            rest = rest.slice(waiting[-1].num_rows)
            n_waiting += waiting[-1].num_rows
            if n_waiting == rows:
                yield pa.concat_batches(waiting) if len(waiting) > 1 else waiting[0]
                waiting, n_waiting = [], 0
    if waiting:
        yield pa.concat_batches(waiting) if len(waiting) > 1 else waiting[0]


def cell_bytes(datatype: pa.DataType, text: int = TEXT_BYTES) -> int:
    """Return about how many bytes a cell of an Arrow type takes; `text` are those of a text."""
    if pt.is_fixed_size_list(datatype):
        return int(datatype.list_size) * cell_bytes(datatype.value_type, text)
    if pt.is_list(datatype) or pt.is_large_list(datatype):
        return LIST_ITEMS * cell_bytes(datatype.value_type, text)
    try:
        return (int(datatype.bit_width) + 7) // 8
    except ValueError:
        return text


# A catalogue: an ordered list of partitions, and what is known of its columns.  A partition is a file that can be
# read in batches and rewritten with extra columns.  Nothing here knows a format: each format's module makes a
# `Catalog` of its own partitions.

BATCH_ROWS = 131_072
"""Rows a batch: 16 MB of memory serve any catalogue.

Larger arrays are returned to the system and requested again for each batch, which doubled the time.
"""
_ROWS_IN_HEADER = {"fits", "parquet", "hats"}
"""Formats whose files say how many rows they have; others are read to be counted."""
Compute = Callable[[pa.RecordBatch], Mapping[str, np.ndarray[Any, Any]]]
"""From a batch of the columns read to the new columns, one array of as many rows each."""
Progress = Callable[[int], None]
"""Called with the number of rows done since the last call."""


@dataclass(frozen=True)
class Column:
    """A column's metadata, in the words of the VOTable FIELD; `absent` is how many of a catalogue's files lack it.

    Examples
    --------
    >>> from astropy.table import Table
    >>> catalog = catalogs.open(Table({"name": ["M 31", "M 32"], "bmag": [4.36, 9.03]}))
    >>> catalog.column("bmag").datatype
    DataType(double)
    """

    name: str
    datatype: pa.DataType
    unit: str | None = None
    ucd: str | None = None
    description: str | None = None
    null: int | None = None
    shape: tuple[int, ...] = ()
    absent: int = 0


@dataclass(frozen=True, kw_only=True)
class ColumnMetadata:
    """What a catalogue says of a column, without its values: to be kept where the catalogue is not."""

    unit: str | None
    ucd: str | None
    description: str | None
    datatype: str | None  # Arrow's name of it

    @classmethod
    def of(cls, column: Column) -> ColumnMetadata:
        """Return what is said of a catalogue's column."""
        kind = str(column.datatype)
        return cls(unit=column.unit, ucd=column.ucd, description=column.description, datatype=kind)


@dataclass(frozen=True)
class Annotation:
    """What a copy gains: the new `columns`, made by `compute` of the columns `read`; and which old columns stay.

    `compute` gets `rows` rows at a time (fewer in the last batch), in as many `threads`; what is written depends on
    neither.  `progress` hears of rows once they are on their way to the disk.  Of the old columns all stay but the
    `replaced`, or, in a slim copy, which keeps nothing else of the file, `only` some.
    """

    columns: Sequence[NewColumn]
    compute: Compute
    read: Sequence[str]
    provenance: Provenance = field(default_factory=Provenance)
    rows: int = BATCH_ROWS
    threads: int = 1
    progress: Progress | None = None
    replaced: tuple[str, ...] = ()
    only: frozenset[str] | None = None

    @property
    def slim(self) -> bool:
        """Whether copies are slim."""
        return self.only is not None

    def stays(self, name: str) -> bool:
        """Say whether an old column stays."""
        return name not in self.replaced if self.only is None else name in self.only


@dataclass(frozen=True)
class Partition(ABC):
    """One file of a catalogue.  Its `key` is its path relative to the catalogue's root, and stays the same.

    Rows that repeat others (a HATS margin) are not `counted`.

    Examples
    --------
    >>> from astropy.table import Table
    >>> catalog = catalogs.open(Table({"name": ["M 31", "M 32"], "bmag": [4.36, 9.03]}))
    >>> [(p.key, p.n_rows) for p in catalog.partitions]
    [('table.parquet', 2)]
    """

    path: Path
    key: str
    n_rows: int
    _: KW_ONLY
    counted: bool = True

    @abstractmethod
    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, exactly `rows` rows at a time (fewer in the last), in the file's order."""

    def write_annotated(self, out: Path, annotation: Annotation) -> None:
        """Write a copy with the new columns to `out`, streamed and atomic; all that is kept stays as it was."""
        raise NotImplementedError  # where all copies are in another format

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size

    def content(self) -> AbstractContextManager[BufferedIOBase]:
        """Open the file's bytes."""
        return self.path.open("rb")

    def verified(self) -> tuple[Self, str | None, bool]:
        """Verify what the file states of its bytes and rows; return the partition as it can be read, and what is wrong.

        The truth value says whether these bytes are damaged, and not others that they were copied from.
        """
        return self, None, False

    def same_columns(self, other: Partition) -> Mapping[str, int | None]:
        """Return columns that another file has in the same bytes, row by row; these need not be decoded to be compared.

        Of texts, how many are empty, where the bytes tell.  Others may be the same too: of formats whose bytes are not
        compared, all.
        """
        del other
        return {}

    def divided(self, rows: int) -> Sequence[Self]:
        """Return parts for processes to read, of about so many rows each, in order; itself where that saves nothing."""
        del rows
        return [self]

    def beside_the_columns(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return texts to be kept with a copy in another format, and sentences on what such a copy leaves behind."""
        return {}, ()


def chosen_table(
    path: Path,
    tables: Mapping[int, tuple[str, Collection[str]]],
    wanted: str | int | None,
    columns: Sequence[str],
) -> int:
    """Return the number of the table that is `wanted` by name or number; else of the only one with those columns.

    `tables` has the name and the columns of each by its number.  One that is alone needs no such columns.
    """
    if not tables:
        raise DamagedFileError(f"{path} holds no table, expected at least one: fetch it again")
    lacking = {i: [c for c in columns if c not in known] for i, (_, known) in tables.items()}
    if wanted is not None:
        named = [i for i, (name, _) in tables.items() if name and name.casefold() == str(wanted).casefold()]
        found = named or [i for i in tables if str(i) == str(wanted)]
        got = f"{len(found)} tables called '{wanted}'"
    else:
        found = [i for i, lost in lacking.items() if not lost] or list(tables)
        got = f"{len(found)} tables"
        if all(lacking.values()):
            fewest = min(lacking, key=lambda i: len(lacking[i]))
            got += f", none with all columns ({fewest} lacks {lacking[fewest]})"
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{i} '{name}'" for i, (name, _) in tables.items())
    raise FormatError(
        f"{path} holds {got}, expected one of {listed}; name one, or give its number: with --table of `blr inspect` "
        "and `blr init`, or as table under [catalog] and [target]"
    )


@dataclass(frozen=True, repr=False)
class Catalog:
    """An opened catalogue: its format, its columns, and its files as partitions.

    `whole` are the keys of all partitions of a HATS catalogue, which has files that belong to it and to no partition.
    The last two fields are for a table in memory that was written to a file first.  `changed` says how a column
    differs from the table's.  `left_behind` lists what the file has no place for.

    Raises
    ------
    catalogs.CatalogError
        Raised by the methods, if a column is missing or the file is damaged.

    Examples
    --------
    >>> from astropy.table import Table
    >>> catalog = catalogs.open(Table({"name": ["M 31", "M 32"], "bmag": [4.36, 9.03]}))
    >>> catalog.names, catalog.n_rows
    (('name', 'bmag'), 2)
    >>> next(catalog.batches(["bmag"])).to_pydict()
    {'bmag': [4.36, 9.03]}
    """

    format: str
    path: Path
    columns: tuple[Column, ...]
    partitions: tuple[Partition, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
    whole: frozenset[str] | None = None
    changed: Mapping[str, str] = field(default_factory=dict)
    left_behind: tuple[str, ...] = ()

    def __repr__(self) -> str:
        rows = f"{self.n_rows:,} rows, " if self.format in _ROWS_IN_HEADER else ""
        files = f", {len(self.partitions):,} files" if len(self.partitions) > 1 else ""
        return f"<Catalog {self.path} ({self.format}): {rows}{len(self.columns)} columns{files}>"

    @property
    def n_rows(self) -> int:
        """Rows, each object once."""
        return sum(p.n_rows for p in self.partitions if p.counted)

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {c.name: c for c in self.columns}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(c.name for c in self.columns)

    def column(self, name: str) -> Column:
        """Return the column of that name; `ColumnNotFoundError` names the nearest."""
        require_columns(self.path, [name], self._by_name)
        return self._by_name[name]

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the named columns of all counted partitions, in order."""
        require_columns(self.path, columns, self._by_name)
        for partition in self.partitions:
            if partition.counted:
                yield from partition.batches(columns, rows)

    def same_columns(self, other: Catalog) -> Mapping[str, int | None]:
        """Return columns of which another catalogue's partitions have the same bytes, found without decoding them.

        Of texts, how many are empty, where the bytes tell.
        """
        alike = [c.name for c in self.columns if other._by_name.get(c.name, c).datatype == c.datatype]
        if len(self.partitions) != len(other.partitions):
            return {}
        parts = [a.same_columns(b) for a, b in zip(self.partitions, other.partitions, strict=True)]
        found = {name: [part[name] for part in parts] for name in alike if all(name in p for p in parts)}
        return {name: None if None in empty else sum(filter(None, empty)) for name, empty in found.items()}

    def content_hash(self) -> str:
        """Return the SHA-256 over the partitions' names and bytes."""
        total = hashlib.sha256()
        for partition in self.partitions:
            total.update(partition.key.encode())
            with partition.content() as stream:
                total.update(hashlib.file_digest(stream, "sha256").digest())
        return total.hexdigest()


# Threads compute while the caller reads and, where rows have no place of their own in the file, writes.

NewValues = Mapping[str, np.ndarray[Any, Any]]
Computed = tuple[pa.RecordBatch, NewValues]
Item = TypeVar("Item")
Result = TypeVar("Result")


def checked(columns: Sequence[NewColumn], new: NewValues, n_rows: int) -> NewValues:
    """Return the new columns of a batch, in order and no others: one value a row, of the promised type."""
    missing = [c.name for c in columns if c.name not in new]
    if missing:
        raise ValueError(
            f"compute returned the columns {sorted(new)}, expected {missing} too, which it was called "
            "for; return all new columns"
        )
    for column in columns:
        values = new[column.name]
        if values.shape != (n_rows,):
            raise ValueError(
                f"compute returned shape {values.shape} for '{column.name}'; expected one value for each of the "
                f"{n_rows} rows: compute all rows of the batch"
            )
        if pa.types.is_string(column.datatype):
            if values.dtype.kind not in "UTO":
                raise TypeError(f"compute returned {values.dtype} for '{column.name}'; expected text")
        elif values.dtype != (expected := np.dtype(column.datatype.to_pandas_dtype())):
            raise TypeError(
                f"compute returned {values.dtype} for '{column.name}'; expected {expected}: convert the values "
                "in compute, so that you decide how they are rounded"
            )
    return {c.name: new[c.name] for c in columns}


def computed_batches(partition: Partition, annotation: Annotation) -> Generator[Computed]:
    """Yield every batch of the columns read, and the new ones of the same rows, in the file's order.

    Batches have the same rows whatever the number of threads, so the result does too.
    """
    batches = partition.batches(annotation.read, annotation.rows)
    return each_batch(batches, lambda batch: (batch, annotation.compute(batch)), annotation)


def each_batch(
    batches: Iterable[pa.RecordBatch], work: Callable[[pa.RecordBatch], Result], annotation: Annotation
) -> Generator[Result]:
    """Yield what `work` makes of each batch, in order; `progress` hears of the rows once that was taken."""
    counted = in_order(batches, lambda batch: (batch.num_rows, work(batch)), annotation.threads)
    with closing(counted):
        for n_rows, result in counted:
            yield result
            if annotation.progress is not None:
                annotation.progress(n_rows)


def in_order(items: Iterable[Item], work: Callable[[Item], Result], threads: int) -> Generator[Result]:
    """Yield what `work` makes of each item, in their order.

    Items are made (read) in the caller's thread, working goes on in `threads` others, on few items at a time.  What
    comes out is the same whatever the number of threads.  A failure with any item ends it at once.
    """
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="blr-compute")
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            # One batch waits for each thread, which keeps all threads busy and needs little memory.
            if len(pending) > threads:
                yield _oldest(pending)
        while pending:
            yield _oldest(pending)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _oldest(pending: deque[Future[Result]]) -> Result:
    """Return the first result as soon as it is there, or raise what any other has raised meanwhile."""
    while not pending[0].done():
        wait([future for future in pending if not future.done()], return_when=FIRST_COMPLETED)
        for future in pending:
            if future.done():
                future.result()
    return pending.popleft().result()


def apart(first: object, other: object, what: str, remedy: str = "") -> FormatError:
    """Return the error for files that are not one catalogue."""
    remedy = remedy or "open the files one by one, or use a pattern that matches fewer files"
    return FormatError(f"{first} and {other} cannot be read as one catalogue: {what}; {remedy}")


ONE_ANNOTATED = (
    "both have the new columns of an annotation, but only one of them records that it was annotated"
)


def require_same_units(
    first: object, columns: Sequence[Column], other: object, theirs: Sequence[Column]
) -> None:
    """Raise FormatError where two files state different units of a column; one that states none is believed."""
    stated = {c.name: c.unit for c in columns if c.unit}
    for column in theirs:
        unit = stated.get(column.name)
        if unit is not None and column.unit and not _same_unit(unit, column.unit):
            what = f"'{column.name}' is in '{unit}' in the first and in '{column.unit}' in the second"
            remedy = "name the files one by one, so that units are converted, or write the column in one unit"
            raise apart(first, other, what, remedy)


def _same_unit(one: str, other: str) -> bool:
    """Say whether two texts mean the same unit: as they are written, or as astropy reads them."""
    if one.split() == other.split():
        return True
    import astropy  # noqa: PLC0415 -- slow to import, and most units are spelt alike

    a, b = (astropy.units.Unit(text, parse_strict="silent") for text in (one, other))
    return bool(a == b)


# Columns that an earlier annotation made: known by its provenance, replaced by the next one with such names.  A
# column of the same name from another source is not replaced: it is an error.  A format without a place for
# provenance (CSV) is searched for whole annotations: all columns of one, next to each other and in order, which no
# other program writes.  Users own bits 16 to 23 of our flags: what they have set there is carried over.

KEY = re.compile(r"blr\.((?:previous\.)*)(.+)")
PREVIOUS = "previous."
USER_BITS = 0xFF << 16
"""Bits 16 to 23, which are the users'."""
Level = dict[str, str]
"""The provenance of one annotation: key, without `blr.` and `previous.`, to value."""


def replaced_columns(
    names: Iterable[str], metadata: Mapping[str, str], columns: Sequence[NewColumn]
) -> tuple[str, ...]:
    """Return which of the old names belong to an earlier annotation that shares a name with the new columns."""
    new = {c.name.casefold() for c in columns}
    earlier = {name for level in levels(metadata) if (own := own_names(level)) & new for name in own}
    return tuple(name for name in names if name.casefold() in earlier)


def is_provenance(key: object) -> bool:
    """Say whether a key of a file's or a table's metadata is one of ours."""
    return isinstance(key, str) and KEY.fullmatch(key) is not None


def levels(metadata: Mapping[str, str]) -> list[Level]:
    """Return the provenance of all annotations in a file's metadata, the latest first."""
    by_depth: dict[int, Level] = {}
    for key, value in metadata.items():
        if match := KEY.fullmatch(key):
            by_depth.setdefault(match[1].count(PREVIOUS), {})[match[2]] = value
    return [by_depth.get(i, {}) for i in range(max(by_depth, default=-1) + 1)]


def own_names(level: Level) -> set[str]:
    """Return the names, in small letters, of the columns that an annotation made."""
    return {name.strip().casefold() for name in level.get("columns", "").split(",") if name.strip()}


def annotated_names(metadata: Mapping[str, str]) -> frozenset[str]:
    """Return the names, in small letters, of the columns that earlier annotations made."""
    return frozenset(name for level in levels(metadata) for name in own_names(level))


def recognised_provenance(columns: Sequence[Column]) -> dict[str, str]:
    """Return what the provenance of a file would say of whose its columns are, were there a place for it."""
    annotations, start = [], 0
    while start < len(columns):
        if annotation := annotation_at(columns[start:]):
            annotations.append(", ".join(c.name for c in annotation))
        start += max(1, len(annotation))
    return {f"{OWN}{PREVIOUS * depth}columns": names for depth, names in enumerate(reversed(annotations))}


def annotation_at(columns: Sequence[Column]) -> Sequence[Column]:
    """Return the columns of the annotation that begins with the first of these; none, unless all of one are there."""
    if not columns[0].name.endswith("class"):
        return ()
    prefix, names = columns[0].name.removesuffix("class"), [c.name for c in columns]
    ends_at = names.index(f"{prefix}p_max") if f"{prefix}p_max" in names else 0
    # The names in columns are safe for columns already, so that they make the same columns again.
    classes = [name.removeprefix(f"{prefix}p_") for name in names[1:ends_at]]
    kinds: tuple[Literal["full", "standard"], ...] = ("full", "standard")
    for extent, sets in product(kinds, (True, False)):
        try:
            expected = standard_columns(classes, prefix, columns=extent, sets=sets)
        except CatalogError:
            return ()
        if names[: len(expected)] == [c.name for c in expected] and all(map(may_hold, columns, expected)):
            n = len(expected)
            for made in (selected_column(name, prefix) for name in classes):  # in the order of the classes
                n += n < len(columns) and names[n] == made.name and may_hold(columns[n], made)
            return columns[:n]
    return ()


def may_hold(column: Column, new_column: NewColumn) -> bool:
    """Say whether text of a column that we made could have been taken for what was found: '1' for a number."""
    if pt.is_string(new_column.datatype):
        return True
    if pt.is_boolean(new_column.datatype):
        return bool(pt.is_boolean(column.datatype) or pt.is_string(column.datatype))
    whole = pt.is_null(column.datatype) or pt.is_integer(column.datatype)
    return whole or (pt.is_floating(new_column.datatype) and pt.is_floating(column.datatype))


def provenance_entries(
    old: Mapping[str, str], provenance: Provenance, replaced: Iterable[str] = ()
) -> dict[str, str]:
    """Return all `blr.` metadata of an annotated copy: the new provenance, and what is left of earlier annotations.

    Annotations whose columns stay become `previous` ones.
    """
    gone = {name.casefold() for name in replaced}
    staying = [level for level in levels(old) if not own_names(level) & gone]
    first = provenance.metadata(prefix="")
    result = {OWN + key: value for key, value in first.items()}
    for depth, level in enumerate(staying, 1):
        # What all of them share (the meanings of flags) is not repeated.
        differing = {key: value for key, value in level.items() if first.get(key) != value}
        result |= {f"{OWN}{PREVIOUS * depth}{key}": value for key, value in differing.items()}
    return result


def with_user_bits(
    read: Sequence[str], compute: Compute, replaced: Sequence[str], columns: Sequence[NewColumn]
) -> tuple[Sequence[str], Compute]:
    """Return what to read and to compute, so that the users' bits of replaced flags are carried over."""
    names = {name.casefold(): name for name in replaced}
    flags = [c.name for c in columns if c.name.endswith("flags") and pt.is_integer(c.datatype)]
    new = next((name for name in flags if name.casefold() in names), None)
    if new is None:
        return read, compute
    old = names[new.casefold()]

    def carried(batch: pa.RecordBatch) -> Mapping[str, np.ndarray[Any, Any]]:
        new_columns = compute(batch.select(list(read)))
        values = new_columns[new]
        if not np.issubdtype(values.dtype, np.integer):
            return new_columns  # This is an error, which another check reports.
        flags = batch.column(old)
        if not (pt.is_integer(flags.type) or pt.is_floating(flags.type)):
            flags = pa.nulls(len(flags), pa.int64())
        whole = pc.fill_null(pc.if_else(pc.is_finite(flags), flags, None), 0).cast(pa.int64(), safe=False)
        kept = np.asarray(whole.to_numpy(zero_copy_only=False)) & USER_BITS
        return {**new_columns, new: (values & ~values.dtype.type(USER_BITS)) | kept.astype(values.dtype)}

    return tuple(dict.fromkeys([*read, old])), carried
