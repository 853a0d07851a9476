"""A team's Prefect from end to end: deployed by `prefect.yaml`, run by schedule, from the pages, and by an event.

The server is the real one, on SQLite and on PostgreSQL, with a password; the worker is the real one; the pages are
looked at with a real browser.  BLR_SCREENSHOTS=FOLDER keeps the pictures.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
import pytest
import yaml

from flows.models.row_files import ROWS_FILE
from flows.models.store import Store
from tests.e2e.browser import Browser, browser, missing
from tests.e2e.conftest import HOSTILE, Team
from tests.e2e.running import PATIENCE, PROGRAMS, Prefect, end, running, wait_for
from tests.e2e.survey import write_galaxies
from tests.flows.children import ran
from tests.flows.watching import listener

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # its own waits are over before


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if (absent := missing()) is not None:
        pytest.skip(absent)
    with browser(tmp_path_factory.mktemp("browser")) as window:
        yield window


@pytest.fixture(scope="module")
def pages(team: Team, window: Browser) -> Browser:
    window.open(team.prefect.url)
    (password,) = window.some("input[type=password]")
    password.send_keys(team.prefect.password)
    window.click("Login")
    window.shows("Dashboard", "Logout")
    return window


def test_every_flow_is_deployed_with_its_schedules_as_they_are_in_the_file(team: Team) -> None:
    told = {d["name"]: d for d in team.prefect.find("deployments")}
    assert {"train", "classify", "reprocess", "promote", "publish"} == set(told)
    assert {s["slug"]: s["active"] for s in told["train"]["schedules"]} == {"sundays": False}
    (nightly, often) = sorted(told["reprocess"]["schedules"], key=lambda s: s["slug"])
    assert (nightly["schedule"]["cron"], nightly["active"]) == ("15 3 * * *", True)
    assert (often["schedule"]["interval"], often["active"]) == (900, False)
    for deployment in told.values():
        assert Path(deployment["entrypoint"].partition(":")[0]).name == "deployed.py"
        assert deployment["concurrency_limit"] is None, "its lease would kill long runs"


def test_a_laptop_does_not_take_the_teams_deployments(team: Team) -> None:
    """`blr serve` in a shell that has the team's settings would replace them, and pause them at its end."""
    before = team.prefect.find("deployments")
    done = ran(PROGRAMS / "blr", "serve", cwd=team.folder, env=team.prefect.environment, timeout=PATIENCE)
    assert done.returncode == 2, done.stderr
    assert "the server has deployments for the workers of a team: train, classify" in done.stderr
    after = team.prefect.find("deployments")
    for key in ("id", "work_pool_name", "paused", "entrypoint", "pull_steps"):
        assert [d[key] for d in after] == [d[key] for d in before]


def test_a_stranger_gets_nothing(team: Team) -> None:
    for password in ("", "blr:guess"):
        status, answer = team.prefect.ask("POST", "/flow_runs/filter", {}, password=password)
        assert status == 401, answer


def test_parameters_have_types_choices_and_bounds(team: Team) -> None:
    schema = json.dumps(team.prefect.deployment("train")["parameter_openapi_schema"])
    assert '"enum": ["evidence", "bic"' in schema
    assert '"description": "Score that ranks the candidates' in schema
    deployment = team.prefect.deployment("classify")
    wrong = {"parameters": deployment["parameters"] | {"threads": 0}}
    status, answer = team.prefect.ask("POST", f"/deployments/{deployment['id']}/create_flow_run", wrong)
    assert (status, "threads" in str(answer)) == (409, True), answer


def test_the_form_draws_choices_and_nested_tables(team: Team, pages: Browser) -> None:
    deployment = team.prefect.deployment("train")
    pages.open(f"{team.prefect.url}/v2/deployments/deployment/{deployment['id']}/run")
    pages.shows("Specification of what to train")
    pages.click("Specification")
    pages.shows("The labelled catalogue.", "Score that ranks the candidates", "Share of the rows that no fit")
    chosen = "button[aria-label^=Select]"
    pages.wait_for(lambda: "evidence" in [e.text for e in pages.all(chosen)], "the choice 'evidence'")
    pages.picture(f"{team.database}-nested")


