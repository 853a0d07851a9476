"""What an audit's answers say: purity, completeness and class shares of the annotated files, with intervals.

Shapes: n objects with an answer, H strata of the design, J groups of them, K classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from blr.arrays import Mask
from blr.census.audit import Possible, audited_share, joined_strata
from blr.census.prediction_sets import learn_sets
from blr.census.results import Census, ClassCensus, SelectionQuality
from flows.documents import read_document, write_document
from flows.errors import DocumentError, UsageError
from flows.labels.reader import list_hash
from flows.reports.catalogue_page import rewrite_census
from flows.request import AuditEstimateRequest
from flows.reviews._lists import audit_title
from flows.reviews.audit_draw import (
    AUDIT,
    DESIGN,
    OTHER,
    UNDECIDED,
    Audit,
    AuditDesign,
    AuditedBin,
    AuditedClass,
    AuditedInterval,
    AuditedSelection,
    AuditedSetRule,
    AuditedSets,
    ModelComparison,
    Selection,
    outputs_hash,
    read_answers,
    selections_of,
)
from flows.runs.lock import exclusive
from flows.runs.manifest import SUMMARY, Manifest
from flows.runs.release_store import output_folder
from flows.runs.results import Summary

LEVEL = 0.95
SINGLE = 1 - 1e-6
"""The probabilities of copies are in single precision: one that is as large as a threshold must not fall below it."""


class Sample:
    """The drawn objects with an answer: stratum (n,), class (n,) with -1 for other, probabilities (n, K).

    `rows` (H,) are those of each stratum, `given` (H,) the class that they were given, and `group` (H,) the group of
    each: strata of too few answers are joined.  `strata` has the rows and the answers (J,) of the groups.
    """

    def __init__(self, design: AuditDesign, answers: Mapping[str, int]) -> None:
        """Take the objects of a design with these answers; those that could not tell are left out."""
        known = [o for o in design.objects if answers.get(o["id"], UNDECIDED) != UNDECIDED]
        kinds = [(s["class_given"], s["bin"]) for s in design.strata]
        self.design = design
        self.stratum = np.array([o["stratum"] for o in known], dtype=np.intp)
        self.answer = np.array([answers[o["id"]] for o in known], dtype=np.intp)
        probability = np.array([o["probabilities"] for o in known], dtype=np.float64)
        self.probability = probability.reshape(-1, len(design.classes))
        self.rows = np.array([s["n_rows"] for s in design.strata])
        self.given = np.array([design.classes.index(name) for name, _ in kinds], dtype=np.intp)
        seen = np.bincount(self.stratum, minlength=len(kinds))
        self.group = joined_strata(self.rows, seen, np.array([kinds.index(kind) for kind in kinds]))
        rows = np.bincount(self.group, weights=self.rows).astype(np.int64)
        self.strata = rows, np.bincount(self.group[self.stratum], minlength=len(rows))

    def share(self, hits: Mask, misses: Mask, possible: Possible, level: float = LEVEL) -> AuditedInterval:
        """Return the share of hits (n,) among hits and misses (n,); `possible` is by the design's strata (H,)."""
        place = self.group[self.stratum]
        seen = [np.bincount(place[rows], minlength=len(self.strata[0])) for rows in (hits, misses)]
        hit, miss, neither = (np.bincount(self.group, weights=rows) > 0 for rows in possible)
        found = audited_share(seen[0], seen[1], self.strata, possible=(hit, miss, neither), level=level)
        share, low, high = (float(number) for number in found)
        return AuditedInterval(value=share if np.isfinite(share) else None, low=low, high=high)

    def count(self, k: int, domain: Mask, level: float = LEVEL) -> AuditedInterval:
        """Return the number of objects of a class in the strata (H,) of a domain."""
        inside, is_class, rows = domain[self.stratum], self.answer == k, int(self.rows[domain].sum())
        share = self.share(inside & is_class, inside & ~is_class, (domain, domain, ~domain), level)
        value = None if share["value"] is None else share["value"] * rows
        return AuditedInterval(value=value, low=share["low"] * rows, high=share["high"] * rows)

    def judged(self, k: int, domain: Mask) -> AuditedClass:
        """Return the count of a class in the strata (H,) of a domain, and how well it was assigned there."""
        inside, selected = domain[self.stratum], self.given[self.stratum] == k
        chosen, others = domain & (self.given == k), domain & (self.given != k)
        of_class = self.answer == k
        right, every = inside & selected & of_class, np.ones_like(chosen)
        return AuditedClass(
            assigned=int(self.rows[chosen].sum()),
            count=self.count(k, domain),
            purity=self.share(right, inside & selected & ~of_class, (chosen, chosen, ~chosen)),
            completeness=self.share(right, inside & ~selected & of_class, (chosen, others, every)),
        )

    def bin(self, name: str) -> AuditedBin:
        """Return the classes in a bin."""
        domain = np.array([s["bin"] == name for s in self.design.strata])
        return AuditedBin(
            n_rows=int(self.rows[domain].sum()),
            n_answered=int(np.count_nonzero(domain[self.stratum])),
            classes={c: self.judged(k, domain) for k, c in enumerate(self.design.classes)},
        )

    def selection(self, chosen: Selection) -> AuditedSelection:
        """Return the purity and the completeness of a selection by probability."""
        k, t = self.design.classes.index(chosen["class_name"]), chosen["threshold"]
        selected, of_class = self.probability[:, k] >= t, self.answer == k
        low, high = np.array([(s["low"], s["high"]) for s in self.design.strata]).T
        own = self.given == k
        # An object's second probability is at most as large as its first, and as what that leaves.
        may_be = np.where(own, high > t, (t <= high) & (t <= 1 - low))
        may_not, every = ~own | (low < t), np.ones_like(own)
        purity = self.share(selected & of_class, selected & ~of_class, (may_be, may_be, may_not))
        completeness = self.share(selected & of_class, ~selected & of_class, (may_be, may_not, every))
        return AuditedSelection(**chosen, purity=purity, completeness=completeness)

    def sets(self, level: float) -> AuditedSets:
        """Return prediction sets learnt from the answers; an object stands for its part of its stratum."""
        known = self.answer >= 0
        place = self.group[self.stratum]
        weight = (self.strata[0] / np.maximum(self.strata[1], 1))[place]
        rule = learn_sets(self.probability[known], self.answer[known], level=level, weight=weight[known])
        columns = (rule.least * SINGLE, rule.rows, rule.effective, rule.spread)
        rules = zip(self.design.classes, *(column.tolist() for column in columns), strict=True)
        classes = {
            name: AuditedSetRule(least=least, rows=rows, effective=effective, spread=spread)
            for name, least, rows, effective, spread in rules
        }
        return AuditedSets(level=level, classes=classes)


