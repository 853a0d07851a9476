"""The flow `publish`: a release drafted, checked, signed by a person on the run's page, and published.

A run of a deployment is suspended while it asks, as that of `promote` is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from prefect.input import RunInput
from pydantic import Field

from flows.orchestration import run_page
from flows.release import record
from flows.release.draft import draft
from flows.reports.release_page import check_table
from flows.reports.tables import literal, to_markdown
from flows.request import DraftRequest, PublishRequest, ReleaseRequest, SignRequest
from flows.runs.results import Checked, ReleaseState


class SignOff(RunInput):
    """What the person says who is asked."""

    decision: Literal["sign", "refuse"] = Field(
        default="refuse", description="Sign the release and publish it?"
    )
    who: str = Field(min_length=1, max_length=100, description="Your name, for the record")
    why: str = Field(min_length=1, max_length=500, description="The reason, for those who ask later")
    override: list[str] = Field(default=[], description="Checks that say stop and are overridden, by name")


def _name(request: DraftRequest) -> str:
    return f"publish {request.name} {request.version}"


@run_page.flow_of(DraftRequest, _name)
def publish(request: DraftRequest) -> ReleaseState:
    """Draft and check a release, ask a person, and publish it once it is signed."""
    with run_page.run_logged():
        what = f"{request.name} {request.version}"
        shown, answer = run_page.asked(SignOff, what, lambda: _prepared(request), request.timeout)
        release = (request.name, request.version, request.releases)
        said = SignRequest(*release, by=answer.who, why=answer.why, override=answer.override)
        result = record.sign(replace(said, digest=shown["digest"], refuse=answer.decision == "refuse"))
        if result.status == "signed":
            result = record.publish(PublishRequest(*release, by=answer.who))
    return run_page.completed(result, f"{what}: {result.status}, by {answer.who}: {answer.why}.")


def _prepared(request: DraftRequest) -> dict[str, str]:
    draft(request)
    checked = record.check(
        ReleaseRequest(request.name, request.version, request.releases, request.truth, request.truth_column)
    )
    folder = record.Series(request.releases, request.name).draft(request.version)
    key, title = f"{request.name}-release", f"Sign {request.name} {request.version}?"
    run_page.keep_link(f"{key}-report", folder / "report.html", title)
    text = _form(checked, run_page.page_of((folder / "report.html").resolve()))
    run_page.keep_markdown(key, f"{text}\n\n{to_markdown(check_table(checked))}", title)
    return {"digest": record.digest_of(folder), "text": text}


def _form(checked: Checked, link: str) -> str:
    """Return what stands above the form, in Markdown: what stops the release, what to look at, the report."""
    bad = [c for c in checked.checks if c.verdict != "pass"]
    lines = [f"- {c.verdict}, {c.name}: {literal(c.found)} {literal(c.place)}" for c in bad[:20]]
    return "\n".join([f"**{checked.verdict.capitalize()}.** [Report]({link})", "", *lines])
