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
    copies: dict[str, str] = {}  # the label in other numbers, unless it is in a table of its own, or votes
    if label in seen.chosen:
        here = labels != ""
        numbers = label_numbers(seen.chosen[label][here])
        copies = copies_of_label({n: v[here] for n, v in columns.items()}, label, numbers)
    measured = []
    for name in columns:
        column = seen.columns[name].column
        of_the_survey = bookkeeping(seen, name) or about_an_error(column) or about_the_observation(column)
        if name not in (*place, *names, *copies) and not of_the_survey:
            measured.append(name)
    fluxes = [n for n in measured if about_a_flux(seen.columns[n].column)]
    leaks, gains = find_leaks(columns, labels, together=measured, fluxes=fluxes)
    alone = [Leak((name,), 1.0, 1.0, formula) for name, formula in copies.items()]
    alone += [leak for leak in leaks if len(leak.columns) == 1 and leak.columns[0] not in copies]
    derived = [leak for leak in leaks if leak.derived]
    rest = [leak for leak in leaks if len(leak.columns) > 1 and not leak.derived]
    return [*alone, *derived, *rest][: len(alone) + max(MOST_SETS, len(derived))], gains


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
