"""One run at a time in a folder: a lock with an owner, whose heartbeat says that it lives."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread

from catalogs.files import NO_ROOM, StorageError, check_links
from flows.documents import utc_now
from flows.errors import OutputFolderError
from flows.runs.progress import during, tell

# Signs of life of the run that holds a lock file, for file systems without locks.
#
# The run cannot see processes on other hosts.  So the holder of the lock changes the time of its file every few
# seconds. A run that wants the lock watches the file for changes, for as long as its own clock says.  It never compares
# times of different clocks: it only asks whether the file's time has changed.

BEAT = 10.0
"""Seconds between two signs of life."""
SILENCE = 60.0
"""Seconds without a sign after which the holder counts as dead: six signs are missing then."""


@contextmanager
def beating(path: Path) -> Iterator[None]:
    """Give signs of life while the block runs, by the file that has this path now, even if another one replaces it."""
    descriptor, ended = os.open(path, os.O_RDWR | os.O_CLOEXEC), Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            with suppress(OSError):  # the file server may answer the next time
                os.utime(descriptor)

    thread = Thread(target=beat, name="blr-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        os.close(descriptor)


def _inode_and_mtime(path: Path) -> tuple[int, int] | None:
    """Return the inode and the time of the file, None without a file; NFS asks its server only for an opened file."""
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
    except FileNotFoundError:
        return None
    return state.st_ino, state.st_mtime_ns


# One run at a time in a folder: a lock that ends with its process, and a file that names its owner.
#
# The operating system holds the lock (`flock`), so that a killed run leaves no lock behind.  The file names the run
# that holds the lock, or that held it when it was killed.  Where a file system has no such locks (Lustre without
# `flock`), a second file is the lock.  A new run takes this file over if its process has ended or, on another host, has
# given no sign of life for a minute.
#
# Some file systems grant the same lock to two hosts, without an error (NFS with `nolock`, Lustre with `localflock`).
# Then the lock file names another run, or files that this run wrote are gone.  A run that sees this stops with an
# error.

LOCK = ".blr-lock"
"""File that the operating system locks."""
LINK = ".blr-locked"
"""File that is the lock itself, where the file system has no flock."""
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
"""Errors of a file system without flock."""
ATTEMPTS = 20
"""Most attempts to lock the file: an attempt fails if the holder deletes the file at that moment."""


@dataclass(frozen=True)
class Owner:
    """The run that holds a lock, or held it until it was killed; `run` is the id by which its server knows it."""

    pid: int
    host: str
    since: str
    began: int | None = None  # start of the process in ticks: process ids are reused
    run: str = ""

    @classmethod
    def this(cls) -> Owner:
        """Return this process as the owner."""
        return cls(os.getpid(), socket.gethostname(), utc_now(), _began(os.getpid()), tell().run)

    @classmethod
    def read(cls, path: Path) -> Owner | None:
        """Return the owner that a file names; None where it names nobody."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def gone(self) -> bool:
        """Whether the process is known to have ended; False for a process on another host, which cannot be seen."""
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


def acting_for(owner: Owner) -> AbstractContextManager[None]:
    """Count this process as part of the run that holds a lock, while the block does work for that run."""
    return during(_principal, owner)


@contextmanager
def exclusive(folder: Path) -> Iterator[Owner | None]:
    """Lock a folder for one run, and make it if it does not exist; OutputFolderError where another run has the lock.

    The block gets the run that held the lock when it was killed, if there was one.  A folder that was made here and is
    still empty at the end is removed.
    """
    is_new = not folder.exists()
    killed, descriptor = _take_lock(folder, Owner.this())
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
            with suppress(OSError):  # fails if the folder has files, as it should
                folder.rmdir()


def tell_of_killed(owner: Owner | None) -> None:
    """Tell of the run that held a lock when it was killed, if there was one."""
    if owner is not None:
        tell().note(f"an earlier run was killed ({owner}); its finished files are used")
        if owner.run and owner.gone:
            tell().killed(owner.run, f"its process {owner.pid} on {owner.host} was killed")


def check_held(folder: Path) -> None:
    """Raise OutputFolderError unless this process, or the run that it works for, still holds the lock of a folder."""
    if _owner(folder) is None or _other_owner(folder) is not None:
        raise _two_runs(folder)


def check_coherent(folder: Path) -> None:
    """Raise OutputFolderError where this process can get a lock that its own run holds on another host.

    Such a file system grants the same lock to two hosts, so that two runs could write to the folder.
    """
    owner = _principal.get()
    with suppress(FileNotFoundError), (folder / LOCK).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # the lock is refused, as it should be, or the file system has no flock
        if owner is not None and not owner.gone and _other_owner(folder) is None:
            raise OutputFolderError(
                f"{folder}: {socket.gethostname()} got the lock that a run on {owner.host} holds, expected "
                "the file system to refuse it, since two runs could then write at the same time; mount the "
                "file system with locks (NFS without nolock, Lustre with flock), or choose another folder"
            )


@contextmanager
def files_kept(folder: Path) -> Iterator[None]:
    """Raise OutputFolderError instead of an error whose cause is another run that writes to the same folder."""
    try:
        yield
    except (OSError, StorageError) as error:
        if _other_owner(folder) is not None or _is_of_a_lost_file(error, folder):
            raise _two_runs(folder) from error
        raise


