"""Where work is done: which engine a user has named, what an engine is, and the threads of this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from flows.errors import EngineError, UsageError
from flows.runs.progress import during
from flows.runs.references import check_scheduler

if TYPE_CHECKING:
    from flows.engines._dask import DaskEngine

# What an engine does: `map` and `reduce`; and the tree in which `reduce` adds. An engine is handed a function and
# items.  For workers elsewhere, Dask pickles function, items and results: these are small values, and functions of
# modules.  What is reduced are sums: the function may hold arrays, and results are tuples of arrays.

T = TypeVar("T")
R = TypeVar("R")

FAN_IN = 8
"""Parts that are added at once, from left to right."""


class LostError(EngineError):
    """What comes of an item whose workers were killed each time: an error that is yielded and not raised."""


def tree_sum(parts: Iterable[T], add: Callable[[Sequence[T]], T]) -> T:
    """Return the sum of parts: up to `FAN_IN` in their order at once, then the sums in the same way, until one is left.

    The shape of this tree depends on the number of parts alone.  Fewer than `FAN_IN` parts of each level are held.
    ValueError where there is no part.
    """
    levels: list[list[T]] = []

    def push(part: T, level: int) -> None:
        if level == len(levels):
            levels.append([])
        levels[level].append(part)
        if len(levels[level]) == FAN_IN:
            waiting, levels[level] = levels[level], []
            push(add(waiting), level + 1)

    for part in parts:
        push(part, 0)
    for level, waiting in enumerate(levels):  # which grow meanwhile
        if level == len(levels) - 1 and len(waiting) == 1:
            return waiting[0]
        levels[level] = []
        if waiting:
            push(waiting[0] if len(waiting) == 1 else add(waiting), level + 1)
    raise ValueError("got no part, expected at least one")


@dataclass(frozen=True)
class ThreadEngine:
    """An engine on so many threads of this process; one thread is the caller's own."""

    threads: int = 1
    name: str = "threads"  # what the user calls it
    is_remote: bool = False  # whether other processes do the work

    @property
    def description(self) -> str:
        """What a log says of it: where it is, and how many workers it has."""
        return f"{self.threads} threads of this process"

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Generator[tuple[T, R | LostError]]:
        """Yield each item with its result, in any order; a result is forgotten once it was received.

        Items are taken as there is room for them.  An error that `work` raises ends the iteration.  Where the caller
        stops early, work that has begun is finished, and no other begins.

        EngineError if the workers or their scheduler cannot be reached, or differ from this process.
        """
        from blr.threads import ordered_map  # noqa: PLC0415  loads SciPy, which a choice of engine needs not

        yield from ordered_map(lambda item: (item, work(item)), items, threads=self.threads)

    def reduce(self, work: Callable[[T], R], items: Iterable[T], *, add: Callable[[Sequence[R]], R]) -> R:
        """Return the sum of the results, added by `add` as in `tree_sum`: the same bits whoever does the work.

        EngineError as for `map`, and where an item's workers were killed each time; ValueError if there is no item.
        """
        from blr.threads import ordered_map  # noqa: PLC0415  as above

        return tree_sum(ordered_map(work, items, threads=self.threads), add)

    def close(self) -> None:
        """Let go of the workers; the threads have ended with their work."""


Engine: TypeAlias = "ThreadEngine | DaskEngine"
"""What does work on items, wherever it is; `ThreadEngine` says what the methods of all engines do."""

_engine: ContextVar[Engine | None] = ContextVar("engine", default=None)
"""The engine that sums are made on at the moment, which a run sets once for all of its steps."""


def working_on(engine: Engine) -> AbstractContextManager[None]:
    """Let the steps in the block work on an engine."""
    return during(_engine, engine)


def current_engine(threads: int) -> Engine:
    """Return the engine of the moment: workers where a run has named them, else so many threads."""
    engine = _engine.get()
    return engine if engine is not None and engine.is_remote else ThreadEngine(threads)


WORKERS = re.compile(r"local:[1-9]\d{0,2}|(tcp|tls)://(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d+")
"""Names of engines on workers: so many processes of this machine, or a scheduler by its address."""


def named_engine(text: str, threads: int, *, key: str, base: Path = Path()) -> Engine:
    """Return the engine that a text names; a scheduler file may be relative to `base`.

    `threads` is for the threads of this process.  Workers are asked for when there is work for them.

    UsageError if the text names none; `key` says where the text stands.  EngineError if workers are asked for, and the
    package `distributed` is not installed.
    """
    if text == "threads":
        return ThreadEngine(threads)
    is_file = text.endswith(".json") and "://" not in text
    if not (is_file or WORKERS.fullmatch(text)):
        raise UsageError(
            f"{key}: got '{text}', expected threads, local:N for N processes of this machine, tcp://HOST:PORT of a "
            "Dask scheduler, or the path of its scheduler file (*.json)"
        )
    name = str(base / text) if is_file else text
    try:
        # Distributed is an extra, and takes a second to import: most runs use threads.
        from flows.engines._dask import DaskEngine  # noqa: PLC0415
    except ImportError as error:
        raise EngineError(
            f"got the engine {name}, which needs Dask, but {error.name} is not installed; install it: "
            "pip install 'galaxyblr[dask]'"
        ) from error
    return DaskEngine(name)


def chosen_engine(asked: str | None, stated: str | None, base: str, threads: int) -> Engine:
    """Return the engine that is `asked` for, else the one that a specification has `stated`, or threads.

    Paths of the specification start at its folder `base`.

    Raises
    ------
    UsageError
        If a text names no engine, or one that this machine's settings do not allow.
    EngineError
        If the engine needs Dask, which is not installed.
    """
    key, text, folder = "engine", asked, Path()
    if asked is None and stated is not None:
        key, text, folder = "run.engine", stated, Path(base)
    engine = named_engine("threads" if text is None else text, threads, key=key, base=folder)
    check_scheduler(engine.name, key=key)
    return engine
