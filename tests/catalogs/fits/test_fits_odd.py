"""Annotated copies of odd files: gaps, stray cards, strange orders, missing padding, gzip."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits as astropy_fits

from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.fits import table as fits
from catalogs.metadata.fits_cards import integer_card, text_cards
from catalogs.writing.annotate import annotate

N = 11
COLUMNS = (NewColumn("blr_p", pa.float32()), NewColumn("blr_class", pa.string(), width=9))


def values_of(column: NewColumn, n: int) -> np.ndarray[Any, Any]:
    if pa.types.is_string(column.datatype):
        return np.array(["early", "late-type", ""])[np.arange(n) % 3]
    return np.linspace(-5, 5, n).astype(column.datatype.to_pandas_dtype())


def make(path: Path, *, n: int = N) -> Path:
    table = astropy_fits.BinTableHDU.from_columns([astropy_fits.Column("row", "J", array=np.arange(n))])
    hdus = [astropy_fits.PrimaryHDU(), table, astropy_fits.ImageHDU(np.ones((4, 4)))]
    astropy_fits.HDUList(hdus).writeto(path)
    return path


def annotated(path: Path, columns: tuple[NewColumn, ...] = COLUMNS, **options: Any) -> Path:
    cat = fits.open(path)
    whole = {c.name: values_of(c, cat.n_rows) for c in columns}

    def compute(batch: pa.RecordBatch) -> dict[str, Any]:
        return {name: v[batch.column("row").to_numpy()] for name, v in whole.items()}

    options = {"rows": 4} | options
    return annotate(cat, path.parent / "out", columns, compute, read=["row"], **options)[0]


def test_a_gap_before_the_heap_stays(tmp_path: Path) -> None:
    source = Path(astropy_fits.__file__).parent / "tests" / "data" / "theap-gap.fits"
    if not source.exists():
        pytest.skip(f"this astropy comes without {source.name}")
    columns = (NewColumn("blr_x", pa.int16()),)

    def compute(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"blr_x": np.zeros(batch.num_rows, np.int16)}

    (out,) = annotate(fits.open(source), tmp_path, columns, compute, read=["i"], rows=100)
    with astropy_fits.open(source) as old, astropy_fits.open(out, checksum=True) as new:
        assert new[1].header["THEAP"] == old[1].header["THEAP"] + 2 * 500
        assert all(np.array_equal(a, b) for a, b in zip(old[1].data["arr"], new[1].data["arr"], strict=True))
        assert new[1]._checksum_valid


def test_stray_cards_of_columns_that_are_not_there_do_not_befall_the_new_ones(tmp_path: Path) -> None:
    table = astropy_fits.BinTableHDU.from_columns([astropy_fits.Column("row", "J", array=np.arange(N))])
    content_cards = {"TSCAL2": 7.0, "TNULL3": 1, "TUNIT9": "far away"}
    table.writeto(tmp_path / "in.fits")
    content = (tmp_path / "in.fits").read_bytes()
    header = table.header.copy()
    header.update(content_cards)
    (tmp_path / "in.fits").write_bytes(
        content[:2880] + header.tostring(padding=True).encode() + content[2880 * 2 :]
    )
    columns = (NewColumn("a", pa.int32()), NewColumn("b", pa.int32()))
    with astropy_fits.open(annotated(tmp_path / "in.fits", columns)) as hdus:
        assert hdus[1].data["a"].tolist() == hdus[1].data["b"].tolist() == values_of(columns[0], N).tolist()
        assert "TUNIT9" in hdus[1].header
        assert "TNULL3" not in hdus[1].header
        assert "blr removed the stray card: TSCAL2" in str(hdus[1].header["HISTORY"])


def test_unusual_order_of_the_column_cards(tmp_path: Path) -> None:
    """All TTYPE first, then comments, then all TFORM in reverse, as hand-made writers leave them."""
    path = tmp_path / "in.fits"
    cards = [*text_cards("XTENSION", "BINTABLE")]
    counts = {"BITPIX": 8, "NAXIS": 2, "NAXIS1": 6, "NAXIS2": 2, "PCOUNT": 0, "GCOUNT": 1, "TFIELDS": 2}
    cards += [integer_card(keyword, value) for keyword, value in counts.items()]
    cards += [
        *text_cards("TTYPE1", "row"),
        *text_cards("TTYPE2", "b"),
        b"COMMENT what follows is odd".ljust(80),
    ]
    cards += [
        *text_cards("TFORM2", "1I"),
        *text_cards("EXTNAME", "ODD"),
        *text_cards("TFORM1", "1J"),
        b" " * 80,
    ]
    primary = astropy_fits.PrimaryHDU().header.tostring().encode()
    body = np.array([(0, 5), (1, 6)], ">i4, >i2").tobytes()
    path.write_bytes(primary + (b"".join(cards) + b"END").ljust(2880) + body.ljust(2880, b"\0"))
    with astropy_fits.open(
        annotated(path, rows=1, provenance=Provenance({"model": "m"})), checksum=True
    ) as hdus:
        assert hdus[1].data["b"].tolist() == [5, 6]
        assert hdus[1]._checksum_valid
        keys = list(hdus[1].header)
        assert keys.index("TFORM1") < keys.index("TTYPE3") < keys.index("HISTORY")


def test_a_file_without_its_last_padding(tmp_path: Path) -> None:
    path = tmp_path / "in.fits"
    astropy_fits.BinTableHDU.from_columns([astropy_fits.Column("row", "J", array=np.arange(N))]).writeto(path)
    path.write_bytes(path.read_bytes()[: 2 * 2880 + 4 * N])
    out = annotated(path)
    assert out.stat().st_size % 2880 == 0
    with astropy_fits.open(out, checksum=True) as hdus:
        assert hdus[1]._checksum_valid


def test_special_records_behind_the_last_hdu_stay(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits")
    path.write_bytes(path.read_bytes() + b"special".ljust(2880) + b"odd end")
    assert annotated(path).read_bytes().endswith(b"special".ljust(2880) + b"odd end")


def test_a_table_without_rows_gains_the_columns(tmp_path: Path) -> None:
    out = annotated(make(tmp_path / "in.fits", n=0))
    assert fits.open(out).names[-len(COLUMNS) :] == tuple(c.name for c in COLUMNS)
    with astropy_fits.open(out, checksum=True) as hdus:
        assert len(hdus[1].data) == 0
        assert hdus[1]._checksum_valid


def test_a_gzipped_catalogue_stays_gzipped(tmp_path: Path) -> None:
    plain = make(tmp_path / "in.fits")
    zipped = tmp_path / "in.fits.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    out = annotated(zipped)
    assert out.name == "in.fits.gz"
    assert gzip.decompress(out.read_bytes()) == annotated(plain).read_bytes()
    assert annotated(zipped, overwrite=True).read_bytes() == out.read_bytes()
    assert sorted(p.name for p in out.parent.iterdir()) == ["in.fits", "in.fits.gz"]
