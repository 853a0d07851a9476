"""Columns that give the label away: copies of it, columns made from it, and what they gain."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from catalogs.arrays import Array, Floats, holds_text, numbers_of, unique_texts, words_of
from catalogs.catalog.catalog import Element
from catalogs.profile.columns import as_numbers
from catalogs.profile.quality import Leak

# How much of a class a column tells: the share of the class's entropy that it removes, on rows not looked at.  A
# column is cut into bins of equal count (a text column into its frequent values, what is missing into a bin of its
# own), the classes' shares in each bin are learned on half of the rows, and the log loss is taken on the other half.
# 1 means all of the entropy, 0 nothing; the estimate is below 0 where there is only noise.  Shapes: n rows, K
# classes.

Codes = NDArray[np.intp]

BINS = 48
SMOOTHING = 4.0
"""Pseudo-rows with the overall class shares in each bin, which reduce the noise of many classes."""
FEWEST = 12
"""Least number of rows of a class; rarer classes are left out."""
MOST_TEXTS = 256


@dataclass(frozen=True, eq=False)
class Classes:
    """The class index (n,) of labelled rows, their names, and which fold (n,) of two each is in."""

    index: Codes
    names: tuple[str, ...]
    fold: NDArray[np.bool_]

    @classmethod
    def of(cls, labels: Array, rng: np.random.Generator) -> tuple[Classes, NDArray[np.bool_]]:
        """Return the classes of labels (N,), and which rows (N,) have one: '' and rare ones have none."""
        texts, inverse, counts = unique_texts(labels)
        kept = (counts >= FEWEST) & np.array([text != "" for text in texts], dtype=bool)
        rows = kept[inverse]
        index = np.cumsum(kept)[inverse[rows]] - 1
        # Each class in halves: labels may be made by draws of the same seed, and folds that are classes tell nothing.
        order = rng.permutation(len(index))
        fold = np.zeros(len(index), dtype=bool)
        fold[order[np.argsort(index[order], kind="stable")][::2]] = True
        return cls(index, tuple(text for text, keep in zip(texts, kept, strict=True) if keep), fold), rows

    def only(self, rows: Array) -> Classes:
        """Return the classes of some of the rows."""
        return Classes(self.index[rows], self.names, self.fold[rows])


def number_of_bins(classes: Classes) -> int:
    """Return how many bins the rows can carry: five rows a class and bin."""
    return int(np.clip(len(classes.index) / (5 * max(2, len(classes.names))), 4, BINS))


def binned(values: Floats, bins: int = BINS) -> Codes:
    """Return the bin (n,) of each number, bins of about equal count; what is missing has one of its own."""
    known = np.isfinite(values)
    codes = np.full(len(values), bins, dtype=np.intp)
    if known.any():
        edges = np.unique(np.quantile(values[known], np.linspace(0, 1, bins + 1)[1:-1]))
        codes[known] = np.searchsorted(edges, values[known], side="right")
    return codes


def sorted_texts(values: Array) -> Codes:
    """Return a code (n,) of each text, the rare ones sharing one."""
    texts, inverse, counts = unique_texts(values)
    order = np.argsort(-counts, kind="stable")
    code = np.full(len(texts), MOST_TEXTS, dtype=np.intp)
    frequent = order[:MOST_TEXTS][counts[order[:MOST_TEXTS]] > 1]
    code[frequent] = np.arange(len(frequent))
    return np.asarray(code[inverse])


def gain(codes: Codes, classes: Classes, *, smoothing: float = SMOOTHING) -> float:
    """Return the share of the entropy that the bins (n,) explain, each half judged by what the other taught."""
    K, n = len(classes.names), len(codes)
    if K < 2 or n < 4 * K or not (classes.fold.any() and (~classes.fold).any()):
        return 0.0
    joint, size = codes * K + classes.index, (int(codes.max()) + 1) * K
    folds = classes.fold, ~classes.fold
    halves = [np.bincount(joint[part], minlength=size).reshape(-1, K) for part in folds]
    total, baseline = 0.0, 0.0
    for taught, judged in (halves, halves[::-1]):
        prior = taught.sum(axis=0) + 0.5
        prior = prior / prior.sum()
        share = (taught + smoothing * prior) / (taught.sum(axis=1, keepdims=True) + smoothing)
        total -= float((judged * np.log(share)).sum())
        baseline -= float(judged.sum(axis=0) @ np.log(prior))
    return 1 - total / baseline if baseline > 0 else 0.0


# Columns that are the label in other numbers: x = a + b y to rounding, as the complement of a vote fraction.  And the
# number of votes behind a fraction.  Neither can be told from a good feature by how much it says of the class alone:
# a fraction that is cut in two classes leaves its copy a little less than all of it.  Shapes: n rows.

FEWEST_WITH_LABEL = 20
"""Rows that have both the label and the column: in fewer, two columns may agree by chance."""
MOSTLY_NUMBERS = 0.9
"""Share of numbers among the labels, from which they are numbers."""
SINGLE = 1e-6
"""Rounding of single precision, in ranges of the column."""
COARSEST = 0.01
"""Rounding, in ranges of the column, above which an agreement to rounding says little."""
MOST_DECIMALS = 8
SHORT = 1e-4
"""Relative distance from a short number at which a coefficient is written as that."""
FEWEST_FRACTIONS = 0.5
"""Share of labels strictly between 0 and 1, from which they may be fractions of votes."""
SURE_VOTES = 0.1
"""Largest distance from a whole number of votes: by chance one row in five is as near."""


def label_numbers(values: Array) -> Floats:
    """Return labels (n,) as numbers, NaN elsewhere; texts and truth values may be numbers too."""
    if holds_text(values):
        return numbers_of(words_of(np.ma.filled(values, "")))
    return as_numbers(values) if values.dtype.kind in "biuf" else np.full(len(values), np.nan)


def copies_of_label(columns: Mapping[str, Array], label: str, numbers: Floats) -> dict[str, str]:
    """Return the columns (n,) of numbers that the `numbers` (n,) in the column `label` give, each with the formula.

    Labels that are hardly ever numbers have no copies.
    """
    if np.count_nonzero(np.isfinite(numbers)) < MOSTLY_NUMBERS * max(1, len(numbers)):
        return {}
    numeric = ((name, as_numbers(values)) for name, values in columns.items() if values.dtype.kind in "biuf")
    formulae = ((name, _formula_of_label(x, numbers, label)) for name, x in numeric)
    return {name: formula for name, formula in formulae if formula is not None}


def codes_label(x: Floats, labels: Array) -> bool:
    """Say whether numbers x (n,) are the labels (n,) under other names: each label has a number of its own."""
    known = np.isfinite(x)
    texts, place, _ = unique_texts(labels[known])
    numbers = np.unique(x[known])
    if known.sum() < max(FEWEST_WITH_LABEL, 4 * len(texts)) or not 1 < len(texts) == len(numbers):
        return False
    return len(np.unique(place * len(numbers) + np.searchsorted(numbers, x[known]))) == len(texts)


def _formula_of_label(x: Floats, y: Floats, label: str) -> str | None:
    """Return a column x (n,) as a linear function of the label's numbers y (n,); None of others."""
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < FEWEST_WITH_LABEL:
        return None
    x, y = x[both], y[both]
    spread, centred = float(np.ptp(x)), y - y.mean()
    if spread == 0 or not centred.any():
        return None
    b = float(centred @ x / (centred @ centred))
    a = float(x.mean() - b * y.mean())
    rounding = _rounding(x) + abs(b) * _rounding(y)
    # The fit to rounded numbers is itself a little beside the true line.
    left = float(np.abs(x - a - b * y).max())
    if left > SINGLE * spread + min(1.2 * rounding, COARSEST * spread):
        return None
    size = "" if abs(abs(b) - 1) < SHORT else f"{abs(b):.4g} "
    term = f"{size}{shown_column(label)}"
    if abs(a) < SHORT * spread + left:
        return term if b > 0 else f"-{term}"
    return f"{a:.4g} {'+' if b > 0 else '-'} {term}"


