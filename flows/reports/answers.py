"""The answers at the beginning of a report: what a reader asks first, with reasons and advice.

Can I trust it?  How good is it?  What is new or odd?  What should I look at?  The page and the terminal show the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from flows.reports._findings import (
    MUCH_FLAGGED,
    Answer,
    Finding,
    approximation_finding,
    odd_headline,
    plain_end,
    refusal,
    skill_finding,
    strange_findings,
    worst_level,
)
from flows.reports._per_class import Share, class_performance
from flows.reports.class_words import class_words
from flows.reports.data import TrainReport
from flows.reports.shift import TOLD_APART
from flows.reports.skill import gain_interval

__all__ = ["Answer", "Finding", "answer_lines", "training_answers"]

MOST_LABELS: Final = 5
MOST_SUSPECTS: Final = 4
"""Suspects that are named, in the order of the catalogue's columns."""
MOST_LINES: Final = 10


def training_answers(report: TrainReport) -> tuple[Answer, ...]:
    """Return the answers on a model, in the order in which they are asked."""
    return (_trust(report), _quality(report), _odd(report), _look(report))


def _trust(report: TrainReport) -> Answer:
    asked = (skill_finding(report), approximation_finding(report), _likeness(report))
    suspects = tuple(_suspects(report))
    findings = (*asked, *_leaks(report), *suspects)
    level = worst_level(findings)
    reasons = "; ".join(f.clause for f in findings if f.level == level)
    like = (
        "the target looks like the training set"
        if report.shift.difference
        else "no target was named to compare with"
    )
    short = {
        "good": f"Yes: it has skill, the approximation holds, and {like}.",
        "care": f"Yes, with care: {reasons}.",
        "bad": f"{refusal(asked)}: {reasons}.",
    }[level]
    # In the answer itself, since a terminal has no room for all findings.
    short += "".join(f" Suspects among the features: {finding.clause}." for finding in suspects)
    return Answer(question="Can I trust it?", short=short, level=level, findings=findings)


def _leaks(report: TrainReport) -> Iterator[Finding]:
    if report.leaks:
        yield Finding(
            what=f"The features use {'; and '.join(report.leaks.values())}",
            level="care",
            short=f"features may give the class away ({'; '.join(report.leaks)})",
            advice="Leave such a column out, unless the objects to classify have it too, measured without knowing "
            "the class.",
        )


def _suspects(report: TrainReport) -> Iterator[Finding]:
    if report.suspects:
        first = [*report.suspects.items()][:MOST_SUSPECTS]
        left = len(report.suspects) - len(first)
        more = f", and {left} more" if left else ""
        yield Finding(
            what=f"Suspects: {', '.join(f'{name} ({why})' for name, why in first)}{more}",
            short=f"{', '.join(name for name, _ in first)}{more}",
            level="plain",
            advice="They may tell how the labelled objects were chosen. Leave out what the objects to classify do not "
            "have alike.",
        )


def _likeness(report: TrainReport) -> Finding:
    difference = report.shift.difference
    if difference is None:
        return Finding(
            what="No target catalogue was named, so how like the training set it is, is not known",
            level="plain",
            advice="Name the catalogue to classify under [target] paths.",
        )
    said = (
        f"An object of {difference.target.name} is distinguished from a training one with an AUC of "
        f"{difference.auc:.2f} ({difference.auc_low:.2f} to {difference.auc_high:.2f}; 0.5 is no difference)"
    )
    corrected = difference.density_weights or report.shift.correction is not None
    if difference.auc_low <= TOLD_APART:
        return Finding(what=f"The target looks like the training set. {said}", level="good")
    if corrected:
        return Finding(
            what=f"The target is unlike the training set, which was corrected for. {said}", level="good"
        )
    return Finding(
        what=f"The target is unlike the training set. {said}",
        level="care",
        short="the target is unlike the training set",
        advice="Set density_weights under [shift], or class_prior where only the class shares differ.",
    )


def _quality(report: TrainReport) -> Answer:
    n = report.n_judged
    right = Share.of(round(report.accuracy * n), n)
    gain = 1 - report.log_loss / report.log_loss_baseline
    largest = max((c.training for c in report.labels), default=0) / max(1, report.n_training)
    short = (
        f"{report.accuracy:.1%} of {n:,} {report.judged_objects} are classified right (95 %: {_range(right)}); "
        f"always the most frequent class would be right for {largest:.1%}."
    )
    interval = "" if report.skill is None else f"; the gain is {gain_interval(report.skill)} nats (95 %)"
    loss = Finding(
        what=f"Log loss {report.log_loss:.4f} nats an object, {abs(gain):.0%} {'below' if gain > 0 else 'above'} the "
        f"{report.log_loss_baseline:.4f} of class shares alone{interval}",
        level="good" if report.has_skill else "bad",
    )
    return Answer(question="How good is it?", short=short, findings=(loss, *_class_findings(report)))


