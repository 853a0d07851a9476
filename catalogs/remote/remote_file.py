"""One file that lies elsewhere: https, s3, gs, abfs, and whatever else fsspec has a driver for.

Reading asks for the bytes that are wanted, piece by piece.  An annotated copy has every old byte, so for that a file is
fetched, beside its copy, and goes when the copy is whole; copies are local.  Nothing is cached.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catalogs.errors import CatalogError, DamagedFileError
from catalogs.files.atomic import atomic_path, check_free_space
from catalogs.remote.urls import RemoteState, file_name, is_web, key_below, shown, speaking_of

__all__ = ["RemoteFile"]

BLOCK = 1 << 20
"""Bytes asked for at a time, so that a column chunk of any size is streamed."""
MAGIC_BYTES = 8
PATIENCE = 120.0
SLOWEST = 2_000
"""Seconds that any transfer may take, and bytes a second that a longer one needs: very slow transfers are ended."""

Progress = Callable[[int], None]


@dataclass(frozen=True)
class RemoteFile:
    """One file of a file system that fsspec knows: its path there, its size in bytes.

    `tag` is the server's word for this state of the file, empty where it has none that can be trusted; `state` is all
    that it says of it.
    """

    filesystem: Any
    path: str
    n_bytes: int
    tag: str = ""
    state: RemoteState = field(default_factory=RemoteState)

    @property
    def url(self) -> str:
        """The file's URL, as it has to be asked for."""
        return str(self.filesystem.unstrip_protocol(self.path))

    @property
    def name(self) -> str:
        """The file's name."""
        return file_name(self.url)

    def key(self, root: str) -> str:
        """Return its path below a folder."""
        return key_below(self.path, root)

    def __str__(self) -> str:
        return shown(self.url)

    @contextmanager
    def open(self) -> Iterator[io.BufferedIOBase]:
        """Open the file for reading anywhere; what a server hands out only whole is fetched first."""
        with speaking_of(self.url):
            stream = self.filesystem.open(self.path, block_size=BLOCK)
        with stream:
            if self._gives_ranges(stream):
                with io.BufferedReader(_Spoken(stream, self.url), BLOCK) as spoken:
                    yield spoken
                return
        with tempfile.TemporaryDirectory(prefix="blr-remote-") as folder:
            whole = Path(folder) / "whole"
            self.fetch(whole)
            with whole.open("rb") as local:
                yield local

    @contextmanager
    def fetched(self, folder: Path) -> Iterator[Path]:
        """Give a temporary local copy, in a folder of its own in `folder`."""
        with tempfile.TemporaryDirectory(prefix=".blr-fetched-", dir=folder) as name:
            local = Path(name) / self.name
            self.fetch(local)
            yield local

    def fetch(self, local: Path, progress: Progress | None = None) -> None:
        """Copy the file to a path, whole or not at all; `progress` hears of bytes."""
        check_free_space(local.parent, self.n_bytes)
        with atomic_path(local) as temporary:
            with speaking_of(self.url):
                self.filesystem.get_file(self.path, str(temporary), callback=_watch(self, progress))
            self.check_size(temporary.stat().st_size)

    def check_size(self, got: int) -> None:
        """Raise where fewer or more bytes came than the file has."""
        if got != self.n_bytes:
            raise DamagedFileError(
                f"{self} gave {got:,} bytes, expected {self.n_bytes:,}; the file changed or the connection "
                "broke: try again"
            )

    def _gives_ranges(self, stream: Any) -> bool:
        """Say whether any piece may be asked for; tried, since servers that give none do not always say so."""
        if not stream.seekable():
            return False
        if getattr(stream, "size", None) is not None:
            self.check_size(stream.size)
        if not is_web(self.url) or self.n_bytes <= BLOCK:
            return True
        with speaking_of(self.url):
            try:
                stream.seek(-MAGIC_BYTES, io.SEEK_END)
                stream.read(MAGIC_BYTES)
                stream.seek(0)
            except ValueError:  # fsspec's word for a server that sends the whole
                return False
        return True


class _Spoken(io.RawIOBase):
    """A stream whose errors are translated into our own."""

    def __init__(self, stream: Any, url: str) -> None:
        self._stream, self._url = stream, url

    def readinto(self, buffer: Any) -> int:
        """Read as much as there is room for."""
        with speaking_of(self._url):
            got = self._stream.read(len(buffer))
        buffer[: len(got)] = got
        return len(got)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go elsewhere."""
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        """Say where."""
        return int(self._stream.tell())

    def seekable(self) -> bool:
        """Say that pieces may be asked for."""
        return True

    def readable(self) -> bool:
        """Say that it may be read."""
        return True


def _watch(file: RemoteFile, progress: Progress | None) -> Any:
    """Return a callback of fsspec that ends a transfer which sends more bytes than the file has, or is too slow."""
    from fsspec.callbacks import Callback  # noqa: PLC0415 -- slow to import, and most files are here

    began, seen = time.monotonic(), 0

    def hear(_size: int | None, got: int, **_: Any) -> None:
        nonlocal seen
        if progress is not None and got > seen:
            progress(got - seen)
        seen = got
        if got > file.n_bytes:
            file.check_size(got)
        if time.monotonic() - began > PATIENCE + got / SLOWEST:
            raise CatalogError(
                f"{file} arrived at less than {SLOWEST:,} bytes a second, which is too slow; try again later"
            )

    return Callback(hooks={"bytes": hear})
