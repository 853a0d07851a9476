"""Runs with `--engine` whose worker, scheduler or driver is killed by SIGKILL at a random time, each then run again.

Scheduler and workers are processes of this machine, started by the commands that a user types.  What a disturbed run
leaves is held against what threads make.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from flows.runs.release_store import STAGING_FOLDER as STAGING
from tests.campaign.harm import Harm, harm_of_stop, phase
from tests.campaign.kills import UNTOLD, Bench
from tests.campaign.material import Scenario
from tests.campaign.tally import Line
from tests.campaign.zygote import ROOT, Zygote
from tests.e2e.running import clean_environment, wait_for
from tests.e2e.survey import write_galaxies

VICTIMS = ("worker", "worker's machine", "scheduler", "driver")
"""What is killed: a worker, which its nanny starts again; nanny and worker, which nobody does; and the two others."""
N_WORKERS = 2
ONE_EACH = {"flows.classification._plan.ROWS_A_TASK": 1}
"""Each file is an order of its own, so that a kill comes between orders too."""
IN_SHARDS = {"flows.training._gather.MOST_IN_MEMORY": 200, "flows.training._rows.SHARD_ROWS": 100}
"""A training of few rows goes the way of many."""
LATER = 0.5
"""Seconds after so many files are done in which the kill comes, at most."""
TRAININGS = 0.2
"""The share of kills that come to trainings."""


AGAIN = 1 / 3
"""The share of runs that are run again with the engine; the others with threads."""


@dataclass
class Cluster:
    """A scheduler and workers, each a process with its own file of messages in a folder."""

    folder: Path
    scheduler: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def file(self) -> Path:
        """The scheduler's file, whose path stays the same when another one is started."""
        return self.folder / "scheduler.json"

    def mend(self) -> None:
        """Have a scheduler and all workers run, whatever was killed."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            self.stop()
            self.file.unlink(missing_ok=True)
            address = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
            self.scheduler = self._start("scheduler", *address)
            wait_for(self.file.exists, "the scheduler's file", between=0.02)
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < N_WORKERS:
            here = ["--host", "127.0.0.1", "--nworkers", "1", "--nthreads", "1", "--no-dashboard"]
            self.workers.append(
                self._start("worker", *here, "--local-directory", str(self.folder / "scratch"))
            )
        wait_for(lambda: all(map(_worker_of, self.workers)), "workers", between=0.02)

    def kill(self, victim: str, rng: random.Random) -> None:
        """Kill one of the processes."""
        if victim == "scheduler":
            assert self.scheduler is not None
            self.scheduler.kill()
            self.scheduler.wait()
            return
        nanny = rng.choice(self.workers)
        worker = _worker_of(nanny)
        if victim == "worker's machine":
            nanny.kill()
            nanny.wait()
        if worker is not None:
            kill(worker)

    def stop(self) -> None:
        """End all processes that were started here."""
        for process in [*self.workers, *filter(None, [self.scheduler])]:
            family = []
            with suppress(psutil.NoSuchProcess):
                family = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            for child in family:
                kill(child.pid)
        self.workers = []

    def _start(self, kind: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", kind, "--scheduler-file", str(self.file), *options]
        with (self.folder / f"{kind}.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_environment(),
                start_new_session=True,
            )  # fmt: skip


def _worker_of(nanny: subprocess.Popen[bytes]) -> int | None:
    """Return the process of the worker that a nanny watches, None for the moment in which there is none."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(nanny.pid).children():
            if any("spawn_main" in word for word in child.cmdline()):
                return child.pid
    return None


def kill(pid: int) -> None:
    """Kill a process that may have ended by itself."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def running(pid: int) -> bool:
    """Say whether a process has not ended yet."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Give a cluster that is not started yet, and end whatever of it runs after the block."""
    folder.mkdir()
    started = Cluster(folder)
    try:
        yield started
    finally:
        started.stop()


def with_engines(
    forks: Zygote,
    scenarios: list[Scenario],
    times: int,
    rng: random.Random,
    folder: Path,
    show: Callable[[Line], Line],
) -> list[Line]:
    """Kill what takes part in runs with an engine, so many times in all."""
    lines = [Line(f"engine: SIGKILL of the {victim}") for victim in VICTIMS]
    with cluster(folder / "cluster") as workers:
        options = ("--engine", str(workers.file))
        plain = Bench(forks, folder / "logs")
        benches = [
            Bench(forks, folder / "logs", options=options, settings=settings) for settings in (ONE_EACH, {})
        ]
        learned = Training.of(plain, scenarios[0].folder, options)
        for i in range(times):
            workers.mend()
            line = lines[i % len(lines)]
            disturb = Disturbance(workers, VICTIMS[i % len(lines)], line, rng)
            if rng.random() < TRAININGS:
                disturb.training(learned, plain)
            else:
                disturb.classification(rng.choice([scenarios[0], scenarios[4]]), rng.choice(benches), plain)
            if i % 20 == 19:
                print(f"after {i + 1} kills:", *lines, sep="\n", flush=True)
    return [show(line) for line in lines]


