"""Positions on the sky: their columns, their neighbours, and where surveys show them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlencode

import numpy as np
import scipy
from numpy.typing import NDArray

from catalogs.arrays import (
    FULL,
    Array,
    Floats,
    floats,
    hashed,
    holds_text,
    is_real,
    is_text,
    name_words,
    numbers_of,
    row_hashes,
    words_of,
)
from catalogs.catalog.catalog import Catalog, Column
from catalogs.column_names import column_names
from catalogs.errors import CatalogError

ZOOM: Final = 15
FIELD: Final = 0.05
"""Width of the field that Aladin Lite shows, in degrees."""


def survey_links(ra: float, dec: float) -> dict[str, str]:
    """Return the pages of sky surveys that show a position, in degrees, by their names; none where it is unknown."""
    if not (math.isfinite(ra) and math.isfinite(dec)):
        return {}
    layer = urlencode({"ra": f"{ra:.6f}", "dec": f"{dec:.6f}", "layer": "ls-dr10", "zoom": ZOOM})
    target = urlencode({"target": f"{ra:.6f} {dec:+.6f}", "fov": FIELD})
    return {
        "Legacy Survey": f"https://www.legacysurvey.org/viewer?{layer}",
        "Aladin Lite": f"https://aladin.cds.unistra.fr/AladinLite/?{target}",
    }


# Space around the unit sphere is divided into cubic cells, so that the poles and 0h need no special treatment.  Only
# the cells with the smallest hashes are kept, fewer of them whenever there are too many objects, but each with all of
# its objects: so the kept cells are a random sample of the sky ("distinct sampling", Gibbons 2001, VLDB, of places).
# One pair in a hundred lies across an edge, and may lose an object with the cell beside.  Shapes: n rows, P places.

CAPACITY = 200_000
"""Most places that are kept; they take 10 MB."""
CELLS = 60.0
"""Size of a cell in radii, so that few pairs lie across an edge."""


class NeighbourCounter:
    """Counts rows with another row within `radius` arcseconds; exact up to `capacity` places, an estimate beyond."""

    def __init__(self, radius: float = 1.0, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.halvings = 0
        self._chord = 2 * np.sin(np.radians(radius / 3600) / 2)
        self._place: Floats = np.empty((0, 3))
        # Hashes of the places, and of the cells that they are in.
        self._key, self._cell = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64)
        self._rows: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def add(self, ra: Floats, dec: Floats) -> None:
        """Count rows (n,), positions in degrees; those that are NaN are left out."""
        known = np.isfinite(ra)
        place = _directions(ra[known], dec[known])
        cell = row_hashes(map(hashed, np.floor(place / (CELLS * self._chord)).T))
        kept = cell <= FULL >> self.halvings
        key = np.concatenate([self._key, row_hashes(map(hashed, place[kept].T))])
        rows = np.concatenate([self._rows, np.ones(kept.sum(), dtype=np.int64)])
        self._key, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        self._rows = np.bincount(inverse.ravel(), weights=rows, minlength=len(self._key)).astype(np.int64)
        self._place = np.concatenate([self._place, place[kept]])[first]
        self._cell = np.concatenate([self._cell, cell[kept]])[first]
        while len(self._key) > self.capacity:
            self.halvings += 1
            kept = self._cell <= FULL >> self.halvings
            self._place, self._key = self._place[kept], self._key[kept]
            self._cell, self._rows = self._cell[kept], self._rows[kept]

    @property
    def near_another(self) -> int:
        """Number of rows with another row within the radius or at the same place."""
        chord, near, close = self._chord * (1 + 1e-12), self._rows > 1, np.arange(len(self._place))
        # What has no other within the radius along an axis has none in space: mostly that is so of all, and no tree
        # has to be loaded.
        for along in self._place.T:
            close = close[np.argsort(along[close])]
            joined = np.diff(along[close]) <= chord
            close = close[np.append(joined, False)[: len(close)] | np.append(False, joined)[: len(close)]]
        if len(close):
            # Each place is in the tree once, and is its own nearest neighbour: so the second nearest counts.
            places = self._place[close]
            distance, _ = scipy.spatial.KDTree(places).query(places, k=2, distance_upper_bound=chord)
            near[close] |= np.isfinite(np.asarray(distance)[:, 1])
        return int(self._rows[near].sum()) << self.halvings


# The unit is the one stated, else the column's own, else by what the column holds: text is sexagesimal, numbers are
# degrees.  A unit that cannot be read is refused, since a wrong position is worse than none.  Shapes: n rows.

PositionUnit = Literal["deg", "rad", "sexagesimal", "hours"]
"""Hours: right ascensions in decimal hours, 15 degrees each, beside declinations in degrees, as HyperLEDA has them."""

UNITS: dict[str, PositionUnit] = {
    **dict.fromkeys(("deg", "degs", "degree", "degrees"), "deg"),
    **dict.fromkeys(("rad", "radian", "radians"), "rad"),
    **dict.fromkeys(("hms", "dms", "h:m:s", "d:m:s", '"h:m:s"', '"d:m:s"'), "sexagesimal"),
    **dict.fromkeys(("hh:mm:ss", "dd:mm:ss", "sexagesimal"), "sexagesimal"),
    **dict.fromkeys(("h", "hr", "hour", "hours", "hourangle"), "hours"),
}
"""What catalogues write, in small letters."""

PREFIXED = re.compile(r"(?P<prefix>.+)_(?P<word>[a-z]+\d*)", re.IGNORECASE)
OFFSET = re.compile(
    r"(.*_)?(d|del(ta)?|off(set)?s?|diff|pm|e|s|err(or)?|sig(ma)?|unc|std|rms)", re.IGNORECASE
)
"""What is before the coordinate's word of an offset, a motion or an error."""

