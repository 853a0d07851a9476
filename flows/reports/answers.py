"""The answers at the beginning of a report: whether to use the model, and the four questions behind that.

Then: what is odd, and what should I look at?  The page and the terminal show the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from flows.models.description import UNDECIDED
from flows.models.shift import TOLD_APART, likeness_words
from flows.reports._findings import (
    MUCH_FLAGGED,
    Answer,
    Finding,
    Level,
    calibrated_answer,
    class_performance,
    computed_answer,
    known_finding,
    odd_headline,
    plain_end,
    strange_findings,
    use_answer,
)
from flows.reports.data import TrainReport, judged_objects

__all__ = ["Answer", "Finding", "answer_lines", "training_answers"]

MOST_LABELS: Final = 5
MOST_SUSPECTS: Final = 4
"""Suspects that are named, in the order of the catalogue's columns."""
MOST_LINES: Final = 10


def training_answers(report: TrainReport) -> tuple[Answer, ...]:
    """Return whether to use a model, the answers to the four questions, what is odd, and what to look at."""
    model, training = report.model, report.model.training
    most = max(training.training_counts, default=0) / max(1, report.n_training)
    four = (
        computed_answer(model.trust),
        calibrated_answer(model.metrics, model.trust),
        known_finding(model.metrics, model.trust, judged_objects(report), most),
        _holds(report),
    )
    unknown = "" if training.shift.difference else " Of objects unlike the labelled ones nothing is known."
    good = f"Yes: its probabilities are computed rightly and know more than the class shares.{unknown}"
    return (use_answer(four, good), *four, _odd(report), _look(report))


def _holds(report: TrainReport) -> Answer:
    """Return whether the model holds for the objects to classify."""
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
    difference, corrected = shift.difference, shift.correction is not None
    if difference is None:
        short = "Not known: no catalogue to classify was named under [target] paths."
    elif difference.auc_low <= TOLD_APART:
        short = f"Yes: the objects of {difference.target.name} look like the labelled ones."
    elif difference.density_weights or corrected:
        short = f"Yes: the objects of {difference.target.name} are unlike the labelled ones, which was corrected for."
    else:
        short = f"With care: the objects of {difference.target.name} are unlike the labelled ones."
        reason = "; ".join(filter(None, (reason, "the target is unlike the training set")))
        findings.append(
            Finding(
                what="Set density_weights under [shift], or class_prior where only the class shares differ",
                level="care",
            )
        )
    level: Level = "care" if reason else "plain" if difference is None else "good"
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
    first = suspects[:MOST_SUSPECTS]
    more = f", and {len(suspects) - len(first)} more" if len(suspects) > len(first) else ""
    return (
        f" Suspects among the features: {', '.join(f'{name} ({why})' for name, why in first)}{more}; leave out what "
        "the objects to classify do not have alike."
    )


def _odd(report: TrainReport) -> Answer:
    findings = (
        *_left_out(report),
        *_never_assigned(report),
        *(f for c in report.classifications for f in strange_findings(c)),
    )
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
            advice="Give them a class under [label] classes, or list them under exclude.",
            short=f"labels of no class ({n:,} objects)",
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
    if labels.conflicts:
        yield Finding(
            what=f"{_have(labels.conflicts)} labels in conflict, and were left out",
            level="care",
            short=f"labels in conflict ({labels.conflicts:,} objects)",
        )
    if labels.disputed:
        yield Finding(
            what=f"Objects whose reviewers differ, so that they count as votes: {labels.disputed:,}",
            level="care",
            advice="Look at them together; the remarks name them.",
            short=f"reviewers who differ ({labels.disputed:,} objects)",
        )
    without = report.metrics.n_unclassified
    if without:
        yield Finding(
            what=f"{without:,} {report.metrics.judged_by} objects have no feature measured: they get the class "
            "shares as probabilities",
            level="care",
            short=f"objects without any feature ({without:,})",
        )


def _have(n: int) -> str:
    return "1 object has" if n == 1 else f"{n:,} objects have"


def _train(n: int) -> str:
    return "trains" if n == 1 else "train"


def _never_assigned(report: TrainReport) -> Iterator[Finding]:
    performance = class_performance(report.metrics.confusion, report.model.classes)
    never = [c.name for c in performance if not c.n_assigned and c.n]
    if never:
        yield Finding(
            what=f"No {report.metrics.judged_by} object is assigned to {', '.join(never)}",
            level="care",
            advice="Count the class by its probabilities, not by assigned objects; or merge it with another.",
            short=f"classes never assigned ({len(never)})",
        )


def _look(report: TrainReport) -> Answer:
    question, objects = "What should I look at?", report.parts.notes.objects
    if objects:
        return Answer(
            question=question,
            short=f"{len(objects)} objects whose labels surprise the model most: a wrong label, or what the "
            "features cannot tell.",
            findings=(Finding(what=f"First {objects[0].name}: {objects[0].why}"),),
        )
    return Answer(question=question, short=f"No objects are named: {_why_none(report)}.")


def _why_none(report: TrainReport) -> str:
    """Return why no object has a label that surprises the model."""
    if report.metrics.accuracy == 1:
        return f"each of the {judged_objects(report)} is assigned to the class of its label, so that none is a surprise"
    if report.parts.pictures is None:
        return "the model is of an earlier version"
    return "the specification names no catalog.id that the catalogue has"


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
