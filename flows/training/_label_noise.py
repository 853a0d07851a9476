"""Shares of wrong labels: stated by a specification, or estimated from the training rows.

The shares are a property of the labels.  So they are estimated once, with a flexible model of the features, and are
the same for all candidates.  Shapes: N rows, F features, K classes, A annotators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from blr.basis.kinds import fit_basis
from blr.calibration import log_loss
from blr.likelihood.confusion import recorded_probability
from blr.selection.evidence import fit_evidence
from blr.selection.label_noise import LabelNoise, estimate_label_noise
from flows.errors import TrainingError
from flows.models.label_noise import WrongLabels, WrongLabelShare
from flows.runs.progress import tell
from flows.specification.basis import BasisKeywords
from flows.specification.label_noise import check_noise, stated_confusion
from flows.specification.specification import Specification
from flows.training._rows import TrainingRows

__all__ = ["with_label_noise", "with_recorded_losses"]

Floats = NDArray[np.float64]

REFERENCE_ROWS = 3000
"""Most training rows that the shares are estimated from: their errors are then about 0.02."""
CENTRES = 20
"""Most centres of the flexible model."""
MOST_SQUARES = 8
"""Largest number of features for which a model of degree 2 is tried."""
ARRAYS = ("rate", "standard_error", "low", "high")
SUPPOSED = 0.1
"""Share of wrong labels that is assumed while the model of the features is chosen."""


def with_label_noise(
    specification: Specification,
    rows: TrainingRows,
    filled: Floats,
    classes: Sequence[str],
    annotators: Sequence[str] = (),
) -> tuple[TrainingRows, WrongLabels]:
    """Return the rows with the confusion matrix of their labels, and a record of it; unchanged if labels are right.

    `filled` (N, F) are the features, with estimates in place of missing values.
    """
    noise, column = specification.label.noise, specification.label.annotator
    if noise is None:
        return rows, WrongLabels()
    if noise != "estimated":
        try:
            check_noise(noise, classes)
        except ValueError as error:
            raise TrainingError(f"label.{error}") from error
        confusion = stated_confusion(noise, list(classes))
        wrong = dict(zip(classes, (1 - np.diag(confusion)).tolist(), strict=True))
        return replace(rows, confusion=confusion), WrongLabels(
            by="stated",
            rates={name: WrongLabelShare(rate=rate) for name, rate in wrong.items()},
            confusion=_tuples(confusion),
        )
    tell().start("estimating the shares of wrong labels", 0, "steps")
    rng = np.random.default_rng([specification.seed, 0x6E6F6973])
    estimate, n, basis = _estimated(rows, filled, len(classes), len(annotators), rng)
    common = estimate.common or estimate
    record = WrongLabels(
        by="class",
        rows=n,
        basis=basis,
        rates=_rates(common, classes),
        confusion=_tuples(common.confusion),
    )
    if column is not None:
        by_annotator = {name: _rates(_of_one(estimate, a), classes) for a, name in enumerate(annotators)}
        record = replace(record, by="annotator", column=column, annotators=by_annotator)
    confusion = estimate.confusion
    if (np.einsum("...kk->...k", confusion) == 1).all():  # nobody errs: one matrix says so
        confusion = np.eye(len(classes))
    return replace(rows, confusion=confusion), record


def _tuples(matrix: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())


class _Response(TypedDict):
    """Keywords of every fit of the flexible model of the features."""

    likelihood: str
    sample_weight: Floats | None
    classes: Sequence[int]


def _estimated(
    rows: TrainingRows, filled: Floats, K: int, A: int, rng: np.random.Generator
) -> tuple[LabelNoise, int, str]:
    """Return the shares, the number of rows behind them, and the kind of basis of the highest evidence.

    Where the rows have annotators, the shares are those of A annotators; the rows need not have all of them.
    """
    chosen = np.sort(rng.permutation(np.flatnonzero(rows.training))[:REFERENCE_ROWS])
    X, t = filled[chosen], rows.target[chosen]
    options = _Response(
        likelihood="logistic" if K == 2 else "softmax",
        sample_weight=None if rows.weight is None else rows.weight[chosen],
        classes=range(K),
    )
    tried = []
    for kind, settings in _designs(X):
        Phi = fit_basis(kind, X, weight=options["sample_weight"], rng=rng, **settings)(X)
        tried.append((fit_evidence(Phi, t, confusion=SUPPOSED, **options).log_evidence, kind, Phi))
        tell().advance(1)
    _, kind, Phi = max(tried, key=lambda one: one[0])
    if rows.annotator is None:
        return estimate_label_noise(Phi, t, **options), len(chosen), kind
    present, who = np.unique(rows.annotator[chosen], return_inverse=True)
    estimate = estimate_label_noise(Phi, t, annotator=who, **options)
    return _of_all_annotators(estimate, present, A), len(chosen), kind


def _of_all_annotators(estimate: LabelNoise, present: NDArray[np.intp], n: int) -> LabelNoise:
    """Return the shares of n annotators; one who is not `present` in the estimate has the common shares."""
    common = estimate.common
    assert common is not None  # noqa: S101  shares are by annotator
    arrays = [np.tile(getattr(common, name), (n, 1)) for name in ARRAYS]
    for whole, name in zip(arrays, ARRAYS, strict=True):
        whole[present] = getattr(estimate, name)
    rate, error, low, high = arrays
    return LabelNoise(rate, error, low, high, estimate.log_evidence, estimate.converged, common)


def _designs(X: Floats) -> Iterator[tuple[str, BasisKeywords]]:
    yield "linear", {}
    if X.shape[1] <= MOST_SQUARES:
        yield "polynomial", {"degree": 2}
    yield "rbf", {"centres": min(CENTRES, max(2, len(X) // 20)), "linear": True}


def _of_one(estimate: LabelNoise, annotator: int) -> LabelNoise:
    """Return the shares of one annotator."""
    rate, error, low, high = (getattr(estimate, name)[annotator] for name in ARRAYS)
    return LabelNoise(rate, error, low, high, estimate.log_evidence, estimate.converged)


def _rates(estimate: LabelNoise, classes: Sequence[str]) -> dict[str, WrongLabelShare]:
    columns = (getattr(estimate, name).tolist() for name in ARRAYS)
    return {
        name: WrongLabelShare(rate=rate, standard_error=error, low=low, high=high)
        for name, rate, error, low, high in zip(classes, *columns, strict=True)
    }


def with_recorded_losses(
    noise: WrongLabels, rows: TrainingRows, seen: NDArray[np.bool_], recorded: Floats, class_shares: Floats
) -> WrongLabels:
    """Return the record with the log losses of recorded and of true classes; unchanged where labels are right.

    `recorded` (n, K) are the probabilities of the recorded classes, for the rows in the mask `seen` (N,).  Rows
    without probabilities get the `class_shares` (K,).
    """
    confusion = rows.confused(seen)
    if confusion is None:
        return noise
    back: Floats = np.asarray(np.linalg.inv(confusion), dtype=np.float64)
    p = np.clip(np.asarray(recorded_probability(recorded, back)), 0.0, None)
    p = np.where(np.isfinite(recorded), p / p.sum(axis=1, keepdims=True), class_shares)
    recorded = np.where(np.isfinite(recorded), recorded, class_shares)
    truth = rows.target[seen]
    return replace(noise, log_loss=log_loss(recorded, truth), log_loss_of_true_classes=log_loss(p, truth))
