"""Which rows no fit sees: by salted hash of what the specification names, so the same for every model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.config import Specification

__all__ = ["held_out", "split_columns"]


def split_columns(specification: Specification) -> tuple[str, ...]:
    """Return the columns that the split needs."""
    catalog, by = specification.catalog, specification.split.by
    if by == "healpix":
        return tuple(name for name in (catalog.ra, catalog.dec) if name)
    return (catalog.id,) if by == "id" and catalog.id else (by,)
