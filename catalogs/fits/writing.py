"""FITS tables are written: annotated copies, and new files of Arrow batches.

In a copy old columns, cards and bytes are as they were, and new columns follow.  A new file has one binary table, with
checksums.  Both are streamed, and there as a whole or not at all.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from catalogs.catalog.catalog import Annotation, Computed, NewValues, Partition, in_order, is_provenance
from catalogs.catalog.new_columns import Provenance, check_names
from catalogs.errors import CatalogError, printable
from catalogs.files import atomic_path
from catalogs.fits.columns import MAX_FIELDS, MAX_ROW, Table, record_type
from catalogs.fits.fields import LONGEST_NAME, FitsField, Stored
from catalogs.fits.header import BLANK, OnesSum, Source, encoded, is_gzipped, read_hdus
from catalogs.metadata.astropy_header import (
    SERIALIZED,
    EcsvHeaderError,
    has_formats,
    read_columns,
    read_items,
    remove_entries,
    with_items,
)
from catalogs.metadata.fits_cards import (
    HISTORY,
    PROSE,
    block_cards,
    empty_primary,
    header_bytes,
    integer_card,
    long_string_cards,
    padding,
    prose_cards,
    text_cards,
    value_cards,
    verbatim_cards,
    with_block,
    without_provenance,
)

# Which columns of a FITS table a copy keeps: their bytes in the row, their new numbers, the cards of the others.


class Rewriting:
    """Puts old rows and new columns together.

    Of a `slim` copy the other HDUs go too, and a heap that nobody needs.  `numbers` leads from the old numbers of the
    columns that stay, which count from 1, to the new ones.
    """

    def __init__(self, table: Table, annotation: Annotation) -> None:
        self.table, self.slim = table, annotation.slim
        self.fields = fields = tuple(map(FitsField.of_new, annotation.columns))
        staying = [(n, c) for n, c in enumerate(table.columns, 1) if annotation.stays(c.name)]
        self.columns = [c for _, c in staying]
        self.dropped = [c.name for c in table.columns if not annotation.stays(c.name)]
        self.numbers = {n: i for i, (n, _) in enumerate(staying, 1)}
        self.keeps_heap = not self.slim or any(c.heap for c in self.columns)
        # The bytes that stay are fields of the old row, neighbours one, and come first in the new row, unaligned.
        runs = merged((c.offset, c.n_bytes) for c in self.columns)
        names, forms = [f"old{i}" for i in range(len(runs))], [f"V{size}" for _, size in runs]
        new = ((str(i), field.stored()) for i, field in enumerate(fields))
        self.row = np.dtype([*zip(names, forms, strict=True), *new])
        self.old_row = record_type(names, forms, [place for place, _ in runs], table.row_bytes)

    def write_before(self, source: Source, stream: IO[bytes]) -> int:
        """Write everything before the table; return where the table begins."""
        if not self.slim:
            _copy(source, stream, 0, self.table.hdu.offset)
            return self.table.hdu.offset
        primary = read_hdus(source)[0]
        header = source.read(0, primary.data_offset).tobytes() if not primary.data_bytes else empty_primary()
        stream.write(header)
        return len(header)

    def write_rows(self, source: Source, descriptor: int, place: int, rows: range, new: NewValues) -> OnesSum:
        """Write rows of a table that begins at `place`; return their part of its sum."""
        width, at_once = self.table.row_bytes, max(1, BLOCK_BYTES // self.row.itemsize)
        values = [f.encode_new(new[f.name]) for f in self.fields]
        old = np.empty(min(at_once, len(rows)), self.old_row)
        block = np.empty(min(at_once, len(rows)), self.row)
        begin = rows.start * self.row.itemsize
        total = OnesSum(begin)
        for start in range(0, len(rows), at_once):
            n = min(at_once, len(rows) - start)
            source.fill(old[:n].view(np.uint8), self.table.hdu.data_offset + rows[start] * width)
            for name in self.old_row.names or ():
                block[name][:n] = old[name][:n]
            for i, stored in enumerate(values):
                block[str(i)][:n] = stored[start : start + n]
            written = block[:n].view(np.uint8)
            total.add(written)
            data, at = written.data, place + begin + start * self.row.itemsize
            while data:
                n_written = os.pwrite(descriptor, data, at)
                data, at = data[n_written:], at + n_written
        return total

    def write_behind(self, source: Source, stream: IO[bytes], place: int, total: OnesSum) -> None:
        """Write the heap, which the checksum includes, the padding, and everything after the table."""
        hdu, rows_bytes = self.table.hdu, self.table.n_rows * self.row.itemsize
        stream.seek(place + rows_bytes)
        rows_end = hdu.data_offset + self.table.n_rows * self.table.row_bytes
        heap_end = hdu.data_offset + hdu.data_bytes if self.keeps_heap else rows_end
        heap = OnesSum(rows_bytes)
        _copy(source, stream, rows_end, heap_end, heap)
        total.include(heap)
        stream.write(bytes(padding(rows_bytes + heap_end - rows_end)))
        if not self.slim:
            _copy(source, stream, min(hdu.end, source.size), source.size)


def merged(pieces: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pieces, in order, with those that touch put together and the empty ones left out."""
    runs: list[tuple[int, int]] = []
    for place, size in pieces:
        if runs and sum(runs[-1]) == place:
            runs[-1] = (runs[-1][0], runs[-1][1] + size)
        elif size:
            runs.append((place, size))
    return runs


