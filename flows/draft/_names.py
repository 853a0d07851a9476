"""The meaning of a column by its name, where its values agree: an error, a flag, a score, the observation.

Names are those of `catalogs/column_names.toml`.  A name alone is not enough: 'depth' may be a survey's limiting
magnitude or that of a planet's transit, and 'sn' may be a supernova. Where name and values disagree, the column counts
as a measurement.
Shapes: n rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from blr.arrays import mid_ranks
from catalogs.arrays.texts import name_words
from catalogs.catalog.catalog import Column, Element
from catalogs.column_names import Naming, column_names
from catalogs.profile.quality import about_a_flux, about_an_error, about_dust
from flows.draft._bands import band_and_kind, is_magnitude

__all__ = [
    "error_of",
    "is_bookkeeping",
    "is_dust",
    "is_flag",
    "is_limit_of",
    "is_of_the_observation",
    "is_score",
    "is_type",
    "is_yes_or_no",
    "vector_name",
]

Floats = NDArray[np.float64]

DATE_RANGES = ((15_000, 110_000), (2_300_000, 2_600_000), (1800, 2200))
"""Modified Julian dates, Julian dates, years."""
FOLLOWS = 0.5
"""Rank correlation with a magnitude, a flux or an error from which a ratio of signal to noise is of that."""
FEW_MARKS = 0.1
"""Share of the values of an error that may be marks for none."""
OBSERVING = ("obs.", "instr.", "time.epoch", "time.start", "time.end", "meta.")
STAGES = (-12.0, 14.0)
"""Numerical Hubble stages, and marks a little beyond."""
MOST_REDDENING = 60.0


def words(name: str) -> list[str]:
    """Return the words of a column's name, of an element those of its vector."""
    return name_words(vector_name(name))


def vector_name(name: str) -> str:
    """Return the name of the column that an element is of, or the column's own."""
    return name.vector if isinstance(name, Element) else name


def _called(role: Naming, name: str) -> bool:
    return role.named(vector_name(name)) or role.fits(name, words(name))


def _joined(name: str) -> str:
    return "_".join(words(name))


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
    """Say whether whole numbers (n,) are called a flag, a quality or a class, or yes and no a selection.

    What is yes or no and called neither so, nor described as a flag, is a measurement: `has_dust`.
    """
    called = column_names()
    if not _whole(values):
        return False
    if any(_called(role, name) for role in (called.flag, called.code)):
        return True
    said = name_words(description or "")
    return is_yes_or_no(values) and (_called(called.yes_or_no, name) or called.flag.fits("", said))


def is_bookkeeping(column: Column, values: Floats) -> bool:
    """Say whether whole numbers (n,) without a unit are called a plate, a field, an index or the like."""
    if not _whole(values) or (column.unit or "").strip():
        return False
    alone = column_names().bookkeeping_alone
    return _called(column_names().bookkeeping, column.name) or alone.fits(column.name, [_joined(column.name)])


def is_score(name: str, values: Floats, classes: Collection[str] = ()) -> bool:
    """Say whether a share (n,) is called a score, a probability or a class: another classifier's answer."""
    known = _known(values)
    if not known.size or known.min() < 0 or known.max() > 100 or (known.max() > 1 and known.max() <= 50):
        return False
    if _whole(values):
        return False
    folded = {c.casefold() for c in classes if len(c) > 2}
    parts = words(name)
    called = _called(column_names().score, name) or column_names().score.fits("", [_joined(name)])
    return called or (len(parts) > 1 and not folded.isdisjoint(parts))


def is_type(name: str, values: Floats) -> bool:
    """Say whether a column (n,) is called a morphological type, and holds numerical stages of both signs, or codes."""
    known = _known(values)
    if not _called(column_names().morphological_type, name) or not _within(values, *STAGES):
        return False
    return bool(_whole(values) or (known.min() < 0 < known.max()))


def is_dust(column: Column, values: Floats) -> bool:
    """Say whether a column (n,) is called the Galaxy's extinction, and may be one."""
    return about_dust(column) and _within(values, -1.0, MOST_REDDENING)


def is_of_the_observation(
    column: Column, values: Floats, rows: Mapping[str, Floats], columns: Mapping[str, Column]
) -> bool:
    """Say whether a column (n,) is about an observation: dates, conditions, depths, numbers of exposures.

    Ratios of signal to noise are of the photometry where they follow a magnitude or a flux of the table, or its error;
    others are measurements of the object.
    """
    called, name = column_names(), vector_name(column.name)
    ucd, parts = (column.ucd or "").lower(), [*words(name), _joined(name)]
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
        if about_a_flux(c)
        or is_magnitude(c, rows[c.name])
        or (about_an_error(c) and band_and_kind(c.name)[0] is not None)
    ]
    return any(_follows(values, rows[n]) for n in bright)


def _follows(x: Floats, y: Floats) -> bool:
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < 20 or np.ptp(x[both]) == 0 or np.ptp(y[both]) == 0:
        return False
    return abs(float(np.corrcoef(mid_ranks(x[both]), mid_ranks(y[both]))[0, 1])) > FOLLOWS


def is_limit_of(values: Floats, of: Floats) -> bool:
    """Say whether a column (n,) is never on the other side of another: an end of its interval."""
    both = np.isfinite(values) & np.isfinite(of)
    if not both.any():
        return False
    above = values[both] >= of[both]
    return bool(above.mean() > 0.98 or (values[both] <= of[both]).mean() > 0.98)


def error_of(
    column: Column, values: Floats, rows: Mapping[str, Floats], columns: Mapping[str, Column]
) -> str | None:
    """Return the column that a column (n,) is the error of, '' where that is not known; None of what is no error.

    It is one by its UCD; by its name, where what it is of is in the table; or where it surely says so and
    follows the photometry.  The errors of radii that a table without the radii has are measurements.
    """
    name = vector_name(column.name)
    if (column.ucd or "").lower().startswith("stat.error"):
        return ""
    known = _known(values)
    known = known[~_few_marks(known)]
    if not known.size or (known.min() < 0 < known.max()):
        return None
    if column_names().position_error.fits(name, [_joined(name)]):
        return ""
    without = _without_error_words(name)
    if not without:
        return None
    of = [n for n in map(vector_name, columns) if n != name and "".join(words(n)) in without]
    if of:
        return min(of)
    sure = _called(column_names().sure_error, name)
    return "" if sure and _follows_photometry(column.name, values, rows, columns) else None


def _few_marks(known: Floats) -> NDArray[np.bool_]:
    """Return which values (n,) are negative marks in place of errors, as SDSS's -1; none where they are many."""
    marks = np.array([mark for mark in column_names().sentinels.numbers if mark < 0])
    marked = np.isin(known.astype(np.float32), marks.astype(np.float32))
    return marked if marked.mean() <= FEW_MARKS else np.zeros(len(known), dtype=bool)


def _without_error_words(name: str) -> set[str]:
    """Return what a name is without the words that say error, in the ways to read it; nothing of other names."""
    parts, known = words(name), column_names().error_parts
    ways = {"".join(known.removed_pattern.sub("", w) for w in parts)}
    if parts and parts[0] in known.first_words:
        ways.add("".join(parts[1:]))
    if parts and parts[-1] in known.last_words:
        ways.add("".join(parts[:-1]))
    return ways - {"", "".join(parts)}
