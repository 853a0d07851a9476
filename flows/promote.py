"""The flow `promote`: a challenger in the champion's place, by rule or after a person has been asked.

A run of a deployment is suspended while it asks: its process ends, and holds neither memory nor a place of the worker.
The answer starts it again.  A run without a deployment, which nobody would start again, waits in its process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from prefect.input import RunInput
from pydantic import Field

from flows.classification.release_changes import in_release
from flows.models.promotion import Comparison, PromotionResult, compare, reject
from flows.models.promotion import promote as put_in_place
from flows.models.store import Store
from flows.orchestration import run_page
from flows.reports.report_table import ReportTable
from flows.reports.tables import comparison_tables, literal, promotion_words, to_markdown
from flows.request import PromoteRequest

NOBODY = "not named (a run of Prefect)"
"""Who decided, where a run was started without a name: the user of the worker's process did not."""


class Approval(RunInput):
    """What the person says who is asked."""

    decision: Literal["promote", "reject"] = Field(
        default="reject", description="Put the challenger in the champion's place?"
    )
    who: str = Field(min_length=1, max_length=100, description="Your name, for the champion's log")
    why: str = Field(min_length=1, max_length=500, description="The reason, for those who ask later")


def _name(request: PromoteRequest) -> str:
    place = Store.named(request.store)
    stored = place.find(request.model, newest=True)
    champion = place.champion(stored.name)
    instead = "" if champion is None else f" in the place of @{champion[:4]}"
    return f"promote {run_page.short_label(stored.label)}{instead}: {request.how}"


@run_page.flow_of(PromoteRequest, _name, put_in_place)
def promote(request: PromoteRequest) -> PromotionResult:
    """Put a model in the champion's place."""
    with run_page.run_logged():
        by = request.by or ("the rule" if request.how == "better" else NOBODY)
        result = _asked(request) if request.how == "ask" else put_in_place(replace(request, by=by))
    if result.status == "promoted":
        run_page.model_promoted(result.model, previous=result.previous, who=result.who, why=result.why)
    return run_page.completed(result, f"{promotion_words(result)}.")


def _asked(request: PromoteRequest) -> PromotionResult:
    """Ask a person, and do what they say; the decision is about the model and the champion that were shown."""
    shown, answer = run_page.asked(Approval, request.model, lambda: _compared(request), request.timeout)
    decided = replace(request, model=shown["challenger"], how="now", why=answer.why, by=answer.who)
    if answer.decision != "promote":
        return reject(decided)
    return put_in_place(decided, instead_of=shown["champion"])


def _compared(request: PromoteRequest) -> dict[str, str]:
    """Compare the models; return which they are, and what stands above the form."""
    comparison = compare(request, in_release=in_release)
    text = _form(comparison, comparison_tables(comparison))
    run_page.keep_markdown(f"{comparison.name}-promotion", text, f"Promote {comparison.challenger}?")
    return {"challenger": comparison.challenger, "champion": comparison.champion or "", "text": text}


def _form(comparison: Comparison, tables: Sequence[ReportTable]) -> str:
    """Return what stands above the form, in Markdown: what the rule says, the tables, and links to both reports."""
    first, *others = tables
    parts = [f"**{literal(first.note)}**\n", *(to_markdown(t) for t in (replace(first, note=""), *others))]
    if comparison.in_release is None and comparison.champion is not None:
        parts.append(
            "What would change in the last release is not known: no release was found in the specification's output "
            "folder; give its folder as `release`.\n"
        )
    reports = {"challenger": comparison.report, "champion": comparison.champion_report}
    links = [
        f"[report of the {who}]({run_page.page_of(Path(path).resolve())}) ({literal(str(Path(path).resolve()))})"
        for who, path in reports.items()
        if path is not None
    ]
    return "\n".join([*parts, *(f"- {link}" for link in links)])
