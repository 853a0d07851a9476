"""What a run says while it works, and how it is stopped.

The listener is a context variable, so that tasks need not pass it on: they pass plain data only.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from types import FrameType
from typing import TypeVar

from flows.errors import Interrupted, Terminated

T = TypeVar("T")

# Messages on the progress of work, to a listener: the bar of a terminal, printed lines, or nobody.


class Listener:
    """Receives messages on one piece of work after another, and does nothing with them."""

    run: str = ""
    """Id of the run by which its server knows it; '' without a server."""

    def start(self, what: str, total: int, unit: str) -> None:
        """Receive that a piece of work begins, with `total` of a `unit` (rows, candidates) to do, 0 if unknown."""

    def advance(self, n: int) -> None:
        """Receive that n more units are done."""

    def note(self, line: str) -> None:
        """Receive a line that the user should read."""

    def killed(self, run: str, why: str) -> None:
        """Receive that the run of an id was killed: its server may not know."""


RATED = ("row", "rows", "bytes")
"""Units whose number a second says something; that of parts or candidates does not."""
SMALL = ("steps", "parts")
"""Units of the parts of larger work, as of a candidate's fit: their begin and end are no news in lines."""
SECONDS_BETWEEN_LINES = 10.0  # while a long piece of work is done
SHORTEST = 0.05
"""Seconds of work from which its speed is one: below it is that of the clock."""


def amount(total: int, unit: str) -> str:
    """Return how much there is to do, in words; '' where there is nothing to count: one part, or not known."""
    return (
        f"{total:,} {unit}" if total > 1 else f"1 {unit.removesuffix('s')}" if total and unit in RATED else ""
    )


def speed(done: int, seconds: float, unit: str) -> str:
    """Return how much was done in a second, behind a comma; '' where that says nothing."""
    if seconds < SHORTEST or unit not in RATED:
        return ""
    rate = done / seconds
    return f", {rate:,.{0 if rate >= 10 else 1}f} {unit}/s"


class LineListener(Listener):
    """Writes lines: at the begin of a piece of work, every so many seconds, and at its end.

    The end of work that took less than `shortest` seconds, or of a single part, is no news.  If `quiet`, there are
    only lines at the end.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        between: float = SECONDS_BETWEEN_LINES,
        *,
        shortest: float = SHORTEST,
        quiet: bool = False,
    ) -> None:
        self.write, self._between, self._shortest, self._quiet = write, between, shortest, quiet
        self._what, self._unit, self._total, self._done = "", "", 0, 0
        self._began = self._said = time.monotonic()

    def start(self, what: str, total: int, unit: str) -> None:
        """Write what begins."""
        self._what, self._total, self._done = what, total, 0
        self._unit = unit.removesuffix("s") if total == 1 else unit
        self._began = self._said = time.monotonic()
        if not self._quiet and unit not in SMALL:
            self.write(": ".join(filter(None, (what, amount(total, unit)))))

    def advance(self, n: int) -> None:
        """Write how far the work is, where there is something new to say."""
        self._done += n
        now = time.monotonic()
        news = self._unit not in SMALL and amount(self._total, self._unit) != ""
        ended = self.ended and news and now - self._began >= self._shortest
        if ended or now - self._said > self._between:
            self._said = now
            self.write(f"{self._what}: {self.reached()}")

    def note(self, line: str) -> None:
        """Write a line."""
        if not self._quiet:
            self.write(line)

    @property
    def ended(self) -> bool:
        """Whether the work is done, where it is known how much there is."""
        return 0 < self._total <= self._done

    def reached(self) -> str:
        """Return how much is done, in how many seconds, how fast, and how many seconds are left."""
        seconds = time.monotonic() - self._began
        of = left = ""
        if self._done < self._total:
            of = f" of {self._total:,}"
            left = f", {(self._total - self._done) * seconds / max(self._done, 1):,.0f} s left"
        rate = speed(self._done, seconds, self._unit)
        return f"{self._done:,}{of} {self._unit} in {seconds:,.1f} s{rate}{left}"


_listener: ContextVar[Listener] = ContextVar("listener", default=Listener())  # noqa: B039  stateless


@contextmanager
def during(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a context variable a value while the block runs."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def listening(listener: Listener) -> AbstractContextManager[None]:
    """Send the messages of the block to `listener`."""
    return during(_listener, listener)


def tell() -> Listener:
    """Return the present listener."""
    return _listener.get()


# Stopping a run: it finishes the current file or candidate, then says how to continue.
#
# Ctrl-C (SIGINT) asks for this, and a line on standard error says so; a second Ctrl-C stops the run at once.  SIGTERM,
# which SIGKILL often follows, stops it at once too.  It does so by an exception, so that temporary files are removed
# and Prefect gets the error.

_AGAIN = 1.0
"""Seconds after which SIGTERM is sent once more: compiled code may have dropped the exception."""
_LAST = 20.0
"""Seconds after which SIGTERM ends the process as SIGKILL does: a read of a dead file server may never return."""


_asked: ContextVar[threading.Event | None] = ContextVar("asked", default=None)
"""Set once the current run was asked to stop."""


def stop_asked() -> bool:
    """Say whether the current run was asked to stop; for use inside a piece of work."""
    asked = _asked.get()
    return asked is not None and asked.is_set()


@contextmanager
def stop_points(remedy: str) -> Iterator[Callable[[], None]]:
    """Give a function to call between pieces of work: it raises `Interrupted` after a Ctrl-C.

    Outside the main thread, where no signal arrives, the function never raises.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of handlers
        asked.set()
        signal.signal(signal.SIGINT, before)
        write_error("finishing the work in hand; press Ctrl-C again to stop now\n")

    def check() -> None:
        if asked.is_set():
            raise Interrupted(f"stopped by Ctrl-C; finished work is kept: {remedy}")

    before = signal.signal(signal.SIGINT, ask)
    try:
        with during(_asked, asked), terminable(remedy):
            yield check
    finally:
        signal.signal(signal.SIGINT, before)


