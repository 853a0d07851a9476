"""Prefect as a team runs it: a server with its services, a worker, the command line; each in a process of its own.

All in one folder, on 127.0.0.1, with a password.  What a test started ends with it, by process group.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tests.flows.children import free_port, ran

PROGRAMS = Path(sys.executable).parent
PATIENCE = 300.0
"""Seconds; a machine that does other things too takes minutes for what takes seconds on an idle one."""
Seen = TypeVar("Seen")


def wait_for(
    condition: Callable[[], Seen | None], what: str, patience: float = PATIENCE, *, between: float = 0.3
) -> Seen:
    """Return what the condition gives as soon as that is something; fail when patience ends.

    Looks every `between` seconds.
    """
    end = time.monotonic() + patience
    while not (seen := condition()):
        assert time.monotonic() < end, f"waited {patience:.0f} s for {what}"
        time.sleep(between)
    return seen


def clean_environment() -> dict[str, str]:
    """Return the environment of a user who has set nothing of Prefect."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}


@contextmanager
def running(command: list[str | Path], log: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program beside the test in a process group of its own, its output in a file; end it after the block."""
    with log.open("ab") as output:
        streams = {"stdout": output, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, start_new_session=True, **streams, **options)
        try:
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[bytes], patience: float = 30) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@dataclass
class Prefect:
    """One server and whoever talks to it: where it keeps things, its address, the environment of its programs."""

    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    password: str = field(default_factory=lambda: f"blr:{secrets.token_urlsafe(12)}")
    programs: Path = PROGRAMS

    @property
    def url(self) -> str:
        """The address of the pages; the API is below it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a team sets for the server, its worker and the command line; see docs/operations.md."""
        return clean_environment() | {
            "PREFECT_HOME": str(self.folder / "home"),
            "PREFECT_API_URL": f"{self.url}/api",
            "PREFECT_SERVER_API_PORT": str(self.port),
            "PREFECT_SERVER_API_AUTH_STRING": self.password,
            "PREFECT_API_AUTH_STRING": self.password,
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
            "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
            "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "DO_NOT_TRACK": "1",
            **self.settings,
        }

    @contextmanager
    def server(self) -> Iterator[subprocess.Popen[bytes]]:
        log = self.folder / "server.log"
        command: list[str | Path] = [self.programs / "prefect", "server", "start", "--host", "127.0.0.1"]
        with running(command, log, env=self.environment, cwd=self.folder) as process:

            def healthy() -> bool:
                assert process.poll() is None, f"the server stopped:\n{log.read_text()[-4000:]}"
                return self.answers()

            wait_for(healthy, "the server")
            yield process

    @contextmanager
    def worker(self, pool: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker of a pool, in a folder that has nothing to do with the work."""
        (self.folder / "elsewhere").mkdir(exist_ok=True)
        command: list[str | Path] = [self.programs / "prefect", "worker", "start", "--pool", pool]
        place = {"env": self.environment | settings, "cwd": self.folder / "elsewhere"}
        with running([*command, "--limit", "2"], self.folder / "worker.log", **place) as it:
            yield it

    def cli(self, *arguments: str | Path, cwd: Path, program: str = "prefect") -> str:
        """Run a command to a good end; return what it said."""
        command = [self.programs / program, *arguments]
        done = ran(*command, env=self.environment, cwd=cwd, timeout=PATIENCE)
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def answers(self) -> bool:
        try:
            return self.ask("GET", "/health")[0] == 200
        except OSError:
            return False

    def ask(
        self, method: str, path: str, body: object = None, *, password: str | None = None
    ) -> tuple[int, Any]:
        """Ask the API; return status and answer.

        503 is a database that is locked at the moment: it is asked again, as Prefect's own client does.
        """

        def told() -> tuple[int, Any] | None:
            status, answer = self._asked(method, path, body, self.password if password is None else password)
            return None if status == HTTPStatus.SERVICE_UNAVAILABLE else (status, answer)

        return wait_for(told, f"an answer to {method} {path}")

    def _asked(self, method: str, path: str, body: object, password: str) -> tuple[int, Any]:
        credentials = base64.b64encode(password.encode()).decode()
        headers = {"Content-Type": "application/json", "Authorization": f"Basic {credentials}"}
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE)
        try:
            connection.request(method, f"/api{path}", None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        return answer.status, json.loads(text) if text.startswith(("{", "[", "true")) else text

    def find(self, kind: str, **wanted: object) -> list[dict[str, Any]]:
        """Return all of a kind, flow_runs for instance, whose fields are as wanted."""
        status, found = self.ask("POST", f"/{kind}/filter", {"limit": 200})
        assert status == 200, found
        return [item for item in found if all(item.get(key) == value for key, value in wanted.items())]

    def deployment(self, name: str) -> dict[str, Any]:
        (found,) = self.find("deployments", name=name)
        return found

    def run_ended(self, **wanted: object) -> dict[str, Any]:
        final = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}

        def ended() -> list[dict[str, Any]]:
            return [run for run in self.find("flow_runs", **wanted) if run["state_type"] in final]

        return wait_for(ended, f"the end of a run with {wanted}")[0]

    def logs(self, run: Mapping[str, Any]) -> str:
        body = {"logs": {"flow_run_id": {"any_": [run["id"]]}}, "limit": 200}
        return "\n".join(line["message"] for line in self.ask("POST", "/logs/filter", body)[1])
