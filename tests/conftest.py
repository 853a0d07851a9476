"""Property-based tests repeat themselves; Prefect is never the user's own, and started only for who asks for it."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from flows.orchestration.settings import prefect_environment

# The same examples every time, and none that fails for being slow: other programs may have the cores.
settings.register_profile(
    "blr", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("blr")


def pytest_configure(config: pytest.Config) -> None:
    """Give this process and its children a Prefect home of their own, before any test imports Prefect."""
    gc.disable()
    # Started in the background, as would be all that tests start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[name]
    home = Path(tempfile.mkdtemp(prefix="blr-test-prefect-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    os.environ["PREFECT_PROFILES_PATH"] = str(home / "profiles.toml")
    os.environ["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] = "240"  # other tests may have the cores
    os.environ["PREFECT_API_BLOCKS_REGISTER_ON_START"] = "false"  # a third of the time to start
    os.environ["PREFECT_HOME"] = str(home)
    prefect_environment()


LONGEST = (
    "tests/e2e/",
    "tests/flows/demo/",
    "tests/flows/orchestration/",
    "tests/flows/test_cluster.py",
    "tests/flows/test_killed.py",
)
"""Files of tests that take minutes, much of it waiting: first, so that no process is left alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files of tests first."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of all later collections of garbage: it stays until the end."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(700, 10, 200)  # full ones, of all that is not frozen, twenty times as rarely


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let chains end early: what they say is tested with their numerics."""
    monkeypatch.setattr("blr.posterior.sampling._WORK", 1.0)
    monkeypatch.setattr("blr.posterior.sampling._ERROR", 0.05)


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return what runs a command, expects its exit status, and returns what it prints: `.out` and `.err`."""
    from flows.cli.app import run

    def say(status: int, *words: object) -> Any:
        capsys.readouterr()
        assert run([*map(str, words)]) == status
        return capsys.readouterr()

    return say


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[str]:
    """Run one Prefect server for all who ask; yield its address, the `PREFECT_API_URL` of subprocesses."""
    from prefect.settings import PREFECT_API_URL
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=240):
        yield str(PREFECT_API_URL.value())
