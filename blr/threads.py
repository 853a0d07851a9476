"""Threads of ours outside, one BLAS thread inside each.

OpenBLAS splits sums by the number of its threads, so its last bits depend on the machine's core count.  With one
BLAS thread and fixed chunk boundaries, a result depends on the data alone.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TypeVar

import scipy.linalg  # noqa: F401  loads SciPy's own BLAS, so that the controller sees it
from threadpoolctl import ThreadpoolController

S = TypeVar("S")
T = TypeVar("T")


_controller = lru_cache(maxsize=1)(ThreadpoolController)  # finding the libraries takes milliseconds


class _SingleThreadedBlas(threading.local):
    """The contexts that are open in a thread: the outermost sets and restores the limit, the others cost nothing."""

    depth = 0
    limit: AbstractContextManager[object]

    def __enter__(self) -> None:
        if not self.depth:
            self.limit = _controller().limit(limits=1, user_api="blas")
            self.limit.__enter__()
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        if not self.depth:
            self.limit.__exit__(None, None, None)


_SINGLE_THREADED = _SingleThreadedBlas()


def single_threaded_blas() -> AbstractContextManager[object]:
    """Return a context in which every BLAS call of the process runs on one thread; contexts may be nested.

    Where several threads are in one, the limit is that of the first (threadpoolctl's rule for OpenBLAS).
    """
    return _SINGLE_THREADED


def default_threads() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_KEPT: dict[int, ThreadPoolExecutor] = {}
"""Threads that wait for the next sum, by their number: to start them takes as long as a sum over 10,000 rows."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_KEPT.clear)  # a child has none of its parent's threads


def ordered_map(
    function: Callable[[S], T], items: Iterable[S], *, threads: int, keep: bool = False
) -> Iterator[T]:
    """Yield `function(item)` in the order of the items, with at most 2 * `threads` items in flight.

    `keep`: on threads that all such calls share, for functions that compute, and wait for nothing.
    """
    if threads <= 1:
        yield from map(function, items)
    elif keep:
        pool = _KEPT.get(threads) or _KEPT.setdefault(threads, ThreadPoolExecutor(threads))
        yield from _mapped(pool, function, items, 2 * threads)
    else:
        with ThreadPoolExecutor(threads) as pool:
            yield from _mapped(pool, function, items, 2 * threads)


def _mapped(
    pool: ThreadPoolExecutor, function: Callable[[S], T], items: Iterable[S], most: int
) -> Iterator[T]:
    waiting: deque[Future[T]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        wait(waiting)
