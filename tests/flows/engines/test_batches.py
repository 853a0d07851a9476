"""Items in batches: as many as their time allows, each once, alone where a batch was lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engines._dask import LARGEST, Waiting


def after(seconds_an_item: float, items: list[int]) -> Waiting[int]:
    """Return items that wait, after eight others took so long each."""
    waiting = Waiting(iter(items))
    waiting.done([0] * 8, 8, 8 * seconds_an_item)
    return waiting


@pytest.mark.parametrize(
    ("seconds", "size"), [(0.0, LARGEST), (0.01, LARGEST), (0.5, 4), (1.5, 1), (60.0, 1)]
)
def test_a_batch_is_as_large_as_its_time_allows(seconds: float, size: int) -> None:
    assert [len(b) for b in after(seconds, list(range(100))).batches(2)] == [size, size]


@given(st.lists(st.sampled_from(["all", "some", "lost"])), st.integers(1, 5))
def test_each_item_is_done_once(fates: list[str], n: int) -> None:
    """Whatever becomes of the batches."""
    waiting, done, fate = after(0.1, list(range(90))), [], iter(fates)
    while batches := waiting.batches(n):
        for batch in batches:
            match next(fate, "all"):
                case "lost" if len(batch) > 1:
                    waiting.one_by_one(batch)
                case "some":
                    waiting.done(batch, 1, 0.1)
                    done += batch[:1]
                case _:
                    waiting.done(batch, len(batch), 0.1)
                    done += batch
    assert sorted(done) == list(range(90))


def test_after_a_lost_batch_each_of_its_items_is_alone_and_first() -> None:
    waiting = after(0.1, list(range(100)))
    (lost,) = waiting.batches(1)
    waiting.one_by_one(lost)
    assert waiting.batches(len(lost)) == [[item] for item in lost]
