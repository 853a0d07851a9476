"""Events for Prefect's automations: a release is done, features have drifted, a file is quarantined, a model promoted.

Small payloads, names and numbers only.  docs/reprocessing.md has automations that listen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prefect.events import emit_event

from flows.documents import Dataclass, to_document
from flows.runs.model_reference import ModelReference
from flows.runs.results import FinishedClassification
from flows.runs.summary import FeatureDrift

__all__ = ["model_promoted", "release_events"]

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


def release_events(result: FinishedClassification) -> None:
    """Tell of a release that was done, and of what somebody should look at."""
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
    for file in result.newly_quarantined[:MOST_FILES]:
        _emit(
            "blr.partition.quarantined",
            f"blr.partition.{file}",
            FileQuarantined(file=file, reason=result.quarantined[file], model=result.model, out=out),
        )


def model_promoted(model: str, *, previous: str | None, who: str | None, why: str | None) -> None:
    """Tell of a new champion, NAME@VERSION: instead of which, by whom and why."""
    promotion = ModelPromoted(model=model, previous=previous, who=who, why=why)
    _emit("blr.model.promoted", f"blr.model.{ModelReference.parse(model).name}", promotion)


def _emit(event: str, resource: str, payload: Dataclass) -> None:
    emit_event(event=event, resource={"prefect.resource.id": resource}, payload=to_document(payload))
