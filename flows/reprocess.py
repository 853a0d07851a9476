"""The flow `reprocess`: the steps of `flows.classification.reprocessing` as Prefect's tasks, and artifacts.

`reprocess.fn(...)` outside of a flow run does the same work without Prefect.
"""

from __future__ import annotations

from prefect import flow
from prefect.context import FlowRunContext

from flows.classification import reprocessing
from flows.classification.request import ReprocessRequest
from flows.classify import STEPS
from flows.orchestration.results import RESULTS
from flows.orchestration.run_page import keep_run, progress_kept
from flows.orchestration.signature import takes
from flows.runs.results import ReleaseResult
from flows.specification.specification import Specification

__all__ = ["reprocess"]


@flow(name="reprocess", persist_result=True, result_serializer=RESULTS)
@takes(ReprocessRequest, names={"Specification": Specification})
def reprocess(request: ReprocessRequest) -> ReleaseResult:
    """Bring a release up to date: classify what is new or changed, retire what is gone, report the differences."""
    if FlowRunContext.get() is None:
        return reprocessing.reprocess(request)
    with progress_kept("reprocess"):
        result = reprocessing.reprocess(request, steps=STEPS)
    keep_run(result)
    return result
