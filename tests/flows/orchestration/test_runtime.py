"""The environment variables that we set for Prefect, and that Prefect uses them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from flows.errors import FlowError
from flows.orchestration.settings import prefect_environment, prefect_home
from tests.e2e.running import clean_environment
from tests.flows.children import free_port, python


@pytest.fixture
def no_prefect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Start as a user's process does: Prefect neither imported nor configured, nothing in the folder."""
    monkeypatch.delitem(sys.modules, "prefect", raising=False)
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


PROFILE = "../user/.prefect/profiles.toml"
TEAM = 'active = "team"\n[profiles.team]\nPREFECT_API_URL = "http://prefect.example/api"\n[profiles.mine]\n'


@pytest.mark.usefixtures("no_prefect")
def test_a_server_configured_by_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(PROFILE).parent.mkdir(parents=True)
    Path(PROFILE).write_text(TEAM)
    assert prefect_environment() == "Prefect: server http://prefect.example/api"
    assert "PREFECT_HOME" not in os.environ
    home = prefect_home()
    assert not home.exists()
    monkeypatch.setenv("PREFECT_PROFILE", "mine")  # which has no server
    assert prefect_environment() == f"Prefect: database in {home}"
    Path(PROFILE).write_text("[[[")  # Prefect itself says what is wrong
    monkeypatch.setenv("PREFECT_HOME", "elsewhere")
    monkeypatch.setenv("PREFECT_PROFILES_PATH", PROFILE)
    assert prefect_environment() == "Prefect: database in elsewhere"


@pytest.mark.usefixtures("no_prefect")
def test_the_users_settings_win_and_no_credentials_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(PROFILE).parent.mkdir(parents=True)
    stated = 'active = "a"\n[profiles.a]\nPREFECT_RESULTS_DEFAULT_SERIALIZER = "compressed/json"\n'
    Path(PROFILE).write_text(stated)
    monkeypatch.setenv("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "DEBUG")
    monkeypatch.setenv("PREFECT_API_URL", "https://someone:secret@prefect.example/api")
    assert prefect_environment() == "Prefect: server https://prefect.example/api"
    assert os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] == "DEBUG"
    assert os.environ["PREFECT_RESULTS_DEFAULT_SERIALIZER"] == "compressed/json"


@pytest.mark.usefixtures("no_prefect")
def test_too_late_once_prefect_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prefect", sys)
    assert "already has" in prefect_environment()
    assert "PREFECT_HOME" not in os.environ


