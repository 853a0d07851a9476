"""The states of input files and of their annotated copies; the table that lists more than a hundred of them."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import nsmallest
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from catalogs.errors import CatalogError
from catalogs.files.atomic import atomic_write_bytes, check_links, own_folder, sweep
from catalogs.files.reading import open_bytes
from flows.documents import Dataclass, from_document, to_document
from flows.runs.counts import (
    DoubtfulObject,
    FeatureCounts,
    FileCounts,
    FileDifference,
    SetRecord,
    ShiftRecord,
    SkyCounts,
    Tally,
)

__all__ = [
    "FileState",
    "FileTable",
    "Output",
    "Quarantined",
    "are_many",
    "as_kept",
    "draws_of",
    "file_sha256",
    "read_table",
    "steps_of",
    "sweep_tables",
    "write_table",
]

# The states of input files and of their annotated copies: hashes of the bytes, and counts.


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

    `input_path` is relative to the output folder, so that both can move together, or a URL without secrets.  `summary`
    is kept in `summary.json`, not in the manifest; None where it is lost.  `difference` is from the last release, for
    the release's report; None where nothing was compared.  `census_rows` are encoded rows for the census, which only
    staged records have.
    """

    name: str
    sha256: str
    size: int
    n_rows: int
    input_path: str
    input: FileState
    mtime_ns: int = 0
    inode: int = 0
    summary: FileCounts | None = None
    difference: FileDifference | None = None
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
class Quarantined:
    """A file that could not be annotated because of its content; it is tried again once it has changed.

    `input` is None where even the state of the file could not be read; such a file is always tried again.  The state
    has no hash where the file was not read to its end.  `since` is the time of the run that quarantined the file first
    (ISO 8601, UTC); it stays until the file is mended.
    """

    name: str
    input_path: str
    reason: str
    input: FileState | None
    since: str = field(default="", compare=False)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as `sha256sum` prints it."""
    with open_bytes(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# The counts of files as later runs read them: rounded for many files, so that their table is small.
#
# Counts are rounded before they are summed, so that a summary is the same whether the counts of a file are new or read
# from the table.  Shapes: K classes, S draws.

MOST_LISTED = 100
"""Most files that manifest and summary list in JSON; more are in a table."""
MOST_DOUBTFUL = 1000
"""Most doubtful objects that are kept, of all files together."""
LEVELS = 15
"""Steps on each side of zero to which the draws of a class are rounded."""
DIGITS = 24
"""Binary digits of rounded sums: as many as a number in single precision has."""


def are_many(outputs: Sized) -> bool:
    """Say whether there are so many outputs that a table lists them."""
    return len(outputs) > MOST_LISTED


def as_kept(outputs: Sequence[Output]) -> tuple[Output, ...]:
    """Return outputs with the counts that a later run will read: the counts of many files are rounded.

    Sums of features and variances have 24 binary digits.  Each class's draws are rounded to 15 steps on either side of
    the expected count.  The rounding errors of files are independent, so they hardly change the spread of a sum over a
    hundred files.  The thousand most doubtful objects of all files are kept.
    """
    if not are_many(outputs):
        return tuple(outputs)
    objects = (one for o in outputs if o.summary is not None for one in o.summary.doubtful)
    first = nsmallest(MOST_DOUBTFUL, ((-one.mutual_information, one.id) for one in objects))
    last = first[-1] if first else (math.inf, "")

    def kept(counts: FileCounts) -> FileCounts:
        doubtful = tuple(d for d in counts.doubtful if (-d.mutual_information, d.id) <= last)
        return replace(
            counts,
            tally=_rounded_tally(counts.tally),
            drift=_rounded_drift(counts.drift),
            left_behind=(),
            doubtful=doubtful,
        )

    return tuple(o if o.summary is None else replace(o, summary=kept(o.summary)) for o in outputs)


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    """Return numbers rounded to 24 binary digits; a number that was rounded before does not change."""
    mantissa, exponent = np.frexp(np.array(values, dtype=float))
    return tuple(np.ldexp(np.rint(np.ldexp(mantissa, DIGITS)), exponent - DIGITS).tolist())


def _rounded_drift(drift: FeatureCounts | None) -> FeatureCounts | None:
    if drift is None:
        return None
    return replace(drift, total=_rounded(drift.total), squares=_rounded(drift.squares))


def _rounded_tally(tally: Tally) -> Tally:
    steps, codes = steps_of(tally)
    return replace(tally, variance=_rounded(tally.variance), draws=draws_of(tally.expected, steps, codes))


def steps_of(tally: Tally) -> tuple[list[float], NDArray[Any]]:
    """Return the step of each class, a power of two, and the draws (S, K) as numbers of steps from the expected count.

    A step is the smallest by which no draw is more than 15 steps away.  So draws that were rounded before do not
    change.
    """
    K = len(tally.expected)
    deviation = np.array(tally.draws, dtype=float).reshape(-1, K) - np.array(tally.expected)
    largest = np.abs(deviation).max(axis=0, initial=0.0)
    exponent = np.frexp(np.where(largest > 0, largest, 1.0) / LEVELS)[1] - 1
    step = np.ldexp(1.0, exponent)
    step = np.where(np.rint(largest / step) > LEVELS, 2 * step, step)
    return step.tolist(), np.rint(deviation / step).astype(np.int8)


def draws_of(
    expected: Sequence[float], steps: Sequence[float], codes: NDArray[Any]
) -> tuple[tuple[float, ...], ...]:
    """Return the draws (S, K) from the expected counts (K,), the steps (K,) and the numbers of steps (S, K)."""
    return tuple(map(tuple, (np.array(expected) + np.array(steps) * codes).tolist()))


# The files of a large output folder as a Parquet table with a row for each file: `_files/HASH.parquet`.
#
# The name of a table has the hash of its bytes, and the manifest names the table.  So a new table never replaces the
# one that the manifest in the folder names.  Manifest and table fit together even if a run is killed at any moment.
#
# The counts of a file have fewer digits than in JSON (`as_kept`).  Shapes: K classes, S draws, P pixels.

FOLDER = "_files"
ROWS = 50_000
"""Rows of a row group."""

T = TypeVar("T", bound=Dataclass)


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

    The counts of the outputs are those that `as_kept` returns.
    """
    buffer = io.BytesIO()
    floats = ["expected", "variance", "drift_total", "drift_squares"]
    pq.write_table(
        _arrow(outputs),
        buffer,
        compression="zstd",
        compression_level=9,
        row_group_size=ROWS,
        use_dictionary=["shift", "set_rule"],
        column_encoding={f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in floats},
        write_statistics=False,
    )
    content = buffer.getvalue()
    sha256 = hashlib.sha256(content).hexdigest()
    table = FileTable(path=f"{FOLDER}/{sha256[:16]}.parquet", sha256=sha256, rows=len(outputs))
    path = folder / table.path
    own_folder(path.parent, folder)
    sweep(path.parent)  # removes a half-written table of a killed run
    if not path.is_file():
        atomic_write_bytes(path, content)
    return table


