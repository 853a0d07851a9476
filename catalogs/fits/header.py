"""The bytes of a FITS file: its HDUs, their cards as they are, and their checksums."""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from catalogs.arrays import text_of
from catalogs.errors import CatalogError, DamagedFileError
from catalogs.files import GZIP, Stamp, StorageError, check_unchanged, open_bytes, reading
from catalogs.metadata.fits_cards import BLOCK, CARD, padding

# Files are read, not memory-mapped: if a file is cut while it is read, this gives an error, where a memory map would
# kill the process; and mapped pages would count as memory of this process.  Reads carry their place, so threads may
# share.

Bytes = npt.NDArray[np.uint8]

MAX_INFLATED = 32 << 30
"""Most bytes that a gzipped file may have after decompression, against decompression bombs."""
KEEP_FREE = 1 << 30
"""Bytes of the temporary folder's disk that inflating leaves alone."""
PIECE = 1 << 22


@dataclass(frozen=True)
class Source:
    """A file of known size, open for reading anywhere."""

    path: Path
    descriptor: int
    size: int

    def fill(self, buffer: Bytes, offset: int) -> None:
        """Fill the contiguous buffer with the bytes from `offset` on."""
        view, done = buffer.data.cast("B") if buffer.size else memoryview(b""), 0
        while done < len(view):
            got = os.preadv(self.descriptor, [view[done:]], offset + done)
            if got == 0:
                now = os.fstat(self.descriptor).st_size
                raise DamagedFileError(
                    f"{self.path} was {self.size:,} bytes long when opened and is {now:,} now; it is still "
                    "being written, or it was cut; wait, or copy it again"
                )
            done += got

    def read(self, offset: int, n_bytes: int) -> Bytes:
        """Return the bytes from `offset` on, as a new array; fewer only where the file ends."""
        buffer = np.empty(max(0, min(n_bytes, self.size - offset)), np.uint8)
        self.fill(buffer, offset)
        return buffer

    def pieces(self, start: int, stop: int) -> Iterator[Bytes]:
        """Yield the bytes from `start` to `stop` in pieces that fit a cache; each is valid until the next."""
        buffer = np.empty(min(PIECE, max(0, stop - start)), np.uint8)
        for offset in range(start, stop, PIECE):
            piece = buffer[: min(PIECE, stop - offset)]
            self.fill(piece, offset)
            yield piece


def is_gzipped(path: Path) -> bool:
    """Tell by the first bytes, for names lie."""
    with open_bytes(path) as stream:
        return stream.read(len(GZIP)) == GZIP


@contextmanager
def open_source(path: Path, expected: Stamp) -> Iterator[Source]:
    """Open a file; `DamagedFileError` if it is no longer the one that was `expected`."""
    check_unchanged(path, expected)
    if is_gzipped(path):
        yield _inflated(path, expected)
        return
    with open_bytes(path) as raw:
        yield Source(path, raw.fileno(), expected[0])


def unnamed(path: Path, stream: IO[bytes]) -> Source:
    """Return the bytes of a temporary file under the name of another; the file closes when nobody has them any more."""
    stream.flush()
    descriptor = os.dup(stream.fileno())
    source = Source(path, descriptor, os.fstat(descriptor).st_size)
    weakref.finalize(source, os.close, descriptor)
    return source


@lru_cache(maxsize=4)
def _inflated(path: Path, seen: Stamp) -> Source:  # noqa: ARG001  (the stamp is part of the cache's key)
    """Inflate to a file that has no name, so that nothing is left behind however the process ends."""
    with reading(path) as stream, tempfile.TemporaryFile() as inflated:
        while piece := stream.read(PIECE):
            require_room(path, inflated.tell() + len(piece))
            inflated.write(piece)
        return unnamed(path, inflated)


