"""A sample of `make campaign`: runs that are killed, stopped, or run at the same time; each is then run again."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.runs.manifest import MANIFEST
from tests.campaign.faults import full_disk, read_only, told_to_stop, two_at_once
from tests.campaign.harm import harm_of_rerun, harm_of_stop, outputs, phase
from tests.campaign.kills import Bench, at_steps, at_times
from tests.campaign.material import Scenario, make_scenarios
from tests.campaign.tally import Line, harmed, table
from tests.campaign.zygote import zygote

RANDOM = random.Random(1)  # noqa: S311 - of moments, not of secrets


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> list[Scenario]:
    return make_scenarios(tmp_path_factory.mktemp("killed") / "survey", partitions=3, tables=3, rows=50)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with zygote() as forks:
        yield Bench(forks, tmp_path_factory.mktemp("logs"))


def check_harmless(line: Line) -> None:
    if line.skipped:
        pytest.skip(line.skipped)
    assert not harmed([line]), table([line])


@pytest.mark.parametrize(
    "which",
    [pytest.param(1, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long), 4],
    ids=["classify", "reprocess", "next release"],
)
def test_killed_at_steps_over_the_whole_run(bench: Bench, scenarios: list[Scenario], which: int) -> None:
    scenario = scenarios[which]
    _, steps = bench.length(scenario)
    line = at_steps(bench, scenario, [steps // 16, steps // 8, steps // 4, steps - 12])
    check_harmless(line)
    assert "annotating" in line.seen
    assert {"giving names", "tidying up"} & line.seen.keys()


@pytest.mark.long
def test_terminated_at_steps_over_the_whole_run(bench: Bench, scenarios: list[Scenario]) -> None:
    """While names are given too, which SIGTERM ended without a word."""
    scenario = scenarios[3]
    _, steps = bench.length(scenario)
    line = at_steps(bench, scenario, [2, steps // 2, steps - 25, steps - 12, steps - 3], signal.SIGTERM)
    check_harmless(line)
    assert {"annotating", "giving names"} <= line.seen.keys()


@pytest.mark.long
def test_killed_at_random_times(bench: Bench, scenarios: list[Scenario]) -> None:
    check_harmless(at_times(bench, scenarios[0], 2, RANDOM))


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_told_to_stop(bench: Bench, scenarios: list[Scenario], number: Any) -> None:
    check_harmless(told_to_stop(bench, scenarios[3], number, 1, RANDOM))


@pytest.mark.parametrize("happens", [full_disk, pytest.param(read_only, marks=pytest.mark.long)])
def test_a_full_disk_and_output_made_read_only(bench: Bench, scenarios: list[Scenario], happens: Any) -> None:
    check_harmless(happens(bench, scenarios[3], 1, RANDOM))


def test_two_at_once(bench: Bench, scenarios: list[Scenario], tmp_path: Path) -> None:
    with zygote() as forks:
        check_harmless(two_at_once(bench, Bench(forks, tmp_path), scenarios[3], 1, RANDOM))


def test_the_campaign_sees_harm_where_there_is_some(scenarios: list[Scenario]) -> None:
    """The counts are worth nothing if they cannot be other than nought."""
    scenario = scenarios[3]
    out = shutil.copytree(scenario.after, scenario.folder / "harmed")
    assert not +harm_of_rerun(scenario, out)
    assert phase(scenario, out) == "finished"
    (first, second), image = outputs(out)[:2], out / "field-0.fits"
    shutil.copy(second, first)
    shutil.copy(scenario.before / image.name, image)
    (out / ".blr-0.tmp").write_bytes(b"")
    found = harm_of_rerun(scenario, out)
    assert dict(+found) == {"lost": 50, "duplicated": 50, "mixed": 50, "other bytes": 2, "left over": 1}
    assert harmed([replace(Line("of a test"), tried=1, harm=found)])
    (out / MANIFEST).write_bytes((out / MANIFEST).read_bytes()[:-20])
    assert harm_of_stop(scenario, out)["half-written"] == 2, "one is of another name, one cut off"
    shutil.rmtree(out)
