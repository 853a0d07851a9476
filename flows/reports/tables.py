"""The tables of a training's report: candidates, classes, features and statistics; and the model's card of them.

They are made once and rendered three ways: HTML (the template), terminal (rich), Markdown.  A cell is text that may
come from a catalogue or a specification, so every renderer takes it literally.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from html import escape

import numpy as np

from catalogs.errors import counted, printable
from catalogs.profile.split import SplitSummary
from flows.documents import template, word_table
from flows.models.description import ModelDescription
from flows.models.model import Model
from flows.models.promotion import Comparison, PromotionResult, gain_words, losses_words
from flows.models.store import Promotion, gain_interval
from flows.reports._html import linked, made_words, render_page, training_pictures
from flows.reports.answers import plain_end, share_words, training_answers
from flows.reports.data import BoundaryPicture, NotableObject, ReportNotes, TrainingPictures, training_remarks
from flows.reports.report_table import ReportTable, fixed, named, percent, probability
from flows.runs.results import SampledChange
from flows.specification.catalog import alike_words, grouped
from flows.specification.toml_file import specification_toml, toml_text

# Classes that the features cannot tell apart: the sentence, the table, and the lines that join them.


def grouping_lines(model: ModelDescription) -> list[str]:
    """Return what a terminal shows of classes that the features cannot tell apart; nothing without such classes."""
    table = grouping_tables(model)
    if not table:
        return []
    advice = "To use the groups, put these lines into the specification and train again:"
    return [table[0].remark, advice, "", "[label.classes]", *(line for *_, line in table[0].rows), ""]


def grouping_tables(model: ModelDescription) -> tuple[ReportTable, ...]:
    """Return one table of the groups of classes; none where no classes are joined."""
    found, counts, rows = model.metrics.grouping, np.asarray(model.metrics.confusion), []
    if found is None:
        return ()
    for name, group in grouped(found, model.classes, model.training.training_counts).items():
        places = [model.classes.index(c) for c in group]
        within, n = counts[np.ix_(places, places)], int(counts[places].sum())
        wrong = int(within.sum() - within.trace())
        spellings = ", ".join(toml_text(text) for k in places for text in model.spellings[k])
        line = f"{toml_text(name)} = [{spellings}]"
        rows.append((", ".join(group), f"{n:,}", percent(wrong / max(n, 1)), line))
    remark = alike_words(found, model.classes, "The features", "the model")
    return (ReportTable.of_kind("groups", rows, remark=remark),) if rows else ()


CRITERIA = {"evidence": "log evidence", "bic": "BIC", "loo": "left-out log density"}
"""Name of the score that ranks the candidates, by the value of select.by."""


def trained_words(model: ModelDescription) -> str:
    """Return what became of a training, and the verdict, for a terminal and for the final state of a run."""
    words = {
        "trained": "was trained",
        "exists": "is in the store already: nothing to do",
        "trial": "was a trial and is not kept",
        "stored": "is in the store",
    }[model.status]
    return f"{model.model} {words}; verdict on its probabilities: {model.trust.verdict}"


def feature_set(model: ModelDescription, i: int) -> str:
    """Return the features of a candidate in words: those that it has or those that it lacks, whichever are fewer."""
    chosen = model.candidates[i].features
    left_out = [f["name"] for f in model.training.features if f["name"] not in chosen]
    if not left_out:
        return f"all {len(chosen)}"
    return f"all but {', '.join(left_out)}" if len(left_out) < len(chosen) / 2 else ", ".join(chosen)


def term_table(model: ModelDescription) -> ReportTable:
    """Return the words of the last section, and what the verdict rests on beside the answers above."""
    answered = {one.says for one in model.trust.answers}
    reasons = "; ".join(plain_end(reason) for reason in model.trust.reasons if reason not in answered)
    remark = f"The verdict rests on: {reasons}." if reasons else ""
    return ReportTable.of_kind("words", word_table("terms.toml").items(), remark=remark)


def report_tables(model: ModelDescription) -> tuple[ReportTable, ...]:
    """Return every table of a report, in reading order."""
    return (
        *class_tables(model),
        review_table(model),
        label_table(model),
        feature_table(model),
        performance_table(model),
        candidate_table(model),
    )


NONE_HELD_OUT = "No object is held out: the numbers are left-out, each object predicted by fits without it."


def label_table(model: ModelDescription) -> ReportTable:
    """Return the labelled rows of each class."""
    training = model.training
    counts = zip(model.classes, training.training_counts, training.held_out_counts, strict=True)
    total = max(1, training.n_training)
    rows = [(name, f"{n:,}", percent(n / total), f"{held:,}") for name, n, held in counts]
    rows.append(("all", f"{training.n_training:,}", "", f"{training.n_held_out:,}"))
    note = f"Held-out objects are chosen by a salted hash {split_words(training.split)}; no fit sees them."
    if model.metrics.judged_by != "held-out":
        note = NONE_HELD_OUT
    return ReportTable.of_kind("labels", rows, note=note)


def split_words(split: SplitSummary) -> str:
    """Return in words what is hashed to hold rows out, and the share that is held out."""
    kind = {"id": "of their name", "healpix": "of their place on the sky"}.get(split.by, f"of '{split.by}'")
    order = split.healpix_order
    pixels = "" if order is None else f", {split.n_places:,} HEALPix pixels of order {order}"
    return f"{kind}{pixels}: {split.share:.1%} of them, where {split.asked:.1%} were asked for"


def feature_table(model: ModelDescription) -> ReportTable:
    """Return the features with what is missing and their range."""
    rows = []
    for f in model.training.features:
        ends = (f["minimum"], f["median"], f["maximum"])
        numbers = (f"{v:.4g}".replace("-", "−") if math.isfinite(v) else "–" for v in ends)
        rows.append((f["name"], f["expression"], f["unit"] or "", percent(f["missing"]), *numbers))
    return ReportTable.of_kind("features", rows)


def candidate_table(model: ModelDescription) -> ReportTable:
    """Return the candidates, best evidence first, those without comparable evidence last; the selected is marked."""
    candidates, mixture = model.candidates, model.selected_by in ("average", "stack")
    order = sorted(
        range(len(candidates)), key=lambda i: (not candidates[i].comparable, -candidates[i].log_evidence)
    )
    best = candidates[order[0]].log_evidence if order else 0.0
    with_second = any(c.second_order is not None for c in candidates)
    rows = []
    for i in order:
        c = candidates[i]
        second = [(c.second_order, 2)] * with_second
        evidence = [(c.log_evidence, 1), (c.log_evidence - best, 1), *second, (c.bic, 1)]
        row = [feature_set(model, i), c.basis, f"{c.n_functions:,}"]
        row += [fixed(value if c.comparable else None, digits) for value, digits in evidence]
        row += [fixed(c.effective_parameters, 1), fixed(c.log_loss, 4)]
        row += [_verdict(model, i), probability(c.share if mixture else c.weight)]
        rows.append(row)
    ranked = CRITERIA.get(model.selected_by, "the largest")
    marked = ranked if ranked == "the largest" else f"the first by {ranked}"
    weight = "share in the model" if mixture else f"probability by the evidence; {marked} is marked"
    learnt = (
        "Trees are learnt from the labels: they have no evidence that compares, and left-out rows rank them. "
    )
    return ReportTable.of(
        "Candidates",
        f"features | basis | > M | > log evidence | > Δ {'| > 2nd order' * with_second} | > BIC | > eff. parameters"
        f" | > {model.metrics.judged_by} log loss | verdict | > weight",
        rows,
        note=f"Evidence and BIC in nats, higher is better; Δ against the best. The weight is the {weight}. "
        f"{'' if all(c.comparable for c in candidates) else learnt}"
        "Evidence compares features, basis and prior at once; all candidates share the same rows. The verdict is "
        'on the approximation, not on the skill: "no skill" is said where the class shares alone predict as well.',
        marked=order.index(model.selected) if order else None,
    )


def performance_table(model: ModelDescription) -> ReportTable:
    """Return how well the selected model predicts objects that its fits have not seen."""
    m = model.metrics
    gain = m.log_loss_baseline - m.log_loss
    held_out = m.judged_by == "held-out"  # folds have no plug-in probabilities
    rows = [
        ("log loss, moderated", fixed(m.log_loss, 4)),
        *([("log loss, plug-in", fixed(m.log_loss_plugin, 4))] if held_out else []),
        ("log loss, class shares alone", fixed(m.log_loss_baseline, 4)),
        ("gain over class shares", f"{fixed(gain, 4)} ({percent(gain / m.log_loss_baseline)})"),
        (f"{m.skill.level:.0%} interval", gain_interval(m.skill)),
        ("accuracy", percent(m.accuracy)),
        ("calibration error", fixed(m.calibration_error, 4)),
    ]
    left_out = "" if held_out else " Left out: by refits where rows are few, else by one Newton step."
    return ReportTable.of_kind("performance", rows, objects=m.judged_objects.capitalize(), left_out=left_out)


def class_tables(model: ModelDescription) -> tuple[ReportTable, ...]:
    """Return the table of completeness and purity by class, and that of classes that could be one."""
    counts = np.asarray(model.metrics.confusion).reshape(len(model.classes), len(model.classes))
    numbers = (x.tolist() for x in (np.diag(counts), counts.sum(1), counts.sum(0)))
    sums = zip(model.classes, *numbers, strict=True)
    total = max(1, int(counts.sum()))
    rows = [
        (name, f"{n:,}", percent(n / total), share_words(right, n), f"{given:,}", share_words(right, given))
        for name, right, n, given in sums
    ]
    table = ReportTable.of_kind("by_class", rows, objects=model.metrics.judged_objects)
    return (table, *grouping_tables(model))


def review_table(model: ModelDescription) -> ReportTable:
    """Return the share of errors caught by a review of the least certain objects."""
    found = model.metrics.reviews
    rows = ((percent(r["share"], 0), percent(r["moderated"]), percent(r["random"])) for r in found)
    return ReportTable.of_kind("reviews", rows, judged_by=model.metrics.judged_by)


def to_markdown(table: ReportTable) -> str:
    """Return the table as GitHub-flavoured Markdown."""
    return str(template("table.md.j2", literal=literal).render(table=table))


def markdown_report(model: ModelDescription, objects: Sequence[NotableObject] = ()) -> str:
    """Return the whole report as Markdown, for an artifact."""
    answers, tables = training_answers(model, objects), map(to_markdown, report_tables(model))
    about = {"answers": answers, "tables": tables, "remarks": training_remarks(model.training)}
    return str(template("report.md.j2", literal=literal).render(about, model=model)).rstrip("\n")


def literal(text: str) -> str:
    """Return the text so that Markdown shows it as it is: no markup, no HTML, no new column."""
    shown = escape(printable(text), quote=False)
    return "".join(f"\\{c}" if c in "\\`*_{}[]|#!~" else c for c in shown)


def _verdict(model: ModelDescription, i: int) -> str:
    """Return the verdict on the Laplace fit, with a note where the candidate predicts nothing."""
    candidate = model.candidates[i]
    loses = candidate.log_loss >= model.metrics.log_loss_baseline
    if loses or (i == model.selected and not model.metrics.skill.is_shown):
        return f"{candidate.verdict}, no skill" if candidate.verdict else "no skill"
    return candidate.verdict or "–"


def model_card(model: Model, described: ModelDescription, objects: Sequence[NotableObject]) -> str:
    """Return the card of a model: its report in Markdown, its specification, and what went into it."""
    report, settings = markdown_report(described, objects), specification_toml(model.specification)
    about: dict[str, object] = {"model": model, "described": described, "report": report}
    return str(
        template("card.md.j2", literal=literal).render(
            about, specification=settings, provenance=provenance(described)
        )
    )


def render_report(
    model: ModelDescription,
    notes: ReportNotes,
    *,
    boundary: BoundaryPicture | None = None,
    pictures: TrainingPictures | None = None,
) -> str:
    """Return the report of a model as HTML, with pictures of the arrays that there are."""
    training, objects = model.training, notes.objects
    names = ", ".join(file["name"] for file in training.inputs)
    held = f"; {training.n_held_out:,} more are held out" if training.n_held_out else ""
    use, *four, odd, look = training_answers(model, objects)
    return render_page(
        title=model.name,
        version=model.version,
        kind="model report",
        lead=f"A model that sorts objects into {named(model.classes)}, trained on "
        f"{training.n_training:,} of the {counted(training.n_read, 'object')} of {names}{held}.",
        made=made_words(notes.made, model.code_version),
        use=use,
        four=four,
        # All objects are in the place of the first.
        parts=(odd, replace(look, findings=(), objects=linked(objects))),
        pictures=tuple(training_pictures(model, boundary, pictures)),
        groups=(
            ("How good it is", (*class_tables(model), review_table(model))),
            ("What it was trained on", (label_table(model), feature_table(model))),
        ),
        remarks=tuple(training_remarks(training)),
        last=("For statisticians", (candidate_table(model), performance_table(model), term_table(model))),
        sortable=True,
        provenance=provenance(model),
    )


def provenance(model: ModelDescription) -> dict[str, str]:
    """Return what went into a model, by name."""
    return {
        "model": model.model,
        "specification": f"sha256 {model.specification_hash}",
        "training rows": f"sha256 {model.training.content_hash}",
        "blr": model.code_version,
        "seed": str(model.seed),
        **{f"input {file['name']}": f"sha256 {file['sha256']}" for file in model.training.inputs},
    }


# Champion and challenger: for the page on which a person decides, and for a terminal.


def decision_table(history: Sequence[Promotion]) -> ReportTable:
    """Return the decisions about a name, the last one first."""
    rows = (
        (d.when[:16].replace("T", " "), d.kind, d.version, d.previous or "–", d.who, d.why)
        for d in reversed(history)
    )
    return ReportTable.of_kind("decisions", rows)


def promotion_words(result: PromotionResult) -> str:
    """Return what was decided, or would be, for a terminal and for the final state of a run."""
    planned = {"promoted": "would be the champion", "rejected": "would be rejected"}
    words = {
        "planned": planned.get(result.kind, "would be the champion again"),
        "promoted": "is the champion",
        "undone": "is the champion again",
        "rejected": "is rejected",
        "is the champion": "is the champion already",
        "kept": "is not promoted",
    }[result.status]
    why = ": ".join(filter(None, (result.who, result.why)))
    said = f" ({why})" if why else ""
    return f"{result.model} {words}{said}; the champion before: {result.previous or 'none'}"


def comparison_tables(comparison: Comparison) -> tuple[ReportTable, ...]:
    """Return the comparison for the person who decides, what decides first."""
    tables = [_models_table(comparison)]
    if comparison.in_release is not None:
        tables.append(_release_table(comparison.in_release))
    if comparison.classes:
        rows = []
        for c in comparison.classes:
            gain = f"{c['gain'].gain:+z.4f} ({gain_interval(c['gain'])})"
            completeness = f"{c['champion_completeness']:.1%} → {c['completeness']:.1%}"
            purity = f"{percent(c['champion_purity'])} → {percent(c['purity'])}"
            rows.append((c["name"], f"{c['gain'].n:,}", gain, completeness, purity))
        tables.append(ReportTable.of_kind("compared_classes", rows))
    return tuple(tables)


def _models_table(comparison: Comparison) -> ReportTable:
    common, change, old = comparison.common, comparison.in_release, comparison.champion_log_loss
    rows = []
    if common is not None:
        new, before = f"{common.baseline - common.gain:.4f}", f"{common.baseline:.4f}"
        rows += [
            ("gain on objects new to both", gain_words(common), ""),
            (f"log loss on {common.n:,} objects new to both", new, before),
        ]
    if change is not None:
        changed = f"{change['changed']:,} of {change['compared']:,}"
        rows.append((f"would change class in release {change['release']}", changed, ""))
    skills = (comparison.skill, comparison.champion_skill or "–")
    new_skill, old_skill = (skill.partition(":")[0] for skill in skills)
    rows += [
        ("verdict on the probabilities", comparison.verdict, comparison.champion_verdict or "–"),
        (losses_words(comparison), f"{comparison.log_loss:.4f}", "–" if old is None else f"{old:.4f}"),
        ("beside class shares", new_skill, old_skill),
    ]
    against = "" if comparison.better else f": {'; '.join(comparison.against)}"
    alike = comparison.same_rows or common is not None
    return ReportTable.of(
        f"{comparison.challenger} in the place of {comparison.champion or 'nobody'}",
        "| > challenger | > champion",
        rows,
        note=f"By rule it would {'' if comparison.better else 'not '}be promoted{against}."
        + ("" if alike else " The two were tested on different objects."),
    )


def _release_table(change: SampledChange) -> ReportTable:
    share = change["changed"] / change["compared"] if change["compared"] else 0.0
    of_release = f"about {round(share * change['n_rows']):,} of {change['n_rows']:,} in the release"
    rows = [
        ("objects compared", f"{change['compared']:,}", ""),
        ("would change class", f"{change['changed']:,}", f"{share:.2%}, {of_release}"),
    ]
    rows += [
        (f"  {t['was'] or '(none)'} → {t['now'] or '(none)'}", f"{t['objects']:,}", "")
        for t in change["transitions"][:20]
    ]
    rows += [(f"cannot be classified by both: {trouble}", "", "") for trouble in change["troubles"][:5]]
    return ReportTable.of_kind("last_release", rows, **change)
