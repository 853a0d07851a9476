"""Events and artifacts of releases that go well and badly, as a real server has them, and automations that listen.

Two runs of `reprocess`: a release of one file; then one of more files, of which two have drifted and one is damaged.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from flows.models.row_files import ROWS_FILE
from flows.models.store import Store
from flows.orchestration.run_page import encode_value
from flows.reports.counts import run_tables
from flows.runs.results import ReleaseResult
from tests.e2e.running import wait_for
from tests.flows.watching import ask, automation, deployment, events, listener, runs_of

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
CHALLENGER = "0123456789ab"
DAMAGED = 'field "1" <b>|{{ 7 * 7 }}.parquet'
"""A name as bad as a file system allows."""


def example(name: str, **filled_in: object) -> str:
    """Return an example's text, with the ids that it asks for."""
    text = (EXAMPLES / name).read_text()
    for blank, value in filled_in.items():
        assert blank in text
        text = text.replace(blank, str(value))
    return text


@pytest.fixture(scope="module")
def watched(
    prefect_server: str, trained: Path, make: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SimpleNamespace]:
    from prefect.blocks.webhook import Webhook

    from flows.reprocess import reprocess

    folder = tmp_path_factory.mktemp("watched")
    (folder / "release").mkdir()
    (folder / "spec.toml").write_text(make.specification + '\n[target]\npaths = ["release/*.parquet"]\n')
    chosen = {"store": trained / "models", "quiet_seconds": 0}
    make.parquet(folder / "release/a.parquet", make.survey(300, seed=1))
    first = reprocess(folder / "spec.toml", **chosen, return_state=True)
    train_id = deployment("train")
    with listener() as (url, heard):
        block = Webhook(url=url).save("quarantine", overwrite=True)
        automation(example("train-after-drift.yaml", DEPLOYMENT_ID=train_id))
        automation(example("quarantined-files.yaml", BLOCK_ID=block))
        for seed, name in enumerate(("b.parquet", "c.parquet")):
            survey = make.survey(300, seed=2 + seed)
            make.parquet(folder / "release" / name, survey | {"bmag": survey["bmag"] + 3})
        (folder / "release" / DAMAGED).write_bytes((folder / "release/a.parquet").read_bytes()[:2000])
        second = reprocess(folder / "spec.toml", **chosen, return_state=True)
        yield SimpleNamespace(
            server=prefect_server,
            folder=folder,
            store=trained / "models",
            runs=[str(state.state_details.flow_run_id) for state in (first, second)],
            first=first.result(),
            told=second.result(),
            train=train_id,
            heard=heard,
        )


def arrived(watched: SimpleNamespace, name: str, n: int = 1) -> list[dict[str, Any]]:
    """Wait for that many events of this folder; return them in the order in which they happened."""
    out = str(watched.folder / "annotated")

    def ours() -> list[dict[str, Any]]:
        found = [e for e in events(watched.server, name) if e["payload"].get("out", out) == out]
        return sorted(found, key=lambda e: e["occurred"]) if len(found) >= n else []

    return wait_for(ours, f"{n} events {name}")


def artifact(watched: SimpleNamespace, key: str, run: int = 2) -> dict[str, Any]:
    wanted = {"artifacts": {"key": {"any_": [key]}}, "flow_runs": {"id": {"any_": [watched.runs[run - 1]]}}}
    (found,) = ask(watched.server, "/artifacts/filter", wanted)
    return found


def test_a_release_that_is_done_tells_what_has_changed(watched: SimpleNamespace) -> None:
    before, after = arrived(watched, "blr.release.done", 2)
    assert before["resource"]["prefect.resource.id"] == "blr.release.morphology"
    out = str(watched.folder / "annotated")
    told = {"release": 1, "model": watched.told.model, "out": out, "rows": 300}
    nothing = dict.fromkeys(("retired", "quarantined", "deferred", "class_changed", "moved"), 0)
    assert before["payload"] == told | {"annotated": 1} | nothing
    second = {"release": 2, "rows": 900, "annotated": 2, "quarantined": 1}
    assert after["payload"] == told | nothing | second


