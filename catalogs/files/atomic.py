"""How every file reaches its final name: written under another, flushed to the disk, renamed.

A run may be killed at any moment; every file with its final name is complete.  Left-overs of killed runs have
names that only this module makes, and `sweep` removes those whose maker is gone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from catalogs.errors import CatalogError

PREFIX = ".blr-"
SUFFIX = ".tmp"
"""Hidden, so that dataset scanners (Arrow, HATS) pass over a temporary; short, so that any name fits."""

_own: dict[Path, Path] = {}
"""Folders that `own_folder` made, with the root that no link may lead out of."""

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class StorageError(CatalogError):
    """The output cannot be stored: no room, no permission, no such folder."""


@contextmanager
def atomic_path(final: Path) -> Iterator[Path]:
    """Give an empty temporary file in the folder of `final`; rename it so once the block has succeeded.

    If the block raises, or is interrupted, the temporary is removed and `final` is as it was.
    """
    if final.parent in _own:
        check_links(final.parent, _own[final.parent])
    temporary, lock = _create(final)
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
    temporary, lock = _locked(parent, _new_folder)
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


def sweep(folder: Path) -> tuple[Path, ...]:
    """Remove what killed runs have left in a folder; return what was removed.

    A temporary of a process that lives is locked by it, and stays.
    """
    return tuple(path for path in sorted(folder.glob(f"{PREFIX}*{SUFFIX}")) if _removed(path))


def own_folder(folder: Path, root: Path) -> Path:
    """Make a folder inside `root`; StorageError where a symbolic link stands between them, or in the folder's place.

    Each file that is later written into it asks again.
    """
    check_links(folder, root)
    folder.mkdir(parents=True, exist_ok=True)
    _own[folder] = root
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


def _create(final: Path) -> tuple[Path, int]:
    """Create and lock the temporary; the lock goes when the process does, however it ends."""
    if final.is_dir():
        raise StorageError(f"{final} is a folder, expected the name of a file to write; choose another name")
    try:
        return _locked(final.parent, _new_file)
    except OSError as error:
        raise StorageError(_not_writable(final, error)) from error


def _new_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _new_folder(path: Path) -> int:
    path.mkdir()
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _locked(parent: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    """Make a temporary and lock it; give its path and the descriptor that holds the lock.

    Before it is locked, a `sweep` of another thread or process may remove it as a left-over; then another one is made.
    """
    while True:
        path = parent / f"{PREFIX}{uuid.uuid4().hex[:16]}{SUFFIX}"
        with suppress(FileNotFoundError):  # of a folder that was swept before it was opened, not of `parent`
            descriptor = make(path)
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


def _not_writable(final: Path, error: OSError) -> str:
    if error.errno in NO_ROOM:
        return _no_room(final, error)
    if error.errno == errno.ENOENT:
        return f"{final} cannot be written: there is no folder {final.parent}; create it first"
    return (
        f"{final} cannot be written: {error.strerror} in {final.parent}; expected a folder that you may "
        "write to; check its permissions, or choose another folder"
    )


def _no_room(final: Path, error: OSError) -> str:
    free = _size(shutil.disk_usage(final.parent).free)
    return (
        f"{final} could not be finished: {error.strerror} ({free} free in {final.parent}); no part of it was "
        "left; free some space, or choose an output folder on another disk, and run again"
    )


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.2f} MB"
