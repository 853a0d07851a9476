"""Whether files can be read as one catalogue: a number must mean the same in each of them."""

from __future__ import annotations

from collections.abc import Sequence

from catalogs.catalog.catalog import Column
from catalogs.errors import FormatError

__all__ = ["require_same_units"]


def require_same_units(
    first: object, columns: Sequence[Column], other: object, theirs: Sequence[Column]
) -> None:
    """Raise FormatError where two files state different units of a column; one that states none is believed."""
    stated = {c.name: c.unit for c in columns if c.unit}
    for column in theirs:
        unit = stated.get(column.name)
        if unit is not None and column.unit and not _same(unit, column.unit):
            raise FormatError(
                f"{first} and {other} cannot be read as one catalogue: '{column.name}' is in '{unit}' in the "
                f"first and in '{column.unit}' in the second; name the files one by one, so that units are "
                "converted, or write the column in one unit"
            )


def _same(one: str, other: str) -> bool:
    """Say whether two texts mean the same unit: as they are written, or as astropy reads them."""
    if one.split() == other.split():
        return True
    import astropy  # noqa: PLC0415 -- slow to import, and most units are spelt alike

    a, b = (astropy.units.Unit(text, parse_strict="silent") for text in (one, other))
    return bool(a == b)