def test_drift_tells_of_which_features_and_starts_a_training(watched: SimpleNamespace) -> None:
    (event,) = arrived(watched, "blr.drift.found")
    assert event["resource"]["prefect.resource.id"] == "blr.model.morphology"
    assert set(event["payload"]["features"]) == {"b_j"} == set(watched.told.drifted)
    assert event["payload"]["features"]["b_j"]["mean_shift"] > 1
    (run,) = wait_for(lambda: runs_of(watched.server, watched.train), "a training")
    assert run["created_by"]["type"] == "AUTOMATION"


def test_a_quarantined_file_is_told_once_and_to_somebody(watched: SimpleNamespace) -> None:
    (event,) = arrived(watched, "blr.partition.quarantined")
    payload = event["payload"]
    assert (payload["file"], payload["model"]) == (DAMAGED, watched.told.model)
    assert payload["reason"] == watched.told.quarantined[DAMAGED]
    assert "Parquet" in payload["reason"]
    assert wait_for(lambda: watched.heard, "the webhook") == [payload], "quoted, and not as a template"


def test_a_third_run_tells_nothing_more(watched: SimpleNamespace) -> None:
    """Nothing has changed; what it logs proves that events of a later run have had their time."""
    from prefect.events import emit_event

    from flows.reprocess import reprocess

    again = reprocess(watched.folder / "spec.toml", store=watched.store, quiet_seconds=0)
    assert again.status == "nothing to do"
    last = ask(watched.server, "/flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 1})[0]
    short = again.model[: len("morphology@") + 4]
    assert last["name"] == f"reprocess {short}: nothing to do, release 2, 1 quarantined"
    assert last["state"]["name"] == "Quarantined"
    said = "Nothing to do: 3 files, 900 objects, as at release 2, 1 quarantined; quarantined: "
    assert last["state"]["message"].startswith(said)
    emit_event("blr.test.last", resource={"prefect.resource.id": "blr.test"})
    wait_for(lambda: events(watched.server, "blr.test.last"), "a later event")
    assert len(arrived(watched, "blr.release.done", 2)) == 2
    assert len(arrived(watched, "blr.partition.quarantined", 2)) == 2
    assert len(watched.heard) == 1, "one alert a day"


def test_each_file_of_the_release_is_in_a_table(watched: SimpleNamespace) -> None:
    rows = json.loads(artifact(watched, "morphology-status")["data"])
    assert [(row["file"], row["state"]) for row in rows] == [
        (DAMAGED, "quarantined"),
        *((name, "current") for name in ("a.parquet", "b.parquet", "c.parquet")),
    ]
    assert rows[0]["why"] == watched.told.quarantined[DAMAGED]
    assert rows[0]["since (UTC)"] > "2026"


def test_a_run_says_in_its_name_and_state_what_it_has_done(watched: SimpleNamespace) -> None:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        runs = [client.read_flow_run(run) for run in watched.runs]
    short = watched.told.model[: len("morphology@") + 4]
    names = [f"reprocess {short} → release {n}" for n in ("1", "2, 1 quarantined")]
    assert [run.name for run in runs] == names
    assert [run.state.name for run in runs] == ["Completed", "Quarantined"]
    assert runs[0].state.message == "Release 1: 1 file, 300 objects; annotated now: 1 new."
    said = runs[1].state.message
    assert said.startswith("Release 2, 1 quarantined: 3 files, 900 objects; annotated now: 2 new; ")
    assert said.endswith(f"; unlike the training set: b_j. I{watched.told.repeats[0][1:]}.")


def test_the_log_of_a_run_tells_its_work_in_a_few_lines(watched: SimpleNamespace) -> None:
    def lines() -> list[str]:
        wanted = {"logs": {"flow_run_id": {"any_": [watched.runs[1]]}}, "sort": "TIMESTAMP_ASC"}
        found = [line["message"] for line in ask(watched.server, "/logs/filter", wanted)]
        return found if any("Finished in state Quarantined('Release 2" in line for line in found) else []

    logged = wait_for(lines, "the log")
    assert "2 files: 600 rows" in logged
    assert any(re.fullmatch(r"2 files: 600 rows in [\d.]+ s, [\d,]+ rows/s", line) for line in logged)
    assert f"quarantined: {DAMAGED}: {watched.told.quarantined[DAMAGED]}" in logged
    assert len(logged) < 15, "few lines: not one a batch"


def test_the_report_is_a_link_on_the_page(watched: SimpleNamespace) -> None:
    link, page = artifact(watched, "morphology-release"), (watched.told.out / "report.html").resolve()
    assert link["data"] == f"[Report of release 2]({page.as_uri()})"
    assert str(page) in link["description"]


def test_the_stored_result_of_a_run_is_the_value_again(watched: SimpleNamespace) -> None:
    """Prefect keeps it as JSON: the object that --json prints, and the name of its type."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        states = [client.read_flow_run(run).state for run in watched.runs]
    for state, result in zip(states, (watched.first, watched.told), strict=True):
        stored = state.result()
        assert (type(stored), stored) == (ReleaseResult, result)
        document = json.loads(Path(state.data.storage_key).read_bytes())
        assert document == encode_value(result)


def test_classes_and_flags_stand_against_the_last_run(watched: SimpleNamespace) -> None:
    rows = json.loads(artifact(watched, "morphology-classes")["data"])
    for row in rows:
        last, now = (result.summary.classes[row["class"]] for result in (watched.first, watched.told))
        assert (row["expected"], row["±"]) == (f"{now['expected']:.1f}", f"{now['error']:.1f}")
        assert row["last expected"] == f"{last['expected']:.1f}"
        assert row["change"] == f"{now['expected'] - last['expected']:+.1f}".replace("-", "−")
    flags = {row["flag"]: row for row in json.loads(artifact(watched, "morphology-flags")["data"])}
    for name, row in flags.items():
        assert row["last share"] == f"{watched.first.summary.flags[name]['share']:.1%}"
    assert "last expected" not in json.loads(artifact(watched, "morphology-classes", 1)["data"])[0]


def test_each_table_has_the_cells_of_its_text(watched: SimpleNamespace) -> None:
    """No cell of a table may be lost or stand elsewhere."""
    tables = run_tables(watched.told)
    assert {"census", "drift", "classes", "troubles"} <= {*tables}
    for name, table in tables.items():
        rows = json.loads(artifact(watched, f"morphology-{name}")["data"])
        assert [tuple(row) for row in rows] == [table.columns] * len(table.rows), name
        assert [tuple(row.values()) for row in rows] == [*table.rows], name


def test_drift_progress_and_troubles_are_on_the_page(watched: SimpleNamespace) -> None:
    drift = json.loads(artifact(watched, "morphology-drift")["data"])
    assert [(row["feature"], row["drift"]) for row in drift] == [("b_j", "yes"), ("j_k", "")]
    progress = artifact(watched, "reprocess-progress")
    assert float(progress["data"]) == 100.0
    assert re.fullmatch(r"600 rows in [\d.]+ s, [\d,]+ rows/s", progress["description"])
    (trouble,) = json.loads(artifact(watched, "morphology-troubles")["data"])
    assert (trouble["file"], trouble["state"]) == (DAMAGED, "quarantined")


@pytest.fixture
def challenged(trained: Path, tmp_path: Path) -> tuple[Store, str]:
    """Return a store with a challenger of the champion, and the champion's label."""
    shutil.copytree(trained / "models", tmp_path / "models")
    store = Store(tmp_path / "models")
    champion = store.load("morphology")
    challenger = store.save(replace(champion, version=CHALLENGER), card="")
    shutil.copy(store.find("morphology").folder / ROWS_FILE, challenger.folder)
    return store, champion.label


def promotions(server: str, why: str) -> list[dict[str, Any]]:
    return [e["payload"] for e in events(server, "blr.model.promoted") if e["payload"]["why"] == why]


def test_a_promotion_is_told_and_brings_the_release_up_to_date(
    prefect_server: str, challenged: tuple[Store, str]
) -> None:
    from flows.promote import promote

    store, champion = challenged
    target = deployment("reprocess-after-promotion")
    automation(example("reprocess-after-promotion.yaml", DEPLOYMENT_ID=target))
    told = promote(f"morphology@{CHALLENGER}", store=store.root, how="now", why="a | b")
    assert told.status == "promoted"
    (payload,) = wait_for(lambda: promotions(prefect_server, "a | b"), "the promotion")
    changed = {"model": f"morphology@{CHALLENGER}", "previous": champion}
    assert payload == changed | {"who": told.who, "why": "a | b"}
    assert wait_for(lambda: runs_of(prefect_server, target), "the run that it starts")


def answered(server: str, **answer: str) -> str:
    """Wait for a paused run of `promote`, answer its question; return what the form said."""
    (run,) = wait_for(
        lambda: ask(server, "/flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": ["PAUSED"]}}}}),
        "a run that asks",
    )
    keys = run["state"]["state_details"]["run_input_keyset"]
    path = f"{server}/flow_runs/{run['id']}/input/{keys['description']}"

    def described() -> str:
        with suppress(HTTPError), urlopen(path, timeout=60) as found:  # noqa: S310 - our own server
            return json.load(found)
        return ""

    def resumed() -> bool:
        # A locked SQLite may take the answer and lose the state: a person would press the button again.
        with suppress(HTTPError):
            ask(server, f"/flow_runs/{run['id']}/resume", {"run_input": answer})
        with suppress(HTTPError), urlopen(f"{server}/flow_runs/{run['id']}", timeout=60) as found:  # noqa: S310
            return json.load(found)["state"]["type"] != "PAUSED"
        return False

    said = wait_for(described, "the form's description")
    wait_for(resumed, "the run that goes on")
    return said


