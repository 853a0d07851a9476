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
from blr.trust.verdict import Trust
from catalogs.errors import counted
from catalogs.files import atomic_write_text, check_links, own_folder
from flows.documents import read_document, template, write_document
from flows.errors import DocumentError
from flows.models.description import Metrics
from flows.plots.axes import CLASSES, new_axes, new_panels, readable_feature
from flows.plots.pictures import plot_class_fractions, plot_feature, plot_flagged, plot_sky
from flows.reports._html import TOP, Picture, drawn, linked, made_words, render_page
from flows.reports.answers import (
    MUCH_FLAGGED,
    USE,
    Answer,
    Finding,
    Level,
    answer_lines,
    begun_small,
    beyond_finding,
    judged_answers,
    odd_answer,
    plain_end,
    strange_findings,
    use_answer,
)
from flows.reports.counts import (
    census_findings,
    census_tables,
    census_words,
    class_count_table,
    first_words,
    flag_table,
    set_tables,
)
from flows.reports.data import FeatureComparison, FlaggedByInput, Made, NotableObject, made_now
from flows.reports.report_table import ReportTable, class_words, named
from flows.runs.manifest import REPORT
from flows.runs.results import ClassificationResult, SkyCounts, Summary, drifted


@dataclass(frozen=True, kw_only=True)
class ClassificationReport:
    """What the report of a classification shows: its summary without the files, and how good the model is.

    `quarantined` are files that could not be annotated, and `deferred` those left for the next run, by name, each with
    the reason.  `repeats` are sentences on odd files.  `units` has the expression and the unit
    of each feature, `label_shares` those of the classes among the model's labels.  `files` are their states.
    """

    catalogue: str
    summary: Summary
    trust: Trust
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
    found, odd_features = report.summary, drifted(report.summary.drift)
    most = max(report.label_shares.values(), default=0.0)
    four = (*judged_answers(report.metrics, report.trust, most), _holds(found, odd_features))
    good = "Yes: the probabilities are computed rightly, and these objects look like the labelled ones."
    use, beyond = use_answer(four, good), beyond_finding(found)
    if beyond is not None and four[2].level == "good":
        # Of the others, these are no more known to be unlike than that their features drifted.
        others = four if odd_features else (*four[:3], Answer(question="", short="", level="good"))
        rest = use_answer(others, "yes.").short
        use = replace(use, short=f"{beyond.short}. For the others: {begun_small(rest)}.", level="bad")
    look = "No object is named: none without a label is doubtful, or catalog.id names no column of this catalogue."
    if report.objects:
        look = f"{counted(len(report.objects), 'object')} without a label that would teach the model most. "
        look += "`blr review --budget` draws such."
    look_at = Answer(question="What should I look at?", short=look)
    return (use, *four, _counts(found), _odd(report), look_at)


def use_lines(result: ClassificationResult) -> list[str]:
    """Return whether to use a classification, by its report; of a trial, for which large part of it not."""
    beyond = None if result.summary is None else beyond_finding(result.summary)
    report = None if result.status == "trial" else stored_report(result.out)
    short = "" if beyond is None else f"{beyond.short}."
    use = Answer(question=USE, short=short) if report is None else classification_answers(report)[0]
    return answer_lines([replace(use, findings=() if beyond is None else (beyond,))]) if use.short else []


def _holds(found: Summary, odd_features: Sequence[str]) -> Answer:
    question = "Does it hold for these objects?"
    if found.n_rows and not found.n_classified:
        why = "since no feature is measured or all are outside the selection (UNCLASSIFIABLE)"
        short, reason = f"No: no object has a class, {why}.", "none of these objects has a class"
        return Answer(question=question, short=short, level="bad", reason=reason)
    beyond, flag = beyond_finding(found), found.flags.get("OUT_OF_DOMAIN")
    share = 0.0 if flag is None else flag["share"]
    findings, reason = [] if beyond is None else [beyond], ""
    if odd_features:
        reason = f"these objects are unlike the training set in {', '.join(odd_features)}"
        advice = "Compare units and sentinels; if they are right, train with this catalogue as [target] and"
        advice += " density_weights under [shift]"
        findings.append(Finding(what=advice, level="care"))
    elif share > MUCH_FLAGGED:
        reason = f"{share:.1%} of these objects are unlike the training set (OUT_OF_DOMAIN)"
    elif found.census is not None and found.census.contradicted:
        reason = "the census finds the objects without a label unlike the labelled ones"
        if any(c.source == "audit" for c in found.census.classes.values()):
            reason = "an audit contradicts the model"
    good = f"Yes: no feature drifted, and {share:.1%} of them are unlike the labelled ones (OUT_OF_DOMAIN)."
    level: Level = "care" if reason else "good"
    short = f"With care: {reason}." if reason else good
    return Answer(question=question, short=short, level=level, findings=tuple(findings), reason=reason)


