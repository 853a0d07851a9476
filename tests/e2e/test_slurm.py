"""The job scripts of docs/cluster.md on a real Slurm of one node: workers expire, the run is cancelled, it goes on.

And the page's program for dask-jobqueue, where that is installed.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.e2e.running import PROGRAMS, wait_for
from tests.e2e.slurm import Slurm, slurm
from tests.e2e.survey import write_galaxies
from tests.flows.children import python
from tests.flows.verbs import classify
from tests.lasting import lasting_contents

pytest.importorskip("distributed")
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # its own waits are over before

ROOT = Path(__file__).parents[2]
N_FILES = 10
ROWS = 260_000
"""Rows of a file: two of them are more than one order has."""


@pytest.fixture(scope="module")
def queue() -> Iterator[Slurm]:
    """Run a Slurm whose jobs find this package and its programs, as a user's find theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("PYTHONPATH", str(ROOT))
        with slurm() as started:
            yield started


def scripts(changed: Mapping[str, str]) -> dict[str, str]:
    """Return the job scripts of the page by name, with each text of `changed` replaced."""
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    script = r"^`(\w+\.sh)`.*?\n\n```sh\n(#!/bin/bash\n.*?)```"
    found = dict(re.findall(script, page, re.MULTILINE | re.DOTALL))
    assert list(found) == ["classify.sh", "workers.sh"]
    for before, after in changed.items():
        assert any(before in text for text in found.values()), f"the page has no {before}"
        found = {name: text.replace(before, after) for name, text in found.items()}
    return found


def expected_after(folder: Path) -> tuple[dict[str, bytes], int]:
    """Write the release, and classify it by threads; return the result, and a worker's lifetime of few files."""
    for field in range(N_FILES):
        write_galaxies(folder / "release" / f"field-{field}.parquet", ROWS, seed=field)
    began = time.monotonic()
    classify([folder / "release"], model="morphology", store=folder / "models", out=folder / "threads")
    a_file = (time.monotonic() - began) / N_FILES
    return annotated_bytes(folder / "threads"), math.ceil(3 + 4 * a_file)


def annotated_bytes(out: Path) -> dict[str, bytes]:
    """Return what lies in an output folder, without the report, which has the names of paths."""
    found = lasting_contents(out)
    del found["report.html"]
    return found


def test_the_job_scripts_of_the_page(queue: Slurm, survey: Path, tmp_path: Path) -> None:
    """One worker at a time, which soon expires; the run is cancelled once, and the same command goes on."""
    folder = Path(shutil.copytree(survey, tmp_path / "survey"))
    expected, lifetime = expected_after(folder)
    few = {"--cpus-per-task=8": "--cpus-per-task=1", "--nworkers 8": "--nworkers 1", "%20": "%1"}
    few |= {"--lifetime 220m --lifetime-stagger 10m": f"--lifetime {lifetime}s"}
    for name, text in scripts(few).items():
        (folder / name).write_text(text)

    cancelled = queue.submit("classify.sh", folder=folder)
    staged = folder / "annotated" / ".blr-staging"
    wait_for(lambda: [*staged.rglob("*.parquet.json")] or not queue.jobs(), "a finished file", between=0.05)
    assert queue.jobs(), (folder / f"slurm-{cancelled}.out").read_text()
    queue.ask("scancel", cancelled)
    wait_for(lambda: not queue.jobs(), "the end of the workers too")
    assert not (folder / "annotated" / "manifest.json").exists()
    assert "run the same command again" in (folder / f"slurm-{cancelled}.out").read_text()

    again = queue.submit("classify.sh", folder=folder)
    wait_for(lambda: not queue.jobs(), "the end of the run")
    said = (folder / f"slurm-{again}.out").read_text()
    assert (folder / "annotated" / "manifest.json").is_file(), said
    assert annotated_bytes(folder / "annotated") == expected
    number = max(int(re.findall(r"\d+", path.name)[0]) for path in folder.glob("slurm-*_*.out"))
    workers = [path.read_text() for path in folder.glob(f"slurm-{number}_*.out")]
    assert len(workers) > 1, "another job has taken the place of the first"
    assert any("worker-lifetime-reached" in log for log in workers)
    assert not list(folder.glob("scheduler-*.json"))


def program(changed: Mapping[str, str]) -> str:
    """Return the page's program for dask-jobqueue, with each text of `changed` replaced."""
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```python\n([^`]*dask_jobqueue[^`]*)```", page)
    for before, after in changed.items():
        assert before in text, f"the page's program has no {before}"
        text = text.replace(before, after)
    return text


def test_the_program_of_the_page_for_dask_jobqueue(queue: Slurm, survey: Path, tmp_path: Path) -> None:
    """One worker at a time, which soon expires and is replaced."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed (pip install dask-jobqueue)")
    folder = Path(shutil.copytree(survey, tmp_path / "survey"))
    expected, lifetime = expected_after(folder)
    few = {'"cores": 8, "processes": 8, "memory": "32GB"': '"cores": 1, "processes": 1, "memory": "2GB"'}
    few |= {'"220m", "--lifetime-stagger", "10m"': f'"{lifetime}s"', "maximum_jobs=20": "maximum_jobs=1"}
    few |= {"SLURMCluster(**job": 'SLURMCluster(**job, interface="lo"'}
    (folder / "jobqueue.py").write_text(program(few))
    done = python("jobqueue.py", cwd=folder, env=queue.environment | {"PYTHONSAFEPATH": "1"}, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert annotated_bytes(folder / "annotated") == expected
    wait_for(lambda: not queue.jobs(), "the end of the workers")
    logs = [path.read_text() for path in (folder / "logs").iterdir()]
    assert len(logs) > 1, "another job has taken the place of the first"
    assert any("worker-lifetime-reached" in log for log in logs)
