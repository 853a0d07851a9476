"""Files in groups: few tasks, no file lost, large files alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flows.classification._plan import MOST_TASKS, ROWS_A_TASK, groups


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
    assert [j.name for g in made for j in g.jobs] == [f"f{i}" for i in range(len(rows))]
    assert len(made) <= 2 * MOST_TASKS + 1
    assert all(g.jobs for g in made)


def test_a_thousand_partitions_are_a_few_hundred_tasks() -> None:
    assert len(groups(jobs(*[10**6] * 1000))) == MOST_TASKS
    assert len(groups(jobs(*[200] * 1000))) <= MOST_TASKS


def test_large_files_have_a_task_of_their_own() -> None:
    assert [len(g.jobs) for g in groups(jobs(*[ROWS_A_TASK] * 3))] == [1, 1, 1]


def test_the_label_names_the_first() -> None:
    assert [g.label for g in groups(jobs(5, 5, 5))] == ["f0 and 2 more"]
    assert [g.label for g in groups(jobs(5))] == ["f0"]
