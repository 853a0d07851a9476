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
from catalogs.errors import counted
from flows.models.description import TOLD_APART, UNDECIDED, Metrics, TrustSummary
from flows.reports.data import NotableObject, TrainReport, likeness_words
from flows.reports.report_table import ReportTable
from flows.runs.results import Counts, Summary, drifted


def share_words(count: int, n: int, *, interval_only: bool = False) -> str:
    """Return the share `count` of `n` objects with Wilson's 95 % interval, or this alone; a dash without objects."""
    low, high = share_interval(count, n, level=0.95)
    ends = f"{low:.1%} to {high:.1%}"
    return ends if interval_only else f"{count / n:.1%} ({ends})" if n else "–"


Level = Literal["good", "care", "bad", "plain"]

MUCH_FLAGGED: Final = 0.01
"""Share of objects unlike the training set from which a report warns of them."""
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


def probability_answers(trust: TrustSummary) -> Iterator[Answer]:
    """Yield whether probabilities are computed rightly, and whether they are those seen on objects that no fit saw."""
    for name, question in (
        ("computed", "Are its probabilities computed rightly?"),
        ("calibrated", "Does 70 % mean 70 %?"),
    ):
        found = trust.answer(name)
        advice, flagged = found.advice[:1].upper() + found.advice[1:], ""
        if name == "computed" and found.colour == "red":
            flagged = " Objects for which it may matter carry the flag UNTRUSTED_MODEL."
        yield Answer(
            question=question,
            short=f"{HEADS[found.colour]}: {found.says}.{flagged}",
            level=LEVELS[found.colour],
            findings=(Finding(what=advice),) if advice else (),
            reason="" if found.colour == "green" else found.says,
        )


def known_finding(metrics: Metrics, trust: TrustSummary, objects: str, most: float) -> Answer:
    """Return whether the model knows more than the class shares; `most` is the share of the most frequent class."""
    right = share_words(round(metrics.accuracy * metrics.n), metrics.n, interval_only=True)
    skilled = trust.answer("known").colour == "green"
    sure = skilled and metrics.skill.is_shown
    than = "to predict better than the class shares alone"
    level: Level
    if sure:
        head, level, reason = "Yes", "good", ""
    elif skilled:
        head, level, reason = "Probably", "care", f"it is not sure {than}"
    else:
        head = "No" if metrics.skill.verdict == "worse" else "Not shown"
        level, reason = "bad", f"it is not known {than}"
    short = (
        f"{head}: it is right for {metrics.accuracy:.1%} of {metrics.n:,} {objects} ({right} at 95 %); always "
        f"naming the most frequent class would be right for {most:.1%}."
    )
    return Answer(
        question="Does it know more than the class shares?",
        short=short,
        level=level,
        findings=tuple(_doubt_findings(metrics, skilled=skilled)),
        reason=reason,
    )


def _doubt_findings(metrics: Metrics, *, skilled: bool) -> Iterator[Finding]:
    """Yield how much of the uncertainty of class shares alone is left, and what to do without skill."""
    base, skill = metrics.log_loss_baseline, metrics.skill
    ends = (
        ""
        if skill.low is None or skill.high is None
        else f" ({skill.low / base:.0%} to {min(1.0, skill.high / base):.0%} at {skill.level:.0%})".replace(
            "-", "−"
        )
    )
    gain, simple = 1 - metrics.log_loss / base, metrics.log_loss_logistic
    beside = ""
    if simple is not None:
        share = f"{1 - simple / base:.0%}".replace("-", "−")
        beside = f"; a logistic regression removes {share}"
    if gain > 0:
        yield Finding(what=f"It removes {gain:.0%}{ends} of the doubt that class shares leave{beside}")
    else:
        yield Finding(what=f"It adds {-gain:.0%} to the doubt that class shares leave")
    if not skilled:
        yield Finding(
            what="Do not classify with it. Add labels, or features that tell the classes apart", level="bad"
        )


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
    return Answer(question="Can I use it?", short=short, level=level)