def test_a_home_that_cannot_be(no_prefect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (no_prefect / "file").write_text("")
    monkeypatch.setenv("PREFECT_HOME", str(no_prefect / "file" / "home"))
    with pytest.raises(FlowError, match=r"file.home: .*, expected a folder.*; set PREFECT_HOME.*--direct"):
        prefect_environment()


ASK_PREFECT = """
import json, os, sys
from flows.orchestration.settings import prefect_environment
os.environ["PREFECT_HOME"] = sys.argv[1]
prefect_environment()
from prefect.settings import get_current_settings
s = get_current_settings()
print(json.dumps({
    "home": str(s.home),
    "results": [s.results.default_serializer, str(s.results.local_storage_path)],
    "talks": [s.server.analytics_enabled, s.server.ui.show_promotional_content],
    "patience": s.server.ephemeral.startup_timeout_seconds,
    "leases": s.server.concurrency.lease_storage,
    "vacuum": sorted(s.server.services.db_vacuum.enabled_vacuum_types),
}))
"""


def test_prefect_takes_the_settings(tmp_path: Path) -> None:
    done = python("-c", ASK_PREFECT, tmp_path, env=clean_environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not recognized" not in done.stderr
    assert json.loads(done.stdout) == {
        "home": str(tmp_path),
        "results": ["json", str(tmp_path / "storage")],
        "talks": [False, False],
        "patience": 120,
        "leases": "prefect.server.concurrency.lease_storage.filesystem",
        "vacuum": ["events", "flow_runs", "orphans"],
    }


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    with shown_from(tmp_path_factory.mktemp("home")) as pages:
        yield pages


@contextmanager
def shown_from(home: Path) -> Iterator[SimpleNamespace]:
    """Run `blr ui` in a home of its own, as a user does in another terminal."""
    own = {"PREFECT_HOME": str(home), "PREFECT_API_BLOCKS_REGISTER_ON_START": "false"}
    environment = clean_environment() | own
    command = [sys.executable, "-m", "flows", "ui", "--no-open", "--port", str(free_port())]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, cwd=home, **streams) as process:
        said = process.stdout.readline() + process.stdout.readline()
        found = re.search(r"its pages: (http://\S+)", said)
        assert found, said
        (server,) = psutil.Process(process.pid).children()
        yield SimpleNamespace(url=found[1], environment=environment, process=process, server=server)
        process.kill()


def classified(
    folder: Path, trained: Path, environment: dict[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    """Classify the survey in an empty folder by a command of its own."""
    folder.mkdir()
    given = ("--model", "morphology", "--store", trained / "models", "--out", "out", *options)
    return python("-m", "flows", "classify", trained / "survey.fits", *given, env=environment, cwd=folder)


def runs(url: str) -> list[str]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("POST", "/api/flow_runs/filter", "{}", {"Content-Type": "application/json"})
    found = json.loads(connection.getresponse().read())
    connection.close()
    return [run["state_name"] for run in found]


@pytest.mark.slow
def test_a_command_is_a_run_of_the_server_that_runs_and_leaves_the_same_without(
    pages: SimpleNamespace, trained: Path, tmp_path: Path
) -> None:
    under = classified(tmp_path / "under", trained, pages.environment)
    assert under.returncode == 0, under.stderr
    assert f"Prefect: server {pages.url}" in under.stderr
    assert runs(pages.url) == ["Completed"]
    direct = classified(tmp_path / "direct", trained, pages.environment, "--direct")
    assert direct.returncode == 0, direct.stderr
    nowhere = pages.environment | {"PREFECT_HOME": str(tmp_path / "none")}
    alone = classified(tmp_path / "alone", trained, nowhere)
    assert alone.returncode == 0, alone.stderr
    assert "running without Prefect; to see runs in its UI, start `blr ui`" in alone.stderr
    assert not (tmp_path / "none").exists()
    assert runs(pages.url) == ["Completed"], "no further run"
    tables = [(tmp_path / name / "out" / "survey.fits").read_bytes() for name in ("under", "direct", "alone")]
    assert tables[0] == tables[1] == tables[2]


def test_prefect_that_is_asked_for_and_not_there(trained: Path, tmp_path: Path) -> None:
    environment = clean_environment() | {"PREFECT_HOME": str(tmp_path / "none")}
    done = classified(tmp_path / "here", trained, environment, "--prefect")
    assert done.returncode == 2
    assert "got --prefect, but no Prefect server" in done.stderr
    assert "start `blr ui`" in done.stderr


class Stranger(BaseHTTPRequestHandler):
    """A server that wants a password."""

    def do_GET(self) -> None:
        self.send_error(401)

    do_POST = do_GET  # noqa: N815 - the library's name

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_server_that_cannot_be_used_is_no_fault_of_ours(trained: Path, tmp_path: Path) -> None:
    """An old profile names one that is gone, or one that asks for a password."""
    environment = clean_environment() | {"PREFECT_HOME": str(tmp_path)}
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}/api"
        refused = classified(tmp_path / "refused", trained, environment | {"PREFECT_API_URL": place})
        server.shutdown()
    gone = classified(tmp_path / "gone", trained, environment | {"PREFECT_API_URL": place})
    for done, why in ((refused, "Client error '401 "), (gone, f"Failed to reach API at {place}")):
        assert done.returncode == 1
        said = done.stderr.splitlines()[-1]
        assert said.startswith(f"blr: error: Prefect's server cannot be used ({why}")
        assert said.endswith("with --direct where no server is wanted")


@pytest.mark.slow
def test_the_server_ends_with_its_user_and_not_before(pages: SimpleNamespace) -> None:
    listening = pages.server.net_connections("tcp")
    assert {c.laddr.ip for c in listening if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
    pages.process.kill()
    pages.server.wait(timeout=30)


@pytest.mark.slow
def test_the_pages_end_in_words_where_their_server_ends(tmp_path: Path) -> None:
    with shown_from(tmp_path) as pages:
        pages.server.kill()
        _, said = pages.process.communicate(timeout=60)
    assert pages.process.returncode == 1
    assert re.match(
        r"blr: error: Prefect's server has ended: the end of .*server.log tells why; run `blr ui`", said
    )


@pytest.mark.slow
def test_a_server_that_cannot_start_says_where_it_says_why(tmp_path: Path) -> None:
    environment = clean_environment() | {
        "PREFECT_HOME": str(tmp_path),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": "sqlite+aiosqlite:////dev/null/nowhere.db",
    }
    done = python("-m", "flows", "ui", "--no-open", env=environment, cwd=tmp_path)
    assert done.returncode == 1
    assert re.search(r"did not start: the end of .*server.log tells why; .*--direct", done.stderr)
    assert "unable to open database file" in (tmp_path / "server.log").read_text()
