"""Cut, overwritten and lying files: an error with numbers, or the right result; never a crash or a huge allocation."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits as astropy_fits

from catalogs.catalog.catalog import verified
from catalogs.errors import CatalogError, DamagedFileError, FormatError
from catalogs.fits import table as fits

N = 200


def make(path: Path) -> Path:
    rng = np.random.default_rng(3)
    cells = np.empty(N, object)
    cells[:] = [np.arange(i % 5, dtype=np.int16) for i in range(N)]
    table = astropy_fits.BinTableHDU.from_columns(
        [
            astropy_fits.Column("x", "E", array=rng.normal(size=N)),
            astropy_fits.Column("name", "9A", array=[f"NGC {i}" for i in range(N)]),
            astropy_fits.Column("v", "PI()", array=cells),
        ],
        name="DATA",
    )
    hdus = [astropy_fits.PrimaryHDU(), table, astropy_fits.ImageHDU(np.ones((40, 40)), name="IMAGE")]
    astropy_fits.HDUList(hdus).writeto(path)
    return path


def read(path: Path) -> pa.Table:
    cat = fits.open(path)
    return pa.Table.from_batches(list(cat.batches(cat.names, 64)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make(tmp_path / "t.fits")


def overwrite(path: Path, old: str, new: str) -> Path:
    """Overwrite in place; both are as long, so that cards stay where they are."""
    content = path.read_bytes()
    assert len(old) == len(new)
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode(), 1))
    return path


def card(keyword: str, value: Any) -> str:
    return f"{keyword:<8}= {value:>20}"


def test_a_cut_of_the_data_says_where_they_should_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(DamagedFileError, match=r"data of HDU 1 \('DATA'\) should end at byte .*6,000; copy"):
        fits.open(path)


def test_a_file_cut_while_it_is_read(path: Path) -> None:
    batches = fits.open(path).batches(["x"], 50)
    next(batches)
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(DamagedFileError, match="is 6,000 now; it is still being written, or it was cut"):
        list(batches)


LIES = [
    ("NAXIS1", 21, 10**18, "cut short|NAXIS1 says"),
    ("NAXIS1", 21, 20, "the 3 columns take 21 bytes a row by their TFORMn, but NAXIS1 says 20"),
    ("NAXIS2", 200, 10**18, "cut short: .* end at byte 21,000,000,000,000,0"),
    ("NAXIS2", 200, -5, "NAXIS2 is -5, expected a whole number"),
    ("NAXIS2", 200, "T", "NAXIS2 is True, expected a whole number"),
    ("NAXIS2", 200, "2.5", "NAXIS2 is 2.5, expected a whole number"),
    ("NAXIS", 2, 1000, "NAXIS is 1000, expected at most 999"),
    ("NAXIS", 2, 1, r"are 1, 1, 8; expected 2, 1, 8"),
    ("TFIELDS", 3, 2, "the 2 columns take"),
    ("TFIELDS", 3, 10**15, "TFIELDS is 1,000,000,000,000,000, expected at most 999"),
    ("TFIELDS", 3, 4, "TFORM4 is ''"),
    ("BITPIX", 8, 7, "BITPIX is 7"),
    ("PCOUNT", 0, 10**17, "cut short"),
]
FLAWS = [
    *((card(keyword, old), card(keyword, new), message) for keyword, old, new, message in LIES),
    ("'E       '", "'ZZ      '", "TFORM1 is 'ZZ'"),
    ("'9A      '", "'9000000A'", "the 3 columns take 9,000,012 bytes"),
    ("'PI(4)   '", "'2PI(4)  '", r"TFORM3 is '2PI\(4\)', expected a form such as"),
    ("'PI(4)   '", "'PZ(4)   '", r"TFORM3 is 'PZ\(4\)', expected a form such as"),
    ("'PI(4)   '", "'9" + "9" * 7 + "'", "TFORM3 is '99999999', expected a number and a letter"),
    ("END     ", "EN$     ", r"header at byte 0 has no END among its 36 cards, up to byte 2,880;"),
]


@pytest.mark.parametrize(("old", "new", "message"), FLAWS)
def test_a_header_that_lies(path: Path, old: str, new: str, message: str) -> None:
    overwrite(path, old, new)
    with pytest.raises(DamagedFileError, match=message):
        fits.open(path)


def test_a_size_that_no_fits_file_has_is_told(path: Path) -> None:
    content = path.read_bytes()
    for changed, told in ((content, 0), (content[:-100], 1), (content + b"\0", 1)):
        path.write_bytes(changed)
        assert (
            sum("lost or added" in warning for warning in verified(fits.open(path), "quarantine")[1]) == told
        )


def test_many_rows_of_no_bytes(path: Path) -> None:
    overwrite(path, card("NAXIS1", 21), card("NAXIS1", 0))
    overwrite(path, card("NAXIS2", 200), card("NAXIS2", 10**17))
    overwrite(path, card("TFIELDS", 3), card("TFIELDS", 0))
    with pytest.raises(FormatError, match="100,000,000,000,000,000 rows of 0 bytes"):
        fits.open(path)


@pytest.mark.parametrize(
    ("count", "place"), [(10**6, 0), (-1, 0), (1, -8), (1, 10**9), (2**31 - 1, 2**31 - 1)]
)
def test_descriptors_beyond_the_heap(path: Path, count: int, place: int) -> None:
    table = fits.open(path).partitions[0].table
    content = bytearray(path.read_bytes())
    at = table.hdu.data_offset + 3 * table.row_bytes + table.columns[2].offset
    content[at : at + 8] = np.array([count, place], ">i4").tobytes()
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"a cell of 'v' claims .* of a heap of"):
        list(fits.open(path).batches(["v"]))
    assert len(list(fits.open(path).batches(["x"]))) == 1


def test_a_heap_that_begins_elsewhere(path: Path) -> None:
    content = path.read_bytes()
    end = content.index(b"END".ljust(80), 2880)
    cards = card("THEAP", 10).ljust(80).encode() + b"END".ljust(80)
    path.write_bytes(content[:end] + cards + content[end + 160 :])
    with pytest.raises(DamagedFileError, match="THEAP puts the heap at byte 10"):
        fits.open(path)


def test_a_header_without_end_is_not_read_for_ever(tmp_path: Path) -> None:
    with (tmp_path / "t.fits").open("wb") as stream:
        stream.write(b"SIMPLE  =".ljust(80))
        stream.truncate(1 << 36)  # 64 GB of nothing
    with pytest.raises(DamagedFileError, match="no END among its 209,"):
        fits.open(tmp_path / "t.fits")


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.fits", tmp_path):
        with pytest.raises(CatalogError, match="is not a file"):
            fits.open(path)
