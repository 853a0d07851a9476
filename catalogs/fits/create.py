"""A new FITS file of one binary table, from Arrow batches: streamed, with checksums, whole or not at all."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from catalogs.catalog.catalog import Computed, is_provenance
from catalogs.files import atomic_path
from catalogs.fits._rewrite import blank_checksums, require_size, with_checksums
from catalogs.fits.fields import FitsField, Stored
from catalogs.fits.header import OnesSum
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
    empty_primary,
    integer_card,
    long_string_cards,
    padding,
    text_cards,
    value_cards,
    verbatim_cards,
    without_provenance,
)


def fits_names(names: Sequence[str], taken: Iterable[str]) -> list[str]:
    """Return names as FITS can hold them: ASCII, and `col3` for the third column if it has none.

    Other new names than those `taken` are made.
    """
    others = {*names, *taken}
    stored = []
    for number, name in enumerate(names, 1):
        text = "".join(c if c.isprintable() else " " for c in name)
        text = text.encode("ascii", "backslashreplace").decode().rstrip()
        if not text.strip():
            text = f"col{number}"
        while text != name and text in others:
            text += "_"
        others.add(text)
        stored.append(text)
    return stored


BLOCK_BYTES = 1 << 20
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
        tell(
            "the metadata by which astropy restores times, coordinates, magnitudes and similar columns is left out"
        )
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