def write_error(text: str) -> None:
    """Write to standard error at once; where nobody reads it, as a terminal that was closed, write to nowhere."""
    with suppress(OSError):
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except RuntimeError:  # a signal came while a line was being written to the same buffer
            os.write(2, text.encode())
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


_terminated: list[Terminated] = []
"""The exception of a SIGTERM that has come, while the block that it ends is not left."""


def check_terminated() -> None:
    """Raise `Terminated` if SIGTERM has come: other code, such as an import, may have made another error of it."""
    if _terminated:
        raise _terminated[0]


def _end_at_last(signals: int, left: threading.Event, within: float, remedy: str) -> None:
    """Wait for SIGTERM in a pipe of signals; end the process where `left` is not set in time."""
    while (number := os.read(signals, 1)) and number[0] != signal.SIGTERM:
        pass
    if number and not left.wait(within):
        write_error(f"blr: SIGTERM was not followed for {within:g} s; finished work is kept: {remedy}\n")
        os._exit(128 + signal.SIGTERM)
    os.close(signals)


@contextmanager
def terminable(remedy: str, *, within: float = _LAST) -> Iterator[None]:
    """Raise `Terminated` in the block when SIGTERM arrives, or SIGHUP of a terminal that is closed.

    They would otherwise end the program without a message, and its server would not hear of it.  Compiled code may drop
    the exception.  It is raised again each second until the block is left, and by `check_terminated`.  Compiled code
    may also not return: the process ends `within` so many seconds all the same.
    """
    # A worker of Prefect has a handler of its own, which must stay.
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return
    left = threading.Event()
    hook = sys.unraisablehook
    signals, woken = os.pipe()
    os.set_blocking(woken, False)

    def send_again() -> None:
        while not left.wait(_AGAIN):
            os.kill(os.getpid(), signal.SIGTERM)

    def terminate(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of handlers
        if not _terminated:
            by = signal.Signals(number)
            _terminated.append(Terminated(f"stopped by {by.name}; finished work is kept: {remedy}"))
            _terminated[0].exit_status = 128 + by
            threading.Thread(target=send_again, daemon=True).start()
        raise _terminated[0]

    def unraisable(lost: sys.UnraisableHookArgs) -> None:
        if not isinstance(lost.exc_value, Terminated):
            hook(lost)

    # Under nohup, SIGHUP has no effect.
    ours = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, terminate)
    # Python runs handlers between its own steps, but writes to this pipe at once.
    before = signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    threading.Thread(target=_end_at_last, args=(signals, left, within, remedy), daemon=True).start()
    sys.unraisablehook = unraisable
    try:
        yield
    finally:
        left.set()
        signal.set_wakeup_fd(before)
        os.close(woken)
        sys.unraisablehook = hook
        _terminated.clear()
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