# The header of a FITS table with more columns: every old card stays in its place and as it is.  Changed are NAXIS1,
# PCOUNT, TFIELDS, THEAP and the checksums; the new columns' cards stand after those of the last old column,
# provenance at the end.  Where a column is dropped, its cards and its provenance are dropped too.

COLUMN_CARD = re.compile(
    rb"(?=.{8}=)(?:TTYPE|TFORM|TUNIT|TNULL|TSCAL|TZERO|TDISP|TDIM|TBCOL|TUCD|TUTYP|TCOMM|TLMIN|TLMAX|TDMIN|TDMAX|TMIN|TMAX"
    rb"|TCTYP|TCUNI|TCRPX|TCRVL|TCDLT|TCROT|TCNAM|TINDX|TALEN|TXTYP)([1-9]\d*) *="
)
CHECKSUMS = {b"CHECKSUM", b"DATASUM"}


def require_size(n_fields: int, width: int) -> None:
    """Raise CatalogError where FITS allows no table of so many columns, or bytes in each row."""
    if n_fields > MAX_FIELDS or width > MAX_ROW:
        raise CatalogError(
            f"got {n_fields} columns and {width:,} bytes in each row, expected at most {MAX_FIELDS} and {MAX_ROW:,}, "
            'which FITS allows; ask for a slim copy (mode = "slim" under [output]), or for Parquet'
        )


def annotated_cards(rewriting: Rewriting, provenance: Provenance, *, summed: bool) -> list[bytes]:
    """Return the cards of the new header, the checksums still blank; without `summed`, with the old checksums."""
    table, n_kept = rewriting.table, len(rewriting.columns)
    n_fields, width = n_kept + len(rewriting.fields), rewriting.row.itemsize
    require_size(n_fields, width)
    history = block_cards(provenance.metadata(prefix=""))
    told = with_block(table.hdu.cards, history, rewriting.dropped)
    if not rewriting.keeps_heap:
        told = [card for card in told if not card.startswith(b"THEAP   =")]
    groups, stray = _staying(_groups(told), rewriting, n_fields)
    changed = {"NAXIS1": width, "TFIELDS": n_fields}
    if not rewriting.keeps_heap:
        changed["PCOUNT"] = 0
    elif "THEAP" in table.hdu:
        changed["THEAP"] = table.n_rows * width + table.heap_gap
    for group in groups:
        if (name := group[0][:8].rstrip().decode("latin-1")) in changed:
            group[:] = [integer_card(name, changed[name], table.hdu.comment(name))]
    # The new columns' cards follow those of the last old one that stays; of a table without any, TFIELDS.
    places = [i for i, g in enumerate(groups) if 0 < _column_number(g) <= n_kept]
    place = 1 + max(places + [i for i, g in enumerate(groups) if g[0].startswith(b"TFIELDS")])
    new = [card for i, field in enumerate(rewriting.fields) for card in field.cards(n_kept + i + 1)]
    new += long_string_cards((card for group in groups for card in group), new)
    cards = [c for g in groups[:place] for c in g] + new + [c for g in groups[place:] for c in g]
    cards += prose_cards(HISTORY, (f"blr removed the stray card: {g[0].decode('latin-1')}" for g in stray))
    return blank_checksums(cards, summed=summed)


