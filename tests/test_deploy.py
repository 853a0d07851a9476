"""The files of `deploy/` are what docs/operations.md says: settings are known, images public, all lines explained.

Their commands are run by `tests/e2e/test_team_server.py`.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from prefect.settings.legacy import _get_settings_fields
from prefect.settings.models.root import Settings

from tests.e2e.containers import DEPLOY, ROOT, SETTINGS, compose, instructions, texts
from tests.flows.children import ran

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SERVICES = compose()["services"]
EXPLAINED = re.compile(r"^\| `([^`|]+)`[^|]*\|", flags=re.MULTILINE)
"""The first cell of a row, whose second says why the line is there."""


def environment_file() -> dict[str, str]:
    lines = (DEPLOY / "systemd" / "blr.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", maxsplit=1) for line in lines if not line.startswith("#"))


def settings_of(text: str) -> set[str]:
    return set(re.findall(r"\b(?:PREFECT|BLR|POSTGRES)_\w+|\bDO_NOT_TRACK\b", text))


def test_every_line_is_explained_on_the_page() -> None:
    """What a line begins with has a row: an instruction, a service and its keys, a setting, a directive."""
    rows = set(EXPLAINED.findall(PAGE))
    files = [*UNITS, DEPLOY / "systemd" / "blr.env", DEPLOY / "compose.yaml", DEPLOY / "Containerfile"]
    settings = set().union(*(settings_of(path.read_text(encoding="utf-8")) for path in files))
    assert settings - {"BLR_PASSWORD", "BLR_URL"} - rows - settings_of(PAGE) == set()
    lines = [line for unit in UNITS for line in unit.read_text(encoding="utf-8").splitlines()]
    assert {line.partition("=")[0] for line in lines if re.match(r"\w", line)} - rows == set()
    assert {key for service in SERVICES.values() for key in service} | set(SERVICES) <= rows
    explained = [f"{name} {arguments}" for name, arguments in instructions()]
    assert [line for line in explained if not any(line.startswith(row) for row in rows)] == []


def test_prefect_knows_the_settings() -> None:
    """Of a setting that it does not know, Prefect says nothing, or warns; so each is looked up."""
    known = {*_get_settings_fields(Settings)}
    compose_settings = {}
    for service in SERVICES.values():
        compose_settings |= service.get("environment", {})
    for named in (compose_settings, environment_file()):
        assert {name for name in named if name.startswith("PREFECT_")} - known == set()
        assert named["PREFECT_SERVER_API_AUTH_STRING"] == named["PREFECT_API_AUTH_STRING"]


def test_what_is_copied_into_the_image_exists() -> None:
    copied = [arguments.split()[:-1] for name, arguments in instructions() if name == "COPY"]
    paths = [path for words in copied if "--from=build" not in words for path in words]
    assert paths
    assert all((ROOT / path).exists() for path in paths)


def test_services_that_stay_have_a_health_check_and_the_others_are_waited_for() -> None:
    stay = {name for name, service in SERVICES.items() if "restart" in service}
    assert stay == {name for name, service in SERVICES.items() if "healthcheck" in service}
    waited = [item for service in SERVICES.values() for item in service.get("depends_on", {}).items()]
    conditions = {on: told["condition"] for on, told in waited}
    assert {on for on, condition in conditions.items() if condition == "service_healthy"} <= stay
    assert {on for on, condition in conditions.items() if condition != "service_healthy"}.isdisjoint(stay)
    assert set(SERVICES) - set(conditions) == {"worker"}


def test_ports_are_open_to_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:4200:4200"]


def test_without_a_password_nothing_starts() -> None:
    for name in SETTINGS:
        with pytest.raises(AssertionError, match=f"{name}: set it in blr.env"):
            compose({key: value for key, value in SETTINGS.items() if key != name})
    assert not [text for text in texts(compose()) if "${" in text]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    """`systemd-analyze verify` looks for the programs too: here they are the tests' own."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/blr/bin", str(Path(sys.executable).parent)))
    done = ran("systemd-analyze", "verify", "--man=no", copy)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_and_services_start_the_same(unit: Path) -> None:
    """But for the address, which a container does not share, and the kind of a pool that is not there yet."""
    (start,) = re.findall(r"^ExecStart=/opt/blr/bin/(.*)$", unit.read_text(), flags=re.MULTILINE)
    ours = shlex.split(start.replace(" --type process", "").replace("127.0.0.1", "0.0.0.0"))  # noqa: S104
    assert ours == SERVICES[unit.stem.removeprefix("blr-")]["command"]


def test_the_file_of_settings_is_the_same_to_systemd_and_to_a_shell(tmp_path: Path) -> None:
    path = DEPLOY / "systemd" / "blr.env"
    done = ran("sh", "-c", f"set -a; . {shlex.quote(str(path))}; env", env={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert environment_file().items() <= dict(line.split("=", 1) for line in done.stdout.splitlines()).items()
