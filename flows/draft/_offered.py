"""Lines for columns that are left out and tell the class: texts of few values, flags and codes, others' answers.

They stand in comments, ready to be used: a person knows whether the target has these columns made in the same way.
Shapes: n rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.arrays.texts import stripped_texts
from catalogs.catalog.catalog import Element
from catalogs.profile.columns import Profile
from flows.draft._columns import Chosen, Offered
from flows.draft._exclusions import Evidence
from flows.draft._expressions import quoted
from flows.draft._presence_features import telling

__all__ = ["offered"]

TELLS = 0.05
"""Share of the information on the class from which a column is offered."""
KINDS = frozenset({"texts", "flags and codes", "others' answers"})
MOST_VALUES = 12
"""Different values of a column, each of which may be a feature."""
LONGEST = 40
"""Characters of such a text."""


def offered(seen: Profile, evidence: Evidence, labelled: NDArray[np.bool_], chosen: Chosen) -> list[Offered]:
    """Return what is offered of the columns left out, those that tell most first.

    `labelled` are the chosen rows (n,) that have a class.
    """
    some = []
    for name, kind in chosen.kinds.items():
        gain = evidence.gains.get(name, 0.0)
        if kind in KINDS and gain >= TELLS and not isinstance(name, Element):
            features = _features(name, seen.chosen[name][labelled], evidence)
            some += [Offered(name, gain, features)] if features else []
    return sorted(some, key=lambda offer: -offer.gain)


def _features(name: str, values: Any, evidence: Evidence) -> dict[str, str]:
    """Return expressions: the column itself where it has many numbers or is yes or no, else one for each value."""
    if name in evidence.rows:
        numbers = evidence.rows[name]
        known = np.unique(numbers[np.isfinite(numbers)])
        if not 2 < len(known) <= MOST_VALUES or (known != np.trunc(known)).any():
            return {_word(name): quoted(name)}
        where = {f"{value:g}": numbers == value for value in known}
        return {_word(f"{name}_{v}"): f"{quoted(name)} == {v}" for v in _those_that_tell(where, evidence)}
    texts = np.array(stripped_texts(values), dtype=object)
    distinct = sorted(set(texts.tolist()) - {""})
    if not 1 < len(distinct) <= MOST_VALUES or max(map(len, distinct)) > LONGEST:
        return {}
    where = {text: np.asarray(texts == text) for text in distinct if _can_be_quoted(text)}
    return {_word(f"{name}_{t}"): f"{quoted(name)} == '{t}'" for t in _those_that_tell(where, evidence)}


def _those_that_tell(where: dict[str, NDArray[np.bool_]], evidence: Evidence) -> list[str]:
    """Return the values whose rows (n,) tell the class; of two one, since the other one says the same."""
    found = telling(where, evidence.classes)
    opposite = len(found) == 2 and bool((where[found[0]] ^ where[found[1]]).all())
    return found[:1] if opposite else found


def _can_be_quoted(text: str) -> bool:
    return text.isprintable() and not set(text) & {"'", "\\"}


def _word(text: str) -> str:
    return "_".join("".join(c if c.isalnum() else " " for c in text.lower()).split()) or "feature"