def _staying(
    groups: Iterable[list[bytes]], rewriting: Rewriting, n_new: int
) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """Return the groups that stay, renumbered, and stray ones of numbers that new columns will get."""
    n_old, staying, stray = len(rewriting.table.columns), [], []
    for group in groups:
        number = _column_number(group)
        if not number or number > max(n_old, n_new) or rewriting.numbers.get(number) == number:
            staying.append(group)
        elif number > n_old:
            stray.append(group)
        elif new := rewriting.numbers.get(number):
            keyword = group[0][:8].rstrip().removesuffix(str(number).encode()) + str(new).encode()
            staying.append([keyword.ljust(8) + group[0][8:], *group[1:]])
    return staying, stray


def with_checksums(cards: Sequence[bytes], data: OnesSum, *, summed: bool) -> bytes:
    """Return the bytes of the header with the checksums of itself and the data; without `summed`, as it is."""
    if not summed:
        return header_bytes(cards)
    cards = [_checksum_card(c, str(data.value), BLANK) for c in cards]
    total = OnesSum()
    total.add(np.frombuffer(header_bytes(cards), np.uint8))
    total.add(np.frombuffer(data.value.to_bytes(4), np.uint8))
    return header_bytes([_checksum_card(c, str(data.value), encoded(total.value)) for c in cards])


def _groups(cards: Sequence[bytes]) -> list[list[bytes]]:
    """Keep each card together with those that continue it."""
    groups: list[list[bytes]] = []
    for card in cards:
        if card.startswith(b"CONTINUE") and groups:
            groups[-1].append(card)
        else:
            groups.append([card])
    return groups


def _column_number(group: list[bytes]) -> int:
    """Return which column the card speaks of, 0 for none."""
    match = COLUMN_CARD.match(group[0])
    return int(match[1]) if match else 0


def blank_checksums(cards: list[bytes], *, summed: bool) -> list[bytes]:
    """Return the cards with one blank DATASUM and CHECKSUM: where the first ones were, or at the end.

    Without `summed` those that are there keep their values; a blank one matches no data.
    """
    kept: list[bytes] = []
    missing = dict.fromkeys((b"DATASUM", b"CHECKSUM"))
    for card in cards:
        keyword = card[:8].rstrip()
        if keyword not in CHECKSUMS:
            kept.append(card)
        elif keyword in missing:
            del missing[keyword]
            kept.append(_checksum_card(card, "0", BLANK) if summed else card)
    return kept + [_checksum_card(keyword.ljust(8), "0", BLANK) for keyword in missing]


def _checksum_card(card: bytes, datasum: str, checksum: str) -> bytes:
    """Return the card, or the one of its name with these values if it is a checksum's."""
    if card.startswith(b"DATASUM "):
        return text_cards("DATASUM", datasum, "data unit checksum")[0]
    if card.startswith(b"CHECKSUM"):
        return text_cards("CHECKSUM", checksum, "HDU checksum")[0]
    return card