def is_number_of_votes(x: Floats, fraction: Floats) -> bool:
    """Say whether whole numbers x (n,) times fractions (n,) are whole: of so many votes the fractions are."""
    both = np.isfinite(x) & np.isfinite(fraction)
    x, f = x[both], fraction[both]
    if len(f) < FEWEST_WITH_LABEL or f.min() < 0 or f.max() > 1 or np.ptp(x) == 0:
        return False
    if np.mean((f > 0) & (f < 1)) < FEWEST_FRACTIONS or (x != np.trunc(x)).any() or x.min() < 0:
        return False
    votes = x * f
    allowed = SINGLE * x + x * _rounding(f)
    return bool((np.abs(votes - np.round(votes)) <= np.minimum(allowed, SURE_VOTES)).all())


def _rounding(values: Floats) -> float:
    """Return half a unit of the last decimal that numbers (n,) are written with; 0 where they have too many."""
    for decimals in range(MOST_DECIMALS):
        scaled = values * 10.0**decimals
        if (np.abs(scaled - np.round(scaled)) <= SINGLE * np.maximum(1.0, np.abs(scaled))).all():
            return 0.5 * 10.0**-decimals
    return 0.0


# Columns that give the class away: by themselves, or only together.  By themselves: the column alone removes most of
# the class's uncertainty on rows not looked at (`information_gain`).  Only together: a column that was computed from
# others with the class in the formula, say a surface brightness from a magnitude and an axis with a correction that
# depends on the type.  No single one says much; the residual of the numeric identity does.  It is found as the linear
# combination of the columns, or of their logarithms, that separates the classes best (Fisher's discriminant): its
# gain is compared with that of every smaller set on the same rows.  Pairs and triples are screened by Wilks' lambda,
# which needs one covariance each, and the best judged on other rows.  Shapes: n rows, d columns, K classes.

