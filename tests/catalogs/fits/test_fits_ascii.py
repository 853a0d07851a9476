"""ASCII tables are read like binary ones, and their annotated copies are binary."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits as astropy_fits

from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError, DamagedFileError
from catalogs.fits import table as fits
from catalogs.writing import annotate

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


def test_blanks_at_the_begin_of_a_text_stay(tmp_path: Path) -> None:
    """They are part of it, as in `'  9571'`; behind it they fill the field up."""
    path, texts = tmp_path / "t.fits", ["  9571", "M 31", "    "]
    table = astropy_fits.TableHDU.from_columns([astropy_fits.Column("name", "A8", array=texts, ascii=True)])
    astropy_fits.HDUList([astropy_fits.PrimaryHDU(), table]).writeto(path)
    mark = (NewColumn("blr_mark", pa.int32()),)
    cat = fits.open(path)
    (copy,) = annotate(
        cat,
        tmp_path / "out",
        mark,
        lambda b: {"blr_mark": np.arange(b.num_rows, dtype=np.int32)},
        read=["name"],
    )
    assert read(path)["name"] == read(copy)["name"] == ["  9571", "M 31", ""]
    for place in (path, copy):
        assert [str(t).rstrip() for t in astropy_fits.getdata(place, 1)["name"]] == ["  9571", "M 31", ""]


def test_the_columns(tmp_path: Path) -> None:
    cat = fits.open(make(tmp_path / "t.fits"))
    assert [(c.name, str(c.datatype)) for c in cat.columns] == [
        ("name", "string"),
        ("n", "int32"),
        ("wide", "int64"),
        ("x", "double"),
        ("y", "double"),
    ]
    assert (cat.column("x").unit, cat.column("x").description, cat.n_rows) == ("mag", "a magnitude", 3)
    assert cat.metadata == {"hdu": "1", "extname": "CHARS"}


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


def test_the_annotated_copy_is_binary_and_keeps_the_rest(tmp_path: Path) -> None:
    path = make(tmp_path / "t.fits")
    column = NewColumn("blr_p", pa.float32(), ucd="stat.probability")

    def compute(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"blr_p": batch.column("n").to_numpy().astype(np.float32)}

    (out,) = annotate(fits.open(path), tmp_path / "out", [column], compute, read=["n"])
    assert read(out) == read(path) | {"blr_p": INTEGERS}
    with astropy_fits.open(path) as old, astropy_fits.open(out, checksum=True) as new:
        new.verify("exception")
        assert isinstance(new["CHARS"], astropy_fits.BinTableHDU)
        assert new["CHARS"]._checksum_valid == new["CHARS"]._datasum_valid == 1
        assert new["CHARS"].header["TCOMM4"] == "a magnitude"
        assert new["LAST"].header.tostring() == old["LAST"].header.tostring()
        assert np.array_equal(new["LAST"].data, old["LAST"].data)
        for name in old["CHARS"].columns.names:
            stripped = [c.rstrip() if name == "name" else c for c in old["CHARS"].data[name].tolist()]
            assert new["CHARS"].data[name].tolist() == stripped


@pytest.mark.parametrize("name", ["ascii.fits", "ascii_i4-i20.fits"])
def test_astropys_own(name: str) -> None:
    path = Path(astropy_fits.__file__).parent / "tests" / "data" / name
    if not path.exists():
        pytest.skip(f"this astropy comes without {name}")
    with astropy_fits.open(path) as hdus:
        slow = {n: hdus[1].data[n].tolist() for n in hdus[1].columns.names}
    for column, cells in read(path).items():
        for ours, theirs in zip(cells, slow[column], strict=True):
            # astropy makes a null zero; and the smallest integer of all stands for null here.
            assert repr(ours) == repr(theirs) or (ours is None and theirs in (0, -(2**63)))


def test_a_table_of_each_kind_must_be_chosen_between(tmp_path: Path) -> None:
    path = make(tmp_path / "t.fits")
    binary = astropy_fits.BinTableHDU.from_columns([astropy_fits.Column("b", "J", array=[1])], name="BINARY")
    astropy_fits.append(path, binary.data, binary.header)
    with pytest.raises(CatalogError, match=r"holds 2 tables: 1 \('CHARS'\) TABLE, 3 \('BINARY'\) BINTABLE"):
        fits.open(path)
    assert fits.open(path, columns=["wide"]).metadata["hdu"] == "1"
    assert fits.open(path, "BINARY").names == ("b",)
