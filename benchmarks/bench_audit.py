"""Audits of catalogues whose truth is known: how often intervals of counts, purity and completeness hold, how wide.

A population is simulated, or is a public labelled set without the rows that a quick model was trained on.  Models are
good, or wrong on purpose.  Each audit is drawn by our design and estimated as `blr audit estimate` does; beside it
stands a simple random sample of as many objects, with the intervals of Wilson (narrow, and often missed) and of Clopper
and Pearson (which hold).

    python benchmarks/bench_audit.py [--populations simulated sdss-dr14 ...] [--n 100 200 400] [--repeats 1000]
        [--minutes 10] [--table-only] [--limits]

`--limits` prints how narrow an interval of purity can be at all: its standard deviation under our design and a good
model, beside that of a simple sample.

A population, a model and a size make a line of `results-census/audit.jsonl`.  A line that is stored is not made again,
so that a run that ends goes on when it is started again.  At the end, all that is stored becomes `AUDIT.md`.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from zlib import crc32

import numpy as np
from audit_table import table_page
from labelled_sets import SETS, Floats, MissingDataError, Rows
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri, softmax
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer

from blr.census.audit import allocated, audited_share, cut_levels, level_edges, uncertainty
from flows.reviews.audit_draw import MOST_STRATA, PER_STRATUM

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results-census" / "audit.jsonl"
SIZES = (100, 200, 400)
SIMULATED = {
    f"{k} classes{', one of 0.3 %' if rare else ''}": (k, rare) for k in (2, 3, 5) for rare in (None, 0.003)
}
N = 20_000
RARE = 0.01
"""Share below which a class is called rare."""
THRESHOLD = 0.9
FEWEST_SELECTED = 20
SMALLEST = 1500
"""Objects that a population has at least."""
NORMAL = float(ndtri(0.975))
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Outcome:
    """One quantity of one class: the truth, our coverage and mean width, and those of simple samples."""

    quantity: str
    class_share: float
    truth: float
    coverage: float
    width: float
    wilson_coverage: float
    wilson_width: float
    exact_width: float


@dataclass(frozen=True)
class Cell:
    """A population, a model and a number of objects looked at."""

    population: str
    model: str
    n: int
    repeats: int
    outcomes: list[Outcome] = field(default_factory=list)


def simulated(k: int, rare: float | None, rng: np.random.Generator) -> tuple[Floats, Rows]:
    """Return logits (N, K) and classes (N,) of Gaussian classes."""
    weight = np.linspace(2, 1, k - 1) if rare else np.ones(k)
    share = np.array([rare, *(weight / weight.sum() * (1 - rare))]) if rare else weight / k
    y = rng.choice(k, N, p=share)
    mean = rng.normal(size=(k, max(2, k - 1)))
    mean *= 2.5 / np.linalg.norm(mean, axis=1, keepdims=True)
    X = mean[y] + rng.normal(size=(N, mean.shape[1]))
    return -0.5 * ((X[:, None] - mean) ** 2).sum(axis=2) + np.log(share), y


def of_set(name: str, rng: np.random.Generator) -> tuple[Floats, Rows]:
    """Return logits and classes of the rows of a set that a logistic regression has not seen."""
    labelled = SETS[name]()
    order = rng.permutation(len(labelled.y))
    n_train = min(1000, len(order) // 4)
    train, rest = order[:n_train], order[n_train:]
    pipeline = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True),
        QuantileTransformer(n_quantiles=100, output_distribution="normal"),
        LogisticRegression(C=1.0, max_iter=500),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline.fit(labelled.features[train], labelled.y[train])
        p = pipeline.predict_proba(labelled.features[rest])
    full = np.full((len(rest), len(labelled.classes)), 1e-9)
    full[:, pipeline[-1].classes_] = np.maximum(p, 1e-9)
    return np.log(full), labelled.y[rest]


MODELS = ("good", "too sure", "wrong shares", "half exchanged", "blind", "noise", "constant")


def spoilt(model: str, logits: Floats, y: Rows, rng: np.random.Generator) -> Floats:
    """Return the probabilities (N, K) of a model that is wrong in one way."""
    L = logits.copy()
    shape = L.shape
    rarest = int(np.argmin(np.bincount(y, minlength=shape[1])))
    if model == "too sure":
        L *= 2.5
    elif model == "wrong shares":
        L[:, rarest] += np.log(6)
    elif model == "half exchanged":  # where the first class is likelier than usual
        half = L[:, 0] - L[:, 1] > np.median(L[:, 0] - L[:, 1])
        L[half] = np.roll(L[half], 1, axis=1)
    elif model == "blind":  # to most objects of the rarest class, and sure
        unseen = (y == rarest) & (rng.random(shape[0]) < 0.6)
        L[unseen, rarest] -= 12
    elif model == "noise":
        L = rng.normal(size=shape) * 3 + np.log(np.bincount(y, minlength=shape[1]) / len(y))
    elif model == "constant":
        L = np.log(np.bincount(y, minlength=shape[1]) / len(y)) + rng.normal(size=shape) * 1e-3
    return softmax(L, axis=1)


def design(p: Floats, n: int) -> tuple[Rows, Counts]:
    """Return the stratum (N,) of each object, and how many are drawn of each stratum, as `blr audit draw` does."""
    given, K = p.argmax(axis=1), p.shape[1]
    edges = level_edges()
    level = np.searchsorted(edges, p.max(axis=1), side="right")
    counts, total = np.zeros((K, len(edges) + 1), dtype=np.int64), np.zeros((K, len(edges) + 1, K))
    np.add.at(counts, (given, level), 1)
    np.add.at(total, (given, level), p)
    share = np.maximum(p.mean(axis=0), 1 / n)
    deviation = uncertainty(total / np.maximum(counts, 1)[..., None], share)
    piece = cut_levels(counts, deviation, min(n // PER_STRATUM, MOST_STRATA))
    _, stratum = np.unique(given * 1000 + piece[given, level], return_inverse=True)
    n_rows = np.bincount(stratum)
    mean = np.stack([np.bincount(stratum, weights=p[:, k]) for k in range(K)], axis=1) / n_rows[:, None]
    return stratum, allocated(n_rows, uncertainty(mean, share), n)


def judged(cell: Cell, p: Floats, y: Rows, rng: np.random.Generator) -> Cell:
    """Return the cell with its outcomes."""
    given, K = p.argmax(axis=1), p.shape[1]
    stratum, sizes = design(p, cell.n)
    strata = (np.bincount(stratum), sizes)
    every = np.ones(len(sizes), dtype=bool)
    outcomes = []
    for k in range(K):
        of_class, chosen = y == k, given == k
        share = float(of_class.mean())
        selections = {"": chosen}
        sure = p[:, k] >= THRESHOLD
        if np.count_nonzero(sure) >= FEWEST_SELECTED:
            selections[f" at p > {THRESHOLD}"] = sure
        asked = [("count", of_class, ~of_class, (every, every, ~every))]
        for words, selected in selections.items():
            may = np.bincount(stratum, selected, minlength=len(sizes)) > 0
            may_not = np.bincount(stratum, ~selected, minlength=len(sizes)) > 0
            if selected.any():
                hits = selected & of_class
                asked += [
                    (f"purity{words}", hits, selected & ~of_class, (may, may, may_not)),
                    (f"completeness{words}", hits, ~selected & of_class, (may, may_not, every)),
                ]
        for quantity, hits, misses, possible in asked:
            truth = float(hits.sum() / (hits.sum() + misses.sum()))
            kind = np.where(hits, 1, np.where(misses, 2, 0))
            drawn = _stratified(kind, stratum, sizes, cell.repeats, rng)
            _, low, high = audited_share(drawn[..., 1], drawn[..., 2], strata, possible=possible)
            simple = rng.multivariate_hypergeometric(
                np.bincount(kind, minlength=3), cell.n, size=cell.repeats, method="marginals"
            )
            outcomes.append(_outcome(quantity, share, truth, (low, high), simple))
    return Cell(cell.population, cell.model, cell.n, cell.repeats, outcomes)


def _stratified(kind: Rows, stratum: Rows, sizes: Counts, repeats: int, rng: np.random.Generator) -> Counts:
    """Return how many objects of each kind are drawn of each stratum (R, H, 3)."""
    parts = [
        rng.multivariate_hypergeometric(
            np.bincount(kind[stratum == h], minlength=3), int(size), size=repeats, method="marginals"
        )
        for h, size in enumerate(sizes)
    ]
    return np.stack(parts, axis=1)


def _outcome(
    quantity: str, share: float, truth: float, ours: tuple[Floats, Floats], simple: Counts
) -> Outcome:
    x, n = simple[:, 1].astype(float), (simple[:, 1] + simple[:, 2]).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        p, z2 = x / n, NORMAL**2
        centre, scale = (p + z2 / 2 / n) / (1 + z2 / n), 1 + z2 / n
        half = NORMAL / scale * np.sqrt(p * (1 - p) / n + z2 / 4 / n**2)
    wilson = np.where(n > 0, centre - half, 0.0), np.where(n > 0, centre + half, 1.0)
    exact = (
        np.where(x > 0, betaincinv(np.maximum(x, 1), n - x + 1, 0.025), 0.0),
        np.where(x < n, betaincinv(x + 1, np.maximum(n - x, 1), 0.975), 1.0),
    )

    def held(low: Floats, high: Floats) -> float:
        return round(float(np.mean((low <= truth + 1e-12) & (truth <= high + 1e-12))), 4)

    def width(low: Floats, high: Floats) -> float:
        return float(f"{np.mean(high - low):.4g}")

    return Outcome(
        quantity,
        float(f"{share:.4g}"),
        float(f"{truth:.4g}"),
        held(*ours),
        width(*ours),
        held(*wilson),
        width(*wilson),
        width(*exact),
    )


def purity_deviations(p: Floats, y: Rows, n: int) -> Iterator[float]:
    """Yield, for each class that is not rare, the deviation of its purity by our design over a simple sample's."""
    given = p.argmax(axis=1)
    stratum, sizes = design(p, n)
    rows = np.bincount(stratum)
    for k in range(p.shape[1]):
        chosen = given == k
        if np.mean(y == k) < RARE or not chosen.any():
            continue
        # Of the ratio's linearisation: the purity moves by the mean of these.
        moves = np.where(chosen, (y == k) - np.mean(y[chosen] == k), 0.0)
        within = np.array([moves[stratum == h].var() for h in range(len(sizes))])
        by_design = np.sum(rows**2 * within / sizes * (1 - sizes / rows))
        simple = len(y) ** 2 * moves.var() / n * (1 - n / len(y))
        yield float(np.sqrt(by_design / simple))


