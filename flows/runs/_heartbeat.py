"""Signs of life of the run that holds a lock file, for file systems without locks.

The run cannot see processes on other hosts.  So the holder of the lock changes the time of its file every few seconds.
A run that wants the lock watches the file for changes, for as long as its own clock says.  It never compares times of
different clocks: it only asks whether the file's time has changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

__all__ = ["beating", "falls_silent"]

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


def falls_silent(path: Path) -> bool:
    """Watch a lock file for a minute; return True if it gave no sign of life, False once it gives one or is gone."""
    seen, end = _file_and_time(path), time.monotonic() + SILENCE
    while time.monotonic() < end:
        time.sleep(BEAT / 4)
        if (now := _file_and_time(path)) is None or now != seen:
            return False
    return seen is not None


def _file_and_time(path: Path) -> tuple[int, int] | None:
    """Return the inode and the time of the file, None without a file; NFS asks its server only for an opened file."""
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
    except FileNotFoundError:
        return None
    return state.st_ino, state.st_mtime_ns
