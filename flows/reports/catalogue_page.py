"""The pages of annotated catalogues: the report of a classification, and why an object has its class.

Each is one HTML file that loads nothing from anywhere.  The content of the report is stored beside it.  So a later
census can be added without the model and the catalogues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from typing_extensions import TypedDict

from blr.census.results import Census
from catalogs.errors import counted
from catalogs.files import atomic_write_text, check_links, own_folder
from flows.documents import read_document, write_document
from flows.errors import DocumentError
from flows.models.description import Metrics, TrustSummary
from flows.plots.axes import CLASSES, new_axes, new_panels, readable_feature
from flows.plots.pictures import plot_class_fractions, plot_feature, plot_flagged, plot_sky
from flows.reports import tables
from flows.reports.answers import (
    Answer,
    Finding,
    Level,
    begun_small,
    beyond_finding,
    known_finding,
    odd_headline,
    plain_end,
    probability_answers,
    strange_findings,
    use_answer,
)
from flows.reports.counts import (
    bin_tables,
    census_findings,
    census_table,
    census_words,
    class_count_table,
    counts_said,
    first_words,
    flag_table,
    selection_table,
)
from flows.reports.data import FeatureComparison, FlaggedByInput, Made, NotableObject, made_now
from flows.reports.html import TOP, Picture, drawn, linked, made_words, render_page, template
from flows.reports.report_table import ReportTable, class_words, named
from flows.runs.results import Counts, SkyCounts, Summary, drifted

UNLIKE = 0.01
"""Share of objects out of the domain from which a catalogue is called unlike the training set."""


@dataclass(frozen=True, kw_only=True)
class ClassificationReport:
    """What the report of a classification shows: its summary without the files, and how good the model is.

    `quarantined` are files that could not be annotated, and `deferred` those left for the next run, by name, each with
    the reason.  `repeats` are sentences on odd files.  `units` has the expression and the unit
    of each feature, `label_shares` those of the classes among the model's labels.  `files` are their states.
    """

    catalogue: str
    summary: Summary
    trust: TrustSummary
    metrics: Metrics
    made: Made
    release: int
    sky: SkyCounts | None = None  # None where positions are not known
    flagged: FlaggedByInput | None = None  # None where no object has the input
    features: tuple[FeatureComparison, ...] = ()
    label_shares: Mapping[str, float] = field(default_factory=dict)
    objects: tuple[NotableObject, ...] = ()
    examples: tuple[ClassExample, ...] = ()
    quarantined: Mapping[str, str] = field(default_factory=dict)
    deferred: Mapping[str, str] = field(default_factory=dict)
    repeats: tuple[str, ...] = ()
    units: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    files: ReportTable | None = None


def classification_answers(report: ClassificationReport) -> tuple[Answer, ...]:
    """Return whether to use the classes, four answers on that, the counts, what is odd, and what to look at."""
    found, metrics, odd_features = report.summary, report.metrics, drifted(report.summary.drift)
    most = max(report.label_shares.values(), default=0.0)
    four = (
        *probability_answers(report.trust),
        known_finding(metrics, report.trust, f"{metrics.judged_by} objects", most),
        _holds(found, odd_features),
    )
    good = "Yes: the probabilities are computed rightly, and these objects look like the labelled ones."
    use, beyond = use_answer(four, good), beyond_finding(found)
    if beyond is not None and four[2].level == "good":
        # Of the others, these are no more known to be unlike than that their features drifted.
        others = four if odd_features else (*four[:3], Answer(question="", short="", level="good"))
        rest = use_answer(others, "yes.").short
        use = Answer(
            question=use.question,
            short=f"{beyond.short}. For the others: {begun_small(rest)}.",
            level="bad",
        )
    return (use, *four, _counts(found), _odd(report), _look(report.objects))


def trusted_in_part(found: Counts) -> str:
    """Return for which large part of a catalogue no model of these labels can be trusted, and what to do; or ''."""
    beyond = beyond_finding(found)
    return "" if beyond is None else f"{beyond.short}. {beyond.advice}"


def _holds(found: Summary, odd_features: Sequence[str]) -> Answer:
    question = "Does it hold for these objects?"
    if found.n_rows and not found.n_classified:
        return Answer(
            question=question,
            short="No: no object has a class, since no feature is measured or all are outside the selection "
            "(UNCLASSIFIABLE).",
            level="bad",
            reason="none of these objects has a class",
        )
    beyond, flag = beyond_finding(found), found.flags.get("OUT_OF_DOMAIN")
    unlike = f"{0.0 if flag is None else flag['share']:.1%}"
    findings = [] if beyond is None else [beyond]
    reason = ""
    if odd_features:
        reason = f"these objects are unlike the training set in {', '.join(odd_features)}"
        advice = "Compare units and sentinels; else train with this catalogue as [target]"
        findings.append(Finding(what=advice, level="care"))
    elif flag is not None and flag["share"] > UNLIKE:
        reason = f"{unlike} of these objects are unlike the training set (OUT_OF_DOMAIN)"
    good = f"Yes: no feature drifted, and {unlike} of them are unlike the labelled ones (OUT_OF_DOMAIN)."
    return Answer(
        question=question,
        short=f"With care: {reason}." if reason else good,
        level="care" if reason else "good",
        findings=tuple(findings),
        reason=reason,
    )


def _counts(found: Summary) -> Answer:
    census = found.census
    said = census is not None and counts_said(census)
    classified = (
        f"{found.n_classified:,} of {counted(found.n_rows, 'object')} {'is' if found.n_rows == 1 else 'are'}"
    )
    fractions = census_words(census) if census is not None and said else _summed_words(found)
    return Answer(
        question="How many of each class?",
        short=f"{classified} classified: {fractions}"
        + ("." if census is None or said else ", by sums of probabilities; the true counts are not known."),
        level="care" if census is not None and not said else "plain",
        findings=(*(() if census is None else census_findings(census)),),
    )


def _summed_words(found: Counts) -> str:
    """Return the shares of the classes by sums of probabilities, in a clause."""
    total = max(1.0, sum(c["expected"] for c in found.classes.values()))
    return first_words(
        f"{class_words(name)} {c['expected'] / total:.1%}"
        + ("" if c["error"] is None else f" ± {c['error'] / total:.1%}")
        for name, c in found.classes.items()
    )


def _odd(report: ClassificationReport) -> Answer:
    findings: list[Finding] = []
    troubled: tuple[tuple[Mapping[str, str], str, Level], ...] = (
        (report.quarantined, "could not be annotated", "bad"),
        (report.deferred, "left for the next run", "care"),
    )
    for files, what, level in troubled:
        said = f"{counted(len(files), 'file')} {what}"
        for name, why in [*files.items()][:1]:
            words = f"{said}; first {name}: {plain_end(why)}"
            findings.append(
                Finding(what=words, level=level, short=said, advice="The table of files names all.")
            )
    findings += [Finding(what=plain_end(words), level="care", short="odd files") for words in report.repeats]
    findings += strange_findings(report.summary)
    return Answer(
        question="What is new or odd?",
        short=odd_headline(findings, "Nothing: every file was annotated, and no object is odd."),
        level="care" if any(f.level in ("care", "bad") for f in findings) else "good",
        findings=tuple(findings),
    )


def _look(objects: Sequence[NotableObject]) -> Answer:
    short = (
        f"{counted(len(objects), 'object')} without a label that would teach the model most. `blr review --budget` "
        "draws such."
        if objects
        else "No object is named: none without a label is doubtful, or catalog.id names no column of this catalogue."
    )
    return Answer(question="What should I look at?", short=short)


REPORT: Final = "report.html"
SHOWN: Final = "_report/shown.json"


def write_classification(report: ClassificationReport, folder: Path) -> None:
    """Write the report into the folder of the copies, and what it shows, for `rewrite_census`."""
    shown = folder / SHOWN
    own_folder(shown.parent, folder)
    try:
        write_document(shown, report)
    except ValueError:  # infinity or NaN, which JSON cannot hold
        shown.unlink(missing_ok=True)
    atomic_write_text(folder / REPORT, render_classification(report))


REPORT_KEPT = (
    "report.html shows the previous census: another version wrote it, whose data this one does not read"
)


def rewrite_census(folder: Path, census: Census) -> Path | None:
    """Write the report of a folder again, with another census; return where it is.

    None where its content is not stored, or by another version: such a report is not changed.
    """
    check_links(folder / SHOWN, folder)
    try:
        report = read_document(ClassificationReport, folder / SHOWN)
    except (OSError, DocumentError):
        return None
    summary = report.summary.with_census(census)
    write_classification(replace(report, summary=summary, made=made_now()), folder)
    return folder / REPORT


def render_classification(report: ClassificationReport) -> str:
    """Return the report as HTML."""
    name, found, provenance = report.catalogue, report.summary, report.provenance
    use, *four, counts, odd, look = classification_answers(report)
    sets = tables.set_tables(name, found)
    return render_page(
        title=f"{name}, release {report.release}",
        version=found.model,
        kind="classification report",
        lead=f"{counted(found.n_rows, 'object')}, sorted into {named([*found.classes])} by {found.model}.",
        made=made_words(report.made, provenance.get("blr")),
        use=use,
        four=four,
        parts=(
            replace(counts, tables=(*_census(found), class_count_table(name, found))),
            odd,
            replace(look, objects=linked(report.objects)),
        ),
        pictures=tuple(_pictures(report)),
        groups=(
            ("Flags", (flag_table(name, found),)),
            *([("Prediction sets", sets)] if sets else []),
            *([("Files", (report.files,))] if report.files is not None else []),
        ),
        last=_explained(report.examples),
        provenance=provenance,
    )


MOST_PANELS: Final = 6
"""Features whose distributions are drawn."""
Units = Mapping[str, tuple[str, str | None]]


def _pictures(report: ClassificationReport) -> Iterator[Picture]:
    """Yield the pictures of a catalogue; those of drifted features come first."""
    found = report.summary
    n = sum(c["expected"] for c in found.classes.values())
    if n > 0:
        yield _fractions(found, n, report.label_shares)
    if report.sky is not None and len(report.sky["pixels"]):
        yield _sky(report.sky)
    elif report.flagged is not None:
        yield _flagged(report.flagged, report.units)
    if report.features:
        odd = drifted(found.drift)
        features = sorted(report.features, key=lambda f: f["name"] not in odd)
        yield _features(report.catalogue, features, report.units)


def _fractions(found: Summary, n: float, label_shares: Mapping[str, float]) -> Picture:
    names, classes = [*found.classes], found.classes.values()
    errors = [c["error"] for c in classes]
    known = None if None in errors else [(e or 0.0) / n for e in errors]
    shares, interval = [c["expected"] / n for c in classes], None
    bars = "Bars sum the probabilities"
    ends = None if found.census is None else _census_shares(found.census, names)
    if ends is not None:
        shares, interval = ends[0], ends[1:]
        bars = "Bars are the counts of the classes, with 95 % intervals"
    assigned = [c["assigned"] / n for c in classes]
    labelled = [label_shares.get(name, 0.0) for name in names] if label_shares else None
    axes = plot_class_fractions(
        new_axes(**TOP), names, assigned, shares, known, interval=interval, labelled=labelled
    )
    return drawn(
        axes,
        "How many of each class",
        f"{bars}; circles count the most probable class{'; grey bars are the labels' if labelled else ''}. Where bars "
        "and circles differ, use the bars: circles favour the frequent classes.",
    )


def _census_shares(census: Census, names: Sequence[str]) -> list[list[float]] | None:
    """Return the share of each class (K,) by the census, and the ends of the intervals; None where one is not said."""
    classes = [census.classes[name] for name in names if name in census.classes]
    rows = [(c.count, c.low, c.high) for c in classes]
    if len(rows) < len(names) or any(None in row for row in rows):
        return None
    n = max(1, census.n_rows)
    return [[float(value or 0) / n for value in column] for column in zip(*rows, strict=True)]


def _sky(sky: SkyCounts) -> Picture:
    share = np.asarray(sky["flagged"]) / np.maximum(sky["n"], 1)
    axes = plot_sky(
        new_axes(**TOP),
        sky["pixels"],
        share,
        order=sky["order"],
        title="share that needs a look",
        colour=CLASSES[3],
        percent=True,
    )
    axes.set(xlim=(-3, 3))  # beside the map, so that it is not stretched
    return drawn(
        axes,
        "What needs a look, on the sky",
        "The share of objects whose flags ask for a look; palest where none is flagged; east is left. A patch that "
        "stands out is a problem of the data more often than of the sky.",
    )


def _flagged(flagged: FlaggedByInput, units: Units) -> Picture:
    """Return the share of flagged objects by an input of the model, in place of a map of the sky."""
    label, short, inverse = readable_feature(flagged["name"], *units.get(flagged["name"], ("", None)))
    edges, n, n_flagged = np.asarray(flagged["edges"]), flagged["n"], flagged["flagged"]
    shown = edges if inverse is None else np.asarray(inverse(edges), float)
    axes = plot_flagged(new_axes(**TOP), shown, n, n_flagged, name=label)
    return drawn(
        axes,
        f"What needs a look, by {short}",
        "The share of objects whose flags ask for a look, with 95 % intervals; dashed: of all. Each bar spans a "
        "tenth of the labelled objects or more; paler: beyond the labelled objects, or without a value.",
    )


def _features(name: str, features: Sequence[FeatureComparison], units: Units) -> Picture:
    shown = features[:MOST_PANELS]
    panels = new_panels(len(shown), height=2.5 * -(-len(shown) // 3))
    for axes, feature in zip(panels, shown, strict=True):
        label, _, inverse = readable_feature(feature["name"], *units.get(feature["name"], ("", None)))
        plot_feature(
            axes,
            feature["edges"],
            feature["training"],
            feature["target"],
            ends=(feature["low"], feature["high"]),
            name=label,
            inverse=inverse,
        )
    left = len(features) - len(shown)
    return drawn(
        panels[0],
        "Features: training against target",
        f"Grey: the labelled objects; blue: {name}. Where blue rises where there is no grey, the labels "
        f"say nothing.{f' {left} more features are not shown.' if left else ''}",
        wide=True,
    )


def _census(found: Summary) -> tuple[ReportTable, ...]:
    if found.census is None:
        return ()
    selections = selection_table(found.census)
    return (
        replace(census_table(found.census), note=""),  # the answer above it says what it rests on
        *([selections] if selections.rows else []),
        *bin_tables(found.census),
    )


def _explained(examples: Sequence[ClassExample]) -> tuple[str, tuple[ReportTable, ...]] | None:
    """Return the group of examples, their note once; None without any."""
    if not examples:
        return None
    *first, last = (example_table(e) for e in examples)
    return "Why this class?", (*(replace(t, note="") for t in first), last)


class ClassProbabilities(TypedDict):
    """The probabilities of one class, from the weights' mode, from the integral over the weights, and from draws."""

    name: str
    plugin: float
    moderated: float
    sampled: float
    sampled_error: float  # standard error of `sampled`


