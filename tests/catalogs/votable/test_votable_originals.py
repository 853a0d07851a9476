"""What a VOTable's document says beside its rows is in the copy as it was; what is no VOTable is called what it is."""

import io
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from astropy.io.votable import parse
from astropy.io.votable.tree import VOTableFile

import catalogs
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import DamagedFileError, FormatError

MARK = (NewColumn("blr_mark", pa.int32(), unit="mag", description=f"of ours: {'a-long-word' * 9}"),)

HISTORY = (
    '<PARAM arraysize="17x2" datatype="char" name="HISTORY" value="line 0 of historyline 1 of history">'
    "<DESCRIPTION>FITS HISTORY card values</DESCRIPTION></PARAM>"
)
LONG = (
    "a well-known, often-used quantity, see https://example.org/a-name-without-blanks/that-goes-on/beyond-the-end-of/"
    "any-line-of-eighty-characters;  two blanks, &lt; and &amp;"
)
PARAMS = [
    HISTORY,
    '<PARAM name="epoch" datatype="double" unit="yr" value="2000.0" ucd="time.epoch" utype="a:b"/>',
    '<PARAM name="limit" datatype="int" value=""><VALUES type="actual"><MIN value="01"/></VALUES></PARAM>',
    '<PARAM ID="query" name="query" datatype="char" arraysize="*" value="a &lt; 1 &amp; b&#10;c"/>',
    '<PARAM name="odd" datatype="complex128" value="none"/>',
]
FIELDS = [
    '<FIELD name="row" datatype="int" unit=""/>',
    '<FIELD ID="v" name="v" datatype="double" unit="km/s" type="hidden"><DESCRIPTION>'
    + LONG
    + "</DESCRIPTION>"
    '<VALUES type="actual" null="-9.90"><MIN value="1.50" inclusive="no"/></VALUES>'
    '<LINK href="https://example.org/"/></FIELD>',
    '<FIELD name="area" datatype="float" unit="arcsec2"/>',
    '<FIELD name="flux" datatype="float" unit="10**-17 erg/s/cm2/A" utype="spec:flux"/>',
    '<FIELD name="none" datatype="float" unit="---"/>',
]


def document(version: str = "1.3") -> str:
    """Return a document of all of them."""
    rows = "".join(f"<TR><TD>{i}</TD><TD>{i}.5</TD><TD>1</TD><TD>2</TD><TD>3</TD></TR>" for i in range(3))
    return (
        f'<?xml version="1.0"?>\n<VOTABLE version="{version}" xmlns="http://www.ivoa.net/xml/VOTable/v{version}">'
        f"<DESCRIPTION>{LONG}</DESCRIPTION><RESOURCE><DESCRIPTION>\n  two\n  lines\n</DESCRIPTION>{PARAMS[1]}"
        f"<TABLE><DESCRIPTION>of the table</DESCRIPTION>{''.join(PARAMS)}{''.join(FIELDS)}"
        '<INFO name="depth" value="3" unit=""/><INFO name="speed" value="3" unit="km/s">of it</INFO>'
        f'<GROUP name="g"><DESCRIPTION>{LONG}</DESCRIPTION><FIELDref ref="v"/><PARAMref ref="query"/>{PARAMS[2]}'
        "</GROUP>"
        f"<DATA><TABLEDATA>{rows}</TABLEDATA></DATA></TABLE></RESOURCE></VOTABLE>"
    )


