"""Who hears how far the work is: a terminal's bar, lines, or nobody.

The listener is a context variable, so that what passes between tasks stays plain data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

__all__ = ["Listener", "listening", "tell"]


class Listener(Protocol):
    """Hears of one piece of work after another."""

    def start(self, what: str, total: int, unit: str) -> None:
        """Hear that a piece of work begins: `total` of `unit` (rows, candidates) are to be done, 0 if unknown."""
        ...

    def advance(self, n: int) -> None:
        """Hear that n more are done."""
        ...

    def note(self, line: str) -> None:
        """Hear a line that the user should read."""
        ...


class _Nobody:
    def start(self, what: str, total: int, unit: str) -> None:
        """Do nothing."""

    def advance(self, n: int) -> None:
        """Do nothing."""

    def note(self, line: str) -> None:
        """Do nothing."""


_listener: ContextVar[Listener] = ContextVar("listener", default=_Nobody())  # noqa: B039  stateless


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let `listener` hear what happens in the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell() -> Listener:
    """Return the listener of the moment."""
    return _listener.get()