def require_room(path: Path, n_bytes: int, more: int = 0) -> None:
    """Raise unless a decompressed file may have so many bytes, and the temporary folder has room for `more`."""
    folder = tempfile.gettempdir()
    if n_bytes > MAX_INFLATED:
        raise CatalogError(
            f"{path} has {n_bytes:,} bytes or more after decompression, expected at most {MAX_INFLATED:,}; "
            "decompress it yourself (funpack, gunzip), and open the result"
        )
    if shutil.disk_usage(folder).free < KEEP_FREE + more:
        raise StorageError(
            f"not enough space in {folder} to decompress {path} to {n_bytes:,} bytes; set TMPDIR to a folder on "
            "another disk"
        )


# Cards and sizes follow the FITS Standard 4.0, sections 3 and 4, https://fits.gsfc.nasa.gov/fits_standard.html.
# Sizes claimed by the header are checked against the file's length.

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
class Hdu:
    """One header and data unit: its cards without END, and the bytes from `offset` that they and the padding take.

    `where` names it in messages.
    """

    where: str
    cards: tuple[bytes, ...]
    offset: int
    n_bytes: int
    index: int = 0

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
            raise self.damaged(f"{keyword} is {value!r}, expected a whole number of 0 or more")
        return value

    def damaged(self, what: str) -> DamagedFileError:
        """Return the error for a file that contradicts itself, or the Standard."""
        return DamagedFileError(f"{self.where}: {what}; get another copy")

    @cached_property
    def data_bytes(self) -> int:
        """The size of the data by equations 1 and 2 of the Standard; Python's integers do not overflow."""
        bits, n_axes = self.value("BITPIX"), self.integer("NAXIS")
        if not isinstance(bits, int) or bits not in BITS:
            raise self.damaged(f"BITPIX is {bits!r}, expected one of {BITS}")
        if n_axes > MAX_AXES:
            raise self.damaged(f"NAXIS is {n_axes}, expected at most {MAX_AXES}")
        if n_axes == 0:
            return 0
        axes = [self.integer(f"NAXIS{i}") for i in range(1, n_axes + 1)]
        if axes[0] == 0 and self.value("GROUPS") is True:
            axes = axes[1:]  # random groups
        elements = self.integer("GCOUNT", 1) * (self.integer("PCOUNT", 0) + math.prod(axes))
        return abs(bits) // 8 * elements

    @property
    def data_offset(self) -> int:
        """Where the data begin."""
        return self.offset + self.n_bytes

    @property
    def end(self) -> int:
        """Where the next HDU begins."""
        return self.data_offset + self.data_bytes + padding(self.data_bytes)

    @property
    def kind(self) -> str:
        """The XTENSION, or PRIMARY."""
        return (self.text("XTENSION") or "PRIMARY").strip()

    @property
    def name(self) -> str | None:
        """The EXTNAME, where there is one."""
        return self.text("EXTNAME")

    @property
    def is_bintable(self) -> bool:
        """Whether it is a binary table."""
        return self.kind in BINTABLES

    def __str__(self) -> str:
        return f"{self.index}" + (f" ('{self.name}')" if self.name else "")


def read_hdus(source: Source) -> tuple[Hdu, ...]:
    """Read all headers; `DamagedFileError` where the file is shorter than they say."""
    if not source.size:
        raise DamagedFileError(f"{source.path} is empty; expected a FITS file: copy it again")
    if (start := source.read(0, 9).tobytes()) != b"SIMPLE  =":
        raise DamagedFileError(
            f"{source.path} is not FITS: it begins with {start!r}, expected b'SIMPLE  ='; open it in an editor or run "
            "`file` on it: it may be a server's error message; fetch it again, or correct its name"
        )
    hdus: list[Hdu] = []
    offset = 0
    while offset < source.size:
        # What begins otherwise behind the first HDU are special records, or zeros at the end.
        start = source.read(offset, 8).tobytes()
        if hdus and start != b"XTENSION"[: len(start)]:
            break
        hdus.append(hdu := _read_header(source, len(hdus), offset))
        if (end := hdu.data_offset + hdu.data_bytes) > source.size:
            raise DamagedFileError(
                f"{source.path} is cut short: the data of HDU {hdu} should end at byte {end:,} by the header, but the "
                f"file ends at {source.size:,}; copy it again"
            )
        offset = hdu.end
    return tuple(hdus)


