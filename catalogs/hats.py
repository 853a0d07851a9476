"""HATS catalogues: Parquet by partitions of the sky, read, annotated and created."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from catalogs.catalog.catalog import Annotation, Catalog, in_order, provenance_entries
from catalogs.catalog.new_columns import OWN
from catalogs.errors import DamagedFileError, FormatError
from catalogs.files import atomic_folder, atomic_path, atomic_write_text, files_below, open_bytes
from catalogs.parquet.dataset import ParquetPartition, Union, open_file
from catalogs.parquet.writer import append_columns

# HATS `properties` files: Java properties, of which a copy changes some lines and keeps all others as they are.  Keys
# are those of the standard (https://www.ivoa.net/documents/Notes/HATS/, section 4).

PROPERTIES = ("hats.properties", "properties")
"""Names of a table's file, the one that counts first; both say the same."""

COLLECTION = "collection.properties"
LONGEST = 1 << 20
"""Bytes: a properties file has some dozens of lines."""

LINE = re.compile(r"([^\S\n]*[#!][^\n]*|(?:[^\\\n]|\\[\s\S])*)(?:\n|\Z)")
ENTRY = re.compile(r"\s*((?:\\.|[^\s=:\\])+)\s*[=:\s]\s*(.*)", re.DOTALL)
COMMENT = ("#", "!")


Line = tuple[str, str, str]
"""A line of a file without its end, its key, and its value; comments and empty lines have no key."""


def parsed(text: str) -> list[Line]:
    """Return the lines of a properties file; one that ends in an odd number of backslashes goes on in the next."""
    whole = "".join(f"{line}\n" for line in text.splitlines())
    return [entry(line) for line in LINE.findall(whole)[:-1]]  # the last is what stands behind the last end


def value_of(lines: Sequence[Line], key: str, default: str = "") -> str:
    """Return the value of a key in the lines; if the key is repeated, the last value."""
    return next((value for _, k, value in reversed(lines) if k == key), default)


def updated(lines: Sequence[Line], changes: Mapping[str, str | None]) -> str:
    """Return the text of a properties file with changes: a new key goes to the end, one that becomes None goes away."""
    left, changed = dict(changes), []
    for line, key, _ in lines:
        if key not in changes:
            changed.append(line)
        elif (value := left.pop(key, None)) is not None:
            changed.append(written(key, value))
    changed += [written(key, value) for key, value in left.items() if value is not None]
    return "".join(f"{line}\n" for line in changed)


def written(key: str, value: str) -> str:
    """Return the line that gives a key a value; backslashes stay single, since the writers of HATS leave them so."""
    return f"{key}={' '.join(value.splitlines())}"


def entry(line: str) -> Line:
    """Return a line as written with the key and the value that it gives."""
    joined = re.sub(r"\\\n\s*", "", line)
    match = ENTRY.fullmatch(joined + " ") if not joined.lstrip().startswith(COMMENT) else None
    return (line, plain(match[1]), plain(match[2].rstrip())) if match else (line, "", "")


def plain(text: str) -> str:
    """Return a text without the escapes of Java properties."""
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t", "r": "\r"}.get(m[1], m[1]), text)


def words(value: str) -> list[str]:
    """Return the elements of a value that is a list: blanks, commas or semicolons stand between them."""
    return [word for word in re.split(r"[\s,;]+", value) if word]


def read_properties(path: Path) -> list[Line]:
    """Return the lines of a file; FormatError where it cannot be a properties file."""
    with open_bytes(path) as stream:
        data = stream.read(LONGEST + 1)
    if len(data) > LONGEST or b"\0" in data:
        raise FormatError(
            f"{path} is not a properties file of HATS, expected lines such as 'key=value'; fetch the catalogue again"
        )
    try:
        return parsed(data.decode())
    except UnicodeDecodeError:
        return parsed(data.decode("latin-1"))


