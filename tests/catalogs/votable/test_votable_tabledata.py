"""TABLEDATA, read a piece at a time, gives what astropy gives, cell for cell; what astropy would change is refused."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from catalogs.errors import FormatError
from catalogs.text.sniff import is_votable
from catalogs.votable import _document as votable_document
from catalogs.votable import table as votable
from catalogs.votable import table as votable_tabledata
from tests.catalogs.text.test_text import written
from tests.catalogs.votable_samples import annotated, our_values, parsed, slow_values

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
pytestmark = pytest.mark.filterwarnings("ignore::astropy.io.votable.exceptions.VOWarning")

FIELDS = {
    "i": ('datatype="int"', ["5", "-7", "2147483647"]),
    "null": ('datatype="short"><VALUES null="-99"/></FIELD', ["5", "-99", " 7 "]),
    "nan": ('datatype="int"', ["NaN", "nan", "+7"]),
    "nullnan": ('datatype="int"><VALUES null="-99"/></FIELD', ["NaN", "", "-99"]),
    "hex": ('datatype="long"', ["0xff", "0X1F", "9223372036854775807"]),
    "byte": ('datatype="unsignedByte"', ["0", "255", "7"]),
    "empty int": ('datatype="int"', ["", "", "1"]),
    "f": ('datatype="float"', ["1.5", "NaN", "0.1"]),
    "fnull": ('datatype="float"><VALUES null="-99.99"/></FIELD', ["-99.99", "NaN", ""]),
    "d": ('datatype="double"', ["-1e300", "+Inf", "0.1"]),
    "infinite": ('datatype="double"', ["-InF", "Infinity", "+1.5E-3"]),
    "dnull": ('datatype="double"><VALUES null="-1"/></FIELD', ["-1", "2", ""]),
    "empty": ('datatype="double"', ["", "", "1"]),
    "IRSA": ('datatype="double"', ["null", "-", "1"]),
    "IRSA null": ('datatype="double"><VALUES null="-1"/></FIELD', ["null", "-1", "1"]),
    "c": ('datatype="char" arraysize="*"', ["a &amp; b", " x ", ""]),
    "c1": ('datatype="char"', ["a", "", "b"]),
    "c3": ('datatype="unicodeChar" arraysize="3"', ["é&#233;", "", "abc"]),
    "c8": ('datatype="char" arraysize="8*"', ["&lt;TD&gt;", "&#x41;", "abc"]),
    "b": ('datatype="boolean"', ["T", "?", "false"]),
    "b2": ('datatype="boolean"', ["tRuE", "F", "t"]),
    "b3": ('datatype="boolean"', ["1", "0", ""]),
    "bs": ('datatype="boolean" arraysize="2"', ["T F", "true ?", "0 1"]),
    "v": ('datatype="float" arraysize="2"', ["1 2", "3 4", "NaN 6"]),
    "v1": ('datatype="float" arraysize="1"', ["1", "3", ""]),
    "gap": ('datatype="int" arraysize="2"', ["1 2", "", "0x10,6"]),
    "vnull": ('datatype="int" arraysize="2"><VALUES null="3"/></FIELD', ["1 2", "3 nan", "5\n6"]),
    "m": ('datatype="double" arraysize="3x2"', ["1 2 3 4 5 6", "1, 2, 3,4,5,  6", "0 0 0 0 0 0"]),
    "var": ('datatype="int" arraysize="*"', ["1 2", "", "3"]),
    "varf": ('datatype="float" arraysize="9*"', ["0.1 NaN", "", "3"]),
    "varnull": ('datatype="short" arraysize="*"><VALUES null="3"/></FIELD', ["1 2", "", "3 4"]),
    "varm": ('datatype="double" arraysize="2x*"', ["1 2", "1 2 3 4", ""]),
    "varb": ('datatype="boolean" arraysize="*"', ["T ? false", "", "1"]),
    "varz": ('datatype="doubleComplex" arraysize="*"', ["1 2", "1 2 3 4", ""]),
    "bit": ('datatype="bit"', ["1", "0", "1"]),
    "bits": ('datatype="bit" arraysize="4"', ["1010", "0 0 0 1", "11,11"]),
    "bit gap": ('datatype="bit" arraysize="9"', ["101010101", "", "111111111"]),
    "varbit": ('datatype="bit" arraysize="*"', ["1 0 1", "", "1"]),
    "z": ('datatype="floatComplex"', ["1 2", "3 4", "5 6"]),
    "z gap": ('datatype="doubleComplex"', ["1 2", "NaN", ""]),
    "zs": ('datatype="floatComplex" arraysize="2"', ["1 2 3 4", "3 4 NaN 0", "5 6 7 8"]),
}


def document(rows: str, *, fields: str = "", head: str = "", version: str = "1.4") -> bytes:
    return (
        f'<?xml version="1.0"?>{head}<VOTABLE version="{version}" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">'
        f"<!-- <TABLE> --><RESOURCE><TABLE>{fields}<DATA><TABLEDATA>{rows}</TABLEDATA></DATA></TABLE></RESOURCE>"
        "</VOTABLE>"
    ).encode()


def sample(kinds: Mapping[str, tuple[str, list[str]]] = FIELDS) -> bytes:
    fields = "".join(
        f'<FIELD name="{name}" ID="f{i}" {kind}' + (">" if "</FIELD" in kind else "/>")
        for i, (name, (kind, _)) in enumerate(kinds.items())
    )
    rows = zip(*(cells for _, cells in kinds.values()), strict=True)
    texts = ("".join(f"<TD>{cell}</TD>" if cell else "<TD/>" for cell in row) for row in rows)
    return document("".join(f"<TR>{text}</TR>\n" for text in texts), fields=fields)


def written_otherwise() -> Iterator[tuple[str, bytes]]:
    """Yield the sample in other ways that XML has for the same."""
    text = sample().decode()
    rest = text.partition("?>")[2]
    declared = '<?xml version="1.0" encoding="{}"?>'
    yield "plain", text.encode()
    yield "UTF-8 with a mark", b"\xef\xbb\xbf" + text.encode()
    yield "Latin-1", (declared.format("iso-8859-1") + rest).encode("latin-1")
    yield "ASCII", (declared.format("US-ASCII") + rest).encode("ascii", "xmlcharrefreplace")
    for order, mark in (("le", b"\xff\xfe"), ("be", b"\xfe\xff")):
        yield f"UTF-16{order}", mark + (declared.format("UTF-16") + rest).encode(f"utf-16-{order}")
    text = sample().decode().partition("?>")[2]
    yield "a prefix", re.sub("<(/?)(?!!)", r"<\1v:", text).replace("xmlns=", "xmlns:v=").encode()
    yield "attributes", text.replace("<TR>", '<TR ID="r">').replace("<TD>", "<TD class='c'>").encode()
    yield "no declared prefix", text.replace("<VOTABLE", '<VOTABLE xsi:schemaLocation="x y"').encode()
    marked = text.replace("a &amp; b", "<![CDATA[a & b]]>")
    yield "CDATA", marked.replace("<TD>5</TD>", "<TD><![CDATA[5]]></TD>").encode()
    noise = "<!-- </TR></TABLEDATA> --><?pi </TR> ?>"
    yield "comments", text.replace("</TR>", f"{noise}</TR>{noise}").replace("<TD>", f"<TD>{noise}").encode()
    blanks = text.replace("<TD>", "<TD>\r\n\t ").replace("</TD>", " \n</TD > ")
    yield "blanks", blanks.replace("<TR>", "<TR\n> x ").encode()
    yield "closed apart", text.replace("<TD/>", "<TD></TD>").encode()
    doctype = '<!DOCTYPE VOTABLE SYSTEM "http://us-vo.org/xml/VOTable.dtd">'
    yield "a document type", text.replace("?>", f"?>{doctype}", 1).encode()


WRITTEN = dict(written_otherwise())


@pytest.mark.parametrize("way", WRITTEN)
@pytest.mark.parametrize("piece", [1 << 20, 50])
def test_all_ways_of_xml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, piece: int) -> None:
    """Whatever the encoding, and wherever a piece of the file ends."""
    monkeypatch.setattr(votable_document, "BLOCK_BYTES", piece)
    monkeypatch.setattr(votable_tabledata, "PIECE_BYTES", piece)
    path = written(tmp_path / "t.vot", WRITTEN[way])
    assert is_votable(path)
    assert our_values(path) == slow_values(parsed(sample())[1])


@pytest.mark.parametrize("version", ["1.1", "1.4"])
def test_an_empty_integer_is_missing_in_any_edition(tmp_path: Path, version: str) -> None:
    """Astropy makes it 0 in files of editions before 1.3, which would be a vote count of nobody."""
    path = tmp_path / "t.vot"
    rows = "<TR><TD></TD></TR><TR><TD>0</TD></TR>"
    path.write_bytes(document(rows, fields='<FIELD name="n" datatype="int"/>', version=version))
    assert our_values(path) == ["[None, 0]"]


def of(kind: str, *words: str, head: str = "") -> bytes:
    rows = "".join(f"<TR><TD>{word}</TD></TR>" for word in words)
    return document(rows, fields=f'<FIELD name="x" {kind}/>', head=head)


PLAIN = of('datatype="int"', "5", "6")
BOMB = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
REFUSED = {
    "a word": (of('datatype="int"', "5", "x"), "'x' in 'x' is not of datatype int; expected"),
    "a fraction": (of('datatype="long"', "5.5"), "'5.5' in 'x' is not of datatype long"),
    "out of range": (of('datatype="short"', "70000"), "'70000' in 'x' is not of datatype short"),
    "far out of range": (of('datatype="long"', "9" * 20), "'9+' in 'x' is not of datatype long"),
    "below range": (of('datatype="unsignedByte"', "-1"), "'-1' in 'x' is not of datatype unsignedByte"),
    "a limit": (of('datatype="double"', "1", "&gt;23.1"), "'>23.1' in 'x' is not of datatype double"),
    "Fortran's exponent": (of('datatype="float"', "1.5D+01"), r"'1.5D\+01' in 'x' is not of datatype float"),
    "a truth": (of('datatype="boolean"', "T", "yes"), "'yes' in 'x' is not of datatype boolean"),
    "a bit": (of('datatype="bit" arraysize="2"', "12"), "'2' in 'x' is not of datatype bit with arraysize 2"),
    "too many elements": (
        of('datatype="float" arraysize="2"', "1 2 3"),
        "'1 2 3' in 'x' is not .* with arraysize 2",
    ),
    "too few elements": (of('datatype="float" arraysize="2"', "1"), "'1' in 'x' is not .* with arraysize 2"),
    "half a pair": (
        of('datatype="float" arraysize="2x*"', "1 2 3"),
        "'1 2 3' in 'x' is not .* with arraysize 2x",
    ),
    "half a complex number": (
        of('datatype="floatComplex"', "1"),
        "'1' in 'x' is not of datatype floatComplex",
    ),
    "an array with a gap": (of('datatype="int" arraysize="2"', "1 nan"), "array in 'x' has too few elements"),
    "a list with a gap": (of('datatype="int" arraysize="*"', "1 nan"), "array in 'x' has too few elements"),
    "encoded cells": (PLAIN.replace(b"<TD>", b'<TD encoding="base64">'), "a cell has the encoding base64"),
    "too few cells": (PLAIN.replace(b"<TD>5</TD>", b""), "expected 0, as many as the first"),
    "too many cells": (PLAIN.replace(b"<TD>6</TD>", b"<TD/><TD/>"), "row 2 has 2 cells; expected 1"),
    "too many cells throughout": (PLAIN.replace(b"<TD>", b"<TD/><TD>"), "1 fields but 2 cells in each row"),
    "other elements": (PLAIN.replace(b"5", b"<b>5</b><TD/>"), "row 2 has 1 cells; expected 2"),
    "cut in a row": (PLAIN[: PLAIN.index(b"6")], "is damaged: no element found"),
    "cut behind the rows": (PLAIN[: PLAIN.index(b"</TABLE>")], "is damaged: no element found"),
    "no end": (PLAIN.replace(b"</TABLEDATA>", b""), "mismatched tag"),
    "no UTF-8": (PLAIN.replace(b"5", b"\xe9"), "not well-formed"),
    "the entity": (
        of('datatype="int"', "&five;", head='<!DOCTYPE a [<!ENTITY five "5">]>'),
        "the entity 'five'",
    ),
    "an entity from elsewhere": (
        of('datatype="int"', "&eacute;", head='<!DOCTYPE a SYSTEM "http://example.org/a.dtd">'),
        "the entity 'eacute'",
    ),
    "a file as an entity": (
        of('datatype="char"', "&e;", head='<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]>'),
        "the entity 'e'",
    ),
    "a billion laughs": (
        of('datatype="char"', "&e11;", head=f'<!DOCTYPE a [<!ENTITY e0 "laugh">{BOMB}]>'),
        "the entity 'e0'",
    ),
    "unknown entities": (of('datatype="char"', "&eacute;"), "undefined entity"),
    "Parquet": (
        PLAIN.replace(b"TABLEDATA", b"PARQUET").replace(b"<TR>", b"<STREAM/><TR>"),
        "its data as PARQUET in base64",
    ),
    "gzip in the document": (
        PLAIN.replace(b"TABLEDATA", b"BINARY").replace(b"<TR>", b'<STREAM encoding="gzip"/><TR>'),
        "BINARY in gzip",
    ),
    "wide beyond belief": (
        of('datatype="double" arraysize="100000x1000000*"', ""),
        "arraysize '100000x1000000\\*', expected at most",
    ),
    "wide all together": (of('datatype="doubleComplex" arraysize="8000000"', ""), "fields of 128000000 to"),
    "rows of no bytes": (
        PLAIN.replace(b"TABLEDATA", b"BINARY")
        .replace(b"int", b'char" arraysize="0')
        .replace(b"<TR>", b"<STREAM>AAAA</STREAM><TR>", 1),
        "its rows have no bytes",
    ),
    "no width": (of('datatype="double" arraysize="0"', ""), "fields of 0 to 0 bytes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path: Path, case: str) -> None:
    """With what was found; astropy clips numbers to their type's range, and pads and cuts vectors."""
    data, message = REFUSED[case]
    path = written(tmp_path / "t.vot", data)
    with pytest.raises(FormatError, match=message) as caught:
        our_values(path)
    assert str(path) in str(caught.value)
    assert "expected" in str(caught.value)