@pytest.mark.parametrize("decision", ["promote", "reject"])
def test_a_person_is_asked(
    prefect_server: str, challenged: tuple[Store, str], monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    from flows import promote

    monkeypatch.setattr("flows.orchestration.run_page.BETWEEN_LOOKS", 1)
    store, champion = challenged
    why = f"looked at it, {decision}"
    with ThreadPoolExecutor(1) as person:
        said = person.submit(answered, prefect_server, decision=decision, why=why, who="A. Astronomer")
        state = promote.promote("morphology", store=store.root, how="ask", timeout=600, return_state=True)
    told, form = state.result(), said.result()
    assert form.startswith("**By rule it would ")
    assert "By class, on objects new to both" in form
    assert f"report of the champion]({(store.find(champion).folder / 'report.html').as_uri()})" in form
    assert (told.model, told.why) == (f"morphology@{CHALLENGER}", why)
    # The person, not the user of the worker's process, in the result, the log and the run's state.
    last = store.history("morphology")[-1]
    assert told.who == last.who == "A. Astronomer"
    assert f"(A. Astronomer: {why})" in state.message
    if decision == "promote":
        assert (told.status, store.champion("morphology")) == ("promoted", CHALLENGER)
        assert wait_for(lambda: promotions(prefect_server, why), "the promotion")
    else:
        assert (told.status, store.find("morphology").label) == ("rejected", champion)
        assert (last.kind, last.why) == ("rejected", why)


@pytest.mark.usefixtures("prefect_server")
def test_nobody_answers(challenged: tuple[Store, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.exceptions import FlowPauseTimeout

    from flows import promote

    monkeypatch.setattr("flows.orchestration.run_page.BETWEEN_LOOKS", 1)
    store, champion = challenged
    with pytest.raises(FlowPauseTimeout):
        promote.promote("morphology", store=store.root, how="ask", timeout=1)
    assert store.find("morphology").label == champion


@pytest.mark.parametrize("decision", ["sign", "refuse"])
def test_a_person_signs_a_release(
    prefect_server: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    from flows import publish
    from flows.release.record import Series
    from tests.flows.verbs import classify

    monkeypatch.setattr("flows.orchestration.run_page.BETWEEN_LOOKS", 1)
    store, run, releases = trained / "models", tmp_path / "run", tmp_path / "releases"
    classify([str(trained / "survey.parquet")], model="morphology", store=store, out=run)
    with ThreadPoolExecutor(1) as person:
        by = {"decision": decision, "why": "looked at it", "who": "A. Astronomer"}
        said = person.submit(answered, prefect_server, **by)
        chosen = {"run": run, "store": store, "releases": releases}
        state = publish.publish("types", "1.0", **chosen, timeout=600, return_state=True)
    assert said.result().startswith("**No check says stop.**")
    assert state.result().who == "A. Astronomer"
    latest = Series(releases, "types").read_log()[0].latest
    expected = ("published", "1.0") if decision == "sign" else ("refused", None)
    assert (state.result().status, latest) == expected
