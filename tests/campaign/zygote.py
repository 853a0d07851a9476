"""Command lines in processes of their own that need not import anything: forked from one process that has.

`blr` takes seconds to import itself, and a campaign wants to stop hundreds of runs while they work.  A child here is
a process of its own, with its own id, signals, output and working directory, and runs the command line as `blr` does.
It may be told to send itself a signal at a step: the n-th time that it is about to change something in the file system.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.e2e.running import clean_environment, end

ROOT = Path(__file__).resolve().parents[2]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
WORK = (
    "flows.classification.steps",
    "flows.cli.app",
    "flows.cli._release",
    "flows.release.draft",
    "flows.reports.release_page",
)
"""What the runs import: here once for all of them."""
CHANGES = frozenset(
    {"os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.truncate", "fcntl.flock"}
)
"""Audit events before something changes, https://docs.python.org/3/library/audit_events.html; and opening to write."""


@dataclass
class Zygote:
    """The process that forks, seen from outside."""

    process: subprocess.Popen[bytes]

    def start(
        self,
        arguments: list[str],
        *,
        cwd: Path,
        log: Path,
        step: int = 0,
        number: int = signal.SIGKILL,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Run `blr` with these arguments; return its process, which sends itself a signal at a step, if one is told."""
        told = {"arguments": arguments, "cwd": str(cwd), "log": str(log), "step": step, "number": number}
        return int(self._ask(told | {"environment": {**(environment or {})}}))

    def wait(self, pid: int = 0) -> int:
        """Return the exit status of a child, the last or this one, negative for a signal, once it has ended."""
        return int(self._ask({"wait": pid}))

    def run(self, arguments: list[str], **told: Any) -> int:
        """Start, with what `start` takes, and wait."""
        self.start(arguments, **told)
        return self.wait()

    def _ask(self, told: dict[str, Any]) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(told).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode()
        assert answer, "the process that forks has ended"
        return answer


@contextmanager
def zygote() -> Iterator[Zygote]:
    """Start the process that forks; end it after the block."""
    command = [sys.executable, "-m", "tests.campaign.zygote"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield Zygote(process)
    finally:
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        end(process)


def steps_in(log: Path) -> int:
    """Return how many steps a child took that ended by itself."""
    return int(log.with_suffix(".steps").read_text())


class _Steps:
    """Counts what a process does to the file system, and sends it a signal before one of these."""

    def __init__(self, last: int, number: int) -> None:
        self.taken, self._last, self._number, self._on = 0, last, number, True
        sys.addaudithook(self._hear)

    def stop(self) -> None:
        self._on = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on or not (event in CHANGES or (event == "open" and arguments[2] & WRITES)):
            return
        self.taken += 1
        if self.taken == self._last:
            os.kill(os.getpid(), self._number)


def _child(told: dict[str, Any]) -> None:
    """Be `blr`: never returns."""
    from flows.cli.app import run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    os.chdir(told["cwd"])
    os.environ.update(told["environment"])
    log = Path(told["log"])
    quiet = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    errors = os.open(log.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor, number in ((quiet, 0), (output, 1), (errors, 2)):
        os.dup2(descriptor, number)
    steps = _Steps(told["step"], told["number"])
    status = run(told["arguments"])
    steps.stop()
    sys.stdout.flush()
    sys.stderr.flush()
    log.with_suffix(".steps").write_text(str(steps.taken))
    os._exit(status)  # as forked: what waits to be done at the exit is the parent's


def main() -> None:
    """Fork a child for each line, or wait for one."""
    for module in WORK:
        import_module(module)
    pid = 0
    for line in sys.stdin.buffer:
        told = json.loads(line)
        if "wait" in told:
            answer = os.waitstatus_to_exitcode(os.waitpid(told["wait"] or pid, 0)[1])
        else:
            answer = pid = os.fork()
            if pid == 0:
                _child(told)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
