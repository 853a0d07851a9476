"""Engines: their names, their order of additions, threads, and items in batches; workers of Dask: `test_cluster.py`."""

from __future__ import annotations

import operator
import sys
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engines._dask import LARGEST, Waiting
from flows.engines.engine import FAN_IN, ThreadEngine, chosen_engine, named_engine, tree_sum
from flows.errors import EngineError, SpecificationError, UsageError
from flows.specification.specification import specification_hash
from flows.specification.toml_file import parse_specification, specification_toml


def by_levels(parts: Any, add: Any) -> Any:
    """Add in groups of `FAN_IN`, level by level: the obvious way, which needs all parts at once."""
    while len(parts) > 1:
        groups = [parts[i : i + FAN_IN] for i in range(0, len(parts), FAN_IN)]
        parts = [group[0] if len(group) == 1 else add(group) for group in groups]
    return parts[0]


def bracketed(parts: Any) -> Any:
    return f"({' '.join(parts)})"


@given(st.integers(min_value=1, max_value=3 * FAN_IN**2 + 2))
def test_the_tree_is_that_of_the_levels(n: int) -> None:
    parts = [str(i) for i in range(n)]
    assert tree_sum(parts, bracketed) == by_levels(parts, bracketed)


def test_threads_add_to_the_same_bits() -> None:
    arrays = np.random.default_rng(1).normal(size=(100, 3, 3))

    def add(parts: Any) -> Any:
        return reduce(operator.add, parts)

    expected = by_levels([a @ a for a in arrays], add)
    for threads in (1, 2, 5):
        found = ThreadEngine(threads).reduce(lambda a: a @ a, arrays, add=add)
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="no part"):
        ThreadEngine(1).reduce(len, [], add=sum)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("threads", "threads"),
        ("local:4", "local:4"),
        ("tcp://node-1.survey.org:8786", "tcp://node-1.survey.org:8786"),
        ("tls://[::1]:8786", "tls://[::1]:8786"),
        ("scheduler.json", "/base/scheduler.json"),
        ("/elsewhere/scheduler.json", "/elsewhere/scheduler.json"),
    ],
)
def test_names_of_engines(text: str, name: str) -> None:
    engine = named_engine(text, 3, key="engine", base=Path("/base"))
    assert (engine.name, engine.is_remote) == (name, text != "threads")


@pytest.mark.parametrize(
    "text", ["", "local:0", "local", "local:-1", "tcp://host", "http://host:8786", "dask"]
)
def test_texts_that_name_no_engine(text: str) -> None:
    with pytest.raises(UsageError, match=r"engine: got '.*', expected threads, local:N"):
        named_engine(text, 1, key="engine")


def test_the_specification_names_an_engine(make: SimpleNamespace) -> None:
    plain = parse_specification(make.specification, source="spec.toml")
    stated = parse_specification(
        make.specification + '\n[run]\nengine = "at/s.json"\n', source="s", base_folder="/x"
    )
    assert chosen_engine(None, stated.run.engine, stated.base_folder, 3).name == "/x/at/s.json"
    assert chosen_engine("local:2", stated.run.engine, stated.base_folder, 3).name == "local:2"
    assert chosen_engine(None, plain.run.engine, plain.base_folder, 3) == ThreadEngine(3)
    assert specification_hash(stated) == specification_hash(plain), "where is not what"
    assert "engine" not in specification_toml(stated), "a model names no scheduler"
    with pytest.raises(SpecificationError, match=r"run\.engine"):
        parse_specification(make.specification + '\n[run]\nengine = "dusk"\n', source="spec.toml")


def test_a_form_that_is_open_to_others_names_no_other_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLR_ROOTS", "/data:tcp://scheduler:8786")
    assert chosen_engine("tcp://scheduler:8786", None, ".", 1).is_remote
    for text in ("tcp://elsewhere:8786", "/elsewhere/scheduler.json"):
        with pytest.raises(UsageError, match="engine: got"):
            chosen_engine(text, None, ".", 1)


def test_without_dask_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "flows.engines._dask", raising=False)
    with pytest.raises(EngineError, match=r"pip install 'galaxyblr\[dask\]'"):
        named_engine("local:2", 1, key="engine")


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
