"""Which Prefect server is used, where its database is, who is at work there, and the settings that we change.

Prefect reads its settings from the environment when it is imported.  So `prefect_environment` comes before
that import, and nothing here imports Prefect.  What the user has configured, in the environment or a profile, always
wins.  The settings: https://docs.prefect.io/v3/api-ref/settings-ref.

`prefect.yaml` says which flows Prefect runs, with which parameters, when.  The one in a survey's folder is the user's;
without one, ours, which lies in `flows`.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import logging
import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.request import ProxyHandler, Request, build_opener

import platformdirs
import yaml
from typing_extensions import TypedDict

from catalogs.errors import CatalogError
from catalogs.remote.urls import scrubbed, shown
from flows.errors import FlowError, Terminated, UsageError, lacks_memory, of_files

_EVERYWHERE = {
    "DO_NOT_TRACK": "1",  # Prefect's client reports to Amplitude otherwise
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # and its server to its makers
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",  # the default is pickle: reading runs code
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",  # our logging outside a flow is no mistake
}
"""Whatever the server."""

_OF_COMMANDS = {
    "PREFECT_CLIENT_MAX_RETRIES": "2",  # six seconds; by default each of several requests would wait for a minute
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",  # else each event that is not sent is a page on the terminal
}
"""For commands in a terminal, which say in one sentence that the server has gone."""

_OWN_SERVER = {
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",  # the default, 20 s, is too short
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # Retries and restarts outlive the server's memory, where limits are leased by default.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",  # 20 kB a task run, for ever, otherwise
}
"""For the user's own server: that of `blr ui`, or the one that Prefect itself starts for a flow in Python."""

_WITH_PAGES = {"PREFECT__SERVER_FINAL": "1", "PREFECT_SERVER_UI_ENABLED": "true"}
"""For the process of the server."""

_SERVER = Path(__file__).with_name("server.py")

SERVER_LOG = "server.log"  # file in a home that holds what its server says

_PATIENCE = 240.0
"""Seconds that the server has to start: 10 on an idle machine, 30 for a new database, more on a busy one."""

_LONGEST_LOG = 1_000_000  # bytes after which the server's log is begun anew


def prefect_home() -> Path:
    """Return the folder of the database of runs, which PREFECT_HOME may name: all else is written to output folders."""
    usual = Path(platformdirs.user_data_dir("blr", appauthor=False)) / "prefect"
    return Path(_configured().get("PREFECT_HOME") or usual).expanduser()


