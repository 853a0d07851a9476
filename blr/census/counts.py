"""Class counts of a target under a stated assumption, or the reason why they are not known.

Where the user states no assumption, tests choose: "shares" if labelled rows and target look alike once each class has
its share of the target.  If they differ mildly, the answer spans "shares" and "features"; if they differ much, there
are no counts.  Shapes: n labelled rows, K classes, S draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector
from blr.census._likeness import EXPECTED, Propensity, means_test, novelty, propensity
from blr.census.results import Assumption, StatedAssumption
from blr.census.rows import LabelledRows, TargetRows
from blr.census.shares import (
    Alternative,
    ShareDraws,
    shares_if_features,
    shares_if_same,
    shares_if_shares,
)

ASSUMPTIONS: dict[Assumption, str] = {
    "same": "the labelled rows are a random sample of the target",
    "shares": "objects of a class look alike in both sets, but the class shares may differ",
    "features": "at equal features the classes are equally probable in both sets, but the choice of the labelled "
    "objects may be biased",
    "shares or features": "either objects of a class look alike in both sets, or at equal features the classes are "
    "equally probable in both",
}
"""What each assumption says."""
TOLD_APART = 0.6
"""Area under the curve, less its one-sided 95 % margin, from which two sets do not look alike."""
TOO_FAR = 0.75
"""Area from which biased labels do not carry a count: with labels of the brightest third (areas of 0.76 to 0.92)
intervals of 95 % held 61 % on eight sets, for the model is extrapolated and nothing shows by how much it errs."""
MOST_NOVELTY = 3.5
"""Standard errors by which objects may be farther from labelled ones than these are from each other."""
MOST_CHANGE = 6.0
"""Factor by which a class's labelled rows may count more or less: a few rows must not represent all."""
FALSE_ALARMS = 0.005
"""Rate at which each of the two tests contradicts "shares" where it holds: 1 % together (Bonferroni)."""
_ONE_SIDED = 1.645
_AREA_APART = 2.576
"""Standard errors by which the area exceeds one half with that rate."""
_SMALLEST_P = 1e-4
_APART = 4.0
"""Standard deviations between two estimates of a share that are too many for both to be right."""
_REMEDY = 'state [shift] assumes = "features" if labelled objects were chosen by their features, or audit the output'
FEWEST_ROWS = 20
FEWEST_OF_CLASS = 2
"""Fewest labelled rows, of all classes and of each, from which anything is said."""


@dataclass(frozen=True, eq=False)
class Counted:
    """The class shares, with the assumption that they hold under; `shares` None where they cannot be said.

    `reason` says in words why this assumption, or why no shares.  `told_apart` compares labelled rows, each class at
    its share of the target, with the target; None where there are too few rows.  `contradicted`: objects of a class do
    not look alike in both sets, by a test.  `alternatives` are the assumptions that the shares span, with as many draws
    of each; () where they rest on one.  `counted` (K,) are objects of the target with labels, which the shares hold as
    they are; None without any.  Where hardly any is without, the shares are of labels and `assumes` is None.
    """

    shares: ShareDraws | None
    assumes: Assumption | None
    reason: str
    told_apart: Propensity | None = None
    contradicted: bool = False
    alternatives: tuple[Alternative, ...] = ()
    counted: Vector | None = None

    @property
    def of_labels(self) -> bool:
        """Whether the shares are of labels alone, and nothing is estimated."""
        return self.counted is not None and self.assumes is None

    def parts(self, labelled: LabelledRows) -> tuple[Alternative, ...]:
        """Return the alternatives, or the one assumption with the labelled rows as they are; () without shares."""
        if self.shares is None or self.assumes is None or self.assumes == "shares or features":
            return self.alternatives
        return (Alternative(self.assumes, labelled, self.shares),)


