"""A release of so many files planned and handed to the workers of a scheduler, whose tasks are empty.

The files are links to a few Parquet files of 50,000 rows: their footers are read, as those of any catalogue, and no row
of theirs.  Scheduler and workers are processes of this machine.  The manifest at the end lists as many outputs, whose
counts are those of a few hundred files that were annotated, taken again and again.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from distributed.protocol import serialize_bytes

from flows.classification import _plan, steps
from flows.classification.steps import classify
from flows.engines._dask import DaskEngine
from flows.request import ClassifyRequest, TrainRequest
from flows.runs.manifest import MANIFEST, Manifest
from flows.training.steps import train

__all__ = ["SPECIFICATION", "catalogue", "planned", "scheduler_here"]

ROWS = 50_000
LINKS = 20_000
"""Names that one file is given: a file system has a limit."""
ANNOTATED, FEW_ROWS = 300, 200
N_WORKERS = 2

SPECIFICATION = """
name = "plan"
[catalog]
paths = ["labelled.parquet"]
id = "id"
[label]
column = "class"
[features]
x = "x"
y = "y"
[select]
posterior = "laplace"
[[candidate]]
basis = { kind = "linear" }
"""


class HandedOut(Exception):  # noqa: N818  it is no error
    """All orders were carried out; nothing was annotated that could be published."""


class EmptyTasks(DaskEngine):
    """Hands out the orders of a classification to workers that do nothing, and counts."""

    counted: dict[str, float]
    scheduler: psutil.Process
    began: float
    processor: float

    def wait_for_workers(self) -> None:
        """Connect, and return once all workers are there."""
        self._client.wait_for_workers(N_WORKERS)
        list(super().map(nothing, [""] * N_WORKERS))  # they have imported what they need

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Generator[tuple[Any, Any]]:
        """Hand out all items, then raise `HandedOut`."""
        del work
        sent = {"orders": 0, "order_bytes": 0}

        def weighed() -> Iterator[Any]:
            for item in items:
                sent["orders"] += 1
                sent["order_bytes"] += len(serialize_bytes(item))
                yield item

        wall, mine, theirs = time.perf_counter(), time.process_time(), _used(self.scheduler)
        self.counted |= {"planning_s": wall - self.began, "planning_processor_s": mine - self.processor}
        for _ in super().map(nothing, weighed()):
            pass
        self.counted |= {
            **sent,
            "handing_out_s": time.perf_counter() - wall,
            "driver_processor_s": time.process_time() - mine,
            "scheduler_processor_s": _used(self.scheduler) - theirs,
        }
        raise HandedOut
        yield


def nothing(order: object) -> None:
    """Do nothing on a worker."""


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def catalogue(path: Path, n: int, seed: int) -> None:
    """Write a file of n rows, with labels."""
    rng = np.random.default_rng(seed)
    late = rng.random(n) < 0.5
    columns = {"id": np.arange(n) + n * seed, "x": rng.normal(late), "y": rng.normal(late)}
    pq.write_table(pa.table(columns | {"class": np.where(late, "late", "early")}), path)


@contextmanager
def scheduler_here(folder: Path) -> Iterator[tuple[Path, psutil.Process]]:
    """Run a scheduler and workers; give the scheduler's file, and its process."""
    file, root = folder / "scheduler.json", Path(__file__).parents[1]
    local = ["--scheduler-file", str(file), "--host", "127.0.0.1", "--no-dashboard"]
    kinds = [["scheduler", "--port", "0", *local]]
    kinds.append(
        ["worker", "--nworkers", str(N_WORKERS), "--nthreads", "1", "--local-directory", str(folder), *local]
    )
    running: list[subprocess.Popen[bytes]] = []
    try:
        for kind in kinds:
            command = [sys.executable, "-m", "dask", *kind]
            running.append(
                subprocess.Popen(  # noqa: S603  our own command
                    command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
            while not file.is_file():
                time.sleep(0.1)
        yield file, psutil.Process(running[0].pid)
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait()


def _listed(folder: Path, n: int) -> dict[str, float]:
    """Return the size of a manifest of n files, and how long it takes to be written and read."""
    few = Manifest.read(folder)
    if few is None:
        raise FileNotFoundError(folder / MANIFEST)

    def output(i: int) -> Any:
        digest = sha256(str(i).encode()).hexdigest()
        old = few.outputs[i % len(few.outputs)]
        source = replace(old.input, sha256=sha256(digest.encode()).hexdigest(), inode=old.input.inode + i)
        name = f"files/Norder=7/Dir={i // 10000 * 10000}/Npix={i}.parquet"
        return replace(
            old, name=name, sha256=digest, input=source, input_path=f"../{name}", inode=old.inode + i
        )

    many = folder / "many"
    many.mkdir()
    listed = replace(few, outputs=tuple(output(i) for i in range(n)))
    began = time.perf_counter()
    listed.write(many)
    written = time.perf_counter()
    Manifest.read(many)
    size = sum(p.stat().st_size for p in many.rglob("*") if p.is_file())
    return {
        "manifest_bytes": size,
        "manifest_bytes_a_file": size / n,
        "manifest_writing_s": written - began,
        "manifest_reading_s": time.perf_counter() - written,
    }


def planned(folder: Path, n: int) -> dict[str, float]:
    """Plan a release of n files, and hand it out; return what it took."""
    os.chdir(folder)
    catalogue(Path("labelled.parquet"), 2_000, 0)
    Path("spec.toml").write_text(SPECIFICATION)
    train(TrainRequest(Path("spec.toml"), store=Path("models")))
    few = Path("few")
    few.mkdir()
    for i in range(ANNOTATED):
        catalogue(few / f"{i}.parquet", FEW_ROWS, i)
    classify(ClassifyRequest([few], model="plan", store=Path("models"), out=Path("annotated")))
    listed = _listed(Path("annotated"), n)
    catalogue(Path("one.parquet"), ROWS, 1)
    many = Path("many")
    for i in range(n):
        if i % LINKS == 0:
            place = many / str(i // LINKS)
            place.mkdir(parents=True)
            (place / f"{i}.parquet").write_bytes(Path("one.parquet").read_bytes())
            first = place / f"{i}.parquet"
        else:
            os.link(first, place / f"{i}.parquet")
    counted: dict[str, float] = {}
    with scheduler_here(Path.cwd()) as (file, scheduler):
        engine = EmptyTasks(str(file))
        engine.wait_for_workers()
        vars(engine).update(
            counted=counted, scheduler=scheduler, began=time.perf_counter(), processor=time.process_time()
        )

        steps.chosen_engine, before = (lambda *_: engine), steps.chosen_engine
        room, _plan.check_room = _plan.check_room, lambda *_: ""  # nothing will be written
        try:
            with contextlib.suppress(HandedOut):
                classify(ClassifyRequest([many], model="plan", store=Path("models"), out=Path("out")))
        finally:
            steps.chosen_engine = before
            _plan.check_room = room
            engine.close()
    size = {"files": n, "rows": n * ROWS}
    each = {
        "planning_processor_ms_a_file": 1000 * counted["planning_processor_s"] / n,
        "driver_processor_ms_a_file": 1000 * counted["driver_processor_s"] / n,
        "driver_processor_ms_an_order": 1000 * counted["driver_processor_s"] / counted["orders"],
        "scheduler_processor_ms_an_order": 1000 * counted["scheduler_processor_s"] / counted["orders"],
        "order_bytes_a_file": counted["order_bytes"] / n,
    }
    return {**size, **counted, **each, **listed}
