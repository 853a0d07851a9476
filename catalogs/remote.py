"""Parquet files that lie elsewhere: https, s3, gs, abfs, and whatever else fsspec has a driver for.

Reading asks for the footer and the columns that are wanted, piece by piece.  An annotated copy has every old byte, so
for that a file is fetched, beside its copy, and goes when the copy is whole; copies are local.  Nothing is cached.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import Any, cast
from urllib.parse import unquote

import fsspec
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from catalogs.atomic import check_free_space
from catalogs.errors import CatalogError, DamagedFileError, FormatError

__all__ = ["RemoteFile", "is_remote", "remote_files"]

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
WHOLE = ("hats.properties", "properties", "collection.properties")
"""Files that tell a HATS catalogue."""
BLOCK = 1 << 20
"""Bytes asked for at a time, so that a column chunk of any size is streamed."""


@dataclass(frozen=True)
class RemoteFile:
    """One file of a file system that fsspec knows: its path there, its size in bytes."""

    filesystem: Any
    path: str
    n_bytes: int

    def key(self, root: str) -> str:
        """Return its path below a root; on the web, listings quote what they name."""
        below = self.path.removeprefix(root).lstrip("/")
        return unquote(below) if self.path.startswith(("http://", "https://")) else below

    def __str__(self) -> str:
        return str(self.filesystem.unstrip_protocol(self.path))

    @contextmanager
    def open(self) -> Iterator[BufferedIOBase]:
        """Open the file for reading anywhere; what a server hands out only whole is fetched first."""
        with speaking_of(str(self)):
            opened = self.filesystem.open(self.path, block_size=BLOCK)
        with opened as stream:
            if stream.seekable():
                yield stream
                return
            with tempfile.TemporaryFile() as whole:
                shutil.copyfileobj(stream, whole, BLOCK)
                self.check_size(whole.tell())
                yield cast("BufferedIOBase", whole)

    @contextmanager
    def fetched(self, folder: Path) -> Iterator[Path]:
        """Give a temporary local copy, in a folder of its own in `folder`."""
        check_free_space(folder, self.n_bytes)
        with tempfile.TemporaryDirectory(prefix=".blr-fetched-", dir=folder) as name:
            local = Path(name) / PurePosixPath(self.path).name
            with speaking_of(str(self)):
                self.filesystem.get_file(self.path, str(local))
            self.check_size(local.stat().st_size)
            yield local

    def check_size(self, got: int) -> None:
        """Raise where fewer or more bytes came than the file has."""
        if got != self.n_bytes:
            raise DamagedFileError(
                f"{self} gave {got:,} bytes, expected {self.n_bytes:,}; it changed, or the connection broke: try again"
            )


def is_remote(source: str) -> bool:
    """Say whether a text is a URL rather than a path."""
    return URL.match(source) is not None


def remote_files(url: str, suffixes: tuple[str, ...]) -> tuple[str, list[RemoteFile]] | Path:
    """Return a URL's root and files, in the order of their names; the path of a URL that means a local file.

    Of a folder those count that are named as Parquet files; a pattern (`s3://bucket/release/*.parquet`) names its own.
    """
    filesystem, path = reached(url)
    if isinstance(filesystem, LocalFileSystem):
        return Path(path)
    with speaking_of(url):
        return listed(filesystem, path, suffixes)


def listed(filesystem: Any, path: str, suffixes: tuple[str, ...]) -> tuple[str, list[RemoteFile]]:
    """Return the root and the files of a path on a file system."""
    named = path.lower().endswith(suffixes)
    if any(c in path for c in "*["):
        root = path[: min(path.index(c) for c in "*[" if c in path)].rpartition("/")[0]
        paths = filesystem.glob(path)
    elif named:
        root, paths = path.rpartition("/")[0], [path]
    else:
        root = path.rstrip("/")
        paths = [p for p in filesystem.find(root) if p.lower().endswith(suffixes) and is_data(p, root)]
        if any(filesystem.exists(f"{root}/{name}") for name in WHOLE):
            raise FormatError(
                f"{filesystem.unstrip_protocol(root)} is a HATS catalogue, which is read from a local folder only; "
                f"fetch it first, or open the Parquet files below its folder dataset, without its margins"
            )
    if not paths:
        raise FormatError(
            f"{filesystem.unstrip_protocol(path)} holds no Parquet file; expected names ending in {', '.join(suffixes)}"
        )
    return root, [RemoteFile(filesystem, p, size_of(filesystem, p)) for p in sorted(paths)]


def is_data(path: str, root: str) -> bool:
    """Say whether no part of a path below the root begins with . or _, as those of other things do."""
    parts = path.removeprefix(root).strip("/").split("/")
    return not any(part.startswith((".", "_")) for part in parts)


def size_of(filesystem: Any, path: str) -> int:
    """Return how many bytes a file has."""
    size = filesystem.info(path).get("size")
    if size is None:
        raise FormatError(
            f"{filesystem.unstrip_protocol(path)} is of unknown size, so nobody can tell whether all of it came; "
            "fetch it, and open the copy"
        )
    return int(size)


def reached(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path there; CatalogError where there is no driver for it."""
    try:
        filesystem, path = url_to_fs(url)
    except ImportError as error:
        raise CatalogError(f"{url} cannot be reached: {error}; install the driver that is named") from error
    except ValueError as error:
        known = ", ".join(sorted(fsspec.available_protocols()))
        raise CatalogError(f"{url} cannot be reached: {error}; expected one of {known}") from error
    return filesystem, str(path)


@contextmanager
def speaking_of(url: str) -> Iterator[None]:
    """Say in our words what goes wrong on the way to a URL."""
    try:
        yield
    except FileNotFoundError as error:
        raise CatalogError(f"there is no {url}; correct the URL") from error
    except PermissionError as error:
        raise CatalogError(f"{url} may not be read: {error}; see to its driver's credentials") from error
    except (OSError, TimeoutError) as error:
        raise CatalogError(
            f"{url} cannot be read: {str(error) or type(error).__name__}; try again later"
        ) from error
