"""Annotated copies of text tables: every record as it was, with its new values behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import DamagedFileError
from catalogs.files.atomic import atomic_path
from catalogs.files.compressed import reading, writing_like
from catalogs.text._records import Dialect, blocks, is_data

__all__ = ["Values", "append_values", "quoted", "value_lines"]

LEAD = re.compile(rb"(?:\xef\xbb\xbf)?(?:#[# ]*)?")
"""A byte-order mark, and what makes a comment of the line of names."""

Values = Mapping[str, np.ndarray[Any, Any]]


def append_values(
    source: Path,
    out: Path,
    dialect: Dialect,
    columns: Sequence[NewColumn],
    values: Iterator[bytes],
    *,
    header: Callable[[list[bytes]], list[bytes]],
    kept: Collection[str] | None = None,
    slim: bool = False,
) -> None:
    """Write a copy of `source` to `out`: one of `values` behind each row, `header` for what stands above.

    `kept` are the old columns that stay, all where it is None; a `slim` copy has no comments.
    """
    cut = Cut(dialect, None if kept is None else [i for i, n in enumerate(dialect.names) if n in kept])
    names = dialect.delimiter.join(quoted(c.name, dialect.delimiter) for c in columns).encode()
    above: list[bytes] | None = []
    with atomic_path(out) as temporary, reading(source) as old, writing_like(temporary, source) as new:
        for block in blocks(old, dialect, source):
            if above is None and cut.stay is None and block.plain and block.end is not None:
                new.write(beside(block.data, block.end, dialect.delimiter.encode(), values, source))
                continue
            written = []
            for record in block.records:
                if above is not None and len(above) < dialect.header:
                    above.append(record)
                elif above is not None:
                    written += [*header(above), cut.appended(record, names)]
                    above = None
                elif is_data(record):
                    written.append(cut.appended(record, *taken(values, 1, source)))
                elif not slim:
                    written.append(record)
            new.write(b"".join(written))
        if next(values, None) is not None:
            raise ValueError(f"compute returned more rows than {source} has")


def beside(lines: bytes, end: bytes, mark: bytes, values: Iterator[bytes], source: Path) -> bytes:
    """Return lines that are rows, each with its values behind it."""
    rows = lines.splitlines()
    written = end.join(map(mark.join, zip(rows, taken(values, len(rows), source), strict=True)))
    return written + end if lines.endswith(end) else written


def taken(values: Iterator[bytes], n: int, source: Path) -> list[bytes]:
    """Return the next n values; DamagedFileError where there are fewer."""
    block = list(islice(values, n))
    if len(block) < n:
        raise DamagedFileError(
            f"{source} has more rows than when it was opened, expected it to stay unchanged; open it again "
            "when it is complete"
        )
    return block


@dataclass(frozen=True)
class Cut:
    """Which fields of a record stay: all where `stay` is None."""

    dialect: Dialect
    stay: Sequence[int] | None

    def appended(self, record: bytes, text: bytes) -> bytes:
        """Return a record's fields that stay, with text behind them; what begins and ends the line is kept."""
        end = len(record.rstrip(b"\r\n"))
        mark = self.dialect.delimiter.encode()
        if self.stay is None:
            return record[:end] + mark + text + record[end:]
        start = next(m.end() for m in LEAD.finditer(record))  # it matches nothing, if nothing is there
        fields = self.dialect.raw_fields(record[start:end])
        return record[:start] + mark.join([*(fields[i] for i in self.stay), text]) + record[end:]


def value_lines(values: Values, columns: Sequence[NewColumn], delimiter: str, *, nan: str) -> list[bytes]:
    """Return each row's new values, as they stand behind the old ones."""
    texts = [written(values[c.name], c.datatype, delimiter, nan) for c in columns]
    lines: list[bytes] = pc.cast(pc.binary_join_element_wise(*texts, delimiter), pa.binary()).to_pylist()
    return lines


def written(values: np.ndarray[Any, Any], datatype: pa.DataType, delimiter: str, nan: str) -> pa.Array:
    """Return values as text: the shortest that reads back as the same number."""
    if pt.is_string(datatype):
        words = {word: quoted(word, delimiter) for word in set(values.tolist())}
        return pa.array([words[word] for word in values.tolist()], pa.string())
    if pt.is_boolean(datatype):
        return pa.array(np.where(values, "True", "False"))
    array = pa.array(values, datatype)
    texts = pc.cast(array, pa.string())
    return pc.if_else(pc.is_nan(array), nan, texts) if pt.is_floating(datatype) else texts


def quoted(word: str, delimiter: str) -> str:
    """Return a word in quotation marks where it needs them."""
    special = {'"', "\r", "\n", "#", delimiter} & set(word)
    needed = special or (delimiter == " " and not word)
    return '"' + word.replace('"', '""') + '"' if needed else word
