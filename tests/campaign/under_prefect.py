"""Runs under Prefect: killed by SIGKILL, cut off from their server, orphaned by their worker, started twice at once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

import psutil

from flows.runs.lock import LOCK, Owner
from tests.campaign.deployed import deploy
from tests.campaign.harm import Harm, harm_of_rerun, harm_of_stop, phase
from tests.campaign.material import Scenario
from tests.campaign.tally import Line
from tests.e2e.running import Prefect, wait_for

FINAL = frozenset({"COMPLETED", "FAILED", "CRASHED", "CANCELLED"})
WHOLE = frozenset({"finished", "tidying up"})
Show = Callable[[Line], Line]


@dataclass
class Team:
    """A server and a worker that can be stopped and started, and runs of deployments."""

    prefect: Prefect
    stack: ExitStack
    server: Popen[bytes] | None = None
    worker: Popen[bytes] | None = None

    def start_server(self) -> None:
        self.server = self.stack.enter_context(self.prefect.server())

    def start_worker(self) -> None:
        self.worker = self.stack.enter_context(self.prefect.worker("blr"))

    def begin(self, scenario: Scenario, out: Path) -> str:
        """Start a run of the scenario's deployment; return its id."""
        path = f"/deployments/{self.prefect.deployment(scenario.flow)['id']}/create_flow_run"
        # Of the pool's own queue: that of the deployment may have a limit, and nobody waits here.
        body = {"parameters": scenario.deployed(out), "work_queue_name": "default"}

        def made() -> str:
            with suppress(OSError):
                status, run = self.prefect.ask("POST", path, body)
                assert status in (201, 503), run  # 503: its database is busy
                return str(run["id"]) if status == 201 else ""
            return ""

        return wait_for(made, "a run to be made")

    def state(self, run: str) -> str:
        """Return the state that the server tells, nothing while it is away."""
        with suppress(OSError):
            status, told = self.prefect.ask("GET", f"/flow_runs/{run}")
            return str(told["state_type"]) if status == 200 else ""
        return ""

    def ended(self, run: str) -> str:
        """Return the state in which a run has ended."""

        def end() -> str:
            state = self.state(run)
            return state if state in FINAL else ""

        return wait_for(end, f"the end of run {run}", patience=400)

    def process(self, run: str) -> int:
        """Return the process of a run as soon as there is one."""
        return wait_for(lambda: self._child(run), f"a process of run {run}")

    def working(self, run: str, out: Path) -> int:
        """Return the process of a run as soon as it has the output folder to itself; 0 where it has ended before."""

        def owner() -> int:
            owner = Owner.read(out / LOCK)
            if owner is not None and owner.run == run:
                return owner.pid
            return -1 if self.state(run) in FINAL else 0

        return max(wait_for(owner, f"run {run} at work", between=0.01), 0)

    def _child(self, run: str) -> int:
        assert self.worker is not None
        for child in psutil.Process(self.worker.pid).children(recursive=True):
            with suppress(psutil.Error):
                if child.environ().get("PREFECT__FLOW_RUN_ID") == run:
                    return child.pid
        return 0


@contextmanager
def team(folder: Path, survey: Path) -> Iterator[Team]:
    """Start a server, deploy the flows, start a worker; end all after the block."""
    with ExitStack() as stack:
        team = Team(Prefect(folder), stack)
        team.start_server()
        deploy(team.prefect, survey, {"classify": [], "reprocess": []})
        team.start_worker()
        yield team


