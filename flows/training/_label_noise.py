"""Wrong labels: the shares that a specification states, or that are found in the training rows.

Shares are a property of the labels, so they are found once, with a flexible model of the features, and are the same
for all candidates.  Shapes: N rows, F features, K classes, A annotators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.basis.kinds import fit_basis
from blr.calibration import log_loss
from blr.likelihood.confusion import recorded_probability
from blr.selection.evidence import fit_evidence
from blr.selection.label_noise import LabelNoise, estimate_label_noise
from flows.errors import TrainingError
from flows.runs.progress import tell
from flows.specification.label_noise import check_noise, stated_confusion
from flows.specification.specification import Specification
from flows.training._rows import TrainingRows

__all__ = ["recorded_losses", "with_label_noise"]

Floats = NDArray[np.float64]
Json = dict[str, Any]

REFERENCE_ROWS = 3000
"""Training rows that shares are found from: they are then known to some 0.02."""
CENTRES = 20
MOST_SQUARES = 8
"""Features up to which a model of degree 2 is tried."""
ARRAYS = ("rate", "standard_error", "low", "high")
SUPPOSED = 0.1
"""Share of wrong labels under which the model of the features is chosen."""


def with_label_noise(
    specification: Specification,
    rows: TrainingRows,
    filled: Floats,
    classes: Sequence[str],
    annotators: Sequence[str] = (),
) -> tuple[TrainingRows, Json]:
    """Return the rows with their confusion, and what is said of it; as they were where labels are right.

    `filled` (N, F) are the features without missing ones.
    """
    noise, column = specification.label.noise, specification.label.annotator
    if noise is None:
        return rows, {}
    if noise != "estimated":
        try:
            check_noise(noise, classes)
        except ValueError as error:
            raise TrainingError(f"label.{error}") from error
        confusion = stated_confusion(noise, list(classes))
        wrong = dict(zip(classes, (1 - np.diag(confusion)).tolist(), strict=True))
        rates = {name: {"rate": rate} for name, rate in wrong.items()}
        return replace(rows, confusion=confusion), {
            "by": "stated",
            "rates": rates,
            "confusion": confusion.tolist(),
        }
    tell().start("estimating the shares of wrong labels", 0, "steps")
    rng = np.random.default_rng([specification.seed, 0x6E6F6973])
    found, n, basis = _estimated(rows, filled, len(classes), rng)
    noise_record: Json = {
        "by": "class" if column is None else "annotator",
        "rows": n,
        "basis": basis,
        "rates": _rates(found.common or found, classes),
        "confusion": (found.common or found).confusion.tolist(),
    }
    if column is not None:
        per = [_rates(_of(found, a), classes) for a in range(len(annotators))]
        noise_record |= {"column": column, "annotators": dict(zip(annotators, per, strict=True))}
    return replace(rows, confusion=found.confusion), noise_record


def _estimated(
    rows: TrainingRows, filled: Floats, K: int, rng: np.random.Generator
) -> tuple[LabelNoise, int, str]:
    """Return the shares, the rows that they are from, and the model of the features of the highest evidence."""
    chosen = np.sort(rng.permutation(np.flatnonzero(rows.training))[:REFERENCE_ROWS])
    X, t = filled[chosen], rows.target[chosen]
    options: dict[str, Any] = {
        "likelihood": "logistic" if K == 2 else "softmax",
        "sample_weight": None if rows.weight is None else rows.weight[chosen],
        "classes": range(K),
    }
    tried = []
    for kind, settings in _designs(X):
        Phi = fit_basis(kind, X, weight=options["sample_weight"], rng=rng, **settings)(X)
        tried.append((fit_evidence(Phi, t, confusion=SUPPOSED, **options).log_evidence, kind, Phi))
        tell().advance(1)
    _, kind, Phi = max(tried, key=lambda one: one[0])
    if rows.annotator is None:
        return estimate_label_noise(Phi, t, **options), len(chosen), kind
    present, who = np.unique(rows.annotator[chosen], return_inverse=True)
    found = estimate_label_noise(Phi, t, annotator=who, **options)
    return _of_all(found, present, int(rows.annotator.max()) + 1), len(chosen), kind


def _of_all(found: LabelNoise, present: NDArray[np.intp], n: int) -> LabelNoise:
    """Return the shares of n annotators, where only those present were seen: another one's are the common ones."""
    common = found.common
    assert common is not None  # noqa: S101  shares are by annotator
    arrays = [np.tile(getattr(common, name), (n, 1)) for name in ARRAYS]
    for whole, name in zip(arrays, ARRAYS, strict=True):
        whole[present] = getattr(found, name)
    rate, error, low, high = arrays
    return LabelNoise(rate, error, low, high, found.log_evidence, found.converged, common)


def _designs(X: Floats) -> Iterator[tuple[str, Json]]:
    yield "linear", {}
    if X.shape[1] <= MOST_SQUARES:
        yield "polynomial", {"degree": 2}
    yield "rbf", {"centres": min(CENTRES, max(2, len(X) // 20)), "linear": True}


def _of(found: LabelNoise, annotator: int) -> LabelNoise:
    rate, error, low, high = (getattr(found, name)[annotator] for name in ARRAYS)
    return LabelNoise(rate, error, low, high, found.log_evidence, found.converged)


def _rates(found: LabelNoise, classes: Sequence[str]) -> Json:
    columns = (getattr(found, name) for name in ARRAYS)
    return {
        name: dict(zip(ARRAYS, map(float, numbers), strict=True))
        for name, *numbers in zip(classes, *columns, strict=True)
    }


def recorded_losses(
    rows: TrainingRows, seen: NDArray[np.bool_], recorded: Floats, class_shares: Floats
) -> Json:
    """Return the log loss of the true classes' probabilities against the recorded labels, where these may be wrong.

    `recorded` (n, K) are the probabilities of the recorded classes of the rows `seen` (N,), `class_shares` (K,) what
    rows without probabilities get.
    """
    confusion = rows.confused(seen)
    if confusion is None:
        return {}
    back: Floats = np.asarray(np.linalg.inv(confusion), dtype=np.float64)
    p = np.clip(np.asarray(recorded_probability(recorded, back)), 0.0, None)
    p = np.where(np.isfinite(recorded), p / p.sum(axis=1, keepdims=True), class_shares)
    recorded = np.where(np.isfinite(recorded), recorded, class_shares)
    truth = rows.target[seen]
    return {"log_loss": log_loss(recorded, truth), "log_loss_of_true_classes": log_loss(p, truth)}