def test_a_run_starts_from_the_form_and_shows_what_it_found(team: Team, pages: Browser) -> None:
    deployment = team.prefect.deployment("classify")
    pages.open(f"{team.prefect.url}/v2/deployments/deployment/{deployment['id']}/run")
    pages.shows("NAME, for its champion", "Replace what another model")
    name = pages.wait_for(
        lambda: pages.some("input[name=name]")[0].get_attribute("value"), "a name for the run"
    )
    pages.change("release", "release/field-1.parquet")
    pages.change("annotated", "by-hand")
    pages.picture(f"{team.database}-form")
    # A run is named by what it does as soon as it begins; until then it has the name of the form.
    asked = {"deployment_id": deployment["id"], "auto_scheduled": False}
    pages.click_until("Submit", lambda: team.prefect.find("flow_runs", **asked), f"the run {name}")
    run = team.prefect.run_ended(**asked)
    assert run["state_name"] == "Completed", team.prefect.logs(run)
    assert re.fullmatch(r"classify morphology@[0-9a-f]{4} → release 1", run["name"])
    assert run["parameters"]["out"] == "by-hand"
    assert [path.name for path in (team.folder / "by-hand").glob("*.parquet")] == ["field-1.parquet"]

    pages.open(f"{team.prefect.url}/v2/runs/flow-run/{run['id']}?tab=Artifacts")
    message = "Release 1: 1 file, 300 objects; annotated now: 1 new."
    assert run["state"]["message"] == message
    pages.shows(run["name"], "Completed", "Classes in this release: done", "300 rows in ")
    pages.picture(f"{team.database}-run")
    pages.open(f"{team.prefect.url}/v2/runs/flow-run/{run['id']}?tab=Logs")
    pages.shows("field-1.parquet: 300 rows in ", " rows/s", f"Finished in state Completed('{message}')")
    pages.picture(f"{team.database}-log")
    left = {one["key"]: one["id"] for one in team.prefect.find("artifacts", flow_run_id=run["id"])}
    pages.open(f"{team.prefect.url}/v2/artifacts/artifact/{left['morphology-classes']}")
    pages.shows("early", HOSTILE)
    assert not pages.all("img[src=x]"), "a class's name was taken for markup"
    pages.picture(f"{team.database}-classes")
    assert "bad" not in pages.driver.title


def test_a_scheduled_run_fires(team: Team) -> None:
    deployment = team.prefect.deployment("classify")
    run = team.prefect.run_ended(deployment_id=deployment["id"], auto_scheduled=True)
    assert run["state_name"] == "Completed", team.prefect.logs(run)
    # A worker fetches runs some seconds ahead and lets one go a moment early: that it was scheduled is what counts.
    assert run["auto_scheduled"]
    assert run["expected_start_time"]
    outputs = sorted(path.name for path in (team.folder / "annotated").glob("*.parquet"))
    assert outputs == ["field-0.parquet", "field-1.parquet"]


def test_an_event_starts_a_run_with_what_it_tells(team: Team) -> None:
    """The delivery script's word that a release has arrived; templates of triggers are plain strings."""
    deployment = team.prefect.deployment("reprocess")
    run = team.prefect.run_ended(deployment_id=deployment["id"], auto_scheduled=False)
    assert run["parameters"]["specification"] == "dr6.toml"
    assert run["state_name"] == "Completed", team.prefect.logs(run)
    assert run["work_queue_name"] == "nightly"
    outputs = sorted(path.name for path in (team.folder / "product").glob("*.parquet"))
    assert outputs == ["field-0.parquet", "field-1.parquet"]


NEWER = ("0123456789ab", "0123456789ac")
"""Versions of two challengers: one will be rejected, the other one promoted."""


