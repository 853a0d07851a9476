"""What is suspicious in a catalogue: repeated objects, wrong positions, constant columns, units that do not fit."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from catalogs.arrays import Array, Floats, batch_values, is_real, is_text, name_words
from catalogs.catalog.catalog import Catalog, Column, Element
from catalogs.column_names import Naming, column_names
from catalogs.profile.columns import Choice, ColumnProfile, Profile, as_number_column, not_numbers, profile
from catalogs.sky.positions import NeighbourCounter, PositionUnit, is_position, positions

# What a column is about, by its UCD, unit and name: a flux, an error, the distance, dust, the observation.  All other
# columns are about the object itself.  Names are those of `catalogs/column_names.toml`; where they say nothing,
# neither does this.

DISTANCES = ("src.redshift", "spect.dopplerveloc", "phys.veloc", "pos.distance", "pos.parallax")
FLUX_UNIT = re.compile(r"(nano)?maggy|nmgy|[munµμ]?jy")
UNIT_IN_NAME = re.compile(r"(?<=\w)\s*(\([^)]*\)|\[[^\]]*\])\s*$")
OBSERVING = ("obs.", "instr.", "time.", "meta.", "stat.snr", "stat.fit")


def without_unit(name: str) -> str:
    """Return a name without the unit that some catalogues write into it: 'Dist (Mpc)' is 'dist', 'W50 [km/s]' 'w50'."""
    return UNIT_IN_NAME.sub("", name).lower()


def about_the_distance(column: Column) -> bool:
    """Say whether a column is a redshift, a velocity of recession or a distance: what a survey selects by."""
    ucd = (column.ucd or "").lower()
    named = _named_as(column_names().distance, column, without_unit(column.name))
    return ucd.startswith(DISTANCES) or (named and not ucd.startswith("phot.") and not about_a_flux(column))


def about_a_flux(column: Column) -> bool:
    """Say whether a column is a flux, by its UCD, its unit or its name; shares of one (`FRACFLUX_G`) do not count."""
    ucd, unit = (column.ucd or "").lower(), (column.unit or "").lower()
    said = ucd.startswith("phot.flux") or FLUX_UNIT.fullmatch(unit)
    return bool(said) or _named_as(column_names().flux, column)


def about_a_magnitude(column: Column) -> bool:
    """Say whether a column is called a magnitude, by UCD, unit or name; not a colour, not surface brightness."""
    ucd, unit = (column.ucd or "").lower(), (column.unit or "").lower()
    if ucd.startswith("phot.mag.sb") or "/" in unit or about_a_colour(column):
        return False
    return ucd.startswith("phot.mag") or unit == "mag" or _named_as(column_names().magnitude, column)


def is_magnitude(column: Column, values: NDArray[np.float64]) -> bool:
    """Say whether a column holds magnitudes, by its UCD, unit, name and values (n,); not surface brightness."""
    known = values[np.isfinite(values)]
    if not (is_real(column.datatype) or is_text(column.datatype)) or not known.size:
        return False
    middle = float(np.median(known))
    if about_a_magnitude(column):
        return -35 < middle < 40
    # A bare letter is a band where its values are magnitudes: 'z' may be a redshift.
    known_bands = column_names().bands
    letter = "_".join(w for w in name_words(column.name) if w not in known_bands.systems)
    return not (column.unit or "").strip() and bool(known_bands.bare.fullmatch(letter)) and 5 < middle < 35


def about_a_colour(column: Column) -> bool:
    """Say whether a column is a colour, by its UCD or as one called by two bands: Gaia's `bp_rp`, `U-B (mag)`."""
    if (column.ucd or "").lower().startswith("phot.color"):
        return True
    known = column_names().bands
    bands = [known.wavelength(w) for w in name_words(without_unit(column.name)) if w not in known.systems]
    return not isinstance(column.name, Element) and len(bands) == 2 and None not in bands


def about_an_error(column: Column) -> bool:
    """Say whether a column holds errors."""
    name = column.name.vector if isinstance(column.name, Element) else column.name
    return (column.ucd or "").startswith("stat.error") or column_names().error.fits(name, name_words(name))


