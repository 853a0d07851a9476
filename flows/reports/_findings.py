"""Findings that reports of trainings and of classifications share: on skill, on the approximation, on odd objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from flows.reports.data import Classification, Verdict

__all__ = [
    "MUCH_FLAGGED",
    "Answer",
    "Finding",
    "Judged",
    "Level",
    "approximation_finding",
    "begun_small",
    "beyond_finding",
    "odd_headline",
    "plain_end",
    "refusal",
    "skill_finding",
    "strange_findings",
    "worst_level",
]

Level = Literal["good", "care", "bad", "plain"]

MUCH_FLAGGED: Final = 0.01
"""Share of objects unlike the training set from which a report warns of them."""
MUCH_UNLIKE: Final = 0.2
"""Share of objects beyond what the labels cover, from which trust is refused for them before anything else is said."""
FROM_TRUST: Final[dict[str, tuple[Level, str]]] = {
    "green": ("good", "The approximation holds (green)"),
    "amber": ("care", "The approximation has doubts (amber)"),
    "red": ("bad", "The approximation fails (red)"),
}


class Judged(Protocol):
    """What is known of a model's skill and of its approximation."""

    @property
    def has_skill(self) -> bool:
        """Whether the model is known to predict better than the class shares alone."""
        ...

    @property
    def skill_words(self) -> str:
        """The sentence on the model's skill."""
        ...

    @property
    def trust(self) -> Verdict | None:
        """The verdict on the approximation; None where it is not known."""
        ...


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
        return plain_end(self.short) if self.short else begun_small([self.what])


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A question, the answer in one sentence, and what it rests on."""

    question: str
    short: str
    level: Level = "plain"
    findings: tuple[Finding, ...] = ()


def skill_finding(report: Judged) -> Finding:
    """Return whether the model has skill, and what to do if not."""
    if report.has_skill:
        return Finding(what=plain_end(report.skill_words), level="good")
    return Finding(
        what=plain_end(report.skill_words),
        level="bad",
        short="it is not known to predict better than the class shares alone",
        advice="Do not classify with it. Add labels, or features that tell the classes apart.",
    )


def approximation_finding(report: Judged) -> Finding:
    """Return the verdict on the approximation with its reasons, and what to do."""
    if report.trust is None or report.trust.verdict not in FROM_TRUST:
        return Finding(what="It is not known whether the approximation holds", level="care")
    level, words = FROM_TRUST[report.trust.verdict]
    if level == "good" and len(report.trust.reasons) > 1:
        parts = f"card.md beside the model says what was checked in {len(report.trust.reasons)} of its parts"
        return Finding(what=f"{words}; {parts}", level=level, short=begun_small([words]))
    reasons = "; ".join(_in_words(report.trust.reasons))
    advice = {
        "green": "",
        "amber": "Probabilities may be wrong by a few hundredths where data are few. To be sure, train with "
        'posterior = "sampled" under [select] and compare.',
        "red": 'Train with posterior = "sampled" under [select], with fewer features, or with more labels. '
        "Every object carries the flag UNTRUSTED_MODEL.",
    }[report.trust.verdict]
    what = f"{words}{f': {reasons}' if reasons else ''}"
    first = f", because {begun_small(_in_words(report.trust.reasons))}" if report.trust.reasons else ""
    return Finding(what=what, level=level, advice=advice, short=f"{begun_small([words])}{first}")


MOST_REASONS = 3
"""Most reasons of a verdict that a report shows."""


def _in_words(reasons: Sequence[str]) -> list[str]:
    """Return the first reasons, without numbers of design-matrix columns, which a report does not show."""
    others = [reason for reason in reasons if "linear combination" not in reason]
    if len(others) < len(reasons):
        others.append("some basis functions are linear combinations of others")
    more = len(others) - MOST_REASONS
    return others if more < 2 else [*others[:MOST_REASONS], f"and {more} more, in card.md beside the model"]


def refusal(findings: Sequence[Finding]) -> str:
    """Return the beginning of an answer where the findings on skill, approximation or likeness are bad.

    Scores on objects that no fit saw hold for any approximation, so the classes can be used even if it fails.
    """
    skill, approximation, *likeness = (finding.level == "bad" for finding in findings)
    probabilities_alone = approximation and not (skill or any(likeness))
    return "Its classes, yes; its probabilities, not yet" if probabilities_alone else "No"


def beyond_finding(found: Classification) -> Finding | None:
    """Return which large part of a catalogue cannot be trusted, since labels cover nothing like it; None without one.

    `short` begins an answer.
    """
    words = {
        "BEYOND_LABELS": "beyond the range of the labelled objects",
        "OUT_OF_DOMAIN": "unlike the training set",
    }
    large = [flag for flag in found.flags if flag.name in words and flag.share >= MUCH_UNLIKE]
    if not large:
        return None
    most = max(large, key=lambda flag: flag.share)
    return Finding(
        what=f"{most.count:,} of {found.n_rows:,} objects are {words[most.name]}, where the labels say little",
        level="bad",
        advice=f"Label some of them and train again, or audit the output. Without them (flag {most.name}) "
        f"{found.n_rows - most.count:,} objects are left.",
        short=f"Not for {most.share:.0%} of the objects: they are {words[most.name]} ({most.name})",
    )


def strange_findings(found: Classification) -> Iterator[Finding]:
    """Yield what is strange in a catalogue that was classified."""
    shares = {flag.name: flag for flag in found.flags}
    unlike = {
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
    for name, (words, short, advice) in unlike.items():
        flag = shares.get(name)
        if flag is not None and flag.count:
            yield Finding(
                what=f"{flag.count:,} of {found.n_rows:,} objects ({flag.share:.1%}) are {words} ({name})",
                level="care" if flag.share > MUCH_FLAGGED else "plain",
                advice=advice,
                short=f"objects {short} ({flag.share:.1%})",
            )
    if found.drifted:
        yield Finding(
            what=f"Features distributed unlike the training's: {', '.join(found.drifted)}",
            level="care",
            advice="Compare units and sentinels first. If the objects differ, train with this catalogue as [target].",
            short=f"drifted features ({len(found.drifted)})",
        )
    never = [c.name for c in found.counts if not c.assigned]
    if never and found.n_rows:
        expected = ", ".join(f"{c.name} ({c.expected:,.0f} expected)" for c in found.counts if not c.assigned)
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


def worst_level(findings: tuple[Finding, ...]) -> Literal["good", "care", "bad"]:
    """Return the worst level of the findings."""
    levels = {f.level for f in findings}
    return "bad" if "bad" in levels else "care" if "care" in levels else "good"


def begun_small(reasons: list[str]) -> str:
    """Return the first reason as it goes on a sentence."""
    text = plain_end(reasons[0])
    return text[:1].lower() + text[1:]


def plain_end(text: str) -> str:
    """Return a sentence without its full stop."""
    return text.rstrip(" .")
