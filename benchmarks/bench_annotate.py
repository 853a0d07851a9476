"""Annotating against reading and writing the same bytes: FITS and Parquet, 1e6 and 1e7 rows of 20 columns.

Ours reads five columns, computes eight, and writes all 28, flushed to the disk.  The plain sides do so too: "copy"
reads the file and writes as many bytes as ours does, knowing nothing of them; "arrow" reads row groups of Parquet and
"numpy" blocks of rows of FITS, and they write them with the same eight columns.  The memory of the two sizes should be
the same.
`bench_annotate.py [ROWS [ROUNDS]]`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from astropy.io import fits
from turns import cost_of, in_turns, tell

import catalogs
from catalogs.catalog.new_columns import standard_columns

ROWS, ROUNDS = 10_000_000, 3
COLUMNS = 20
READ = ("c0", "c1", "c2", "c3", "c4")
GROUP = 250_000
PIECE = 1 << 20
CLASSES = ("early", "late")
NEW = standard_columns(CLASSES)


def make(folder: Path, form: str, rows: int) -> None:
    """Write a table of an id and float32 columns."""
    with Groups(folder / "source.parquet") as write:
        for start in range(0, rows, GROUP):
            n = min(GROUP, rows - start)
            rng = np.random.default_rng(start)
            columns: dict[str, np.ndarray[Any, Any]] = {"id": np.arange(start, start + n)}
            columns |= {f"c{i}": rng.standard_normal(n, dtype=np.float32) for i in range(COLUMNS - 1)}
            write(pa.table(columns))
    if form == "fits":
        parquet = catalogs.open(folder / "source.parquet")
        catalogs.annotate(parquet, folder, (), lambda _: {}, read=("id",), form="fits")


class Groups:
    """Writes tables to a Parquet file, a row group each, and flushes it to the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Callable[[pa.Table], None]:
        return self.write

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()
        with self.path.open("rb") as file:
            os.fsync(file.fileno())

    def write(self, table: pa.Table) -> None:
        """Write a row group."""
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.path, table.schema, compression="zstd", use_dictionary=False)
        self.writer.write_table(table)


def compute(batch: pa.RecordBatch) -> Mapping[str, np.ndarray[Any, Any]]:
    """Return the standard columns by a little arithmetic, so that writing them is what is measured."""
    c = [batch.column(name).to_numpy() for name in READ]
    p = 1 / (1 + np.exp(-(c[0] + c[1])))
    values = {
        "blr_class": np.where(p > 0.5, *CLASSES),
        "blr_flags": (p > 0.9).astype(np.int32),
        "blr_model": np.full(len(p), 1, np.int64),
        "blr_p_early": p,
        "blr_p_late": 1 - p,
        "blr_p_max": np.maximum(p, 1 - p),
    }
    others = [column.name for column in NEW if column.name not in values]
    return values | dict(zip(others, (c[2], c[3], c[4]), strict=True))


def ours(folder: Path, form: str) -> None:
    """Annotate."""
    source = catalogs.open(folder / f"source.{form}")
    catalogs.annotate(source, folder / "out", NEW, compute, read=READ)


def copy(folder: Path, form: str) -> None:
    """Read all bytes; write them, and then as many others as an annotated copy has more."""
    source = folder / f"source.{form}"
    more = int((folder / "size").read_text()) - source.stat().st_size
    with source.open("rb") as old, (folder / "out" / source.name).open("wb") as new:
        while piece := old.read(PIECE):
            new.write(piece)
        noise = np.random.default_rng(0).bytes(PIECE)
        for start in range(0, more, PIECE):
            new.write(noise[: more - start])
        new.flush()
        os.fsync(new.fileno())


def arrow(folder: Path, form: str) -> None:
    """Read row groups and write them with the new columns."""
    with pq.ParquetFile(folder / f"source.{form}") as file, Groups(folder / "out" / "arrow.parquet") as write:
        for i in range(file.num_row_groups):
            table = file.read_row_group(i)
            for name, values in compute(table.combine_chunks().to_batches()[0]).items():
                table = table.append_column(name, pa.array(values))
            write(table)


def numpy(folder: Path, form: str) -> None:
    """Read blocks of rows and write wider ones, the new columns in big-endian order behind the old."""
    source = folder / f"source.{form}"
    with fits.open(source) as hdus:
        start, old = hdus.fileinfo(1)["datLoc"], hdus[1].columns.dtype.newbyteorder(">")
        n_rows = hdus[1].header["NAXIS2"]
    texts = max(map(len, CLASSES))
    kinds = [f"S{texts}" if c.datatype == pa.string() else c.datatype.to_pandas_dtype() for c in NEW]
    new = np.dtype([(c.name, kind) for c, kind in zip(NEW, kinds, strict=True)]).newbyteorder(">")
    with source.open("rb") as read, (folder / "out" / "numpy.fits").open("wb") as written:
        read.seek(start)
        for first in range(0, n_rows, GROUP):
            rows = np.fromfile(read, old, min(GROUP, n_rows - first))
            wider = np.empty(len(rows), np.dtype([*old.descr, *new.descr]))
            for name in old.names:
                wider[name] = rows[name]
            batch = pa.record_batch({name: rows[name].astype(np.float32) for name in READ})
            for name, values in compute(batch).items():
                wider[name] = values
            wider.tofile(written)
        written.flush()
        os.fsync(written.fileno())


SIDES: Mapping[str, Callable[[Path, str], None]] = {
    "ours": ours,
    "copy": copy,
    "arrow": arrow,
    "numpy": numpy,
}
PEER = {"parquet": "arrow", "fits": "numpy"}


def side(name: str, form: str, folder: Path) -> None:
    """Do a side's work, the output of the one before it out of the way: its memory serves as this one's file cache."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    compute(
        pa.record_batch({name: np.zeros(1) for name in READ})
    )  # Arrow imports pandas when it is first used
    cost_of(lambda: SIDES[name](folder, form))
    if name == "ours":
        (folder / "size").write_text(str((out / f"source.{form}").stat().st_size))


def compare(form: str, rows: int, rounds: int) -> float:
    """Print what the sides take; return the most memory that ours had, in MB."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run([sys.executable, __file__, "make", form, name, str(rows)], check=True)  # noqa: S603
        names = ("ours", "copy", PEER[form])
        costs = in_turns({side: [__file__, side, form, name] for side in names}, rounds)
    print(f"annotate {rows:,} rows x {COLUMNS} columns, {form}")
    tell(costs)
    return max(cost.megabytes for cost in costs["ours"])


def main() -> int:
    """Print the ratios, or be a side."""
    match sys.argv[1:]:
        case ["make", form, folder, rows]:
            make(Path(folder), form, int(rows))
        case [name, form, folder]:
            side(name, form, Path(folder))
        case given:
            sizes = [*map(int, given), *(ROWS, ROUNDS)[len(given) :]]
            for form in ("fits", "parquet"):
                small, large = (compare(form, rows, sizes[1]) for rows in (sizes[0] // 10, sizes[0]))
                print(f"  memory of ten times the rows: {large / small:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