def about_dust(column: Column) -> bool:
    """Say whether a column is the Galaxy's extinction, which is a matter of the place on the sky."""
    return (column.ucd or "").lower().startswith("phys.absorption") or _named_as(column_names().dust, column)


def about_the_observation(column: Column) -> bool:
    """Say whether a column is about an observation, an instrument, a date, a code or a note, by its UCD or name.

    Signal-to-noise ratios, depths and the quality of fits say how an object was seen: in another survey otherwise.
    """
    return (column.ucd or "").lower().startswith(OBSERVING) or _named_as(column_names().observation, column)


def _named_as(role: Naming, column: Column, name: str | None = None) -> bool:
    """Say whether the name of a column, or of the vector that it is an element of, is one of the role's."""
    own = column.name if name is None else name
    vector = column.name.vector if isinstance(column.name, Element) else column.name
    return role.named(vector) or role.fits(own, name_words(column.name))


# Positions that are in other columns than a right ascension and a declination of their own.  Catalogues of the CDS
# have the parts of sexagesimal angles in columns each (`RAh RAm RAs DE- DEd DEm DEs`), others galactic coordinates
# alone, or both coordinates in one vector.  They are found and said to be positions; a specification names two
# columns, which have to be made of them.

PARTS = ("hours", "sign", "degrees", "minutes", "seconds")
"""Parts of an angle, in order."""
FAINTEST = 100.0
"""Beyond any magnitude, and any mark in place of one but 999."""
OTHER_COORDINATES = (2, 3)
"""Elements of a vector of a position: two angles, or a direction in space."""


def parts_of_positions(names: Collection[str]) -> set[str]:
    """Return the columns, elements of vectors among them, that are parts of positions by their names together."""
    vector = column_names().positions.vector
    vectors = {n for n in names if isinstance(n, Element) and vector.fullmatch(n.vector)}
    return {*_sexagesimal(names), *_galactic(names), *vectors}


def find_other_position(catalog: Catalog) -> tuple[tuple[str, ...], str] | None:
    """Return the columns of the position of a catalogue without a column of right ascension, or None.

    With them comes a sentence: of which kind the position is, and how a right ascension and a declination come of it.
    """
    make = "to split or match by position, make two columns in degrees,"
    parts = _sexagesimal(catalog.names)
    if parts:
        remedy = "RA = 15 (h + m / 60 + s / 3600), Dec = +-(d + m / 60 + s / 3600)"
        return parts, f"parts of sexagesimal angles: {make} {remedy}"
    for column in catalog.columns:
        short = pt.is_fixed_size_list(column.datatype) and column.datatype.list_size in OTHER_COORDINATES
        ucd = (column.ucd or "").lower()
        named = column_names().positions.vector.fullmatch(column.name)
        if short and (named or ucd.startswith(("pos.eq", "pos.cartesian"))):
            return (column.name,), f"a vector: {make} its elements in two columns, in degrees"
    said = [(c.name, (c.ucd or "").lower().split(";")[0]) for c in catalog.columns]
    by_ucd = [name for axis in ("lon", "lat") for name, ucd in said if ucd == f"pos.galactic.{axis}"]
    galactic = _galactic(catalog.names) or (tuple(by_ucd) if len(by_ucd) == len(OTHER_COORDINATES) else ())
    if galactic:
        by = "RA and Dec, by astropy's SkyCoord(l, b, frame='galactic').icrs"
        return galactic, f"galactic coordinates: {make} {by}"
    return None


def may_be_galactic(seen: Profile, name: str) -> bool:
    """Say whether a column may be a galactic coordinate by its name; 'l' and 'b' are bands where 'l' is a magnitude."""
    if name.lower() not in {"l", "b"}:
        return True
    longitude = next((c for n, c in seen.columns.items() if n.lower() == "l"), None)
    return longitude is None or longitude.maximum > FAINTEST


