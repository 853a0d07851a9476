"""Which rows no fit sees: by salted hash of what the specification names, so the same for every model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs import split
from catalogs.catalog import Catalog
from flows.config import Specification
from flows.errors import SpecificationError

__all__ = ["check_positions", "held_out", "split_columns"]

DEGREES = (None, "", "deg", "degree", "degrees")


def split_columns(specification: Specification) -> tuple[str, ...]:
    """Return the columns that the split needs."""
    catalog, by = specification.catalog, specification.split.by
    if by == "healpix":
        return tuple(name for name in (catalog.ra, catalog.dec) if name)
    return (catalog.id,) if by == "id" and catalog.id else (by,)


def check_positions(specification: Specification, catalog: Catalog) -> None:
    """Raise SpecificationError where a split by position would misread the unit."""
    if specification.split.by != "healpix":
        return
    for name in split_columns(specification):
        unit = catalog.column(name).unit
        if unit not in DEGREES:
            raise SpecificationError(
                f"split.by: got 'healpix' with '{name}' in units of '{unit}' in {catalog.path}, expected degrees; "
                "convert the column, or split by 'id'"
            )


def held_out(specification: Specification, values: Mapping[str, np.ndarray[Any, Any]]) -> NDArray[np.bool_]:
    """Return the rows (n,) that are held out, of columns under our names."""
    columns = [values[name] for name in split_columns(specification)]
    if specification.split.by == "healpix":
        ra, dec = columns
        columns = [split.healpix_pixels(ra, dec)]
    return split.held_out(columns, specification.split.held_out)
