"""From the counts of a classification to what a report shows of it."""

from __future__ import annotations

from flows.reports.data import ClassCount, Classification, FlagShare
from flows.runs.summary import Counts

__all__ = ["reported"]


def reported(name: str, counts: Counts) -> Classification:
    """Return what a report shows of counts, of one file or of all, which it calls `name`."""
    n = max(1, counts.n_rows)
    return Classification(
        catalogue=name,
        n_rows=counts.n_rows,
        no_error=counts.no_error or "",
        counts=tuple(
            ClassCount(name=c, assigned=estimate.assigned, expected=estimate.expected, error=estimate.error)
            for c, estimate in counts.classes.items()
        ),
        flags=tuple(
            FlagShare(bit=f.bit, name=flag, meaning=f.meaning, count=f.count, share=f.count / n)
            for flag, f in counts.flags.items()
        ),
    )
