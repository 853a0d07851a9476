"""How a VOTable is written: the document by astropy, the rows of its tables by us, some thousands at a time.

Rows are written as BINARY2.  Those of TABLEDATA stay that where a field is one bit: STILTS reads it there only.
"""

from __future__ import annotations

import io
import re
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import IO

import numpy as np
from astropy.io.votable.tree import Field, Resource, TableElement, VOTableFile

from catalogs.catalog.computing import Computed, NewValues
from catalogs.votable._binary import Array, Cells, encoded, row_bytes, stored_type
from catalogs.votable._document import Originals
from catalogs.votable._rows import Rows
from catalogs.votable._tabledata import is_one_bit, text_rows

__all__ = ["Content", "NewRows", "prepare_bits", "prepare_texts", "write"]

OLDEST_WITH_BINARY2 = "1.3"
WRITTEN_VERSION = "1.3"
"""Not a later one: from 1.4 on units are spelt in another way, and those of older files would not be kept."""

ROWS = re.compile(rb'(<BINARY2>\s*<STREAM encoding="base64">\s*)[A-Za-z0-9+/=]+(\s*</STREAM>\s*</BINARY2>)')
COUNT = re.compile(rb'(?<=\snrows=")\d+(?=")')
OPENING = b"<TABLE"


class NewRows:
    """Rows that are read once, and wait here for their new values, which arrive in batches of another size."""

    def __init__(self, blocks: Iterable[list[Cells]], names: Sequence[str]) -> None:
        self.blocks = blocks
        self.names = names
        self.waiting: deque[list[Cells]] = deque()
        self.new_values: deque[NewValues] = deque()
        self.n_new = 0

    def read(self) -> Iterator[list[Cells]]:
        """Yield the cells of some rows at a time, for what is computed of them."""
        for block in self.blocks:
            self.waiting.append(block)
            yield block

    def completed(self, computed: Iterable[Computed], n_old: int) -> Iterator[list[Cells]]:
        """Yield the first cells of some rows at a time, and behind them the new values."""
        for batch, values in computed:
            if self.names:
                self.new_values.append(values)
            self.n_new += batch.num_rows
            while self.waiting and len(self.waiting[0][0]) <= self.n_new:
                block = self.waiting.popleft()
                yield [*block[:n_old], *self.take(len(block[0]))]

    def take(self, n: int) -> list[Array]:
        """Return the next n values of each new column."""
        self.n_new -= n
        columns: list[list[Array]] = [[] for _ in self.names]
        while n and self.names:
            values = self.new_values.popleft()
            size = len(values[self.names[0]])
            for name, parts in zip(self.names, columns, strict=True):
                parts.append(values[name][:n])
            if size > n:
                self.new_values.appendleft({name: values[name][n:] for name in self.names})
            n -= min(n, size)
        return [np.concatenate(parts) for parts in columns]


@dataclass(frozen=True)
class Content:
    """What is written of a table: its rows, of which `blocks` gives the cells of all fields, some rows at a time.

    They are written as TABLEDATA where `as_text` is true, else as BINARY2.
    """

    n_rows: int
    blocks: Iterable[list[Cells]]
    as_text: bool = False

    def pieces(self, fields: Sequence[Field]) -> Iterator[bytes]:
        """Yield the rows as they are written."""
        if self.as_text:
            return (text_rows(fields, block) for block in self.blocks)
        return encoded(row_bytes(fields, block) for block in self.blocks)


def prepare_bits(table: TableElement, rows: Rows) -> bool:
    """Make single bits such that STILTS reads them; return whether the rows are to be TABLEDATA, as they are.

    Those that were stored as bits become truth values, for only in BINARY2 their nulls and all texts are kept.
    """
    bits = [i for i, field in enumerate(table.fields) if is_one_bit(field)]
    if rows.are_text:
        return bool(bits)
    for i in bits:
        table.fields[i] = copy(table.fields[i])  # the rows are read by the old one
        table.fields[i].datatype = "boolean"
    return False


def prepare_texts(table: TableElement, rows: Rows) -> None:
    """Make fields such that BINARY2 holds all of their texts, as TABLEDATA does whatever its fields say."""
    for number, (is_ascii, longest) in rows.unfit_texts().items():
        field = table.fields[number]
        if not is_ascii:
            field.datatype = "unicodeChar"
        if stored_type(field) is not None and longest > int(field.arraysize):
            field.arraysize = str(longest)


def write(
    file: VOTableFile, stream: IO[bytes], contents: Mapping[TableElement, Content], originals: Originals
) -> None:
    """Write a document, its tables with those contents, its originals as they were."""
    if file.version < OLDEST_WITH_BINARY2:
        file.version = WRITTEN_VERSION
    filled = [t for r in file.resources for t in as_written(r) if contents[t].n_rows]
    for table in filled:
        table.array = one_row(table)
    originals.mark_new(file)
    document = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.to_xml(document, tabledata_format="binary2")
    text, at = originals.restored(document.getvalue(), file), 0
    for place, table in zip(ROWS.finditer(text), filled, strict=True):
        content = contents[table]
        begin, end = (b"<TABLEDATA>\n", b"</TABLEDATA>") if content.as_text else place.groups()
        stream.write(counted(text[at : place.start()], content.n_rows) + begin)
        for piece in content.pieces(table.fields):
            stream.write(piece)
        stream.write(end)
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