def _sexagesimal(names: Collection[str]) -> tuple[str, ...]:
    """Return the columns of the parts of both angles, the hours first; none where hours, degrees or minutes lack."""

    def found(pattern: re.Pattern[str]) -> dict[str, str]:
        matches = {n: m.groupdict().items() for n in names if (m := pattern.fullmatch(n))}
        return {n: next(part for part, text in of if text is not None) for n, of in matches.items()}

    parts = column_names().positions.parts
    hours, degrees = found(parts.of_right_ascension), found(parts.of_declination)
    if not ({"hours", "minutes"} <= {*hours.values()} and {"degrees", "minutes"} <= {*degrees.values()}):
        return ()
    return tuple(n for of in (hours, degrees) for n in sorted(of, key=lambda n: PARTS.index(of[n])))


def _galactic(names: Collection[str]) -> tuple[str, ...]:
    """Return the columns of galactic longitude and latitude, where both are there."""
    plain = {re.sub(r"[^a-z0-9]", "", n.lower()): n for n in names}
    pairs = column_names().positions.galactic
    return next(((plain[lon], plain[lat]) for lon, lat in pairs if {lon, lat} <= plain.keys()), ())


# What the numbers of a catalogue look like: values that stand for none, identifiers, observing bookkeeping.  All of
# this is uncertain, so no data are changed: `blr inspect` shows it, and `blr init` writes it into a specification
# that a person reads.

FEWEST = 2
"""Rows with a number that other catalogues use as a mark, from which it may be one here."""
FEWEST_UNUSUAL = 5
"""The same of any other number."""
GAP = 1.0
"""Distance of a mark from the other values, in ranges of their middle 98 %."""
FAR_FROM_REST = 1000.0
"""The same from which it may be the value of most rows."""
SHIFT = 10.0
"""How much of extinction or offsets catalogues take off their marks, at most."""
SPIKE = 0.003
"""Share of the rows at an extreme value from which it may be a mark though no gap sets it apart."""
NINES = re.compile(r"-?9+(\.9*)?(e[+-]?\d+)?")
"""Marks that no quantity ends at: 90 is a bound of inclinations, -1 of correlations, 0 of sizes."""
DENSE, LARGEST_COUNT = 2.0, 1e6
"""Range of numbers a row, and their middle, from which different ones are names and no measurements."""
MOST_CODES = 12
"""Different values up to which a column may be one of codes."""
FEW_REPEATS = 0.05
"""Share of the rows that may repeat the identifier of another, or lack one, in a column that names each row."""
MOST_REPEATS = 5.0
"""Rows a value up to which a column that is called an identifier names objects of which each has several rows."""
COORDINATES = ("pos.", "time.")


@dataclass(frozen=True)
class Suspected:
    """A number that may stand for no value, or a range of such, '90..' or '..-90', and how many rows have it."""

    value: float | str
    count: int
    why: str


def suspected_sentinels(profile: Profile, name: str) -> list[Suspected]:
    """Return the numbers of a column that look like marks: at an end, apart from the others, and repeated or alike.

    Numbers are also those of a text column, without the texts among them that stand for no value.
    """
    profile = as_number_column(profile, name)
    column = profile.columns[name]
    coordinate = (column.column.ucd or "").lower().startswith(COORDINATES)
    if coordinate or not column.minimum < column.maximum:
        return []
    return [*_repeated(profile, name), *_shifted(profile, name)]


