"""One BLAS thread inside, as many as before outside, whoever opened the context and how it ends."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from blr.threads import single_threaded_blas


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("BLAS here has one thread")
        yield


def test_the_last_to_leave_restores_the_threads():
    with single_threaded_blas():
        with suppress(ValueError), single_threaded_blas():
            raise ValueError
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_another_thread_that_leaves_restores_nothing():
    def nested() -> None:
        with single_threaded_blas(), single_threaded_blas():
            pass

    with single_threaded_blas():
        other = threading.Thread(target=nested)
        other.start()
        other.join()
        assert blas_threads() == {1}
    assert blas_threads() == {2}