def estimate_audit(request: AuditEstimateRequest, *, dry_run: bool = False) -> Audit:
    """Return what the answers say of the folder's release; write `audit.json`, summary and report.

    The counts of the audit replace those of the model in both, for they hold whatever the model is; `audit.json` keeps
    both.  UsageError where nothing was drawn, the copies have changed since, or answers are not to the list.
    """
    with output_folder(request.out, key="out", publish=not dry_run) as folder:
        return _estimated(request, folder, dry_run=dry_run)


def _estimated(request: AuditEstimateRequest, folder: Path, *, dry_run: bool) -> Audit:
    if request.sets is not None and not 0.5 <= request.sets < 1:
        raise UsageError(
            f"--sets: got {request.sets:g}, expected a share of at least 0.5 and below 1, as in 0.9"
        )
    path = folder / DESIGN
    if not path.exists():
        raise UsageError(f"{path}: no such file, expected an audit's design; run `blr audit draw` first")
    design, manifest = read_document(AuditDesign, path), Manifest.read(folder)
    if manifest is None or outputs_hash(manifest) != design.outputs:
        raise UsageError(
            f"{path}: got an audit of {design.model}, release {design.release}, but the copies have changed since, and "
            "the drawn objects do not represent the new ones; draw again with `blr audit draw --overwrite`"
        )
    thresholds = [(s["class_name"], s["threshold"]) for s in design.selections]
    selections = selections_of([*thresholds, *(request.threshold or ())], design.classes)
    names = [o["id"] for o in design.objects]
    asked = list_hash(audit_title(design.model), names)
    answers = read_answers(request.answers, design.id, names, design.classes, asked)
    sample = Sample(design, answers)
    if not len(sample.stratum):
        raise UsageError(
            f"{request.answers[0]}: got no answer in the column 'label', expected the class of each object; fill in "
            "the list first"
        )
    try:
        summary, trouble = read_document(Summary, folder / SUMMARY), ""
    except (OSError, DocumentError):
        summary = None
        trouble = f"{folder / SUMMARY} cannot be read, so the counts are written to {AUDIT} only"
    model = _model_census(folder, summary, design)
    everywhere = np.ones(len(design.strata), dtype=bool)
    classes = {name: sample.judged(k, everywhere) for k, name in enumerate(design.classes)}
    for k, judged in enumerate(classes.values()):
        if said := _compared(sample, k, model):
            judged["model"] = said
    tally = Counter(answers.get(name, None) for name in names)
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
        joined=len(sample.group) - len(sample.strata[0]),
        classes=classes,
        by=design.by,
        bins={name: sample.bin(name) for name in design.bins},
        selections=tuple(sample.selection(chosen) for chosen in selections),
        census=_census(design, sample, classes),
        model_census=model,
        sets=None if request.sets is None else sample.sets(request.sets),
        remarks=(trouble,) if trouble else (),
        files=() if dry_run else tuple(folder / name for name in (AUDIT, *([SUMMARY] if summary else []))),
    )
    if not dry_run:
        with exclusive(folder):
            audit = _write(folder, audit, summary, manifest)
    return audit


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


