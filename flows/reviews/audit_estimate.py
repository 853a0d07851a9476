"""What people's answers say, in `audit.json`: purity, completeness and counts of classes, with intervals.

Intervals have the stated level.  Shapes: n objects with an answer, H strata of the design, J groups of them, K classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, NotRequired

import numpy as np
from scipy.special import ndtri
from typing_extensions import TypedDict

import catalogs
from blr.arrays import Mask
from blr.census.audit import Possible, audited_share, joined_strata
from blr.census.prediction_sets import learn_sets
from blr.census.results import Census, ClassCensus, SelectionQuality
from catalogs.arrays import batch_values, plain_texts
from catalogs.errors import brief, nearest
from flows.documents import read_document, write_document
from flows.errors import DocumentError, UsageError
from flows.labels.reader import MARK, is_doubtful, list_hash, listed_name, plain, plain_number, require_exact
from flows.reports.catalogue_page import rewrite_census
from flows.request import AuditEstimateRequest
from flows.reviews._lists import AUDIT_TITLE
from flows.reviews.audit_draw import DESIGN, AuditDesign, Selection, outputs_hash, selections_of
from flows.runs.lock import exclusive
from flows.runs.manifest import SUMMARY, Manifest
from flows.runs.release_store import output_folder
from flows.runs.results import Summary

AUDIT: Final = "audit.json"


class AuditedInterval(TypedDict):
    """An estimate with its interval; the estimate is None where no object was seen that could tell."""

    value: float | None
    low: float
    high: float


class ModelComparison(TypedDict):
    """The model's count of a class, with its interval, and whether the audit rejects it; None where it has no count."""

    count: float
    low: float
    high: float
    differs: bool | None


class AuditedClass(TypedDict):
    """A class: its count, the purity and the completeness of the objects that it was given to, by intervals.

    `assigned` is how many that are.  `model` is what the model says of the count; a bin has none.
    """

    assigned: int
    count: AuditedInterval
    purity: AuditedInterval
    completeness: AuditedInterval
    model: NotRequired[ModelComparison]


class AuditedBin(TypedDict):
    """The classes of the objects of a bin; `n_answered` of them were looked at."""

    n_rows: int
    n_answered: int
    classes: Mapping[str, AuditedClass]


class AuditedSelection(Selection):
    """The purity and the completeness of a selection."""

    purity: AuditedInterval
    completeness: AuditedInterval


class AuditedSetRule(TypedDict):
    """When a class is in a prediction set: where its probability is at least `least`, 0 for always.

    `rows` answers are of the class, and count as `effective` ones with their weights.  `spread` is the standard
    deviation of the share of the class's objects that keep it, from one audit to another.
    """

    least: float
    rows: int
    effective: float
    spread: float