def test_a_person_promotes_and_rejects_on_the_page(team: Team, pages: Browser) -> None:
    """The approval form: what it shows, what it asks for, and what becomes of the answer."""
    if team.database != "sqlite":
        pytest.skip("the form is the pages', whatever the database: tried on SQLite")
    prefect, store = team.prefect, Store(team.folder / "models")
    prefect.run_ended(deployment_id=prefect.deployment("reprocess")["id"])  # the release that would change
    champion = store.load("morphology")
    asked = {}
    for version in NEWER:
        made = store.save(replace(champion, version=version), card="")
        shutil.copy(store.find(champion.label).folder / ROWS_FILE, made.folder)
        parameters = {"model": made.label, "store": "models", "how": "ask"}
        path = f"/deployments/{prefect.deployment('promote')['id']}/create_flow_run"
        asked[version] = prefect.ask("POST", path, {"parameters": parameters})[1]["id"]

    for run in asked.values():  # both of the worker's places, if they waited in their processes
        wait_for(partial(prefect.find, "flow_runs", id=run, state_name="Suspended"), "the runs that ask")
    wait_for(lambda: not processes_of_runs(prefect), "the end of their processes")
    path = f"/deployments/{prefect.deployment('classify')['id']}/create_flow_run"
    beside = prefect.ask("POST", path, {"parameters": {"out": "beside"}})[1]["id"]
    assert prefect.run_ended(id=beside)["state_name"] == "Completed", "two approvals wait, and runs go on"

    def answer(version: str, decision: str, why: str) -> dict[str, Any]:
        run = asked[version]
        pages.open(f"{prefect.url}/v2/runs/flow-run/{run}")
        pages.fill_approval(
            decision,
            "A. Astronomer",
            why,
            shows=(
                "By rule it would not be promoted",
                "gain on objects new to both",
                "would change class in release 1",
                f"morphology@{version} in the place of {champion.label}",
                "By class, on objects new to both",
                "In the last release, 1 in product",
                "report of the champion",
            ),
            picture=f"{team.database}-approval",
        )
        return prefect.run_ended(id=run)

    run = answer(NEWER[0], "reject", "loses the dwarfs")
    assert run["name"] == f"promote morphology@{NEWER[0][:4]} in the place of @{champion.version[:4]}: ask"
    said = f"morphology@{NEWER[0]} is rejected (A. Astronomer: loses the dwarfs); "
    assert run["state"]["message"].startswith(said)
    assert store.champion("morphology") == champion.version
    run = answer(NEWER[1], "promote", "purity of late types")
    assert "(A. Astronomer: purity of late types)" in run["state"]["message"]
    assert store.champion("morphology") == NEWER[1]
    decisions = [(d.kind, d.version, d.who, d.why) for d in store.history("morphology")[-2:]]
    assert decisions == [
        ("rejected", NEWER[0], "A. Astronomer", "loses the dwarfs"),
        ("promoted", NEWER[1], "A. Astronomer", "purity of late types"),
    ]


def processes_of_runs(prefect: Prefect) -> list[psutil.Process]:
    """Return the processes in which a worker of this server runs flows."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            ours = process.environ().get("PREFECT_API_URL") == f"{prefect.url}/api"
            if ours and "prefect.engine" in process.cmdline():
                found.append(process)
    return found


def test_a_list_of_runs_says_why_one_failed(team: Team) -> None:
    """An error that the user can correct: one sentence, as the run's name, its state and its log; no traceback."""
    prefect = team.prefect
    text = (team.folder / "spec.toml").read_text().replace("release/*", "gone/*")
    (team.folder / "gone.toml").write_text(text)
    path = f"/deployments/{prefect.deployment('reprocess')['id']}/create_flow_run"
    asked = prefect.ask("POST", path, {"parameters": {"specification": "gone.toml", "store": "models"}})[1]
    run = prefect.run_ended(id=asked["id"])
    gone = team.folder / "gone"
    said = (
        f"target.paths: got '{gone}/*.parquet', which no file matches; "
        f"there is no folder {gone}: is its disk mounted?"
    )
    assert (run["state_name"], run["state"]["message"]) == ("Failed", said)
    assert run["name"] == f"reprocess: {said}"[:199] + "…"
    wait_for(lambda: f"Finished in state Failed({said!r})" in prefect.logs(run), "the last line of its log")
    wait_for(lambda: not processes_of_runs(prefect), "the end of its process, after which nothing is logged")
    assert "Traceback" not in prefect.logs(run)
    assert "Traceback" in (prefect.folder / "worker.log").read_text(), "for whoever looks for a fault of ours"


ALERTS = """
import json, sys
from prefect.blocks.webhook import Webhook
from flows.cli.app import run
automate = ["deployments", "automate", "--json"]
codes = [run([*automate, "--dry-run"]), run(automate)]
Webhook(url=sys.argv[1]).save("blr")
sys.exit([*codes, run(automate), run(automate)] != [0, 2, 0, 0])
"""