def under_prefect(
    scenarios: list[Scenario], times: int, rng: random.Random, folder: Path, show: Show
) -> list[Line]:
    """Do to runs under Prefect what can be done to them: kills, a fifth of `times`, and a few of the others."""
    each, few = -(-times // 20), -(-times // 50)
    begun, replaced, _, released, following = scenarios
    with team(folder, begun.folder) as its:
        return [
            show(server_away(its, released, few, rng)),
            show(worker_killed(its, released, few, rng)),
            show(two_runs(its, released, few)),
            *(show(killed(its, s, each, rng)) for s in (replaced, released, following, begun)),
        ]


def killed(its: Team, scenario: Scenario, times: int, rng: random.Random) -> Line:
    """Kill the runs' processes: in turns while they work, and at any time; a new run follows.

    The same run tried again is left out: the worker reports the crash some twenty seconds after the run's own runner
    has, over whatever state the run has by then (Prefect 3.8.8; docs/operations.md).
    """
    line = Line(f"{scenario.name}: SIGKILL under a worker")
    whole, work = _length(its, scenario)
    for i in range(times):
        out = scenario.prepare(scenario.folder / "out")
        run = its.begin(scenario, out)
        at_work = i % 2 == 0
        pid = its.working(run, out) if at_work else its.process(run)
        time.sleep(rng.uniform(0, 1.05 * (work if at_work else whole)))
        if pid:
            _kill(pid)
        line.add(*_judged(its, scenario, out, run), where=f"{line.what} {i}")
    return line


def server_away(its: Team, scenario: Scenario, times: int, rng: random.Random) -> Line:
    """Kill the server, or ask it to end, while a run works; start it again some seconds later."""
    line = Line(f"{scenario.name}: server restarted")
    for i in range(times):
        out = scenario.prepare(scenario.folder / "out")
        run = its.begin(scenario, out)
        its.working(run, out)
        assert its.server is not None
        its.server.send_signal(signal.SIGTERM if i % 2 else signal.SIGKILL)
        its.server.wait()
        time.sleep(rng.uniform(0, 10))
        its.start_server()
        line.add(*_judged(its, scenario, out, run), where=line.what)
    return line


def worker_killed(its: Team, scenario: Scenario, times: int, rng: random.Random) -> Line:
    """Kill the worker alone while its run works: that ends well or crashes, and its state says which."""
    line = Line(f"{scenario.name}: worker killed")
    _, work = _length(its, scenario)
    for _ in range(times):
        out = scenario.prepare(scenario.folder / "out")
        run = its.begin(scenario, out)
        its.working(run, out)
        time.sleep(rng.uniform(0, work))
        assert its.worker is not None
        its.worker.kill()
        its.worker.wait()
        its.start_worker()
        line.add(*_judged(its, scenario, out, run), where=line.what)
    return line


def two_runs(its: Team, scenario: Scenario, times: int) -> Line:
    """Start two runs of one output folder: one may fail, its message says why."""
    line = Line(f"{scenario.name}: two runs under a worker")
    for _ in range(times):
        out = scenario.prepare(scenario.folder / "out")
        runs = [its.begin(scenario, out) for _ in range(2)]
        states = sorted(its.ended(run) for run in runs)
        harm = harm_of_rerun(scenario, out)
        failed = [run for run in runs if its.state(run) == "FAILED"]
        told = all("another run is writing" in its.prefect.logs({"id": run}) for run in failed)
        harm["untrue"] += states not in (["COMPLETED", "COMPLETED"], ["COMPLETED", "FAILED"]) or not told
        line.add(harm, "one was refused" if failed else "both ended well", where=f"{line.what} {states}")
        shutil.rmtree(out)
    return line


def _judged(its: Team, scenario: Scenario, out: Path, run: str) -> tuple[Harm, str]:
    """Return the harm of what was done to a run, and of a run after it; and how it ended."""
    state, seen = its.ended(run), phase(scenario, out)
    harm = harm_of_stop(scenario, out)
    harm["untrue"] += state not in ("COMPLETED", "CRASHED") or (state == "COMPLETED" and seen not in WHOLE)
    run = its.begin(scenario, out)
    harm["untrue"] += its.ended(run) != "COMPLETED"
    harm += harm_of_rerun(scenario, out)
    shutil.rmtree(out)
    return harm, f"{seen} ({state.lower()})"


def _length(its: Team, scenario: Scenario) -> tuple[float, float]:
    """Return the seconds of an undisturbed run from its process to its end, and those of its work."""
    out = scenario.prepare(scenario.folder / "out")
    run = its.begin(scenario, out)
    its.process(run)
    began = time.monotonic()
    its.working(run, out)
    at_work = time.monotonic()
    wait_for(lambda: not (out / LOCK).exists(), "the end of the work", between=0.01)
    done = time.monotonic()
    assert its.ended(run) == "COMPLETED", its.prefect.logs({"id": run})
    shutil.rmtree(out)
    return time.monotonic() - began, done - at_work


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