# All bytes before the table, a new header, each row's old bytes and its new ones, heap, padding, and all bytes
# behind are written in one pass, in the memory of a few batches; the checksums add up on the way.  A row's place
# in the copy is known beforehand, so the thread that has computed a batch writes it too.

BLOCK_BYTES = 1 << 20
"""Bytes of rows put together at a time: they stay in the processor's cache until they are written."""

GZIP_LEVEL = 4


def write_annotated(
    partition: Partition, table: Table, source: Source, out: Path, annotation: Annotation, *, summed: bool
) -> None:
    """Write the annotated copy of a partition, a table of the source, to `out`; gzipped if the file was.

    Without `summed` the copy states the checksums that did not match, and they do not match it either.
    """
    check_names((c.name for c in table.columns if annotation.stays(c.name)), annotation.columns)
    rewriting = Rewriting(table, annotation)
    cards = annotated_cards(rewriting, annotation.provenance, summed=summed)
    zipped = is_gzipped(partition.path)
    with atomic_path(out) as temporary, _sink(temporary, zipped=zipped) as stream:
        header = rewriting.write_before(source, stream)
        total = OnesSum()
        # Written in the place of the final header, whose checksums are known only at the end.
        stream.write(with_checksums(cards, total, summed=summed))
        stream.flush()
        place = stream.tell()

        def work(numbered: tuple[range, pa.RecordBatch]) -> tuple[int, OnesSum]:
            rows, batch = numbered
            new = annotation.compute(batch)
            return len(rows), rewriting.write_rows(source, stream.fileno(), place, rows, new)

        batches = partition.batches(annotation.read, annotation.rows)
        starts = range(0, max(table.n_rows, 1), annotation.rows)
        numbered = ((range(i, i + batch.num_rows), batch) for i, batch in zip(starts, batches, strict=False))
        with closing(in_order(numbered, work, annotation.threads)) as written:
            for n_rows, part in written:
                total.include(part)
                if annotation.progress is not None:
                    annotation.progress(n_rows)
        rewriting.write_behind(source, stream, place, total)
        stream.seek(header)
        stream.write(with_checksums(cards, total, summed=summed))


def _copy(source: Source, stream: IO[bytes], start: int, stop: int, total: OnesSum | None = None) -> None:
    for piece in source.pieces(start, stop):
        if total is not None:
            total.add(piece)
        stream.write(piece.data)


@contextmanager
def _sink(temporary: Path, *, zipped: bool) -> Iterator[IO[bytes]]:
    """Open the file to be written; what is to be gzipped is so when it is finished, as the header comes last."""
    if not zipped:
        with temporary.open("wb") as stream:
            yield stream
        return
    with tempfile.TemporaryFile(dir=temporary.parent) as plain:
        yield plain
        plain.seek(0)
        # Without a name and a time in the header of gzip, equal content gives equal bytes.
        with temporary.open("wb") as stream, gzip.GzipFile("", "wb", GZIP_LEVEL, stream, mtime=0) as packed:
            shutil.copyfileobj(plain, packed)


# A new file of one binary table, from Arrow batches.


def fits_names(names: Sequence[str], taken: Iterable[str]) -> list[str]:
    """Return names as FITS can hold them: ASCII, cut where they are long, and `col3` for the third if it has none.

    Other new names than those `taken` are made.
    """
    others = {*names, *taken}
    stored = []
    for number, name in enumerate(names, 1):
        text = printable(name).encode("ascii", "backslashreplace").decode().rstrip()
        if not text.strip():
            text = f"col{number}"
        if len(text.replace("'", "''")) > LONGEST_NAME:
            text = f"{text[:55]}_{number}"
        while text != name and text in others:
            text += "_"
        others.add(text)
        stored.append(text)
    return stored


SMALL_HEAP = 2**31 - 1
"""Bytes of a heap in which 32-bit descriptors find their way."""


