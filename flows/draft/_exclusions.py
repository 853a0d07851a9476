"""Columns that are no features, by their names, units and values.

The reasons are physics or bookkeeping; a weak feature is kept.  A column that tells much of the class is a suspect: it
is kept, and a person decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Floats, mid_ranks
from catalogs.arrays import is_text, name_words
from catalogs.catalog.catalog import Column, Element
from catalogs.column_names import Naming, column_names
from catalogs.profile import quality
from catalogs.profile.columns import Profile, not_numbers
from catalogs.profile.leaks import ALONE
from catalogs.profile.quality import Leak
from catalogs.sky.positions import is_position
from flows.draft._bands import band_and_kind

# The meaning of a column by its name, where its values agree: an error, a flag, a score, the observation.
#
# Names are those of `catalogs/column_names.toml`.  A name alone is not enough: 'depth' may be a survey's limiting
# magnitude or that of a planet's transit, and 'sn' may be a supernova. Where name and values disagree, the column
# counts as a measurement. Shapes: n rows.


DATE_RANGES = ((15_000, 110_000), (2_300_000, 2_600_000), (1800, 2200))
"""Modified Julian dates, Julian dates, years."""
FOLLOWS = 0.5
"""Rank correlation with a magnitude, a flux or an error from which a ratio of signal to noise is of that."""
FEWEST_ROWS = 20  # rows with both values below which nothing is said of the order of two columns
FEW_MARKS = 0.1  # share of the values of an error that may be marks for none
OBSERVING = ("obs.", "instr.", "time.epoch", "time.start", "time.end", "meta.")
STAGES = (-12.0, 14.0)  # numerical Hubble stages, and marks a little beyond
MOST_REDDENING = 60.0


def words(name: str) -> list[str]:
    """Return the words of a column's name, of an element those of its vector."""
    return name_words(vector_name(name))


def vector_name(name: str) -> str:
    """Return the name of the column that an element is of, or the column's own."""
    return name.vector if isinstance(name, Element) else name


def _named_as(role: Naming, name: str) -> bool:
    return role.named(vector_name(name)) or role.fits(name, words(name))


