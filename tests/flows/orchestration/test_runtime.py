"""The environment variables that we set for Prefect, and that Prefect uses them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from flows.errors import FlowError
from flows.orchestration.settings import default_home, free_port, prefect_environment, start_embedded_server


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


def user_profile(folder: Path, text: str) -> None:
    (folder / "user" / ".prefect").mkdir(parents=True)
    (folder / "user" / ".prefect" / "profiles.toml").write_text(text)


def test_embedded_by_default(no_prefect: Any) -> None:
    line = prefect_environment(no_prefect / "home")
    assert line == f"Prefect: embedded server, its database in {no_prefect / 'home'}"
    assert (no_prefect / "home").is_dir()
    assert os.environ["PREFECT_HOME"] == str(no_prefect / "home")
    assert os.environ["PREFECT_RESULTS_LOCAL_STORAGE_PATH"] == str(no_prefect / "home" / "storage")


def test_its_home_is_in_the_users_data_folder(no_prefect: Any) -> None:
    assert no_prefect / "user" in default_home().parents
    prefect_environment()
    assert default_home().is_dir()


def test_a_home_of_the_users_choice(no_prefect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(no_prefect / "elsewhere"))
    assert "elsewhere" in prefect_environment()


@pytest.mark.usefixtures("no_prefect")
@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("prefect.toml", '[api]\nurl = "http://prefect.example/api"\n'),
        ("pyproject.toml", '[tool.prefect.api]\nurl = "http://prefect.example/api"\n'),
        (".env", 'X=1\nexport PREFECT_API_URL="http://prefect.example/api"\n'),
    ],
)
def test_a_server_configured_by_a_file(file: str, text: str) -> None:
    Path(file).write_text(text)
    assert prefect_environment() == "Prefect: server http://prefect.example/api"
    assert "PREFECT_HOME" not in os.environ
    assert not default_home().exists()


def test_a_server_configured_by_a_profile(no_prefect: Any) -> None:
    user_profile(
        no_prefect,
        'active = "team"\n[profiles.team]\nPREFECT_API_URL = "http://team.example/api"\n[profiles.other]\n',
    )
    assert "http://team.example/api" in prefect_environment()


def test_the_active_profile_may_be_embedded(no_prefect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    user_profile(
        no_prefect, 'active = "team"\n[profiles.team]\nPREFECT_API_URL = "http://x"\n[profiles.mine]\n'
    )
    monkeypatch.setenv("PREFECT_PROFILE", "mine")
    assert "embedded" in prefect_environment()


@pytest.mark.usefixtures("no_prefect")
def test_does_not_print_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "https://someone:secret@prefect.example/api")
    assert prefect_environment() == "Prefect: server https://prefect.example/api"


def test_the_users_settings_win(no_prefect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    user_profile(
        no_prefect, 'active = "a"\n[profiles.a]\nPREFECT_RESULTS_DEFAULT_SERIALIZER = "compressed/json"\n'
    )
    monkeypatch.setenv("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "DEBUG")
    prefect_environment()
    assert os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] == "DEBUG"
    assert os.environ["PREFECT_RESULTS_DEFAULT_SERIALIZER"] == "compressed/json"


@pytest.mark.usefixtures("no_prefect")
@pytest.mark.parametrize("file", ["prefect.toml", "pyproject.toml"])
def test_leaves_malformed_files_to_prefect(file: str) -> None:
    Path(file).write_text("[[[")
    assert "embedded" in prefect_environment()


def test_too_late_once_prefect_is_imported(no_prefect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prefect", sys)
    assert "already has" in prefect_environment(no_prefect / "home")
    assert "PREFECT_HOME" not in os.environ


def test_a_home_that_cannot_be(no_prefect: Any) -> None:
    (no_prefect / "file").write_text("")
    with pytest.raises(FlowError, match=r"file.home: .*, expected a folder.*; set PREFECT_HOME.*--direct"):
        prefect_environment(no_prefect / "file" / "home")


def test_free_port_can_be_listened_on() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))


ASK_PREFECT = """
import json, pathlib, sys
from flows.orchestration.settings import prefect_environment
prefect_environment(pathlib.Path(sys.argv[1]))
from prefect.settings import get_current_settings
s = get_current_settings()
print(json.dumps({
    "home": str(s.home),
    "results": [s.results.default_serializer, str(s.results.local_storage_path)],
    "talks": [s.server.analytics_enabled, s.server.ui.show_promotional_content],
    "embedded": [s.server.ephemeral.enabled, s.server.ephemeral.startup_timeout_seconds],
    "leases": s.server.concurrency.lease_storage,
    "vacuum": sorted(s.server.services.db_vacuum.enabled_vacuum_types),
}))
"""


def test_prefect_takes_the_settings(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-c", ASK_PREFECT, str(tmp_path)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "not recognized" not in done.stderr
    assert json.loads(done.stdout) == {
        "home": str(tmp_path),
        "results": ["json", str(tmp_path / "storage")],
        "talks": [False, False],
        "embedded": [True, 120],
        "leases": "prefect.server.concurrency.lease_storage.filesystem",
        "vacuum": ["events", "flow_runs", "orphans"],
    }


WORK = """
import json, pathlib, signal, sys, time
from flows.orchestration.settings import prefect_environment, start_embedded_server
prefect_environment(pathlib.Path(sys.argv[1]))
server = start_embedded_server()
from prefect import flow
server.wait()
@flow(persist_result=True)
def answer() -> dict[str, int]:
    return {"is": 42}
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as one who finishes what is in hand
print(json.dumps({"result": answer(), "server": server.process.pid, "url": server.url}), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_the_embedded_server_lives_as_long_as_its_user(tmp_path: Path) -> None:
    with start(WORK, tmp_path) as work:
        told = json.loads(work.stdout.readline() or work.stderr.read())
        assert told["result"] == {"is": 42}
        os.killpg(work.pid, signal.SIGINT)
        assert healthy(told["url"]), "Ctrl-C ended it"
        listening = psutil.Process(told["server"]).net_connections("tcp")
        assert {c.laddr.ip for c in listening if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
        work.kill()
    end = time.monotonic() + 30
    while psutil.pid_exists(told["server"]) and time.monotonic() < end:
        time.sleep(0.1)
    assert not psutil.pid_exists(told["server"]), "it stayed behind when its user was killed"


NO_DATABASE = """
import os, pathlib, sys
os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = "sqlite+aiosqlite:////dev/null/nowhere.db"
from flows.orchestration.settings import prefect_environment, start_embedded_server
prefect_environment(pathlib.Path(sys.argv[1]))
start_embedded_server().wait()
"""


@pytest.mark.slow
def test_an_embedded_server_that_cannot_start_says_where_it_says_why(tmp_path: Path) -> None:
    with start(NO_DATABASE, tmp_path) as work:
        said = work.communicate()[1]
    assert re.search(r"FlowError: .* did not start: the end of .*server.log tells why; .*--direct", said)
    assert "unable to open database file" in (tmp_path / "server.log").read_text()


@pytest.mark.usefixtures("no_prefect")
def test_starts_no_server_where_one_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example/api")
    prefect_environment()
    server = start_embedded_server()
    server.wait()
    assert server.process is None


def start(source: str, home: Path) -> subprocess.Popen[str]:
    """Start a user's script in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", source, str(home)],
        env={name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
        cwd=home,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def healthy(url: str) -> bool:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request("GET", "/api/health")
    status = connection.getresponse().status
    connection.close()
    return status == HTTPStatus.OK


@pytest.mark.slow
def test_a_flow_runs_against_the_tests_server(prefect_server: str) -> None:
    from prefect import flow, task
    from prefect.client.orchestration import get_client

    @task
    def double(x: int) -> dict[str, int]:
        return {"x": 2 * x}

    @flow
    def twice(x: int) -> dict[str, int]:
        return double(x)

    state = twice(2, return_state=True)
    assert state.is_completed()
    assert state.result() == {"x": 4}
    with get_client(sync_client=True) as client:
        assert str(client.api_url).startswith(prefect_server)
        assert client.read_flow_run(state.state_details.flow_run_id).flow_id
