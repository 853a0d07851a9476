"""Labelled rows that workers read: the same rows, counts and hashes as by one process, for every kind of label."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table, vstack

import catalogs
from flows.engines.engine import ThreadEngine, working_on
from flows.errors import EngineError
from flows.inputs.opening import Piece, pieces_of
from flows.specification.toml_file import read_specification
from flows.training._gather import Gathered, gather, reading_workers
from flows.training._rows import TrainingRows
from tests.flows.elsewhere import Elsewhere

TEXT = """
name = "pieces"
[catalog]
paths = ["night-*"]
id = "id"
ra = "ra"
dec = "dec"
[features]
x = "x"
y = "y"
"""
KIND = '[label]\ncolumn = "kind"\n'
LABELS = {
    "column": KIND,
    "identifiers": KIND + '[label.table]\npath = "numbers.csv"\nid = "number"\n',
    "positions": KIND + '[label.table]\npath = "places.parquet"\nra = "RA"\ndec = "DE"\n',
    "annotators": KIND + 'noise = "estimated"\nannotator = "who"\n',
    "votes": '[label]\nvotes = { early = "n_early", late = "n_late" }\n',
}
N, N_FILES = 900, 5


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with catalogues of three formats, and tables of labels."""
    folder = tmp_path_factory.mktemp("nights")
    rng = np.random.default_rng(3)
    late = rng.random(N) < 0.5
    columns = {
        "id": np.arange(N),
        "ra": rng.uniform(0, 360, N),
        "dec": rng.uniform(-60, 60, N),
        "x": np.where(rng.random(N) < 0.1, np.nan, rng.normal(1.5 * late, 1.0)),
        "y": rng.normal(size=N),
        "w": rng.uniform(0.5, 2, N),
        "kind": np.where(rng.random(N) < 0.05, "?", np.where(late, "late", "early")),
        "who": np.array(["anna", "Borek", ""])[rng.integers(0, 3, N)],
        "n_early": rng.integers(0, 9, N),
        "n_late": rng.integers(0, 9, N),
    }
    for i, rows in enumerate(np.array_split(np.arange(N), N_FILES)):
        part = Table({name: column[rows] for name, column in columns.items()})
        part.write(folder / f"night-{i}{('.fits', '.ecsv', '.parquet')[i % 3]}")
    pq.write_table(
        pa.table({"RA": columns["ra"][::2], "DE": columns["dec"][::2], "kind": columns["kind"][::2]}),
        folder / "places.parquet",
    )
    # Names with zeros in front are numbers in the catalogue: this is found out while rows are read.
    numbers = [f"{i:06d},{kind}" for i, kind in zip(columns["id"], columns["kind"], strict=True) if i % 3]
    (folder / "numbers.csv").write_text("\n".join(["number,kind", *numbers]) + "\n")
    (folder / "review.csv").write_text("id,label\n" + "".join(f"{i},late\n" for i in range(0, N, 40)))
    return folder


@pytest.fixture(autouse=True)
def _few_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.training._gather.MOST_IN_MEMORY", 300)
    monkeypatch.setattr("flows.training._rows.SHARD_ROWS", 100)
    monkeypatch.setattr("flows.training._gather.BATCH_ROWS", 70)
    monkeypatch.setattr("flows.labels.source.BATCH_ROWS", 70)


def gathered(nights: Path, kind: str, room: Path, engine: ThreadEngine) -> Gathered:
    (nights / "spec.toml").write_text(TEXT + LABELS[kind])
    specification = read_specification(nights / "spec.toml")
    opened = [catalogs.open(path) for path in sorted(nights.glob("night-*"))]
    with working_on(engine):
        workers = reading_workers(specification, opened)
        found = gather(specification, opened, folder=lambda: room.mkdir() or room, workers=workers)
    assert room.is_dir()
    return found


def arrays(rows: TrainingRows) -> dict[str, bytes]:
    found = {f.name: getattr(rows, f.name) for f in fields(rows)}
    return {name: a.tobytes() for name, a in found.items() if isinstance(a, np.ndarray)}


@pytest.mark.parametrize("kind", ["identifiers", "positions", "annotators", "votes"])
def test_rows_read_by_workers_are_those_of_one_process(nights: Path, tmp_path: Path, kind: str) -> None:
    here = gathered(nights, kind, tmp_path / "here", ThreadEngine(1))
    there = gathered(nights, kind, tmp_path / "there", Elsewhere())
    assert (there.classes, there.annotators) == (here.classes, here.annotators)
    assert there.sample == here.sample
    for name in ("n_joined", "n_reviewed", "n_unplaced", "first_met", "numbered"):
        assert getattr(there.source, name) == getattr(here.source, name), name
    assert [*there.source.content()] == [*here.source.content()]
    assert arrays(there.rows) == arrays(here.rows)
    files = {p.name: p.read_bytes() for p in (tmp_path / "here").rglob("*") if p.is_file()}
    assert {p.name: p.read_bytes() for p in (tmp_path / "there").rglob("*") if p.is_file()} == files
    assert files


@pytest.mark.parametrize("name", ["night.fits", "night.parquet"])
def test_one_file_is_read_in_parts(
    nights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Ranges of rows of FITS, row groups of Parquet: in all the file's rows, in their order."""
    monkeypatch.setattr("flows.inputs.opening.PIECE_ROWS", 200)
    monkeypatch.setattr("flows.labels.source.BATCH_ROWS", 70)
    whole = Table()
    for path in sorted(nights.glob("night-*")):
        part = next(catalogs.open(path).batches(["id", "x", "y", "kind", "ra", "dec"])).to_pydict()
        whole = vstack([whole, Table({key: np.array(column, dtype=None) for key, column in part.items()})])
    (tmp_path / "night").mkdir()
    path = tmp_path / "night" / name.replace("night", "night-0")
    if name.endswith("fits"):
        whole.write(path)
    else:
        pq.write_table(
            pa.table({key: whole[key].tolist() for key in whole.colnames}), path, row_group_size=90
        )
    read: list[Piece] = []

    def noted(*arguments: Any) -> list[Piece]:
        read[:] = pieces_of(*arguments)
        return read

    monkeypatch.setattr("flows.training._gather.pieces_of", noted)
    here = gathered(tmp_path / "night", "column", tmp_path / "here", ThreadEngine(1))
    there = gathered(tmp_path / "night", "column", tmp_path / "there", Elsewhere())
    expected = {"night.fits": 5, "night.parquet": 4}  # of Parquet, three groups of 90 rows each
    assert len(read) == expected[name]
    assert (there.sample.n_read, there.sample.content_hash) == (N, here.sample.content_hash)
    assert arrays(there.rows) == arrays(here.rows)
    files = {p.name: p.read_bytes() for p in (tmp_path / "here").rglob("*") if p.is_file()}
    assert {p.name: p.read_bytes() for p in (tmp_path / "there").rglob("*") if p.is_file()} == files


def test_a_file_that_kills_every_worker_is_named(nights: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"night-0.fits: 2 workers were killed one after another"):
        gathered(nights, "column", tmp_path / "there", Elsewhere(lost=0))
