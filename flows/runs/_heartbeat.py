"""Signs of life of a lock file, where the file system has no locks and nobody knows of processes on other hosts.

The holder changes the time of its file every few seconds.  Whoever wants the lock watches for changes, and measures its
own patience by its own clock: the times themselves, which are of other clocks, are compared for being the same only.
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
"""Seconds without a sign after which a holder is taken for dead: six beats that did not come."""


@contextmanager
def beating(path: Path) -> Iterator[None]:
    """Give signs of life as long as the block lasts: by this very file, never by another one of its name."""
    descriptor, ended = os.open(path, os.O_RDWR | os.O_CLOEXEC), Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            with suppress(OSError):  # a server that does not answer now may do so the next time
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
    """Watch a lock file; return whether it gave no sign of life, False as soon as it gives one or is gone."""
    seen, end = _seen(path), time.monotonic() + SILENCE
    while time.monotonic() < end:
        time.sleep(BEAT / 4)
        if (now := _seen(path)) is None or now != seen:
            return False
    return seen is not None


def _seen(path: Path) -> tuple[int, int] | None:
    """Return which file is there, and its time; opened first, since NFS then asks its server."""
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
    except FileNotFoundError:
        return None
    return state.st_ino, state.st_mtime_ns