def _is_of_a_lost_file(error: OSError | StorageError, folder: Path) -> bool:
    """Say whether the cause of an error is a file or folder in `folder` that no longer exists."""
    cause = error.__cause__ if isinstance(error, StorageError) else error
    if not isinstance(cause, FileNotFoundError) or cause.filename is None:
        return False
    return Path(os.fsdecode(cause.filename)).absolute().is_relative_to(folder.absolute())


def _owner(folder: Path) -> Owner | None:
    """Return the owner that the lock files name."""
    return Owner.read(folder / LINK) or Owner.read(folder / LOCK)


def _other_owner(folder: Path) -> Owner | None:
    """Return the owner that the lock files name; None for nobody, this process, or the run that it works for."""
    owner, this = _owner(folder), _principal.get() or Owner.this()
    same = owner is None or (owner.pid, owner.host, owner.began) == (this.pid, this.host, this.began)
    return None if same else owner


def _two_runs(folder: Path) -> OutputFolderError:
    """Return the error for a folder to which another run writes, or from which somebody has removed files."""
    if other := _other_owner(folder):
        return OutputFolderError(
            f"{folder}: got a folder to which another run writes at the same time ({other}), expected one run at a "
            "time, but file locks do not work across hosts here; this run stops: wait until the other one has ended, "
            "then run the same command again"
        )
    return OutputFolderError(
        f"{folder}: files of this run were removed while it worked, expected that nobody else writes there: it was "
        "another program, or a run on another host where file locks do not work; this run stops: run the same "
        "command again"
    )


def _take_lock(folder: Path, owner: Owner) -> tuple[Owner | None, int | None]:
    """Take the lock; return the run that was killed while it held the lock, and the descriptor that holds it now.

    The run is None where no run was killed, the descriptor where the file system has no flock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in (*folder.glob("_*"), *folder.glob(".blr*")):
            check_links(path, folder)  # before any work, although some are written to at its end
        for _ in range(ATTEMPTS):
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                if _lock_file(descriptor, folder):
                    killed = Owner.read(folder / LOCK)
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, json.dumps(asdict(owner)).encode(), 0)
                    return killed, descriptor
            except OSError as error:
                os.close(descriptor)
                if error.errno in NO_ROOM:
                    (folder / LOCK).unlink(missing_ok=True)
                    with suppress(OSError):  # fails if the folder has files, as it should
                        folder.rmdir()
                if error.errno in NO_LOCKS:
                    return _take_link(folder, owner), None
                raise
            os.close(descriptor)  # its holder has removed the file meanwhile: lock the new one
    except OSError as error:
        raise OutputFolderError(
            f"{folder}: got '{error.strerror}', expected an output folder that you may create and write to; "
            "check its permissions and free space, or choose another with --out (--store for a training)"
        ) from error
    raise _in_use(folder)


def _lock_file(descriptor: int, folder: Path) -> bool:
    """Lock an open file; say whether the folder still has this file, which its owner removes at the end."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _in_use(folder) from None
    try:
        return os.path.samestat(os.fstat(descriptor), (folder / LOCK).stat())
    except FileNotFoundError:
        return False


def _take_link(folder: Path, owner: Owner) -> Owner | None:
    """Take the lock where the file system has no flock: by a hard link, which only one run can make."""
    lock = folder / LINK
    own = folder / f"{LINK}-{uuid.uuid4().hex[:16]}"
    own.write_text(json.dumps(asdict(owner)), encoding="utf-8")
    try:
        killed = Owner.read(lock)
        if killed is not None and (killed.gone or _gives_no_sign(killed, lock)):
            aside = own.with_name(f"{own.name}-stale")
            lock.rename(aside)
            is_stale = Owner.read(aside) == killed
            if not is_stale:
                os.link(aside, lock)  # another run has made its lock at the same moment: it is put back
            aside.unlink()
            if not is_stale:
                raise _in_use(folder)
        os.link(own, lock)
    except FileExistsError:
        raise _in_use(folder) from None
    finally:
        own.unlink()
    return killed


def _gives_no_sign(owner: Owner, lock: Path) -> bool:
    """Say whether an owner on another host gives no sign of life, after a minute, or after its first sign."""
    if owner.host == socket.gethostname():
        return False
    tell().note(f"{lock.parent}: held by {owner}; this run waits a minute at most for a sign of life of it")
    seen, end = _inode_and_mtime(lock), time.monotonic() + SILENCE
    while time.monotonic() < end:
        time.sleep(BEAT / 4)
        if (now := _inode_and_mtime(lock)) is None or now != seen:
            return False
    return seen is not None


def _in_use(folder: Path) -> OutputFolderError:
    """Return the error for a folder whose lock another run holds."""
    owner = _owner(folder)
    return OutputFolderError(
        f"{folder}: got a folder that another run is writing to ({owner or 'just begun'}), expected one run "
        "at a time; wait for it, or choose another folder (if no such run exists on any machine, remove "
        f"{LINK} in the folder)"
    )


def _began(pid: int) -> int | None:
    """Return when a process began, in ticks since the start of the system; None on systems other than Linux."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