# What belongs to a HATS catalogue as a whole, beyond its partitions: written when these have been annotated.
# `properties` with the new columns and their provenance, `_common_metadata` and `_metadata` with the new schema;
# maps, lists of pixels, indexes and whatever else there is are copied.  Doing it again gives the same.

COMMON, MERGED = "_common_metadata", "_metadata"
STATISTICS = "per_partition_statistics.parquet"
ESTIMATED_SIZE = "hats_estsize"
DEFAULT_COLUMNS = "hats_cols_default"
OURS = ".blr-"
READERS = 8
"""Threads that read footers: on a shared disk each waits most of its time."""


def finish(root: Path, keys: Collection[str], folder: Path, annotation: Annotation) -> Sequence[str]:
    """Write all but the partitions of a catalogue, which lie annotated in `folder` at their keys.

    Return what is left out.
    """
    name, tables = root.resolve().name, tables_of(root)
    target = folder / name
    changed = {t.root / file for t in tables for file in (*PROPERTIES, STATISTICS)}
    changed |= {t.dataset / file for t in tables for file in (COMMON, MERGED)} | {root / COLLECTION}
    changed |= {root / key.removeprefix(f"{name}/") for key in keys}
    for source in sorted(root.rglob("*")):
        place = source.relative_to(root)
        ours = any(part.startswith(OURS) for part in place.parts)
        if source.is_file() and source not in changed and not ours:
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(target / place) as temporary:
                shutil.copyfile(source, temporary)
    left_out: list[str] = []
    for table in tables:
        own = folder / table.key
        dataset = own / table.dataset.name
        dataset.mkdir(parents=True, exist_ok=True)
        annotated = [own / path.relative_to(table.root) for path in table.files]
        write_schema(table.dataset, dataset / COMMON, annotated, annotation)
        if (table.dataset / MERGED).is_file():
            try:
                merged = merged_footers(dataset / COMMON, annotated)
            except RuntimeError:
                left_out.append(
                    f"{table.dataset / MERGED} is left out: one footer cannot describe files with different columns"
                )
            else:
                with atomic_path(dataset / MERGED) as temporary:
                    merged.write_metadata_file(str(temporary))
        if (table.root / STATISTICS).is_file():
            write_statistics(table.root / STATISTICS, own / STATISTICS, annotation)
        write_properties(table.root, own, PROPERTIES, annotation)
    if (root / COLLECTION).is_file():
        write_properties(root, target, (COLLECTION,), annotation)
    return left_out


def write_schema(source: Path, out: Path, files: Sequence[Path], annotation: Annotation) -> None:
    """Write the schema of annotated files: the old folder's with the new columns, or else that of the first file."""
    described = [source / name for name in (COMMON, MERGED)[: 1 if files else 2]]
    metadata_file = next((path for path in described if path.is_file()), None)
    if metadata_file is None:
        with atomic_path(out) as temporary:
            pq.write_metadata(pq.read_schema(files[0]), temporary)
        return
    append_columns(metadata_file, out, annotation, (), old=open_file(metadata_file).columns)


def write_statistics(source: Path, out: Path, annotation: Annotation) -> None:
    """Write the statistics of the columns that stay: `<column>::<what>`, nested ones `<column>.<field>::<what>`."""
    table = pq.read_table(source)
    columns = {name: name.partition("::")[0].partition(".")[0] for name in table.column_names}
    kept = [name for name, column in columns.items() if "::" not in name or annotation.stays(column)]
    with atomic_path(out) as temporary:
        if kept == table.column_names:
            shutil.copyfile(source, temporary)
        else:
            pq.write_table(table.select(kept), temporary)


