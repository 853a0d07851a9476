"""The table of `bench_labels.py`: of stored fits, our run beside its best peer in every cell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import t as student

__all__ = ["OURS", "TIED", "Fit", "Gap", "read_fits", "table_page", "verdict"]

OURS = "ours"
NEWEST, EARLIER = "ours, newest code", "ours, the code before it"
TIED = 0.01
"""Largest mean gap in nats that may still be called a tie."""
FEWEST_PAIRS = 5
"""Splits that a peer has in common with ours, or as many as any peer has, before it can be the best."""


@dataclass(frozen=True)
class Fit:
    """One method on one split, and its scores on the test rows: none where it failed.

    `log_loss` (nats an object) is of probabilities of at least 1e-6, `log_loss_unfloored` of those of the method, kept
    from 0 by the machine precision; `brier` is the sum over the classes; `calibration_error` is the mean over classes,
    of 15 bins of equal weight.
    """

    set: str
    size: str
    biased: bool
    split: int
    method: str
    code: str
    n_labels: int
    n_test: int
    log_loss: float | None
    log_loss_unfloored: float | None
    brier: float | None
    calibration_error: float | None
    seconds: float
    failure: str = ""
    remark: str = ""


Cell = tuple[str, str, bool]
Splits = Mapping[int, Fit]


@dataclass(frozen=True)
class Gap:
    """Mean over the common splits of our log loss less a peer's, with half the width of its 95 % interval."""

    peer: str
    mean: float
    half: float
    n: int


def read_fits(folder: Path) -> list[Fit]:
    """Return all stored fits, in the order of the files; a line that a kill cut off is passed over."""
    fits = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                fits.append(Fit(**json.loads(line)))
            except (json.JSONDecodeError, TypeError):
                continue
    return fits


def verdict(gap: Gap) -> str:
    """Return first (interval below zero), tied (it reaches zero, mean at most 0.01) or behind."""
    if gap.n < 2:
        return "one split"
    if gap.mean + gap.half < 0:
        return "first"
    return "tied" if gap.mean - gap.half <= 0 and gap.mean <= TIED else "behind"


def gap_to(peer: str, our: Splits, theirs: Splits) -> Gap | None:
    """Return our gap to a peer on the splits that both have, with Student's interval."""
    d = [
        our[split].log_loss - fit.log_loss
        for split, fit in theirs.items()
        if fit.log_loss is not None and split in our and our[split].log_loss is not None
    ]
    if not d:
        return None
    spread = np.std(d, ddof=1) / np.sqrt(len(d)) if len(d) > 1 else np.nan
    half = float(student.ppf(0.975, len(d) - 1) * spread) if len(d) > 1 else float("nan")
    return Gap(peer, float(np.mean(d)), half, len(d))


def cells(fits: Iterable[Fit], code: str | None) -> dict[Cell, dict[str, dict[int, Fit]]]:
    """Return the fits by cell, method and split; ours of a version of the code, by default the newest of each split.

    The fits of the newest version, and the earlier ones of the same splits, are `NEWEST` and `EARLIER`.
    """
    by_cell: dict[Cell, dict[str, dict[int, Fit]]] = {}
    ours: dict[Cell, list[Fit]] = {}
    for fit in fits:
        cell = fit.set, fit.size, fit.biased
        methods = by_cell.setdefault(cell, {})
        if fit.method == OURS:
            ours.setdefault(cell, []).append(fit)
        else:
            methods.setdefault(fit.method, {})[fit.split] = fit
    for cell, mine in ours.items():
        wanted = [fit for fit in mine if code in (None, fit.code)]
        if not wanted:
            continue
        by_cell[cell][OURS] = {fit.split: fit for fit in wanted}
        newest = [fit for fit in wanted if fit.code == wanted[-1].code]
        by_cell[cell][NEWEST] = {fit.split: fit for fit in newest}
        by_cell[cell][EARLIER] = {fit.split: fit for fit in wanted if fit.code != newest[0].code}
    return by_cell


def best_peer(methods: Mapping[str, Splits]) -> tuple[str, Gap | None] | None:
    """Return the peer that is farthest before ours, or without ours the one of the lowest mean log loss."""
    peers = {name: splits for name, splits in methods.items() if name not in (OURS, NEWEST, EARLIER)}
    gaps = [gap for name in peers if (gap := gap_to(name, methods.get(OURS, {}), peers[name])) is not None]
    if gaps:
        enough = min(FEWEST_PAIRS, max(gap.n for gap in gaps))
        best = max((gap for gap in gaps if gap.n >= enough), key=lambda gap: gap.mean)
        return best.peer, best
    enough = min(FEWEST_PAIRS, max(map(len, peers.values()), default=0))
    means = {
        name: mean
        for name, splits in peers.items()
        if len(splits) >= enough and (mean := _mean(splits, "log_loss")) is not None
    }
    return (min(means, key=lambda name: means[name]), None) if means else None


def _mean(splits: Splits, score: str, only: Iterable[int] | None = None) -> float | None:
    wanted = splits if only is None else only
    values = [getattr(splits[s], score) for s in wanted if s in splits]
    values = [value for value in values if value is not None]
    return float(np.mean(values)) if values else None


