"""ECSV: text tables whose header says types, units and descriptions (astropy's APE 6): read and written as streams."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.catalog.catalog import Column, Computed
from catalogs.catalog.earlier_columns import provenance_entries
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.errors import FormatError
from catalogs.files.atomic import atomic_path
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
from catalogs.metadata.fits_cards import meta_provenance
from catalogs.text._records import Dialect, fields, is_data, quoted, value_lines

# ECSV: text tables whose header says types, units and descriptions (astropy's APE 6).

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


# A new ECSV file from Arrow batches: streamed, atomic, under the header that astropy would write.

BLANK = " "


def create(
    out: Path,
    old: Sequence[Column],
    new: Sequence[NewColumn],
    computed: Iterable[Computed],
    *,
    provenance: Provenance,
    header: str | None,
    dropped: Sequence[str] = (),
    slim: bool = False,
) -> None:
    """Write the old columns that stay and the new ones, whole or not at all.

    `header` is astropy's YAML on all old columns, the `dropped` ones too; a `slim` copy has none of its metadata.
    """
    yaml = header or "\n".join(["datatype:", *map(entry_line, old)])
    head = [ECSV_MARK + b" 1.0\n", b"# ---\n", *(f"# {line}\n".encode() for line in yaml.splitlines())]
    names = BLANK.join(quoted(name, BLANK) for name in [*(c.name for c in old), *(c.name for c in new)])
    with atomic_path(out) as temporary, temporary.open("wb") as stream:
        for line in annotated_header(head, new, provenance, dropped=dropped if header else (), slim=slim):
            stream.write(line)
        stream.write(names.encode() + b"\n")
        for batch, values in computed:
            texts = [texts_of(batch.column(c.name)) for c in old]
            added = pa.array(value_lines(values, new, BLANK, nan="nan"), pa.binary())
            rows = pc.binary_join_element_wise(*(t.cast(pa.binary()) for t in texts), added, BLANK.encode())
            stream.write(b"".join(row + b"\n" for row in rows.to_pylist()))


def texts_of(column: pa.Array) -> pa.Array:
    """Return values as ECSV has them: the shortest that reads back as the same, and "" for none."""
    if pt.is_boolean(column.type):
        values = column.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 -- the value
        texts = pa.array(np.where(values, "True", "False"))
    elif pt.is_string(column.type) or pt.is_large_string(column.type):
        words = column.fill_null("").to_pylist()
        texts = pa.array([quoted(word, BLANK) for word in words], pa.string())
    else:
        texts = column.cast(pa.string())
    return pc.if_else(column.is_valid(), texts, '""').cast(pa.string())
