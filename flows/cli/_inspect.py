"""`blr inspect` and `blr init`."""

# ruff: noqa: PLC0415 -- most files that are inspected are no models

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from catalogs.errors import counted
from catalogs.profile.quality import Leak
from flows.cli._printing import print_table, say, say_next, show, shown_progress
from flows.draft import inspection
from flows.request import InitRequest

MOST_CLASSES = 12  # classes that a line names
MOST_SHOWN = 6  # columns of a kind that are shown; of those that give the class away for sure, all
PAIR = "colour, or leak: only together"


def run_inspect(
    *, inspected: str, label: str | None, limit: int | None = None, table: str | None = None, json: bool
) -> None:
    """Say what a file holds."""
    with shown_progress(quiet=True):
        result = inspection.inspect_file(inspected, limit=limit, label=label, table=table)
    if isinstance(result, inspection.CatalogueSummary):
        show(result, partial(_show_catalogue, table=table), json=json, kind="catalogue")
    else:
        from flows.cli._models import show_trained

        show(result, partial(show_trained, verbose=True), json=json, kind="model")


def run_init(request: InitRequest, *, json: bool) -> None:
    """Write a first specification, or print it."""
    from flows.draft.specification import start_file

    with shown_progress(quiet=True):
        start = start_file(request)
    show(start, _show_started, json=json)


def _show_started(result: inspection.StartedSpecification) -> None:
    if result.path is None:
        say(result.text.rstrip("\n"))
        return
    say(*result.summary)
    if result.columns_file is not None:
        say(f"Columns were recognised by the names in {result.columns_file} too")
    say(f"{result.path}: {counted(len(result.classes), 'class')}, {counted(len(result.features), 'feature')}")
    say("Read it: its classes and features are guesses")
    say_next("blr", "train", result.path)


def _show_catalogue(result: inspection.CatalogueSummary, table: str | None) -> None:
    size = f"{counted(result.n_rows, 'row')}, {counted(len(result.columns), 'column')}"
    say(f"{result.path}: {result.format}, {size}")
    if result.n_seen < result.n_rows:
        say(f"Ranges and shares are those of the first {result.n_seen:,} rows")
    keys = ("name", "datatype", "unit", "ucd", "minimum", "median", "maximum")
    rows = []
    for c in (c for column in result.columns for c in (column, *column.elements)):
        missing = "" if c.missing is None else f"{c.missing:.1%}"
        rows.append((*(_cell(getattr(c, key, None)) for key in keys), missing, _remark(c, result.files)))
    print_table("Columns", (*keys, "missing", "remarks"), rows)
    say(*(f"Altered or incomplete: {wrong}" for wrong in result.wrong_checksums))
    say(*(f"Suspected identifier: {i['column'] or repr('')} ({i['why']})" for i in result.identifiers))
    if result.commented_out:
        say(f"{result.commented_out}: if they are rows, put their first field into quotation marks")
    _show_position(result.position)
    say(*_first([f"Columns that are equal in every row: {', '.join(g)}" for g in result.duplicate_columns]))
    if result.label is not None:
        _show_label(result.label)
    label = "COLUMN" if result.label is None else result.label.column
    chosen = () if table is None else ("--table", table)
    say_next("blr", "init", result.path, *chosen, "--label", label, "--out", "spec.toml")


def _show_position(place: inspection.PositionSummary | None) -> None:
    if place is None:
        say("No columns of positions were recognised")
        return
    unit = place.unit or "an unreadable unit"
    where = ", ".join(place.columns) if place.ra is None else f"{place.ra}, {place.dec}, in {unit}"
    say(f"Position: {where}", *(f"  {remark}" for remark in place.remarks))


def _show_label(label: inspection.LabelSummary) -> None:
    rows = [(text, f"{n:,}") for text, n in label.counts.items()]
    which = f"The {len(rows)} most frequent labels" if len(rows) == inspection.MOST_LABELS else "Labels"
    print_table(f"{which} in {label.column}", ("label", "rows"), rows)
    shown = [f"{name} ({c['rows']:,} rows)" for name, c in [*label.drafted.items()][:MOST_CLASSES]]
    if shown:
        more = ", ..." if len(label.drafted) > len(shown) else ""
        alike = any(len(c["spellings"]) > 1 for c in label.drafted.values())
        case = "; spellings that differ in case only are one" if alike else ""
        say(f"Classes that `blr init` makes of them: {', '.join(shown)}{more}{case}")
    leaks = [
        (", ".join(leak.columns), f"{leak.gain:.0%}", f"{leak.beyond:.0%}", _kind(leak), leak.combination)
        for leak in label.leaks
    ]
    if leaks:
        columns = ("columns", "tell of the class", "beyond their parts", "suspicion", "by")
        most = max(MOST_SHOWN, sum(leak[3] != PAIR for leak in leaks))
        more = f"and {len(leaks) - most} more: --json has them" if len(leaks) > most else ""
        print_table("What gives the class away", columns, leaks[:most], remark=more)
    say(*_first([f"Selection-like: {name} is {presence}" for name, presence in label.presence.items()]))
    if label.bookkeeping:
        say(f"Selection-like, whole numbers that tell of the class: {', '.join(_first(label.bookkeeping))}")


def _first(things: Sequence[str]) -> list[str]:
    """Return the first of many, and how many more there are."""
    left = len(things) - MOST_SHOWN
    return [*things[:MOST_SHOWN], *[f"and {left} more: --json has them"] * (left > 0)]


def _kind(leak: Leak) -> str:
    if len(leak.columns) == 1:
        return "leak: the label in other numbers" if leak.combination else "suspect: by itself"
    return "leak: computed with the class" if leak.derived else PAIR


def _remark(column: inspection.ColumnSummary, files: int) -> str:
    marks = [f"absent in {column.absent:,} of {files:,} files"] if column.absent else []
    marks += [f"{_cell(s.value)} in {s.count:,} rows: a mark for 'no value'?" for s in column.sentinels]
    texts = (f"'{text}' in {n:,} rows among numbers" for text, n in column.texts.items())
    marks += [f"{said}: a mark for 'no value'?" for said in texts]
    marks += [column.not_numbers] if column.not_numbers else []
    return "; ".join((["constant"] if column.constant else []) + marks)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
