"""Features as expressions of a catalogue's columns: colours, line ratios, and whether a value is there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from catalogs.catalog.catalog import Column, Element
from catalogs.column_names import column_names
from catalogs.expressions.expression import expression_name, parse
from catalogs.profile.quality import about_a_flux, about_an_error
from flows.draft._exclusions import Evidence

__all__ = ["columns_of", "evaluated", "line_ratios", "presence_features", "quoted", "telling"]

# Expressions of a first specification: the columns that they use, and their values in the labelled rows.
#
# Shapes: n rows, k elements of a vector.


def quoted(name: str) -> str:
    """Return a column's name, or an element's, as expressions have it."""
    if isinstance(name, Element):
        return f"{quoted(name.vector)}[{name.place}]"
    return expression_name(name)


def columns_of(text: str) -> set[str]:
    """Return the columns of an expression, elements of vectors as `flux[2]`."""
    return {f"{name}[{index[0]}]" if index else name for name, index in parse(text).cells}


def evaluated(text: str, evidence: Evidence) -> NDArray[np.float64]:
    """Return the values (n,) of an expression in the labelled rows."""
    expression = parse(text)
    values = expression.evaluate({name: _values(evidence, name) for name in expression.names})
    return np.asarray(values, dtype=np.float64)


def _values(evidence: Evidence, name: str) -> NDArray[np.float64]:
    """Return the values (n,) of a column, or (n, k) of a vector's elements, NaN where none was measured."""
    if name in evidence.rows:
        return evidence.rows[name]
    elements = {e.place: e for e in evidence.rows if isinstance(e, Element) and e.vector == name}
    whole = np.full((len(evidence.rows[next(iter(elements.values()))]), max(elements) + 1), np.nan)
    for place, element in elements.items():
        whole[:, place] = evidence.rows[element]
    return whole


# Ratios of the fluxes of emission lines: what ionises the gas, as in the diagrams of Baldwin, Phillips and Terlevich.
#
# [N II]/Halpha, [O III]/Hbeta, [S II]/Halpha and [O I]/Halpha: the lines of each are neighbours in wavelength, so that
# dust in the galaxy hardly changes them (1981, doi:10.1086/130766; Veilleux and Osterbrock 1987, doi:10.1086/191166).

RATIOS = (
    (("nii",), "h_alpha"),
    (("oiii",), "h_beta"),
    (("sii_1", "sii_2"), "h_alpha"),
    (("sii",), "h_alpha"),
    (("oi",), "h_alpha"),
)
"""Lines whose fluxes are added, and the line that they are divided by."""
MOSTLY = 0.5
"""Share of positive values from which the logarithm of a flux is worth taking."""


def line_ratios(
    columns: Mapping[str, Column], names: Sequence[str], rows: Mapping[str, NDArray[np.float64]]
) -> dict[str, tuple[str, list[str]]]:
    """Return the ratios of the lines among `names`, each an expression with the columns above its bar.

    The values (n,) of all are mostly positive, and their units are the same.
    """
    lines = _lines(columns, names)
    ratios = {}
    for above, below in RATIOS:
        used = [lines[line] for line in above if line in lines]
        if len(used) < len(above) or below not in lines:
            continue
        every = [*used, lines[below]]
        positive = all(np.mean(rows[n][np.isfinite(rows[n])] > 0) > MOSTLY for n in every)
        if positive and len({columns[n].unit for n in every}) == 1:
            total = " + ".join(map(quoted, used))
            text = f"log10({f'({total})' if len(used) > 1 else total} / {quoted(lines[below])})"
            ratios[f"log_{above[0].removesuffix('_1')}_{below}"] = (text, used)
    return ratios


def _lines(columns: Mapping[str, Column], names: Sequence[str]) -> dict[str, str]:
    """Return the column of each line's flux, the first one of several."""
    found: dict[str, str] = {}
    for name in names:
        column = columns[name]
        plain = re.sub(r"flux|[^a-z0-9]", "", name.lower())
        if isinstance(name, Element) or about_an_error(column) or not about_a_flux(column):
            continue
        for line, expressions in column_names().lines.items():
            if any(re.fullmatch(e, plain, re.IGNORECASE) for e in expressions):
                found.setdefault(line, name)
    return found


# Features that say whether a value is there: in many catalogues, which objects lack one tells their class.
#
# A model without them integrates a missing feature out as if values were missing at random, given the other features.
# Faint and red galaxies lack infrared magnitudes, though, and then classes differ in how often they do.  Shapes: n
# rows.

FEWEST_ROWS = 5
"""Rows with a value, and without one, below which its presence is not tested."""
REMEDY = "Leave it out if values are missing in the target for other reasons"
SAME = 0.8
"""Share of the rows lacking either of two values that lack both, from which one feature stands for both."""


def presence_features(texts: Sequence[str], evidence: Evidence) -> dict[str, tuple[str, str]]:
    """Return features that say whether a value is there, each an expression with a remark.

    `texts` are the other features' expressions.  Asked for are the values of those that use one column, and of the
    columns of the rest.
    """
    sources: dict[str, str] = {}
    for text in texts:
        cells = columns_of(text)
        if len(cells) == 1:
            sources[text] = min(cells)
        else:
            sources |= {quoted(name): name for name in evidence.rows if name in cells}
    missing = {text: ~np.isfinite(evaluated(text, evidence)) for text in sources}
    return {
        f"has_{sources[text]}": (
            f"isfinite({text})",
            f"1 where there is a value; {missing[text].mean():.0%} have none, and classes differ in that. {REMEDY}",
        )
        for text in telling(missing, evidence.classes)
    }


def telling(missing: Mapping[str, NDArray[np.bool_]], classes: NDArray[np.object_]) -> list[str]:
    """Return the names of what is `missing` (n,) in a way that tells the class (n,), those that tell most first.

    What is missing in nearly the same rows is one thing.  Of m such things one tells the class if the log likelihood
    ratio of class and presence against their independence exceeds its K - 1 free parameters and ln m: the penalty of
    Akaike (1974, doi:10.1109/TAC.1974.1100705), and that for looking at many (Foster and George 1994,
    doi:10.1214/aos/1176325766).
    """
    gains = {
        name: _gain(where, classes)
        for name, where in missing.items()
        if FEWEST_ROWS <= where.sum() <= len(where) - FEWEST_ROWS
    }
    distinct: list[str] = []
    for name in sorted(gains, key=lambda name: -gains[name]):
        if not any(_alike(missing[name], missing[other]) for other in distinct):
            distinct.append(name)
    return [name for name in distinct if gains[name] > np.log(len(distinct))]


def _gain(missing: NDArray[np.bool_], classes: NDArray[np.object_]) -> float:
    """Return by how much the log likelihood ratio exceeds its number of free parameters, in nats."""
    _, k = np.unique(classes.astype(str), return_inverse=True)
    counts = np.stack(
        [np.bincount(k[missing], minlength=k.max() + 1), np.bincount(k[~missing], minlength=k.max() + 1)]
    )
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / len(k)
    seen = counts > 0
    ratio = float((counts[seen] * np.log(counts[seen] / expected[seen])).sum())
    return ratio - (counts.shape[1] - 1)


def _alike(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> bool:
    return bool((a & b).sum() >= SAME * (a | b).sum())
