"""Tables for statisticians: posteriors compared with the exact one, and the words that only they use."""

from __future__ import annotations

from collections.abc import Sequence

from blr.candidates.candidate import PosteriorCheck
from flows.reports._findings import plain_end
from flows.reports.choice import candidate_name
from flows.reports.data import TrainReport
from flows.reports.report_table import ReportTable

__all__ = ["TERMS", "check_tables", "term_table"]

SERVED = {
    "unchanged": "refined Gaussian; it errs too little to check",
    "unchecked": "refined Gaussian; a check would take too long",
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
        for i, candidate in enumerate(report.model.candidates)
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


def term_table(reasons: Sequence[str]) -> ReportTable:
    """Return the words of the last section, each with a line of explanation, and the reasons of the verdict."""
    return ReportTable(
        title="Words of this section",
        columns=("word", "meaning"),
        rows=TERMS,
        remark=f"The verdict rests on: {'; '.join(plain_end(r) for r in reasons)}." if reasons else "",
    )


TERMS = (
    ("nat", "unit of information: 1 nat is a factor of 2.718 in probability"),
    ("evidence", "how probable the labels are under a candidate, averaged over all its weights"),
    ("Occam factor", "the part of the evidence that a candidate pays for its freedom"),
    ("BIC", "a rough estimate of the evidence, from the best weights and their number"),
    ("approximation", "the Gaussian that stands for what the labels leave open about the weights"),
    (
        "shift norm",
        "how far the mean of the weights is from the best weights, in standard deviations; small is good",
    ),
    ("second order", "what the evidence lacks at the next order of accuracy; small is good"),
    ("k-hat", "whether weighted draws can check the approximation: they can below 0.7"),
    (
        "M, effective parameters",
        "the number of functions, and how many of their weights the labels determine",
    ),
)
"""Words that only statisticians use, and what they mean."""
