"""The base64 of a VOTable's BINARY and BINARY2, found and decoded a piece at a time, whatever the size of the file.

The rest of the document, which is small, is kept whole.  Whatever is unusual is left to astropy: the caller gets None.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from catalogs.compressed import reading
from catalogs.errors import DamagedFileError

__all__ = ["ELSEWHERE", "Stream", "encoded", "find_stream"]

BLOCK_BYTES = 1 << 20
LONGEST_HEAD = 1 << 22
"""Bytes in front of the data, and behind them, that are kept."""

OPENING = re.compile(rb"<(?:\w+:)?(BINARY2?)\s*>\s*<(?:\w+:)?STREAM\b([^<>]*)>")
BASE64 = re.compile(rb"\bencoding\s*=\s*['\"]base64['\"]")
COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
TABLE = re.compile(rb"<(?:\w+:)?TABLE[\s>]")
STREAM = re.compile(rb"<(?:\w+:)?STREAM\b")
ELSEWHERE = re.compile(rb"<(?:\w+:)?(?:STREAM|FITS|PARQUET)\b[^>]*\bhref\s*=")
"""Data that lie in another file, or on the network: what a document says is not fetched."""


@dataclass(frozen=True)
class Stream:
    """Where the base64 of the rows is in the inflated file."""

    path: Path
    serialisation: str
    start: int
    end: int

    def pieces(self) -> Iterator[bytes]:
        """Yield what it encodes; `binascii.Error` where it is no base64."""
        rest, left = b"", self.end - self.start
        with reading(self.path) as stream:
            stream.seek(self.start)
            while left and (block := stream.read(min(left, BLOCK_BYTES))):
                left -= len(block)
                text = rest + block.translate(None, b" \t\r\n")
                whole = len(text) if not left else len(text) // 4 * 4
                rest = text[whole:]
                yield binascii.a2b_base64(text[:whole], strict_mode=True)
                if b"=" in text[:whole]:
                    if (rest + stream.read(left)).strip():
                        raise binascii.Error("something behind the padding")
                    return


def find_stream(path: Path) -> tuple[bytes, Stream] | None:
    """Return a document of one table without its rows, and where these are; None for any other document."""
    with reading(path) as stream:
        head = stream.read(LONGEST_HEAD)
        found = OPENING.search(head)
        if found is None or not BASE64.search(found[2]) or found[2].endswith(b"/"):
            return None
        size, behind = data_until_tag(path, stream, head[found.end() :])
        if len(behind) > LONGEST_HEAD:
            return None
    rest = COMMENT.sub(b"", head[: found.end()] + behind)
    if b"<!" in rest or len(TABLE.findall(rest)) != 1 or len(STREAM.findall(rest)) != 1:
        return None
    if ELSEWHERE.search(rest):
        return None
    return rest, Stream(path, found[1].decode(), found.end(), found.end() + size)


def data_until_tag(path: Path, stream: IO[bytes], block: bytes) -> tuple[int, bytes]:
    """Return how many bytes there are before the next tag, and what follows them, up to somewhat beyond the limit."""
    size = 0
    while (at := block.find(b"<")) < 0:
        size += len(block)
        block = stream.read(BLOCK_BYTES)
        if not block:
            raise DamagedFileError(
                f"{path} ends within its data, after {size} bytes of them; expected a whole VOTable: fetch it again"
            )
    return size + at, block[at:] + stream.read(LONGEST_HEAD + 1)


def encoded(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the base64 of all pieces together, without line ends."""
    rest = b""
    for piece in pieces:
        data = rest + piece
        whole = len(data) // 3 * 3
        rest = data[whole:]
        yield binascii.b2a_base64(data[:whole], newline=False)
    yield binascii.b2a_base64(rest, newline=False)