class AuditedSets(TypedDict):
    """Prediction sets learnt from the answers: `level` is the share of a class's objects that keep it, on average."""

    level: float
    classes: Mapping[str, AuditedSetRule]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit says of a release.

    Of the `n_drawn` objects, `n_answered` have an answer, `n_undecided` one that says that nobody can tell, and
    `n_unanswered` none.  `n_other` of the answered ones are of no class of the model.  `joined` counts strata that had
    too few answers, and were joined with a neighbour.  `model_census` is the census of the model, which the audit's
    replaces in `summary.json`.  `sets` is None where no prediction sets were asked for.
    """

    status: Literal["planned", "done"]
    model: str
    release: int
    outputs: str
    out: Path
    level: float
    n_rows: int
    n_drawn: int
    n_answered: int
    n_undecided: int
    n_unanswered: int
    n_other: int
    joined: int
    classes: Mapping[str, AuditedClass]
    by: str | None
    bins: Mapping[str, AuditedBin]
    selections: tuple[AuditedSelection, ...]
    census: Census
    model_census: Census | None
    sets: AuditedSets | None = None
    remarks: tuple[str, ...]
    files: tuple[Path, ...]


OTHER = -1  # the place of the answer "other": of no class of the model
UNDECIDED = -2  # the place of an answer that says that nobody can tell
COLUMNS = ("label", "class")  # columns that may hold the answer
SHOWN = 5


def read_answers(
    paths: Sequence[Path], identifier: str, drawn: Sequence[str], classes: Sequence[str], asked: str
) -> dict[str, int]:
    """Return, by the objects' names, the answers in tables to objects that were drawn; what is blank is no answer.

    An answer is the place of the class, `OTHER` or `UNDECIDED`.  `asked` is the hash of the list that asked; rows
    that bear the mark of a list bear that of this one.

    UsageError where an answer is no class, is of an object that was not drawn, or contradicts another.
    """
    times, folded = Counter(drawn), Counter(name.casefold() for name in classes)
    exact = {name: k for k, name in enumerate(classes)}
    # In any case of letters an answer counts where it fits one class alone.
    alike = {"other": OTHER} | {
        name.casefold(): k for name, k in exact.items() if folded[name.casefold()] == 1
    }
    places: dict[str, int] = {}
    for path in paths:
        texts = [*_texts(path, identifier, tuple(times), asked)]
        strange = [name for name, _ in texts if name not in times]
        if strange:
            shown = ", ".join(f"'{brief(name)}'" for name in strange[:SHOWN])
            raise UsageError(
                f"{path}: got answers to {len(strange)} objects that were not drawn ({shown}), expected answers to the "
                "objects of the list only; remove their rows"
            )
        for name, count in Counter(name for name, _ in texts).items():
            if count > times[name]:
                raise UsageError(
                    f"{path}: got {count} answers to '{brief(name)}', expected one for each row of the list; "
                    "remove the others, even if they agree"
                )
        for name, text in texts:
            place = exact.get(text, alike.get(text.casefold()))
            if place is None and is_doubtful(text):
                place = UNDECIDED
            if place is None:
                raise UsageError(
                    f"{path}: got '{brief(text)}' for '{brief(name)}', expected a class of the model, 'other' for an "
                    f"object of no class, or '?' for one that cannot be decided; {nearest(text, classes)}"
                )
            if places.setdefault(name, place) != place:
                raise UsageError(
                    f"{path}: got '{brief(text)}' for '{brief(name)}', but a different answer in an earlier "
                    "row, expected one answer for each object; make them equal, or answer '?'"
                )
    return places


def _texts(path: Path, identifier: str, drawn: Sequence[str], asked: str) -> Iterator[tuple[str, str]]:
    """Yield the names and the answers of a table, as far as there is one; `asked` is the hash of its list."""
    table = catalogs.open(path)

    def column(names: Sequence[str], holds: str) -> str:
        found = next((name for name in names if name in table.names), None)
        if found is None:
            raise UsageError(
                f"{path}: got a table without the column '{names[0]}', which {holds}; {nearest(names[0], table.names)}"
            )
        return found

    key, answer = column((identifier, "id"), "names the objects"), column(COLUMNS, "holds the answers")
    # A program that read 007 as a number has written 7.
    by_number = {plain_number(name): name for name in reversed(drawn)}
    marked = [MARK] if MARK in table.names else []
    for batch in table.batches([key, answer, *marked]):
        values = batch_values(batch, [key, answer, *marked])
        require_exact(values[key], str(path), key)
        numbered = values[key].dtype.kind in "iuf"
        names = plain_texts(values[key]).tolist()
        marks = plain_texts(values[MARK]).tolist() if marked else [""] * len(names)
        for read, text, mark in zip(names, plain_texts(values[answer]).tolist(), marks, strict=True):
            if not (read and text):
                continue
            known = by_number.get(plain_number(read), read) if numbered else read
            name = listed_name(known, mark) if marked else known
            if name is None or (mark and not mark.startswith(f"{asked}-")):
                raise UsageError(
                    f"{path}: got an answer to '{brief(read)}' of another list or object than its '{MARK}' names, "
                    "expected answers to the list that was drawn last, each beside its object; copy them into that list"
                )
            yield name, plain(text) if marked else text


LEVEL = 0.95
FEW_OTHERS = 0.01
"""Share of objects of no class from which, with 97.5 % probability, an audit contradicts the model."""
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
        self.everywhere = np.ones(len(self.rows), dtype=bool)
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
        right = inside & selected & of_class
        return AuditedClass(
            assigned=int(self.rows[chosen].sum()),
            count=self.count(k, domain),
            purity=self.share(right, inside & selected & ~of_class, (chosen, chosen, ~chosen)),
            completeness=self.share(right, inside & ~selected & of_class, (chosen, others, self.everywhere)),
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
    asked = list_hash(AUDIT_TITLE.format(design.model), names)
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
    classes = {name: sample.judged(k, sample.everywhere) for k, name in enumerate(design.classes)}
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
    audited = sample.count(k, sample.everywhere, level)
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
    if others := np.count_nonzero(sample.answer == OTHER):
        looked += f", of which {others} of no class"
    if n < drawn:
        looked += "; this assumes that the other ones are like these of their stratum"
    contradicted = sample.count(OTHER, sample.everywhere)["low"] > FEW_OTHERS * design.n_rows
    counted = {}
    for name, c in classes.items():
        said, reason, assigned = c.get("model"), looked, None
        if said is not None:
            contradicted |= bool(said["differs"])
            agrees = "which the audit rejects" if said["differs"] else "which agrees"
            model = f"{said['count']:,.0f} ({said['low']:,.0f} to {said['high']:,.0f})"
            reason += f"; the model says {model}, {agrees}"
        count, pure, complete = c["count"], c["purity"], c["completeness"]
        if pure["value"] is not None and complete["value"] is not None:
            ends = _named_ends("purity", pure) | _named_ends("completeness", complete)
            assigned = SelectionQuality(objects=c["assigned"], **ends)
        ends = {"count": count["value"], "low": count["low"], "high": count["high"]}
        counted[name] = ClassCensus(**ends, source="audit", assumes=None, reason=reason, assigned=assigned)
    return Census(n_rows=design.n_rows, level=LEVEL, classes=counted, contradicted=contradicted)


def _named_ends(name: str, found: AuditedInterval) -> dict[str, Any]:
    """Return an estimate and the ends of its interval as a census names them."""
    return {name: found["value"], f"{name}_low": found["low"], f"{name}_high": found["high"]}


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
