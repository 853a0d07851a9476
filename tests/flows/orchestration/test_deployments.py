"""prefect.yaml, settings and words of runs, and command-line runs that were killed."""

from __future__ import annotations

import json
import logging
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
import yaml

from flows.errors import UsageError
from flows.orchestration.run_page import (
    MOST_NOTES,
    PAGES,
    _Log,
    classification_message,
    page_of,
    started_name,
)
from flows.orchestration.settings import crash_unended, deployments, deployments_text, holding, served_at
from flows.runs.progress import listening, tell
from tests.e2e.running import clean_environment
from tests.flows.children import Child, free_port, python, ran
from tests.flows.verbs import classify


def test_the_text_for_a_survey_names_files_that_are_there() -> None:
    entries = yaml.safe_load(deployments_text())["deployments"]
    for entry in entries:
        path, _, flow = entry["entrypoint"].partition(":")
        assert Path(path).is_absolute()
        assert Path(path).is_file()
        assert flow == entry["name"]
        assert "concurrency_limit" not in entry


@pytest.mark.parametrize(
    "text", ["", "deployments: 3", "deployments: [{name: x}]", "deployments: [classify]", "a: [b: c"]
)
def test_a_file_that_is_no_list_of_deployments(tmp_path: Path, text: str) -> None:
    (tmp_path / "prefect.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"prefect.yaml: got .*, expected a list 'deployments'.*blr deploy"):
        deployments(tmp_path / "prefect.yaml")


def test_served_as_prefect_would_deploy_them(tmp_path: Path) -> None:
    from flows.orchestration.deployments import served

    told = {d.name: d for d in served(tmp_path / "none.yaml")}
    assert told["classify"].flow_name == "classify"
    (nightly, often) = told["reprocess"].schedules
    assert (nightly.schedule.cron, nightly.active) == ("15 3 * * *", True)
    assert (often.schedule.interval, often.active) == (timedelta(seconds=900), False)
    expected = [trigger.expect for trigger in told["reprocess"].triggers]
    assert expected == [{"blr.release.arrived"}, {"blr.model.promoted"}]


def test_a_schedule_that_is_none(tmp_path: Path) -> None:
    from flows.orchestration.deployments import served

    text = deployments_text().replace("15 3 * * *", "every night")
    (tmp_path / "prefect.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"deployment 'reprocess': .*see docs/operations.md"):
        served(tmp_path / "prefect.yaml")


SHADOWED = """
import sys
sys.path.insert(0, "")
from prefect.flows import load_flow_from_entrypoint
for entry in sys.argv[1:]:
    # Prefect would make do with the flow's name where it cannot be imported.
    print(load_flow_from_entrypoint(entry, use_placeholder_flow=False).name)
"""


@pytest.mark.slow
def test_a_folder_with_our_names_does_no_harm_to_entry_points(tmp_path: Path) -> None:
    for name in ("flows", "catalogs", "blr"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f'raise ImportError("another {name}")\n')
    entries = deployments(tmp_path / "none.yaml")
    environment = clean_environment() | {"PREFECT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path)}
    points = [entry["entrypoint"] for entry in entries]
    done = python("-c", SHADOWED, *points, cwd=tmp_path, env=environment, timeout=120)
    assert done.stdout.split() == [entry["name"] for entry in entries], done.stderr


def test_a_database_has_one_server(tmp_path: Path) -> None:
    assert served_at(tmp_path) is None
    with holding(tmp_path) as address:
        address.write_text("http://127.0.0.1:1")
        assert served_at(tmp_path) == "http://127.0.0.1:1"
        with pytest.raises(UsageError, match=r"another server uses \(http://127"), holding(tmp_path):
            pass
        assert served_at(tmp_path) == "http://127.0.0.1:1"
    assert served_at(tmp_path) is None


MODEL = "morphology@7ef2f804147c"


def test_a_name_says_verb_model_and_release_and_a_message_that_it_was_a_trial(
    trained: Path, tmp_path: Path
) -> None:
    asked = {"model": "morphology", "store": trained / "models", "out": tmp_path / "out"}
    assert started_name("classify", MODEL, release=12) == "classify morphology@7ef2 → release 12"
    assert started_name("classify", MODEL, release=12, trial=True) == "classify morphology@7ef2: trial"
    trial = classify([trained / "survey.parquet"], **asked, limit=10)
    assert classification_message(trial) == "Trial on 10 rows; nothing was written."


def test_few_lines_are_logged_and_all_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    class Ear:
        def start(self, what: str, total: int, unit: str) -> None:
            heard.append(f"{what} {total} {unit}")

        def advance(self, n: int) -> None:
            heard.append(str(n))

        def note(self, line: str) -> None:
            heard.append(line)

    with caplog.at_level(logging.INFO), listening(_Log(logging.getLogger("run"), Ear())):
        tell().start("12 files", 1000, "rows")
        for _ in range(1000):
            tell().advance(1)
        for i in range(MOST_NOTES + 20):
            tell().note(f"note {i}")
    assert len(heard) == 1 + 1000 + MOST_NOTES + 20
    begin, end, *notes = caplog.messages
    assert begin == "12 files: 1,000 rows"
    assert end.startswith("12 files: 1,000 rows in ")
    assert notes == [f"note {i}" for i in range(MOST_NOTES)] + ["further notes are not logged"]


def test_a_link_leads_to_the_teams_web_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "models" / "a b" / "report.html"
    monkeypatch.delenv(PAGES, raising=False)
    assert page_of(report) == report.as_uri()
    monkeypatch.setenv(PAGES, f"{tmp_path}=https://survey.example.org/files/")
    assert page_of(report) == "https://survey.example.org/files/models/a%20b/report.html"
    assert page_of(tmp_path.parent / "x.html").startswith("file://")
    monkeypatch.setenv(PAGES, "https://survey.example.org")
    with pytest.raises(UsageError, match="expected FOLDER=URL"):
        page_of(report)


DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "operations.md").read_text(encoding="utf-8")
ASK = """
import json
from prefect.settings import get_current_settings
s = get_current_settings()
print(json.dumps({
    "home": str(s.home),
    "url": s.api.url,
    "auth": [s.server.api.auth_string.get_secret_value(), s.api.auth_string.get_secret_value()],
    "hosts": [s.server.api.host, s.worker.webserver.host],
    "serializer": s.results.default_serializer,
    "leases": s.server.concurrency.lease_storage,
    "vacuum": sorted(s.server.services.db_vacuum.enabled_vacuum_types & {"events", "flow_runs"}),
    "days": [s.server.services.db_vacuum.retention_period.days, s.server.events.retention_period.days],
    "analytics": s.server.analytics_enabled,
    "roots": __import__("os").environ["BLR_ROOTS"],
}))
"""


def test_the_settings_are_prefects_and_are_taken(tmp_path: Path) -> None:
    (settings,) = re.findall(r"```sh\n(set -a .*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "blr.env").write_text(settings)
    command = ("sh", "-c", '. ./blr.env && exec "$0" -W error -c "$1"', sys.executable, ASK)
    done = ran(*command, cwd=tmp_path, env=clean_environment() | {"HOME": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, ""), "a setting that is not known is warned of"
    assert json.loads(done.stdout) == {
        "home": f"{tmp_path}/blr-prefect",
        "url": "http://127.0.0.1:4200/api",
        "auth": ["blr:choose-one", "blr:choose-one"],
        "hosts": ["127.0.0.1", "127.0.0.1"],
        "serializer": "json",
        "leases": "prefect.server.concurrency.lease_storage.filesystem",
        "vacuum": ["events", "flow_runs"],
        "days": [30, 7],
        "analytics": False,
        "roots": "/srv/survey",
    }


@pytest.mark.parametrize("path", sorted((DOCS / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_are_automations_of_events_that_there_are(path: Path) -> None:
    from prefect.automations import Automation

    told = yaml.safe_load(re.sub(r"\b[A-Z]+_ID\b", "00000000-0000-0000-0000-000000000000", path.read_text()))
    assert Automation.model_validate(told).actions
    ours = [name for name in told["trigger"]["expect"] if name.startswith("blr.")]
    assert all(f"| `{name}` |" in (DOCS / "reprocessing.md").read_text() for name in ours)
    assert ours or path.stem == "zombie-runs"


def test_the_automation_for_silent_runs_is_the_example_and_forces_nothing() -> None:
    """The server decides by the state that a run has when it fires: only one that has not ended can be crashed."""
    from flows.orchestration.deployments import _action_maker, _server_alerts

    example = yaml.safe_load((DOCS / "examples" / "zombie-runs.yaml").read_text())
    assert example["actions"][0]["force"] is False
    left = {"Completed", "Failed", "TimedOut", "Cancelled", "Crashed", "Suspended", "AwaitingRetry"}
    assert left <= {event.removeprefix("prefect.flow-run.") for event in example["trigger"]["expect"]}
    _, silent = _server_alerts(_action_maker(None))[-1]
    ours = silent.trigger.model_dump(mode="json")
    for key in ("posture", "match", "threshold", "within"):
        assert ours[key] == example["trigger"][key]
    for key in ("expect", "after", "for_each"):
        assert sorted(ours[key]) == sorted(example["trigger"][key])
    (action,) = silent.actions
    assert action.model_dump(mode="json", exclude_none=True) == example["actions"][0]


SHARE = """
import pathlib, sys
from flows.orchestration.settings import share
print(share(pathlib.Path(sys.argv[1])) is not None, flush=True)
sys.stdin.read()
"""


def test_who_is_alone_knows_it_and_others_do_not(tmp_path: Path) -> None:
    first, second = Child(SHARE, tmp_path), Child(SHARE, tmp_path)
    first.kill()
    third = Child(SHARE, tmp_path)
    second.end()
    third.end()
    fourth, nowhere = Child(SHARE, tmp_path), Child(SHARE, tmp_path / "absent")
    fourth.end()
    nowhere.end()  # where nothing can be written nothing is known
    said = ["True", "False", "False", "True", "False"]
    assert [p.said for p in (first, second, third, fourth, nowhere)] == said


def test_runs_of_before_are_crashed_and_no_others(prefect_server: str) -> None:
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.states import Completed, Running

    @flow(name="killed")
    def killed() -> None:
        """Never run: only its runs are."""

    def state(run: str) -> str:
        return client.read_flow_run(run.id).state.type.value

    with get_client(sync_client=True) as client:
        done = client.create_flow_run(killed, state=Completed())
        prepared = client.create_flow_run(killed)
        begun = client.create_flow_run(killed)
        client.set_flow_run_state(begun.id, Running())
        now = datetime.now(UTC)
        later = client.create_flow_run(killed)
        client.set_flow_run_state(later.id, Running())
        address = prefect_server.removesuffix("/api")
        assert crash_unended(address, now - timedelta(minutes=5)) == []
        assert {*crash_unended(address, now)} == {str(begun.id), str(prepared.id)}
        states = [state(run) for run in (begun, prepared, later, done)]
        assert states == ["CRASHED", "CRASHED", "RUNNING", "COMPLETED"]
        assert "was killed" in client.read_flow_run(begun.id).state.message
        client.delete_flow_run(later.id)


HOLD = """
import pathlib, sys
from prefect import flow
from flows.orchestration.run_page import run_logged
from flows.runs.lock import exclusive
from flows.runs.progress import tell
@flow
def holds_a_folder():
    with run_logged(), exclusive(pathlib.Path(sys.argv[1])):
        print(tell().run, flush=True)
        sys.stdin.read()
holds_a_folder()
"""


def test_a_server_hears_from_the_next_run_of_a_folder_that_one_was_killed(
    prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a team's server, whose other runs are at work.  A run that is tried again is not its own victim."""
    from prefect import flow
    from prefect.client.orchestration import get_client

    from flows.orchestration.run_page import run_logged
    from flows.runs.lock import exclusive, tell_of_killed

    @flow(name="next")
    def next_run() -> None:
        with run_logged(), exclusive(tmp_path) as owner:
            tell_of_killed(owner)
            tell_of_killed(replace(owner, run=tell().run))
            assert client.read_flow_run(UUID(tell().run)).state.is_running()

    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    killed = Child(HOLD, tmp_path)
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(UUID(killed.said)).state.type.value == "RUNNING"
        killed.kill()
        next_run()
        state = client.read_flow_run(UUID(killed.said)).state
    assert state.type.value == "CRASHED"
    assert f"process {killed.pid}" in state.message


def test_a_server_that_does_not_answer_is_no_reason_to_do_no_work() -> None:
    assert crash_unended(f"http://127.0.0.1:{free_port()}", datetime.now(UTC)) == []
