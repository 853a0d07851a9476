"""Why a column is no feature of a first specification."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow.types as pt
from numpy.typing import NDArray

from blr.ranks import mid_ranks
from catalogs.elements import Element
from catalogs.leaks import ALONE, Leak
from catalogs.positions import is_position
from catalogs.presence import Presence
from catalogs.profile import Profile
from catalogs.subjects import (
    about_a_flux,
    about_a_magnitude,
    about_an_error,
    about_dust,
    about_the_distance,
    about_the_observation,
)
from catalogs.suspicions import bookkeeping, not_numbers
from catalogs.values import is_text
from flows.starting_bands import is_magnitude

__all__ = [
    "Evidence",
    "Reason",
    "near_copies",
    "reason_against",
    "same_question",
    "vector_name",
    "votes",
]

Floats = NDArray[np.float64]

MISSING = 0.9
"""Share of missing values from which a column is left out."""
TELLS = 0.1
"""Share of the class's entropy from which bookkeeping is worth a warning."""
SAME_ORDER = 0.9995
"""Rank correlation from which one of two columns says nothing new: a velocity of recession and its redshift."""
LARGEST = 5.0
"""Degrees: what is never larger is a size, not a place."""
MOST_COMPARED, ROWS_COMPARED = 60, 2000
TYPE = re.compile(r"t|tt|t[_-]?type|(hyper)?leda_t|(.*_)?(morph|hubble)_?(t|type|class|stage|code)(_.*)?")
LIMIT = re.compile(
    r"(?P<of>.+?)[_-]?(inf|sup|low(er)?|upp(er)?|lo|hi|high|min|max|plus|minus|[lup]_?(16|68|84|95))",
    re.IGNORECASE,
)
VOTES = re.compile(r"(?P<stem>.+)_(?P<kind>counts?|votes?|debiased|fraction|weighted_fraction|weight)")


@dataclass(frozen=True)
class Reason:
    """Why a column is left out; `doubt` where a person may well decide otherwise, 1 being the most likely."""

    text: str
    doubt: int = 0

    def __str__(self) -> str:
        """Return the text."""
        return self.text


@dataclass(frozen=True)
class Evidence:
    """What is known of the columns beside their profile.

    `rows` are the numbers (n,) of the sampled rows that have a class, suspected sentinels made missing.
    """

    label: str
    rows: Mapping[str, Floats]
    identifiers: Sequence[str] = ()
    ours: Collection[str] = ()
    alone: Mapping[str, Leak] = field(default_factory=dict)
    derived: Mapping[str, Leak] = field(default_factory=dict)
    leaks: Sequence[Leak] = ()
    gains: Mapping[str, float] = field(default_factory=dict)
    presence: Mapping[str, Presence] = field(default_factory=dict)
    duplicates: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, str] = field(default_factory=dict)


def reason_against(seen: Profile, name: str, evidence: Evidence) -> Reason | None:
    """Return why a column is no feature, None where it may be one."""
    return _useless(seen, name, evidence) or _telling(seen, name, evidence) or _doubtful(seen, name, evidence)


def _useless(seen: Profile, name: str, evidence: Evidence) -> Reason | None:
    """Return why a column is no measurement of the object at all."""
    c = seen.columns[name]
    known = evidence.rows.get(name)
    missing = 0.0 if known is None else 1.0 - float(np.isfinite(known).mean())
    reasons: dict[str, Any] = {
        "of an earlier annotation": name in evidence.ours,
        "names the object": name in evidence.identifiers,
        f"missing in {missing:.0%} of the rows with a class": missing > MISSING,
        "without any value": not c.is_number and not is_text(c.column.datatype),
        "a place or a direction on the sky": _on_the_sky(seen, name),
        _text_reason(seen, name): known is None and is_text(c.column.datatype),
        "the Galaxy's dust before it: correct fluxes with it, under [photometry]": about_dust(c.column),
        "about the observation": about_the_observation(c.column),
        "an error, not a measurement": about_an_error(c.column),
        "without a name that an expression could hold": not name or "`" in name,
        "the same in every row": c.constant,
        f"the same as {evidence.duplicates.get(name)}": name in evidence.duplicates,
        f"a limit of {_limited(seen, name)}, not a measurement": _limited(seen, name) is not None,
        "yes or no: a flag, not a measurement": pt.is_boolean(c.column.datatype),
    }
    found = next((reason for reason, holds in reasons.items() if holds), None)
    return None if found is None else Reason(found)


def _limited(seen: Profile, name: str) -> str | None:
    """Return the column of which another is an end of its interval, as `age_lower` or `age_p84`; None of others."""
    found = None if isinstance(name, Element) else LIMIT.fullmatch(name)
    return found["of"] if found is not None and found["of"] in seen.columns else None


def _text_reason(seen: Profile, name: str) -> str:
    odd = not_numbers(seen, name)
    return "text" if odd is None else f"text: {odd}"


