"""Real galaxies, few labels: one default run of ours beside scikit-learn's classifiers, on the same splits.

Early against late types of OpenNGC (PyPI's pyongc), the six features that most rows have.  Ours is what `blr train`
does with the demonstration's candidates: each with its prior precision by evidence, refined, and stacked, averaged by
evidence, or the one of the highest.  Theirs: logistic regression with cross-validated C (degree 1 and 2), linear
discriminant analysis, random forest, histogram gradient boosting, and Gaussian processes (themselves Laplace and
evidence) where they can.  Scored on 2,000 held-out galaxies; differences from ours with their paired 95 % intervals
over the splits.

    python benchmarks/bench_galaxies.py [sizes ... all] [--bright] [--splits 20] [--results rows.jsonl]

`--bright`: only galaxies of the brightest third are labelled, all are wanted.  `--results` keeps a line a fit, and does
not fit again what is there: an unfinished run goes on, and its table is of what it has.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from threadpoolctl import threadpool_limits

from blr.basis import fit_basis
from blr.calibration import brier_parts, calibration_error, log_loss
from blr.classifier import Member
from blr.shift import density_ratio
from catalogs import open as open_catalog
from flows.candidates import CandidateData, build_classifier, fit_candidate, refit_candidate, used_columns
from flows.config import Specification
from flows.config_file import load_specification
from flows.demo_catalogue import write_catalogues
from flows.ranking import rank, stacked
from flows.training_rows import TrainingRows, gather

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]
Predict = Callable[[Floats, Labels, Floats], Floats]
Named = dict[str, Floats]

HELD_OUT = 2000
LARGEST_GP = 1000  # a Gaussian process of 7,000 rows takes hours
TEMPLATE = Path(__file__).parent.parent / "flows" / "templates" / "demo-binary.toml"
LEFT_OUT = {
    "b_v",
    "no_2mass",
}  # most of the others do without missing values: B-V is one for 68 % of the galaxies
OURS, OURS_SHIFTED = "ours, stacked", "ours, stacked, density ratio"
BY = {OURS: "stack", "ours, averaged": "average", "ours, highest evidence": "evidence"}


def specification() -> Specification:
    """Return the demonstration's specification without some features, and each candidate once."""
    given = load_specification(TEMPLATE)
    features = {name: text for name, text in given.features.items() if name not in LEFT_OUT}
    candidates = (
        c.model_copy(update={"features": tuple(n for n in c.features or features if n not in LEFT_OUT)})
        for c in given.candidate
    )
    return given.model_copy(
        update={
            "features": features,
            "candidate": tuple(dict.fromkeys(candidates)),
            "select": given.select.model_copy(update={"by": "stack"}),
        }
    )


def galaxies() -> tuple[Floats, Labels, Floats]:
    """Return the features of complete rows (N, 6), whether late (N,), and their B magnitude (N,)."""
    made = specification()
    with tempfile.TemporaryDirectory() as folder:
        fits, _ = write_catalogues(Path(folder))
        rows = gather(made, [open_catalog(fits)]).rows
    whole = ~rows.missing.any(axis=1)
    return rows.X[whole], rows.target[whole], rows.X[whole, list(made.features).index("b_mag")]


def ours(*, shift: bool = False) -> Callable[[Floats, Labels, Floats], Named]:
    """Return `train` and `classify`, candidates mixed or chosen; `shift`: rows weighted to look like the target."""

    def predict(X: Floats, y: Labels, new: Floats) -> Named:
        made, n = specification(), len(X)
        weight = None
        if shift:
            basis = fit_basis("polynomial", np.concatenate([X, new]), degree=2)
            weight = np.tile(density_ratio(basis(X), basis(new), threads=1).weight, 2)
        # The held-out rows fill a column of the evidence table, and choose nothing.
        both = np.concatenate([X, X])
        held_out = np.arange(2 * n) >= n
        rows = TrainingRows(both, np.zeros(both.shape, dtype=bool), np.tile(y, 2), held_out, weight)
        data = CandidateData(rows, both, ("early", "late"))
        fitted = [fit_candidate(made, i, data, threads=1) for i in range(len(made.candidate))]
        table = [f.row for f in fitted]
        shares = stacked(table, [f.left_out for f in fitted if f.left_out is not None])
        ways = {OURS_SHIFTED: "stack"} if shift else BY
        chosen = {
            name: rank(table, by=by, shares=shares if by == "stack" else None) for name, by in ways.items()
        }
        needed = {index for ranking in chosen.values() for index, _ in ranking.members}
        refined = {index: refit_candidate(made, index, data, threads=1) for index in needed}
        return {
            name: scored(made, data, [replace(refined[i], weight=w) for i, w in ranking.members], new)
            for name, ranking in chosen.items()
        }

    return predict


