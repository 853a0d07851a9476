"""FITS tables: sniff, open, read in batches, write annotated.

A table that is no plain binary one, ASCII or compressed by tiles, is made one in an unnamed file.
"""

from __future__ import annotations

import functools
import io
import math
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalogs.catalog.catalog import BATCH_ROWS, Annotation, Catalog, Partition, chosen_table
from catalogs.errors import DamagedFileError, FormatError, require_columns, require_once
from catalogs.files import GZIP, Stamp, first_bytes, stamp
from catalogs.fits.columns import (
    MAX_FIELDS,
    FitsColumn,
    Table,
    cells,
    columns_of,
    field_type,
    heap_cells,
    n_empty,
    record_type,
    table_of,
)
from catalogs.fits.header import (
    Bytes,
    Hdu,
    OnesSum,
    Source,
    open_source,
    read_hdus,
    require_room,
    unnamed,
    wrong_sum,
)
from catalogs.fits.writing import write_annotated
from catalogs.metadata.fits_cards import header_bytes, integer_card, padding, provenance_metadata, text_cards


def left_behind(table: Table, hdus: Sequence[Hdu]) -> Iterator[str]:
    """Yield a sentence for each part that is lost."""
    others = [h for h in hdus if h.index != table.hdu.index and (h.data_bytes or h.index)]
    if others:
        yield f"the other HDUs ({', '.join(map(str, others))}) are left out"
    for column in table.columns:
        if column.is_scaled:
            yield f"'{column.name}': TSCAL and TZERO are applied, values become float64"
        if column.code in "CM":
            yield f"'{column.name}': each complex number becomes a pair of its real and imaginary parts"
        if column.code == "X":
            yield f"'{column.name}': bits become lists of true and false"


# The rows are read as raw records, some thousands at a time, and only the wanted columns are decoded: native
# byte order, once.  `header` and `columns` know the Standard; `writing` copies.

FORMAT = "fits"
SUFFIXES = (".fits", ".fit", ".fts", ".fits.gz", ".fit.gz", ".fits.fz", ".fz")
SIGNATURE = b"SIMPLE  ="
IMAGE_HEADER = "LDAC_IMHEAD"
"""The table in which SExtractor keeps the image's header, before that of the objects."""
READ_BYTES = 1 << 20
"""Bytes of rows read at a time: they stay in the processor's cache while the columns are picked out."""


def sniff(path: Path, head: bytes) -> bool:
    """Tell a FITS file, gzipped or not, by its first bytes."""
    return (first_bytes(path, len(SIGNATURE)) if head.startswith(GZIP) else head).startswith(SIGNATURE)


def open(path: Path | str, table: str | int | None = None, *, columns: Sequence[str] = ()) -> Catalog:  # noqa: A001
    """Open the table of that name or HDU number; else the only one, or the only one with those columns."""
    path = Path(path)
    seen = stamp(path)
    with open_tables(path, seen) as source:
        hdu = _chosen(path, read_hdus(source), table, columns)
    restored = hdu.index if hdu.kind == ASCII_TABLE or "ZTABLE" in hdu else None
    if restored is not None:
        with open_tables(path, seen, restored) as source:
            hdu = read_hdus(source)[restored]
    found = table_of(hdu)
    partition = FitsPartition(path, path.name, found.n_rows, found, seen, restored)
    _check_by_rows(path, partition.table)
    metadata = {"hdu": str(hdu.index)} | ({"extname": hdu.name} if hdu.name else {})
    metadata |= provenance_metadata(hdu.cards)
    return Catalog(FORMAT, path, tuple(c.column for c in partition.table.columns), (partition,), metadata)


