"""The answers that the report of a classification opens with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.models.description import Metrics, TrustSummary
from flows.reports._findings import (
    Answer,
    Finding,
    begun_small,
    beyond_finding,
    calibrated_answer,
    computed_answer,
    known_finding,
    odd_headline,
    plain_end,
    strange_findings,
    use_answer,
)
from flows.reports.census import census_findings, census_words, counts_said
from flows.reports.data import Classification, NotableObject
from flows.reports.report_table import class_words

__all__ = ["ClassifyingModel", "ReleaseTroubles", "classification_answers", "trusted_in_part"]

UNLIKE = 0.01
"""Share of objects out of the domain from which a catalogue is called unlike the training set."""


@dataclass(frozen=True, kw_only=True)
class ClassifyingModel:
    """What a report needs of the model that classified a catalogue."""

    label: str
    trust: TrustSummary
    metrics: Metrics


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
    """Return whether to use the classes, four answers on that, the counts, what is odd, and what to look at."""
    metrics = model.metrics
    most = max(found.label_shares.values(), default=0.0)
    four = (
        computed_answer(model.trust),
        calibrated_answer(metrics, model.trust),
        known_finding(metrics, model.trust, f"{metrics.judged_by} objects", most),
        _holds(found),
    )
    good = "Yes: the probabilities are computed rightly, and these objects look like the labelled ones."
    use, beyond = use_answer(four, good), beyond_finding(found)
    if beyond is not None and four[2].level == "good":
        # Of the others, these are no more known to be unlike than that their features drifted.
        others = four if found.drifted else (*four[:3], Answer(question="", short="", level="good"))
        rest = use_answer(others, "yes.").short
        use = Answer(
            question=use.question,
            short=f"{beyond.short}. For the others: {begun_small([rest])}.",
            level="bad",
        )
    return (use, *four, _counts(found), _odd(found, troubles), _look(objects))


def trusted_in_part(found: Classification) -> str:
    """Return for which large part of a catalogue no model of these labels can be trusted, and what to do; or ''."""
    beyond = beyond_finding(found)
    return "" if beyond is None else f"{beyond.short}. {beyond.advice}"


def _holds(found: Classification) -> Answer:
    """Return whether the model holds for these objects."""
    question, beyond = "Does it hold for these objects?", beyond_finding(found)
    flag = found.flags.get("OUT_OF_DOMAIN")
    unlike = 0.0 if flag is None else flag.share
    findings = () if beyond is None else (beyond,)
    if found.drifted:
        reason = f"these objects are unlike the training set in {', '.join(found.drifted)}"
        advice = Finding(
            what="Compare units and sentinels; else train with this catalogue as [target]", level="care"
        )
        short = f"With care: they are unlike the labelled ones in {', '.join(found.drifted)}."
        return Answer(
            question=question, short=short, level="care", findings=(*findings, advice), reason=reason
        )
    if unlike > UNLIKE:
        reason = f"{unlike:.1%} of these objects are unlike the training set"
        short = f"With care: {unlike:.1%} of them are unlike the labelled ones (OUT_OF_DOMAIN)."
        return Answer(question=question, short=short, level="care", findings=findings, reason=reason)
    short = f"Yes: no feature drifted, and {unlike:.1%} of them are unlike the labelled ones (OUT_OF_DOMAIN)."
    return Answer(question=question, short=short, level="good", findings=findings)


def _counts(found: Classification) -> Answer:
    """Return how many objects of each class there are, and what that rests on."""
    census = found.census
    counted = census is not None and counts_said(census)
    fractions = census_words(census) if census is not None and counted else _summed_words(found)
    return Answer(
        question="How many of each class?",
        short=f"{found.n_classified:,} of {found.n_rows:,} objects are classified: {fractions}"
        + (
            "." if census is None or counted else ", by sums of probabilities; the true counts are not known."
        ),
        level="care" if census is not None and not counted else "plain",
        findings=() if census is None else census_findings(census),
    )


def _summed_words(found: Classification) -> str:
    """Return the shares of the classes by sums of probabilities, in a clause."""
    total = max(1.0, sum(c.expected for c in found.classes.values()))
    return ", ".join(
        f"{class_words(name)} {c.expected / total:.1%}"
        + ("" if c.error is None else f" ± {c.error / total:.1%}")
        for name, c in found.classes.items()
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
            "draws such.",
        )
    return Answer(
        question=question,
        short="No object is named: none without a label is doubtful, or the specification names no catalog.id that "
        "this catalogue has.",
    )
