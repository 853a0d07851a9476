"""Tables of a catalogue's counts: the census, counts and flags against the last run, drift, differences, troubles.

They are texts, made from what `classify`, `reprocess` and the census return; who renders them takes every cell
literally.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from blr.census.results import Census, CountChange, SelectionCensus, SelectionQuality, Source, count_changes
from catalogs.errors import brief, counted
from flows.reports.answers import Finding, Level, begun_small, plain_end
from flows.reports.report_table import MOST_NAMED, ReportTable, class_words, fixed, percent
from flows.runs.manifest import FolderStatus
from flows.runs.results import (
    DRIFTED,
    ClassEstimate,
    ClassificationResult,
    ClassificationTrial,
    Counts,
    Difference,
    FeatureDrift,
    FileWork,
    ReleaseResult,
    Summary,
)


def census_tables(census: Census, changes: Mapping[str, CountChange] | None = None) -> dict[str, ReportTable]:
    """Return the tables of a census: the counts, selections where any has objects, and those of bins."""
    found = {"census": census_table(census, changes), "selections": selection_table(census)}
    found |= {f"census-bins-{i}": table for i, table in enumerate(bin_tables(census), 1)}
    return {name: table for name, table in found.items() if table.rows or name != "selections"}


def census_table(census: Census, changes: Mapping[str, CountChange] | None = None) -> ReportTable:
    """Return the counts of the classes, their intervals and what they rest on; with `changes`, also the changes."""
    with_changes, by_label = changes is not None, any(c.labelled for c in census.classes.values())
    before = 6 if by_label else 5
    return ReportTable(
        title="Census",
        columns=(
            "class",
            "objects",
            "95 % from",
            "95 % to",
            *(["by label"] if by_label else []),
            "share",
            "source",
        )
        + (("change", "change from", "change to") if with_changes else ()),
        rows=tuple(
            (
                name,
                *(fixed(v, 0) for v in (count.count, count.low, count.high)),
                *([fixed(count.labelled, 0)] if by_label else []),
                "–" if count.count is None else percent(count.count / max(1, census.n_rows)),
                count.source + (f", assuming {count.assumes}" if count.assumes else ""),
                *(_changed(changes.get(name)) if changes is not None else ()),
            )
            for name, count in census.classes.items()
        ),
        numeric=frozenset({*range(1, before), *(range(before + 1, before + 4) if with_changes else ())}),
        note=f"Of {counted(census.n_rows, 'object')} with probabilities. "
        + " ".join(
            [
                *(f"{text[:1].upper()}{text[1:]}." for *_, text, _ in _reasons(census)),
                *(f"{words}." for words in _other_label_words(census)),
            ]
        ),
    )


def _other_label_words(census: Census) -> Iterator[str]:
    """Yield what the counts do with objects like those whose label is of no class; nothing without such labels."""
    if not census.other_labels:
        return
    n = sum(census.other_labels.values())
    order = sorted(census.other_labels.items(), key=lambda label: (-label[1], label[0]))
    shown = ", ".join(f"{brief(name)} {count:,}" for name, count in order[:MOST_LABELS])
    more = ", …" if len(order) > MOST_LABELS else ""
    of_n = f"{n:,} objects of the labelled catalogue have labels"
    have = "1 object of the labelled catalogue has a label" if n == 1 else of_n
    yield f"{have} of no class ({shown}{more}); the counts take objects like them for one of the classes"


def _reasons(census: Census) -> list[tuple[Source, str, str, list[str]]]:
    """Return source, assumption and reason of the counts, each reason once, with the classes that it is of."""
    reasons: dict[tuple[Source, str, str], list[str]] = {}
    audited = {name: c.reason for name, c in census.classes.items() if c.source == "audit"}
    of_audit = _said_once(audited)
    for name, c in census.classes.items():
        reason = of_audit if name in audited else c.reason
        reasons.setdefault((c.source, c.assumes or "", reason), []).append(name)
    return [(*key, names) for key, names in reasons.items()]


def _said_once(reasons: Mapping[str, str]) -> str:
    """Return an audit's reasons by class as one: what is the same for all of them, then what each has of its own."""
    clauses = {name: text.split("; ") for name, text in reasons.items()}
    shared = [
        one for one in next(iter(clauses.values()), []) if all(one in some for some in clauses.values())
    ]
    own = {name: [one for one in some if one not in shared] for name, some in clauses.items()}
    return "; ".join([*shared, *(f"{name}: {', '.join(some)}" for name, some in own.items() if some)])