SEXAGESIMAL = re.compile(
    r"^\s*(?P<sign>[-+−]?)\s*(?P<whole>\d{1,3})\s*[:hʰd°\s]\s*(?P<minutes>\d{1,2})\s*"
    r"(?:[:mᵐ'′\s]\s*(?P<seconds>\d{1,2}(?:\.\d*)?)\s*[sˢ\"″]?)?\s*$"
)


@dataclass(frozen=True, eq=False)
class Positions:
    """Right ascension and declination in degrees (n,), NaN where it is missing, and how many were not possible.

    `unreadable` counts texts that are no angle, `out_of_range` declinations beyond 90 and right ascensions
    beyond a full turn, which are NaN too.
    """

    ra: Floats
    dec: Floats
    unreadable: int = 0
    out_of_range: int = 0


def position_unit(
    text: str | None, *, is_text: bool, stated: PositionUnit | None = None, table: str = "[catalog]"
) -> PositionUnit:
    """Return the unit of a column of angles from what the catalogue writes; CatalogError where it is unreadable.

    `table` is the specification's, where it may be stated.
    """
    if stated is not None:
        return stated
    if is_text:
        return "sexagesimal"
    word = (text or "").strip().lower()
    if not word:
        return "deg"
    known = UNITS.get(word) or UNITS.get(re.sub(r"\{.*\}", "", word).strip())
    if known is None or known == "sexagesimal":
        raise CatalogError(
            f"got a position in the unit '{text}', expected degrees, radians, sexagesimal text, or hours; convert both "
            f'columns to degrees, or, if they are, state it: position_unit = "deg" (or "rad") under {table}'
        )
    return known


def unit_of_position(
    catalog: Catalog, ra: str, dec: str, *, stated: PositionUnit | None = None, table: str = "[catalog]"
) -> PositionUnit:
    """Return the unit of a catalogue's two columns; CatalogError where it is unreadable, or they differ.

    `stated` is what the specification says under `table`.
    """
    position_units = []
    for name in (ra, dec):
        column = catalog.column(name)
        try:
            text = is_text(column.datatype)
            position_units.append(position_unit(column.unit, is_text=text, stated=stated, table=table))
        except CatalogError as error:
            raise CatalogError(f"{catalog.path}, column '{name}': {error}") from error
    if stated is None and position_units == ["hours", "deg"]:
        return "hours"
    if position_units[0] != position_units[1] or (stated is None and "hours" in position_units):
        raise CatalogError(
            f"{catalog.path}: got '{ra}' in {position_units[0]} and '{dec}' in {position_units[1]}, expected "
            "the same unit for both; name other columns, or convert one; if one of the units is wrong, state "
            'the right one: position_unit = "deg" (or "rad", "sexagesimal", "hours" of the first '
            f"beside degrees) under {table}"
        )
    return position_units[0]


