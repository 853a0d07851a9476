"""Events for Prefect's automations: a release is done, features have drifted, a file is quarantined, a model promoted.

Small payloads, names and numbers only.  docs/reprocessing.md has automations that listen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from prefect.client.orchestration import get_client
from prefect.events import emit_event
from prefect.events.filters import EventFilter, EventNameFilter, EventOccurredFilter, EventResourceFilter

from flows.documents import Dataclass, to_document
from flows.runs.counts import FeatureDrift
from flows.runs.model_reference import ModelReference
from flows.runs.results import FinishedClassification, FolderResult

__all__ = ["model_promoted", "release_events"]

DAY = timedelta(hours=20)
"""Time after which a file that is still quarantined is told of again: runs of a daily schedule differ by minutes."""
MOST_FILES = 50
"""Most quarantined files that have an event each."""


@dataclass(frozen=True, kw_only=True)
class ReleaseDone:
    """A release: its number, its objects (`rows`), how many files had which fate, how many objects changed.

    `moved` objects changed a probability by more than 0.1.
    """

    release: int
    model: str
    out: str
    rows: int
    annotated: int
    retired: int
    quarantined: int
    deferred: int
    class_changed: int
    moved: int


@dataclass(frozen=True, kw_only=True)
class DriftFound:
    """The features that have drifted from a model's training."""

    model: str
    features: Mapping[str, FeatureDrift]


@dataclass(frozen=True, kw_only=True)
class FileQuarantined:
    """A file that could not be annotated, and why."""

    file: str
    reason: str
    model: str
    out: str


@dataclass(frozen=True, kw_only=True)
class ModelPromoted:
    """A new champion, the one before (None for the first), who promoted it and why."""

    model: str
    previous: str | None
    who: str | None
    why: str | None


def release_events(result: FolderResult) -> None:
    """Tell of a release that was done, and of what somebody should look at.

    A file that stays quarantined is told of again every day, by the first run of the day.
    """
    if isinstance(result, FinishedClassification) and (
        result.before is None or result.before.release != result.release
    ):
        _release_done(result)
    out = str(result.out)
    told = _told_lately(result)
    for file, reason in list(result.quarantined.items())[:MOST_FILES]:
        if (out, file, reason) not in told:
            payload = FileQuarantined(file=file, reason=reason, model=result.model, out=out)
            _emit("blr.partition.quarantined", f"blr.partition.{file}", payload)


def _told_lately(result: FolderResult) -> set[tuple[str, str, str]]:
    """Return folder, file and reason of the quarantined files that the server has heard of within the last day."""
    if not result.quarantined:
        return set()
    wanted = EventFilter(
        occurred=EventOccurredFilter.model_validate({"since": datetime.now(UTC) - DAY}),
        event=EventNameFilter(name=["blr.partition.quarantined"]),
        resource=EventResourceFilter(
            id=[f"blr.partition.{file}" for file in result.quarantined][:MOST_FILES]
        ),
    )
    with get_client(sync_client=True) as client:
        page = client.read_events(wanted, limit=MOST_FILES)
        found = [*page.events]
        while page.next_page:
            page = client.read_events_page(str(page.next_page))
            found += page.events
    return {tuple(str(e.payload.get(key)) for key in ("out", "file", "reason")) for e in found}  # type: ignore[misc]


def _release_done(result: FinishedClassification) -> None:
    """Tell of a new release, and of features that have drifted in it."""
    name, out = ModelReference.parse(result.model).name, str(result.out)
    difference = result.difference
    _emit(
        "blr.release.done",
        f"blr.release.{name}",
        ReleaseDone(
            release=result.release,
            model=result.model,
            out=out,
            rows=result.summary.n_rows,
            annotated=sum(1 for file in result.files.values() if file.why),
            retired=len(result.retired),
            quarantined=len(result.quarantined),
            deferred=len(result.deferred),
            class_changed=difference.class_changed if difference else 0,
            moved=difference.moved if difference else 0,
        ),
    )
    if result.drifted:
        features = {feature: result.summary.drift[feature] for feature in result.drifted}
        _emit("blr.drift.found", f"blr.model.{name}", DriftFound(model=result.model, features=features))


def model_promoted(model: str, *, previous: str | None, who: str | None, why: str | None) -> None:
    """Tell of a new champion, NAME@VERSION: instead of which, by whom and why."""
    promotion = ModelPromoted(model=model, previous=previous, who=who, why=why)
    _emit("blr.model.promoted", f"blr.model.{ModelReference.parse(model).name}", promotion)


def _emit(event: str, resource: str, payload: Dataclass) -> None:
    emit_event(event=event, resource={"prefect.resource.id": resource}, payload=to_document(payload))