def test_the_alert_of_a_nightly_run_that_failed_reaches_the_team(team: Team) -> None:
    """`blr deployments automate` finds what it needs by name; a webhook hears of the run, its end and why."""
    if team.database != "sqlite":
        pytest.skip("automations are the server's, whatever its database: tried on SQLite")
    prefect, deployment = team.prefect, team.prefect.deployment("reprocess")
    with listener() as (url, heard):
        command = (PROGRAMS / "python", "-P", "-c", ALERTS, url)
        done = ran(*command, env=prefect.environment, cwd=team.folder, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr[-3000:]
        assert "--notify: got no block 'blr' that notifies" in done.stderr
        statuses = re.findall(r'"status": "(created|updated|unchanged)"', done.stdout)
        n = 2 * 3 + 2  # two deployments have a schedule
        assert statuses == ["created"] * 2 * n + ["unchanged"] * n, "planned, made, and nothing to do again"
        later = (datetime.now(UTC) + timedelta(days=1)).isoformat()  # so that no worker takes it
        body = {"state": {"type": "SCHEDULED", "state_details": {"scheduled_time": later}}}
        path = f"/deployments/{deployment['id']}/create_flow_run"
        run = prefect.ask("POST", path, body)[1]
        failed = {"type": "FAILED", "name": "Failed", "message": 'no "disk"'}
        crashed = {"type": "CRASHED", "name": "Crashed", "message": "exited with status 1"}
        other = prefect.ask("POST", path, body)[1]
        # The failure of a run, what its worker says of it, and later another run's failure.
        for one, state in ((run, failed), (run, crashed), (other, {"type": "FAILED", "name": "Failed"})):
            prefect.ask("POST", f"/flow_runs/{one['id']}/set_state", {"state": state, "force": True})
        wait_for(lambda: any(other["name"] in alert["text"] for alert in heard), "the alert of the other run")
    page = f"{prefect.url}/runs/flow-run/"
    assert {alert["text"] for alert in heard} == {
        f'{run["name"]}: Failed. no "disk" {page}{run["id"]}',
        f"{other['name']}: Failed.  {page}{other['id']}",
    }
    assert len(heard) == 2


def test_no_secret_is_told(team: Team) -> None:
    """Neither the API's password nor the database's: not in logs of programs and runs, nor on pages."""
    database = team.prefect.settings.get("PREFECT_SERVER_DATABASE_CONNECTION_URL", "")
    secrets = [team.prefect.password.partition(":")[2], *filter(None, [urlsplit(database).password])]
    assert len(secrets) == (2 if team.database == "postgresql" else 1)
    told = [log.read_text() for log in team.prefect.folder.glob("*.log")]
    assert len(told) == 2, "server and worker"
    told += [team.prefect.logs(run) for run in team.prefect.find("flow_runs")]
    told += [json.dumps(team.prefect.find(kind)) for kind in ("artifacts", "flow_runs", "deployments")]
    told += [path.read_text() for path in team.folder.rglob("*.json")]
    for secret in secrets:
        assert not [text for text in told if secret in text]


def test_sigterm_ends_a_worker_whose_server_is_gone(tmp_path: Path) -> None:
    prefect, before = Prefect(tmp_path), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:  # where tests run in the background of a script, which lets its programs ignore the signal
        with prefect.server() as server:
            prefect.cli("work-pool", "create", "blr", "--type", "process", cwd=tmp_path)
            with prefect.worker("blr") as worker:
                wait_for(lambda: "started!" in (tmp_path / "worker.log").read_text(), "the worker")
                end(server)
                time.sleep(5)  # so that the worker has noticed
                worker.terminate()
                worker.wait(timeout=60)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_command_whose_server_dies_says_one_sentence(survey: Path, tmp_path: Path) -> None:
    """Within seconds after its work, and in no page of Prefect's errors."""
    folder = Path(shutil.copytree(survey, tmp_path / "survey"))
    write_galaxies(folder / "large.parquet", 300_000, seed=9)
    prefect, log = Prefect(tmp_path), tmp_path / "classify.log"
    command: list[str | Path] = [PROGRAMS / "blr", "classify", "large.parquet", "--model", "morphology"]
    command += ["--out", "large", "--prefect"]
    with prefect.server() as server, running(command, log, cwd=folder, env=prefect.environment) as process:
        wait_for(lambda: "large.parquet: 300,000 rows" in log.read_text(), "the work", between=0.05)
        for one in (psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)):
            one.kill()
        assert process.wait(timeout=90) == 1  # 20 s on an idle machine; it was minutes
    (said,) = [line for line in log.read_text().splitlines() if "rver no longer answers" in line]
    assert said.startswith("blr: error: Prefect's server no longer answers (")
    assert log.read_text().splitlines()[-1] == said
    assert not re.search(r"Traceback|ERROR|Error logging|Service '", log.read_text())
    again = subprocess.run([*command[:-1], "--direct"], cwd=folder, env=prefect.environment, check=False)
    assert again.returncode == 0


