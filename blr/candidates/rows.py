"""The labelled rows that candidates are fitted to and judged on, in memory or streamed.

Votes may scatter more than independent ones would, and labels may be wrong: both are estimated once from the rows, with
a flexible model of the features, and are the same for all candidates.
Shapes: N rows, n of them, F features, K classes, A annotators, M basis functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Mask, Matrix, Vector
from blr.basis.base import Basis, Standardisation
from blr.basis.kinds import fit_basis
from blr.missing.moments import FeatureMoments
from blr.selection.evidence import fit_evidence
from blr.selection.label_noise import ARRAYS, LabelNoise, estimate_label_noise
from blr.shift import rescaled

REFERENCE_VOTES, REFERENCE_LABELS = 4000, 3000
"""Most rows from which the scatter of votes is estimated, to 2 %, and the shares of wrong labels, to about 0.02."""
CENTRES = 20
"""Most centres of the flexible model of the features."""
FEWEST_EXPECTED = 0.05
"""Smallest expected number of votes for which Pearson's term is counted: below it, the term is mostly noise."""
MOST_SQUARES = 8
"""Largest number of features for which a model of degree 2 is tried."""
SUPPOSED = 0.1
"""Share of wrong labels that is assumed while the model of the features is chosen."""


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Features X (N, F), 0 where `missing`; class indices `target` (N,); the mask `held_out` (N,); weights or None."""

    X: Matrix
    missing: Mask
    target: NDArray[np.intp]
    held_out: Mask
    weight: Vector | None = None
    votes: Matrix | None = None  # (N, K), if votes are the targets; `target` has most of them
    errors: Matrix | None = None  # (N, F), one sigma, if some are stated
    group: NDArray[Any] | None = None  # (N,), equal for rows that belong together
    annotator: NDArray[np.intp] | None = None  # (N,) the number of each row's annotator, if known
    # p(recorded | true class), (K, K) or by annotator (A, K, K); None where labels are right
    confusion: Matrix | None = None

    def of(self, some: Mask) -> Self:
        """Return the rows in a mask (N,) alone, where the confusion is not by row."""
        by_row = {name: x[some] for name, x in vars(self).items() if np.ndim(x) and name != "confusion"}
        return replace(self, **by_row)

    @property
    def response(self) -> Any:
        """The targets of fits: votes (N, K), or class indices (N,)."""
        return self.target if self.votes is None else self.votes

    @property
    def training(self) -> Mask:
        """The rows (N,) that fits see."""
        return ~self.held_out

    @property
    def confusion_by_annotator(self) -> Matrix | None:
        """The confusion of each annotator (A, K, K); None where all labels have the same one, or are right."""
        return self.confusion if self.confusion is not None and self.confusion.ndim > 2 else None

    def confused(self, rows: Mask) -> Matrix | None:
        """Return the confusion of the rows in a mask (N,): (K, K), or (n, K, K) by row; None where labels are right."""
        if self.confusion_by_annotator is None or self.annotator is None:
            return self.confusion
        return np.asarray(self.confusion_by_annotator[self.annotator[rows]])


class StreamedRows(Protocol):
    """All rows of a training, where they are too many for the memory: what a fit reads of them, by sums over parts."""

    @property
    def n_rows(self) -> int:
        """N, the number of all rows."""
        ...

    @property
    def confusion(self) -> Matrix | None:
        """The confusion of each annotator (A, K, K), where targets are likelihoods of what was recorded."""
        ...

    def standardised(self, basis: Basis, columns: tuple[int, ...], X: Matrix) -> Standardisation:
        """Return the standardisation that a basis has for all rows; `X` (n, F) are the rows in memory."""
        ...

    def design(
        self,
        basis: Basis,
        columns: tuple[int, ...],
        X: Matrix,
        t: Any,
        weight: Vector | None,
        confusion: Matrix | None = None,
    ) -> Any:
        """Return the design matrix of all rows, as `blr.fit` accepts it; the arrays are of the rows in memory."""
        ...

    def each(self) -> Iterator[LabelledRows]:
        """Yield the rows in parts."""
        ...


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The rows that candidates are fitted to and judged on, and their features (N, F) with missing values filled.

    A missing value is `filled` by its conditional mean under the `moments` of the training rows.  Where all rows are
    `streamed`, `rows` are a sample of them, and fits use all.
    """

    rows: LabelledRows
    filled: Matrix
    features: tuple[str, ...]
    classes: tuple[str, ...]
    moments: FeatureMoments
    streamed: StreamedRows | None = None

    @classmethod
    def of(cls, rows: LabelledRows, features: Sequence[str], classes: Sequence[str]) -> Self:
        """Return rows in memory with their missing values filled."""
        training, weight = rows.training, rows.weight
        own = None if weight is None else weight[training]
        moments = FeatureMoments.estimate(rows.X[training], rows.missing[training], weight=own)
        return cls(rows, moments.impute(rows.X, rows.missing), tuple(features), tuple(classes), moments)

    def of_all(self, ratio: Vector | None = None) -> TrainingSet:
        """Return the same rows in memory, of which fits see the held-out ones too.

        Where the rows have the weights of `density_weights`, `ratio` (N,) are the density ratios; the weights then sum
        to the effective number of all rows.
        """
        rows = replace(self.rows, held_out=np.zeros_like(self.rows.held_out))
        if ratio is not None and self.rows.weight is not None:
            training, weight = self.rows.training, self.rows.weight.copy()
            # Training rows of weights g have c g r with c = Σw/Σwr, which is divided out first.
            seen = weight[training]
            weight[training] = seen * (seen @ ratio[training]) / seen.sum()
            rows = replace(rows, weight=weight * (weight.sum() / (weight @ ratio)))
        return TrainingSet.of(rows, self.features, self.classes)

    @property
    def n_rows(self) -> int:
        """N, the number of all rows."""
        return len(self.rows.target) if self.streamed is None else self.streamed.n_rows

    @property
    def weight(self) -> Vector | None:
        """The weights of the training rows in memory; None where they have none."""
        return None if self.rows.weight is None else self.rows.weight[self.rows.training]

    @property
    def class_share(self) -> Vector:
        """Return the weighted share of each class (K,) in the rows that fits see."""
        counts = np.zeros(len(self.classes))
        for rows in [self.rows] if self.streamed is None else self.streamed.each():
            weight = None if rows.weight is None else rows.weight[rows.training]
            counts += np.bincount(rows.target[rows.training], weights=weight, minlength=len(counts))
        return counts / counts.sum()


