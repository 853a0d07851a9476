"""The flow `train`: `flows.training.steps` with Prefect's tasks around its steps, and artifacts for its page.

`train.fn(...)` outside of a flow run does the same work without Prefect.
"""

from __future__ import annotations

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext

from flows.models.description import ModelDescription
from flows.orchestration.results import RESULTS
from flows.orchestration.run_page import keep_markdown, keep_table
from flows.orchestration.signature import takes
from flows.reports.choice import choice_words
from flows.reports.tables import candidate_table, markdown_report
from flows.specification.specification import Specification
from flows.training import steps as training
from flows.training.report import train_report
from flows.training.request import TrainRequest

__all__ = ["train"]

STEPS = training.Steps(
    ingest=task(name="ingest", cache_policy=NO_CACHE, persist_result=False)(training.ingest),
    fit=task(name="fit", task_run_name="fit candidate {index}", cache_policy=NO_CACHE, persist_result=False)(
        training.fit
    ),
    choose=task(name="choose", cache_policy=NO_CACHE, persist_result=False)(training.choose),
    refine=task(
        name="refine", task_run_name="refine candidate {index}", cache_policy=NO_CACHE, persist_result=False
    )(training.refine),
    save=task(name="save", cache_policy=NO_CACHE, persist_result=False)(training.save),
)
"""Not cached by Prefect: the staging folder knows what is done, and whether it is still there."""


@flow(name="train", persist_result=True, result_serializer=RESULTS)
@takes(TrainRequest, names={"Specification": Specification})
def train(request: TrainRequest) -> ModelDescription:
    """Fit the candidates of a specification to labelled catalogues, and save the best of them."""
    running = FlowRunContext.get() is not None
    model = training.train(request, steps=STEPS if running else training.DIRECT)
    if running:
        report = train_report(model)
        said = [report.skill_words, f"Candidates of {model.model}", choice_words(report)]
        keep_table(f"{model.name}-candidates", candidate_table(report), "; ".join(filter(None, said)))
        keep_markdown(
            f"{model.name}-report",
            markdown_report(report),
            f"{report.skill_words} Training of {model.model}",
        )
    return model
