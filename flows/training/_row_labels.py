"""The labels of a batch's training rows, with weights; an object whose reviewers differ has several rows.

Such an object has one row for each class that reviewers gave it.  The weight of the row is the share of the answers
for that class, so that the log likelihood is that of the shares.  Shapes: n rows of the batch, m training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.labels.reader import LabelReader, label_texts
from flows.labels.reviews import Reviews
from flows.specification.specification import Specification

__all__ = ["RowLabels", "row_labels"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RowLabels:
    """Training rows: their numbers in the batch (m,), labels (m,), weights (m,), and which share an object (m,)."""

    row: NDArray[np.intp]
    texts: NDArray[np.object_]
    weight: Floats | None  # None where all weights are 1 in every batch
    shared: NDArray[np.bool_]

    def weighted(self, given: Floats | None) -> Floats | None:
        """Return the weights (m,) that the catalogue gives, multiplied by the weights from reviews."""
        return given if self.weight is None else self.weight if given is None else given * self.weight


def row_labels(
    specification: Specification,
    reviews: Reviews,
    labels: LabelReader,
    values: Mapping[str, np.ndarray[Any, Any]],
    texts: NDArray[np.object_],
    chosen: NDArray[np.bool_],
) -> RowLabels:
    """Return the labels of the training rows that the `chosen` rows (n,) give, whose labels are the `texts` (n,)."""
    row, identifier = np.flatnonzero(chosen), specification.catalog.id
    if identifier is None or not (reviews.votes or reviews.weights):
        return RowLabels(row, texts[row], None, np.zeros(len(row), dtype=bool))
    found: list[tuple[int, str, float, bool]] = []
    for i, name in zip(row.tolist(), label_texts(values[identifier][row]).tolist(), strict=True):
        weight = reviews.weights.get(name, 1.0)
        known = {text: share for text, share in reviews.votes.get(name, {}).items() if labels.knows(text)}
        for text, share in (known or {str(texts[i]): 1.0}).items():
            found.append((i, text, weight * share / (sum(known.values()) or 1.0), len(known) > 1))
    return RowLabels(
        np.array([i for i, *_ in found], dtype=np.intp),
        np.array([text for _, text, *_ in found], dtype=object),
        np.array([weight for *_, weight, _ in found], dtype=np.float64),
        np.array([shared for *_, shared in found], dtype=bool),
    )
