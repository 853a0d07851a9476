"""Tables that are no plain binary table, ASCII or tile-compressed: made one in an unnamed file."""

from __future__ import annotations

import functools
import io
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from catalogs.errors import CatalogError, DamagedFileError, FormatError
from catalogs.files.atomic import StorageError
from catalogs.files.reading import Stamp
from catalogs.fits.columns import MAX_FIELDS, FitsColumn, Table, column_of, field_type, heap_cells, table_of
from catalogs.fits.header import (
    KEEP_FREE,
    MAX_INFLATED,
    Bytes,
    Hdu,
    Header,
    OnesSum,
    Source,
    Unnamed,
    open_source,
    read_hdus,
)
from catalogs.metadata.fits_cards import header_bytes, integer_card, padding, text_cards

# FITS Standard 4.0, section 7.2.  Integers become J or K, real numbers D.  A field that is blank, or that holds the
# text of TNULL, has no value: it becomes a null integer, NaN, or an empty text, and not zero as in Fortran.
# Null integers are stored as the smallest of their type, which no measurement has.

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


def ascii_cards(hdu: Hdu) -> list[bytes]:
    """Return the cards of the binary table."""
    fields = _fields(hdu)
    return _cards(hdu, fields, _row(fields).itemsize)


def write_ascii_rows(source: Source, hdu: Hdu, stream: IO[bytes]) -> int:
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


# FITS Standard 4.0, section 10.3: a row holds a tile of many rows, each column of it compressed for itself as GZIP_1
# (the bytes), GZIP_2 (the bytes sorted by significance) or RICE_1.

GONE = re.compile(
    rb"(?:ZFORM|ZCTYP)[1-9]\d* *=|(?:ZTABLE|ZTILELEN|ZNAXIS[12]|ZPCOUNT|ZHECKSUM|ZDATASUM|CHECKSUM|DATASUM) *="
)
SIZES = {b"NAXIS1": "ZNAXIS1", b"NAXIS2": "ZNAXIS2", b"PCOUNT": "ZPCOUNT"}
MAX_TILE = 1 << 30
"""Bytes of a tile: writers make them of some ten million."""

SHUFFLED = {"I": 2, "J": 4, "K": 8, "E": 4, "D": 8}
"""Bytes of the numbers that GZIP_2 takes apart; `fpack` says it of complex ones too, and leaves them together."""

RICE_BYTES = {"B": 1, "I": 2, "J": 4}
RICE_BLOCK = 32


def is_compressed(hdu: Hdu) -> bool:
    """Say whether an HDU is a tile-compressed table."""
    return "ZTABLE" in hdu.header


def decompressed_cards(hdu: Hdu) -> list[bytes]:
    """Return the cards of the table as it was: forms and sizes restored, the words of compression gone."""
    cards: list[bytes] = []
    for card in hdu.header.cards:
        keyword = card[:8].rstrip()
        if keyword in SIZES:
            name = keyword.decode()
            size = hdu.header.integer(SIZES[keyword])
            cards.append(integer_card(name, size, hdu.header.comment(name)))
        elif match := re.fullmatch(rb"TFORM(\d+)", keyword):
            form = hdu.header.text(f"ZFORM{match[1].decode()}") or ""
            cards += text_cards(keyword.decode(), form)
        elif not GONE.match(card):
            cards.append(card)
    return cards


def write_decompressed_rows(source: Source, hdu: Hdu, stream: IO[bytes]) -> int:
    """Write the rows; return their bytes."""
    tiles, total = Tiles.of(hdu), OnesSum()
    _check_room(source, tiles.n_rows * tiles.row_bytes)
    for number in range(tiles.table.n_rows):
        rows = tiles.rows(source, number)
        total.add(rows)
        stream.write(rows.data)
    _check_sum(hdu, total)
    return tiles.n_rows * tiles.row_bytes


def _check_sum(hdu: Hdu, total: OnesSum) -> None:
    """Raise where the checksum in the header shows that the rows are not those that were compressed."""
    said = hdu.header.text("ZDATASUM")
    if said is not None and said.isdigit() and int(said) != total.value:
        raise DamagedFileError(
            f"{hdu.header.where}: the decompressed rows have the sum {total.value}, expected {said} by ZDATASUM; the "
            "file is damaged: get another copy"
        )


