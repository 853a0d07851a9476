"""Annotated copies of FITS, also of odd and large files: every old byte that can stay stays."""

import gzip
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import fitsio
import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits as astropy_fits

from catalogs.catalog.catalog import Annotation
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.errors import CatalogError, DamagedFileError
from catalogs.fits import table as fits
from catalogs.writing import annotate
from tests.catalogs.parquet_samples import COLUMNS, computing, values_of

N = 11
PROVENANCE = Provenance(
    {"model": "morphology@3f2a", "note": "long, " * 30 + "é"}, {0: ("LOW_CONFIDENCE", "near one half")}
)


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
    compute = computing(cat.n_rows, columns)
    options = {"rows": 4, "provenance": PROVENANCE} | options
    return annotate(cat, path.parent / "out", columns, compute, read=["row"], **options)[0]


def raw_rows(path: Path) -> np.ndarray[Any, Any]:
    table = fits.open(path).partitions[0].table
    content = np.frombuffer(path.read_bytes(), np.uint8)
    size = table.n_rows * table.row_bytes
    return content[table.hdu.data_offset :][:size].reshape(table.n_rows, table.row_bytes)


def test_old_rows_and_everything_around_the_table_stay_byte_for_byte(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits")
    out = annotated(path)
    stored = raw_rows(path)
    assert np.array_equal(raw_rows(out)[:, : stored.shape[1]], stored)
    assert {*fits.open(out).same_columns(fits.open(path))} == {*fits.open(path).names} - {"vla"}
    old, new = fits.open(path).partitions[0].table, fits.open(out).partitions[0].table
    before, after = path.read_bytes(), out.read_bytes()
    assert after[: new.hdu.offset] == before[: old.hdu.offset]
    assert after[new.hdu.end :] == before[old.hdu.end :]
    assert after[new.heap_offset :][: new.heap_bytes] == before[old.heap_offset :][: old.heap_bytes]
    assert len(after) % 2880 == 0


def test_old_cards_stay_in_place_and_new_ones_follow_the_last_column(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits")
    old = fits.open(path).partitions[0].table.hdu.cards
    new = list(fits.open(annotated(path)).partitions[0].table.hdu.cards)
    changed = (b"NAXIS1 ", b"TFIELDS ", b"CHECKSUM", b"DATASUM ")
    kept = [c for c in old if not c.startswith(changed)]
    places = [new.index(c) for c in kept]
    assert places == sorted(places)
    other = [c for c in new if c not in set(old) and not c.startswith((*changed, b"HIST"))]
    assert any(rb"\xe9" in card for card in new), "what is not ASCII is escaped, not left out"
    assert [c[:8].rstrip() for c in other[:4]] == [b"TTYPE12", b"TFORM12", b"TUCD12", b"TCOMM12"]
    assert new[new.index(other[0]) - 1].startswith(b"TUCD8 ")  # the last of any column


TYPES = (pa.bool_(), pa.uint8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string())
TYPES += (pa.int8(), pa.uint16(), pa.uint32(), pa.uint64())  # by TZERO


def test_every_type_of_new_column(tmp_path: Path) -> None:
    columns = tuple(NewColumn(f"n{i}", t, unit="mag", width=9) for i, t in enumerate(TYPES))
    out = annotated(make(tmp_path / "in.fits"), columns)
    cat = fits.open(out)
    assert tuple(c.datatype for c in cat.columns[-len(TYPES) :]) == TYPES
    whole = pa.Table.from_batches(list(cat.batches([c.name for c in columns])))
    with astropy_fits.open(out) as hdus:
        for c in columns:
            for found in (whole[c.name].to_numpy(), hdus["CATALOG"].data[c.name]):
                np.testing.assert_array_equal(found, values_of(c, N))


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


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (NewColumn("a", pa.string()), "x", "'a' is text of unknown width"),
        (NewColumn("a", pa.string(), width=5), "spiral", "got the text 'spiral', expected at most 5"),
        (
            NewColumn("a", pa.string(), width=9),
            "élan",
            "got the text 'élan', expected at most 9 characters, all ASCII",
        ),
        (NewColumn("a", pa.date32()), "x", r"'a' is date32\[day\]; FITS columns are added as bool"),
        (NewColumn("a" * 69, pa.int32()), "x", "expected a name of 68 characters at most for FITS"),
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
    with pytest.raises(CatalogError, match="got 1001 columns"):
        annotated(make(tmp_path / "in.fits"), columns)


def test_a_file_that_changes_after_it_was_opened(tmp_path: Path) -> None:
    path = make(tmp_path / "in.fits")
    cat = fits.open(path)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DamagedFileError, match="changed after it was opened"):
        annotate(cat, tmp_path / "out", COLUMNS, computing(N), read=["row"])
    assert not (tmp_path / "out").exists()


def test_stray_cards_of_columns_that_are_not_there_do_not_befall_the_new_ones(tmp_path: Path) -> None:
    table = astropy_fits.BinTableHDU.from_columns([astropy_fits.Column("row", "J", array=np.arange(N))])
    content_cards = {"TSCAL2": 7.0, "TNULL3": 1, "TUNIT9": "far away"}
    table.writeto(tmp_path / "in.fits")
    content = (tmp_path / "in.fits").read_bytes()
    header = table.header.copy()
    header.update(content_cards)
    text = header.tostring(padding=True).encode()
    (tmp_path / "in.fits").write_bytes(content[:2880] + text + content[2880 * 2 :])
    columns = (NewColumn("a", pa.int32()), NewColumn("b", pa.int32()))
    with astropy_fits.open(annotated(tmp_path / "in.fits", columns)) as hdus:
        assert hdus[1].data["a"].tolist() == hdus[1].data["b"].tolist() == values_of(columns[0], N).tolist()
        assert "TUNIT9" in hdus[1].header
        assert "TNULL3" not in hdus[1].header
        assert "blr removed the stray card: TSCAL2" in str(hdus[1].header["HISTORY"])


@pytest.mark.filterwarnings("ignore:The following header keyword is invalid")
@pytest.mark.parametrize("card", [b"TUNIT1='mag'", b"TTYPE2 = 'x'"])
def test_cards_with_the_value_in_the_wrong_place_stay_as_they_are(tmp_path: Path, card: bytes) -> None:
    """No card of a column, by the standard: "=" is the ninth character there."""
    path = tmp_path / "in.fits"
    astropy_fits.BinTableHDU.from_columns([astropy_fits.Column("row", "J", array=np.arange(N))]).writeto(path)
    content, blank = path.read_bytes(), b" " * 80
    end = content.index(b"END" + b" " * 77, 2880)
    path.write_bytes(content[:end] + card.ljust(80) + content[end:].replace(blank, b"", 1))
    columns = (NewColumn("a", pa.int32()), NewColumn("b", pa.int32()))
    out = annotated(path, columns)
    assert card.ljust(80) in out.read_bytes()
    with astropy_fits.open(out) as hdus:
        assert hdus[1].data["b"].tolist() == values_of(columns[1], N).tolist()


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


def test_a_gzipped_catalogue_stays_gzipped(tmp_path: Path) -> None:
    plain = make(tmp_path / "in.fits")
    zipped = tmp_path / "in.fits.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    out = annotated(zipped)
    assert out.name == "in.fits.gz"
    assert gzip.decompress(out.read_bytes()) == annotated(plain).read_bytes()
    assert annotated(zipped, overwrite=True).read_bytes() == out.read_bytes()
    assert sorted(p.name for p in out.parent.iterdir()) == ["in.fits", "in.fits.gz"]


ROWS = 2_000_000
FORMS = {"id": "K", "ra": "D", "dec": "D", **{f"m{i}": "E" for i in range(10)}, "name": "13A", "flag": "J"}

SCRIPT = """
import resource, sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from catalogs.fits import table as fits
from catalogs.writing import annotate
from tests.catalogs.parquet_samples import COLUMNS, computing, values_of
from catalogs.catalog.new_columns import NewColumn

COLUMNS = [NewColumn("p", pa.float32()), NewColumn("flags", pa.int32()), NewColumn("c", pa.string(), width=6)]
WORDS = np.full(131_072, "spiral")


def compute(batch):
    n = batch.num_rows
    return {"p": batch.column("m0").to_numpy(), "flags": np.zeros(n, "i4"), "c": WORDS[:n]}


before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
annotate(fits.open(Path(sys.argv[1])), Path(sys.argv[2]), COLUMNS, compute, read=["m0", "id"], threads=2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_two_million_rows_take_little_memory(tmp_path: Path) -> None:
    """They have 81 bytes, all zero, which take no room on the disk."""
    path = tmp_path / "survey.fits"
    columns = [astropy_fits.Column(*item) for item in FORMS.items()]
    header = astropy_fits.BinTableHDU.from_columns(columns).header
    header["NAXIS2"] = ROWS
    with path.open("wb") as stream:
        stream.write(astropy_fits.PrimaryHDU().header.tostring().encode() + header.tostring().encode())
        stream.truncate(stream.tell() + 81 * ROWS + -81 * ROWS % 2880)
    command = [sys.executable, "-c", SCRIPT, str(path), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    assert int(done.stdout) < 100_000
    with astropy_fits.open(tmp_path / "out" / "survey.fits", checksum=True) as hdus:
        assert hdus[1]._checksum_valid == hdus[1]._datasum_valid == 1
        assert hdus[1].header["NAXIS1"] == 81 + 4 + 4 + 6
        assert np.all(hdus[1].data["c"][::100_000] == "spiral")
