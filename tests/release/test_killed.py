"""Releases that are killed at random points, or made by several people at once: readers see whole releases only."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from flows.cli.app import run
from tests.campaign.zygote import Zygote
from tests.release.conftest import told_by

RELEASES = Path("releases/parquet")
RNG = random.Random(43)  # noqa: S311 - of moments


def log() -> dict[str, Any]:
    return dict(json.loads((RELEASES / "releases.json").read_text()))


def see() -> dict[str, Any]:
    """Look at the releases as a reader does: each version of the list has all of its files."""
    seen = log()
    for version in {event["version"] for event in seen["events"]}:
        sums = (RELEASES / version / "SHA256SUMS").read_text().splitlines()
        assert all((RELEASES / version / line.split("  ", 1)[1]).is_file() for line in sums)
    return seen


def verify() -> None:
    """Verify each version of the list, byte by byte."""
    for version in {event["version"] for event in log()["events"]}:
        assert run(["release", "verify", str(RELEASES / version)]) == 0


def killed(processes: Zygote, words: list[str], longest: float) -> bool:
    """Start a command and kill it at a random moment, reading beside it; say whether it was killed."""
    until = time.monotonic() + RNG.uniform(0, longest)
    pid = processes.start(words, cwd=Path.cwd(), log=Path("said").absolute())
    while time.monotonic() < until:
        see()
    os.kill(pid, signal.SIGKILL)
    return processes.wait(pid) == -signal.SIGKILL


def length(processes: Zygote, words: list[str]) -> float:
    """Return how long a command takes that nobody stops, in seconds."""
    begun = time.monotonic()
    assert processes.run(words, cwd=Path.cwd(), log=Path("said").absolute()) == 0
    return time.monotonic() - begun


REPEATS = [4, pytest.param(60, marks=pytest.mark.long)]


@pytest.mark.parametrize("n", REPEATS)
def test_a_draft_killed_anywhere_is_begun_again(here: Path, processes: Zygote, n: int) -> None:
    words = ["release", "draft", "parquet", "2", "--run", str(here / "parquet-2" / "run")]
    words += ["--store", str(here / "models")]
    longest = length(processes, words)
    kills = sum(killed(processes, words, longest) for _ in range(n))
    assert kills
    assert see()["latest"] == "1"
    assert run(words) == 0
    assert run(["release", "check", "parquet", "2"]) == 0
    verify()


@pytest.mark.parametrize("n", REPEATS)
@pytest.mark.usefixtures("here")
def test_a_publication_killed_anywhere_goes_on(processes: Zygote, n: int) -> None:
    assert run(["release", "sign", "parquet", "2"]) == 0
    words = ["release", "publish", "parquet", "2"]

    def begin_again() -> None:
        (RELEASES / "2").rename(RELEASES / ".2.draft")
        first = {"latest": "1", "events": log()["events"][:1]}
        (RELEASES / "releases.json").write_text(json.dumps(first))

    longest, kills = length(processes, words), 0
    begin_again()
    for k in range(n):
        kills += killed(processes, words, longest)
        assert see()["latest"] in {"1", "2"}
        if log()["latest"] == "2":  # whoever is killed after the last step has published
            verify()
            assert run(words) == 0
            assert [e["version"] for e in log()["events"]] == ["1", "2"], k
            begin_again()
    assert kills
    assert run(words) == 0
    assert see()["latest"] == "2"
    verify()


@pytest.mark.parametrize("n", REPEATS)
@pytest.mark.usefixtures("here")
def test_a_rollback_killed_anywhere_has_happened_or_not(processes: Zygote, n: int) -> None:
    assert run(["release", "sign", "parquet", "2"]) == 0
    assert run(["release", "publish", "parquet", "2"]) == 0
    kills = 0
    for _ in range(n):
        target = {"1": "2", "2": "1"}[log()["latest"]]
        before = len(log()["events"])
        words = ["release", "rollback", "parquet", "--to", target, "--why", "noise", "--by", "Grace"]
        kills += killed(processes, words, 0.1)
        after = see()
        assert (after["latest"] == target) == (len(after["events"]) == before + 1)
        if after["latest"] != target:
            assert run(words) == 0
    assert kills
    verify()


@pytest.mark.usefixtures("here")
def test_of_many_who_publish_at_once_one_wins(processes: Zygote) -> None:
    assert run(["release", "sign", "parquet", "2"]) == 0
    words = ["release", "publish", "parquet", "2"]
    people = range(6)
    logs = [Path.cwd() / f"said-{k}" for k in people]
    pids = [
        processes.start([*words, "--by", f"person {k}"], cwd=Path.cwd(), log=log)
        for k, log in enumerate(logs)
    ]
    status = [processes.wait(pid) for pid in pids]
    said = [told_by(log) for log in logs]
    won = [k for k in people if "was published by" in said[k]]
    assert len(won) == 1, said
    assert [e["who"] for e in see()["events"]] == ["Ada Lovelace", f"person {won[0]}"]
    for k in {*people} - {*won}:  # told that another works there, or that the release is published
        told = "another run is writing to" if status[k] else "parquet 2 is published"
        assert told in said[k], said
    verify()
