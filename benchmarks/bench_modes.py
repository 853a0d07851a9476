"""What a row costs in the modes that surveys run, in processor time of one thread: catalogues are split over threads.

Beside it scikit-learn's plug-in `predict_proba` of the same bases, of complete rows, without uncertainty.  An annotated
row costs two microseconds more, of reading, tallies and writing (`bench_annotate.py`).
`bench_modes.py [ROWS [REPEATS]]`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import blr
from blr.classifier import Classifier
from blr.member import Member

ROWS, REPEATS, LABELLED = 8192, 3, 4000
Options = Mapping[str, Any]
POLYNOMIAL: Options = {"kind": "polynomial", "degree": 2}
RADIAL: Options = {"kind": "rbf", "centres": 80, "linear": True}
LINEAR: Options = {"kind": "linear"}
FEATURES, GONE, ERROR = 8, 0.1, 0.2


def features(n: int, seed: int) -> np.ndarray[Any, Any]:
    """Return n rows of correlated features."""
    mixing = np.eye(FEATURES) + 0.35 * np.random.default_rng(7).standard_normal((FEATURES, FEATURES))
    return np.random.default_rng(seed).standard_normal((n, FEATURES)) @ mixing


def labels(X: np.ndarray[Any, Any], n_classes: int) -> np.ndarray[Any, Any]:
    """Return classes that depend on the features by more than planes."""
    rng = np.random.default_rng(5)
    planes, curves = rng.standard_normal((2, FEATURES, n_classes))
    return (0.7 * X @ planes + 0.3 * X**2 @ curves + rng.gumbel(size=(len(X), n_classes))).argmax(axis=1)


def trained(bases: Sequence[Options], n_classes: int) -> tuple[Classifier, list[LogisticRegression]]:
    """Return a classifier that averages the bases, and scikit-learn's of each."""
    X = features(LABELLED, 1)
    y, missing = labels(X, n_classes), np.zeros(X.shape, dtype=bool)
    members, theirs = [], []
    for options in bases:
        kind = {"rng": np.random.default_rng(0)} if options["kind"] == "rbf" else {}
        rest = {key: value for key, value in options.items() if key != "kind"}
        basis = blr.fit_basis(options["kind"], X, **rest, **kind)
        q = blr.fit_evidence(
            basis(X), y, "logistic" if n_classes == 2 else "softmax", classes=range(n_classes)
        )
        members.append(Member(basis, q, tuple(range(FEATURES)), 1 / len(bases)))
        theirs.append(LogisticRegression(fit_intercept=False, C=0.1).fit(basis(X), y))
    names = [str(k) for k in range(n_classes)]
    features_named = [f"x{j}" for j in range(FEATURES)]
    made = Classifier.build(members, X, missing, features=features_named, classes=names)
    return made, theirs


def least(work: Callable[[], object], repeats: int) -> float:
    """Return the least processor time of some runs, in seconds; the first one is not counted."""
    taken = []
    for _ in range(1 + repeats):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return min(taken[1:])


def compare(name: str, bases: Sequence[Options], n_classes: int, rows: int, repeats: int) -> None:
    """Print what a row costs: complete, with holes, with errors, with intervals."""
    classifier, theirs = trained(bases, n_classes)
    X, rng = features(rows, 2), np.random.default_rng(3)
    complete, holes = np.zeros(X.shape, dtype=bool), rng.random(X.shape) < GONE
    errors = rng.exponential(ERROR, X.shape)
    few = slice(0, max(1, rows // 4))  # of what takes long
    modes: dict[str, tuple[Callable[[], object], int]] = {
        "complete": (lambda: classifier.score(X, complete), rows),
        "intervals": (lambda: classifier.score(X, complete, credible=0.95), rows),
        "holes": (lambda: classifier.score(X[few], holes[few]), len(X[few])),
        "errors": (lambda: classifier.score(X[few], complete[few], errors[few]), len(X[few])),
    }

    def plain() -> None:
        for member, fit in zip(classifier.members, theirs, strict=True):
            fit.predict_proba(member.design(X))

    peer = 1e6 * least(plain, repeats) / rows
    costs = {mode: 1e6 * least(work, repeats) / n for mode, (work, n) in modes.items()}
    told = ", ".join(f"{mode} {cost:.1f}" for mode, cost in costs.items())
    print(f"{name}: {told} us a row; scikit-learn {peer:.2f}; complete / it {costs['complete'] / peer:.1f}")


def main() -> int:
    """Print two classes, five, and stacks."""
    given = [int(text) for text in sys.argv[1:]]
    rows, repeats = [*given, *(ROWS, REPEATS)[len(given) :]]
    with threadpool_limits(1):
        compare("two classes, polynomial of degree 2", [POLYNOMIAL], 2, rows, repeats)
        compare("two classes, 80 radial functions", [RADIAL], 2, rows, repeats)
        compare("two classes, three bases", [LINEAR, POLYNOMIAL, RADIAL], 2, rows, repeats)
        compare("five classes, polynomial of degree 2", [POLYNOMIAL], 5, rows, repeats)
        compare("five classes, 80 radial functions", [RADIAL], 5, rows, repeats)
    return 0


if __name__ == "__main__":
    sys.exit(main())
