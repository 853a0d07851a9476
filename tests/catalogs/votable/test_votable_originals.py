"""What a VOTable's document says beside its rows is in the copy as it was; what is no VOTable is called what it is."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

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


def test_fields_of_arrays_of_texts_are_refused_by_name(tmp_path: Path) -> None:
    """Astropy reads no such fields; the file is not damaged, and another program can change it."""
    path = tmp_path / "t.vot"
    path.write_text(
        document().replace('name="area" datatype="float"', 'name="area" datatype="char" arraysize="4x2"')
    )
    with pytest.raises(FormatError, match=r"'area' of arrays of texts.*4x2") as raised:
        catalogs.open(path)
    assert not isinstance(raised.value, DamagedFileError)
