"""Class shares of a partly labelled target: objects with a label are counted, and only the others are estimated.

The interval is that of the objects without a label.  It allows any class for them where they cannot be estimated: where
they, or their rows, are fewer than twenty; or where nothing can be said of them, and they are at most a tenth of all.
Shapes: N target rows, K classes, S draws.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector
from blr.census.counts import FEWEST_ROWS, Counted, count_classes, lacking_labels
from blr.census.results import StatedAssumption
from blr.census.rows import LabelledRows, TargetRows
from blr.census.shares import Alternative, ShareDraws

__all__ = ["count_with_labels"]

MOST_UNSAID = 0.1
"""Share of the target without a label, up to which the counts are given though nothing can be said of these objects."""
_DRAWS_OF_EACH = 200
"""Draws for each class, in which all objects without a label are of it, where nothing is estimated."""


def count_with_labels(
    labelled: LabelledRows,
    target: TargetRows,
    known: NDArray[np.intp],
    *,
    assumes: StatedAssumption | None = None,
) -> Counted:
    """Return the class shares of a partly labelled target: `known` (N,) is the class of a row, -1 without a label.

    The rows with a label of class k stand, with their weights, for all of the target's objects that have this label.
    The assumption is then one on the objects without a label, and tests compare these alone with the labelled rows.

    Raises
    ------
    ValueError
        If `known` does not fit the target, or the assumption cannot be stated.
    """
    K = labelled.n_classes
    if known.shape != target.weight.shape or (len(known) and not -1 <= known.min() <= known.max() < K):
        raise ValueError(
            f"got known classes of shape {known.shape}, expected {target.weight.shape} with values from -1 to {K - 1}"
        )
    has_label = known >= 0
    if not has_label.any() or lacking_labels(labelled):
        return count_classes(labelled, target, assumes=assumes)
    counts = np.rint(np.bincount(known[has_label], target.weight[has_label], minlength=K))
    n_other = max(0, target.n_objects - int(counts.sum()))
    others = TargetRows(
        target.probability[~has_label], target.weight[~has_label], target.X[~has_label], n_other
    )
    if min(n_other, len(others.weight)) < FEWEST_ROWS:
        return _of_labels(labelled, counts, n_other, "" if n_other else "no other is left")
    found = count_classes(labelled, others, assumes=assumes)
    said = f"{counts.sum():,.0f} objects have a label and are counted by it; of the {n_other:,} others: {found.reason}"
    if found.shares is None and n_other > MOST_UNSAID * target.n_objects:
        return replace(found, reason=said)
    if found.shares is None:
        bounds = _of_labels(labelled, counts, n_other, f"nothing else can be said of them: {found.reason}")
        return replace(bounds, told_apart=found.told_apart, contradicted=found.contradicted)
    return replace(
        found,
        shares=_together(found.shares, counts, n_other),
        reason=said,
        alternatives=tuple(
            replace(one, shares=_together(one.shares, counts, n_other)) for one in found.alternatives
        ),
        counted=counts,
    )


def _together(others: ShareDraws, counts: Vector, n_other: int) -> ShareDraws:
    """Return the shares among all objects, from `counts` (K,) by label and the shares among the others."""
    return ShareDraws(_all_shares(others.draws, counts, n_other), others.scaling)


def _all_shares(others: Matrix, counts: Vector, n_other: int) -> Matrix:
    return (counts + n_other * others) / (counts.sum() + n_other)


def _of_labels(labelled: LabelledRows, counts: Vector, n_other: int, why: str) -> Counted:
    """Return the shares by label, where the others are not estimated, and why: each class in turn gets all of them."""
    draws = _all_shares(np.repeat(np.eye(labelled.n_classes), _DRAWS_OF_EACH, axis=0), counts, n_other)
    shares = ShareDraws(draws, labelled.scaling, extremes=True)
    left = f"the other {n_other:,} may be of any class, which the intervals hold" if n_other else ""
    said = "; ".join(words for words in (left, why) if words)
    return Counted(
        shares,
        None,
        f"{counts.sum():,.0f} objects have a label and are counted by it; {said}",
        alternatives=(Alternative("shares", labelled, shares),),
        counted=counts,
    )
