"""Columns that give the class away: the sets of columns that are tried, and the leaks among them."""

from __future__ import annotations

from typing import Any

import numpy as np

from catalogs.catalog.catalog import Catalog
from catalogs.profile.columns import Profile, as_numbers, suspected_texts
from catalogs.profile.leaks import Leak, copies_of_label, find_leaks, label_numbers
from catalogs.profile.quality import (
    about_a_flux,
    about_an_error,
    about_the_observation,
    bookkeeping,
    suspected_identifiers,
    suspected_sentinels,
)
from catalogs.sky.positions import find_position_columns
from flows.features.reader import apply_sentinels

MOST_SETS = 12
"""Sets of columns that are shown, those that tell the most first."""


def found_leaks(
    catalog: Catalog, seen: Profile, label: str, labels: Any
) -> tuple[list[Leak], dict[str, float]]:
    """Return the leaks of a class, `labels` of the chosen rows from the column `label`, and every column's gain.

    A column that is a linear function of the label, to rounding, comes first, with its formula, and is in no set.
    Names and places of objects are in no set: what they tell is where the survey looked.  Nor are errors, and what
    else belongs to the observation: the error of a magnitude follows from it, so that with another magnitude it makes
    a colour, which would be taken for a formula with the class in it.
    """
    place = find_position_columns(catalog) or ()
    names = [name for name, _ in suspected_identifiers(seen)]
    columns = {n: without_sentinels(seen, n) for n in seen.chosen if n != label}
    copies = _copies(columns, seen, label, labels)
    measured = [n for n in columns if n not in (*place, *names, *copies) and _is_measured(seen, n)]
    fluxes = [n for n in measured if about_a_flux(seen.columns[n].column)]
    leaks, gains = find_leaks(columns, labels, together=measured, fluxes=fluxes)
    alone = [Leak((name,), 1.0, 1.0, formula) for name, formula in copies.items()]
    alone += [leak for leak in leaks if len(leak.columns) == 1 and leak.columns[0] not in copies]
    derived = [leak for leak in leaks if leak.derived]
    rest = [leak for leak in leaks if len(leak.columns) > 1 and not leak.derived]
    return [*alone, *derived, *rest][: len(alone) + max(MOST_SETS, len(derived))], gains


def _copies(
    columns: dict[str, np.ndarray[Any, Any]], seen: Profile, label: str, labels: Any
) -> dict[str, str]:
    """Return the columns that are the label in other numbers, in the rows with a class."""
    if label not in seen.chosen:  # of a label in a table of its own, or of votes
        return {}
    here = labels != ""
    return copies_of_label(
        {n: v[here] for n, v in columns.items()}, label, label_numbers(seen.chosen[label][here])
    )


def _is_measured(seen: Profile, name: str) -> bool:
    column = seen.columns[name].column
    return not (bookkeeping(seen, name) or about_an_error(column) or about_the_observation(column))


def without_sentinels(seen: Profile, name: str) -> Any:
    """Return a column of the chosen rows with its suspected sentinels missing."""
    values = seen.chosen[name]
    if texts := suspected_texts(seen, name):
        values = apply_sentinels(values, tuple(texts))
    marks = [s.value for s in suspected_sentinels(seen, name)]
    if not marks or values.dtype.kind not in "biuf":
        return values
    numbers = as_numbers(values)
    with np.errstate(over="ignore"):
        single = [mark for mark in marks if not isinstance(mark, str)]
        is_sentinel = np.isin(numbers.astype(np.float32), np.array(single, dtype=np.float32))
    ranges = [mark for mark in marks if isinstance(mark, str)]
    return apply_sentinels(np.where(is_sentinel, np.nan, numbers), ranges)