@dataclass(frozen=True)
class Disturbance:
    """One process killed in the middle of one run."""

    cluster: Cluster
    victim: str
    line: Line
    rng: random.Random

    def classification(self, scenario: Scenario, bench: Bench, plain: Bench) -> None:
        """Disturb a classification in a fresh output folder, look, run it again, look; count it."""
        n_done, delay = self.rng.randint(-3, len(scenario.inputs)), self.rng.uniform(0, LATER)
        out = scenario.prepare(scenario.folder / "out")
        pid = bench.start(scenario, out)

        def far_enough() -> bool:
            with suppress(FileNotFoundError):  # the run removes its staging just now
                return sum(1 for _ in out.glob(f"{STAGING}/*/**/*.json")) >= n_done or not running(pid)
            return False

        if n_done >= 0:
            wait_for(far_enough, f"{n_done} files", between=0.01)
        time.sleep(delay)
        seen = phase(scenario, out)
        harm = self._untrue(bench, pid)
        harm += harm_of_stop(scenario, out)
        again = bench if self.rng.random() < AGAIN else plain
        self.cluster.mend()
        harm += again.rerun(scenario, out)
        where = f"{self.line.what}, {scenario.name}, {len(bench.settings)} settings, {n_done} files"
        self.line.add(harm, seen, where=where)
        shutil.rmtree(out)

    def training(self, learned: Training, plain: Bench) -> None:
        """Disturb a training in a fresh store, look, train again, look; count it."""
        delay = self.rng.uniform(0, 1.05 * learned.seconds)
        pid = learned.start(plain, learned.options)
        time.sleep(delay)
        seen = "trained" if learned.models() else "training"
        harm = self._untrue(plain, pid)
        harm["half-written"] += sum(model != learned.model for model in learned.models().values())
        self.cluster.mend()
        again = learned.options if self.rng.random() < AGAIN else ()
        learned.start(plain, again)
        harm["untrue"] += plain.zygote.wait() != 0
        harm["other bytes"] += [*learned.models().values()] != [learned.model]
        harm["left over"] += len(learned.names() ^ learned.expected)
        self.line.add(
            harm, seen, where=f"{self.line.what}, training, {delay:.2f} s of {learned.seconds:.2f} s"
        )
        shutil.rmtree(learned.store)

    def _untrue(self, bench: Bench, pid: int) -> Harm:
        """Kill the victim; return whether the run has ended as it should, and told the user why."""
        if self.victim == "driver":
            kill(pid)
        else:
            self.cluster.kill(self.victim, self.rng)
        status = bench.zygote.wait()
        good = {"driver": {0, -signal.SIGKILL}, "scheduler": {0, 1}}.get(self.victim, {0})
        wrong = status not in good or any(words in bench.errors for words in UNTOLD)
        if wrong:
            print(f"{self.victim}: exit status {status}: {bench.errors}", flush=True)
        return Counter({"untrue": int(wrong)})


@dataclass(frozen=True)
class Training:
    """A training of rows in shards, and the model that threads make of it."""

    folder: Path
    options: tuple[str, ...]
    model: bytes = b""
    expected: frozenset[str] = frozenset()
    seconds: float = 0.0

    @classmethod
    def of(cls, bench: Bench, folder: Path, options: tuple[str, ...]) -> Training:
        """Train on threads."""
        text = (folder / "spec.toml").read_text()
        quick = text.replace("[features]", '[select]\nby = "evidence"\nposterior = "laplace"\n[features]')
        (folder / "quick.toml").write_text(quick.replace("labelled.parquet", "labelled*.parquet"))
        write_galaxies(
            folder / "labelled-too.parquet", 300, seed=7
        )  # of several files each is read by a worker
        training = cls(folder, options)
        began = time.monotonic()
        training.start(bench, ())
        assert bench.zygote.wait() == 0, bench.errors
        seconds = time.monotonic() - began
        (model,) = training.models().values()
        learned = replace(training, model=model, expected=training.names(), seconds=seconds)
        shutil.rmtree(training.store)
        return learned

    @property
    def store(self) -> Path:
        """The model store of each training, which lives as long as that."""
        return self.folder / "learned"

    def start(self, bench: Bench, options: tuple[str, ...]) -> int:
        """Start the training; return its process."""
        line = ["train", "quick.toml", "--store", self.store.name, "--direct", "--json", "--quiet", *options]
        settings: Mapping[str, Any] = IN_SHARDS
        return bench.zygote.start(line, cwd=self.folder, log=bench.log, settings=settings)

    def models(self) -> dict[str, bytes]:
        """Return the model files of the store."""
        return {str(path): path.read_bytes() for path in sorted(self.store.glob("*/*/model.asdf"))}

    def names(self) -> frozenset[str]:
        """Return the names of all files in the store."""
        return frozenset(str(p.relative_to(self.store)) for p in self.store.rglob("*") if p.is_file())
