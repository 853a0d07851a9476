"""VOTables whose rows are a FITS table in the document, as TOPCAT and STILTS write them when asked."""

from __future__ import annotations

import base64
import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits as astropy_fits
from astropy.table import MaskedColumn, Table

import catalogs
from catalogs.errors import CatalogError, DamagedFileError, FormatError
from catalogs.fits import table as fits

N = 300

FIELDS = {
    "row": 'datatype="long"',
    "x": 'datatype="float" unit="mag" ucd="phot.mag"',
    "name": 'datatype="char" arraysize="4"',
    "good": 'datatype="boolean"',
    "flux": 'datatype="double" arraysize="3"',
    "n": 'datatype="short"',
    "u": 'datatype="unsignedByte"',
    "bits": 'datatype="bit" arraysize="11"',
}


def survey() -> Table:
    rng = np.random.default_rng(5)
    return Table(
        {
            "row": np.arange(N),
            "x": rng.normal(size=N).astype(np.float32),
            "name": np.array(["a", "b c", "", "long"])[np.arange(N) % 4],
            "good": rng.random(N) < 0.5,
            "flux": rng.normal(size=(N, 3)),
            "n": MaskedColumn(np.arange(N, dtype=np.int16), mask=np.arange(N) % 7 == 0, fill_value=-99),
            "u": (np.arange(N) % 256).astype(np.uint8),
        }
    )


def fits_bytes() -> bytes:
    hdu = astropy_fits.table_to_hdu(survey())
    bits = astropy_fits.Column("bits", "11X", array=np.random.default_rng(6).random((N, 11)) < 0.5)
    made = astropy_fits.BinTableHDU.from_columns(hdu.columns + bits, header=hdu.header)
    stream = io.BytesIO()
    made.writeto(stream)
    return stream.getvalue()


def document(data: bytes, fields: dict[str, str] = FIELDS, attributes: str = "") -> bytes:
    told = "".join(
        f'<FIELD name="{n}" {a}>' + ('<VALUES null="-99"/>' if n == "n" else "") + "</FIELD>"
        for n, a in fields.items()
    )
    return (
        f'<VOTABLE version="1.4"><RESOURCE><TABLE name="t">{told}<DATA><FITS{attributes}><STREAM encoding="base64">'
        f"{base64.encodebytes(data).decode()}</STREAM></FITS></DATA></TABLE></RESOURCE></VOTABLE>"
    ).encode()


def values(catalog: catalogs.Catalog, name: str) -> list[object]:
    return pa.chunked_array([b.column(0) for b in catalog.batches([name], 64)]).to_pylist()


@pytest.mark.skipif(shutil.which("stilts") is None, reason="stilts is not installed (Debian: stilts)")
def test_what_stilts_writes(tmp_path: Path) -> None:
    (tmp_path / "t.fits").write_bytes(fits_bytes())
    command = ["stilts", "tpipe", "in=t.fits", "ofmt=votable-fits-inline", "out=t.vot"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    found, other = catalogs.open(tmp_path / "t.vot"), fits.open(tmp_path / "t.fits")
    assert (found.names, found.n_rows) == (other.names, N)
    for name in FIELDS.keys() - {"bits"}:  # STILTS makes truth values of them
        assert values(found, name) == values(other, name), name


def scaled() -> bytes:
    column = astropy_fits.Column("row", "I", array=np.arange(5, dtype=np.uint16), bzero=32768)
    stream = io.BytesIO()
    astropy_fits.BinTableHDU.from_columns([column]).writeto(stream)
    return stream.getvalue()


def image() -> bytes:
    stream = io.BytesIO()
    astropy_fits.PrimaryHDU(np.zeros((4, 4))).writeto(stream)
    return stream.getvalue()


ROW = {"row": 'datatype="short"'}
REFUSED = {
    "scaled": (
        document(scaled(), ROW),
        "with the columns .*'row'.* expected the columns that its fields describe",
    ),
    "another type": (document(fits_bytes(), FIELDS | {"x": 'datatype="int"'}), r"with the columns \['x'\]"),
    "a list of any length": (
        document(fits_bytes(), FIELDS | {"flux": 'datatype="double" arraysize="*"'}),
        r"with the columns \['flux'\]",
    ),
    "too few fields": (document(fits_bytes(), ROW | {"x": FIELDS["x"]}), "as FITS, .*expected the columns"),
    "another extension": (document(fits_bytes(), attributes=' extnum="2"'), "in extension 2 of a FITS file"),
    "no table": (document(image(), ROW), "has no table"),
    "nothing": (document(b"", ROW), "t.vot"),
    "cut": (document(fits_bytes()[:9000]), "t.vot"),
    "no base64": (document(fits_bytes()).replace(b"U0lN", b"U0l", 1), "is damaged"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path: Path, case: str) -> None:
    data, message = REFUSED[case]
    path = tmp_path / "t.vot"
    path.write_bytes(data)
    with pytest.raises(CatalogError, match=message):
        catalogs.open(path)


def test_damage_anywhere(tmp_path: Path) -> None:
    """An error, or the rows with other bytes in them: never something else."""
    rng, whole = np.random.default_rng(7), fits_bytes()
    path, outcomes = tmp_path / "t.vot", []
    for _ in range(60):
        data = bytearray(whole)
        data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(document(bytes(data)))
        try:
            catalog = catalogs.open(path)
            assert len(values(catalog, "row")) == catalog.n_rows == N
            outcomes.append("")
        except (DamagedFileError, FormatError) as error:
            outcomes.append(str(error))
    assert all(str(path) in said for said in outcomes if said)
    assert 0 < outcomes.count("") < len(outcomes)
