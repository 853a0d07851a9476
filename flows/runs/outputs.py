"""The record of an annotated file, and the names of objects in an output folder."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from heapq import nsmallest
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError, nearest
from catalogs.files.atomic import atomic_path, atomic_write_bytes, check_links, own_folder, sweep
from catalogs.files.reading import open_bytes
from flows.documents import from_json, to_document
from flows.errors import UsageError
from flows.runs.counts import Difference, FileCounts


@dataclass(frozen=True)
class FileState:
    """A file's content hash, and properties that say quickly whether the file may have changed.

    `sha256` is '' until the file is read.  `size` is in bytes, `mtime_ns` in nanoseconds since 1970.  `tag` is the
    server's name for the state of a fetched file (ETag), '' where it has none.
    """

    sha256: str
    size: int
    mtime_ns: int
    inode: int
    tag: str = ""

    def hashed(self, path: Path) -> FileState:
        """Return the state with its hash; the file is read if the hash is not known yet."""
        return self if self.sha256 else replace(self, sha256=file_sha256(path))

    def looks_like(self, path: Path) -> bool:
        """Say whether the file still has the size, time and inode that it had when it was hashed."""
        try:
            seen = path.stat()
        except FileNotFoundError:
            return False
        return (self.size, self.mtime_ns, self.inode) == (seen.st_size, seen.st_mtime_ns, seen.st_ino)


@dataclass(frozen=True)
class Output:
    """An annotated file: its name in the folder, its hash, and the state of its input.

    `input_path` is relative to the output folder, so that both can move together, or a URL without secrets.  Only a
    staged record has `difference`, which is from the last release, None where nothing was compared, and `census_rows`,
    encoded rows for the census.
    """

    name: str
    sha256: str
    size: int
    n_rows: int
    input_path: str
    input: FileState
    mtime_ns: int
    inode: int
    summary: FileCounts
    difference: Difference | None = None
    census_rows: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError where the name leads out of the folder: somebody may have edited the manifest."""
        path = PurePosixPath(self.name)
        if not path.parts or path.is_absolute() or ".." in path.parts or path.parts[0].startswith("."):
            raise ValueError(
                f"got '{self.name}' as an output's name, expected a path inside the output folder"
            )

    @property
    def state(self) -> FileState:
        """The state of the annotated file itself."""
        return FileState(self.sha256, self.size, self.mtime_ns, self.inode)

    def is_in(self, path: Path, *, verify: bool = False) -> bool:
        """Say whether the file at the path is this one: by size, time and inode, or else by its hash.

        `verify` asks for the hash in any case.  The size alone is not enough: FITS files of two models have the same.
        """
        if path.is_symlink() or not path.is_file() or path.stat().st_size != self.size:
            return False
        return (not verify and self.state.looks_like(path)) or file_sha256(path) == self.sha256


@dataclass(frozen=True)
class Problem:
    """A file that could not be annotated because of its content; it is tried again once it has changed.

    `input` is None for a file that is always tried again, for example as even its state could not be read.  The state
    has no hash where the file was not read to its end.  `since` is the time of the run that quarantined the file first
    (ISO 8601, UTC); it stays until the file is mended.  A file that changed while it was read `waits` for the next run.
    """

    name: str
    input_path: str
    reason: str
    input: FileState | None
    since: str = field(default="", compare=False)
    waits: bool = False


