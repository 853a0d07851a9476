"""The manifest of an output folder, `manifest.json`: its files, their inputs, and what made them.

The SHA-256 of its bytes identifies an input.  Size, modification time and inode say quickly whether a file may have
changed; for a file that was fetched from a URL, the tag of its server (ETag) does.  A table beside the manifest lists
the files.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from heapq import nsmallest
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import TypedDict

from blr.arrays import Mask
from catalogs.arrays import is_text
from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError, nearest
from catalogs.files import atomic_path, atomic_write_bytes, check_links, open_bytes, own_folder
from catalogs.sky.positions import PositionUnit, find_position_columns, unit_of_position
from flows.documents import (
    from_document,
    from_json,
    read_document,
    to_document,
    utc_now,
    write_document,
)
from flows.errors import DocumentError, UsageError
from flows.runs.references import check_inside, name_and_version
from flows.runs.results import CensusAsked, Difference, FileCounts, ReleaseReference, Summary


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

    @classmethod
    def of(cls, path: Path, tag: str = "") -> FileState:
        """Return the state of a file as it is now, without reading it; FileNotFoundError where it has gone.

        A link that leads nowhere is there, such as one to a disk that is not mounted.
        """
        seen = path.stat() if path.exists() or not path.is_symlink() else path.lstat()
        return cls("", seen.st_size, seen.st_mtime_ns, seen.st_ino, tag)

    def hashed(self, path: Path) -> FileState:
        """Return the state with its hash; the file is read if the hash is not known yet."""
        return self if self.sha256 else replace(self, sha256=file_sha256(path))

    def is_like(self, other: FileState | None) -> bool:
        """Say whether size, time and inode are those of another state."""
        return other is not None and (
            (self.size, self.mtime_ns, self.inode) == (other.size, other.mtime_ns, other.inode)
        )

    def looks_like(self, path: Path) -> bool:
        """Say whether the file still has the size, time and inode that it had when it was hashed."""
        try:
            return self.is_like(FileState.of(path))
        except FileNotFoundError:
            return False


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


SUMS = "SHA256SUMS"
"""File that lists the files of a release with their hashes."""


UNESCAPED = {"\\": "\\", "n": "\n", "r": "\r"}
ESCAPED = str.maketrans({character: f"\\{letter}" for letter, character in UNESCAPED.items()})
"""How `sha256sum` writes these characters in names, with a backslash before the hash."""


def sums_text(sums: Mapping[str, str]) -> str:
    """Return the hashes of files, by their paths, as `sha256sum` prints them."""
    escaped = {name: name.translate(ESCAPED) for name in sorted(sums)}
    return "".join(
        ("\\" if text != name else "") + f"{sums[name]}  {text}\n" for name, text in escaped.items()
    )


def read_sums(text: str) -> dict[str, str]:
    """Return the hashes in a text as `sha256sum` prints them, by the files' paths."""
    sums = {}
    for line in text.split("\n"):
        sha256, _, name = line.partition("  ")
        if sha256.startswith("\\"):
            name = re.sub(r"\\(.)", lambda found: UNESCAPED.get(found[1], found[0]), name)
        if name:
            sums[name] = sha256.lstrip("\\")
    return sums


# The files of an output folder as a Parquet table with a row for each file: `_files/HASH.parquet`.
#
# The name of a table has the hash of its bytes, and the manifest names the table.  So a new table never replaces the
# one that the manifest in the folder names.  Manifest and table fit together even if a run is killed at any moment.

TABLES = "_files"
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


class FileTable(TypedDict):
    """The table of the files: its path in the folder, the SHA-256 of its bytes, and its number of rows."""

    path: str
    sha256: str
    rows: int


def write_table(folder: Path, outputs: Sequence[Output]) -> FileTable:
    """Write the table of outputs into a folder, and return its entry in the manifest.

    It holds the thousand most doubtful objects of all files.
    """
    objects = (one for o in outputs for one in o.summary.doubtful)
    first = nsmallest(MOST_DOUBTFUL, ((-one["mutual_information"], one["id"]) for one in objects))
    rows = []
    for o in outputs:
        doubtful = tuple(d for d in o.summary.doubtful if (-d["mutual_information"], d["id"]) <= first[-1])
        counts = to_document(replace(o.summary, left_behind=(), doubtful=doubtful))
        state = {f"input_{name}": value for name, value in vars(o.input).items()}
        rows.append(vars(o) | state | {"summary": json.dumps(counts, allow_nan=False)})
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), buffer, compression="zstd", use_dictionary=False)
    content = buffer.getvalue()
    sha256 = hashlib.sha256(content).hexdigest()
    table = FileTable(path=f"{TABLES}/{sha256[:16]}.parquet", sha256=sha256, rows=len(outputs))
    path = folder / table["path"]
    own_folder(path.parent, folder)
    if not path.is_file():
        atomic_write_bytes(path, content)
    return table