def _read_header(source: Source, index: int, offset: int) -> Hdu:
    """Read blocks up to the one with the END card."""
    cards: list[bytes] = []
    where = f"{source.path}, HDU {index}"
    end = min(source.size, offset + MAX_HEADER)
    for position in range(offset, end, BLOCK):
        block = source.read(position, BLOCK).tobytes()
        if cards and block.startswith(b"XTENSION"):  # the next HDU, whose END is not this one's
            end = position
            break
        for start in range(0, len(block) - CARD + 1, CARD):
            card = block[start : start + CARD]
            if card[:8].rstrip(b" \0") == b"END":
                return Hdu(where, tuple(cards), offset, position + BLOCK - offset, index)
            cards.append(card)
    raise DamagedFileError(
        f"{where}: the header at byte {offset:,} has no END among its {len(cards):,} cards, up to byte "
        f"{end:,}; the file is cut short or damaged: copy it again"
    )


def _logical_cards(cards: tuple[bytes, ...]) -> Iterator[tuple[str, str]]:
    """Yield each keyword with the text after `=`; commentary is passed over.

    A string may go on in the next cards, and there may be very many of them: they are joined as if on one card.
    """
    keyword, text = "", ""
    strings: list[str] = []
    comments: list[str] = []
    for card in (*cards, b" " * CARD):
        line = card.decode("latin-1")
        more = STRING.match(line[8:]) if line.startswith("CONTINUE") else None
        if more and strings and strings[-1].rstrip().endswith("&"):
            strings[-1] = strings[-1].rstrip()[:-1]
            strings.append(more[1])
            # An & before nothing but blanks counts too.
            while len(strings) > 1 and not strings[-1].strip():
                strings[-2:] = ["".join(strings[-2:])]
            comments.append(line[8:][more.end() :])
            continue
        if keyword and len(comments) > 1:
            text = f"'{''.join(strings)}'{''.join(comment.rstrip() for comment in comments)}"
        if keyword:
            yield keyword, text
        keyword, text = (line[:8].rstrip(), line[9:]) if line[8] == "=" else ("", "")
        match = STRING.match(text)
        strings, comments = ([match[1]], [text[match.end() :]]) if match else ([], [])


def _parse(text: str) -> tuple[Value, str]:
    """Return the value and the comment of what stands after `=`.

    UTF-8 is undone: the Standard has ASCII only, and files have degree signs all the same.
    """
    string = STRING.match(text)
    behind = text[string.end() :] if string else text
    scalar, _, comment = behind.partition("/")
    comment, scalar = text_of(comment.strip().encode("latin-1")), scalar.strip()
    value: Value = scalar or None
    if string:
        value = text_of(string[1].replace("''", "'").rstrip().encode("latin-1"))
    elif scalar in LOGICAL:
        value = LOGICAL[scalar]
    elif INTEGER.fullmatch(scalar):
        value = int(scalar)
    elif REAL.fullmatch(scalar.upper()):
        value = float(scalar.upper().replace("D", "E"))
    return value, comment


# FITS Standard 4.0, section 4.4.2.7 and appendix J.

BLANK = "0" * 16
"""The CHECKSUM while the sum is taken."""

WORD = 4
ALL_ONES = 2**32 - 1
PUNCTUATION = (*range(0x3A, 0x41), *range(0x5B, 0x61))
"""Characters between digits, capitals and small letters, which the encoding avoids."""