def count_classes(
    labelled: LabelledRows, target: TargetRows, *, assumes: StatedAssumption | None = None
) -> Counted:
    """Return the class shares of a target under a stated assumption, or under those that tests leave.

    Raises
    ------
    ValueError
        If the assumption cannot be stated.
    """
    if assumes not in (None, "same", "shares", "features"):
        raise ValueError(
            f'got the assumption "{assumes}", expected "same", "shares", "features", or None to have tests choose; '
            "state one of them"
        )
    lacking = _lacking(labelled, target)
    if lacking:
        return Counted(None, assumes, lacking)
    if assumes == "features":
        return _if_features(labelled, target)
    shares = shares_if_shares(labelled, target)
    change = np.clip(shares.mean / labelled.shares, 1 / MOST_CHANGE, MOST_CHANGE)
    weight = labelled.weight * change[labelled.y]
    alike = propensity(labelled, target, weight)
    refused = _refusal(labelled, target, weight, alike, assumes)
    if refused:
        return Counted(None, assumes, refused, alike, contradicted=True)
    seen = _contradiction(labelled, target, shares, alike)
    if assumes is None and seen:
        return _spanning(labelled, target, shares, alike, seen)
    if assumes == "same":
        return _if_same(labelled, target, shares, alike, seen)
    said = f"chosen by tests: {_area(alike)}" if assumes is None else _stated(seen)
    return Counted(shares, "shares", f"{ASSUMPTIONS['shares']}: {said}", alike, contradicted=bool(seen))


def _contradiction(labelled: LabelledRows, target: TargetRows, shares: ShareDraws, alike: Propensity) -> str:
    """Return in words which test contradicts "shares", with its number; '' where none does."""
    means = means_test(labelled, target, shares.draws)
    if means is not None and means.p_value < FALSE_ALARMS:
        p = f"p = {means.p_value:.4f}" if means.p_value >= _SMALLEST_P else f"p < {_SMALLEST_P:.4f}"
        return (
            "the means of the features are not those of labelled objects with each class at its share of the target "
            f"({p}, expected {FALSE_ALARMS} or more)"
        )
    return _area(alike) if alike.auc - _AREA_APART * alike.error > 0.5 else ""


def _refusal(
    labelled: LabelledRows,
    target: TargetRows,
    weight: Vector,
    alike: Propensity,
    assumes: StatedAssumption | None,
) -> str:
    """Return in words why nothing can be said, where labelled rows count by `weight` (n,); '' where something can."""
    if _differs(alike):
        given = "" if assumes is None else f'"{assumes}" is contradicted: '
        return (
            f"{given}the labelled objects do not look like these, whatever share each class has ({_area(alike)}), and "
            f"cannot tell the counts. {_remedy_of_bias(labelled, target)}"
        )
    unlike, errors = novelty(labelled, target, weight)
    if assumes is not None or errors <= MOST_NOVELTY:
        return ""
    return (
        f"some objects are unlike every labelled one: {100 * unlike:.1f} % of the target are farther from the "
        f"labels than {100 * EXPECTED:.0f} % of these are from each other ({errors:.1f} standard errors too many). "
        "They may be of a class that has no labels, or the labels are biased; label some of them (OUT_OF_DOMAIN) and "
        "train again, or audit the output"
    )


def _remedy_of_bias(labelled: LabelledRows, target: TargetRows) -> str:
    """Return what to do where labelled rows do not look like the target; nothing that would be refused next."""
    if propensity(labelled, target, labelled.weight).auc > TOO_FAR:
        return "Look at a sample of these: `blr audit draw`"
    return (
        'Look at a sample of these, `blr audit draw`, or state [shift] assumes = "features" if the labelled objects '
        "were only chosen differently by their features"
    )


def _area(alike: Propensity) -> str:
    """Return in words how well a model distinguishes the sets."""
    guessed = alike.auc - _ONE_SIDED * alike.error <= 0.5
    return (
        f"shown one of each, a test picks the labelled one in {100 * alike.auc:.1f} ± {100 * alike.error:.1f} of 100 "
        + ("tries, no more than by chance (50)" if guessed else "tries, by chance in 50")
    )