def read_table(folder: Path, table: FileTable | None) -> tuple[Output, ...]:
    """Return the outputs in the table of a folder; CatalogError where it is missing or was changed."""
    if table is None:
        raise ValueError("got no table of files")
    name = table["path"]
    if not re.fullmatch(rf"{TABLES}/[0-9a-f]{{16}}\.parquet", name):  # somebody may have edited the manifest
        raise ValueError(f"got '{name}' as the table of the files, expected {TABLES}/HASH.parquet")
    path = folder / name
    check_links(path, folder)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CatalogError(
            f"{path}: the table of files that manifest.json names cannot be read ({error.strerror}); restore "
            "it from a backup, or choose another output folder"
        ) from error
    if hashlib.sha256(content).hexdigest() != table["sha256"]:
        raise CatalogError(
            f"{path}: this table of files is not the one that manifest.json names; restore it from a backup, "
            "or choose another output folder"
        )
    outputs = []
    for row in pq.ParquetFile(pa.BufferReader(content)).read().to_pylist():
        state = FileState(*(row.pop(f"input_{field.name}") for field in fields(FileState)))
        summary = from_json(FileCounts, row.pop("summary"), source=name)
        outputs.append(Output(**row, input=state, summary=summary))
    return tuple(outputs)


def sweep_tables(folder: Path, table: FileTable | None) -> None:
    """Remove all tables of a folder except the one that its manifest names."""
    for path in (folder / TABLES).glob("*.parquet"):
        if table is None or path.name != Path(table["path"]).name:
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
        row_numbers = "" if column else ", or add one of row numbers and classify again"
        raise UsageError(
            f"{catalog.path}: got {'no column that names an object' if column is None else repr(column)}, "
            f"expected the column with the names of the objects; name it with {option}{row_numbers}"
            + (f"; {nearest(column, catalog.names)}" if column else "")
        )
    return column


# The names of objects that have a label already, so that nobody is asked about them again.
#
# `classify` keeps the names of its model's labelled objects beside the copies, in `_labelled/names.parquet`.

LABELLED_NAMES = ("_labelled", "names.parquet")
"""Path of the names in an output folder."""


def is_labelled(names: NDArray[np.object_], labelled: pa.Array) -> Mask:
    """Return a mask (n,) of the names that belong to labelled objects."""
    found = pc.is_in(pa.array(names.tolist(), pa.string()), value_set=labelled)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)


def distinct_names(names: Iterable[str]) -> pa.Array:
    """Return names, sorted, without repeats and empty ones."""
    return pa.array(sorted({name for name in names if name}), pa.string())


def write_labelled_names(names: Iterable[str], out: Path) -> None:
    """Write the names into an output folder, whole or not at all."""
    path = out.joinpath(*LABELLED_NAMES)
    own_folder(path.parent, out)
    with atomic_path(path) as temporary:
        pq.write_table(pa.table({"name": distinct_names(names)}), temporary)


def read_labelled_names(out: Path) -> pa.Array | None:
    """Return the names in an output folder; None where they are lost."""
    path = out.joinpath(*LABELLED_NAMES)
    check_links(path, out)
    if not path.exists():
        return None
    return pq.ParquetFile(path).read()["name"].combine_chunks().cast(pa.string())


MANIFEST = "manifest.json"
SUMMARY = "summary.json"
REPORT = "report.html"
SCHEMA_VERSION = 1