def _on_the_sky(seen: Profile, name: str) -> bool:
    """Say whether a column is a coordinate or an angle of orientation; sizes may be in degrees too."""
    c = seen.columns[name]
    ucd = (c.column.ucd or "").lower()
    size = ucd.startswith("phys.angsize") or (c.is_number and c.minimum >= 0 and c.maximum < LARGEST)
    distance = about_the_distance(c.column)
    return not distance and (
        ucd.startswith("pos.") or is_position(replace(c.column, unit=None if size else c.column.unit))
    )


def _telling(seen: Profile, name: str, evidence: Evidence) -> Reason | None:
    """Return why a column gives the class away."""
    if name in evidence.alone:
        gain = evidence.alone[name].gain
        told = f"leak: by itself it tells {gain:.0%} of the class (suspected from {ALONE:.0%})"
        return Reason(told + (f"; {evidence.presence[name].shown}" if name in evidence.presence else ""))
    if name in evidence.derived:
        leak = evidence.derived[name]
        rest = ", ".join(c for c in leak.columns if c != name)
        return Reason(
            f"leak: computed from {rest} with the class in the formula ({leak.combination} tells it)"
        )
    if (answer := _answered(seen, name, evidence)) is not None:
        return answer
    if about_the_distance(seen.columns[name].column) and not is_magnitude(
        seen.columns[name].column, evidence.rows[name]
    ):
        return Reason("a distance: objects were selected by it; a feature where the target knows it alike", 3)
    return None


def _answered(seen: Profile, name: str, evidence: Evidence) -> Reason | None:
    """Return why a column is somebody's answer to a question about the object, as the label is."""
    if shares := votes(name, seen.columns):
        return Reason(f"votes, as {shares}: an answer to a question about the object")
    if name in evidence.shares:
        return Reason(
            f"a share of one whole, as {evidence.shares[name]}: somebody's answer, or a probability of it", 1
        )
    if TYPE.fullmatch(name.lower()):
        return Reason("a morphological type: somebody's answer to a question about the object", 1)
    if same_question(evidence.label, name):
        return Reason(f"named like {evidence.label}: an answer to the same question?")
    return None


def _doubtful(seen: Profile, name: str, evidence: Evidence) -> Reason | None:
    """Return why a column is better left out, though a person may know better."""
    if name in evidence.presence:
        return Reason(f"selection-like: {evidence.presence[name].shown}", 1)
    if name in evidence.copies and not _bands_alike(seen, name, evidence.copies[name]):
        return Reason(f"in the same order as {evidence.copies[name]}: says nothing new")
    if bookkeeping(seen, name):
        told = max(0.0, evidence.gains.get(name, 0.0))
        text = "whole numbers without a unit: bookkeeping, or a code"
        return Reason(
            text + (f"; selection-like, it tells {told:.0%} of the class" if told > TELLS else ""), 2
        )
    return None


def _bands_alike(seen: Profile, name: str, other: str) -> bool:
    """Say whether two columns are both magnitudes, or both fluxes.

    Two kinds of magnitude order bright rows alike in some bands and not in others: each kind is taken whole, or not.
    """
    a, b = seen.columns[name].column, seen.columns[other].column
    return (about_a_magnitude(a) and about_a_magnitude(b)) or (about_a_flux(a) and about_a_flux(b))


def same_question(label: str, name: str) -> bool:
    """Say whether a column is called as the label is, but for its end: another answer to the same question."""
    ours, theirs = label.lower().split("_"), name.lower().split("_")
    shared = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(ours))
    return len(ours) > 2 and shared >= 2


def votes(name: str, names: Collection[str]) -> str | None:
    """Return the column beside which a column is of votes, its counts or its other shares; None where it is none."""
    found = VOTES.fullmatch(name.lower())
    if found is None:
        return None
    kinds = ("count", "votes", "vote", "debiased", "fraction", "weighted_fraction", "weight")
    known = {n.lower(): n for n in names}
    others = [f"{found['stem']}_{kind}" for kind in kinds if kind != found["kind"]]
    return next((known[other] for other in others if other in known), None)


def vector_name(name: str) -> str:
    """Return the name of the column that an element is of, or the column's own."""
    return name.vector if isinstance(name, Element) else name


def near_copies(rows: Mapping[str, Floats], names: Sequence[str]) -> dict[str, str]:
    """Return the columns (n,) that order the rows as an earlier one does, each with that one."""
    ranked: dict[str, Floats] = {}
    found: dict[str, str] = {}
    for name in names[:MOST_COMPARED]:
        x = rows[name][:ROWS_COMPARED]
        for other, y in ranked.items():
            both = np.isfinite(x) & np.isfinite(y)
            if (
                both.sum() >= 50
                and both.sum() >= 0.9 * np.isfinite(x).sum()
                and _same_order(x[both], y[both])
            ):
                found[name] = other
                break
        else:
            ranked[name] = x
    return found


def _same_order(x: Floats, y: Floats) -> bool:
    if x.std() == 0 or y.std() == 0:
        return False
    a, b = mid_ranks(x), mid_ranks(y)
    return abs(float(np.corrcoef(a, b)[0, 1])) > SAME_ORDER
