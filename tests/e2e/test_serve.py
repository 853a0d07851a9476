"""`blr serve` and `blr ui` as on a laptop: nothing configured, nothing running."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import yaml

from tests.e2e.conftest import once
from tests.e2e.running import PATIENCE, PROGRAMS, Prefect, clean_environment, running, wait_for
from tests.flows.children import ran

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # its own waits are over before


@contextmanager
def blr(command: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a command in the survey with a Prefect home of its own; yield it and the file of what it says."""
    environment = clean_environment() | {"PREFECT_HOME": str(folder / "home"), "PYTHONUNBUFFERED": "1"}
    # A server's first start fills the database; the blocks, which take seconds, are not used.
    environment |= {"PREFECT_API_BLOCKS_REGISTER_ON_START": "false"}
    log = folder / f"{command.split(maxsplit=1)[0]}.log"
    log.unlink(missing_ok=True)
    arguments: list[str | Path] = [PROGRAMS / "blr", *command.split()]
    with running(arguments, log, cwd=folder / "survey", env=environment) as process:
        yield process, log


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    def said() -> str | None:
        found = re.search(r"its pages: (http://\S+)", log.read_text())
        assert found or process.poll() is None, log.read_text()
        return found.group(1) if found else None

    return str(wait_for(said, "the address"))


def test_serves_schedules_and_pages_and_leaves_nothing_behind(survey: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(survey, tmp_path / "survey"))
    environment = clean_environment()
    ran(PROGRAMS / "blr", "deployments", "--out", "prefect.yaml", cwd=folder, env=environment)
    told = yaml.safe_load((folder / "prefect.yaml").read_text())
    (reprocess,) = (entry for entry in told["deployments"] if entry["name"] == "reprocess")
    reprocess["schedules"] = [{"interval": 20, "slug": "soon"}]
    reprocess["parameters"]["quiet_seconds"] = 0
    (folder / "prefect.yaml").write_text(yaml.safe_dump(told))

    with blr("serve", tmp_path) as (process, log):
        url = address(process, log)
        with blr("ui --no-open", tmp_path) as (page, said), blr("serve --port 1", tmp_path) as (second, _):
            assert page.wait(timeout=PATIENCE) == 0, "the server is there already"
            assert f"its pages: {url}" in said.read_text()
            assert second.wait(timeout=PATIENCE) == 2, "one server a database"
        prefect = Prefect(tmp_path, port=int(str(urlsplit(url).port)))
        wait_for(lambda: prefect.find("deployments", name="reprocess"), "the deployments")
        once(prefect, "reprocess")
        run = prefect.run_ended(auto_scheduled=True)
        assert run["state_name"] == "Completed", prefect.logs(run)
        copies = {path.name for path in (folder / "product").glob("*.parquet")}
        assert copies == {"field-0.parquet", "field-1.parquet"}
        # A run whose process has not ended yet is called Cancelled when Prefect's runner stops, completed or not.
        wait_for(lambda: len(living_children(process)) == 1, "the end of the run's process")
        (server,) = living_children(process)
        assert "server.py" in " ".join(server.cmdline())
        (listens,) = {c.laddr.ip for c in server.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        assert listens == "127.0.0.1"
    said = (tmp_path / "serve.log").read_text()
    assert "another terminal" in said
    assert "Warning" not in said
    wait_for(lambda: gone(server), "the end of the server")

    with blr("ui --no-open", tmp_path) as (process, log):
        url = address(process, log)
        assert urlsplit(url).hostname == "127.0.0.1"
        connection = HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
        connection.request("GET", "/v2/dashboard", headers={"Accept": "text/html"})  # as browsers do
        answer = connection.getresponse()
        assert answer.status == 200
        assert b"<html" in answer.read()
        connection.close()
        prefect = Prefect(tmp_path, port=int(str(urlsplit(url).port)))
        (kept,) = prefect.find("flow_runs", id=run["id"])
        assert kept["state_name"] == "Completed", "the runs of before"
        process.send_signal(signal.SIGINT)
        process.wait(timeout=PATIENCE)
    assert process.returncode == 0


def living_children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [child for child in psutil.Process(process.pid).children() if not gone(child)]


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_it_does_not_stay_without_its_server(survey: Path, tmp_path: Path) -> None:
    shutil.copytree(survey, tmp_path / "survey")
    with blr("serve", tmp_path) as (process, log):
        address(process, log)
        wait_for(lambda: "serving train" in log.read_text(), "the deployments")
        (server,) = living_children(process)
        server.kill()
        assert process.wait(timeout=60) == 1
    said = log.read_text().splitlines()[-1]
    assert said.startswith("blr: error: Prefect's server has ended: the end of ")