def prefect_environment(*, console_level: str = "WARNING") -> str:
    """Set the environment that Prefect reads on import; return one line that says which server is used.

    Without a configured server the database is in `prefect_home()`.  Prefect's messages below `console_level` go to the
    server only.
    """
    if "prefect" in sys.modules:
        return "Prefect: with the settings that this process already has"
    configured = _configured()
    ours = _EVERYWHERE | {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": console_level}
    if console_level == "CRITICAL":
        ours |= _OF_COMMANDS
        logging.raiseExceptions = False  # else each batch of lines that is not sent is a line on the terminal
    url = configured.get("PREFECT_API_URL")
    if url:
        line = f"Prefect: server {shown(url)}"
    else:
        folder = prefect_home()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FlowError(
                f"{folder}: {error.strerror}, expected a folder for Prefect's database; set PREFECT_HOME to a "
                "folder that you may write to, or run with --direct, which needs no database"
            ) from error
        os.environ["PREFECT_HOME"] = str(folder)
        ours |= _OWN_SERVER | {"PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(folder / "storage")}
        line = f"Prefect: database in {folder}"
    os.environ.update({name: configured.get(name, value) for name, value in ours.items()})
    return line


def _start(home: Path, port: int) -> tuple[str, subprocess.Popen[bytes]]:
    """Start a server that schedules and has pages, with its database in `home`; port 0: any that is free.

    Prefect could start such a process itself; that one would stay behind when this process is killed, and stop at
    Ctrl-C while a partition is being finished.
    """
    log = home / SERVER_LOG
    mode = "ab" if log.exists() and log.stat().st_size < _LONGEST_LOG else "wb"
    with socket.create_server(("127.0.0.1", port)) as listening, log.open(mode) as output:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        process = subprocess.Popen(  # noqa: S603 - our own command
            # By path, and without the folder we are in on the module path: it may have a `flows` of its own.
            [sys.executable, "-P", str(_SERVER), str(listening.fileno())],
            pass_fds=[listening.fileno()],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this process; that one ends with its standard input
            # Its pages would look for the API at Prefect's usual port.
            env={**os.environ, **_WITH_PAGES, "PREFECT_SERVER_UI_API_URL": f"{url}/api"},
        )
    # Before Prefect is imported, so after it has sent its last messages.
    atexit.register(stop_server, process)
    os.environ["PREFECT_API_URL"] = f"{url}/api"
    return url, process


def stop_server(process: subprocess.Popen[bytes]) -> None:
    """End the process of a server and wait until it is gone."""
    if process.stdin is not None:
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def configured_server() -> str | None:
    """Return the address of the API that the user has configured."""
    return _configured().get("PREFECT_API_URL")


def _configured() -> dict[str, str]:
    """Return what the user has set, by environment variable: in the active profile of Prefect, or the environment."""
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect"))
    path = Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml")).expanduser()
    profiles: dict[str, Any] = {}
    # Prefect reads it next, and names a fault.
    with suppress(FileNotFoundError, NotADirectoryError, tomllib.TOMLDecodeError):
        profiles = tomllib.loads(path.read_text(encoding="utf-8"))
    active = os.environ.get("PREFECT_PROFILE") or profiles.get("active")
    profile = profiles.get("profiles", {}).get(active, {})
    return {**{name: str(value) for name, value in profile.items()}, **os.environ}


# Two schedulers on one SQLite file would plan runs twice and block each other.  The lock is the system's, so that a
# server that was killed leaves none behind.
#
# Runs of the command line that were killed are marked as Crashed by the next command: the server did not hear of their
# end.  Runs of deployments are left to their worker.

MESSAGE = "its process was killed; the next run uses its finished files"
_API_PATIENCE = 60.0


SERVED = "served-at"
"""File in a home that is locked while a server runs on its database, and holds the server's address."""


@contextmanager
def holding(home: Path) -> Iterator[Path]:
    """Hold a home for a server, and give the file for its address; UsageError where another server has the home."""
    path = home / SERVED
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{home}: got a database that another server uses ({served_at(home) or 'starting'}): `blr ui` or `blr "
                "serve` runs in another terminal; stop that one first, or set PREFECT_HOME to another folder for this "
                "one"
            ) from None
        try:
            yield path
        finally:
            with suppress(OSError):
                path.write_text("", encoding="utf-8")


def served_at(home: Path) -> str | None:
    """Return the address of the server that runs on a home's database; None where none does."""
    with suppress(OSError), (home / SERVED).open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read() or None
    return None


def connect(*, console_level: str = "WARNING") -> str | None:
    """Give Prefect's environment the server that is configured or running; return a line that names it.

    None without such a server, and nothing has changed then.  Where the server is that of `blr ui` or `blr serve`, runs
    that were killed are marked as Crashed.
    """
    if configured_server() is not None:
        return prefect_environment(console_level=console_level)
    running = served_at(prefect_home())
    if running is None:
        return None
    prefect_environment(console_level=console_level)
    os.environ["PREFECT_API_URL"] = f"{running}/api"
    alone_at = share(prefect_home())
    if alone_at:
        crash_unended(running, alone_at)
    return f"Prefect: server {running}"


class HomeServer(NamedTuple):
    """A server that was started: a line about its database, its address and its process."""

    line: str
    url: str
    process: subprocess.Popen[bytes]


def start_home_server(port: int | None, *, console_level: str = "WARNING") -> HomeServer:
    """Start the server of the home, which other commands find; return as soon as it answers.

    It is at the port that was asked for, else at Prefect's usual one, or at any where that is taken.  It ends with this
    process.
    """
    line = prefect_environment(console_level=console_level)
    home, held = prefect_home(), ExitStack()
    address = held.enter_context(holding(home))
    atexit.register(held.close)
    try:
        url, process = _start(home, 4200 if port is None else port)
    except OSError:
        if port is not None:
            raise
        url, process = _start(home, 0)
    address.write_text(url, encoding="utf-8")
    # The socket listens from the start, so the request waits for the server, and fails if that ends.
    if _ask(url, "/health", patience=_PATIENCE) is None:
        raise FlowError(
            f"Prefect's server did not start: the end of {home / SERVER_LOG} tells why; correct that, or run with "
            "--direct, which needs no server"
        )
    return HomeServer(line, url, process)


AT_WORK = "at-work"  # file of a home that all commands at work in it hold a shared lock on


@cache
def share(home: Path) -> datetime | None:
    """Take part in a home until this process ends; return the time of it, if nobody else took part then."""
    try:
        # Never closed, since closing would release the lock.
        held = os.open(home / AT_WORK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        alone_at = None
        with suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone_at = datetime.now(UTC)
        fcntl.flock(held, fcntl.LOCK_SH)  # waits for those only who find out whether they are alone
    except OSError:  # there are no locks here, or no writing: then nothing is known
        return None
    return alone_at


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


def _ask(
    url: str, path: str, body: Mapping[str, object] | None = None, *, patience: float = _API_PATIENCE
) -> Any:
    """Ask the API; None where it does not answer, since a wrong state of another run must not stop the work."""
    sent = None if body is None else json.dumps(body).encode()
    asked = Request(f"{url}/api{path}", sent, {"Content-Type": "application/json"})  # noqa: S310 - of our own server
    try:
        with build_opener(ProxyHandler({})).open(asked, timeout=patience) as answer:  # it is on this machine
            return json.load(answer)
    except OSError:
        return None


FILE = "prefect.yaml"
TEMPLATE = Path(__file__).parents[1] / FILE
RELATIVE = "flows/deployed.py"  # the entry point as our own file has it: right in a checkout


class AutomationWork(TypedDict):
    """One automation, and what was done about it, or would be."""

    name: str
    alerts: str  # in words: of what
    status: Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, kw_only=True)
class AutomationsResult:
    """The automations of deployments; `missing` says what has to be there before, and how it is made."""

    status: Literal["planned", "done"]
    deployments: tuple[str, ...]  # those that are watched, FLOW/NAME
    notify: str  # name of the block that sends the alerts
    automations: tuple[AutomationWork, ...]
    missing: tuple[str, ...]


def deployments_text() -> str:
    """Return our file with the entry points of this installation, wherever it is."""
    entry = (Path(__file__).parents[1] / "deployed.py").resolve()
    return TEMPLATE.read_text(encoding="utf-8").replace(f"{RELATIVE}:", f"{entry}:")


def deployments(path: Path) -> list[Mapping[str, Any]]:
    """Return the deployments of a file, as it says them, each with a name and an entry point; ours without a file."""
    text = path.read_text(encoding="utf-8") if path.exists() else deployments_text()
    try:
        entries = yaml.safe_load(text)["deployments"]
        return [{**entry, "name": entry["name"], "entrypoint": entry["entrypoint"]} for entry in entries]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        result = " ".join(str(error).split())
        raise UsageError(
            f"{path}: got {type(error).__name__} ({result}), expected a list 'deployments' of entries with "
            "name and entrypoint; `blr deployments` prints one that you can adapt"
        ) from error


UNUSABLE = ("Failed to reach API at ", "Found incompatible versions: ")
"""How Prefect's client says that there is no server of its kind at the address that the settings name."""


def words_of(error: BaseException) -> str | None:
    """Return the message of an error that the user can correct, without secrets; None for a fault of ours."""
    match error:
        case _ if lacks_memory(error):
            return (
                f"this process got no more memory or threads ({str(error) or 'no more is known'}); every file with a "
                "final name is complete: give it more, or fewer --threads, then run the same command again"
            )
        case FlowError() | CatalogError() | Terminated():
            return scrubbed(str(error))  # a URL may be given where a path is expected
        case OSError():
            return scrubbed(f"{of_files(error)}; every file with a final name is complete")
    # By name: httpx is slow to import, and is there already where it raised one.
    kinds = {kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "httpx"}
    if "TransportError" in kinds:
        what = "no longer answers"
    elif "HTTPStatusError" in kinds or str(error).startswith(UNUSABLE):
        what = "cannot be used"
    else:
        return None
    return scrubbed(
        f"Prefect's server {what} ({str(error).splitlines()[0]}); every file with a final name is complete: run the "
        "same command again, with --direct where no server is wanted"
    )