FEWEST_MARKS: Final = 3
"""Rows with the same number from which it is suspected to stand for no value."""
MOST_MARKS: Final = 4
UNLIKE: Final = {
    "OUT_OF_DOMAIN": (
        "unlike the training set",
        "unlike the training set",
        "Look at them before using their classes.",
    ),
    "BEYOND_LABELS": (
        "beyond the range of the labelled objects",
        "beyond the labelled range",
        "Label some of them.",
    ),
    "UNCLASSIFIABLE": ("without any feature, or outside the selection: no class", "without a class", ""),
}
"""What flags say of objects: in full, in short, and what to do."""


def beyond_finding(found: Counts) -> Finding | None:
    """Return which large part of a catalogue cannot be trusted, since labels cover nothing like it; None without one.

    `short` begins an answer.
    """
    large = {n: found.flags[n] for n in ("BEYOND_LABELS", "OUT_OF_DOMAIN") if n in found.flags}
    name, flag = max(large.items(), key=lambda one: one[1]["share"], default=("", None))
    if flag is None or flag["share"] < MUCH_UNLIKE:
        return None
    words, left = UNLIKE[name][0], found.n_rows - flag["count"]
    return Finding(
        what=f"{flag['count']:,} of {counted(found.n_rows, 'object')} are {words}, where the labels say little",
        level="bad",
        advice=f"Label some of them and train again, or audit the output. Without them (flag {name}) "
        f"{counted(left, 'object')} {'is' if left == 1 else 'are'} left.",
        short=f"Not for {flag['share']:.0%} of the objects: they are {words} ({name})",
    )


def suspected_marks(found: Counts) -> Iterator[Finding]:
    """Yield which numbers of a catalogue may stand for no value, though nobody has said so."""
    marks = {mark: n for mark, n in found.marks.items() if n >= FEWEST_MARKS}
    if marks:
        said = ", ".join(f"{mark} in {n:,}" for mark, n in [*marks.items()][:MOST_MARKS])
        yield Finding(
            what=f"A mark for 'no value'? {said} of the objects that are unlike the labelled ones",
            level="care",
            advice="If so, state it under [target.sentinels] and classify again.",
            short=f"suspected marks for 'no value' ({', '.join([*marks][:MOST_MARKS])})",
        )


def strange_findings(found: Summary) -> Iterator[Finding]:
    """Yield what is strange in a catalogue that was classified."""
    for name, (words, short, advice) in UNLIKE.items():
        flag = found.flags.get(name)
        if flag is not None and flag["count"]:
            yield Finding(
                what=f"{flag['count']:,} of {counted(found.n_rows, 'object')} ({flag['share']:.1%}) are {words} "
                f"({name})",
                level="care" if flag["share"] > MUCH_FLAGGED else "plain",
                advice=advice,
                short=f"objects {short} ({flag['share']:.1%})",
            )
    yield from suspected_marks(found)
    odd = drifted(found.drift)
    if odd:
        said = "; ".join(f"{name} ({found.drift[name].words})" for name in odd)
        yield Finding(
            what=f"Features distributed unlike the training's: {said}",
            level="care",
            short=f"drifted features ({len(odd)})",
        )
    never = {name: c["expected"] for name, c in found.classes.items() if not c["assigned"]}
    if never and found.n_rows:
        expected = ", ".join(f"{name} ({n:,.0f} expected)" for name, n in never.items())
        yield Finding(
            what=f"No object is assigned to {expected}",
            level="care",
            advice="Count such a class by its probabilities, not by assigned objects.",
            short=f"classes never assigned ({len(never)})",
        )


def odd_headline(findings: Sequence[Finding], nothing: str) -> str:
    """Return a sentence that names what needs a look; without any finding, return `nothing`."""
    worth = [f.clause for f in findings if f.level in ("care", "bad")]
    if worth:
        return f"Look at: {', '.join(dict.fromkeys(worth))}."
    if not findings:
        return nothing
    return f"Nothing out of the ordinary. Counted: {', '.join(f.clause for f in findings)}."


def begun_small(text: str) -> str:
    """Return a sentence as it goes on another one."""
    text = plain_end(text)
    return text[:1].lower() + text[1:]


def plain_end(text: str) -> str:
    """Return a sentence without its full stop."""
    return text.rstrip(" .")


