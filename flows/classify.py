"""The flow `classify`: `flows.classification.steps` with Prefect's tasks around its steps, and artifacts for its page.

`classify.fn(...)` outside of a flow run does the same work without Prefect.
"""

from __future__ import annotations

from collections.abc import Callable

from flows.classification import steps as classification
from flows.classification.execution import T, here
from flows.models.store import Store
from flows.orchestration import run_page
from flows.request import ClassifyRequest
from flows.runs.manifest import Manifest
from flows.runs.references import check_parameters
from flows.runs.release_store import folder_here
from flows.runs.results import ClassificationResult
from flows.specification.specification import Specification  # noqa: F401  a type of the request, in quotes there

TASKS = {
    kind: run_page.step(here, kind, run_page.task_name(lambda given: given["name"]))
    for kind in ("annotate", "publish")
}
"""The output folder's manifest lists what is done, and is compared with the files.

Prefect keeps no results: a retried run would read them, even if somebody had replaced them.
"""


def as_task(kind: str, name: str, work: Callable[[], T]) -> T:
    """Do a piece of work as a task of Prefect."""
    return TASKS[kind](kind, name, work)


def _name(request: ClassifyRequest) -> str:
    label = Store.named(request.store).find(request.model).label
    release = Manifest.next_release(folder_here(request.out))
    return run_page.started_name("classify", label, release=release, trial=request.limit is not None)


@run_page.flow_of(ClassifyRequest, _name, classification.classify)
def classify(request: ClassifyRequest) -> ClassificationResult:
    """Write annotated copies of catalogues: class probabilities, uncertainties and flags for every row."""
    check_parameters(request.catalogues)
    with run_page.run_logged("classify"):
        return run_page.keep_run("classify", classification.classify(request, task=as_task))
