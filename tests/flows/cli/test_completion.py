"""Completion in a shell: bash installs and runs it; zsh and fish are asked by the same program."""

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
