"""Rows of VOTables, read and written by us: what astropy reads and writes, to the bit, but streamed."""

import binascii
import io
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import DamagedFileError
from catalogs.files import stamp
from catalogs.votable import _document as votable_document
from catalogs.votable import _rows as votable_stream
from catalogs.votable import table as votable
from catalogs.votable import table as votable_tabledata
from catalogs.votable.table import write
from catalogs.writing import annotate
from tests.catalogs.votable_samples import N, by_astropy, cells, document, lists, parsed, slow_values

pytestmark = pytest.mark.filterwarnings("ignore::astropy.io.votable.exceptions.VOWarning")


def by_us(path: Path) -> bytes:
    """Return a file's document in BINARY2, as we write it."""
    votable.document.cache_clear()
    file, (rows,), originals = votable.document(path, stamp(path))
    (table,) = file.iter_tables()
    stream = io.BytesIO()
    write(file, stream, {table: (N, rows.blocks(range(len(table.fields))))}, originals)
    return stream.getvalue()


def stored(document: bytes) -> list[bytes]:
    return re.findall(rb"<STREAM[^>]*>\s*([^<\s]+)", document)


@pytest.mark.parametrize("serialisation", ["tabledata", "binary2"])
def test_all_types_beside_each_other_are_written_as_astropy_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serialisation: str
) -> None:
    """Also a few rows at a time, whose base64 goes on from one to the next."""
    data = document([*cells(), *lists()], ' nrows="12"')
    expected, path = by_astropy(data, "binary2"), tmp_path / "t.vot"
    path.write_bytes(data if serialisation == "tabledata" else expected)
    assert stored(by_us(path)) == stored(expected)
    assert by_astropy(by_us(path), "binary2") == expected  # which spells the document in one way
    monkeypatch.setattr(votable_tabledata, "PIECE_BYTES", 7 * 4000)
    monkeypatch.setattr(votable_stream, "BLOCK_BYTES", 5000)
    assert stored(by_us(path)) == stored(expected)


@pytest.mark.parametrize("serialisation", ["tabledata", "binary", "binary2"])
@pytest.mark.parametrize("piece", [1 << 20, 401])
@pytest.mark.parametrize("own_lengths", [True, False])
def test_all_types_are_read_as_astropy_reads_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serialisation: str,
    piece: int,
    own_lengths: bool,  # noqa: FBT001
) -> None:
    """Whole columns at once, whatever the pieces of the file; rows of one size and others take two ways."""
    for module in (votable_document, votable_stream):
        monkeypatch.setattr(module, "BLOCK_BYTES", piece)
    monkeypatch.setattr(votable_tabledata, "PIECE_BYTES", piece)
    fields = [
        (f, words)
        for f, words in [*cells(), *(lists() if own_lengths else ())]
        if (own_lengths or '*"' not in f)
        and not (
            serialisation == "binary" and "" in words and "null" not in f and "har" not in f and "*" not in f
        )
    ]
    path, text = tmp_path / "t.vot", document(fields)
    path.write_bytes(text if serialisation == "tabledata" else by_astropy(text, serialisation))
    (rows,), (_, table) = votable.document(path, stamp(path))[1], parsed(path.read_bytes())
    assert rows.n_rows == N
    assert len(list(rows.blocks([0]))) > 1 or piece > 401
    found = [pa.chunked_array(column) for column in zip(*rows.arrow(range(len(fields))), strict=True)]
    assert [str(column.to_pylist()) for column in found] == slow_values(table)
    assert [c.datatype for c in votable.open(path).columns] == [column.type for column in found]


def annotated(path: Path, out: Path, **options: Any) -> Path:
    columns = (NewColumn("p", pa.float32()), NewColumn("class", pa.string()))
    n = iter(range(10**9))

    def compute(batch: pa.RecordBatch) -> dict[str, Any]:
        p = np.array([next(n) for _ in range(batch.num_rows)], np.float32)
        return {"p": p, "class": np.array([f"é{i:.0f}" for i in p])}

    cat = votable.open(path)
    (written,) = annotate(cat, out, columns, compute, read=cat.names[:1], rows=9, threads=1, **options)
    return written


DOUBLES = [('<FIELD datatype="double"/>', [str(i) for i in range(N)])] * 2
WORDS = [('<FIELD datatype="char" arraysize="*"/>', ["word"] * N)]


def changed(data: bytes, replace: Any) -> bytes:
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
        "'f0' has bytes other than T, F, 1, 0",
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
        with pytest.raises(DamagedFileError, match="is damaged"):
            votable.open(path)


def large(path: Path, n: int) -> Path:
    """Write n rows of 5 numbers, of which the first counts."""
    text = document([('<FIELD datatype="double"/>', ["1"])] * 5)
    row = text[text.index(b"<TR>") : text.index(b"</TABLEDATA>")]
    path.write_bytes(text.replace(row, b"".join(row.replace(b"1", b"%d" % i, 1) for i in range(n))))
    return path


def most_memory(path: Path, out: Path, n: int) -> int:
    """Return the most bytes that are held while a file is read and annotated."""
    votable.document.cache_clear()
    tracemalloc.start()
    try:
        cat = votable.open(path)
        assert cat.n_rows == n
        total = sum(pa.compute.sum(b.column(0)).as_py() for b in cat.batches(["f0"], 256))
        assert total == n * (n - 1) / 2
        new = {"p": np.zeros(256, np.float32)}
        compute = lambda b: {"p": new["p"][: b.num_rows]}  # noqa: E731 -- one line says it
        (copy,) = annotate(cat, out, [NewColumn("p", pa.float32())], compute, read=["f0"], rows=256)
        assert sum(b.num_rows for b in votable.open(copy).batches(["p"], 256)) == n
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return peak


def test_memory_is_bounded_whatever_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five times as many rows take no more of it, read from TABLEDATA and from the BINARY2 of a copy."""
    for module in (votable_document, votable_stream):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr(votable_tabledata, "PIECE_BYTES", 1 << 13)
    peaks = [
        most_memory(large(tmp_path / f"{n}.vot", n), tmp_path / f"out {n}", n) for n in (999, 1_000, 5_000)
    ]
    assert peaks[2] < 1.2 * peaks[1], peaks  # what is kept from the first is kept once
