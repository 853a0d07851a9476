"""What a run leaves on Prefect's page: tables and Markdown, small, under keys that Prefect accepts."""

from __future__ import annotations

import re

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from flows.tables import ReportTable

__all__ = ["artifact_key", "keep_markdown", "keep_table"]

MOST_BYTES = 100_000
"""Prefect's database keeps artifacts for ever, and has no limit of its own."""


def artifact_key(text: str) -> str:
    """Return a key of lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "blr"


def keep_table(key: str, table: ReportTable, description: str) -> None:
    """Leave a table, cut where it is too long."""
    rows, size = [], 0
    for cells in table.rows:
        size += sum(len(cell.encode()) + len(name) for cell, name in zip(cells, table.columns, strict=True))
        if size > MOST_BYTES:
            break
        rows.append(dict(zip(table.columns, cells, strict=True)))
    create_table_artifact(key=artifact_key(key), table=rows, description=description)


def keep_markdown(key: str, text: str, description: str) -> None:
    """Leave a text, cut where it is too long."""
    cut = text.encode()[:MOST_BYTES].decode(errors="ignore")
    note = "" if cut == text else "\n\n(cut: the whole is in the report)"
    create_markdown_artifact(key=artifact_key(key), markdown=cut + note, description=description)
