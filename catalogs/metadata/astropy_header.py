"""The YAML header that astropy gives ECSV files, and Parquet files as `table_meta_yaml`.

Read with plain values only: what YAML tags as some other object is taken as the text or mapping that it
is written as.  Additions are put into the text, so that all else in it stays as it was.
https://github.com/astropy/astropy-APEs/blob/main/APE6.rst
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from catalogs.catalog.catalog import Column
from catalogs.catalog.new_columns import NewColumn
from catalogs.metadata.plain_yaml import read_yaml

__all__ = [
    "ASTROPY",
    "ASTROPY_LENGTH",
    "META",
    "EcsvHeaderError",
    "Entry",
    "Item",
    "add_entries",
    "ecsv_type",
    "entry_line",
    "read_entries",
    "read_items",
    "remove_entries",
    "with_items",
]

ASTROPY = "table_meta_yaml"
ASTROPY_LENGTH = "table::len::"


META = "meta: !!omap"


UNREADABLE = (KeyError, TypeError, AttributeError, ValueError)
"""What reading a text that is no header meets."""


class EcsvHeaderError(ValueError):
    """The text is no header that can be read."""


@dataclass(frozen=True)
class Entry:
    """What the header says of a column."""

    name: str
    datatype: str = "string"
    subtype: str | None = None
    unit: str | None = None
    ucd: str | None = None
    description: str | None = None
    format: str | None = None
    has_meta: bool = False  # whether more is said of it than its UCD


@dataclass(frozen=True)
class Item:
    """A key of the table's metadata, its value without objects, and the lines that say both; none in one long line."""

    key: str
    value: Any
    lines: tuple[str, ...] = ()


def read_entries(text: str) -> tuple[Entry, ...]:
    """Return the columns that a header describes."""
    try:
        header = read_yaml(text)
        return tuple(entry(e) for e in header["datatype"])
    except UNREADABLE as error:
        raise EcsvHeaderError(f"no header in YAML: {error}") from None


def read_items(text: str) -> list[Item]:
    """Return the table's metadata, key by key; their lines too, where it is the ordered mapping that astropy writes."""
    try:
        meta = read_yaml(text).get("meta") or {}
        pairs = [(str(key), value) for key, value in dict(meta).items()]
    except UNREADABLE as error:
        raise EcsvHeaderError(f"no header in YAML: {error}") from None
    lines = text.split("\n")
    blocks: list[list[str]] = []
    for line in lines[lines.index(META) + 1 :] if META in lines else []:
        if line.startswith("- "):
            blocks.append([])
        elif not blocks or not line.startswith(" "):
            break
        blocks[-1].append(line)
    if len(blocks) != len(pairs):
        return [Item(*pair) for pair in pairs]
    return [Item(*pair, tuple(block)) for pair, block in zip(pairs, blocks, strict=True)]


def with_items(text: str, items: Sequence[Item]) -> str:
    """Return a header of the columns in `text` and of these items."""
    lines = text.split("\n")
    end = next((i for i, line in enumerate(lines) if i and not line.startswith(("-", " "))), len(lines))
    return "\n".join([*lines[:end], META, *(line for item in items for line in item.lines)])


def entry(column: Any) -> Entry:
    """Return one column's entry."""
    meta = dict(column.get("meta") or {})  # an ordered mapping arrives as pairs
    known = {key: column.get(key) for key in ("subtype", "unit", "description", "format")}
    known["ucd"] = meta.get("ucd", meta.get("UCD"))
    texts = {key: str(value) if value else None for key, value in known.items()}
    more = bool(meta.keys() - {"ucd", "UCD"})
    return Entry(str(column["name"]), str(column["datatype"]), has_meta=more, **texts)


def add_entries(text: str, new: Sequence[str]) -> str:
    """Return the header with lines added behind the last column's."""
    lines = text.split("\n")
    if "datatype:" not in lines:
        raise EcsvHeaderError("no 'datatype:' in the header")
    end = lines.index("datatype:") + 1
    while end < len(lines) and lines[end].startswith(("-", " ")):
        end += 1
    return "\n".join([*lines[:end], *new, *lines[end:]])


def remove_entries(text: str, names: Collection[str]) -> str:
    """Return the header without the columns of those names."""
    lines = text.split("\n")
    if "datatype:" not in lines:
        raise EcsvHeaderError("no 'datatype:' in the header")
    first = lines.index("datatype:") + 1
    kept, going = lines[:first], False
    for i, line in enumerate(lines[first:], first):
        if line.startswith("- "):
            end = next((j for j in range(i + 1, len(lines)) if not lines[j].startswith(" ")), len(lines))
            (item,) = read_entries("datatype:\n" + "\n".join(lines[i:end]))
            going = item.name in names
        elif not line.startswith(" "):
            return "\n".join([*kept, *lines[i:]])
        if not going:
            kept.append(line)
    return "\n".join(kept)


def entry_line(column: Column | NewColumn) -> str:
    """Return a column as one line of YAML, for JSON's quotes are YAML's too."""
    parts = {"name": column.name, "unit": column.unit, "datatype": ecsv_type(column.datatype)}
    parts |= {"description": column.description}
    text = ", ".join(f"{key}: {json.dumps(value)}" for key, value in parts.items() if value)
    return f"- {{{text}, meta: {{ucd: {json.dumps(column.ucd)}}}}}" if column.ucd else f"- {{{text}}}"


def ecsv_type(datatype: pa.DataType) -> str:
    """Return the header's name of a type; text for what it does not know."""
    while pt.is_fixed_size_list(datatype) or pt.is_list(datatype) or pt.is_dictionary(datatype):
        datatype = datatype.value_type
    if pt.is_boolean(datatype):
        return "bool"
    numeric = pt.is_integer(datatype) or pt.is_floating(datatype)
    return np.dtype(datatype.to_pandas_dtype()).name if numeric else "string"