def _check_room(source: Source, n_bytes: int) -> None:
    folder = tempfile.gettempdir()
    if n_bytes > MAX_INFLATED:
        raise CatalogError(
            f"{source.path} has {n_bytes:,} bytes after decompression, expected at most {MAX_INFLATED:,}; "
            "run `funpack` on the file, and open the result"
        )
    if shutil.disk_usage(folder).free < KEEP_FREE + n_bytes:
        raise StorageError(
            f"not enough space in {folder} to decompress {source.path}, which takes {n_bytes:,} bytes; set "
            "TMPDIR to a folder on another disk"
        )


@dataclass(frozen=True)
class Tiles:
    """A compressed table: its cells are tiles of columns of the table that it was."""

    hdu: Hdu
    table: Table
    columns: tuple[FitsColumn, ...]
    algorithms: tuple[str, ...]
    n_rows: int
    row_bytes: int
    length: int

    @classmethod
    def of(cls, hdu: Hdu) -> Tiles:
        """Read the sizes from a header, and check that they are consistent."""
        header, table = hdu.header, table_of(hdu)
        sizes = {key: header.integer(key) for key in ("ZNAXIS1", "ZNAXIS2", "ZTILELEN")}
        columns, offset = [], 0
        for n in range(1, len(table.columns) + 1):
            columns.append(column_of(header, n, offset, keyword="ZFORM"))
            offset += columns[-1].n_bytes
        tiles = -(-sizes["ZNAXIS2"] // max(1, sizes["ZTILELEN"]))
        plain = all(c.heap and c.code == "B" for c in table.columns)
        if offset != sizes["ZNAXIS1"] or tiles != table.n_rows or not plain:
            raise DamagedFileError(
                f"{header.where}: the header of this compressed table of {table.n_rows:,} tiles states {sizes}, but "
                f"its columns take {offset:,} bytes in each row; the file is damaged: get another copy"
            )
        if sizes["ZTILELEN"] * sizes["ZNAXIS1"] > MAX_TILE or any(c.heap for c in columns):
            raise FormatError(
                f"{header.where} is a tile-compressed table with cells of variable length or with very large "
                "tiles, which cannot be read here; run `funpack` on the file, and open the result"
            )
        algorithms = tuple(header.text(f"ZCTYP{n}") or "" for n in range(1, len(columns) + 1))
        return cls(
            hdu, table, tuple(columns), algorithms, sizes["ZNAXIS2"], sizes["ZNAXIS1"], sizes["ZTILELEN"]
        )

    def rows(self, source: Source, number: int) -> Bytes:
        """Return the rows of a tile, as they were."""
        n = min(self.length, self.n_rows - number * self.length)
        rows = np.empty((n, self.row_bytes), np.uint8)
        for i, column in enumerate(self.columns):
            cells = self.cells(self.packed(source, number, i), i, n)
            rows[:, column.offset : column.offset + column.n_bytes] = cells.reshape(n, column.n_bytes)
        return rows.reshape(-1)

    @cached_property
    def descriptors(self) -> np.dtype[Any]:
        """A row of the compressed table."""
        return np.dtype([(str(i), field_type(c)) for i, c in enumerate(self.table.columns)])

    def packed(self, source: Source, number: int, i: int) -> bytes:
        """Return the compressed bytes of a column's tile."""
        row = source.read(self.hdu.data_offset + number * self.table.row_bytes, self.table.row_bytes)
        place = row.view(self.descriptors)[str(i)].astype(np.int64)
        # TZERO and TNULL are those of the column that it was, not of these bytes.
        stored = replace(self.table.columns[i], scale=1.0, zero=0.0, null=None)
        cell = heap_cells(source, self.table, stored, place)
        return cell.flatten().to_numpy(zero_copy_only=False).tobytes()

    def cells(self, packed: bytes, i: int, n: int) -> Bytes:
        """Return the cells of a tile's n rows in a column, as they were."""
        column, algorithm, size = self.columns[i], self.algorithms[i], n * self.columns[i].n_bytes
        if not size:
            return np.empty(0, np.uint8)
        if algorithm == "RICE_1" and column.code in RICE_BYTES:
            return self.checked(riced(packed, n * column.repeat, RICE_BYTES[column.code]), i, size)
        if algorithm not in {"GZIP_1", "GZIP_2", "NOCOMPRESS"}:
            raise FormatError(
                f"{self.hdu.header.where}: '{column.name}' is compressed by '{algorithm}', expected GZIP_1, "
                "GZIP_2 or RICE_1; run `funpack` on the file, and open the result"
            )
        raw = self.checked(packed if algorithm == "NOCOMPRESS" else unzipped(packed, size), i, size)
        width = SHUFFLED.get(column.code, 1)
        if algorithm == "GZIP_2" and width > 1:
            raw = raw.reshape(width, size // width).T.reshape(-1)
        return raw

    def checked(self, raw: bytes | None, i: int, size: int) -> Bytes:
        """Return the bytes of a tile if they are all there."""
        if raw is None or len(raw) != size:
            raise DamagedFileError(
                f"{self.hdu.header.where}: a tile of '{self.columns[i].name}' cannot be decompressed to {size:,} "
                "bytes; the file is damaged: get another copy"
            )
        return np.frombuffer(raw, np.uint8)


def unzipped(packed: bytes, size: int) -> bytes | None:
    """Return up to one byte more than expected; None where the bytes cannot be decompressed."""
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, size + 1)
    except zlib.error:
        return None


def riced(packed: bytes, n: int, width: int) -> bytes | None:
    """Return n integers: for astropy, which knows Rice for images only, they are an image of one tile."""
    cards: dict[str, Any] = {
        "XTENSION": "BINTABLE", "BITPIX": 8, "NAXIS": 2, "NAXIS1": 8, "NAXIS2": 1, "PCOUNT": len(packed),
        "GCOUNT": 1, "TFIELDS": 1, "TTYPE1": "COMPRESSED_DATA", "TFORM1": f"1PB({len(packed)})",
        "ZIMAGE": True, "ZCMPTYPE": "RICE_1", "ZBITPIX": 8 * width, "ZNAXIS": 1, "ZNAXIS1": n, "ZTILE1": n,
        "ZNAME1": "BLOCKSIZE", "ZVAL1": RICE_BLOCK, "ZNAME2": "BYTEPIX", "ZVAL2": width,
    }  # fmt: skip
    from astropy.io import fits as astropy_fits  # noqa: PLC0415 - slow to import, and few files are compressed so

    header = astropy_fits.Header(cards.items()).tostring(endcard=True, padding=True).encode()
    primary = astropy_fits.PrimaryHDU().header.tostring().encode()
    data = np.array([len(packed), 0], ">i4").tobytes() + packed
    file = io.BytesIO(primary + header + data.ljust(len(data) + -len(data) % 2880, b"\0"))
    try:
        with astropy_fits.open(file) as hdus:
            values = hdus[1].data
    except Exception:  # noqa: BLE001 -- astropy's C code raises a type of its own, of a private module
        return None
    return (
        None if values is None else np.asarray(values).astype(f">i{width}" if width > 1 else "u1").tobytes()
    )


# From that file all else goes on as usual; the other HDUs are in it as they are.


def is_plain(hdu: Hdu) -> bool:
    """Say whether a table's rows can be read as they are."""
    return hdu.kind != ASCII_TABLE and not is_compressed(hdu)


@contextmanager
def open_tables(path: Path, expected: Stamp, number: int | None = None) -> Iterator[Source]:
    """Open a file in which the HDU of that number has become a plain binary table."""
    if number is None:
        with open_source(path, expected) as source:
            yield source
        return
    with open_source(path, expected):  # it is still the same
        restored = _restored(path, expected, number)
    yield restored.source(path)


@functools.lru_cache(maxsize=4)
def _restored(path: Path, expected: Stamp, number: int) -> Unnamed:
    with open_source(path, expected) as source, tempfile.TemporaryFile() as stream:
        hdu = read_hdus(source)[number]
        packed = is_compressed(hdu)
        for piece in source.pieces(0, hdu.header.offset):
            stream.write(piece.data)
        stream.write(header_bytes(decompressed_cards(hdu) if packed else ascii_cards(hdu)))
        n_bytes = (write_decompressed_rows if packed else write_ascii_rows)(source, hdu, stream)
        stream.write(bytes(padding(n_bytes)))
        for piece in source.pieces(min(hdu.end, source.size), source.size):
            stream.write(piece.data)
        return Unnamed.of(stream)
