"""Tables of a catalogue's counts: the census, counts and flags against the last run, drift, differences, troubles.

They are texts, made from what `classify`, `reprocess` and the census return; who renders them takes every cell
literally.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from blr.census.results import Census, CountChange, SelectionCensus, SelectionQuality, Source, count_changes
from catalogs.errors import counted
from flows.reports.answers import Finding, Level, begun_large, begun_small, first_labels, plain_end
from flows.reports.report_table import MOST_NAMED, ReportTable, class_words, fixed, percent
from flows.runs import results
from flows.runs.manifest import FolderStatus


def census_tables(census: Census, changes: Mapping[str, CountChange] | None = None) -> dict[str, ReportTable]:
    """Return the tables of a census: the counts, selections where any has objects, and those of bins."""
    found = {"census": census_table(census, changes), "selections": selection_table(census)}
    found |= {f"census-bins-{i}": table for i, table in enumerate(bin_tables(census), 1)}
    return {name: table for name, table in found.items() if table.rows or name != "selections"}


def census_table(census: Census, changes: Mapping[str, CountChange] | None = None) -> ReportTable:
    """Return the counts of the classes, their intervals and what they rest on; with `changes`, also the changes.

    Where no count can be said, the note alone says why.
    """
    by_label = any(c.labelled for c in census.classes.values())
    rows = []
    known = any(c.count is not None for c in census.classes.values())
    for name, c in census.classes.items() if known or changes else ():
        row = [name, *(fixed(v, 0) for v in (c.count, c.low, c.high, *[c.labelled] * by_label))]
        row.append(percent(None if c.count is None else c.count / max(1, census.n_rows)))
        row.append(c.source + (f", assuming {c.assumes}" if c.assumes else ""))
        if changes is not None:
            moved = changes.get(name)
            values = (None,) * 3 if moved is None else (moved.change, moved.low, moved.high)
            row += [fixed(value, 0, "+") for value in values]
        rows.append(row)
    reasons = (begun_large(text) for *_, text, _ in _reasons(census))
    said = " ".join(f"{words}." for words in (*reasons, *_other_label_words(census)))
    columns = f"class | > objects | > 95 % from | > 95 % to {'| > by label' * by_label} | > share | source"
    columns += "" if changes is None else " | > change | > change from | > change to"
    note = f"Of {counted(census.n_rows, 'object')} with probabilities. {said}"
    return ReportTable.of("Census", columns, rows, note=note)


def _other_label_words(census: Census) -> Iterator[str]:
    """Yield what the counts do with objects like those whose label is of no class; nothing without such labels."""
    if census.other_labels:
        n, shown = sum(census.other_labels.values()), first_labels(census.other_labels)
        have = f"of the labelled catalogue {'has a label' if n == 1 else 'have labels'} of no class"
        yield f"{counted(n, 'object')} {have}, {shown}; the counts take objects like them for one of the classes"


def _reasons(census: Census) -> list[tuple[Source, str, str, list[str]]]:
    """Return source, assumption and reason of the counts, each reason once, with the classes that it is of.

    An audit's reasons are one: what is the same for all its classes, then what each has of its own.
    """
    audited = {name: c.reason.split("; ") for name, c in census.classes.items() if c.source == "audit"}
    first = next(iter(audited.values()), [])
    shared = [one for one in first if all(one in some for some in audited.values())]
    own = {name: [one for one in some if one not in shared] for name, some in audited.items()}
    of_audit = "; ".join([*shared, *(f"{name}: {', '.join(some)}" for name, some in own.items() if some)])
    reasons: dict[tuple[Source, str, str], list[str]] = {}
    for name, c in census.classes.items():
        reason = of_audit if name in audited else c.reason
        reasons.setdefault((c.source, c.assumes or "", reason), []).append(name)
    return [(*key, names) for key, names in reasons.items()]


def selection_table(census: Census) -> ReportTable:
    """Return purity and completeness of the objects assigned to a class, and of those selected by their probability."""
    rows = []
    for name, count in census.classes.items():
        if count.assigned is not None:
            rows.append((name, "most probable class", *_quality(count.assigned)))
        rows.extend((name, *_selected(s)) for s in count.selections)
    notes = (
        _AT_TRAINING_SHARES * any(count.selections for count in census.classes.values()),
        "–: too few labelled objects tell." * any("–" in row for row in rows),
    )
    return ReportTable.of_kind("selections", rows, notes=" ".join(filter(None, notes)))


def bin_tables(census: Census) -> tuple[ReportTable, ...]:
    """Return a table of the counts by bin, and one of the selections at one half and at stated thresholds."""
    binned = census.bins
    if binned is None:
        return ()
    cells = [(one, name, c) for one in binned.bins for name, c in one.classes.items()]
    counts = (
        [one.name, f"{one.objects:,}", f"{one.labelled:,}", name]
        + [fixed(v, 0) for v in (c.count, c.low, c.high)]
        + [percent(c.count / max(1, one.objects)), _interval(c.low, c.high, max(1, one.objects))]
        for one, name, c in cells
    )
    selections = (
        (one.name, name, *_selected(s))
        for one, name, c in cells
        for s in c.selections
        if s.stated or s.threshold == SHOWN_IN_BINS
    )
    thresholds = (
        (name, s.stated, *_quality(s), "; ".join(f"{b}: {t:.4g}" for b, t in s.thresholds.items()))
        for name, of_class in binned.selections.items()
        for s in of_class
    )
    by = binned.by
    tables = (
        ReportTable.of_kind("bin_selections", selections, by=by, shares=_AT_TRAINING_SHARES),
        ReportTable.of_kind("bin_thresholds", thresholds, by=by),
    )
    return (
        ReportTable.of_kind("bin_counts", counts, by=by, reason=begun_large(binned.reason)),
        *(table for table in tables if table.rows),
    )


CLASS_FOR_THEM = "Give them a class under [label] classes if the target has many such objects."
"""What to do about labels of no class."""
SHOWN_IN_BINS = 0.5
"""Threshold of the selections that bins show beside the stated ones; all are in `summary.json`."""
NOTHING_KNOWN = 0.9
"""Width of an interval from which its centre is not shown: no labelled object is there to tell."""
_AT_TRAINING_SHARES = "The probabilities are those at the class shares of the training."


def _selected(s: SelectionCensus) -> tuple[str, ...]:
    at = "by its own bins" if s.threshold is None else f"{s.threshold:.4g}"
    stated = f" ({s.stated}{f', {s.column}' if s.column else ''})" if s.stated else ""
    return (at + stated, *_quality(s))


def _quality(s: SelectionQuality) -> tuple[str, ...]:
    """Return objects, shares and their intervals in words; no share where hardly any is excluded."""
    ends = (
        (s.purity, s.purity_low, s.purity_high),
        (s.completeness, s.completeness_low, s.completeness_high),
    )
    known = (
        (percent(None if high - low > NOTHING_KNOWN else share), _interval(low, high))
        for share, low, high in ends
    )
    return (f"{s.objects:,}", *(word for words in known for word in words))


def _interval(low: float, high: float, of: float = 1.0) -> str:
    return f"{percent(low / of)} to {percent(high / of)}"


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


def census_findings(census: Census) -> Iterator[Finding]:
    """Yield what the counts rest on, each reason once."""
    reasons = _reasons(census)
    for source, assumes, reason, names in reasons:
        of = "" if len(reasons) == 1 else f" of {', '.join(names)}"
        known = {"audit": "an audit", "labels": "labels of the training"}
        basis = known.get(source, f'the model, assuming "{assumes}"')
        said = f"are from {basis}: {plain_end(reason)}"
        level: Level = "care" if census.contradicted and source == "model" else "plain"
        if source == "cannot be said":
            said, level = f"are not known: {begun_small(reason)}", "care"
        yield Finding(what=f"The counts{of} {said}", level=level)
    for words in _other_label_words(census):
        yield Finding(what=words, level="care", advice=CLASS_FOR_THEM)


def classification_message(result: results.ClassificationResult) -> str:
    """Return the result of a run in words, with the first file that was quarantined and why."""
    if isinstance(result, results.ClassificationTrial):
        return f"Trial on {result.summary.n_rows:,} rows; nothing was written."
    files = _done(result)
    # A stale copy of a file that is left out is a part of the release all the same, and so are copies of earlier runs.
    n_files, n_objects = len(files) + len(result.stale), 0
    if result.summary:
        n_files, n_objects = len(result.summary.files) or n_files, result.summary.n_rows
    whole = f"{counted(n_files, 'file')}, {counted(n_objects, 'object')}"
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
    counts = {state: len(getattr(result, state)) for state in ("stale", "retired", "deferred")}
    parts += [f"{n:,} {state}" for state, n in counts.items() if n]
    parts += [f"quarantined: {name}: {reason}" for name, reason in [*result.quarantined.items()][:1]]
    parts += [f"unlike the training set: {', '.join(result.drifted)}"] if result.drifted else []
    return f"{'; '.join(parts)}."


def _done(result: results.ReleaseResult) -> list[results.FileWork]:
    """Return what was done to the files that are neither quarantined nor deferred."""
    left_out = {*result.quarantined, *result.deferred}
    return [file for name, file in result.files.items() if name not in left_out]


def release_words(result: results.ReleaseResult) -> str:
    """Return the number of the release in a folder, with the number of quarantined files."""
    number = "no release" if result.release is None else f"release {result.release}"
    return f"{number}, {len(result.quarantined):,} quarantined" if result.quarantined else number


MOST_LISTED = 1000  # most files in the table of their states
MOST_TROUBLES = 200  # files named in a table; the manifest lists all


def run_tables(result: results.ClassificationResult) -> dict[str, ReportTable]:
    """Return the tables of a run by what they are of, in reading order, those that have something to tell."""
    if isinstance(result, results.ClassificationTrial):
        of = ("the trial", result.summary)
        return {"classes": class_count_table(*of), "flags": flag_table(*of)}
    before = result.before.totals if result.before else None
    states = sorted(Counter(file["why"] or "unchanged" for file in _done(result)).items())
    states += [(name, len(getattr(result, name))) for name in ("stale", "retired", "quarantined", "deferred")]
    tables = {"files": ReportTable.of_kind("states", ((name, f"{n:,}") for name, n in states))}
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


def class_count_table(
    where: str, counts: results.Counts, before: results.Summary | None = None
) -> ReportTable:
    """Return the class counts with errors; with the summary `before`, also how far they are from its counts."""
    rows = []
    for name, new in counts.classes.items():
        row = [name, f"{new['assigned']:,}", fixed(new["expected"], 1), fixed(new["error"], 1)]
        if before is not None:
            old, last, moved, in_errors = before.classes.get(name), None, None, None
            if old is not None:
                last, moved = old["expected"], new["expected"] - old["expected"]
                if None not in (new["error"], old["error"]):
                    error = math.hypot(new["error"] or 0.0, old["error"] or 0.0)
                    in_errors = moved / error if error > 0 else None
            row += [fixed(last, 1), fixed(moved, 1, "+"), fixed(in_errors, 1, "+")]
        rows.append(row)
    columns = "class | > assigned | > expected | > ±"
    columns += "" if before is None else " | > last expected | > change | > change / ±"
    error_of = "with the error from each object's uncertainty and from the weights that all share"
    if counts.no_error:
        error_of = f"without an error: {counts.no_error}"
    said = f"Assigned: by the largest probability. Expected: sum of probabilities, {error_of}."
    return ReportTable.of(
        f"Classes in {where}", columns, rows, note=f"{counted(counts.n_rows, 'object')}. {said}"
    )


def flag_table(where: str, counts: results.Counts, before: results.Summary | None = None) -> ReportTable:
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
        rows.append(row)
    columns = "> bit | flag | meaning | > objects | > share"
    columns += "" if before is None else " | > last share | > change, points"
    note = f"No object has {', '.join(never)}." if never else ""
    return ReportTable.of(f"Flags in {where}", columns, rows, note=note)


def drift_table(drift: Mapping[str, results.FeatureDrift]) -> ReportTable:
    """Return how the features differ from the training set's."""
    rows = []
    for name, one in drift.items():
        moved = (fixed(one.mean_shift, 2, "+"), fixed(one.sd_ratio, 2))
        missing = (percent(one.missing), fixed(100 * one.missing_change, 1, "+"))
        index = (fixed(one.index, 3), fixed(one.expected_index, 3))
        rows.append((name, *index, *moved, *missing, "yes" if one.has_drifted else ""))
    return ReportTable.of_kind("drift", rows, drifted=results.DRIFTED)


