"""The answers at the beginning of a report: whether to use the model, and the four questions behind that.

Then: what is odd, and what should I look at?  The page and the terminal show the same.  Words are those of an
astronomer; the last section of a report has the statistician's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from blr.calibration import share_interval
from blr.trust.verdict import Trust
from catalogs.errors import brief, counted
from catalogs.profile.quality import FEW_REPEATS
from flows.models.description import TOLD_APART, UNDECIDED, Metrics, ModelDescription, TrainingDescription
from flows.reports.data import NotableObject, leak_words, likeness_words
from flows.reports.report_table import ReportTable, class_words
from flows.runs.results import Counts, Summary, drifted


def share_words(count: int, n: int, *, interval_only: bool = False) -> str:
    """Return the share `count` of `n` objects with Wilson's 95 % interval, or this alone; a dash without objects."""
    low, high = share_interval(count, n, level=0.95)
    ends = f"{low:.1%} to {high:.1%}"
    return ends if interval_only else f"{count / n:.1%} ({ends})" if n else "–"


Level = Literal["good", "care", "bad", "plain"]

MUCH_FLAGGED: Final = 0.01  # share of objects unlike the training set from which a report warns of them
MUCH_UNLIKE: Final = 0.2
"""Share of objects beyond what the labels cover, from which trust is refused for them before anything else is said."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One part of an answer: what was found and why, how serious it is, and what to do."""

    what: str
    level: Level = "plain"
    advice: str = ""
    short: str = ""  # the same in a few words, small at the beginning; "" where `what` is short

    @property
    def clause(self) -> str:
        """What was found as a part of a sentence, without its full stop."""
        return plain_end(self.short) if self.short else begun_small(self.what)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A question, the answer in one sentence, and what it rests on; `reason` is a bad one in a clause.

    A page shows `tables`, and `objects` with links to pictures of them, below the findings.
    """

    question: str
    short: str
    level: Level = "plain"
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    tables: tuple[ReportTable, ...] = ()
    objects: tuple[tuple[NotableObject, Mapping[str, str]], ...] = ()


LEVELS: Final[dict[str, Level]] = {"green": "good", "amber": "care", "red": "bad"}
"""Level of an answer by its colour."""
HEADS: Final = {"green": "Yes", "amber": "Not surely", "red": "No"}


def judged_answers(metrics: Metrics, trust: Trust, most: float) -> Iterator[Answer]:
    """Yield what objects that no fit saw say of the probabilities: computed rightly, calibrated, better than shares.

    `most` is the share of the most frequent class.
    """
    asked = {"computed": "Are its probabilities computed rightly?", "calibrated": "Does 70 % mean 70 %?"}
    for name, question in asked.items():
        found = trust.answer(name)
        advice, flagged = begun_large(found.advice), ""
        if name == "computed" and found.colour == "red":
            flagged = " Objects for which it may matter carry the flag UNTRUSTED_MODEL."
        yield Answer(
            question=question,
            short=f"{HEADS[found.colour]}: {found.says}.{flagged}",
            level=LEVELS[found.colour],
            findings=(Finding(what=advice),) if advice else (),
            reason="" if found.colour == "green" else found.says,
        )
    yield _known(metrics, trust, most)


LITTLE: Final = 0.1
"""Share of the doubt that class shares leave, from which a model that removes less asks for care."""


def _known(metrics: Metrics, trust: Trust, most: float) -> Answer:
    """Return whether the model knows more than the class shares; `most` is the share of the most frequent class."""
    base, skill, simple = metrics.log_loss_baseline, metrics.skill, metrics.log_loss_logistic
    gain = 1 - metrics.log_loss / base
    colour, than = trust.answer("known").colour, "better than the class shares alone"
    skilled = skill.is_shown and colour != "red"
    level: Level = "bad"
    head, reason = "No" if skill.verdict == "worse" else "Not shown", f"it is not known to predict {than}"
    if skilled:
        head, level, reason = "Yes", "good", ""
        if gain < LITTLE:
            little = f"it removes {gain:.0%} of the doubt that class shares leave"
            head, level, reason = "A little", "care", little
        elif colour != "green":
            head, level, reason = "Probably", "care", f"it is not known how much {than} it predicts"
    ends = beside = ""
    if skill.low is not None and skill.high is not None:
        ends = f" ({skill.low / base:.0%} to {min(1.0, skill.high / base):.0%} at {skill.level:.0%})"
    if simple is not None:
        beside = f"; a logistic regression removes {1 - simple / base:.0%}"
    doubt = f"It removes {gain:.0%}{ends} of the doubt that class shares leave{beside}".replace("-", "−")
    added = f"It adds {-gain:.0%} to the doubt that class shares leave"
    advice = "Add labels, or features that tell the classes apart"
    if not skilled:
        advice = f"Do not classify with it. {advice}"
    findings = (
        Finding(what=doubt if gain > 0 else added),
        *[Finding(what=advice, level="care" if skilled else "bad")] * (level != "good"),
    )
    right = share_words(round(metrics.accuracy * metrics.n), metrics.n, interval_only=True)
    short = (
        f"{head}: it is right for {metrics.accuracy:.1%} of {metrics.n:,} {metrics.judged_objects} ({right} at 95 %); "
        f"always naming the most frequent class would be right for {most:.1%}."
    )
    question = "Does it know more than the class shares?"
    return Answer(question=question, short=short, level=level, findings=findings, reason=reason)


USE: Final = "Can I use it?"


def use_answer(answers: Sequence[Answer], good: str) -> Answer:
    """Return whether to use a model, from the answers to the questions: computed, calibrated, more known, holds."""
    levels = {answer.level for answer in answers}
    level: Level = "bad" if "bad" in levels else "care" if "care" in levels else "good"
    reasons = "; ".join(answer.reason for answer in answers if answer.level == level and answer.reason)
    computed, _, known, holds = answers
    # Scores on objects that no fit saw hold for any approximation: the classes can be used even if it fails.
    alone = computed.level == "bad" and "bad" not in (known.level, holds.level)
    refused = "Its classes, yes; its probabilities, not yet" if alone else "No"
    short = {"good": good, "care": f"Yes, with care: {reasons}.", "bad": f"{refused}: {reasons}."}[level]
    return Answer(question=USE, short=short, level=level)


FEWEST_MARKS: Final = 3  # rows with the same number from which it is suspected to stand for no value
MOST_MARKS: Final = 4
UNLIKE: Final = {
    "OUT_OF_DOMAIN": ("unlike the training set", "Look at them before using their classes."),
    "BEYOND_LABELS": ("beyond the range of the labelled objects", "Label some of them."),
    "UNCLASSIFIABLE": ("without a class, for want of features or of the selection", ""),
}
"""What flags say of objects, and what to do."""


def beyond_finding(found: Counts) -> Finding | None:
    """Return the finding that a large part of a catalogue is like no labelled object; None where none is.

    Its `short` begins an answer.
    """
    large = {n: found.flags[n] for n in ("BEYOND_LABELS", "OUT_OF_DOMAIN") if n in found.flags}
    name, flag = max(large.items(), key=lambda one: one[1]["share"], default=("", None))
    if flag is None or flag["share"] < MUCH_UNLIKE:
        return None
    words, left = UNLIKE[name][0], found.n_rows - flag["count"]
    what = f"{flag['count']:,} of {counted(found.n_rows, 'object')} are {words}, where the labels say little"
    rest = f"Without them (flag {name}) {counted(left, 'object')} {'is' if left == 1 else 'are'} left."
    advice = f"Label some of them and train again, or audit the output. {rest}"
    short = f"Not for {flag['share']:.0%} of the objects: they are {words} ({name})"
    return Finding(what=what, level="bad", advice=advice, short=short)


def suspected_marks(found: Counts) -> Iterator[Finding]:
    """Yield which numbers of a catalogue may stand for no value, though nobody has said so."""
    marks = {mark: n for mark, n in found.marks.items() if n >= FEWEST_MARKS}
    if marks:
        said = ", ".join(f"{mark} in {n:,}" for mark, n in [*marks.items()][:MOST_MARKS])
        what = f"A mark for 'no value'? {said} of the objects that are unlike the labelled ones"
        advice = "If so, state it under [target.sentinels] and classify again."
        short = f"suspected marks for 'no value' ({', '.join([*marks][:MOST_MARKS])})"
        yield Finding(what=what, level="care", advice=advice, short=short)


def strange_findings(found: Summary) -> Iterator[Finding]:
    """Yield what is strange in a catalogue that was classified."""
    for name, (words, advice) in UNLIKE.items():
        flag = found.flags.get(name)
        if flag is not None and flag["count"]:
            share, level = f"{flag['share']:.1%}", CARE[flag["share"] > MUCH_FLAGGED]
            what = f"{flag['count']:,} of {counted(found.n_rows, 'object')} ({share}) are {words} ({name})"
            short = f"objects {words.partition(',')[0]} ({share})"
            yield Finding(what=what, level=level, advice=advice, short=short)
    yield from suspected_marks(found)
    odd = drifted(found.drift)
    if odd:
        said = "; ".join(f"{name} ({found.drift[name].words})" for name in odd)
        what = f"Features distributed unlike the training's: {said}"
        yield Finding(what=what, level="care", short=f"drifted features ({len(odd)})")
    yield from _seldom_assigned(
        {n: (c["assigned"], c["expected"]) for n, c in found.classes.items()}, "expected"
    )


SELDOM: Final = 0.5
"""Share of a class's objects below which as many assigned to it are few: choosing by the class misses most."""
FEWEST_MISSED: Final = 5.0  # objects of a class from which so few assigned are more than chance


