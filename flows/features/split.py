"""Which rows no fit sees: by salted hash of what the specification names, so the same for every model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.profile import split
from catalogs.sky.positions import PositionUnit, positions, unit_of_position
from flows.errors import SpecificationError
from flows.specification.specification import Specification


def split_columns(specification: Specification) -> tuple[str, ...]:
    """Return the columns that the split needs."""
    catalog, by = specification.catalog, specification.split.by
    if by == "healpix":
        return tuple(name for name in (catalog.ra, catalog.dec) if name)
    return (catalog.id,) if by == "id" and catalog.id else (by,)


Place = tuple[str, str, PositionUnit]
"""Columns of right ascension and declination, and their unit."""


def known_place(
    catalog: Catalog, ra: str | None, dec: str | None, stated: PositionUnit | None
) -> Place | None:
    """Return columns of a position with their unit; None where one is lacking, or where the unit cannot be read."""
    if ra is None or dec is None or not {ra, dec} <= {*catalog.names}:
        return None
    with suppress(CatalogError):
        return ra, dec, unit_of_position(catalog, ra, dec, stated=stated)
    return None


def position_unit(specification: Specification, catalog: Catalog) -> PositionUnit:
    """Return the unit of the position in a catalogue; SpecificationError where it is needed and not known."""
    place, table = specification.catalog, specification.label.table
    needed = specification.split.by == "healpix" or (table is not None and table.id is None)
    if not needed or place.ra is None or place.dec is None:
        return "deg"
    try:
        return unit_of_position(catalog, place.ra, place.dec, stated=place.position_unit)
    except CatalogError as error:
        who = "split.by: got 'healpix'" if specification.split.by == "healpix" else "label.table"
        raise SpecificationError(f"{who}: {error}, or split by 'id'") from error


def split_places(
    specification: Specification, values: Mapping[str, np.ndarray[Any, Any]], unit: PositionUnit = "deg"
) -> NDArray[np.int64] | NDArray[np.uint64]:
    """Return what the split of rows (n,) goes by: the finest pixel, or the key of what the columns name.

    `values` are columns under our names; positions are in that unit.
    """
    columns = [values[name] for name in split_columns(specification)]
    if specification.split.by != "healpix":
        return split.name_keys(columns)
    place = positions(columns[0], columns[1], unit)
    return split.healpix_pixels(place.ra, place.dec, order=split.FINEST_ORDER)


def held_out(
    specification: Specification, places: NDArray[np.int64] | NDArray[np.uint64], *, trial: bool = False
) -> tuple[NDArray[np.bool_], NDArray[np.uint64], split.SplitSummary, str]:
    """Return which rows are held out (N,), of their `split_places` (N,), their groups (N,), and a summary.

    The text says why the split will not do, "" where it will; a `trial` of few rows is never refused.
    """
    asked = specification.split.held_out
    if not asked:  # the finest places keep neighbours of the same folds together
        group, order, refusal = places.astype(np.uint64), None, ""
        chosen = np.zeros(len(group), dtype=bool)
    elif specification.split.by != "healpix":
        group = places.astype(np.uint64)
        chosen, order, refusal = split.held_out_keys(group, asked), None, ""
        if specification.split.by != "id" and not trial:
            refusal = _of_few_values(specification, group, float(chosen.mean()))
    else:
        by_place = split.split_by_pixels(
            places.astype(np.int64), asked, order=specification.split.healpix_order
        )
        group, order = by_place.keys, by_place.order
        chosen = split.held_out_keys(group, asked)
        refusal = "" if by_place.fits or trial else _of_few_pixels(specification, by_place)
    summary = split.SplitSummary(
        by=specification.split.by,
        asked=asked,
        share=float(chosen.mean()) if len(chosen) else 0.0,
        n_places=len(np.unique(group)),
        healpix_order=order,
    )
    return chosen, group, summary, refusal


def sides(
    specification: Specification, places: NDArray[np.int64] | NDArray[np.uint64], order: int | None
) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    """Return which rows are held out (N,) and their group (N,), of their `split_places` (N,).

    As `held_out` does, with the `order` of the pixels that other rows gave.
    """
    pixels = specification.split.by == "healpix" and order is not None
    group = split.healpix_keys(places.astype(np.int64), order or 0) if pixels else places.astype(np.uint64)
    asked = specification.split.held_out
    return (split.held_out_keys(group, asked) if asked else np.zeros(len(group), dtype=bool)), group


FEW_VALUES = 50
"""Different values of a column below which the share held out may be far from that asked for, and is checked."""


def _of_few_values(specification: Specification, group: NDArray[np.uint64], share: float) -> str:
    """Return why a split by a column is not possible: few values with unequal numbers of rows."""
    asked, n = specification.split.held_out, len(np.unique(group))
    if n >= FEW_VALUES or asked / 2 <= share <= 2 * asked:
        return ""
    return (
        f"split.by: got '{specification.split.by}', whose {n} different values hold {share:.0%} of the "
        f"labelled rows out, expected about {asked:.0%}; split by a column with more values, or by 'id'"
    )


def _of_few_pixels(specification: Specification, by_place: split.HealpixSplit) -> str:
    """Return why a split by place is not possible."""
    asked, order = specification.split.held_out, specification.split.healpix_order
    if order is not None:
        if asked / 2 <= by_place.share <= 2 * asked:
            return ""
        return (
            f"split.healpix_order: got {order}, whose pixels hold {by_place.share:.0%} of the labelled rows out, "
            f"expected about {asked:.0%}; leave the key out, so that an order is chosen, or split by 'id'"
        )
    shares = ", ".join(f"{share:.0%}" for share in by_place.shares.values())
    return (
        f"split.by: got 'healpix', which holds {shares} of the labelled rows out (pixels of order "
        f"{min(by_place.shares)} to {max(by_place.shares)}), expected about {asked:.0%}: the rows lie in few "
        "places; split by 'id', or ask for another share in split.held_out"
    )
