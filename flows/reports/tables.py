"""The report's tables, made once and rendered three ways: HTML (the template), terminal (rich), Markdown.

A cell is text that may come from a catalogue or a specification, so every renderer takes it literally.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from catalogs.profile.split import SplitSummary
from flows.reports._check_table import check_tables
from flows.reports._per_class import Share, class_performance
from flows.reports.answers import training_answers
from flows.reports.choice import choice_words, feature_set
from flows.reports.data import Classification, Review, TrainReport
from flows.reports.report_table import ReportTable, printable
from flows.reports.skill import gain_interval
from flows.reports.terminal_table import to_rich

__all__ = [
    "ReportTable",
    "candidate_table",
    "check_tables",
    "class_count_table",
    "class_tables",
    "feature_table",
    "flag_table",
    "label_table",
    "literal",
    "markdown_report",
    "performance_table",
    "report_tables",
    "review_table",
    "set_tables",
    "split_words",
    "to_markdown",
    "to_rich",
]


def report_tables(report: TrainReport) -> tuple[ReportTable, ...]:
    """Return every table of a report, in reading order."""
    return (
        label_table(report),
        feature_table(report),
        candidate_table(report),
        *check_tables(report),
        performance_table(report),
        *class_tables(report),
        review_table(report),
        *(table(c) for c in report.classifications for table in (class_count_table, flag_table)),
        *(table for c in report.classifications for table in set_tables(c)),
    )


def label_table(report: TrainReport) -> ReportTable:
    """Return the labelled rows of each class."""
    total = max(1, report.n_training)
    rows = [
        (c.name, _count(c.training), _percent(c.training / total), _count(c.held_out)) for c in report.labels
    ]
    rows.append(("all", _count(report.n_training), "", _count(report.n_held_out)))
    return ReportTable(
        title="Labelled objects",
        columns=("class", "training", "share", "held out"),
        rows=tuple(rows),
        numeric=frozenset({1, 2, 3}),
        note=f"Held-out objects are chosen by a salted hash {split_words(report.split)}; no fit sees them."
        if report.judged_by == "held-out"
        else f"No object is held out: the numbers are {report.judged_words}, each object predicted by fits without it.",
    )


def split_words(split: SplitSummary | None) -> str:
    """Return in words what is hashed to hold rows out, and the share that is held out."""
    if split is None:
        return "of their name"
    kind = {"id": "of their name", "healpix": "of their place on the sky"}.get(split.by, f"of '{split.by}'")
    order = split.healpix_order
    pixels = "" if order is None else f", {split.n_places:,} HEALPix pixels of order {order}"
    return f"{kind}{pixels}: {split.share:.1%} of them, where {split.asked:.1%} were asked for"


def feature_table(report: TrainReport) -> ReportTable:
    """Return the features with what is missing and their range."""
    return ReportTable(
        title="Features",
        columns=("feature", "expression", "unit", "missing", "minimum", "median", "maximum"),
        rows=tuple(
            (
                f.name,
                f.expression,
                f.unit or "",
                _percent(f.missing),
                *map(_number, (f.minimum, f.median, f.maximum)),
            )
            for f in report.features
        ),
        numeric=frozenset({3, 4, 5, 6}),
        note="Where missing: the conditional mean in training, integrated out in prediction.",
    )


def candidate_table(report: TrainReport) -> ReportTable:
    """Return the candidates, best evidence first; the selected one is marked."""
    order = sorted(range(len(report.candidates)), key=lambda i: -report.candidates[i].log_evidence)
    best = report.candidates[order[0]].log_evidence if order else 0.0
    with_second = any(c.second_order is not None for c in report.candidates)
    cells: list[tuple[str, Callable[[int], str]]] = [
        ("features", lambda i: feature_set(report, i)),
        ("basis", lambda i: report.candidates[i].basis),
        ("M", lambda i: _count(report.candidates[i].n_functions)),
        ("log evidence", lambda i: _fixed(report.candidates[i].log_evidence, 1)),
        ("Δ", lambda i: _fixed(report.candidates[i].log_evidence - best, 1)),
        *([("2nd order", lambda i: _fixed(report.candidates[i].second_order, 2))] if with_second else []),
        ("BIC", lambda i: _fixed(report.candidates[i].bic, 1)),
        ("eff. parameters", lambda i: _fixed(report.candidates[i].effective_parameters, 1)),
        (f"{report.judged_by} log loss", lambda i: _fixed(report.candidates[i].log_loss, 4)),
        ("verdict", lambda i: _verdict(report, i)),
        ("weight", lambda i: _weight(_share(report, i))),
    ]
    return ReportTable(
        title="Candidates",
        columns=tuple(name for name, _ in cells),
        rows=tuple(tuple(cell(i) for _, cell in cells) for i in order),
        numeric=frozenset(
            i for i, (name, _) in enumerate(cells) if name not in {"features", "basis", "verdict"}
        ),
        note=f"Evidence and BIC in nats, higher is better; Δ against the best. {_weight_words(report)}"
        "Evidence compares features, basis and prior at once; all candidates share the same rows. The verdict is "
        'on the approximation, not on the skill: "no skill" is said where the class shares alone predict as well.',
        remark=choice_words(report),
        marked=order.index(report.selected) if order else None,
    )


def _share(report: TrainReport, i: int) -> float:
    """Return a candidate's share in a mixture, else its probability by the evidence."""
    candidate = report.candidates[i]
    return candidate.weight if candidate.share is None or not report.is_mixture else candidate.share


