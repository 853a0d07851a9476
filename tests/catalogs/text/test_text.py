"""Text tables: dialects, types, records over several lines, annotated to the byte, damage."""

from __future__ import annotations

import bz2
import csv
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import catalogs
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError, DamagedFileError, FormatError
from catalogs.text import _records as text_records
from catalogs.text import table as text
from catalogs.text.sniff import is_delimited_text
from catalogs.writing import annotate
from tests.catalogs.parquet_samples import COLUMNS, computing

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def table_of(path: Path, **options: Any) -> pa.Table:
    catalog = text.open(path, **options)
    schema = pa.schema([(c.name, c.datatype) for c in catalog.columns])
    return pa.Table.from_batches(catalog.batches(catalog.names), schema)


DIALECTS = {
    "comma": "row,x,s\n0,1.5,a\n1,,b c\n",
    "semicolon": "row;x;s\n0;1.5;a\n1;;b c\n",
    "tab": "row\tx\ts\n0\t1.5\ta\n1\t\tb c\n",
    "bar": "row|x|s\n0|1.5|a\n1||b c\n",
    "CR LF": "row,x,s\r\n0,1.5,a\r\n1,,b c\r\n",
    "CR": "row,x,s\r0,1.5,a\r1,,b c\r",
    "no last line end": "row,x,s\n0,1.5,a\n1,,b c",
    "comments": "# a, comment\n\nrow,x,s\n# another\n0,1.5,a\n\n1,,b c\n",
    "commented names": "# made by us\n# row, x, s\n0,1.5,a\n1,,b c\n",
    "byte-order mark": "\ufeffrow,x,s\n0,1.5,a\n1,,b c\n",
    "quotes": '"row","x","s"\n"0","1.5","a"\n1,"","b c"\n',
    "blanks": "row, x, s\n0, 1.5,a\n1,,b c\n",
    "VizieR": "# a comment\n\nrow\tx\ts\n \tmag\t \n---\t----\t-\n0\t1.5 \ta\n1\t    \tb c\n",
}
BELOW = {"VizieR": ("\t%\t", "\t-\t-----")}  # units and dashes of the new columns
TWO = NewColumn("p", pa.float32(), unit="%"), NewColumn("class", pa.string())


@pytest.mark.parametrize("kind", DIALECTS)
def test_dialects_and_their_annotated_copies(tmp_path: Path, kind: str) -> None:
    """The same two rows, however they are written; without the new values a copy is the old file, to the byte."""
    path = written(tmp_path / "a.csv", DIALECTS[kind])
    assert is_delimited_text(path, b"")
    table = table_of(path)
    assert table.to_pydict() == {"row": [0, 1], "x": [1.5, None], "s": ["a", "b c"]}
    catalog = text.open(path)
    assert bool(catalog.partitions[0].verified()[1]) == (kind == "no last line end")
    mark = catalog.metadata["delimiter"]
    values = {"p": np.array([0.1, np.nan], np.float32), "class": np.array(["E", f"S{mark}"])}
    (out,) = annotate(catalog, tmp_path / "out", TWO, lambda _: values, read=["row"])
    new = out.read_bytes().decode()
    for added in (f"{mark}p{mark}class", f"{mark}0.1{mark}E", f'{mark}{mark}"S{mark}"', *BELOW.get(kind, ())):
        assert new.count(added) == 1
        new = new.replace(added, "")
    assert new.encode() == path.read_bytes()
    assert table_of(out).to_pydict() == table.to_pydict() | {"p": [0.1, None], "class": ["E", f"S{mark}"]}
    units = [c.unit for c in text.open(out).columns]
    assert units == ([None, "mag", None, "%", None] if kind in BELOW else [None] * 5)