@dataclass(frozen=True)
class FitsPartition(Partition):
    """One table of a FITS file; `restored` is its number where it is one of characters, or compressed.

    `first` is the first row that is read.
    """

    table: Table
    stamp: Stamp
    restored: int | None = None
    first: int = 0

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, `rows` rows at a time."""
        chosen = [self._column(name) for name in columns]
        with self.source() as source:
            for start in range(0, self.n_rows, rows):
                n = min(rows, self.n_rows - start)
                stored = _stored(source, self.table, chosen, self.first + start, n)
                pairs = zip(chosen, stored, strict=True)
                arrays = [heap_cells(source, self.table, c, v) if c.heap else cells(c, v) for c, v in pairs]
                if arrays:
                    yield pa.RecordBatch.from_arrays(arrays, names=[c.name for c in chosen])
                else:  # a batch of no columns has a length only when made from structs
                    yield pa.RecordBatch.from_struct_array(pa.array([{}] * n, pa.struct([])))

    def divided(self, rows: int) -> list[FitsPartition]:
        """Return parts to be read, of so many rows; a process that reads several restores a compressed file once."""
        if self.n_rows <= rows:
            return [self]
        starts = range(0, self.n_rows, rows)
        return [replace(self, first=self.first + i, n_rows=min(rows, self.n_rows - i)) for i in starts]

    def same_columns(self, other: Partition) -> dict[str, int | None]:
        """Return the columns of fixed length that another table has in the same place and bytes of each row.

        Of texts, how many are empty.
        """
        if not isinstance(other, FitsPartition) or other.n_rows != self.n_rows:
            return {}
        # Columns are alike but for what is said of them beside the place and the meaning of their bytes.
        silent: dict[str, Any] = {"unit": None, "ucd": None, "description": None}
        theirs = {replace(c, **silent) for c in other.table.columns}
        alike = [c for c in self.table.columns if replace(c, **silent) in theirs and not c.heap]
        texts = [c for c in alike if c.code == "A" and c.width and not c.shape]
        empty = np.zeros(len(texts), np.int64)
        width = max((c.offset + c.n_bytes for c in alike), default=0)
        # Rows of whole words are compared by words.
        word = math.gcd(self.table.row_bytes, other.table.row_bytes, 8)
        differs = np.zeros(-(-width // word), np.bool_)
        with ExitStack() as stack:
            sources = [(p, stack.enter_context(p.source())) for p in (self, other)]
            at_once = max(1, READ_BYTES // max(1, 2 * self.table.row_bytes))
            held = [np.empty((min(at_once, self.n_rows), p.table.row_bytes), np.uint8) for p, _ in sources]
            for start in range(0, self.n_rows if width else 0, at_once):
                ours, their = (rows[: self.n_rows - start] for rows in held)
                for (p, source), rows in zip(sources, (ours, their), strict=True):
                    place = (p.first + start) * p.table.row_bytes
                    source.fill(rows, p.table.hdu.data_offset + place)
                a, b = (rows.view(f"u{word}")[:, : len(differs)] for rows in (ours, their))
                if (wrong := a != b).any():
                    differs |= wrong.any(axis=0)
                empty += n_empty(ours, texts)
        known = dict(zip((c.name for c in texts), empty.tolist(), strict=True))
        words = {c.name: differs[c.offset // word : -(-(c.offset + c.n_bytes) // word)] for c in alike}
        same = (name for name, differing in words.items() if not differing.any())
        return {name: known.get(name) for name in same}

    def verified(self) -> tuple[FitsPartition, str | None, bool]:
        """Verify the sums of all HDUs, and the size; return the partition, and what does not match, None if all does.

        Where bytes are lost or added, as in a transfer as text, all numbers behind them are others.
        """
        if wrong := wrong_sum(self.path, self.stamp):
            return self, *wrong
        with open_source(self.path, self.stamp) as source:
            size = source.size
        odd = f"{self.path} has {size:,} bytes, expected blocks of 2,880: bytes were lost or added, and numbers behind "
        odd += "these may be wrong; look at its last rows, or fetch it again, as binary"
        return self, odd if padding(size) else None, False

    def write_annotated(self, out: Path, annotation: Annotation) -> None:
        """Write a copy with the new columns, everything else that is kept as it is, byte for byte.

        Where the file's sums do not match, those of the copy do not match either.
        """
        summed = wrong_sum(self.path, self.stamp) is None
        with self.source() as source:
            write_annotated(self, self.table, source, out, annotation, summed=summed)

    def beside_the_columns(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return the headers' cards as text, and what a copy in another format leaves behind."""
        with self.source() as source:
            hdus = read_hdus(source)
        headers = {"fits.primary": hdus[0].cards, "fits.header": self.table.hdu.cards}
        texts = {k: "\n".join(c.decode("latin-1").rstrip() for c in cards) for k, cards in headers.items()}
        return texts, tuple(left_behind(self.table, hdus))

    def source(self) -> AbstractContextManager[Source]:
        """Open the file, the table restored."""
        return open_tables(self.path, self.stamp, self.restored)

    def _column(self, name: str) -> FitsColumn:
        names = [c.name for c in self.table.columns]
        require_columns(self.path, [name], names)
        require_once(self.path, names, [name])
        return self.table.columns[names.index(name)]


