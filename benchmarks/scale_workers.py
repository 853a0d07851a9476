"""Wall and processor time of a classification by two worker processes against two threads, on the same files.

Each run is a command of its own; the two ways take turns.  Counted are the whole command and the processes that it
starts.  Each file has a million rows; the files are names of four that differ.  `further` files are those that the
larger release has beside the smaller one: what they cost is without the start of processes.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.scale_plan import SPECIFICATION, catalogue
from flows.request import TrainRequest
from flows.training.steps import train

__all__ = ["worked"]

SIZES, DIFFERENT, ROWS = (4, 20), 4, 1_000_000
ROUNDS = 3
WAYS = {"threads": ["--threads", "2"], "local:2": ["--engine", "local:2"]}
ROOT = Path(__file__).parents[1]


def worked(folder: Path) -> dict[str, float]:
    """Return medians of wall and processor seconds of both ways, and their ratios."""
    os.chdir(folder)
    catalogue(Path("labelled.parquet"), 2_000, 0)
    Path("spec.toml").write_text(SPECIFICATION + '[output]\nmode = "slim"\n')
    train(TrainRequest(Path("spec.toml"), store=Path("models")))
    for i in range(DIFFERENT):
        _write(Path(f"part{i}.parquet"), i)
    for n in SIZES:
        Path(f"release-{n}").mkdir()
        for i in range(n):
            os.link(f"part{i % DIFFERENT}.parquet", f"release-{n}/{i:02d}.parquet")
    used: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for turn in range(ROUNDS):
        for n in SIZES:
            for way in sorted(WAYS, reverse=bool(turn % 2)):
                used.setdefault((way, n), []).append(_once(way, n))
                print(way, n, used[way, n][-1], flush=True)
    found: dict[str, float] = {"rounds": ROUNDS, "rows a file": ROWS}
    few, many = SIZES
    for place, what in enumerate(("wall", "processor")):
        seconds = {key: statistics.median(r[place] for r in runs) for key, runs in used.items()}
        found |= {f"{way}: {what} s of {n} files": x for (way, n), x in seconds.items()}
        found[f"ratio of {what}, {many} files"] = seconds["local:2", many] / seconds["threads", many]
        further = {way: seconds[way, many] - seconds[way, few] for way in WAYS}
        found[f"ratio of {what}, further files"] = further["local:2"] / further["threads"]
    return found


def _write(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    late = rng.random(ROWS) < 0.5
    columns = {"id": np.arange(ROWS) + ROWS * seed, "x": rng.normal(late), "y": rng.normal(late)}
    pq.write_table(pa.table(columns), path, row_group_size=250_000)


def _once(way: str, n: int) -> tuple[float, float]:
    """Classify; return the seconds on the wall, and those of the processor."""
    shutil.rmtree("out", ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "flows",
        "classify",
        f"release-{n}",
        "--model",
        "plan",
        "--store",
        "models",
    ]
    command += ["--out", "out", "--direct", "--quiet", *WAYS[way]]
    began = time.perf_counter()
    with Path("log").open("wb") as log:
        child = subprocess.Popen(  # noqa: S603  our own command
            command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log
        )
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(Path("log").read_text())
    return time.perf_counter() - began, used.ru_utime + used.ru_stime
