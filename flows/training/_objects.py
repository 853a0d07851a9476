"""What labelled objects are called and where they are, so that people can look at them later.

Nothing is fitted to it, and the version of a model does not depend on it.  Shapes: n rows of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.sky.positions import positions, unit_of_position
from flows.labels.reader import label_texts
from flows.specification.specification import Specification

__all__ = ["identifiers", "place_columns", "places"]

LONGEST_IDENTIFIER = 100
"""Most bytes of an identifier that are kept: a free text in its place must not fill the memory."""

Columns = Mapping[str, np.ndarray[Any, Any]]


def place_columns(specification: Specification, catalogs: Sequence[Catalog]) -> tuple[str, ...]:
    """Return the columns of right ascension and declination; none where a catalogue lacks one, or its unit."""
    ra, dec = specification.catalog.ra, specification.catalog.dec
    if ra is None or dec is None or not all({ra, dec} <= set(c.names) for c in catalogs):
        return ()
    try:
        for catalog in catalogs:
            unit_of_position(catalog, ra, dec, stated=specification.catalog.position_unit)
    except CatalogError:
        return ()
    return ra, dec


def places(
    specification: Specification,
    catalog: Catalog,
    columns: tuple[str, ...],
    values: Columns,
    chosen: NDArray[np.bool_],
) -> NDArray[np.float64] | None:
    """Return right ascension and declination (n, 2), degrees, of the chosen rows; None without `place_columns`."""
    if not columns:
        return None
    ra, dec = columns
    unit = unit_of_position(catalog, ra, dec, stated=specification.catalog.position_unit)
    place = positions(values[ra][chosen], values[dec][chosen], unit)
    return np.stack([place.ra, place.dec], axis=1)


def identifiers(
    specification: Specification, values: Columns, chosen: NDArray[np.bool_]
) -> NDArray[np.bytes_] | None:
    """Return the identifiers of the chosen rows, cut at 100 bytes; None where the specification names no column."""
    name = specification.catalog.id
    if name is None or name not in values:
        return None
    texts = label_texts(values[name][chosen])
    return np.array([text.encode()[:LONGEST_IDENTIFIER] for text in texts.tolist()], dtype=np.bytes_)
