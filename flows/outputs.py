"""The end of a classification: final names, `summary.json`, a release's report, and last of all `manifest.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.class_shares import shift_record
from flows.config import Specification, specification_hash
from flows.drift import FeatureCounts, drift, drifted
from flows.manifest import SUMMARY, Manifest, Output, Quarantined, write_json
from flows.model import Model
from flows.releases import release_report, write_report
from flows.scoring import Scorer, flag_names
from flows.staging import Staging
from flows.tally import Tally, summarise, total
from flows.version import code_version

__all__ = ["finish", "summary_of"]

Json = dict[str, Any]


def finish(
    model: Model, specification: Specification, request: Mapping[str, Any], outputs: Sequence[Output]
) -> Json:
    """Give all outputs their final names, write summary and manifest, remove the staging.

    Returns what is told of it.  Each step may be the last of a killed run, and is done again by the next one.
    """
    staging = Staging(Path(request["out"]), Path(request["staging"]))
    for name in request["retire"]:
        staging.retire(name, request["release"])
    for output in outputs:
        staging.publish(output)
    staging.flush(outputs)
    summary = summary_of(model, outputs)
    write_json(staging.out / SUMMARY, summary)
    totals = {key: value for key, value in summary.items() if key != "files"}
    manifest = Manifest(
        model=model.label,
        model_id=model.id,
        specification_hash=specification_hash(specification),
        code_version=code_version(),
        outputs=tuple(sorted(outputs, key=lambda o: o.name)),
        quarantined=tuple(Quarantined.of(q) for q in request["quarantined"]),
        release=request["release"],
        totals=totals,
        details=_details(model, specification),
    )
    before = Manifest.read(staging.out)
    if before is not None and before.same_outputs(manifest):  # a lost file was made again
        manifest = replace(manifest, release=before.release)
    retired = staging.retired(manifest.release)
    told: Json = {
        "release": manifest.release,
        "retired": retired,
        "drifted": drifted(summary["drift"]),
    }
    if request["report"]:
        report = release_report(manifest, request, retired)
        told |= {"report": str(write_report(staging.out, report)), "difference": report["difference"]}
    manifest.write(staging.out)
    staging.close()
    return told


def summary_of(model: Model, outputs: Sequence[Output]) -> Json:
    """Return the summary of all outputs together, with each one's own counts."""
    ordered = sorted(outputs, key=lambda o: o.name)
    tallies = {o.name: Tally.from_dict(o.summary["tally"]) for o in ordered}
    counts = [FeatureCounts.from_dict(o.summary["drift"]) for o in ordered if "drift" in o.summary]
    reference = model.training.get("distribution", {})
    return {
        "model": model.label,
        **summarise(total(tallies.values()), model.classes, model.features),
        "shift": next((o.summary["shift"] for o in ordered if "shift" in o.summary), {}),
        "drift": drift(FeatureCounts.sum(counts), reference, model.features) if counts else {},
        "files": {
            o.name: {**summarise(tallies[o.name], model.classes, model.features), **o.summary}
            for o in ordered
        },
    }


def _details(model: Model, specification: Specification) -> Json:
    """Return what a reader of the manifest needs to understand the new columns."""
    columns = Scorer.of(model, specification).columns
    return {
        "classes": shift_record(model, specification)["class_priors"],
        "columns": {
            c.name: {"datatype": str(c.datatype), "ucd": c.ucd, "description": c.description} for c in columns
        },
        "flags": {
            str(bit): {"name": name, "meaning": meaning} for bit, (name, meaning) in flag_names().items()
        },
    }
