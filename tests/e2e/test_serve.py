"""`blr serve` and `blr ui` as on a laptop: nothing configured, nothing running."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import yaml

from tests.e2e.running import PROGRAMS, Prefect, clean_environment, running, wait_for
from tests.e2e.survey import make_survey

pytestmark = pytest.mark.slow


@contextmanager
def blr(command: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a command in the survey with a Prefect home of its own; yield it and the file of what it says."""
    environment = clean_environment() | {"PREFECT_HOME": str(folder / "home"), "PYTHONUNBUFFERED": "1"}
    # The embedded server's first start fills the database; the blocks, which take seconds, are not used.
    environment |= {"PREFECT_API_BLOCKS_REGISTER_ON_START": "false"}
    log = folder / f"{command.split(maxsplit=1)[0]}.log"
    arguments: list[str | Path] = [PROGRAMS / "blr", *command.split()]
    with running(arguments, log, cwd=folder / "survey", env=environment) as process:
        yield process, log


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    def said() -> str | None:
        found = re.search(r"its pages: (http://\S+)", log.read_text())
        assert found or process.poll() is None, log.read_text()
        return found.group(1) if found else None

    return str(wait_for(said, "the address"))


@pytest.fixture
def folder(tmp_path) -> Path:
    make_survey(tmp_path / "survey")
    return tmp_path


def test_serves_schedules_and_pages_and_leaves_nothing_behind(folder):
    survey = folder / "survey"
    environment = clean_environment()
    subprocess.run(
        [PROGRAMS / "blr", "deployments", "--out", "prefect.yaml"], cwd=survey, check=True, env=environment
    )
    told = yaml.safe_load((survey / "prefect.yaml").read_text())
    (reprocess,) = (entry for entry in told["deployments"] if entry["name"] == "reprocess")
    reprocess["schedules"] = [{"interval": 20, "slug": "soon"}]
    reprocess["parameters"]["quiet_seconds"] = 0
    (survey / "prefect.yaml").write_text(yaml.safe_dump(told))

    with blr("serve", folder) as (process, log):
        url = address(process, log)
        prefect = Prefect(folder, port=int(str(urlsplit(url).port)))
        run = prefect.run_ended(auto_scheduled=True)
        assert run["state_name"] == "Completed", prefect.logs(run)
        assert sorted(p.name for p in (survey / "product").glob("*.parquet")) == [
            "field-0.parquet",
            "field-1.parquet",
        ]
        with blr("ui --no-open", folder) as (page, said):
            assert page.wait(timeout=60) == 0, "the server is there already"
            assert f"its pages: {url}" in said.read_text()
        with blr("serve --port 1", folder) as (second, _):
            assert second.wait(timeout=60) == 2, "one server a database"
        server = next(
            p for p in psutil.Process(process.pid).children() if "server.py" in " ".join(p.cmdline())
        )
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
    assert "another terminal" in (folder / "serve.log").read_text()


def test_ui_shows_pages_and_ends_with_ctrl_c(folder):
    with blr("ui --no-open", folder) as (process, log):
        url = address(process, log)
        connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
        connection.request("GET", "/v2/dashboard", headers={"Accept": "text/html"})  # as browsers do
        answer = connection.getresponse()
        assert answer.status == 200
        assert b"<html" in answer.read()
        connection.close()
        assert urlsplit(url).hostname == "127.0.0.1"
        process.send_signal(2)
        process.wait(timeout=60)
    assert process.returncode == 0