def compute(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
    return {"blr_mark": batch.column("row").to_numpy().astype(np.int32)}


def annotated(path: Path, out: Path) -> Path:
    """Return a copy with one more column."""
    return catalogs.annotate(catalogs.open(path), out, MARK, compute, read=["row"])[0]


def elements(text: str, name: str) -> list[str]:
    """Return the elements of a name as they are written."""
    return re.findall(rf"<{name}\b[^<>]*?(?:/>|(?<!/)>.*?</{name}>)", text, re.DOTALL)


@pytest.mark.parametrize("version", ["1.1", "1.3", "1.4"])
def test_fields_params_and_descriptions_come_back_as_they_were(tmp_path: Path, version: str) -> None:
    """Units, numbers, names, links and line ends, in the copy and in the copy of the copy."""
    path = tmp_path / "t.vot"
    path.write_text(document(version), encoding="utf-8")
    for copied in (copy := annotated(path, tmp_path / "out"), annotated(copy, tmp_path / "again")):
        text = copied.read_text(encoding="utf-8")
        assert sorted(elements(text, "PARAM")) == sorted([*PARAMS, PARAMS[1], PARAMS[2]])
        assert elements(text, "FIELD")[:-1] == FIELDS
        units = re.findall(r'<INFO [^<>]*unit="([^"]*)"', text)
        assert units == (["", "km/s"] if version != "1.1" else [])  # 1.1 has no units there
        assert sorted(elements(text, "DESCRIPTION")) == sorted(
            [*elements(document(), "DESCRIPTION"), f"<DESCRIPTION>{MARK[0].description}</DESCRIPTION>"]
        )
        cat = catalogs.open(copied)
        assert [c.unit for c in cat.columns] == [c.unit for c in catalogs.open(path).columns] + ["mag"]
        assert cat.column("v").description == " ".join(
            LONG.replace("&lt;", "<").replace("&amp;", "&").split()
        )
        assert "blr: " not in text


def test_prefixes_and_encodings_do_not_matter(tmp_path: Path) -> None:
    """The copy is UTF-8 without prefixes, whatever the document was."""
    text = document().replace("xmlns=", "xmlns:vo=").replace("any-line", "any-Zeile-über-σ")
    text = re.sub(r"<(/?)([A-Z])", r"<\1vo:\2", text).replace(
        'version="1.0"', 'version="1.0" encoding="utf-16"'
    )
    (tmp_path / "t.vot").write_text(text, encoding="utf-16")
    copied = annotated(tmp_path / "t.vot", tmp_path / "out").read_text(encoding="utf-8")
    assert elements(copied, "PARAM")[1] == HISTORY
    assert "any-Zeile-über-σ" in elements(copied, "FIELD")[1]


@pytest.mark.skipif(shutil.which("stilts") is None, reason="there is no stilts; apt-get install stilts")
def test_what_stilts_makes_of_an_annotated_fits_file_is_annotated(tmp_path: Path) -> None:
    """Its PARAM of the HISTORY cards, of which we write several, stays as STILTS wrote it."""
    (tmp_path / "t.csv").write_text("row,x\n1,2.5\n2,3.5\n3,4.5\n")
    cat = catalogs.open(tmp_path / "t.csv")
    (fits,) = catalogs.annotate(cat, tmp_path / "fits", MARK, compute, read=["row"], form="fits")
    path, copy = tmp_path / "t.vot", tmp_path / "out" / "t.vot"
    subprocess.run(["stilts", "tcopy", f"{fits}#1", path], check=True, timeout=300)
    text = path.read_text(encoding="utf-8")
    assert re.search(r'arraysize="\d+x\d+" datatype="char" name="HISTORY"', text)
    old = catalogs.open(path)
    assert old.names == ("row", "x", "blr_mark")
    second = (NewColumn("second", pa.int32()),)
    (copied,) = catalogs.annotate(
        old, copy.parent, second, lambda b: {"second": compute(b)["blr_mark"]}, read=["row"]
    )
    after, before = (
        elements(re.sub(r">\s+<", "><", t), "PARAM") for t in (copied.read_text(encoding="utf-8"), text)
    )
    assert after == before
    (rows,) = catalogs.open(copied).batches(["row", "x", "second"])
    assert rows.to_pydict() == {"row": [1, 2, 3], "x": [2.5, 3.5, 4.5], "second": [1, 2, 3]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<html><body>VOTABLE not found</body></html>", r"a web page \(HTML\) and not a VOTable.*<html>"),
        ("<!DOCTYPE html>\n<HTML><head><meta charset='utf-8'><br>", r"a web page \(HTML\)"),
        ('<?xml version="1.0"?><Error>VOTABLE: no such table</Error>', "XML of another kind.*<Error>"),
        ('<soap:Envelope xmlns:soap="x"><VOTABLE/></soap:Envelope>', "XML of another kind.*<Envelope>"),
        ('{"message": "no such table"}', "begins with .*message.*not XML"),
    ],
)
def test_a_file_of_another_kind_is_called_what_it_is(tmp_path: Path, content: str, message: str) -> None:
    """It is not damaged, and to fetch it again would not help."""
    path = tmp_path / "t.vot"
    path.write_text(content)
    with pytest.raises(FormatError, match=message) as raised:
        catalogs.open(path)
    assert not isinstance(raised.value, DamagedFileError)
    assert "again" not in str(raised.value)


def test_fields_of_arrays_of_texts_are_refused_by_name(tmp_path: Path) -> None:
    """Astropy reads no such fields; the file is not damaged, and another program can change it."""
    path = tmp_path / "t.vot"
    path.write_text(
        document().replace('name="area" datatype="float"', 'name="area" datatype="char" arraysize="4x2"')
    )
    with pytest.raises(FormatError, match=r"'area' of arrays of texts.*4x2") as raised:
        catalogs.open(path)
    assert not isinstance(raised.value, DamagedFileError)


def test_astropy_reads_the_copy_without_the_odd_params(tmp_path: Path) -> None:
    """Our other reader sees the same fields and groups."""
    path, files = tmp_path / "t.vot", list[VOTableFile]()
    path.write_text(document().replace(PARAMS[0], "").replace(PARAMS[4], ""), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in (path, annotated(path, tmp_path / "out")):
            files.append(parse(io.BytesIO(place.read_bytes()), verify="ignore"))
    old, new = (next(file.iter_tables()) for file in files)
    assert [str(f.unit) for f in old.fields] == [str(f.unit) for f in new.fields][:-1]
    assert [p.value for p in old.params] == [p.value for p in new.params]
    assert [e.ref for g in new.groups for e in g.entries if hasattr(e, "get_ref")] == ["v", "query"]