def _stated(seen: str) -> str:
    """Return in words what the tests say of a stated assumption."""
    return (
        f"stated, but a test contradicts it, for {seen}; {_REMEDY}"
        if seen
        else "stated, and not contradicted"
    )


def _spanning(
    labelled: LabelledRows, target: TargetRows, shares: ShareDraws, alike: Propensity, seen: str
) -> Counted:
    """Return shares that span "shares", which a test contradicts as `seen`, and "features", which none can check."""
    features = _if_features(labelled, target)
    if features.shares is None or features.told_apart is None:
        return Counted(
            None,
            None,
            f'a test contradicts "shares", for {seen}; and "features" gives no count: {features.reason}',
            alike,
            contradicted=True,
        )
    weighted = replace(labelled, weight=labelled.weight * features.told_apart.ratio)
    alternatives = (
        Alternative("shares", labelled, shares),
        Alternative("features", weighted, features.shares),
    )
    draws = np.concatenate([one.shares.draws for one in alternatives])
    return Counted(
        ShareDraws(draws, shares.scaling),
        "shares or features",
        f"{ASSUMPTIONS['shares or features']}: a test contradicts the first, for {seen}; so the intervals span both, "
        f"half of the draws from each; {_REMEDY}",
        alike,
        contradicted=True,
        alternatives=alternatives,
    )


def lacking_labels(labelled: LabelledRows) -> str:
    """Return why labelled rows are too few for any count; '' where they are enough."""
    n, few = len(labelled.y), labelled.class_rows < FEWEST_OF_CLASS
    if n < FEWEST_ROWS:
        return (
            f"got {n} labelled rows that no fit has seen, expected {FEWEST_ROWS} or more; label more objects"
        )
    if few.any():
        return (
            f"{few.sum()} of {len(few)} classes have fewer than {FEWEST_OF_CLASS} labelled rows that no fit "
            "has seen; label more objects of these classes"
        )
    return ""


def _lacking(labelled: LabelledRows, target: TargetRows) -> str:
    if lacking := lacking_labels(labelled):
        return lacking
    if len(target.weight) < FEWEST_ROWS:
        return (
            f"got {len(target.weight)} classified objects, expected {FEWEST_ROWS} or more; look at all of "
            "them and count by eye"
        )
    return ""


def _differs(sets: Propensity) -> bool:
    return sets.auc - _ONE_SIDED * sets.error > TOLD_APART


def _if_same(
    labelled: LabelledRows, target: TargetRows, freed: ShareDraws, alike: Propensity, seen: str
) -> Counted:
    """Return the shares of a target like the labelled rows, unless the shares that are free to differ do so."""
    same = shares_if_same(labelled, target)
    apart = np.abs(same.mean - freed.mean) / np.hypot(_spread(same), _spread(freed))
    k = int(apart.argmax())
    if apart[k] > _APART:
        return Counted(
            None,
            "same",
            f'"same" is contradicted: a class has the share {freed.mean[k]:.3f} by objects that look like it, '
            f"{same.mean[k]:.3f} as in the labelled rows, {apart[k]:.1f} standard deviations apart; state [shift] "
            'assumes = "shares", or leave it out',
            alike,
        )
    return Counted(same, "same", f"{ASSUMPTIONS['same']}: {_stated(seen)}", alike, contradicted=bool(seen))


def _if_features(labelled: LabelledRows, target: TargetRows) -> Counted:
    sets = propensity(labelled, target, labelled.weight)
    if sets.auc > TOO_FAR:
        return Counted(
            None,
            "features",
            f"the labelled objects overlap too little with these: {_area(sets)}, expected at most {100 * TOO_FAR:.0f}. "
            "The model would guess, and no label shows how much it errs; look at a sample of these: `blr audit draw`",
            sets,
        )
    shares = shares_if_features(labelled, target, sets.ratio)
    return Counted(
        shares, "features", f"{ASSUMPTIONS['features']}: stated by you; no test can check it", sets
    )


