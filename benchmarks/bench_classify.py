"""`classify` of ten million Parquet rows against the least that any classifier must do: read, one GEMM, write.

The plain loop reads the same columns, multiplies a design matrix of the same width by a weight vector, and writes every
old column with one new one, flushed to the disk.  Ours writes eight, with variance, mutual information and flags, and
takes the checksums of input and output.  The memory of the two sizes should be the same.
`bench_classify.py [ROWS [ROUNDS]]`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from turns import cost_of, in_turns, tell
from two_types import MODEL, model_of, types_of

from flows.classification.request import ClassifyRequest
from flows.classification.steps import classify

ROWS, ROUNDS = 10_000_000, 3
COLUMNS = 20
FEATURES = ("c0", "c1", "c2", "c3", "c4")
GROUP = 250_000
SOURCE = "big.parquet"


def table(n: int, seed: int, *, labelled: bool = False) -> pa.Table:
    """Return n rows of an id and float32 columns, the last ones unused."""
    rng = np.random.default_rng(seed)
    columns: dict[str, np.ndarray[Any, Any]] = {"id": np.arange(n, dtype=np.int64) + seed * 10**9}
    columns |= {f"c{i}": rng.standard_normal(n, dtype=np.float32) for i in range(COLUMNS - 1)}
    made = pa.table(columns)
    if labelled:
        made = made.append_column("label", pa.array(types_of(columns, rng)))
    return made


def plain(source: Path, out: Path) -> None:
    """Read every row group, multiply the features by a vector, write all with the result."""
    weights = np.ones((21, 1), dtype=np.float64)
    with (
        pq.ParquetFile(source) as file,
        pq.ParquetWriter(
            out,
            file.schema_arrow.append(pa.field("score", pa.float32())),
            compression="zstd",
            use_dictionary=False,
        ) as writer,
    ):
        for i in range(file.num_row_groups):
            group = file.read_row_group(i)
            X = np.stack([group[name].to_numpy() for name in FEATURES], axis=1).astype(np.float64)
            Phi = np.concatenate([np.ones((len(X), 1)), X, *(X * X[:, [j]] for j in range(3))], axis=1)
            score = (Phi @ weights).ravel().astype(np.float32)
            writer.write_table(group.append_column("score", pa.array(score)))
    with out.open("rb") as file:
        os.fsync(file.fileno())


def make(folder: Path, rows: int) -> None:
    """Write the catalogue, and train a model."""
    with pq.ParquetWriter(
        folder / SOURCE, table(1, 0).schema, compression="zstd", use_dictionary=False
    ) as writer:
        for start in range(0, rows, GROUP):
            writer.write_table(table(min(GROUP, rows - start), 1 + start // GROUP))
    pq.write_table(table(20_000, 999_999, labelled=True), folder / "labelled.parquet")
    model_of(folder, FEATURES)


def side(name: str, folder: Path) -> None:
    """Do a side's work, the output of the one before it out of the way: its memory serves as this one's file cache."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    source = folder / SOURCE
    if name == "plain":
        cost_of(lambda: plain(source, out / SOURCE))
    else:
        cost_of(lambda: classify(ClassifyRequest([str(source)], MODEL, folder / "models", out)))


def compare(rows: int, rounds: int) -> float:
    """Print what the sides take; return the most memory that ours had, in MB."""
    with tempfile.TemporaryDirectory() as name:
        make = [sys.executable, __file__, "make", name, str(rows)]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        costs = in_turns({side: [__file__, side, name] for side in ("ours", "plain")}, rounds)
    print(f"classify {rows:,} rows x {COLUMNS} columns; plain: read + GEMM + write")
    tell(costs)
    return max(cost.megabytes for cost in costs["ours"])


def main() -> int:
    """Print the ratios, or be a side."""
    match sys.argv[1:]:
        case ["make", folder, rows]:
            make(Path(folder), int(rows))
        case [("ours" | "plain") as name, folder]:
            side(name, Path(folder))
        case given:
            sizes = [*map(int, given), *(ROWS, ROUNDS)[len(given) :]]
            small, large = (compare(rows, sizes[1]) for rows in (sizes[0] // 10, sizes[0]))
            print(f"  memory of ten times the rows: {large / small:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