ALONE = 0.6
"""Share of the class's entropy from which a column by itself is suspected."""
TOGETHER = 0.04
"""Share that a set tells beyond its best part, from which the set is reported."""
MOST_ROWS = 8000
MOST_COLUMNS = 20
JUDGED = 60
"""Sets that are judged on other rows, the most promising by Wilks' lambda."""
FEWEST_ROWS, FEWEST_AT_ALL = 200, 20
"""For sets of columns, and to tell of what kind one is."""
LOG_RANGE = 5.0
"""Ratio of the ends of a column from which its logarithm may be meant."""
IDENTITY = 0.8
"""Share of some column's variance within the classes that the others explain, from which it was computed of them."""
NEEDED = 0.6
"""Factor by which each of them has to reduce what is left unexplained."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """A column (n,) of mean 0 and spread 1, of its logarithm where that is nearer to a Gaussian."""

    name: str
    values: Floats
    scale: float
    log: bool
    flux: bool

    @classmethod
    def of(cls, name: str, values: Floats, *, flux: bool) -> Scaled | None:
        """Return the column, None where it has too few values or no spread; the outermost are drawn in."""
        known = np.isfinite(values)
        if known.sum() < FEWEST_ROWS:
            return None
        log = spans_decades(values)
        x = np.log10(np.where(known, values, 1.0)) if log else np.where(known, values, 0.0)
        low, high = np.quantile(x[known], [0.005, 0.995])
        clipped = np.clip(x, low, high)
        spread = float(clipped[known].std())
        if spread <= 1e-9 * float(np.abs(clipped[known]).max()):
            return None
        z = np.where(known, (clipped - clipped[known].mean()) / spread, np.nan)
        return cls(name, z, spread, log, flux)


def shown_column(name: str) -> str:
    """Return a column's name as a formula has it."""
    return name if name.isidentifier() or isinstance(name, Element) else f"`{name}`"


def spans_decades(values: Floats) -> bool:
    """Say whether a column (n,) is of sizes or fluxes, which formulae hold the logarithm of, not magnitudes."""
    x = values[np.isfinite(values)]
    if len(x) < FEWEST_AT_ALL or not x.min() > 0:
        return False
    low, high = np.quantile(x, [0.005, 0.995])
    return bool(high > LOG_RANGE * low) and _skewness(np.log10(x)) < _skewness(x)


def _skewness(x: Floats) -> float:
    low, middle, high = np.quantile(x, [0.05, 0.5, 0.95])
    return float(abs(high + low - 2 * middle) / (high - low)) if high > low else np.inf


