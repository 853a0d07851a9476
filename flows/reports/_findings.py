"""What a report finds: sentences on the classes, the labels and the catalogue, the gravest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from blr.calibration import share_interval
from blr.trust.verdict import TrustAnswer
from flows.models.description import Metrics, TrustSummary
from flows.models.skill import has_skill
from flows.reports.data import Classification

__all__ = [
    "MUCH_FLAGGED",
    "Answer",
    "ClassPerformance",
    "Finding",
    "Level",
    "Share",
    "begun_small",
    "beyond_finding",
    "calibrated_answer",
    "class_performance",
    "computed_answer",
    "known_finding",
    "odd_headline",
    "plain_end",
    "strange_findings",
    "use_answer",
    "worst_level",
]

# Completeness and purity of each class, with intervals, from the objects that judge a model.

LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share of some objects with its 95 % interval; `value` is None where there are no such objects."""

    value: float | None
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, count: int, n: int) -> Share:
        """Return the share `count` of `n` objects, with Wilson's interval."""
        low, high = share_interval(count, n, level=LEVEL)
        return cls(value=count / n if n else None, low=float(low), high=float(high), n=n)

    @property
    def range(self) -> str:
        """The interval in words."""
        return f"{self.low:.1%} to {self.high:.1%}"

    def __str__(self) -> str:
        """Return the share with its interval."""
        return "–" if self.value is None else f"{self.value:.1%} ({self.range})"


@dataclass(frozen=True, kw_only=True)
class ClassPerformance:
    """One class: its share of the objects, its completeness, and the purity of the objects that are assigned to it.

    Guesses by class shares alone would have the `share` as completeness and as purity.
    """

    name: str
    n: int
    n_assigned: int
    share: float
    completeness: Share
    purity: Share


def class_performance(
    confusion: Sequence[Sequence[int]], classes: Sequence[str]
) -> tuple[ClassPerformance, ...]:
    """Return the performance on each class, of the counts (K, K) by class and by assigned class; none without."""
    if not confusion:  # a model of an earlier version
        return ()
    counts = np.asarray(confusion, dtype=np.int64).reshape(len(classes), len(classes))
    total = max(1, int(counts.sum()))
    return tuple(
        ClassPerformance(
            name=name,
            n=int(counts[k].sum()),
            n_assigned=int(counts[:, k].sum()),
            share=float(counts[k].sum() / total),
            completeness=Share.of(int(counts[k, k]), int(counts[k].sum())),
            purity=Share.of(int(counts[k, k]), int(counts[:, k].sum())),
        )
        for k, name in enumerate(classes)
    )