def selection_table(census: Census) -> ReportTable:
    """Return purity and completeness of the objects assigned to a class, and of those selected by their probability."""
    rows = []
    for name, count in census.classes.items():
        if count.assigned is not None:
            rows.append((name, "most probable class", *_quality(count.assigned)))
        rows.extend((name, *_selected(s)) for s in count.selections)
    return ReportTable(
        title="Purity and completeness",
        columns=("class", *_SELECTED),
        rows=tuple(rows),
        numeric=frozenset({1, 2, 3, 5}),
        note=" ".join(
            [
                *[_AT_TRAINING_SHARES] * any(count.selections for count in census.classes.values()),
                *["–: too few labelled objects tell."] * any("–" in row for row in rows),
            ]
        ),
    )


def bin_tables(census: Census) -> tuple[ReportTable, ...]:
    """Return a table of the counts by bin, and one of the selections at one half and at stated thresholds."""
    binned = census.bins
    if binned is None:
        return ()
    counts = ReportTable(
        title=f"Census by {binned.by}",
        columns=(
            "bin",
            "objects",
            "labelled",
            "class",
            "of the class",
            "95 % from",
            "95 % to",
            "share",
            "share, 95 %",
        ),
        rows=tuple(
            (
                one.name,
                f"{one.objects:,}",
                f"{one.labelled:,}",
                name,
                *(fixed(v, 0) for v in (c.count, c.low, c.high)),
                *(percent(c.count / max(1, one.objects)), _interval(c.low, c.high, max(1, one.objects))),
            )
            for one in binned.bins
            for name, c in one.classes.items()
        ),
        numeric=frozenset({1, 2, 4, 5, 6, 7}),
        note=f"{binned.reason[:1].upper()}{binned.reason[1:]}.",
    )
    selections = ReportTable(
        title=f"Purity and completeness by {binned.by}",
        columns=("bin", "class", *_SELECTED),
        rows=tuple(
            (one.name, name, *_selected(s))
            for one in binned.bins
            for name, c in one.classes.items()
            for s in c.selections
            if s.stated or s.threshold == SHOWN_IN_BINS
        ),
        numeric=frozenset({2, 3, 4, 6}),
        note=f"A stated purity or completeness has a threshold in each bin. {_AT_TRAINING_SHARES}",
    )
    whole = ReportTable(
        title=f"Thresholds by {binned.by}, all bins together",
        columns=("class", "stated", *_SELECTED[1:], "thresholds"),
        rows=tuple(
            (name, s.stated, *_quality(s), "; ".join(f"{b}: {t:.4g}" for b, t in s.thresholds.items()))
            for name, of_class in binned.selections.items()
            for s in of_class
        ),
        numeric=frozenset({2, 3, 5}),
        note="A bin in which no threshold has what is stated is left out: its objects of the class are lost.",
    )
    return (counts, *(table for table in (selections, whole) if table.rows))


CLASS_FOR_THEM = "Give them a class under [label] classes if the target has many such objects."
"""What to do about labels of no class."""
MOST_LABELS = 5
"""Labels of no class that are named, the most frequent first."""
SHOWN_IN_BINS = 0.5
"""Threshold of the selections that bins show beside the stated ones; all are in `summary.json`."""
NOTHING_KNOWN = 0.9
"""Width of an interval from which its centre is not shown: no labelled object is there to tell."""
_AT_TRAINING_SHARES = "The probabilities are those at the class shares of the training."
_SELECTED = ("probability from", "objects", "purity", "purity, 95 %", "completeness", "completeness, 95 %")


def _selected(s: SelectionCensus) -> tuple[str, ...]:
    return (
        ("by its own bins" if s.threshold is None else f"{s.threshold:.4g}")
        + (f" ({s.stated}{f', {s.column}' if s.column else ''})" if s.stated else ""),
        *_quality(s),
    )


def _quality(s: SelectionQuality) -> tuple[str, ...]:
    return (
        f"{s.objects:,}",
        *_known(s.purity, s.purity_low, s.purity_high),
        *_known(s.completeness, s.completeness_low, s.completeness_high),
    )


def _known(value: float, low: float, high: float) -> tuple[str, str]:
    """Return a share and its interval in words; no number where hardly any share is excluded."""
    return ("–" if high - low > NOTHING_KNOWN else percent(value)), _interval(low, high)


