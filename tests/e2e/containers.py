"""Reads `deploy/Containerfile` and `deploy/compose.yaml`, and runs their commands without a container engine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.running import running, wait_for
from tests.flows.children import ran

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SETTINGS = {"SURVEY": "/srv/survey", "BLR_PASSWORD": "choose-one", "DATABASE_PASSWORD": "choose-another"}
"""The lines of blr.env."""


def instructions() -> list[tuple[str, str]]:
    """Return the Containerfile's instructions, each with its arguments."""
    lines = (DEPLOY / "Containerfile").read_text(encoding="utf-8").splitlines()
    told = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(name, arguments) for name, _, arguments in told]


def compose(settings: Mapping[str, str] = SETTINGS) -> dict[str, Any]:
    """Return the compose file with the settings in their places, as an engine reads it."""

    def value(match: re.Match[str]) -> str:
        name, operator, rest = match.groups()
        if name in settings:
            return settings[name]
        assert operator == ":-", f"{name}: {rest}"
        return rest

    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    told: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{(\w+)(:[-?])([^}]*)\}", value, text))
    return told


@dataclass(frozen=True)
class Place:
    """Where the commands of services run: a fresh environment, or the files of the image."""

    folder: Path  # of logs, and of the services' volumes
    survey: Path
    stands_for: Mapping[str, str]  # a container's address or path, and what it is here
    environment: Mapping[str, str]
    inside: tuple[str, ...] = ()  # what comes before a command: `chroot` and the image's root

    def here(self, text: str, service: str) -> str:
        """Return a command's word, or a setting, as it has to be here; each service has its own volume."""
        for there, here in self.stands_for.items():
            text = text.replace(there, here.format(service=service))
        return text

    def started(self, name: str, words: list[str]) -> tuple[list[str], dict[str, Any]]:
        """Return how a process begins that runs a command of a service, or its health check."""
        own: dict[str, str] = compose()["services"][name].get("environment", {})
        words = words[1:] if words[0] == "CMD" else words
        settings = {key: self.here(value, name) for key, value in {**self.environment, **own}.items()}
        command = [*self.inside, *(self.here(word, name) for word in words)]
        return command, {"env": settings, "cwd": self.survey}

    def run(self, name: str, words: list[str]) -> str:
        command, options = self.started(name, words)
        done = ran(*command, timeout=500, **options)
        assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    @contextmanager
    def up(self, name: str) -> Iterator[None]:
        """Run a service that stays; its health check has passed when the block begins."""
        service = compose()["services"][name]
        command, options = self.started(name, service["command"])
        log = self.folder / f"{name}.log"
        with running([*command], log, **options) as process:

            def healthy() -> bool:
                assert process.poll() is None, f"{name} stopped:\n{log.read_text()[-4000:]}"
                check, told = self.started(name, service["healthcheck"]["test"])
                return not subprocess.run(check, check=False, capture_output=True, **told).returncode

            wait_for(healthy, name)
            yield


def texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from texts(key)
            yield from texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from texts(value)
    elif isinstance(node, str):
        yield node