def _weight_words(report: TrainReport) -> str:
    shown = report.is_mixture and any(c.share is not None for c in report.candidates)
    return f"The weight is the {'share in the model' if shown else 'probability by the evidence'}. "


def performance_table(report: TrainReport) -> ReportTable:
    """Return how well the selected model predicts objects that its fits have not seen."""
    gain = report.log_loss_baseline - report.log_loss
    held_out = report.judged_by == "held-out"  # folds have no plug-in probabilities
    rows = (
        ("log loss, moderated", _fixed(report.log_loss, 4)),
        *([("log loss, plug-in", _fixed(report.log_loss_plugin, 4))] if held_out else []),
        ("log loss, class shares alone", _fixed(report.log_loss_baseline, 4)),
        ("gain over class shares", f"{_fixed(gain, 4)} ({_percent(gain / report.log_loss_baseline)})"),
        *(
            ()
            if report.skill is None
            else ((f"{report.skill.level:.0%} interval", gain_interval(report.skill)),)
        ),
        ("accuracy", _percent(report.accuracy)),
        ("calibration error", _fixed(report.calibration_error, 4)),
    )
    return ReportTable(
        title=report.judged_objects.capitalize(),
        columns=("selected model", "value"),
        rows=rows,
        numeric=frozenset({1}),
        note="Log loss in nats an object; calibration error is the expected one over bins of equal count.",
    )


def class_tables(report: TrainReport) -> tuple[ReportTable, ...]:
    """Return one table of completeness and purity by class; none for a model that did not count them."""
    if not report.confusion:
        return ()
    rows = tuple(
        (
            c.name,
            _count(c.n),
            _percent(c.share),
            *_share_cells(c.completeness),
            _count(c.n_assigned),
            *_share_cells(c.purity),
        )
        for c in class_performance(report.confusion, report.classes)
    )
    columns = ("class", "objects", "share", "completeness", "completeness, 95 %")
    table = ReportTable(
        title="By class",
        columns=(*columns, "assigned", "purity", "purity, 95 %"),
        rows=rows,
        numeric=frozenset(range(1, 8)),
        note=f"Of {report.judged_objects}. Completeness: share of the class that is assigned to it. Purity: share of "
        "those assigned that are of the class. A guess by class shares alone has the share as both.",
    )
    return (table,)


def _share_cells(share: Share) -> tuple[str, str]:
    if share.value is None:
        return "–", ""
    return _percent(share.value), f"{_percent(share.low)} to {_percent(share.high)}"


def review_table(report: TrainReport) -> ReportTable:
    """Return the share of errors caught by a review of the least certain objects."""
    some = report.accuracy < 1
    cells: list[tuple[str, Callable[[Review], str]]] = [
        ("least certain reviewed", lambda r: _percent(r.share, 0)),
        ("moderated", lambda r: _percent(r.moderated) if some else "–"),
        *(
            [("plug-in ranking", lambda r: _percent(r.plugin))]
            if some and report.judged_by == "held-out"
            else []
        ),
        ("random", lambda r: _percent(r.random) if some else "–"),
    ]
    return ReportTable(
        title="Errors caught by review",
        columns=tuple(name for name, _ in cells),
        rows=tuple(tuple(cell(r) for _, cell in cells) for r in report.reviews),
        numeric=frozenset(range(len(cells))),
        note=f"Share of the {report.judged_by} objects' errors among those reviewed."
        if some
        else f"None of the {report.judged_by} objects is classified wrongly: there are no errors to catch.",
    )