MOST_LABELS: Final = 5
MOST_SUSPECTS: Final = 2
"""Suspects that are named, in the order of the catalogue's columns."""
MOST_LINES: Final = 10


def training_answers(report: TrainReport) -> tuple[Answer, ...]:
    """Return whether to use a model, the answers to the four questions, what is odd, and what to look at."""
    model, training = report.model, report.model.training
    most = max(training.training_counts, default=0) / max(1, training.n_training)
    four = (
        *probability_answers(model.trust),
        known_finding(model.metrics, model.trust, report.model.metrics.judged_objects, most),
        _holds(report),
    )
    unknown = "" if training.shift.target else " Of objects unlike the labelled ones nothing is known."
    good = f"Yes: its probabilities are computed rightly and know more than the class shares.{unknown}"
    return (use_answer(four, good), *four, _odd(report), _look(report))


def _holds(report: TrainReport) -> Answer:
    question = "Does it hold for the objects to classify?"
    shift, leaks = report.model.training.shift, report.leaks
    findings = [Finding(what=plain_end(sentence)) for sentence in likeness_words(shift)]
    reason = ""
    if leaks:
        reason = f"features may give the class away ({'; '.join(leaks)})"
        findings.append(
            Finding(
                what=f"The features use {'; and '.join(leaks.values())}",
                level="care",
                advice="Leave such a column out, unless the objects to classify have it too, measured without knowing "
                "the class.",
            )
        )
    target, told_apart = shift.target, shift.auc_low is not None and shift.auc_low > TOLD_APART
    if target is None:
        short = "Not known: the training compared no catalogue to classify; name one under [target] that can be read."
    elif not told_apart:
        short = f"Yes: the objects of {target['name']} look like the labelled ones."
    elif shift.density_weights or shift.class_prior is not None:
        short = f"Yes: the objects of {target['name']} are unlike the labelled ones, which was corrected for."
    else:
        short = f"With care: the objects of {target['name']} are unlike the labelled ones."
        reason = "; ".join(filter(None, (reason, "the target is unlike the training set")))
        findings.append(
            Finding(
                what="Set density_weights under [shift], or class_prior where only the class shares differ",
                level="care",
            )
        )
    level: Level = "care" if reason else "plain" if target is None else "good"
    return Answer(
        question=question,
        short=short + _suspects(report),
        level=level,
        findings=tuple(findings),
        reason=reason,
    )


def _suspects(report: TrainReport) -> str:
    """Return a sentence on features that may tell how objects were chosen.

    It is in the answer itself, since a terminal has no room for all findings.
    """
    suspects = [one for q in report.model.training.quality for one in q.suspects.items()]
    if not suspects:
        return ""
    left = len(suspects) - MOST_SUSPECTS
    said = [f"{name} ({why})" for name, why in suspects[:MOST_SUSPECTS]]
    more = f", and {left} more" if left > 0 else ""
    return f" Suspects: {', '.join(said)}{more}. Leave out what the objects to classify lack or measure otherwise."


def _odd(report: TrainReport) -> Answer:
    findings = (*_left_out(report), *_never_assigned(report))
    return Answer(
        question="What is new or odd?",
        short=odd_headline(findings, "Nothing was left out, and every class is assigned."),
        level="care" if any(f.level in ("care", "bad") for f in findings) else "good",
        findings=findings,
    )


