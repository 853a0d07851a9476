"""What a first specification makes of a catalogue's columns: features of some, and a reason for each that is left out.

Magnitudes become colours and one magnitude; sizes a ratio and a logarithm; other numbers are taken as they are, or
as logarithms where they span decades.  Names, places, errors, bookkeeping and leaks stay out.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow.types as pt

from catalogs.catalog import Column
from catalogs.expression_functions import FUNCTIONS
from catalogs.leaks import ALONE, Leak, Scaled
from catalogs.positions import is_position
from catalogs.profile import Profile
from catalogs.suspicions import bookkeeping
from catalogs.values import is_text

__all__ = ["Chosen", "choose_columns", "quoted"]

MOST_FEATURES = 10
"""More would make a first training slow; the others are listed."""
MISSING = 0.9
"""Share of missing values from which a column is left out."""
TELLS = 0.1
"""Share of the class's entropy from which bookkeeping is worth a warning."""

MAGNITUDE = re.compile(
    r"(^|[^a-z])(mag|m_)|mag([^a-z]|$)|^(petro|model|psf|kron|cmodel|auto)mag", re.IGNORECASE
)
BAND = re.compile(r"^([ubvrigzyjhk]|ks|w[1-4]|nuv|fuv)$", re.IGNORECASE)
ERROR = re.compile(r"(^e_|^err|^sigma|_err$|err$|_error$|_sigma$|_unc$|_ivar$|^s_)", re.IGNORECASE)
RADII = frozenset({"deg", "arcmin", "arcsec", "arcmin/pixel", "pixel", "pix"})


