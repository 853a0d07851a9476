"""Do the intervals of a census hold?  Labelled sets, changed targets, quick models; beside QuaPy on the same splits.

    python benchmarks/bench_census.py [SET ...] [--repeats 150] [--changes same ...] [--table]

The model is a ridge logistic regression of second degree, fitted in milliseconds: what is tried are counts, purity and
completeness, not the model.  A cell is a set, a number of labels and a change of the target: "same", one class "x 1/4"
or "x 4", labels of the "bright third", those with "x 1/4" besides, or "a class without labels": the rarest of three or
more classes, whose objects are in the target all the same.  Bins are quarters of the target by one of the
first three features, in turn.  Ten repeats are a line of `results-census/census.jsonl`, and what is there of the
present `RULES` is not done again.  The table goes to `CENSUS.md`: of each cell it shows the lines of the latest rules.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from labelled_sets import FEWEST_OF_CLASS, SETS, LabelledSet, MissingDataError
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import PolynomialFeatures

from blr.census.bins import BinShares, bin_selection, bin_shares
from blr.census.counts import MOST_CHANGE, Counted, count_classes, lacking_labels, propensity
from blr.census.purity import Parts, selection
from blr.census.shares import (
    LabelledRows,
    TargetRows,
    central_interval,
    shares_if_features,
    shares_if_same,
    shares_if_shares,
)

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results-census" / "census.jsonl"
TABLE = HERE / "CENSUS.md"
CHANGED = {
    "openngc-binary": 0,
    "openngc-five-class": 1,
    "sdss-dr14": 2,
    "linear": 4,
    "kepler": 1,
    "galaxy-zoo-2": 1,
    "6dfgs": 1,
    "breast-cancer": 1,
}
"""The sets, and the class of each whose share is changed."""
CHANGES = (
    "same",
    "x 1/4",
    "x 4",
    "bright third",
    "bright third, x 1/4",
    "mild bias",
    "a class without labels",
)
SIZES = (200, 1000)
RULES = 3
"""Number of the rules by which the census is taken; lines without one are of the first."""
MILD = 0.4
"""By how much the logarithm of the chance of a label falls with each standard deviation of the first feature."""
BATCH = 10
MOST_WITH_PEERS = 30
"""Repeats that QuaPy's methods are tried on as well: they take longer than all else."""
MOST_TARGET = 2000
FOLDS = 10
RIDGE = 0.1
MOST_FEATURES = 12
PRINCIPAL = 8
THRESHOLDS = (0.5, 0.8)
FEWEST_SELECTED = 5
BINS = 4
SPANNING, ALONE = ", spanning", ", shares alone"
"""What is counted where the answer spans "shares" and "features", and what "shares" alone gives there."""
Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Split:
    """Labelled rows and target of one repeat: probabilities, classes and features.

    `truth` are the target's classes, -1 of a class without labels.
    """

    labelled: LabelledRows
    target: TargetRows
    truth: Rows

    @property
    def shares(self) -> Floats:
        """The true shares of the classes that have labels, of all objects."""
        return np.bincount(self.truth[self.truth >= 0], minlength=self.labelled.n_classes) / len(self.truth)


def prepared(labelled: LabelledSet) -> Floats:
    """Return features (N, F) without gaps, standardised, cut at five; principal ones of many."""
    X = labelled.features
    X = np.where(np.isfinite(X), X, np.nanmean(X, axis=0))
    X = np.clip((X - X.mean(axis=0)) / X.std(axis=0), -5, 5)
    if X.shape[1] > MOST_FEATURES:
        left, size, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
        X = (left * size)[:, :PRINCIPAL]
        X = X / X.std(axis=0)
    return X


