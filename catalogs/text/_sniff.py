"""What a text table is: whether a file is one, and the types of its columns.

Types are inferred once, from all rows, and then fixed.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.types as pt

from catalogs.arrays.values import EXACT_INTEGER
from catalogs.errors import FormatError
from catalogs.files.compressed import first_bytes
from catalogs.text._records import DELIMITERS, HEAD_BYTES, common_width, is_data
from catalogs.text.ecsv import ECSV_MARK

__all__ = [
    "FOREIGN",
    "HEAD_BYTES",
    "convert",
    "head_lines",
    "infer_types",
    "is_delimited",
    "require_table",
    "sniff",
]

# Whether a file is a text table, and which texts are not: pages, documents, letters of two bytes.

SNIFFED_ROWS = 5

FOREIGN = (b"<", b"{", b"[{")
"""How HTML, XML and JSON begin."""

WIDE_MARKS, WIDE_BYTES = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), 64
"""How UTF-16 and UTF-32 begin, or else every other of so many bytes is 0."""


def sniff(path: Path, head: bytes) -> bool:  # noqa: ARG001 -- compressed files are inflated first
    """Say whether a file is ECSV, or lines of two or more fields each."""
    if path.is_dir():
        return False
    text = first_bytes(path, HEAD_BYTES)
    if text.startswith(ECSV_MARK):
        return True
    if b"\0" in text or not text.strip() or text.lstrip().startswith(FOREIGN):
        return False
    return is_delimited(text)


def is_delimited(head: bytes) -> bool:
    """Say whether the first lines have two or more fields each, as many between marks of one kind."""
    rows = [r.decode("latin-1") for r in head_lines(head) if is_data(r)][:SNIFFED_ROWS]
    return bool(rows) and max(common_width(rows, d) for d in DELIMITERS) > 1


def head_lines(head: bytes) -> list[bytes]:
    """Return the lines of the first bytes, without one that may be cut."""
    lines = head.splitlines(keepends=True)
    return lines[:-1] if len(head) == HEAD_BYTES else lines


def require_table(path: Path, head: bytes) -> None:
    """Raise a `FormatError` where text is of another kind, or its letters take two bytes or four, as spreadsheets'."""
    if head.lstrip().startswith(FOREIGN):
        raise FormatError(
            f"{path}: got HTML, XML or JSON, expected a line of names and rows below it; if it is a server's "
            "error message, fetch it again; if it is data, convert it: pandas.read_json(...).to_parquet(...)"
        )
    bare = len(head) > 1 and not (any(head[:WIDE_BYTES:2]) and any(head[1:WIDE_BYTES:2]))
    if bare or head.startswith(WIDE_MARKS):
        raise FormatError(
            f"{path}: got text in UTF-16 or UTF-32, expected UTF-8 or Latin-1; convert it: "
            f"iconv -f UTF-16 -t UTF-8 '{path.name}' > converted.csv"
        )


# The types of a text table's columns: inferred once, from all of its rows, and then fixed.
#
# Whole numbers are int64, or uint64 where that is needed (identifiers never pass through float); numbers
# with a zero in front are text, for they are names; times are text, as they are written.

ZERO_IN_FRONT = "^[+-]?0[0-9]"
INTEGER = "^[+-]?[0-9]+$"
BLANKS = tuple(" " * n for n in range(65))
"""Fields of nothing, and of blanks only, as where a table is padded to be read by people."""


class Kind(Enum):
    """What the values of a column can be said to be."""

    NOTHING = "no values"
    TRUTH = "true, false"
    COUNT = "whole numbers, none negative, in 63 bits"
    INTEGER = "whole numbers in 64 bits"
    LARGE = "whole numbers, none negative, in 64 bits"
    REAL = "numbers"
    TEXT = "text"


ARROW: Mapping[Kind, pa.DataType] = MappingProxyType(
    {
        Kind.NOTHING: pa.null(),
        Kind.TRUTH: pa.bool_(),
        Kind.COUNT: pa.int64(),
        Kind.INTEGER: pa.int64(),
        Kind.LARGE: pa.uint64(),
        Kind.REAL: pa.float64(),
        Kind.TEXT: pa.string(),
    }
)