@dataclass
class Chosen:
    """Features in order, each an expression with a remark, and the columns that are left out, each with a reason."""

    features: dict[str, tuple[str, str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    spare: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, expression: str, remark: str = "") -> None:
        """Add a feature, or keep it as a spare one where there are enough."""
        word = re.sub(r"\W+", "_", name.lower()).strip("_") or "feature"
        while word in self.features or word in self.spare:
            word += "_"
        if len(self.features) < MOST_FEATURES:
            self.features[word] = (expression, remark)
        else:
            self.spare[word] = expression


def quoted(name: str) -> str:
    """Return a column's name as expressions have it."""
    plain = re.fullmatch(r"[A-Za-z_]\w*", name) and not keyword.iskeyword(name) and name not in FUNCTIONS
    return name if plain else f"`{name}`"


def choose_columns(
    seen: Profile,
    *,
    label: str,
    identifiers: Sequence[str],
    leaks: Sequence[Leak],
    derived: Mapping[str, Leak],
    gains: Mapping[str, float],
) -> Chosen:
    """Return the features and what is left out."""
    chosen = Chosen()
    alone = {leak.columns[0]: leak for leak in leaks if len(leak.columns) == 1}
    duplicates = {name: group[0] for group in seen.duplicate_columns() for name in group[1:]}
    magnitudes, others = [], []
    for name, c in seen.columns.items():
        if name == label:
            continue
        reason = _reason(seen, name, identifiers, duplicates) or _leak_reason(name, alone, derived)
        if reason is None and bookkeeping(seen, name):
            told = max(0.0, gains.get(name, 0.0))
            reason = "whole numbers without a unit: bookkeeping, or a code"
            if told > TELLS:
                reason += f"; selection-like, it tells {told:.0%} of the class"
        if reason is not None:
            chosen.left_out[name] = reason
        elif _is_magnitude(c.column, seen):
            magnitudes.append(name)
        else:
            others.append(name)
    _add_colours(chosen, seen, magnitudes)
    _add_others(chosen, seen, others, gains)
    _note_errors(chosen, seen)
    return chosen


def _reason(
    seen: Profile, name: str, identifiers: Sequence[str], duplicates: Mapping[str, str]
) -> str | None:
    """Return why a column is no feature whatever it tells, None where it may be one."""
    c = seen.columns[name]
    reasons = {
        "names the object": name in identifiers,
        "a place on the sky": is_position(c.column) or (c.column.ucd or "").startswith("pos."),
        "text": is_text(c.column.datatype),
        "without any value": not c.is_number,
        "the same in every row": c.constant,
        f"the same as {duplicates.get(name)}": name in duplicates,
        f"missing in {c.missing_share:.0%} of the rows": c.missing_share > MISSING,
        "an error, not a measurement": is_error(c.column),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _leak_reason(name: str, alone: Mapping[str, Leak], derived: Mapping[str, Leak]) -> str | None:
    if name in alone:
        return f"leak: by itself it tells {alone[name].gain:.0%} of the class (suspected from {ALONE:.0%})"
    if name in derived:
        leak = derived[name]
        rest = ", ".join(c for c in leak.columns if c != name)
        return f"leak: computed from {rest} with the class in the formula ({leak.combination} tells it)"
    return None


def is_error(column: Column) -> bool:
    """Say whether a column holds errors."""
    return (column.ucd or "").startswith("stat.error") or bool(ERROR.search(column.name))


def _is_magnitude(column: Column, seen: Profile) -> bool:
    if not pt.is_floating(column.datatype):
        return False
    c = seen.columns[column.name]
    in_range = (c.minimum > -5 and c.maximum < 60) or bool(c.marks)
    ucd, unit = (column.ucd or "").lower(), (column.unit or "").lower()
    said = ucd.startswith("phot.mag") or unit == "mag" or bool(MAGNITUDE.search(column.name))
    return in_range and (said or (unit == "" and bool(BAND.match(column.name))))


def _add_colours(chosen: Chosen, seen: Profile, names: Sequence[str]) -> None:
    """Add the differences of neighbouring magnitudes, and the one that is missing least."""
    for first, second in pairwise(names):
        chosen.add(f"{first}_{second}", f"{quoted(first)} - {quoted(second)}", "colour")
    if names:
        best = min(names, key=lambda n: seen.columns[n].missing)
        chosen.add(best, quoted(best), "apparent: leave it out where the target catalogue goes deeper")


def _add_others(chosen: Chosen, seen: Profile, names: Sequence[str], gains: Mapping[str, float]) -> None:
    """Add ratios of columns of a kind, logarithms, and the rest, those that tell most by themselves first."""
    left = sorted(names, key=lambda n: -round(gains.get(n, 0.0), 2))
    logs = {n for n in left for s in [Scaled.of(n, seen.numbers(n))] if s is not None and s.log}
    for smaller, larger in _nested(seen, [n for n in names if n in logs]):
        if smaller in left and larger in left:
            chosen.add(f"{smaller}_{larger}", f"{quoted(smaller)} / {quoted(larger)}", "ratio")
            chosen.add(f"log_{larger}", f"log10({quoted(larger)})", "size")
            left = [n for n in left if n not in (smaller, larger)]
    for name in left:
        logarithm = name in logs
        chosen.add(
            f"log_{name}" if logarithm else name,
            f"log10({quoted(name)})" if logarithm else quoted(name),
            "spans decades" if logarithm else "",
        )


def _nested(seen: Profile, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of columns of one unit, of which one is never larger than the other: axes of an ellipse."""
    found = []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            if seen.columns[a].column.unit != seen.columns[b].column.unit:
                continue
            x, y = seen.numbers(a), seen.numbers(b)
            both = np.isfinite(x) & np.isfinite(y)
            if both.sum() < 50 or np.corrcoef(np.log(x[both]), np.log(y[both]))[0, 1] < 0.5:
                continue
            for small, large, u, v in ((a, b, x, y), (b, a, y, x)):
                if np.mean(u[both] <= v[both]) > 0.999:
                    found.append((small, large))
                    break
    return found


def _note_errors(chosen: Chosen, seen: Profile) -> None:
    """Find the error columns of the magnitudes that features are made of."""
    errors = {n.lower(): n for n, c in seen.columns.items() if is_error(c.column)}
    for feature, (expression, _) in chosen.features.items():
        parts = [p.strip("` ") for p in expression.split(" - ")]
        known = [_error_of(p, errors) for p in parts]
        if all(known):
            names = [quoted(str(k)) for k in known]
            chosen.errors[feature] = names[0] if len(names) == 1 else f"hypot({names[0]}, {names[1]})"


def _error_of(name: str, errors: Mapping[str, str]) -> str | None:
    word = name.lower()
    guesses = (f"{word}_err", f"e_{word}", f"{word}err", f"err_{word}", f"{word}_error", f"sigma_{word}")
    return next((errors[g] for g in guesses if g in errors), None)
