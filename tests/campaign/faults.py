"""Runs whose disk fills, whose output becomes read-only, that are told to stop, or that meet another run."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.campaign.harm import harm_of_rerun, harm_of_stop, phase
from tests.campaign.kills import UNTOLD, Bench
from tests.campaign.material import Scenario
from tests.campaign.tally import Line

DISK = 64_000_000
"""Bytes of the small disk: far more than an output needs, filled in a moment."""
TOO_SMALL = 20_000
BALLAST = ".ballast"
NO_ROOT = "only root can mount a small disk"


def told_to_stop(
    bench: Bench, scenario: Scenario, number: signal.Signals, times: int, rng: random.Random
) -> Line:
    """Send SIGTERM or SIGINT at random times: the exit status says so, or that all was done already."""
    good = {signal.SIGTERM: {0, 143}, signal.SIGINT: {0, 130}}[number]
    return _each(bench, scenario, number.name, times, rng, lambda _, pid: os.kill(pid, number), good)


def full_disk(bench: Bench, scenario: Scenario, times: int, rng: random.Random) -> Line:
    """Fill the disk at random times; then too small a disk, which is refused before anything is written."""
    if os.geteuid() != 0:
        return Line(f"{scenario.name}: full disk", skipped=NO_ROOT)

    def empty(out: Path) -> None:
        (out / BALLAST).unlink(missing_ok=True)

    with _disk(scenario.folder / "out", DISK):
        line = _each(bench, scenario, "full disk", times, rng, lambda out, _: _fill(out), {0, 1}, undo=empty)
    with _disk(scenario.folder / "out", TOO_SMALL) as out:
        untrue = bench.run(scenario, out) != 1 or "but the output needs about" not in bench.errors
        written = len(list(out.iterdir()))
        line.add(Counter({"untrue": int(untrue), "half-written": written}), "refused")
    return line


def read_only(bench: Bench, scenario: Scenario, times: int, rng: random.Random) -> Line:
    """Make the output folder read-only at random times; by a mount, since modes do not stop root."""
    if os.geteuid() != 0:
        return Line(f"{scenario.name}: read-only", skipped=NO_ROOT)

    def seal(out: Path, _: int) -> None:
        # What is open stays writable, as on a file system that the kernel has made read-only after an error.
        _mount("--bind", "-o", "ro", out, out)

    with _disk(scenario.folder / "out", DISK):
        return _each(bench, scenario, "read-only", times, rng, seal, {0, 1}, undo=_unmount)


def two_at_once(bench: Bench, other: Bench, scenario: Scenario, times: int, rng: random.Random) -> Line:
    """Start the same run twice, a moment apart: one may be refused, in words; the result is that of one run."""
    line = Line(f"{scenario.name}: two at once")
    longest = bench.length(scenario)[0]
    for _ in range(times):
        out = scenario.prepare(scenario.folder / "out")
        bench.start(scenario, out)
        time.sleep(rng.uniform(0, longest))
        other.start(scenario, out)
        statuses = sorted((bench.zygote.wait(), other.zygote.wait()))
        errors = bench.errors + other.errors
        harm = harm_of_rerun(scenario, out)
        refused = statuses == [0, 1] and "another run is writing" in errors
        harm["untrue"] += not (refused or statuses == [0, 0])
        line.add(harm, "one was refused" if refused else "both ended well", where=errors)
        shutil.rmtree(out)
    return line


def _each(
    bench: Bench,
    scenario: Scenario,
    what: str,
    times: int,
    rng: random.Random,
    disturb: Callable[[Path, int], object],
    good: set[int],
    *,
    undo: Callable[[Path], object] = lambda _: None,
) -> Line:
    """Disturb runs at random times; look, undo what was done, run again, look."""
    line = Line(f"{scenario.name}: {what}")
    longest = bench.length(scenario)[0]
    for _ in range(times):
        out = scenario.prepare(scenario.folder / "out")
        pid = bench.start(scenario, out)
        time.sleep(rng.uniform(0, longest))
        with suppress(ProcessLookupError):
            disturb(out, pid)
        status = bench.zygote.wait()
        harm, seen = harm_of_stop(scenario, out), phase(scenario, out)
        # Before the command line has begun, and once it is done, a signal ends the program as it ends any other.
        outside = seen in {"not begun", "finished"} and status in {-signal.SIGTERM, -signal.SIGINT}
        said = status in good and not any(words in bench.errors for words in UNTOLD)
        harm["untrue"] += not (outside or said)
        where = f"{line.what}, exit status {status}: {bench.errors}"
        undo(out)
        harm += bench.rerun(scenario, out)
        line.add(harm, seen, where=where)
        _remove(out)
    return line


@contextmanager
def _disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a small disk at a folder, which goes with it."""
    folder.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    try:
        yield folder
    finally:
        _unmount(folder)
    folder.rmdir()


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", folder], check=True, capture_output=True)


def _fill(folder: Path) -> None:
    """Take all the room that is left."""
    with (folder / BALLAST).open("wb", buffering=0) as ballast, suppress(OSError):
        block = bytes(1_000_000)
        while True:
            if ballast.write(block) < len(block):
                block = block[:4096]


def _remove(out: Path) -> None:
    """Remove an output folder; of a disk, what is on it."""
    for path in out.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    if not out.is_mount():
        out.rmdir()
