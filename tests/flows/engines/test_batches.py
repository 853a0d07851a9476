"""Items in batches: as many as their time allows, each once, alone where a batch was lost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engines import _dask
from flows.engines._dask import LARGEST, Batch, BatchResult, Checked, InBatches, Waiting, installed
from flows.errors import EngineError


def after(seconds_an_item: float, items: list[int]) -> Waiting[int]:
    """Return items that wait, after eight others took so long each."""
    waiting = Waiting(iter(items))
    waiting.done(Batch((0,) * 8), BatchResult((0,) * 8, 8 * seconds_an_item))
    return waiting


@pytest.mark.parametrize(
    ("seconds", "size"), [(0.0, LARGEST), (0.01, LARGEST), (0.5, 4), (1.5, 1), (60.0, 1)]
)
def test_a_batch_is_as_large_as_its_time_allows(seconds: float, size: int) -> None:
    assert [len(b.items) for b in after(seconds, list(range(100))).batches(2)] == [size, size]


def test_items_are_alone_as_long_as_nobody_knows_how_quick_they_are() -> None:
    assert Waiting(iter("abc")).batches(2) == [Batch(("a",)), Batch(("b",))]


def test_the_last_items_tell_how_quick_they_are() -> None:
    waiting = after(0.001, list(range(100)))
    for _ in range(3):
        waiting.done(Batch((1,)), BatchResult((1,), 30.0))
    assert waiting.batches(1) == [Batch((0,))]


def test_a_worker_returns_what_it_has_no_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dask, "SECONDS", 0.5)
    slept: list[float] = []
    monkeypatch.setattr(_dask, "time", SimpleNamespace(perf_counter=lambda: sum(slept)))
    result = InBatches(slept.append)(Batch((0.0, 0.6, 0.0)))
    assert result.results == (None, None)
    assert result.seconds == 0.6
    waiting = Waiting(iter([1.0]))
    waiting.done(Batch((0.0, 0.6, 0.0)), result)
    assert [item for batch in waiting.batches(9) for item in batch.items] == [0.0, 1.0]


@given(st.lists(st.sampled_from(["all", "some", "lost"])), st.integers(1, 5))
def test_each_item_is_done_once(fates: list[str], n: int) -> None:
    """Whatever becomes of the batches."""
    waiting, done, fate = after(0.1, list(range(90))), [], iter(fates)
    while batches := waiting.batches(n):
        for batch in batches:
            match next(fate, "all"):
                case "lost" if len(batch.items) > 1:
                    waiting.one_by_one(batch.items)
                case "some":
                    waiting.done(batch, BatchResult(batch.items[:1], 0.1))
                    done += batch.items[:1]
                case _:
                    waiting.done(batch, BatchResult(batch.items, 0.1))
                    done += batch.items
    assert sorted(done) == list(range(90))


def test_after_a_lost_batch_each_of_its_items_is_alone_and_first() -> None:
    waiting = after(0.1, list(range(100)))
    (lost,) = waiting.batches(1)
    waiting.one_by_one(lost.items)
    assert waiting.batches(len(lost.items)) == [Batch((item,)) for item in lost.items]


def test_a_worker_of_other_versions_does_nothing() -> None:
    assert Checked(len, installed())("abc") == 3
    with pytest.raises(EngineError, match=r"^worker on \S+: got numpy \S+, expected numpy 0.1, as on the"):
        Checked(len, {**installed(), "numpy": "0.1"})("abc")
