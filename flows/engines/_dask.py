"""The workers of a Dask cluster: their versions, batches of jobs, and what becomes of jobs whose worker is lost."""

from __future__ import annotations

import logging
import platform
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, as_completed

from blr import compiled
from flows.engines.engine import LostError, tree_sum
from flows.errors import EngineError, FlowError
from flows.version import code_version

PACKAGES = ("numpy", "scipy", "pyarrow", "astropy")


@cache
def installed() -> Mapping[str, str]:
    """Return what decides in this process, by name: blr and its loops in C, Python without its last part, packages."""
    python = ".".join(platform.python_version_tuple()[:2])
    loops = "none" if compiled.loops is None else compiled.loops.instructions
    packages = {name: version(name) for name in PACKAGES}
    return {"blr": code_version(), "loops in C": loops, "python": python, **packages}


def difference(where: str, found: Mapping[str, str], expected: Mapping[str, str]) -> str:
    """Return how the versions of a worker differ from those of the run, in one sentence; '' where they are the same."""
    differ = [name for name in expected if found.get(name) != expected[name]]
    if not differ:
        return ""
    theirs = ", ".join(f"{name} {found.get(name, 'missing')}" for name in differ)
    ours = ", ".join(f"{name} {expected[name]}" for name in differ)
    return (
        f"{where}: got {theirs}, expected {ours}, as on the machine that started the run, since other "
        "versions may give slightly different numbers; install the same versions there"
    )


# Items in batches, a batch a task of Dask's: each task costs the driver, and the scheduler, milliseconds. A batch is
# as large as its items are quick.  A worker stops after some seconds and returns what it has not begun.

T = TypeVar("T")
R = TypeVar("R")

LARGEST = 16
"""Items of a batch at most: what a task costs is then a small part of what its items cost."""
MOST_FRAMES = 50
"""Frames of a traceback that a worker sends, the last ones."""
SECONDS = 2.0
"""Seconds of a worker's time for a batch.  Items that take longer are handed over one by one."""


def checked(function: Callable[[T], R], versions: Mapping[str, str], given: T) -> R:
    """Return a function's result on a worker; EngineError if its versions differ: it may have joined late.

    An error has its traceback as a note, and its cause.  A worker cannot send a traceback of hundreds of frames, such
    as that of a RecursionError, and sends a text.  Dask's client expects no text there, so that it would never hear
    that the task has ended.
    """
    if differs := difference(f"worker on {platform.node()}", installed(), versions):
        raise EngineError(differs)
    try:
        return function(given)
    except Exception as error:  # noqa: BLE001  all are raised again
        error.add_note("".join(traceback.format_exception(error, limit=-MOST_FRAMES, chain=False)))
        error.__context__ = None
        if (cause := error.__cause__) is not None:
            cause.__traceback__ = cause.__cause__ = cause.__context__ = None
        raise error.with_traceback(None) from cause


def in_batches(work: Callable[[T], R], batch: Sequence[T]) -> tuple[list[R], float]:
    """Return the results of a batch's first item and of those that follow in its time, and the seconds they took."""
    began = time.perf_counter()
    results: list[R] = []
    for item in batch:
        results.append(work(item))
        if time.perf_counter() - began > SECONDS:
            break
    return results, time.perf_counter() - began


class Waiting(Generic[T]):
    """Items that are still to be handed over."""

    def __init__(self, coming: Iterator[T]) -> None:
        self._coming = coming
        self._alone, self._again = deque[T](), deque[T]()
        self._n, self._seconds = 0.0, 0.0

    def batches(self, n: int) -> list[list[T]]:
        """Return the next n batches, fewer where no more items wait."""
        single = [[self._alone.popleft()] for _ in range(min(n, len(self._alone)))]
        size = LARGEST if not self._seconds else int(SECONDS * self._n / self._seconds)
        size = max(1, min(LARGEST, size)) if self._n else 1
        most = (n - len(single)) * size
        again = [self._again.popleft() for _ in range(min(most, len(self._again)))]
        items = [*again, *islice(self._coming, most - len(again))]
        return [*single, *(items[i : i + size] for i in range(0, len(items), size))]

    def done(self, batch: Sequence[T], n: int, seconds: float) -> None:
        """Learn how long a batch's first n items took, the last ones above all; take back those that were not begun."""
        self._again.extend(batch[n:])
        self._n = self._n / 2 + n
        self._seconds = self._seconds / 2 + seconds

    def one_by_one(self, items: Iterable[T]) -> None:
        """Take back the items of a batch that no worker outlived: the next time each is alone."""
        self._alone.extend(items)


# Work on the workers of a Dask scheduler; the only module that imports `distributed`. A worker needs this package and
# the same paths, nothing else: it gets a function and values, which Dask pickles.

