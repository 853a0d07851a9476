"""`blr audit`: objects that people look at, drawn and counted."""

# ruff: noqa: PLC0415 -- a draw does not wait for what an estimate needs

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from flows.cli._printing import files_words, formatted, print_table, say

if TYPE_CHECKING:
    from flows.reviews.audit_draw import AuditDraw
    from flows.reviews.audit_estimate import Audit, AuditedClass, AuditedInterval, AuditedSets


def show_drawn(result: AuditDraw) -> None:
    """Show the strata, and where the list is."""
    templates = ("{class_given}", "{low:.4g} to {high:.4g}", "{bin}", "{n_rows:,}", "{n_drawn:,}")
    columns = ("class", "probability", "bin", "rows", "drawn")
    print_table("Strata", columns, formatted(templates, result.strata))
    say(f"{result.n_drawn:,} drawn of {result.n_rows:,} classified objects: {files_words(result.files)}")
    if result.files:
        command = f"blr audit estimate {result.out} {result.out / 'audit.csv'}"
        say(f"Fill in the column label of audit.csv, then: {command}")
    say(*result.remarks)


def show_audit(audit: Audit) -> None:
    """Show the estimates, and what they assume."""
    from flows.reports.catalogue_page import REPORT_KEPT
    from flows.runs.manifest import REPORT

    bins = {name: part["classes"] for name, part in audit.bins.items()}
    _show_classes({"Classes by the audit, 95 % intervals": audit.classes} | bins)
    if audit.selections:
        rows = [
            (s["class_name"], f"{s['threshold']:g}", _percent(s["purity"]), _percent(s["completeness"]))
            for s in audit.selections
        ]
        print_table("Selections by probability", ("class", "at least", "purity", "completeness"), rows)
    if audit.sets is not None:
        _show_sets(audit.sets)
    say(
        f"Drawn objects with an answer: {audit.n_answered:,} of {audit.n_drawn:,} (undecided: {audit.n_undecided:,}, "
        f"blank: {audit.n_unanswered:,}); of none of the classes: {audit.n_other:,}"
    )
    if audit.n_answered < audit.n_drawn:
        say("The intervals assume that objects without an answer are like the others of their stratum")
    for name, judged in audit.classes.items():
        if "model" in judged and judged["model"]["differs"]:
            say(f"The audit rejects the model's count of {name}: {judged['model']['count']:,.0f}")
    say(*audit.remarks)
    say(files_words(audit.files) if audit.files else "Nothing written")
    if audit.files and REPORT not in {path.name for path in audit.files}:
        say(REPORT_KEPT)


def _show_classes(parts: Mapping[str, Mapping[str, AuditedClass]]) -> None:
    columns = ("class", "assigned", "count", "purity", "completeness", "the model's count")
    for title, classes in parts.items():
        rows = []
        for name, judged in classes.items():
            model = judged.get("model")
            said = f"{model['count']:,.0f} ({model['low']:,.0f} to {model['high']:,.0f})" if model else ""
            shares = (_percent(judged["purity"]), _percent(judged["completeness"]))
            rows.append((name, f"{judged['assigned']:,}", _number(judged["count"]), *shares, said))
        print_table(title, columns, rows)


def _show_sets(sets: AuditedSets) -> None:
    rows = [
        (name, f"{c['least']:.4g}", f"{c['rows']:,}", f"{c['effective']:.1f}", f"{100 * c['spread']:.1f} %")
        for name, c in sets["classes"].items()
    ]
    columns = ("class", "from p", "answers", "count as", "± of the share")
    print_table(f"Prediction sets by the audit, {100 * sets['level']:g} % of each class", columns, rows)
    keys = {n: n if re.fullmatch(r"[A-Za-z0-9_-]+", n) else json.dumps(n) for n in sets["classes"]}  # of TOML
    stated = ", ".join(f"{keys[name]} = {c['least']:.9g}" for name, c in sets["classes"].items())
    again = "classify again with this model and these class shares, and this specification"
    say(f"To write them into copies, {again}:")
    say(f"[output]\nsets = {sets['level']:g}\nset_thresholds = {{ {stated} }}")


def _number(interval: AuditedInterval) -> str:
    value = "?" if interval["value"] is None else f"{interval['value']:,.0f}"
    return f"{value} ({interval['low']:,.0f} to {interval['high']:,.0f})"


def _percent(interval: AuditedInterval) -> str:
    value = "?" if interval["value"] is None else f"{100 * interval['value']:.1f}"
    return f"{value} % ({100 * interval['low']:.1f} to {100 * interval['high']:.1f})"
