"""HATS: a sky-partitioned catalogue, a margin, or a collection of them, as Parquet files in pixels of the sky.

A partition is a Parquet file and is read and annotated as one; `finish` writes what belongs to the catalogue as
a whole.  Rows of margins repeat others: they are annotated, never counted.
https://www.ivoa.net/documents/Notes/HATS/
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from catalogs.catalog.catalog import Catalog
from catalogs.errors import DamagedFileError, FormatError
from catalogs.hats._finish import HatsWhole
from catalogs.hats._properties import COLLECTION, PROPERTIES, read_properties, words
from catalogs.hats._table import DATASET, THUMBNAIL, Table, has_properties, table_at
from catalogs.parquet.file import ParquetPartition, describe
from catalogs.parquet.union import Union, View

__all__ = ["FORMAT", "files_with_rows", "key_of", "open", "open_without", "sniff"]

FORMAT = "hats"
OLD_INFO = "catalog_info.json"
METADATA = ("_common_metadata", "_metadata")


def sniff(path: Path, head: bytes) -> bool:  # noqa: ARG001 -- every format's verb
    """Say whether a folder is a table or a collection of HATS, or a file the properties of one."""
    if path.is_file():
        return path.name in {*PROPERTIES, COLLECTION} and sniff(path.parent, b"")
    return path.is_dir() and (has_properties(path) or (path / COLLECTION).is_file() or is_hipscat(path))


def is_hipscat(path: Path) -> bool:
    """Say whether a folder is of the format before HATS."""
    return (path / OLD_INFO).is_file()


def open(path: Path, table: str | int | None = None) -> Catalog:  # noqa: A001 -- every format's verb
    """Open a table or a collection; of a collection, the primary table and its margins are read."""
    if table is not None:
        raise FormatError(
            f"got table={table!r} for {path}; leave it out, since a HATS collection is read from its primary "
            "table, or open the folder of the other table"
        )
    return open_without(path.parent if path.is_file() else path, ())


def open_without(root: Path, left_out: Collection[str]) -> Catalog:
    """Open a table or a collection without the files of these keys, damaged ones; then rows are not compared."""
    if is_hipscat(root) and not has_properties(root):
        raise FormatError(f"{root} is HiPSCat, the format before HATS; convert it with hats-import first")
    tables = tables_of(root)
    union = Union()
    pieces = [piece for t in tables for piece in described(t, union, left_out)]
    if not pieces:
        path, schema, pairs = described_without_rows(tables[0])
        union.add(path, schema, pairs)
    columns, views = union.columns(), union.views()
    partitions = tuple(piece.partition(views[piece.kind]) for piece in pieces)
    if not left_out:
        check_rows(tables, partitions)
    metadata = {key: value for _, key, value in tables[0].properties.lines if key} | dict(union.pairs)
    whole = HatsWhole(tables[0].key.partition("/")[0], root, tables, frozenset(p.key for p in partitions))
    return Catalog(FORMAT, root, columns, partitions, metadata, whole)


def tables_of(root: Path) -> tuple[Table, ...]:
    """Return the tables that have rows: the only one, or a collection's primary table, then its margins."""
    name = root.resolve().name
    if has_properties(root):
        return (table_at(root, name),)
    properties = read_properties(root / COLLECTION)
    inner = [*words(properties.get("hats_primary_table_url"))[:1], *words(properties.get("all_margins"))]
    if not inner:
        raise FormatError(f"{root / COLLECTION} names no hats_primary_table_url; expected a table in {root}")
    for table in inner:
        if not (root / table).is_dir() or not (root / table).resolve().is_relative_to(root.resolve()):
            raise FormatError(
                f"{root / COLLECTION} names the table '{table}', expected a folder of that name in {root}; fetch it "
                "too, or open the folder of the primary table alone"
            )
    return tuple(table_at(root / table, f"{name}/{table}") for table in inner)


@dataclass(frozen=True)
class Piece:
    """A file as its footer describes it; `kind` is its number in the union of all."""

    path: Path
    key: str
    n_rows: int
    counted: bool
    kind: int

    def partition(self, view: View) -> ParquetPartition:
        """Return the file as a partition of a catalogue that takes such files so."""
        return ParquetPartition(
            self.path, self.key, self.n_rows, self.counted, types=view.types, absent=view.absent
        )


def files_with_rows(root: Path) -> Iterator[Path]:
    """Yield the files of a table or a collection that are its partitions, without opening them."""
    yield from (path for table in tables_of(root) for path in paths_of(table))


def paths_of(table: Table) -> Iterator[Path]:
    """Yield the files of a table, and the quick look where it has one."""
    yield from table.files
    if (table.dataset / THUMBNAIL).is_file():
        yield table.dataset / THUMBNAIL


def key_of(root: Path, file: Path) -> str:
    """Return the key of a file of the table or collection in a folder: its place below the folder that this is in."""
    return f"{root.resolve().name}/{file.relative_to(root).as_posix()}"


def described(table: Table, union: Union, left_out: Collection[str] = ()) -> Iterator[Piece]:
    """Yield what is known of a table's files; the rows of a margin, and of the quick look, are not counted."""
    for path in paths_of(table):
        key = f"{table.key}/{path.relative_to(table.root).as_posix()}"
        if key not in left_out:
            metadata, schema, pairs = describe(path)
            counted = not (table.is_margin or path.name == THUMBNAIL)
            kind = union.add(path, schema, pairs, empty=not metadata.num_rows)
            yield Piece(path, key, metadata.num_rows, counted, kind)


def described_without_rows(table: Table) -> tuple[Path, pa.Schema, dict[str, str]]:
    """Return a file without rows that describes a table without any, its schema and key-value pairs."""
    for path in (table.dataset / name for name in METADATA):
        if path.is_file():
            _, schema, pairs = describe(path)
            return path, schema, pairs
    raise FormatError(f"{table.root} holds no Parquet file; expected some in {table.dataset}")


def check_rows(tables: Sequence[Table], partitions: Sequence[ParquetPartition]) -> None:
    """Raise where a table has more or fewer rows than its properties say: then files are missing, or doubled."""
    for table in tables:
        said = table.properties.get("hats_nrows")
        data = f"{table.key}/{DATASET}/"
        rows = sum(p.n_rows for p in partitions if p.key.startswith(data) and p.key != f"{data}{THUMBNAIL}")
        if said.isdigit() and int(said) != rows:
            raise DamagedFileError(
                f"{table.root} is not complete: hats_nrows says {int(said):,} rows, its files have {rows:,}; fetch "
                "the catalogue again, or correct hats_nrows"
            )
