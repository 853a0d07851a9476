"""Parquet: a file, a folder of files, or a pattern; `name=value` folders are columns of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import pyarrow as pa

from catalogs.catalog.catalog import Catalog, Column
from catalogs.errors import FormatError
from catalogs.files.folders import HiveValue, expand, files_below, hive_constants
from catalogs.parquet._footer import ENCRYPTED, MAGIC
from catalogs.parquet.file import FORMAT, ParquetPartition, describe, open_file
from catalogs.parquet.folders import SUFFIXES, check_no_log, check_none_wrapped, is_parquet
from catalogs.parquet.union import Union, View
from catalogs.remote.remote_file import RemoteFile

__all__ = [
    "FORMAT",
    "SUFFIXES",
    "ParquetPartition",
    "open",
    "open_file",
    "open_files",
    "open_remote",
    "sniff",
]


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
