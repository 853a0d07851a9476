"""What a first specification makes of columns: features of all, but for reasons of physics or bookkeeping.

Magnitudes become colours and one magnitude; sizes a ratio and a logarithm; other numbers are taken as they are, or
as logarithms where these are more even.  No column is left out because it tells little. A column that tells very much
is a suspect: it is kept and comes first, with the loss of a quick fit without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import combinations, count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Floats, Mask, Places
from blr.selection.grouping import group_classes, softmax_quickly
from catalogs.catalog.catalog import Element
from catalogs.expressions.expression import expression_name, parse
from catalogs.profile.columns import Profile
from catalogs.profile.leaks import spans_decades
from catalogs.profile.quality import about_a_flux
from flows.draft import _bands
from flows.draft._bands import rise_together
from flows.draft._exclusions import Evidence, Reason, suspicion_of
from flows.specification.catalog import alike_words, grouped


def quoted(name: str) -> str:
    """Return a column's name, or an element's, as expressions have it."""
    if isinstance(name, Element):
        return f"{quoted(name.vector)}[{name.place}]"
    return expression_name(name)


def columns_of(text: str) -> set[str]:
    """Return the columns of an expression, elements of vectors as `flux[2]`."""
    return {f"{name}[{index[0]}]" if index else name for name, index in parse(text).cells}


def evaluated(text: str, evidence: Evidence) -> Floats:
    """Return the values (n,) of an expression in the labelled rows."""
    expression = parse(text)
    values = expression.evaluate({name: _values(evidence, name) for name in expression.names})
    return np.asarray(values, dtype=np.float64)


def _values(evidence: Evidence, name: str) -> Floats:
    """Return the values (n,) of a column, or (n, k) of a vector's elements, NaN where none was measured."""
    if name in evidence.rows:
        return evidence.rows[name]
    elements = {e.place: e for e in evidence.rows if isinstance(e, Element) and e.vector == name}
    whole = np.full((len(evidence.rows[next(iter(elements.values()))]), max(elements) + 1), np.nan)
    for place, element in elements.items():
        whole[:, place] = evidence.rows[element]
    return whole


FEWEST_ROWS = 5  # rows with a value, and without one, below which its presence is not tested
REMEDY = "Leave it out if values are missing in the target for other reasons"
SAME = 0.8
"""Share of the rows lacking either of two values that lack both, from which one feature stands for both."""