def _seldom_assigned(
    classes: Mapping[str, tuple[int, float]], known: str, which: str = ""
) -> Iterator[Finding]:
    """Yield the classes that are assigned to few objects beside those that are of it, as is `known`: both numbers."""
    few = {
        name: pair
        for name, pair in classes.items()
        if pair[1] >= FEWEST_MISSED and pair[0] < SELDOM * pair[1]
    }
    if few:
        said = ", ".join(
            f"{class_words(name)} ({n:,}, where {of:,.0f} are {known})" for name, (n, of) in few.items()
        )
        what = f"Few {which}objects are assigned to {said}"
        chosen = f'state completeness = {{ "{next(iter(few))}" = 0.9 }} under [flags], selected = true under [output]'
        advice = f"Count such a class by its probabilities. To find its objects, {chosen}, and classify."
        yield Finding(what=what, level="care", advice=advice, short=f"classes seldom assigned ({len(few)})")


CARE: Final[Mapping[bool, Level]] = {True: "care", False: "plain"}


def odd_answer(findings: Sequence[Finding], nothing: str) -> Answer:
    """Return what needs a look, named in a sentence; without any finding the sentence is `nothing`."""
    worth = dict.fromkeys(f.clause for f in findings if f.level in ("care", "bad"))
    short = f"Nothing out of the ordinary. Counted: {', '.join(f.clause for f in findings)}."
    if worth or not findings:
        short = f"Look at: {', '.join(worth)}." if worth else nothing
    level: Level = "care" if worth else "good"
    return Answer(question="What is new or odd?", short=short, level=level, findings=tuple(findings))


