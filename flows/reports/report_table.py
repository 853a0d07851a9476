"""A table of texts, as every renderer of reports takes it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReportTable", "printable"]


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table of texts; `numeric` columns are set flush right, `marked` is the row to stress.

    Below it stand `remark`, what the rows ask to be explained, and `note`, how to read the columns.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    note: str = ""
    remark: str = ""
    marked: int | None = None


def printable(text: str) -> str:
    """Return the text on one line, without control characters: they steer terminals."""
    return "".join(c if c.isprintable() else " " for c in text)
