"""Why an object has its class: what `blr explain` prints, as values and as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from flows.reports.html import template
from flows.reports.report_table import ReportTable


@dataclass(frozen=True, kw_only=True)
class ClassProbabilities:
    """The probabilities of one class, from the weights' mode, from the integral over the weights, and from draws."""

    name: str
    plugin: float
    moderated: float
    sampled: float
    sampled_error: float  # standard error of `sampled`


@dataclass(frozen=True, kw_only=True)
class FeatureContribution:
    """A feature, and what it contributes to the logit of the class against its runner-up, in nats.

    `value` and `usual`, the labelled objects' mean, are in the feature's own unit.  `contribution` and `std` are None
    where the feature is missing; `value` is None then too.
    """

    name: str
    expression: str
    value: float | None
    usual: float
    contribution: float | None
    std: float | None


@dataclass(frozen=True, kw_only=True)
class LikeObject:
    """A labelled object whose features are near; `distance` 1 is that of two labelled objects drawn at random.

    `compared` features are known of both.  `ra` and `dec` are in degrees, None where they are not known.
    """

    identifier: str
    name: str  # of its class
    distance: float
    compared: int
    ra: float | None
    dec: float | None
    links: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RaisedFlag:
    """A flag that the object has: its bit, its name and its meaning."""

    bit: int
    name: str
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why an object has its class.

    `reference` is the logit of a labelled object at the mean of all features.  The sum of it, the contributions and
    `shift`, which other class shares add, is `logit`; its standard deviation is `logit_std`.  All are in nats.  `row`
    counts from 0 in `file`.  An object without any feature, or outside the target's condition, has no probabilities,
    no contributions and no logit.
    """

    model: str
    file: str
    identifier: str
    id_column: str
    row: int
    n_rows: int  # rows with this identifier; the first is explained
    ra: float | None
    dec: float | None
    links: Mapping[str, str]
    name: str | None  # of the class
    runner_up: str | None
    probabilities: tuple[ClassProbabilities, ...]
    logit: float | None
    logit_std: float | None
    reference: float | None
    shift: float | None
    contributions: tuple[FeatureContribution, ...]
    missing: tuple[str, ...]
    flags: tuple[RaisedFlag, ...]
    nearest: tuple[LikeObject, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ClassExample:
    """Why one object of a classification has its class and not the runner-up, in short."""

    identifier: str
    classes: tuple[str, str]
    probabilities: tuple[float, float]
    contributions: tuple[FeatureContribution, ...]  # the largest first
    nearest: tuple[LikeObject, ...]


MOST_FEATURES = 8
"""Features in the table of an example."""


def example_table(example: ClassExample) -> ReportTable:
    """Return the table of what favours the class of an example over the runner-up."""
    (of, against), (p, q) = example.classes, example.probabilities
    shown = example.contributions[:MOST_FEATURES]
    left = len(example.contributions) - len(shown)
    like = ", ".join(f"{o.identifier or 'an object without a name'} ({o.name})" for o in example.nearest)
    return ReportTable(
        title=f"Why {example.identifier} is {of} ({p:.1%}) rather than {against} ({q:.1%})",
        columns=("feature", "value", "usual", f"logit for {of}"),
        rows=tuple(map(contribution_row, shown)),
        numeric=frozenset({1, 2, 3}),
        remark=f"The labelled objects most like it: {like}." if like else "",
        note="Logit: the natural logarithm of the class's probability divided by the runner-up's. A feature speaks for "
        "the class by what the logit gains when it takes the object's value; ± is the uncertainty of the weights. "
        + (f"{left} more features say less. " if left else "")
        + "`blr explain` says more.",
    )


def contribution_row(c: FeatureContribution) -> tuple[str, str, str, str]:
    """Return a feature, its value, the usual value and its contribution with its error, as texts."""
    value = "missing" if c.value is None else f"{c.value:.4g}"
    part = "" if c.contribution is None or c.std is None else f"{c.contribution:+.2f} ± {c.std:.2f}"
    return c.name, value, f"{c.usual:.4g}", part


def explanation_sentences(explained: Explanation) -> list[str]:
    """Return what the numbers say, in words: the class, what moderation changed, what is missing, the flags."""
    if explained.name is None:
        return [f"{explained.identifier} has no class: {_flags(explained)}."]
    p = {c.name: c for c in explained.probabilities}
    of, against = p[explained.name], p[str(explained.runner_up)]
    answer = (
        f"{explained.identifier} is of class {of.name} with probability {of.moderated:.3f}; the runner-up is "
        f"{against.name} ({against.moderated:.3f})."
    )
    sentences = [answer, _moderation(of, against)]
    if explained.missing:
        sentences.append(f"Not known of it: {', '.join(explained.missing)}. These were integrated out.")
    sentences.append(f"Flags: {_flags(explained)}.")
    if explained.n_rows > 1:
        sentences.append(f"{explained.n_rows} rows have this identifier; this is the first.")
    return [*sentences, *explained.remarks]


def logit_sentence(explained: Explanation) -> str:
    """Return what the logit is, and where it comes from: a sentence that nobody reads as one on probabilities."""
    if explained.logit is None or explained.logit_std is None:
        return ""
    mean, low, high = (
        1 / (1 + math.exp(-max(-700.0, explained.logit + s * explained.logit_std))) for s in (0, -1, 1)
    )
    return (
        f"Logit of {explained.name} against {explained.runner_up}, in nats and no probability: "
        f"{explained.logit:+.2f} ± {explained.logit_std:.2f}. Of these two classes alone, a logit of "
        f"{explained.logit:+.2f} is a probability of {mean:.3f}, and one standard deviation of the weights is from "
        f"{low:.3f} to {high:.3f}. The logit is {explained.reference:+.2f} at the mean of the labelled objects; "
        f"{explained.shift:+.2f} are from other class shares, the rest from the features."
    )


CONTRIBUTION = "contribution to the logit, nats"
"""Column of the contributions."""
OF_CONTRIBUTIONS = (
    "Contributions are parts of the logit, no probabilities; ± is one standard deviation of the weights."
)
OF_PROBABILITIES = (
    "Plug-in: the weights at their mode. Moderated: the integral over the weights, which the catalogue has. Sampled: "
    "the mean over draws of the weights; its ± is the error of this mean, not how uncertain the class is: the "
    "probability itself says that."
)


def _moderation(of: ClassProbabilities, against: ClassProbabilities) -> str:
    """Return a sentence on what the uncertainty of the weights changed."""
    moved = of.moderated - of.plugin
    if of.plugin < against.plugin:
        return (
            f"Moderation changed the class: the weights at their mode give {against.name} {against.plugin:.3f} and "
            f"{of.name} {of.plugin:.3f}."
        )
    if abs(moved) < 0.005:
        return f"The weights are well known here: their mode alone gives {of.plugin:.3f} too."
    less = "less" if moved < 0 else "more"
    return (
        f"The weights at their mode give {of.plugin:.3f}; with the uncertainty of the weights, and of what is missing, "
        f"the model is {abs(moved):.3f} {less} sure."
    )


def _flags(explained: Explanation) -> str:
    return "; ".join(f"{flag.name}, {flag.meaning}" for flag in explained.flags) or "none"


def explanation_page(explained: Explanation) -> str:
    """Return the explanation as one HTML page that loads nothing."""
    largest = max((abs(c.contribution or 0.0) for c in explained.contributions), default=0.0)
    return template("explanation.html.j2").render(
        explained=explained,
        sentences=explanation_sentences(explained),
        logit=logit_sentence(explained),
        contribution=CONTRIBUTION,
        of_contributions=OF_CONTRIBUTIONS,
        of_probabilities=OF_PROBABILITIES,
        widths={c.name: 50 * abs(c.contribution or 0.0) / (largest or 1.0) for c in explained.contributions},
    )
