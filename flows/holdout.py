"""Which rows no fit sees: by salted hash of what the specification names, so the same for every model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs import split
from catalogs.split import healpix_pixels
from flows.config import Specification

__all__ = ["held_out", "split_columns"]


def split_columns(specification: Specification) -> tuple[str, ...]:
    """Return the columns that the split needs."""
    catalog, by = specification.catalog, specification.split.by
    if by == "healpix":
        return tuple(name for name in (catalog.ra, catalog.dec) if name)
    return (catalog.id,) if by == "id" and catalog.id else (by,)


def held_out(specification: Specification, values: Mapping[str, Any], n: int) -> NDArray[np.bool_]:
    """Return which of n rows (n,) no fit sees, from the columns of `split_columns`."""
    columns = [np.broadcast_to(values[name], (n,)) for name in split_columns(specification)]
    if specification.split.by == "healpix":
        columns = [healpix_pixels(*columns)]
    return split.held_out(columns, specification.split.held_out)
