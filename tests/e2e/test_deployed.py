"""A team's Prefect from end to end: deployed by `prefect.yaml`, run by schedule, from the pages, and by an event.

The server is the real one, on SQLite and on PostgreSQL, with a password; the worker is the real one; the pages are
looked at with a real browser.  BLR_SCREENSHOTS=FOLDER keeps the pictures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.browser import Browser, browser, missing

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(team, tmp_path_factory) -> Iterator[Browser]:
    if (absent := missing()) is not None:
        pytest.skip(absent)
    with browser(tmp_path_factory.mktemp(f"browser-{team.database}")) as window:
        window.open(team.prefect.url)
        (password,) = (field for field in window.all("input[type=password]") or wait_for_login(window))
        password.send_keys(team.prefect.password)
        window.click("Login")
        window.shows("Dashboard", "Logout")
        yield window


def wait_for_login(window: Browser):
    window.shows("Login")
    return window.all("input[type=password]")


def test_every_flow_is_deployed_with_its_schedules_as_they_are_in_the_file(team):
    told = {d["name"]: d for d in team.prefect.find("deployments")}
    assert {"train", "classify", "reprocess", "promote"} == set(told)
    assert {s["slug"]: s["active"] for s in told["train"]["schedules"]} == {"sundays": False}
    (nightly, often) = sorted(told["reprocess"]["schedules"], key=lambda s: s["slug"])
    assert (nightly["schedule"]["cron"], nightly["active"]) == ("15 3 * * *", True)
    assert (often["schedule"]["interval"], often["active"]) == (900, False)
    for deployment in told.values():
        assert Path(deployment["entrypoint"].partition(":")[0]).name == "deployed.py"
        assert deployment["concurrency_limit"] is None, "its lease would kill long runs"


def test_a_stranger_gets_nothing(team):
    for password in ("", "blr:guess"):
        status, answer = team.prefect.ask("POST", "/flow_runs/filter", {}, password=password)
        assert status == 401, answer


def test_parameters_have_types_choices_and_bounds(team):
    schema = json.dumps(team.prefect.deployment("train")["parameter_openapi_schema"])
    assert '"enum": ["evidence", "bic"' in schema
    assert '"description": "What ranks the candidates' in schema
    deployment = team.prefect.deployment("classify")
    wrong = {"parameters": deployment["parameters"] | {"threads": 0}}
    status, answer = team.prefect.ask("POST", f"/deployments/{deployment['id']}/create_flow_run", wrong)
    assert (status, "threads" in str(answer)) == (409, True), answer


def test_a_scheduled_run_fires(team):
    deployment = team.prefect.deployment("classify")
    run = team.prefect.run_ended(deployment_id=deployment["id"], auto_scheduled=True)
    assert run["state_name"] == "Completed", team.prefect.logs(run)
    # A worker fetches runs some seconds ahead and lets one go a moment early: that it was scheduled is what counts.
    assert run["auto_scheduled"] and run["expected_start_time"]
    # Once is enough: the machine may have other things to do.
    assert team.prefect.ask("PATCH", f"/deployments/{deployment['id']}", {"paused": True})[0] == 204
    outputs = sorted(path.name for path in (team.folder / "annotated").glob("*.parquet"))
    assert outputs == ["field-0.parquet", "field-1.parquet"]


def test_a_run_starts_from_the_form_and_shows_what_it_found(team, pages):
    deployment = team.prefect.deployment("classify")
    pages.open(f"{team.prefect.url}/v2/deployments/deployment/{deployment['id']}/run")
    pages.shows("NAME, for its champion", "Replace what another model")
    name = pages.all("input[name=name]")[0].get_attribute("value")
    change(pages, "release", "release/field-1.parquet")
    change(pages, "annotated", "by-hand")
    pages.picture(f"{team.database}-form")
    pages.click("Submit")
    run = team.prefect.run_ended(name=name)
    assert run["state_name"] == "Completed", team.prefect.logs(run)
    assert run["parameters"]["out"] == "by-hand"
    assert [path.name for path in (team.folder / "by-hand").glob("*.parquet")] == ["field-1.parquet"]

    pages.open(f"{team.prefect.url}/v2/runs/flow-run/{run['id']}?tab=Artifacts")
    pages.shows(name, "Completed", "Classification: done", "300 of 300 rows")
    pages.picture(f"{team.database}-run")
    left = {
        artifact["key"]: artifact["id"] for artifact in team.prefect.find("artifacts", flow_run_id=run["id"])
    }
    for key in ("morphology-summary", "morphology-classes"):
        pages.open(f"{team.prefect.url}/v2/artifacts/artifact/{left[key]}")
        pages.shows("early", "late")
        pages.picture(f"{team.database}-{key}")


def test_an_event_starts_a_run_with_what_it_tells(team):
    """The delivery script's word that a release has arrived; templates of triggers are plain strings."""
    (team.folder / "dr6.toml").write_text((team.folder / "spec.toml").read_text())
    payload = '{"specification": "dr6.toml"}'
    told = ("blr.release.arrived", "--resource-id", "blr.release.dr6", "--payload", payload)
    team.prefect.cli("event", "emit", *told, cwd=team.folder)
    deployment = team.prefect.deployment("reprocess")
    run = team.prefect.run_ended(deployment_id=deployment["id"], auto_scheduled=False)
    assert run["parameters"]["specification"] == "dr6.toml"
    assert run["state_name"] == "Completed", team.prefect.logs(run)
    assert run["work_queue_name"] == "nightly"
    outputs = sorted(path.name for path in (team.folder / "product").glob("*.parquet"))
    assert outputs == ["field-0.parquet", "field-1.parquet"]


def change(pages: Browser, old: str, new: str) -> None:
    """Replace a field's text as a person does."""
    from selenium.webdriver.common.keys import Keys

    field = pages.field(old)
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(new)


def test_the_form_draws_choices_and_nested_tables(team, pages):
    deployment = team.prefect.deployment("train")
    pages.open(f"{team.prefect.url}/v2/deployments/deployment/{deployment['id']}/run")
    pages.shows("What to train, or the path of the TOML file")
    pages.click("Specification")
    pages.shows("The labelled catalogue.", "What ranks the candidates", "Share of the rows that no fit sees")
    chosen = [element.text for element in pages.all("button[aria-label^=Select]")]
    assert "evidence" in chosen, chosen
    pages.picture(f"{team.database}-nested")


def test_no_secret_is_told(team):
    password = team.prefect.password.partition(":")[2]
    for log in team.prefect.folder.glob("*.log"):
        assert password not in log.read_text(), log
    told = [team.prefect.logs(run) for run in team.prefect.find("flow_runs")]
    told.append(json.dumps(team.prefect.find("artifacts")))
    assert password not in "".join(told)
