"""Time and memory of the classification of 10⁸ and 3·10⁸ rows, and of 10⁹ with a kill in the middle.

A release of so many rows has a file a million rows: names (hard links) of four files that differ, so that the input
takes little of the disk.  `blr classify` writes slim copies; the blocks of each copy are given back to the disk once
the run has hashed it and written its record, its size and time stay.  Processor time and peak resident memory are those
of the whole process, start included.

    python benchmarks/bench_volume.py [ROWS ...] [--rounds 3] [--kill]

Sizes take turns.  With `--kill` the run is killed when a third of its files are done and started again; the costs of
both are added.  The results go to `results/volume.json`, a line a run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
from bench_classify import FEATURES, table
from two_types import LABELLED, MODEL, model_of

RESULT = Path(__file__).parent / "results" / "volume.json"
ROOT = Path(__file__).parents[1]
FILE_ROWS = 1_000_000
SIZES = (100_000_000, 300_000_000)
DIFFERENT = 4
"""Files that differ."""
SLIM = '[output]\nmode = "slim"\n'
TURN = 0.5
"""Seconds between two looks at the staging folder."""


def make(folder: Path) -> None:
    """Train a model, and write the files of which a release is made."""
    pq.write_table(table(20_000, 999_999, labelled=True), folder / LABELLED)
    model_of(folder, FEATURES, SLIM)
    for i in range(DIFFERENT):
        pq.write_table(table(FILE_ROWS, i), folder / f"part{i}.parquet", row_group_size=250_000)


def release(folder: Path, n_rows: int) -> Path:
    """Return a folder of so many rows."""
    made = folder / "release"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    for i in range(n_rows // FILE_ROWS):
        os.link(folder / f"part{i % DIFFERENT}.parquet", made / f"field{i:05}.parquet")
    return made


def give_back(files: Iterable[Path]) -> None:
    """Free the blocks of files on the disk; their sizes and times stay."""
    for path in files:
        seen = path.stat()
        command = ["fallocate", "--punch-hole", "--offset", "0", "--length", str(seen.st_size), str(path)]
        subprocess.run(command, check=True)  # noqa: S603
        os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def peak_mb(pid: int) -> float:
    """Return the most memory of a process so far: `ru_maxrss` begins with the memory of whoever started it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def once(folder: Path, out: Path, kill_at: float) -> tuple[float, float, float, bool]:
    """Classify the release; return wall and processor seconds, peak memory in MB, and whether it was killed.

    That is at a share of `kill_at` of the files, where it is below 1.
    """
    command = [sys.executable, "-m", "flows", "classify", "release", "--model", MODEL, "--store", "models"]
    command += ["--out", str(out), "--direct", "--quiet"]
    began = time.perf_counter()
    n_files = len(list((folder / "release").iterdir()))
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(  # noqa: S603  our own command
            command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log
        )
    given_back: set[Path] = set()
    killed, peak = False, 0.0
    while True:
        pid, status, used = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        peak = max(peak, peak_mb(child.pid))
        records = set(out.glob(".blr-staging/*/*.parquet.json")) - given_back
        give_back(file for record in records if (file := record.with_suffix("")).is_file())
        given_back |= records
        if len(given_back) > kill_at * n_files and not killed:
            killed = True
            child.send_signal(signal.SIGKILL)
        time.sleep(TURN)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode and not killed:
        raise SystemExit((folder / "log").read_text())
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, peak, killed


def measured(folder: Path, n_rows: int, *, kill: bool) -> dict[str, float]:
    """Return what the classification of so many rows takes."""
    release(folder, n_rows)
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    wall, processor, peak, killed = once(folder, out, 1 / 3 if kill else 1)
    cost = {"rows": n_rows, "killed": killed}
    if killed:
        again = once(folder, out, 1)
        wall, processor, peak = wall + again[0], processor + again[1], max(peak, again[2])
    copies = set(out.glob("field*.parquet"))
    n_done = len(copies)
    if n_done != n_rows // FILE_ROWS:
        raise SystemExit(f"got {n_done} annotated files, expected {n_rows // FILE_ROWS}")
    beside = sum(path.stat().st_size for path in out.rglob("*") if path.is_file() and path not in copies)
    return {
        **cost,
        "wall_s": round(wall, 1),
        "processor_s": round(processor, 1),
        "processor_us_a_row": round(1e6 * processor / n_rows, 4),
        "peak_mb": round(peak, 1),
        "bytes_a_file_beside_the_copies": round(beside / n_done, 1),
    }


def main() -> None:
    """Measure, and keep each run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", type=float, default=SIZES, help="rows, in millions at least")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kill", action="store_true")
    asked = parser.parse_args()
    kept: list[dict[str, float]] = json.loads(RESULT.read_text()) if RESULT.is_file() else []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        make(folder)
        for _ in range(asked.rounds):
            for n_rows in asked.rows:
                kept.append(measured(folder, int(n_rows), kill=asked.kill))
                print(kept[-1], flush=True)
                RESULT.write_text("[\n" + ",\n".join(json.dumps(run) for run in kept) + "\n]\n")
    for n_rows in sorted({run["rows"] for run in kept}):
        of_size = [run["processor_us_a_row"] for run in kept if run["rows"] == n_rows and not run["killed"]]
        if of_size:
            print(f"{n_rows:.0e} rows: {statistics.median(of_size):.3f} processor microseconds a row")


if __name__ == "__main__":
    main()
