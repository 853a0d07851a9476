"""A table of texts, the form that every renderer of reports accepts."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["ReportTable", "percent", "printable"]


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table of texts; `numeric` columns are set flush right, `marked` is the row to stress.

    Below the table are `remark`, which explains its rows, and `note`, which explains its columns.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    note: str = ""
    remark: str = ""
    marked: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError where a heading is there twice: in Prefect's tables, a row is a dict by heading."""
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(
                f"got a table '{self.title}' with the headings {self.columns}, expected each once"
            )


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage; a dash for one that is not known."""
    return "–" if share is None or not math.isfinite(share) else f"{share:.{digits}%}".replace("-", "−")


def printable(text: str) -> str:
    """Return the text on one line, without control characters: they steer terminals."""
    return "".join(c if c.isprintable() else " " for c in text)
