"""Releases in an object store: a real S3 server; what is published is whole, and never changes."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from flows.cli.app import run
from tests.campaign.zygote import Zygote
from tests.release.conftest import told_by

RELEASES = "s3://survey/releases"


def signed(survey: Path, machine: Path, season: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draft, check and sign version 1 on a machine of its own."""
    monkeypatch.setenv("BLR_STAGING", str(machine))
    words = ["release", "draft", "types", "1", "--run", str(survey / f"parquet-{season}" / "run")]
    assert run([*words, "--store", str(survey / "models"), "--releases", RELEASES]) == 0
    assert run(["release", "check", "types", "1", "--releases", RELEASES]) == 0
    assert run(["release", "sign", "types", "1", "--releases", RELEASES, "--by", "Ada"]) == 0


def test_of_two_machines_that_publish_at_once_one_wins(
    survey: Path, tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch, processes: Zygote
) -> None:
    monkeypatch.chdir(tmp_path)
    for k in (1, 2):
        signed(survey, tmp_path / f"machine-{k}", k, monkeypatch)
    assert not s3.exists("survey/releases/types/releases.json")
    words = ["release", "publish", "types", "1", "--releases", RELEASES]
    pids = [
        processes.start(
            words,
            cwd=tmp_path,
            log=tmp_path / f"said-{k}",
            environment=os.environ | {"BLR_STAGING": str(tmp_path / f"machine-{k}")},
        )
        for k in (1, 2)
    ]
    status = [processes.wait(pid) for pid in pids]
    assert sorted(status) == [0, 1]
    told = told_by(tmp_path / f"said-{1 + status.index(1)}")
    assert "another person has published" in told or "is published with other bytes" in told
    log = json.loads(s3.cat("survey/releases/types/releases.json"))
    (event,) = log["events"]
    assert s3.exists(f"survey/releases/types/{event['folder']}/SHA256SUMS")
    monkeypatch.setenv("BLR_STAGING", str(tmp_path / f"machine-{1 + status.index(1)}"))
    assert run(words) == 1  # the other has other bytes, and never changes what is published
    monkeypatch.setenv("BLR_STAGING", str(tmp_path / "machine-3"))
    assert run(["release", "verify", f"{RELEASES}/types/1"]) == 0


@contextmanager
def gate(store: str, most: int) -> Iterator[tuple[str, Event]]:
    """Forward requests to a store until so many objects were put; yield the address, and what says that one waits."""
    puts, full, killed = count(1), Event(), Event()

    def forward(source: socket.socket, target: socket.socket, *, asks: bool) -> None:
        with suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                if asks and data.startswith(b"PUT ") and next(puts) > most:
                    full.set()
                    killed.wait()
                    break
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client = server.accept()[0]
                behind = socket.create_connection((place.hostname, place.port))
                for ends, asks in (((client, behind), True), ((behind, client), False)):
                    Thread(target=forward, args=ends, kwargs={"asks": asks}, daemon=True).start()

    place = urlsplit(store)
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", full
        killed.set()
        server.shutdown(socket.SHUT_RDWR)


def test_an_upload_that_is_killed_shows_no_half_release(
    survey: Path, tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch, processes: Zygote, says: Any
) -> None:
    """Killed when the store has no file, some, more, and all but the list; then the same command goes on."""
    monkeypatch.chdir(tmp_path)
    signed(survey, tmp_path / "machine", 1, monkeypatch)
    words = ["release", "publish", "types", "1", "--releases", RELEASES]
    # The hashed files, and beside them the list of hashes and the signature.
    (sums,) = (tmp_path / "machine").rglob("SHA256SUMS")
    n_files = len(sums.read_text().splitlines()) + 2

    def there() -> int:
        s3.invalidate_cache()
        return len(s3.find(RELEASES))

    sent = 0
    for most in (0, 1, n_files // 2, n_files - n_files // 2 - 1):
        with gate(os.environ["AWS_ENDPOINT_URL"], most) as (address, full):
            environment = os.environ | {"AWS_ENDPOINT_URL": address}
            pid = processes.start(words, cwd=tmp_path, log=tmp_path / "said", environment=environment)
            assert full.wait(60), told_by(tmp_path / "said")
            os.kill(pid, signal.SIGKILL)
            assert processes.wait(pid) == -signal.SIGKILL
        sent += most
        assert there() == sent
        assert not s3.exists(f"{RELEASES}/types/releases.json")
        monkeypatch.setenv("BLR_STAGING", str(tmp_path / f"reader-{most}"))
        assert "expected a published version" in says(2, "verify", f"{RELEASES}/types/1").err
        monkeypatch.setenv("BLR_STAGING", str(tmp_path / "machine"))
    assert sent == n_files
    assert run(words) == 0
    assert there() == n_files + 1
    monkeypatch.setenv("BLR_STAGING", str(tmp_path / "reader"))
    assert run(["release", "verify", f"{RELEASES}/types/1"]) == 0
