"""Completion in shells: bash installs and runs it; zsh and fish do where they are, and what they ask is answered."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish: Debian's package fish")
def test_fish_installs_and_completes(tmp_path: Path) -> None:
    run("fish", "-c", "blr --install-completion; true", home=tmp_path)

    def completed(line: str) -> list[str]:
        told = run("fish", "-c", f"complete -C '{line}'", home=tmp_path)
        return [found.split("\t")[0] for found in told.splitlines()]

    assert completed("blr rev") == ["review"]
    assert completed("blr review --bu") == ["--budget"]
    assert {"list", "show", "promote"} <= {*completed("blr models ")}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh: Debian's package zsh")
def test_zsh_installs_and_completes(tmp_path: Path) -> None:
    run("zsh", "-c", "blr --install-completion; true", home=tmp_path)
    with (tmp_path / ".zshrc").open("a") as file:
        file.write("PROMPT='ready> '\n")
    with terminal("zsh", "-i", home=tmp_path) as shell:
        shell.read_until("ready> ")
        shell.complete("blr rev", "blr review")
        shell.complete("blr review --bu", "blr review --budget")
        shell.complete("blr models pro", "blr models promote")


@dataclass(frozen=True)
class Terminal:
    """A shell that believes a person types."""

    descriptor: int

    def read_until(self, text: str, seconds: float = 60) -> bool:
        """Read until a text is shown; say whether it was."""
        shown, end = b"", time.monotonic() + seconds
        while text.encode() not in shown and (left := end - time.monotonic()) > 0:
            if select.select([self.descriptor], [], [], left)[0]:
                shown += os.read(self.descriptor, 4096)
        return text.encode() in shown

    def complete(self, typed: str, expected: str) -> None:
        """Type on an empty line, and Tab until it is complete: the first Tab of a shell only loads Typer's script."""
        os.write(self.descriptor, b"\x15" + typed.encode())
        for _ in range(6):
            os.write(self.descriptor, b"\t")
            if self.read_until(expected[len(typed) :], 10):
                return
        pytest.fail(f"{typed} was not completed to {expected}")


@contextmanager
def terminal(*command: str, home: Path) -> Iterator[Terminal]:
    """Run a shell in a terminal of its own; end it with the block."""
    pid, descriptor = pty.fork()
    if pid == 0:
        env = {"PATH": f"{BLR.parent}:{os.environ['PATH']}", "HOME": str(home), "LC_ALL": "C.UTF-8"}
        os.execvpe(command[0], command, env)  # noqa: S606 -- a shell is what is tested
    try:
        yield Terminal(descriptor)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(descriptor)


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
