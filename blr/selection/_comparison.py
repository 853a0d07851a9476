"""The ranking of models by evidence, and the table of a comparison as people and notebooks read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from blr.arrays import Table, Vector, html_table


@dataclass(frozen=True, kw_only=True)
class Row:
    """One candidate in the table: all in nats, higher is better."""

    name: str
    log_evidence: float
    second_order: float
    bic: float
    loo: float
    loo_standard_error: float
    effective_parameters: float
    n_parameters: int
    verdict: str
    weight: float


@dataclass(frozen=True)
class Comparison:
    """The table, and which candidate each criterion puts first (an index into it).

    `second_order_applied`: whether evidences were ranked with the second-order term, which they are where all
    of these hold.
    """

    rows: tuple[Row, ...]
    best: dict[str, int]
    second_order_applied: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The candidates' names."""
        return tuple(row.name for row in self.rows)

    def table(self) -> Table:
        """Return the rows as a table: a dictionary of columns, which `pandas.DataFrame` takes as it is."""
        columns = {f.name: np.array([getattr(row, f.name) for row in self.rows]) for f in fields(Row)}
        return Table(columns)

    def __repr__(self) -> str:
        first = ", ".join(f"{self.names[i]} by {criterion}" for criterion, i in self.best.items())
        return f"<Comparison of {len(self.rows)} candidates: best {first}>"

    def _repr_html_(self) -> str:
        """Return the table, the best candidate by evidence first."""
        names = [
            "candidate",
            "probability",
            "log evidence",
            "BIC",
            "left out",
            "± ",
            "parameters",
            "effective",
            "trust",
        ]
        return html_table(
            names,
            [
                [
                    row.name,
                    f"{row.weight:.3f}",
                    f"{row.log_evidence:.1f}",
                    f"{row.bic:.1f}",
                    f"{row.loo:.1f}",
                    f"{row.loo_standard_error:.1f}",
                    str(row.n_parameters),
                    f"{row.effective_parameters:.1f}",
                    row.verdict,
                ]
                for row in sorted(self.rows, key=lambda row: -row.weight)
            ],
            "Log evidence, BIC and left-out log density in nats: higher is better",
        )


@dataclass(frozen=True, eq=False)
class Ranking:
    """Candidates by evidence: their posterior probability is `weight` (n,).

    `log_evidence` (n,) is as ranked, with the second-order term where `second_order_applied`.
    """

    log_evidence: Vector
    weight: Vector
    second_order_applied: bool

    def best(self, score: ArrayLike) -> int:
        """Return the candidate of the highest score (n,), those of NaN left out."""
        scores = np.asarray(score, dtype=np.float64)
        return int(np.where(np.isnan(scores), -np.inf, scores).argmax())


def rank(
    log_evidence: ArrayLike,
    second_order: ArrayLike,
    holds: Sequence[bool],
    prior_probability: ArrayLike | None = None,
) -> Ranking:
    """Return the ranking of candidates by log evidence (n,), and their probability before the data.

    The second-order terms (n,) count where all of them hold (`trust.second_order_holds`).

    Raises
    ------
    ValueError
        If there are no candidates, or the prior probabilities are not one positive number each.
    """
    n = len(holds)
    if n == 0:
        raise ValueError("got nothing to compare; give at least one posterior")
    prior = np.ones(n) if prior_probability is None else np.asarray(prior_probability, dtype=np.float64)
    if prior.shape != (n,) or not np.all(prior > 0):
        raise ValueError(f"prior_probability must be {n} positive numbers, got {prior.tolist()!r}")
    applied = all(holds)
    ranked = np.asarray(log_evidence, dtype=np.float64)
    if applied:
        ranked = ranked + np.asarray(second_order, dtype=np.float64)
    log_weight = ranked + np.log(prior)
    return Ranking(ranked, np.exp(log_weight - logsumexp(log_weight)), applied)
