"""One run at a time in a folder: a lock that goes with its process, and says whose it is.

The lock is the system's (`flock`), so that a killed run leaves none behind; the file tells who holds it, and after a
kill who held it.  Where a file system has no such locks (Lustre without `flock`), the file itself is the lock.  One
whose process is gone is taken over; of another host, one that has given no sign of life for a minute.

Some file systems grant a lock to each of two hosts (NFS with `nolock`, Lustre with `localflock`), without an error.
Then the owner in the lock file is another one's, or files of ours are gone: whoever sees that stops, in words.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from catalogs.files.atomic import StorageError
from flows.errors import OutputFolderError
from flows.runs._heartbeat import beating, falls_silent
from flows.runs.progress import tell

__all__ = ["LOCK", "Owner", "acting_for", "check_coherent", "check_held", "exclusive", "files_kept"]

LOCK = ".blr-lock"
LINK = ".blr-locked"
"""The lock where the file system has no flock."""
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
ATTEMPTS = 20
"""Times that we ask again, where the holder deletes the file just as we lock it."""


@dataclass(frozen=True)
class Owner:
    """The run that holds a lock, or held it until it was killed; `run` is its id in Prefect.

    One that `beats` gives signs of life; a run of an earlier version does not.
    """

    pid: int
    host: str
    since: str
    began: int | None = None  # of the process, in the system's ticks: process ids are used again
    run: str | None = None
    beats: bool = False

    @classmethod
    def this(cls, run: str | None) -> Owner:
        """Return this process."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(os.getpid(), socket.gethostname(), now, _began(os.getpid()), run)

    @classmethod
    def read(cls, path: Path) -> Owner | None:
        """Return the owner in a file; None where it tells of none."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def gone(self) -> bool:
        """Whether the process is known to have ended; of another machine nothing is known."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return self.began is not None and _began(self.pid) != self.began

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


_principal: ContextVar[Owner | None] = ContextVar("principal", default=None)


@contextmanager
def acting_for(owner: Owner) -> Iterator[None]:
    """Let the block count as a part of the run that holds a lock: for work that the run has handed to this process."""
    token = _principal.set(owner)
    try:
        yield
    finally:
        _principal.reset(token)


@contextmanager
def exclusive(folder: Path, *, run: str | None = None) -> Iterator[Owner | None]:
    """Hold a folder, made if need be, for one run; OutputFolderError where another one has it.

    Gives the run that held it before and was killed, if one was.  A folder made here in which nothing came to be
    is removed again.
    """
    is_new = not folder.exists()
    killed, descriptor = _held(folder, Owner.this(run))
    try:
        with files_kept(folder), nullcontext() if descriptor is not None else beating(folder / LINK):
            yield killed
    finally:
        if _other_owner(folder) is None:
            for name in (LINK, LOCK):
                (folder / name).unlink(missing_ok=True)
        if descriptor is not None:
            os.close(descriptor)
        if is_new:
            with suppress(OSError):  # it holds something, then
                folder.rmdir()


def check_held(folder: Path) -> None:
    """Raise OutputFolderError where a folder is no longer held by this process, or by the run that it works for."""
    if _owner(folder) is None or _other_owner(folder) is not None:
        raise _not_alone(folder)


def check_coherent(folder: Path) -> None:
    """Raise OutputFolderError where this process would get the lock that the run which it works for holds.

    Then the file system grants a lock to each of two hosts, and two runs on two hosts could write to the folder.
    """
    owner = _principal.get()
    with suppress(FileNotFoundError), (folder / LOCK).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # it is refused, or there are no such locks, and another kind is in use
        if owner is not None and not owner.gone and _other_owner(folder) is None:
            raise OutputFolderError(
                f"{folder}: {socket.gethostname()} got the lock that a run on {owner.host} holds, expected "
                "the file system to refuse it, since two runs could then write at the same time; mount the "
                "file system with locks (NFS without nolock, Lustre with flock), or choose another folder"
            )


@contextmanager
def files_kept(folder: Path) -> Iterator[None]:
    """Raise OutputFolderError in the place of errors that another run causes, which writes to the folder too."""
    try:
        yield
    except (OSError, StorageError) as error:
        if _other_owner(folder) is not None or _is_of_a_lost_file(error, folder):
            raise _not_alone(folder) from error
        raise


