"""Results of an engine in the order of the items, for those that need them so."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import TypeVar

from flows.engines.engine import Engine, Lost
from flows.errors import EngineError

__all__ = ["in_order"]

T = TypeVar("T")
R = TypeVar("R")


def in_order(
    engine: Engine,
    work: Callable[[T], R],
    items: Sequence[T],
    *,
    number: Callable[[T], int],
    name: Callable[[T], str],
) -> Generator[tuple[T, R]]:
    """Yield each item with its result, in the order of their numbers 0, 1, ...; results that come early wait.

    `name` is what an error calls an item.  Where the caller closes the iterator early, work that has begun is
    finished, and no other begins.

    Raises
    ------
    EngineError
        If the workers of an item were killed each time; and as `Engine.map` does.
    """
    waiting: dict[int, R] = {}
    following = 0
    with closing(engine.map(work, items)) as results:
        for item, result in results:
            if isinstance(result, Lost):
                raise EngineError(f"{name(item)}: {result.reason}")
            waiting[number(item)] = result
            while following in waiting:
                yield items[following], waiting.pop(following)
                following += 1
