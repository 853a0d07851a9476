"""The engine that a classification runs on: the request's, else the specification's, else threads."""

from __future__ import annotations

from pathlib import Path

from flows.engines.choice import EngineChoice
from flows.runs.allowed_roots import check_scheduler
from flows.specification.specification import Specification

__all__ = ["chosen_engine"]


def chosen_engine(asked: str | None, specification: Specification | None) -> EngineChoice:
    """Return the engine that is `asked` for, else that of the specification, whose paths start at its folder.

    Raises
    ------
    UsageError
        If a text names no engine, or one that this machine's settings do not allow.
    """
    stated = None if specification is None else specification.run.engine
    base = Path() if specification is None else Path(specification.base_folder)
    choice, key = EngineChoice.chosen(asked, stated, base=base)
    check_scheduler(choice.file, choice.address, key=key)
    return choice
