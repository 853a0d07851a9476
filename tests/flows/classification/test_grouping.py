"""Files in groups: few tasks, no file lost, large files alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flows.classification._plan import MOST_TASKS, groups


def jobs(*rows: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(name=f"f{i}", n_rows=n) for i, n in enumerate(rows)]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [0],
        [10**9],
        [200] * 1000,
        [0] * 1000,
        [10**6] * 1000,
        [1, 10**9] * 2000,
        list(range(0, 3_000_000, 1000)),
    ],
)
def test_every_file_once_in_order_and_few_tasks(rows: list[Any]) -> None:
    made = groups(jobs(*rows))
    assert [j.name for g in made for j in g] == [f"f{i}" for i in range(len(rows))]
    assert len(made) <= 2 * MOST_TASKS + 1
    assert all(made)
