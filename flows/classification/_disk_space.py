"""Room for the copies of a classification: whether there is enough, and when slim ones are the better choice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa

from catalogs.catalog.new_columns import NewColumn
from catalogs.files.atomic import StorageError, check_free_space
from catalogs.writing.destination import SLIM_BYTES
from flows.classification._jobs import Job

__all__ = ["check_room", "needed_bytes"]

LARGE = 20_000_000_000
"""Size of copies, in bytes, from which slim ones are advised if these take less than a quarter of it."""
SMALL_SHARE = 0.25

Mode = Literal["annotated", "slim"]


def check_room(out: Path, jobs: Sequence[Job], columns: Sequence[NewColumn], mode: Mode) -> str:
    """Return advice, or ''; raise `StorageError` where the disk has no space for the copies that are to be written.

    Both name the slim mode where it would help.
    """
    needed, slim = (needed_bytes(jobs, columns, which) for which in (mode, "slim"))
    share = f"about {slim / max(needed, 1):.1%} of that size"
    advice = f'mode = "slim" under [output] writes identifier, position and the new columns only, {share}'
    try:
        check_free_space(out, needed)
    except StorageError as error:
        if slim >= needed:
            raise
        raise StorageError(f"{error}; or ask for slim copies: {advice}") from error
    if needed < LARGE or slim > SMALL_SHARE * needed:
        return ""
    return f"The copies take about {needed / 1e9:.0f} GB; slim copies are enough to join the new columns: {advice}"


def needed_bytes(jobs: Sequence[Job], columns: Sequence[NewColumn], mode: Mode) -> int:
    """Return the approximate size, in bytes, of the copies that are still to be made."""
    new = sum(c.width or 1 if pa.types.is_string(c.datatype) else c.datatype.bit_width // 8 for c in columns)
    to_do = [job for job in jobs if job.to_do]
    if mode == "slim":
        return sum(job.n_rows * (new + SLIM_BYTES) for job in to_do)
    return sum(job.state.size + job.n_rows * new for job in to_do)