def _counts(found: Summary) -> Answer:
    census, are = found.census, "is" if found.n_rows == 1 else "are"
    known = census is not None and any(c.count is not None for c in census.classes.values())
    if census is not None and known:
        said = f"{census_words(census)}."
    else:
        total = max(1.0, sum(c["expected"] for c in found.classes.values()))
        said = first_words(
            f"{class_words(name)} {c['expected'] / total:.1%}"
            + ("" if c["error"] is None else f" ± {c['error'] / total:.1%}")
            for name, c in found.classes.items()
        )
        said += "." if census is None else ", by sums of probabilities; the true counts are not known."
    short = f"{found.n_classified:,} of {counted(found.n_rows, 'object')} {are} classified: {said}"
    level: Level = "plain" if known or census is None else "care"
    findings = () if census is None else tuple(census_findings(census))
    return Answer(question="How many of each class?", short=short, level=level, findings=findings)


def _odd(report: ClassificationReport) -> Answer:
    findings: list[Finding] = []
    troubled: tuple[tuple[Mapping[str, str], str, Level], ...] = (
        (report.quarantined, "could not be annotated", "bad"),
        (report.deferred, "left for the next run", "care"),
    )
    for files, what, level in troubled:
        short, names = f"{counted(len(files), 'file')} {what}", "The table of files names all."
        for name, why in [*files.items()][:1]:
            words = f"{short}; first {name}: {plain_end(why)}"
            findings.append(Finding(what=words, level=level, short=short, advice=names))
    findings += [Finding(what=plain_end(words), level="care", short="odd files") for words in report.repeats]
    findings += strange_findings(report.summary)
    return odd_answer(findings, "Nothing: every file was annotated, and no object is odd.")


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


def stored_report(folder: Path) -> ClassificationReport | None:
    """Return what the report of a folder shows; None where that is not stored, or by another version."""
    check_links(folder / SHOWN, folder)
    try:
        return read_document(ClassificationReport, folder / SHOWN)
    except (OSError, DocumentError):
        return None


def rewrite_census(folder: Path, census: Census) -> Path | None:
    """Write the report of a folder again, with another census; return where it is.

    None where its content is not stored, or by another version: such a report is not changed.
    """
    report = stored_report(folder)
    if report is None:
        return None
    summary = report.summary.with_census(census)
    write_classification(replace(report, summary=summary, made=made_now()), folder)
    return folder / REPORT


def render_classification(report: ClassificationReport) -> str:
    """Return the report as HTML."""
    name, found = report.catalogue, report.summary
    use, *four, counts, odd, look = classification_answers(report)
    classes: tuple[ReportTable, ...] = (class_count_table(name, found),)
    if found.census is not None:
        # The answer above the census says what it rests on, and why there are no counts where there are none.
        census = census_tables(found.census)
        by_class = replace(census.pop("census"), note="")
        classes = (*([by_class] if by_class.rows else []), *census.values(), *classes)
    files = () if report.files is None else (report.files,)
    groups = {"Flags": [flag_table(name, found)], "Prediction sets": set_tables(name, found), "Files": files}
    examples = [example_table(example) for example in report.examples]
    examples[:-1] = [replace(table, note="") for table in examples[:-1]]
    return render_page(
        title=f"{name}, release {report.release}",
        version=found.model,
        kind="classification report",
        lead=f"{counted(found.n_rows, 'object')}, sorted into {named([*found.classes])} by {found.model}.",
        made=made_words(report.made, report.provenance.get("blr")),
        use=use,
        four=four,
        parts=(replace(counts, tables=classes), odd, replace(look, objects=linked(report.objects))),
        pictures=tuple(_pictures(report)),
        groups=tuple((title, of_group) for title, of_group in groups.items() if of_group),
        last=("Why this class?", tuple(examples)) if examples else None,
        provenance=report.provenance,
    )


MOST_PANELS: Final = 6  # features whose distributions are drawn
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
    shares, interval, bars = [c["expected"] / n for c in classes], None, "Bars sum the probabilities"
    counts = {} if found.census is None else found.census.classes
    ends = [(c.count, c.low, c.high) for c in map(counts.get, names) if c is not None]
    if found.census is not None and len(ends) == len(names) and not any(None in row for row in ends):
        shares, *interval = (np.array(ends, float).T / max(1, found.census.n_rows)).tolist()
        bars = "Bars are the counts of the classes, with 95 % intervals"
    assigned = [c["assigned"] / n for c in classes]
    labelled = [label_shares.get(name, 0.0) for name in names] if label_shares else None
    more = {"interval": interval, "labelled": labelled}
    axes = plot_class_fractions(new_axes(**TOP), names, assigned, shares, known, **more)
    return drawn(axes, "fractions", bars=bars, grey="; grey bars are the labels" if labelled else "")


def _sky(sky: SkyCounts) -> Picture:
    share = np.asarray(sky["flagged"]) / np.maximum(sky["n"], 1)
    look = {"title": "share that needs a look", "colour": CLASSES[3]}
    axes = plot_sky(new_axes(**TOP), sky["pixels"], share, order=sky["order"], percent=True, **look)
    axes.set(xlim=(-3, 3))  # beside the map, so that it is not stretched
    return drawn(axes, "sky")


