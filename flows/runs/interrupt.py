"""Stopping a run: it finishes the current file or candidate, then says how to continue.

Ctrl-C (SIGINT) asks for this; a second Ctrl-C stops the run at once.  SIGTERM, which SIGKILL often follows, stops it at
once too.  It does so by an exception, so that temporary files are removed and Prefect gets the error.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

from flows.errors import Interrupted, Terminated

__all__ = ["stop_asked", "stop_points", "terminable"]

_asked: ContextVar[threading.Event | None] = ContextVar("asked", default=None)


def stop_asked() -> bool:
    """Say whether the current run was asked to stop; for use inside a piece of work."""
    asked = _asked.get()
    return asked is not None and asked.is_set()


@contextmanager
def stop_points(remedy: str) -> Iterator[Callable[[], None]]:
    """Give a function to call between pieces of work: it raises `Interrupted` after a Ctrl-C.

    Outside the main thread, where no signal arrives, it never raises.
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
            raise Interrupted(f"stopped by Ctrl-C; finished work is kept: {remedy}")

    before = signal.signal(signal.SIGINT, ask)
    token = _asked.set(asked)
    try:
        with terminable(remedy):
            yield check
    finally:
        _asked.reset(token)
        signal.signal(signal.SIGINT, before)


@contextmanager
def terminable(remedy: str) -> Iterator[None]:
    """Raise `Terminated` in the block when SIGTERM arrives, which would otherwise end the program without a message."""

    def terminate(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of handlers
        raise Terminated("stopped by SIGTERM; finished work is kept: " + remedy)

    main = threading.current_thread() is threading.main_thread()
    # A worker of Prefect has a handler of its own, which must stay.
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
