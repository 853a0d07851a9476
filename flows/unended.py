"""Command-line runs that were killed, and that nobody told the embedded server of: they would say "Running" for ever.

Runs of deployments are not looked at: their worker tells of them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flows.home_share import share
from flows.runtime import EmbeddedServer

__all__ = ["HomeServer", "crash_unended"]

MESSAGE = "its process was killed; what it had finished is used by the next run"
PATIENCE = 60.0


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


def _ask(url: str, path: str, body: dict[str, Any]) -> Any:
    """Ask the API; None where it does not tell: another run's wrong state is no reason to do no work."""
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
