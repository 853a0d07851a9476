"""The columns that an annotated catalogue gains: names, types, UCDs, meanings, and their provenance.

This is the contract with users.  Flag bits are only ever appended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

__all__ = ["NewColumn", "Provenance"]


@dataclass(frozen=True)
class NewColumn:
    """A column to be added.  `width` is the longest text, in bytes, of a string column (FITS needs it)."""

    name: str
    datatype: pa.DataType
    ucd: str | None = None
    unit: str | None = None
    description: str | None = None
    width: int | None = None


@dataclass(frozen=True)
class Provenance:
    """What made the annotation: written as HISTORY in FITS and as metadata in Parquet and VOTable."""

    entries: Mapping[str, str] = field(default_factory=dict)  # model id, specification hash, version, ...
    flags: Mapping[int, tuple[str, str]] = field(default_factory=dict)  # bit -> (name, meaning)
