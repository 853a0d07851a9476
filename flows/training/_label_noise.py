"""Shares of wrong labels: stated by a specification, or estimated from the training rows, with their record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from blr.calibration import log_loss
from blr.candidates.rows import TrainingSet, wrong_labels
from blr.likelihood.confusion import recorded_probability
from blr.selection.label_noise import LabelNoise
from flows.errors import TrainingError
from flows.models.label_noise import WrongLabels, WrongLabelShare
from flows.runs.progress import tell
from flows.specification.label_noise import check_noise, stated_confusion
from flows.specification.specification import Specification
from flows.training._rows import TrainingRows

__all__ = ["label_confusion", "with_recorded_losses"]

Floats = NDArray[np.float64]

ARRAYS = ("rate", "standard_error", "low", "high")


def label_confusion(
    specification: Specification, data: TrainingSet, annotators: Sequence[str] = ()
) -> tuple[Floats | None, WrongLabels]:
    """Return the confusion matrix of the labels, by annotator where they differ, and a record of it.

    It is None where labels are right.
    """
    noise, column, classes = specification.label.noise, specification.label.annotator, data.classes
    if noise is None:
        return None, WrongLabels()
    if noise != "estimated":
        try:
            check_noise(noise, classes)
        except ValueError as error:
            raise TrainingError(f"label.{error}") from error
        confusion = stated_confusion(noise, list(classes))
        wrong = dict(zip(classes, (1 - np.diag(confusion)).tolist(), strict=True))
        return confusion, WrongLabels(
            by="stated",
            rates={name: WrongLabelShare(rate=rate) for name, rate in wrong.items()},
            confusion=_tuples(confusion),
        )
    tell().start("estimating the shares of wrong labels", 0, "steps")
    rng = np.random.default_rng([specification.seed, 0x6E6F6973])
    step = partial(tell().advance, 1)
    estimated = wrong_labels(data, n_annotators=len(annotators), rng=rng, on_step=step)
    common = estimated.noise.common or estimated.noise
    record = WrongLabels(
        by="class",
        rows=estimated.n_rows,
        basis=estimated.basis,
        rates=_rates(common, classes),
        confusion=_tuples(common.confusion),
    )
    if column is not None:
        by_annotator = {
            name: _rates(_of_one(estimated.noise, a), classes) for a, name in enumerate(annotators)
        }
        record = replace(record, by="annotator", column=column, annotators=by_annotator)
    return estimated.confusion, record


def _tuples(matrix: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())


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