def _stored(
    source: Source, table: Table, columns: Sequence[FitsColumn], start: int, n_rows: int
) -> list[npt.NDArray[np.generic]]:
    """Return the columns, picked out of the records in small blocks, but contiguous and in native byte order."""
    names, formats = [str(i) for i in range(len(columns))], [field_type(c) for c in columns]
    record = record_type(names, formats, [c.offset for c in columns], table.row_bytes)
    stored = [np.empty((n_rows, *f.shape), f.base.newbyteorder("=")) for f in formats]
    at_once = max(1, READ_BYTES // table.row_bytes)
    buffer = np.empty(min(at_once, n_rows), record)
    for first in range(0, n_rows if columns else 0, at_once):
        block = buffer[: n_rows - first]
        source.fill(block.view(np.uint8), table.hdu.data_offset + (start + first) * table.row_bytes)
        for name, values in zip(names, stored, strict=True):
            values[first : first + len(block)] = block[name]
    return stored


def _chosen(path: Path, hdus: Sequence[Hdu], table: str | int | None, columns: Sequence[str]) -> Hdu:
    """Return the HDU asked for, or the only one that it can be."""
    tables: dict[int, tuple[str, set[str]]] = {}
    for h in (h for h in hdus if h.is_bintable or h.kind == ASCII_TABLE):
        n_fields = min(MAX_FIELDS, h.integer("TFIELDS"))
        tables[h.index] = h.name or "", {h.text(f"TTYPE{n}") or "" for n in range(1, 1 + n_fields)}
    if table is None:  # compressed images, and the headers of images, are tables too
        tables = {i: t for i, t in tables.items() if "ZIMAGE" not in hdus[i] and t[0] != IMAGE_HEADER}
    if not tables:
        raise DamagedFileError(
            f"{path} holds no table; it holds the HDUs {', '.join(f'{h} {h.kind}' for h in hdus)}, expected a binary "
            "or ASCII table; write it again, or take it out of the folder"
        )
    return hdus[chosen_table(path, tables, table, columns)]


def _check_by_rows(path: Path, table: Table) -> None:
    """Raise `FormatError` where each column is one cell, a vector as long as all others: STILTS' "colfits"."""
    lengths = {c.column.shape[:1] for c in table.columns}
    if table.n_rows == 1 and len(table.columns) > 1 and len(lengths) == 1 and lengths.isdisjoint({(), (1,)}):
        raise FormatError(
            f"{path}: got one row whose {len(table.columns)} columns are vectors of {lengths.pop()[0]:,} "
            "elements each, which is a table stored by columns (colfits), expected one row for each object; "
            f"write it by rows: stilts tcopy ifmt=colfits in={path.name} ofmt=fits-basic out=..."
        )


# FITS Standard 4.0, section 7.2.  Integers become J or K, real numbers D.  A field that is blank, or that holds the
# text of TNULL, has no value: it becomes a null integer, NaN, or an empty text, and not zero as in Fortran.  As in
# Fortran, the last d digits of a real number without a point, in a field Fw.d, are behind it.
# Null integers are stored as the smallest of their type, which no measurement has.

ASCII_TABLE = "TABLE"
FORM = re.compile(r"([AIFED])(\d+)(?:\.(\d+))?")
REWRITTEN = re.compile(rb"(?:TFORM|TBCOL|TNULL)[1-9]\d* *=|CHECKSUM=|DATASUM *=")
NARROW = 9
"""Digits of an integer that 32 bits hold, whatever they are."""
BLOCK_ROWS = 1 << 14


class _Field:
    """A field of a row of so many characters: where they are, how it is `stored`, and as what where it has no value."""

    def __init__(self, header: Hdu, number: int, row_width: int) -> None:
        form, start = header.text(f"TFORM{number}") or "", header.integer(f"TBCOL{number}") - 1
        parts = FORM.fullmatch(form.strip().upper())
        if not parts or int(parts[2]) == 0 or start < 0 or start + int(parts[2]) > row_width:
            raise header.damaged(
                f"TFORM{number} is {form!r} and TBCOL{number} {start + 1}; expected a form as in 'F8.3' within the "
                f"{row_width} characters of a row"
            )
        self.number, self.start, self.code, self.width = number, start, parts[1], int(parts[2])
        self.decimals = 0 if self.code in "AI" else int(parts[3] or 0)
        self.name = header.text(f"TTYPE{number}") or f"col{number}"
        null = header.text(f"TNULL{number}")
        self.null = None if null is None else null.strip().encode()
        integer = ">i4" if self.width <= NARROW else ">i8"
        self.stored = np.dtype({"A": f"S{self.width}", "I": integer}.get(self.code, ">f8"))
        self.left_out: int | float | bytes = b"" if self.code == "A" else np.nan
        if self.code == "I":
            self.left_out = int(np.iinfo(self.stored).min)

    def cards(self) -> Iterator[bytes]:
        """Yield the cards that differ from the ASCII table's."""
        form = {">i4": "J", ">i8": "K", ">f8": "D"}.get(self.stored.str, f"{self.width}A")
        yield from text_cards(f"TFORM{self.number}", form)
        if isinstance(self.left_out, int):
            yield integer_card(f"TNULL{self.number}", self.left_out)

    def values(self, rows: Bytes) -> npt.NDArray[Any]:
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
        if self.decimals and (implied := np.strings.find(text, b".") < 0).any():
            values[implied] /= 10**self.decimals
        values[left_out] = self.left_out
        return values


def ascii_as_binary(source: Source, hdu: Hdu) -> tuple[list[bytes], Iterator[Bytes]]:
    """Return the cards of the binary table, and its rows in blocks."""
    shape = hdu.integer("NAXIS"), hdu.value("BITPIX"), hdu.integer("PCOUNT", 0)
    n_fields, width = hdu.integer("TFIELDS"), hdu.integer("NAXIS1")
    if shape != (2, 8, 0) or n_fields > MAX_FIELDS or not width > 0:
        raise hdu.damaged(
            f"NAXIS, BITPIX, PCOUNT are {shape}, TFIELDS {n_fields}, NAXIS1 {width}; expected (2, 8, 0), at most "
            f"{MAX_FIELDS}, at least 1"
        )
    fields = [_Field(hdu, n, width) for n in range(1, n_fields + 1)]
    row = np.dtype([(str(field.number), field.stored) for field in fields])
    cards: list[bytes] = []  # the old ones, but for those that describe characters
    for card in hdu.cards:
        if card.startswith(b"XTENSION="):
            cards += text_cards("XTENSION", "BINTABLE", "binary table extension")
        elif card.startswith(b"NAXIS1  ="):
            cards.append(integer_card("NAXIS1", row.itemsize, "width of table in bytes"))
        elif not REWRITTEN.match(card):
            cards.append(card)
        if card.startswith(b"TFIELDS ="):
            cards += [c for field in fields for c in field.cards()]
    return cards, _rows_of_fields(source, hdu, fields, row)


def _rows_of_fields(
    source: Source, hdu: Hdu, fields: Sequence[_Field], row: np.dtype[Any]
) -> Iterator[Bytes]:
    n_rows, width = hdu.integer("NAXIS2"), hdu.integer("NAXIS1")
    for start in range(0, n_rows, BLOCK_ROWS):
        n = min(BLOCK_ROWS, n_rows - start)
        rows = source.read(hdu.data_offset + start * width, n * width).reshape(n, width)
        block = np.empty(n, row)
        for field in fields:
            try:
                block[str(field.number)] = field.values(rows)
            except (ValueError, OverflowError) as error:
                raise DamagedFileError(
                    f"{hdu.where}: column '{field.name}' has a value that is not a number in rows "
                    f"{start:,} to {start + n:,}: {error}; correct it, or get another copy"
                ) from error
        yield block.view(np.uint8)


# FITS Standard 4.0, section 10.3: a row holds a tile of many rows, each column of it compressed for itself as GZIP_1
# (the bytes), GZIP_2 (the bytes sorted by significance) or RICE_1.

GONE = re.compile(
    rb"(?:ZFORM|ZCTYP)[1-9]\d* *=|(?:ZTABLE|ZTILELEN|ZNAXIS[12]|ZPCOUNT|ZHECKSUM|ZDATASUM|CHECKSUM|DATASUM) *="
)
SIZES = {"NAXIS1": "ZNAXIS1", "NAXIS2": "ZNAXIS2", "PCOUNT": "ZPCOUNT"}
MAX_TILE = 1 << 30
"""Bytes of a tile: writers make them of some ten million."""
SHUFFLED = {"I": 2, "J": 4, "K": 8, "E": 4, "D": 8}
"""Bytes of the numbers that GZIP_2 takes apart; `fpack` says it of complex ones too, and leaves them together."""
RICE_BYTES = {"B": 1, "I": 2, "J": 4}
RICE_BLOCK = 32


def decompressed(source: Source, hdu: Hdu) -> tuple[list[bytes], Iterator[Bytes]]:
    """Return the cards of the table as it was, and its rows tile by tile."""
    tiles = Tiles(hdu)
    n_bytes = tiles.n_rows * tiles.row_bytes
    require_room(source.path, n_bytes, n_bytes)
    cards: list[bytes] = []  # forms and sizes restored, the words of compression gone
    for card in hdu.cards:
        name = card[:8].rstrip().decode("latin-1")
        if name in SIZES:
            cards.append(integer_card(name, hdu.integer(SIZES[name]), hdu.comment(name)))
        elif re.fullmatch(r"TFORM\d+", name):
            cards += text_cards(name, hdu.text(f"Z{name[1:]}") or "")
        elif not GONE.match(card):
            cards.append(card)
    return cards, _checked_rows(source, tiles)


def _checked_rows(source: Source, tiles: Tiles) -> Iterator[Bytes]:
    """Yield the rows tile by tile; raise where the header's checksum shows that they are not those of before."""
    total, header = OnesSum(), tiles.hdu
    for number in range(tiles.table.n_rows):
        rows = tiles.rows(source, number)
        total.add(rows)
        yield rows
    said = header.text("ZDATASUM")
    if said is not None and said.isdigit() and int(said) != total.value:
        raise header.damaged(f"the decompressed rows have the sum {total.value}, expected {said} by ZDATASUM")


class Tiles:
    """A compressed table: its cells are tiles of columns of the table that it was."""

    def __init__(self, hdu: Hdu) -> None:
        """Read the sizes from a header, and check that they are consistent."""
        header, self.hdu, self.table = hdu, hdu, table_of(hdu)
        sizes = {key: header.integer(key) for key in ("ZNAXIS1", "ZNAXIS2", "ZTILELEN")}
        self.row_bytes, self.n_rows, self.length = sizes.values()
        self.columns, offset = columns_of(header, len(self.table.columns), keyword="ZFORM")
        self.row = np.dtype([(str(i), field_type(c)) for i, c in enumerate(self.table.columns)])
        self.algorithms = [header.text(f"ZCTYP{n}") or "" for n in range(1, len(self.columns) + 1)]
        tiles = -(-self.n_rows // max(1, self.length))
        plain = all(c.heap and c.code == "B" for c in self.table.columns)
        if offset != self.row_bytes or tiles != self.table.n_rows or not plain:
            raise header.damaged(
                f"the header of this compressed table of {self.table.n_rows:,} tiles states {sizes}, but its columns "
                f"take {offset:,} bytes in each row; the file is damaged"
            )
        if self.length * self.row_bytes > MAX_TILE or any(c.heap for c in self.columns):
            raise FormatError(
                f"{header.where} is a tile-compressed table with cells of variable length or with very large "
                "tiles, which cannot be read here; run `funpack` on the file, and open the result"
            )

    def rows(self, source: Source, number: int) -> Bytes:
        """Return the rows of a tile, as they were."""
        n = min(self.length, self.n_rows - number * self.length)
        rows = np.empty((n, self.row_bytes), np.uint8)
        for i, column in enumerate(self.columns):
            cells = self.cells(self.packed(source, number, i), i, n)
            rows[:, column.offset : column.offset + column.n_bytes] = cells.reshape(n, column.n_bytes)
        return rows.reshape(-1)

    def packed(self, source: Source, number: int, i: int) -> bytes:
        """Return the compressed bytes of a column's tile."""
        row = source.read(self.hdu.data_offset + number * self.table.row_bytes, self.table.row_bytes)
        place = row.view(self.row)[str(i)].astype(np.int64)
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
                f"{self.hdu.where}: '{column.name}' is compressed by '{algorithm}', expected GZIP_1, "
                "GZIP_2 or RICE_1; run `funpack` on the file, and open the result"
            )
        inflated = packed if algorithm == "NOCOMPRESS" else None
        if inflated is None:
            with suppress(zlib.error):  # up to one byte more than expected
                inflated = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, size + 1)
        raw = self.checked(inflated, i, size)
        width = SHUFFLED.get(column.code, 1)
        if algorithm == "GZIP_2" and width > 1:
            raw = raw.reshape(width, size // width).T.reshape(-1)
        return raw

    def checked(self, raw: bytes | None, i: int, size: int) -> Bytes:
        """Return the bytes of a tile if they are all there."""
        if raw is None or len(raw) != size:
            name = self.columns[i].name
            raise self.hdu.damaged(f"a tile of '{name}' cannot be decompressed to {size:,} bytes")
        return np.frombuffer(raw, np.uint8)


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
    stored = f">i{width}" if width > 1 else "u1"
    return None if values is None else np.asarray(values).astype(stored).tobytes()


# From that file all else goes on as usual; the other HDUs are in it as they are.


@contextmanager
def open_tables(path: Path, expected: Stamp, number: int | None = None) -> Iterator[Source]:
    """Open a file in which the HDU of that number has become a plain binary table."""
    with open_source(path, expected) as source:  # it is still the same
        yield source if number is None else _restored(path, expected, number)


@functools.lru_cache(maxsize=4)
def _restored(path: Path, expected: Stamp, number: int) -> Source:
    with open_source(path, expected) as source, tempfile.TemporaryFile() as stream:
        hdu = read_hdus(source)[number]
        cards, blocks = (decompressed if "ZTABLE" in hdu else ascii_as_binary)(source, hdu)
        for piece in source.pieces(0, hdu.offset):
            stream.write(piece.data)
        stream.write(header_bytes(cards))
        stream.write(bytes(padding(sum(stream.write(rows.data) for rows in blocks))))
        for piece in source.pieces(min(hdu.end, source.size), source.size):
            stream.write(piece.data)
        return unnamed(path, stream)