def split_of(labelled: LabelledSet, X: Floats, size: int, change: str, repeat: int) -> Split | None:
    """Return the labelled rows and the target of a repeat; None where the set has not so many rows."""
    rng = np.random.default_rng([repeat, size, CHANGES.index(change)])
    y, K, k = labelled.y, len(labelled.classes), CHANGED[labelled.name]
    order = rng.permutation(len(y))
    if change == "a class without labels" and K < 3:
        return None
    if change.startswith("bright"):
        if labelled.bias is None or size > 0.9 * len(y) / 3:
            return None
        bias = np.where(np.isfinite(labelled.bias), labelled.bias, np.inf)
        chosen = rng.permutation(order[np.argsort(bias[order], kind="stable")][: len(y) // 3])[:size]
        target = rng.permutation(len(y))[: len(y) // 3]
    else:
        if size > 0.65 * len(y):
            return None
        if change == "mild bias":
            # By a feature alone, so that objects of the same features have the same class shares on both sides.
            odds = np.exp(-MILD * X[:, 0])
            first = rng.choice(len(y), size, replace=False, p=odds / odds.sum())
            order = np.concatenate([first, order[~np.isin(order, first)]])
        chosen, target = order[:size], order[size:]
        if change == "a class without labels":
            rarest = int(np.bincount(y).argmin())
            chosen, K = order[y[order] != rarest][:size], K - 1
            target = order[~np.isin(order, chosen)]
            y = np.where(y == rarest, -1, y - (y > rarest))
        bias = np.zeros(len(y))
    chosen = _with_every_class(y, K, chosen, bias)
    target = target[~np.isin(target, chosen)]
    if change.endswith("x 1/4"):
        target = target[(y[target] != k) | (rng.random(len(target)) < 0.25)]
    elif change == "x 4":
        target = target[(y[target] == k) | (rng.random(len(target)) < 0.25)]
    return _scored(X, y, K, chosen, target[:MOST_TARGET], rng)


def _with_every_class(y: Rows, K: int, chosen: Rows, bias: Floats) -> Rows:
    """Return the chosen rows with two of each class; of one that lacks them, the rows of least bias come in."""
    chosen = chosen.copy()
    for k in range(K):
        short = FEWEST_OF_CLASS - int((y[chosen] == k).sum())
        if short > 0:
            spare = np.setdiff1d(np.flatnonzero(y == k), chosen)
            spare = spare[np.argsort(bias[spare], kind="stable")][:short]
            frequent = np.flatnonzero(y[chosen] == np.bincount(y[chosen]).argmax())
            chosen[frequent[-short:]] = spare
    return chosen


def _scored(X: Floats, y: Rows, K: int, chosen: Rows, target: Rows, rng: np.random.Generator) -> Split:
    """Return the split with probabilities: of the labelled rows by folds without them."""
    Phi = PolynomialFeatures(2, include_bias=False).fit_transform(X[np.concatenate([chosen, target])])
    Phi = Phi / np.maximum(Phi.std(axis=0), 1e-9)
    here, there, of = Phi[: len(chosen)], Phi[len(chosen) :], y[chosen]
    fold = np.empty(len(chosen), dtype=int)
    for k in range(K):
        rows = np.flatnonzero(of == k)
        fold[rows] = rng.permutation(len(rows)) % FOLDS
    left_out = np.empty((len(chosen), K))
    for j in range(FOLDS):
        left_out[fold == j] = _probability(here[fold != j], of[fold != j], K, here[fold == j])
    labelled = LabelledRows(left_out, of, np.ones(len(of)), X[chosen])
    p = _probability(here, of, K, there)
    return Split(labelled, TargetRows(p, np.ones(len(p)), X[target], len(p)), y[target])


def _probability(Phi: Floats, y: Rows, K: int, other: Floats) -> Floats:
    fitted = LogisticRegression(C=RIDGE, max_iter=200, tol=1e-3).fit(Phi, y)
    p = np.full((len(other), K), 1e-4)
    p[:, fitted.classes_] = fitted.predict_proba(other)
    return p / p.sum(axis=1, keepdims=True)


class Sums:
    """Sums over repeats, by what is counted: hits of intervals, squared errors, widths, by class."""

    def __init__(self) -> None:
        self.of: dict[str, list[list[float]]] = defaultdict(list)

    def add(self, what: str, truth: Floats, mean: Floats, low: Floats, high: Floats) -> None:
        """Add an interval of each class, or of each selection."""
        hit = (low <= truth + 1e-9) & (truth <= high + 1e-9)
        row = np.stack([np.ones(len(truth)), hit, (mean - truth) ** 2, high - low])
        self.of[what].append(row.tolist())

    def line(self) -> dict[str, list[list[float]]]:
        """Return numbers, hits, squared errors and widths of each class; of selections, all together."""
        return {what: np.round(_total(rows), 7).tolist() for what, rows in self.of.items()}


def _total(rows: Sequence[Sequence[Sequence[float]]]) -> Floats:
    return np.asarray(np.sum([np.asarray(row) for row in rows], axis=0))


def batch(labelled: LabelledSet, X: Floats, size: int, change: str, first: int) -> dict[str, object] | None:
    """Return the sums of ten repeats."""
    sums, said, spanning, tested, aucs, began = Sums(), 0, 0, 0, [], time.process_time()
    for repeat in range(first, first + BATCH):
        split = split_of(labelled, X, size, change, repeat)
        if split is None:
            return None
        counted = count_classes(split.labelled, split.target)
        tested += 1
        said += counted.shares is not None
        spanning += bool(counted.alternatives)
        aucs.append(_area(split))
        _add_counts(sums, split, counted, change, repeat)
        beside = peers(split) if repeat < MOST_WITH_PEERS else {}
        for name, shares in beside.items():
            sums.add(name, split.shares, shares, shares, shares)
        if beside and counted.shares is not None:
            ours = counted.shares.mean(axis=0)
            sums.add("beside peers", split.shares, ours, ours, ours)
    return {
        "rules": RULES,
        "set": labelled.name,
        "size": size,
        "change": change,
        "first": first,
        "repeats": tested,
        "said": said,
        "spanning": spanning,
        "auc": aucs,
        "seconds": round(time.process_time() - began, 2),
        "sums": sums.line(),
    }


def _area(split: Split) -> float:
    """Return how well the sets are told apart, the area under the curve, each class at its share of the target."""
    labelled, target = split.labelled, split.target
    if lacking_labels(labelled):
        return 0.0
    change = np.clip(
        shares_if_shares(labelled, target).mean(axis=0) / labelled.shares, 1 / MOST_CHANGE, MOST_CHANGE
    )
    return round(propensity(labelled, target, labelled.weight * change[labelled.y])[0], 3)


def _add_counts(sums: Sums, split: Split, counted: Counted, change: str, repeat: int) -> None:
    def add(name: str, shares: Floats | None) -> None:
        if shares is not None:
            sums.add(name, split.shares, shares.mean(axis=0), *central_interval(shares))

    add("default", counted.shares)
    if change == "same":
        add("same", shares_if_same(split.labelled, split.target))
    if change == "bright third":
        # The census refuses these, for the sets overlap too little; here they are tried all the same.
        _, _, ratio = propensity(split.labelled, split.target, split.labelled.weight)
        add("features", shares_if_features(split.labelled, split.target, ratio))
    if change == "mild bias":
        add("features", count_classes(split.labelled, split.target, assumes="features").shares)
    if counted.shares is None or change in {"bright third", "bright third, x 1/4", "a class without labels"}:
        return
    parts = counted.parts
    _add_selections(sums, split, parts)
    _add_bins(sums, split, counted, repeat % min(3, split.target.X.shape[1]))
    if counted.alternatives:
        # What the answer that spans two assumptions holds, and what the first alone would hold there.
        for kind, some, shares in (
            (SPANNING, parts, counted.shares),
            (ALONE, parts[:1], (counted.alternatives or (counted,))[0].shares),
        ):
            add(f"default{kind}", shares)
            _add_selections(sums, split, some, kind)


def _add_selections(sums: Sums, split: Split, parts: Parts, kind: str = "") -> None:
    p, N = split.target.probability, len(split.truth)
    for k in range(p.shape[1]):
        for threshold in THRESHOLDS:
            chosen = p[:, k] >= threshold
            if min(chosen.sum(), (split.truth == k).sum()) < FEWEST_SELECTED:
                continue
            found = selection(
                parts,
                split.labelled.probability[:, k] >= threshold,
                k,
                n_selected=int(chosen.sum()),
                n_objects=N,
                n_seen=N,
            )
            right = split.truth == k
            for what, draws, true in (
                ("purity", found.purity, right[chosen].mean()),
                ("completeness", found.completeness, chosen[right].mean()),
            ):
                ends = found.interval(draws)
                sums.add(f"{what}{kind}", *(np.array([v]) for v in (true, draws.mean(), *ends)))


def _add_bins(sums: Sums, split: Split, counted: Counted, feature: int) -> None:
    """Add the shares of the classes in quarters of the target by a feature, and selections at the first threshold."""
    edges = np.quantile(split.target.X[:, feature], np.arange(1, BINS) / BINS)
    here, there = (
        np.searchsorted(edges, rows.X[:, feature], side="right") for rows in (split.labelled, split.target)
    )
    shares = bin_shares(split.target, counted, here, there, BINS)
    low, high = shares.interval
    mean, K = shares.draws.mean(axis=0), split.labelled.n_classes
    for b in np.unique(there):
        truth = np.bincount(split.truth[there == b], minlength=K) / (there == b).sum()
        sums.add("bins", truth, mean[b], low[b], high[b])
        for k in range(K):
            _add_bin_selection(sums, split, shares, there == b, b, k)


def _add_bin_selection(
    sums: Sums, split: Split, shares: BinShares, inside: NDArray[np.bool_], b: int, k: int
) -> None:
    chosen = split.target.probability[:, k] >= THRESHOLDS[0]
    right = split.truth == k
    if min((inside & chosen).sum(), (inside & right).sum()) < FEWEST_SELECTED:
        return
    found = bin_selection(shares, b, k, THRESHOLDS[0])
    for what, draws, true in (
        ("purity in bins", found.purity, right[inside & chosen].mean()),
        ("completeness in bins", found.completeness, chosen[inside & right].mean()),
    ):
        ends = found.interval(draws)
        sums.add(what, *(np.array([v]) for v in (true, draws.mean(), *ends)))


def peers(split: Split) -> Mapping[str, Floats]:
    """Return the shares by QuaPy's methods from the same probabilities; none where it is not installed."""
    try:
        from quapy.method.aggregative import EMQ, PACC, KDEyML  # noqa: PLC0415
    except ImportError:
        return {}
    y = split.labelled.y
    found = {"QuaPy EMQ": EMQ.EM(split.labelled.shares, split.target.probability, 1e-4)[0]}
    any_fit = LogisticRegression().fit(split.labelled.probability, y)
    for name, method in (("QuaPy PACC", PACC), ("QuaPy KDEy", KDEyML)):
        quantifier = method(any_fit, fit_classifier=False, val_split=None)
        quantifier.aggregation_fit(split.labelled.probability, y)
        found[name] = np.asarray(quantifier.aggregate(split.target.probability))
    return found


def stored() -> list[dict[str, object]]:
    """Return the lines that there are."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run(names: Sequence[str], repeats: int, changes: Sequence[str]) -> None:
    """Do what is not done yet, ten repeats of every cell before the next ten."""
    done = {(r["set"], r["size"], r["change"], r["first"]) for r in stored() if r.get("rules", 1) == RULES}
    sets = list(_loaded(names))
    for first in range(0, repeats, BATCH):
        for labelled, X in sets:
            for size in SIZES:
                for change in changes:
                    if (labelled.name, size, change, first) in done:
                        continue
                    line = batch(labelled, X, size, change, first)
                    if line is not None:
                        with RESULTS.open("a") as file:
                            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def _loaded(names: Sequence[str]) -> Iterator[tuple[LabelledSet, Floats]]:
    for name in names:
        try:
            labelled = SETS[name]()
        except MissingDataError as error:
            print(f"{name}: left out, {error}")
            continue
        yield labelled, prepared(labelled)


def main() -> None:
    """Run the benchmark, and write its table."""
    parser = argparse.ArgumentParser(description="Do the intervals of a census hold?")
    parser.add_argument("sets", nargs="*", default=[], metavar="SET", help=f"of {', '.join(CHANGED)}")
    parser.add_argument("--repeats", type=int, default=150)
    parser.add_argument("--changes", nargs="+", choices=CHANGES, default=CHANGES)
    parser.add_argument("--table", action="store_true", help="write the table only")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)
    if not options.table:
        RESULTS.parent.mkdir(exist_ok=True)
        run(options.sets or list(CHANGED), options.repeats, options.changes)
    from census_table import table_page  # noqa: PLC0415

    TABLE.write_text(table_page(stored()))
    print(TABLE.read_text())


if __name__ == "__main__":
    main()
