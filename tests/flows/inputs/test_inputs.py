"""Paths and URLs of users, files that are still written, and pieces of catalogues: all rows once, in order."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

import catalogs
from catalogs.errors import CatalogError
from catalogs.formats import TableChoice
from flows.errors import UsageError
from flows.inputs import source as watch
from flows.inputs.opening import find_files, opened, pieces_of, thinned
from flows.inputs.source import (
    InputCatalogue,
    LocalSource,
    RemoteSource,
    copy_name_of,
    resolve_one,
    resolve_sources,
    still_written,
)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    folder.mkdir()
    for name, n in (("a", 3), ("b", 5)):
        Table({"x": np.arange(n, dtype=float)}).write(folder / f"{name}.fits")
    (folder / "README.txt").write_text("notes")
    return folder


def test_the_kinds(release: Path) -> None:
    (release.parent / "sky").mkdir()
    (release.parent / "sky" / "hats.properties").write_text("obs_collection=sky\n")
    sources = resolve_sources(
        ["release", "release/*.fits", "sky", "s3://user:word@bucket/x"], release.parent, key="x"
    )
    assert sources[:-1] == (
        LocalSource(release, "folder"),
        LocalSource(release / "a.fits", "file"),
        LocalSource(release / "b.fits", "file"),
        LocalSource(release.parent / "sky", "hats"),
    )
    assert isinstance(sources[-1], RemoteSource)
    assert "word" not in repr(sources[-1])
    assert resolve_one(str(release / "*.fits")) == LocalSource(release / "*.fits", "pattern")
    assert resolve_one(release / "none.fits") == LocalSource(release / "none.fits")


def test_files_that_are_left_out_are_not_opened(release: Path) -> None:
    (release / "b.fits").write_bytes(b"no table")
    whole = InputCatalogue.of(LocalSource.at(release), TableChoice())
    catalogue = whole.leaving_out([release / "b.fits", release.parent / "c.fits"])
    assert (catalogue.without, [path.name for path in catalogue.files]) == (("b.fits",), ["a.fits"])
    found, failed = find_files([catalogue], lambda _: None, tolerated=())
    assert ([name for *_, name in found], failed) == (["a.fits"], {})
    assert copy_name_of(release / "b.fits", [catalogue]) == "b.fits"


def test_a_link_in_a_folder_stays_inside_the_roots_whoever_opens_it(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial, or a target that rows are compared with, opens folders too."""
    secret = release.parent / "secret.fits"
    Table({"x": [1.0]}).write(secret)
    (release / "c.fits").symlink_to(secret)
    monkeypatch.setenv("BLR_ROOTS", str(release))
    leads_out = pytest.raises(UsageError, match=r"shift.target: got '.*c.fits', which leads to .*secret.fits")
    with leads_out, opened([LocalSource.at(release)], TableChoice(), key="shift.target"):
        pass
    with opened([LocalSource(release, "folder", fetched=True)], TableChoice()) as (catalog,):
        assert catalog.n_rows == 9


CHOICE = TableChoice(None, ["x"])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return names of files in the working folder, with the numbers from 0 on; parts have about 40 rows."""
    monkeypatch.setattr("flows.inputs.opening.PIECE_ROWS", 40)
    monkeypatch.chdir(tmp_path)
    x = np.arange(400)
    Table({"x": x[:100]}).write("a.fits")
    Table({"x": x[100:190]}).write("b.ecsv")
    Path("c").mkdir()
    pq.write_table(pa.table({"x": x[190:300]}), "c/0.parquet", row_group_size=30)
    pq.write_table(pa.table({"x": x[300:320]}), "c/1.parquet")
    Table({"x": x[320:]}).write("d.fits.gz")
    return ["a.fits", "b.ecsv", "c", "d.fits.gz"]


def test_what_goes_together_without_the_damaged_file_is_read(tmp_path: Path) -> None:
    """Kinds share columns with most files, and none with each other."""
    for name, columns in {**dict.fromkeys("klm", "abcd"), "x": "abxy", "z": "cduv"}.items():
        pq.write_table(pa.table({c: [1.0, 2.0] for c in columns}), tmp_path / f"{name}.parquet")
    whole = (tmp_path / "k.parquet").read_bytes()
    (tmp_path / "q.parquet").write_bytes(whole[:-30])
    catalogue = InputCatalogue.of(LocalSource.at(tmp_path), TableChoice())
    found, failed = find_files([catalogue], lambda _: None, tolerated=(CatalogError,))
    assert [name for *_, name in found] == [f"{name}.parquet" for name in "klmxz"]
    assert {*failed} == {tmp_path / "q.parquet"}


def numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("x").to_pylist()]


@pytest.mark.parametrize("relative", [False, True])
def test_pieces_have_all_rows_in_order(files: list[str], relative: Any) -> None:
    opened = [catalogs.open(name if relative else Path(name).absolute()) for name in files]
    pieces = pieces_of(opened, CHOICE)
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    assert [piece.catalog for piece in pieces] == [0, 0, 0, 1, 2, 2, 2, 3, 3]
    assert all(piece.partition.path.is_absolute() for piece in pieces)
    found = [numbers(piece.partition.batches(["x"])) for piece in pieces]
    assert [number for own in found for number in own] == list(range(400))
    assert [piece.first for piece in pieces] == [own[0] for own in found]
    assert [piece.partition.n_rows for piece in pieces] == [len(own) for own in found]


@pytest.mark.parametrize("step", [1, 2, 7, 40, 41, 399, 1000])
def test_every_nth_row_of_pieces_is_that_of_all_rows(files: list[str], step: int) -> None:
    """Whatever the sizes of batches: a piece, or a batch, may have none of these rows."""
    pieces = pieces_of([catalogs.open(name) for name in files], CHOICE)
    for rows in (7, 16, 100):
        found = [
            numbers(thinned(piece.partition.batches(["x"], rows), step, start=piece.first))
            for piece in pieces
        ]
        assert [number for own in found for number in own] == list(range(0, 400, step))


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


def test_a_young_file_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    assert still_written([aged(tmp_path / "a", 60)], quiet=50, patience=50) == {}
    assert clock.slept == 0
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
