"""VOTable: every serialisation read, annotated as BINARY2, the rest of the document kept."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import astropy.io.votable as astropy_votable
import numpy as np
import pyarrow as pa
import pytest
from astropy import units as u
from astropy.io import fits as astropy_fits
from astropy.io.votable import tree
from astropy.table import MaskedColumn, QTable, Table

import catalogs
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError, DamagedFileError, FormatError
from catalogs.files import reading
from catalogs.fits import table as fits
from catalogs.votable import table as votable
from catalogs.writing import annotate
from tests.catalogs.parquet_samples import COLUMNS, PROVENANCE, computing, values_of
from tests.catalogs.votable_samples import annotated

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
ASTROPYS = Path(astropy_votable.__file__).parent / "tests" / "data"


def sample(path: Path, **options: str) -> Path:
    table = QTable(
        {
            "row": np.arange(3),
            "id": MaskedColumn([2**60 + 1, 2, 3], mask=[0, 0, 1]),
            "mag": MaskedColumn(np.array([20.5, np.nan, 22], np.float32), mask=[0, 0, 1]),
            "type": ["G", "S é", ""],
            "flux": np.arange(6.0).reshape(3, 2) * u.Jy,
            "good": [True, False, True],
        }
    )
    table["mag"].info.description, table["mag"].info.meta = "a magnitude", {"ucd": "phot.mag"}
    file = astropy_votable.from_table(table)
    file.resources[0].description = "kept"
    file.get_first_table().get_field_by_id_or_name("id").values.null = -1  # BINARY has no other way
    file.to_xml(str(path), **options)
    return path


SQUEEZE = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}
SERIALISATIONS = ["tabledata", "binary", "binary2"]


@pytest.mark.parametrize(("serialisation", "suffix"), [*zip(SERIALISATIONS, SQUEEZE, strict=True)])
def test_annotated(tmp_path: Path, serialisation: str, suffix: str) -> None:
    """Old values, nulls and documentation as before; new ones with UCD and description; provenance."""
    plain = sample(tmp_path / "a.vot", tabledata_format=serialisation)
    path = tmp_path / f"b.vot{suffix}"
    path.write_bytes(SQUEEZE[suffix](plain.read_bytes()))
    how: dict[str, Any] = {"read": ["row"], "rows": 2, "provenance": PROVENANCE}
    (out,) = annotate(votable.open(path), tmp_path / "out", COLUMNS, computing(3), **how)
    assert out.name == path.name
    assert (out.read_bytes()[:1] == b"<") == (not suffix)
    old, new = votable.open(path), votable.open(out)
    assert new.columns[: len(old.columns)] == old.columns
    for name in old.names:
        assert next(new.batches([name])) == next(votable.open(path).batches([name]))
    for column in COLUMNS:
        got = next(votable.open(out).batches([column.name])).column(0).to_numpy(zero_copy_only=False)
        np.testing.assert_array_equal(got, values_of(column, 3))
    assert new.metadata["blr.model"] == "morphology@3f2a"
    assert new.metadata["blr.flag.0"] == "LOW_CONFIDENCE: near one half"
    file = astropy_votable.parse(str(out), verify="exception")
    assert file.resources[0].description == "kept"
    with reading(out) as stream:
        text = stream.read()
    assert b"<BINARY2>" in text
    assert b'datatype="bit"' not in text
    assert file.get_first_table().array["good"].tolist() == [True, False, True]
    if shutil.which("stilts"):  # it reads no single bits from BINARY2
        command = ["stilts", "tpipe", f"in={out}", "ifmt=votable", "cmd=keepcols 'row good'", "ofmt=csv"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.stdout.splitlines()[1:] == ["0,true", "1,false", "2,true"], done.stderr


def several(path: Path) -> Path:
    file = tree.VOTableFile()
    file.resources.append(tree.Resource())
    for name, columns in (("first", {"a": [1]}), ("second", {"a": [2, 3], "b": [4.0, 5.0]})):
        element = tree.TableElement.from_table(file, Table(columns))
        element.name = name
        for field in element.fields:
            field.ID = f"{name}_{field.ID}"
        element.array.dtype.names = tuple(f.ID for f in element.fields)
        file.resources[0].tables.append(element)
    file.to_xml(str(path))
    return path


def test_the_table_is_chosen_and_a_slim_copy_has_no_other(tmp_path: Path) -> None:
    """By name, number, or the columns that are wanted; never by guessing."""
    path = several(tmp_path / "a.vot")
    assert votable.open(path, "second").n_rows == 2
    assert votable.open(path, 0).n_rows == 1
    assert votable.open(path, "1").n_rows == votable.open(path, "SECOND").n_rows == 2
    assert votable.open(path, columns=["b"]).n_rows == 2
    for wanted in (None, "third", 7):
        with pytest.raises(FormatError, match="0 'first', 1 'second'"):
            votable.open(path, wanted)
    cat, new = votable.open(path, "second"), {"p": np.ones(2, np.float32)}
    how: dict[str, Any] = {"read": ["a"], "mode": "slim", "keep": ["b"]}
    (out,) = annotate(cat, tmp_path / "out", (NewColumn("p", pa.float32()),), lambda _: new, **how)
    catalog = votable.open(out)
    assert catalog.names == ("b", "p")
    assert next(catalog.batches(["b"])).to_pydict() == {"b": [4.0, 5.0]}


def table_of(name: str, values: list[int], serialisation: str) -> str:
    rows = "".join(f"<TR><TD>{value}</TD></TR>" for value in values)
    data = f"<TABLEDATA>{rows}</TABLEDATA>"
    if serialisation != "TABLEDATA":
        cells = [value.to_bytes(4, "big") for value in values]
        stored = b"".join(b"\0" * (serialisation == "BINARY2") + cell for cell in cells)
        text = base64.encodebytes(stored).decode()
        data = f"<{serialisation}><STREAM encoding='base64'>{text}</STREAM></{serialisation}>"
    return f'<TABLE name="{name}"><FIELD name="{name}" datatype="int"/><DATA>{data}</DATA></TABLE>'


def nested(path: Path) -> Path:
    """Write tables in all serialisations, in resources within resources, in another order than astropy has them."""
    resource = "<RESOURCE{}>{}</RESOURCE>"
    tables = table_of("inner", [1, 2, 3], "BINARY2") + table_of("second", [4], "TABLEDATA")
    inner = resource.format("", tables)
    meta = resource.format(' type="meta"', table_of("meta", [5, 6], "BINARY"))
    none = '<TABLE name="none"><FIELD name="none" datatype="int"/></TABLE>'
    outer = inner + none + table_of("outer", [7, 8], "TABLEDATA") + meta + table_of("last", [9], "BINARY")
    path.write_text(f'<VOTABLE version="1.3">{resource.format("", outer)}</VOTABLE>')
    return path


@pytest.mark.filterwarnings("ignore::astropy.io.votable.exceptions.VOWarning")
@pytest.mark.parametrize("chosen", ["inner", "second", "meta", "outer", "last", "none"])
def test_each_of_several_tables_has_its_rows(tmp_path: Path, chosen: str) -> None:
    """Wherever it stands, in whatever serialisation, before and after one of them was annotated."""
    expected = {"inner": [1, 2, 3], "second": [4], "meta": [5, 6], "outer": [7, 8], "last": [9], "none": []}
    path = nested(tmp_path / "a.vot")

    def compute(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
        return {"p": batch.column(chosen).to_numpy().astype(np.float32) / 2}

    new = [NewColumn("p", pa.float32())]
    (out,) = annotate(votable.open(path, chosen), tmp_path / "out", new, compute, read=[chosen])
    tables = {t.name: t.array for t in astropy_votable.parse(out).iter_tables()}
    assert set(tables) == set(expected)
    for name, values in expected.items():
        batches = votable.open(path, name).batches([name])
        assert [v for b in batches for v in b.column(0).to_pylist()] == values
        assert list(tables[name][name]) == values
    assert list(tables[chosen]["p"]) == [value / 2 for value in expected[chosen]]


def test_data_elsewhere_are_not_fetched(tmp_path: Path) -> None:
    """A document that points to a file or an address is refused before anything is opened."""
    path = sample(tmp_path / "a.vot", tabledata_format="binary")
    xml = path.read_text().replace("<STREAM ", '<STREAM href="file:///etc/passwd" ')
    path.write_text(xml)
    with pytest.raises(FormatError, match="has its data in another file or address"):
        votable.open(path)


def test_tables_that_share_their_fields_are_not_annotated(tmp_path: Path) -> None:
    """As those of astropy's regression file do, by `ref`."""
    path = ASTROPYS / "regression.xml"
    if not path.exists():
        pytest.skip("astropy's own test files are not installed")
    with pytest.raises(FormatError, match="several tables with the same fields"):
        annotated(path, tmp_path / "no", table="0")


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


