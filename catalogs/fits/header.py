"""FITS headers: 80-byte cards kept as they are, their values, and the sizes of the HDUs that they describe.

Cards and sizes follow the FITS Standard 4.0, sections 3 and 4, https://fits.gsfc.nasa.gov/fits_standard.html.
Sizes claimed by the header are checked against the file's length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from catalogs.errors import DamagedFileError, FormatError
from catalogs.fits.source import Source
from catalogs.metadata.fits_cards import BLOCK, CARD, padding

__all__ = ["Hdu", "Header", "Value", "read_hdus"]

MAX_HEADER = 16 << 20
"""Bytes: two hundred thousand cards; a header without END would else be the whole file."""
MAX_AXES = 999
BITS = (8, 16, 32, 64, -32, -64)
BINTABLES = ("BINTABLE", "A3DTABLE")  # The second is the name of the first before 1994.

Value = str | bool | int | float | None

LOGICAL = {"T": True, "F": False}
STRING = re.compile(r"\s*'((?:[^']|'')*)'")
INTEGER = re.compile(r"[+-]?\d+")
REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([ED][+-]?\d+)?")


@dataclass(frozen=True)
class Header:
    """The cards of one HDU without END, and the bytes from `offset` that they and the padding take."""

    where: str
    cards: tuple[bytes, ...]
    offset: int
    n_bytes: int

    @cached_property
    def entries(self) -> dict[str, tuple[Value, str]]:
        """Value and comment of each keyword; of repeated ones the first, as everywhere."""
        entries: dict[str, tuple[Value, str]] = {}
        for keyword, text in _logical_cards(self.cards):
            entries.setdefault(keyword, _parse(text))
        return entries

    def __contains__(self, keyword: str) -> bool:
        return keyword in self.entries

    def value(self, keyword: str) -> Value:
        """Return the value of whatever type, or None."""
        return self.entries.get(keyword, (None, ""))[0]

    def comment(self, keyword: str) -> str:
        """Return the comment beside the value."""
        return self.entries.get(keyword, (None, ""))[1]

    def text(self, keyword: str) -> str | None:
        """Return a text without trailing blanks; None where it is absent, empty, or no text."""
        value = self.value(keyword)
        return value if isinstance(value, str) and value else None

    def integer(self, keyword: str, default: int | None = None) -> int:
        """Return a count; what is not one, or is absent without a default, is damage."""
        value = self.value(keyword) if keyword in self else default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise DamagedFileError(
                f"{self.where}: {keyword} is {value!r}, expected a whole number of 0 or more; get another "
                "copy of the file"
            )
        return value


@dataclass(frozen=True)
class Hdu:
    """One header and data unit, and where its data lie."""

    index: int
    header: Header
    kind: str
    data_bytes: int

    @property
    def data_offset(self) -> int:
        """Where the data begin."""
        return self.header.offset + self.header.n_bytes

    @property
    def end(self) -> int:
        """Where the next HDU begins."""
        return self.data_offset + self.data_bytes + padding(self.data_bytes)

    @property
    def name(self) -> str | None:
        """The EXTNAME, where there is one."""
        return self.header.text("EXTNAME")

    @property
    def is_bintable(self) -> bool:
        """Whether it is a binary table."""
        return self.kind in BINTABLES

    def __str__(self) -> str:
        return f"{self.index}" + (f" ('{self.name}')" if self.name else "")


def read_hdus(source: Source) -> tuple[Hdu, ...]:
    """Read all headers; `DamagedFileError` where the file is shorter than they say."""
    if not source.size:
        raise FormatError(f"{source.path} is empty; expected a FITS file: copy it again")
    if (start := source.read(0, 9).tobytes()) != b"SIMPLE  =":
        raise FormatError(
            f"{source.path} is not FITS: it begins with {start!r}, expected b'SIMPLE  ='; open it in an editor or run "
            "`file` on it: it may be a server's error message; fetch it again, or correct its name"
        )
    hdus: list[Hdu] = []
    offset = 0
    while offset < source.size and (not hdus or _extension_begins(source, offset)):
        hdu = _read_hdu(source, len(hdus), offset)
        hdus.append(hdu)
        offset = hdu.end
    return tuple(hdus)


def _extension_begins(source: Source, offset: int) -> bool:
    """Tell an extension, or what is left of a cut one, from special records and zeros at the end."""
    start = source.read(offset, 8).tobytes()
    return start == b"XTENSION"[: len(start)]


def _read_hdu(source: Source, index: int, offset: int) -> Hdu:
    header = _read_header(source, f"{source.path}, HDU {index}", offset)
    kind = (header.text("XTENSION") or "PRIMARY").strip()
    hdu = Hdu(index, header, kind, _data_bytes(header))
    if hdu.data_offset + hdu.data_bytes > source.size:
        raise DamagedFileError(
            f"{source.path} is cut short: the data of HDU {hdu} should end at byte "
            f"{hdu.data_offset + hdu.data_bytes:,} by the header, but the file ends at {source.size:,}; copy it again"
        )
    return hdu


def _read_header(source: Source, where: str, offset: int) -> Header:
    """Read blocks up to the one with the END card."""
    cards: list[bytes] = []
    for position in range(offset, min(source.size, offset + MAX_HEADER), BLOCK):
        block = source.read(position, BLOCK).tobytes()
        for start in range(0, len(block) - CARD + 1, CARD):
            card = block[start : start + CARD]
            if card[:8].rstrip(b" \0") == b"END":
                return Header(where, tuple(cards), offset, position + BLOCK - offset)
            cards.append(card)
    raise DamagedFileError(
        f"{where}: the header at byte {offset:,} has no END among its {len(cards):,} cards, up to byte "
        f"{min(source.size, offset + MAX_HEADER):,}; the file is cut short or damaged: copy it again"
    )


def _data_bytes(header: Header) -> int:
    """Return the size of the data by equations 1 and 2 of the Standard; Python's integers do not overflow."""
    if header.value("BITPIX") not in BITS:
        raise DamagedFileError(
            f"{header.where}: BITPIX is {header.value('BITPIX')!r}, expected one of {BITS}; get another copy"
        )
    n_axes = header.integer("NAXIS")
    if n_axes > MAX_AXES:
        raise DamagedFileError(
            f"{header.where}: NAXIS is {n_axes}, expected at most {MAX_AXES}; get another copy"
        )
    if n_axes == 0:
        return 0
    axes = [header.integer(f"NAXIS{i}") for i in range(1, n_axes + 1)]
    if axes[0] == 0 and header.value("GROUPS") is True:
        axes = axes[1:]  # random groups
    element = abs(int(str(header.value("BITPIX")))) // 8
    return element * header.integer("GCOUNT", 1) * (header.integer("PCOUNT", 0) + math.prod(axes))


