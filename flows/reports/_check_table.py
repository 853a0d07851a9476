"""The table of posteriors compared with the exact one: what was replaced, and the evidence found on the way."""

from __future__ import annotations

from flows.reports.candidates import PosteriorCheck
from flows.reports.choice import candidate_name
from flows.reports.data import TrainReport
from flows.reports.report_table import ReportTable

__all__ = ["check_tables"]

SERVED = {
    "unchanged": "refined Gaussian; the verdict asked for no check",
    "confirmed": "refined Gaussian, confirmed",
    "matched": "Gaussian of the exact mean and covariance, in place of the refined one",
    "sampled": "draws of chains, in place of the refined Gaussian",
    "failed": "refined Gaussian, not confirmed",
}
"""The posterior that is used, by the result of the check."""


def check_tables(report: TrainReport) -> tuple[ReportTable, ...]:
    """Return one table of the model's parts that were compared with the exact posterior; none where none was."""
    compared = [
        (1.0 if candidate.share is None else candidate.share, i, part, check)
        for i, candidate in enumerate(report.candidates)
        for part, check in zip(candidate.parts, candidate.checks, strict=False)
        if check is not None
    ]
    if not compared:
        return ()
    rows = [
        (
            candidate_name(report, i),
            "–" if part.scale is None else f"{part.scale:.2f}",
            f"{share * part.weight:.1%}",
            SERVED.get(check.way, check.way),
            *_differences(check),
            _evidence(check),
        )
        for share, i, part, check in sorted(compared, key=lambda row: (-row[0] * row[2].weight, row[1]))
    ]
    table = ReportTable(
        title="Compared with the exact posterior",
        columns=("candidate", "scale", "share", "served", "mean difference", "largest", "log evidence"),
        rows=tuple(rows),
        numeric=frozenset({1, 2, 4, 5, 6}),
        note="Differences are those of the refined posterior's probabilities from the exact ones. The log "
        "evidence is by bridge or importance sampling, with its standard error, in nats, of the rows of the model "
        "that is kept: all labelled ones where it was fitted again. Shares are of the model.",
    )
    return (table,)


def _differences(check: PosteriorCheck) -> tuple[str, str]:
    mean, largest = (
        "" if x is None else f"{x:.4f}" for x in (check.mean_difference, check.largest_difference)
    )
    return mean, largest


def _evidence(check: PosteriorCheck) -> str:
    value, error = check.log_evidence, check.log_evidence_error
    if value is None:
        return ""
    return f"{value:,.2f}{'' if error is None else f' ± {error:.2f}'}".replace("-", "−")
