"""The quick way through TABLEDATA gives what astropy gives, cell for cell, or leaves it to astropy."""

import gzip
import io
import warnings
from pathlib import Path

import astropy.io.votable as astropy_votable
import numpy as np
import pytest

from catalogs.votable_tabledata import parse_tabledata

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="the shared catalogues are not here")

FIELDS = {
    "i": ('datatype="int"', ["5", "-7", "2147483647"]),
    "null": ('datatype="short"><VALUES null="-99"/></FIELD', ["5", "-99", " 7 "]),
    "hex": ('datatype="long"', ["0xff", "1", "9223372036854775807"]),
    "byte": ('datatype="unsignedByte"', ["0", "255", "7"]),
    "f": ('datatype="float"', ["1.5", "NaN", "0.1"]),
    "d": ('datatype="double"', ["-1e300", "+Inf", "0.1"]),
    "dnull": ('datatype="double"><VALUES null="-1"/></FIELD', ["-1", "2", ""]),
    "empty": ('datatype="double"', ["", "", "1"]),
    "c": ('datatype="char" arraysize="*"', ["a &amp; b", " x ", ""]),
    "c3": ('datatype="unicodeChar" arraysize="3"', ["é&#233;", "", "abc"]),
    "b": ('datatype="boolean"', ["T", "?", "false"]),
    "v": ('datatype="float" arraysize="2"', ["1 2", "3 4", "NaN 6"]),
    "var": ('datatype="int" arraysize="*"', ["1 2", "", "3"]),
    "bit": ('datatype="bit"', ["1", "0", "1"]),
    "z": ('datatype="floatComplex"', ["1 2", "3 4", "5 6"]),
}


def document(rows: str, *, fields: str = "", head: str = "", version: str = "1.4") -> bytes:
    return (
        f'<?xml version="1.0"?>{head}<VOTABLE version="{version}" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">'
        f"<!-- <TABLE> --><RESOURCE><TABLE>{fields}<DATA><TABLEDATA>{rows}</TABLEDATA></DATA></TABLE></RESOURCE>"
        "</VOTABLE>"
    ).encode()


def sample() -> bytes:
    fields = "".join(
        f'<FIELD name="{name}" ID="{name}" {kind}' + (">" if "</FIELD" in kind else "/>")
        for name, (kind, _) in FIELDS.items()
    )
    rows = "".join(
        "<TR>"
        + "".join(f"<TD>{cells[i]}</TD>" if cells[i] else "<TD/>" for _, cells in FIELDS.values())
        + "</TR>\n"
        for i in range(3)
    )
    return document(rows, fields=fields)


def slow(data: bytes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return astropy_votable.parse(io.BytesIO(data), verify="ignore")


@pytest.mark.parametrize("name", FIELDS)
def test_every_type(name):
    """Values, masks and types as astropy's."""
    quick = parse_tabledata(sample())
    assert quick is not None
    a, b = quick.get_first_table().array, slow(sample()).get_first_table().array
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(np.ma.getmaskarray(a[name]), np.ma.getmaskarray(b[name]))
    assert str(a[name].tolist()) == str(b[name].tolist())


@pytest.mark.parametrize("version", ["1.1", "1.4"])
def test_an_empty_integer_is_missing_in_any_edition(version):
    """Astropy makes it 0 in files of editions before 1.3, which would be a vote count of nobody."""
    data = document(
        "<TR><TD></TD></TR><TR><TD>0</TD></TR>", fields='<FIELD name="n" datatype="int"/>', version=version
    )
    quick = parse_tabledata(data)
    assert quick is not None
    assert quick.get_first_table().array["n"].tolist() == [None, 0]


UNUSUAL = {
    "no rows at all": document("", fields='<FIELD name="n" datatype="int"/>').replace(
        b"<TABLEDATA></TABLEDATA>", b""
    ),
    "CDATA": document("<TR><TD><![CDATA[5]]></TD></TR>", fields='<FIELD name="n" datatype="int"/>'),
    "encoded cells": document(
        '<TR><TD encoding="base64">AAAABQ==</TD></TR>', fields='<FIELD name="n" datatype="int"/>'
    ),
    "attributes": document('<TR ID="x"><TD>5</TD></TR>', fields='<FIELD name="n" datatype="int"/>'),
    "too few cells": document("<TR></TR>", fields='<FIELD name="n" datatype="int"/>'),
    "too many cells": document("<TR><TD>1</TD><TD>2</TD></TR>", fields='<FIELD name="n" datatype="int"/>'),
    "no number": document("<TR><TD>x</TD></TR>", fields='<FIELD name="n" datatype="int"/>'),
    "too large": document("<TR><TD>70000</TD></TR>", fields='<FIELD name="n" datatype="long"/>').replace(
        b"70000", b"9" * 20
    ),
    "cut": document("<TR><TD>5</TD></TR><TR><TD>", fields='<FIELD name="n" datatype="int"/>'),
    "another encoding": b'<?xml version="1.0" encoding="ISO-8859-1"?>'
    + document("<TR><TD>5</TD></TR>", fields='<FIELD name="n" datatype="int"/>')[21:],
    "a document type": document(
        "<TR><TD>5</TD></TR>", fields='<FIELD name="n" datatype="int"/>', head="<!DOCTYPE VOTABLE>"
    ),
    "two tables": document("<TR><TD>5</TD></TR>", fields='<FIELD name="n" datatype="int"/>').replace(
        b"</RESOURCE>", b"<TABLE></TABLE></RESOURCE>"
    ),
}


@pytest.mark.parametrize("case", UNUSUAL)
@pytest.mark.filterwarnings("ignore::astropy.io.votable.exceptions.VOWarning")
def test_the_unusual_is_left_to_astropy(case):
    assert parse_tabledata(UNUSUAL[case]) is None or case == "too large"


@needs_data
def test_a_real_one_of_galaxy_zoo():
    """The first 300 of GZ2's rows, 228 columns each."""
    with gzip.open(DATA / "gz2_table5" / "table5.vot.gz") as stream:
        data = stream.read(1_500_000)
    whole = data[: [i for i in range(len(data)) if data.startswith(b"</TR>", i)][299]]
    data = whole + b"</TR></TABLEDATA></DATA></TABLE></RESOURCE></VOTABLE>"
    quick = parse_tabledata(data)
    assert quick is not None
    a, b = quick.get_first_table().array, slow(data).get_first_table().array
    assert len(a) == 300
    assert a.tolist() == b.tolist()
