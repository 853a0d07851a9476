"""The candidates that `blr init` writes: they follow from the numbers of rows, features and classes alone.

docs/candidates.md states the rules.
"""

from __future__ import annotations

import math

from flows.specification.basis import (
    ForestBasis,
    LinearBasis,
    NystroemBasis,
    PolynomialBasis,
    SigmoidBasis,
)
from flows.specification.specification import Candidate

__all__ = ["default_candidates"]

MOST_WEIGHTS = 1000
"""Weights of all classes together that a candidate may have: a fit takes time by their cube."""
KERNEL_WIDTH = 0.7
"""Width of the Laplacian kernel is this times F: the median city-block distance of rows is 1.1 F."""
STEPS = 12
"""Steps along each feature: a period or an amplitude may cut a class off sharply."""
SEARCHED_ROWS, SEARCHED_FEATURES = 1000, 12
"""Most rows and features for a height of the steps of each feature.

With more rows the search takes long; with more features the rows do not tell a gain from chance.
"""
FEWEST_CENTRES = 20
"""A Gaussian process is not tried with fewer centres, unless rows are as few."""
MOST_NUMBERS = 16_000_000
"""Numbers in the design matrix of a Gaussian process, above which it has fewer centres."""
MOST_IN_MEMORY = 200_000
"""Rows above which forests are not tried: fits then read the rows from the disk."""


def default_candidates(n_rows: int, n_features: int, n_classes: int) -> tuple[Candidate, ...]:
    """Return the default candidates for that many labelled rows, features and classes.

    Linear, quadratic, a Gaussian process, steps along each feature, and two forests.
    """
    outputs = max(n_classes - 1, 1)
    candidates = [Candidate(basis=LinearBasis(kind="linear"))]
    quadratic = math.comb(n_features + 2, 2)
    if quadratic <= max(60, n_rows // 3) and quadratic * outputs <= MOST_WEIGHTS:
        square = PolynomialBasis(kind="polynomial", degree=2)
        candidates.append(Candidate(basis=square, transform="arcsinh"))
    else:
        candidates.append(Candidate(basis=LinearBasis(kind="linear"), transform="arcsinh"))
    centres = min(_centres(n_rows, n_classes), MOST_WEIGHTS // outputs - 1)
    if centres >= min(FEWEST_CENTRES, n_rows):
        process = NystroemBasis(kind="nystroem", centres=centres, width=round(KERNEL_WIDTH * n_features, 2))
        candidates.append(Candidate(basis=process, transform="arcsinh"))
    if (STEPS * n_features + 1) * outputs <= MOST_WEIGHTS:
        searched = n_rows <= SEARCHED_ROWS and 2 <= n_features <= SEARCHED_FEATURES
        steps = SigmoidBasis(kind="sigmoid", centres=STEPS, height="each" if searched else None)
        candidates.append(Candidate(basis=steps))
    if n_rows <= MOST_IN_MEMORY:
        candidates.append(Candidate(basis=ForestBasis(kind="forest", split="random")))
        candidates.append(Candidate(basis=ForestBasis(kind="forest", split="best")))
    return tuple(candidates)


def _centres(n_rows: int, n_classes: int) -> int:
    """Return how many centres of a Gaussian process the rows can carry; of very many rows fewer, for memory."""
    most = 320 if n_classes < 5 else 160
    wanted = min(n_rows, max(100, min(50 + n_rows // 20, most)))
    return min(wanted, max(MOST_NUMBERS // n_rows, 60))
