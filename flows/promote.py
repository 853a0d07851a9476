"""The flow `promote`: a challenger in the champion's place, by rule or after a person has been asked.

It pauses while it asks.  A deployment of it has no concurrency limit: the server would take the limit's lease from
a paused run, and end the run for it (../docs/decisions, and shared/prefect.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from prefect import flow
from prefect.context import FlowRunContext
from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from pydantic import Field, NonNegativeFloat, PositiveInt

from flows.errors import UsageError
from flows.models.promotion import (
    MARGIN,
    Comparison,
    PromotionResult,
    RejectedPromotion,
    Rule,
    compare,
    comparison_table,
)
from flows.models.promotion import promote as put_in_place
from flows.orchestration.events import model_promoted
from flows.orchestration.results import RESULTS
from flows.orchestration.run_page import keep_markdown
from flows.reports.tables import to_markdown

__all__ = ["Approval", "promote"]

A_DAY = 86_400
BETWEEN_LOOKS = 10
"""Seconds between looks for the answer."""


class Approval(RunInput):
    """What the person says who is asked."""

    decision: Literal["promote", "reject"] = Field(
        default="reject", description="Put the challenger in the champion's place?"
    )
    why: str = Field(default="", max_length=500, description="For the champion's log")


@flow(name="promote", persist_result=True, result_serializer=RESULTS)
def promote(
    model: str,
    store: Path = Path("models"),
    how: Literal["ask", "better", "now"] = "ask",
    margin: NonNegativeFloat = MARGIN,
    why: str | None = None,
    timeout: PositiveInt = A_DAY,
) -> PromotionResult | RejectedPromotion:
    """Put a model in the champion's place.

    Args:
        model: NAME@VERSION, or NAME for the newest of its versions.
        store: Folder of the model store.
        how: Ask a person, on the page of this run; or by rule, if it is better; or now.
        margin: Nats an object by which the log loss on objects that neither has seen has to be better, by rule.
        why: For the champion's log.
        timeout: Seconds that the person has for an answer.
    """
    rule: Rule = "better" if how == "better" else "now"
    if how != "ask":
        result = put_in_place(model, store=store, rule=rule, margin=margin, why=why)
    else:
        comparison = compare(model, store=store, margin=margin)
        challenger, champion = comparison.challenger, comparison.champion
        answer = _asked(comparison, timeout)
        if answer.decision != "promote":
            return RejectedPromotion(model=challenger, status="rejected", previous=champion, why=answer.why)
        # The very model and champion that were shown, whatever has been trained or promoted since.
        result = put_in_place(challenger, store=store, why=answer.why or why, instead_of=champion or "")
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
