"""The flow `train`: `flows.training.steps` with Prefect's tasks around its steps, and artifacts for its page.

`train.fn(...)` outside of a flow run does the same work without Prefect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from catalogs.errors import counted
from flows.models.description import ModelDescription
from flows.models.store import REPORT_FILE
from flows.orchestration import run_page
from flows.reports.tables import candidate_table, markdown_report, trained_words
from flows.request import TrainRequest
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification
from flows.training import steps as training


def _name(request: TrainRequest) -> str:
    wanted = read_specification(request.specification)
    trial = f", trial on {request.limit:,} rows" if request.limit else ""
    return f"train {wanted.name}: {counted(len(wanted.candidate), 'candidate')}{trial}"


@run_page.flow_of(TrainRequest, _name, training.train)
def train(request: TrainRequest) -> ModelDescription:
    """Fit the candidates of a specification to labelled catalogues, and save the best of them."""
    # Read once: what tasks are named by is what they do.
    wanted = read_specification(request.specification)
    with run_page.run_logged():
        model = training.train(replace(request, specification=wanted), step=_tasks(wanted).__getitem__)
        return _kept(model)


def _tasks(specification: Specification) -> dict[Any, Any]:
    """Return the task of each step; those of candidates have the number, as errors name it, and the kind of the basis.

    No result of a task is kept: the staging folder knows what is done, and whether it is still there.
    """

    def of(verb: str) -> Callable[[], str]:
        def words(given: Mapping[str, Any]) -> str:
            index = given["index"]
            return f"{verb} candidate.{index}: {specification.candidate[index].basis.kind}"

        return run_page.task_name(words)

    names: dict[Callable[..., Any], str | Callable[[], str]] = {
        training.ingest: f"read the labelled rows of {specification.name}",
        training.fit: of("fit"),
        training.choose: f"choose from {counted(len(specification.candidate), 'candidate')}",
        training.refine: of("refine"),
        training.save: "save the model and its report",
    }
    return {work: run_page.step(work, work.__name__, name) for work, name in names.items()}


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
