"""Parquet: a file, a folder of files, or a pattern; `name=value` folders are columns of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.types as pt

from catalogs.agreement import require_same_units
from catalogs.catalog import Catalog, Column
from catalogs.errors import FormatError
from catalogs.folders import HiveValue, expand, files_below, hive_constants
from catalogs.parquet_file import FORMAT, ParquetPartition, describe, open_file
from catalogs.parquet_footer import ENCRYPTED, MAGIC
from catalogs.parquet_metadata import columns_of
from catalogs.remote import RemoteFile

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

SUFFIXES = (".parquet", ".parq", ".pq")


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a file is Parquet, or a folder holds such files."""
    if path.is_dir():
        return any(is_parquet(p) for p in files_below(path))
    return head.startswith((MAGIC, ENCRYPTED))


def is_parquet(path: Path) -> bool:
    """Say whether a file is named as Parquet files are."""
    return path.suffix in SUFFIXES


def open(path: Path, table: str | int | None = None) -> Catalog:  # noqa: A001 -- every format's verb
    """Open a file, a folder or a pattern; Parquet files hold one table each, so `table` is left out."""
    check_no_table(path, table)
    if path.is_file():
        return open_file(path)
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
    """Open files of the same columns as one catalogue; what is known of columns is the first file's."""
    return opened_together(root, [path.relative_to(root).as_posix() for path in files], files)


def opened_together(root: Path, keys: Sequence[str], files: Sequence[Path | RemoteFile]) -> Catalog:
    """Open files, which have those keys, as one catalogue."""
    described = [describe(place) for place in files]
    schemas = [decoded(schema) for _, schema, _ in described]
    common = schemas[0]
    for place, schema in zip(files, schemas, strict=True):
        common = unified(files[0], common, place, schema)
    constants = hive_constants(keys)
    hive = hive_types(constants, set(common.names))
    partitions = tuple(
        ParquetPartition(
            root / key,
            key,
            metadata.num_rows,
            constants={name: given.get(name) for name in hive},
            types=widened(schema, common) | hive,
            remote=place if isinstance(place, RemoteFile) else None,
        )
        for place, key, (metadata, _, _), schema, given in zip(
            files, keys, described, schemas, constants, strict=True
        )
    )
    _, schema, pairs = described[0]
    for place, (_, other, given) in zip(files[1:], described[1:], strict=True):
        if given == pairs and other.equals(schema, check_metadata=True):
            continue
        require_same_units(files[0], columns_of(schema, pairs), place, columns_of(other, given))
    stored = (replace(c, datatype=common.field(c.name).type) for c in columns_of(schema, pairs))
    return Catalog(FORMAT, root, (*stored, *(Column(n, t) for n, t in hive.items())), partitions, pairs)


def decoded(schema: pa.Schema) -> pa.Schema:
    """Return the schema as batches have it: without dictionaries and metadata."""
    fields = []
    for field in schema:
        datatype = field.type
        while pt.is_dictionary(datatype):
            datatype = datatype.value_type
        fields.append(pa.field(field.name, datatype))
    return pa.schema(fields)


def unified(
    first: Path | RemoteFile, common: pa.Schema, path: Path | RemoteFile, schema: pa.Schema
) -> pa.Schema:
    """Return the types that hold both files' values; FormatError where columns are missing or too unlike."""
    if schema.equals(common):
        return common
    odd = sorted(set(schema.names) ^ set(common.names))
    remedy = "open them one by one, or narrow the pattern"
    if odd:
        raise FormatError(
            f"{first} and {path} are not of the same columns: only one of them has {odd}; {remedy}"
        )
    try:
        return pa.unify_schemas([common, schema], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise FormatError(f"{first} and {path} have columns of different types: {error}; {remedy}") from None


def widened(schema: pa.Schema, common: pa.Schema) -> dict[str, pa.DataType]:
    """Return the columns that are of another type in the whole catalogue than in a file."""
    return {f.name: f.type for f in common if f.type != schema.field(f.name).type}


def hive_types(constants: Sequence[Mapping[str, HiveValue]], stored: set[str]) -> dict[str, pa.DataType]:
    """Return the columns that folders' names give, except those that the files have themselves."""
    values: dict[str, list[HiveValue]] = {}
    for given in constants:
        for name, value in given.items():
            values.setdefault(name, []).append(value)
    return {
        name: pa.string() if any(isinstance(v, str) for v in given) else pa.int64()
        for name, given in values.items()
        if name not in stored
    }
