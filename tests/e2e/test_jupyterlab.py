"""What a new user does: the ten-minute tutorial in JupyterLab, by a browser, in a clean environment with the wheel.

Blocks of Python are cells as they stand, commands get a `!`, a file gets `%%writefile`.  After `blr.` and `q.` the Tab
key lists the public names.  BLR_SCREENSHOTS=FOLDER keeps the pictures; `-rP` shows the seconds that each block took.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

import blr
from tests.e2e.browser import Browser, browser, missing
from tests.e2e.running import clean_environment, running, wait_for
from tests.flows.children import free_port

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
EMPTY = {
    "cells": [],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def done(command: list[str | Path], **options: object) -> None:
    """Run to a good end; its output is the message of a bad one."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert ran.returncode == 0, f"{command}\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}"


@dataclass(frozen=True)
class NewUser:
    """A clean environment, and how long it took to make."""

    programs: Path
    seconds: float


@pytest.fixture(scope="module")
def new_user(tmp_path_factory: pytest.TempPathFactory) -> NewUser:
    """Install the wheel as the tutorial says, by pip without our pins; JupyterLab beside it."""
    if (absent := missing()) is not None:
        pytest.skip(absent)
    folder = tmp_path_factory.mktemp("new-user")
    done([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    began = time.monotonic()
    done([sys.executable, "-m", "venv", folder / "venv"])
    pip = [
        folder / "venv" / "bin" / "python",
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
    ]
    done([*pip, wheel])
    took = time.monotonic() - began
    done([*pip, "jupyterlab"])
    return NewUser(folder / "venv" / "bin", took)


class Notebook:
    """A notebook in JupyterLab, typed into by a browser."""

    def __init__(self, window: Browser) -> None:
        self.window = window

    def type(self, text: str) -> None:
        """Put a text into the last cell, which is empty."""
        cell = self.window.some(".jp-Notebook .jp-CodeCell .cm-content")[-1]
        self.window.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", cell)
        cell.click()
        self.window.driver.execute_cdp_cmd("Input.insertText", {"text": text})

    def press(self, *keys: str) -> None:
        ActionChains(self.window.driver).send_keys(*keys).perform()

    def run(self, text: str) -> float:
        """Type a cell and run it with Shift and Return; return the seconds until it has ended well."""
        n = len(self.window.all(".jp-Notebook .jp-CodeCell"))
        self.type(text)
        began = time.monotonic()
        ActionChains(self.window.driver).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(
            Keys.SHIFT
        ).perform()

        def ended() -> bool:
            prompts = self.window.all(".jp-Notebook .jp-CodeCell .jp-InputPrompt")
            return len(prompts) > n and re.fullmatch(r"\[\d+\]:", prompts[n - 1].text.strip()) is not None

        self.window.wait_for(ended, f"the end of {text[:60]}")
        failed = self.window.all("[data-mime-type='application/vnd.jupyter.error']")
        assert not failed, failed[0].text
        return time.monotonic() - began

    def completions(self, text: str) -> set[str]:
        """Type a text and the Tab key; return what is listed, and clear the cell."""
        self.type(text)

        def listed() -> list[WebElement]:
            shown = self.window.all(".jp-Completer:not(.lm-mod-hidden) .jp-Completer-match")
            if not shown:  # JupyterLab waits for a second only: a busy machine needs another try
                self.press(Keys.TAB)
            return shown

        found = {
            str(item.get_attribute("textContent"))
            for item in wait_for(listed, f"completions of {text}", between=4.0) or []
        }
        self.window.picture(f"jupyterlab-{text.strip('.')}")
        self.press(Keys.ESCAPE)
        self.press(*[Keys.BACKSPACE] * len(text))
        return found


@pytest.fixture
def notebook(new_user: NewUser, tmp_path: Path) -> Iterator[Notebook]:
    """Start JupyterLab in an empty folder; yield a notebook in it."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "first.ipynb").write_text(json.dumps(EMPTY))
    port, token = free_port(), secrets.token_urlsafe(12)
    path = os.pathsep.join([str(new_user.programs), "/usr/bin", "/bin"])
    environment = clean_environment() | {"HOME": str(tmp_path), "PATH": path, "DO_NOT_TRACK": "1"}
    command: list[str | Path] = [new_user.programs / "jupyter", "lab", "--no-browser", "--allow-root"]
    command += ["--ip=127.0.0.1", f"--port={port}", f"--IdentityProvider.token={token}"]
    command += ["--LabApp.news_url=None", "--LabApp.extension_manager=readonly"]
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    log = tmp_path / "jupyter.log"
    with (
        running(command, log, cwd=folder, env=environment) as process,
        browser(tmp_path / "browser") as window,
    ):

        def answers() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                return urlopen(f"http://127.0.0.1:{port}/api?token={token}", timeout=5).status == 200
            except OSError:
                return False

        wait_for(answers, "JupyterLab")
        window.open(f"http://127.0.0.1:{port}/lab/tree/first.ipynb?token={token}")
        window.shows("Python 3")
        window.wait_for(lambda: "Idle" in window.driver.page_source, "the kernel")
        yield Notebook(window)


def test_the_tab_key_lists_the_public_names(notebook: Notebook) -> None:
    (example,) = re.findall(r"## In Python\n\n```python\n(.*?)```", README, flags=re.DOTALL)
    notebook.run(example)
    assert set(blr.__all__) <= notebook.completions("blr.")
    rng = np.random.default_rng(1)
    q = blr.fit_evidence(rng.normal(size=(50, 3)), rng.integers(0, 2, 50))
    public = {name for name in dir(q) if not name.startswith("_")}
    assert {"predict_proba", "summary", "trust", "log_evidence"} <= public
    assert public <= notebook.completions("q.")


def test_the_ten_minute_tutorial_takes_less(notebook: Notebook, new_user: NewUser) -> None:
    """As written: what is run, and what it leaves.  The seconds are told, not compared."""
    took = {"install": new_user.seconds}
    for kind, text in re.findall(r"^```(\w+)\n(.*?)^```$", TUTORIAL, flags=re.MULTILINE | re.DOTALL):
        if kind == "python":
            took[text.splitlines()[0]] = notebook.run(text)
        elif kind == "toml":
            added = f"[label]\n{text}"
            notebook.run("from pathlib import Path\nspec = Path('spec.toml')")
            notebook.run(f"spec.write_text(spec.read_text().replace('[label]\\n', {added!r}))")
        elif kind == "sh" and text.startswith("blr"):
            took[text.strip()] = notebook.run("".join(f"!{line}\n" for line in text.splitlines()))
            notebook.run("assert _exit_code == 0")
    notebook.window.shows("galaxies are expected to be early types")
    notebook.window.picture("jupyterlab-tutorial")
    for what, seconds in took.items():
        print(f"{seconds:6.1f} s  {what}")  # noqa: T201  the result of the trial
    print(f"{sum(took.values()):6.1f} s  in all")  # noqa: T201