def _known(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _whole(values: Floats) -> bool:
    known = _known(values)
    return bool(known.size and (known == np.trunc(known)).all())


def _within(values: Floats, low: float, high: float) -> bool:
    known = _known(values)
    return bool(known.size and np.quantile(known, 0.01) >= low and np.quantile(known, 0.99) <= high)


def is_yes_or_no(values: Floats) -> bool:
    """Say whether a column (n,) holds two whole numbers as those of yes and no."""
    known = np.unique(_known(values))
    return len(known) == 2 and set(known.tolist()) <= {-1.0, 0.0, 1.0, 2.0}


def is_flag(name: str, values: Floats, description: str | None = None) -> bool:
    """Say whether whole numbers (n,) are a flag, a quality or a class by their name; of yes and no, also a selection.

    What is yes or no and called neither so, nor described as a flag, is a measurement: `has_dust`.
    """
    called = column_names()
    if not _whole(values):
        return False
    if any(_named_as(role, name) for role in (called.flag, called.code)):
        return True
    said = name_words(description or "")
    return is_yes_or_no(values) and (_named_as(called.yes_or_no, name) or called.flag.fits("", said))


def is_score(name: str, values: Floats, classes: Collection[str] = ()) -> bool:
    """Say whether shares (n,) are, by their name, a score, a probability or a class of another classifier."""
    known = _known(values)
    if not known.size or known.min() < 0 or known.max() > 100 or (known.max() > 1 and known.max() <= 50):
        return False
    if _whole(values):
        return False
    folded = {c.casefold() for c in classes if len(c) > 2}
    parts = words(name)
    called = _named_as(column_names().score, name) or column_names().score.fits("", ["_".join(words(name))])
    return called or (len(parts) > 1 and not folded.isdisjoint(parts))


def is_type(name: str, values: Floats) -> bool:
    """Say whether a column (n,) is a morphological type by its name, and holds stages of both signs, or codes."""
    known = _known(values)
    if not _named_as(column_names().morphological_type, name) or not _within(values, *STAGES):
        return False
    return bool(_whole(values) or (known.min() < 0 < known.max()))


def is_dust(column: Column, values: Floats) -> bool:
    """Say whether a column (n,) is called the Galaxy's extinction, and may be one."""
    return quality.about_dust(column) and _within(values, -1.0, MOST_REDDENING)


def is_of_the_observation(
    column: Column, values: Floats, rows: Mapping[str, Floats], columns: Mapping[str, Column]
) -> bool:
    """Say whether a column (n,) is about an observation: dates, conditions, depths, numbers of exposures.

    Ratios of signal to noise are of the photometry where they follow a magnitude or a flux of the table, or its error;
    others are measurements of the object.
    """
    called, name = column_names(), vector_name(column.name)
    ucd, parts = (column.ucd or "").lower(), [*words(name), "_".join(words(name))]
    if ucd.startswith(OBSERVING):
        return True
    if called.dates.fits(name, parts):
        return any(_within(values, *r) for r in DATE_RANGES)
    conditions = [c for c in called.conditions if c.fits(parts)]
    counted = called.exposures.fits(name, parts) and _whole(values)
    if counted or any(_within(values, c.low, c.high) for c in conditions):
        return True
    bands = (band_and_kind(text)[0] for text in (column.name, *(w.removesuffix("depth") for w in parts)))
    if called.depth.fits(name, parts) and any(bands):
        return True
    noisy = ucd.startswith("stat.snr") or called.signal_to_noise.fits(name, parts)
    return noisy and _follows_photometry(column.name, values, rows, columns)


def _follows_photometry(
    name: str, values: Floats, rows: Mapping[str, Floats], columns: Mapping[str, Column]
) -> bool:
    """Say whether a column (n,) has the order of a magnitude or a flux, or of an error of one."""
    others = [columns[n] for n in rows if n != name and n in columns]
    bright = [
        c.name
        for c in others
        if quality.about_a_flux(c)
        or quality.is_magnitude(c, rows[c.name])
        or (quality.about_an_error(c) and band_and_kind(c.name)[0] is not None)
    ]
    return any(same_order(values, rows[n], FEWEST_ROWS) > FOLLOWS for n in bright)


def same_order(x: Floats, y: Floats, fewest: float) -> float:
    """Return the size of the rank correlation of two columns (n,); 0 where fewer rows have both, or one is constant."""
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < fewest or np.ptp(x[both]) == 0 or np.ptp(y[both]) == 0:
        return 0.0
    return abs(float(np.corrcoef(mid_ranks(x[both]), mid_ranks(y[both]))[0, 1]))


def error_of(
    column: Column, values: Floats, rows: Mapping[str, Floats], columns: Mapping[str, Column]
) -> str | None:
    """Return the column whose error this column (n,) is, '' where that is not known; None where it is no error.

    A column is an error if its UCD says so; if its name says so and the table has the measured column; or if its name
    surely says so and its values follow the photometry.  An error of radii without the radii is a measurement.
    """
    name = vector_name(column.name)
    if (column.ucd or "").lower().startswith("stat.error"):
        return ""
    known = _known(values)
    # All of one sign, but for a few marks in place of errors, as SDSS's -1.
    if not known.size or min((known < 0).mean(), (known > 0).mean()) > FEW_MARKS:
        return None
    if column_names().position_error.fits(name, ["_".join(words(name))]):
        return ""
    without = _without_error_words(name)
    if not without:
        return None
    of = [n for n in map(vector_name, columns) if n != name and "".join(words(n)) in without]
    if of:
        return min(of)
    sure = _named_as(column_names().sure_error, name)
    return "" if sure and _follows_photometry(column.name, values, rows, columns) else None


def _without_error_words(name: str) -> set[str]:
    """Return a name without the words that mean error, in each way to read it; nothing where it has no such word."""
    parts, known = words(name), column_names().error_parts
    ways = {"".join(known.removed_pattern.sub("", w) for w in parts)}
    if parts and parts[0] in known.first_words:
        ways.add("".join(parts[1:]))
    if parts and parts[-1] in known.last_words:
        ways.add("".join(parts[:-1]))
    return ways - {"", "".join(parts)}


MISSING = 0.9  # share of missing values from which a column is left out
COMPARABLE = 0.1
"""Share of a class's rows in which a column is measured, from which it can be compared with other classes'."""
TURNED, BELOW = 100.0, -20.0
"""Degrees above or below which an angle is no inclination and no size, but a direction."""
ON_THE_SKY = "a place or a direction on the sky"


Reason = tuple[str, str]
"""Why a column is left out, and the kind that it is counted under."""


@dataclass(frozen=True)
class Evidence:
    """What is known of the columns beside their profile.

    `rows` are the numbers (n,) of the sampled rows that have a class, suspected sentinels made missing.
    """

    label: str
    rows: Mapping[str, Floats]
    # The class (n,) of each row.
    classes: NDArray[np.object_] = field(default_factory=lambda: np.empty(0, dtype=object))
    identifiers: Sequence[str] = ()
    ours: Collection[str] = ()
    alone: Mapping[str, Leak] = field(default_factory=dict)
    derived: Mapping[str, Leak] = field(default_factory=dict)
    gains: Mapping[str, float] = field(default_factory=dict)
    presence: Mapping[str, str] = field(default_factory=dict)
    # Columns that rows without a label lack, in a file that is to be classified.
    with_label: Collection[str] = ()
    duplicates: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, str] = field(default_factory=dict)
    # Columns of the number of votes of which the label is a fraction.
    totals: Collection[str] = ()
    # Coordinates, and angles of orientation.
    on_the_sky: Collection[str] = ()
    # Why a column is no feature, None where it may be one.
    against: Mapping[str, Reason | None] = field(default_factory=dict)

    def missing(self, names: Collection[str]) -> dict[str, float]:
        """Return the share of missing values of each column."""
        return {name: 1.0 - float(np.isfinite(self.rows[name]).mean()) for name in names}

    def gain(self, name: str) -> float:
        """Return the share of the information on the class that a column gives."""
        return max(0.0, self.gains.get(name, 0.0))


