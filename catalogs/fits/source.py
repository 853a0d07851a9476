"""The bytes of a FITS file at given places; a gzipped file is inflated to an unnamed temporary first.

Files are read, not memory-mapped: if a file is cut while it is read, this gives an error, where a memory map would
kill the process; and mapped pages would count as memory of this process.  Reads carry their place, so threads may
share.
"""

from __future__ import annotations

import functools
import gzip
import os
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from catalogs.errors import CatalogError, DamagedFileError
from catalogs.files.atomic import StorageError
from catalogs.files.folders import open_bytes
from catalogs.files.stamp import Stamp, check_unchanged

__all__ = [
    "GZIP_MAGIC",
    "KEEP_FREE",
    "MAX_INFLATED",
    "Bytes",
    "Source",
    "Unnamed",
    "is_gzipped",
    "open_source",
]

Bytes = npt.NDArray[np.uint8]

GZIP_MAGIC = b"\x1f\x8b"
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
    owner: object = None  # Keeps a reference, so that no cache closes the file while it is read.

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
        return stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC


@contextmanager
def open_source(path: Path, expected: Stamp) -> Iterator[Source]:
    """Open a file; `DamagedFileError` if it is no longer the one that was `expected`."""
    check_unchanged(path, expected)
    if is_gzipped(path):
        yield _inflated(path, expected).source(path)
        return
    with open_bytes(path) as raw:
        yield Source(path, raw.fileno(), expected.size)


@dataclass(frozen=True, eq=False)
class Unnamed:
    """A file without a name, closed when nobody refers to it."""

    descriptor: int

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.descriptor)

    @classmethod
    def of(cls, stream: IO[bytes]) -> Unnamed:
        """Keep a temporary file open after `stream` is closed."""
        stream.flush()
        return cls(os.dup(stream.fileno()))

    def source(self, path: Path) -> Source:
        """Return the bytes, under the name of the file that they were made from."""
        return Source(path, self.descriptor, os.fstat(self.descriptor).st_size, self)


@functools.lru_cache(maxsize=4)
def _inflated(path: Path, seen: Stamp) -> Unnamed:  # noqa: ARG001  (the stamp is part of the cache's key)
    """Inflate to a file that has no name, so that nothing is left behind however the process ends."""
    with (
        open_bytes(path) as zipped,
        gzip.GzipFile(fileobj=zipped) as stream,
        tempfile.TemporaryFile() as inflated,
    ):
        try:
            _copy_bounded(path, stream, inflated)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DamagedFileError(f"{path} cannot be decompressed: {error}; copy it again") from error
        return Unnamed.of(inflated)


def _copy_bounded(path: Path, stream: gzip.GzipFile, inflated: IO[bytes]) -> None:
    folder, done = tempfile.gettempdir(), 0
    while piece := stream.read(PIECE):
        done += len(piece)
        if done > MAX_INFLATED:
            raise CatalogError(
                f"{path} has more than {MAX_INFLATED:,} bytes after decompression; decompress it yourself, "
                "and open the result"
            )
        if shutil.disk_usage(folder).free < KEEP_FREE:
            raise StorageError(
                f"not enough space in {folder} to decompress {path} ({done:,} bytes were written); set "
                "TMPDIR to a folder on another disk"
            )
        inflated.write(piece)
