"""The engine that sums are made on at the moment, which a run sets once for all of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from flows.engines._threads import ThreadEngine
from flows.engines.engine import Engine

__all__ = ["current_engine", "working_here", "working_on"]

_engine: ContextVar[Engine | None] = ContextVar("engine", default=None)


@contextmanager
def working_on(engine: Engine) -> Iterator[None]:
    """Let the steps in the block work on an engine."""
    token = _engine.set(engine)
    try:
        yield
    finally:
        _engine.reset(token)


@contextmanager
def working_here() -> Iterator[None]:
    """Let the steps in the block work in this process: on files that no other machine sees."""
    with working_on(ThreadEngine()):
        yield


def current_engine(threads: int) -> Engine:
    """Return the engine of the moment: workers where a run has named them, else so many threads."""
    engine = _engine.get()
    return engine if engine is not None and engine.is_remote else ThreadEngine(threads)