def test_rows_and_documents_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row and a description are given up, each at its limit."""
    monkeypatch.setattr(votable_document, "LONGEST_ROW", 2000)
    monkeypatch.setattr(votable_document, "MOST_BESIDE_ROWS", 1000)
    monkeypatch.setattr(votable_document, "BLOCK_BYTES", 100)
    path, long = tmp_path / "t.vot", b"x" * 5000
    for data, message in (
        (PLAIN.replace(b"5", long), "what follows row 0 of a table has more"),
        (PLAIN.replace(b"6", b"<TD/>" * 1000), "what follows row 1 of a table has more"),
        (PLAIN.replace(b"<RESOURCE>", b"<RESOURCE><DESCRIPTION>" + long), "MB of text beside the rows"),
        (PLAIN.replace(b"<RESOURCE>", b"<INFO name='a' value='b'/>" * 99), "MB of text beside the rows"),
        (PLAIN.replace(b"</RESOURCE>", b"</RESOURCE>" + b" " * 5000), "MB of text beside the rows"),
    ):
        path.write_bytes(data)
        with pytest.raises(FormatError, match=message):
            votable.open(path)
    many = b"".join(b"<TR><TD>%d</TD></TR>" % i for i in range(1000))
    path.write_bytes(PLAIN.replace(b"<TR><TD>5</TD></TR>", many))
    assert votable.open(path).n_rows == 1001


@pytest.mark.parametrize("claimed", ["0", "1", "-1", "99999999999999", "many"])
def test_rows_are_counted_whatever_is_claimed(tmp_path: Path, claimed: str) -> None:
    path = written(tmp_path / "t.vot", PLAIN.replace(b"<TABLE>", f'<TABLE nrows="{claimed}">'.encode()))
    assert our_values(path) == ["[5, 6]"]
    assert b'nrows="2"' in annotated(path, tmp_path / "out").read_bytes()


@pytest.mark.parametrize("way", WRITTEN)
def test_annotated_as_it_was(tmp_path: Path, way: str) -> None:
    """All old values are in the copy."""
    path = written(tmp_path / "t.vot", WRITTEN[way])
    assert our_values(annotated(path, tmp_path / "out"))[:-1] == our_values(path)


def test_astropy_reads_the_copy(tmp_path: Path) -> None:
    """As it read what was there; but lists of bits, which are written as the standard says."""
    fields = {name: field for name, field in FIELDS.items() if name != "varbit"}
    path = written(tmp_path / "t.vot", sample(fields))
    _, table = parsed(annotated(path, tmp_path / "out").read_bytes())
    assert slow_values(table)[:-1] == slow_values(parsed(path.read_bytes())[1])


def test_texts_longer_than_their_fields_are_kept(tmp_path: Path) -> None:
    """Astropy cuts them off; here their field becomes wide enough, in characters of two bytes where need be."""
    path = tmp_path / "t.vot"
    words = (("abcd", "abc", "abcd"), ("a", "abσ\U0001f30c", "e"))
    rows = "".join("<TR>" + "".join(f"<TD>{word}</TD>" for word in row) + "</TR>" for row in words)
    kinds = ('"char" arraysize="3"', '"char" arraysize="2"', '"char" arraysize="2*"')
    fields = "".join(f'<FIELD name="f{i}" datatype={kind}/>' for i, kind in enumerate(kinds))
    path.write_bytes(document(rows, fields=fields))
    before = ["['abcd', 'a']", "['abc', 'abσ\U0001f30c']", "['abcd', 'e']"]
    assert our_values(path) == before
    out = annotated(path, tmp_path / "out")
    assert our_values(out)[:3] == before
    _, table = parsed(out.read_bytes())
    widths = [(f.datatype, f.arraysize) for f in table.fields[:3]]
    assert widths == [("char", "4"), ("unicodeChar", "5"), ("char", "2*")]
    assert slow_values(table)[:2] == before[:2]


STILTS = shutil.which("stilts")
OTHERWISE = {"bit", "c1", "fnull", "v1", "varm", "varz", "zs", "bs", "varb", "varnull"}
"""What STILTS cannot read (truth values called bits), or has no nulls (elements of arrays) or no arrays for."""


@pytest.mark.skipif(STILTS is None, reason="there is no stilts; apt-get install stilts")
def test_stilts_reads_the_copy(tmp_path: Path) -> None:
    """And what it writes of it as TABLEDATA is what was there; lists of bits too."""
    assert STILTS is not None
    path, copied = tmp_path / "t.vot", tmp_path / "copied.vot"
    path.write_bytes(sample({name: field for name, field in FIELDS.items() if name not in OTHERWISE}))
    out = annotated(path, tmp_path / "out")
    command = [STILTS, "tpipe", f"in={out}", "ifmt=votable", f"out={copied}", "ofmt=votable-tabledata"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert our_values(copied)[:-1] == our_values(path)
