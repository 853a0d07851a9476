"""The page of `bench_audit.py`: how often intervals hold, and how wide they are beside a simple sample's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["table_page"]

RARE = 0.01
"""Share below which a class is called rare."""
QUANTITIES = ("count", "purity", "completeness", "purity at p > 0.9", "completeness at p > 0.9")
SHOWN = 12
HEAD = """# Audits: intervals of counts, purity and completeness

`bench_audit.py` draws audits of catalogues whose truth is known, with models that are good or wrong on purpose, and
estimates as `blr audit estimate` does. A cell is a quantity of a class, a population, a model and a number of objects
looked at. Coverage is that of 95 % intervals over {repeats} audits, so that its own standard error is
{error:.1f} points. A rare class has less than 1 % of the objects.

Width is the mean width as a share of a simple random sample's of as many objects, the median over cells. Wilson's
interval of a simple sample is narrow, and its coverage in the worst cells is in the last column. Clopper and Pearson's
holds everywhere, as ours does.

"""
COLUMNS = (
    "quantity", "class", "model", "n", "cells", "mean coverage", "worst", "cells below 93 %", "width / Wilson",
    "width / Clopper-Pearson", "worst of Wilson",
)  # fmt: skip


def table_page(cells: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of the cells that are stored."""
    if not cells:
        return "# Audits\n\nNothing is stored yet.\n"
    rows = [{**{k: c[k] for k in ("population", "model", "n")}, **o} for c in cells for o in c["outcomes"]]
    repeats = min(c["repeats"] for c in cells)
    error = 100 * (0.95 * 0.05 / repeats) ** 0.5
    coverage = [r["coverage"] for r in rows]
    below = sum(c < 0.93 for c in coverage)
    found = (
        f"{len(rows):,} cells of {len({r['population'] for r in rows})} populations: worst coverage "
        f"{100 * min(coverage):.1f} %, {below} below 93 %.\n\n"
    )
    lines = [
        HEAD.format(repeats=f"{repeats:,}", error=error),
        found,
        *_table(COLUMNS, _summed(rows)),
        "\n## By population, all models\n\n",
        *_table(("population", "cells", "mean coverage", "worst", "count's width / Wilson, good model"), _by_set(rows)),
        "\n## The worst cells\n\n",
        *_table(
            ("population", "model", "n", "quantity", "class's share", "truth", "coverage", "width", "Wilson's"),
            [
                (r["population"], r["model"], r["n"], r["quantity"], r["class_share"], r["truth"],
                 f"{100 * r['coverage']:.1f}", r["width"], r["wilson_width"])
                for r in sorted(rows, key=lambda r: r["coverage"])[:SHOWN]
            ],
        ),
    ]  # fmt: skip
    return "".join(lines)


def _summed(rows: Sequence[Mapping[str, Any]]) -> Iterable[tuple[object, ...]]:
    for quantity in QUANTITIES:
        for rare in (False, True):
            for good in (True, False):
                for n in sorted({r["n"] for r in rows}):
                    chosen = [
                        r
                        for r in rows
                        if (r["quantity"], r["class_share"] < RARE, r["model"] == "good", r["n"])
                        == (quantity, rare, good, n)
                    ]
                    if not chosen:
                        continue
                    held = np.array([r["coverage"] for r in chosen])
                    yield (
                        quantity,
                        "rare" if rare else "common",
                        "good" if good else "wrong",
                        n,
                        len(chosen),
                        f"{100 * held.mean():.1f}",
                        f"{100 * held.min():.1f}",
                        int((held < 0.93).sum()),
                        f"{np.median([r['width'] / r['wilson_width'] for r in chosen]):.2f}",
                        f"{np.median([r['width'] / r['exact_width'] for r in chosen]):.2f}",
                        f"{100 * min(r['wilson_coverage'] for r in chosen):.1f}",
                    )


def _by_set(rows: Sequence[Mapping[str, Any]]) -> Iterable[tuple[object, ...]]:
    for name in dict.fromkeys(r["population"] for r in rows):
        mine = [r for r in rows if r["population"] == name]
        held = np.array([r["coverage"] for r in mine])
        ratio = [
            r["width"] / r["wilson_width"] for r in mine if r["quantity"] == "count" and r["model"] == "good"
        ]
        yield (
            name,
            len(mine),
            f"{100 * held.mean():.1f}",
            f"{100 * held.min():.1f}",
            f"{np.median(ratio):.2f}",
        )


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(str(cell) for cell in row)} |\n" for row in lines]