# The answers that reports of trainings and of classifications share, and what they are made of.
#
# Four questions decide whether probabilities may be used: whether they are computed rightly, calibrated, better than
# the class shares, and valid for the objects to classify.  Words here are those of an astronomer; the last section of a
# report has the statistician's.

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
        return plain_end(self.short) if self.short else begun_small([self.what])


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A question, the answer in one sentence, and what it rests on; `reason` is a bad one in a clause."""

    question: str
    short: str
    level: Level = "plain"
    findings: tuple[Finding, ...] = ()
    reason: str = ""


LEVELS: Final[dict[str, Level]] = {"green": "good", "amber": "care", "red": "bad"}
"""Level of an answer by its colour."""
HEADS: Final = {"green": "Yes", "amber": "Not surely", "red": "No"}


def computed_answer(trust: TrustSummary) -> Answer:
    """Return whether the probabilities are computed rightly."""
    question, found = "Are its probabilities computed rightly?", trust.answer("computed")
    if found is None:
        said = "it is not known whether its probabilities are computed rightly"
        return Answer(question=question, short="Not known.", level="care", reason=said)
    flagged = (
        " Objects for which it may matter carry the flag UNTRUSTED_MODEL." if found.colour == "red" else ""
    )
    return _answered(question, found, f"{HEADS[found.colour]}: {found.says}.{flagged}")


def calibrated_answer(metrics: Metrics, trust: TrustSummary) -> Answer:
    """Return whether stated probabilities are those seen on objects that no fit saw."""
    question, found, bins = "Does 70 % mean 70 %?", trust.answer("calibrated"), metrics.reliability
    if found is None:
        agree = sum(b.low <= b.predicted <= b.high for b in bins)
        seen = (
            f"In {agree} of {len(bins)} groups of objects the share seen agrees with the probability that it states "
            "(90 % intervals; by chance, one in ten does not). "
            f"They differ by {metrics.calibration_error:.1%} on average."
        )
        return Answer(question=question, short=seen)
    return _answered(question, found, f"{HEADS[found.colour]}: {found.says}.")


def _answered(question: str, found: TrustAnswer, short: str) -> Answer:
    advice = (Finding(what=_capital(found.advice)),) if found.advice else ()
    return Answer(
        question=question,
        short=short,
        level=LEVELS[found.colour],
        findings=advice,
        reason="" if found.colour == "green" else found.says,
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def known_finding(metrics: Metrics, trust: TrustSummary, objects: str, most: float) -> Answer:
    """Return whether the model knows more than the class shares; `most` is the share of the most frequent class."""
    right = Share.of(round(metrics.accuracy * metrics.n), metrics.n)
    found = trust.answer("known")
    if found is None:
        skilled = has_skill(metrics.skill, log_loss=metrics.log_loss, baseline=metrics.log_loss_baseline)
    else:
        skilled = found.colour == "green"
    worse = metrics.skill is not None and metrics.skill.verdict == "worse"
    head = "Yes" if skilled else "No" if worse or metrics.skill is None else "Not shown"
    short = (
        f"{head}: it is right for {metrics.accuracy:.1%} of {metrics.n:,} {objects} ({right.range} at 95 %); always "
        f"naming the most frequent class would be right for {most:.1%}."
    )
    return Answer(
        question="Does it know more than the class shares?",
        short=short,
        level="good" if skilled else "bad",
        findings=tuple(_doubt_findings(metrics, skilled=skilled)),
        reason="" if skilled else "it is not known to predict better than the class shares alone",
    )


def _doubt_findings(metrics: Metrics, *, skilled: bool) -> Iterator[Finding]:
    """Yield how much of the uncertainty of class shares alone is left, and what to do without skill."""
    base, skill = metrics.log_loss_baseline, metrics.skill
    ends = (
        ""
        if skill is None or skill.low is None or skill.high is None
        else f" ({skill.low / base:.0%} to {skill.high / base:.0%} at {skill.level:.0%})".replace("-", "−")
    )
    gain, simple = 1 - metrics.log_loss / base, metrics.log_loss_logistic
    beside = ""
    if simple is not None:
        share = f"{1 - simple / base:.0%}".replace("-", "−")
        beside = f"; a cross-validated logistic regression on the same objects removes {share}"
    if gain > 0:
        yield Finding(what=f"It removes {gain:.0%}{ends} of the doubt that class shares alone leave{beside}")
    else:
        yield Finding(what=f"It adds {-gain:.0%} to the doubt that class shares alone leave")
    if not skilled:
        yield Finding(
            what="Do not classify with it. Add labels, or features that tell the classes apart", level="bad"
        )


def use_answer(answers: Sequence[Answer], good: str) -> Answer:
    """Return whether to use a model, from the answers to the questions: computed, calibrated, more known, holds."""
    level = worst_level([answer.level for answer in answers])
    reasons = "; ".join(answer.reason for answer in answers if answer.level == level and answer.reason)
    computed, _, known, holds = answers
    # Scores on objects that no fit saw hold for any approximation: the classes can be used even if it fails.
    alone = computed.level == "bad" and "bad" not in (known.level, holds.level)
    refused = "Its classes, yes; its probabilities, not yet" if alone else "No"
    short = {"good": good, "care": f"Yes, with care: {reasons}.", "bad": f"{refused}: {reasons}."}[level]
    return Answer(question="Can I use it?", short=short, level=level)


def beyond_finding(found: Classification) -> Finding | None:
    """Return which large part of a catalogue cannot be trusted, since labels cover nothing like it; None without one.

    `short` begins an answer.
    """
    words = {
        "BEYOND_LABELS": "beyond the range of the labelled objects",
        "OUT_OF_DOMAIN": "unlike the training set",
    }
    large = {name: found.flags[name] for name in words if name in found.flags}
    name, flag = max(large.items(), key=lambda one: one[1].share, default=("", None))
    if flag is None or flag.share < MUCH_UNLIKE:
        return None
    return Finding(
        what=f"{flag.count:,} of {found.n_rows:,} objects are {words[name]}, where the labels say little",
        level="bad",
        advice=f"Label some of them and train again, or audit the output. Without them (flag {name}) "
        f"{found.n_rows - flag.count:,} objects are left.",
        short=f"Not for {flag.share:.0%} of the objects: they are {words[name]} ({name})",
    )


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


def strange_findings(found: Classification) -> Iterator[Finding]:
    """Yield what is strange in a catalogue that was classified."""
    for name, (words, short, advice) in UNLIKE.items():
        flag = found.flags.get(name)
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
            short=f"drifted features ({len(found.drifted)})",
        )
    never = {name: c.expected for name, c in found.classes.items() if not c.assigned}
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


def worst_level(levels: Sequence[Level]) -> Literal["good", "care", "bad"]:
    """Return the worst of some levels."""
    return "bad" if "bad" in levels else "care" if "care" in levels else "good"


def begun_small(reasons: list[str]) -> str:
    """Return the first reason as it goes on a sentence."""
    text = plain_end(reasons[0])
    return text[:1].lower() + text[1:]


def plain_end(text: str) -> str:
    """Return a sentence without its full stop."""
    return text.rstrip(" .")
