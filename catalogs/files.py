"""Files on this machine: written whole or not at all; found in folders, the same while they are read, decompressed.

Every file reaches its final name in three steps: written under another, flushed to the disk, renamed.  A run may be
killed at any moment; every file with its final name is complete.  Left-overs of killed runs have names that only this
module makes, and `sweep` removes those whose maker is gone.
"""

from __future__ import annotations

import bz2
import errno
import fcntl
import glob
import gzip
import os
import re
import shutil
import stat
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, Literal, cast
from urllib.parse import unquote

from catalogs.errors import CatalogError, DamagedFileError, nearest

PREFIX = ".blr-"
SUFFIX = ".tmp"
"""Hidden, so that dataset scanners (Arrow, HATS) pass over a temporary; short, so that any name fits."""
_root_of: dict[Path, Path] = {}
"""Folders that `own_folder` made, each with its root: `atomic_path` lets no symbolic link lead out of that."""
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
HiveValue = int | str | None
HIVE = re.compile(r"([^=]+)=(.*)")
INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
ENDLESS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""What may be in a folder and is no file: reading it may never end."""
GZIP, BZIP2 = b"\x1f\x8b", b"BZh"
COMPRESSED_SUFFIXES = ("", ".gz", ".bz2")


class StorageError(CatalogError):
    """The output cannot be stored: no room, no permission, no such folder."""


@contextmanager
def atomic_path(final: Path) -> Iterator[Path]:
    """Give an empty temporary file in the folder of `final`; rename it so once the block has succeeded.

    If the block raises, or is interrupted, the temporary is removed and `final` is as it was.
    """
    if final.parent in _root_of:
        check_links(final.parent, _root_of[final.parent])
    if final.is_dir():
        raise StorageError(f"{final} is a folder, expected the name of a file to write; choose another name")
    try:  # the lock goes when the process does, however it ends
        temporary, lock = _locked(final.parent)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise StorageError(_no_room(final, error)) from error
        why = f"{error.strerror} in {final.parent}; expected a folder that you may write to; check its permissions"
        if error.errno == errno.ENOENT:
            why = f"there is no folder {final.parent}; create it first"
        raise StorageError(f"{final} cannot be written: {why}, or choose another folder") from error
    parent = final.parent.stat()
    try:
        yield temporary
        if not os.path.samestat(final.parent.stat(), parent):
            raise StorageError(
                f"{final}: got another folder in the place of {final.parent} while the file was written, expected the "
                "same to the end; find out who moves it, and run again"
            )
        flush_to_disk(temporary)
        temporary.replace(final)
        flush_to_disk(final.parent)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise StorageError(_no_room(final, error)) from error
        raise
    finally:
        # After the rename there is nothing of that name; before it, the block has failed.
        with suppress(FileNotFoundError):
            temporary.unlink()
        os.close(lock)


@contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """Give an empty folder beside `final`; what is called as `final` in it takes that name once the block succeeds.

    A folder that was there is replaced; if the block raises, or is interrupted, it is as it was.
    """
    with scratch_folder(final.parent) as temporary:
        yield temporary
        if final.exists():
            final.replace(temporary / f"{PREFIX}old{SUFFIX}")
        (temporary / final.name).replace(final)
        flush_to_disk(final.parent)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Give an empty folder inside `parent` as long as the block lasts; `sweep` removes those of killed runs."""
    temporary, lock = _locked(parent, folder=True)
    try:
        yield temporary
    finally:
        os.close(lock)
        shutil.rmtree(temporary, ignore_errors=True)