TYPES = {
    "int64": (["1", "-9223372036854775808"], "int64"),
    "identifiers": (["1237648720693755918", ""], "int64"),
    "uint64": (["18446744073709551615", "1"], "uint64"),
    "too large for integers": (["18446744073709551615", "-1"], "string"),
    "written as reals": (["1.23764870457714E+018", "2"], "double"),
    "reals": (["1", "2.5"], "double"),
    "not a number": (["nan", "1"], "double"),
    "zero in front": (["007", "8"], "string"),
    "zero": (["0", "-0"], "int64"),
    "truth": (["true", "False"], "bool"),
    "times": (["2026-01-02", "2026-01-03"], "string"),
    "sexagesimal": (["00:08:27.05", "12:00:00"], "string"),
    "mixed": (["1", "x"], "string"),
    "truth and numbers": (["true", "2"], "string"),
    "nothing": (["", ""], "null"),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("block", [1 << 23, 40])
def test_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, block: int) -> None:
    """Types are those that hold every row, whatever the blocks that the file is read in."""
    monkeypatch.setattr(text_records, "BLOCK_BYTES", block)
    values, expected = TYPES[kind]
    rows = "".join(f"{i},{v}\n" for i, v in enumerate(values))
    table = table_of(written(tmp_path / "a.csv", "row,v\n" + rows))
    assert str(table.schema.field("v").type) == expected
    if expected in {"int64", "uint64"}:
        assert table["v"].to_pylist() == [int(v) if v else None for v in values]


def test_missing_is_what_the_specification_says(tmp_path: Path) -> None:
    """'-' and 'null' are text unless they are said to stand for no value; -9999 is a number."""
    path = written(tmp_path / "a.csv", "row,v,s\n0,-,-\n1,-9999,null\n2,null,x\n")
    assert table_of(path)["v"].to_pylist() == ["-", "-9999", "null"]
    table = table_of(path, missing=["-", "null"])
    assert table["v"].to_pylist() == [None, -9999, None]
    assert table["s"].to_pylist() == ["-", "null", "x"]


def test_records_over_several_lines(tmp_path: Path) -> None:
    """Line ends and delimiters in quotations and in names, doubled quotes, and quotes that quote nothing."""
    path = written(tmp_path / "a.csv", 'row;"s\nof, it"\n0;"a\nb;\r\nc, ""d"""\n1;12" wide, x\n2;"#x"\n')
    assert table_of(path)["s\nof, it"].to_pylist() == ['a\nb;\r\nc, "d"', '12" wide, x', "#x"]
    (out,) = annotate(catalogs.open(path), tmp_path / "out", COLUMNS, computing(3), read=["row"])
    assert table_of(out)[1].equals(table_of(path)[1])
    assert table_of(out)["blr_class"].to_pylist() == ["early", "late", ""]


@settings(max_examples=40)
@given(
    st.lists(st.text(alphabet='ab",;\n\r# ', max_size=6), min_size=1, max_size=6),
    st.sampled_from([1, 7, 1 << 20]),
)
def test_any_text_that_pandas_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, words: Any, block: int
) -> None:
    """Fields of any characters come back, whatever the blocks."""
    path = tmp_path_factory.mktemp("text") / "a.csv"
    frame = pd.DataFrame({"row": range(len(words)), "s": words})
    frame.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_records, "BLOCK_BYTES", block)
        table = table_of(path)
    got = ["" if v is None else str(v) for v in table["s"].to_pylist()]
    assert got == words or table.schema.field("s").type != pa.string()


LINES = st.sampled_from(["x", "x", "x", "x", '"a, b"', '"two\nlines"', "", "# a comment", "#"])


@given(
    st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r"])), max_size=12),
    st.sampled_from(["\n", "\r\n", "\r", None]),
    st.booleans(),
    st.sampled_from([1, 7, 30, 1 << 20]),
)
def test_every_record_gets_its_values(
    tmp_path_factory: pytest.TempPathFactory, lines: Any, all_end: Any, ended: str, block: int
) -> None:
    """Whole blocks of plain rows are written at once; the copy is as if each record were written by itself."""
    ten = NewColumn("ten", pa.int64())

    def tens(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
        return {"ten": 10 * batch["row"].cast(pa.int64()).to_numpy()}

    old, new, rows = b"row,s\n", b"row,s,ten\n", 0
    last = max((i for i, (s, _) in enumerate(lines) if s and not s.startswith("#")), default=-1)
    for i, (s, end) in enumerate(lines[: last + 1] if not ended else lines):
        mark = "" if i == last and not ended else all_end or end
        row = bool(s) and not s.startswith("#")
        record = f"{rows},{s}" if row else s
        old += (record + mark).encode()
        new += (record + (f",{10 * rows}" if row else "") + mark).encode()
        rows += row
    path = tmp_path_factory.mktemp("text") / "a.csv"
    path.write_bytes(old)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_records, "BLOCK_BYTES", block)
        (out,) = annotate(text.open(path), path.parent / "out", [ten], tens, read=["row"])
    assert out.read_bytes() == new


