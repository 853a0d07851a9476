"""How much of a class a column tells: the share of the class's entropy that it removes, on rows not looked at.

A column is cut into bins of equal count (a text column into its frequent values, what is missing into a bin of its
own), the classes' shares in each bin are learned on half of the rows, and the log loss is taken on the other half.
1 means all of the entropy, 0 nothing; the estimate is below 0 where there is only noise.
Shapes: n rows, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.arrays.unique_texts import unique_texts

__all__ = ["SMOOTHING", "Classes", "binned", "gain", "number_of_bins", "sorted_texts"]

Array = np.ndarray[Any, Any]
Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

BINS = 48
SMOOTHING = 4.0
"""Pseudo-rows with the overall class shares in each bin, which reduce the noise of many classes."""
FEWEST = 12
"""Least number of rows of a class; rarer classes are left out."""
MOST_TEXTS = 256


@dataclass(frozen=True, eq=False)
class Classes:
    """The class index (n,) of labelled rows, their names, and which fold (n,) of two each is in."""

    index: Codes
    names: tuple[str, ...]
    fold: NDArray[np.bool_]

    @classmethod
    def of(cls, labels: Array, rng: np.random.Generator) -> tuple[Classes, NDArray[np.bool_]]:
        """Return the classes of labels (N,), and which rows (N,) have one: '' and rare ones have none."""
        texts, inverse, counts = unique_texts(labels)
        kept = (counts >= FEWEST) & np.array([text != "" for text in texts], dtype=bool)
        rows = kept[inverse]
        index = np.cumsum(kept)[inverse[rows]] - 1
        fold = rng.random(int(rows.sum())) < 0.5
        return cls(index, tuple(text for text, keep in zip(texts, kept, strict=True) if keep), fold), rows

    @property
    def entropy(self) -> float:
        """Of the classes' shares, nats."""
        share = np.bincount(self.index, minlength=len(self.names)) / max(1, len(self.index))
        share = share[share > 0]
        return float(-(share * np.log(share)).sum())

    def only(self, rows: Array) -> Classes:
        """Return the classes of some of the rows."""
        return Classes(self.index[rows], self.names, self.fold[rows])


def number_of_bins(classes: Classes) -> int:
    """Return how many bins the rows can carry: five rows a class and bin."""
    return int(np.clip(len(classes.index) / (5 * max(2, len(classes.names))), 4, BINS))


def binned(values: Floats, bins: int = BINS) -> Codes:
    """Return the bin (n,) of each number, bins of about equal count; what is missing has one of its own."""
    known = np.isfinite(values)
    codes = np.full(len(values), bins, dtype=np.intp)
    if known.any():
        edges = np.unique(np.quantile(values[known], np.linspace(0, 1, bins + 1)[1:-1]))
        codes[known] = np.searchsorted(edges, values[known], side="right")
    return codes


def sorted_texts(values: Array) -> Codes:
    """Return a code (n,) of each text, the rare ones sharing one."""
    texts, inverse, counts = unique_texts(values)
    order = np.argsort(-counts, kind="stable")
    code = np.full(len(texts), MOST_TEXTS, dtype=np.intp)
    frequent = order[:MOST_TEXTS][counts[order[:MOST_TEXTS]] > 1]
    code[frequent] = np.arange(len(frequent))
    return np.asarray(code[inverse])


def gain(codes: Codes, classes: Classes, *, smoothing: float = SMOOTHING) -> float:
    """Return the share of the entropy that the bins (n,) explain, each half judged by what the other taught."""
    K, n = len(classes.names), len(codes)
    if K < 2 or n < 4 * K or not (classes.fold.any() and (~classes.fold).any()):
        return 0.0
    total, baseline = 0.0, 0.0
    for fold in (classes.fold, ~classes.fold):
        taught, judged = ~fold, fold
        prior = np.bincount(classes.index[taught], minlength=K) + 0.5
        prior /= prior.sum()
        counts = np.zeros((int(codes.max()) + 1, K))
        np.add.at(counts, (codes[taught], classes.index[taught]), 1.0)
        share = (counts + smoothing * prior) / (counts.sum(axis=1, keepdims=True) + smoothing)
        total -= float(np.log(share[codes[judged], classes.index[judged]]).sum())
        baseline -= float(np.log(prior[classes.index[judged]]).sum())
    return 1 - total / baseline if baseline > 0 else 0.0
