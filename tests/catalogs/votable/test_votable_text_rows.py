"""TABLEDATA as we write it, for fields of one bit: the values are those that were read, to us and to astropy."""

import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import votable as astropy_votable
from astropy.table import MaskedColumn, Table

import catalogs
from catalogs.catalog.new_columns import NewColumn

pytestmark = pytest.mark.filterwarnings("ignore::astropy.io.votable.exceptions.VOWarning")

NEW = (NewColumn("blr_p", pa.float32()), NewColumn("blr_class", pa.string()))
STILTS = shutil.which("stilts")


def compute(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
    numbers = batch.column("row").to_numpy().astype(np.float32)
    return {"blr_p": numbers / 3, "blr_class": np.where(numbers > 1, "a < b", "σ")}


def astropy_table() -> Table:
    """Return a table with truth values, which astropy writes as single bits."""
    i = np.arange(6)
    table = Table({"row": i, "good": i % 2 == 0, "name": ["a", "b & c", "", "d", "e", "f"]})
    table["mag"] = np.where(i == 2, np.nan, i / 7).astype(np.float32)
    table["n"] = MaskedColumn(i, mask=i == 3)
    return table


@pytest.mark.parametrize("serialisation", ["tabledata", "binary2"])
def test_stilts_reads_the_copy_of_a_document_with_single_bits(tmp_path: Path, serialisation: str) -> None:
    """STILTS 3.4.7 reads single bits from TABLEDATA alone; what was TABLEDATA stays that, with its bits."""
    path = tmp_path / "t.vot"
    table = astropy_table()
    file = astropy_votable.from_table(table)
    file.to_xml(str(path), tabledata_format=serialisation)
    old = catalogs.open(path)
    (copy,) = catalogs.annotate(old, tmp_path / "out", NEW, compute, read=["row"])
    new = catalogs.open(copy)
    before, after = (pa.Table.from_batches(list(c.batches(c.names))) for c in (old, new))
    assert str(after.select(old.names).to_pylist()) == str(before.to_pylist())  # NaN is NaN
    assert after["blr_class"].to_pylist() == ["σ", "σ", *["a < b"] * 4]
    np.testing.assert_array_equal(after["blr_p"], np.arange(6, dtype=np.float32) / np.float32(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (element,) = astropy_votable.parse(str(copy)).iter_tables()
    assert [f.datatype for f in element.fields if f.name == "good"] == [
        "bit" if serialisation == "tabledata" else "boolean"
    ]
    assert element.array["good"].tolist() == [True, False] * 3
    if STILTS is None:
        pytest.skip("there is no stilts; apt-get install stilts")
    done = subprocess.run(
        [STILTS, "tpipe", f"in={copy}", "cmd=keepcols 'row good n blr_class'", "ofmt=csv"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.splitlines()[1:5] == [
        "0,true,0,σ",
        "1,false,1,σ",
        "2,true,2,a < b",
        "3,false,,a < b",
    ], done.stderr
