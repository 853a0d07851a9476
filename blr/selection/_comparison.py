"""The table of a comparison of models, as it is read by people and in notebooks."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from blr.arrays import Table, html_table

__all__ = ["Comparison", "Row"]


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
    verdicts are green.
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