class FeatureContribution(TypedDict):
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


class LikeObject(TypedDict):
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


class RaisedFlag(TypedDict):
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


class ClassExample(TypedDict):
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
    (of, against), (p, q) = example["classes"], example["probabilities"]
    shown = example["contributions"][:MOST_FEATURES]
    left = len(example["contributions"]) - len(shown)
    like = ", ".join(
        f"{o['identifier'] or 'an object without a name'} ({o['name']})" for o in example["nearest"]
    )
    return ReportTable(
        title=f"Why {example['identifier']} is {of} ({p:.1%}) rather than {against} ({q:.1%})",
        columns=("feature", "value", "usual", f"speaks for {of}"),
        rows=tuple(map(contribution_row, shown)),
        numeric=frozenset({1, 2, 3}),
        remark=f"The labelled objects most like it: {like}." if like else "",
        note="What a feature adds to the logarithm of the class's probability over the runner-up's; +1 makes it "
        "2.7 times as large, and ± is the uncertainty of the fit. "
        + (f"{left} more features say less. " if left else "")
        + "`blr explain` says more.",
    )


def contribution_row(c: FeatureContribution) -> tuple[str, str, str, str]:
    """Return a feature, its value, the usual value and its contribution with its error, as texts."""
    value = "missing" if c["value"] is None else f"{c['value']:.4g}"
    part = (
        "" if c["contribution"] is None or c["std"] is None else f"{c['contribution']:+.2f} ± {c['std']:.2f}"
    )
    return c["name"], value, f"{c['usual']:.4g}", part


