"""The content of a classification's report, from its counts, and the report itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from blr.decisions import Flag
from flows.classification._examples import class_examples
from flows.classification._object_survey import most_doubtful, total_sky
from flows.features.drift import total_counts
from flows.models.model import Model
from flows.orchestration.tables import status_table
from flows.reports.catalogue_answers import ClassifyingModel, ReleaseTroubles
from flows.reports.catalogue_page import ClassificationReport, write_classification
from flows.reports.class_words import class_words
from flows.reports.data import Classification
from flows.reports.picture_data import FeatureComparison, Made, NotableObject, SkyMap
from flows.runs.counts import DoubtfulObject, FileCounts
from flows.runs.manifest import Manifest
from flows.runs.status import folder_status
from flows.runs.summary import Summary, drifted
from flows.specification.specification import Specification

__all__ = ["classification_of", "write_classification_report"]

SHORT_MEANINGS = {
    Flag.OUT_OF_DOMAIN: "unlike the training set",
    Flag.CLOSE_CALL: "close call",
    Flag.LOW_CONFIDENCE: "low confidence",
    Flag.FLIPPED: "moderation changed its class",
    Flag.UNCERTAIN_INPUT: "uncertain because of its measurement errors",
}
"""In a few words, why an object is worth a look."""


def write_classification_report(
    folder: Path,
    model: Model,
    summary: Summary,
    manifest: Manifest,
    *,
    counts: Sequence[FileCounts],
    specification: Specification,
    model_folder: Path,
    deferred: Mapping[str, str],
    repeats: tuple[str, ...],
) -> None:
    """Write `report.html` beside the annotated files, which are of the model in a folder and of a specification.

    `counts` are those of the files, margins not among them.  `repeats` says which files have objects in common.
    """
    doubtful = most_doubtful(one for of_file in counts for one in of_file.doubtful)
    troubles = ReleaseTroubles(
        quarantined={q.name: q.reason for q in manifest.quarantined}, deferred=deferred, repeats=repeats
    )
    report = ClassificationReport(
        found=classification_of(model, summary, counts, names=[o.name for o in manifest.outputs]),
        model=ClassifyingModel(label=model.label, trust=model.trust, metrics=model.metrics),
        objects=tuple(_notable(one) for one in doubtful),
        examples=class_examples(model, specification, model_folder, doubtful),
        troubles=troubles,
        files=status_table(folder_status(folder, manifest)),
        release=manifest.release,
        made=Made.now(),
        units={f.name: (f.expression, f.unit) for f in model.training.features},
        provenance=_provenance(model, manifest),
    )
    write_classification(report, folder)


def classification_of(
    model: Model, summary: Summary, files: Sequence[FileCounts], *, names: Sequence[str]
) -> Classification:
    """Return what a report shows of a folder; margins, which repeat rows, are among its `names`, not its `files`."""
    name = names[0] if len(names) == 1 else f"{len(names):,} files"
    sky = total_sky([counts.sky for counts in files if counts.sky is not None])
    return replace(
        Classification.of(name, summary),
        drifted=tuple(drifted(summary.drift)),
        census=summary.census,
        sky=None
        if sky is None
        else SkyMap(
            order=sky.order,
            pixels=sky.pixels,
            n=sky.n,
            flagged=sky.flagged,
            assigned=tuple(zip(*sky.assigned, strict=True)),
        ),
        features=_features(model, files),
        label_shares=dict(zip(model.classes, _shares(model.training.training_counts), strict=True)),
    )


def _shares(counts: Sequence[int]) -> list[float]:
    total = max(1, sum(counts))
    return [n / total for n in counts]


def _features(model: Model, files: Sequence[FileCounts]) -> tuple[FeatureComparison, ...]:
    """Return the features of which the model kept how they are distributed, in two bins or more."""
    counted = [counts.drift for counts in files if counts.drift is not None]
    if not counted:
        return ()
    bins, ranges = total_counts(counted).bins, {f.name: f for f in model.training.features}
    return tuple(
        FeatureComparison(
            name=name,
            edges=trained.edges,
            training=trained.counts,
            target=bins[j],
            low=ranges[name].minimum,
            high=ranges[name].maximum,
        )
        for j, name in enumerate(model.features)
        if (trained := model.training.distribution.get(name)) is not None
        and name in ranges
        and sum(n > 0 for n in trained.counts) > 1  # one bin has nothing to show
    )


def _notable(one: DoubtfulObject) -> NotableObject:
    (first, second), (p, q) = one.classes, one.probabilities
    flags = ", ".join(words for flag, words in SHORT_MEANINGS.items() if one.flags & int(flag))
    given = f"{class_words(first)} {p:.1%}, {class_words(second)} {q:.1%}"
    why = f"{given}; {flags}"
    return NotableObject(name=one.id, ra=one.ra, dec=one.dec, why=why)


def _provenance(model: Model, manifest: Manifest) -> dict[str, str]:
    return {
        "model": model.label,
        "blr_model": str(model.id),
        "specification": f"sha256 {manifest.specification_hash}",
        "blr": manifest.code_version,
        "release": str(manifest.release),
        "files": f"{len(manifest.outputs):,}, listed in manifest.json",
    }