def _class_findings(report: TrainReport) -> Iterator[Finding]:
    if not report.confusion:
        yield Finding(
            what="This model is of an earlier version, which did not count right objects class by class"
        )
        return
    performance = class_performance(report.confusion, report.classes)
    known = [c for c in performance if c.completeness.value is not None]
    if known:
        best = max(known, key=lambda c: c.completeness.value or 0.0)
        worst = min(known, key=lambda c: c.completeness.value or 0.0)
        if best.completeness.value == worst.completeness.value:
            yield Finding(what=f"Each class is found equally: completeness {best.completeness.value:.1%}")
            return
        yield Finding(
            what=f"Best found: {class_words(best.name)}, completeness {_percent(best.completeness)}, "
            f"purity {_percent(best.purity)}. "
            f"Worst found: {class_words(worst.name)}, completeness {_percent(worst.completeness)}, "
            f"purity {_percent(worst.purity)}"
        )


def _odd(report: TrainReport) -> Answer:
    findings = (
        *_unlike_target(report),
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


def _unlike_target(report: TrainReport) -> Iterator[Finding]:
    difference = report.shift.difference
    if difference is not None and difference.auc_low > TOLD_APART:
        yield Finding(
            what=f"{difference.target.name} is unlike the training set (AUC {difference.auc:.2f})",
            level="care",
            short=f"a target unlike the training set (AUC {difference.auc:.2f})",
        )


def _left_out(report: TrainReport) -> Iterator[Finding]:
    left = report.left_out
    if left is None:
        return
    if left.unknown_labels:
        n = sum(left.unknown_labels.values())
        # The most frequent first: a stored model has them in the order of their names.
        shown = sorted(left.unknown_labels.items(), key=lambda label: (-label[1], label[0]))[:MOST_LABELS]
        more = ", …" if len(left.unknown_labels) > len(shown) else ""
        yield Finding(
            what=f"{_have(n)} a label that belongs to no class, and {_train(n)} nothing: "
            + ", ".join(f"{name} ({count:,})" for name, count in shown)
            + more,
            level="care" if n > MUCH_FLAGGED * max(1, left.n_selected) else "plain",
            advice="Give them a class under [label] classes, or list them under exclude.",
            short=f"labels of no class ({n:,} objects)",
        )
    if left.unlabelled:
        yield Finding(
            what=f"{_have(left.unlabelled)} no label, and {_train(left.unlabelled)} nothing",
            short=f"objects without a label ({left.unlabelled:,})",
        )
    if left.n_read > left.n_selected:
        outside = left.n_read - left.n_selected
        yield Finding(
            what=f"{outside:,} rows are outside catalog.where",
            short=f"rows outside the selection ({outside:,})",
        )
    if left.conflicts:
        yield Finding(
            what=f"{_have(left.conflicts)} labels in conflict, and were left out",
            level="care",
            short=f"labels in conflict ({left.conflicts:,} objects)",
        )
    if left.disputed:
        yield Finding(
            what=f"Objects whose reviewers differ, so that they count as votes: {left.disputed:,}",
            level="care",
            advice="Look at them together; the remarks name them.",
            short=f"reviewers who differ ({left.disputed:,} objects)",
        )
    if left.without_features:
        yield Finding(
            what=f"{left.without_features:,} {report.judged_by} objects have no feature measured: they get the class "
            "shares as probabilities",
            level="care",
            short=f"objects without any feature ({left.without_features:,})",
        )


def _have(n: int) -> str:
    return "1 object has" if n == 1 else f"{n:,} objects have"


def _train(n: int) -> str:
    return "trains" if n == 1 else "train"


def _never_assigned(report: TrainReport) -> Iterator[Finding]:
    performance = class_performance(report.confusion, report.classes) if report.confusion else ()
    never = [c.name for c in performance if not c.n_assigned and c.n]
    if never:
        yield Finding(
            what=f"No {report.judged_by} object is assigned to {', '.join(never)}",
            level="care",
            advice="Count the class by its probabilities, not by assigned objects; or merge it with another.",
            short=f"classes never assigned ({len(never)})",
        )


def _look(report: TrainReport) -> Answer:
    question = "What should I look at?"
    if report.objects:
        return Answer(
            question=question,
            short=f"{len(report.objects)} objects whose labels surprise the model most: a wrong label, or what the "
            f"features cannot tell. First {report.objects[0].name}: {report.objects[0].why}.",
        )
    return Answer(
        question=question,
        short=f"No objects are named: {_why_none(report)}.",
    )


def _why_none(report: TrainReport) -> str:
    """Return why no object has a label that surprises the model."""
    if report.confusion and not _errors(report):
        return f"each of the {report.judged_objects} is assigned to the class of its label, so that none is a surprise"
    if report.pictures is None:
        return "the model is of an earlier version"
    return "the specification names no catalog.id that the catalogue has"


def _errors(report: TrainReport) -> int:
    """Return the number of judging objects that are assigned to another class than theirs."""
    return sum(n for j, row in enumerate(report.confusion) for k, n in enumerate(row) if j != k)


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


def _range(share: Share) -> str:
    return f"{share.low:.1%} to {share.high:.1%}"


def _percent(share: Share) -> str:
    return "–" if share.value is None else f"{share.value:.1%} ({_range(share)})"
