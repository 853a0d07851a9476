"""Memory, passes and weights of trainings of many rows: `python -m benchmarks.bench_scale [ROWS ...]`.

With `plan [FILES ...]` in the place of rows: releases of so many files of 50,000 rows are planned and handed to workers
that do nothing (`benchmarks.scale_plan`), 200,000 by default.  With `driver`: the processor time of the process that
starts a classification of tiny files (`benchmarks.scale_driver`).  With `workers`: two worker processes against two
threads (`benchmarks.scale_workers`).

For each number of labelled rows: a catalogue of eight features is written, `blr train --direct` is run on it in a
process of its own, and its peak resident memory and times are taken.  Then, of the same rows on the disk, the passes of
`fit_evidence` are counted, and the weights of a fit under a fixed prior are compared with those of the rows in memory,
where these fit there.  5,000,000 rows take 3 GB of memory for that, and 2 GB of the disk.
The results go to `benchmarks/results/scale.json`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.scale_driver import driven
from benchmarks.scale_plan import planned
from benchmarks.scale_workers import worked
from blr.basis.kinds import fit_basis
from blr.gaussian import GaussianPrior
from blr.posterior.laplace import fit
from blr.selection.evidence import fit_evidence
from blr.sums import ChunkFunction, Terms
from flows.engines.engine import ThreadEngine
from flows.training._rows import ArrayWriter, DesignShards, StoredRows, TrainingShards

RESULT = Path(__file__).parent / "results" / "scale.json"
FEATURES = 8
BLOCK = 250_000
IN_MEMORY = 200_000
LARGEST_IN_MEMORY = 1_000_000 * 45
"""Elements of a design matrix above which it is not held in memory for comparison."""

SPECIFICATION = """
name = "scale"
[catalog]
paths = ["labelled.parquet"]
id = "id"
[label]
column = "class"
[features]
{features}
[[candidate]]
basis = {{ kind = "linear" }}
[[candidate]]
basis = {{ kind = "polynomial", degree = 2 }}
"""

TRAIN = """
import json, re, resource, sys
from pathlib import Path
from flows.cli.app import run
code = run(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print("USED", json.dumps({"peak": peak / 1024, "processor": used.ru_utime + used.ru_stime}))
raise SystemExit(code)
"""
"""The peak is read from /proc: `ru_maxrss` of a process begins with the memory of the one that started it."""


def blocks(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield features (m, 8) and classes (m,) of n rows."""
    w = np.array([0.9, -0.7, 0.5, 0.4, -0.3, 0.2, 0.1, 0.0])
    for start in range(0, n, BLOCK):
        rng = np.random.default_rng(start)
        X = rng.normal(size=(min(BLOCK, n - start), FEATURES)) * [1, 2, 1, 1, 0.5, 1, 3, 1] + 5
        Z = (X - 5) / [1, 2, 1, 1, 0.5, 1, 3, 1]
        a = Z @ w + 0.4 * Z[:, 0] * Z[:, 1] - 0.3 * Z[:, 2] ** 2
        yield X, (rng.random(len(X)) < 1 / (1 + np.exp(-a))).astype(np.int16)


def write_catalogue(path: Path, n: int) -> None:
    """Write the labelled catalogue."""
    types = [("id", pa.int64()), ("class", pa.string()), *((f"f{j}", pa.float64()) for j in range(FEATURES))]
    schema = pa.schema(types)
    with pq.ParquetWriter(path, schema) as writer:
        for i, (X, t) in enumerate(blocks(n)):
            identifier = np.arange(i * BLOCK, i * BLOCK + len(X))
            columns = {"id": identifier, "class": np.where(t == 1, "galaxy", "star")}
            columns |= {f"f{j}": X[:, j] for j in range(FEATURES)}
            writer.write_table(pa.table(columns, schema=schema), row_group_size=BLOCK)


def trained(folder: Path, engine: str) -> dict[str, float]:
    """Run `blr train` there; return peak memory in MB, wall and processor seconds."""
    command = ["train", "spec.toml", "--store", f"models-{engine.replace(':', '')}", "--direct", "--quiet"]
    command += ["--engine", engine]
    began = time.perf_counter()
    root = str(Path(__file__).parents[1])
    done = subprocess.run(  # noqa: S603  our own command
        [sys.executable, "-c", TRAIN, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    used = json.loads(done.stdout.rpartition("USED")[2])
    return {"peak_mb": used["peak"], "processor_s": used["processor"], "wall_s": time.perf_counter() - began}


class Counted(DesignShards):
    """Shards that count the passes over all rows."""

    passes = 0

    def accumulate(self, function: ChunkFunction) -> Terms:
        """Sum, and count."""
        Counted.passes += 1
        return super().accumulate(function)


def compared(folder: Path, n: int, degree: int) -> dict[str, float]:
    """Return the passes of `fit_evidence`, and how far weights under a fixed prior are from the fit in memory.

    The second is left out where the design matrix does not fit into the memory of a small machine.
    """
    rows = folder / f"rows-{degree}"
    rows.mkdir()
    with (
        closing(ArrayWriter(rows / "filled.npy")) as X,
        closing(ArrayWriter(rows / "target.npy")) as t,
        closing(ArrayWriter(rows / "held_out.npy")) as h,
    ):
        for features, target in blocks(n):
            X.append(features)
            t.append(target)
            h.append(np.zeros(len(target), dtype=bool))
    whole, target = np.load(rows / "filled.npy"), np.load(rows / "target.npy")
    some = slice(None, None, max(1, n // IN_MEMORY))
    shards = TrainingShards(StoredRows(rows), 2, ThreadEngine(1), held_out_too=True)
    basis = fit_basis("polynomial", whole[some], degree=degree)
    design = shards.design(basis, tuple(range(FEATURES)), whole[some], target[some].astype(int), None)
    data = Counted(**vars(design))
    Counted.passes = 0
    q = fit_evidence(data, None)
    passes = Counted.passes
    if n * design.n_functions > LARGEST_IN_MEMORY:
        return {"functions": design.n_functions, "passes_of_fit_evidence": passes}
    streamed = fit(data, None, q.prior)
    memory = fit(
        basis(whole), target.astype(float), GaussianPrior(q.prior.mean, q.prior.covariance), threads=1
    )
    apart = np.abs(streamed.gaussian.mean - memory.gaussian.mean)
    return {
        "functions": design.n_functions,
        "passes_of_fit_evidence": passes,
        "passes_of_fit": Counted.passes - passes,
        "largest_difference_of_weights": float(apart.max()),
        "largest_difference_in_sd": float((apart / np.sqrt(np.diag(memory.gaussian.covariance))).max()),
    }


def keep(name: str, measured: dict[str, float]) -> None:
    """Print a measurement, and put it beside the others, which another run may be writing too."""
    print(name, measured, flush=True)
    others = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    RESULT.write_text(json.dumps({**others, name: measured}, indent=1) + "\n")


def main(sizes: list[int]) -> None:
    """Measure trainings of these sizes."""
    for n in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_catalogue(folder / "labelled.parquet", n)
            features = "\n".join(f'f{j} = "f{j}"' for j in range(FEATURES))
            (folder / "spec.toml").write_text(SPECIFICATION.format(features=features))
            keep(f"train {n}", trained(folder, "threads"))
            for degree in (1, 2):
                keep(f"fit {n} degree {degree}", compared(folder, n, degree))


def plans(sizes: list[int]) -> None:
    """Measure plans of so many files."""
    for n in sizes:
        with tempfile.TemporaryDirectory() as name:
            keep(f"plan {n}", planned(Path(name), n))


def drivers() -> None:
    """Measure the processor time of drivers."""
    with tempfile.TemporaryDirectory() as name:
        keep("driver", driven(Path(name)))


def workers() -> None:
    """Measure worker processes against threads."""
    with tempfile.TemporaryDirectory() as name:
        keep("workers", worked(Path(name)))


if __name__ == "__main__":
    numbers = [int(float(text)) for text in sys.argv[1:] if text not in {"plan", "driver", "workers"}]
    if "driver" in sys.argv[1:]:
        drivers()
    elif "workers" in sys.argv[1:]:
        workers()
    elif "plan" in sys.argv[1:]:
        plans(numbers or [200_000])
    else:
        main(numbers or [1_000_000, 5_000_000])
