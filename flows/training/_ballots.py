"""The rows that a batch contributes: one each, or one for each class that reviewers' answers are shared between.

An object whose reviewers differ is there once for each class, with the share of the answers as its weight: the log
likelihood is that of the shares.  Shapes: n rows of the batch, m rows that train.
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

__all__ = ["Ballots", "cast_ballots"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ballots:
    """Rows of a batch (m,), their labels (m,), their weights (m,), and which share an object (m,)."""

    row: NDArray[np.intp]
    texts: NDArray[np.object_]
    weight: Floats | None  # None where all are 1, in all batches
    shared: NDArray[np.bool_]

    def weighted(self, given: Floats | None) -> Floats | None:
        """Return the weights (m,) that the catalogue gives, times these."""
        return given if self.weight is None else self.weight if given is None else given * self.weight


def cast_ballots(
    specification: Specification,
    reviews: Reviews,
    labels: LabelReader,
    values: Mapping[str, np.ndarray[Any, Any]],
    texts: NDArray[np.object_],
    chosen: NDArray[np.bool_],
) -> Ballots:
    """Return the ballots of the chosen rows (n,) of a batch, whose labels are the texts (n,)."""
    row, identifier = np.flatnonzero(chosen), specification.catalog.id
    if identifier is None or not (reviews.votes or reviews.weights):
        return Ballots(row, texts[row], None, np.zeros(len(row), dtype=bool))
    cast: list[tuple[int, str, float, bool]] = []
    for i, name in zip(row.tolist(), label_texts(values[identifier][row]).tolist(), strict=True):
        weight = reviews.weights.get(name, 1.0)
        known = {text: share for text, share in reviews.votes.get(name, {}).items() if labels.knows(text)}
        for text, share in (known or {str(texts[i]): 1.0}).items():
            cast.append((i, text, weight * share / (sum(known.values()) or 1.0), len(known) > 1))
    return Ballots(
        np.array([i for i, *_ in cast], dtype=np.intp),
        np.array([text for _, text, *_ in cast], dtype=object),
        np.array([weight for *_, weight, _ in cast], dtype=np.float64),
        np.array([shared for *_, shared in cast], dtype=bool),
    )