def _left_out(report: TrainReport) -> Iterator[Finding]:
    left, labels = report.model.training, report.model.training.labels
    if left.other_labels:
        n = sum(left.other_labels.values())
        # The most frequent first: a stored model has them in the order of their names.
        shown = sorted(left.other_labels.items(), key=lambda label: (-label[1], label[0]))[:MOST_LABELS]
        more = ", …" if len(left.other_labels) > len(shown) else ""
        yield Finding(
            what=f"{_have(n)} a label that belongs to no class, and {_train(n)} nothing: "
            + ", ".join(f"{name} ({count:,})" for name, count in shown)
            + more,
            level="care" if n > MUCH_FLAGGED * max(1, left.n_selected) else "plain",
            advice="Give them a class under [label] classes; where they say 'not known', list them under exclude.",
            short=f"labels of no class ({counted(n, 'object')})",
        )
    unlabelled = left.unlabelled + left.unknown_labels.get(UNDECIDED, 0)
    if unlabelled:
        yield Finding(
            what=f"{_have(unlabelled)} no label, and {_train(unlabelled)} nothing",
            short=f"objects without a label ({unlabelled:,})",
        )
    if left.n_read > left.n_selected:
        outside = left.n_read - left.n_selected
        yield Finding(
            what=f"{outside:,} rows are outside catalog.where",
            short=f"rows outside the selection ({outside:,})",
        )
    repeated, n_rows = (sum(getattr(q, key) for q in left.quality) for key in ("repeated_rows", "n_rows"))
    if repeated:
        yield Finding(
            what=f"Rows that are in the catalogue twice: {repeated:,} of {n_rows:,}",
            level="care" if repeated > MUCH_FLAGGED * n_rows else "plain",
            advice="Remove them: they count twice, and rows that are left out are known by their doubles.",
            short=f"repeated rows ({repeated:,})",
        )
    if labels.conflicts:
        yield Finding(
            what=f"{_have(labels.conflicts)} labels in conflict: left out",
            level="care",
            short=f"labels in conflict ({counted(labels.conflicts, 'object')})",
        )
    if labels.disputed:
        yield Finding(
            what=f"Objects whose reviewers differ, so that they count as votes: {labels.disputed:,}",
            level="care",
            advice="Look at them together; the remarks name them.",
            short=f"reviewers who differ ({labels.disputed:,} objects)",
        )
    without = report.model.metrics.n_unclassified
    if without:
        yield Finding(
            what=f"{without:,} {report.model.metrics.judged_by} objects have no feature measured: they get the class "
            "shares as probabilities",
            level="care",
            short=f"objects without any feature ({without:,})",
        )


def _have(n: int) -> str:
    return f"{counted(n, 'object')} {'has' if n == 1 else 'have'}"


def _train(n: int) -> str:
    return "trains" if n == 1 else "train"


def _never_assigned(report: TrainReport) -> Iterator[Finding]:
    counts = np.asarray(report.model.metrics.confusion)
    sums = zip(report.model.classes, counts.sum(axis=1), counts.sum(axis=0), strict=True)
    never = [name for name, n, assigned in sums if n and not assigned]
    if never:
        yield Finding(
            what=f"No {report.model.metrics.judged_by} object is assigned to {', '.join(never)}",
            level="care",
            advice="Count such a class by its probabilities, not by assigned objects; or merge it with another.",
            short=f"classes never assigned ({len(never)})",
        )


def _look(report: TrainReport) -> Answer:
    question, objects = "What should I look at?", report.notes.objects
    if objects:
        return Answer(
            question=question,
            short=f"{counted(len(objects), 'object')} whose labels surprise the model most: a wrong label, or what the "
            "features cannot tell.",
            findings=(Finding(what=f"First {objects[0]['name']}: {objects[0]['why']}"),),
        )
    if report.model.metrics.accuracy == 1:
        return Answer(question=question, short="Nothing: each object is assigned to the class of its label.")
    none = "No objects are named: set catalog.id to a column with their names; a trial keeps none."
    return Answer(question=question, short=none)


def answer_lines(answers: Sequence[Answer]) -> list[str]:
    """Return the answers for a terminal in ten lines at most: each question, its answer, and the main finding."""
    lines = [f"{answer.question} {answer.short}" for answer in answers]
    room = MOST_LINES - len(lines)
    worth = [
        (i, finding)
        for i, answer in enumerate(answers)
        for finding in answer.findings
        if finding.what and plain_end(finding.what).lower() not in answer.short.lower()
    ]
    order = {"bad": 0, "care": 1, "good": 2, "plain": 3}
    kept = sorted(sorted(worth, key=lambda entry: order[entry[1].level])[:room], key=lambda entry: entry[0])
    shown: list[str] = []
    for i, line in enumerate(lines):
        shown.append(line)
        shown += [f"  - {plain_end(f.what)}.{f' {f.advice}' if f.advice else ''}" for j, f in kept if j == i]
    return shown