def density_weights(rows: LabelledRows, ratio: Vector) -> Vector:
    """Return the weights (N,) of rows by density ratio (N,); those of training rows sum to their effective number."""
    training = rows.training
    weight = ratio.copy() if rows.weight is None else ratio * rows.weight
    own = None if rows.weight is None else rows.weight[training]
    weight[training] = rescaled(ratio[training], own)
    return weight


def overdispersion(X: Matrix, votes: Matrix, *, rng: np.random.Generator) -> float:
    """Return how much more votes (n, K) scatter than independent ones would, phi, about a fit to features X (n, F).

    The variance of the counts is phi times the multinomial one.  Pearson's chi-squared over its degrees of freedom
    estimates phi; weights divided by phi make the posterior as wide as it should be (McCullagh & Nelder 1989, 4.5).
    It is 1 at least.
    """
    rows = rng.permutation(len(X))[:REFERENCE_VOTES]
    X, votes = X[rows], votes[rows]
    basis = fit_basis("rbf", X, rng=rng, centres=min(CENTRES, max(2, len(X) // 20)), linear=True)
    Phi, K = basis(X), votes.shape[1]
    # This fit takes all votes as independent.  So the precision of its prior is a little too low, and phi may be too.
    q = fit_evidence(Phi, votes, likelihood="logistic" if K == 2 else "softmax", classes=range(K))
    p = np.asarray(q.predict_proba(Phi, method="plugin"))
    p = np.stack([1 - p, p], axis=1) if p.ndim == 1 else p
    expected = votes.sum(axis=1, keepdims=True) * p
    several = votes.sum(axis=1) > 1  # a single vote scatters as its mean says, whatever phi is
    counted = (expected > FEWEST_EXPECTED) & several[:, None]
    chi2 = float(np.sum(((votes - expected) ** 2 / np.where(counted, expected, 1.0))[counted]))
    freedom = float(counted.sum() - several.sum() - q.effective_parameters * several.mean())
    return max(1.0, chi2 / freedom) if freedom > 0 else 1.0


def fitted_confusion(noise: LabelNoise) -> Matrix:
    """Return the confusion (K, K), or by annotator (A, K, K); one matrix says that nobody errs."""
    confusion = noise.confusion
    nobody = (np.einsum("...kk->...k", confusion) == 1).all()
    return np.eye(confusion.shape[-1]) if nobody else confusion


def wrong_labels(
    data: TrainingSet, *, n_annotators: int = 0, rng: np.random.Generator, on_step: Any = None
) -> tuple[LabelNoise, int, str]:
    """Return the shares of wrong labels in the training rows, by a model of the features of the highest evidence.

    With them come the number of rows behind them, and the kind of basis of the model.  Where the rows have annotators,
    the shares are those of `n_annotators`; the rows need not have all of them.
    """
    rows, K = data.rows, len(data.classes)
    chosen = np.sort(rng.permutation(np.flatnonzero(rows.training))[:REFERENCE_LABELS])
    X, t = data.filled[chosen], rows.target[chosen]
    weight = None if rows.weight is None else rows.weight[chosen]
    options: Any = {
        "likelihood": "logistic" if K == 2 else "softmax",
        "sample_weight": weight,
        "classes": range(K),
    }
    tried = []
    for kind, settings in _designs(X):
        Phi = fit_basis(kind, X, weight=weight, rng=rng, **settings)(X)
        tried.append((fit_evidence(Phi, t, confusion=SUPPOSED, **options).log_evidence, kind, Phi))
        if on_step is not None:
            on_step()
    _, kind, Phi = max(tried, key=lambda one: one[0])
    if rows.annotator is None:
        return estimate_label_noise(Phi, t, **options), len(chosen), kind
    present, who = np.unique(rows.annotator[chosen], return_inverse=True)
    estimate = estimate_label_noise(Phi, t, annotator=who, **options)
    assert estimate.common is not None  # noqa: S101  shares are by annotator
    # An annotator without a row has the common shares.
    whole: dict[str, Any] = {
        name: np.tile(getattr(estimate.common, name), (n_annotators, 1)) for name in ARRAYS
    }
    for name, rates in whole.items():
        rates[present] = getattr(estimate, name)
    return replace(estimate, **whole), len(chosen), kind


def _designs(X: Matrix) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "linear", {}
    if X.shape[1] <= MOST_SQUARES:
        yield "polynomial", {"degree": 2}
    yield "rbf", {"centres": min(CENTRES, max(2, len(X) // 20)), "linear": True}
