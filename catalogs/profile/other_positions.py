"""Positions that are in other columns than a right ascension and a declination of their own.

Catalogues of the CDS have the parts of sexagesimal angles in columns each (`RAh RAm RAs DE- DEd DEm DEs`), others
galactic coordinates alone, or both coordinates in one vector.  They are found and said to be positions; a
specification names two columns, which have to be made of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import pyarrow.types as pt

from catalogs.catalog.catalog import Catalog
from catalogs.catalog.elements import Element
from catalogs.column_names import column_names
from catalogs.profile.columns import Profile

__all__ = ["OtherPosition", "find_other_position", "goes_round", "parts_of_positions"]

PARTS = ("hours", "sign", "degrees", "minutes", "seconds")
"""Parts of an angle, in order."""
FAINTEST = 100.0
"""Beyond any magnitude, and any mark in place of one but 999."""
COORDINATES = (2, 3)
"""Elements of a vector of a position: two angles, or a direction in space."""


@dataclass(frozen=True)
class OtherPosition:
    """The columns of a position, of which kind it is, and how a right ascension and a declination come of them."""

    kind: str
    columns: tuple[str, ...]
    remedy: str


def parts_of_positions(names: Collection[str]) -> set[str]:
    """Return the columns, elements of vectors among them, that are parts of positions by their names together."""
    vector = column_names().positions.vector
    vectors = {n for n in names if isinstance(n, Element) and vector.fullmatch(n.vector)}
    return {*_sexagesimal(names), *_galactic(names), *vectors}


def find_other_position(catalog: Catalog) -> OtherPosition | None:
    """Return the position of a catalogue without a column of right ascension, or None."""
    parts = _sexagesimal(catalog.names)
    if parts:
        remedy = "RA = 15 (h + m / 60 + s / 3600), Dec = +-(d + m / 60 + s / 3600)"
        return OtherPosition("parts of sexagesimal angles", parts, remedy)
    for column in catalog.columns:
        short = pt.is_fixed_size_list(column.datatype) and column.datatype.list_size in COORDINATES
        ucd = (column.ucd or "").lower()
        if short and (
            column_names().positions.vector.fullmatch(column.name)
            or ucd.startswith(("pos.eq", "pos.cartesian"))
        ):
            return OtherPosition("a vector", (column.name,), "its elements in two columns, in degrees")
    by_ucd = [
        c.name for axis in ("lon", "lat") for c in catalog.columns if _said(c.ucd) == f"pos.galactic.{axis}"
    ]
    galactic = _galactic(catalog.names) or (tuple(by_ucd) if len(by_ucd) == len(COORDINATES) else ())
    if galactic:
        return OtherPosition(
            "galactic coordinates", galactic, "RA and Dec, by astropy's SkyCoord(l, b, frame='galactic').icrs"
        )
    return None


def goes_round(seen: Profile, name: str) -> bool:
    """Say whether 'l' goes round the sky, where a column is it or the 'b' beside it: both are bands too."""
    longitude = next((c for n, c in seen.columns.items() if n.lower() == "l"), None)
    return name.lower() not in {"l", "b"} or longitude is None or longitude.maximum > FAINTEST


def _said(ucd: str | None) -> str:
    return (ucd or "").lower().split(";")[0]


def _sexagesimal(names: Collection[str]) -> tuple[str, ...]:
    """Return the columns of the parts of both angles, the hours first; none where hours, degrees or minutes lack."""
    parts = column_names().positions.parts
    hours = {n: m for n in names for m in [parts.of_right_ascension.fullmatch(n)] if m}
    degrees = {n: m for n in names for m in [parts.of_declination.fullmatch(n)] if m}
    of_hours = {_part(m) for m in hours.values()}
    of_degrees = {_part(m) for m in degrees.values()}
    if not ({"hours", "minutes"} <= of_hours and {"degrees", "minutes"} <= of_degrees):
        return ()
    return (*_in_order(hours), *_in_order(degrees))


def _part(match: re.Match[str]) -> str:
    return next(part for part, text in match.groupdict().items() if text is not None)


def _in_order(matches: dict[str, re.Match[str]]) -> list[str]:
    return sorted(matches, key=lambda name: PARTS.index(_part(matches[name])))


def _galactic(names: Collection[str]) -> tuple[str, ...]:
    """Return the columns of galactic longitude and latitude, where both are there."""
    plain = {re.sub(r"[^a-z0-9]", "", n.lower()): n for n in names}
    return next(
        (
            (plain[lon], plain[lat])
            for lon, lat in column_names().positions.galactic
            if lon in plain and lat in plain
        ),
        (),
    )
