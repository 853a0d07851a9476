"""A team's server from `deploy/`: each command of the Containerfile and the compose file is run, without an engine.

The server is the real one, on a PostgreSQL of the test's own; the worker classifies a release.  What an engine would do
is done here: a volume is a folder, the name of a service is 127.0.0.1 with a port that is free.

With an image of `deploy/Containerfile`, BLR_IMAGE_ROOT names its files, and the same commands run in there (as root):

    BLR_IMAGE_ROOT=$(buildah mount $(buildah from localhost/galaxyblr)) pytest -m long tests/e2e/test_team_server.py
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.browser import browser, missing
from tests.e2e.containers import ROOT, SETTINGS, Place, compose, instructions
from tests.e2e.deploying import database
from tests.e2e.postgres import programs
from tests.e2e.running import PROGRAMS, Prefect
from tests.flows.children import free_port, ran

IMAGE = os.environ.get("BLR_IMAGE_ROOT")
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # its own waits are over before


def environment_as_built(folder: Path) -> Path:
    """Carry out what the Containerfile copies and installs; return what is its /opt/blr."""
    source, made = folder / "source", folder / "opt"
    source.mkdir()
    for name, arguments in instructions():
        *what, to = arguments.split()
        if name == "COPY" and "--from=build" not in what:
            for path in what:
                copy = shutil.copytree if path.endswith("/") else shutil.copy
                copy(ROOT / path, source / to)
        elif name == "RUN" and not arguments.startswith(("apt-get", "useradd", "install")):
            path = os.pathsep.join([str(PROGRAMS), os.environ["PATH"]])
            command = arguments.replace("/opt/blr", str(made))
            done = ran("sh", "-c", command, cwd=source, env=os.environ | {"PATH": path})
            assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return made


@pytest.fixture(scope="module")
def team(survey: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Prefect]]:
    """Bring the services up in the order that they wait for each other; yield where they run, and their server."""
    folder = tmp_path_factory.mktemp("team")
    environment = dict(arguments.split("=", 1) for name, arguments in instructions() if name == "ENV")
    server, worker = free_port(), free_port()
    with ExitStack() as stack:
        settings = stack.enter_context(database("postgresql"))
        address = urlsplit(settings["PREFECT_SERVER_DATABASE_CONNECTION_URL"])
        stands_for = {
            f"{SETTINGS['DATABASE_PASSWORD']}@database:5432": f"{address.password}@127.0.0.1:{address.port}",
            "//server:4200": f"//127.0.0.1:{server}",
            "127.0.0.1:4200": f"127.0.0.1:{server}",
            "127.0.0.1:8080": f"127.0.0.1:{worker}",
            "0.0.0.0": "127.0.0.1",  # noqa: S104  the compose file's, and not used here
        }
        environment |= {
            "PREFECT_SERVER_API_PORT": str(server),
            "PREFECT_WORKER_WEBSERVER_PORT": str(worker),
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "PGPORT": str(address.port),
        }
        if IMAGE is None:
            here = Path(shutil.copytree(survey, folder / "survey"))
            opt = environment_as_built(folder)
            stands_for |= {"/opt/blr": str(opt), "/srv/survey": str(here)}
            stands_for |= {"/var/lib/prefect": f"{folder}/volumes/{{service}}"}
            inside: tuple[str, ...] = ()
        else:
            here = Path(IMAGE) / "srv" / "survey"
            shutil.copytree(survey, here, dirs_exist_ok=True)
            for path in (here, *here.rglob("*")):
                os.chown(path, 1000, 1000)
            inside = (shutil.which("chroot") or "chroot", "--userspec=1000:1000", IMAGE)
            inside += ("sh", "-c", 'cd /srv/survey && exec "$@"', "sh")
        place = Place(folder, here, stands_for, environment, inside)
        services = compose()["services"]
        place.run("tables", services["tables"]["command"])
        stack.enter_context(place.up("server"))
        place.run("deployments", services["deployments"]["command"])
        stack.enter_context(place.up("worker"))
        yield place, Prefect(folder, port=server, password=f"blr:{SETTINGS['BLR_PASSWORD']}")


def test_the_databases_health_check_passes(team: tuple[Place, Prefect]) -> None:
    place, _ = team
    check = compose()["services"]["database"]["healthcheck"]["test"][1:]
    ready = ran(f"{programs()}/{check[0]}", *check[1:], env={"PGPORT": place.environment["PGPORT"]})
    assert ready.returncode == 0, ready.stdout


def test_the_server_keeps_everything_in_postgresql_and_asks_for_the_password(
    team: tuple[Place, Prefect],
) -> None:
    place, prefect = team
    assert not list(place.folder.rglob("prefect.db"))
    assert prefect.ask("POST", "/flow_runs/filter", {}, password=f"{prefect.password}?")[0] == 401


def test_deploying_again_changes_nothing(team: tuple[Place, Prefect]) -> None:
    place, prefect = team
    place.run("deployments", compose()["services"]["deployments"]["command"])
    names = {d["name"] for d in prefect.find("deployments")}
    assert names == {"train", "classify", "reprocess", "promote", "publish"}
    status, queues = prefect.ask("POST", "/work_queues/filter", {})
    assert status == 200
    assert {queue["name"]: queue["concurrency_limit"] for queue in queues} == {"default": None, "nightly": 1}


def test_the_worker_classifies_a_release(team: tuple[Place, Prefect]) -> None:
    place, prefect = team
    place.run("worker", ["prefect", "deployment", "run", "classify/classify"])
    run = prefect.run_ended(deployment_id=prefect.deployment("classify")["id"], auto_scheduled=False)
    assert run["state_name"] == "Completed", prefect.logs(run)
    copies = {path.name for path in (place.survey / "annotated").glob("*.parquet")}
    assert copies == {"field-0.parquet", "field-1.parquet"}
    told = json.loads(place.run("worker", ["blr", "models", "list", "--store", "models", "--json"]))
    assert told["models"], told


def test_the_pages_find_their_server(team: tuple[Place, Prefect], tmp_path: Path) -> None:
    """They lie in the server's volume: the code's own folder is not for writing."""
    place, prefect = team
    told = place.started("server", ["CMD"])[1]["env"]["PREFECT_SERVER_UI_STATIC_DIRECTORY"]
    folder = Path(told) if IMAGE is None else Path(IMAGE) / told[1:]
    assert list(folder.rglob("index.html"))
    if (absent := missing()) is not None:
        pytest.skip(absent)
    with browser(tmp_path) as window:
        window.open(prefect.url)
        (password,) = window.some("input[type=password]")
        password.send_keys(prefect.password)
        window.click("Login")
        window.shows("Dashboard", "Logout")
        window.open(f"{prefect.url}/v2/deployments")
        window.shows("reprocess", "classify")
