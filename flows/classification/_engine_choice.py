"""The engine that a classification runs on: the request's, else the specification's, else threads."""

from __future__ import annotations

from pathlib import Path

from flows.engines.choice import THREADS_HERE, EngineChoice
from flows.runs.allowed_roots import check_address, check_inside
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
    if asked is not None:
        choice = EngineChoice.parse(asked, key="engine")
    elif specification is not None and stated is not None:
        choice = EngineChoice.parse(stated, key="run.engine", base=Path(specification.base_folder))
    else:
        return THREADS_HERE
    key = "engine" if asked is not None else "run.engine"
    if choice.file is not None:
        check_inside(choice.file, key=key)
    if choice.address:
        check_address(choice.address, key=key)
    return choice