def reason_against(seen: Profile, name: str, evidence: Evidence) -> Reason | None:
    """Return why a column is no feature, None where it may be one."""
    return (
        _not_usable(seen, name, evidence)
        or _not_a_measurement(seen, name, evidence)
        or _made_with_the_class(seen, name, evidence)
        or _not_comparable(name, evidence)
    )


def _not_usable(seen: Profile, name: str, evidence: Evidence) -> Reason | None:
    c = seen.columns[name]
    known, odd = evidence.rows.get(name), not_numbers(seen, name)
    missing = 0.0 if known is None else 1.0 - float(np.isfinite(known).mean())
    unnamed = not name or bool(set("`\r\n") & set(name))
    reasons: dict[Reason, bool] = {
        ("of an earlier annotation",) * 2: name in evidence.ours,
        ("names the object", "names of objects"): name in evidence.identifiers,
        (f"missing in {missing:.0%} of the rows with a class", "empty"): missing > MISSING,
        ("without any value", "empty"): not c.is_number and not is_text(c.column.datatype),
        (ON_THE_SKY, "places on the sky"): name in evidence.on_the_sky,
        ("text" if odd is None else f"text: {odd}", "texts"): known is None and is_text(c.column.datatype),
        ("its name cannot be written in an expression", "unnamed"): unnamed,
        ("the same in every row", "constant"): c.constant,
        (f"the same as {evidence.duplicates.get(name)}", "copies"): name in evidence.duplicates,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _not_a_measurement(seen: Profile, name: str, evidence: Evidence) -> Reason | None:
    """Return why a column of numbers does not measure the object: it is an error, a flag, bookkeeping or dust."""
    column, values, rows = seen.columns[name].column, evidence.rows[name], evidence.rows
    columns, called = seen.described, column_names()
    whole = "yes or no: a flag or a selection" if is_yes_or_no(values) else "whole numbers: a flag or a code"
    of = error_of(column, values, rows, columns)
    limited = _limited(name, evidence)
    beside = _beside_a_coordinate(name, rows)
    dust = "dust of our Galaxy in front of the object: use it to correct fluxes, under [photometry]"
    flag = is_flag(name, values, column.description) and not quality.about_a_magnitude(column)
    for_bookkeeping = _named_as(called.bookkeeping, name) or called.bookkeeping_alone.fits(
        name, ["_".join(words(name))]
    )
    counted = for_bookkeeping and _whole(values) and not (column.unit or "").strip()
    reasons: dict[Reason, bool] = {
        (dust, "dust"): is_dust(column, values),
        ("an error" + (f" of {of}" if of else "") + ", not a measurement", "errors"): of is not None,
        ("about the observation",) * 2: is_of_the_observation(column, values, rows, columns),
        (f"a limit of {limited}, not a measurement", "errors"): limited is not None,
        (f"{ON_THE_SKY}, together with {beside}", "places on the sky"): beside is not None,
        (f"{whole}, by its name not a measurement", "flags and codes"): flag,
        ("whole numbers, with a name that is usual for bookkeeping", "bookkeeping"): counted,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def suspicion_of(seen: Profile, name: str, evidence: Evidence) -> str | None:
    """Return why a column that is kept may give the class away; None where nothing says so."""
    finding = []
    gain = evidence.gains.get(name, 0.0)
    if name in evidence.alone:
        finding.append(
            f"by itself it gives {gain:.0%} of the information on the class (suspicious from {ALONE:.0%} on)"
        )
    if name in evidence.presence:
        finding.append(evidence.presence[name])
    column = seen.columns[name].column
    if quality.about_the_distance(column) and not quality.is_magnitude(column, evidence.rows[name]):
        finding.append("a distance: leave it out if the target does not have it with the same quality")
    return "; ".join(finding) or None


def _beside_a_coordinate(name: str, rows: Mapping[str, Floats]) -> str | None:
    """Return the column that is the other coordinate of a position (`koi_fwm_sdec` of `koi_fwm_sra`), or None.

    Their names differ in this alone, and the values of both are possible ones.  Offsets, which are around zero, are
    no places.
    """
    pairs = ((name, f"{name[:-2]}{dec}") for dec in ("dec", "DEC", "Dec"))
    if name.lower().endswith("dec"):
        pairs = ((f"{name[:-3]}{ra}", name) for ra in ("ra", "RA", "Ra"))
    elif not name.lower().endswith("ra"):
        return None
    for ra, dec in pairs:
        if ra in rows and dec in rows:
            a, b = (rows[n][np.isfinite(rows[n])] for n in (ra, dec))
            if a.size and b.size and a.min() >= 0 and 1 < a.max() <= 360 and np.abs(b).max() <= 90:
                return dec if name == ra else ra
    return None


def _limited(name: str, evidence: Evidence) -> str | None:
    """Return the column whose interval a column ends (`age` of `age_lower` or `age_p84`), or None."""
    match = None if isinstance(name, Element) else column_names().limits.pattern.fullmatch(name)
    if match is None or match["of"] not in evidence.rows:
        return None
    values, of = evidence.rows[name], evidence.rows[match["of"]]
    both = np.isfinite(values) & np.isfinite(of)
    sides = ((values[both] >= of[both]), (values[both] <= of[both]))
    return match["of"] if both.any() and any(side.mean() > 0.98 for side in sides) else None


def on_the_sky(seen: Profile) -> set[str]:
    """Return the coordinates and angles of orientation; sizes and inclinations are in degrees too."""
    parts = quality.parts_of_positions(seen.columns)
    return {name for name in seen.columns if _is_on_the_sky(seen, name, parts)}


def _is_on_the_sky(seen: Profile, name: str, parts: Collection[str]) -> bool:
    c = seen.columns[name]
    ucd = (c.column.ucd or "").lower()
    if quality.about_the_distance(c.column) or ucd.startswith("phys.angsize"):
        return False
    if ucd.startswith("pos.") or (name in parts and quality.may_be_galactic(seen, name)):
        return True
    if is_position(replace(c.column, unit=None)):
        # Spectral indices are called alpha too, and are no right ascensions.
        together = {*column_names().positions.only_together}
        return name.lower() not in together or together <= {n.lower() for n in seen.columns}
    degrees = (c.column.unit or "").strip().lower() in {"deg", "degree", "degrees"}
    angle = degrees and c.is_number and (c.maximum > TURNED or c.minimum < BELOW)
    return angle or (is_text(c.column.datatype) and is_position(c.column))


def _made_with_the_class(seen: Profile, name: str, evidence: Evidence) -> Reason | None:
    """Return why a column was made with the class: it follows from it, or is another answer to the same question."""
    values, kind = evidence.rows[name], "others' answers"
    if name in evidence.alone and evidence.alone[name].combination:
        formula = evidence.alone[name].combination
        return (f"leak: it is {formula}, to rounding: the label in other numbers", "leaks")
    if (leak := evidence.derived.get(name)) is not None:
        rest, gives = ", ".join(c for c in leak.columns if c != name), f"{leak.combination} gives it away"
        return (f"leak: computed from {rest} by a formula that contains the class ({gives})", "leaks")
    shares = votes(name, seen.columns)
    whole = evidence.shares.get(name)
    scored = is_score(name, values, set(evidence.classes.tolist()))
    known = _known(values)
    counts = bool(known.size and known.min() >= 0 and (known.max() <= 1 or (known == np.trunc(known)).all()))
    voted = counts and column_names().votes.whole.fullmatch(name.lower()) is not None
    # Called as the label is, but for its end.
    ours, theirs = evidence.label.lower().split("_"), name.lower().split("_")
    asked = counts and len(ours) > 2 and all(a == b for a, b in zip(ours[:2], theirs, strict=False))
    reasons = {
        f"votes, as {shares}: an answer to a question about the object": shares is not None,
        f"the number of votes of which {evidence.label} is a fraction": name in evidence.totals,
        "votes: answers of people to a question about the object": voted,
        f"fractions that sum to one with {whole}: answers of people, or probabilities": whole is not None,
        "a score or a probability: the answer of another classifier": scored,
        "a morphological type: somebody's answer to a question about the object": is_type(name, values),
        f"named like {evidence.label}: an answer to the same question?": asked,
    }
    return next(((text, kind) for text, holds in reasons.items() if holds), None)


def _not_comparable(name: str, evidence: Evidence) -> Reason | None:
    """Return why nothing could be learned from a column: it has values in one class, or beside a label, alone."""
    if name in evidence.with_label:
        return ("rows without a label lack it, and they are to be classified", "measured with labels")
    if name not in evidence.presence:
        return None
    known, classes = np.isfinite(evidence.rows[name]), evidence.classes
    if sum(known[classes == c].mean() >= COMPARABLE for c in set(classes.tolist())) > 1:
        return None
    return (f"no two classes to compare; {evidence.presence[name]}", "measured for one class")


def reason_against_copy(seen: Profile, name: str, other: str) -> Reason | None:
    """Return why a column is no feature that orders the rows as another one does; None of two magnitudes or fluxes.

    Two kinds of magnitude order bright rows alike in some bands and not in others: each kind is taken whole, or not.
    """
    a, b = seen.columns[name].column, seen.columns[other].column
    if (quality.about_a_magnitude(a) and quality.about_a_magnitude(b)) or (
        quality.about_a_flux(a) and quality.about_a_flux(b)
    ):
        return None
    return (f"in the same order as {other}: adds no information", "copies")


def votes(name: str, names: Collection[str]) -> str | None:
    """Return another column of the same votes, their counts or their other shares, or None."""
    endings = column_names().votes
    match = endings.pattern.fullmatch(name.lower())
    if match is None:
        return None
    known = {n.lower(): n for n in names}
    others = [f"{match['stem']}_{kind}" for kind in endings.others if kind != match["kind"]]
    return next((known[other] for other in others if other in known), None)
