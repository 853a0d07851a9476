"""Messages on the progress of work, to a listener: the bar of a terminal, printed lines, or nobody.

The listener is a context variable, so that tasks need not pass it on: they pass plain data only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Listener:
    """Receives messages on one piece of work after another, and does nothing with them."""

    def start(self, what: str, total: int, unit: str) -> None:
        """Receive that a piece of work begins, with `total` of a `unit` (rows, candidates) to do, 0 if unknown."""

    def advance(self, n: int) -> None:
        """Receive that n more units are done."""

    def note(self, line: str) -> None:
        """Receive a line that the user should read."""


_listener: ContextVar[Listener] = ContextVar("listener", default=Listener())  # noqa: B039  stateless


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send the messages of the block to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell() -> Listener:
    """Return the present listener."""
    return _listener.get()
