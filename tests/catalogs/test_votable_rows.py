"""Rows of VOTables, read and written by us: what astropy reads and writes, to the bit, but streamed."""

import binascii
import io
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io.votable import parse
from astropy.io.votable.tree import TableElement, VOTableFile

from catalogs import votable, votable_stream
from catalogs.annotate import annotate
from catalogs.annotations import NewColumn
from catalogs.errors import DamagedFileError
from catalogs.votable_binary import ELEMENTS
from catalogs.votable_rows import BinaryRows, MemoryRows
from catalogs.votable_write import Content, write

pytestmark = pytest.mark.filterwarnings("ignore::astropy.io.votable.exceptions.VOWarning")

N = 12

NUMBERS = {
    "unsignedByte": ["0", "255", "7"],
    "short": ["-32768", "32767", "7"],
    "int": ["-2147483648", "2147483647", "7"],
    "long": ["-9223372036854775808", "9007199254740993", "7"],
    "float": ["1.5", "NaN", "-Inf", "1e-40"],
    "double": ["1.1", "NaN", "Inf", "-0.0"],
    "floatComplex": ["1 2", "NaN NaN", "-1 0"],
    "doubleComplex": ["1.1 2.2", "NaN NaN", "3 -4"],
    "boolean": ["T", "F", "?"],
    "bit": ["1", "0", "1"],
}
TEXTS = {
    ("char", "*"): ["a", "", "a long text &lt; &amp;"],
    ("char", "5"): ["abcde", "", "ab"],
    ("char", "8*"): ["abcdefgh", "", "ab"],
    ("char", None): ["a", "b", "c"],
    ("unicodeChar", "*"): ["é", "", "σ &gt; 5"],
    ("unicodeChar", "4"): ["éèà1", "", "ab"],
    ("unicodeChar", "4*"): ["éèà1", "", "ab"],
}


def cells() -> Iterator[tuple[str, list[str]]]:
    """Yield FIELD elements and N cells each: every type alone, with a null value, as vector and as matrix, or text."""
    for datatype, values in NUMBERS.items():
        n = 2 if "Complex" not in datatype else 1
        for size, times in {"": 1, "3": 3, "2x2": 4, "9": 9}.items():
            words = [" ".join(values[(i + j * n) % len(values)] for j in range(times)) for i in range(N)]
            attributes = f'datatype="{datatype}"' + (f' arraysize="{size}"' if size else "")
            yield f"<FIELD {attributes}/>", words
            if datatype in {"unsignedByte", "short", "int", "long", "double"}:
                null = f'<FIELD {attributes}><VALUES null="7"/></FIELD>'
                yield null, ["" if i % 5 == 4 and not size else word for i, word in enumerate(words)]
    for (datatype, arraysize), values in TEXTS.items():
        attributes = f'datatype="{datatype}"' + (f' arraysize="{arraysize}"' if arraysize else "")
        yield f"<FIELD {attributes}/>", [values[i % len(values)] for i in range(N)]


def lists() -> Iterator[tuple[str, list[str]]]:
    """Yield what cannot be streamed: arrays of any length."""
    for datatype, values in NUMBERS.items():
        if datatype == "bit":
            continue  # astropy itself cannot write those
        for size, times in {"*": 1, "2x*": 2}.items():
            rows = [" ".join(values[(i + j) % len(values)] for j in range(i % 3 * times)) for i in range(N)]
            yield f'<FIELD datatype="{datatype}" arraysize="{size}"/>', rows


