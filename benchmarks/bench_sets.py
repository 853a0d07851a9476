"""Prediction sets on public labelled sets: the share of each class that keeps its class, its spread, the sets' size.

The model is a quick one, so that many repeats are possible: scikit-learn's logistic regression on polynomials of the
second degree, with ten folds for the labelled rows' probabilities.  What is measured is the rule of
`blr.census.prediction_sets`, not the model.  Sets and splits are those of `labelled_sets.py`.

    python benchmarks/bench_sets.py [--sets linear ...] [--sizes 200 1000] [--repeats 100] [--minutes 20] [--table-only]

The changes: "same" (labels drawn at random), "x 1/4" and "x 4" (the first class has a quarter and four times its share
among the test rows), "bright" (the labels are of the third that surveys label first) and "bright, audit" (sets are
learnt from 200 of the target's rows, drawn by design and looked at).  Every cell is a line of
`results-census/sets.jsonl` for each ten repeats; a line that is there is not computed again.  At the end all that is
stored becomes `SETS.md`.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from labelled_sets import SETS, Floats, LabelledSet, MissingDataError, Rows, draw
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from threadpoolctl import threadpool_limits

from blr.census.prediction_sets import SetRule, learn_sets

HERE = Path(__file__).resolve().parent
STORED = HERE / "results-census" / "sets.jsonl"
PAGE = HERE / "SETS.md"
LEVEL = 0.9
FOLDS = 10
BATCH = 10
"""Repeats of a stored line."""
AUDITED = 200
"""Target rows that somebody looks at."""
CHANGES = {False: ("same", "x 1/4", "x 4"), True: ("bright", "bright, audit")}
"""By whether the labels are biased."""
RULES = ("ours", "ceiling", "ratio", "adaptive")
"""Ours; the same without interpolation; p over its best rival; cumulated from the likeliest class on (APS)."""
LARGEST = 1e15
"""Largest value that is a measurement."""
MOST_FEATURES = 10
"""Features of which a polynomial of the second degree is taken; more are taken linearly."""
SET_NAMES = (
    "openngc-binary",
    "openngc-five-class",
    "sdss-dr14",
    "linear",
    "kepler",
    "galaxy-zoo-2",
    "breast-cancer",
)


@dataclass(frozen=True)
class Line:
    """Ten repeats of a cell and a rule: by class, labelled rows and the share of test rows that kept it, (10, K).

    A share is None where the class has no test row, or is in every set for want of labelled rows.
    """

    set: str
    size: int
    change: str
    rule: str
    first: int
    rows: list[list[int]]
    kept: list[list[float | None]]
    mean_size: list[float]
    empty: list[float]


def probabilities(X: Floats, y: Rows, new: Floats, K: int) -> Floats:
    """Return the probabilities (n, K) of new rows by a quick fit; about 0 for classes that the rows lack."""
    steps: list[Any] = [SimpleImputer(keep_empty_features=True), StandardScaler()]
    if X.shape[1] <= MOST_FEATURES:
        steps += [PolynomialFeatures(2, include_bias=False), StandardScaler()]
    fitted = make_pipeline(*steps, LogisticRegression(max_iter=200)).fit(X, y)
    out = np.full((len(new), K), 1e-12)
    out[:, fitted.classes_] = fitted.predict_proba(new)
    return out


def left_out(X: Floats, y: Rows, K: int, rng: np.random.Generator) -> Floats:
    """Return the probabilities (N, K) of labelled rows by fits without their fold."""
    fold = rng.permutation(len(y)) % FOLDS
    P = np.empty((len(y), K))
    for f in range(FOLDS):
        P[fold == f] = probabilities(X[fold != f], y[fold != f], X[fold == f], K)
    return P


def scores(P: Floats, rule: str) -> Floats:
    """Return what a rule compares with its thresholds, from 0 to 1, the larger the likelier, (N, K)."""
    if rule in ("ours", "ceiling"):
        return P
    if rule == "ratio":
        ordered = np.sort(P, axis=1)
        rival = np.where(ordered[:, -1:] == P, ordered[:, -2:-1], ordered[:, -1:])
        return np.asarray(P / (P + rival))
    order = np.argsort(-P, axis=1, kind="stable")
    total = np.empty_like(P)
    np.put_along_axis(total, order, np.cumsum(np.take_along_axis(P, order, axis=1), axis=1), axis=1)
    return np.clip(1 - total, 1e-9, 1 - 1e-9)


def learnt(P: Floats, y: Rows, rule: str, weight: Floats | None = None) -> SetRule:
    """Return the thresholds of a rule."""
    made = learn_sets(scores(P, rule), y, level=LEVEL, weight=weight)
    if rule != "ceiling":
        return made
    S = scores(P, rule)
    ranks = [int((1 - LEVEL) * (n + 1) + 1e-9) for n in made.rows]
    least = [np.sort(S[y == k, k])[r - 1] if r else 0.0 for k, r in enumerate(ranks)]
    return SetRule(LEVEL, np.array(least), made.rows, made.effective)


def audited(P: Floats, rng: np.random.Generator) -> tuple[Rows, Floats]:
    """Return rows that are drawn by design, half in proportion and half by sqrt(p (1 - p)), and their weights."""
    top = P.max(axis=1)
    size = np.sqrt(top * (1 - top)) + 1e-3
    chance = np.minimum(1.0, AUDITED * (0.5 / len(P) + 0.5 * size / size.sum()))
    # Systematic sampling in random order: a fixed number of rows with these inclusion probabilities.
    order = rng.permutation(len(P))
    ends = np.cumsum(chance[order])
    drawn = order[np.searchsorted(ends, np.arange(rng.random(), ends[-1], 1.0))]
    return drawn, 1 / chance[drawn]


def changed(truth: Rows, change: str, rng: np.random.Generator) -> Rows:
    """Return the places of test rows with other shares of the first class, drawn without replacement."""
    first, rest = np.flatnonzero(truth == 0), np.flatnonzero(truth != 0)
    if change == "x 1/4":
        return np.concatenate([rng.choice(first, len(first) // 4, replace=False), rest])
    if change == "x 4":
        return np.concatenate([first, rng.choice(rest, len(rest) // 4, replace=False)])
    return np.arange(len(truth))


Kept = tuple[list[int], list[float | None], float, float]
"""Of a rule: labelled rows and shares kept by class, the mean size of the sets, the share of empty ones."""


def repeat(
    labelled: LabelledSet, size: int, seed: int, *, biased: bool
) -> dict[tuple[str, str], Kept] | None:
    """Return what each change and rule gives for one sample of labels; None where the set has no such sample."""
    rows = draw(labelled, size, seed, biased=biased)
    if rows is None:
        return None
    (train, whole), K = rows, len(labelled.classes)
    rng = np.random.default_rng([seed, 1])
    X, y = np.where(np.abs(labelled.features) > LARGEST, np.nan, labelled.features), labelled.y
    own, all_new = left_out(X[train], y[train], K, rng), probabilities(X[train], y[train], X[whole], K)
    found = {}
    for change in CHANGES[biased]:
        chosen = changed(y[whole], change, rng)
        new, truth = all_new[chosen], y[whole][chosen]
        P, labels, weight = own, y[train], None
        if change == "bright, audit":
            seen, weight = audited(new, rng)
            P, labels = new[seen], truth[seen]
        for rule in RULES:
            found[change, rule] = judged(learnt(P, labels, rule, weight), scores(new, rule), truth)
    return found


def judged(made: SetRule, S: Floats, truth: Rows) -> Kept:
    """Return how the sets of rows with scores (n, K) do."""
    contained = made.contains(S)
    own = contained[np.arange(len(truth)), truth]
    kept = [
        float(own[truth == k].mean()) if made.least[k] > 0 and np.any(truth == k) else None
        for k in range(S.shape[1])
    ]
    n = contained.sum(axis=1)
    return made.rows.tolist(), kept, float(n.mean()), float((n == 0).mean())


def lines(labelled: LabelledSet, size: int, first: int, *, biased: bool) -> Iterator[Line]:
    """Yield the lines of ten repeats, one a change and rule; none where the set has no such sample."""
    made = []
    for seed in range(first, first + BATCH):
        with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
            one = repeat(labelled, size, seed, biased=biased)
        if one is None:
            return
        made.append(one)
    for change, rule in made[0]:
        rows, kept, sizes, empty = zip(*(one[change, rule] for one in made), strict=True)
        shares = [[None if x is None else round(x, 4) for x in one] for one in kept]
        yield Line(
            set=labelled.name,
            size=size,
            change=change,
            rule=rule,
            first=first,
            rows=list(rows),
            kept=shares,
            mean_size=_rounded(sizes),
            empty=_rounded(empty),
        )


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(x, 4) for x in values]


def stored() -> list[Line]:
    """Return the lines that are there."""
    if not STORED.exists():
        return []
    return [Line(**json.loads(text)) for text in STORED.read_text(encoding="utf-8").splitlines()]


def run(names: Sequence[str], sizes: Sequence[int], repeats: int, minutes: float) -> None:
    """Compute what is not stored, round by round over the cells, until the time is up."""
    done = {(line.set, line.size, line.change.startswith("bright"), line.first) for line in stored()}
    end = time.monotonic() + 60 * minutes
    STORED.parent.mkdir(exist_ok=True)
    for first, name, size, biased in product(range(0, repeats, BATCH), names, sizes, CHANGES):
        if (name, size, biased, first) in done or time.monotonic() > end:
            continue
        try:
            made = [*lines(SETS[name](), size, first, biased=biased)]
        except MissingDataError as error:
            print(error)
            continue
        with STORED.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(asdict(line)) + "\n" for line in made)
        print(name, size, "biased" if biased else "random", first, flush=True)


def page(found: Sequence[Line]) -> str:
    """Return the page of all stored lines."""
    cells: dict[tuple[str, str, int, str], list[Line]] = defaultdict(list)
    for line in found:
        cells[line.rule, line.change, line.size, line.set].append(line)
    parts = [HEAD, *(_rule_table(found)), ""]
    for change, title in TITLES.items():
        parts += [
            f"## {title}",
            "",
            "| set | labels | repeats | by class | all classes | spread | classes a set | empty |",
        ]
        parts.append("|---|---:|---:|---|---:|---:|---:|---:|")
        rows = sorted((key, cell) for key, cell in cells.items() if key[:2] == ("ours", change))
        parts += [_row(key[3], key[2], cell) for key, cell in rows]
        shares = [x for _, cell in rows for x in _class_means(cell) if x is not None]
        if shares:
            near = np.mean(np.abs(np.array(shares) - LEVEL) <= 0.01)
            beyond = sum(_beyond(cell) for _, cell in rows)
            mean = f"Mean over classes and sets: {100 * np.mean(shares):.1f} %"
            far = f"More than a point and two standard errors of the mean away: {beyond} of {len(shares)}."
            parts += ["", f"{mean}; within a point of 90 % in {100 * near:.0f} % of them. {far}", ""]
    return "\n".join(parts)


def _class_means(cell: Sequence[Line]) -> list[float | None]:
    kept = [shares for line in cell for shares in line.kept]
    by_class = zip(*kept, strict=True)
    return [
        None if len(x := [v for v in shares if v is not None]) < len(kept) / 2 else float(np.mean(x))
        for shares in by_class
    ]


def _beyond(cell: Sequence[Line]) -> int:
    """Return how many classes' means differ from the level by a point and two of their standard errors."""
    count = 0
    for shares, mean in zip(
        zip(*(kept for line in cell for kept in line.kept), strict=True), _class_means(cell), strict=True
    ):
        known = [x for x in shares if x is not None]
        if mean is not None and len(known) > 1:
            error = float(np.std(known, ddof=1)) / len(known) ** 0.5
            count += abs(mean - LEVEL) > 0.01 + 2 * error
    return count


