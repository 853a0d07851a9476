"""The base64 of a VOTable's BINARY and BINARY2, decoded and encoded a piece at a time, whatever the size."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator
from xml.parsers import expat

from catalogs.votable._document import Data

__all__ = ["encoded", "stream_bytes"]

BLOCK_BYTES = 1 << 20
BLANKS = b" \t\r\n"


def stream_bytes(data: Data) -> Iterator[bytes]:
    """Yield what the STREAM of a table encodes; `binascii.Error` where it is no base64."""
    rest, padded = b"", False
    for block in texts(data):
        text = rest + block.translate(None, BLANKS)
        if padded and text:
            raise binascii.Error("there are letters after the padding")
        whole = len(text) // 4 * 4
        rest = text[whole:]
        padded = b"=" in text[:whole]
        yield binascii.a2b_base64(text[:whole], strict_mode=True)
    if rest:
        raise binascii.Error(f"{len(rest)} letters remain after the last group of four")


def texts(data: Data) -> Iterator[bytes]:
    """Yield the text of an element, what is not ASCII as question marks."""
    chunks: list[str] = []
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.CharacterDataHandler = chunks.append
    for block in data.blocks(BLOCK_BYTES):
        parser.Parse(block, False)  # noqa: FBT003 -- expat takes no keyword
        yield "".join(chunks).encode("ascii", "replace")
        chunks.clear()


def encoded(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the base64 of all pieces together, without line ends."""
    rest = b""
    for piece in pieces:
        data = rest + piece
        whole = len(data) // 3 * 3
        rest = data[whole:]
        yield binascii.b2a_base64(data[:whole], newline=False)
    yield binascii.b2a_base64(rest, newline=False)
