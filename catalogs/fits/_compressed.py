"""Tile-compressed tables, as `fpack` makes them: their cards and their rows as they were before.

FITS Standard 4.0, section 10.3: a row holds a tile of many rows, each column of it compressed for itself as GZIP_1
(the bytes), GZIP_2 (the bytes sorted by significance) or RICE_1.
"""

from __future__ import annotations

import io
import re
import shutil
import tempfile
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import IO, Any

import numpy as np

from catalogs.errors import CatalogError, DamagedFileError, FormatError
from catalogs.files.atomic import StorageError
from catalogs.fits._checksum import OnesSum
from catalogs.fits._decode import field_type, heap_cells
from catalogs.fits.columns import FitsColumn, Table, column_of, table_of
from catalogs.fits.header import Hdu
from catalogs.fits.source import KEEP_FREE, MAX_INFLATED, Bytes, Source
from catalogs.metadata.fits_cards import integer_card, text_cards

__all__ = ["binary_cards", "is_compressed", "write_data"]

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


def binary_cards(hdu: Hdu) -> list[bytes]:
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


def write_data(source: Source, hdu: Hdu, stream: IO[bytes]) -> int:
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
