"""prefect.yaml, its entry points, and that a database has one server."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.errors import UsageError
from flows.orchestration.settings import TEMPLATE, ServedHome, deployments, deployments_text
from tests.e2e.running import clean_environment

ROOT = Path(__file__).resolve().parents[3]


def test_the_checkouts_file_is_the_packages() -> None:
    assert (ROOT / "prefect.yaml").resolve() == TEMPLATE


def test_the_text_for_a_survey_names_files_that_are_there() -> None:
    entries = yaml.safe_load(deployments_text())["deployments"]
    for entry in entries:
        path, _, flow = entry["entrypoint"].partition(":")
        assert Path(path).is_absolute()
        assert Path(path).is_file()
        assert flow == entry["name"]
        assert "concurrency_limit" not in entry


def test_every_kind_of_schedule_and_a_trigger_are_there() -> None:
    entries = deployments(TEMPLATE)
    kinds = {
        kind
        for entry in entries
        for schedule in entry.get("schedules", ())
        for kind in ("cron", "interval", "rrule")
        if kind in schedule
    }
    assert kinds == {"cron", "interval", "rrule"}
    assert any(entry.get("triggers") for entry in entries)


def test_ours_where_the_folder_has_none(tmp_path: Path) -> None:
    assert [d["name"] for d in deployments(tmp_path / "none.yaml")] == [
        d["name"] for d in deployments(TEMPLATE)
    ]


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


@pytest.fixture
def shadowed(tmp_path: Path) -> Any:
    """Return a folder of somebody who has packages of our names."""
    for name in ("flows", "catalogs", "blr"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f'raise ImportError("another {name}")\n')
    return tmp_path


@pytest.mark.slow
def test_a_folder_with_our_names_does_no_harm_to_entry_points(shadowed: Any) -> None:
    entries = deployments(shadowed / "none.yaml")
    done = load(shadowed, *(entry["entrypoint"] for entry in entries))
    assert done.stdout.split() == [entry["name"] for entry in entries], done.stderr


def load(folder: Path, *entries: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment() | {"PREFECT_HOME": str(folder / "home"), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", SHADOWED, *entries]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_database_has_one_server(tmp_path: Path) -> None:
    home = ServedHome(tmp_path / "served-at")
    assert home.address() is None
    with home.ours():
        home.announce("http://127.0.0.1:1")
        assert home.address() == "http://127.0.0.1:1"
        again = ServedHome(home.path)
        with (
            pytest.raises(UsageError, match=r"got a database that another server uses \(http://127"),
            again.ours(),
        ):
            pass
        assert home.address() == "http://127.0.0.1:1"
    assert home.address() is None