def presence_features(texts: Sequence[str], evidence: Evidence) -> dict[str, tuple[str, str]]:
    """Return features that say whether a value is there, each an expression with a remark.

    A model without them integrates a missing feature out as if values were missing at random, given the others.  But
    faint and red galaxies lack infrared magnitudes, and then classes differ in how often they do.  `texts` are the
    other features' expressions: one of a single column is tested as a whole, of a longer one each column is.
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


def telling(missing: Mapping[str, Mask], classes: NDArray[np.object_]) -> list[str]:
    """Return the names of what is `missing` (n,) in a way that tells the class (n,), those that tell most first.

    What is missing in nearly the same rows is one thing.  Of m such things one tells the class if the log likelihood
    ratio of class and presence against their independence exceeds its K - 1 free parameters and ln m: the penalty of
    Akaike (1974, doi:10.1109/TAC.1974.1100705), and that for looking at many (Foster and George 1994,
    doi:10.1214/aos/1176325766).
    """
    some = {n: m for n, m in missing.items() if FEWEST_ROWS <= m.sum() <= len(m) - FEWEST_ROWS}
    gains = {name: _gain(where, classes) for name, where in some.items()}
    distinct: list[str] = []
    for name in sorted(gains, key=lambda name: -gains[name]):
        here = missing[name]
        if not any((here & missing[o]).sum() >= SAME * (here | missing[o]).sum() for o in distinct):
            distinct.append(name)
    return [name for name in distinct if gains[name] > np.log(len(distinct))]


def _gain(missing: Mask, classes: NDArray[np.object_]) -> float:
    """Return by how much the log likelihood ratio exceeds its number of free parameters, in nats."""
    _, k = np.unique(classes.astype(str), return_inverse=True)
    counts = np.stack([np.bincount(k[where], minlength=k.max() + 1) for where in (missing, ~missing)])
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / len(k)
    seen = counts > 0
    ratio = float((counts[seen] * np.log(counts[seen] / expected[seen])).sum())
    return ratio - (counts.shape[1] - 1)


FOLDS = 5
MOST_ROWS = 2000  # bound on the work: a look takes seconds
MOST_GROUPED, WORK = 10_000, 4_000_000
"""Rows that tell which classes are alike, and these times features and classes: rare classes need many."""
MOST_SUSPECTS = 6
PRECISION = 0.3  # of the weights of standardised features: weak, and enough for classes that are separable
WIDEST = 8.0  # standard deviations at which features are clipped, so that one odd value does not decide


def quick_loss(features: Sequence[Floats], labels: NDArray[Any]) -> float | None:
    """Return the cross-validated log loss, in nats a row, of a linear fit of columns (n,); None of too few rows."""
    _, t, p = _left_out(features, labels, MOST_ROWS)
    return -float(np.log(p[np.arange(len(t)), t]).mean()) if p.shape[1] > 1 else None


def alike(features: Sequence[Floats], labels: NDArray[Any]) -> tuple[str, dict[str, list[str]]]:
    """Return a sentence on the classes that columns (n,) do not tell apart, and groups of them; nothing of none."""
    most = WORK // max(1, len(features) * len(set(labels.tolist())))
    classes, t, p = _left_out(features, labels, min(max(most, MOST_ROWS), MOST_GROUPED))
    if len(classes) < 3:
        return "", {}
    found = group_classes(p, t)
    groups = grouped(found, classes, np.bincount(t).tolist())
    return alike_words(found, classes, "A quick linear fit", "it"), groups


def _left_out(
    features: Sequence[Floats], labels: NDArray[Any], most: int
) -> tuple[list[str], Places, Floats]:
    """Return the classes, those (m,) of some rows, and their probabilities (m, K) by fits without the rows' fold.

    There are no more than `most` rows, and none of a class that has a single one of them.
    """
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(labels))[:most])
    classes, t, counts = np.unique(labels[rows].astype(str), return_inverse=True, return_counts=True)
    kept = counts[t] > 1
    rows, classes, t = rows[kept], classes[counts > 1], np.unique(t[kept], return_inverse=True)[1]
    p = np.ones((len(t), len(classes)))
    if len(classes) > 1:
        Phi = _design(np.stack([x[rows] for x in features], axis=1))
        fold = np.empty(len(t), dtype=np.intp)
        for k in range(len(classes)):  # those of each class are spread over all folds
            here = np.flatnonzero(t == k)
            fold[rng.permutation(here)] = (np.arange(len(here)) + rng.integers(FOLDS)) % FOLDS
        for k in np.unique(fold):
            p[fold == k] = softmax_quickly(
                Phi[fold != k], t[fold != k], Phi[fold == k], len(classes), PRECISION
            )
    return classes.tolist(), t, p


def _design(X: Floats) -> NDArray[np.float32]:
    """Return the design matrix (n, 1 + F) of standardised features, the mean where nothing was measured."""
    known = np.isfinite(X)
    n = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, X, 0.0).sum(axis=0) / n
    centred = np.where(known, X - mean, 0.0)
    spread = np.sqrt((centred**2).sum(axis=0) / n)
    Z = np.clip(centred / np.where(spread > 0, spread, 1.0), -WIDEST, WIDEST)
    return np.column_stack([np.ones(len(X)), Z]).astype(np.float32)


MOST_FEATURES, MOST_WEIGHTS = 100, 600
"""Bound on a first training's work: features that there may always be, and weights of a linear fit for more."""
APPARENT = "apparent brightness: it shows, to the census too, where a target is deeper than the labels"
ABSOLUTE = "absolute magnitude: it contains the distance"
BRIGHTEST = -5.0  # brightest plausible median of apparent magnitudes, in mag
FEWEST_VALUES = 0.1  # share of the rows that a feature needs values in
FEWEST_MEASURED = 0.1
"""Share of a class's rows that have some feature, below which nothing can be learned of it."""
TELLS = 0.05  # share of the information on the class from which a column that is left out is named
KINDS = frozenset({"texts", "flags and codes", "others' answers"})
ALIKE, CALLED_ALIKE = 0.5, 0.6
"""Correlation of logarithms, and likeness of names where no unit is known, of two sizes of one thing."""


