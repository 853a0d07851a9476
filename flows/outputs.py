"""The end of a classification: final names, `summary.json`, and last of all `manifest.json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.config import Specification, specification_hash
from flows.manifest import SUMMARY, Manifest, Output, write_json
from flows.model import Model
from flows.scoring import Scorer, flag_names
from flows.staging import Staging
from flows.tally import Tally, summarise, total
from flows.version import code_version

__all__ = ["finish", "summary_of"]


def finish(model: Model, specification: Specification, staging: Staging, outputs: Sequence[Output]) -> Path:
    """Give all outputs their final names, write summary and manifest, remove the staging; return the manifest."""
    for output in outputs:
        staging.publish(output)
    write_json(staging.out / SUMMARY, summary_of(model, outputs))
    manifest = Manifest(
        model=model.label,
        model_id=model.id,
        specification_hash=specification_hash(specification),
        code_version=code_version(),
        outputs=tuple(sorted(outputs, key=lambda o: o.name)),
        details=_details(model, specification),
    )
    path = manifest.write(staging.out)
    staging.close()
    return path


def summary_of(model: Model, outputs: Sequence[Output]) -> dict[str, Any]:
    """Return the summary of all outputs together, with each one's own counts."""
    ordered = sorted(outputs, key=lambda o: o.name)
    tallies = {o.name: Tally.from_dict(o.summary["tally"]) for o in ordered}
    return {
        "model": model.label,
        **summarise(total(tallies.values()), model.classes, model.features),
        "files": {
            o.name: {**summarise(tallies[o.name], model.classes, model.features), **o.summary}
            for o in ordered
        },
    }


def _details(model: Model, specification: Specification) -> dict[str, Any]:
    """Return what a reader of the manifest needs to understand the new columns."""
    columns = Scorer.of(model, specification).columns
    return {
        "classes": dict(zip(model.classes, model.training["class_share"], strict=True)),
        "columns": {
            c.name: {"datatype": str(c.datatype), "ucd": c.ucd, "description": c.description} for c in columns
        },
        "flags": {
            str(bit): {"name": name, "meaning": meaning} for bit, (name, meaning) in flag_names().items()
        },
    }
