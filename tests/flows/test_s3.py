"""A release in an object store: a real S3 server program, asked from three time zones; outputs stay on this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from flows.orchestration.settings import free_port
from flows.runs.manifest import Manifest
from tests.flows.verbs import classify, reprocess

pytest.importorskip("s3fs", reason="fsspec reads S3 with s3fs")
pytest.importorskip("moto", reason="moto's server is the S3 server of these tests")

PARTS = ("a.parquet", "b.parquet")
RELEASE = "s3://survey/release"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Run the server; yield its address."""
    port = free_port()
    program = [sys.executable, "-c", "from moto.server import main; main()", "--port", str(port)]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        yield f"http://127.0.0.1:{port}"
        server.terminate()


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return fsspec's driver, which knows the server by its environment as users' programs do."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    filesystem = fsspec.filesystem("s3")
    end = time.monotonic() + 60
    while not filesystem.exists("survey"):
        try:
            filesystem.mkdir("survey")
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.1)
    yield filesystem
    filesystem.rm("survey", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Put this process into a time zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_a_release_is_classified_and_kept_up_to_date(zone, s3, trained: Path, tmp_path: Path, make) -> None:
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
    assert {name: file.why for name, file in again.files.items() if file.why} == {PARTS[1]: "changed"}