def write_properties(source: Path, target: Path, names: Collection[str], annotation: Annotation) -> None:
    """Write properties with the new size, the new columns among the default ones, and the provenance."""
    size = sum(p.stat().st_size for p in target.rglob("*") if p.is_file() and p.name not in names)
    for name in names:
        if not (source / name).is_file():
            continue
        properties = read_properties(source / name)
        before = {key: value for _, key, value in properties if key.startswith(OWN)}
        changed: dict[str, str | None] = dict.fromkeys(before)
        changed |= provenance_entries(before, annotation.provenance, annotation.replaced)
        if value_of(properties, ESTIMATED_SIZE):
            changed[ESTIMATED_SIZE] = str(size // 1024)
        if default := words(value_of(properties, DEFAULT_COLUMNS)):
            staying = [column for column in default if annotation.stays(column)]
            changed[DEFAULT_COLUMNS] = " ".join([*staying, *(c.name for c in annotation.columns)])
        atomic_write_text(target / name, updated(properties, changed))


def merged_footers(common: Path, files: Sequence[Path]) -> pq.FileMetaData:
    """Return the footers of all files as one, each row group with its file's place beside `common`.

    RuntimeError where the files have not the same columns.
    """

    def footer(path: Path) -> pq.FileMetaData:
        read = pq.read_metadata(path)
        read.set_file_path(path.relative_to(common.parent).as_posix())
        return read

    merged = pq.read_metadata(common)
    with closing(in_order(files, footer, READERS)) as footers:
        for n_merged, footer_of_file in enumerate(footers):
            try:
                merged.append_row_groups(footer_of_file)
            except RuntimeError:
                if n_merged:
                    raise
                # Some writers' schema without rows is not to the letter that of their files.
                merged = footer_of_file
    return merged


# One table of HATS: a folder of properties, and Parquet files each of one pixel of the sky.
# `dataset/Norder=<k>/Dir=<n>/Npix=<m><suffix>`, or folders of files where the suffix is a slash.

DATASET = "dataset"
THUMBNAIL = "data_thumbnail.parquet"
"""Some rows of each partition, for a quick look."""

PARTITION_INFO = "partition_info.csv"
FOLDERS = "/"
MARGIN = "margin"
NEEDED = ("hats_col_ra", "hats_col_dec", "hats_col_healpix")
"""Properties that name columns, without which it is no table of HATS."""
WITH_ROWS = ("object", "source", "nested", "map", MARGIN)

NORDER = re.compile(r"Norder=(\d+)")
DIR = re.compile(r"Dir=(\d+)")

Pixel = tuple[int, int]
"""Norder and Npix."""


@dataclass(frozen=True)
class Table:
    """A table: where it is, its place below the folder that the catalogue is in, and its properties."""

    root: Path
    key: str
    properties: Sequence[Line]

    @property
    def dataset(self) -> Path:
        """The folder of the Parquet files."""
        return self.root / DATASET

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files of all pixels, in the order of Norder and Npix; each pixel is listed and each listed is there."""
        by_pixel = sorted(self._files(), key=lambda item: (item[0], item[1].as_posix()))
        if (self.root / PARTITION_INFO).is_file():
            self._check({pixel for pixel, _ in by_pixel})
        return tuple(path for _, path in by_pixel)

    def _files(self) -> Iterator[tuple[Pixel, Path]]:
        suffix = value_of(self.properties, "hats_npix_suffix", ".parquet")
        npix = re.compile(r"Npix=(\d+)" + ("" if suffix == FOLDERS else re.escape(suffix)))
        for path in sorted(self.dataset.glob("Norder=*/Dir=*/Npix=*")):
            norder, directory, name = path.relative_to(self.dataset).parts
            order, match = NORDER.fullmatch(norder), npix.fullmatch(name)
            if order and match and DIR.fullmatch(directory) and path.is_dir() == (suffix == FOLDERS):
                pixel = int(order[1]), int(match[1])
                yield from ((pixel, p) for p in (files_below(path) if path.is_dir() else (path,)))

    def _check(self, stored: set[Pixel]) -> None:
        """Raise DamagedFileError where other pixels are stored than `partition_info.csv` lists."""
        path = self.root / PARTITION_INFO
        try:
            with path.open(encoding="utf-8", newline="") as stream:
                listed = {(int(row["Norder"]), int(row["Npix"])) for row in csv.DictReader(stream)}
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise DamagedFileError(
                f"{path} does not list pixels ({error!r}); expected columns Norder and Npix of whole numbers: "
                "fetch it again"
            ) from None
        if stored == listed:
            return
        here, there = sorted(stored - listed), sorted(listed - stored)
        odd = f"Norder={(there or here)[0][0]} Npix={(there or here)[0][1]}"
        what = f"{len(there)} of them without a file" if there else f"but not {len(here)} of the files"
        raise DamagedFileError(
            f"{self.root} is not complete: {PARTITION_INFO} lists {len(listed)} pixels, {what}, the first "
            f"{odd}; fetch the catalogue again, or correct the list"
        )


def has_properties(folder: Path) -> bool:
    """Say whether a folder has the properties of a table."""
    return any((folder / name).is_file() for name in PROPERTIES)


def table_at(root: Path, key: str) -> Table:
    """Return the table in a folder; FormatError where it is of a kind without rows of its own."""
    path = next((root / name for name in PROPERTIES if (root / name).is_file()), None)
    if path is None:
        raise FormatError(f"{root} has neither of {' and '.join(PROPERTIES)}; expected a table of HATS")
    properties = read_properties(path)
    kind = value_of(properties, "dataproduct_type")
    if kind not in WITH_ROWS:
        raise FormatError(
            f"{path}: dataproduct_type is '{kind}', expected one of {', '.join(WITH_ROWS)}; open the "
            "catalogue that this index belongs to"
        )
    return Table(root, key, properties)


# HATS: a sky-partitioned catalogue, a margin, or a collection of them, as Parquet files in pixels of the sky.  A
# partition is a Parquet file and is read and annotated as one; `finish` writes what belongs to the catalogue as a
# whole.  Rows of margins repeat others: they are annotated, never counted. https://www.ivoa.net/documents/Notes/HATS/

FORMAT = "hats"


def sniff(path: Path, head: bytes) -> bool:  # noqa: ARG001 -- every format's verb
    """Say whether a folder is a table or a collection of HATS, or a file the properties of one."""
    if path.is_file():
        return path.name in {*PROPERTIES, COLLECTION} and sniff(path.parent, b"")
    return path.is_dir() and (has_properties(path) or (path / COLLECTION).is_file())


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
    tables = tables_of(root)
    union = Union()
    parts = [part for t in tables for part in described(t, union, left_out)]
    if not parts:  # a table without rows is described by a file without any
        described_by = (tables[0].dataset / name for name in (COMMON, MERGED))
        path = next((path for path in described_by if path.is_file()), None)
        if path is None:
            raise FormatError(f"{tables[0].root} holds no Parquet file; expected some in {tables[0].dataset}")
        union.add(path)
    columns, views = union.columns(), union.views()
    partitions = tuple(replace(p, types=views[kind][0], absent=views[kind][1]) for p, kind in parts)
    if not left_out:
        check_rows(tables, partitions)
    metadata = {key: value for _, key, value in tables[0].properties if key} | dict(union.pairs)
    return Catalog(FORMAT, root, columns, partitions, metadata, frozenset(p.key for p in partitions))


def tables_of(root: Path) -> tuple[Table, ...]:
    """Return the tables that have rows: the only one, or a collection's primary table, then its margins."""
    name = root.resolve().name
    if has_properties(root):
        return (table_at(root, name),)
    properties = read_properties(root / COLLECTION)
    primary, margins = (words(value_of(properties, k)) for k in ("hats_primary_table_url", "all_margins"))
    inner = [*primary[:1], *margins]
    if not inner:
        raise FormatError(f"{root / COLLECTION} names no hats_primary_table_url; expected a table in {root}")
    for table in inner:
        if not (root / table).is_dir() or not (root / table).resolve().is_relative_to(root.resolve()):
            raise FormatError(
                f"{root / COLLECTION} names the table '{table}', expected a folder of that name in {root}; fetch it "
                "too, or open the folder of the primary table alone"
            )
    return tuple(table_at(root / table, f"{name}/{table}") for table in inner)


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


def described(
    table: Table, union: Union, left_out: Collection[str] = ()
) -> Iterator[tuple[ParquetPartition, int]]:
    """Yield a table's files with the numbers of their kinds; rows of a margin, and of the quick look, do not count."""
    for path in paths_of(table):
        key = f"{table.key}/{path.relative_to(table.root).as_posix()}"
        if key not in left_out:
            counted = not (value_of(table.properties, "dataproduct_type") == MARGIN or path.name == THUMBNAIL)
            n_rows, kind = union.add(path)
            yield ParquetPartition(path, key, n_rows, counted=counted), kind


def check_rows(tables: Sequence[Table], partitions: Sequence[ParquetPartition]) -> None:
    """Raise where a table has more or fewer rows than its properties say: then files are missing, or doubled."""
    for table in tables:
        said = value_of(table.properties, "hats_nrows")
        data = f"{table.key}/{DATASET}/"
        rows = sum(p.n_rows for p in partitions if p.key.startswith(data) and p.key != f"{data}{THUMBNAIL}")
        if said.isdigit() and int(said) != rows:
            raise DamagedFileError(
                f"{table.root} is not complete: hats_nrows says {int(said):,} rows, its files have {rows:,}; fetch "
                "the catalogue again, or correct hats_nrows"
            )


# The layout is that of https://www.ivoa.net/documents/Notes/HATS/.  Shapes: n rows.

INDEX = "_healpix_29"
"""The column of pixels of the finest order, by which rows are sorted."""
PARTITION_ORDER = 0


def write_hats(
    folder: Path, table: pa.Table, pixels: NDArray[np.int64], *, order: int, extra: Mapping[str, str]
) -> None:
    """Write the rows of nested `pixels` (n,) of an `order` into a new folder, whole or not at all.

    `table` has their positions as `ra` and `dec`, in degrees.  `extra` are further properties.
    """
    finest = pixels.astype(np.int64) << (2 * (29 - order))
    sort = np.argsort(finest, kind="stable")
    rows = table.add_column(0, pa.field(INDEX, pa.int64()), pa.array(finest)).take(pa.array(sort))
    coarse = (pixels >> (2 * (order - PARTITION_ORDER)))[sort]
    with atomic_folder(folder) as temporary:
        root = temporary / folder.name
        dataset = root / DATASET
        parts = dataset / f"Norder={PARTITION_ORDER}" / "Dir=0"
        parts.mkdir(parents=True)
        there = np.unique(coarse).tolist()
        for pixel in there:
            start, stop = np.searchsorted(coarse, [pixel, pixel + 1])
            pq.write_table(rows.slice(start, stop - start), parts / f"Npix={pixel}.parquet")
        pq.write_metadata(rows.schema, dataset / COMMON)
        files = [parts / f"Npix={pixel}.parquet" for pixel in there]
        merged_footers(dataset / COMMON, files).write_metadata_file(str(dataset / MERGED))
        lines = ["Norder,Npix", *(f"{PARTITION_ORDER},{pixel}" for pixel in there)]
        (root / PARTITION_INFO).write_text("\n".join(lines) + "\n")
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        entries = {
            "obs_collection": folder.name,
            "dataproduct_type": "object",
            "hats_nrows": len(rows),
            "hats_col_ra": "ra",
            "hats_col_dec": "dec",
            "hats_col_healpix": INDEX,
            "hats_col_healpix_order": 29,
            "hats_npix_suffix": ".parquet",
            "hats_builder": "blr",
            "hats_creation_date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MUTC"),
            "hats_estsize": size // 1024,
            "hats_version": "v1.0",
            "hats_order": PARTITION_ORDER,
            **extra,
        }
        lines = ["#HATS catalog", *(f"{key}={' '.join(str(v).split())}" for key, v in entries.items()), ""]
        for name in PROPERTIES:
            (root / name).write_text("\n".join(lines), encoding="utf-8")
