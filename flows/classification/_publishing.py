"""The end of a classification: final names, `summary.json`, a release's report, and last of all `manifest.json`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from catalogs.writing.annotate import finish as finish_catalogue
from flows.classification._class_shares import shift_record
from flows.classification._output_columns import kept_columns
from flows.classification._releases import release_report, write_report
from flows.classification._tally import Tally, summarise, total
from flows.classification.scoring import Scorer, flag_names, provenance
from flows.features.drift import FeatureCounts, drift, drifted
from flows.inputs.catalogue import InputCatalogue
from flows.inputs.files import open_source
from flows.models.model import Model
from flows.reports.shift import why_no_error
from flows.runs.manifest import SUMMARY, Manifest, Output, Quarantined, write_json
from flows.runs.staging import Staging
from flows.specification.specification import Specification, specification_hash
from flows.version import code_version

__all__ = ["finish", "summary_of"]

Json = dict[str, Any]


def finish(
    model: Model, specification: Specification, request: Mapping[str, Any], outputs: Sequence[Output]
) -> Json:
    """Give all outputs their final names, write summary and manifest, remove the staging.

    Returns what is said of it.  Each step may be the last of a killed run, and is done again by the next one.
    """
    staging: Staging = request["staging"]
    for name in request["retire"]:
        staging.retire(name, request["release"])
    for output in outputs:
        staging.publish(output)
    staging.flush(outputs)
    _finish_catalogues(model, specification, request["catalogues"], outputs, staging.out)
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
    result: Json = {
        "release": manifest.release,
        "retired": retired,
        "drifted": drifted(summary["drift"]),
    }
    if request["report"]:
        report = release_report(manifest, request, retired)
        result |= {"report": str(write_report(staging.out, report)), "difference": report["difference"]}
    manifest.write(staging.out)
    staging.close()
    return result


def _finish_catalogues(
    model: Model,
    specification: Specification,
    catalogues: Sequence[Mapping[str, Any]],
    outputs: Sequence[Output],
    out: Path,
) -> None:
    """Write what catalogues have beside their files (HATS: properties, metadata, maps), where all files are there."""
    hashes = {o.name: o.input.sha256 for o in outputs}
    for named in map(InputCatalogue.from_dict, catalogues):
        if named.without:
            continue  # with a damaged file left out it is no whole catalogue
        catalog = open_source(named)
        keys = [partition.key for partition in catalog.partitions]
        another = named.form not in {None, catalog.format}
        if another or catalog.whole is None or not hashes.keys() >= set(keys):
            continue
        scorer = Scorer.of(model, specification)
        content = hashlib.sha256("\n".join(f"{key} {hashes[key]}" for key in sorted(keys)).encode())
        finish_catalogue(
            catalog,
            out,
            scorer.columns,
            provenance=provenance(model, specification, content.hexdigest(), scorer.reader.read),
            mode=specification.output.mode,
            keep=kept_columns(specification),
        )


def summary_of(model: Model, outputs: Sequence[Output]) -> Json:
    """Return the summary of all outputs together, with each one's own counts."""
    ordered = sorted(outputs, key=lambda o: o.name)
    tallies = {o.name: Tally.from_dict(o.summary["tally"]) for o in ordered}
    # The margins of a HATS catalogue repeat rows of the other files.
    once = [o for o in ordered if o.summary.get("counted", True)] or ordered
    counts = [FeatureCounts.from_dict(o.summary["drift"]) for o in once if "drift" in o.summary]
    reference = model.training.distribution
    shift: Json = next((o.summary["shift"] for o in ordered if "shift" in o.summary), {})

    def summed(tally: Tally) -> Json:
        return summarise(tally, model.classes, model.features, no_error=why_no_error(shift))

    return {
        "model": model.label,
        **summed(total(tallies[o.name] for o in once)),
        "shift": shift,
        "drift": drift(FeatureCounts.sum(counts), reference, model.features) if counts else {},
        "files": {o.name: {**summed(tallies[o.name]), **o.summary} for o in ordered},
    }


def _details(model: Model, specification: Specification) -> Json:
    """Return what a reader of the manifest needs to understand the new columns, and to find the objects."""
    catalog, theirs = specification.catalog, specification.target.columns
    place = {"id": catalog.id, "ra": catalog.ra, "dec": catalog.dec}
    columns = Scorer.of(model, specification).columns
    return {
        "classes": shift_record(model, specification)["class_priors"],
        "columns": {
            c.name: {"datatype": str(c.datatype), "ucd": c.ucd, "description": c.description} for c in columns
        },
        "flags": {
            str(bit): {"name": name, "meaning": meaning} for bit, (name, meaning) in flag_names().items()
        },
        "position": {key: theirs.get(name, name) for key, name in place.items() if name}
        | ({"unit": catalog.position_unit} if catalog.position_unit else {}),
    }
