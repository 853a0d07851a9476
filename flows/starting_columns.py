"""What a first specification makes of a catalogue's columns: features of some, and a reason for each that is left out.

Magnitudes become colours and one magnitude; sizes a ratio and a logarithm; other numbers are taken as they are, or
as logarithms where they span decades.  Names, places, errors, bookkeeping, leaks, and what says how objects were
selected stay out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from catalogs.elements import Element
from catalogs.expressions import expression_name, parse
from catalogs.leaks import Leak, spans_decades
from catalogs.profile import Profile
from catalogs.subjects import about_an_error
from catalogs.suspicions import unread_numbers
from flows.starting_bands import colours, magnitudes_among, most_bands
from flows.starting_fluxes import FluxBand, bare_fluxes, flux_bands, is_flux, said_by_magnitudes
from flows.starting_reasons import Evidence, reason_against, vector_name

__all__ = ["Chosen", "choose_columns", "quoted"]

MOST_SETS = 5
"""Sets of columns that tell more together, in a comment."""
MOST_FEATURES = 8
"""More would make a first training slow, and its posterior hard to trust; the others are listed."""
MOST_KEPT_FREE, TELLS_MUCH = 3, 0.02
"""Places that colours leave to columns that tell so much by themselves: sizes and shapes, where bands are many."""
TELLS_NOTHING = 0.003
"""Share of the class's entropy below which a number that is no magnitude and no size is listed only."""
APPARENT = "apparent: leave it out where the target catalogue goes deeper"
BRIGHTEST = -5.0
"""Of the apparent magnitudes of a catalogue, in the middle."""
FEWEST_VALUES = 0.1
"""Share of the rows that a feature needs values in."""


