"""One server with services at a time on a database: who has it, and at which address.

Two schedulers on one SQLite file would plan runs twice and block each other.  The lock is the system's, so that a
server that was killed leaves none behind.

Runs of the command line that were killed are marked as Crashed at the next start: the embedded server was not told of
their end.  Runs of deployments are left to their worker.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flows.errors import UsageError
from flows.orchestration.settings import EmbeddedServer, share

__all__ = ["HomeServer", "ServedHome", "crash_unended"]

MESSAGE = "its process was killed; the next run uses its finished files"
PATIENCE = 60.0


@dataclass(frozen=True)
class ServedHome:
    """The file in a Prefect home that is locked while a server with services runs, and holds its address."""

    path: Path

    @classmethod
    def here(cls) -> ServedHome:
        """Return that of the home of this process, which `prefect_environment` has set."""
        return cls(Path(os.environ["PREFECT_HOME"]) / "served-at")

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

    def announce(self, server: EmbeddedServer) -> None:
        """Write down the address, for others who ask."""
        self.path.write_text(str(server.url), encoding="utf-8")

    def address(self) -> str | None:
        """Return the address of the server that runs on this database; None where none does."""
        try:
            with self.path.open(encoding="utf-8") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return file.read() or None
        except FileNotFoundError:
            pass
        return None


@dataclass
class HomeServer:
    """An embedded server that lets runs be crashed which were killed in its home."""

    server: EmbeddedServer

    def wait(self) -> None:
        """Return as soon as the server answers; runs that were killed have crashed by then."""
        self.server.wait()
        alone_at = share(Path(os.environ["PREFECT_HOME"])) if self.server.url else None
        if self.server.url and alone_at:
            crash_unended(self.server.url, alone_at)


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