def _interval(low: float, high: float, of: float = 1.0) -> str:
    return f"{percent(low / of)} to {percent(high / of)}"


def counts_said(census: Census) -> bool:
    """Say whether the census has a count of any class."""
    return any(count.count is not None for count in census.classes.values())


def census_words(census: Census) -> str:
    """Return the shares of the classes with their intervals, in a clause; of many classes those of the first ones."""
    n = max(1, census.n_rows)
    return first_words(
        f"{class_words(name)} {percent(c.count / n)}" + f" ({_interval(c.low, c.high, n)})" * (c.low < c.high)
        for name, c in census.classes.items()
        if c.count is not None and c.low is not None and c.high is not None
    )


def first_words(said: Iterable[str]) -> str:
    """Return what is said of each class as a clause; where classes are many, of the first ones."""
    clauses = [*said]
    left = len(clauses) - MOST_NAMED
    return ", ".join(clauses[:MOST_NAMED]) + (f" and {left} classes more, in the table" if left > 0 else "")


def census_findings(census: Census) -> tuple[Finding, ...]:
    """Return what the counts rest on, each reason once."""
    reasons = _reasons(census)
    findings = [
        _counts_finding(
            source,
            assumes,
            reason,
            "" if len(reasons) == 1 else f" of {', '.join(names)}",
            contradicted=census.contradicted,
        )
        for source, assumes, reason, names in reasons
    ]
    return (
        *findings,
        *(Finding(what=words, level="care", advice=CLASS_FOR_THEM) for words in _other_label_words(census)),
    )


def _counts_finding(source: str, assumes: str, reason: str, of: str, *, contradicted: bool) -> Finding:
    if source == "cannot be said":
        return Finding(what=f"The counts{of} are not known: {begun_small(reason)}", level="care")
    basis = {"audit": "an audit", "labels": "labels of the training"}.get(
        source, f'the model, assuming "{assumes}"'
    )
    level: Level = "care" if contradicted and source == "model" else "plain"
    return Finding(what=f"The counts{of} are from {basis}: {plain_end(reason)}", level=level)


def _changed(change: CountChange | None) -> tuple[str, ...]:
    values = (None,) * 3 if change is None else (change.change, change.low, change.high)
    return tuple(fixed(value, 0, "+") for value in values)


def classification_message(result: ClassificationResult) -> str:
    """Return the result of a run in words, with the first file that was quarantined and why."""
    if isinstance(result, ClassificationTrial):
        return f"Trial on {result.summary.n_rows:,} rows; nothing was written."
    left = {*result.quarantined, *result.deferred}
    files = [file for name, file in result.files.items() if name not in left]
    # A stale copy of a file that is left out is a part of the release all the same.
    whole = f"{counted(len(files) + len(result.stale), 'file')}, "
    whole += counted(result.summary.n_rows if result.summary else 0, "object")
    number = release_words(result)
    to_do = sum(file["to_do"] for file in files)
    said = {
        "waiting": "Nothing could be done yet",
        "planned": f"{to_do:,} of {counted(len(files), 'file')} would be annotated",
        "done": f"R{number[1:]}: {whole}",
    }.get(result.status, f"Nothing to do: {whole}, as at {number}")
    parts = [said]
    if result.status == "done":
        why = Counter(file["why"] for file in files if file["why"])
        now = ", ".join(f"{n:,} {reason}" for reason, n in sorted(why.items()))
        parts.append(f"annotated now: {now or 'none'}")
    for state in ("stale", "retired", "deferred"):
        n = len(getattr(result, state))
        parts += [f"{n:,} {state}"] if n else []
    parts += [f"quarantined: {name}: {reason}" for name, reason in [*result.quarantined.items()][:1]]
    parts += [f"unlike the training set: {', '.join(result.drifted)}"] if result.drifted else []
    return f"{'; '.join(parts)}."


def release_words(result: ReleaseResult) -> str:
    """Return the number of the release in a folder, with the number of quarantined files."""
    number = "no release" if result.release is None else f"release {result.release}"
    return f"{number}, {len(result.quarantined):,} quarantined" if result.quarantined else number


MOST_LISTED = 1000
"""Most files in the table of their states."""
MOST_TROUBLES = 200
"""Files named in a table; the manifest lists all."""


