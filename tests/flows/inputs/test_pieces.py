"""Pieces of catalogues: all rows once, in order; and what workers find in them comes back in that order."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

import catalogs
from catalogs.formats import TableChoice
from flows.inputs.opening import pieces_of, thinned

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