def _flagged(flagged: FlaggedByInput, units: Units) -> Picture:
    """Return the share of flagged objects by an input of the model, in place of a map of the sky."""
    label, short, inverse = readable_feature(flagged["name"], *units.get(flagged["name"], ("", None)))
    edges = flagged["edges"] if inverse is None else inverse(np.asarray(flagged["edges"]))
    axes = plot_flagged(new_axes(**TOP), edges, flagged["n"], flagged["flagged"], name=label)
    return drawn(axes, "flagged", short=short)


def _features(name: str, features: Sequence[FeatureComparison], units: Units) -> Picture:
    shown = features[:MOST_PANELS]
    panels = new_panels(len(shown), height=2.5 * -(-len(shown) // 3))
    for axes, feature in zip(panels, shown, strict=True):
        label, _, inverse = readable_feature(feature["name"], *units.get(feature["name"], ("", None)))
        counts, ends = (feature["training"], feature["target"]), (feature["low"], feature["high"])
        plot_feature(axes, feature["edges"], *counts, ends=ends, name=label, inverse=inverse)
    left = len(features) - len(shown)
    rest = f" {left} more features are not shown." if left else ""
    return drawn(panels[0], "features", name=name, rest=rest)


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


MOST_FEATURES = 8  # features in the table of an example


def example_table(example: ClassExample) -> ReportTable:
    """Return the table of what favours the class of an example over the runner-up."""
    (of, against), (p, q) = example["classes"], example["probabilities"]
    left = len(example["contributions"]) - MOST_FEATURES
    like = ", ".join(f"{o['identifier'] or 'one without a name'} ({o['name']})" for o in example["nearest"])
    note = (
        "What a feature adds to the logarithm of the class's probability over the runner-up's; +1 makes it 2.7 times "
        "as large, and ± is the uncertainty of the fit. "
    )
    return ReportTable(
        title=f"Why {example['identifier']} is {of} ({p:.1%}) rather than {against} ({q:.1%})",
        columns=("feature", "value", "usual", f"speaks for {of}"),
        rows=tuple(map(contribution_row, example["contributions"][:MOST_FEATURES])),
        numeric=frozenset({1, 2, 3}),
        remark=f"The labelled objects most like it: {like}." if like else "",
        note=note + (f"{left} more features say less. " if left > 0 else "") + "`blr explain` says more.",
    )


def contribution_row(c: FeatureContribution) -> tuple[str, str, str, str]:
    """Return a feature, its value, the usual value and its contribution with its error, as texts."""
    value = "missing" if c["value"] is None else f"{c['value']:.4g}"
    known = c["contribution"] is not None and c["std"] is not None
    speaks = f"{c['contribution']:+.2f} ± {c['std']:.2f}" if known else ""
    return c["name"], value, f"{c['usual']:.4g}", speaks


def explanation_sentences(explained: Explanation) -> list[str]:
    """Return what the numbers say, in words: the class, what moderation changed, what is missing, the flags."""
    flags = "; ".join(f"{flag['name']}, {flag['meaning']}" for flag in explained.flags) or "none"
    if explained.name is None:
        return [f"{explained.identifier} has no class: {flags}."]
    p = {c["name"]: c for c in explained.probabilities}
    of, against = p[explained.name], p[str(explained.runner_up)]
    changed = "Moderation changed the class: t" if of["plugin"] < against["plugin"] else "T"
    answer = (
        f"{explained.identifier} is of class {of['name']} with probability {of['moderated']:.3f}; the runner-up is "
        f"{against['name']} ({against['moderated']:.3f})."
    )
    modes = f"{of['name']} {of['plugin']:.3f} and {against['name']} {against['plugin']:.3f}"
    before = f"{changed}he weights at their mode give {modes}, before their uncertainty and that of what is missing."
    sentences = [answer, before]
    if explained.missing:
        sentences.append(f"Not known of it: {', '.join(explained.missing)}. These were integrated out.")
    sentences.append(f"Flags: {flags}.")
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


CONTRIBUTION = "contribution to the logit, nats"  # column of the contributions
OF_CONTRIBUTIONS = (
    "Contributions are parts of the logit, no probabilities; ± is one standard deviation of the weights."
)
OF_PROBABILITIES = (
    "Plug-in: the weights at their mode. Moderated: the integral over the weights, which the catalogue has. Sampled: "
    "the mean over draws of the weights; its ± is the error of this mean, not how uncertain the class is: the "
    "probability itself says that."
)


def explanation_page(explained: Explanation) -> str:
    """Return the explanation as one HTML page that loads nothing."""
    size = {c["name"]: abs(c["contribution"] or 0.0) for c in explained.contributions}
    largest = max(size.values(), default=0.0) or 1.0
    return template("explanation.html.j2").render(
        explained=explained,
        sentences=explanation_sentences(explained),
        logit=logit_sentence(explained),
        contribution=CONTRIBUTION,
        of_contributions=OF_CONTRIBUTIONS,
        of_probabilities=OF_PROBABILITIES,
        widths={name: 50 * value / largest for name, value in size.items()},
    )
