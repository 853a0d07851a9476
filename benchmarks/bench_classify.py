"""`classify` of ten million Parquet rows against the least that any classifier must do: read, one GEMM, write.

The plain loop reads the same columns, multiplies a design matrix of the same width by a weight vector, and writes every
old column with one new one.  Ours writes eight, with variance, mutual information and flags.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flows.classification import classify
from flows.training import train

ROWS = 10_000_000
COLUMNS = 20
FEATURES = ("c0", "c1", "c2", "c3", "c4")
GROUP = 1_000_000

SPECIFICATION = """
name = "benchmark"
[catalog]
paths = ["labelled.parquet"]
id = "id"
[label]
column = "label"
classes = {{ early = ["early"], late = ["late"] }}
[features]
{features}
[[candidate]]
basis = {{ kind = "polynomial", degree = 2 }}
"""


def table(n: int, seed: int, *, labelled: bool = False) -> pa.Table:
    """Return n rows of an id and float32 columns, the last ones unused."""
    rng = np.random.default_rng(seed)
    columns = {"id": np.arange(n, dtype=np.int64) + seed * 10**9}
    columns |= {f"c{i}": rng.standard_normal(n, dtype=np.float32) for i in range(COLUMNS - 1)}
    made = pa.table(columns)
    if labelled:
        late = columns["c0"] + columns["c1"] ** 2 + rng.logistic(size=n) > 1
        made = made.append_column("label", pa.array(np.where(late, "late", "early")))
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


def main() -> int:
    """Print the ratio."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "big.parquet"
        with pq.ParquetWriter(source, table(1, 0).schema, compression="zstd", use_dictionary=False) as writer:
            for start in range(0, rows, GROUP):
                writer.write_table(table(min(GROUP, rows - start), 1 + start // GROUP))
        pq.write_table(table(20_000, 999, labelled=True), folder / "labelled.parquet")
        spec = folder / "spec.toml"
        spec.write_text(SPECIFICATION.format(features="\n".join(f'{f} = "{f}"' for f in FEATURES)))
        train(spec, store=folder / "models")
        start = time.perf_counter()
        plain(source, folder / "plain.parquet")
        middle = time.perf_counter()
        classify([source], model="benchmark", store=folder / "models", out=folder / "out")
        end = time.perf_counter()
    print(
        f"classify {rows:,} rows x {COLUMNS} columns: {end - middle:.1f} s, plain read + GEMM + write "
        f"{middle - start:.1f} s, ratio {(end - middle) / (middle - start):.2f}; peak memory "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