def print_limits(populations: Sequence[str], sizes: Sequence[int]) -> None:
    """Print the deviations of purity beside a simple sample's, of good models."""
    found: dict[int, list[float]] = {n: [] for n in sizes}
    for population in populations:
        rng = np.random.default_rng(crc32(population.encode()))
        made = SIMULATED.get(population)
        try:
            logits, y = simulated(*made, rng) if made else of_set(population, rng)
        except MissingDataError as error:
            print(error)
            continue
        if len(y) >= SMALLEST:
            for n in sizes:
                found[n] += purity_deviations(spoilt("good", logits, y, rng), y, n)
    for n, ratios in found.items():
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        print(f"n = {n}: {middle:.2f} ({low:.2f} to {high:.2f}) of {len(ratios)} classes")


def stored() -> list[Cell]:
    """Return the cells that are stored."""
    if not RESULTS.exists():
        return []
    trees = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    return [Cell(**tree | {"outcomes": [Outcome(**o) for o in tree["outcomes"]]}) for tree in trees]


def wanted(populations: Sequence[str], sizes: Sequence[int], repeats: int) -> Iterator[Cell]:
    """Yield the cells that are asked for."""
    for n in sizes:
        for population in populations:
            for model in MODELS if population in SIMULATED else MODELS[:5]:
                yield Cell(population, model, n, repeats)