def atomic_write_bytes(final: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with atomic_path(final) as temporary:
        temporary.write_bytes(content)


def atomic_write_text(final: Path, content: str) -> None:
    """Write a UTF-8 text file whole or not at all; line ends stay as they are."""
    atomic_write_bytes(final, content.encode())


def atomic_write_array(final: Path, array: Any) -> None:
    """Write an array of NumPy as .npy, whole or not at all."""
    import numpy as np  # noqa: PLC0415 -- slow to import, and most files are no arrays

    # To a file that is open for writing only, NumPy writes so that the cause of an error is lost: "7664 written".
    with atomic_path(final) as temporary, temporary.open("w+b") as stream:
        np.save(stream, array, allow_pickle=False)


def sweep(folder: Path) -> tuple[Path, ...]:
    """Remove what killed runs have left in a folder; return what was removed.

    A temporary of a process that lives is locked by it, and stays.
    """
    return tuple(path for path in sorted(folder.glob(f"{PREFIX}*{SUFFIX}")) if _removed(path))


def own_folder(folder: Path, root: Path) -> Path:
    """Make a folder inside `root`, or remove what killed runs have left in it.

    StorageError where a symbolic link stands between them, or in the folder's place; each file that is later written
    into it asks again.
    """
    check_links(folder, root)
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    _root_of[folder] = root
    return folder


def check_links(path: Path, root: Path, *, inside: bool = False) -> None:
    """Raise `StorageError` where a path, or a folder between `root` and it, is a symbolic link.

    `inside` asks for the same of all that a folder holds, at any depth.  The root itself may be a link.
    """
    own = [path, *path.parents]
    places = own[: own.index(root)] if root in own else [path]
    links = [place for place in reversed(places) if place.is_symlink()]
    if not links and inside:
        found = (Path(folder, name) for folder, *names in os.walk(path) for name in (*names[0], *names[1]))
        links = [place for place in found if place.is_symlink()]
    if links:
        raise StorageError(
            f"{links[0]}: got a symbolic link, expected a file or folder of its own, since no link inside {root} is "
            "followed; remove the link, or choose another folder"
        )


def check_free_space(folder: Path, needed_bytes: int) -> None:
    """Raise `StorageError` unless the disk of `folder`, which need not exist yet, has that much room."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        raise StorageError(
            f"{folder} has {_size(free)} free, but the output needs about {_size(needed_bytes)}; "
            "free some space, or choose an output folder on another disk"
        )


def _locked(parent: Path, *, folder: bool = False) -> tuple[Path, int]:
    """Make a temporary file or folder and lock it; give its path and the descriptor that holds the lock.

    Before it is locked, a `sweep` of another thread or process may remove it as a left-over; then another one is made.
    """
    while True:
        path = parent / f"{PREFIX}{uuid.uuid4().hex[:16]}{SUFFIX}"
        with suppress(FileNotFoundError):  # of a folder that was swept before it was opened, not of `parent`
            if folder:
                path.mkdir()
            flags = os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
            if _is_kept(path, descriptor):
                return path, descriptor
            os.close(descriptor)
        parent.stat()


def _is_kept(path: Path, descriptor: int) -> bool:
    """Lock a temporary; say whether no `sweep` was there first."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # some network file systems have no locks: there `sweep` removes nothing
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _removed(path: Path) -> bool:
    try:
        access = os.O_RDONLY if path.is_dir() else os.O_RDWR
        descriptor = os.open(path, access | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False  # Removed in the meantime, or of another user.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def flush_to_disk(path: Path) -> None:
    """Flush to the disk what is known by that name: a file's bytes, or a folder's entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _no_room(final: Path, error: OSError) -> str:
    free = _size(shutil.disk_usage(final.parent).free)
    return (
        f"{final} could not be finished: {error.strerror} ({free} free in {final.parent}); no part of it was "
        "left; free some space, or choose an output folder on another disk, and run again"
    )


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.2f} MB"


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
    if path.is_symlink():
        return f"it is a link to {path.readlink()}, which is missing: is its disk mounted?"
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


def files_below(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the files of a folder at any depth; names that begin with . or _ are no data (`_metadata`).

    Links back to a folder `above` are not followed.  CatalogError where a FIFO, a device or a socket is among them.
    """
    above |= {folder.resolve()}
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")) or (path.is_symlink() and path.resolve() in above):
            continue
        if path.is_dir():
            yield from files_below(path, above)
        else:
            yield require_file(path)


def require_file(path: Path) -> Path:
    """Return a path; CatalogError where there is a FIFO, a device or a socket, or its name is no UTF-8."""
    if os.fsencode(path).decode(errors="ignore") != str(path):
        raise CatalogError(
            f"{str(path)!a} is no UTF-8, expected a name that tables and reports can hold: rename it"
        )
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
    found: list[dict[str, str]] = []
    for key in keys:
        matches = (match for folder in key.split("/")[:-1] if (match := HIVE.fullmatch(folder)))
        found.append({unquote(match[1]): unquote(match[2]) for match in matches})
    stated = ((name, value) for pairs in found for name, value in pairs.items() if value != HIVE_NULL)
    texts = {name for name, value in stated if not INTEGER.fullmatch(value)}

    def value_of(name: str, value: str) -> HiveValue:
        return None if value == HIVE_NULL else value if name in texts else int(value)

    return [{name: value_of(name, value) for name, value in pairs.items()} for pairs in found]


Stamp = tuple[int, int, int]
"""What changes when a file does: its size in bytes, when it was modified, in ns, and its inode."""


def stamp(path: Path) -> Stamp:
    """Return the file's stamp; CatalogError for a folder, or where there is nothing."""
    if not require_file(path).is_file():
        raise CatalogError(f"{path} is not a file; check the name")
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def check_unchanged(path: Path, expected: Stamp) -> None:
    """Raise DamagedFileError where a file is another one than when it was opened."""
    if (current := stamp(path)) != expected:
        raise DamagedFileError(
            f"{path} changed after it was opened: {expected[0]:,} bytes then, {current[0]:,} now; open "
            "it again when it is complete"
        )


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading what it holds, inflated; damage to the compression is said in our words."""
    with open_bytes(path) as raw:
        magic = raw.read(3)
        raw.seek(0)
        try:
            with _compressed(magic, raw, "rb") as stream:
                yield stream
        except (EOFError, zlib.error, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            size = path.stat().st_size
            raise DamagedFileError(
                f"{path} ({size} bytes) is damaged: {error}; expected a whole compressed file: fetch it again"
            ) from error


@contextmanager
def writing_like(path: Path, source: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing, compressed as `source` is; the same content gives the same bytes."""
    with open_bytes(source) as stream:
        magic = stream.read(3)
    with path.open("wb") as raw, _compressed(magic, raw, "wb") as packed:
        yield packed


def _compressed(magic: bytes, raw: IO[bytes], mode: Literal["rb", "wb"]) -> AbstractContextManager[IO[bytes]]:
    """Return a stream through the compression that some first bytes tell, if any."""
    if magic.startswith(GZIP):
        return cast("IO[bytes]", gzip.GzipFile("", mode, fileobj=raw, mtime=0))
    if magic.startswith(BZIP2):
        return cast("IO[bytes]", bz2.BZ2File(raw, mode))
    return nullcontext(raw)


def first_bytes(path: Path, size: int = 65536) -> bytes:
    """Return the first inflated bytes of a file; none where they cannot be had."""
    try:
        with reading(path) as stream:
            return stream.read(size)
    except (OSError, DamagedFileError):
        return b""