PATIENCE = 15
"""Seconds in which a scheduler has to answer."""
AHEAD = 16
"""Least number of tasks that the scheduler is handed ahead of their results."""
TASKS_A_THREAD = 4
AT_ONCE = 64
"""Tasks whose results are taken together: each message takes milliseconds."""
COUNT_EVERY = 5.0
"""Seconds after which the threads of all workers are counted again: more workers may have joined."""
LINGER = 0.1
"""Seconds for which results are waited for that can be taken together with those that are there."""
LOOK_EVERY = 0.1
"""Seconds between two looks at the workers while results are waited for, at least; Dask's own wait looks as often."""
GONE = 60.0
"""Seconds after which processes of our own that have all ended are not waited for any longer."""
UNANSWERED = 15
"""Questions without an answer, one after another, after which a scheduler counts as gone: in five minutes."""
ROUNDS = 10
"""How often workers are asked for their versions, while some of them end."""
AGAIN = "run the same command again to continue"


async def dask_setup(worker: object) -> None:  # noqa: ARG001 - the signature of Dask's preloads
    """Let a local worker ignore Ctrl-C, which a terminal sends to all processes: the run finishes its present work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class DaskEngine:
    """An engine on the workers of a scheduler, by its name as `named_engine` takes it.

    The scheduler is one of our own with so many processes, or one that is there.
    """

    is_remote = True

    def __init__(self, name: str) -> None:
        self.name = name
        self._processes = int(name.removeprefix("local:")) if name.startswith("local:") else 0
        self._cluster: LocalCluster | None = None
        self._ahead, self._counted, self._seen, self._unanswered = AHEAD, 0.0, 0.0, 0

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Generator[tuple[T, R | LostError]]:
        """Yield each item with its result, as `ThreadEngine.map` says.

        Quick items go several to a task.  Where no worker outlives a task of several, each is tried by itself.
        """
        client, waiting = self._client, Waiting(iter(items))
        task = partial(checked, partial(in_batches, work), installed())
        pending: dict[Future, list[T]] = {}
        done = as_completed(loop=client.loop)
        self._seen = time.monotonic()

        def hand_over() -> None:
            ahead = self._tasks_ahead()
            n = ahead - len(pending)
            if n >= ahead // 4 and (batches := waiting.batches(n)):
                futures = client.map(task, batches, pure=False)
                pending.update(zip(futures, batches, strict=True))
                done.update(futures)

        try:
            hand_over()
            while pending:
                while not (finished := done.next_batch(block=False)):
                    self._require_workers()
                    with done.thread_condition:
                        done.thread_condition.wait(LOOK_EVERY)
                if len(finished) < min(AT_ONCE, len(pending)):
                    time.sleep(LINGER)
                    finished += done.next_batch(block=False)
                answers = self._results_of(finished)
                received: list[tuple[T, R | LostError]] = []
                for future, answer in zip(finished, answers, strict=True):
                    batch = pending.pop(future)
                    if not isinstance(answer, LostError):
                        results, seconds = answer
                        waiting.done(batch, len(results), seconds)
                        received += zip(batch, results, strict=False)
                    elif len(batch) == 1:
                        received.append((batch[0], answer))
                    else:
                        waiting.one_by_one(batch)
                del finished, future  # the workers forget them
                hand_over()
                yield from received
        except GeneratorExit:
            self._finish(pending)
            raise
        finally:
            client.cancel(list(pending))

    def reduce(self, work: Callable[[T], R], items: Iterable[T], *, add: Callable[[Sequence[R]], R]) -> R:
        """Return the sum of the results, as `ThreadEngine.reduce` says; the parts stay on the workers."""
        client, versions = self._client, installed()
        part, sum_of = (partial(checked, one, versions) for one in (work, add))

        def added(parts: Sequence[Future]) -> Future:
            return client.submit(sum_of, list(parts), pure=False)

        parts = (client.submit(part, item, pure=False) for item in items)
        result = self._result_of(tree_sum(parts, added))
        if isinstance(result, LostError):
            raise result
        return result

    def close(self) -> None:
        """Let go of the scheduler; end the processes that were started for this engine."""
        if "_client" in vars(self):
            if self._client.status != "running":  # else its log has the traceback of a lost connection
                logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    @cached_property
    def _client(self) -> Client:
        """The connection to the scheduler, whose workers were compared with this process."""
        if self._processes:
            # Dask has workers give memory back with each large array, which costs them a fifth of their time.
            key = "distributed.nanny.pre-spawn-environ"
            environment = {k: v for k, v in dask.config.get(key).items() if not k.startswith("MALLOC_")}
            with dask.config.set({key: environment}):
                self._cluster = LocalCluster(
                    n_workers=self._processes,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                    preload=[__name__],
                )
        # Of a lost connection it logs a traceback; the user gets a sentence of ours.
        logging.getLogger("distributed.batched").setLevel(logging.WARNING)
        client = self._connected()
        try:
            _check_versions(client)
        except BaseException:
            client.close()
            raise
        return client

    def _connected(self) -> Client:
        is_file = self.name.endswith(".json")
        if is_file and not Path(self.name).is_file():
            raise EngineError(
                f"{self.name}: there is no such file, expected the one that `dask-scheduler "
                "--scheduler-file` writes; start the scheduler, or correct the path"
            )
        try:
            where: Any = {"scheduler_file": self.name} if is_file else {"address": self._cluster or self.name}
            return Client(**where, timeout=PATIENCE, set_as_default=False, name="blr")
        except (OSError, ValueError) as error:
            raise EngineError(
                f"{self.name}: no Dask scheduler answered within {PATIENCE} s; start the scheduler, or "
                "correct the address"
            ) from error

    @property
    def description(self) -> str:
        """What a log says of the engine: scheduler, workers, and the page that shows them."""
        client = self._client
        threads = client.nthreads()
        many = f"{len(threads):,} workers, {sum(threads.values()):,} threads"
        workers = many if threads else "no worker yet"
        return f"Dask's scheduler {client.scheduler.address}: {workers}; its page: {client.dashboard_link}"

    def _results_of(self, futures: Sequence[Future]) -> list[Any]:
        """Return the results of futures that are done, asked for together: each question takes milliseconds."""
        if all(future.status == "finished" for future in futures):
            client, asked = self._client, list(futures)
            with suppress(Exception):  # a worker is gone with a result: each is asked for by itself
                gather = partial(client.gather, asked, asynchronous=True)
                return list(client.sync(gather, callback_timeout=PATIENCE))
        return [self._result_of(future) for future in futures]

    def _result_of(self, future: Future) -> Any:
        """Return the result, once it is there; `LostError` where its workers were killed each time."""
        try:
            error = self._exception_of(future)
            if error is None:
                return future.result(timeout=UNANSWERED * PATIENCE)
        except EngineError:
            raise
        except Exception as lost:
            raise self._silent() from lost
        if isinstance(error, MemoryError):
            return LostError(
                "a worker did not have enough memory; give the workers more, or run without an engine"
            )
        if isinstance(error, KilledWorker):
            return LostError(
                f"{error.allowed_failures + 1} workers were killed one after another while they worked on it, "
                "probably because they had too little memory; give the workers more memory, or run without an engine"
            )
        if not isinstance(error, FlowError):
            _check_versions(self._client)  # a worker of another version may not even understand its task
        if isinstance(error, ModuleNotFoundError):
            raise _without_package(self.name, error)
        raise error

    def _exception_of(self, future: Future) -> BaseException | None:
        self._seen = time.monotonic()
        while True:
            try:
                error: BaseException | None = future.exception(timeout=COUNT_EVERY)
            except TimeoutError:
                self._require_workers()
            else:
                return error

    def _require_workers(self) -> None:
        """Raise EngineError where the scheduler is silent, or all processes of our own have ended for a minute.

        Dask gives up a process that ends while it starts.  The workers of another scheduler are waited for: a queue may
        still start some.
        """
        self._tasks_ahead()
        if self._unanswered >= UNANSWERED:
            raise self._silent()
        if self._processes and time.monotonic() - self._seen > GONE:
            raise EngineError(
                f"{self.name}: all worker processes ended, and none has started again for {GONE:.0f} s; {AGAIN}"
            )

    def _silent(self) -> EngineError:
        what = "Dask's scheduler stopped answering before the work was done"
        return EngineError(f"{self.name}: {what}; start it again, then {AGAIN}")

    def _tasks_ahead(self) -> int:
        """Return how many tasks the scheduler is handed ahead: some for each thread of its workers, as now counted."""
        if time.monotonic() - self._counted > COUNT_EVERY:
            self._unanswered += 1
            with suppress(Exception):  # a scheduler that is gone is noticed by who waits for its results
                n_threads = sum(self._client.nthreads(callback_timeout=PATIENCE).values())
                self._unanswered = 0
                self._ahead = max(AHEAD, TASKS_A_THREAD * n_threads)
                self._seen = time.monotonic() if n_threads else self._seen
            self._counted = time.monotonic()
        return self._ahead

    def _finish(self, pending: dict[Future, T]) -> None:
        """Return once the work that has begun is finished; none begins."""
        begun = {key for keys in self._client.processing().values() for key in keys}
        self._client.cancel([future for future in pending if future.key not in begun])
        for future in pending:
            if future.key in begun:
                with suppress(Exception):  # The caller has stopped and needs no more results.
                    future.exception()


def _check_versions(client: Client) -> None:
    """Raise EngineError where a worker has other versions than this process, or lacks the package."""
    for _ in range(ROUNDS):
        answers = client.run(installed, on_error="return")
        gone = [where for where, found in answers.items() if isinstance(found, OSError)]
        for where in answers.keys() - gone:
            found = answers[where]
            if isinstance(found, BaseException):
                raise _without_package(where, found)
            if differs := difference(where, found, installed()):
                raise EngineError(differs)
        if not gone:
            return  # Otherwise a worker has just ended, and another one may have replaced it.


def _without_package(where: str, error: BaseException) -> EngineError:
    return EngineError(
        f"{where}: a worker cannot import blr ({error}); install galaxyblr in the worker's environment"
    )
