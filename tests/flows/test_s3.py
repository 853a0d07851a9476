"""Inputs in an object store: a real S3 server program, asked from three time zones; copies stay on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.runs.manifest import Manifest
from tests.flows.verbs import classify, reprocess

PARTS = ("a.parquet", "b.parquet")
RELEASE = "s3://survey/release"


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_a_release_is_classified_and_kept_up_to_date(
    zone: str, s3: Any, trained: Path, tmp_path: Path, make: SimpleNamespace
) -> None:
    """Nothing is deferred, nothing is fetched twice, and a file that was put in another's place is done again."""
    for seed, name in enumerate(PARTS):
        s3.put(str(make.parquet(tmp_path / name, make.survey(60, seed=seed))), f"survey/release/{name}")
    (tmp_path / "spec.toml").write_text(make.specification + f'\n[target]\npaths = ["{RELEASE}"]\n')
    options = {"store": trained / "models", "quiet_seconds": 0}
    done = reprocess(tmp_path / "spec.toml", **options)
    assert (done.status, done.deferred, done.quarantined) == ("done", {}, {}), zone
    outputs = Manifest.read(tmp_path / "annotated").outputs
    assert [(o.name, o.input_path, o.input.tag[:5]) for o in outputs] == [
        (name, f"{RELEASE}/{name}", "ETag:") for name in PARTS
    ]
    classify([tmp_path / PARTS[0]], model="morphology", store=trained / "models", out=tmp_path / "here")
    assert (tmp_path / "here" / PARTS[0]).read_bytes() == (tmp_path / "annotated" / PARTS[0]).read_bytes()
    assert reprocess(tmp_path / "spec.toml", **options).status == "nothing to do"
    s3.put(str(make.parquet(tmp_path / PARTS[1], make.survey(60, seed=9))), f"survey/release/{PARTS[1]}")
    again = reprocess(tmp_path / "spec.toml", **options)
    assert {name: file["why"] for name, file in again.files.items() if file["why"]} == {PARTS[1]: "changed"}