MOST_LABELS: Final = 5


def first_labels(counts: Mapping[str, int]) -> str:
    """Return the most frequent labels and their counts; a stored model has them in the order of their names."""
    order = sorted(counts.items(), key=lambda label: (-label[1], label[0]))
    shown = [f"{brief(name)} ({count:,})" for name, count in order[:MOST_LABELS]]
    return ", ".join([*shown, *["…"] * (len(order) > MOST_LABELS)])


def begun_small(text: str) -> str:
    """Return a sentence as it goes on another one."""
    text = plain_end(text)
    return text[:1].lower() + text[1:]


def begun_large(text: str) -> str:
    """Return a clause as a sentence begins."""
    return text[:1].upper() + text[1:]


def plain_end(text: str) -> str:
    """Return a sentence without its full stop."""
    return text.rstrip(" .")


MOST_SUSPECTS: Final = 2  # suspects that are named, in the order of the catalogue's columns
MOST_LINES: Final = 10


def training_answers(model: ModelDescription, objects: Sequence[NotableObject] = ()) -> tuple[Answer, ...]:
    """Return whether to use a model, the answers to the four questions, what is odd, and which objects to look at."""
    training = model.training
    most = max(training.training_counts, default=0) / max(1, training.n_training)
    four = (*judged_answers(model.metrics, model.trust, most), _holds(training))
    unknown = "" if training.shift.target else " Of objects unlike the labelled ones nothing is known."
    good = f"Yes: its probabilities are computed rightly and know more than the class shares.{unknown}"
    named = "No objects are named: set catalog.id to a column of names or row numbers; a trial keeps none."
    if objects:
        whose = "object whose label surprises" if len(objects) == 1 else "objects whose labels surprise"
        named = f"{len(objects)} {whose} the model most: a wrong label, or what the features cannot tell."
    elif model.metrics.accuracy == 1:
        named = "Nothing: each object is assigned to the class of its label."
    first = tuple(Finding(what=f"First {one['name']}: {one['why']}") for one in objects[:1])
    look = Answer(question="What should I look at?", short=named, findings=first)
    odd = odd_answer(tuple(_odd(model)), "Nothing was left out, and no class is seldom assigned.")
    return (use_answer(four, good), *four, odd, look)


