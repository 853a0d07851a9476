"""Champion and challenger in tables: for the page on which a person decides, and for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from flows.models.promotion import Comparison, gain_words, losses_words
from flows.models.store_folder import Promotion, gain_interval
from flows.reports.report_table import ReportTable, percent
from flows.runs.counts import SampledChange


def decision_table(history: Sequence[Promotion]) -> ReportTable:
    """Return the decisions about a name, the last one first."""
    return ReportTable(
        title="Decisions",
        columns=("when", "what", "version", "champion before", "who", "why"),
        rows=tuple(
            (d.when[:16].replace("T", " "), d.kind, d.version, d.previous or "–", d.who, d.why)
            for d in reversed(history)
        ),
        note="Times are UTC. After a rejection the previous champion stays.",
    )


def comparison_tables(comparison: Comparison) -> tuple[ReportTable, ...]:
    """Return the comparison for the person who decides: what decides first, each model by itself last."""
    tables = [_models_table(comparison)]
    if comparison.in_release is not None:
        tables.append(_release_table(comparison.in_release))
    if comparison.classes:
        tables.append(_class_table(comparison))
    return (*tables, _own_table(comparison))


def _models_table(comparison: Comparison) -> ReportTable:
    common, change = comparison.common, comparison.in_release
    rows = []
    if common is not None:
        new, before = f"{common.baseline - common.gain:.4f}", f"{common.baseline:.4f}"
        rows += [
            ("gain on objects new to both", gain_words(common), ""),
            (f"log loss on {common.n:,} objects new to both", new, before),
        ]
    if change is not None:
        changed = f"{change.changed:,} of {change.compared:,}"
        rows.append((f"would change class in release {change.release}", changed, ""))
    rows.append(
        ("verdict on the probabilities", comparison.verdict, comparison.champion_verdict or "–"),
    )
    rule = (
        "By rule it would be promoted."
        if comparison.better
        else f"By rule it would not be promoted: {'; '.join(comparison.against)}."
    )
    alike = comparison.same_rows or common is not None
    return ReportTable(
        title=f"{comparison.challenger} in the place of {comparison.champion or 'nobody'}",
        columns=("", "challenger", "champion"),
        rows=tuple(rows),
        numeric=frozenset({1, 2}),
        note=rule if alike else f"{rule} The two were tested on different objects.",
    )


def _own_table(comparison: Comparison) -> ReportTable:
    old = comparison.champion_log_loss
    return ReportTable(
        title="Each model by itself",
        columns=("", "challenger", "champion"),
        rows=(
            (losses_words(comparison), f"{comparison.log_loss:.4f}", "–" if old is None else f"{old:.4f}"),
            (
                losses_words(comparison, "objects"),
                f"{comparison.n_held_out:,}",
                f"{comparison.champion_n_held_out or 0:,}",
            ),
            ("skill", comparison.skill, comparison.champion_skill or "–"),
        ),
        numeric=frozenset({1, 2}),
    )


def _class_table(comparison: Comparison) -> ReportTable:
    rows = tuple(
        (
            c.name,
            f"{c.gain.n:,}",
            f"{c.gain.gain:+z.4f} ({gain_interval(c.gain)})",
            f"{c.champion_completeness:.1%} → {c.completeness:.1%}",
            f"{percent(c.champion_purity)} → {percent(c.purity)}",
        )
        for c in comparison.classes
    )
    return ReportTable(
        title="By class, on objects new to both",
        columns=("class", "objects", "gain in nats (95% interval)", "completeness", "purity"),
        rows=rows,
        numeric=frozenset({1, 2}),
        note="A gain is how much smaller the challenger's log loss is. Shares: champion → challenger.",
    )


def _release_table(change: SampledChange) -> ReportTable:
    share = change.changed / change.compared if change.compared else 0.0
    of_release = f"about {round(share * change.n_rows):,} of {change.n_rows:,} in the release"
    rows = [
        ("objects compared", f"{change.compared:,}", ""),
        ("would change class", f"{change.changed:,}", f"{share:.2%}, {of_release}"),
        *(
            (f"  {t.was or '(none)'} → {t.now or '(none)'}", f"{t.objects:,}", "")
            for t in change.transitions[:20]
        ),
        *((f"cannot be classified by both: {trouble}", "", "") for trouble in change.troubles[:5]),
    ]
    return ReportTable(
        title=f"In the last release, {change.release} in {change.folder}",
        columns=("what", "objects", ""),
        rows=tuple(rows),
        numeric=frozenset({1}),
        note=f"The first rows of {change.files:,} of {change.n_files:,} files; nothing was written.",
    )
