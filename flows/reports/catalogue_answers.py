"""The answers that the report of a classification opens with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.reports._findings import (
    Answer,
    Finding,
    approximation_finding,
    begun_small,
    beyond_finding,
    odd_headline,
    plain_end,
    refusal,
    skill_finding,
    strange_findings,
    worst_level,
)
from flows.reports.census import census_findings, census_words, counts_said
from flows.reports.class_words import class_words
from flows.reports.data import Classification, Verdict
from flows.reports.picture_data import NotableObject

__all__ = ["ClassifyingModel", "ReleaseTroubles", "classification_answers", "trusted_in_part"]

UNLIKE = 0.01
"""Share of objects out of the domain from which a catalogue is called unlike the training set."""


@dataclass(frozen=True, kw_only=True)
class ClassifyingModel:
    """What a report says of the model that classified a catalogue."""

    label: str
    has_skill: bool
    skill_words: str
    trust: Verdict | None
    accuracy: float
    log_loss: float
    judged_objects: str


@dataclass(frozen=True, kw_only=True)
class ReleaseTroubles:
    """Files that could not be annotated, and files left for the next run, by name, each with the reason.

    `repeats` are sentences on files that have objects in common.
    """

    quarantined: Mapping[str, str]
    deferred: Mapping[str, str]
    repeats: tuple[str, ...] = ()


def classification_answers(
    found: Classification,
    model: ClassifyingModel,
    objects: Sequence[NotableObject],
    troubles: ReleaseTroubles,
) -> tuple[Answer, ...]:
    """Return the answers on what a model found in catalogues, in the order in which they are asked."""
    return (_trust(found, model), _quality(found, model), _odd(found, troubles), _look(objects))


def _trust(found: Classification, model: ClassifyingModel) -> Answer:
    question, beyond = "Can I trust it?", beyond_finding(found)
    findings = (skill_finding(model), approximation_finding(model), _likeness(found))
    if beyond is None or not model.has_skill:
        return Answer(
            question=question, short=_short(findings), level=worst_level(findings), findings=findings
        )
    # Of the others, these are no more known to be unlike than that their features drifted.
    others = findings if found.drifted else findings[:2]
    rest = "yes" if worst_level(others) == "good" else begun_small([_short(others)])
    short = f"{beyond.short}. For the others: {rest}."
    return Answer(question=question, short=short, level="bad", findings=(beyond, *findings))


def trusted_in_part(found: Classification) -> str:
    """Return for which large part of a catalogue no model of these labels can be trusted, and what to do; or ''."""
    beyond = beyond_finding(found)
    return "" if beyond is None else f"{beyond.short}. {beyond.advice}"


def _short(findings: tuple[Finding, ...]) -> str:
    """Return the answer that the findings on skill, approximation and likeness give."""
    level = worst_level(findings)
    reasons = "; ".join(f.clause for f in findings if f.level == level)
    return {
        "good": "Yes: the model has skill, its approximation holds, and these objects look like its training set.",
        "care": f"Yes, with care: {reasons}.",
        "bad": f"{refusal(findings)}: {reasons}.",
    }[level]


def _likeness(found: Classification) -> Finding:
    unlike = next((flag.share for flag in found.flags if flag.name == "OUT_OF_DOMAIN"), 0.0)
    if found.drifted:
        return Finding(
            what=f"These objects are unlike the training set in {', '.join(found.drifted)}",
            level="care",
            advice="The quality below is of objects like the labelled ones. Compare units and sentinels; else train "
            "with this catalogue as [target].",
        )
    if unlike > UNLIKE:
        return Finding(what=f"{unlike:.1%} of these objects are unlike the training set", level="care")
    return Finding(
        what=f"These objects look like the training set: no feature drifted, and {unlike:.1%} are out of its domain",
        level="good",
    )


def _quality(found: Classification, model: ClassifyingModel) -> Answer:
    n = found.n_rows if found.n_classified is None else found.n_classified
    census = found.census
    findings = (
        Finding(
            what=f"The model classified {model.accuracy:.1%} of its {model.judged_objects} right, with a log loss of "
            f"{model.log_loss:.4f} nats an object",
            level="good" if model.has_skill else "bad",
        ),
        *(() if census is None else census_findings(census)),
    )
    counted = census is not None and counts_said(census)
    fractions = census_words(census) if census is not None and counted else _summed_words(found)
    return Answer(
        question="How good is it?",
        short=f"{n:,} of {found.n_rows:,} objects are classified: {fractions}"
        + (
            "." if census is None or counted else ", by sums of probabilities; the true counts are not known."
        ),
        level="care" if census is not None and not counted else "plain",
        findings=findings,
    )


def _summed_words(found: Classification) -> str:
    """Return the shares of the classes by sums of probabilities, in a clause."""
    total = max(1.0, sum(c.expected for c in found.counts))
    return ", ".join(
        f"{class_words(c.name)} {c.expected / total:.1%}"
        + ("" if c.error is None else f" ± {c.error / total:.1%}")
        for c in found.counts
    )


def _odd(found: Classification, troubles: ReleaseTroubles) -> Answer:
    files = [
        Finding(
            what=f"{name} could not be annotated: {plain_end(why)}",
            level="bad",
            short=f"files that could not be annotated ({len(troubles.quarantined):,})",
        )
        for name, why in troubles.quarantined.items()
    ]
    files += [
        Finding(
            what=f"{name} is left for the next run: {plain_end(why)}",
            level="care",
            short=f"files left for the next run ({len(troubles.deferred):,})",
        )
        for name, why in troubles.deferred.items()
    ]
    files += [
        Finding(what=plain_end(words), level="care", short="objects that are in two files")
        for words in troubles.repeats
    ]
    odd = (*files, *strange_findings(found))
    return Answer(
        question="What is new or odd?",
        short=odd_headline(odd, "Nothing: every file was annotated, and no object is odd."),
        level="care" if any(f.level in ("care", "bad") for f in odd) else "good",
        findings=(*files[:MOST_FILES], *_more(files), *odd[len(files) :]),
    )


MOST_FILES = 8


def _more(files: Sequence[Finding]) -> tuple[Finding, ...]:
    left = len(files) - MOST_FILES
    return (Finding(what=f"And {left:,} more files", level="care"),) if left > 0 else ()


def _look(objects: Sequence[NotableObject]) -> Answer:
    question = "What should I look at?"
    if objects:
        return Answer(
            question=question,
            short=f"{len(objects)} objects without a label that would teach the model most. `blr review --budget` "
            f"draws such. First {objects[0].name}: {objects[0].why}.",
        )
    return Answer(
        question=question,
        short="No object is named: none without a label is doubtful, or the specification names no catalog.id that "
        "this catalogue has.",
    )
