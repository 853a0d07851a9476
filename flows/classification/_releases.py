"""What a release has changed: `_releases/0007.json` in the output folder, one small file a release, kept for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from catalogs.files.atomic import sweep
from flows.classification._difference import total_difference
from flows.runs.manifest import Manifest, write_json

__all__ = ["RELEASES", "release_report", "write_report"]

RELEASES = "_releases"
SCHEMA_VERSION = 1
MOST_EXAMPLES = 100
"""Objects named in a release, those that moved furthest."""

Json = dict[str, Any]


def release_report(manifest: Manifest, request: Mapping[str, Any], retired: list[str]) -> Json:
    """Return what a release has changed since the one before."""
    why: Mapping[str, str] = request["why"]
    annotated = [o for o in manifest.outputs if o.name in why]
    compared = {o.name: o.difference for o in annotated if o.difference is not None}
    difference = total_difference(list(compared.values()))
    difference["examples"] = _examples(compared)
    new = [o for o in annotated if o.difference is None]
    return {
        "format": "blr-release",
        "schema_version": SCHEMA_VERSION,
        "release": manifest.release,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": manifest.model,
        "specification_hash": manifest.specification_hash,
        "before": _without_totals(request["before"]),
        "files": {
            "unchanged": len(manifest.outputs) - len(annotated),
            "annotated": dict(Counter(why[o.name] for o in annotated)),
            "not_compared": {"files": len(new), "rows": sum(o.n_rows for o in new)},
        },
        "annotated": {
            o.name: {"why": why[o.name], "rows": o.n_rows, "difference": _counts(compared.get(o.name))}
            for o in annotated
        },
        "retired": retired,
        "quarantined": [q.to_dict() for q in manifest.quarantined],
        "deferred": dict(request["deferred"]),
        "difference": difference,
        "totals": manifest.totals,
    }


def write_report(folder: Path, report: Mapping[str, Any]) -> Path:
    """Write the report of a release; return where it is.

    One of the same number is of a run that was killed, and written again; or of the same release, whose lost files
    were made again, and kept.
    """
    path = folder / RELEASES / f"{report['release']:04d}.json"
    if report["before"] and report["before"]["release"] == report["release"] and path.is_file():
        return path
    path.parent.mkdir(exist_ok=True)
    sweep(path.parent)  # what a killed run left while it wrote here
    write_json(path, report)
    return path


def _examples(compared: Mapping[str, Mapping[str, Any]]) -> list[Json]:
    found = [{"file": name, **e} for name, d in compared.items() for e in d["examples"]]
    return sorted(found, key=lambda e: (-e["moved"], e["file"], e["id"]))[:MOST_EXAMPLES]


def _counts(difference: Mapping[str, Any] | None) -> Json | None:
    return None if difference is None else {k: v for k, v in difference.items() if k != "examples"}


def _without_totals(before: Mapping[str, Any] | None) -> Json | None:
    return None if before is None else {k: v for k, v in before.items() if k != "totals"}