SILENCE = 10
"""Seconds, in the place of the nine minutes of the example; Prefect takes no fewer."""


@pytest.mark.long
def test_only_runs_that_are_silent_are_crashed(team: Team) -> None:
    """A run that completed stays so when a heartbeat comes after its end, as in Prefect's issues 18653 and 21932."""
    if team.database != "sqlite":
        pytest.skip("the rules are the server's, whatever its database: tried on SQLite")
    prefect = team.prefect
    completed = prefect.run_ended(state_name="Completed")["id"]
    silent, suspended = (begun(prefect, completed) for _ in range(2))
    automation = watch(prefect, [completed, silent, suspended])

    def fired() -> dict[str, str]:
        """Return of each run what became of the automation's action: "done", or why it failed."""
        wanted = {"event": {"prefix": ["prefect.automation.action."]}, "resource": {"id": [automation]}}
        events = prefect.ask("POST", "/events/filter", {"filter": wanted, "limit": 50})[1]["events"]
        ended = [event for event in events if not event["event"].endswith(".triggered")]
        return {
            run["prefect.resource.id"].removeprefix("prefect.flow-run."): event["payload"].get(
                "reason", "done"
            )
            for event in ended
            for run in event["related"]
        }

    def put(kind: str, name: str) -> None:
        state = {"type": kind, "name": name}
        prefect.ask("POST", f"/flow_runs/{suspended}/set_state", {"state": state, "force": True})

    end = time.monotonic() + PATIENCE
    while not {completed, silent} <= fired().keys():
        assert time.monotonic() < end, "the automation did not fire"
        put("RUNNING", "Running")  # a run that is suspended already has no event of its suspension
        seen(prefect, [beat(prefect, run) for run in {completed, silent, suspended} - fired().keys()], end)
        put("PAUSED", "Suspended")
        time.sleep(SILENCE + 8)  # a busy server may have missed the first heartbeats: too new an automation
    assert fired()[silent] == "done"
    assert "already in terminal state COMPLETED" in fired()[completed]
    assert suspended not in fired()
    for run, state in ((completed, "Completed"), (silent, "Crashed"), (suspended, "Suspended")):
        assert prefect.find("flow_runs", id=run)[0]["state_name"] == state


def begun(prefect: Prefect, like: str) -> str:
    """Return a run that the server takes for one at work, of the same flow as another."""
    (other,) = prefect.find("flow_runs", id=like)
    run = prefect.ask("POST", "/flow_runs/", {"flow_id": other["flow_id"], "state": {"type": "PENDING"}})[1]
    at_work = {"state": {"type": "RUNNING", "name": "Running"}}
    prefect.ask("POST", f"/flow_runs/{run['id']}/set_state", at_work)
    return str(run["id"])


def watch(prefect: Prefect, runs: list[str]) -> str:
    """Put up the automation of docs/examples, less patient, for some runs alone; return what events call it."""
    path = Path(__file__).parents[2] / "docs" / "examples" / "zombie-runs.yaml"
    automation = yaml.safe_load(path.read_text())
    automation["trigger"]["within"] = SILENCE
    automation["trigger"]["match"] = {"prefect.resource.id": [f"prefect.flow-run.{run}" for run in runs]}
    status, answer = prefect.ask("POST", "/automations/", automation)
    assert status == 201, answer
    return f"prefect.automation.{answer['id']}"


def beat(prefect: Prefect, run: str) -> str:
    """Send a run's heartbeat, as its process does; return the event's id."""
    event = {
        "id": str(uuid4()),
        "occurred": datetime.now(UTC).isoformat(),
        "event": "prefect.flow-run.heartbeat",
        "resource": {"prefect.resource.id": f"prefect.flow-run.{run}"},
    }
    status, answer = prefect.ask("POST", "/events", [event])
    assert status == 204, answer
    return event["id"]


def seen(prefect: Prefect, events: list[str], end: float) -> None:
    """Wait until the server has taken in the events, so that what comes later comes after them."""
    wanted = {"filter": {"id": {"id": events}}, "limit": 50}
    while len(prefect.ask("POST", "/events/filter", wanted)[1]["events"]) < len(events):
        assert time.monotonic() < end, "the server did not take in the heartbeats"
        time.sleep(0.2)
