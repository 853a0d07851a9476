"""The flow `classify`: `flows.classification.steps` with Prefect's tasks around its steps, and artifacts for its page.

`classify.fn(...)` outside of a flow run does the same work without Prefect.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from pydantic import BeforeValidator, PositiveInt

from flows.classification import steps as classification
from flows.classification.annotation import annotate_each
from flows.classification.execution import finish_outputs
from flows.inputs.resolve import check_parameters
from flows.orchestration.results import RESULTS
from flows.orchestration.run_page import keep_run, mark_crashed, progress_kept, run_id
from flows.runs.results import ClassificationResult
from flows.specification.specification import Specification

__all__ = ["classify"]

STEPS = classification.Steps(
    together=task(
        name="annotate",
        task_run_name="annotate {group.label}",
        cache_policy=NO_CACHE,
        persist_result=False,
    )(annotate_each),
    finish=task(name="finish", cache_policy=NO_CACHE, persist_result=False)(finish_outputs),
    identify=run_id,
    mark_crashed=mark_crashed,
)
"""Not cached by Prefect: the output folder's manifest knows what is done, and whether it is still there.  Nor are
results kept: a run that is tried again would read them, and whatever somebody has put in their place."""


@flow(name="classify", persist_result=True, result_serializer=RESULTS)
def classify(
    catalogues: list[Annotated[str, BeforeValidator(str)]],
    model: str,
    store: Path = Path("models"),
    out: Path = Path("annotated"),
    specification: Specification | Path | None = None,
    class_prior: Literal["em"] | dict[str, float] | None = None,
    output_format: Literal["same", "parquet", "fits"] | None = None,
    overwrite: bool = False,  # noqa: FBT001, FBT002 - switches of the form
    verify: bool = False,  # noqa: FBT001, FBT002
    limit: PositiveInt | None = None,
    threads: PositiveInt | None = None,
) -> ClassificationResult:
    """Write annotated copies of catalogues: class probabilities, uncertainties and flags for every row.

    Args:
        catalogues: Files, folders, patterns or URLs.
        model: NAME, for its champion, or NAME@VERSION.
        store: Folder of the model store.
        out: Folder of the annotated copies.
        specification: Target, flags and output other than those the model was trained with.
        class_prior: The classes' shares in these catalogues, where they are not the training's; "em" estimates them.
        output_format: Of the copies: each input's own, or another; default: what the specification says.
        overwrite: Replace what another model or specification has left in the folder.
        verify: Hash inputs and outputs again, even where size and time are as they were.
        limit: For a trial: score that many rows of each catalogue, write nothing.
        threads: Threads that score; default: the cores of the machine.
    """
    work = partial(
        classification.classify,
        catalogues,
        model=model,
        store=store,
        out=out,
        specification=specification,
        class_prior=class_prior,
        output_format=output_format,
        overwrite=overwrite,
        verify=verify,
        limit=limit,
        threads=threads,
    )
    if FlowRunContext.get() is None:
        return work(steps=classification.DIRECT)
    check_parameters(catalogues)
    with progress_kept("classify"):
        result = work(steps=STEPS)
    keep_run(result)
    return result