def difference_table(difference: results.Difference) -> ReportTable:
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
    cells = ((what, f"{n:,}") for what, n in rows)
    return ReportTable.of_kind("difference", cells, largest=difference.largest_move)


def trouble_table(result: results.ReleaseResult) -> ReportTable:
    """Return the files that were not annotated, and why."""
    states = (("quarantined", result.quarantined), ("deferred", result.deferred))
    rows = [(name, state, why) for state, files in states for name, why in files.items()]
    more = f"and {len(rows) - MOST_TROUBLES} more" if len(rows) > MOST_TROUBLES else ""
    return ReportTable.of_kind("troubles", rows[:MOST_TROUBLES], more=more)


def status_table(status: FolderStatus) -> ReportTable:
    """Return the state of each file of a release, since when and why; the files in trouble come first."""
    counts = ", ".join(f"{n:,} {state}" for state, n in status.counts.items() if n)
    stale = status.counts["stale"]
    left, shown = len(status.files) - MOST_LISTED, status.files[:MOST_LISTED]
    rows = ((f["name"], f["state"], f["since"][:16].replace("T", " "), f["why"]) for f in shown)
    note = f"{counts or 'no file'}. "
    note += f"A stale copy is of an earlier state of its input ({stale:,}). " if stale else ""
    note += f"The {left:,} files after these are {status.files[-1]['state']}." if left > 0 else ""
    return ReportTable.of_kind("status", rows, release=status.release, note=note)


def set_tables(catalogue: str, found: results.Counts) -> tuple[ReportTable, ...]:
    """Return the table of the prediction sets of a catalogue, where it has such."""
    sets = found.sets
    if sets is None:
        return ()
    n = sum(sets.sizes)
    mean = f"{sum(size * count for size, count in enumerate(sets.sizes)) / n:.2f}" if n else "–"
    empty, full = (sets.sizes[0], sets.sizes[-1]) if n else (0, 0)
    rows = []
    for name, c in sets.classes.items():
        least = "0" if c["least"] is None else f"{c['least']:.3g}"
        counts = (f"{c['count']:,}", f"{c['rows']:,}", least, percent(c["spread"]))
        rows.append((str(c["bit"]), name, *counts, c.get("remark", "")))
    about = {"catalogue": catalogue, "level": percent(sets.level), "reason": begun_large(sets.reason)}
    return (ReportTable.of_kind("sets", rows, **about, n=n, mean=mean, empty=empty, full=full),)