def document(fields: list[tuple[str, list[str]]], attributes: str = "") -> bytes:
    """Return a TABLEDATA document."""
    head = "\n".join(
        f.replace("<FIELD ", f'<FIELD ID="f{i}" name="f{i}" ') for i, (f, _) in enumerate(fields)
    )
    rows = (
        "<TR>" + "".join(f"<TD>{word}</TD>" for word in row) + "</TR>"
        for row in zip(*(words for _, words in fields), strict=True)
    )
    return (
        '<?xml version="1.0"?>\n<VOTABLE version="1.3" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">'
        f"<!-- kept apart --><RESOURCE><TABLE{attributes}>\n{head}\n<DATA><TABLEDATA>{''.join(rows)}</TABLEDATA></DATA>"
        '<INFO name="after" value="the rows"/></TABLE></RESOURCE></VOTABLE>'
    ).encode()


def parsed(data: bytes) -> tuple[VOTableFile, TableElement]:
    file = parse(io.BytesIO(data), verify="ignore")
    (table,) = file.iter_tables()
    return file, table


def by_astropy(data: bytes, serialisation: str) -> bytes:
    """Return a document in that serialisation, as astropy writes it."""
    file, table = parsed(data)
    for field, name in zip(table.fields, table.array.dtype.names, strict=True):
        if field.arraysize in {"*", "2x*"} and field.datatype in ELEMENTS:
            # astropy has them as int64 and float64, and would write that many bytes
            cells = [np.ma.MaskedArray(c, dtype=ELEMENTS[field.datatype]) for c in table.array.data[name]]
            table.array.data[name][:] = [*cells, None][:-1]
    stream = io.BytesIO()
    file.to_xml(stream, tabledata_format=serialisation)
    return stream.getvalue()


def by_us(data: bytes) -> bytes:
    """Return a document in BINARY2, as we write it."""
    file, table = parsed(data)
    stream = io.BytesIO()
    write(file, stream, {table: Content(MemoryRows(table.array), range(len(table.fields)))})
    return stream.getvalue()


