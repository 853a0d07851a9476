"""The flow `reprocess`: the steps of `flows.classification.steps` as Prefect's tasks, and artifacts.

`reprocess.fn(...)` outside of a flow run does the same work without Prefect.
"""

from __future__ import annotations

from flows.classification import steps as reprocessing
from flows.classify import as_task
from flows.models.store import Store
from flows.orchestration.run_page import flow_of, keep_run, run_logged, started_name
from flows.request import ReprocessRequest
from flows.runs.manifest import Manifest
from flows.runs.release_store import folder_here
from flows.runs.results import ReleaseResult
from flows.specification.specification import Specification  # noqa: F401  a type of the request, in quotes there
from flows.specification.toml_file import read_specification


def _name(request: ReprocessRequest) -> str:
    wanted = read_specification(request.specification)
    label = Store.named(request.store).find(request.model or wanted.name).label
    out, base, _ = reprocessing.named_folder(request, wanted)
    release = Manifest.next_release(folder_here(out, base=base))
    return started_name("reprocess", label, release=release)


@flow_of(ReprocessRequest, _name, reprocessing.reprocess)
def reprocess(request: ReprocessRequest) -> ReleaseResult:
    """Bring a release up to date: classify what is new or changed, retire what is gone, report the differences."""
    with run_logged("reprocess"):
        return keep_run("reprocess", reprocessing.reprocess(request, task=as_task))
