"""Text columns that are columns of numbers but for a few texts, as '-' in a CSV file, or a row of units."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa

from catalogs.arrays.text_numbers import numbers_of, words_of
from catalogs.arrays.unique_texts import stripped_texts
from catalogs.arrays.values import is_text
from catalogs.column_names import column_names
from catalogs.errors import brief
from catalogs.profile.columns import ColumnProfile, Profile
from catalogs.sky.positions import is_position

__all__ = ["ANOTHER_NOTATION", "as_number_column", "not_numbers", "suspected_texts", "unread_numbers"]

ANOTHER_NOTATION = "numbers in another notation"
"""Words of `unread_numbers` for texts such as 18,179 that are numbers to people but cannot be read as such."""
FEWEST = 2
"""Rows with a text from which it may be a mark."""
FEW_ODD = 0.05
"""Share of a column's texts that a row of units, or a mark, may be."""
MOST_TEXTS = 3
"""Different texts among numbers, above which the column is one of texts."""


def as_number_column(profile: Profile, name: str) -> Profile:
    """Return the profile with a text column as one of its numbers, where all other texts stand for no value.

    Its counts are then those of the sample.
    """
    if not suspected_texts(profile, name):
        return profile
    numbers = numbers_of(words_of(profile.sample[name]))
    counts = ColumnProfile(replace(profile.columns[name].column, datatype=pa.float64()))
    counts.add(np.where(np.isfinite(numbers), numbers, np.nan))
    return replace(
        profile,
        columns={**profile.columns, name: counts},
        sample={**profile.sample, name: numbers},
    )


def suspected_texts(profile: Profile, name: str) -> dict[str, int]:
    """Return the texts, with their rows, that stand for no value in a text column of numbers: '-' in a CSV file.

    None of a column whose texts are all numbers, which are codes.  Where the sample is not all there is, only those
    that catalogues are known to write: an unknown one that it lacks would make the column one of texts again.
    """
    column = profile.columns[name]
    if not is_text(column.column.datatype) or is_position(column.column):
        return {}
    counts = Counter(text for text in stripped_texts(profile.sample[name]) if text)
    odd = {text: n for text, n in sorted(counts.items()) if _number(text) is None}
    numbers = counts.total() - sum(odd.values())
    if len(profile.sample[name]) < profile.n_rows and not all(
        map(column_names().sentinels.text.fullmatch, odd)
    ):
        return {}
    few = 0 < len(odd) <= MOST_TEXTS and all(n >= FEWEST for n in odd.values())
    return odd if few and numbers > sum(odd.values()) else {}


def not_numbers(profile: Profile, name: str) -> str | None:
    """Return what keeps a text column from being one of numbers, in words: a row of units, Fortran's exponents.

    None of a column of which most texts are neither numbers nor numbers written otherwise.
    """
    words, odd = _odd_texts(profile, name)
    shown = ", ".join(f"'{brief(text)}'" for text, _ in odd.most_common(MOST_TEXTS))
    if odd and sum(odd.values()) < 0.5 * len(words):
        return f"{len(words) - sum(odd.values()):,} of {len(words):,} texts are numbers, but not {shown}"
    if odd and all(map(_number_written_otherwise, odd)):
        return f"{shown}: {ANOTHER_NOTATION}, expected one such as 1234.5 or 1.2345e3; convert them"
    return None


def unread_numbers(profile: Profile, name: str) -> bool:
    """Say whether a text column is one of numbers but for a few rows, or for how they are written."""
    words, odd = _odd_texts(profile, name)
    few = sum(odd.values()) <= FEW_ODD * len(words)
    return bool(odd) and (few or all(map(_number_written_otherwise, odd)))


def _odd_texts(profile: Profile, name: str) -> tuple[list[str], Counter[str]]:
    """Return the texts of a column of texts, and those that are no numbers with their rows; none of other columns."""
    if not is_text(profile.columns[name].column.datatype):
        return [], Counter()
    words = [text for text in stripped_texts(profile.sample[name]) if text]
    return words, Counter(text for text in words if _number(text) is None)


def _number_written_otherwise(text: str) -> bool:
    return _number(re.sub(r"[dD](?=[+-]?\d+$)", "e", text).replace(",", "")) is not None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
