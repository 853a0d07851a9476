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


def release_events(told: Mapping[str, Any]) -> None:
    """Tell of a release that was done, and of what somebody should look at."""
    if told["status"] != "done":
        return
    name = ModelReference.parse(told["model"]).name
    difference = told.get("difference") or {}
    _emit(
        "blr.release.done",
        f"blr.release.{name}",
        {
            "release": told["release"],
            "model": told["model"],
            "out": told["out"],
            "rows": told["summary"]["n_rows"],
            "annotated": sum(1 for file in told["files"].values() if file["why"]),
            "retired": len(told["retired"]),
            "quarantined": len(told["quarantined"]),
            "deferred": len(told["deferred"]),
            "class_changed": difference.get("class_changed", 0),
            "moved": difference.get("moved", 0),
        },
    )
    if told["drifted"]:
        found = {feature: told["summary"]["drift"][feature] for feature in told["drifted"]}
        _emit("blr.drift.found", f"blr.model.{name}", {"model": told["model"], "features": found})
    for file in told["newly_quarantined"][:MOST_FILES]:
        _emit(
            "blr.partition.quarantined",
            f"blr.partition.{file}",
            {"file": file, "reason": told["quarantined"][file], "model": told["model"], "out": told["out"]},
        )


def model_promoted(told: Mapping[str, Any]) -> None:
    """Tell of a new champion."""
    name = ModelReference.parse(told["model"]).name
    payload = {key: told[key] for key in ("model", "previous", "who", "why")}
    _emit("blr.model.promoted", f"blr.model.{name}", payload)


def _emit(event: str, resource: str, payload: dict[str, Any]) -> None:
    emit_event(event=event, resource={"prefect.resource.id": resource}, payload=payload)