def read_table(folder: Path, table: FileTable) -> tuple[Output, ...]:
    """Return the outputs in the table of a folder; CatalogError where it is missing or was changed."""
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
    return tuple(
        output
        for group in pq.ParquetFile(pa.BufferReader(content)).iter_batches(ROWS)
        for output in _outputs(group)
    )


def sweep_tables(folder: Path, table: FileTable | None) -> None:
    """Remove all tables of a folder except the one that its manifest names."""
    for path in (folder / FOLDER).glob("*.parquet"):
        if table is None or path.name != Path(table.path).name:
            path.unlink(missing_ok=True)


def _arrow(outputs: Sequence[Output]) -> pa.Table:
    names = sorted({name for o in outputs if o.summary is not None for name in o.summary.tally.flags})
    meta = {"format": "blr-files", "schema_version": "1", "flags": json.dumps(names)}
    return pa.Table.from_pylist([_row(o, names) for o in outputs], schema=SCHEMA.with_metadata(meta))


INTS = pa.list_(pa.int64())
FLOATS = pa.list_(pa.float64())
SCHEMA = pa.schema(
    {
        "path": pa.string(),
        "sha256": pa.string(),
        "size": pa.int64(),
        "mtime_ns": pa.int64(),
        "inode": pa.uint64(),
        "rows": pa.int64(),
        "input": pa.string(),
        "input_sha256": pa.string(),
        "input_size": pa.int64(),
        "input_mtime_ns": pa.int64(),
        "input_inode": pa.uint64(),
        "input_tag": pa.string(),
        "counted": pa.bool_(),
        "counted_rows": pa.int64(),
        "classified": pa.int64(),
        "assigned": INTS,
        "expected": FLOATS,
        "variance": FLOATS,
        "draw_steps": FLOATS,
        "draws": pa.list_(pa.int8()),
        "flags": INTS,
        "missing": INTS,
        "set_sizes": INTS,
        "in_sets": INTS,
        "drift_rows": pa.int64(),
        "drift_known": INTS,
        "drift_total": FLOATS,
        "drift_squares": FLOATS,
        "drift_bins": pa.list_(INTS),
        "low_confidence": pa.float64(),
        "shift": pa.string(),
        "set_rule": pa.string(),
        "sky_order": pa.int8(),
        "sky_pixels": INTS,
        "sky_n": INTS,
        "sky_flagged": INTS,
        "sky_assigned": INTS,
        "doubtful": pa.string(),
    }
)
"""Columns of the table, which `docs/json.md` describes; without counts, the columns from `counted` on are null."""


