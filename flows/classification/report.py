"""From the counts of a classification to what a report shows of it."""

from __future__ import annotations

from flows.reports.data import ClassCount, Classification, ClassInSets, FlagShare, SetSummary
from flows.runs.summary import Counts, PredictionSets

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
        sets=None if counts.sets is None else _sets(counts.sets),
    )


def _sets(sets: PredictionSets) -> SetSummary:
    return SetSummary(
        level=sets.level,
        reason=sets.reason,
        n=sum(sets.sizes),
        empty=sets.empty,
        full=sets.full,
        mean_size=sets.mean_size,
        classes=tuple(
            ClassInSets(
                bit=c.bit,
                name=name,
                count=c.count,
                rows=c.rows,
                least=c.least,
                spread=c.spread,
                remark=c.remark,
            )
            for name, c in sets.classes.items()
        ),
    )
