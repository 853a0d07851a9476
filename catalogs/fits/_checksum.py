"""DATASUM and CHECKSUM: the ones'-complement sum of an HDU's 32-bit words, added up while it is written, and verified.

FITS Standard 4.0, section 4.4.2.7 and appendix J.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from catalogs.files.stamp import Stamp
from catalogs.fits.header import Hdu, read_hdus
from catalogs.fits.source import Bytes, Source, open_source

__all__ = ["BLANK", "OnesSum", "encoded", "wrong_sum"]

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
        return folded(self._sum + int.from_bytes(self._rest.ljust(WORD, b"\0") if self._rest else b""))


@lru_cache(maxsize=64)
def wrong_sum(path: Path, expected: Stamp) -> tuple[str, bool] | None:
    """Return which sum of a file's HDUs does not match, None where all do; the file must still be as `expected`.

    The truth value says whether the sum was one of these bytes.  `astropy.table.Table` copies the cards of the table
    that it has read into the one that it writes, whatever was changed, and leaves the comments out that all writers of
    sums put beside them.
    """
    with open_source(path, expected) as source:
        found = [
            (wrong, bool(hdu.header.comment("DATASUM") or hdu.header.comment("CHECKSUM")))
            for hdu in read_hdus(source)
            if (wrong := _wrong_sum_of(source, hdu))
        ]
    return max(found, key=lambda each: each[1], default=None)


def _wrong_sum_of(source: Source, hdu: Hdu) -> str | None:
    """Return which sum of an HDU does not match; a blank one states nothing."""
    stated = {key: str(hdu.header.value(key) or "").strip() for key in ("DATASUM", "CHECKSUM")}
    if not any(stated.values()):
        return None
    data, whole = OnesSum(), OnesSum()
    for piece in source.pieces(hdu.data_offset, min(hdu.end, source.size)):
        data.add(piece)
    if stated["DATASUM"] and stated["DATASUM"] != str(data.value):
        return f"{source.path}: the data of HDU {hdu} have the DATASUM {data.value}, expected {stated['DATASUM']}"
    whole.add(source.read(hdu.header.offset, hdu.header.n_bytes))
    whole.include(data)
    if stated["CHECKSUM"] and whole.value not in {0, ALL_ONES}:
        return f"{source.path}: HDU {hdu} has the sum {whole.value}, expected {ALL_ONES} by its CHECKSUM"
    return None


def folded(total: int) -> int:
    """Add the carries in at the low end until no carry is left."""
    while total > ALL_ONES:
        total = (total & ALL_ONES) + (total >> 32)
    return total


def encoded(total: int) -> str:
    """Return the 16 characters that make the HDU, whose sum is `total` with BLANK in their place, sum to -0."""
    quads = [_quad(byte) for byte in (ALL_ONES - total).to_bytes(4)]
    text = "".join(chr(quad[i]) for i in range(4) for quad in quads)
    return text[-1] + text[:-1]  # the value begins one byte into a word


def _quad(byte: int) -> list[int]:
    """Return four characters that sum to the byte plus four zeros, without punctuation."""
    quotient, remainder = divmod(byte, 4)
    quad = [ord("0") + quotient + remainder, *[ord("0") + quotient] * 3]
    while any(c in PUNCTUATION for c in quad):
        for i in (0, 2):
            if quad[i] in PUNCTUATION or quad[i + 1] in PUNCTUATION:
                quad[i], quad[i + 1] = quad[i] + 1, quad[i + 1] - 1
    return quad
