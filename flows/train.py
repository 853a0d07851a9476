"""The flow `train`: `flows.training.steps` with Prefect's tasks around its steps, and artifacts for its page.

`train.fn(...)` outside of a flow run does the same work without Prefect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.models.description import ModelDescription
from flows.models.store import REPORT_FILE
from flows.orchestration import run_page
from flows.reports.tables import candidate_table, markdown_report, trained_words
from flows.request import TrainRequest
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification
from flows.training import steps as training

TASKS: dict[Any, Any] = {
    training.ingest: run_page.step("ingest", "read the labelled rows of {request.specification.name}")(
        training.ingest
    ),
    training.fit: run_page.step("fit")(training.fit),
    training.choose: run_page.step(
        "choose", run_page.task_name(lambda given: f"choose from {_n_candidates(len(given['fitted']))}")
    )(training.choose),
    training.refine: run_page.step("refine")(training.refine),
    training.save: run_page.step("save", "save the model and its report")(training.save),
}
"""The staging folder knows what is done, and whether it is still there."""


def _name(request: TrainRequest) -> str:
    wanted = read_specification(request.specification)
    trial = f", trial on {request.limit:,} rows" if request.limit else ""
    return f"train {wanted.name}: {_n_candidates(len(wanted.candidate))}{trial}"


def _n_candidates(n: int) -> str:
    return f"{n} candidate{'' if n == 1 else 's'}"


@run_page.flow_of(TrainRequest, _name, training.train)
def train(request: TrainRequest) -> ModelDescription:
    """Fit the candidates of a specification to labelled catalogues, and save the best of them."""
    # Read once: what tasks are named by is what they do.
    wanted = read_specification(request.specification)
    with run_page.run_logged():
        model = training.train(replace(request, specification=wanted), step=_named(wanted).__getitem__)
        return _kept(model)


def _named(specification: Specification) -> dict[Any, Any]:
    """Return the tasks, those of candidates named by their number, as errors name it, and the kind of their basis."""

    def of(verb: str) -> Callable[[], str]:
        def words(given: Mapping[str, Any]) -> str:
            index = given["index"]
            return f"{verb} candidate.{index}: {specification.candidate[index].basis.kind}"

        return run_page.task_name(words)

    named: dict[Any, str] = {training.fit: "fit", training.refine: "refine"}
    return TASKS | {f: TASKS[f].with_options(task_run_name=of(verb)) for f, verb in named.items()}


def _kept(model: ModelDescription) -> ModelDescription:
    """Leave the artifacts of a training; return the model, with its words for the run's final state."""
    said = f"{model.skill_words}; Candidates of {model.model}"
    run_page.keep_table(f"{model.name}-candidates", candidate_table(model), said)
    words = f"{model.skill_words} Training of {model.model}"
    run_page.keep_markdown(f"{model.name}-report", markdown_report(model), words)
    if model.path is not None:
        run_page.keep_link(f"{model.name}-page", Path(model.path) / REPORT_FILE, f"Report of {model.model}")
    run_page.rename_run(f"train {run_page.short_label(model.model)}{NAME_ENDS.get(model.status, '')}")
    return run_page.completed(model, f"{trained_words(model)}. {model.skill_words}")


NAME_ENDS = {"exists": ": in the store already", "trial": ": trial"}
