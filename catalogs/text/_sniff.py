"""Whether a file is a text table, and which texts are not: pages, documents, letters of two bytes."""

from __future__ import annotations

import codecs
from pathlib import Path

from catalogs.errors import FormatError
from catalogs.files.compressed import first_bytes
from catalogs.text._ecsv import ECSV_MARK
from catalogs.text._records import DELIMITERS, HEAD_BYTES, common_width, is_data

__all__ = ["FOREIGN", "HEAD_BYTES", "head_lines", "is_delimited", "require_table", "sniff"]

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
