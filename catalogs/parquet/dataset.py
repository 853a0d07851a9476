"""Parquet catalogues: a file, a folder, a pattern; `name=value` folders are columns; unlike files get common types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.types as pt

from catalogs.arrays.values import common_type
from catalogs.catalog.catalog import Catalog, Column
from catalogs.catalog.earlier_columns import annotated_names
from catalogs.catalog.same_units import require_same_units
from catalogs.errors import FormatError
from catalogs.files.folders import HiveValue, expand, files_below, hive_constants, open_bytes
from catalogs.parquet._footer import ENCRYPTED, MAGIC
from catalogs.parquet.file import FORMAT, ParquetPartition, describe, open_file
from catalogs.parquet.metadata import DESCRIPTIONS, columns_of
from catalogs.remote.remote_file import RemoteFile

__all__ = [
    "FORMAT",
    "SUFFIXES",
    "ParquetPartition",
    "Union",
    "View",
    "check_no_log",
    "check_none_wrapped",
    "is_parquet",
    "open",
    "open_file",
    "open_files",
    "open_remote",
    "sniff",
]

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


def check_no_log(folder: Path) -> None:
    """Raise FormatError where a folder is a table of a kind whose log says which of its files count."""
    for log, kind in LOGS.items():
        if next(folder.glob(log), None) is not None:
            raise FormatError(
                f"{folder} is a table of {kind}, in which {log} says which files hold the present rows; expected a "
                "folder in which every file does: export the table to plain Parquet with the program that wrote it"
            )


def check_none_wrapped(folder: Path) -> None:
    """Raise FormatError where a file of a folder is compressed as a whole: it would be left out in silence."""
    for path in files_below(folder):
        if CODEC.search(path.name) and not begins_as_parquet(path):
            raise FormatError(
                f"{path} is compressed as a whole, expected a Parquet file, which compresses its own pages; "
                "decompress the file"
            )


# Parquet files that are unlike, as one catalogue: its columns, their types, and what a file lacks of them.
#
# Releases are written file by file, and drift: a column that a file lacks is null in it, types widen, the order is the
# first file's.  What files say of columns is compared once for all files that say the same, so that there may be many.

Place = Path | RemoteFile

REMEDY = "open the files one by one, or use a pattern that matches fewer files"


@dataclass(frozen=True)
class View:
    """How a file is read as part of a catalogue: columns of another type there, and those that it lacks."""

    types: Mapping[str, pa.DataType]
    absent: frozenset[str]


@dataclass
class Known:
    """A column, as far as the files have told, the files that told its type and its unit, and whether they had rows."""

    column: Column
    typed: Place
    stated: Place
    empty: bool


@dataclass
class Kind:
    """Files that say the same of their columns: the first of them, and how many there are."""

    first: Place
    types: Mapping[str, pa.DataType]
    n_files: int = 0


@dataclass
class Union:
    """What files are together, told one after another; `pairs` are the first one's key-value metadata."""

    pairs: Mapping[str, str] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    kinds: list[Kind] = field(default_factory=list)
    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)

    def add(self, place: Place, schema: pa.Schema, pairs: Mapping[str, str], *, empty: bool = False) -> int:
        """Return the number of the kind that a file is of; FormatError where it goes with none before it.

        The types of an `empty` file, which are a guess of its writer's, give way to those of others.
        """
        # Equal schemas may tell different units, the bytes of them do not.
        fields = schema.remove_metadata().serialize().to_pybytes()
        kind_key = (empty, fields, *(pairs.get(key) for key in DESCRIPTIONS), annotated_names(pairs))
        number = self.numbers.get(kind_key)
        if number is None:
            if not self.kinds:
                self.pairs = pairs
            elif annotated_names(pairs) != annotated_names(self.pairs):
                raise FormatError(
                    f"{self.kinds[0].first} and {place} cannot be read as one catalogue: both have the new "
                    f"columns of an annotation, but only one of them records that it was annotated; {REMEDY}"
                )
            number = self.numbers[kind_key] = len(self.kinds)
            columns = columns_of(schema, pairs)
            for column in columns:
                self.join(place, column, empty=empty)
            self.kinds.append(Kind(place, {c.name: c.datatype for c in columns}))
        self.kinds[number].n_files += 1
        return number

    def join(self, place: Place, column: Column, *, empty: bool) -> None:
        """Add what a file tells of a column."""
        known = self.known.get(column.name)
        if known is None:
            self.known[column.name] = Known(column, place, place, empty)
            return
        require_same_units(known.stated, [known.column], place, [column])
        if known.column.unit is None and column.unit is not None:
            known.stated = place
        datatype: pa.DataType | None
        if known.empty != empty:
            datatype = known.column.datatype if empty else column.datatype
        else:
            datatype = common_type(known.column.datatype, column.datatype)
        if datatype is None or is_reshaped(known.column, column):
            raise FormatError(
                f"{known.typed} and {place} cannot be read as one catalogue: '{column.name}' is {shown(known.column)} "
                f"in the first and {shown(column)} in the second; write it with one type in all files, or {REMEDY}"
            )
        if not datatype.equals(known.column.datatype):
            known.typed = place
        known.empty = known.empty and empty
        known.column = replace(
            known.column,
            datatype=datatype,
            unit=known.column.unit or column.unit,
            ucd=known.column.ucd or column.ucd,
            description=known.column.description or column.description,
            null=column.null if known.column.null is None else known.column.null,
            shape=(known.column.shape or column.shape) if pt.is_fixed_size_list(datatype) else (),
        )

    def columns(self) -> tuple[Column, ...]:
        """Return the columns, the first file's first; FormatError where a file is of another table."""
        usual = max(self.kinds, key=lambda kind: kind.n_files)
        for kind in self.kinds:
            shared = len(kind.types.keys() & usual.types.keys())
            if 2 * shared < max(len(kind.types), len(usual.types)):
                raise FormatError(
                    f"{usual.first} and {kind.first} cannot be read as one catalogue: of their {len(usual.types)} and "
                    f"{len(kind.types)} columns, {shared} have the same name, expected half of them or more; {REMEDY}"
                )
        return tuple(
            replace(k.column, absent=sum(kind.n_files for kind in self.kinds if name not in kind.types))
            for name, k in self.known.items()
        )

    def views(self) -> Sequence[View]:
        """Return how the files of each kind are read."""
        types = {name: known.column.datatype for name, known in self.known.items()}
        return [
            View(
                {name: t for name, t in types.items() if not t.equals(kind.types.get(name, pa.null()))},
                frozenset(types.keys() - kind.types.keys()),
            )
            for kind in self.kinds
        ]


