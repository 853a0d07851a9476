"""The header and the rows of a FITS table's copy: old columns and cards as they were, new columns behind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalogs.arrays.texts import ASCII, code_points
from catalogs.catalog.earlier_columns import with_replaced_models
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.errors import CatalogError, brief
from catalogs.fits._checksum import BLANK, OnesSum, encoded
from catalogs.fits.columns import MAX_FIELDS, MAX_ROW, FitsColumn, Table
from catalogs.metadata.fits_cards import (
    header_bytes,
    history_cards,
    integer_card,
    long_string_cards,
    provenance_metadata,
    text_cards,
    with_block,
)

__all__ = ["NewField", "Selection", "annotated_cards", "blank_checksums", "with_checksums"]

# Which columns of a FITS table a copy keeps: their bytes in the row, their new numbers, the cards of the others.


@dataclass(frozen=True)
class Selection:
    """The columns of a table that stay; of a `slim` copy the other HDUs go too, and a heap that nobody needs."""

    table: Table
    names: frozenset[str] | None = None
    slim: bool = False

    @cached_property
    def columns(self) -> tuple[FitsColumn, ...]:
        """The columns that stay, in the file's order."""
        return tuple(c for c in self.table.columns if self._stays(c))

    @property
    def dropped(self) -> tuple[str, ...]:
        """The names of those that do not."""
        return tuple(c.name for c in self.table.columns if not self._stays(c))

    @cached_property
    def numbers(self) -> dict[int, int]:
        """From the old numbers, which count from 1, of the columns that stay to their new ones."""
        old = (n for n, c in enumerate(self.table.columns, 1) if self._stays(c))
        return {n: i for i, n in enumerate(old, 1)}

    @property
    def keeps_heap(self) -> bool:
        """Whether the heap stays: always, but in a slim copy without a column that needs it."""
        return not self.slim or any(c.heap for c in self.columns)

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Places and lengths in the old row of the bytes that stay; neighbours are one."""
        return tuple(merged((c.offset, c.n_bytes) for c in self.columns))

    @property
    def row_bytes(self) -> int:
        """Bytes of the old row that stay."""
        return sum(size for _, size in self.runs)

    @property
    def old_row(self) -> np.dtype[Any]:
        """The old row as the fields `old0`, `old1`, ... of its runs."""
        return np.dtype(
            {
                "names": [f"old{i}" for i in range(len(self.runs))],
                "formats": [f"V{size}" for _, size in self.runs],
                "offsets": [place for place, _ in self.runs],
                "itemsize": self.table.row_bytes,
            }
        )

    def _stays(self, column: FitsColumn) -> bool:
        return self.names is None or column.name in self.names


def merged(pieces: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pieces, in order, with those that touch put together and the empty ones left out."""
    runs: list[tuple[int, int]] = []
    for place, size in pieces:
        if runs and sum(runs[-1]) == place:
            runs[-1] = (runs[-1][0], runs[-1][1] + size)
        elif size:
            runs.append((place, size))
    return runs


# The header of a FITS table with more columns: every old card stays in its place and as it is.
#
# Changed are NAXIS1, PCOUNT, TFIELDS, THEAP and the checksums; the new columns' cards stand after those of the last old
# column, provenance at the end.  Where a column is dropped, its cards and its provenance are dropped too.

FORMS = {
    pa.bool_(): ("L", "u1", None),
    pa.uint8(): ("B", "u1", "I3"),
    pa.int16(): ("I", ">i2", "I6"),
    pa.int32(): ("J", ">i4", "I11"),
    pa.int64(): ("K", ">i8", "I20"),
    pa.float32(): ("E", ">f4", "G13.6"),
    pa.float64(): ("D", ">f8", "G22.15"),
}
"""Arrow type: TFORM code, how it is stored, TDISP."""

COLUMN_CARD = re.compile(
    rb"(?:TTYPE|TFORM|TUNIT|TNULL|TSCAL|TZERO|TDISP|TDIM|TBCOL|TUCD|TUTYP|TCOMM|TLMIN|TLMAX|TDMIN|TDMAX|TMIN|TMAX"
    rb"|TCTYP|TCUNI|TCRPX|TCRVL|TCDLT|TCROT|TCNAM|TINDX|TALEN|TXTYP)([1-9]\d*) *="
)
CHECKSUMS = {b"CHECKSUM", b"DATASUM"}


