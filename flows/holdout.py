"""Which rows no fit sees: by salted hash of what the specification names, so the same for every model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs import split
from catalogs.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.positions import PositionUnit, positions, unit_of_position
from flows.config import Specification
from flows.errors import SpecificationError

__all__ = ["held_out", "position_unit", "split_columns", "split_keys"]


def split_columns(specification: Specification) -> tuple[str, ...]:
    """Return the columns that the split needs."""
    catalog, by = specification.catalog, specification.split.by
    if by == "healpix":
        return tuple(name for name in (catalog.ra, catalog.dec) if name)
    return (catalog.id,) if by == "id" and catalog.id else (by,)


def position_unit(specification: Specification, catalog: Catalog) -> PositionUnit:
    """Return the unit of the position in a catalogue; SpecificationError where it is needed and not known."""
    given, table = specification.catalog, specification.label.table
    needed = specification.split.by == "healpix" or (table is not None and table.id is None)
    if not needed or given.ra is None or given.dec is None:
        return "deg"
    try:
        return unit_of_position(catalog, given.ra, given.dec, stated=given.position_unit)
    except CatalogError as error:
        who = "split.by: got 'healpix'" if specification.split.by == "healpix" else "label.table"
        raise SpecificationError(f"{who}: {error}, or split by 'id'") from error


def held_out(specification: Specification, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return the rows (n,) that are held out, of their `split_keys` (n,)."""
    return split.held_out_keys(keys, specification.split.held_out)


def split_keys(
    specification: Specification, values: Mapping[str, np.ndarray[Any, Any]], unit: PositionUnit = "deg"
) -> NDArray[np.uint64]:
    """Return the key (n,) of each row: rows of the same stay on one side; positions are in that unit.

    `values` are columns under our names.
    """
    columns = [values[name] for name in split_columns(specification)]
    if specification.split.by == "healpix":
        place = positions(columns[0], columns[1], unit)
        columns = [split.healpix_pixels(place.ra, place.dec)]
    return split.name_keys(columns)
