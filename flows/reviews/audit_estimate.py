"""Estimate counts, purity and completeness from an audit's answers, and quote the counts in the folder's summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from blr.census.results import Census, ClassCensus, SelectionQuality
from flows.documents import read_document, write_document
from flows.errors import DocumentError, UsageError
from flows.labels.reviews import list_hash
from flows.reviews._answers import OTHER, UNDECIDED, Answers, read_answers
from flows.reviews._audited import LEVEL, Sample
from flows.reviews._files import audit_title
from flows.reviews.audit_draw import outputs_hash, selections_of
from flows.reviews.audits import (
    AUDIT,
    DESIGN,
    Audit,
    AuditDesign,
    AuditedClass,
    AuditedInterval,
    ModelComparison,
)
from flows.reviews.request import AuditEstimateRequest
from flows.runs.lock import exclusive
from flows.runs.manifest import SUMMARY, Manifest
from flows.runs.release_store import output_folder
from flows.runs.summary import Summary

__all__ = ["WriteReport", "estimate_audit"]

WriteReport = Callable[[Path, Census], Path | None]
"""Writes a census into the report of a folder; returns where that is, None where it cannot be written again."""


def estimate_audit(
    request: AuditEstimateRequest, *, dry_run: bool = False, report: WriteReport | None = None
) -> Audit:
    """Return what the answers say of the folder's release; write `audit.json`, and the census of `summary.json`.

    The counts of the audit replace those of the model in the summary, for they hold whatever the model is;
    `audit.json` keeps both.  `report` writes them into the folder's report:
    `flows.reports.catalogue_page.rewrite_census` is meant.  UsageError where nothing was drawn, the copies have changed
    since, or answers are not to the list.
    """
    with output_folder(request.out, key="out", publish=not dry_run) as folder:
        return _estimated(request, folder, dry_run=dry_run, report=report)


def _estimated(
    request: AuditEstimateRequest, folder: Path, *, dry_run: bool, report: WriteReport | None
) -> Audit:
    """Return what the answers say of the release in a folder of this machine."""
    if request.sets is not None and not 0.5 <= request.sets < 1:
        raise UsageError(
            f"--sets: got {request.sets:g}, expected a share of at least 0.5 and below 1, as in 0.9"
        )
    design = _design(folder)
    manifest = Manifest.read(folder)
    if manifest is None or outputs_hash(manifest) != design.outputs:
        raise UsageError(
            f"{folder / DESIGN}: got an audit of {design.model}, release {design.release}, but the copies "
            "have changed since, and the drawn objects do not represent the new ones; draw again with `blr "
            "audit draw --overwrite`, and give the present answers with --labels"
        )
    selections = (*design.selections, *selections_of(request.threshold or (), design.classes))
    names = [o.id for o in design.objects]
    asked = list_hash(audit_title(design.model), names)
    answers = read_answers(request.answers, design.id, names, design.classes, asked)
    sample = Sample.of(design, answers)
    if not len(sample.stratum):
        raise UsageError(
            f"{request.answers[0]}: got no answer in the column 'label', expected the class of each object; fill in "
            "the list first"
        )
    summary, trouble = _summary(folder)
    model = _model_census(folder, summary, design)
    classes = _classes(sample, answers, model, summary)
    tally = Counter(answers.places.get(name, None) for name in names)
    every = dict.fromkeys(selections)
    audit = Audit(
        status="planned" if dry_run else "done",
        model=design.model,
        release=design.release,
        outputs=design.outputs,
        out=folder,
        level=LEVEL,
        n_rows=design.n_rows,
        n_drawn=len(names),
        n_answered=len(sample.stratum),
        n_undecided=tally[UNDECIDED],
        n_unanswered=tally[None],
        n_other=tally[OTHER],
        joined=sample.n_joined,
        classes=classes,
        by=design.by,
        bins={name: sample.bin(name) for name in design.bins},
        selections=tuple(sample.selection(chosen) for chosen in every),
        census=_census(design, sample, classes),
        model_census=model,
        sets=None if request.sets is None else sample.sets(request.sets),
        remarks=(trouble,) if trouble else (),
        files=() if dry_run else tuple(folder / name for name in (AUDIT, *([SUMMARY] if summary else []))),
    )
    if not dry_run:
        with exclusive(folder):
            audit = _write(folder, audit, summary, manifest, report)
    return audit


def _design(folder: Path) -> AuditDesign:
    path = folder / DESIGN
    if not path.exists():
        raise UsageError(
            f"{path}: there is no such file, expected the design of an audit; run `blr audit draw` first"
        )
    return read_document(AuditDesign, path)


def _summary(folder: Path) -> tuple[Summary | None, str]:
    """Return the summary of a folder; without one, why the counts are not written there."""
    try:
        return read_document(Summary, folder / SUMMARY), ""
    except (OSError, DocumentError):
        return None, f"{folder / SUMMARY} cannot be read, so the counts are written to {AUDIT} only"


def _model_census(folder: Path, summary: Summary | None, design: AuditDesign) -> Census | None:
    """Return the census that the model made of these copies; an earlier estimate of the audit has kept it."""
    if summary is None or summary.census is None:
        return None
    if any(c.source != "audit" for c in summary.census.classes.values()):
        return summary.census
    try:
        before = read_document(Audit, folder / AUDIT)
    except (OSError, DocumentError):
        return None
    return before.model_census if before.outputs == design.outputs else None


def _classes(
    sample: Sample, answers: Answers, model: Census | None, summary: Summary | None
) -> Mapping[str, AuditedClass]:
    """Return the classes among all rows, each beside what the model says."""
    everywhere = np.ones(len(sample.design.strata), dtype=bool)
    complete = len(sample.stratum) == len(sample.design.objects)
    classes = {}
    for k, name in enumerate(sample.design.classes):
        judged = sample.judged(k, everywhere)
        if not complete:
            judged = replace(
                judged,
                if_all=sample.filled(answers, k).count(k, everywhere),
                if_none=sample.filled(answers, OTHER).count(k, everywhere),
            )
        said = _of_model(name, model, summary)
        if said is not None:
            # Of K classes with one sum, K - 1 tests: together they err in one audit of twenty.
            level = 1 - (1 - LEVEL) / max(1, len(sample.design.classes) - 1)
            said = replace(said, differs=_differs(sample.count(k, everywhere, level), said, level))
        classes[name] = replace(judged, model=said)
    return classes


def _of_model(name: str, census: Census | None, summary: Summary | None) -> ModelComparison | None:
    """Return the model's count of a class, None where it cannot say it; without a census its summed probabilities."""
    said = census.classes.get(name) if census else None
    if said is not None:
        if said.count is None:
            return None
        return ModelComparison(count=said.count, low=said.low, high=said.high, differs=None)
    summed = summary.classes.get(name) if summary else None
    if summed is None:
        return None
    if summed.error is None:
        return ModelComparison(count=summed.expected, low=None, high=None, differs=None)
    half = float(ndtri((1 + LEVEL) / 2)) * summed.error
    return ModelComparison(
        count=summed.expected, low=max(0.0, summed.expected - half), high=summed.expected + half, differs=None
    )


