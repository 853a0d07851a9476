"""What a run shows to people who watch it: counts and flags against the last run, drift, differences, troubles.

Tables of texts, made from what `classify` and `reprocess` return; who renders them takes every cell literally.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from blr.census.results import count_changes
from flows.reports.census import bin_tables, census_table, selection_table
from flows.reports.report_table import ReportTable, fixed, percent
from flows.runs.counts import DRIFTED, ClassEstimate, Counts, Difference, FeatureDrift, FlagCount, Summary
from flows.runs.results import (
    ClassificationResult,
    ClassificationTrial,
    FileWork,
    FolderStatus,
    ReleaseResult,
)

MOST_LISTED = 1000
"""Most files in the table of their states."""
MOST_TROUBLES = 200
"""Files named in a table; the manifest lists all."""


def run_tables(result: ClassificationResult) -> dict[str, ReportTable]:
    """Return the tables of a run by what they are of, in reading order, those that have something to tell."""
    if isinstance(result, ClassificationTrial):
        return {"files": work_table({})} | _count_tables(result.summary, None)
    before = result.before.totals if result.before else None
    left_out = {
        "stale": len(result.stale),
        "retired": len(result.retired),
        "quarantined": len(result.quarantined),
        "deferred": len(result.deferred),
    }
    done = {
        name: f for name, f in result.files.items() if name not in {*result.quarantined, *result.deferred}
    }
    tables = {"files": work_table(done, left_out)}
    if result.summary:
        tables |= _count_tables(result.summary, before)
        if result.summary.census is not None:
            changes = count_changes(before.census if before else None, result.summary.census)
            tables["census"] = census_table(result.summary.census, changes)
            selections = selection_table(result.summary.census)
            tables |= {"selections": selections} if selections.rows else {}
            of_bins = bin_tables(result.summary.census)
            tables |= {f"census-bins-{i}": table for i, table in enumerate(of_bins, 1)}
        if result.summary.drift:
            tables["drift"] = drift_table(result.summary.drift)
    if result.difference:
        tables["difference"] = difference_table(result.difference)
    if result.quarantined or result.deferred:
        tables["troubles"] = trouble_table(result)
    return tables


def _count_tables(counts: Counts, before: Summary | None) -> dict[str, ReportTable]:
    return {"classes": class_change_table(counts, before), "flags": flag_change_table(counts, before)}


NOTHING_LEFT_OUT = {"retired": 0, "quarantined": 0, "deferred": 0}


def work_table(files: Mapping[str, FileWork], left_out: Mapping[str, int] = NOTHING_LEFT_OUT) -> ReportTable:
    """Return what was done, and to how many files; `left_out` counts those that nothing was done to, by the state."""
    why = Counter(file.why or "unchanged" for file in files.values())
    rows = [*sorted(why.items()), *left_out.items()]
    return ReportTable(
        title="Files",
        columns=("state", "files"),
        rows=tuple((state, f"{n:,}") for state, n in rows),
        numeric=frozenset({1}),
    )


def class_change_table(counts: Counts, before: Summary | None) -> ReportTable:
    """Return the class counts with errors, and how far they are from the last run's, None for the first run."""
    old: Mapping[str, ClassEstimate] = before.classes if before else {}
    return ReportTable(
        title="Classes against the last run",
        columns=("class", "assigned", "expected", "±", "last expected", "change", "change / ±"),
        rows=tuple(_class_row(name, estimate, old.get(name)) for name, estimate in counts.classes.items()),
        numeric=frozenset(range(1, 7)),
        note=f"{counts.n_rows:,} objects, {before.n_rows if before else 0:,} in the last run. "
        + (
            f"Without an error: {counts.no_error}."
            if counts.no_error
            else "The error is of both runs' counts together."
        ),
    )


def _class_row(name: str, new: ClassEstimate, old: ClassEstimate | None) -> tuple[str, ...]:
    row = (name, f"{new.assigned:,}", fixed(new.expected, 1), fixed(new.error, 1))
    if old is None:
        return (*row, "–", "–", "–")
    change = new.expected - old.expected
    error = 0.0 if new.error is None or old.error is None else math.hypot(new.error, old.error)
    return (
        *row,
        fixed(old.expected, 1),
        fixed(change, 1, "+"),
        fixed(change / error, 1, "+") if error else "–",
    )


