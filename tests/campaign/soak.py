"""Scheduled `reprocess` runs, one after another, and what they leave behind: memory and database.

`python -m tests.campaign.soak [RUNS]`, 200 by default, part of `make campaign`.  A real server with its services, a
real worker, a schedule that is due every few seconds; the release stays as it is, so that after the first run every
run finds nothing to do, which is what most nights are.  Fails where a run does, or where memory grows.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.e2e.running import Prefect
from tests.e2e.survey import make_survey

RUNS = 200
EVERY = 2
"""Seconds between scheduled runs: less than one takes, so that there is always a next one."""
SAMPLES = 20
GROWTH = 1.25
"""More than the last quarter may have over the second one, when caches are warm."""
PATIENCE = 180.0
"""Seconds without a run that ends, after which something is stuck."""


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


def deploy(prefect: Prefect, survey: Path, schedules: list[dict[str, Any]]) -> None:
    """Deploy `reprocess` as a team does, with these schedules, one run at a time."""
    prefect.cli("deployments", "--out", "prefect.yaml", cwd=survey, program="blr")
    told: dict[str, Any] = yaml.safe_load((survey / "prefect.yaml").read_text())
    (reprocess,) = (entry for entry in told["deployments"] if entry["name"] == "reprocess")
    reprocess["schedules"] = schedules
    (survey / "prefect.yaml").write_text(yaml.safe_dump(told))
    prefect.cli("work-pool", "create", "blr", "--type", "process", cwd=survey)
    prefect.cli("work-queue", "create", "nightly", "--pool", "blr", "--limit", "1", cwd=survey)
    prefect.cli("--no-prompt", "deploy", "--name", "reprocess", cwd=survey)


def counted(prefect: Prefect, *states: str) -> int:
    """Return how many runs are in these states."""
    wanted = {"flow_runs": {"state": {"type": {"any_": list(states)}}}}
    return int(prefect.ask("POST", "/flow_runs/count", wanted)[1])


def database(home: Path) -> float:
    """Return the size of the database with its journal, in MB."""
    return sum(path.stat().st_size for path in home.glob("prefect.db*")) / 1e6


def soak(folder: Path, runs: int) -> list[Sample]:
    """Run; print and return samples."""
    survey = make_survey(folder / "survey")
    prefect, samples = Prefect(folder), []
    with prefect.server() as server:
        deploy(prefect, survey, [{"interval": EVERY, "slug": "soak"}])
        with prefect.worker("blr") as worker:
            start = last = time.monotonic()
            done = 0
            while done < runs:
                before, done = done, counted(prefect, "COMPLETED")
                failed = counted(prefect, "FAILED", "CRASHED")
                assert not failed, f"{failed} of {done + failed} runs failed: {prefect.find('flow_runs')[0]}"
                assert prefect.answers()
                now = time.monotonic()
                last = now if done > before else last
                assert now - last < PATIENCE, f"no run ended for {PATIENCE:.0f} s, after {done}"
                if done // max(runs // SAMPLES, 1) > before // max(runs // SAMPLES, 1):
                    size = database(folder / "home")
                    samples.append(
                        Sample(done, now - start, memory(server.pid, children=True), memory(worker.pid), size)
                    )
                    print(samples[-1], flush=True)
                time.sleep(2)  # between looks; what is looked for is `done`
    return samples


def verdict(samples: list[Sample]) -> bool:
    """Print whether memory stayed flat and how the database grows."""
    quarter = max(len(samples) // 4, 1)
    early, late = samples[quarter : 2 * quarter] or samples[:1], samples[-quarter:]
    flat = True
    for kind in ("server", "worker"):
        before = statistics.median(getattr(s, kind) for s in early)
        after = statistics.median(getattr(s, kind) for s in late)
        flat &= after < GROWTH * before
        print(
            f"{kind}: {before:.1f} MB in the second quarter, {after:.1f} MB in the last: {after / before:.3f}"
        )
    first, last = samples[0], samples[-1]
    each = 1000 * (last.database - first.database) / max(last.runs - first.runs, 1)
    print(
        f"database: {last.database:.1f} MB after {last.runs} runs, {each:.0f} kB a run; one every quarter of an hour, "
        f"kept for 30 days: {each * 96 * 30 / 1e6:.2f} GB"
    )
    return flat


def main() -> int:
    """Print samples and the verdict; 1 where memory grew."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    with tempfile.TemporaryDirectory(prefix="blr-soak-") as name:
        samples = soak(Path(name), runs)
    return 0 if verdict(samples) else 1


if __name__ == "__main__":
    sys.exit(main())