def _repeated(profile: Profile, name: str) -> list[Suspected]:
    """Return the numbers that several rows have, or one row, where they are marks of other columns."""
    column = profile.columns[name]
    candidates = column.marks | {column.minimum: column.n_minimum, column.maximum: column.n_maximum}
    if column.distinct.estimate <= MOST_CODES:
        candidates = {v: candidates[v] for v in column.marks if _stands_for_none(v, column)}
    # Numbers of nines that end the range of another column, and are repeated there.
    nines = [v for v in column.marks if v in candidates and NINES.fullmatch(f"{v:g}")]
    once = [v for v in nines if candidates[v] < FEWEST]
    elsewhere = {v for v in once if {*profile.repeated_marks.get(v, ())} - {name}}
    if max(candidates.values(), default=0) < FEWEST and not elsewhere:
        return []
    known = profile.known(name)
    with np.errstate(over="ignore"):  # beyond float32 all are infinite, and none a mark
        marked = np.isin(known.astype(np.float32), np.array([*candidates], dtype=np.float32))
    bulk = known[~marked]
    if len(bulk) < 20:
        return []
    middle = float(np.subtract(*np.quantile(bulk, [0.99, 0.01])))
    suspected = []
    for value, count in sorted(candidates.items()):
        apart = max(float(bulk.min()) - value, value - float(bulk.max()))
        if apart > 0 and (count >= FEWEST or value in elsewhere):
            why = _why_a_mark(column, value, count, apart, middle)
            suspected += [] if why is None else [Suspected(value, count, why)]
    return suspected


def _why_a_mark(column: ColumnProfile, value: float, count: int, apart: float, middle: float) -> str | None:
    """Return why a number stands for no value; None where it does not.

    `apart` is its distance from the other values, `middle` the range of their middle 98 %.
    """
    famous = value in column.marks and _stands_for_none(value, column)
    nines = famous and NINES.fullmatch(f"{value:g}") is not None
    if count < FEWEST:
        marks = "far from all others, and it marks missing values in other columns"
        return marks if apart > GAP * middle else None
    most = 0.5 if apart < FAR_FROM_REST * middle else 1.0
    if not famous and not (FEWEST_UNUSUAL <= count < most * column.n and column.distinct.estimate > 20):
        return None
    if apart > GAP * middle or (nines and apart > 0.1 * middle):
        return "repeated, and far from all other values"
    if famous and value < 0 <= value + apart and about_an_error(column.column):
        return "repeated, and no error is negative"
    spike = count > SPIKE * column.n and (nines or (famous and value == 0))
    return "many equal values at the end of the range" if spike else None


def _shifted(profile: Profile, name: str) -> list[Suspected]:
    """Return the ranges of marks from which something was taken, as 99 less extinction: alike, and in one row each."""
    column, marks = profile.columns[name], column_names().sentinels.shifted
    # Of nearly all columns the extremes say that there is none: no sample is sorted.
    ends = ((-1, -column.minimum), (1, column.maximum))
    signs = [sign for sign, end in ends if any(abs(end - mark) < SHIFT for mark in marks)]
    known = profile.known(name) if signs else np.empty(0)
    if len(known) < 4 * FEWEST_UNUSUAL:
        return []
    suspected = []
    for sign in signs:
        x = np.sort(sign * known)
        above = len(x) // 2 + int(np.argmax(np.diff(x[len(x) // 2 :]))) + 1
        rest, cloud = x[:above], x[above:]
        apart = cloud[0] - rest[-1] > GAP * (rest[-1] - np.quantile(rest, 0.01))
        near = any(np.abs(cloud - mark).max() < SHIFT for mark in marks)
        if apart and near and len(np.unique(cloud)) >= FEWEST_UNUSUAL:
            end = np.floor(cloud[0])
            text = f"{end:.0f}.." if sign > 0 else f"..{1 - end:.0f}"
            why = "near a usual mark for a missing value, and far from all other values"
            suspected.append(Suspected(text, len(cloud), why))
    return suspected


def _stands_for_none(value: float, column: ColumnProfile) -> bool:
    """Say whether one of the numbers that other catalogues use as marks may be one in a column of this kind.

    0 is a value but of magnitudes, and -1 a code beside few others: stars and galaxies are -1 and 1 in VISTA's tables.
    """
    if value == 0:
        return is_real(column.column.datatype) and about_a_magnitude(column.column)
    return value != -1 or column.distinct.estimate > MOST_CODES