def _text(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _failures(methods: Mapping[str, Splits]) -> str:
    """Return which methods failed in how many splits, with the kind of the error."""
    words = []
    for name, splits in methods.items():
        if name in (NEWEST, EARLIER):
            continue
        for kind, n in Counter(f.failure.partition(":")[0] for f in splits.values() if f.failure).items():
            words.append(f"{name}: {kind}, {n} of {len(splits)}")
    remarks = sum(bool(f.remark) for f in methods.get(OURS, {}).values())
    return "; ".join([*words, *[f"ours: remarks in {remarks}"] * bool(remarks)])


HEADER = (
    *("set", "labels", "drawn", "splits", "ours", "best peer", "its log loss", "ours less it", "verdict"),
    *(
        "calibration, ours",
        "its",
        "seconds, ours",
        "its",
        "our code",
        "newest code less the one before",
        "failed",
    ),
)


def _row(cell: Cell, methods: Mapping[str, Splits]) -> list[str]:
    name, size, biased = cell
    our = methods.get(OURS, {})
    found = best_peer(methods)
    peer, gap = found or ("", None)
    theirs = methods.get(peer, {})
    common = None if gap is None else [s for s in theirs if s in our]
    change = gap_to(EARLIER, methods.get(NEWEST, {}), methods.get(EARLIER, {}))
    n_labels = next(fit.n_labels for splits in methods.values() for fit in splits.values())
    return [
        name,
        f"{n_labels:,}" + (" (all)" if size == "all" else ""),
        "biased" if biased else "random",
        str(gap.n if gap else len(theirs or our)),
        _text(_mean(our, "log_loss", common)),
        peer,
        _text(_mean(theirs, "log_loss", common)),
        _shown(gap),
        "failed" if any(fit.failure for fit in our.values()) else verdict(gap) if gap else "",
        _text(_mean(our, "calibration_error", common), 3),
        _text(_mean(theirs, "calibration_error", common), 3),
        _text(_mean(our, "seconds"), 1),
        _text(_mean(theirs, "seconds"), 1),
        ", ".join(f"{name} ({n})" for name, n in Counter(fit.code for fit in our.values()).most_common()),
        f"{_shown(change)} ({change.n} splits)" if change else "",
        _failures(methods),
    ]


def _shown(gap: Gap | None) -> str:
    return f"{gap.mean:+.4f}" + (f" ± {gap.half:.4f}" if gap.n > 1 else "") if gap else ""


INTRODUCTION = """\
# Our default run beside its peers

Written by `bench_labels.py` from the fits in `results/`; do not edit. Mean log loss over the splits, in nats an
object, of probabilities of at least 1e-6. *Ours* is what `blr init` writes, unedited, trained, and the stored
model's probabilities of test rows. The *best peer* is the one of eight that is farthest before ours in this cell,
chosen by the same splits, which favours peers. *Ours less it*: the paired difference with its 95 % Student interval
over splits; negative is better. Splits share rows, which the interval does not know of. *First*: the interval is
below zero; *tied*: it reaches zero and the mean is at most 0.01; *behind*: the rest. Calibration errors are the
mean over classes, of 15 bins of equal weight. *Failed*: ours raised an error in some split. Seconds are of one
thread, and of ours include the specification and the classification; those of ours by code of 29 November 2026 or
later are of the processor, older ones of the clock of a machine that others share.

Peers: logistic regression with C by five folds (degrees 1 to 3, up to 2,500 terms: beyond is `NotRunError`), linear
discriminant, random forest (500 trees, three rows a leaf), histogram boosting (early stopping), CatBoost, and up to
1,000 labels a Gaussian process (above 200 labels with five splits). They get the median for a missing value, and
colours and ratios where there are magnitudes and axes; ours gets the catalogue's columns as they are. Every class
has at least two labels in the training draw. *Biased*: all labels are from one third of the rows, by a variable of
the set: the brightest (OpenNGC and 6dFGS in B, SDSS in r, LINEAR's median, Kepler's band), the largest share of
votes for features or a disc (Galaxy Zoo 2), the largest mean texture (breast cancer), most ink (digits); the test
rows are any. Empty cells have not been run.

A split that several versions of our code ran counts with the newest of them; *our code* names all that count, the one
with the most splits first. *Newest code less the one before*: the paired difference on the splits that both ran.
"""


def table_page(fits: Sequence[Fit], *, code: str | None = None) -> str:
    """Return the page of all cells that have a fit, sets in the order of their names, sizes by number."""
    return INTRODUCTION + "\n" + "\n".join(_lines(cells(fits, code))) + "\n"


def _lines(by_cell: Mapping[Cell, Mapping[str, Splits]]) -> Iterator[str]:
    rows = [_row(cell, by_cell[cell]) for cell in sorted(by_cell, key=lambda c: (c[0], c[2], _number(c[1])))]
    words = Counter(word for row in rows if (word := row[HEADER.index("verdict")]))
    yield (
        f"Cells: {len(rows)}; " + (", ".join(f"{n} {w}" for w, n in words.items()) or "ours in none") + ".\n"
    )
    yield "| " + " | ".join(HEADER) + " |"
    yield "|" + "---|" * len(HEADER)
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def _number(size: str) -> float:
    return float("inf") if size == "all" else float(size)
