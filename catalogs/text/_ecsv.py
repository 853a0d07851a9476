"""ECSV: text tables whose header says types, units and descriptions (astropy's APE 6)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from catalogs.catalog.catalog import Column
from catalogs.catalog.earlier_columns import provenance_entries
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.errors import FormatError
from catalogs.metadata.astropy_header import (
    META,
    EcsvHeaderError,
    Entry,
    add_entries,
    entry_line,
    read_entries,
    read_items,
    remove_entries,
)
from catalogs.metadata.fits_history import meta_provenance
from catalogs.text._records import Dialect, fields, is_data

__all__ = [
    "ECSV_MARK",
    "annotated_header",
    "ecsv_columns",
    "ecsv_dialect",
    "header_text",
    "other_meta",
    "own_meta",
    "vectors",
]

ECSV_MARK = b"# %ECSV"

OWN_LINE = re.compile(r"""- \{?["']?blr\.""")
SUBTYPE = re.compile(r"(\w+)\[([0-9,]+)\]")


def header_text(head: Sequence[bytes]) -> str:
    """Return the header's YAML: what stands behind the number signs."""
    lines = (r.decode("utf-8", "replace").rstrip("\r\n") for r in head)
    return "\n".join(
        line.removeprefix("#").removeprefix(" ") for line in lines if not line.startswith(ECSV_MARK.decode())
    )


def ecsv_dialect(head: Sequence[bytes], path: Path) -> tuple[Dialect, tuple[Entry, ...]]:
    """Return how an ECSV file is written, and what its header says of the columns."""
    names_at = next((i for i, r in enumerate(head) if is_data(r)), None)
    if names_at is None:
        raise FormatError(f"{path} has no line of column names below its header; write it again")
    text = header_text(head[:names_at])
    try:
        entries = read_entries(text)
    except EcsvHeaderError as error:
        raise FormatError(f"{path} has an ECSV header that cannot be read: {error}; write it again") from None
    delimiter = "," if re.search(r"^delimiter: ['\"],['\"]\s*$", text, re.MULTILINE) else " "
    names = tuple(fields(head[names_at].decode("utf-8", "replace"), delimiter))
    if names != tuple(e.name for e in entries):
        got = sorted(set(names) ^ {e.name for e in entries})
        raise FormatError(
            f"{path} has a header that does not fit its line of names: see {got}; write it again"
        )
    return Dialect(delimiter, names, names_at), entries


def ecsv_columns(entries: Sequence[Entry]) -> tuple[Column, ...]:
    """Return the columns as batches have them."""
    return tuple(column(e) for e in entries)


def column(entry: Entry) -> Column:
    """Return a column; fixed vectors, which are written as JSON, have their shape."""
    shape: tuple[int, ...] = ()
    datatype = arrow_type(entry.datatype)
    if match := SUBTYPE.fullmatch(entry.subtype or ""):
        shape = tuple(int(n) for n in match[2].split(","))
        datatype = arrow_type(match[1])
        for size in reversed(shape):
            datatype = pa.list_(datatype, size)
    return Column(entry.name, datatype, entry.unit, entry.ucd, entry.description, shape=shape)


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of ECSV's name of a type; text for what it does not know."""
    if name == "bool":
        return pa.bool_()
    if re.fullmatch(r"u?int(8|16|32|64)|float(16|32|64)", name):
        return pa.from_numpy_dtype(np.dtype(name))
    return pa.float64() if name == "float128" else pa.string()


def vectors(texts: pa.ChunkedArray, datatype: pa.DataType) -> pa.Array:
    """Return a column of vectors from their JSON; ArrowInvalid where a text is no such vector."""
    try:
        return pa.array([json.loads(t) if t else None for t in texts.to_pylist()], datatype)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise pa.ArrowInvalid(f"a vector of {datatype} cannot be read: {error}") from None


def annotated_header(
    head: Sequence[bytes],
    columns: Sequence[NewColumn],
    provenance: Provenance,
    *,
    dropped: Sequence[str] = (),
    slim: bool = False,
) -> list[bytes]:
    """Return the lines of a header with the new columns and the provenance in it, the dropped columns out."""
    end = b"\r\n" if head[0].endswith(b"\r\n") else b"\n"
    mark, *rest = head
    text = header_text(rest)
    pairs = provenance_entries(own_meta(text), provenance, dropped)
    text = add_entries(remove_entries(text, dropped) if dropped else text, [entry_line(c) for c in columns])
    lines = with_meta(text.split("\n"), pairs, slim=slim)
    return [mark, *(f"# {line}".rstrip().encode() + end for line in lines)]


def own_meta(text: str) -> dict[str, str]:
    """Return the provenance that an earlier annotation left in a header."""
    try:
        return meta_provenance({item.key: item.value for item in read_items(text)})
    except EcsvHeaderError:
        return {}


def other_meta(text: str) -> list[str]:
    """Return the lines of a header's metadata that no annotation wrote."""
    lines = text.split("\n")
    at = next((i for i, line in enumerate(lines) if line.startswith("meta:")), len(lines))
    inside = [line for line in lines[at + 1 :] if line.startswith(("-", " "))]
    more = [lines[at]] if at < len(lines) and lines[at].rstrip() != META else []
    return more + [line for line in inside if not OWN_LINE.match(line)]


def with_meta(lines: list[str], entries: Mapping[str, str], *, slim: bool) -> list[str]:
    """Return the YAML with entries at the top of the table's metadata, where that is the usual ordered mapping.

    Our own old ones go; of a slim copy all go, for they tell of columns that are no longer there.
    """
    at = next((i for i, line in enumerate(lines) if line.startswith("meta:")), None)
    if at is None:
        at = next((i for i, line in enumerate(lines) if line.startswith("schema:")), len(lines))
        lines = [*lines[:at], *([META] if entries else []), *lines[at:]]
    elif slim:
        rest = (i for i in range(at + 1, len(lines)) if not lines[i].startswith(("-", " ")))
        lines = [*lines[:at], *([META] if entries else []), *lines[next(rest, len(lines)) :]]
    elif lines[at].rstrip() != META:
        return lines
    lines = [line for line in lines if not OWN_LINE.match(line)]
    added = [f"- {{{json.dumps(key)}: {json.dumps(value)}}}" for key, value in entries.items()]
    return [*lines[: at + 1], *added, *lines[at + 1 :]]
