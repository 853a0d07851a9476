"""Features that say whether a value is there: in many catalogues, which objects lack one tells their class.

A model without them integrates a missing feature out as if values were missing at random, given the other features.
Faint and red galaxies lack infrared magnitudes, though, and then classes differ in how often they do.  Shapes: n rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from flows.draft._exclusions import Evidence
from flows.draft._expressions import columns_of, evaluated, quoted

__all__ = ["presence_features", "telling"]

FEWEST_ROWS = 5
"""Rows with a value, and without one, below which its presence is not tested."""
REMEDY = "Leave it out if values are missing in the target for other reasons"
SAME = 0.8
"""Share of the rows lacking either of two values that lack both, from which one feature stands for both."""


def presence_features(texts: Sequence[str], evidence: Evidence) -> dict[str, tuple[str, str]]:
    """Return features that say whether a value is there, each an expression with a remark.

    `texts` are the other features' expressions.  Asked for are the values of those that use one column, and of the
    columns of the rest.
    """
    sources: dict[str, str] = {}
    for text in texts:
        cells = columns_of(text)
        if len(cells) == 1:
            sources[text] = min(cells)
        else:
            sources |= {quoted(name): name for name in evidence.rows if name in cells}
    missing = {text: ~np.isfinite(evaluated(text, evidence)) for text in sources}
    return {
        f"has_{sources[text]}": (
            f"isfinite({text})",
            f"1 where there is a value; {missing[text].mean():.0%} have none, and classes differ in that. {REMEDY}",
        )
        for text in telling(missing, evidence.classes)
    }


def telling(missing: Mapping[str, NDArray[np.bool_]], classes: NDArray[np.object_]) -> list[str]:
    """Return the names of what is `missing` (n,) in a way that tells the class (n,), those that tell most first.

    What is missing in nearly the same rows is one thing.  Of m such things one tells the class if the log likelihood
    ratio of class and presence against their independence exceeds its K - 1 free parameters and ln m: the penalty of
    Akaike (1974, doi:10.1109/TAC.1974.1100705), and that for looking at many (Foster and George 1994,
    doi:10.1214/aos/1176325766).
    """
    gains = {
        name: _gain(where, classes)
        for name, where in missing.items()
        if FEWEST_ROWS <= where.sum() <= len(where) - FEWEST_ROWS
    }
    distinct: list[str] = []
    for name in sorted(gains, key=lambda name: -gains[name]):
        if not any(_alike(missing[name], missing[other]) for other in distinct):
            distinct.append(name)
    return [name for name in distinct if gains[name] > np.log(len(distinct))]


def _gain(missing: NDArray[np.bool_], classes: NDArray[np.object_]) -> float:
    """Return by how much the log likelihood ratio exceeds its number of free parameters, in nats."""
    _, k = np.unique(classes.astype(str), return_inverse=True)
    counts = np.stack(
        [np.bincount(k[missing], minlength=k.max() + 1), np.bincount(k[~missing], minlength=k.max() + 1)]
    )
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / len(k)
    seen = counts > 0
    ratio = float((counts[seen] * np.log(counts[seen] / expected[seen])).sum())
    return ratio - (counts.shape[1] - 1)


def _alike(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> bool:
    return bool((a & b).sum() >= SAME * (a | b).sum())
