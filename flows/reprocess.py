"""The flow `reprocess`: the steps of `flows.classification.reprocessing` as Prefect's tasks, and artifacts.

`reprocess.fn(...)` outside of a flow run does the same work without Prefect.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from prefect import flow
from prefect.context import FlowRunContext
from pydantic import NonNegativeFloat, PositiveInt

from flows.classification import reprocessing
from flows.classification.execution import DIRECT
from flows.classify import STEPS
from flows.inputs.still_written import PATIENCE, QUIET
from flows.orchestration.results import RESULTS
from flows.orchestration.run_page import keep_run, progress_kept
from flows.runs.results import ReleaseResult
from flows.specification.specification import Specification

__all__ = ["reprocess"]


@flow(name="reprocess", persist_result=True, result_serializer=RESULTS)
def reprocess(
    specification: Specification | Path,
    store: Path = Path("models"),
    model: str | None = None,
    out: Path | None = None,
    verify: bool = False,  # noqa: FBT001, FBT002 - a switch of the form
    threads: PositiveInt | None = None,
    quiet_seconds: NonNegativeFloat = QUIET,
    patience: NonNegativeFloat = PATIENCE,
) -> ReleaseResult:
    """Bring a release up to date: classify what is new or changed, retire what is gone, report the differences.

    Args:
        specification: Target, flags and output folder, or the path of the TOML file that says them.
        store: Folder of the model store.
        model: NAME or NAME@VERSION; default: the champion of the specification's name.
        out: Folder of the annotated copies; default: the specification's.
        verify: Hash inputs and outputs again, even where size and time are as they were.
        threads: Threads that score; default: the cores of the machine.
        quiet_seconds: A file that changed less than this ago is still being written.
        patience: Seconds to wait for such files, before they are left for the next run.
    """
    work = partial(
        reprocessing.reprocess,
        specification,
        store=store,
        model=model,
        out=out,
        verify=verify,
        threads=threads,
        quiet_seconds=quiet_seconds,
        patience=patience,
    )
    if FlowRunContext.get() is None:
        return work(steps=DIRECT)
    with progress_kept("reprocess"):
        result = work(steps=STEPS)
    keep_run(result)
    return result
