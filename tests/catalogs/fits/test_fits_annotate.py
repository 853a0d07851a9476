"""Annotated copies: every old byte that can stay stays, and other readers open them."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fitsio
import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits as astropy_fits
from astropy.table import Table
from astropy.units import UnitsWarning

from catalogs.catalog.catalog import Annotation
from catalogs.catalog.new_columns import NewColumn, Provenance, standard_columns
from catalogs.errors import CatalogError, DamagedFileError, NameClashError, OutputExistsError
from catalogs.fits import table as fits
from catalogs.writing.annotate import annotate

N = 11
COLUMNS = standard_columns(["early", "late-type"])
PROVENANCE = Provenance(
    {"model": "morphology@3f2a", "note": "long, " * 30 + "é"}, {0: ("LOW_CONFIDENCE", "near one half")}
)


def values_of(column: NewColumn, n: int) -> np.ndarray[Any, Any]:
    if pa.types.is_string(column.datatype):
        return np.array(["early", "late-type", ""])[np.arange(n) % 3]
    return np.linspace(-5, 5, n).astype(column.datatype.to_pandas_dtype())


def computing(columns: tuple[NewColumn, ...], n: int) -> Callable[[pa.RecordBatch], Mapping[str, Any]]:
    """Compute from a column `row` of row numbers, so that a value in the wrong row shows."""
    whole = {c.name: values_of(c, n) for c in columns}
    return lambda batch: {name: v[batch.column("row").to_numpy()] for name, v in whole.items()}


def make(path: Path, *, n: int = N) -> Path:
    """Write a file of everything: cards of all sorts, a heap, odd widths, HDUs before and behind."""
    rng = np.random.default_rng(5)
    vla = np.empty(n, object)
    vla[:] = [np.arange(i % 4, dtype=np.float32) for i in range(n)]
    c = astropy_fits.Column
    table = astropy_fits.BinTableHDU.from_columns(
        [
            c("row", "K", array=np.arange(n)),
            c("Name", "7A", array=[f"NGC {i}" for i in range(n)]),
            c("flag", "L", array=rng.random(n) < 0.5),
            c("bits", "11X", array=rng.random((n, 11)) < 0.5),
            c("u2", "I", array=rng.integers(0, 2**16, n).astype(np.uint16), bzero=2**15),
            c("s1", "B", array=rng.integers(-128, 128, n).astype(np.int8), bzero=-128),
            c("u8", "K", array=rng.integers(0, 2**63, n).astype(np.uint64), bzero=2**63),
            c("flux", "3E", array=rng.normal(size=(n, 3)).astype(np.float32), unit="nanomaggy"),
            c("vla", "PE()", array=vla),
            c("cplx", "M", array=rng.normal(size=n) * 1j),
            c("count", "J", array=rng.integers(0, 9, n), null=-99, disp="I8"),
        ],
        name="CATALOG",
    )
    table.header["TUCD8"] = ("phot.flux", "the UCD of flux")
    table.header["LONGSTR"] = "a very long string that is continued, with an ampersand & and 'quotes' " * 3
    table.header["HIERARCH ESO DET ID"] = "hierarchical"
    table.header.add_comment("made by hand")
    table.header.add_history("observed, reduced")
    primary = astropy_fits.PrimaryHDU(rng.integers(0, 9, (5, 5)))
    primary.header["OBSERVER"] = ("Edwin Hubble", "who looked")
    hdus = [primary, astropy_fits.ImageHDU(np.ones((4, 4)), name="FIRST"), table]
    hdus.append(astropy_fits.ImageHDU(rng.normal(size=(7, 3)), name="LAST"))
    astropy_fits.HDUList(hdus).writeto(path, checksum=True)
    return path


def annotated(path: Path, columns: tuple[NewColumn, ...] = COLUMNS, **options: Any) -> Path:
    cat = fits.open(path)
    compute = computing(columns, cat.n_rows)
    options = {"rows": 4, "provenance": PROVENANCE} | options
    return annotate(cat, path.parent / "out", columns, compute, read=["row"], **options)[0]


def raw_rows(path: Path) -> np.ndarray[Any, Any]:
    table = fits.open(path).partitions[0].table
    content = np.frombuffer(path.read_bytes(), np.uint8)
    size = table.n_rows * table.row_bytes
    return content[table.hdu.data_offset :][:size].reshape(table.n_rows, table.row_bytes)


def test_old_rows_stay_bit_for_bit(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits")
    old, new = raw_rows(path), raw_rows(annotated(path))
    assert np.array_equal(new[:, : old.shape[1]], old)


def test_everything_around_the_table_stays_byte_for_byte(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits")
    out = annotated(path)
    old, new = fits.open(path).partitions[0].table, fits.open(out).partitions[0].table
    before, after = path.read_bytes(), out.read_bytes()
    assert after[: new.hdu.header.offset] == before[: old.hdu.header.offset]
    assert after[new.hdu.end :] == before[old.hdu.end :]
    assert after[new.heap_offset :][: new.heap_bytes] == before[old.heap_offset :][: old.heap_bytes]
    assert len(after) % 2880 == 0


def test_old_cards_stay_in_place_and_new_ones_follow_the_last_column(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits")
    old = fits.open(path).partitions[0].table.hdu.header.cards
    new = list(fits.open(annotated(path)).partitions[0].table.hdu.header.cards)
    changed = (b"NAXIS1 ", b"TFIELDS ", b"CHECKSUM", b"DATASUM ")
    kept = [c for c in old if not c.startswith(changed)]
    places = [new.index(c) for c in kept]
    assert places == sorted(places)
    added = [
        c[:8].rstrip().decode() for c in new if c not in set(old) and not c.startswith((*changed, b"HIST"))
    ]
    assert added[:4] == ["TTYPE12", "TFORM12", "TUCD12", "TCOMM12"]
    assert new[new.index(added_card(new, b"TTYPE12")) - 1].startswith(b"TUCD8 ")  # the last of any column


def added_card(cards: list[bytes], keyword: bytes) -> bytes:
    return next(card for card in cards if card.startswith(keyword))


def test_new_columns_hold_what_was_computed(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits")
    with astropy_fits.open(annotated(path)) as hdus:
        for column in COLUMNS:
            expected = values_of(column, N)
            found = hdus["CATALOG"].data[column.name]
            assert found.dtype.kind == expected.dtype.kind
            assert np.array_equal(found, expected), column.name


TYPES = (pa.bool_(), pa.uint8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string())


def test_every_type_of_new_column(tmp_path: Path) -> None:
    columns = tuple(NewColumn(f"n{i}", t, unit="mag", width=9) for i, t in enumerate(TYPES))
    out = annotated(make(tmp_path / "in.fits"), columns)
    cat = fits.open(out)
    assert tuple(c.datatype for c in cat.columns[-len(TYPES) :]) == TYPES
    whole = pa.Table.from_batches(list(cat.batches([c.name for c in columns])))
    with astropy_fits.open(out) as hdus:
        for c in columns:
            expected = values_of(c, N).tolist()
            assert whole[c.name].to_pylist() == expected
            assert hdus["CATALOG"].data[c.name].tolist() == expected


def test_metadata_of_old_and_new_columns(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits")
    old, new = fits.open(path), fits.open(annotated(path))
    assert new.columns[: len(old.columns)] == old.columns
    for wanted, found in zip(COLUMNS, new.columns[len(old.columns) :], strict=True):
        assert (found.name, found.datatype, found.ucd, found.unit, found.description) == (
            wanted.name,
            wanted.datatype,
            wanted.ucd,
            wanted.unit,
            wanted.description,
        )


def test_provenance_is_in_the_history(tmp_path: Path) -> None:
    with astropy_fits.open(annotated(make(tmp_path / "in.fits"))) as hdus:
        history = "".join(hdus["CATALOG"].header["HISTORY"])
    assert history.startswith("observed, reduced")
    assert "blr model = morphology@3f2a" in history
    assert "blr flag bit 0 (1) LOW_CONFIDENCE: near one half" in history
    assert r"\xe9" in history


def test_checksums_are_valid_for_astropy_and_fitsio(tmp_path: Path) -> None:
    out = annotated(make(tmp_path / "in.fits"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # astropy warns of a wrong checksum
        with astropy_fits.open(out, checksum=True) as hdus:
            hdus.verify("exception")
            assert all(hdu._checksum_valid == hdu._datasum_valid == 1 for hdu in hdus)
    with fitsio.FITS(out) as file:
        for hdu in file:
            hdu.verify_checksum()


def test_checksums_are_added_where_there_were_none(tmp_path: Path) -> None:
    astropy_fits.BinTableHDU.from_columns([astropy_fits.Column("row", "J", array=np.arange(N))]).writeto(
        tmp_path / "in.fits"
    )
    with astropy_fits.open(annotated(tmp_path / "in.fits"), checksum=True) as hdus:
        assert hdus[1]._checksum_valid == hdus[1]._datasum_valid == 1


def test_astropy_pandas_and_fitsio_read_the_copy(tmp_path: Path) -> None:
    out = annotated(make(tmp_path / "in.fits"))
    with pytest.warns(UnitsWarning, match="nanomaggy"):  # of the input: it passes through
        table = Table.read(out, hdu="CATALOG")
    assert list(table["blr_class"][:3].filled("none")) == ["early", "late-type", "none"]  # empty is masked
    assert "blr_flags" in "".join(table.pformat(max_width=-1))
    table.remove_columns(["bits", "flux", "vla", "cplx"])
    assert table.to_pandas()["blr_model"].tolist() == values_of(COLUMNS[-1], N).tolist()
    rows = fitsio.read(out, ext="CATALOG", columns=["row", "blr_p_max"])
    assert rows["row"].tolist() == list(range(N))


def test_a_file_of_fitsio_is_copied_bit_for_bit(tmp_path: Path) -> None:
    rows = np.zeros(N, [("row", "i4"), ("u", "u4"), ("f", "f4", (2, 3)), ("s", "S5", 2)])
    rows["row"], rows["u"], rows["s"] = np.arange(N), 2**32 - 1, b"word"
    fitsio.write(tmp_path / "in.fits", rows, extname="CATALOG", units=["", "", "Jy", ""])
    out = annotated(tmp_path / "in.fits")
    old, copy = (fitsio.read(p, ext="CATALOG") for p in (tmp_path / "in.fits", out))
    assert all(copy[name].tobytes() == old[name].tobytes() for name in rows.dtype.names)
    assert np.array_equal(raw_rows(out)[:, : rows.dtype.itemsize], raw_rows(tmp_path / "in.fits"))
    assert fits.open(out).column("f").unit == "Jy"


def test_the_result_is_the_same_bytes_for_any_batches_and_threads(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits", n=500)
    first = annotated(path, rows=1000, threads=1).read_bytes()
    assert annotated(path, rows=37, threads=3, overwrite=True).read_bytes() == first


def test_clashes_and_existing_files_are_errors_before_any_work(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits")
    with pytest.raises(NameClashError, match="column 'Name' already"):
        annotated(path, (NewColumn("NAME", pa.int32()),))
    partition = fits.open(path).partitions[0]
    with pytest.raises(NameClashError):
        partition.write_annotated(tmp_path / "x", Annotation([NewColumn("name", pa.int32())], dict, ["row"]))
    assert not (tmp_path / "out").exists()
    annotated(path)
    with pytest.raises(OutputExistsError):
        annotated(path)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (NewColumn("a", pa.string()), "x", "'a' is text of unknown width"),
        (
            NewColumn("a", pa.string(), width=3),
            "spiral",
            "got the text 'spiral', which is longer than the width of 3",
        ),
        (NewColumn("a", pa.string(), width=9), "élan", "got the text 'élan'; FITS holds ASCII only"),
        (NewColumn("a", pa.date32()), "x", r"'a' is date32\[day\]; FITS columns are added as bool"),
    ],
)
def test_what_fits_cannot_hold(tmp_path: Path, column: NewColumn, value: str, message: str) -> None:
    path = make(tmp_path / "in.fits")
    partition = fits.open(path).partitions[0]

    def compute(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"a": np.array(["E"] + [value] * (batch.num_rows - 1), object)}

    with pytest.raises(CatalogError, match=message):
        partition.write_annotated(tmp_path / "x", Annotation([column], compute, ["row"]))
    assert [p.name for p in tmp_path.iterdir()] == ["in.fits"]


def test_more_than_999_columns(tmp_path: Path) -> None:
    columns = tuple(NewColumn(f"c{i}", pa.int16()) for i in range(990))
    with pytest.raises(CatalogError, match="would have 1001 columns"):
        annotated(make(tmp_path / "in.fits"), columns)


def test_a_file_that_changes_after_it_was_opened(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits")
    cat = fits.open(path)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DamagedFileError, match="changed after it was opened"):
        annotate(cat, tmp_path / "out", COLUMNS, computing(COLUMNS, N), read=["row"])
    assert not (tmp_path / "out").exists()


def test_a_failing_compute_leaves_nothing(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits")

    def compute(batch: pa.RecordBatch) -> dict[str, Any]:
        if batch.column("row")[0].as_py() == 8:
            raise RuntimeError("no convergence")
        return computing(COLUMNS, N)(batch)

    with pytest.raises(RuntimeError, match="no convergence"):
        annotate(fits.open(path), tmp_path / "out", COLUMNS, compute, read=["row"], rows=4)
    assert list((tmp_path / "out").iterdir()) == []
