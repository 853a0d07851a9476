"""Review by budget against labels at random: how many labels the same loss takes; and whether outliers are new types.

The model is a quick one, so that many repeats are possible: `LaplaceClassifier` on polynomials of the second degree
(LINEAR: linear functions), its prior by evidence.  What is measured is the rule by which `blr review --budget` draws
and the order of its outliers, not the model.  Sets and test rows are those of `labelled_sets.py`.

    python benchmarks/bench_review.py [--sets linear ...] [--repeats 20] [--minutes 10] [--table-only]

Labels: from 100 at random on, a hundred at a time, each time by the model of those before.  New types: a class is left
out of the labels, and all objects that have none are ranked.  Every repeat of a set is a line of `results/review.jsonl`
for each part; a line that is there is not computed again.  At the end all that is stored becomes `REVIEW.md`.
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

import numpy as np
from labelled_sets import SETS, Floats, LabelledSet, MissingDataError, Rows, draw
from scipy import stats
from scipy.spatial import cKDTree
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from blr.calibration import log_loss
from blr.census.spread import informed_sizes, spread_sample
from blr.estimators import LaplaceClassifier
from blr.explanation import distances_from, relative
from blr.missing.moments import Domain, FeatureMoments

HERE = Path(__file__).resolve().parent
STORED, PAGE = HERE / "results" / "review.jsonl", HERE / "REVIEW.md"
BASES = {"linear": ("linear", {})}
"""Basis by set; of all others polynomials of the second degree."""
FIRST, STEP, LAST = 100, 100, 600
"""Labels at first, in each review, and at the end."""
AT_RANDOM = (100, 200, 300, 400, 500, 600, 700, 800, 1000, 1300)
"""Numbers of random labels, between which the number that gives the same loss is read."""
ARMS = ("budget", "budget, weights")
"""As `blr review --budget`; the same, its weights used by the fit."""
RADIUS = 0.05
MOST_TEST, MOST_POOL = 1000, 4000
LARGEST = 1e15
LISTED = 20
KNOWN = 300
"""Labels in the search for new types."""
RANKINGS = ("ours", "distance", "isolation forest", "Mahalanobis")
"""As the outliers of `blr review`; the distance to the third nearest labelled object alone; peers."""
SET_NAMES = ("sdss-dr14", "linear", "openngc-five-class")


@dataclass(frozen=True)
class Line:
    """What a repeat found in a part ("labels", "new types"): numbers by name, in the order of sizes or of classes."""

    part: str
    set: str
    seed: int
    found: dict[str, list[float | None]]


def values(labelled: LabelledSet) -> tuple[Floats, Rows]:
    """Return the features (N, F), softened and complete, and the classes (N,)."""
    X = np.where(np.abs(labelled.features) > LARGEST, np.nan, labelled.features)
    median = np.nanmedian(X, axis=0)
    spread = np.nanpercentile(X, 84, axis=0) - np.nanpercentile(X, 16, axis=0)
    X = np.arcsinh((X - median) / np.where(spread > 0, spread, 1.0))
    return np.where(np.isfinite(X), X, 0.0), labelled.y


def fitted(labelled: LabelledSet, X: Floats, y: Rows, weight: Floats | None = None) -> LaplaceClassifier:
    """Return the quick model of labelled rows."""
    basis, options = BASES.get(labelled.name, ("polynomial", {"degree": 2}))
    return LaplaceClassifier(basis=basis, basis_options=dict(options)).fit(X, y, sample_weight=weight)


def loss_of(model: LaplaceClassifier, X: Floats, y: Rows, K: int) -> float:
    """Return the log loss of test rows, of classes that the labels lack with a small probability."""
    P = np.full((len(X), K), 1e-4)
    P[:, model.classes_] = model.predict_proba(X)
    return float(log_loss(P / P.sum(axis=1, keepdims=True), y))


def labels(labelled: LabelledSet, seed: int) -> Line:
    """Return the losses of the ways to choose labels, by their number."""
    (X, y), K = values(labelled), len(labelled.classes)
    rows = draw(labelled, max(AT_RANDOM), seed, biased=False)
    if rows is None:
        raise MissingDataError(f"{labelled.name}: got fewer rows than {max(AT_RANDOM)} labels, expected more")
    train, test = rows[0], rows[1][:MOST_TEST]
    rng = np.random.default_rng([seed, 3])
    rest = rng.permutation(np.setdiff1d(np.arange(len(y)), np.concatenate([rows[1], train[:FIRST]])))[
        :MOST_POOL
    ]
    found: dict[str, list[float | None]] = {
        "random": [
            round(loss_of(fitted(labelled, X[train[:n]], y[train[:n]]), X[test], y[test], K), 5)
            for n in AT_RANDOM
        ]
    }
    for arm in ARMS:
        chosen, weight, pool, losses = train[:FIRST], np.ones(FIRST), rest, []
        while True:
            model = fitted(labelled, X[chosen], y[chosen], weight if arm.endswith("weights") else None)
            losses.append(round(loss_of(model, X[test], y[test], K), 5))
            if len(chosen) >= LAST:
                break
            picked, w = reviewed(model, X, chosen, pool, rng)
            chosen, weight = np.concatenate([chosen, pool[picked]]), np.concatenate([weight, w])
            pool = np.delete(pool, picked)
        found[arm] = [*losses]
    return Line("labels", labelled.name, seed, found)


def reviewed(
    model: LaplaceClassifier, X: Floats, chosen: Rows, pool: Rows, rng: np.random.Generator
) -> tuple[Rows, Floats]:
    """Return the places in the pool of the objects of a review, and their weights, of mean 1."""
    information = np.maximum(model.predict_mutual_information(X[pool]), 0.0)
    nothing, n = np.zeros(X.shape, dtype=bool), len(pool)
    space = FeatureMoments.estimate(X[chosen], nothing[chosen])
    row, probability, _ = spread_sample(
        informed_sizes(information, np.full(n, information.mean())),
        np.ones(n),
        space.whitened(X[pool], nothing[pool]),
        np.arange(n),
        np.zeros(n, dtype=np.intp),
        np.array([STEP]),
        radius=RADIUS,
        rng=rng,
    )
    weight = 1 / probability
    return row, weight / weight.mean()


def new_types(labelled: LabelledSet, seed: int) -> Line:
    """Return, of each class left out, its AUROC and its enrichment in the first twenty, by ranking."""
    X, y = values(labelled)
    order = np.random.default_rng([seed, 4]).permutation(len(y))
    found: dict[str, list[float | None]] = defaultdict(list)
    for k in range(len(labelled.classes)):
        known = order[y[order] != k][:KNOWN]
        pool = np.setdiff1d(order, known)
        pool = np.random.default_rng([seed, 5]).permutation(pool)[:MOST_POOL]
        new, nothing = y[pool] == k, np.zeros(X.shape, dtype=bool)
        moments = FeatureMoments.estimate(X[known], nothing[known])
        space = moments
        forest = IsolationForest(random_state=seed).fit(X[known])
        points = space.whitened(X[pool], nothing[pool])
        distance = distances_from(space.whitened(X[known], nothing[known]))(points)[0]
        scores = {
            "ours": relative(distance, points, cKDTree(points)),
            "distance": distance,
            "isolation forest": -forest.score_samples(X[pool]),
            "Mahalanobis": Domain(moments, np.inf).distance(X[pool], nothing[pool]),
        }
        for name, score in scores.items():
            found[f"{name}: AUROC"].append(round(float(roc_auc_score(new, score)), 4))
            first = new[np.argsort(-score, kind="stable")[:LISTED]].mean()
            found[f"{name}: enrichment"].append(round(float(first / new.mean()), 3))
            found[f"{name}: share"].append(float(first))
    return Line("new types", labelled.name, seed, dict(found))


PARTS = {"labels": labels, "new types": new_types}


def stored() -> list[Line]:
    """Return the lines that are there."""
    if not STORED.exists():
        return []
    return [Line(**json.loads(text)) for text in STORED.read_text(encoding="utf-8").splitlines()]


def run(names: Sequence[str], repeats: int, minutes: float) -> None:
    """Compute what is not stored, repeat by repeat, until the processor time is up."""
    done = {(line.part, line.set, line.seed) for line in stored()}
    for seed, name, part in product(range(repeats), names, PARTS):
        if (part, name, seed) in done or time.process_time() > 60 * minutes:
            continue
        try:
            with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
                line = PARTS[part](SETS[name](), seed)
        except MissingDataError as error:
            print(error)
            continue
        with STORED.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(line)) + "\n")
        print(part, name, seed, f"{time.process_time():.0f} s", flush=True)


HEAD = """# Review by budget, measured

