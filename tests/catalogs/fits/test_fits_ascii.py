"""ASCII tables are read like binary ones, and their annotated copies are binary."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits as astropy_fits

from catalogs.errors import CatalogError, DamagedFileError
from catalogs.fits import table as fits

TEXTS = ["M 31", "", "NGC 205"]
INTEGERS = [1, -22, 333]
WIDE = [12345678901, 2, -3]
REALS = [1.25, -0.5, 1e10]


def make(path: Path) -> Path:
    columns = [
        astropy_fits.Column("name", "A8", array=TEXTS, ascii=True),
        astropy_fits.Column("n", "I5", array=INTEGERS, ascii=True, null="-9999"),
        astropy_fits.Column("wide", "I12", array=WIDE, ascii=True),
        astropy_fits.Column("x", "E14.6", array=REALS, ascii=True, unit="mag"),
        astropy_fits.Column("y", "D20.10", array=REALS, ascii=True),
    ]
    table = astropy_fits.TableHDU.from_columns(columns, name="CHARS")
    table.header["TCOMM4"] = "a magnitude"
    hdus = [astropy_fits.PrimaryHDU(), table, astropy_fits.ImageHDU(np.ones((3, 3)), name="LAST")]
    astropy_fits.HDUList(hdus).writeto(path)
    return path


def read(path: Path) -> dict[str, list[Any]]:
    cat = fits.open(path)
    return pa.Table.from_batches(list(cat.batches(cat.names, 2))).to_pydict()


def replaced(path: Path, old: bytes, new: bytes) -> Path:
    content = path.read_bytes()
    assert content.count(old) == 1
    assert len(old) == len(new)
    path.write_bytes(content.replace(old, new))
    return path


def test_the_values(tmp_path: Path) -> None:
    assert read(make(tmp_path / "t.fits")) == {
        "name": TEXTS,
        "n": INTEGERS,
        "wide": WIDE,
        "x": REALS,
        "y": REALS,
    }


def test_what_was_left_out_is_null(tmp_path: Path) -> None:
    path = replaced(make(tmp_path / "t.fits"), b"  -22", b"-9999")
    assert read(path)["n"] == [1, None, 333]
    assert read(replaced(path, b"  333", b"     "))["n"] == [1, None, None]
    real = b"-0.500000E+00".rjust(14) if b"-0.500000E+00" in path.read_bytes() else b" -5.000000E-01"
    assert np.isnan(read(replaced(path, real, b" " * 14))["x"][1])


def test_what_is_no_number_is_damage(tmp_path: Path) -> None:
    path = replaced(make(tmp_path / "t.fits"), b"  -22", b"  -2x")
    with pytest.raises(
        DamagedFileError, match=r"column 'n' has a value that is not a number in rows 0 to 3.*2X"
    ):
        fits.open(path)


@pytest.mark.parametrize("form", ["I500", "Q5", "I0"])
def test_forms_that_lie(tmp_path: Path, form: str) -> None:
    path = replaced(make(tmp_path / "t.fits"), b"'I5      '", f"'{form:<8}'".encode())
    with pytest.raises(DamagedFileError, match=f"TFORM2 is '{form}'"):
        fits.open(path)


def test_a_table_of_each_kind_must_be_chosen_between(tmp_path: Path) -> None:
    path = make(tmp_path / "t.fits")
    binary = astropy_fits.BinTableHDU.from_columns([astropy_fits.Column("b", "J", array=[1])], name="BINARY")
    astropy_fits.append(path, binary.data, binary.header)
    with pytest.raises(CatalogError, match=r"holds 2 tables: 1 \('CHARS'\) TABLE, 3 \('BINARY'\) BINTABLE"):
        fits.open(path)
    assert fits.open(path, columns=["wide"]).metadata["hdu"] == "1"
    assert fits.open(path, "BINARY").names == ("b",)
