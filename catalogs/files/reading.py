"""Files that are read: found in folders, the same while they are read, decompressed where they are packed."""

from __future__ import annotations

import bz2
import glob
import gzip
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, cast
from urllib.parse import unquote

from catalogs.errors import CatalogError, DamagedFileError, nearest

HiveValue = int | str | None

HIVE = re.compile(r"([^=]+)=(.*)")
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

ENDLESS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""What may be in a folder and is no file: reading it may never end."""


def is_pattern(path: Path) -> bool:
    """Say whether a path is a pattern rather than the name of something that is there."""
    return glob.has_magic(str(path)) and not path.exists()


def expand(path: Path, wanted: Callable[[Path], bool]) -> tuple[Path, list[Path]]:
    """Return the root and the files, in the order of their names, of a folder or a pattern.

    Of a folder only the `wanted` files count, at any depth; a pattern names its files itself.
    """
    if path.is_dir():
        return path, sorted(p for p in files_below(path) if wanted(p))
    if not is_pattern(path):
        raise missing(path)
    parts = path.parts[:-1]
    first = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    root = Path(*parts[:first])
    matches = glob.iglob(str(path), recursive=True)  # noqa: PTH207 -- pathlib has no pattern with an absolute start
    files = sorted(match for p in matches if require_file(match := Path(p)).is_file())
    if not files:
        raise CatalogError(f"no file matches {path.absolute()}, expected at least one; {what_is_there(path)}")
    return root, files


def missing(path: Path) -> CatalogError:
    """Return the error for a file that is not there, with the nearest that is."""
    require_file(path)
    return CatalogError(f"there is no {path.absolute()}; {what_is_there(path)}")


def what_is_there(path: Path) -> str:
    """Return a clause on where a path or a pattern that nothing has leads to, and what may be wrong with it."""
    folder = next(p for p in path.absolute().parents if p.is_dir())
    name, *below = path.absolute().relative_to(folder).parts
    there = [p for p in folder.iterdir() if not p.name.startswith(".")]
    if not there:
        return f"the folder {folder} is empty: is its disk mounted?"
    is_folder = (bool(below) or not Path(name).suffix) and not glob.has_magic(name)
    hint = nearest(name, (p.name for p in there if p.is_dir() or not is_folder))
    if not is_folder:
        return hint
    mounted = "is its disk mounted" + (f", or {hint}" if hint.startswith("did you mean") else "?")
    return f"there is no folder {folder / name}: {mounted}" if below else mounted


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder at any depth; names that begin with . or _ are no data (`_metadata`).

    CatalogError where a FIFO, a device or a socket is among them.
    """
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")):
            continue
        if path.is_dir():
            yield from files_below(path)
        else:
            yield require_file(path)


def require_file(path: Path) -> Path:
    """Return a path; CatalogError where there is a FIFO, a device or a socket."""
    try:
        kind = ENDLESS.get(stat.S_IFMT(path.stat().st_mode))
    except OSError:  # whoever opens it says what is wrong
        return path
    if kind is not None:
        raise not_a_file(path, kind)
    return path


def open_bytes(path: Path) -> BufferedReader:
    """Open a file for reading; CatalogError where a FIFO, a device or a socket has taken its place."""
    try:  # without waiting for who writes to a FIFO
        stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError:
        require_file(path)
        raise
    if kind := ENDLESS.get(stat.S_IFMT(os.fstat(stream.fileno()).st_mode)):
        stream.close()
        raise not_a_file(path, kind)
    return stream


def not_a_file(path: Path, kind: str) -> CatalogError:
    """Return the error for what is no file."""
    return CatalogError(f"{path} is {kind}, expected a file; move it elsewhere, or name the files one by one")


def hive_constants(keys: Sequence[str]) -> list[dict[str, HiveValue]]:
    """Return the columns that the folders `name=value` of each file's key give it.

    A column of whole numbers in all files is one of integers, else it is text.
    """
    pairs = [dict(folder_pairs(key)) for key in keys]
    integers = {name for name in union(pairs) if all(is_integer(p.get(name)) for p in pairs)}
    return [{n: None if v is None else int(v) if n in integers else v for n, v in p.items()} for p in pairs]


def folder_pairs(key: str) -> Iterator[tuple[str, str | None]]:
    """Yield the names and values of a key's folders."""
    for folder in key.split("/")[:-1]:
        if match := HIVE.fullmatch(folder):
            name, value = unquote(match[1]), unquote(match[2])
            yield name, None if value == HIVE_NULL else value


def is_integer(value: str | None) -> bool:
    """Say whether a value is a whole number as integers are written, or null."""
    return value is None or re.fullmatch(r"0|-?[1-9][0-9]{0,17}", value) is not None


def union(pairs: Iterable[Mapping[str, str | None]]) -> set[str]:
    """Return all names."""
    return {name for p in pairs for name in p}


@dataclass(frozen=True)
class Stamp:
    """What changes when a file does."""

    size: int
    modified_ns: int
    inode: int


def stamp(path: Path) -> Stamp:
    """Return the file's stamp; CatalogError for a folder, or where there is nothing."""
    if not require_file(path).is_file():
        raise CatalogError(f"{path} is not a file; check the name")
    status = path.stat()
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


def check_unchanged(path: Path, expected: Stamp) -> None:
    """Raise DamagedFileError where a file is another one than when it was opened."""
    if (current := stamp(path)) != expected:
        raise DamagedFileError(
            f"{path} changed after it was opened: {expected.size:,} bytes then, {current.size:,} now; open "
            "it again when it is complete"
        )


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
