"""The flow `promote`: a challenger in the champion's place, by rule or after a person has been asked.

It pauses while it asks.  A deployment of it has no concurrency limit: the server would take the limit's lease from
a paused run, and end the run for it (../docs/decisions, and shared/prefect.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from prefect import flow
from prefect.context import FlowRunContext
from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from pydantic import Field

from flows.errors import UsageError
from flows.models.promotion import (
    Comparison,
    PromotionResult,
    RejectedPromotion,
    compare,
    comparison_table,
)
from flows.models.promotion import promote as put_in_place
from flows.models.request import PromoteRequest
from flows.orchestration.events import model_promoted
from flows.orchestration.results import RESULTS
from flows.orchestration.run_page import keep_markdown
from flows.orchestration.signature import takes
from flows.reports.tables import to_markdown

__all__ = ["Approval", "promote"]

BETWEEN_LOOKS = 10
"""Seconds between looks for the answer."""


class Approval(RunInput):
    """What the person says who is asked."""

    decision: Literal["promote", "reject"] = Field(
        default="reject", description="Put the challenger in the champion's place?"
    )
    why: str = Field(default="", max_length=500, description="For the champion's log")


@flow(name="promote", persist_result=True, result_serializer=RESULTS)
@takes(PromoteRequest)
def promote(request: PromoteRequest) -> PromotionResult | RejectedPromotion:
    """Put a model in the champion's place."""
    if request.how != "ask":
        result = put_in_place(request)
    else:
        comparison = compare(request)
        challenger, champion = comparison.challenger, comparison.champion
        answer = _asked(comparison, request.timeout)
        if answer.decision != "promote":
            return RejectedPromotion(model=challenger, status="rejected", previous=champion, why=answer.why)
        # The very model and champion that were shown, whatever has been trained or promoted since.
        approved = replace(request, model=challenger, how="now", why=answer.why or request.why)
        result = put_in_place(approved, instead_of=champion or "")
    if result.status == "promoted" and FlowRunContext.get() is not None:
        model_promoted(result.model, previous=result.previous, who=result.who, why=result.why)
    return result


def _asked(comparison: Comparison, timeout: int) -> Approval:
    if FlowRunContext.get() is None:
        raise UsageError(
            "how: got 'ask' without Prefect, where nobody can answer, expected 'better' or 'now'; choose one"
        )
    text = to_markdown(comparison_table(comparison))
    keep_markdown(f"{comparison.name}-promotion", text, f"Promote {comparison.challenger}?")
    asked = Approval.with_initial_data(description=text)
    return pause_flow_run(wait_for_input=asked, timeout=timeout, poll_interval=BETWEEN_LOOKS)