def find_leaks(
    columns: Mapping[str, Array],
    labels: Array,
    *,
    together: Sequence[str] | None = None,
    fluxes: Collection[str] = (),
) -> tuple[list[Leak], dict[str, float]]:
    """Return the leaks among columns (N,) for labels (N,), and every column's gain by itself.

    `together` names the columns that pairs and triples are made of; default: all numeric ones that do not
    already leak by themselves.  `fluxes` names those that are fluxes, whose logarithms make colours with magnitudes.
    """
    rng = np.random.default_rng(0)
    classes, rows = Classes.of(labels, rng)
    if len(classes.names) < 2:
        return [], {}
    labelled = {name: values[rows] for name, values in columns.items()}
    # Few rows of few classes: what tells them surely has its due, where sets of columns are compared more cautiously.
    smoothing, bins = min(SMOOTHING, 0.5 * len(classes.names)), number_of_bins(classes)
    gains = {}
    for name, v in labelled.items():
        codes = sorted_texts(v) if v.dtype.kind in "OUS" else binned(as_numbers(v), bins)
        gains[name] = gain(codes, classes, smoothing=smoothing)
    alone = [Leak((name,), g, g) for name, g in gains.items() if g >= ALONE]
    numeric = {n: v for n, v in labelled.items() if v.dtype.kind in "iufb" and gains[n] < ALONE}
    names = [n for n in (numeric if together is None else together) if n in numeric]
    thin = rng.permutation(len(classes.index))[:MOST_ROWS]
    few = classes.only(thin)
    candidates = (Scaled.of(n, as_numbers(labelled[n][thin]), flux=n in fluxes) for n in names)
    scaled = sorted((s for s in candidates if s is not None), key=lambda s: -gains[s.name])[:MOST_COLUMNS]
    sets = sorted(_pairs_and_triples(scaled, few), key=lambda leak: -leak.beyond)
    return [*sorted(alone, key=lambda leak: -leak.gain), *sets], gains


def _pairs_and_triples(columns: Sequence[Scaled], classes: Classes) -> list[Leak]:
    """Return the pairs and triples that tell more of the class than their parts.

    All are screened by the estimate of `_gaussian_estimates`; those that it puts first are measured as `_leak` does.
    """
    estimates = _gaussian_estimates([c for c in columns if np.isfinite(c.values).all()], classes)
    sets = [s for size in (2, 3) for s in combinations(columns, size)]
    screened = []
    for i, s in enumerate(sets):
        names = tuple(c.name for c in s)
        known = estimates if names in estimates else _gaussian_estimates(s, classes)
        screened.append((known.get(names, 0.0), i))
    leaks = []
    gains: dict[tuple[str, ...], float] = {}
    for estimate, i in sorted(screened, reverse=True)[:JUDGED]:
        if estimate <= 0:
            break
        leak = _leak(sets[i], classes, gains)
        if leak is not None and leak.beyond >= TOGETHER:
            leaks.append(leak)
    return leaks


def _gaussian_estimates(columns: Sequence[Scaled], classes: Classes) -> dict[tuple[str, ...], float]:
    """Return quick estimates of what each pair and triple of columns, by their names, says beyond its best part.

    An estimate is information in nats under one Gaussian a class, of the rows that have all columns.
    """
    if len(columns) < 2:
        return {}
    X, kept = _complete(columns, classes)
    if len(X) < FEWEST_ROWS:
        return {}
    total, within = _scatters(X, kept)
    found: dict[tuple[str, ...], float] = {}
    for d in (2, 3):
        sets = np.array([*combinations(range(len(columns)), d)], dtype=np.intp).reshape(-1, d)
        parts = [list(part) for part in combinations(range(d), d - 1)]
        best = np.max([_information(total, within, sets[:, part]) for part in parts], axis=0)
        estimates = _information(total, within, sets) - best
        found |= {tuple(columns[j].name for j in s): float(p) for s, p in zip(sets, estimates, strict=True)}
    return found


def _information(total: Floats, within: Floats, sets: NDArray[np.intp]) -> Floats:
    """Return the information (m,) of sets (m, d) of columns."""
    chosen = sets[:, :, None], sets[:, None, :]
    ridge = 1e-9 * np.eye(sets.shape[1])
    ratio = np.linalg.det(total[chosen] + ridge) / np.linalg.det(within[chosen] + ridge)
    return np.asarray(0.5 * np.log(np.maximum(ratio, 1.0)))


