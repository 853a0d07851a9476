"""Reference posteriors on public data: scikit-learn's iris, wine and breast cancer, and OpenNGC's galaxies.

Run `python -m tests.reference.public_posteriors` to make `public_posteriors.json` anew; it takes some minutes.  The
chains are those of `posteriors.py`.  The data are not ours to copy: the file holds results alone, and the problems are
made again from the packages that carry the data.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyongc
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from tests.reference.posteriors import Problem, by_slices, results

RESULTS = Path(__file__).parent / "public_posteriors.json"
NEW = 20
"""Rows that the probabilities are of; they are not trained on."""


def whitened(X: np.ndarray) -> Any:
    """Return a design matrix of standardised features, the constant first."""
    return np.column_stack([np.ones(len(X)), (X - X.mean(axis=0)) / X.std(axis=0)])


def split(
    name: str, likelihood: Any, X: np.ndarray, label: str, n: int, variance: Any, rng: np.random.Generator
) -> Any:
    """Return the problem of n rows drawn from public ones."""
    Phi, drawn = whitened(X), rng.permutation(len(X))
    K = label.max() + 1
    t = np.eye(K)[label] if likelihood == "softmax" else label
    return Problem(name, likelihood, Phi[drawn[:n]], t[drawn[:n]], 0.0, variance, Phi[drawn[n : n + NEW]])


def galaxies() -> Any:
    """Return features (N, 3) of OpenNGC's galaxies (B - J, J - K, log10 of the axis) and whether each is late."""
    rows = []
    # The package's own `listObjects` asks its database once for each object, which takes seconds.
    with closing(sqlite3.connect(Path(pyongc.__file__).parent / "ongc.db")) as database:
        found = database.execute("SELECT bmag, jmag, kmag, majax, hubble FROM objects WHERE type = 'G'")
        for B, J, K, major, hubble in found:
            if hubble and None not in (B, J, K, major) and "?" not in hubble:
                rows.append((B - J, J - K, np.log10(major), not hubble.startswith(("E", "S0"))))
    table = np.array(rows, dtype=float)
    return table[:, :3], table[:, 3].astype(int)


def problems() -> Iterator[Any]:
    """Yield the problems."""
    rng = np.random.default_rng(11)
    iris, wine, cancer = load_iris(), load_wine(), load_breast_cancer()
    two = iris.target > 0
    yield split("iris, two classes", "logistic", iris.data[two], iris.target[two] - 1, 75, 4.0, rng)
    yield split("iris, three classes", "softmax", iris.data[:, :2], iris.target, 110, 2.0, rng)
    yield split("wine", "softmax", wine.data[:, [0, 6, 9]], wine.target, 140, 1.0, rng)
    yield split("breast cancer", "logistic", cancer.data[:, :5], cancer.target, 300, 1.0, rng)
    yield split("breast cancer, probit", "probit", cancer.data[:, [0, 1, 4]], cancer.target, 60, 2.0, rng)
    X, late = galaxies()
    yield split("galaxies", "logistic", X, late, 200, 1.0, rng)


def fingerprint(problem: Problem) -> str:
    """Return a hash of the data: a newer package may carry others."""
    data = problem.Phi.tobytes() + problem.t.tobytes() + problem.test.tobytes()
    return hashlib.sha256(data).hexdigest()[:16]


def main() -> None:
    """Write the results."""
    rng, out = np.random.default_rng(8), {}
    for problem in problems():
        found = results(problem, *by_slices(problem, rng))
        out[problem.name] = {"data": fingerprint(problem)} | found
    RESULTS.write_text(json.dumps(out, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
