"""What Prefect costs: `blr classify` of about a minute direct, and with a server that is up.

Whole commands are timed, from the shell's point of view, in turns, so that a machine that others use at the same time
is unfair to all alike.  There the processor's seconds say more than the clock's: both are printed, those of the command
and of all that it started and waited for.  `bench_orchestration.py [SECONDS [ROUNDS]]`.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from two_types import MODEL, model_of, types_of

from flows.orchestration.settings import start_home_server, stop_server

BLR = Path(sys.executable).with_name("blr")
FILES = 6
TRIAL = 100_000
"""Rows a file of the run that tells how long a row takes."""
FEATURES = ("c0", "c1", "c2", "c3")


def write(path: Path, n: int, seed: int) -> None:
    """Write n rows of an id, some features and a label, in row groups of a million."""
    rng = np.random.default_rng(seed)
    writer = None
    for start in range(0, n, 1_000_000):
        rows = min(1_000_000, n - start)
        columns = {"id": np.arange(start, start + rows) + seed * 10**9}
        columns |= {name: rng.standard_normal(rows, dtype=np.float32) for name in FEATURES}
        table = pa.table(columns | {"label": types_of(columns, rng)})
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    if writer is not None:
        writer.close()


def classify(folder: Path, *options: str, **settings: str) -> tuple[float, float]:
    """Classify the files with a command of its own; return the clock's seconds, and the processor's."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    command = [BLR, "classify", "release", "--model", MODEL, "--out", "out", "--quiet", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    start, used = time.perf_counter(), processor()
    subprocess.run(command, cwd=folder, env=environment | settings, check=True, capture_output=True)  # noqa: S603
    return time.perf_counter() - start, processor() - used


def processor() -> float:
    """Return the processor's seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make(folder: Path, rows: int) -> None:
    """Write the release: this many rows a file."""
    shutil.rmtree(folder / "release", ignore_errors=True)
    (folder / "release").mkdir()
    for number in range(FILES):
        write(folder / "release" / f"part-{number}.parquet", rows, number + 1)


def main() -> int:
    """Print the times and their ratios."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "labelled.parquet", 20_000, 0)
        model_of(folder, FEATURES)
        make(folder, 1000)
        fixed = classify(folder, "--direct")[0]
        make(folder, TRIAL)
        each = max(classify(folder, "--direct")[0] - fixed, 0.1) / TRIAL
        rows = int(max(seconds - fixed, 1) / each)
        make(folder, rows)
        for setting in [setting for setting in os.environ if setting.startswith("PREFECT_")]:
            del os.environ[setting]
        os.environ["PREFECT_HOME"] = str(folder / "server")
        _, url, process = start_home_server(0)
        up = {"PREFECT_API_URL": f"{url}/api", "PREFECT_HOME": str(folder / "client")}
        times: dict[str, list[tuple[float, float]]] = {"direct": [], "server up": []}
        for _ in range(rounds):
            times["direct"].append(classify(folder, "--direct"))
            times["server up"].append(classify(folder, **up))
        stop_server(process)
    for index, what in enumerate(("clock", "processor")):
        typical = {kind: statistics.median(pair[index] for pair in taken) for kind, taken in times.items()}
        for kind, taken in times.items():
            each = " ".join(f"{pair[index]:6.1f}" for pair in taken)
            print(f"{what:9} {kind:10} {each}  median {typical[kind]:.1f} s")
        up_s, direct_s = typical["server up"], typical["direct"]
        print(
            f"{what:9} {FILES} x {rows:,} rows: server up / direct = {up_s / direct_s:.3f} ({up_s - direct_s:+.1f} s)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