def _holds(training: TrainingDescription) -> Answer:
    shift = training.shift
    known = [*_known_before(training)]
    findings = [*(Finding(what=plain_end(sentence)) for sentence in likeness_words(shift)), *known]
    reasons = [finding.short for finding in known]
    target, told_apart = shift.target, shift.auc_low is not None and shift.auc_low > TOLD_APART
    if target is None:
        short = "Not known: the training saw no catalogue to classify; name it under [target]."
    elif not told_apart:
        short = f"Yes: the objects of {target['name']} look like the labelled ones."
    elif shift.density_weights or shift.class_prior is not None:
        short = f"Yes: the objects of {target['name']} are unlike the labelled ones, which was corrected for."
    else:
        short = f"With care: the objects of {target['name']} are unlike the labelled ones."
        reasons.append("the target is unlike the training set")
        advice = "Set density_weights under [shift], or class_prior where only the class shares differ"
        findings.append(Finding(what=advice, level="care"))
    # Features that may tell how objects were chosen: in the answer, since a terminal has no room for all findings.
    suspects = [f"{name} ({why})" for q in training.quality for name, why in q.suspects.items()]
    if suspects:
        left = len(suspects) - MOST_SUSPECTS
        more = f", and {left} more" if left > 0 else ""
        short += f" Suspects: {', '.join(suspects[:MOST_SUSPECTS])}{more}."
        short += " Leave out what the objects to classify lack or measure otherwise."
    level: Level = "care" if reasons else "plain" if target is None else "good"
    question, reason = "Does it hold for the objects to classify?", "; ".join(reasons)
    return Answer(question=question, short=short, level=level, findings=tuple(findings), reason=reason)


def _known_before(training: TrainingDescription) -> Iterator[Finding]:
    """Yield how the model may have known the classes of the objects that judge it; each is a reason for care."""
    leaks = {columns: words for q in training.quality for columns, words in leak_words(q).items()}
    if leaks:
        what = f"The features use {'; and '.join(leaks.values())}"
        short = f"features may give the class away ({'; '.join(leaks)})"
        advice = (
            "Leave such a column out, unless it is measured alike, and without the class, for all objects."
        )
        yield Finding(what=what, level="care", advice=advice, short=short)
    if training.labels.doubled > FEW_REPEATS * (training.n_training + training.n_held_out):
        yield Finding(
            what=f"{training.labels.doubled:,} labelled objects lie within an arcsecond of another one: if they are "
            "the same, the model has learnt the labels that judge it",
            level="care",
            advice='Keep the rows of an object together, as by = "healpix" under [split] does, and train again.',
            short="some labelled objects may be there several times",
        )