def _is_of_a_lost_file(error: OSError | StorageError, folder: Path) -> bool:
    """Say whether an error is of a file or folder in `folder` that is not there any more."""
    cause = error.__cause__ if isinstance(error, StorageError) else error
    if not isinstance(cause, FileNotFoundError) or cause.filename is None:
        return False
    return Path(os.fsdecode(cause.filename)).absolute().is_relative_to(folder.absolute())


def _owner(folder: Path) -> Owner | None:
    """Return whom the lock files name."""
    return Owner.read(folder / LINK) or Owner.read(folder / LOCK)


def _other_owner(folder: Path) -> Owner | None:
    """Return whom the lock files name; None where that is this process, the run that it works for, or nobody."""
    owner, this = _owner(folder), _principal.get() or Owner.this(None)
    same = owner is None or (owner.pid, owner.host, owner.began) == (this.pid, this.host, this.began)
    return None if same else owner


def _not_alone(folder: Path) -> OutputFolderError:
    return OutputFolderError(
        f"{folder}: got a folder to which another run writes at the same time "
        f"({_other_owner(folder) or 'ended now'}), expected one run at a time, but file locks do not work across "
        "hosts here; this run stops: wait until the other one has ended, then run the same command again"
    )


def _held(folder: Path, owner: Owner) -> tuple[Owner | None, int | None]:
    """Take the lock; return who was killed holding it, and the descriptor that holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(ATTEMPTS):
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                if _locked(descriptor, folder):
                    return _signed(descriptor, folder / LOCK, owner), descriptor
            except OSError as error:
                os.close(descriptor)
                if error.errno in NO_LOCKS:
                    return _taken(folder, owner), None
                raise
            os.close(descriptor)  # whoever held it has removed it meanwhile: ask for the new one
    except OSError as error:
        raise OutputFolderError(
            f"{folder}: got '{error.strerror}', expected an output folder that you may create and write to; "
            "check its permissions, or choose another with --out"
        ) from error
    raise _in_use(folder)


def _locked(descriptor: int, folder: Path) -> bool:
    """Lock the file; say whether it is still the one of that name, since its owner removes it at the end."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _in_use(folder) from None
    try:
        return os.path.samestat(os.fstat(descriptor), (folder / LOCK).stat())
    except FileNotFoundError:
        return False


def _signed(descriptor: int, path: Path, owner: Owner) -> Owner | None:
    """Write the owner into the file; return the one that was in it."""
    before = Owner.read(path)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(owner)).encode(), 0)
    return before


def _taken(folder: Path, owner: Owner) -> Owner | None:
    """Take the lock where there are no locks: by a link of that name, which only one can make."""
    lock = folder / LINK
    own = folder / f"{LINK}-{uuid.uuid4().hex[:16]}"
    own.write_text(json.dumps(asdict(replace(owner, beats=True))), encoding="utf-8")
    try:
        killed = Owner.read(lock)
        if killed is not None and (killed.gone or _silent(killed, lock)):
            _remove_stale(lock, own.with_name(f"{own.name}-stale"), killed, folder)
        os.link(own, lock)
    except FileExistsError:
        raise _in_use(folder) from None
    finally:
        own.unlink()
    return killed


def _silent(owner: Owner, lock: Path) -> bool:
    """Say whether the owner, on another host, gives no sign of life; that takes a minute, or a beat where it does."""
    if not owner.beats or owner.host == socket.gethostname():
        return False
    tell().note(f"{lock.parent}: held by {owner}; this run waits a minute at most for a sign of life of it")
    return falls_silent(lock)


def _remove_stale(lock: Path, aside: Path, killed: Owner, folder: Path) -> None:
    """Remove a dead run's lock; one that another run has made in the same moment is put back."""
    lock.rename(aside)
    if Owner.read(aside) != killed:
        os.link(aside, lock)
        aside.unlink()
        raise _in_use(folder)
    aside.unlink()


def _in_use(folder: Path) -> OutputFolderError:
    owner = _owner(folder)
    return OutputFolderError(
        f"{folder}: got a folder that another run is writing to ({owner or 'just begun'}), expected one run "
        "at a time; wait for it, or choose another folder (if no such run exists on any machine, remove "
        f"{LINK} in the folder)"
    )


def _began(pid: int) -> int | None:
    """Return when a process began, None where the system does not tell it in Linux's way."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