@dataclass(frozen=True)
class NewField:
    """A new column as FITS stores it."""

    column: NewColumn
    form: str
    stored: np.dtype[Any]
    display: str | None

    @classmethod
    def of(cls, column: NewColumn) -> NewField:
        """Choose the TFORM of a new column."""
        if pa.types.is_string(column.datatype):
            if not column.width:
                raise CatalogError(
                    f"'{column.name}' is text of unknown width, which FITS has to know; give NewColumn(width=...)"
                )
            return cls(column, f"{column.width}A", np.dtype(f"S{column.width}"), None)
        if column.datatype not in FORMS:
            known = ", ".join(str(t) for t in FORMS)
            raise CatalogError(
                f"'{column.name}' is {column.datatype}; FITS columns are added as {known}, string"
            )
        code, stored, display = FORMS[column.datatype]
        return cls(column, code, np.dtype(stored), display)

    def cards(self, n: int) -> Iterator[bytes]:
        """Yield the cards of the column as the n-th."""
        yield from text_cards(f"TTYPE{n}", self.column.name)
        yield from text_cards(f"TFORM{n}", self.form)
        for keyword, text in (
            ("TUNIT", self.column.unit),
            ("TDISP", self.display),
            ("TUCD", self.column.ucd),
            ("TCOMM", self.column.description),
        ):
            if text:
                yield from text_cards(f"{keyword}{n}", text)

    def encode(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values as they are stored, but for the byte order."""
        if self.form == "L":
            return np.where(values, ord("T"), ord("F"))
        if self.stored.kind == "S":
            return self._encode_texts(values)
        return values

    def _encode_texts(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Convert code points to bytes; NumPy's own conversion would take five times as long as all other work here."""
        width = self.stored.itemsize
        if values.dtype.kind == "U":
            text = values
        else:
            words = [str(v) for v in values.tolist()]
            # NumPy would reserve the space of the longest text for each.
            self._require_width(max(words, key=len, default=""))
            text = np.array(words, np.str_)
        codes = code_points(text)
        if codes[:, width:].any():
            self._require_width(_first(text, codes[:, width:] > 0))
        if (codes > ASCII).any():
            raise CatalogError(
                f"'{self.column.name}' got the text {_first(text, codes > ASCII)!r}; FITS holds ASCII only: "
                "rename the class, or write another format"
            )
        narrow = np.zeros((len(text), width), np.uint8)
        narrow[:, : codes.shape[1]] = codes[:, :width]
        return narrow.view(self.stored).reshape(-1)

    def _require_width(self, text: str) -> None:
        """Raise CatalogError where a text is longer than was promised."""
        width = self.stored.itemsize
        if len(text) > width:
            raise CatalogError(
                f"'{self.column.name}' got the text {brief(text)!r}, which is longer than the width of "
                f"{width} characters; state the width of the longest text"
            )


def _first(text: npt.NDArray[Any], bad: npt.NDArray[np.bool_]) -> str:
    return str(text[int(np.argmax(bad.any(axis=1)))])


def annotated_cards(
    selection: Selection, fields: Sequence[NewField], provenance: Provenance, *, summed: bool
) -> list[bytes]:
    """Return the cards of the new header, the checksums still blank; without `summed`, with the old checksums."""
    table, n_kept = selection.table, len(selection.columns)
    width = selection.row_bytes + sum(f.stored.itemsize for f in fields)
    _check_limits(table, n_kept + len(fields), width)
    old_cards = _told_anew(selection, provenance)
    groups, stray = _staying(_groups(old_cards), selection, n_kept + len(fields))
    groups = [_changed(group, table, _new_values(selection, width, len(fields))) for group in groups]
    place = _after_columns(groups, n_kept)
    new = [card for i, field in enumerate(fields) for card in field.cards(n_kept + i + 1)]
    new += long_string_cards((card for group in groups for card in group), new)
    cards = [c for g in groups[:place] for c in g] + new + [c for g in groups[place:] for c in g]
    cards += history_cards(f"blr removed the stray card: {g[0].decode('latin-1')}" for g in stray)
    return blank_checksums(cards, summed=summed)


def _told_anew(selection: Selection, provenance: Provenance) -> list[bytes]:
    """Return the old cards with the new provenance, and without the place of a heap that goes."""
    old = selection.table.hdu.header.cards
    entries = with_replaced_models(provenance_metadata(old), provenance.entries, selection.dropped)
    history = history_cards(replace(provenance, entries=entries).history())
    cards = with_block(old, history, selection.dropped)
    return cards if selection.keeps_heap else [c for c in cards if not c.startswith(b"THEAP   =")]


def _new_values(selection: Selection, width: int, n_fields: int) -> dict[bytes, int]:
    """Return the keywords that describe the whole table, and their new values."""
    table = selection.table
    values = {b"NAXIS1": width, b"TFIELDS": len(selection.columns) + n_fields}
    if not selection.keeps_heap:
        values[b"PCOUNT"] = 0
    elif "THEAP" in table.hdu.header:
        values[b"THEAP"] = table.n_rows * width + table.heap_gap
    return values


def _staying(
    groups: Iterable[list[bytes]], selection: Selection, n_new: int
) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """Return the groups that stay, renumbered, and stray ones of numbers that new columns will get."""
    n_old, staying, stray = len(selection.table.columns), [], []
    for group in groups:
        number = _column_number(group)
        if not number or number > max(n_old, n_new):
            staying.append(group)
        elif number > n_old:
            stray.append(group)
        elif number in selection.numbers:
            staying.append(_renumbered(group, number, selection.numbers[number]))
    return staying, stray


def _renumbered(group: list[bytes], old: int, new: int) -> list[bytes]:
    if old == new:
        return group
    keyword = group[0][:8].rstrip().removesuffix(str(old).encode()) + str(new).encode()
    return [keyword.ljust(8) + group[0][8:], *group[1:]]


def with_checksums(cards: Sequence[bytes], data: OnesSum, *, summed: bool) -> bytes:
    """Return the bytes of the header with the checksums of itself and the data; without `summed`, as it is."""
    if not summed:
        return header_bytes(cards)
    cards = [_checksum_card(c, str(data.value), BLANK) for c in cards]
    total = OnesSum()
    total.add(np.frombuffer(header_bytes(cards), np.uint8))
    total.add(np.frombuffer(data.value.to_bytes(4), np.uint8))
    return header_bytes([_checksum_card(c, str(data.value), encoded(total.value)) for c in cards])


def _check_limits(table: Table, n_fields: int, width: int) -> None:
    if n_fields > MAX_FIELDS or width > MAX_ROW:
        raise CatalogError(
            f"{table.hdu.header.where} would have {n_fields} columns and {width:,} bytes in each row; FITS "
            f'allows {MAX_FIELDS} and {MAX_ROW:,}: ask for a slim copy (mode = "slim" under [output]), or '
            "convert the catalogue to Parquet"
        )


def _groups(cards: Sequence[bytes]) -> list[list[bytes]]:
    """Keep each card together with those that continue it."""
    groups: list[list[bytes]] = []
    for card in cards:
        if card.startswith(b"CONTINUE") and groups:
            groups[-1].append(card)
        else:
            groups.append([card])
    return groups


def _changed(group: list[bytes], table: Table, changed: dict[bytes, int]) -> list[bytes]:
    """Return the group with its new value, if it is one of the changed."""
    keyword = group[0][:8].rstrip()
    if keyword not in changed:
        return group
    name = keyword.decode()
    return [integer_card(name, changed[keyword], table.hdu.header.comment(name))]


def _column_number(group: list[bytes]) -> int:
    """Return which column the card speaks of, 0 for none."""
    match = COLUMN_CARD.match(group[0])
    return int(match[1]) if match else 0


def _after_columns(groups: list[list[bytes]], n_kept: int) -> int:
    """Return the place after the last card of any column that stays; of a table without any, after TFIELDS."""
    places = [i for i, g in enumerate(groups) if 0 < _column_number(g) <= n_kept]
    places += [i for i, g in enumerate(groups) if g[0].startswith(b"TFIELDS")]
    return max(places) + 1


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