def suspected_identifiers(profile: Profile) -> list[tuple[str, str]]:
    """Return the columns that may name the objects, the likeliest first, each with what speaks for it or against.

    A column of numbers with fractions names nothing; integers above 2^53 in float64, or 2^24 in float32, were rounded.
    """
    identifiers = []
    for place, (name, c) in enumerate(profile.columns.items()):
        if isinstance(name, Element):
            continue
        word, ucd = name.lower(), (c.column.ucd or "").lower()
        by_ucd = ucd.startswith("meta.id")
        by_name = column_names().identifier.fits(word, word.replace("-", "_").split("_"))
        if is_real(c.column.datatype):
            exact = 2 ** {16: 11, 32: 24}.get(c.column.datatype.bit_width, 53)
            if by_name and c.is_number and c.maximum > exact:
                identifiers.append(
                    (9, place, name, "identifiers are stored as floating-point numbers, which rounds them")
                )
            continue
        unique = c.distinct.n > 0 and c.distinct.repeated == 0 and c.missing == 0
        if unique and not (by_ucd or by_name or is_text(c.column.datatype) or _numbered(profile, name)):
            continue  # measurements in whole numbers, of which few rows have no two alike
        if pt.is_boolean(c.column.datatype) or is_position(c.column) or not (by_ucd or by_name or unique):
            continue
        if not (by_ucd or by_name) and not_numbers(profile, name):
            continue  # measurements that differ in every row, below a row of units
        if unique:
            otherwise = 1 if by_ucd or by_name else 3 if is_text(c.column.datatype) else 4
            rank = 0 if "meta.main" in ucd else otherwise
            identifiers.append((rank, place, name, "different in every row"))
        else:
            identifiers += [(rank, place, name, why) for rank, why in _with_repeats(c)]
    return [(name, why) for _, _, name, why in sorted(identifiers)]


def _with_repeats(column: ColumnProfile) -> list[tuple[int, str]]:
    """Return the rank of an identifier with repeats, and what speaks for it; none of a column of codes."""
    missing, repeated = column.missing, column.distinct.repeated
    if _names_repeats(column):
        several = f"{column.distinct.estimate:,} values in {column.n - missing:,} rows"
        return [(7, f"{several}: an object has several rows")]
    if max(missing, repeated) < FEW_REPEATS * column.n:
        return [(6, f"{repeated:,} rows repeat the value of another row, and {missing:,} rows have none")]
    return []


def _numbered(profile: Profile, name: str) -> bool:
    """Say whether whole numbers count the rows, rise from row to row, or are larger than what is counted."""
    known = profile.known(name)
    if len(known) < FEWEST:
        return False
    dense = float(np.ptp(known)) < DENSE * profile.columns[name].n
    return dense or bool((np.diff(known) > 0).all()) or float(np.median(known)) > LARGEST_COUNT


def naming_column(profile: Profile) -> str | None:
    """Return the column to take for the objects' names: different in every row, or repeated where objects are."""
    suspected = [profile.columns[name] for name, _ in suspected_identifiers(profile)]
    whole = (c for c in suspected if not c.missing and not is_real(c.column.datatype))
    named = [c for c in whole if not _names_repeats(c)]
    return min(named, key=lambda c: c.distinct.repeated > 0).name if named else None


def repeating_column(profile: Profile) -> str | None:
    """Return the column that names objects of which each has several rows: what splits should keep together."""
    suspected = (profile.columns[name] for name, _ in suspected_identifiers(profile))
    return next((c.name for c in suspected if not is_real(c.column.datatype) and _names_repeats(c)), None)


def _names_repeats(column: ColumnProfile) -> bool:
    """Say whether a column that is called an identifier has several rows a value, and not as many as codes have."""
    known, distinct = column.n - column.missing, column.distinct
    return (
        distinct.repeated >= FEW_REPEATS * column.n
        and column.missing < FEW_REPEATS * column.n
        and distinct.estimate > MOST_CODES
        and known <= MOST_REPEATS * distinct.estimate
    )