def _compared(sample: Sample, k: int, census: Census | None) -> ModelComparison | None:
    """Return the model's count of a class beside the audit's, None where it cannot say it.

    They differ where the interval of the difference leaves out 0 (Zou and Donner 2008, doi:10.1002/sim.3095).
    """
    said = census.classes[sample.design.classes[k]] if census else None
    if said is None or said.count is None or said.low is None or said.high is None:
        return None
    # Of K classes with one sum, K - 1 tests: together they err in one audit of twenty.
    level = 1 - (1 - LEVEL) / max(1, len(sample.design.classes) - 1)
    audited = sample.count(k, np.ones(len(sample.rows), dtype=bool), level)
    differs = None
    if audited["value"] is not None:
        wider = float(ndtri((1 + level) / 2) / ndtri((1 + LEVEL) / 2))
        difference = audited["value"] - said.count
        if difference > 0:
            reach = np.hypot(audited["value"] - audited["low"], wider * (said.high - said.count))
        else:
            reach = np.hypot(audited["high"] - audited["value"], wider * (said.count - said.low))
        differs = bool(abs(difference) > reach)
    return ModelComparison(count=said.count, low=said.low, high=said.high, differs=differs)


def _census(design: AuditDesign, sample: Sample, classes: Mapping[str, AuditedClass]) -> Census:
    n, drawn = len(sample.stratum), len(design.objects)
    looked = f"people looked at {n} of {drawn} objects that were drawn by design"
    if n < drawn:
        looked += "; this assumes that the other ones are like these of their stratum"
    counted = {}
    for name, c in classes.items():
        said, reason, assigned = c.get("model"), looked, None
        if said is not None:
            agrees = "which the audit rejects" if said["differs"] else "which agrees"
            reason += (
                f"; the model says {said['count']:,.0f} ({said['low']:,.0f} to {said['high']:,.0f}), {agrees}"
            )
        count, pure, complete = c["count"], c["purity"], c["completeness"]
        if pure["value"] is not None and complete["value"] is not None:
            assigned = SelectionQuality(
                objects=c["assigned"],
                purity=pure["value"],
                purity_low=pure["low"],
                purity_high=pure["high"],
                completeness=complete["value"],
                completeness_low=complete["low"],
                completeness_high=complete["high"],
            )
        counted[name] = ClassCensus(
            count=count["value"],
            low=count["low"],
            high=count["high"],
            source="audit",
            assumes=None,
            reason=reason,
            assigned=assigned,
        )
    return Census(n_rows=design.n_rows, level=LEVEL, classes=counted)


def _write(folder: Path, audit: Audit, summary: Summary | None, manifest: Manifest) -> Audit:
    """Write the audit, then the census into summary, report and the manifest's totals: the manifest last, as ever.

    Return the audit with the report among its files.
    """
    page = None if summary is None else rewrite_census(folder, audit.census)
    audit = replace(audit, files=(*audit.files, *([] if page is None else [page])))
    write_document(folder / AUDIT, audit)
    if summary is not None:
        write_document(folder / SUMMARY, replace(summary, census=audit.census))
        replace(manifest, totals=replace(manifest.totals, census=audit.census)).write(folder)
    return audit
