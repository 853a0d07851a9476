"""Completion in shells: bash installs and runs it; zsh and fish do where they are, and what they ask is answered."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BLR = Path(sys.executable).with_name("blr")
pytestmark = pytest.mark.skipif(not BLR.exists(), reason="the command blr is not installed beside Python")


def run(*command: str, home: Path, **more: str) -> str:
    env = {"PATH": f"{BLR.parent}:{os.environ['PATH']}", "HOME": str(home), "LC_ALL": "C.UTF-8", **more}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_installs_and_completes(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("# mine\n")
    run("bash", "-c", "blr --install-completion; true", home=tmp_path)
    assert (tmp_path / ".bashrc").read_text().startswith("# mine\n")
    ask = "source ~/.bashrc; COMP_WORDS=({}); COMP_CWORD={}; _blr_completion blr; echo ${{COMPREPLY[*]}}"
    assert run("bash", "-c", ask.format("blr rev", 1), home=tmp_path).split() == ["review"]
    assert run("bash", "-c", ask.format("blr review --bu", 2), home=tmp_path).split() == ["--budget"]
    found = run("bash", "-c", ask.format("blr models ''", 2), home=tmp_path).split()
    assert {"list", "show", "promote"} <= {*found}


@pytest.mark.parametrize(
    ("shell", "asked"),
    [
        ("zsh", {"_BLR_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "blr train --verb"}),
        (
            "fish",
            {
                "_BLR_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_ARGS": "blr train --verb",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            },
        ),
    ],
)
def test_zsh_and_fish_get_their_answers(tmp_path: Path, shell: str, asked: dict[str, str]) -> None:
    assert "--verbose" in run(str(BLR), home=tmp_path, **asked)
    script = run(
        str(BLR), "--show-completion", shell, home=tmp_path, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
    )
    assert f"_BLR_COMPLETE=complete_{shell}" in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        flags = ["-f"] if shell == "zsh" else ["--no-config"]
        run(shell, *flags, "-n", str(tmp_path / "script"), home=tmp_path)  # it parses
