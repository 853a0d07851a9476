"""Ctrl-C at a good moment: the file or candidate in hand is finished, then the run stops and says how to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from flows.errors import Interrupted

__all__ = ["stop_points"]


@contextmanager
def stop_points(remedy: str) -> Iterator[Callable[[], None]]:
    """Give a function to call between pieces of work: it raises `Interrupted` after a Ctrl-C.

    A second Ctrl-C stops at once.  Outside the main thread, where no signal arrives, it never raises.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of handlers
        asked.set()
        signal.signal(signal.SIGINT, before)

    def check() -> None:
        if asked.is_set():
            raise Interrupted(f"stopped by Ctrl-C; what was finished is kept: {remedy}")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