def _row(name: str, size: int, cell: Sequence[Line]) -> str:
    kept = [shares for line in cell for shares in line.kept]
    means = _class_means(cell)
    spreads = [
        100 * np.std([v for v in shares if v is not None], ddof=1)
        for shares, mean in zip(zip(*kept, strict=True), means, strict=True)
        if mean is not None
    ]
    words = ", ".join("in all sets" if m is None else f"{100 * m:.1f}" for m in means)
    known = [m for m in means if m is not None]
    whole = f"{100 * np.mean(known):.1f}" if known else "–"
    spread = f"{min(spreads):.1f}–{max(spreads):.1f}" if spreads else "–"
    mean_size = np.mean([x for line in cell for x in line.mean_size])
    empty = np.mean([x for line in cell for x in line.empty])
    return f"| {name} | {size} | {len(kept)} | {words} | {whole} | {spread} | {mean_size:.2f} | {100 * empty:.1f} % |"


def _compared(found: Sequence[Line]) -> list[Line]:
    """Return the lines of repeats that all rules have."""
    rules: dict[tuple[str, int, str, int], set[str]] = defaultdict(set)
    for line in found:
        rules[line.set, line.size, line.change, line.first].add(line.rule)
    return [x for x in found if rules[x.set, x.size, x.change, x.first] == set(RULES)]


