"""Files that are still being written: a run waits for them, or leaves them for the next run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from flows.inputs import source as watch
from flows.inputs.source import still_written


class Clock:
    """What `still_written` takes for the time: it goes on by what is slept, and by nothing else."""

    def __init__(self) -> None:
        self.began, self.slept = time.time(), 0.0

    def time(self) -> float:
        return self.began + self.slept

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    return clock


def aged(path: Path, seconds: float) -> Any:
    path.write_text("x")
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def test_old_files_are_not_waited_for(tmp_path: Path, clock: Clock) -> None:
    assert still_written([aged(tmp_path / "a", 60)], quiet=50, patience=50) == {}
    assert clock.slept == 0


def test_a_young_file_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    assert still_written([aged(tmp_path / "a", 0)], quiet=50, patience=1000) == {}
    assert 0 < clock.slept <= 50.2


def test_a_file_that_grows_on_is_left_for_the_next_run(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing, sleep = aged(tmp_path / "growing", 0), clock.sleep

    def written_to_meanwhile(seconds: float) -> None:
        sleep(seconds)
        with growing.open("a") as stream:
            stream.write("x")
        os.utime(growing, (clock.time(),) * 2)

    monkeypatch.setattr(clock, "sleep", written_to_meanwhile)
    told = still_written([growing, aged(tmp_path / "whole", 60)], quiet=0.6, patience=1.2)
    assert 1.2 <= clock.slept < 1.5
    assert told == {growing: "it changed less than 0.6 s ago, so it is left for the next run"}
