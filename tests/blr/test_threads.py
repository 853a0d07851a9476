"""One BLAS thread inside the context, and as many as before after it, however it ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from blr.threads import ordered_map, single_threaded_blas


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("BLAS here has one thread")
        yield


def test_the_last_to_leave_restores_the_threads() -> None:
    with single_threaded_blas():
        with suppress(ValueError), single_threaded_blas():
            raise ValueError
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_another_thread_that_leaves_restores_nothing() -> None:
    def nested() -> None:
        with single_threaded_blas(), single_threaded_blas():
            pass

    with single_threaded_blas():
        other = threading.Thread(target=nested)
        other.start()
        other.join()
        assert blas_threads() == {1}
    assert blas_threads() == {2}


@pytest.mark.parametrize("keep", [False, True])
def test_a_map_keeps_the_order_and_ends_at_an_error(*, keep: bool) -> None:
    assert list(ordered_map(lambda x: x * x, range(50), threads=3, keep=keep)) == [x * x for x in range(50)]
    done = []

    def work(x: int) -> int:
        if x == 5:
            raise ValueError("five")
        done.append(x)
        return x

    with pytest.raises(ValueError, match="five"):
        list(ordered_map(work, range(1000), threads=2, keep=keep))
    after = len(done)
    assert after < 20
    assert list(ordered_map(len, ["a", "bc"], threads=2, keep=keep)) == [1, 2]
    assert len(done) == after


def test_kept_threads_serve_several_callers_and_a_child_has_its_own() -> None:
    results = {}

    def caller(i: int) -> None:
        results[i] = list(ordered_map(lambda x: i + x, range(200), threads=2, keep=True))

    callers = [threading.Thread(target=caller, args=(i,)) for i in range(4)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    assert results == {i: [i + x for x in range(200)] for i in range(4)}
    code = (
        "import os; from blr.threads import ordered_map\n"
        "assert list(ordered_map(abs, [-1, 2], threads=2, keep=True)) == [1, 2]\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if list(ordered_map(abs, [-3, 4], threads=2, keep=True)) == [3, 4] else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