def is_reshaped(one: Column, other: Column) -> bool:
    """Say whether two columns are of arrays that differ in shape though not in length."""
    return bool(one.shape and other.shape and one.shape != other.shape) and one.datatype.equals(
        other.datatype
    )


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
    check_no_table(path, table)
    if path.is_file():
        return open_file(path)
    if path.is_dir():
        check_none_wrapped(path)
    root, files = expand(path, is_parquet)
    if not files:
        raise FormatError(f"{path} holds no Parquet file; expected names ending in {', '.join(SUFFIXES)}")
    return open_files(root, files)


def check_no_table(path: Path | str, table: str | int | None) -> None:
    """Raise where one of several tables is asked for."""
    if table is not None:
        raise FormatError(f"got table={table!r} for {path}, but a Parquet file holds one table; leave it out")


def open_remote(root: str, files: Sequence[RemoteFile], table: str | int | None = None) -> Catalog:
    """Open files that lie elsewhere, below a root, as one catalogue."""
    check_no_table(root, table)
    return opened_together(Path(PurePosixPath(root).name), [file.key(root) for file in files], files)


def open_files(root: Path, files: Sequence[Path]) -> Catalog:
    """Open files as one catalogue, which has the columns of all."""
    check_no_log(root)
    return opened_together(root, [path.relative_to(root).as_posix() for path in files], files)


def opened_together(root: Path, keys: Sequence[str], files: Sequence[Path | RemoteFile]) -> Catalog:
    """Open files, which have those keys, as one catalogue."""
    union = Union()
    rows_and_kinds = [add_file(union, place) for place in files]
    columns, views = union.columns(), union.views()
    constants = hive_constants(keys)
    hive = hive_types(constants, {c.name for c in columns})
    for place, (_, kind), folder_values in zip(files, rows_and_kinds, constants, strict=True):
        check_folders(place, folder_values, views[kind])
    partitions = tuple(
        ParquetPartition(
            root / key,
            key,
            n_rows,
            constants={name: folder_values.get(name) for name in hive},
            types={**views[kind].types, **hive} if hive else views[kind].types,
            absent=views[kind].absent,
            remote=place if isinstance(place, RemoteFile) else None,
        )
        for place, key, (n_rows, kind), folder_values in zip(
            files, keys, rows_and_kinds, constants, strict=True
        )
    )
    columns += tuple(Column(name, datatype) for name, datatype in hive.items())
    return Catalog(FORMAT, root, columns, partitions, union.pairs)


def add_file(union: Union, place: Path | RemoteFile) -> tuple[int, int]:
    """Add a file to a union; return the number of its rows, and of its kind."""
    metadata, schema, pairs = describe(place)
    return metadata.num_rows, union.add(place, schema, pairs, empty=not metadata.num_rows)


def check_folders(place: Path | RemoteFile, folder_values: Mapping[str, HiveValue], view: View) -> None:
    """Raise FormatError where a file's folders name a column that it lacks and others have."""
    for name in view.absent.intersection(folder_values):
        raise FormatError(
            f"{place} is in a folder '{name}={folder_values[name]}' and has no column '{name}', but other "
            "files of the catalogue have this column; write the column into all files, or leave it out of all"
        )


def hive_types(constants: Sequence[Mapping[str, HiveValue]], stored: set[str]) -> dict[str, pa.DataType]:
    """Return the columns that folders' names give, except those that the files have themselves."""
    values: dict[str, list[HiveValue]] = {}
    for folder_values in constants:
        for name, value in folder_values.items():
            values.setdefault(name, []).append(value)
    return {
        name: pa.string() if any(isinstance(v, str) for v in column_values) else pa.int64()
        for name, column_values in values.items()
        if name not in stored
    }