@pytest.mark.parametrize("suffix", [".gz", ".bz2"])
def test_compressed(tmp_path: Path, suffix: str) -> None:
    """Compressed in, compressed out; the same content gives the same bytes."""
    squeeze = {".gz": gzip.compress, ".bz2": bz2.compress}[suffix]
    path = written(tmp_path / f"a.csv{suffix}", squeeze(DIALECTS["comma"].encode()))
    assert is_delimited_text(path, b"")
    folders = tmp_path / "b", tmp_path / "c"
    outs = [annotate(text.open(path), f, COLUMNS, computing(2), read=["row"])[0] for f in folders]
    assert outs[0].name == path.name
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert table_of(outs[0])["blr_class"].to_pylist() == ["early", "late"]
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DamagedFileError, match="is damaged"):
        table_of(path)


def test_latin1(tmp_path: Path) -> None:
    """Text that is no UTF-8 is Latin-1, names of columns too; a copy keeps its bytes."""
    path = written(tmp_path / "a.csv", "row,é\n0,ü\n".encode("latin-1"))
    assert table_of(path).to_pydict() == {"row": [0], "é": ["ü"]}
    (out,) = annotate(text.open(path), tmp_path / "out", COLUMNS, computing(1), read=["row", "é"])
    assert out.read_bytes().startswith("row,é,blr_class".encode("latin-1"))


A_OF_ECSV = "# %ECSV 1.0\n# ---\n# datatype:\n# - {name: a, datatype: int64}\n"
FAULTS = {
    "row,x\n0,1\n1\n": (DamagedFileError, "Expected 2 columns, got 1"),
    "row,x\n0,1,2\n": (DamagedFileError, "Expected 2 columns, got 3"),
    'row,x\n0,"1\n': (DamagedFileError, "never closed"),
    "row,row\n0,1\n": (FormatError, "each name once"),
    "row,,\n0,1,2\n": (FormatError, "has several columns called"),
    "# a b\n0 1 7\n2 3\n": (FormatError, "the columns of .* are not known: its lines hold 2 to 3 words"),
    "1,2\n3,4\n": (FormatError, "no line of column names"),
    "NGC0224,S\nNGC0598,S\n": (FormatError, "no line of column names"),
    "2000+0004 E JR\n1700-0009 S JR\n": (FormatError, "no line of column names"),
    "": (FormatError, "no line of data"),
    "# only\n": (FormatError, "no line of data"),
    "# %ECSV 1.0\n# ---\n# [\na\n1\n": (FormatError, "cannot be read"),
    f"{A_OF_ECSV}b\n1\n": (FormatError, "does not fit"),
    f"{A_OF_ECSV}a\nx\n": (DamagedFileError, "invalid value"),
    f"{A_OF_ECSV}a\n1\n".replace("int64", "in32"): (FormatError, "got the datatype 'in32'"),
    "# %ECSV 1.0\n": (FormatError, "no line of column names"),
    "<!DOCTYPE html>\n<html><body>503, try, again</body></html>\n": (FormatError, "got HTML, XML or JSON"),
    '[{"id":1,"g":17.5},\n{"id":2,"g":18.5}]\n': (FormatError, "got HTML, XML or JSON"),
    '{"id":1,"g":17.5}\n{"id":2,"g":18.5}\n': (FormatError, "got HTML, XML or JSON"),
    'g,r\n"1",17.5,17.1\n"2",18.5,18.0\n': (DamagedFileError, "a name over the row names that R writes"),
    "My survey, version 1\n\nid,g,r\n1,17.5,17.1\n": (DamagedFileError, "Expected 2 columns, got 3"),
    "My survey\nid,g,r\n1,17.5,17.1\n": (DamagedFileError, "put # before lines above the names"),
    "id,g,r\n#1,17.5,17.1\n#2,18.5,18.0\n": (FormatError, "are comments such as '#1,17.5,17.1'"),
}


