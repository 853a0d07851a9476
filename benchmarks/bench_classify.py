"""`classify` of ten million rows against the least that any classifier must do: read, one product, write.

The plain loop reads the columns, multiplies a design matrix of the same width by a square one in float32, and writes
all columns with as many new ones as ours, flushed to the disk.  Ours fills them with probabilities, variance, mutual
information and flags, and takes the checksums of input and output.  The memory of the two sizes should be the same.
`bench_classify.py [--json] [parquet|fits [ROWS [ROUNDS]]]`; with `--json` the costs of every round are the last line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from astropy.io import fits
from astropy.table import Table
from turns import Cost, cost_of, in_turns, tell
from two_types import MODEL, model_of, types_of

from flows.classification.steps import classify
from flows.request import ClassifyRequest

ROWS, ROUNDS = 10_000_000, 3
COLUMNS = 20
FEATURES = ("c0", "c1", "c2", "c3", "c4")
GROUP = 250_000
NEW = tuple(f"new_{i}" for i in range(8))
SOURCES = {"parquet": "big.parquet", "fits": "big.fits"}


def table(n: int, seed: int, *, labelled: bool = False) -> pa.Table:
    """Return n rows of an id and float32 columns, the last ones unused."""
    rng = np.random.default_rng(seed)
    columns: dict[str, np.ndarray[Any, Any]] = {"id": np.arange(n, dtype=np.int64) + seed * 10**9}
    columns |= {f"c{i}": rng.standard_normal(n, dtype=np.float32) for i in range(COLUMNS - 1)}
    made = pa.table(columns)
    if labelled:
        made = made.append_column("label", pa.array(types_of(columns, rng)))
    return made


def product(X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return eight columns (n, 8) of the product of the features' quadratic basis with a square matrix, in float32."""
    Phi = np.concatenate([np.ones((len(X), 1), X.dtype), X, *(X * X[:, [j]] for j in range(3))], axis=1)
    return (Phi @ np.ones((Phi.shape[1], Phi.shape[1]), dtype=np.float32))[:, : len(NEW)]


def plain(source: Path, out: Path) -> None:
    """Read every row group, multiply, and write all columns with the new ones."""
    with pq.ParquetFile(source) as file:
        schema = file.schema_arrow
        for name in NEW:
            schema = schema.append(pa.field(name, pa.float32()))
        with pq.ParquetWriter(out, schema, compression="zstd", use_dictionary=False) as writer:
            for i in range(file.num_row_groups):
                group = file.read_row_group(i)
                made = product(np.stack([group[name].to_numpy() for name in FEATURES], axis=1))
                for name, values in zip(NEW, made.T, strict=True):
                    group = group.append_column(name, pa.array(values))
                writer.write_table(group)
    flush(out)


def plain_fits(source: Path, out: Path) -> None:
    """Map the table's bytes, multiply some rows at a time, and write records with the new columns behind the old."""
    with fits.open(source, memmap=True) as units:
        rows, header = units[1].data.view(np.ndarray), units[1].header.copy()
        width = header["TFIELDS"]
        for j, name in enumerate(NEW):
            header[f"TTYPE{width + j + 1}"], header[f"TFORM{width + j + 1}"] = name, "E"
        kind = np.dtype(rows.dtype.descr + [(name, ">f4") for name in NEW])
        header["TFIELDS"], header["NAXIS1"] = width + len(NEW), kind.itemsize
        with out.open("wb") as file:
            file.write(units[0].header.tostring().encode() + header.tostring().encode())
            for start in range(0, len(rows), GROUP):
                some = rows[start : start + GROUP]
                made = product(np.stack([some[name] for name in FEATURES], axis=1).astype(np.float32))
                record = np.empty(len(some), kind)
                for name in rows.dtype.names:
                    record[name] = some[name]
                for name, values in zip(NEW, made.T, strict=True):
                    record[name] = values
                file.write(record.tobytes())
            file.write(bytes(-len(rows) * kind.itemsize % 2880))
    flush(out)


def flush(out: Path) -> None:
    """Wait until the file is on the disk."""
    with out.open("rb") as file:
        os.fsync(file.fileno())


def make(folder: Path, kind: str, rows: int) -> None:
    """Write the catalogue, and train a model."""
    source = folder / SOURCES[kind]
    groups = (table(min(GROUP, rows - start), 1 + start // GROUP) for start in range(0, rows, GROUP))
    if kind == "fits":
        whole = pa.concat_tables(groups)
        fits.BinTableHDU(Table({name: whole[name].to_numpy() for name in whole.column_names})).writeto(source)
    else:
        with pq.ParquetWriter(source, table(1, 0).schema, compression="zstd", use_dictionary=False) as writer:
            for group in groups:
                writer.write_table(group)
    pq.write_table(table(20_000, 999_999, labelled=True), folder / "labelled.parquet")
    model_of(folder, FEATURES)


def side(name: str, kind: str, folder: Path) -> None:
    """Do a side's work, the output of the one before it out of the way: its memory serves as this one's file cache."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    source = folder / SOURCES[kind]
    if name == "plain":
        loop = plain_fits if kind == "fits" else plain
        cost_of(lambda: loop(source, out / source.name))
    else:
        cost_of(lambda: classify(ClassifyRequest([str(source)], MODEL, folder / "models", out)))


def compare(kind: str, rows: int, rounds: int) -> dict[str, list[Cost]]:
    """Return what the sides take."""
    with tempfile.TemporaryDirectory() as name:
        made = [sys.executable, __file__, "make", name, kind, str(rows)]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        return in_turns({side: [__file__, side, kind, name] for side in ("ours", "plain")}, rounds)


def tell_memory(kind: str, rows: int, rounds: int) -> None:
    """Print the ratios for a tenth of the rows and all of them, and what that does to the memory."""
    most = []
    for size in (rows // 10, rows):
        costs = compare(kind, size, rounds)
        print(f"classify {size:,} rows x {COLUMNS} columns of {kind}; plain: read + product + write")
        tell(costs)
        most.append(max(cost.megabytes for cost in costs["ours"]))
    print(f"  memory of ten times the rows: {most[1] / most[0]:.2f}")


def main() -> int:
    """Print the ratios, or be a side."""
    match sys.argv[1:]:
        case ["make", folder, kind, rows]:
            make(Path(folder), kind, int(rows))
        case [("ours" | "plain") as name, kind, folder]:
            side(name, kind, Path(folder))
        case ["--json", kind, rows, rounds]:
            costs = compare(kind, int(rows), int(rounds))
            print(json.dumps({name: [asdict(cost) for cost in taken] for name, taken in costs.items()}))
        case given:
            kind, rows, rounds = [*given, *("parquet", ROWS, ROUNDS)[len(given) :]]
            tell_memory(kind, int(rows), int(rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
