"""Processes of their own: programs that run to their end, and what ends with its process, such as locks."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any


def ran(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; return its status and what it said."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def python(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python to its end."""
    return ran(sys.executable, *arguments, **options)


class Child:
    """A process that runs a script on a folder, until the script has read to the end of its input.

    `said` is the first line that it printed: once it has, the child is there.
    """

    def __init__(self, script: str, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.said = self.process.stdout.readline().strip()
        self.pid = self.process.pid

    def end(self) -> None:
        self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on at the moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