@pytest.mark.parametrize("content", FAULTS)
def test_faults(tmp_path: Path, content: str) -> None:
    """What is wrong with a file, and what is no table, is said."""
    kind, message = FAULTS[content]
    path = written(tmp_path / "a.csv", content)
    with pytest.raises(kind, match=message):
        list(catalogs.open(path).batches(["a"]))


MERGED = [f"&a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 9)]
MERGE_KEYS = f"[&a0 {{k: v}}, {', '.join(MERGED)}]"
HARM = {
    "brackets": ("[" * 60_000 + "]" * 60_000, "more than 64 levels deep"),
    "merge keys": (MERGE_KEYS, "more than 500,000 values"),
    "a number to the base 60": ("1" + ":1" * 50_000, None),
    "a number of many digits": ("9" * 100_000, None),
}


@pytest.mark.parametrize("harm", HARM)
def test_the_header_of_ecsv_takes_no_time(tmp_path: Path, harm: str) -> None:
    value, message = HARM[harm]
    header = f"# %ECSV 1.0\n# ---\n# datatype:\n# - {{name: a, datatype: int64}}\n# meta: {{m: {value}}}\n"
    path = written(tmp_path / "a.ecsv", header + "a\n1\n")
    before = time.process_time()
    if message is None:
        assert table_of(path)["a"].to_pylist() == [1]
    else:
        with pytest.raises(FormatError, match=message):
            table_of(path)
    assert time.process_time() - before < 5


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_letters_are_refused_with_the_way_to_convert_them(tmp_path: Path, encoding: str) -> None:
    path = written(tmp_path / "excel.csv", "id,g,r\n1,17.5,17.1\n2,18.5,18.0\n".encode(encoding))
    with pytest.raises(FormatError, match=r"got text in UTF-16 .* iconv -f UTF-16 -t UTF-8 'excel\.csv'"):
        catalogs.open(path)


def test_a_table_without_rows_may_have_comments(tmp_path: Path) -> None:
    catalog = catalogs.open(written(tmp_path / "a.csv", "id,g,r\n# no objects, sorry\n"))
    assert (catalog.n_rows, catalog.names) == (0, ("id", "g", "r"))


@pytest.mark.parametrize("content", [b"", b"\0\1", b"<VOTABLE>\n<a,b>", b"one\ntwo\n", b'{"a": 1,\n"b": 2}'])
def test_what_is_no_table_is_not_sniffed(tmp_path: Path, content: bytes) -> None:
    assert not is_delimited_text(written(tmp_path / "a", content), content)
    assert not is_delimited_text(tmp_path, b"")


@pytest.mark.parametrize("kind", DIALECTS)
@pytest.mark.parametrize("keep", [["x"], ["row", "s"], ["s"]])
def test_slim(tmp_path: Path, kind: str, keep: list[str]) -> None:
    """Only the columns to keep, as they were written, and the new ones."""
    path = written(tmp_path / "a.csv", DIALECTS[kind])
    new = {"p": np.array([0.25, 0.5], np.float32), "class": np.array(["E", "S"])}
    how: Any = {"read": ["x"], "mode": "slim", "keep": keep}
    (out,) = annotate(text.open(path), tmp_path / "o", TWO, lambda _: new, **how)
    old = table_of(path).select(keep).to_pydict()
    assert table_of(out).to_pydict() == old | {n: v.tolist() for n, v in new.items()}
    assert b"comment" not in out.read_bytes()


def test_slim_with_quotations(tmp_path: Path) -> None:
    """Fields keep their quotation marks, with delimiters and line ends in them."""
    path = written(tmp_path / "a.csv", 'row,s,t,u\n0,"a,\n""b""",x,\n1,,"y,",""\n')
    columns, new = (NewColumn("p", pa.int32()),), {"p": np.array([7, 8], np.int32)}
    how: Any = {"read": ["row"], "mode": "slim", "keep": ["s", "u"]}
    (out,) = annotate(text.open(path), tmp_path / "o", columns, lambda _: new, **how)
    assert out.read_text() == 's,u,p\n"a,\n""b""",,7\n,"",8\n'


GAIA = """\
# %ECSV 1.0
# ---
# delimiter: ','
# datatype:
# - {name: row, datatype: int64}
# - {name: parallax, datatype: float64, unit: mas}
# - {name: n_obs, datatype: int16}
# - {name: astrometric, datatype: bool}
# - {name: library, datatype: string}
row,parallax,n_obs,astrometric,library
0,null,3,"True","null"
1,0.25,null,null,"PHOENIX"
"""


def test_null_among_the_numbers_of_an_ecsv_file_is_none(tmp_path: Path) -> None:
    """As Gaia's archive writes it, in columns of text too, where it stays as it is."""
    path = written(tmp_path / "gaia.ecsv", GAIA)
    expected = {"row": [0, 1], "parallax": [None, 0.25], "n_obs": [3, None], "astrometric": [True, None]}
    assert table_of(path).to_pydict() == expected | {"library": ["null", "PHOENIX"]}
    (out,) = annotate(text.open(path), tmp_path / "out", COLUMNS, computing(2), read=["row"])
    assert '\n0,null,3,"True","null",' in out.read_text()


def test_quotation_marks_in_comments_open_nothing(tmp_path: Path) -> None:
    """They made one record of the header and of the rows down to the next mark: rows were lost in silence."""
    double = GAIA.replace("# delimiter: ','", '# delimiter: ","')
    assert table_of(written(tmp_path / "gaia.ecsv", double)).column("row").to_pylist() == [0, 1]
    plain = written(tmp_path / "a.csv", '# what,"an odd comment\nrow,name\n0,"a"\n1,"b"\n2,"# c\n# d"\n')
    assert table_of(plain).to_pydict() == {"row": [0, 1, 2], "name": ["a", "b", "# c\n# d"]}
    (out,) = annotate(text.open(plain), tmp_path / "out", COLUMNS, computing(3), read=["row"])
    assert out.read_text().startswith('# what,"an odd comment\nrow,name,')


def test_a_quotation_that_is_never_closed_is_found_at_once(tmp_path: Path) -> None:
    """Of each line only the line is looked at: 100,000 of them, looked at from the first on, took hours."""
    rows = '1,"five arcmin,2.5\n' + "2,plain,3.5\n" * 100_000
    path = written(tmp_path / "a.csv", "row,note,x\n" + rows)
    with pytest.raises(DamagedFileError, match=r"begins '1,.five arcmin,2.5' is never closed"):
        text.open(path)


@pytest.mark.parametrize("start", ["a,b\n1,", 'a,b\n1,"'], ids=["line", "quotation"])
def test_a_line_without_an_end(tmp_path: Path, start: str) -> None:
    """The error says where it begins."""
    path = tmp_path / "endless.csv.gz"
    with gzip.open(path, "wt", compresslevel=1) as stream:
        stream.write(start + "7" * 60_000_000)
    with pytest.raises(CatalogError, match=r"line that begins at byte 4, '1,.*has more than 16 MB"):
        catalogs.open(path)


def test_a_field_above_the_usual_limit_and_a_line_of_names_beyond_the_head(tmp_path: Path) -> None:
    path = written(tmp_path / "long.csv", f"id,region\nx,{'7 ' * 90_000}\ny,2\n")
    assert catalogs.open(path).n_rows == 2
    path.write_text(",".join(f"c{i}" for i in range(50_000)) + "\n" + ",".join("1" * 50_000) + "\n")
    with pytest.raises(CatalogError, match=r"no line of data; .* very many columns as Parquet"):
        catalogs.open(path)