def test_all_types_beside_each_other_are_written_as_astropy_writes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in blocks of few rows, whose base64 goes on from one to the next."""
    data = document([*cells(), *lists()], ' nrows="12"')
    assert by_us(data) == by_astropy(data, "binary2")
    monkeypatch.setattr("catalogs.votable_rows.BLOCK_ROWS", 7)
    assert by_us(data) == by_astropy(data, "binary2")


def same(found: Any, expected: Any) -> None:
    """Hold that masked arrays agree in type, mask, and bits of their values."""
    assert np.array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(expected))
    data, other = np.ma.getdata(found), np.ma.getdata(expected)
    assert (data.dtype, data.shape) == (other.dtype, other.shape)
    assert data.tolist() == other.tolist() if data.dtype.kind in "OU" else data.tobytes() == other.tobytes()


def joined(columns: list[Any]) -> Any:
    """Return pieces of a column as one."""
    mask = np.concatenate([np.ma.getmaskarray(c) for c in columns])
    return np.ma.MaskedArray(np.concatenate([np.ma.getdata(c) for c in columns]), mask)


@pytest.mark.parametrize(
    ("serialisation", "block", "texts"),
    [("binary", 1 << 20, True), ("binary2", 401, True), ("binary", 401, False), ("binary2", 1 << 20, False)],
)
def test_all_types_are_read_as_astropy_reads_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serialisation: str,
    block: int,
    texts: bool,  # noqa: FBT001
) -> None:
    """Whole columns at once, whatever the pieces of the file; rows of one size and such with texts take two ways."""
    monkeypatch.setattr(votable_stream, "BLOCK_BYTES", block)
    fields = [
        (f, words)
        for f, words in cells()
        if (texts or '*"' not in f)
        and not (serialisation == "binary" and "" in words and "null" not in f and "har" not in f)
    ]
    path = tmp_path / "t.vot"
    path.write_bytes(by_astropy(document(fields), serialisation))
    read = votable.document(path, votable.stamp(path))
    (rows,), (_, table) = read.rows, parsed(path.read_bytes())
    assert isinstance(rows, BinaryRows)
    assert rows.n_rows == N
    blocks = list(rows.blocks(range(len(fields))))
    memory = MemoryRows(table.array)
    arrow = zip(*rows.arrow(range(len(fields))), strict=True)
    whole = next(memory.arrow(range(len(fields))))
    for i, name in enumerate(table.array.dtype.names):
        same(joined([b[i] for b in blocks]), table.array[name])
        assert rows.datatype(i) == memory.datatype(i)
        assert str(pa.chunked_array(next(arrow)).to_pylist()) == str(whole[i].to_pylist())


def annotated(path: Path, out: Path, **options: Any) -> Path:
    columns = (NewColumn("p", pa.float32()), NewColumn("class", pa.string()))
    n = iter(range(10**9))

    def compute(batch: pa.RecordBatch) -> dict[str, Any]:
        p = np.array([next(n) for _ in range(batch.num_rows)], np.float32)
        return {"p": p, "class": np.array([f"é{i:.0f}" for i in p])}

    cat = votable.open(path)
    (written,) = annotate(cat, out, columns, compute, read=cat.names[:1], rows=9, threads=1, **options)
    return written


@pytest.mark.parametrize("serialisation", ["binary", "binary2", "tabledata"])
def test_new_values_stand_in_their_rows(tmp_path: Path, serialisation: str) -> None:
    """Whatever the batches; astropy reads the old values as before, and the number of rows is told."""
    path = tmp_path / "t.vot"
    data = document(list(cells()), ' nrows="12"')
    written = data if serialisation == "tabledata" else by_astropy(data, serialisation)
    path.write_bytes(written)
    _, old = parsed(by_astropy(written, "binary2"))
    out = annotated(path, tmp_path / "out")
    _, new = parsed(out.read_bytes())
    for name in old.array.dtype.names:
        assert str(new.array[name].tolist()) == str(old.array[name].tolist())  # masked ones are None
    assert new.array["p"].tolist() == list(range(N))
    assert new.array["class"].tolist() == [f"é{i}" for i in range(N)]
    assert re.findall(rb'nrows="(\d+)"', out.read_bytes()) == [b"12"]
    slim = annotated(path, tmp_path / "slim", mode="slim", keep=("f3", "f1"))
    assert votable.open(slim).names == ("f1", "f3", "p", "class")
    assert str(parsed(slim.read_bytes())[1].array["f3"].tolist()) == str(old.array["f3"].tolist())


def test_text_that_is_not_ascii_becomes_unicode(tmp_path: Path) -> None:
    """In TABLEDATA many a `char` holds it, which BINARY2 cannot."""
    path = tmp_path / "t.vot"
    fields = [(f'<FIELD datatype="char" arraysize="{size}"/>', ["é", "", "b"] * 4) for size in ("*", "3")]
    path.write_bytes(document([*fields, ('<FIELD datatype="char" arraysize="*"/>', ["a"] * 12)]))
    _, table = parsed(annotated(path, tmp_path / "out").read_bytes())
    assert [f.datatype for f in table.fields[:3]] == ["unicodeChar", "unicodeChar", "char"]
    assert table.array["f0"].tolist() == table.array["f1"].tolist() == ["é", "", "b"] * 4


DOUBLES = [('<FIELD datatype="double"/>', [str(i) for i in range(N)])] * 2
WORDS = [('<FIELD datatype="char" arraysize="*"/>', ["word"] * N)]


def changed(data: bytes, replace: Any) -> bytes:
    """Return a document with other rows."""
    return re.sub(rb'(<STREAM encoding="base64">\s*)([A-Za-z0-9+/=]+)', lambda m: m[1] + replace(m[2]), data)


def less(text: bytes) -> bytes:
    return binascii.b2a_base64(binascii.a2b_base64(text)[:-3])


DAMAGE = {
    "a part of a row": (DOUBLES, less, "the data end 14 bytes after the last whole row"),
    "a part of a row with text": (WORDS, less, "the data end 6 bytes after the last whole row"),
    "a length beyond the end": (
        WORDS,
        lambda _: binascii.b2a_base64(b"\0\xff\xff\xff\xffword" * N),
        "the data end",
    ),
    "no base64": (DOUBLES, lambda t: t[:8] + b"!" + t[9:], "(?i)base64|padding|non-alphabet"),
    "padding in the middle": (DOUBLES, lambda t: t[:8] + b"==" + t[10:], "(?i)padding"),
    "no ASCII": (WORDS, lambda _: binascii.b2a_base64(b"\0\0\0\0\x04w\xe9rd" * N), "can't decode byte 0xe9"),
    "no truth value": (
        [('<FIELD datatype="boolean"/>', ["T"] * N)],
        lambda _: binascii.b2a_base64(b"\0x" * N),
        "'f0' has other bytes than T, F, 1, 0",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("block", [1 << 20, 20])
def test_rows_that_are_none_are_said_to_be_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, block: int
) -> None:
    monkeypatch.setattr(votable_stream, "BLOCK_BYTES", block)
    fields, replace, message = DAMAGE[kind]
    path = tmp_path / "t.vot"
    path.write_bytes(changed(by_astropy(document(fields), "binary2"), replace))
    with pytest.raises(DamagedFileError, match=message):
        list(votable.open(path).batches(["f0"]))


def test_an_absurd_length_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalogs.votable_rows.LONGEST_ROW", 1000)
    monkeypatch.setattr(votable_stream, "BLOCK_BYTES", 100)
    path = tmp_path / "t.vot"
    absurd = binascii.b2a_base64(b"\0\0\xff\xff\xffword" * 1000)
    path.write_bytes(changed(by_astropy(document(WORDS), "binary2"), lambda _: absurd))
    with pytest.raises(DamagedFileError, match="a row has more than"):
        votable.open(path)


@pytest.mark.parametrize("kind", ["cut", "changed"])
def test_files_that_are_cut_or_change_meanwhile(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t.vot"
    data = by_astropy(document(DOUBLES), "binary2")
    path.write_bytes(data)
    cat = votable.open(path)
    path.write_bytes(data[: data.index(b"</STREAM>") - 20] if kind == "cut" else data + b"\n")
    with pytest.raises(DamagedFileError, match="changed after it was opened"):
        list(cat.batches(["f0"]))
    if kind == "cut":
        with pytest.raises(DamagedFileError, match="ends within its data"):
            votable.open(path)


def test_memory_is_bounded_whatever_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what is read in memory at most, too: of 4 MB, a fraction is held at a time."""
    monkeypatch.setattr(votable, "MAX_BYTES", 1000)
    monkeypatch.setattr(votable_stream, "BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr(votable_stream, "LONGEST_HEAD", 1 << 16)
    path, n = tmp_path / "t.vot", 20_000
    ten = [('<FIELD datatype="double"/>', ["1"]), *DOUBLES] * 7
    text = by_astropy(document([(f, words[:1]) for f, words in ten]), "binary2")
    rows = np.zeros(n, [("mask", "u1", 3), *((f"f{i}", ">f8") for i in range(len(ten)))])
    rows["f0"] = np.arange(n)
    path.write_bytes(changed(text, lambda _: binascii.b2a_base64(rows.tobytes(), newline=False)))
    tracemalloc.start()
    try:
        cat = votable.open(path)
        assert cat.n_rows == n
        total = sum(pa.compute.sum(b.column(0)).as_py() for b in cat.batches(["f0"], 2048))
        new = {"p": np.zeros(2048, np.float32)}
        compute = lambda b: {"p": new["p"][: b.num_rows]}  # noqa: E731 -- one line says it
        (out,) = annotate(
            cat, tmp_path / "out", [NewColumn("p", pa.float32())], compute, read=["f0"], rows=2048
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == n * (n - 1) / 2
    assert votable.open(out).n_rows == n
    assert peak < path.stat().st_size / 3
