"""The candidates that `blr init` writes: they follow from the numbers of rows, features and classes alone.

docs/candidates.md states the rules.
"""

from __future__ import annotations

import math
from typing import Literal

from flows.specification.basis import (
    LinearBasis,
    NystroemBasis,
    PolynomialBasis,
    PrincipalBasis,
    RbfBasis,
    SigmoidBasis,
)
from flows.specification.specification import Candidate

__all__ = ["default_candidates"]

WIDTHS = (0.35, 0.7, 1.4)
"""Widths of radial functions are these times √F: the median distance of rows is 1.4 √F."""
KERNEL_WIDTHS = (0.7, 1.4, 2.8)
"""Widths of the Laplacian kernel are these times F: the median city-block distance of rows is 1.1 F."""
FLEXIBLE_PRIOR = 2.0
"""Prior probability of the Gaussian process, and of the steps, in terms of an average family's."""
LINEAR_PRIOR = 3.0
"""Prior probability of a linear candidate, in terms of other smooth ones: few rows cannot tell that it is enough."""
MOST_WEIGHTS = 1000
"""Weights of all classes together that a candidate may have: a fit takes time by their cube."""
STEPS = 12
"""Steps along each feature: a period or an amplitude may cut a class off sharply."""
POWERS = (0.25, 0.5)
"""Of the variances of principal components."""
MANY_FEATURES = 10
"""Features from which principal components are tried: many vary together."""
MANY_ROWS = 200_000
"""Labelled rows above which one width is tried: each has a design matrix of all rows."""
FEW_FEATURES = 4
"""Features up to which a polynomial of degree 3 is small."""
SEARCHED_ROWS, SEARCHED_FEATURES = 1000, 12
"""Most rows and features for a width, or a height of steps, of each feature.

With more rows the search takes long; with more features the rows do not tell a gain from chance.
"""
FEWEST_CENTRES = 20
"""Radial functions are not tried with fewer, unless rows are as few."""
MOST_NUMBERS = 16_000_000
"""Numbers in the design matrix of a Gaussian process, above which it has fewer centres."""


def default_candidates(n_rows: int, n_features: int, n_classes: int) -> tuple[Candidate, ...]:
    """Return the default candidates for that many labelled rows, features and classes.

    Smooth bases come twice: on the features as they are, and on their arcsinh.  Local functions follow, a Gaussian
    process, then steps along each feature, which lie where the rows do and need no arcsinh.

    Smooth functions are one family, local ones another.  The Gaussian process and the steps are one candidate each, and
    have twice the prior probability of an average family; a linear candidate has that of three smooth ones.
    """
    free = max(n_classes - 1, 1)
    smooth: list[LinearBasis | PolynomialBasis | PrincipalBasis] = [LinearBasis(kind="linear")]
    if n_features >= MANY_FEATURES and (n_features + 1) * free <= MOST_WEIGHTS:
        smooth.append(PrincipalBasis(kind="principal", power=POWERS))
    for degree in (2, 3):
        functions = math.comb(n_features + degree, degree)
        few = degree == 2 or n_features <= FEW_FEATURES
        if few and functions <= n_rows and functions * free <= MOST_WEIGHTS:
            smooth.append(PolynomialBasis(kind="polynomial", degree=degree))
    candidates = [
        Candidate(basis=one, transform=how, prior_probability=LINEAR_PRIOR if one.kind == "linear" else 1.0)
        for one in smooth
        for how in ("none", "arcsinh")
    ]
    local = _local_candidates(n_rows, n_features, n_classes)
    candidates += local
    prior = FLEXIBLE_PRIOR * len(candidates) / (2 if local else 1)
    process = _gaussian_process(n_rows, n_features, n_classes)
    if process is not None:
        candidates.append(Candidate(basis=process, transform="arcsinh", prior_probability=prior))
    if (STEPS * n_features + 1) * free <= MOST_WEIGHTS:
        height: Literal["each"] | None = "each" if _is_searched(n_rows, n_features) else None
        steps = SigmoidBasis(kind="sigmoid", centres=STEPS, height=height)
        candidates.append(Candidate(basis=steps, prior_probability=prior))
    return tuple(candidates)


def _is_searched(n_rows: int, n_features: int) -> bool:
    """Return whether each feature has a width and a height of its own."""
    return n_rows <= SEARCHED_ROWS and 2 <= n_features <= SEARCHED_FEATURES


def _local_candidates(n_rows: int, n_features: int, n_classes: int) -> list[Candidate]:
    """Return the radial functions: none where their weights would be too many.

    All are on the arcsinh.  Few rows with few features have radial functions with a width for each feature too.
    """
    room = MOST_WEIGHTS // max(n_classes - 1, 1) - n_features - 1
    centres = min(_centres(n_rows, n_classes), room)
    if centres < min(FEWEST_CENTRES, n_rows):
        return []
    factors = WIDTHS if n_rows <= MANY_ROWS else WIDTHS[1:2]
    widths = tuple(round(c * math.sqrt(n_features), 2) for c in factors)
    radial = RbfBasis(kind="rbf", centres=centres, width=widths, linear=True)
    softened = Candidate(basis=radial, transform="arcsinh")
    if _is_searched(n_rows, n_features):
        each = radial.model_copy(update={"width": "each"})
        return [softened, Candidate(basis=each, transform="arcsinh")]
    return [softened]


def _gaussian_process(n_rows: int, n_features: int, n_classes: int) -> NystroemBasis | None:
    """Return the functions of a Gaussian process; None where they would be too few."""
    centres = min(_kernel_centres(n_rows, n_classes), MOST_WEIGHTS // max(n_classes - 1, 1) - 1)
    if centres < min(FEWEST_CENTRES, n_rows):
        return None
    factors = KERNEL_WIDTHS if n_rows <= MANY_ROWS else KERNEL_WIDTHS[1:2]
    widths = tuple(round(c * n_features, 2) for c in factors)
    return NystroemBasis(kind="nystroem", centres=centres, width=widths)


def _centres(n_rows: int, n_classes: int) -> int:
    """Return how many centres the rows can carry."""
    few, most = (60, 160) if n_classes < 5 else (40, 80)
    return min(n_rows, few + min(n_rows // 50, most - few))


def _kernel_centres(n_rows: int, n_classes: int) -> int:
    """Return how many centres of a Gaussian process the rows can carry.

    Its kernel is sharper than radial functions, so there are more; of very many rows only as many, for memory.
    """
    few, most = (100, 320) if n_classes < 5 else (100, 160)
    wanted = min(n_rows, max(few, min(few // 2 + n_rows // 20, most)))
    return min(wanted, max(MOST_NUMBERS // n_rows, _centres(n_rows, n_classes)))
