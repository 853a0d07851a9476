"""`blr demo`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from flows.classification import steps as classification
from flows.cli._printing import connect_or_start, show, shown_progress, wide_console
from flows.demo.steps import Classify, Train, run_demo
from flows.training import steps as training

P = ParamSpec("P")
R = TypeVar("R")


def run_demonstration(*, out: Path, prefect: bool | None, json: bool, quiet: bool) -> None:
    """Run the demonstration, its flows as flows of one Prefect server unless it is direct."""
    work: tuple[Train, Classify] = (
        (training.train, classification.classify) if prefect is False else _flows(quiet=quiet)
    )
    result = run_demo(
        out,
        train=_shown(work[0], quiet=quiet),
        classify=_shown(work[1], quiet=quiet),
        show=(lambda _: None) if json else wide_console().print,
    )
    show(result, lambda _: None, json=json)


def _flows(*, quiet: bool) -> tuple[Train, Classify]:
    with shown_progress(quiet=quiet):
        connect_or_start()
    from flows.classify import classify
    from flows.train import train

    return (lambda request: train(**vars(request))), (lambda request: classify(**vars(request)))


def _shown(work: Callable[P, R], *, quiet: bool) -> Callable[P, R]:
    """Return the work with its own progress bar: tables are printed between the bars, not through them."""

    def shown(*arguments: P.args, **options: P.kwargs) -> R:
        with shown_progress(quiet=quiet):
            return work(*arguments, **options)

    return shown