@dataclass
class Chosen:
    """Features in order, each an expression with a remark, and the columns that are left out, each with a reason."""

    features: dict[str, tuple[str, str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    spare: dict[str, tuple[str, str]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    bands: list[FluxBand] = field(default_factory=list)
    together: list[Leak] = field(default_factory=list)
    measured: NDArray[np.bool_] = field(
        default_factory=lambda: np.zeros(0, dtype=bool)
    )  # of rows, any feature

    def add(self, name: str, expression: str, remark: str = "", *, spare: bool = False) -> None:
        """Add a feature, or keep it as a spare one where there are enough."""
        word = re.sub(r"\W+", "_", name.lower()).strip("_") or "feature"
        while word in self.features or word in self.spare:
            word += "_"
        enough = len(self.features) >= MOST_FEATURES
        (self.spare if spare or enough else self.features)[word] = (expression, remark)


@dataclass(frozen=True)
class _Columns:
    """The candidates for features, with the values of the labelled rows."""

    seen: Profile
    evidence: Evidence

    def missing(self, name: str) -> float:
        return 1.0 - float(np.isfinite(self.evidence.rows[name]).mean())

    def gain(self, name: str) -> float:
        return max(0.0, self.evidence.gains.get(name, 0.0))


def quoted(name: str) -> str:
    """Return a column's name, or an element's, as expressions have it."""
    if isinstance(name, Element):
        return f"{quoted(name.vector)}[{name.place}]"
    return expression_name(name)


def choose_columns(seen: Profile, evidence: Evidence) -> Chosen:
    """Return the features and what is left out.

    Where nothing but doubtful columns is left, those are taken, with the doubt as a remark: a person decides.
    """
    reasons = {name: reason_against(seen, name, evidence) for name in seen.columns if name != evidence.label}
    chosen = _choose(seen, evidence, [name for name, reason in reasons.items() if reason is None])
    for doubt in (1, 2, 3):
        # What could not be read as the numbers that it is would be a better feature than what is left.
        if chosen.features or any(unread_numbers(seen, name) for name in reasons):
            break
        taken = [name for name, reason in reasons.items() if reason is not None and reason.doubt == doubt]
        best = sorted(taken, key=lambda n: -evidence.gains.get(n, 0.0))[:MOST_FEATURES]
        chosen = _choose(seen, evidence, best)
        _say_doubts(chosen, {name: str(reasons[name]) for name in best})
        used = {n for text, _ in chosen.features.values() for n in parse(text).names}
        reasons = {name: reason for name, reason in reasons.items() if name not in used}
    chosen.left_out = {n: str(r) for n, r in reasons.items() if r is not None} | chosen.left_out
    chosen.together = [
        leak
        for leak in evidence.leaks
        if len(leak.columns) > 1 and not leak.derived and not set(leak.columns) & set(chosen.left_out)
    ][:MOST_SETS]
    return chosen


def _say_doubts(chosen: Chosen, doubts: Mapping[str, str]) -> None:
    for feature, (expression, remark) in chosen.features.items():
        told = next((doubts[name] for name in sorted(parse(expression).names) if name in doubts), remark)
        chosen.features[feature] = (expression, f"doubtful, but nothing else is left: {told}")


def _photometry(
    seen: Profile, evidence: Evidence, names: Sequence[str], fluxes: Sequence[str]
) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the magnitudes and the bare fluxes that colours could be made of, and magnitudes that are left out.

    Apparent magnitudes, and `fluxes` of known units, go before absolute ones; several bands before one.
    """
    magnitudes = magnitudes_among([seen.columns[n].column for n in names if n not in fluxes], evidence.rows)
    bare = bare_fluxes(seen, names, evidence.rows, evidence.copies)
    apparent = [n for n in magnitudes if not _is_absolute(evidence.rows[n])]
    left_out = {}
    if max(map(most_bands, (apparent, fluxes, bare))) > 1:
        left_out = {
            n: "an absolute magnitude: it knows the distance" for n in magnitudes if n not in apparent
        }
        magnitudes = apparent
    if most_bands(magnitudes) < 2 <= max(most_bands(fluxes), most_bands(bare)):
        magnitudes = []  # of one band there is no colour, where fluxes of several make some
    return magnitudes, bare, left_out


def _choose(seen: Profile, evidence: Evidence, names: Sequence[str]) -> Chosen:
    fluxes = [n for n in names if is_flux(seen.columns[n].column)]
    magnitudes, bare, left_out = _photometry(seen, evidence, names, fluxes)
    bands = [] if magnitudes else flux_bands(seen, fluxes, evidence.copies)
    made = {band.name: band.magnitudes(evidence.rows) for band in bands}
    evidence = replace(evidence, rows={**evidence.rows, **made})
    chosen, columns = Chosen(bands=bands, left_out=left_out), _Columns(seen, evidence)
    bare = [] if magnitudes or bands else bare
    used = {*magnitudes, *bare, *(band.flux for band in bands)}
    for name in fluxes if bands else said_by_magnitudes(seen, names, magnitudes or bare):
        if name not in used:
            chosen.left_out[name] = "a flux of another kind, or of no known band"
    others = [n for n in names if n not in used and n not in chosen.left_out]
    most = MOST_FEATURES - 1 - min(MOST_KEPT_FREE, sum(columns.gain(n) >= TELLS_MUCH for n in others))
    _add_colours(chosen, columns, magnitudes or list(made), most)
    _add_flux_colours(chosen, columns, bare, most)
    _add_others(chosen, columns, others)
    _drop_empty(chosen, evidence)
    _note_errors(chosen, seen)
    return chosen


def _add_colours(chosen: Chosen, columns: _Columns, names: Sequence[str], most: int) -> None:
    """Add the colours, and the magnitude that is missing least."""
    missing = {name: columns.missing(name) for name in names}
    first, others = colours(names, missing, columns.evidence.copies, most=most)
    for spare, group in ((False, first), (True, others)):
        for c in group:
            text = f"{quoted(c.first)} - {quoted(c.second)}"
            chosen.add(f"{c.first}_{c.second}", text, c.remark, spare=spare)
    if names:
        best = min(names, key=lambda n: round(missing[n], 2))
        absolute = _is_absolute(columns.evidence.rows[best])
        chosen.add(best, quoted(best), "absolute: it knows the distance" if absolute else APPARENT)


def _is_absolute(values: NDArray[np.float64]) -> bool:
    return bool(float(np.nanmedian(values)) < BRIGHTEST)


def _add_flux_colours(chosen: Chosen, columns: _Columns, names: Sequence[str], most: int) -> None:
    """Add the colours of fluxes in a unit of no known zero point, which they do not need, and one flux."""
    first, others = colours(
        names, {name: columns.missing(name) for name in names}, columns.evidence.copies, most=most
    )
    for spare, group in ((False, first), (True, others)):
        for c in group:
            text = f"log10({quoted(c.first)} / {quoted(c.second)})"
            told = "colour, of fluxes whose zero point is not known" if c.remark == "colour" else c.remark
            chosen.add(f"{c.first}_{c.second}", text, told, spare=spare)
    if names:
        best = min(names, key=lambda n: round(columns.missing(n), 2))
        chosen.add(f"log_{best}", f"log10({quoted(best)})", APPARENT)


def _add_others(chosen: Chosen, columns: _Columns, names: Sequence[str]) -> None:
    """Add ratios of columns of a kind, logarithms, and the rest, those that tell most by themselves first."""
    rows = columns.evidence.rows
    # What tells of the class only beside another column, as colours do, tells of it.
    together = {n for leak in columns.evidence.leaks if not leak.derived for n in leak.columns}
    left = sorted(names, key=lambda n: (-round(columns.gain(n), 2), n not in together))
    logs = {n for n in left if spans_decades(rows[n])}
    vectors: set[tuple[str, str]] = set()
    for smaller, larger in _nested(columns, [n for n in names if n in logs]):
        if smaller in left and larger in left:
            # Sizes are much the same in every band of a vector: those of one band are enough.
            both = (vector_name(smaller), vector_name(larger))
            spare = both in vectors
            vectors.add(both)
            chosen.add(f"{smaller}_{larger}", f"{quoted(smaller)} / {quoted(larger)}", "ratio", spare=spare)
            chosen.add(f"log_{larger}", f"log10({quoted(larger)})", "size", spare=spare)
            left = [n for n in left if n not in (smaller, larger)]
    for name in left:
        remark = "spans decades" if name in logs else ""
        told = columns.gain(name) >= TELLS_NOTHING or name in together
        remark = remark if told else "tells next to nothing by itself"
        text = f"log10({quoted(name)})" if name in logs else quoted(name)
        chosen.add(
            f"log_{name}" if name in logs else name, text, remark, spare=not told and bool(chosen.features)
        )


def _nested(columns: _Columns, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of columns of one unit, of which one is never larger than the other: axes of an ellipse."""
    found, rows = [], columns.evidence.rows
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            if columns.seen.columns[a].column.unit != columns.seen.columns[b].column.unit:
                continue
            x, y = rows[a], rows[b]
            both = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
            if both.sum() < 50 or not _together(np.log(x[both]), np.log(y[both])):
                continue
            for small, large, u, v in ((a, b, x, y), (b, a, y, x)):
                if np.mean(u[both] <= v[both]) > 0.999:
                    found.append((small, large))
                    break
    return sorted(found, key=lambda pair: [_from_the_middle(columns, name) for name in pair])


def _together(x: NDArray[np.float64], y: NDArray[np.float64]) -> bool:
    """Say whether two columns (n,) rise together; what is the same in every row does not."""
    return bool(x.std() > 0 and y.std() > 0 and np.corrcoef(x, y)[0, 1] >= 0.5)


def _from_the_middle(columns: _Columns, name: str) -> float:
    """Return how far an element is from its vector's middle, where the deepest bands are; 0 of other columns."""
    if not isinstance(name, Element):
        return 0.0
    places = [e.place for e in columns.seen.columns if isinstance(e, Element) and e.vector == name.vector]
    return abs(name.place - max(places) / 2)


def _drop_empty(chosen: Chosen, evidence: Evidence) -> None:
    """Leave out features that hardly any labelled row has, or that are the same in all: none could be fitted."""
    chosen.measured = np.zeros(len(next(iter(evidence.rows.values()), ())), dtype=bool)
    for feature, (text, _) in list(chosen.features.items()):
        expression = parse(text)
        values = np.asarray(
            expression.evaluate({name: _values(evidence, name) for name in expression.names}),
            dtype=np.float64,
        )
        known = values[np.isfinite(values)]
        if len(known) < max(10, FEWEST_VALUES * len(values)) or known.min() == known.max():
            what = (
                "without enough values" if len(known) < max(10, FEWEST_VALUES * len(values)) else "constant"
            )
            chosen.left_out[text] = f"{what} in the rows of the classes"
            del chosen.features[feature]
        else:
            chosen.measured = chosen.measured | np.isfinite(values)


def _values(evidence: Evidence, name: str) -> NDArray[np.float64]:
    """Return the values (n,) of a column, or (n, k) of a vector's elements, NaN where none was measured."""
    if name in evidence.rows:
        return evidence.rows[name]
    elements = {e.place: e for e in evidence.rows if isinstance(e, Element) and e.vector == name}
    whole = np.full((len(evidence.rows[next(iter(elements.values()))]), max(elements) + 1), np.nan)
    for place, element in elements.items():
        whole[:, place] = evidence.rows[element]
    return whole


def _note_errors(chosen: Chosen, seen: Profile) -> None:
    """Find the error columns of the magnitudes that features are made of."""
    errors = {n.lower(): n for n, c in seen.columns.items() if about_an_error(c.column)}
    errors |= {f"{band.name}_err": f"{band.name}_err" for band in chosen.bands if band.error}
    for feature, (expression, _) in chosen.features.items():
        parts = [p.strip("` ") for p in expression.split(" - ")]
        known = [_error_of(p, errors) for p in parts]
        if all(known):
            names = [quoted(k) for k in known if k is not None]
            chosen.errors[feature] = names[0] if len(names) == 1 else f"hypot({names[0]}, {names[1]})"


def _error_of(name: str, errors: Mapping[str, str]) -> str | None:
    word, bracket, place = name.lower().partition("[")
    guesses = (f"{word}_err", f"e_{word}", f"{word}err", f"err_{word}", f"{word}_error", f"sigma_{word}")
    return next((errors[e] for g in guesses for e in [f"{g}{bracket}{place}"] if e in errors), None)