def scored(made: Specification, data: CandidateData, members: list[Member], new: Floats) -> Floats:
    """Return the late type's probability under a mixture of members."""
    classifier = build_classifier(made, members, data, untrusted=False)
    wanted = new[:, used_columns(members)]
    return classifier.score(wanted, np.zeros(wanted.shape, dtype=bool)).probability[:, 1]


def logistic(degree: int) -> Predict:
    """Return logistic regression with cross-validated C."""

    def predict(X: Floats, y: Labels, new: Floats) -> Floats:
        steps = (StandardScaler(), PolynomialFeatures(degree, include_bias=False), StandardScaler())
        model = make_pipeline(*steps, LogisticRegressionCV(scoring="neg_log_loss", max_iter=2000))
        return np.asarray(model.fit(X, y).predict_proba(new)[:, 1])

    return predict


def discriminant(X: Floats, y: Labels, new: Floats) -> Floats:
    """Return the probabilities of Gaussian classes of one covariance."""
    return np.asarray(LinearDiscriminantAnalysis().fit(X, y).predict_proba(new)[:, 1])


def forest(X: Floats, y: Labels, new: Floats) -> Floats:
    """Return a random forest's probabilities."""
    model = RandomForestClassifier(500, min_samples_leaf=3, random_state=0)
    return np.asarray(model.fit(X, y).predict_proba(new)[:, 1])


def boosting(X: Floats, y: Labels, new: Floats) -> Floats:
    """Return gradient boosting's probabilities."""
    model = HistGradientBoostingClassifier(early_stopping=True, random_state=0)
    return np.asarray(model.fit(X, y).predict_proba(new)[:, 1])


def gaussian_process(scales: int) -> Predict:
    """Return a Gaussian process classifier of one length scale, or of one a feature."""

    def predict(X: Floats, y: Labels, new: Floats) -> Floats:
        kernel = ConstantKernel(1.0) * RBF(np.ones(scales))
        model = make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=0))
        return np.asarray(model.fit(X, y).predict_proba(new)[:, 1])

    return predict


def alone(name: str, predict: Predict) -> Callable[[Floats, Labels, Floats], Named]:
    """Return a method under its name, as ours are."""
    return lambda X, y, new: {name: predict(X, y, new)}


PEERS: dict[str, Predict] = {
    "logistic CV, degree 1": logistic(1),
    "logistic CV, degree 2": logistic(2),
    "linear discriminant": discriminant,
    "random forest": forest,
    "gradient boosting": boosting,
    "Gaussian process": gaussian_process(1),
    "Gaussian process, scale a feature": gaussian_process(6),
}
METHODS: dict[tuple[str, ...], Callable[[Floats, Labels, Floats], Named]] = {
    tuple(BY): ours(),
    (OURS_SHIFTED,): ours(shift=True),
    **{(name,): alone(name, predict) for name, predict in PEERS.items()},
}
SCORES = ("log_loss", "calibration_error", "reliability")


