"""The candidates that `blr init` writes: they follow from the numbers of rows, features and classes alone.

docs/candidates.md states the rules.
"""

from __future__ import annotations

import math

from flows.specification.basis import (
    LaplacianBasis,
    LinearBasis,
    PolynomialBasis,
    PrincipalBasis,
    RbfBasis,
    SigmoidBasis,
)
from flows.specification.specification import Candidate

__all__ = ["default_candidates"]

WIDTHS = (0.35, 0.7, 1.4)
"""Of radial functions, times the root of the number of features: the median distance of rows is 1.4 times that.

Of Laplacian functions, times the number of features: the median city-block distance is 1.1 times that.
"""
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
"""Most rows and features for a width, or a height of steps, of each feature: few rows tell as many from chance."""


def default_candidates(n_rows: int, n_features: int, n_classes: int) -> tuple[Candidate, ...]:
    """Return the default candidates for that many labelled rows, features and classes.

    Each basis comes twice, on the features as they are and on their arcsinh; but for the steps, which lie where the
    rows do, and the radial functions with a width a feature, which are on the arcsinh.  Where rows are many and
    features few, Laplacian functions on the arcsinh take the place of radial ones on the features as they are.  The
    steps have the prior probability of a whole family, of which the smooth functions of all features are one and the
    local ones another.
    """
    free = max(n_classes - 1, 1)
    bases: list[LinearBasis | PolynomialBasis | PrincipalBasis | RbfBasis] = [LinearBasis(kind="linear")]
    few_features = 2 <= n_features <= SEARCHED_FEATURES
    if n_features >= MANY_FEATURES and (n_features + 1) * free <= MOST_WEIGHTS:
        bases.append(PrincipalBasis(kind="principal", power=POWERS))
    for degree in (2, 3):
        functions = math.comb(n_features + degree, degree)
        few = degree == 2 or n_features <= FEW_FEATURES
        if few and functions <= n_rows and functions * free <= MOST_WEIGHTS:
            bases.append(PolynomialBasis(kind="polynomial", degree=degree))
    room = MOST_WEIGHTS // free - n_features - 1
    centres = min(_centres(n_rows, n_classes), room)
    factors = WIDTHS if n_rows <= MANY_ROWS else WIDTHS[1:2]
    if centres >= min(FEWEST_CENTRES, n_rows):
        widths = tuple(round(c * math.sqrt(n_features), 2) for c in factors)
        bases.append(RbfBasis(kind="rbf", centres=centres, width=widths, linear=True))
    candidates = [Candidate(basis=basis, transform=how) for basis in bases for how in ("none", "arcsinh")]
    searched = n_rows <= SEARCHED_ROWS and few_features
    if n_rows > SEARCHED_ROWS and few_features and isinstance(bases[-1], RbfBasis):
        widths = tuple(round(c * n_features, 2) for c in factors)
        peaks = min(_peaks(n_rows, n_classes), room)
        laplacian = LaplacianBasis(kind="laplacian", centres=peaks, width=widths, linear=True)
        candidates[-2] = Candidate(basis=laplacian, transform="arcsinh")
    if searched and isinstance(bases[-1], RbfBasis):
        each = bases[-1].model_copy(update={"width": "each"})
        candidates.append(Candidate(basis=each, transform="arcsinh"))
    if (STEPS * n_features + 1) * free <= MOST_WEIGHTS:
        steps = SigmoidBasis(kind="sigmoid", centres=STEPS, height="each" if searched else None)
        families = len({isinstance(candidate.basis, RbfBasis) for candidate in candidates})
        candidates.append(Candidate(basis=steps, prior_probability=len(candidates) / families))
    return tuple(candidates)


FEWEST_CENTRES = 20
"""Radial functions are not tried with fewer, unless rows are as few."""


def _centres(n_rows: int, n_classes: int) -> int:
    """Return how many centres the rows can carry."""
    few, most = (60, 160) if n_classes < 5 else (40, 80)
    return min(n_rows, few + min(n_rows // 50, most - few))


def _peaks(n_rows: int, n_classes: int) -> int:
    """Return how many Laplacian functions the rows can carry: these are sharper than radial ones, so there are more."""
    few, most = (60, 320) if n_classes < 5 else (40, 160)
    return few + min(n_rows // 20, most - few)