def class_count_table(classified: Classification) -> ReportTable:
    """Return the class counts of a catalogue, with errors."""
    return ReportTable(
        title=f"Classes in {classified.catalogue}",
        columns=("class", "assigned", "expected", "±"),
        rows=tuple(
            (c.name, _count(c.assigned), _fixed(c.expected, 1), _fixed(c.error, 1)) for c in classified.counts
        ),
        numeric=frozenset({1, 2, 3}),
        note=f"{_count(classified.n_rows)} objects. Assigned: by the largest probability. Expected: sum of "
        "probabilities, "
        + (
            f"without an error: {classified.no_error}."
            if classified.no_error
            else "with the error from each object's uncertainty and from the weights that all share."
        ),
    )


def flag_table(classified: Classification) -> ReportTable:
    """Return the share of each flag in a catalogue."""
    return ReportTable(
        title=f"Flags in {classified.catalogue}",
        columns=("bit", "flag", "meaning", "objects", "share"),
        rows=tuple(
            (str(f.bit), f.name, f.meaning, _count(f.count), _percent(f.share)) for f in classified.flags
        ),
        numeric=frozenset({0, 3, 4}),
    )


def set_tables(classified: Classification) -> tuple[ReportTable, ...]:
    """Return the table of the prediction sets of a catalogue, where it has such."""
    sets = classified.sets
    if sets is None:
        return ()
    mean = "–" if sets.mean_size is None else f"{sets.mean_size:.2f}"
    return (
        ReportTable(
            title=f"Prediction sets in {classified.catalogue}, {_percent(sets.level)} of each class",
            columns=("bit", "class", "in sets", "labelled rows", "from p", "± of the share", "remark"),
            rows=tuple(
                (
                    str(c.bit),
                    c.name,
                    _count(c.count),
                    _count(c.rows),
                    "0" if c.least is None else f"{c.least:.3g}",
                    _percent(c.spread),
                    c.remark,
                )
                for c in sets.classes
            ),
            numeric=frozenset({0, 2, 3, 4, 5}),
            note=f"{_count(sets.n)} sets, of {mean} classes on average; {_count(sets.empty)} are empty and "
            f"{_count(sets.full)} full. {sets.reason[:1].upper()}{sets.reason[1:]}.",
        ),
    )


def to_markdown(table: ReportTable) -> str:
    """Return the table as GitHub-flavoured Markdown."""
    rule = "|".join(" ---: " if i in table.numeric else " --- " for i in range(len(table.columns)))
    lines = [f"### {literal(table.title)}", "", _row(table.columns), f"|{rule}|"]
    lines += [_row(row, bold=i == table.marked) for i, row in enumerate(table.rows)]
    if table.remark:
        lines += ["", literal(table.remark)]
    return "\n".join([*lines, "", literal(table.note), ""])


def markdown_report(report: TrainReport) -> str:
    """Return the whole report as Markdown, for an artifact."""
    head = f"## {literal(report.name)} {literal(report.version)}\n\n**{literal(report.skill_words)}**\n\n"
    head += (
        "".join(f"- **{literal(a.question)}** {literal(a.short)}\n" for a in training_answers(report)) + "\n"
    )
    remarks = "".join(f"- {literal(text)}\n" for text in (*report.remarks, *report.attribution))
    return head + "\n".join(to_markdown(table) for table in report_tables(report)) + "\n" + remarks


def _row(cells: Sequence[str], *, bold: bool = False) -> str:
    texts = (literal(cell) for cell in cells)
    return "| " + " | ".join(f"**{t}**" if bold and t else t for t in texts) + " |"


def literal(text: str) -> str:
    """Return the text so that Markdown shows it as it is: no markup, no HTML, no new column."""
    shown = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{c}" if c in "\\`*_{}[]|#!~" else c for c in shown)


def _verdict(report: TrainReport, i: int) -> str:
    """Return the verdict on the approximation, with a note where the candidate predicts nothing."""
    candidate = report.candidates[i]
    loses = candidate.log_loss >= report.log_loss_baseline
    if loses or (i == report.selected and not report.has_skill):
        return f"{candidate.verdict}, no skill" if candidate.verdict else "no skill"
    return candidate.verdict


def _fixed(value: float | None, digits: int) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:z,.{digits}f}".replace("-", "−")


def _number(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{value:.4g}".replace("-", "−")


def _count(value: int) -> str:
    return f"{value:,}"


def _percent(value: float, digits: int = 1) -> str:
    return "–" if not math.isfinite(value) else f"{value:z.{digits}%}".replace("-", "−")


def _weight(value: float) -> str:
    """Return a probability as text; a tiny one is never shown as zero."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
