"""Who labelled each row, by the column that names the annotators; those with few labels are treated as one.

Shapes: n rows of a batch, A annotators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FEWEST", "MOST", "OTHERS", "AnnotatorNames", "annotator_groups"]

FEWEST = 20
"""Training rows below which an annotator is joined with others, since too little is known of one alone."""
MOST = 30
"""Annotators that have shares of their own, those of most rows."""
OTHERS = "others"


@dataclass
class AnnotatorNames:
    """Numbers the annotators in the order in which they are met, so that rows hold numbers and no names."""

    _numbers: dict[str, int] = field(default_factory=dict)

    def numbered(self, names: NDArray[Any]) -> NDArray[np.int32]:
        """Return the number of the annotator of each row of a batch (n,), of their names."""
        distinct, inverse = np.unique(names.astype(str), return_inverse=True)
        numbers = [self._numbers.setdefault(str(name), len(self._numbers)) for name in distinct]
        return np.array(numbers, dtype=np.int32)[inverse]

    @property
    def names(self) -> tuple[str, ...]:
        """The names (A,), by number."""
        return tuple(self._numbers)


def annotator_groups(
    names: Sequence[str], counts: NDArray[np.integer]
) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return the group of each annotator (A,), as a number, and the groups' names.

    `counts` (A,) are numbers of training rows.  Rows that name nobody are of the others.
    """
    order = sorted(range(len(names)), key=lambda i: (-int(counts[i]), names[i]))
    own = [i for i in order if names[i] and counts[i] >= FEWEST][:MOST]
    group = np.full(len(names), len(own), dtype=np.intp)
    group[own] = np.arange(len(own))
    listed = tuple(names[i] for i in own)
    return group, listed if len(own) == len(names) else (*listed, OTHERS)