def _rule_table(found: Sequence[Line]) -> Iterator[str]:
    yield "| rule | mean share kept | worst cell's mean | classes a set | empty |"
    yield "|---|---:|---:|---:|---:|"
    compared = [line for line in _compared(found) if line.change == "same"]
    for rule in RULES:
        own = [line for line in compared if line.rule == rule]
        cells: dict[tuple[str, int], list[Line]] = defaultdict(list)
        for line in own:
            cells[line.set, line.size].append(line)
        shares = [x for cell in cells.values() for x in _class_means(cell) if x is not None]
        if shares:
            worst = max(shares, key=lambda x: abs(x - LEVEL))
            mean = f"{100 * np.mean(shares):.1f} % | {100 * worst:.1f} %"
            size, empty = (np.mean([x for line in own for x in values(line)]) for values in (_sizes, _empty))
            yield f"| {RULE_WORDS[rule]} | {mean} | {size:.2f} | {100 * empty:.1f} % |"


def _sizes(line: Line) -> list[float]:
    return line.mean_size


def _empty(line: Line) -> list[float]:
    return line.empty


RULE_WORDS = {
    "ours": "p of the class, between two rows (ours)",
    "ceiling": "p of the class, at a row",
    "ratio": "p over p + that of the best rival",
    "adaptive": "cumulated from the likeliest class on (APS)",
}
TITLES = {
    "same": "Labels drawn as the target is",
    "x 1/4": "The first class has a quarter of its share in the target",
    "x 4": "The first class has four times its share in the target",
    "bright": "Labels of the bright third: the assumption is broken, and the sets do not hold",
    "bright, audit": f"Labels of the bright third, sets from {AUDITED} audited rows of the target",
}
HEAD = """# Prediction sets, measured

`benchmarks/bench_sets.py` writes this page from `results-census/sets.jsonl`. Stated: 90 % of each class keep it.

- *By class*: the mean share over repeats, in per cent, in the order of the class names. A class with too few labelled
  rows is in all sets.
- *Spread*: standard deviation of that share from one sample of labels to another, in points, from the best known class
  to the least. Shares are of at most 2,000 test rows, which adds to the spread of small classes.
- A class is counted in the repeats in which it has enough labelled rows not to be in all sets, where these are half of
  the repeats or more. In a sample that has just enough by chance, its share is a little low.

## Which rule

Labels drawn as the target is; all sets and sizes.
"""


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SET_NAMES)
    parser.add_argument("--sizes", nargs="+", type=int, default=(200, 1000))
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--table-only", action="store_true")
    asked = parser.parse_args()
    if not asked.table_only:
        run(asked.sets, asked.sizes, asked.repeats, asked.minutes)
    PAGE.write_text(page(stored()), encoding="utf-8")


if __name__ == "__main__":
    main()