def run_tables(result: ClassificationResult) -> dict[str, ReportTable]:
    """Return the tables of a run by what they are of, in reading order, those that have something to tell."""
    if isinstance(result, ClassificationTrial):
        return {
            "classes": class_count_table("the trial", result.summary),
            "flags": flag_table("the trial", result.summary),
        }
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
        tables["classes"] = class_count_table("this release", result.summary, before)
        tables["flags"] = flag_table("this release", result.summary, before)
        if result.summary.census is not None:
            changes = count_changes(before.census if before else None, result.summary.census)
            tables |= census_tables(result.summary.census, changes)
        if result.summary.drift:
            tables["drift"] = drift_table(result.summary.drift)
    if result.difference and result.difference.compared:
        tables["difference"] = difference_table(result.difference)
    if result.quarantined or result.deferred:
        tables["troubles"] = trouble_table(result)
    return tables


def work_table(files: Mapping[str, FileWork], left_out: Mapping[str, int]) -> ReportTable:
    """Return what was done, and to how many files; `left_out` counts those that nothing was done to, by the state."""
    why = Counter(file["why"] or "unchanged" for file in files.values())
    rows = [*sorted(why.items()), *left_out.items()]
    return ReportTable(
        title="Files",
        columns=("state", "files"),
        rows=tuple((state, f"{n:,}") for state, n in rows),
        numeric=frozenset({1}),
    )


def class_count_table(where: str, counts: Counts, before: Summary | None = None) -> ReportTable:
    """Return the class counts with errors; with the summary `before`, also how far they are from its counts."""

    def change(new: ClassEstimate, old: ClassEstimate | None) -> tuple[str, ...]:
        if old is None:
            return ("–",) * 3
        moved = new["expected"] - old["expected"]
        error = math.hypot(new["error"] or 0.0, old["error"] or 0.0)
        known = error > 0 and None not in (new["error"], old["error"])
        return (
            fixed(old["expected"], 1),
            fixed(moved, 1, "+"),
            fixed(moved / error if known else None, 1, "+"),
        )

    error = "with the error from each object's uncertainty and from the weights that all share"
    return ReportTable(
        title=f"Classes in {where}",
        columns=("class", "assigned", "expected", "±")
        + (() if before is None else ("last expected", "change", "change / ±")),
        rows=tuple(
            (name, f"{new['assigned']:,}", fixed(new["expected"], 1), fixed(new["error"], 1))
            + (() if before is None else change(new, before.classes.get(name)))
            for name, new in counts.classes.items()
        ),
        numeric=frozenset(range(1, 7)),
        note=f"{counted(counts.n_rows, 'object')}. Assigned: by the largest probability. "
        f"Expected: sum of probabilities, {f'without an error: {counts.no_error}' if counts.no_error else error}.",
    )


def flag_table(where: str, counts: Counts, before: Summary | None = None) -> ReportTable:
    """Return the share of each flag that objects have; with the summary `before`, also what it was."""
    rows, never = [], []
    for name, flag in counts.flags.items():
        last = None if before is None else before.flags.get(name)
        if not flag["count"] and not (last and last["count"]):
            never.append(name)
            continue
        row = [str(flag["bit"]), name, flag["meaning"], f"{flag['count']:,}", percent(flag["share"])]
        if before is not None:
            change = None if last is None else 100 * (flag["share"] - last["share"])
            row += [percent(None if last is None else last["share"]), fixed(change, 2, "+")]
        rows.append(tuple(row))
    return ReportTable(
        title=f"Flags in {where}",
        columns=("bit", "flag", "meaning", "objects", "share")
        + (() if before is None else ("last share", "change, points")),
        rows=tuple(rows),
        numeric=frozenset({0, 3, 4, 5, 6}),
        note=f"No object has {', '.join(never)}." if never else "",
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
            (f"  {t['was'] or '(none)'} → {t['now'] or '(none)'}", t["objects"])
            for t in sorted(difference.transitions, key=lambda t: -t["objects"])[:20]
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
            (f["name"], f["state"], f["since"][:16].replace("T", " "), f["why"])
            for f in status.files[:MOST_LISTED]
        ),
        note=f"{counts or 'no file'}. "
        + (f"A stale copy is of an earlier state of its input ({stale:,}). " if stale else "")
        + (f"The {left:,} files after these are {status.files[-1]['state']}." if left > 0 else ""),
    )
