"""The wheel holds what it should, and a plain install of it, without our pins, gives a working Prefect.

Releases of FastAPI and SQLAlchemy that Prefect 3.8 admits break its server, one of them without a word: schedules
are never carried out.  So this is tried, with whatever the registry serves today, and not believed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

from blr import compiled
from tests.e2e.running import Prefect
from tests.flows.children import ran

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("blr", "catalogs", "flows")
PROBE = ROOT / "tests" / "working_prefect.py"
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def run(command: list[str | Path], **options: object) -> str:
    done = ran(*command, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("wheel")
    run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT])
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def metadata(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = (entry for entry in wheel.namelist() if entry.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def test_the_wheel_holds_three_typed_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    entries = {entry for entry in wheel.namelist() if ".dist-info/" not in entry}
    assert {entry.split("/")[0] for entry in entries} == {*PACKAGES}
    assert {f"{package}/py.typed" for package in PACKAGES} <= entries
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    assert entries == {str(p.relative_to(ROOT)) for p in paths if "__pycache__" not in p.parts}


def test_the_wheel_has_a_console_script_and_the_licence(wheel: zipfile.ZipFile) -> None:
    assert "blr = flows.cli.app:main" in metadata(wheel, "entry_points.txt")
    assert "BSD 3-Clause" in metadata(wheel, "licenses/LICENSE")
    assert Parser().parsestr(metadata(wheel, "METADATA"))["License-Expression"] == "BSD-3-Clause"


def test_the_wheel_has_the_loops_in_c_for_this_platform(wheel: zipfile.ZipFile) -> None:
    if compiled.loops is None:
        pytest.skip("the loops in C were not built here")
    assert [e for e in wheel.namelist() if e.startswith("blr/_loops.") and not e.endswith(".pyi")]
    assert "Tag: cp311-abi3-" in metadata(wheel, "WHEEL")


def test_without_a_compiler_the_wheel_is_pure_python(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for package in PACKAGES:
        made = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / package, source / package, ignore=made)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"]
    run(build, cwd=source, env=os.environ | {"CC": "false"})
    (path,) = (tmp_path / "dist").glob("*.whl")
    assert path.name.endswith("-py3-none-any.whl")
    assert not list((source / "blr").glob("_loops.*so"))
    with zipfile.ZipFile(path) as wheel:
        assert not [e for e in wheel.namelist() if e.startswith("blr/_loops.") and not e.endswith(".pyi")]


@pytest.mark.parametrize(
    "bound", ["prefect<4,>=3.8.8", "fastapi<0.151,>=0.139", "sqlalchemy[asyncio]<2.1,>=2.0"]
)
def test_the_wheel_bounds_what_breaks_prefect(wheel: zipfile.ZipFile, bound: Any) -> None:
    assert bound in Parser().parsestr(metadata(wheel, "METADATA")).get_all("Requires-Dist")


@pytest.fixture(scope="module")
def plain_install(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with `pip install .`, no pins: return its programs' folder."""
    folder = tmp_path_factory.mktemp("plain")
    reach = [*PIP, "download", "--no-deps", "--no-cache-dir", "--dest", folder / "probe", "hatchling"]
    if subprocess.run(reach, capture_output=True, check=False, timeout=120).returncode:
        pytest.skip("the package registry cannot be reached")
    programs = folder / "venv" / "bin"
    uv = Path(sys.executable).with_name("uv")
    if uv.exists() and not os.environ.get("CI"):  # seconds, where pip takes a minute
        run([uv, "venv", "--python", sys.executable, folder / "venv"])
        install = [uv, "pip", "install", "--system-certs"]  # certificates as pip's
        run([*install, "--python", programs / "python", ROOT])
    else:
        run([sys.executable, "-m", "venv", folder / "venv"])
        run([programs / "python", *PIP[1:], "install", ROOT])
    return programs


@pytest.mark.long
def test_pip_sets_up_where_there_is_no_uv(plain_install: Path, tmp_path: Path) -> None:
    """`make venv` takes minutes then, and leaves the same packages of the lock file, without those of tests."""
    del plain_install  # it skips where no registry can be reached
    run(["git", "clone", "--quiet", ROOT, tmp_path / "blr"])
    run(["make", "venv", "UV=", f"PYTHON={sys.executable}"], cwd=tmp_path / "blr")
    programs = tmp_path / "blr" / ".venv" / "bin"
    assert "classify" in run([programs / "blr", "--help"], cwd=tmp_path)
    assert not list(programs.glob("uv")) + list(programs.glob("pytest"))
    asked = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
    installed = {name.lower() for name in run([programs / "python", "-c", asked], cwd=tmp_path).split()}
    assert {"prefect", "pyongc", "galaxyblr"} <= installed


@pytest.fixture
def clean_environment(tmp_path: Path) -> dict[str, str]:
    """Return a user's environment who never heard of Prefect, with a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "PYTHON"))}
    return kept | {"HOME": str(tmp_path), "DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}


@pytest.mark.slow
def test_a_plain_install_has_a_command_line(
    plain_install: Path, clean_environment: dict[str, str], tmp_path: Path
) -> None:
    assert "classify" in run([plain_install / "blr", "--help"], env=clean_environment, cwd=tmp_path)


@pytest.mark.slow
def test_a_plain_install_runs_flows_on_a_server_of_its_own(
    plain_install: Path, clean_environment: dict[str, str], tmp_path: Path
) -> None:
    command = [plain_install / "python", PROBE, "flow", tmp_path / "prefect"]
    answer = run(command, env=clean_environment, cwd=tmp_path)
    server = f"Prefect: database in {tmp_path / 'prefect'}"
    assert json.loads(answer) == {"server": server, "result": {"x": 4}, "stored": "Completed"}


@pytest.mark.long
def test_a_plain_install_schedules_cron_deployments(plain_install: Path, tmp_path: Path) -> None:
    prefect = Prefect(tmp_path, {"PYTHONPATH": "", "HOME": str(tmp_path)}, programs=plain_install)
    with prefect.server():
        answer = prefect.cli(PROBE, "schedule", "nightly", cwd=tmp_path, program="python")
    assert json.loads(answer) == {"states": ["SCHEDULED"], "times": ["03:15"]}
