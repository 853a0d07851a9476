"""Scheduled `reprocess` runs, one after another, and what they leave behind: memory and database.

A real server with its services, a real worker, a schedule that is due every few seconds; the release stays as it is,
so that after the first run every run finds nothing to do, which is what most nights are.  Fails where a run does, or
where memory grows.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.campaign.deployed import deploy
from tests.e2e.running import Prefect, wait_for
from tests.e2e.survey import make_survey

RUNS = 200
EVERY = 10
"""Seconds between scheduled runs: about what one takes, so that there mostly is a next one.  Much less, and it is the
runs that are late that the server is busy with."""
SAMPLES = 20
GROWTH = 1.25
"""More than the last quarter may have over the second one, when caches are warm."""


@dataclass(frozen=True)
class Sample:
    """What there is after so many runs, in MB."""

    runs: int
    seconds: float
    server: float
    worker: float
    database: float

    def __str__(self) -> str:
        return (
            f"{self.runs:4} runs {self.seconds:7.0f} s   server {self.server:6.1f} MB   "
            f"worker {self.worker:6.1f} MB   database {self.database:6.1f} MB"
        )


def memory(pid: int, *, children: bool = False) -> float:
    """Return the resident memory of a process in MB: a worker's children are the runs, a server's are the server."""
    process = psutil.Process(pid)
    counted = [process, *(process.children(recursive=True) if children else ())]
    return float(sum(each.memory_info().rss for each in counted) / 1e6)


def counted(prefect: Prefect, *states: str) -> int:
    """Return how many runs are in these states; a server may be slow to tell."""
    wanted = {"flow_runs": {"state": {"type": {"any_": list(states)}}}}

    def told() -> tuple[int, Any] | None:
        try:
            return prefect.ask("POST", "/flow_runs/count", wanted)
        except TimeoutError:
            return None

    answer = wait_for(told, "a count of runs")
    assert answer is not None
    return int(answer[1])


def database(home: Path) -> float:
    """Return the size of the database with its journal, in MB."""
    return sum(path.stat().st_size for path in home.glob("prefect.db*")) / 1e6


def soak(folder: Path, runs: int) -> tuple[list[Sample], list[float]]:
    """Run; print and return samples, and how many seconds each of the last runs took."""
    survey = make_survey(folder / "survey")
    prefect, samples = Prefect(folder), []
    with prefect.server() as server:
        deploy(prefect, survey, {"reprocess": [{"interval": EVERY, "slug": "soak"}]})
        with prefect.worker("blr") as worker:
            start = time.monotonic()
            done, step = 0, max(runs // SAMPLES, 1)
            while done < runs:
                wanted = min((done // step + 1) * step, runs)
                done = _after(prefect, done, wanted)
                size = database(folder / "home")
                memories = memory(server.pid, children=True), memory(worker.pid)
                samples.append(Sample(done, time.monotonic() - start, *memories, size))
                print(samples[-1], flush=True)
            return samples, times(prefect)


def _after(prefect: Prefect, done: int, wanted: int) -> int:
    """Wait until that many runs have ended well; return how many have."""
    while done < wanted:
        before = done

        def another(before: int = before) -> int:
            failed = counted(prefect, "FAILED", "CRASHED")
            assert not failed, f"{failed} runs failed after {before} that did not"
            found = counted(prefect, "COMPLETED")
            return found if found > before else 0

        done = wait_for(another, f"a run after {before}", between=2)
    return done


def times(prefect: Prefect) -> list[float]:
    """Return the seconds of the newest runs, from the moment that the flow begins."""
    newest = {
        "sort": "END_TIME_DESC",
        "limit": 200,
        "flow_runs": {"state": {"type": {"any_": ["COMPLETED"]}}},
    }
    return [float(run["total_run_time"]) for run in prefect.ask("POST", "/flow_runs/filter", newest)[1]]


def flat(samples: list[Sample]) -> bool:
    """Print whether memory stayed flat and how the database grows."""
    quarter = max(len(samples) // 4, 1)
    early, late = samples[quarter : 2 * quarter] or samples[:1], samples[-quarter:]
    good = True
    for kind in ("server", "worker"):
        before = statistics.median(getattr(s, kind) for s in early)
        after = statistics.median(getattr(s, kind) for s in late)
        good &= after < GROWTH * before
        print(
            f"{kind}: {before:.1f} MB in the second quarter, {after:.1f} MB in the last: {after / before:.3f}, "
            f"{slope(samples, kind):+.1f} MB per 100 runs over the second half"
        )
    each = 10 * slope(samples, "database")
    print(
        f"database: {samples[-1].database:.1f} MB after {samples[-1].runs} runs, {each:.0f} kB a run over the second "
        f"half; one every quarter of an hour, kept for 30 days: {each * 96 * 30 / 1e6:.2f} GB"
    )
    return good


def slope(samples: list[Sample], kind: str) -> float:
    """Return by how many MB something grew, per 100 runs, over the second half."""
    half = samples[len(samples) // 2 :]
    if len(half) < 2:
        return 0.0
    found = statistics.linear_regression([s.runs for s in half], [getattr(s, kind) for s in half])
    return float(100 * found.slope)


def passes(folder: Path, runs: int) -> bool:
    """Print samples and figures; return whether memory stayed flat."""
    folder.mkdir()
    samples, took = soak(folder, runs)
    print(
        f"a run took {statistics.median(took):.1f} s (median), {max(took):.1f} s at most, of the last {len(took)}"
    )
    return flat(samples)
