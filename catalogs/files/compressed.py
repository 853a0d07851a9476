"""Files that may be compressed as a whole: gzip or bzip2, told by their first bytes."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from catalogs.errors import DamagedFileError
from catalogs.files.folders import open_bytes

__all__ = ["COMPRESSED_SUFFIXES", "first_bytes", "reading", "writing_like"]

GZIP, BZIP2 = b"\x1f\x8b", b"BZh"

COMPRESSED_SUFFIXES = ("", ".gz", ".bz2")


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading what it holds, inflated; damage to the compression is said in our words."""
    with open_bytes(path) as raw:
        magic = raw.read(3)
        raw.seek(0)
        try:
            with inflated(raw, magic) as stream:
                yield stream
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise damaged(path, error) from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise damaged(path, error) from error


def inflated(raw: IO[bytes], magic: bytes) -> IO[bytes]:
    """Return a stream of the inflated bytes."""
    if magic.startswith(GZIP):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    return cast("IO[bytes]", bz2.BZ2File(raw)) if magic.startswith(BZIP2) else raw


def damaged(path: Path, error: Exception) -> DamagedFileError:
    """Return the error for a file whose compression breaks off."""
    size = path.stat().st_size
    return DamagedFileError(
        f"{path} ({size} bytes) is damaged: {error}; expected a whole compressed file: fetch it again"
    )


@contextmanager
def writing_like(path: Path, source: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing, compressed as `source` is; the same content gives the same bytes."""
    with open_bytes(source) as stream:
        magic = stream.read(3)
    with path.open("wb") as raw:
        if magic.startswith(GZIP):
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
                yield cast("IO[bytes]", stream)
        elif magic.startswith(BZIP2):
            with bz2.BZ2File(raw, "wb") as stream:
                yield cast("IO[bytes]", stream)
        else:
            yield raw


def first_bytes(path: Path, size: int = 65536) -> bytes:
    """Return the first inflated bytes of a file; none where they cannot be had."""
    try:
        with reading(path) as stream:
            return stream.read(size)
    except (OSError, DamagedFileError):
        return b""