class OnesSum:
    """A running sum over bytes that come in pieces of any length, from a place in the data on.

    Sums of parts may be taken apart, in any order, and put together: each byte counts by its place alone.
    """

    def __init__(self, place: int = 0) -> None:
        self._sum = 0
        self._rest = bytes(place % WORD)

    def include(self, part: OnesSum) -> None:
        """Add the sum of a part that was taken by itself."""
        self._sum += part.value

    def add(self, piece: Bytes) -> None:
        """Add contiguous bytes; up to three are kept for the next time, to make up a word."""
        if self._rest:
            missing = WORD - len(self._rest)
            head, piece = piece[:missing], piece[missing:]
            self._rest += head.tobytes()
            if len(self._rest) < WORD:
                return
            self._sum += int.from_bytes(self._rest)
        whole = piece.size - piece.size % WORD
        self._sum += int(piece[:whole].view(">u4").sum(dtype=np.uint64))
        self._rest = piece[whole:].tobytes()

    @property
    def value(self) -> int:
        """The 32-bit sum; FITS data come in blocks, so nothing is left over at their end."""
        total = self._sum + int.from_bytes(self._rest.ljust(WORD, b"\0") if self._rest else b"")
        while total > ALL_ONES:  # the carries are added at the low end
            total = (total & ALL_ONES) + (total >> 32)
        return total


@lru_cache(maxsize=64)
def wrong_sum(path: Path, expected: Stamp) -> tuple[str, bool] | None:
    """Return which sum of a file's HDUs does not match, None where all do; the file must still be as `expected`.

    The truth value says whether the sum was one of these bytes.  `astropy.table.Table` copies the cards of the table
    that it has read into the one that it writes, whatever was changed, and leaves the comments out that all writers of
    sums put beside them.
    """
    with open_source(path, expected) as source:
        sums = [(hdu, _wrong_sum_of(source, hdu)) for hdu in read_hdus(source)]
    found = [(wrong, bool(hdu.comment("DATASUM") or hdu.comment("CHECKSUM"))) for hdu, wrong in sums if wrong]
    wrong, own = max(found, key=lambda each: each[1], default=("", False))
    copied = "" if own else "; the card was copied from another table, as astropy does"
    return (wrong + copied, own) if wrong else None


def _wrong_sum_of(source: Source, hdu: Hdu) -> str | None:
    """Return which sum of an HDU does not match; a blank one states nothing."""
    stated = {key: str(hdu.value(key) or "").strip() for key in ("DATASUM", "CHECKSUM")}
    if not any(stated.values()):
        return None
    data, whole = OnesSum(), OnesSum()
    for piece in source.pieces(hdu.data_offset, min(hdu.end, source.size)):
        data.add(piece)
    if stated["DATASUM"] and stated["DATASUM"] != str(data.value):
        return f"{source.path}: the data of HDU {hdu} have the DATASUM {data.value}, expected {stated['DATASUM']}"
    whole.add(source.read(hdu.offset, hdu.n_bytes))
    whole.include(data)
    if stated["CHECKSUM"] and whole.value not in {0, ALL_ONES}:
        return f"{source.path}: HDU {hdu} has the sum {whole.value}, expected {ALL_ONES} by its CHECKSUM"
    return None


def encoded(total: int) -> str:
    """Return the 16 characters that make the HDU, whose sum is `total` with BLANK in their place, sum to -0."""
    quads = []  # of each byte four characters that sum to it plus four zeros, without punctuation
    for byte in (ALL_ONES - total).to_bytes(4):
        quotient, remainder = divmod(byte, 4)
        quad = [ord("0") + quotient + remainder, *[ord("0") + quotient] * 3]
        while any(c in PUNCTUATION for c in quad):
            for i in (0, 2):
                if quad[i] in PUNCTUATION or quad[i + 1] in PUNCTUATION:
                    quad[i], quad[i + 1] = quad[i] + 1, quad[i + 1] - 1
        quads.append(quad)
    text = "".join(chr(quad[i]) for i in range(4) for quad in quads)
    return text[-1] + text[:-1]  # the value begins one byte into a word