@dataclass
class Chosen:
    """Features in order, each an expression with a remark, and the columns that are left out, each with a reason.

    `suspects` are columns among the features.  `groups` are of classes that the features hardly tell apart, as `alike`
    says.
    """

    features: dict[str, tuple[str, str]] = field(default_factory=dict)
    left_out: dict[str, Reason] = field(default_factory=dict)
    suspects: dict[str, str] = field(default_factory=dict)
    # Magnitudes made of fluxes.
    bands: dict[str, _bands.MeasuredFlux] = field(default_factory=dict)
    # Columns that are left out though they tell the class, with the share of the information on it that each gives.
    informative: dict[str, float] = field(default_factory=dict)
    alike: str = ""
    groups: dict[str, list[str]] = field(default_factory=dict)
    most: int = MOST_FEATURES
    # Classes of which hardly any row has a feature.
    bare: set[str] = field(default_factory=set)

    def add(self, name: str, expression: str, remark: str = "") -> None:
        """Add a feature, unless there are enough."""
        if len(self.features) >= self.most:
            return
        plain = word = re.sub(r"\W+", "_", name.lower()).strip("_") or "feature"
        number = count(2)
        while word in self.features:
            word = f"{plain}_{next(number)}"
        self.features[word] = (expression, remark)

    def columns(self) -> set[str]:
        """Return the columns that features are made of, elements by their own names."""
        return {name for text, _ in self.features.values() for name in self.made_of(text)}

    def made_of(self, text: str) -> set[str]:
        """Return the columns that an expression is made of, for a magnitude that of its flux."""
        return {self.bands[name].flux if name in self.bands else name for name in columns_of(text)}