def positions(ra: Array, dec: Array, unit: PositionUnit = "deg") -> Positions:
    """Return positions (n,) in degrees from two columns."""
    if unit == "sexagesimal":
        lon, bad_lon = sexagesimal(ra, per_unit=15.0)
        lat, bad_lat = sexagesimal(dec, per_unit=1.0)
    else:
        (lon, bad_lon), (lat, bad_lat) = (numbers(x, unit) for x in (ra, dec))
        lon = 15.0 * lon if unit == "hours" else lon
    unreadable = int((bad_lon | bad_lat).sum())
    outside = (np.abs(lat) > 90) | (lon < -180) | (lon > 360)
    gone = outside | ~np.isfinite(lon) | ~np.isfinite(lat)
    lon, lat = np.where(gone, np.nan, lon % 360.0), np.where(gone, np.nan, lat)
    return Positions(lon, lat, unreadable, out_of_range=int(outside.sum()))


def galactic_latitude(ra: Floats, dec: Floats) -> Floats:
    """Return the galactic latitude (n,) of ICRS positions, all in degrees; NaN where one is missing.

    The pole is that of ESA (1997), The Hipparcos Catalogue, volume 1, equation 1.5.10.
    """
    pole_ra, pole_dec = np.radians([192.85948, 27.12825])
    ra, dec = np.radians(ra), np.radians(dec)
    sine = np.sin(dec) * np.sin(pole_dec) + np.cos(dec) * np.cos(pole_dec) * np.cos(ra - pole_ra)
    return np.asarray(np.degrees(np.arcsin(np.clip(sine, -1.0, 1.0))))


def numbers(column: Array, unit: PositionUnit) -> tuple[Floats, NDArray[np.bool_]]:
    """Return angles (n,) in degrees, and which were unreadable: texts that are no number."""
    if holds_text(column):
        words = words_of(np.ma.filled(column, ""))
        values = numbers_of(words)
        bad = np.isnan(values) & (words != "")
    else:
        values = floats(column)
        bad = np.zeros(len(values), dtype=bool)
    return np.asarray(np.degrees(values) if unit == "rad" else values), bad


