"""ASCII tables as binary ones: their cards, and their rows.

FITS Standard 4.0, section 7.2.  Integers become J or K, real numbers D.  A field that is blank, or that holds the
text of TNULL, has no value: it becomes a null integer, NaN, or an empty text, and not zero as in Fortran.
Null integers are stored as the smallest of their type, which no measurement has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from catalogs.errors import DamagedFileError
from catalogs.fits.columns import MAX_FIELDS
from catalogs.fits.header import Hdu, Header
from catalogs.fits.source import Bytes, Source
from catalogs.metadata.fits_cards import integer_card, text_cards

__all__ = ["ASCII_TABLE", "binary_cards", "write_data"]

ASCII_TABLE = "TABLE"

FORM = re.compile(r"([AIFED])(\d+)(?:\.\d+)?")
REWRITTEN = re.compile(rb"(?:TFORM|TBCOL|TNULL)[1-9]\d* *=|CHECKSUM=|DATASUM *=")
NARROW = 9
"""Digits of an integer that 32 bits hold, whatever they are."""
BLOCK_ROWS = 1 << 14


@dataclass(frozen=True)
class _Field:
    """A field: where its characters are, and what becomes of it."""

    number: int
    name: str
    start: int
    width: int
    code: str
    null: bytes | None

    @property
    def stored(self) -> np.dtype[Any]:
        """How the binary table stores it."""
        if self.code == "A":
            return np.dtype(f"S{self.width}")
        if self.code == "I":
            return np.dtype(">i4" if self.width <= NARROW else ">i8")
        return np.dtype(">f8")

    @property
    def left_out(self) -> int | float | bytes:
        """What stands for a value that is not there."""
        if self.code == "I":
            return int(np.iinfo(self.stored).min)
        return b"" if self.code == "A" else np.nan

    def cards(self) -> Iterator[bytes]:
        """Yield the cards that differ from the ASCII table's."""
        form = {"S": f"{self.width}A", "i": "J" if self.stored.itemsize == 4 else "K", "f": "D"}[
            self.stored.kind
        ]
        yield from text_cards(f"TFORM{self.number}", form)
        if isinstance(self.left_out, int):
            yield integer_card(f"TNULL{self.number}", self.left_out)

    def values(self, rows: Bytes) -> npt.NDArray[Any]:
        """Return the values of some rows of characters."""
        raw = np.ascontiguousarray(rows[:, self.start : self.start + self.width])
        whole = raw.view(f"S{self.width}").reshape(-1)
        text: npt.NDArray[np.bytes_] = np.strings.strip(whole)
        left_out = text == b""
        if self.null is not None:
            left_out |= text == self.null
        if self.code == "A":
            text = np.strings.rstrip(whole)  # blanks at its begin are part of a text
        else:
            text = np.where(left_out, b"0", np.strings.replace(np.strings.upper(text), b"D", b"E"))
        values = text.astype(self.stored)
        values[left_out] = self.left_out
        return values


def binary_cards(hdu: Hdu) -> list[bytes]:
    """Return the cards of the binary table."""
    fields = _fields(hdu)
    return _cards(hdu, fields, _row(fields).itemsize)


def write_data(source: Source, hdu: Hdu, stream: IO[bytes]) -> int:
    """Write the rows of the binary table; return their bytes."""
    fields = _fields(hdu)
    _write_rows(source, stream, hdu, fields, _row(fields))
    return hdu.header.integer("NAXIS2") * _row(fields).itemsize


def _row(fields: Sequence[_Field]) -> np.dtype[Any]:
    return np.dtype([(str(field.number), field.stored) for field in fields])


def _write_rows(
    source: Source, stream: IO[bytes], hdu: Hdu, fields: Sequence[_Field], row: np.dtype[Any]
) -> None:
    n_rows, width = hdu.header.integer("NAXIS2"), hdu.header.integer("NAXIS1")
    for start in range(0, n_rows, BLOCK_ROWS):
        n = min(BLOCK_ROWS, n_rows - start)
        rows = source.read(hdu.data_offset + start * width, n * width).reshape(n, width)
        block = np.empty(n, row)
        for field in fields:
            try:
                block[str(field.number)] = field.values(rows)
            except (ValueError, OverflowError) as error:
                raise DamagedFileError(
                    f"{hdu.header.where}: column '{field.name}' has a value that is not a number in rows "
                    f"{start:,} to {start + n:,}: {error}; correct it, or get another copy"
                ) from error
        stream.write(block.view(np.uint8).data)


def _fields(hdu: Hdu) -> tuple[_Field, ...]:
    header = hdu.header
    shape = header.integer("NAXIS"), header.value("BITPIX"), header.integer("PCOUNT", 0)
    n_fields, width = header.integer("TFIELDS"), header.integer("NAXIS1")
    if shape != (2, 8, 0) or n_fields > MAX_FIELDS or not width > 0:
        raise DamagedFileError(
            f"{header.where}: NAXIS, BITPIX, PCOUNT are {shape}, TFIELDS {n_fields}, NAXIS1 {width}; expected "
            f"(2, 8, 0), at most {MAX_FIELDS}, at least 1: get another copy"
        )
    return tuple(_field(header, n, width) for n in range(1, n_fields + 1))


def _field(header: Header, n: int, row_width: int) -> _Field:
    form, start = header.text(f"TFORM{n}") or "", header.integer(f"TBCOL{n}") - 1
    parts = FORM.fullmatch(form.strip().upper())
    if not parts or int(parts[2]) == 0 or start < 0 or start + int(parts[2]) > row_width:
        raise DamagedFileError(
            f"{header.where}: TFORM{n} is {form!r} and TBCOL{n} {start + 1}; expected a form as in 'F8.3' within "
            f"the {row_width} characters of a row: get another copy"
        )
    null = header.text(f"TNULL{n}")
    name = header.text(f"TTYPE{n}") or f"col{n}"
    return _Field(n, name, start, int(parts[2]), parts[1], None if null is None else null.strip().encode())


def _cards(hdu: Hdu, fields: Sequence[_Field], row_bytes: int) -> list[bytes]:
    """Return the cards of the binary table: the old ones, but for those that describe characters."""
    cards: list[bytes] = []
    for card in hdu.header.cards:
        if card.startswith(b"XTENSION="):
            cards += text_cards("XTENSION", "BINTABLE", "binary table extension")
        elif card.startswith(b"NAXIS1  ="):
            cards.append(integer_card("NAXIS1", row_bytes, "width of table in bytes"))
        elif not REWRITTEN.match(card):
            cards.append(card)
        if card.startswith(b"TFIELDS ="):
            cards += [c for field in fields for c in field.cards()]
    return cards
