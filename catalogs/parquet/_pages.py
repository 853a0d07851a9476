"""Pages of a Parquet file: their headers, and the checksums (CRC-32) that writers may put there.

https://parquet.apache.org/docs/file-format/data-pages/checksumming/
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

from catalogs.files.folders import open_bytes
from catalogs.files.stamp import Stamp, check_unchanged
from catalogs.parquet._footer import (
    I32,
    PAGE_COMPRESSED,
    PAGE_CRC,
    MalformedError,
    outline_and_end,
    read_chunks,
)
from catalogs.parquet.writer import pages_extent

__all__ = ["wrong_page"]

HEADERS = (1 << 10, 1 << 16, 1 << 20)
"""Bytes within which the header of a page is expected: statistics in it may be long."""
PIECE = 1 << 22
CRC = 2**32 - 1


@dataclass(frozen=True)
class Page:
    """Where the bytes of a page are, and their checksum, None where none is stated."""

    start: int
    end: int
    crc: int | None


@lru_cache(maxsize=64)
def wrong_page(path: Path, expected: Stamp) -> str | None:
    """Return which page of a file has another checksum than its header states, None where none has."""
    check_unchanged(path, expected)
    with open_bytes(path) as stream:
        for chunk in read_chunks(stream, path):
            for page in pages(stream, *pages_extent(chunk.column)):
                if page.crc is None:
                    break  # writers state it of all pages of a column or of none
                if (found := crc(stream, page)) != page.crc:
                    found_there = f"the page at byte {page.start:,} has the CRC {found:08x}"
                    return f"{path}: {found_there}, expected {page.crc:08x} by its header"
    return None


def pages(stream: IO[bytes], at: int, end: int) -> Iterator[Page]:
    """Yield the pages of a column chunk, up to the first whose header cannot be read."""
    while at < end:
        for size in HEADERS:
            stream.seek(at)
            try:
                fields, n_bytes = outline_and_end(stream.read(size))
                break
            except MalformedError:
                continue
        else:
            return
        kind, size = fields.get(PAGE_COMPRESSED, (I32, -1))
        if kind != I32 or size < 0 or at + n_bytes + size > end:
            return
        stated = fields[PAGE_CRC][1] & CRC if PAGE_CRC in fields else None
        yield Page(at + n_bytes, at + n_bytes + size, stated)
        at += n_bytes + size


def crc(stream: IO[bytes], page: Page) -> int:
    """Return the checksum of a page's bytes."""
    stream.seek(page.start)
    value, left = 0, page.end - page.start
    while left and (piece := stream.read(min(left, PIECE))):
        value, left = zlib.crc32(piece, value), left - len(piece)
    return value
