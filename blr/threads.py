"""Threads of ours outside, one BLAS thread inside each.

OpenBLAS splits sums by the number of its threads, so its last bits depend on the machine's core count.  With one
BLAS thread and fixed chunk boundaries, a result depends on the data alone.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TypeVar

import scipy.linalg  # noqa: F401  loads SciPy's own BLAS, so that the controller sees it
from threadpoolctl import ThreadpoolController

__all__ = ["default_threads", "ordered_map", "single_threaded_blas"]

S = TypeVar("S")
T = TypeVar("T")


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # finding the libraries takes milliseconds: once is enough


class _SingleThreadedBlas:
    """The contexts that are open, in all threads: the first one limits BLAS, the last one restores it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Take no context for open, as in a child process, which has none of the threads that would close them."""
        self._lock = threading.Lock()
        self._open = 0
        self._limit: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._open:
                self._limit = _controller().limit(limits=1, user_api="blas")
                self._limit.__enter__()
            self._open += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._open -= 1
            if not self._open and self._limit is not None:
                self._limit.__exit__(None, None, None)
                self._limit = None


_SINGLE_THREADED = _SingleThreadedBlas()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SINGLE_THREADED.forget)


def single_threaded_blas() -> AbstractContextManager[object]:
    """Return a context in which every BLAS call of the process runs on one thread; contexts may be nested."""
    return _SINGLE_THREADED


def default_threads() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered_map(function: Callable[[S], T], items: Iterable[S], *, threads: int) -> Iterator[T]:
    """Yield `function(item)` in the order of the items, with at most 2 * `threads` items in flight."""
    if threads <= 1:
        yield from map(function, items)
        return
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