def stored(hdu: Any) -> bytes:
    stream = io.BytesIO()
    hdu.writeto(stream)
    return stream.getvalue()


def fits_bytes() -> bytes:
    rng = np.random.default_rng(5)
    columns = {
        "row": np.arange(N),
        "x": rng.normal(size=N).astype(np.float32),
        "name": np.array(["a", "b c", "", "long"])[np.arange(N) % 4],
        "good": rng.random(N) < 0.5,
        "flux": rng.normal(size=(N, 3)),
        "n": MaskedColumn(np.arange(N, dtype=np.int16), mask=np.arange(N) % 7 == 0, fill_value=-99),
        "u": (np.arange(N) % 256).astype(np.uint8),
    }
    hdu = astropy_fits.table_to_hdu(Table(columns))
    bits = astropy_fits.Column("bits", "11X", array=np.random.default_rng(6).random((N, 11)) < 0.5)
    return stored(astropy_fits.BinTableHDU.from_columns(hdu.columns + bits, header=hdu.header))


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


SCALED = astropy_fits.Column("row", "I", array=np.arange(5, dtype=np.uint16), bzero=32768)
IMAGE = astropy_fits.PrimaryHDU(np.zeros((4, 4)))
ROW = {"row": 'datatype="short"'}
REFUSED = {
    "scaled": (
        document(stored(astropy_fits.BinTableHDU.from_columns([SCALED])), ROW),
        "with the columns .*'row'.* expected the columns that its fields describe",
    ),
    "another type": (document(fits_bytes(), FIELDS | {"x": 'datatype="int"'}), r"with the columns \['x'\]"),
    "a list of any length": (
        document(fits_bytes(), FIELDS | {"flux": 'datatype="double" arraysize="*"'}),
        r"with the columns \['flux'\]",
    ),
    "too few fields": (document(fits_bytes(), ROW | {"x": FIELDS["x"]}), "as FITS, .*expected the columns"),
    "another extension": (document(fits_bytes(), attributes=' extnum="2"'), "in extension 2 of a FITS file"),
    "no table": (document(stored(IMAGE), ROW), "has no table"),
    "nothing": (document(b"", ROW), "t.vot"),
    "cut": (document(fits_bytes()[:9000]), "t.vot"),
    "a failed query": (
        document(fits_bytes()).replace(
            b"</RESOURCE>", b'<INFO name="QUERY_STATUS" value="ERROR">Out of\n time</INFO></RESOURCE>'
        ),
        "t.vot is a server's answer to a query that failed: Out of time; expected a whole table",
    ),
    "no table at all": (b"<VOTABLE><RESOURCE/></VOTABLE>", "t.vot holds no table, expected at least one"),
    "no base64": (document(fits_bytes()).replace(b"U0lN", b"U0l", 1), "is damaged"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path: Path, case: str) -> None:
    data, message = REFUSED[case]
    path = tmp_path / "t.vot"
    path.write_bytes(data)
    with pytest.raises(CatalogError, match=message):
        catalogs.open(path)


def test_rows_that_a_server_cut_off_are_told_of(tmp_path: Path) -> None:
    answer = b'<INFO name="QUERY_STATUS" value="OVERFLOW"/></RESOURCE>'
    (tmp_path / "t.vot").write_bytes(document(fits_bytes()).replace(b"</RESOURCE>", answer))
    new = {"blr_mark": np.zeros(N, np.int32)}
    (told,) = annotate(
        catalogs.open(tmp_path / "t.vot"), tmp_path / "out", MARK, lambda _: new, read=[]
    ).warnings
    assert "has some rows of its query's answer alone" in told


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
ORIGINAL_FIELDS = [
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


def original(version: str = "1.3") -> str:
    rows = "".join(f"<TR><TD>{i}</TD><TD>{i}.5</TD><TD>1</TD><TD>2</TD><TD>3</TD></TR>" for i in range(3))
    return (
        f'<?xml version="1.0"?>\n<VOTABLE version="{version}" xmlns="http://www.ivoa.net/xml/VOTable/v{version}">'
        f"<DESCRIPTION>{LONG}</DESCRIPTION><RESOURCE><DESCRIPTION>\n  two\n  lines\n</DESCRIPTION>{PARAMS[1]}"
        f"<TABLE><DESCRIPTION>of the table</DESCRIPTION>{''.join(PARAMS)}{''.join(ORIGINAL_FIELDS)}"
        '<INFO name="depth" value="3" unit=""/><INFO name="speed" value="3" unit="km/s">of it</INFO>'
        f'<GROUP name="g"><DESCRIPTION>{LONG}</DESCRIPTION><FIELDref ref="v"/><PARAMref ref="query"/>{PARAMS[2]}'
        "</GROUP>"
        f"<DATA><TABLEDATA>{rows}</TABLEDATA></DATA></TABLE></RESOURCE></VOTABLE>"
    )


def compute(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
    return {"blr_mark": batch.column("row").to_numpy().astype(np.int32)}


def annotated_original(path: Path, out: Path) -> Path:
    return catalogs.annotate(catalogs.open(path), out, MARK, compute, read=["row"])[0]


def elements(text: str, name: str) -> list[str]:
    return re.findall(rf"<{name}\b[^<>]*?(?:/>|(?<!/)>.*?</{name}>)", text, re.DOTALL)


@pytest.mark.parametrize("version", ["1.1", "1.3", "1.4"])
def test_fields_params_and_descriptions_come_back_as_they_were(tmp_path: Path, version: str) -> None:
    """Units, numbers, names, links and line ends, in the copy and in the copy of the copy."""
    path = tmp_path / "t.vot"
    path.write_text(original(version), encoding="utf-8")
    assert [catalogs.open(path).column(name).unit for name in ("row", "area")] == [None, "arcsec2"]
    copy = annotated_original(path, tmp_path / "out")
    for copied in (copy, annotated_original(copy, tmp_path / "again")):
        text = copied.read_text(encoding="utf-8")
        assert sorted(elements(text, "PARAM")) == sorted([*PARAMS, PARAMS[1], PARAMS[2]])
        assert elements(text, "FIELD")[:-1] == ORIGINAL_FIELDS
        units = re.findall(r'<INFO [^<>]*unit="([^"]*)"', text)
        assert units == (["", "km/s"] if version != "1.1" else [])  # 1.1 has no units there
        ours = f"<DESCRIPTION>{MARK[0].description}</DESCRIPTION>"
        assert sorted(elements(text, "DESCRIPTION")) == sorted([*elements(original(), "DESCRIPTION"), ours])
        cat = catalogs.open(copied)
        assert [c.unit for c in cat.columns] == [c.unit for c in catalogs.open(path).columns] + ["mag"]
        words = LONG.replace("&lt;", "<").replace("&amp;", "&").split()
        assert cat.column("v").description == " ".join(words)
        assert "blr: " not in text


def test_fields_of_arrays_of_texts_are_refused_by_name(tmp_path: Path) -> None:
    """Astropy reads no such fields; the file is not damaged, and another program can change it."""
    path = tmp_path / "t.vot"
    texts = 'name="area" datatype="char" arraysize="4x2"'
    path.write_text(original().replace('name="area" datatype="float"', texts))
    with pytest.raises(FormatError, match=r"'area' of arrays of texts.*4x2") as raised:
        catalogs.open(path)
    assert not isinstance(raised.value, DamagedFileError)
