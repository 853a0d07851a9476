"""Work on threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from blr.threads import ordered_map
from flows.engines.engine import Lost, Tree

__all__ = ["ThreadEngine"]

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class ThreadEngine:
    """An engine on so many threads of this process; one thread is the caller's own."""

    threads: int = 1
    name: str = "threads"
    is_remote: bool = False

    @property
    def description(self) -> str:
        """The number of threads."""
        return f"{self.threads} threads of this process"

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Generator[tuple[T, R | Lost]]:
        """Yield each item with its result, as `Engine.map` says; here in the order of the items."""
        yield from ordered_map(lambda item: (item, work(item)), items, threads=self.threads)

    def reduce(self, work: Callable[[T], R], items: Iterable[T], *, add: Callable[[Sequence[R]], R]) -> R:
        """Return the sum of the results, as `Engine.reduce` says."""
        tree = Tree(add)
        for part in ordered_map(work, items, threads=self.threads):
            tree.push(part)
        return tree.total()