def _spread(shares: ShareDraws) -> Vector:
    return np.asarray(shares.draws.std(axis=0))


MOST_UNSAID = 0.1
"""Share of the target without a label, up to which the counts are given though nothing can be said of these objects."""
_DRAWS_OF_EACH = 200
"""Draws for each class, in which all objects without a label are of it, where nothing is estimated."""


def count_with_labels(
    labelled: LabelledRows,
    target: TargetRows,
    known: NDArray[np.intp],
    *,
    assumes: StatedAssumption | None = None,
) -> Counted:
    """Return the class shares of a partly labelled target: `known` (N,) is the class of a row, -1 without a label.

    The rows with a label of class k stand, with their weights, for all of the target's objects that have this label.
    The assumption is then one on the objects without a label, and tests compare these alone with the labelled rows.

    Raises
    ------
    ValueError
        If `known` does not fit the target, or the assumption cannot be stated.
    """
    K = labelled.n_classes
    if known.shape != target.weight.shape or (len(known) and not -1 <= known.min() <= known.max() < K):
        raise ValueError(
            f"got known classes of shape {known.shape}, expected {target.weight.shape} with values from -1 to {K - 1}"
        )
    has_label = known >= 0
    if not has_label.any() or lacking_labels(labelled):
        return count_classes(labelled, target, assumes=assumes)
    counts = np.rint(np.bincount(known[has_label], target.weight[has_label], minlength=K))
    n_other = max(0, target.n_objects - int(counts.sum()))
    others = TargetRows(
        target.probability[~has_label], target.weight[~has_label], target.X[~has_label], n_other
    )
    if min(n_other, len(others.weight)) < FEWEST_ROWS:
        return _of_labels(labelled, counts, n_other, "" if n_other else "; no other is left")
    found = count_classes(labelled, others, assumes=assumes)
    said = f"{counts.sum():,.0f} objects have a label and are counted by it; of the {n_other:,} others: {found.reason}"
    if found.shares is None and n_other > MOST_UNSAID * target.n_objects:
        return replace(found, reason=said)
    if found.shares is None:
        bounds = _of_labels(labelled, counts, n_other, f". No more can be said of them: {found.reason}")
        return replace(bounds, told_apart=found.told_apart, contradicted=found.contradicted)
    return replace(
        found,
        shares=_together(found.shares, counts, n_other),
        reason=said,
        alternatives=tuple(
            replace(one, shares=_together(one.shares, counts, n_other)) for one in found.alternatives
        ),
        counted=counts,
    )


def _together(others: ShareDraws, counts: Vector, n_other: int) -> ShareDraws:
    """Return the shares among all objects, from `counts` (K,) by label and the shares among the others."""
    return ShareDraws(_all_shares(others.draws, counts, n_other), others.scaling)


def _all_shares(others: Matrix, counts: Vector, n_other: int) -> Matrix:
    return (counts + n_other * others) / (counts.sum() + n_other)


def _of_labels(labelled: LabelledRows, counts: Vector, n_other: int, why: str) -> Counted:
    """Return the shares by label, where the others are not estimated, and why: each class in turn gets all of them."""
    draws = _all_shares(np.repeat(np.eye(labelled.n_classes), _DRAWS_OF_EACH, axis=0), counts, n_other)
    shares = ShareDraws(draws, labelled.scaling, extremes=True)
    left = f". The other {n_other:,} may be of any class, which the intervals hold" if n_other else ""
    return Counted(
        shares,
        None,
        f"{counts.sum():,.0f} objects have a label and are counted by it{left}{why}",
        alternatives=(Alternative("shares", labelled, shares),),
        counted=counts,
    )