def _complete(columns: Sequence[Scaled], classes: Classes) -> tuple[Floats, Classes]:
    X = np.stack([c.values for c in columns], axis=1)
    rows = np.asarray(np.isfinite(X).all(axis=1))
    return X[rows], classes.only(rows)


def _scatters(X: Floats, classes: Classes) -> tuple[Floats, Floats]:
    """Return the covariance (d, d) of all rows, and within the classes."""
    K, n = len(classes.names), len(X)
    counts = np.maximum(np.bincount(classes.index, minlength=K), 1)
    sums = np.stack([np.bincount(classes.index, weights=x, minlength=K) for x in X.T], axis=1)
    means = sums / counts[:, None]
    inner, outer = X - means[classes.index], X - X.mean(axis=0)
    return outer.T @ outer / n, inner.T @ inner / n


def _leak(columns: Sequence[Scaled], classes: Classes, gains: dict[tuple[str, ...], float]) -> Leak | None:
    """Return the set as a leak; `gains` remembers what sets of columns without a missing value tell."""
    X, kept = _complete(columns, classes)
    names = tuple(c.name for c in columns)
    known = gains if len(X) == len(classes.index) else {}

    def told(part: tuple[int, ...]) -> float:
        key = tuple(names[j] for j in part)
        if key not in known:
            known[key] = _direction_gain(X[:, list(part)], kept)[0]
        return known[key]

    parts = [p for size in range(1, len(columns)) for p in combinations(range(len(columns)), size)]
    whole, weights = _direction_gain(X, kept)
    best = max(0.0, *map(told, parts))
    if weights is None:
        return None
    raw = np.array([w / c.scale for w, c in zip(weights, columns, strict=True)])
    formula = _formula(raw, columns)
    mixed = len({c.log and not c.flux for c in columns}) > 1
    return Leak(names, whole, whole - best, formula, mixed and _determined(X, kept))


def _determined(X: Floats, classes: Classes) -> bool:
    """Say whether, within the classes, some column follows closely from the others, and from no fewer of them."""
    within = _scatters(X, classes)[1] + 1e-12 * np.eye(X.shape[1])
    for target in range(len(within)):
        others = [j for j in range(len(within)) if j != target]
        left = _unexplained(within, target, others)
        fewer = (_unexplained(within, target, [o for o in others if o != dropped]) for dropped in others)
        if left < 1 - IDENTITY and all(left < NEEDED * unexplained for unexplained in fewer):
            return True
    return False


def _unexplained(within: Floats, target: int, others: Sequence[int]) -> float:
    """Return the share of a column's variance that others do not explain."""
    block, cross = within[np.ix_(others, others)], within[others, target]
    return float(1 - cross @ np.linalg.solve(block, cross) / within[target, target])


def _formula(raw: Floats, columns: Sequence[Scaled]) -> str:
    """Return the combination with the coefficient nearest to the others' middle set to 1."""
    plain = [i for i, c in enumerate(columns) if not c.log and abs(raw[i]) > 0]
    first = plain[0] if plain else int(np.abs(raw).argmax())
    terms = []
    for w, c in zip(raw / raw[first], columns, strict=True):
        factor = "" if abs(abs(w) - 1) < 5e-3 else f"{abs(w):.3g} "
        name = shown_column(c.name)
        terms.append(("- " if w < 0 else "+ ") + factor + (f"log10({name})" if c.log else name))
    return " ".join(terms).removeprefix("+ ")


def _direction_gain(X: Floats, classes: Classes) -> tuple[float, Floats | None]:
    """Return the gain of the direction (d,) that separates the classes best, and the direction itself."""
    if X.shape[1] == 1:
        return gain(binned(X[:, 0], number_of_bins(classes)), classes), None
    total, within = _scatters(X, classes)
    try:
        whiten = np.linalg.inv(np.linalg.cholesky(within + 1e-9 * np.eye(len(within))))
        _, vectors = np.linalg.eigh(whiten @ total @ whiten.T)
    except np.linalg.LinAlgError:
        return 0.0, None
    direction = whiten.T @ vectors[:, -1]
    return gain(binned(X @ direction, number_of_bins(classes)), classes), direction