def explanation_sentences(explained: Explanation) -> list[str]:
    """Return what the numbers say, in words: the class, what moderation changed, what is missing, the flags."""
    if explained.name is None:
        return [f"{explained.identifier} has no class: {_flags(explained)}."]
    p = {c["name"]: c for c in explained.probabilities}
    of, against = p[explained.name], p[str(explained.runner_up)]
    answer = (
        f"{explained.identifier} is of class {of['name']} with probability {of['moderated']:.3f}; the runner-up is "
        f"{against['name']} ({against['moderated']:.3f})."
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
    if explained.logit is None:
        return ""
    return (
        f"Logit of {explained.name} against {explained.runner_up}, in nats and no probability: "
        f"{explained.logit:+.2f} ± {explained.logit_std:.2f}. It is {explained.reference:+.2f} at the mean of the "
        f"labelled objects; {explained.shift:+.2f} are from other class shares, the rest from the features."
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
    changed = "Moderation changed the class: t" if of["plugin"] < against["plugin"] else "T"
    return (
        f"{changed}he weights at their mode give {of['name']} {of['plugin']:.3f} and {against['name']} "
        f"{against['plugin']:.3f}, before their uncertainty and that of what is missing."
    )


def _flags(explained: Explanation) -> str:
    return "; ".join(f"{flag['name']}, {flag['meaning']}" for flag in explained.flags) or "none"


def explanation_page(explained: Explanation) -> str:
    """Return the explanation as one HTML page that loads nothing."""
    largest = max((abs(c["contribution"] or 0.0) for c in explained.contributions), default=0.0)
    return template("explanation.html.j2").render(
        explained=explained,
        sentences=explanation_sentences(explained),
        logit=logit_sentence(explained),
        contribution=CONTRIBUTION,
        of_contributions=OF_CONTRIBUTIONS,
        of_probabilities=OF_PROBABILITIES,
        widths={
            c["name"]: 50 * abs(c["contribution"] or 0.0) / (largest or 1.0) for c in explained.contributions
        },
    )