# The table's columns that hold fields of a type as they are, by the field's name.
OF_OUTPUT = {"path": "name", "rows": "n_rows", "input": "input_path"} | {
    name: name for name in ("sha256", "size", "mtime_ns", "inode")
}
OF_STATE = {f"input_{name}": name for name in ("sha256", "size", "mtime_ns", "inode", "tag")}
OF_TALLY = {"counted_rows": "n_rows", "classified": "n_classified"} | {
    name: name for name in ("assigned", "expected", "variance", "missing", "set_sizes", "in_sets")
}
OF_DRIFT = {"drift_rows": "n_rows"} | {f"drift_{n}": n for n in ("known", "total", "squares", "bins")}
OF_SKY = {f"sky_{name}": name for name in ("order", "pixels", "n", "flagged", "assigned")}


def _row(output: Output, flags: Sequence[str]) -> dict[str, Any]:
    row = _columns(OF_OUTPUT, output) | _columns(OF_STATE, output.input)
    counts = output.summary
    if counts is None:
        return row
    steps, draws = steps_of(counts.tally)
    row |= _columns(OF_TALLY, counts.tally) | {
        "counted": counts.counted,
        "draw_steps": steps,
        "draws": draws.ravel(),
        "flags": [counts.tally.flags.get(name, 0) for name in flags],
        "low_confidence": counts.low_confidence,
        "shift": _text(counts.shift),
        "set_rule": _text(counts.set_rule),
        "doubtful": json.dumps([to_document(one) for one in counts.doubtful]) if counts.doubtful else None,
    }
    if counts.drift is not None:
        row |= _columns(OF_DRIFT, counts.drift)
    if counts.sky is not None:
        row |= _columns(OF_SKY, counts.sky)
        row["sky_assigned"] = [n for of_pixel in counts.sky.assigned for n in of_pixel]
    return row


def _columns(names: Mapping[str, str], value: object) -> dict[str, Any]:
    return {column: getattr(value, name) for column, name in names.items()}


def _fields(names: Mapping[str, str], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in a row, by their names; lists become tuples, inner ones too."""

    def frozen(value: Any) -> Any:
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    return {name: frozen(row[column]) for column, name in names.items()}


def _outputs(batch: pa.RecordBatch) -> Iterator[Output]:
    flags = json.loads((batch.schema.metadata or {}).get(b"flags", b"[]"))

    @cache  # many rows share a text, which is parsed once
    def parsed(kind: type[T], text: str | None) -> T | None:
        return None if text is None else from_document(kind, json.loads(text), source=FOLDER)

    for row in batch.to_pylist():
        counts = None
        if row["classified"] is not None:
            sky = None
            if row["sky_order"] is not None:
                K, assigned = len(row["expected"]), row["sky_assigned"]
                row["sky_assigned"] = [assigned[i : i + K] for i in range(0, len(assigned), K)]
                sky = SkyCounts(**_fields(OF_SKY, row))
            counts = FileCounts(
                counted=row["counted"],
                tally=_tally(row, flags),
                drift=None if row["drift_rows"] is None else FeatureCounts(**_fields(OF_DRIFT, row)),
                low_confidence=row["low_confidence"],
                shift=parsed(ShiftRecord, row["shift"]),
                set_rule=parsed(SetRecord, row["set_rule"]),
                sky=sky,
                doubtful=tuple(
                    from_document(DoubtfulObject, one, source=FOLDER)
                    for one in json.loads(row["doubtful"] or "[]")
                ),
            )
        yield Output(**_fields(OF_OUTPUT, row), input=FileState(**_fields(OF_STATE, row)), summary=counts)


def _tally(row: Mapping[str, Any], flags: Sequence[str]) -> Tally:
    codes = np.array(row["draws"], dtype=float).reshape(-1, len(row["expected"]))
    return Tally(
        **_fields(OF_TALLY, row),
        draws=draws_of(row["expected"], row["draw_steps"], codes),
        flags=dict(zip(flags, row["flags"], strict=True)),
    )


def _text(value: Dataclass | None) -> str | None:
    return None if value is None else json.dumps(to_document(value), allow_nan=False)
