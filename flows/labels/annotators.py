"""Who labelled each row, by the column that names the annotators; those with few labels are treated as one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["FEWEST", "MOST", "OTHERS", "annotator_groups"]

FEWEST = 20
"""Training rows below which an annotator is joined with others, since too little is known of one alone."""
MOST = 30
"""Annotators that have shares of their own, those of most rows."""
OTHERS = "others"


def annotator_groups(
    names: NDArray[np.object_], training: NDArray[np.bool_]
) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return the annotator of each row (N,), as a number, and their names; rows that name nobody are of the others."""
    known, code = np.unique(names.astype(str), return_inverse=True)
    counts = np.bincount(code[training], minlength=len(known))
    order = np.argsort(-counts, kind="stable")
    own = [i for i in order.tolist() if known[i] and counts[i] >= FEWEST][:MOST]
    number = np.full(len(known), len(own), dtype=np.intp)
    number[own] = np.arange(len(own))
    listed = tuple(str(known[i]) for i in own)
    return number[code], listed if len(own) == len(known) else (*listed, OTHERS)