def flag_change_table(counts: Counts, before: Summary | None) -> ReportTable:
    """Return the shares of the flags, and what they were in the last run, None for the first run."""
    old: Mapping[str, FlagCount] = before.flags if before else {}
    rows = []
    for name, flag in counts.flags.items():
        last = old.get(name)
        change = "–" if last is None else fixed(100 * (flag.share - last.share), 2, "+")
        rows.append(
            (
                str(flag.bit),
                name,
                f"{flag.count:,}",
                percent(flag.share),
                percent(None if last is None else last.share),
                change,
            )
        )
    return ReportTable(
        title="Flags against the last run",
        columns=("bit", "flag", "objects", "share", "last share", "change, points"),
        rows=tuple(rows),
        numeric=frozenset({0, 2, 3, 4, 5}),
    )


def drift_table(drift: Mapping[str, FeatureDrift]) -> ReportTable:
    """Return how the features differ from the training set's."""
    return ReportTable(
        title="Features against the training set",
        columns=(
            "feature",
            "stability index",
            "by chance",
            "mean shift, sd",
            "sd ratio",
            "missing",
            "missing, change",
            "drift",
        ),
        rows=tuple(
            (
                name,
                fixed(feature.index, 3),
                fixed(feature.expected_index, 3),
                fixed(feature.mean_shift, 2, "+"),
                fixed(feature.sd_ratio, 2),
                percent(feature.missing),
                fixed(100 * feature.missing_change, 1, "+"),
                "yes" if feature.has_drifted else "",
            )
            for name, feature in drift.items()
        ),
        numeric=frozenset(range(1, 7)),
        note="The index is the divergence of the tenths of the training rows; more than "
        f"{DRIFTED} above chance is called drift.",
    )


def difference_table(difference: Difference) -> ReportTable:
    """Return how the objects differ from the last release."""
    rows = [
        ("objects compared", difference.compared),
        ("in changed files, new", difference.appeared),
        ("in changed files, gone", difference.vanished),
        ("changed class", difference.class_changed),
        *(
            (f"  {_class(t.was)} → {_class(t.now)}", t.objects)
            for t in sorted(difference.transitions, key=lambda t: -t.objects)[:20]
        ),
        ("changed a flag", difference.flag_changed),
        *((f"  gained {name}", n) for name, n in difference.flags_gained.items() if n),
        *((f"  lost {name}", n) for name, n in difference.flags_lost.items() if n),
        ("moved by more than 0.1 in p", difference.moved),
    ]
    return ReportTable(
        title="Objects against the last release",
        columns=("what", "objects"),
        rows=tuple((what, f"{n:,}") for what, n in rows),
        numeric=frozenset({1}),
        note=f"The largest move is {difference.largest_move:.3f}.",
    )


def trouble_table(result: ReleaseResult) -> ReportTable:
    """Return the files that were not annotated, and why."""
    rows = [
        *((name, "quarantined", why) for name, why in result.quarantined.items()),
        *((name, "deferred", why) for name, why in result.deferred.items()),
    ]
    return ReportTable(
        title="Files that were not annotated",
        columns=("file", "state", "why"),
        rows=tuple(rows[:MOST_TROUBLES]),
        note=f"and {len(rows) - MOST_TROUBLES} more" if len(rows) > MOST_TROUBLES else "",
    )


def status_table(status: FolderStatus) -> ReportTable:
    """Return the state of each file of a release, since when and why; the files in trouble come first."""
    counts = ", ".join(f"{n:,} {state}" for state, n in status.counts.items() if n)
    stale = status.counts["stale"]
    left = len(status.files) - MOST_LISTED
    return ReportTable(
        title=f"Files of release {status.release}",
        columns=("file", "state", "since (UTC)", "why"),
        rows=tuple(
            (f.name, f.state, f.since[:16].replace("T", " "), f.why) for f in status.files[:MOST_LISTED]
        ),
        note=f"{counts or 'no file'}. "
        + (f"A stale copy is of an earlier state of its input ({stale:,}). " if stale else "")
        + (f"The {left:,} files after these are {status.files[-1].state}." if left > 0 else ""),
    )


def _class(name: str) -> str:
    return name or "(none)"
