"""Names, positions and magnitudes of labelled objects, so that people can look at them later.

No model is fitted to them, and the version of a model does not depend on them.  Shapes: n rows of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.catalog.catalog import Catalog, Column
from catalogs.column_names import column_names
from catalogs.errors import CatalogError
from catalogs.expressions.expression import parse
from catalogs.sky.photometry import floats
from catalogs.sky.positions import positions, unit_of_position
from flows.labels.reader import label_texts
from flows.specification.specification import Specification

__all__ = ["identifiers", "magnitude_column", "magnitudes", "place_columns", "places"]

LONGEST_IDENTIFIER = 100
"""Most bytes of an identifier that are kept: a column of long texts must not fill the memory."""

BRIGHTEST, FAINTEST = -30.0, 60.0
"""Limits of plausible magnitudes: values outside are taken as marks of missing values."""

Columns = Mapping[str, np.ndarray[Any, Any]]


def place_columns(specification: Specification, catalogs: Sequence[Catalog]) -> tuple[str, ...]:
    """Return the columns of right ascension and declination; none where a catalogue lacks one or its unit."""
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
    chosen: NDArray[np.intp],
) -> NDArray[np.float64] | None:
    """Return right ascension and declination (n, 2) of the chosen rows, in degrees; None without such columns."""
    if not columns:
        return None
    ra, dec = columns
    unit = unit_of_position(catalog, ra, dec, stated=specification.catalog.position_unit)
    place = positions(values[ra][chosen], values[dec][chosen], unit)
    return np.stack([place.ra, place.dec], axis=1)


def identifiers(
    specification: Specification, values: Columns, chosen: NDArray[np.intp]
) -> NDArray[np.bytes_] | None:
    """Return the identifiers of the chosen rows, cut at 100 bytes; None where the specification names no column."""
    name = specification.catalog.id
    if name is None or name not in values:
        return None
    texts = label_texts(values[name][chosen])
    return np.array([text.encode()[:LONGEST_IDENTIFIER] for text in texts.tolist()], dtype=np.bytes_)


def magnitude_column(specification: Specification, catalogs: Sequence[Catalog]) -> tuple[str, ...]:
    """Return the column of the magnitude by which the report shows performance; empty without magnitudes.

    A magnitude that features use comes before the others.
    """
    common = set[str].intersection(*(set(c.names) for c in catalogs))
    used = {name for text in specification.features.values() for name in parse(text).names}
    found = [c for c in catalogs[0].columns if c.name in common and _is_magnitude(c)]
    best = sorted(found, key=lambda c: c.name not in used)  # a stable sort keeps the catalogue's order
    return (best[0].name,) if best else ()


def magnitudes(
    column: tuple[str, ...], values: Columns, chosen: NDArray[np.intp]
) -> NDArray[np.float64] | None:
    """Return the magnitudes (n,) of the chosen rows, NaN where missing; None without a column of numbers."""
    if not column or values[column[0]].dtype.kind not in "iuf":
        return None
    magnitude = floats(values[column[0]][chosen])
    return np.where((magnitude > BRIGHTEST) & (magnitude < FAINTEST), magnitude, np.nan)


def _is_magnitude(column: Column) -> bool:
    """Say whether a column holds magnitudes: by its UCD or, without one, by its unit and name."""
    ucd, name = (column.ucd or "").lower(), column.name
    if ucd:
        return "phot.mag" in ucd and "stat.error" not in ucd and "color" not in ucd
    named = column_names().magnitude.fits(name)
    return named and (column.unit or "mag").strip().lower() in {"mag", "mags"} and "err" not in name.lower()