def convert(
    data: bytes,
    names: Sequence[str],
    delimiter: str,
    *,
    types: Mapping[str, pa.DataType] | None = None,
    wanted: Sequence[str] | None = None,
    missing: Sequence[str] = (),
    encoding: str = "utf8",
) -> pa.Table:
    """Return records as columns; an empty field, one of blanks, and the texts of `missing`, are null in numbers."""
    return pa_csv.read_csv(
        pa.BufferReader(data),
        pa_csv.ReadOptions(column_names=list(names), block_size=max(len(data), 1) + 1, encoding=encoding),
        pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        pa_csv.ConvertOptions(
            column_types=dict(types or {}),
            include_columns=None if wanted is None else list(wanted),
            null_values=[*BLANKS, *missing],
            strings_can_be_null=False,
        ),
    )


def infer_types(
    blocks: Iterable[bytes],
    names: Sequence[str],
    delimiter: str,
    *,
    missing: Sequence[str] = (),
    encoding: str = "utf8",
) -> tuple[dict[str, pa.DataType], int]:
    """Return the columns' types, and the number of rows."""
    widest = dict.fromkeys(names, Kind.NOTHING)
    rows = 0
    for data in blocks:
        table = convert(data, names, delimiter, missing=missing, encoding=encoding)
        rows += table.num_rows
        kinds = {n: plain(c.type) for n, c in zip(names, table.columns, strict=True) if not may_be_whole(c)}
        if doubtful := [n for n in names if n not in kinds]:
            types = dict.fromkeys(doubtful, pa.string())
            texts = convert(
                data, names, delimiter, types=types, wanted=doubtful, missing=missing, encoding=encoding
            )
            kinds |= {n: whole(texts.column(n), table.column(n), missing) for n in doubtful}
        widest = {name: wider(kind, kinds[name]) for name, kind in widest.items()}
    return {name: ARROW[kind] for name, kind in widest.items()}, rows


def may_be_whole(column: pa.ChunkedArray) -> bool:
    """Say whether numbers are whole, or so large that float64 could have rounded them so."""
    if not pt.is_floating(column.type):
        return bool(pt.is_integer(column.type))
    low, high = pc.min_max(column).as_py().values()
    if low is None or -EXACT_INTEGER < low <= high < EXACT_INTEGER:  # as nearly all are
        return False
    largest = pc.max(pc.abs(column.filter(pc.is_finite(column)))).as_py()
    return largest is not None and largest >= EXACT_INTEGER


def whole(texts: pa.ChunkedArray, numbers: pa.ChunkedArray, missing: Sequence[str]) -> Kind:
    """Return the kind of numbers that may be whole, from how they are written."""
    gone = pc.is_in(texts, value_set=pa.array([*BLANKS, *missing]))
    written = pc.utf8_trim_whitespace(texts.filter(pc.invert(gone)))
    if pt.is_integer(numbers.type):
        if pc.any(pc.match_substring_regex(written, ZERO_IN_FRONT)).as_py():
            return Kind.TEXT
        return Kind.INTEGER if pc.min(numbers).as_py() < 0 else Kind.COUNT
    if not pc.all(pc.match_substring_regex(written, INTEGER)).as_py():
        return Kind.REAL
    try:
        pc.cast(written, pa.uint64())
    except pa.ArrowInvalid:
        return Kind.TEXT  # identifiers that no integer holds are names
    return Kind.LARGE


def plain(datatype: pa.DataType) -> Kind:
    """Return the kind of all other values; times are text, as they are written."""
    if pt.is_null(datatype):
        return Kind.NOTHING
    if pt.is_boolean(datatype):
        return Kind.TRUTH
    return Kind.REAL if pt.is_floating(datatype) else Kind.TEXT


def wider(a: Kind, b: Kind) -> Kind:
    """Return the kind that holds both; text where nothing else does."""
    if a is b:
        return a
    both = {a, b} - {Kind.NOTHING}
    if len(both) <= 1:
        return both.pop() if both else Kind.NOTHING
    for pair, kind in (({Kind.COUNT, Kind.INTEGER}, Kind.INTEGER), ({Kind.COUNT, Kind.LARGE}, Kind.LARGE)):
        if both == pair:
            return kind
    return Kind.REAL if Kind.REAL in both and not both & {Kind.TRUTH, Kind.TEXT} else Kind.TEXT