class Layout:
    """The columns of a new table, the old ones first."""

    def __init__(self, old: Sequence[FitsField], new: Sequence[FitsField], n_rows: int) -> None:
        self.old, self.new, self.n_rows = old, new, n_rows
        self.heap_bytes = sum(field.heap_bytes for field in old)
        self.descriptor = "P" if self.heap_bytes <= SMALL_HEAP else "Q"  # Q where 32 bits do not do
        fields: list[Any] = [(f"old{i}", f.stored(self.descriptor)) for i, f in enumerate(old)]
        self.row = np.dtype([*fields, *((f"new{i}", f.stored()) for i, f in enumerate(new))])  # unaligned

    def cards(self, name: str, remarks: Sequence[bytes], *, summed: bool) -> list[bytes]:
        """Return the cards of the header, the checksums still blank."""
        n_fields, width = len(self.old) + len(self.new), self.row.itemsize
        require_size(n_fields, width)
        counts = {"BITPIX": 8, "NAXIS": 2, "NAXIS1": width, "NAXIS2": self.n_rows, "PCOUNT": self.heap_bytes}
        counts |= {"GCOUNT": 1, "TFIELDS": n_fields}
        cards = [*text_cards("XTENSION", "BINTABLE"), *(integer_card(k, v) for k, v in counts.items())]
        for n, field in enumerate(self.old, 1):
            cards += field.cards(n, self.descriptor)
        for n, new in enumerate(self.new, 1 + len(self.old)):
            cards += new.cards(n)
        cards += [*text_cards("EXTNAME", name), *remarks]
        return blank_checksums([*cards, *long_string_cards(cards, cards)], summed=summed)


def create(
    out: Path,
    layout: Layout,
    computed: Iterable[Computed],
    *,
    name: str,
    remarks: Sequence[bytes],
    summed: bool = True,
) -> None:
    """Write the table of that name: whole, or not at all; without `summed`, with checksums that match no data."""
    cards, total = layout.cards(name, remarks, summed=summed), OnesSum()
    start = len(empty_primary())
    with (
        atomic_path(out) as temporary,
        temporary.open("wb") as stream,
        tempfile.TemporaryFile(dir=out.parent) as heap,
    ):
        stream.write(empty_primary())
        stream.write(with_checksums(cards, total, summed=summed))
        for batch, new in computed:
            write_rows(stream, heap, total, layout, batch, new)
        heap.seek(0)
        while piece := heap.read(BLOCK_BYTES):
            total.add(np.frombuffer(piece, np.uint8))
            stream.write(piece)
        stream.write(bytes(padding(layout.n_rows * layout.row.itemsize + layout.heap_bytes)))
        stream.seek(start)
        stream.write(with_checksums(cards, total, summed=summed))


