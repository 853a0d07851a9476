"""What `output.columns = "full"` adds to the standard columns, in the order of `catalogs.annotations`."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from blr.decisions import entropy
from blr.scores import Scores

__all__ = ["full_arrays"]

Array = np.ndarray[Any, Any]


def full_arrays(scores: Scores) -> list[Array]:
    """Return the further columns, (n,) each, of scores with intervals; NaN where a row is unclassifiable."""
    if scores.low is None or scores.high is None:
        raise ValueError("got scores without intervals, expected them; score with `credible`")
    known = ~np.isnan(scores.probability[:, 0])
    uncertainty = np.full(len(known), np.nan)
    uncertainty[known] = entropy(scores.probability[known])
    arrays = [x for ends in zip(scores.plugin.T, scores.low.T, scores.high.T, strict=True) for x in ends]
    arrays.append(uncertainty)
    means, covariance = scores.logit_means, scores.logit_covariance
    if means is not None and covariance is not None:
        pairs = combinations_with_replacement(range(means.shape[1]), 2)
        arrays += [*means.T, *(covariance[:, a, b] for a, b in pairs)]
    return arrays