@dataclass(frozen=True)
class Fit:
    """One method on one split, and how well it did: nats an object, mean |p - share|, and Murphy's reliability."""

    labelled: str
    size: str
    split: int
    method: str
    n_labels: int
    log_loss: float
    calibration_error: float
    reliability: float
    seconds: float

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What it is of."""
        return self.labelled, self.size, self.split, self.method


def fits(
    sizes: Sequence[str], splits: int, *, bright: bool, methods: Sequence[tuple[str, ...]], known: set[object]
) -> Iterator[Fit]:
    """Yield every fit that is not known yet, split by split."""
    X, y, magnitude = galaxies()
    labelled = "brightest third" if bright else "any"
    for size in sizes:
        for split in range(splits):
            order = np.random.default_rng(split).permutation(len(X))
            test, pool = order[:HELD_OUT], order[HELD_OUT:]
            if bright:
                pool = pool[magnitude[pool] < np.quantile(magnitude, 1 / 3)]
            chosen = pool if size == "all" else pool[: int(size)]
            for names in methods:
                too_large = "Gaussian" in names[0] and len(chosen) > LARGEST_GP
                if too_large or (labelled, size, split, names[0]) in known:
                    continue
                start = time.perf_counter()
                with threadpool_limits(1):  # small matrices: more threads only wait for each other
                    found = METHODS[names](X[chosen], y[chosen], X[test])
                seconds = time.perf_counter() - start
                for name, p in found.items():
                    both = np.stack([1 - p, p], axis=1)
                    yield Fit(
                        labelled,
                        size,
                        split,
                        name,
                        len(chosen),
                        log_loss(np.clip(both, 1e-15, 1), y[test]),
                        calibration_error(both, y[test]),
                        brier_parts(both, y[test]).reliability,
                        seconds,
                    )


def table(found: Iterable[Fit]) -> Iterator[str]:
    """Yield a Markdown table a size: means over the splits, and what a method has more than ours."""
    of: dict[tuple[str, str], dict[str, dict[int, Fit]]] = {}
    for fit in found:
        of.setdefault((fit.labelled, fit.size), {}).setdefault(fit.method, {})[fit.split] = fit
    for (labelled, size), methods in of.items():
        first = next(iter(next(iter(methods.values())).values()))
        yield f"\n{first.n_labels:,} labels ({size}), labelled: {labelled}\n"
        yield "| method | splits | log loss | more than ours | calibration error | more than ours | reliability, 1e-3 |"
        yield "|---|---|---|---|---|---|---|"
        for name in (name for names in METHODS for name in names):
            if name in methods:
                yield _line(name, methods[name], methods.get(OURS, {}))


def _line(name: str, mine: dict[int, Fit], reference: dict[int, Fit]) -> str:
    cells = [name, str(len(mine))]
    for score in SCORES[:2]:
        cells.append(f"{np.mean([getattr(f, score) for f in mine.values()]):.4f}")
        d = [getattr(f, score) - getattr(reference[s], score) for s, f in mine.items() if s in reference]
        cells.append("" if name == OURS or not d else _interval(d))
    cells.append(f"{1e3 * np.mean([f.reliability for f in mine.values()]):.2f}")
    return "| " + " | ".join(cells) + " |"


def _interval(d: list[float]) -> str:
    """Return a mean with the half width of its 95 % interval, Student's."""
    if len(d) < 2:
        return f"{np.mean(d):+.4f}"
    half = student.ppf(0.975, len(d) - 1) * np.std(d, ddof=1) / np.sqrt(len(d))
    return f"{np.mean(d):+.4f} ± {half:.4f}"


def main() -> int:
    """Fit what is asked for and print the tables."""
    parser = argparse.ArgumentParser(description="Our default run beside scikit-learn's, on real galaxies.")
    parser.add_argument("sizes", nargs="*", default=["100", "200"], help="numbers of labels, or all")
    parser.add_argument("--bright", action="store_true", help="label the brightest third only")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=[], help="methods whose names begin so")
    parser.add_argument("--results", type=Path, help="JSON lines, read and continued")
    asked = parser.parse_args()
    kept = asked.results.read_text().splitlines() if asked.results and asked.results.exists() else []
    found = [Fit(**json.loads(line)) for line in kept]
    methods = [
        names
        for names in METHODS
        if (asked.bright or OURS_SHIFTED not in names)
        and (not asked.only or names[0].startswith(tuple(asked.only)))
    ]
    warnings.simplefilter("ignore")  # of their optimisers' limits
    for fit in fits(
        asked.sizes, asked.splits, bright=asked.bright, methods=methods, known={f.key for f in found}
    ):
        found.append(fit)
        if asked.results:
            with asked.results.open("a") as stream:
                stream.write(json.dumps(asdict(fit)) + "\n")
    print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