def main() -> None:
    """Make what is not stored, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--populations", nargs="+", default=[*SIMULATED, *SETS])
    parser.add_argument("--n", nargs="+", type=int, default=SIZES)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--table-only", action="store_true")
    parser.add_argument("--limits", action="store_true")
    asked = parser.parse_args()
    if asked.limits:
        print_limits(asked.populations, asked.n)
        return
    done = {(c.population, c.model, c.n) for c in stored()}
    ends = time.monotonic() + 60 * asked.minutes
    RESULTS.parent.mkdir(exist_ok=True)
    for cell in () if asked.table_only else wanted(asked.populations, asked.n, asked.repeats):
        if time.monotonic() > ends:
            break
        if (cell.population, cell.model, cell.n) in done:
            continue
        seed = crc32(f"{cell.population} {cell.model} {cell.n}".encode())
        rng = np.random.default_rng(seed)
        try:
            made = SIMULATED.get(cell.population)
            logits, y = simulated(*made, rng) if made else of_set(cell.population, rng)
        except MissingDataError as error:
            print(error)
            continue
        if len(y) < SMALLEST:
            continue
        finished = judged(cell, spoilt(cell.model, logits, y, rng), y, rng)
        with RESULTS.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(finished)) + "\n")
        worst = min(finished.outcomes, key=lambda o: o.coverage)
        print(
            f"{cell.population}, {cell.model}, n = {cell.n}: {worst.coverage:.3f} at worst, {worst.quantity}"
        )
    (HERE / "AUDIT.md").write_text(table_page([asdict(c) for c in stored()]), encoding="utf-8")


if __name__ == "__main__":
    main()
