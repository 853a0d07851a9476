"""The user's Prefect server, one at a time on a database: who runs it, at which address, and who is at work there.

Two schedulers on one SQLite file would plan runs twice and block each other.  The lock is the system's, so that a
server that was killed leaves none behind.

Runs of the command line that were killed are marked as Crashed by the next command: the server was not told of their
end.  Runs of deployments are left to their worker.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flows.errors import UsageError
from flows.orchestration.settings import (
    Server,
    configured_server,
    prefect_environment,
    prefect_home,
    start_server,
)

__all__ = ["ServedHome", "connect", "crash_unended", "share", "start_home_server"]

MESSAGE = "its process was killed; the next run uses its finished files"
PATIENCE = 60.0


@dataclass(frozen=True)
class ServedHome:
    """The file in a Prefect home that is locked while a server runs on its database, and holds its address."""

    path: Path

    @classmethod
    def here(cls) -> ServedHome:
        """Return that of the user's home."""
        return cls(prefect_home() / "served-at")

    @contextmanager
    def ours(self) -> Iterator[ServedHome]:
        """Hold the home; UsageError where another server has it."""
        with self.path.open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"{self.path.parent}: got a database that another server uses "
                    f"({self.address() or 'starting'}): `blr ui` or `blr serve` runs in another terminal; "
                    "stop that one first, or set PREFECT_HOME to another folder for this one"
                ) from None
            try:
                yield self
            finally:
                with suppress(OSError):
                    self.path.write_text("", encoding="utf-8")

    def announce(self, url: str) -> None:
        """Write down the address, for others who ask."""
        self.path.write_text(url, encoding="utf-8")

    def address(self) -> str | None:
        """Return the address of the server that runs on this database; None where none does."""
        try:
            with self.path.open(encoding="utf-8") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return file.read() or None
        except OSError:
            pass
        return None


def connect(*, console_level: str = "WARNING") -> str | None:
    """Give Prefect's environment the server that is configured or running; return a line that names it.

    None where there is none, and nothing has changed then.  Where the server is that of `blr ui` or `blr serve`, runs
    that were killed are marked as Crashed.
    """
    if configured_server() is not None:
        return prefect_environment(console_level=console_level)
    running = ServedHome.here().address()
    if running is None:
        return None
    prefect_environment(console_level=console_level)
    os.environ["PREFECT_API_URL"] = f"{running}/api"
    alone_at = share(prefect_home())
    if alone_at:
        crash_unended(running, alone_at)
    return f"Prefect: server {running}"


def start_home_server(port: int | None, *, console_level: str = "WARNING") -> tuple[str, Server]:
    """Start the server of the home, which other commands find; return a line about its database, and the server.

    It is at the port that was asked for, else at Prefect's usual one, or at any where that is taken.  It ends with this
    process.
    """
    line = prefect_environment(console_level=console_level)
    home = ServedHome.here()
    held = ExitStack()
    held.enter_context(home.ours())
    atexit.register(held.close)
    try:
        server = start_server(home.path.parent, 4200 if port is None else port)
    except OSError:
        if port is not None:
            raise
        server = start_server(home.path.parent, 0)
    home.announce(server.url)
    return line, server


AT_WORK = "at-work"
"""File of a home that all commands at work in it hold a shared lock on."""


@cache
def share(home: Path) -> datetime | None:
    """Take part in a home until this process ends; return the time of it, if nobody else took part then."""
    try:
        # Never closed, since closing would release the lock.
        held = os.open(home / AT_WORK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        alone_at = datetime.now(UTC) if _alone(held) else None
        fcntl.flock(held, fcntl.LOCK_SH)  # waits for those only who find out whether they are alone
    except OSError:  # there are no locks here, or no writing: then nothing is known
        return None
    return alone_at


def _alone(held: int) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def crash_unended(url: str, before: datetime) -> list[str]:
    """Let the runs of the command line that began before then, and have not ended, be crashed; return their ids."""
    wanted = {
        "state": {"type": {"any_": ["RUNNING", "PENDING"]}},
        "deployment_id": {"is_null_": True},
        "start_time": {"before_": before.isoformat()},
    }
    state = {"type": "CRASHED", "name": "Crashed", "message": MESSAGE}
    ids = [str(run["id"]) for run in _ask(url, "/flow_runs/filter", {"flow_runs": wanted}) or []]
    for run in ids:
        _ask(url, f"/flow_runs/{run}/set_state", {"state": state, "force": True})
    return ids


def _ask(url: str, path: str, body: Mapping[str, object]) -> Any:
    """Ask the API; None where it does not answer, since a wrong state of another run must not stop the work."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
    try:
        connection.request("POST", f"/api{path}", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    except OSError:
        return None
    finally:
        connection.close()
    return json.loads(text) if answer.status in (HTTPStatus.OK, HTTPStatus.CREATED) else None