def _odd(model: ModelDescription) -> Iterator[Finding]:
    """Yield which objects trained nothing and why, and what is odd about those that did."""
    left = model.training
    if left.other_labels:
        n = sum(left.other_labels.values())
        what = f"{_without(n, 'a label that belongs to no class')}: {first_labels(left.other_labels)}"
        level, said = CARE[n > MUCH_FLAGGED * max(1, left.n_selected)], counted(n, "object")
        advice = (
            "Give them a class under [label] classes; where they say 'not known', list them under exclude."
        )
        yield Finding(what=what, level=level, advice=advice, short=f"labels of no class ({said})")
    n = left.unlabelled + left.unknown_labels.get(UNDECIDED, 0)
    if n:
        yield Finding(what=_without(n, "no label"), short=f"objects without a label ({n:,})")
    n = left.n_read - left.n_selected
    if n > 0:
        yield Finding(
            what=f"{n:,} rows are outside catalog.where", short=f"rows outside the selection ({n:,})"
        )
    yield from _care(model)
    counts = np.asarray(model.metrics.confusion)
    sums = zip(model.classes, counts.sum(axis=1), counts.sum(axis=0), strict=True)
    assigned = {name: (int(n), float(labelled)) for name, labelled, n in sums}
    yield from _seldom_assigned(assigned, "labelled so", f"{model.metrics.judged_by} ")


def _without(n: int, what: str) -> str:
    said = f"has {what}, and trains" if n == 1 else f"have {what}, and train"
    return f"{counted(n, 'object')} {said} nothing"


def _care(model: ModelDescription) -> Iterator[Finding]:
    """Yield what is odd of rows and labels that train, and of objects that judge."""
    labels, quality, judged = model.training.labels, model.training.quality, model.metrics.judged_by
    repeated, n_rows = sum(q.repeated_rows for q in quality), sum(q.n_rows for q in quality)
    if repeated:
        what = f"Rows that are in the catalogue twice: {repeated:,} of {n_rows:,}"
        level, short = CARE[repeated > MUCH_FLAGGED * n_rows], f"repeated rows ({repeated:,})"
        advice = "Remove them: they count twice, and rows that are left out are known by their doubles."
        yield Finding(what=what, level=level, advice=advice, short=short)
    if labels.conflicts:
        in_conflict = f"labels in conflict ({counted(labels.conflicts, 'object')})"
        yield Finding(what=f"Left out: {in_conflict}", level="care", short=in_conflict)
    if labels.disputed:
        what = f"Objects whose reviewers differ, so that they count as votes: {labels.disputed:,}"
        advice = "Look at them together; the remarks name them."
        short = f"reviewers who differ ({labels.disputed:,} objects)"
        yield Finding(what=what, level="care", advice=advice, short=short)
    n = model.metrics.n_unclassified
    if n:
        what = f"{n:,} {judged} objects have no feature measured: they get the class shares as probabilities"
        yield Finding(what=what, level="care", short=f"objects without any feature ({n:,})")


def answer_lines(answers: Sequence[Answer]) -> list[str]:
    """Return the answers for a terminal in ten lines at most: each question, its answer, and the main finding."""
    every = ((i, finding) for i, answer in enumerate(answers) for finding in answer.findings)
    worth = [(i, f) for i, f in every if f.what and plain_end(f.what).lower() not in answers[i].short.lower()]
    # What the answer counts, and nobody has to do anything about, is said.
    worth = [(i, f) for i, f in worth if f.level != "plain" or not f.short or f.short not in answers[i].short]
    order = {"bad": 0, "care": 1, "good": 2, "plain": 3}
    kept = sorted(worth, key=lambda entry: order[entry[1].level])[: MOST_LINES - len(answers)]
    shown: list[str] = []
    for i, answer in enumerate(answers):
        shown.append(f"{answer.question} {answer.short}")
        own = (f for j, f in kept if j == i)
        shown += [f"  - {plain_end(f.what)}.{f' {f.advice}' if f.advice else ''}" for f in own]
    return shown
