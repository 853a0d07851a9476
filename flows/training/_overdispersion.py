"""Overdispersion of votes: how much more they scatter than independent votes would.

Votes of volunteers are not independent: some volunteers are careless, and some objects divide them.  The variance of
the counts is phi times the multinomial one.  Pearson's chi-squared over its degrees of freedom estimates phi.  Dividing
every weight by phi makes the posterior as wide as it should be (McCullagh & Nelder 1989, section 4.5).
Shapes: n rows, K classes, M basis functions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from blr.basis.kinds import fit_basis
from blr.selection.evidence import fit_evidence
from flows.specification.specification import Specification
from flows.training._rows import TrainingRows

__all__ = ["overdispersion", "without_overdispersion"]

Floats = NDArray[np.float64]

REFERENCE_ROWS = 4000
"""Most rows that phi is estimated from: its error is then about 2 %."""
CENTRES = 20
"""Most centres of the flexible fit."""
FEWEST_EXPECTED = 0.05
"""Smallest expected number of votes for which Pearson's term is counted: below it, the term is mostly noise."""


def without_overdispersion(
    specification: Specification, rows: TrainingRows, filled: Floats
) -> tuple[TrainingRows, float]:
    """Return the rows with weights divided by phi, and phi; phi is 1 where labels are not votes."""
    if rows.votes is None or not specification.label.overdispersion:
        return rows, 1.0
    rng, training = np.random.default_rng([specification.seed, 0x70686]), rows.training
    phi = overdispersion(filled[training], rows.votes[training], rng=rng)
    weight = np.ones(len(filled)) if rows.weight is None else rows.weight
    return replace(rows, weight=weight / phi), phi


def overdispersion(X: Floats, votes: Floats, *, rng: np.random.Generator) -> float:
    """Return phi, at least 1, of votes (n, K) about a flexible fit to features X (n, F) without missing values."""
    rows = rng.permutation(len(X))[:REFERENCE_ROWS]
    X, votes = X[rows], votes[rows]
    basis = fit_basis("rbf", X, rng=rng, centres=min(CENTRES, max(2, len(X) // 20)), linear=True)
    Phi, K = basis(X), votes.shape[1]
    # This fit takes all votes as independent.  So the precision of its prior is a little too low, and phi may be too.
    q = fit_evidence(Phi, votes, likelihood="logistic" if K == 2 else "softmax", classes=range(K))
    p = np.asarray(q.predict_proba(Phi, method="plugin"))
    p = np.stack([1 - p, p], axis=1) if p.ndim == 1 else p
    expected = votes.sum(axis=1, keepdims=True) * p
    counted = expected > FEWEST_EXPECTED
    chi2 = float(np.sum(((votes - expected) ** 2 / np.where(counted, expected, 1.0))[counted]))
    freedom = float(counted.sum() - len(X) - q.effective_parameters)
    return max(1.0, chi2 / freedom) if freedom > 0 else 1.0
