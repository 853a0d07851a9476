"""What a run has to tell those who watch: counts and flags against the last run, drift, differences, troubles.

Tables of texts, made from what `classify` and `reprocess` return; who renders them takes every cell literally.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from flows.features.drift import DRIFTED, drifted
from flows.reports.shift import why_no_error
from flows.reports.tables import ReportTable

__all__ = [
    "class_change_table",
    "difference_table",
    "drift_table",
    "flag_change_table",
    "run_tables",
    "trouble_table",
    "work_table",
]

Told = Mapping[str, Any]
MOST_TROUBLES = 200
"""Files named in a table; the manifest lists all."""


def run_tables(result: Told) -> dict[str, ReportTable]:
    """Return the tables of a run by what they are of, in reading order, those that have something to tell."""
    summary, before = result.get("summary"), (result.get("before") or {}).get("totals") or {}
    tables = {"files": work_table(result)}
    if summary:
        tables["classes"] = class_change_table(summary, before)
        tables["flags"] = flag_change_table(summary, before)
        if summary.get("drift"):
            tables["drift"] = drift_table(summary["drift"])
    if result.get("difference"):
        tables["difference"] = difference_table(result["difference"])
    if result.get("quarantined") or result.get("deferred"):
        tables["troubles"] = trouble_table(result)
    return tables


def work_table(result: Told) -> ReportTable:
    """Return what was done, and to how many files."""
    why = Counter(file["why"] or "unchanged" for file in result.get("files", {}).values())
    rows = [
        *sorted(why.items()),
        *((s, len(result.get(s, ()))) for s in ("retired", "quarantined", "deferred")),
    ]
    return ReportTable(
        title="Files",
        columns=("state", "files"),
        rows=tuple((state, _count(n)) for state, n in rows),
        numeric=frozenset({1}),
    )


def class_change_table(summary: Told, before: Told) -> ReportTable:
    """Return the class counts with errors, and how far they are from the last run's."""
    old: Mapping[str, Any] = before.get("classes", {})
    if why_no_error(before.get("shift", {})):  # an earlier version stated an error nevertheless
        old = {name: {**found, "error": None} for name, found in old.items()}
    reason = summary.get("no_error")
    return ReportTable(
        title="Classes against the last run",
        columns=("class", "assigned", "expected", "±", "last expected", "change", "change / ±"),
        rows=tuple(_class_row(name, found, old.get(name)) for name, found in summary["classes"].items()),
        numeric=frozenset(range(1, 7)),
        note=f"{_count(summary['n_rows'])} objects, {_count(before.get('n_rows', 0))} in the last run. "
        + (f"Without an error: {reason}." if reason else "The error is of both runs' counts together."),
    )


def _class_row(name: str, found: Told, old: Told | None) -> tuple[str, ...]:
    stated = "–" if found["error"] is None else _fixed(found["error"], 1)
    row = (name, _count(found["assigned"]), _fixed(found["expected"], 1), stated)
    if old is None:
        return (*row, "–", "–", "–")
    change = found["expected"] - old["expected"]
    known = None not in (found["error"], old["error"])
    error = math.hypot(found["error"], old["error"]) if known else 0.0
    return (
        *row,
        _fixed(old["expected"], 1),
        _signed(change, 1),
        _signed(change / error, 1) if error else "–",
    )


def flag_change_table(summary: Told, before: Told) -> ReportTable:
    """Return the shares of the flags, and what they were in the last run."""
    old: Mapping[str, Any] = before.get("flags", {})
    rows = []
    for name, found in summary["flags"].items():
        last = old.get(name)
        share = found["share"]
        change = "–" if last is None else _signed(100 * (share - last["share"]), 2)
        rows.append(
            (
                str(found["bit"]),
                name,
                _count(found["count"]),
                _percent(share),
                "–" if last is None else _percent(last["share"]),
                change,
            )
        )
    return ReportTable(
        title="Flags against the last run",
        columns=("bit", "flag", "objects", "share", "last share", "change, points"),
        rows=tuple(rows),
        numeric=frozenset({0, 2, 3, 4, 5}),
    )


def drift_table(found: Mapping[str, Told]) -> ReportTable:
    """Return how the features differ from the training set's."""
    far = set(drifted(found))
    return ReportTable(
        title="Features against the training set",
        columns=(
            "feature",
            "stability index",
            "by chance",
            "mean shift, sd",
            "sd ratio",
            "missing",
            "",
            "drift",
        ),
        rows=tuple(
            (
                name,
                _fixed(f["index"], 3),
                _fixed(f["expected_index"], 3),
                _signed(f["mean_shift"], 2),
                _fixed(f["sd_ratio"], 2),
                _percent(f["missing"]),
                _signed(100 * f["missing_change"], 1),
                "yes" if name in far else "",
            )
            for name, f in found.items()
        ),
        numeric=frozenset(range(1, 7)),
        note="The index is the divergence of the tenths of the training rows; more than "
        f"{DRIFTED} above chance is called drift.",
    )


def difference_table(difference: Told) -> ReportTable:
    """Return how the objects differ from the last release."""
    rows = [
        ("objects compared", difference["compared"]),
        ("in changed files, new", difference["appeared"]),
        ("in changed files, gone", difference["vanished"]),
        ("changed class", difference["class_changed"]),
        *(
            (f"  {_class(t['was'])} → {_class(t['is'])}", t["objects"])
            for t in sorted(difference["transitions"], key=lambda t: -t["objects"])[:20]
        ),
        ("changed a flag", difference["flag_changed"]),
        *((f"  gained {name}", n) for name, n in difference["flags_gained"].items() if n),
        *((f"  lost {name}", n) for name, n in difference["flags_lost"].items() if n),
        ("moved by more than 0.1 in p", difference["moved"]),
    ]
    return ReportTable(
        title="Objects against the last release",
        columns=("what", "objects"),
        rows=tuple((what, _count(n)) for what, n in rows),
        numeric=frozenset({1}),
        note=f"The largest move is {difference['largest_move']:.3f}.",
    )


def trouble_table(result: Told) -> ReportTable:
    """Return the files that were not annotated, and why."""
    rows = [
        *((name, "quarantined", why) for name, why in result.get("quarantined", {}).items()),
        *((name, "deferred", why) for name, why in result.get("deferred", {}).items()),
    ]
    return ReportTable(
        title="Files that were not annotated",
        columns=("file", "state", "why"),
        rows=tuple(rows[:MOST_TROUBLES]),
        note=f"and {len(rows) - MOST_TROUBLES} more" if len(rows) > MOST_TROUBLES else "",
    )


def _class(name: str) -> str:
    return name or "(none)"


def _count(value: int) -> str:
    return f"{value:,}"


def _fixed(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", "−")


def _signed(value: float, digits: int) -> str:
    return f"{value:+,.{digits}f}".replace("-", "−")


def _percent(value: float) -> str:
    return f"{value:.1%}"
