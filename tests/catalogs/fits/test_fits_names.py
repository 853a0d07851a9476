"""Names that FITS cannot hold, and long cards, in copies that are FITS: every reader reads them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.table import Table

import catalogs
from catalogs.catalog.new_columns import NewColumn
from catalogs.fits.create import fits_names
from catalogs.writing import Written

SHORT = (NewColumn("blr_mark", pa.int32()),)


def copied(path: Path, out: Path, columns: tuple[NewColumn, ...], **options: Any) -> Written:
    def compute(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
        return {c.name: batch.column("row").to_numpy().astype(np.int32) for c in columns}

    return catalogs.annotate(catalogs.open(path), out, columns, compute, read=["row"], **options)


@pytest.mark.filterwarnings("ignore:It is strongly recommended that column names")
def test_a_column_without_a_name_gets_one(tmp_path: Path) -> None:
    """As pandas writes the index to CSV; astropy reads no table with an empty TTYPE."""
    (tmp_path / "t.csv").write_text(",row,été\n7,1,3\n8,2,4\n", encoding="utf-8")
    written = copied(tmp_path / "t.csv", tmp_path / "out", SHORT, form="fits")
    table = Table.read(written[0])
    assert table.colnames == ["col1", "row", "\\xe9t\\xe9", "blr_mark"]
    assert table["col1"].tolist() == [7, 8]
    assert catalogs.open(written[0]).names == tuple(table.colnames)
    assert [w for w in written.warnings if "is called" in w] == [
        "column 1, which has no name, is called 'col1', since names in FITS are ASCII and not empty",
        "'été' is called '\\xe9t\\xe9', since names in FITS are ASCII and not empty",
    ]


def test_no_two_columns_get_one_name() -> None:
    assert fits_names(["", " ", "col2", "x"], ["col1", "blr"]) == ["col1_", "col2_", "col2", "x"]
    assert fits_names(["é", "\\xe9", "a\tb", "ok "], []) == ["\\xe9_", "\\xe9", "a b", "ok"]
