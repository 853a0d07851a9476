"""Processor time of the process that starts a classification, where each file is an order of its own.

Each run is a process of its own: `python -m benchmarks.scale_driver FOLDER FILES ENGINE LARGEST`.  The files have 20
rows, and the number of rows that make an order is set to one.  `LARGEST` is how many orders a task of Dask's may have;
1 sends each by itself.  `ENGINE` is `local:2`, whose scheduler is in the same process, or `scheduler`, a process of its
own with two workers.  Counted is all of `blr classify` but the start of Python: plan, orders, reports, names, report.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.scale_plan import SPECIFICATION, catalogue, scheduler_here
from flows.classification import _plan
from flows.classification.steps import classify
from flows.engines import _dask
from flows.request import ClassifyRequest, TrainRequest
from flows.training.steps import train

__all__ = ["driven"]

ROWS = 20
SIZES = (500, 2_000)
ENGINES = ("local:2", "scheduler")
LARGEST = {"one order a task": 1, "in batches": _dask.LARGEST}
ROUNDS = 3
ROOT = Path(__file__).parents[1]


def driven(folder: Path) -> dict[str, float]:
    """Return medians of the driver's milliseconds a file; the variants take turns.

    `further` are those of each file between the first 500 and the last of 2,000: without what a run costs anyway.
    """
    os.chdir(folder)
    catalogue(Path("labelled.parquet"), 2_000, 0)
    Path("spec.toml").write_text(SPECIFICATION)
    train(TrainRequest(Path("spec.toml"), store=Path("models")))
    for n in SIZES:
        Path(f"release-{n}").mkdir()
        for i in range(n):
            catalogue(Path(f"release-{n}") / f"{i:05d}.parquet", ROWS, i)
    measured: dict[str, dict[int, list[float]]] = {}
    for _ in range(ROUNDS):
        for engine in ENGINES:
            for n in SIZES:
                for name, largest in LARGEST.items():
                    key = f"{engine}, {name}"
                    used = _in_a_process(folder, n, engine, largest)
                    print(key, n, round(1000 * used / n, 2), "ms a file", flush=True)
                    measured.setdefault(key, {}).setdefault(n, []).append(used)
    few, many = SIZES
    found: dict[str, float] = {"rounds": ROUNDS}
    for key, used_by_size in measured.items():
        seconds = {n: statistics.median(rounds) for n, rounds in used_by_size.items()}
        found |= {f"{key}: ms a file of {n}": 1000 * s / n for n, s in seconds.items()}
        found[f"{key}: ms a further file"] = 1000 * (seconds[many] - seconds[few]) / (many - few)
    return found


def _in_a_process(folder: Path, n: int, engine: str, largest: int) -> float:
    command = [sys.executable, "-m", "benchmarks.scale_driver", str(folder), str(n), engine, str(largest)]
    done = subprocess.run(  # noqa: S603  our own command
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(json.loads(done.stdout.splitlines()[-1]))


def _classified(folder: Path, n: int, engine: str, largest: int) -> float:
    """Classify once; return the seconds of this process."""
    os.chdir(folder)
    shutil.rmtree("out", ignore_errors=True)
    _plan.ROWS_A_TASK, _dask.LARGEST = 1, largest
    place = folder / "scheduler"
    place.mkdir(exist_ok=True)
    started: Any = scheduler_here(place) if engine == "scheduler" else nullcontext((engine, None))
    with started as (address, _):
        request = ClassifyRequest(
            [Path(f"release-{n}")], model="plan", store=Path("models"), out=Path("out"), engine=str(address)
        )
        before = time.process_time()
        classify(request)
        used = time.process_time() - before
    (place / "scheduler.json").unlink(missing_ok=True)
    return used


if __name__ == "__main__":
    print(json.dumps(_classified(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))))
