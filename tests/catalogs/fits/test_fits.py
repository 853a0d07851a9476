"""Opening and reading FITS: every TFORM code, nulls, scaling, texts, ASCII tables, names and cards."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits as astropy_fits
from astropy.table import Table
from hypothesis import given
from hypothesis import strategies as st

import catalogs
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError, DamagedFileError, FormatError
from catalogs.fits import table as fits
from catalogs.fits.header import Hdu
from catalogs.fits.writing import fits_names
from catalogs.metadata.fits_cards import lines, prose_cards, text_cards
from catalogs.writing import Written
from tests.catalogs.fits_samples import N, column, patched, read, write

UNSIGNED = {
    "B": (-(2**7), np.array([-128, 127, 0, 1, 2, 3, 4], np.int8)),
    "I": (2**15, np.array([0, 65535, 1, 2, 3, 4, 32768], np.uint16)),
    "J": (2**31, np.array([0, 2**32 - 1, 1, 2, 3, 4, 2**31], np.uint32)),
    "K": (2**63, np.array([0, 2**64 - 1, 1, 2**63, 2**53 + 1, 3, 4], np.uint64)),
}


@pytest.mark.parametrize("code", UNSIGNED)
def test_shifted_integers_are_exact(tmp_path: Path, code: str) -> None:
    zero, values = UNSIGNED[code]
    with_bscale = {} if code == "B" else {"bzero": zero}
    path = write(tmp_path / "t.fits", column("x", code, values, **(with_bscale or {"bzero": -128})))
    table = read(path)
    assert table["x"].to_numpy().dtype == values.dtype
    assert table["x"].to_pylist() == values.tolist()


@pytest.mark.parametrize(
    ("code", "stored"), [("B", np.uint8), ("I", np.int16), ("J", np.int32), ("K", np.int64)]
)
def test_other_scalings_are_float64(tmp_path: Path, code: str, stored: Any) -> None:
    stored = np.arange(N, dtype=stored)
    written = write(tmp_path / "t.fits", column("x", code, stored))
    # Some writers put numbers in quotes, or a decimal point behind whole ones.
    for scale, zero, null in ((0.5, 100.0, 2), ("0.5", "100", "2"), (0.5, 100, 2.0)):
        path = patched(written, TSCAL1=scale, TZERO1=zero, TNULL1=null)
        assert read(path)["x"].to_pylist() == [100.0, 100.5, None, 101.5, 102.0, 102.5, 103.0]
        assert fits.open(path).column("x").null is None
    with pytest.raises(DamagedFileError, match="TSCAL1 is 'half', expected a number"):
        fits.open(patched(written, TSCAL1="half"))


def test_vectors_without_elements_are_empty_lists_in_parquet(tmp_path: Path) -> None:
    columns = column("row", "J", np.arange(N)), column("none", "0E", np.zeros((N, 0)))
    (written,) = copied(write(tmp_path / "t.fits", *columns), tmp_path / "out", SHORT, form="parquet")
    assert pq.read_table(written)["none"].to_pylist() == [[]] * N


def test_truth_values_and_their_nulls(tmp_path: Path) -> None:
    path = write(tmp_path / "t.fits", column("x", "L", np.array([True, False] * 3 + [True])))
    content = path.read_bytes()
    at = content.rindex(b"TFTFTFT")
    path.write_bytes(content[:at] + b"TF\0 T1F" + content[at + 7 :])
    assert read(path)["x"].to_pylist() == [True, False, None, None, True, None, False]


@pytest.mark.parametrize("code", "CM")
def test_complex_numbers_are_pairs(tmp_path: Path, code: str) -> None:
    values = np.arange(N) * (1 - 2j)
    vectors = column("v", f"2{code}", np.stack([values] * 2, 1))
    table = read(write(tmp_path / "t.fits", column("x", code, values), vectors))
    assert table["x"].to_pylist() == [[v.real, v.imag] for v in values]
    assert table["v"].to_pylist() == [[[v.real, v.imag]] * 2 for v in values]


def test_texts_end_at_nul_lose_trailing_blanks_only_and_may_be_beyond_ascii(tmp_path: Path) -> None:
    empty = column("empty", "0E", np.zeros((N, 0)))
    path = write(tmp_path / "t.fits", column("x", "6A", ["abcdef"] * N), empty)
    patched(path, TFORM2="0A")
    content = path.read_bytes()
    raw = [b"abcdef", b"ab    ", b" b c  ", b"a\0cdef", b"\0\0\0\0\0\0", b"      ", b"a \0   "]
    path.write_bytes(content.replace(b"abcdef" * N, b"".join(raw)))
    table = read(path)
    assert table["x"].to_pylist() == ["abcdef", "ab", " b c", "a", "", "", "a"]
    assert table["empty"].to_pylist() == [""] * N
    path = write(tmp_path / "beyond.fits", column("x", "6A", ["abcdef"] * N))
    raw = ["été".encode().ljust(6), "été".encode("latin-1").ljust(6)] + [b"plain "] * 5
    path.write_bytes(path.read_bytes().replace(b"abcdef" * N, b"".join(raw)))
    assert read(path)["x"].to_pylist() == ["été", "été"] + ["plain"] * 5


@pytest.mark.parametrize("form", ["6A with TDIM", "6A2"])
def test_arrays_of_texts(tmp_path: Path, form: str) -> None:
    path = write(tmp_path / "t.fits", column("x", "6A", ["aabbcc"] * N))
    patched(path, **({"TDIM1": "(2,3)"} if "TDIM" in form else {"TFORM1": form}))
    assert read(path)["x"].to_pylist() == [["aa", "bb", "cc"]] * N
    assert fits.open(path).column("x").shape == (3,)


def test_texts_and_bits_of_variable_length(tmp_path: Path) -> None:
    words = ["one", "", "three   ", "4", "", "six", "seven"]
    path = write(tmp_path / "t.fits", column("x", "PA()", np.array(words, object)))
    assert read(path)["x"].to_pylist() == [w.rstrip() for w in words]
    # Seen as bits: the heap holds one byte for every eight bits, each cell beginning with a whole one.
    raw = np.empty(N, object)
    raw[:] = [np.array([0b10110000 + i, 0b11000000][: i % 3], np.uint8) for i in range(N)]
    path = write(tmp_path / "u.fits", column("x", "PB()", raw))
    content = path.read_bytes().replace(b"'PB(2)", b"'PX(2)")
    path.write_bytes(content)
    assert read(path)["x"].to_pylist() == [[True, False][: i % 3] for i in range(N)]


def test_cells_that_share_a_place_in_the_heap(tmp_path: Path) -> None:
    values = np.empty(3, object)
    values[:] = [np.array([1, 2], np.int32), np.array([3, 4], np.int32), np.array([5, 6], np.int32)]
    path = write(tmp_path / "t.fits", column("x", "PJ()", values))
    old, new = np.array([2, 0, 2, 8, 2, 16], ">i4"), np.array([2, 8, 1, 0, 3, 4], ">i4")
    path.write_bytes(path.read_bytes().replace(old.tobytes(), new.tobytes()))
    assert read(path)["x"].to_pylist() == [[3, 4], [1], [2, 3, 4]]


def test_rows_in_batches_of_any_size(tmp_path: Path) -> None:
    x = np.arange(N)
    path = write(tmp_path / "t.fits", column("x", "K", x), column("s", "3A", [f"{i}" for i in x]))
    for rows in (1, 2, N, 100):
        table = read(path, "s", "x", rows=rows)
        assert table["x"].to_pylist() == x.tolist()
        assert table["s"].to_pylist() == [f"{i}" for i in x]
    assert [b.num_rows for b in fits.open(path).batches([], 5)] == [5, 2]


def several(path: Path, *names: str) -> Path:
    hdus = [astropy_fits.PrimaryHDU(), astropy_fits.ImageHDU(np.zeros((3, 3)), name="IMAGE")]
    for i, name in enumerate(names):
        columns = [column("x", "J", [i]), column(f"only_{i}", "J", [i])]
        hdus.append(astropy_fits.BinTableHDU.from_columns(columns, name=name))
    astropy_fits.HDUList(hdus).writeto(path)
    return path


def test_the_table_is_chosen_by_name_number_or_columns(tmp_path: Path) -> None:
    path = several(tmp_path / "t.fits", "A", "B")
    for choice in ({"table": "b"}, {"table": 3}, {"table": "3"}, {"columns": ["x", "only_1"]}):
        assert fits.open(path, **choice).metadata["hdu"] == "3"
    path = several(tmp_path / "t.cat", "LDAC_IMHEAD", "LDAC_OBJECTS")  # whose first is an image's header
    assert fits.open(path).metadata["extname"] == "LDAC_OBJECTS"
    assert fits.open(path, "LDAC_IMHEAD").metadata["hdu"] == "2"


def test_a_choice_that_is_none_lists_the_tables(tmp_path: Path) -> None:
    path = several(tmp_path / "t.fits", "A", "B", "B")
    choices: dict[str, dict[str, Any]] = {
        "holds 3 tables, expected one of 2 'A', 3 'B', 4 'B'; name one": {},
        "holds 3 tables, expected": {"columns": ["x"]},
        r"holds 3 tables, none with all columns \(3 lacks \['y'\]\)": {"columns": ["x", "only_1", "y"]},
        "2 tables called 'B'": {"table": "B"},
        "0 tables called '1', expected one of 2 'A'": {"table": 1},
    }
    for message, choice in choices.items():
        with pytest.raises(CatalogError, match=message):
            fits.open(path, **choice)


def test_compressed_images_and_tables_are_no_catalogues(tmp_path: Path) -> None:
    image = astropy_fits.CompImageHDU(np.zeros((9, 9), np.int16))
    astropy_fits.HDUList([astropy_fits.PrimaryHDU(), image]).writeto(tmp_path / "i.fits")
    with pytest.raises(FormatError, match=r"no table; it holds the HDUs 0 PRIMARY, 1 \('COMPR"):
        fits.open(tmp_path / "i.fits")
    path = patched(write(tmp_path / "t.fits", column("x", "J", [1])), ZTABLE=True)
    with pytest.raises(DamagedFileError, match="ZNAXIS1 is None, expected a whole number"):
        fits.open(path)


def test_ambiguous_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "t.fits", column("bmag", "E", [1]), column("x", "E", [1]), column("y", "E", [1]))
    patched(path, TTYPE3="x")
    with pytest.raises(FormatError, match=r"several columns called \['x'\]"):
        read(path, "x")
    assert read(path, "bmag")["bmag"].to_pylist() == [1]
    path.write_bytes(path.read_bytes().replace(b"TTYPE1  = 'bmag  ", b"XTYPE1  = 'bmag  "))
    assert fits.open(path).names == ("col1", "x", "x"), "columns without a name are numbered"


def test_plain_and_gzipped_files_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "t.fits", column("x", "J", np.arange(N)))
    assert fits.sniff(path, path.read_bytes()[:64])
    for other in (b"", b"SIMPLE", b"PAR1", b"\x1f\x8b", b"\x1f\x8bnonsense", gzip.compress(b"a,b\n1,2\n")):
        (tmp_path / "other").write_bytes(other)
        assert not fits.sniff(tmp_path / "other", other)
    zipped = tmp_path / "t.fits.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert read(zipped) == read(path)
    assert fits.sniff(zipped, zipped.read_bytes()[:512])
    zipped.write_bytes(zipped.read_bytes()[:-20])
    with pytest.raises(DamagedFileError, match=r"is damaged.*expected a whole compressed file"):
        fits.open(zipped)


def test_a_table_by_columns_is_refused(tmp_path: Path) -> None:
    """As STILTS writes "colfits": one row, each column a vector of all values."""
    table = Table({"name": [["a", "b", "c"]], "x": [[1.0, 2.0, 3.0]], "place": np.zeros((1, 3, 2))})
    table.write(tmp_path / "t.fits")
    with pytest.raises(FormatError, match=r"one row whose 3 columns are vectors of 3 .*stilts tcopy"):
        fits.open(tmp_path / "t.fits")
    table["id"] = [7]
    table.write(tmp_path / "t.fits", overwrite=True)
    assert fits.open(tmp_path / "t.fits").n_rows == 1
    Table({"x": [[1.0]], "y": [[1.0]]}).write(tmp_path / "t.fits", overwrite=True)
    assert fits.open(tmp_path / "t.fits").n_rows == 1


SHORT = (NewColumn("blr_mark", pa.int32()),)


def copied(path: Path, out: Path, columns: tuple[NewColumn, ...], **options: Any) -> Written:
    def compute(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
        return {c.name: batch.column("row").to_numpy().astype(np.int32) for c in columns}

    return catalogs.annotate(catalogs.open(path), out, columns, compute, read=["row"], **options)


@pytest.mark.filterwarnings("ignore:It is strongly recommended that column names")
def test_a_column_without_a_name_gets_one(tmp_path: Path) -> None:
    """As pandas writes the index to CSV; astropy reads no table with an empty TTYPE, or one of several cards."""
    (tmp_path / "t.csv").write_text(f",row,été,{'x' * 69}\n7,1,3,5\n8,2,4,6\n", encoding="utf-8")
    written = copied(tmp_path / "t.csv", tmp_path / "out", SHORT, form="fits")
    table = Table.read(written[0])
    assert table.colnames == ["col1", "row", "\\xe9t\\xe9", f"{'x' * 55}_4", "blr_mark"]
    assert table["col1"].tolist() == [7, 8]
    assert catalogs.open(written[0]).names == tuple(table.colnames)
    assert [w for w in written.warnings if "is called" in w][:2] == [
        "column 1, which has no name, is called 'col1', since FITS names are ASCII, not empty, of up to 68 characters",
        "'été' is called '\\xe9t\\xe9', since FITS names are ASCII, not empty, of up to 68 characters",
    ]


def test_text_behind_a_nul_is_kept(tmp_path: Path) -> None:
    """For a text of FITS ends there; NULs at its end are padding."""
    pq.write_table(pa.table({"row": [0, 1], "text": ["a\0b\0", "c\0"]}), tmp_path / "t.parquet")
    written = copied(tmp_path / "t.parquet", tmp_path / "out", SHORT, form="fits")
    assert Table.read(written[0])["text"].tolist() == [r"a\x00b", "c"]
    assert "'text': characters beyond ASCII are written as backslash escapes" in written.warnings


def test_no_two_columns_get_one_name() -> None:
    assert fits_names(["", " ", "col2", "x"], ["col1", "blr"]) == ["col1_", "col2_", "col2", "x"]
    assert fits_names(["é", "\\xe9", "a\tb", "ok "], []) == ["\\xe9_", "\\xe9", "a b", "ok"]


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300))
def test_any_text_survives_its_cards(text: str) -> None:
    cards = text_cards("TCOMM1", text)
    assert all(len(card) == 80 for card in cards)
    header = astropy_fits.Header.fromstring(b"".join(cards))
    assert header["TCOMM1"].rstrip() == text.rstrip()


def test_a_text_of_very_many_cards_is_read_in_time() -> None:
    """It took four minutes."""
    cards = [b"LONG    = 'begins&'", *[b"CONTINUE  '" + b"x" * 66 + b"&'"] * 8000, b"CONTINUE  'ends'"]
    header = Hdu("here", tuple(card.ljust(80) for card in cards), 0, 0)
    assert header.text("LONG") == "begins" + "x" * 66 * 8000 + "ends"


@given(
    st.lists(st.text("ab- \\", max_size=9).map(lambda t: t.replace("a", "a" * 40)), max_size=9).map("".join)
)
def test_lines_of_history_are_read_as_they_were(text: str) -> None:
    """Words with hyphens or too long for a card, and blanks; they came back with a blank where a card ended."""
    told = [f"blr columns = {text}".rstrip(), "blr model = m@1"]
    assert [line for _, line in lines(prose_cards("HISTORY", told))] == told


TEXTS = ["  M 31", "", "NGC 205"]
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


def rows_of(path: Path) -> dict[str, list[Any]]:
    cat = fits.open(path)
    return pa.Table.from_batches(list(cat.batches(cat.names, 2))).to_pydict()


def replaced(path: Path, old: bytes, new: bytes) -> Path:
    content = path.read_bytes()
    assert content.count(old) == 1
    assert len(old) == len(new)
    path.write_bytes(content.replace(old, new))
    return path


def test_what_was_left_out_is_null(tmp_path: Path) -> None:
    path = make(tmp_path / "t.fits")
    assert rows_of(path) == {"name": TEXTS, "n": INTEGERS, "wide": WIDE, "x": REALS, "y": REALS}
    replaced(path, b"  -22", b"-9999")
    assert rows_of(path)["n"] == [1, None, 333]
    assert rows_of(replaced(path, b"  333", b"     "))["n"] == [1, None, None]
    real = b"-0.500000E+00".rjust(14) if b"-0.500000E+00" in path.read_bytes() else b" -5.000000E-01"
    pointless = b"-50".rjust(14)  # of E14.6: the last six digits are behind the point, as STILTS has it too
    assert rows_of(replaced(path, real, pointless))["x"][1] == -50e-6
    assert np.isnan(rows_of(replaced(path, pointless, b" " * 14))["x"][1])


def test_what_is_no_number_is_damage(tmp_path: Path) -> None:
    path = replaced(make(tmp_path / "t.fits"), b"  -22", b"  -2x")
    with pytest.raises(DamagedFileError, match=r"'n' has a value that is not a number in rows 0 to 3.*2X"):
        fits.open(path)


@pytest.mark.parametrize("form", ["I500", "Q5", "I0"])
def test_forms_that_lie(tmp_path: Path, form: str) -> None:
    path = replaced(make(tmp_path / "t.fits"), b"'I5      '", f"'{form:<8}'".encode())
    with pytest.raises(DamagedFileError, match=f"TFORM2 is '{form}'"):
        fits.open(path)