def bookkeeping(profile: Profile, name: str) -> bool:
    """Say whether a column is about the observation: whole numbers of no unit, of instruments, fields and dates.

    Such columns tell how objects were selected, not what they are.
    """
    c = profile.columns[name]
    if is_text(c.column.datatype) or pt.is_boolean(c.column.datatype) or c.column.unit:
        return False
    if not isinstance(name, Element) and without_unit(name) != name.lower():
        return False
    if (c.column.ucd or "").lower().startswith(("phot.", "phys.", "src.")):
        return False
    known = profile.known(name)
    return bool(known.size and (known == np.trunc(known)).all())


# The quality of a labelled catalogue: what is missing, constant, double, far out, or known to give the class away.
# Streamed, of bounded memory: counts of every row by `catalogs.profile.columns`, duplicates by the hashes of
# `catalogs.arrays` and the cells of `catalogs.sky.positions`, outliers and leaks in the sample.

FAR = 10.0
"""Distance of an outlier from the middle, in half the range between the quartiles."""
MOST = 30


@dataclass(frozen=True)
class Leak:
    """Columns that give the class away, and how much of its entropy they remove.

    `beyond` is the gain over the best part of the set (over nothing, for one column), `combination` the formula
    whose value tells the class.  `derived` says that it adds a logarithm to something that is not one, and holds
    closely within each class: a column was computed from the others, where a sum of like things is a colour.
    The logarithm of a flux is like a magnitude.  A single column has a formula if it is the label in other numbers.
    """

    columns: tuple[str, ...]
    gain: float
    beyond: float
    combination: str = ""
    derived: bool = False


@dataclass(frozen=True, kw_only=True)
class SuspectedLeak(Leak):
    """Columns that give the class away, alone or together, and whether the features use all of them."""

    used: bool


@dataclass(frozen=True, kw_only=True)
class Quality:
    """What a report says of the catalogue; shares are of all rows, `absent` how many files lack a column."""

    n_rows: int
    missing: dict[str, float]
    constant: tuple[str, ...]
    duplicate_columns: tuple[tuple[str, ...], ...]
    repeated_identifiers: int | None
    repeated_positions: int | None
    positions_without: int | None
    positions_out_of_range: int | None
    outliers: dict[str, float]
    n_files: int
    absent: dict[str, int]
    leaks: tuple[SuspectedLeak, ...]  # found by who knows the classes
    catalogue: str  # name of the file or folder, without its path
    commented_out: str  # sentence on comment lines that may be rows, which were not read; "" for none
    # Other columns that the features use and that may tell how objects were chosen, each with why.
    suspects: Mapping[str, str] = field(default_factory=dict)
    repeated_rows: int = 0  # rows that hold the same as another one, in every column of one value a row


def quality(
    catalog: Catalog,
    *,
    identifier: str | None = None,
    places: tuple[str, str, PositionUnit] | None = None,
    limit: int | None = None,
    choice: Choice | None = None,
) -> tuple[Quality, Profile]:
    """Return the quality of the rows, all or the first `limit`, and the profile, as of `profile`, that it is from.

    `places` are the columns of the position, right ascension first, and their unit.
    """
    neighbours, without, out_of_range = NeighbourCounter(), 0, 0

    def count_places(batch: pa.RecordBatch) -> None:
        nonlocal without, out_of_range
        assert places is not None  # noqa: S101  no batch is counted otherwise
        ra, dec, unit = places
        values = batch_values(batch, [ra, dec])
        place = positions(values[ra], values[dec], unit)
        without += int(np.isnan(place.ra).sum())
        out_of_range += place.out_of_range
        neighbours.add(place.ra, place.dec)

    also = None if places is None else count_places
    seen = profile(catalog, limit=limit, choice=choice, also=also)
    named = seen.columns.get(identifier or "")
    outliers = {name: outlier_share(seen, name) for name in seen.columns}
    row_quality = Quality(
        n_rows=seen.n_rows,
        missing={name: c.missing_share for name, c in seen.columns.items() if c.missing},
        constant=tuple(name for name, c in seen.columns.items() if c.constant),
        duplicate_columns=tuple(tuple(group) for group in seen.duplicate_columns()),
        repeated_identifiers=None if named is None else named.distinct.repeated,
        repeated_positions=None if places is None else neighbours.near_another,
        positions_without=None if places is None else without,
        positions_out_of_range=None if places is None else out_of_range,
        outliers=dict(sorted(((n, s) for n, s in outliers.items() if s > 0), key=lambda e: -e[1])[:MOST]),
        n_files=len(catalog.partitions),
        absent={c.name: c.absent for c in catalog.columns if c.absent},
        catalogue=catalog.path.name,
        leaks=(),
        commented_out="",
        repeated_rows=seen.repeated_rows,
    )
    return row_quality, seen


