"""A table in memory as it is written: as Arrow, with notes on what Arrow cannot hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

__all__ = ["Stored"]


@dataclass(frozen=True)
class Stored:
    """A table as Parquet holds it.

    `changed` says what columns become, `left_behind` what is not kept at all, `read_back` of which columns the table's
    own library makes others when it reads the file.
    """

    table: pa.Table
    changed: Mapping[str, str] = field(default_factory=dict)
    left_behind: tuple[str, ...] = ()
    read_back: Mapping[str, str] = field(default_factory=dict)