Made by `bench_review.py`, which says what was done; {repeats} repeats of each set. A quick model stands in for ours.

## Labels

From 100 random labels on, a hundred at a time are chosen by the model of those before. The loss is that of the same
1,000 test rows for all ways. *Random labels* is how many labels at random give the mean loss of the row, *saved* the
share that the review saves; its 95 % interval is by bootstrap over the repeats. Random labels were tried up to {most}.
The difference of the losses at equal numbers of labels is paired, with the 95 % interval of its mean; below 0 the
review is better.
"""
WEIGHTS = """
## Do fits profit from the weights?

The loss with the weights less that without, paired, with the 95 % interval of its mean; below 0 the weights are better.
"""
TYPES = """
## New types

A class is left out of the 300 labels, and up to 4,000 objects without a label are ranked. *Ours* is the `novelty` of
`outliers.csv`, *distance* its numerator alone. Enrichment is the class's share in the first twenty over its share of
all; *share* is the share itself. Means over all classes and repeats; *worst class* is the lowest mean AUROC of a class.
"""
DRAWS = 2000
"""Bootstrap samples of the repeats."""


def equal_number(losses: Floats, loss: float) -> float:
    """Return the number of random labels, with mean losses by `AT_RANDOM`, of a loss; infinite beyond the last."""
    falling = np.minimum.accumulate(losses)
    if loss < falling[-1]:
        return np.inf
    # A loss that several numbers have belongs to the first of them.
    first = np.unique(falling, return_index=True)
    return float(np.exp(np.interp(loss, first[0], np.log(np.array(AT_RANDOM))[first[1]])))


def _interval(values: Sequence[float]) -> str:
    x = np.array(values)
    half = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / len(x) ** 0.5
    return f"{x.mean():+.4f} ({x.mean() - half:+.4f} to {x.mean() + half:+.4f})"


def _label_rows(name: str, lines: Sequence[Line]) -> Iterator[str]:
    found = [{arm: np.array(values, dtype=float) for arm, values in line.found.items()} for line in lines]
    random = np.array([one["random"] for one in found])
    rng = np.random.default_rng(0)
    for arm in ARMS:
        losses = np.array([one[arm] for one in found])
        for place in range(1, losses.shape[1]):
            n = FIRST + STEP * place
            same = equal_number(random.mean(axis=0), losses[:, place].mean())
            draws = rng.integers(len(found), size=(DRAWS, len(found)))
            saved = [1 - n / equal_number(random[i].mean(axis=0), losses[i, place].mean()) for i in draws]
            low, high = (100 * q for q in np.quantile(saved, [0.025, 0.975]))
            difference = _interval(losses[:, place] - random[:, AT_RANDOM.index(n)])
            top = 100 * (1 - n / AT_RANDOM[-1])
            share = _percent(100 * (1 - n / same), top)
            cells = [
                *(name, arm, str(n), f"{losses[:, place].mean():.4f}"),
                f"{random[:, AT_RANDOM.index(n)].mean():.4f}",
                difference,
                f"{same:.0f}" if np.isfinite(same) else f"> {AT_RANDOM[-1]}",
                f"{share} ({_percent(low, top)} to {_percent(high, top)})",
            ]
            yield f"| {' | '.join(cells)} |"


def _percent(share: float, most: float) -> str:
    return f"> {most:.0f} %" if share > most + 1e-9 else f"{share:.0f} %"


def _weight_rows(name: str, lines: Sequence[Line]) -> Iterator[str]:
    plain, weighted = (np.array([line.found[arm] for line in lines], dtype=float) for arm in ARMS)
    for place in range(1, plain.shape[1]):
        yield f"| {name} | {FIRST + STEP * place} | {_interval(weighted[:, place] - plain[:, place])} |"


def _type_rows(name: str, lines: Sequence[Line]) -> Iterator[str]:
    for ranking in RANKINGS:
        by = {
            what: np.array([line.found[f"{ranking}: {what}"] for line in lines], dtype=float)
            for what in ("AUROC", "enrichment", "share")
        }
        yield (
            f"| {name} | {ranking} | {by['AUROC'].mean():.3f} | {by['AUROC'].mean(axis=0).min():.3f} | "
            f"{by['enrichment'].mean():.1f} | {100 * by['share'].mean():.0f} % |"
        )


def page(found: Sequence[Line]) -> str:
    """Return the page of all stored lines."""
    of: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in found:
        of[line.part, line.set].append(line)
    repeats = " or ".join(str(n) for n in sorted({len(lines) for lines in of.values()}))
    parts = [HEAD.format(repeats=repeats, most=f"{AT_RANDOM[-1]:,}")]
    parts += [
        "| set | way | labels | its loss | random | difference | random labels | saved |",
        "|---|---|---:|---:|---:|---|---:|---|",
    ]
    parts += [
        row for (part, name), lines in of.items() if part == "labels" for row in _label_rows(name, lines)
    ]
    parts += [WEIGHTS, "| set | labels | difference |", "|---|---:|---|"]
    parts += [
        row for (part, name), lines in of.items() if part == "labels" for row in _weight_rows(name, lines)
    ]
    parts += [
        TYPES,
        "| set | ranking | AUROC | worst class | enrichment | share |",
        "|---|---|---:|---:|---:|---:|",
    ]
    parts += [
        row for (part, name), lines in of.items() if part == "new types" for row in _type_rows(name, lines)
    ]
    return "\n".join([*parts, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", default=SET_NAMES)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--table-only", action="store_true")
    given = parser.parse_args()
    if not given.table_only:
        run(given.sets, given.repeats, given.minutes)
    PAGE.write_text(page(stored()), encoding="utf-8")
