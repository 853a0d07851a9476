"""Runs of the command line killed by SIGKILL, at random times and at random steps, each followed by a rerun."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from flows.runs.lock import LOCK
from tests.campaign.harm import Harm, finished, harm_of_rerun, harm_of_stop, phase
from tests.campaign.material import Scenario
from tests.campaign.tally import Line
from tests.campaign.zygote import Zygote, steps_in
from tests.e2e.running import PROGRAMS, clean_environment, running, wait_for

UNTOLD = ("Traceback", "This is an error in blr")
"""What no user should read, whatever was done to a run."""


@dataclass(frozen=True)
class Bench:
    """Where runs are tried: a process that forks them, and files for what they say."""

    zygote: Zygote
    logs: Path
    lengths: dict[str, tuple[float, int]] = field(default_factory=dict)

    def run(self, scenario: Scenario, out: Path, *, step: int = 0, number: int = signal.SIGKILL) -> int:
        """Run undisturbed, or until a step that brings a signal; return the exit status."""
        arguments = scenario.arguments(out)
        return self.zygote.run(arguments, cwd=scenario.folder, log=self.log, step=step, number=number)

    def start(self, scenario: Scenario, out: Path) -> int:
        """Start a run; return its process."""
        return self.zygote.start(scenario.arguments(out), cwd=scenario.folder, log=self.log)

    @property
    def log(self) -> Path:
        """What the last run has printed."""
        return self.logs / "run.json"

    @property
    def errors(self) -> str:
        """What the last run has said to the user."""
        return self.log.with_suffix(".err").read_text()

    def length(self, scenario: Scenario) -> tuple[float, int]:
        """Return how long an undisturbed run takes, in seconds and in steps; measured once."""
        if scenario.name not in self.lengths:
            self.lengths[scenario.name] = self._length(scenario)
        return self.lengths[scenario.name]

    def _length(self, scenario: Scenario) -> tuple[float, int]:
        took = []
        for _ in range(3):
            out = scenario.prepare(scenario.folder / "timed")
            start = time.monotonic()
            assert self.run(scenario, out) == 0, self.errors
            took.append(time.monotonic() - start)
            shutil.rmtree(out)
        return statistics.median(took), steps_in(self.log)

    def rerun(self, scenario: Scenario, out: Path) -> Harm:
        """Run again what was disturbed; return the harm that is left after it, or that the rerun did."""
        done = finished(scenario, out)
        harm: Harm = Counter()
        if self.run(scenario, out) != 0:
            print(self.errors)
            return Counter({"untrue": 1})
        told = json.loads(self.log.read_text())
        harm["done again"] = sum(file["to_do"] for name, file in told["files"].items() if name in done)
        harm += harm_of_rerun(scenario, out)
        harm["untrue"] += self.run(scenario, out) != 0
        harm["untrue"] += json.loads(self.log.read_text())["status"] != "nothing to do"
        return harm


def stopped(
    bench: Bench, scenario: Scenario, stop: Callable[[Path], object], line: Line, *, where: str = ""
) -> None:
    """Stop a run in a fresh output folder, look, run it again, look; count it."""
    out = scenario.prepare(scenario.folder / "out")
    stop(out)
    harm, seen = harm_of_stop(scenario, out), phase(scenario, out)
    harm += bench.rerun(scenario, out)
    line.add(harm, seen, where=where)
    shutil.rmtree(out)


def at_times(bench: Bench, scenario: Scenario, times: int, rng: random.Random) -> Line:
    """Kill runs at random times, from their first moment to a little after their last."""
    line = Line(f"{scenario.name}: SIGKILL at a time")
    longest = 1.05 * bench.length(scenario)[0]
    for _ in range(times):
        delay = rng.uniform(0, longest)

        def stop(out: Path, delay: float = delay) -> None:
            pid = bench.start(scenario, out)
            time.sleep(delay)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            bench.zygote.wait()

        stopped(bench, scenario, stop, line, where=f"{line.what}, {delay:.3f} s of {longest:.3f} s")
    return line


def at_steps(
    bench: Bench, scenario: Scenario, steps: list[int], number: signal.Signals = signal.SIGKILL
) -> Line:
    """Let runs send themselves a signal before these of their steps; one that can be handled is told of."""
    line = Line(f"{scenario.name}: {number.name} at a step")
    status = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    for step in steps:

        def stop(out: Path, step: int = step) -> None:
            found = bench.run(scenario, out, step=step, number=number)
            assert found in (status, 0), f"{found}: {bench.errors}"
            assert not any(words in bench.errors for words in UNTOLD), bench.errors

        stopped(bench, scenario, stop, line, where=f"{line.what} {step}")
    return line


def whole_programs(
    bench: Bench, scenario: Scenario, times: int, rng: random.Random, *, home: Path | None = None
) -> Line:
    """Kill `blr` itself, from its start: with --direct, or under `blr ui`, whose database is in `home`."""
    if home is None:
        return _killed(bench, scenario, times, rng, home=None)
    home.mkdir(exist_ok=True)
    environment = clean_environment() | {"PREFECT_HOME": str(home)}
    log = bench.logs / "ui.log"
    with running([PROGRAMS / "blr", "ui", "--no-open"], log, env=environment):
        wait_for(lambda: "its pages: " in log.read_text(), "the server")
        return _killed(bench, scenario, times, rng, home=home)


def _killed(bench: Bench, scenario: Scenario, times: int, rng: random.Random, *, home: Path | None) -> Line:
    kind = "blr under blr ui" if home else "blr --direct"
    line = Line(f"{scenario.name}: SIGKILL, {kind}")
    environment = clean_environment() | ({"PREFECT_HOME": str(home)} if home else {})
    command = [str(PROGRAMS / "blr"), *scenario.arguments(Path("out"), direct=home is None)]

    def start() -> subprocess.Popen[bytes]:
        with (bench.logs / "program.err").open("wb") as errors:
            return subprocess.Popen(
                command, cwd=scenario.folder, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
            )  # fmt: skip

    scenario.prepare(scenario.folder / "out")
    began = time.monotonic()
    assert start().wait() == 0, (bench.logs / "program.err").read_text()
    longest = 1.05 * (time.monotonic() - began)
    shutil.rmtree(scenario.folder / "out")
    for i in range(times):
        # A program mostly imports itself: every other one is let come to its work first.
        at_work = i % 2 == 1
        delay = rng.uniform(0, 1.05 * bench.length(scenario)[0] if at_work else longest)

        def stop(out: Path, delay: float = delay, *, at_work: bool = at_work) -> None:
            process = start()
            if at_work:
                wait_for(lambda: (out / LOCK).exists() or process.poll() is not None, "work", between=0.005)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=delay)
            process.kill()
            process.wait()

        stopped(bench, scenario, stop, line, where=f"{line.what}, {delay:.1f} s")
    if home is not None:
        _count_states(line, start, scenario, home)
    return line


def _count_states(
    line: Line, start: Callable[[], subprocess.Popen[bytes]], scenario: Scenario, home: Path
) -> None:
    """Run once more, undisturbed; no run before it may be said to be running still."""
    scenario.prepare(scenario.folder / "out")
    assert start().wait() == 0
    shutil.rmtree(scenario.folder / "out")
    with closing(sqlite3.connect(f"file:{home / 'prefect.db'}?mode=ro", uri=True)) as database:
        found = database.execute("SELECT state_type, count(*) FROM flow_run GROUP BY state_type").fetchall()
    states = Counter(dict(found))
    line.seen["said to have crashed"] += states["CRASHED"]
    line.harm["untrue"] += states["RUNNING"] + states["PENDING"]