def _logical_cards(cards: tuple[bytes, ...]) -> Iterator[tuple[str, str]]:
    """Yield each keyword with the text after `=`, long strings joined; commentary is passed over."""
    keyword, text = "", _LongText("")
    for card in cards:
        line = card.decode("latin-1")
        if line.startswith("CONTINUE") and text.goes_on(line[8:]):
            continue
        if keyword:
            yield keyword, text.joined
        keyword, rest = (line[:8].rstrip(), line[9:]) if line[8] == "=" else ("", "")
        text = _LongText(rest)
    if keyword:
        yield keyword, text.joined


class _LongText:
    """What stands after `=`: a string may go on in the next cards, and there may be very many of them."""

    def __init__(self, text: str) -> None:
        match = STRING.match(text)
        self._first = text
        self._strings = [match[1]] if match else []
        self._comments = [text[match.end() :]] if match else []

    def goes_on(self, more: str) -> bool:
        """Take the string of the next card, if one is there and the last ends in &; say whether it was taken."""
        match = STRING.match(more)
        if not match or not self._strings or not self._strings[-1].rstrip().endswith("&"):
            return False
        self._strings[-1] = self._strings[-1].rstrip()[:-1]
        self._strings.append(match[1])
        # An & before nothing but blanks counts too.
        while len(self._strings) > 1 and not self._strings[-1].strip():
            self._strings[-2:] = ["".join(self._strings[-2:])]
        self._comments.append(more[match.end() :])
        return True

    @property
    def joined(self) -> str:
        """The text as if it all stood on one card."""
        if len(self._comments) < 2:
            return self._first
        return f"'{''.join(self._strings)}'{''.join(comment.rstrip() for comment in self._comments)}"


def _parse(text: str) -> tuple[Value, str]:
    if string := STRING.match(text):
        value = string[1].replace("''", "'").rstrip()
        return _unicode(value), _comment(text[string.end() :])
    scalar, _, comment = text.partition("/")
    return _scalar(scalar.strip()), _unicode(comment.strip())


def _comment(rest: str) -> str:
    return _unicode(rest.partition("/")[2].strip())


def _scalar(text: str) -> Value:
    if text in LOGICAL:
        return LOGICAL[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if REAL.fullmatch(text.upper()):
        return float(text.upper().replace("D", "E"))
    return text or None


def _unicode(text: str) -> str:
    """Undo UTF-8: the Standard has ASCII only, and files have degree signs all the same."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeDecodeError:
        return text
