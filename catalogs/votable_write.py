"""How a VOTable is written: the document by astropy, the rows of its tables by us, some thousands at a time."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from astropy.io.votable.tree import Field, Resource, TableElement, VOTableFile

from catalogs.computing import Computed, NewValues
from catalogs.votable_binary import row_bytes, stored_type
from catalogs.votable_rows import Rows
from catalogs.votable_stream import encoded

__all__ = ["Content", "NewRows", "prepare_texts", "write"]

Array = np.ndarray[Any, Any]

OLDEST_WITH_BINARY2 = "1.3"
WRITTEN_VERSION = "1.3"
"""Not a later one: from 1.4 on units are spelt in another way, and those of older files would not be kept."""

ROWS = re.compile(rb'(?<=<STREAM encoding="base64">)(\s*)[A-Za-z0-9+/=]+(?=\s*</STREAM>)')
COUNT = re.compile(rb'(?<=\snrows=")\d+(?=")')
OPENING = b"<TABLE"


class NewRows:
    """New values, given batch by batch, taken in other numbers of rows."""

    def __init__(self, batches: Iterator[Computed]) -> None:
        self.batches = batches
        self.waiting: list[NewValues] = []

    def take(self, n: int, names: Sequence[str]) -> list[Array]:
        """Return the next n values of the named columns."""
        found: list[list[Array]] = [[] for _ in names]
        while n:
            values = self.waiting.pop() if self.waiting else next(self.batches)[1]
            size = len(values[names[0]])
            for name, parts in zip(names, found, strict=True):
                parts.append(values[name][:n])
            if size > n:
                self.waiting.append({name: values[name][n:] for name in names})
            n -= min(n, size)
        return [np.concatenate(parts) for parts in found]


@dataclass(frozen=True)
class Content:
    """What is written of a table: the old fields of those numbers, and behind them the new ones."""

    rows: Rows
    old: Sequence[int]
    names: Sequence[str] = ()
    new: NewRows | None = None

    def pieces(self, fields: Sequence[Field]) -> Iterator[bytes]:
        """Yield the rows as BINARY2."""
        for block in self.rows.blocks(self.old):
            added = self.new.take(len(block[0]), self.names) if self.new is not None else []
            yield row_bytes(fields, [*block, *added])


def prepare_texts(table: TableElement, rows: Rows) -> None:
    """Make fields such that BINARY2 holds all of their texts, as TABLEDATA does whatever its fields say."""
    for number, (is_ascii, longest) in rows.unfit_texts().items():
        field = table.fields[number]
        if not is_ascii:
            field.datatype = "unicodeChar"
        if stored_type(field) is not None and longest > int(field.arraysize):
            field.arraysize = str(longest)


def write(file: VOTableFile, stream: IO[bytes], contents: Mapping[TableElement, Content]) -> None:
    """Write a document, its tables with those contents, as BINARY2."""
    if file.version < OLDEST_WITH_BINARY2:
        file.version = WRITTEN_VERSION
    filled = [t for r in file.resources for t in as_written(r) if contents[t].rows.n_rows]
    for table in filled:
        table.array = one_row(table)
    document = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.to_xml(document, tabledata_format="binary2")
    text, at = document.getvalue(), 0
    for place, table in zip(ROWS.finditer(text), filled, strict=True):
        content = contents[table]
        stream.write(counted(text[at : place.end(1)], content.rows.n_rows))
        for piece in encoded(content.pieces(table.fields)):
            stream.write(piece)
        at = place.end()
    stream.write(text[at:])


def as_written(resource: Resource) -> Iterator[TableElement]:
    """Yield the tables of a resource in the order in which astropy writes them."""
    meta = [r for r in resource.resources if r.type == "meta"]
    for inner in meta:
        yield from as_written(inner)
    yield from resource.tables
    for inner in resource.resources:
        if inner not in meta:
            yield from as_written(inner)


def one_row(table: TableElement) -> Array:
    """Return a row in whose place all others are put."""
    record = np.dtype([(str(i), f.converter.format) for i, f in enumerate(table.fields)])
    row = np.ma.zeros(1, record)
    for name in record.names or ():
        if record[name].kind == "O":
            row.data[name] = None
    return row


def counted(text: bytes, n_rows: int) -> bytes:
    """Return the text with the number of rows, if it tells one, in the tag of the last table that it begins."""
    at = text.rindex(OPENING)
    end = text.index(b">", at)
    return text[:at] + COUNT.sub(b"%d" % n_rows, text[at:end]) + text[end:]
