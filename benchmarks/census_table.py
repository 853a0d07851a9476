"""The table of `bench_census.py`: coverage, widths and errors of every cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["table_page"]

Line = Mapping[str, Any]
NORMAL = 3.92
"""Width of a 95 % interval of a normal error, in standard deviations."""
BIASED = ("bright third", "bright third, x 1/4", "mild bias")
"""Changes whose labels are unlike the target: counted under "features", and by the default where it counts."""
PEERS = ("QuaPy EMQ", "QuaPy PACC", "QuaPy KDEy")
BESIDE = (*PEERS, "beside peers")
"""Sums of the splits that peers were tried on: of the latest lines that have them, with our counts by those rules."""
SPANNING, ALONE = ", spanning", ", shares alone"
HEAD = """# The census: do its intervals hold?

Made by `python benchmarks/bench_census.py`, which says what a cell is; nothing here is written by hand.
Coverage is of 95 % intervals, over classes and repeats; "width" is the mean width over 3.92 times the root mean square
error of the same estimate (1 where the interval is as wide as a normal error asks); errors are root mean square, in
percent of all objects.  "Said" is the share of runs with counts, under the assumption that the test chooses: it should
be 100 % above, and 0 % where the labels are of the bright third.  A "–" is nothing to tell.  Counts under
"features" are tried although the census refuses them where the area is above 0.75.  "Bins" are quarters of the target
by a feature: shares of the classes there, purity and completeness from a probability of one half; lines of earlier
versions have none.  "Mild bias": the chance that a row is labelled falls by a third for each standard deviation of one
feature, so that "features" is true, and the area is too small for the test to refuse "shares".  "Both" is the share of
runs whose answer spans "shares" and "features", because a test contradicts "shares": where the labels are not biased
these are false alarms.  "A class without labels": the rarest class of three or more has none; the shares are those of
the others, of all objects.  "There, shares" is what "shares" alone would hold in just these runs.
"""


class _Cell:
    """The sums of a cell: numbers, hits, squared errors and widths, by what is counted."""

    def __init__(self, lines: Sequence[Line], beside: Sequence[Line] = ()) -> None:
        self.repeats = sum(line["repeats"] for line in lines)
        self.said = sum(line["said"] for line in lines)
        self.spanning = sum(line.get("spanning", 0) for line in lines)
        self.auc = [auc for line in lines for auc in line["auc"]]
        self.sums: dict[str, np.ndarray] = {}
        both = [(line, line["sums"].keys() - set(BESIDE)) for line in lines]
        both += [(line, line["sums"].keys() & set(BESIDE)) for line in beside]
        for line, names in both:
            for what in names:
                self.sums[what] = self.sums.get(what, 0.0) + np.asarray(line["sums"][what])

    def coverage(self, what: str) -> str:
        if what not in self.sums:
            return "–"
        n, hits, _, _ = self.sums[what]
        return f"{100 * hits.sum() / n.sum():.1f}"

    def width(self, what: str) -> str:
        if what not in self.sums:
            return "–"
        n, _, squares, widths = self.sums[what]
        error = np.sqrt(squares.sum() / n.sum())
        return f"{widths.sum() / n.sum() / NORMAL / max(error, 1e-12):.2f}"

    def error(self, what: str) -> str:
        if what not in self.sums:
            return "–"
        n, _, squares, _ = self.sums[what]
        return f"{100 * np.sqrt(squares.sum() / n.sum()):.2f}"


def table_page(lines: Iterable[Line]) -> str:
    """Return the page of stored lines."""
    by_rules: dict[tuple[str, int, str], dict[int, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        by_rules[line["change"], line["size"], line["set"]][line.get("rules", 1)].append(line)
    latest = {key: max(of) for key, of in by_rules.items()}
    cells = {key: by_rules[key][rules] for key, rules in latest.items()}
    done = {key: _Cell(of, _beside(by_rules[key])) for key, of in sorted(cells.items())}
    changes = sorted(
        sorted({key[0] for key in done}), key=("same", "x 1/4", "x 4").__contains__, reverse=True
    )
    parts = [HEAD, _earlier(latest), _pooled(done, changes)]
    for change in changes:
        here = {(size, name): cell for (c, size, name), cell in done.items() if c == change}
        parts.append(f"## {change}\n\n" + (_biased(here) if change in BIASED else _counted(here)))
    return "\n".join(parts)


def _beside(by_rules: Mapping[int, Sequence[Line]]) -> Sequence[Line]:
    """Return the lines of the latest rules by which peers were tried."""
    tried = {
        rules: of for rules, lines in by_rules.items() if (of := [r for r in lines if PEERS[0] in r["sums"]])
    }
    return tried[max(tried)] if tried else ()


def _earlier(latest: Mapping[tuple[str, int, str], int]) -> str:
    """Return which changes have cells by earlier rules of the census than the latest that any cell has."""
    newest = max(latest.values(), default=1)
    of = sorted({change for (change, _, _), rules in latest.items() if rules < newest})
    cells = sum(rules < newest for rules in latest.values())
    if not of:
        return f"All cells are by the rules number {newest}.\n"
    return f"Cells are by the rules number {newest}, but {cells} of {', '.join(of)}: these are by earlier ones.\n"


def _pooled(done: Mapping[tuple[str, int, str], _Cell], changes: Sequence[str]) -> str:
    head = (
        "| change | repeats | said % | both % | counts | width | purity | completeness | declared | width | bins | "
        "width | purity in bins | completeness in bins |"
    )
    rows = []
    for change in changes:
        of = [cell for (c, _, _), cell in done.items() if c == change]
        pooled = _Cell([])
        for cell in of:
            pooled.repeats, pooled.said = pooled.repeats + cell.repeats, pooled.said + cell.said
            pooled.spanning += cell.spanning
            for what, rows_of in cell.sums.items():
                pooled.sums[what] = pooled.sums.get(what, 0.0) + rows_of.sum(axis=1, keepdims=True)
        declared = "features" if change in BIASED else "same"
        refused = change.startswith("bright")
        counted = ["–"] * 2 if refused else [pooled.coverage("default"), pooled.width("default")]
        cells = [
            f"{change}",
            f"{pooled.repeats}",
            f"{100 * pooled.said / max(pooled.repeats, 1):.1f}",
            f"{100 * pooled.spanning / max(pooled.repeats, 1):.1f}",
            *counted,
            *(pooled.coverage(what) for what in ("purity", "completeness", declared)),
            pooled.width(declared),
            pooled.coverage("bins"),
            pooled.width("bins"),
            pooled.coverage("purity in bins"),
            pooled.coverage("completeness in bins"),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    note = 'Pooled over sets and sizes; "declared" is `assumes = "same"`, or "features" where the labels are biased.\n'
    return "\n".join([note, head, "|" + " --- |" * 14, *rows, ""])


def _counted(cells: Mapping[tuple[int, str], _Cell]) -> str:
    head = (
        "| set | labels | repeats | said % | both % | counts | width | error | on the same splits: ours | "
        + " | ".join(PEERS)
        + " | purity | width | completeness | width | bins | width | area |"
    )
    rows = []
    for (size, name), cell in cells.items():
        rows.append(
            f"| {name} | {size} | {cell.repeats} | {100 * cell.said / cell.repeats:.1f} | "
            f"{100 * cell.spanning / cell.repeats:.1f} | "
            f"{cell.coverage('default')} | {cell.width('default')} | {cell.error('default')} | "
            f"{cell.error('beside peers')} | "
            + " | ".join(cell.error(peer) for peer in PEERS)
            + f" | {cell.coverage('purity')} | {cell.width('purity')} | {cell.coverage('completeness')} | "
            f"{cell.width('completeness')} | {cell.coverage('bins')} | "
            f"{cell.width('bins')} | {min(cell.auc):.2f} to {max(cell.auc):.2f} |"
        )
    return "\n".join([head, "|" + " --- |" * 19, *rows, ""])


def _biased(cells: Mapping[tuple[int, str], _Cell]) -> str:
    head = (
        "| set | labels | repeats | said % | both % | by default: counts | width | error | purity | completeness | "
        "where both: counts | purity | completeness | there, shares: counts | purity | completeness | "
        "features: counts | width | error | area |"
    )
    rows = [
        f"| {name} | {size} | {cell.repeats} | {100 * cell.said / cell.repeats:.1f} | "
        f"{100 * cell.spanning / cell.repeats:.1f} | "
        f"{cell.coverage('default')} | {cell.width('default')} | {cell.error('default')} | "
        f"{cell.coverage('purity')} | {cell.coverage('completeness')} | "
        + " | ".join(
            cell.coverage(f"{what}{kind}")
            for kind in (SPANNING, ALONE)
            for what in ("default", "purity", "completeness")
        )
        + f" | {cell.coverage('features')} | "
        f"{cell.width('features')} | {cell.error('features')} | {min(cell.auc):.2f} to {max(cell.auc):.2f} |"
        for (size, name), cell in cells.items()
    ]
    return "\n".join([head, "|" + " --- |" * 20, *rows, ""])
