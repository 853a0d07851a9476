"""Events for Prefect's automations: a release is done, features have drifted, a file is quarantined, a model promoted.

Small payloads, names and numbers only.  docs/reprocessing.md has automations that listen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefect.events import emit_event

from flows.runs.model_reference import ModelReference

__all__ = ["model_promoted", "release_events"]

MOST_FILES = 50
"""Most quarantined files that have an event each."""


def release_events(result: Mapping[str, Any]) -> None:
    """Tell of a release that was done, and of what somebody should look at."""
    if result["status"] != "done":
        return
    name = ModelReference.parse(result["model"]).name
    difference = result.get("difference") or {}
    _emit(
        "blr.release.done",
        f"blr.release.{name}",
        {
            "release": result["release"],
            "model": result["model"],
            "out": result["out"],
            "rows": result["summary"]["n_rows"],
            "annotated": sum(1 for file in result["files"].values() if file["why"]),
            "retired": len(result["retired"]),
            "quarantined": len(result["quarantined"]),
            "deferred": len(result["deferred"]),
            "class_changed": difference.get("class_changed", 0),
            "moved": difference.get("moved", 0),
        },
    )
    if result["drifted"]:
        found = {feature: result["summary"]["drift"][feature] for feature in result["drifted"]}
        _emit("blr.drift.found", f"blr.model.{name}", {"model": result["model"], "features": found})
    for file in result["newly_quarantined"][:MOST_FILES]:
        _emit(
            "blr.partition.quarantined",
            f"blr.partition.{file}",
            {
                "file": file,
                "reason": result["quarantined"][file],
                "model": result["model"],
                "out": result["out"],
            },
        )


def model_promoted(model: str, *, previous: str | None, who: str | None, why: str | None) -> None:
    """Tell of a new champion, NAME@VERSION: instead of which, by whom and why."""
    payload = {"model": model, "previous": previous, "who": who, "why": why}
    _emit("blr.model.promoted", f"blr.model.{ModelReference.parse(model).name}", payload)


def _emit(event: str, resource: str, payload: dict[str, Any]) -> None:
    emit_event(event=event, resource={"prefect.resource.id": resource}, payload=payload)
