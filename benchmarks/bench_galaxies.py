"""Real galaxies, few labels: our averaged model beside scikit-learn's classifiers, on the same splits.

Early against late types of OpenNGC (PyPI's pyongc).  Ours is one default run: four bases, each with its prior precision
by evidence, refined, averaged by evidence.  Theirs: logistic regression with cross-validated C (degree 1 and 2), random
forest, histogram gradient boosting, and a Gaussian process (itself Laplace and evidence) where it can.  Log loss on
2,000 held-out galaxies; the difference from ours with its paired 95 % interval over the splits.

    python benchmarks/bench_galaxies.py [splits] [sizes ...] [--bright]
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from threadpoolctl import threadpool_limits

import blr
from catalogs import open as open_catalog
from flows.config_file import load_specification
from flows.demo_catalogue import write_catalogues
from flows.training_rows import gather

HELD_OUT = 2000
LARGEST_GP = 1000
BASES = (
    ("linear", {}),
    ("polynomial", {"degree": 2}),
    ("rbf", {"centres": 40, "linear": True}),
    ("bspline", {"knots": 3}),
)

Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def galaxies() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features without B-V (N, 6), complete rows only; late type (N,); B magnitude (N,)."""
    with tempfile.TemporaryDirectory() as folder:
        fits, _ = write_catalogues(Path(folder))
        template = Path(__file__).parent.parent / "flows" / "templates" / "demo-binary.toml"
        specification = load_specification(template)
        rows = gather(specification, [open_catalog(fits)]).rows
    names = list(specification.features)
    columns = [j for j, name in enumerate(names) if name != "b_v"]
    whole = ~rows.missing[:, columns].any(axis=1)
    return rows.X[whole][:, columns], rows.target[whole], rows.X[whole, names.index("b_mag")]


def ours(X: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the evidence-weighted average of refined models."""
    bases = [blr.fit_basis(kind, X, rng=np.random.default_rng(0), **options) for kind, options in BASES]
    fits = [blr.fit_evidence(basis(X), y.astype(float)) for basis in bases]
    weight = np.exp(np.array([q.log_evidence for q in fits]) - max(q.log_evidence for q in fits))
    weight /= weight.sum()
    kept = [(w, blr.refine(q), basis) for w, q, basis in zip(weight, fits, bases, strict=True) if w > 1e-3]
    return sum(w * q.predict_proba(basis(new)) for w, q, basis in kept) / sum(w for w, _, _ in kept)


def logistic(degree: int) -> Predict:
    """Return logistic regression with cross-validated C."""

    def predict(X: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
        steps = (StandardScaler(), PolynomialFeatures(degree, include_bias=False), StandardScaler())
        model = make_pipeline(*steps, LogisticRegressionCV(scoring="neg_log_loss", max_iter=2000))
        return model.fit(X, y).predict_proba(new)[:, 1]

    return predict


def forest(X: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return a random forest's probabilities."""
    return RandomForestClassifier(500, min_samples_leaf=3, random_state=0).fit(X, y).predict_proba(new)[:, 1]


def boosting(X: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return gradient boosting's probabilities."""
    return (
        HistGradientBoostingClassifier(early_stopping=True, random_state=0).fit(X, y).predict_proba(new)[:, 1]
    )


def gaussian_process(X: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return a Gaussian process classifier's probabilities."""
    kernel = ConstantKernel(1.0) * RBF(np.ones(X.shape[1]))
    model = make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=0))
    return model.fit(X, y).predict_proba(new)[:, 1]


METHODS: dict[str, Predict] = {
    "ours, averaged and refined": ours,
    "logistic CV, degree 1": logistic(1),
    "logistic CV, degree 2": logistic(2),
    "random forest": forest,
    "gradient boosting": boosting,
    "Gaussian process": gaussian_process,
}


def log_loss(p: np.ndarray, y: np.ndarray) -> float:
    """Return the mean negative log probability of the truth."""
    return float(-np.log(np.clip(np.where(y == 1, p, 1 - p), 1e-15, None)).mean())


def main() -> int:
    """Print a table a size."""
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    splits, sizes = (numbers[0] if numbers else 20), numbers[1:] or [100, 200, 1000]
    X, y, magnitude = galaxies()
    warnings.simplefilter("ignore")  # of their optimisers' limits
    for size in sizes:
        losses: dict[str, list[float]] = {name: [] for name in METHODS}
        for split in range(splits):
            order = np.random.default_rng(split).permutation(len(X))
            test, pool = order[:HELD_OUT], order[HELD_OUT:]
            if "--bright" in sys.argv:
                pool = pool[magnitude[pool] < np.quantile(magnitude, 1 / 3)]
            chosen = pool[:size]
            for name, predict in METHODS.items():
                if name != "Gaussian process" or size <= LARGEST_GP:
                    with threadpool_limits(1):  # small matrices: more threads only wait for each other
                        losses[name].append(log_loss(predict(X[chosen], y[chosen], X[test]), y[test]))
        print(f"{size} labels{', the brightest third' if '--bright' in sys.argv else ''}, {splits} splits")
        for name, values in losses.items():
            if values:
                d = np.array(values) - np.array(losses["ours, averaged and refined"])
                half = 1.96 * d.std(ddof=1) / np.sqrt(splits) if splits > 1 else float("nan")
                print(
                    f"  {name:28s} {np.mean(values):.4f}   minus ours {d.mean():+.4f} ± {half:.4f}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