def write_rows(
    stream: IO[bytes], heap: IO[bytes], total: OnesSum, layout: Layout, batch: pa.RecordBatch, new: Any
) -> None:
    """Write the rows of a batch, and what they have in the heap."""
    columns: dict[str, Stored] = {}
    for i, field in enumerate(layout.old):
        values, counts = field.encode(batch.column(field.column.name))
        if counts is not None:  # the elements go to the end of the heap, and the row says where
            places = heap.tell() + (np.cumsum(counts) - counts) * values.itemsize
            heap.write(np.ascontiguousarray(values).view(np.uint8).data)
            values = np.stack([counts, np.where(counts > 0, places, 0)], axis=1)
        columns[f"old{i}"] = values
    columns |= {f"new{i}": f.encode_new(new[f.name]) for i, f in enumerate(layout.new)}
    at_once = max(1, BLOCK_BYTES // layout.row.itemsize)
    block = np.empty(min(at_once, batch.num_rows), layout.row)
    for start in range(0, batch.num_rows, at_once):
        n = min(at_once, batch.num_rows - start)
        for key, cells in columns.items():
            block[key][:n] = cells[start : start + n]
        written = block[:n].view(np.uint8)
        total.add(written)
        stream.write(written.data)


# The rest, and what makes times and coordinates of columns again, stands in COMMENT cards the way astropy writes them.

BEGIN = "--BEGIN-ASTROPY-SERIALIZED-COLUMNS--"
END = "--END-ASTROPY-SERIALIZED-COLUMNS--"
LOGARITHMIC = "astropy.units.function."
PIECE = 70
"""Characters of a line of YAML on a card; a backslash behind them says that it goes on."""

PROSE_KEYS = {"comments": "COMMENT", HISTORY: HISTORY}
KEYWORD = re.compile(r"[A-Z0-9_-]{1,8}")
STRUCTURAL = re.compile(
    r"SIMPLE|EXTEND|XTENSION|BITPIX|NAXIS\d*|PCOUNT|GCOUNT|TFIELDS|THEAP|END|EXTNAME|CHECKSUM|DATASUM|COMMENT|CONTINUE"
    r"|HISTORY|T(TYPE|FORM|UNIT|NULL|SCAL|ZERO|DISP|BCOL|DIM|CTYP|CUNI|CRPX|CRVL|CDLT|RPOS|UCD|COMM)\d+"
)
"""Keywords that describe the file that the table came from, and not the one that is written."""


def meta_cards(
    text: str, names: Collection[str], replaced: Collection[str], tell: Callable[[str], object]
) -> list[bytes]:
    """Return the cards of what YAML says of a table of which the columns `names` are written.

    Tells what is left out; of columns that others have `replaced` there is nothing to tell.
    """
    try:
        columns, items = read_columns(text), read_items(text)
    except EcsvHeaderError:
        tell("astropy's YAML metadata of the table is left out, since it cannot be read")
        return []
    carded = [(item, item_cards(*item[:2])) for item in items]
    cards = [card for _, own_cards in carded for card in own_cards or ()]
    rest = [item for item, own_cards in carded if own_cards is None]
    gone = {c.name for c in columns} - {*names}
    # Units of magnitudes are not FITS', and written as units astropy could not make its columns of them again.
    lost = gone - {*replaced} or any(LOGARITHMIC in line for _, _, lines in rest for line in lines)
    if lost and any(key == SERIALIZED for key, _, _ in rest):
        rest = [item for item in rest if item[0] != SERIALIZED]
        what = "times, coordinates, magnitudes and similar columns"
        tell(f"the metadata by which astropy restores {what} is left out")
    formats, has_meta = has_formats(text)
    if lacking := [name for name in formats if name in names]:
        tell(f"the display format of {', '.join(lacking)} (`format`) is left out")
    if rest or has_meta:
        if all(key != SERIALIZED for key, _, _ in rest):
            rest.append((SERIALIZED, {}, (f"- {SERIALIZED}: {{}}",)))
        lines = [BEGIN]
        for line in with_items(remove_entries(text, gone) if gone else text, rest).split("\n"):
            pieces = [line[i : i + PIECE] for i in range(0, max(1, len(line)), PIECE)]
            lines += [*(f"{piece}\\" for piece in pieces[:-1]), pieces[-1]]
        cards += verbatim_cards("COMMENT", [*lines, END])
    return cards


def item_cards(key: str, value: Any) -> Sequence[bytes] | None:
    """Return the cards that say what a key of the metadata does, None where cards cannot.

    Our provenance is said elsewhere.
    """
    if is_provenance(key):
        return ()
    if key in PROSE_KEYS and isinstance(value, list):
        lines = without_provenance({HISTORY: value}).get(HISTORY, ())
        as_they_are = all(
            isinstance(line, str) and line.isascii() and line.isprintable() and len(line) <= PROSE
            for line in lines
        )
        return verbatim_cards(PROSE_KEYS[key], lines) if as_they_are else None
    if KEYWORD.fullmatch(key) and not STRUCTURAL.fullmatch(key) and is_plain(value):
        return value_cards(key, value)
    return None


def is_plain(value: Any) -> bool:
    """Say whether a card holds a value as it is."""
    if isinstance(value, str):
        return value.isascii() and value.isprintable() and value == value.rstrip()
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
