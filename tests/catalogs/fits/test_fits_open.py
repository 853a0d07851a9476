"""Opening: sniffing, the choice of the table, metadata, gzipped files."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits as astropy_fits
from astropy.table import Table

from catalogs.errors import CatalogError, DamagedFileError, FormatError
from catalogs.fits import table as fits
from tests.catalogs.fits_samples import N, column, patched, read, write


def several(path: Path, *names: str) -> Path:
    hdus = [astropy_fits.PrimaryHDU(), astropy_fits.ImageHDU(np.zeros((3, 3)), name="IMAGE")]
    hdus += [
        astropy_fits.BinTableHDU.from_columns(
            [column("x", "J", [i]), column(f"only_{i}", "J", [i])], name=name
        )
        for i, name in enumerate(names)
    ]
    astropy_fits.HDUList(hdus).writeto(path)
    return path


def test_the_table_is_chosen_by_name_number_or_columns(tmp_path: Path) -> None:
    path = several(tmp_path / "t.fits", "A", "B")
    for choice in ({"table": "b"}, {"table": 3}, {"table": "3"}, {"columns": ["x", "only_1"]}):
        assert fits.open(path, **choice).metadata["hdu"] == "3"


def test_a_choice_that_is_none_lists_the_tables(tmp_path: Path) -> None:
    path = several(tmp_path / "t.fits", "A", "B", "B")
    with pytest.raises(
        CatalogError, match=r"holds 3 tables: 2 \('A'\) BINTABLE, 3 .*name one, or give its number"
    ):
        fits.open(path)
    with pytest.raises(CatalogError, match="holds 3 tables"):
        fits.open(path, columns=["x"])
    with pytest.raises(CatalogError, match="2 tables called 'B'"):
        fits.open(path, "B")
    with pytest.raises(CatalogError, match=r"0 tables called '1'; expected one of 0 PRIMARY, 1 \('IMAGE'\)"):
        fits.open(path, 1)


def test_the_image_header_of_ldac_is_passed_over(tmp_path: Path) -> None:
    path = several(tmp_path / "t.cat", "LDAC_IMHEAD", "LDAC_OBJECTS")
    assert fits.open(path).metadata["extname"] == "LDAC_OBJECTS"
    assert fits.open(path, "LDAC_IMHEAD").metadata["hdu"] == "2"


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
    with pytest.raises(FormatError, match="2 columns named 'x'"):
        read(path, "x")
    assert read(path, "bmag")["bmag"].to_pylist() == [1]


def test_columns_without_a_name_are_numbered(tmp_path: Path) -> None:
    path = write(tmp_path / "t.fits", column("x", "E", [1]))
    path.write_bytes(path.read_bytes().replace(b"TTYPE1  = 'x  ", b"XTYPE1  = 'x  "))
    assert fits.open(path).names == ("col1",)


def test_gzipped_files(tmp_path: Path) -> None:
    path = write(tmp_path / "t.fits", column("x", "J", np.arange(N)))
    zipped = tmp_path / "t.fits.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert read(zipped) == read(path)
    assert fits.sniff(zipped, zipped.read_bytes()[:512])
    zipped.write_bytes(zipped.read_bytes()[:-20])
    with pytest.raises(DamagedFileError, match="cannot be decompressed"):
        fits.open(zipped)


def test_sniff(tmp_path: Path) -> None:
    path = write(tmp_path / "t.fits", column("x", "J", [1]))
    assert fits.sniff(path, path.read_bytes()[:64])
    for other in (b"", b"SIMPLE", b"PAR1", b"\x1f\x8b", b"\x1f\x8bnonsense", gzip.compress(b"a,b\n1,2\n")):
        assert not fits.sniff(path, other)


def test_a_table_by_columns_is_refused(tmp_path: Path) -> None:
    """As STILTS writes "colfits": one row, each column a vector of all values."""
    table = Table({"name": [["a", "b", "c"]], "x": [[1.0, 2.0, 3.0]], "place": np.zeros((1, 3, 2))})
    table.write(tmp_path / "t.fits")
    with pytest.raises(
        FormatError, match=r"got one row whose 3 columns are vectors of 3 elements .*stilts tcopy"
    ):
        fits.open(tmp_path / "t.fits")
    table["id"] = [7]
    table.write(tmp_path / "t.fits", overwrite=True)
    assert fits.open(tmp_path / "t.fits").n_rows == 1
    Table({"x": [[1.0]], "y": [[1.0]]}).write(tmp_path / "t.fits", overwrite=True)
    assert fits.open(tmp_path / "t.fits").n_rows == 1