def sexagesimal(column: Array, *, per_unit: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Return angles (n,) in degrees from texts such as '12:34:56.7' or '-00 12 30', and which were unreadable.

    `per_unit` is 15 for hours.  Minus zero degrees is negative, which reading the parts as numbers would lose.
    """
    texts = [str(v) for v in np.ma.filled(column, "").tolist()]
    values, bad = np.full(len(texts), np.nan), np.zeros(len(texts), dtype=bool)
    for i, text in enumerate(texts):
        if not text.strip():
            continue
        match = SEXAGESIMAL.match(text)
        minutes, seconds = (float(match[part] or 0) for part in ("minutes", "seconds")) if match else (60, 0)
        bad[i] = minutes >= 60 or seconds > 60
        if match and not bad[i]:
            angle = per_unit * (float(match["whole"]) + minutes / 60 + seconds / 3600)
            values[i] = -angle if match["sign"] in {"-", "−"} else angle
    return values, bad


class PositionTree:
    """Positions (n,) in degrees, among which those within `radius` arcseconds of a place are found."""

    def __init__(self, ra: Floats, dec: Floats, *, radius: float) -> None:
        self._places = _directions(ra, dec)
        self._tree = scipy.spatial.KDTree(self._places) if len(ra) else None
        self._chord = 2 * np.sin(np.radians(radius / 3600) / 2) * (1 + 1e-12)

    def nearest(self, ra: Floats, dec: Floats) -> NDArray[np.intp]:
        """Return for each place (m,) the number of the nearest position within the radius, else -1."""
        found = np.full(len(ra), -1, dtype=np.intp)
        known = np.flatnonzero(np.isfinite(ra) & np.isfinite(dec))
        if self._tree is not None and len(known):
            places = _directions(ra[known], dec[known])
            _, number = self._tree.query(places, distance_upper_bound=self._chord)
            found[known] = np.where(number < len(self._places), number, -1)
        return found

    def pairs(self) -> NDArray[np.intp]:
        """Return the numbers (m, 2) of positions that lie within the radius of each other."""
        if self._tree is None:
            return np.empty((0, 2), dtype=np.intp)
        return np.asarray(self._tree.query_pairs(self._chord, output_type="ndarray"), dtype=np.intp)


def _directions(ra: Floats, dec: Floats) -> Floats:
    """Return unit vectors (n, 3) towards positions (n,) in degrees."""
    a, d = np.radians(ra), np.radians(dec)
    return np.stack([np.cos(d) * np.cos(a), np.cos(d) * np.sin(a), np.sin(d)], axis=1)


def sky(ra: Floats, dec: Floats) -> Any:
    """Return positions in degrees as astropy's."""
    # Slow to import, and nothing is matched by position in most runs.
    import astropy  # noqa: PLC0415
    from astropy.coordinates import Latitude, Longitude, SkyCoord  # noqa: PLC0415

    return SkyCoord(Longitude(ra * astropy.units.deg), Latitude(dec * astropy.units.deg))


def find_position_columns(catalog: Catalog) -> tuple[str, str] | None:
    """Return the columns of right ascension and declination, numbers before text, by UCD and by name."""
    ra = ranked(catalog, "pos.eq.ra", column_names().positions.right_ascension)
    dec = ranked(catalog, "pos.eq.dec", column_names().positions.declination)
    for name in ra:
        texts = is_text(catalog.column(name).datatype)
        same_kind = [d for d in dec if is_text(catalog.column(d).datatype) == texts]
        if same_kind:
            return name, same_kind[0]
    # Two in degrees that are called so behind one prefix, SC_RA and SC_DEC, as errors and offsets are too.
    called = column_names().positions
    degrees = [c.name for c in catalog.columns if UNITS.get((c.unit or "").strip().lower()) == "deg"]
    matches = [(name, match) for name in degrees if (match := PREFIXED.fullmatch(name))]
    declinations = [(m["prefix"], name) for name, m in matches if m["word"].lower() in called.declination]
    for name, match in matches:
        other = next((dec for prefix, dec in declinations if prefix == match["prefix"]), None)
        is_offset = OFFSET.fullmatch(match["prefix"]) or column_names().error.fits(name, name_words(name))
        if match["word"].lower() in called.right_ascension and other is not None and not is_offset:
            return name, other
    return None


def is_position(column: Column) -> bool:
    """Say whether a column is called as a coordinate is, or holds angles."""
    word, called = coordinate_word(column.name), column_names().positions
    # Rubin gives a place in every band, `u_ra`: none of them is the object's, and none a measurement.
    named = word in called.coordinates or not called.words.isdisjoint(name_words(column.name))
    placed = named or called.direction.search(column.name) is not None
    return placed or called.other.fullmatch(word) is not None or (column.unit or "").strip().lower() in UNITS


def coordinate_word(name: str) -> str:
    """Return a column's name without what is beside a coordinate's own word: `PLUG_RA` and `raMean` are 'ra'."""
    plain, called = re.sub(r"[^a-z0-9]", "", name.lower()), column_names().positions
    if plain in called.coordinates:
        return plain
    words = (word for word in name_words(name) if called.qualifier.fullmatch(word) is None)
    return "".join(called.glued.sub("", word) for word in words)


def ranked(catalog: Catalog, ucd: str, names: tuple[str, ...]) -> list[str]:
    """Return the columns that may be one coordinate, the likeliest first."""
    coordinates = []
    for place, column in enumerate(catalog.columns):
        word, plain_word = coordinate_word(column.name), re.sub(r"[^a-z0-9]", "", column.name.lower())
        said = (column.ucd or "").lower().split(";")
        by_ucd, by_name = said[0] == ucd, word in names
        plain = is_text(column.datatype) or is_real(column.datatype)
        if plain and not column.shape and (by_ucd or by_name):
            rank = (is_text(column.datatype), not by_ucd, "meta.main" not in said, word != plain_word)
            coordinates.append((*rank, names.index(word) if by_name else len(names), place, column.name))
    return [str(entry[-1]) for entry in sorted(coordinates)]
