"""Files in groups, one a task: a thousand small files are a few hundred tasks, a large one is a task of its own.

Prefect keeps some 20 kB of each task run; a killed run goes on file by file all the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flows.jobs import Job

__all__ = ["MOST_TASKS", "Group", "groups"]

MOST_TASKS = 200
ROWS_A_TASK = 500_000
"""Rows that are worth a task, a second's work; smaller files share one."""


@dataclass(frozen=True)
class Group:
    """Files that one task does, in their order."""

    jobs: tuple[Job, ...]

    @property
    def label(self) -> str:
        """What the task is called by."""
        more = len(self.jobs) - 1
        return self.jobs[0].name + (f" and {more} more" if more else "")


def groups(jobs: Sequence[Job]) -> list[Group]:
    """Return the jobs in groups of about as many rows, at most `MOST_TASKS` of them."""
    total = sum(job.n_rows for job in jobs)
    wanted = max(ROWS_A_TASK, math.ceil(total / MOST_TASKS))
    most_files = math.ceil(len(jobs) / MOST_TASKS)  # files of no rows cost time too
    found: list[list[Job]] = []
    rows = 0
    for job in jobs:
        full = rows + job.n_rows > wanted and len(found[-1]) >= most_files if found else True
        if full:
            found.append([])
            rows = 0
        found[-1].append(job)
        rows += job.n_rows
    return [Group(tuple(group)) for group in found]
