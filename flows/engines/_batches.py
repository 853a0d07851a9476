"""Items in batches, a batch a task of Dask's: each task costs the driver, and the scheduler, milliseconds.

A batch is as large as its items are quick.  A worker stops after some seconds and returns what it has not begun.
"""

from __future__ import annotations

import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from types import TracebackType
from typing import Generic, TypeVar

from flows.engines._versions import difference, installed
from flows.errors import EngineError

__all__ = ["Batch", "BatchResult", "Checked", "InBatches", "Waiting"]

T = TypeVar("T")
R = TypeVar("R")

LARGEST = 16
"""Items of a batch at most: what a task costs is then a small part of what its items cost."""
MOST_FRAMES = 50
"""Frames of a traceback that a worker sends, the last ones."""
MOST_CAUSES = 10
"""Errors that led to each other, of those that a worker sends."""
SECONDS = 2.0
"""Seconds of a worker's time for a batch.  Items that take longer are handed over one by one."""


@dataclass(frozen=True)
class Checked(Generic[T, R]):
    """A function that a worker calls only if its versions are those of the run: it may have joined in mid-run."""

    function: Callable[[T], R]
    versions: Mapping[str, str]

    def __call__(self, given: T) -> R:
        """Return the function's result; EngineError where versions differ."""
        if differs := difference(f"worker on {platform.node()}", installed(), self.versions):
            raise EngineError(differs)
        try:
            return self.function(given)
        except Exception as error:
            _shorten(error)
            raise


def _shorten(error: BaseException) -> None:
    """Keep the last frames of the error's traceback, and of those of the errors that led to it.

    A worker cannot send a traceback of hundreds of frames, such as that of a RecursionError, and sends a text.  Dask's
    client expects no text there, so that it would never hear that the task has ended.
    """
    one: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if one is None:
            return
        one.__traceback__ = _last_frames(one.__traceback__)
        if one.__cause__ is not None:
            one.__context__ = None
        last, one = one, one.__cause__ or one.__context__
    last.__cause__ = last.__context__ = None


def _last_frames(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames[-MOST_FRAMES:][0] if frames else None


@dataclass(frozen=True)
class Batch(Generic[T]):
    """Items that a worker does one after another."""

    items: tuple[T, ...]


@dataclass(frozen=True)
class BatchResult(Generic[R]):
    """The results of a batch's first items, all of them or fewer, and how long they took."""

    results: tuple[R, ...]
    seconds: float


@dataclass(frozen=True)
class InBatches(Generic[T, R]):
    """Does the items of a batch, until its time is up."""

    work: Callable[[T], R]

    def __call__(self, batch: Batch[T]) -> BatchResult[R]:
        """Return the results of the first item, and of those that follow in the batch's time."""
        began = time.perf_counter()
        results: list[R] = []
        for item in batch.items:
            results.append(self.work(item))
            if time.perf_counter() - began > SECONDS:
                break
        return BatchResult(tuple(results), time.perf_counter() - began)


@dataclass
class Waiting(Generic[T]):
    """Items that are still to be handed over."""

    coming: Iterator[T]
    _alone: deque[T] = field(default_factory=deque)
    _again: deque[T] = field(default_factory=deque)
    _n: float = 0.0
    _seconds: float = 0.0

    def batches(self, n: int) -> list[Batch[T]]:
        """Return the next n batches, fewer where no more items wait."""
        single = [Batch((self._alone.popleft(),)) for _ in range(min(n, len(self._alone)))]
        size = self._size()
        items = tuple(islice(chain(_popped(self._again), self.coming), (n - len(single)) * size))
        return [*single, *(Batch(items[i : i + size]) for i in range(0, len(items), size))]

    def done(self, batch: Batch[T], result: BatchResult[object]) -> None:
        """Learn how quick items are, the last ones above all; take back those that were not begun."""
        self._again.extend(batch.items[len(result.results) :])
        self._n = self._n / 2 + len(result.results)
        self._seconds = self._seconds / 2 + result.seconds

    def one_by_one(self, items: Iterable[T]) -> None:
        """Take back the items of a batch that no worker outlived: the next time each is alone."""
        self._alone.extend(items)

    def _size(self) -> int:
        if not self._n:
            return 1
        return max(1, min(LARGEST, int(SECONDS * self._n / max(self._seconds, 1e-9))))


def _popped(items: deque[T]) -> Iterator[T]:
    while items:
        yield items.popleft()
