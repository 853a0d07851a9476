"""A HATS table of our own: opened by us, by pyarrow and, where it is installed, by `hats`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import catalogs
from catalogs.fits.healpix import centres
from catalogs.hats import write_hats

PIXELS = np.array([700, 3, 255, 256, 9])


def made(folder: Path) -> Path:
    ra, dec = centres(PIXELS, 3)
    fields = [pa.field("ra", pa.float64(), metadata={"unit": "deg"}), pa.field("dec", pa.float64())]
    fields.append(pa.field("density", pa.float64(), metadata={"unit": "deg-2"}))
    table = pa.table([ra, dec, PIXELS.astype(float)], schema=pa.schema(fields))
    write_hats(folder / "map", table, PIXELS, order=3, extra={"blr.map": "a test"})
    return folder / "map"


def test_the_metadata_hold_all_row_groups(tmp_path: Path) -> None:
    root = made(tmp_path)
    assert pq.read_metadata(root / "dataset/_metadata").num_rows == 5
    assert pa.dataset.parquet_dataset(root / "dataset/_metadata").count_rows() == 5


def test_written_again_it_replaces_itself(tmp_path: Path) -> None:
    made(tmp_path)
    assert catalogs.open(made(tmp_path)).n_rows == 5
    assert [path.name for path in tmp_path.iterdir()] == ["map"]


def test_hats_reads_it(tmp_path: Path) -> None:
    hats = pytest.importorskip("hats")
    catalogue = hats.read_hats(made(tmp_path))
    assert len(catalogue) == 5
    assert {pixel.pixel for pixel in catalogue.get_healpix_pixels()} == {*(PIXELS >> 6).tolist()}