def annotated_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder; UsageError where nothing was classified."""
    manifest = Manifest.read(folder)
    if manifest is None:
        raise UsageError(
            f"{folder}: got a folder without a manifest, expected a folder that `blr classify` or `blr reprocess` "
            "wrote; name its folder of outputs"
        )
    return manifest


def has_summary(folder: Path) -> bool:
    """Say whether a folder has a `summary.json` that can be read."""
    try:
        read_document(Summary, folder / SUMMARY)
    except (OSError, DocumentError):
        return False
    return True


class ColumnDetails(TypedDict):
    """A new column: its Arrow type, its UCD and its meaning."""

    datatype: str
    ucd: str | None
    description: str | None


class FlagDetails(TypedDict):
    """A flag: its name and its meaning."""

    name: str
    meaning: str


@dataclass(frozen=True, kw_only=True)
class ObjectColumns:
    """The catalogues' columns of identifier and position, and the position's unit; None where they are not named."""

    id: str | None = None
    ra: str | None = None
    dec: str | None = None
    unit: PositionUnit | None = None

    def place(self, catalog: Catalog) -> tuple[str, str, PositionUnit] | None:
        """Return a catalogue's columns of positions, the named ones, else those that are found, and their unit.

        The unit is what the columns state, else the specification's; CatalogError where neither can be read.
        """
        stated = (self.ra or "", self.dec or "")
        names = stated if {*stated} <= {*catalog.names} else find_position_columns(catalog)
        if names is None:
            return None
        columns = [catalog.column(name) for name in names]
        if self.unit is not None and not all(c.unit or is_text(c.datatype) for c in columns):
            return *names, self.unit
        try:
            return *names, unit_of_position(catalog, *names)
        except CatalogError:
            if self.unit is None:
                raise
            return *names, self.unit


@dataclass(frozen=True, kw_only=True)
class SelectedColumn:
    """A column that selects the objects whose probability of a class is at or above a threshold.

    `stated` is what the threshold was chosen for, such as "purity 0.95".  `threshold` is None where each bin of the
    expression `by` has its own; these are the `thresholds`, by the bin's name.  The bins lie between `edges`; without
    edges, `by` is a condition.  A bin that is not among the thresholds selects nothing.
    """

    class_name: str
    threshold: float | None
    stated: str
    by: str = ""
    edges: tuple[float, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The outputs in one folder, which are all of one model and one specification: the content of `manifest.json`.

    `totals` are the summary's counts of all files together.  For readers of the copies there are the `classes` with
    their shares, the `columns` by name, the `flags` by their bit, the columns with the objects' names and positions,
    the columns of selections by name, and the questions of the census.  The `outputs` are listed in the `table`, which
    is None until the manifest is written; `created` (ISO 8601, UTC) is '' until then.  For a release in an object
    store, `files` names the folder of the files.  `store` is the path of the model store, from the folder; '' where it
    is not known.
    """

    format: Literal["blr-manifest"]
    schema_version: int
    created: str
    release: int
    model: str
    model_id: int
    specification_hash: str
    versions: Mapping[str, str]
    totals: Summary
    classes: Mapping[str, float] = field(default_factory=dict)
    columns: Mapping[str, ColumnDetails] = field(default_factory=dict)
    flags: Mapping[str, FlagDetails] = field(default_factory=dict)
    position: ObjectColumns
    selected: Mapping[str, SelectedColumn] = field(default_factory=dict)
    census_asked: CensusAsked
    quarantined: tuple[Problem, ...]
    table: FileTable | None
    files: str = ""
    store: str = ""
    outputs: Annotated[tuple[Output, ...], Field(exclude=True)] = ()

    @cached_property
    def _by_name(self) -> dict[str, Output]:
        return {o.name: o for o in self.outputs}

    def find(self, name: str) -> Output | None:
        """Return the output of that name; None where the manifest has none."""
        return self._by_name.get(name)

    def model_store(self, out: Path, wanted: Path | None) -> Path:
        """Return the store with the model: the `wanted` one, else the recorded one if it is there, else `models`.

        `out` is the folder that this is the manifest of.
        """
        recorded = out / self.store
        return wanted or (recorded if self.store and recorded.is_dir() else Path("models"))

    @property
    def reference(self) -> ReleaseReference:
        """What later releases say of this one."""
        return ReleaseReference(**{f.name: getattr(self, f.name) for f in fields(ReleaseReference)})

    @property
    def code_version(self) -> str:
        """The version of this package that wrote the outputs."""
        return self.versions.get("blr", "")

    @property
    def model_name(self) -> str:
        """The name of the model, whatever its version."""
        return name_and_version(self.model)[0]

    @property
    def prefix(self) -> str:
        """The prefix of the new columns."""
        (name,) = (name for name, column in self.columns.items() if column["ucd"] == "src.class")
        return name.removesuffix("class")

    def find_quarantined(self, name: str) -> Problem | None:
        """Return the entry of a file that could not be annotated; None where there is no such file."""
        return next((q for q in self.quarantined if q.name == name), None)

    def same_maker(self, model: str, specification_hash: str) -> bool:
        """Say whether this model and this specification made the outputs."""
        return (self.model, self.specification_hash) == (model, specification_hash)

    def same_outputs(self, other: Manifest) -> bool:
        """Say whether both manifests list the same bytes, by the same model and specification."""
        return self.same_maker(other.model, other.specification_hash) and (
            {(o.name, o.sha256) for o in self.outputs} == {(o.name, o.sha256) for o in other.outputs}
        )

    @staticmethod
    def next_release(folder: Path) -> int:
        """Return the number of a folder's next release; 1 where its manifest cannot be read."""
        try:
            return int(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["release"]) + 1
        except (OSError, ValueError, KeyError, TypeError):
            return 1

    def write(self, folder: Path) -> Path:
        """Write the manifest of a folder, whole or not at all; return its path.

        The table of the files is written first.  The table of the earlier manifest is removed last.
        """
        table = write_table(folder, self.outputs)
        created = self.created or utc_now()
        write_document(folder / MANIFEST, replace(self, created=created, table=table, outputs=()))
        sweep_tables(folder, table)
        return folder / MANIFEST

    @staticmethod
    def sweep(folder: Path) -> None:
        """Remove the tables that a killed run left in a folder: those that the manifest does not name."""
        path = folder / MANIFEST
        named = json.loads(path.read_text(encoding="utf-8")).get("table") if path.is_file() else None
        sweep_tables(folder, named)

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Return the manifest of a folder, None where it has none; CatalogError where the file is not a manifest."""
        path = folder / MANIFEST
        check_links(path, folder)
        if not path.is_file():
            return None
        content = path.read_bytes()
        try:
            manifest = from_document(cls, json.loads(content), source=MANIFEST)
            return replace(manifest, outputs=read_table(folder, manifest.table))
        except CatalogError:
            if path.read_bytes() == content:
                raise
            # Another run has just ended, and removed the table of the manifest before.
            return cls.read(folder)
        except (ValueError, TypeError, DocumentError) as error:
            raise CatalogError(
                f"{path}: got a file that is not a manifest ({error}), expected one that `blr classify` "
                "wrote; move it to another folder, or choose another output folder"
            ) from error


# The state of an output folder: which of its files are current, stale, missing or quarantined, since when and why.

State = Literal["quarantined", "stale", "missing", "current"]


class FileStatus(TypedDict):
    """One file of a release: its state, since when (ISO 8601, UTC; '' where that is not known), and why.

    A current copy is of its input as it is now.  A stale copy is of an earlier state of its input, or of an input that
    is gone.  A missing copy was deleted, or has another size.  A quarantined file has no copy.
    """

    name: str
    state: State
    since: str
    why: str


@dataclass(frozen=True, kw_only=True)
class FolderStatus:
    """The release in an output folder, the number of its files by state, and each file, troubled ones first.

    `quarantined` counts the files that cannot be annotated, also those of which a stale copy stays.
    """

    out: Path
    model: str
    release: int
    created: str
    counts: Mapping[State, int]
    quarantined: int
    files: tuple[FileStatus, ...]


def read_status(out: Path, manifest: Manifest | None = None) -> FolderStatus:
    """Return the state of the files in an output folder; an input is read only where its state differs.

    Without a manifest, the folder's own is read; UsageError where the folder has no manifest.
    """
    manifest = manifest or annotated_manifest(out)
    bad = {q.name: q for q in manifest.quarantined}
    files = [
        FileStatus(name=q.name, state="quarantined", since=q.since, why=q.reason)
        for q in manifest.quarantined
        if manifest.find(q.name) is None
    ]
    files += [_status(output, bad.get(output.name), out) for output in manifest.outputs]
    counts = Counter(file["state"] for file in files)
    order = get_args(State)
    return FolderStatus(
        out=out,
        model=manifest.model,
        release=manifest.release,
        created=manifest.created,
        counts={state: counts[state] for state in order},
        quarantined=len(bad),
        files=tuple(sorted(files, key=lambda file: (order.index(file["state"]), file["name"]))),
    )


def _status(output: Output, problem: Problem | None, out: Path) -> FileStatus:
    """Return the state of a copy: a URL counts as unchanged until a run asks its server."""
    copy, path = out / output.name, out / output.input_path
    state: State = "stale"
    since = why = ""
    if not copy.is_file() or copy.stat().st_size != output.size:
        state, why = "missing", "the copy was deleted, or has another size"
    elif problem is not None:
        since, why = problem.since, problem.reason
    elif "://" in output.input_path or (path.is_file() and output.input.looks_like(path)):
        state = "current"
    elif not path.is_file():
        why = "its input is gone"
    elif file_sha256(check_inside(path, key="status")) == output.input.sha256:
        state = "current"
    else:
        since = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
        why = "its input has changed"
    return FileStatus(name=output.name, state=state, since=since, why=why)