def without_margins(outputs: Sequence[Output]) -> Sequence[Output]:
    """Return the outputs without the margins of HATS, which repeat rows of other files."""
    return [o for o in outputs if o.summary.counted] or outputs


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as `sha256sum` prints it."""
    with open_bytes(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# The files of an output folder as a Parquet table with a row for each file: `_files/HASH.parquet`.
#
# The name of a table has the hash of its bytes, and the manifest names the table.  So a new table never replaces the
# one that the manifest in the folder names.  Manifest and table fit together even if a run is killed at any moment.

FOLDER = "_files"
MOST_DOUBTFUL = 1000
"""Most doubtful objects that the table holds, of all files together."""
SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "sha256": pa.string(),
        "size": pa.int64(),
        "n_rows": pa.int64(),
        "mtime_ns": pa.int64(),
        "inode": pa.uint64(),
        "input_path": pa.string(),
        "input_sha256": pa.string(),
        "input_size": pa.int64(),
        "input_mtime_ns": pa.int64(),
        "input_inode": pa.uint64(),
        "input_tag": pa.string(),
        "summary": pa.string(),  # FileCounts in JSON
    }
)
"""Columns of the table, which `docs/json.md` describes."""


@dataclass(frozen=True, kw_only=True)
class FileTable:
    """The table of the files: its path in the folder, the SHA-256 of its bytes, and its number of rows."""

    path: str
    sha256: str
    rows: int

    def __post_init__(self) -> None:
        """Raise ValueError where the path leads out of the folder: somebody may have edited the manifest."""
        if not re.fullmatch(rf"{FOLDER}/[0-9a-f]{{16}}\.parquet", self.path):
            raise ValueError(f"got '{self.path}' as the table of the files, expected {FOLDER}/HASH.parquet")


def write_table(folder: Path, outputs: Sequence[Output]) -> FileTable:
    """Write the table of outputs into a folder, and return its entry in the manifest.

    It holds the thousand most doubtful objects of all files.
    """
    objects = (one for o in outputs for one in o.summary.doubtful)
    first = nsmallest(MOST_DOUBTFUL, ((-one.mutual_information, one.id) for one in objects))
    rows = []
    for o in outputs:
        doubtful = tuple(d for d in o.summary.doubtful if (-d.mutual_information, d.id) <= first[-1])
        counts = to_document(replace(o.summary, left_behind=(), doubtful=doubtful))
        state = {f"input_{name}": value for name, value in vars(o.input).items()}
        rows.append(vars(o) | state | {"summary": json.dumps(counts, allow_nan=False)})
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), buffer, compression="zstd", use_dictionary=False)
    content = buffer.getvalue()
    sha256 = hashlib.sha256(content).hexdigest()
    table = FileTable(path=f"{FOLDER}/{sha256[:16]}.parquet", sha256=sha256, rows=len(outputs))
    path = folder / table.path
    own_folder(path.parent, folder)
    sweep(path.parent)  # removes a half-written table of a killed run
    if not path.is_file():
        atomic_write_bytes(path, content)
    return table


def read_table(folder: Path, table: FileTable | None) -> tuple[Output, ...]:
    """Return the outputs in the table of a folder; CatalogError where it is missing or was changed."""
    if table is None:
        raise ValueError("got no table of files")
    path = folder / table.path
    check_links(path, folder)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CatalogError(
            f"{path}: the table of files that manifest.json names cannot be read ({error.strerror}); restore "
            "it from a backup, or choose another output folder"
        ) from error
    if hashlib.sha256(content).hexdigest() != table.sha256:
        raise CatalogError(
            f"{path}: this table of files is not the one that manifest.json names; restore it from a backup, "
            "or choose another output folder"
        )
    outputs = []
    for row in pq.ParquetFile(pa.BufferReader(content)).read().to_pylist():
        state = FileState(*(row.pop(f"input_{field.name}") for field in fields(FileState)))
        summary = from_json(FileCounts, row.pop("summary"), source=table.path)
        outputs.append(Output(**row, input=state, summary=summary))
    return tuple(outputs)


def sweep_tables(folder: Path, table: FileTable | None) -> None:
    """Remove all tables of a folder except the one that its manifest names."""
    for path in (folder / FOLDER).glob("*.parquet"):
        if table is None or path.name != Path(table.path).name:
            path.unlink(missing_ok=True)


# Which column of a catalogue names its objects.

ID_NAMES = ("id", "name", "objid", "object_id", "source_id", "objectid")
"""Names that columns of identifiers have in many catalogues, in lower case."""


def identifier_column(catalog: Catalog, *, asked: str | None, stated: str | None, option: str) -> str:
    """Return the column that names objects: the one `asked` for, else the one `stated`, else the first that fits.

    A column fits by its UCD or its name.  UsageError if no column fits, or if the catalogue lacks the one asked for;
    `option` is the option that names the column.
    """
    by_ucd = [c.name for c in catalog.columns if (c.ucd or "").lower().startswith("meta.id")]
    by_name = [c.name for c in catalog.columns if c.name.lower() in ID_NAMES]
    known = [stated] if stated in catalog.names else []
    column = asked or next(iter((*known, *by_ucd, *by_name)), None)
    if column is None or column not in catalog.names:
        raise UsageError(
            f"{catalog.path}: got {'no column that names an object' if column is None else repr(column)}, "
            f"expected the column with the names of the objects; name it with {option}; "
            f"{nearest(column or 'id', catalog.names)}"
        )
    return column


# The names of objects that have a label already, so that nobody is asked about them again.
#
# `classify` keeps the names of its model's labelled objects beside the copies, in `_labelled/names.parquet`.

PLACE = ("_labelled", "names.parquet")
"""Path of the names in an output folder."""


def is_labelled(names: NDArray[np.object_], labelled: pa.Array) -> NDArray[np.bool_]:
    """Return a mask (n,) of the names that belong to labelled objects."""
    found = pc.is_in(pa.array(names.tolist(), pa.string()), value_set=labelled)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)


def distinct_names(names: Iterable[str]) -> pa.Array:
    """Return names, sorted, without repeats and empty ones."""
    return pa.array(sorted({name for name in names if name}), pa.string())


def write_labelled_names(names: Iterable[str], out: Path) -> None:
    """Write the names into an output folder, whole or not at all."""
    path = out.joinpath(*PLACE)
    own_folder(path.parent, out)
    sweep(path.parent)  # removes a half-written file of a killed run
    with atomic_path(path) as temporary:
        pq.write_table(pa.table({"name": distinct_names(names)}), temporary)


def read_labelled_names(out: Path) -> pa.Array | None:
    """Return the names in an output folder; None where they are lost."""
    path = out.joinpath(*PLACE)
    check_links(path, out)
    if not path.exists():
        return None
    return pq.ParquetFile(path).read()["name"].combine_chunks().cast(pa.string())