def _differs(audited: AuditedInterval, said: ModelComparison, level: float) -> bool | None:
    """Say whether the interval of the difference leaves out 0 (Zou and Donner 2008, doi:10.1002/sim.3095)."""
    if said.low is None or said.high is None or audited.value is None:
        return None
    wider = float(ndtri((1 + level) / 2) / ndtri((1 + LEVEL) / 2))
    difference = audited.value - said.count
    if difference > 0:
        reach = np.hypot(audited.value - audited.low, wider * (said.high - said.count))
    else:
        reach = np.hypot(audited.high - audited.value, wider * (said.count - said.low))
    return bool(abs(difference) > reach)


def _census(design: AuditDesign, sample: Sample, classes: Mapping[str, AuditedClass]) -> Census:
    n, drawn = len(sample.stratum), len(design.objects)
    looked = f"people looked at {n} of {drawn} objects that were drawn by design"
    return Census(
        n_rows=design.n_rows,
        level=LEVEL,
        classes={
            name: ClassCensus(
                count=c.count.value,
                low=c.count.low,
                high=c.count.high,
                source="audit",
                assumes=None,
                reason=f"{looked}{_missing_words(c)}{_model_words(c)}",
                assigned=_assigned(c),
            )
            for name, c in classes.items()
        },
    )


def _assigned(judged: AuditedClass) -> SelectionQuality | None:
    purity, completeness = judged.purity, judged.completeness
    if purity.value is None or completeness.value is None:
        return None
    return SelectionQuality(
        objects=judged.assigned,
        purity=purity.value,
        purity_low=purity.low,
        purity_high=purity.high,
        completeness=completeness.value,
        completeness_low=completeness.low,
        completeness_high=completeness.high,
    )


def _missing_words(judged: AuditedClass) -> str:
    if judged.if_all is None or judged.if_none is None:
        return ""
    return (
        "; this assumes that objects without an answer are like the others of their stratum; without this "
        f"assumption the count is between {judged.if_none.low:,.0f} and {judged.if_all.high:,.0f}"
    )


def _model_words(judged: AuditedClass) -> str:
    said = judged.model
    if said is None:
        return ""
    if said.low is None or said.high is None:
        return f"; the model says {said.count:,.0f}, without an interval"
    agrees = {True: "which the audit rejects", False: "which agrees", None: "which was not compared"}[
        said.differs
    ]
    return f"; the model says {said.count:,.0f} ({said.low:,.0f} to {said.high:,.0f}), {agrees}"


def _write(
    folder: Path, audit: Audit, summary: Summary | None, manifest: Manifest, report: WriteReport | None
) -> Audit:
    """Write the audit, then the census into summary, report and the manifest's totals: the manifest last, as ever.

    Return the audit with the report among its files.
    """
    if summary is None:
        write_document(folder / AUDIT, audit)
        return audit
    page = None if report is None else report(folder, audit.census)
    if page is not None:
        audit = replace(audit, files=(*audit.files, page))
    write_document(folder / AUDIT, audit)
    write_document(folder / SUMMARY, replace(summary, census=audit.census))
    if manifest.totals is not None:
        replace(manifest, totals=replace(manifest.totals, census=audit.census)).write(folder)
    return audit