def outlier_share(seen: Profile, name: str) -> float:
    """Return the share of the sample that lies far outside of the middle half of a column of many values."""
    c = seen.columns[name]
    if not c.is_number or c.distinct.estimate < 20:
        return 0.0
    known = seen.known(name)
    low, middle, high = np.quantile(known, [0.25, 0.5, 0.75])
    half = max(high - low, 1e-300) / 2
    return float(np.mean(np.abs(known - middle) > FAR * half)) if high > low else 0.0


# Which groups of rows are unlike the others: files of a catalogue, or parts of the sky.  Limits are robust and allow
# for the number of tests.  Shapes: n rows, G groups.

SIGMA = 1.4826  # standard deviation of a Gaussian by its median absolute deviation
LEAST_IN_GROUP = 10
ALARMS = 0.01  # expected false alarms of a family of tests, at most


def outlying(values: Floats, errors: Floats, *, tests: int, floor: float) -> Array:
    """Return which groups (G,) are unlike the others, by more than `floor`.

    The scatter is the errors' and that of the groups; `tests` is how many groups are looked at in all.
    """
    centre = float(np.median(values)) if len(values) >= 4 else 0.0
    scatter = SIGMA * float(np.median(np.abs(values - centre))) if len(values) >= 4 else 0.0
    away = np.abs(values - centre)
    limit = -NormalDist().inv_cdf(ALARMS / (2 * max(1, tests)))
    return (away > limit * np.hypot(errors, scatter)) & (away > floor)


def share_errors(shares: Floats, n: Floats) -> Floats:
    """Return the errors (G,) of shares of n objects each."""
    return np.asarray(np.sqrt(np.maximum(np.abs(shares) * (1 - shares), 1 / n) / n))


def median(values: Floats) -> float:
    """Return the median of some values, 0 of none."""
    return float(np.median(values)) if len(values) else 0.0


def group_means(values: Floats, codes: Array) -> tuple[Floats, Floats, Array]:
    """Return the mean (G,) of each group of ten or more, the numbers of values, and the groups' codes."""
    inside = codes >= 0
    n = np.bincount(codes[inside])
    labels = np.flatnonzero(n >= LEAST_IN_GROUP)
    sums = np.bincount(codes[inside], weights=values[inside], minlength=len(n))
    return sums[labels] / n[labels], n[labels].astype(float), labels


def group_medians(values: Floats, codes: Array) -> tuple[Floats, Floats, Floats, Floats, Array]:
    """Return the median (G,) of each group of ten or more, its spread, the mean's error, numbers, and codes."""
    sizes = np.bincount(codes + 1, minlength=1)
    sizes[0] = 0  # a code below 0 is of no group
    kept = sizes[codes + 1] >= LEAST_IN_GROUP
    labels, group, n = np.unique(codes[kept], return_inverse=True, return_counts=True)
    values, first, order = values[kept], np.cumsum(n) - n, np.argsort(group, kind="stable")

    def medians(x: Floats) -> Floats:
        ordered = x.take(order)
        for part in np.split(ordered, first[1:]):
            part.sort()  # in its place
        return np.asarray((ordered[first + (n - 1) // 2] + ordered[first + n // 2]) / 2)

    middle = medians(values)
    spread = SIGMA * medians(np.abs(values - middle[group]))
    mean = np.bincount(group, weights=values, minlength=len(n)) / n
    squares = np.bincount(group, weights=(values - mean[group]) ** 2, minlength=len(n))
    return middle, spread, np.sqrt(squares) / n, n.astype(float), labels