def _photometry(
    seen: Profile, evidence: Evidence, names: Sequence[str], fluxes: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the magnitudes and the bare fluxes that colours could be made of."""
    magnitudes = _bands.magnitudes_among(
        [seen.columns[n].column for n in names if n not in fluxes], evidence.rows
    )
    bare = _bands.bare_fluxes(seen, names, evidence.rows)
    apparent = [n for n in magnitudes if not np.nanmedian(evidence.rows[n]) < BRIGHTEST]
    if _bands.most_bands(apparent) < 2 <= max(_bands.most_bands(fluxes), _bands.most_bands(bare)):
        magnitudes = []  # of one band there is no colour, where fluxes of several make some
    return magnitudes, bare


def choose_columns(seen: Profile, evidence: Evidence) -> Chosen:
    """Return the features and what is left out."""
    names = [name for name, reason in evidence.against.items() if reason is None]
    fluxes = [n for n in names if _bands.is_flux(seen.columns[n].column)]
    magnitudes, bare = _photometry(seen, evidence, names, fluxes)
    said = _bands.said_by_magnitudes(seen, names, magnitudes)
    bands = _bands.flux_bands(seen, [n for n in fluxes if n not in said]) if not magnitudes else {}
    flux_magnitudes = {
        name: _bands.magnitudes_of(seen.columns[flux].column, error, evidence.rows)
        for name, (flux, error) in bands.items()
    }
    evidence = replace(evidence, rows={**evidence.rows, **flux_magnitudes})
    K = len(set(evidence.classes.tolist()))
    errors = {error: flux for flux, error in bands.values() if error in names}
    left_out = {n: (f"the flux of {other}: adds no information", "copies") for n, other in said.items()}
    left_out |= {n: (f"the error of {flux}, under [photometry]", "errors") for n, flux in errors.items() if n}
    most = max(MOST_FEATURES, MOST_WEIGHTS // max(1, K - 1))
    chosen = Chosen(bands=bands, most=most, left_out=left_out)
    bare = [] if magnitudes or bands else bare
    _add_colours(chosen, evidence, magnitudes or list(flux_magnitudes))
    missing = evidence.missing(bare)  # the colours of fluxes need no zero point
    for a, b, remark in _bands.colours(bare, missing):
        note = "colour, of fluxes whose zero point is not known" if remark == _bands.COLOUR else remark
        chosen.add(f"{a}_{b}", f"log10({quoted(a)} / {quoted(b)})", note)
    if bare:
        best = _brightness(missing)
        chosen.add(f"log_{best}", f"log10({quoted(best)})", APPARENT)
    used = {*magnitudes, *bare, *said, *errors, *(flux for flux, _ in bands.values())}
    _add_others(chosen, seen, evidence, [n for n in names if n not in used])
    why = ("has too few values, or one value only, in the rows of the classes", "empty")
    if len(chosen.features) >= most:
        why = (f"{most} features tell more by themselves", "beyond the limit")
    _drop_empty(chosen, evidence)
    texts = [text for text, _ in chosen.features.values()]
    for name, (text, remark) in presence_features(texts, evidence).items():
        chosen.add(name, text, remark)
    values = {f: evaluated(text, evidence) for f, (text, _) in chosen.features.items()}
    _put_suspects_first(chosen, seen, evidence, values)
    reasons = {n: reason for n, reason in evidence.against.items() if reason is not None}
    every = dict.fromkeys({*names} - chosen.columns(), why) | reasons | chosen.left_out
    chosen.left_out = {n: every[n] for n in seen.columns if n in every}
    gains = {n: evidence.gain(n) for n, (_, kind) in chosen.left_out.items() if kind in KINDS}
    most_telling = sorted(gains, key=lambda name: -gains[name])
    chosen.informative = {name: gains[name] for name in most_telling if gains[name] >= TELLS}
    if chosen.features and K > 2:
        chosen.alike, chosen.groups = alike([*values.values()], evidence.classes)
    return chosen


def _put_suspects_first(
    chosen: Chosen, seen: Profile, evidence: Evidence, values: Mapping[str, Floats]
) -> None:
    """Find the suspects among the columns of the features, and what is lost without them."""
    named = chosen.columns()
    why = {n: text for n in seen.columns if n in named and (text := suspicion_of(seen, n, evidence))}
    why = dict(sorted(why.items(), key=lambda entry: -evidence.gain(entry[0])))
    uses = {f: chosen.made_of(text) for f, (text, _) in chosen.features.items()}
    chosen.features = dict(sorted(chosen.features.items(), key=lambda entry: not uses[entry[0]] & {*why}))
    # A column that tells much of the class may be the best feature there is, or the class in another form: a person
    # should know how much a model loses without it.
    labels, few = evidence.classes, MOST_WEIGHTS // (1 + len(values))
    bounded = [*why][:MOST_SUSPECTS] if len({*labels.tolist()}) - 1 <= few else []
    whole = quick_loss([*values.values()], labels) if bounded else None
    for name in bounded if whole is not None else ():
        left = [x for feature, x in values.items() if name not in uses[feature]]
        loss = quick_loss(left, labels) if left else None
        without = "no feature is left without it" if loss is None else f"{loss:.3f} without it"
        why[name] += f"; log loss of a quick linear fit: {whole:.3f} with it, {without}"
    chosen.suspects = why


def _add_colours(chosen: Chosen, evidence: Evidence, names: Sequence[str]) -> None:
    """Add the colours, and one magnitude, of apparent magnitudes and of absolute ones."""
    absolute = [n for n in names if np.nanmedian(evidence.rows[n]) < BRIGHTEST]
    for some, remark in (([n for n in names if n not in absolute], APPARENT), (absolute, ABSOLUTE)):
        missing = evidence.missing(some)
        for a, b, note in _bands.colours(some, missing):
            chosen.add(f"{a}_{b}", f"{quoted(a)} - {quoted(b)}", note)
        if some:
            best = _brightness(missing)
            chosen.add(best, quoted(best), remark)


def _brightness(missing: Mapping[str, float]) -> str:
    """Return the middle one, in wavelength, of the bands that are missing least: few surveys are selected by the last.

    They are of the first kind, such as total magnitudes and not those of a fibre, where kinds are known.
    """
    names = next(iter(_bands.kinds([*missing])), [*missing])
    least = min(round(missing[name], 2) for name in names)
    best = [name for name in names if round(missing[name], 2) == least]
    return best[(len(best) - 1) // 2]


def _add_others(chosen: Chosen, seen: Profile, evidence: Evidence, names: Sequence[str]) -> None:
    """Add ratios of columns of a kind, logarithms, and the rest, those that tell most by themselves first."""
    rows = evidence.rows
    left = sorted(names, key=lambda n: -round(evidence.gain(n), 2))
    logs = {n for n in left if spans_decades(rows[n])}
    for smaller, larger in _nested(seen, rows, [n for n in names if n in logs]):
        if smaller in left and larger in left:
            chosen.add(f"{smaller}_{larger}", f"{quoted(smaller)} / {quoted(larger)}", "ratio")
            chosen.add(f"log_{larger}", f"log10({quoted(larger)})", "size")
            left = [n for n in left if n not in (smaller, larger)]
    for name in left:
        if name in logs:
            chosen.add(f"log_{name}", f"log10({quoted(name)})", "skewed: its logarithm is more even")
        else:
            chosen.add(name, quoted(name))


def _nested(seen: Profile, rows: Mapping[str, Floats], names: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of columns of one unit, of which one is never larger than the other: axes of an ellipse.

    Fluxes are no axes, though one line may always be the fainter one.
    """
    columns = {n: c for n in names if not about_a_flux(c := seen.columns[n].column)}
    logs = {n: np.log(np.where(rows[n] > 0, rows[n], np.nan)) for n in columns}
    pairs = []
    for a, b in combinations(columns, 2):
        called_alike = SequenceMatcher(None, a.lower(), b.lower()).ratio() >= CALLED_ALIKE
        units = {columns[a].unit, columns[b].unit}
        if len(units) > 1 or not (called_alike or all(units)):
            continue
        if rise_together(logs[a], logs[b], 50, ALIKE):
            both = np.isfinite(logs[a]) & np.isfinite(logs[b])
            orders = [(x, y) for x, y in ((a, b), (b, a)) if np.mean(rows[x][both] <= rows[y][both]) > 0.999]
            pairs += orders[:1]

    def from_the_middle(name: str) -> float:
        """Return how far an element is from its vector's middle, where the deepest bands are; 0 of other columns."""
        if not isinstance(name, Element):
            return 0.0
        places = [e.place for e in seen.columns if isinstance(e, Element) and e.vector == name.vector]
        return abs(name.place - max(places) / 2)

    return sorted(pairs, key=lambda pair: [*map(from_the_middle, pair)])


def _drop_empty(chosen: Chosen, evidence: Evidence) -> None:
    """Leave out features that hardly any labelled row has, or that are the same in all: none could be fitted.

    Note of which classes hardly any row has a feature that is left.
    """
    measured = np.zeros(len(evidence.classes), dtype=bool)
    for feature, (text, _) in list(chosen.features.items()):
        values = evaluated(text, evidence)
        known = values[np.isfinite(values)]
        if len(known) < max(10, FEWEST_VALUES * len(values)) or known.min() == known.max():
            del chosen.features[feature]
        else:
            measured |= np.isfinite(values)
    if chosen.features:
        share = {name: measured[evidence.classes == name].mean() for name in set(evidence.classes.tolist())}
        chosen.bare = {name for name, known in share.items() if not known > FEWEST_MEASURED}
