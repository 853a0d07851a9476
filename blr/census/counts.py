"""Class counts of a target under a stated assumption, or the reason why they are not known.

Where the user states no assumption, a test chooses: "shares" if labelled rows and target look alike once each class
has its share of the target, and no counts if they do not.  Shapes: n labelled rows, K classes, S draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blr.arrays import Vector
from blr.census._propensity import Propensity, propensity
from blr.census.results import Assumption
from blr.census.rows import LabelledRows, TargetRows
from blr.census.shares import ShareDraws, shares_if_features, shares_if_same, shares_if_shares

__all__ = ["ASSUMPTIONS", "Counted", "count_classes"]

ASSUMPTIONS: dict[Assumption, str] = {
    "same": "the labelled rows are a random sample of the target",
    "shares": "objects of a class look alike in both sets, but the class shares may differ",
    "features": "at equal features the classes are equally probable in both sets, but the choice of the labelled "
    "objects may be biased",
}
"""What each assumption says."""
TOLD_APART = 0.6
"""Area under the curve, less its one-sided 95 % margin, from which two sets do not look alike."""
TOO_FAR = 0.75
"""Area from which biased labels do not carry a count: with labels of the brightest third (areas of 0.76 to 0.92)
intervals of 95 % held 61 % on eight sets, for the model is extrapolated and nothing shows by how much it errs."""
MOST_CHANGE = 6.0
"""Factor by which a class's labelled rows may count more or less: a few rows must not represent all."""
_ONE_SIDED = 1.645
_APART = 4.0
"""Standard deviations between two estimates of a share that are too many for both to be right."""
FEWEST_ROWS = 20
FEWEST_OF_CLASS = 2
"""Fewest labelled rows, of all classes and of each, from which anything is said."""


@dataclass(frozen=True, eq=False)
class Counted:
    """The class shares, with the assumption that they hold under; `shares` None where they cannot be said.

    `reason` says in words why this assumption, or why no shares.  `told_apart` compares labelled rows, each class at
    its share of the target, with the target; None where there are too few rows.  `contradicted`: objects of a class do
    not look alike in both sets.
    """

    shares: ShareDraws | None
    assumes: Assumption | None
    reason: str
    told_apart: Propensity | None = None
    contradicted: bool = False


def count_classes(
    labelled: LabelledRows, target: TargetRows, *, assumes: Assumption | None = None
) -> Counted:
    """Return the class shares of a target under a stated assumption, or under the one that a test chooses."""
    lacking = _lacking(labelled, target)
    if lacking:
        return Counted(None, assumes, lacking)
    if assumes == "features":
        return _if_features(labelled, target)
    shares = shares_if_shares(labelled, target)
    change = np.clip(shares.mean / labelled.shares, 1 / MOST_CHANGE, MOST_CHANGE)
    weight = labelled.weight * change[labelled.y]
    alike = propensity(labelled, target, weight)
    if _differs(alike):
        given = "" if assumes is None else f'"{assumes}" is contradicted: '
        return Counted(
            None,
            assumes,
            f"{given}no class shares make the labelled rows look like the target (area under the curve "
            f"{alike.auc:.2f} ± {alike.error:.2f}; 0.5 means no difference), so no assumption can be tested; "
            'audit the output, or state [shift] assumes = "features" if the labelled objects were only '
            "chosen differently by their features",
            alike,
            contradicted=True,
        )
    if assumes == "same":
        return _if_same(labelled, target, shares, alike)
    said = "chosen by a test" if assumes is None else "stated, and not contradicted"
    return Counted(
        shares,
        "shares",
        f"{ASSUMPTIONS['shares']}: {said} ({_area(alike)})",
        alike,
    )


def _lacking(labelled: LabelledRows, target: TargetRows) -> str:
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
    if len(target.weight) < FEWEST_ROWS:
        return (
            f"got {len(target.weight)} classified objects, expected {FEWEST_ROWS} or more; look at all of "
            "them and count by eye"
        )
    return ""


def _area(alike: Propensity) -> str:
    """Return in words how well a model distinguishes the sets, where it does not."""
    below = ", and less is no sign of one either" if alike.auc < 0.5 - 2 * alike.error else ""
    return f"area under the curve {alike.auc:.2f} ± {alike.error:.2f}, 0.5 means no difference{below}"


def _differs(sets: Propensity) -> bool:
    return sets.auc - _ONE_SIDED * sets.error > TOLD_APART


def _if_same(labelled: LabelledRows, target: TargetRows, freed: ShareDraws, alike: Propensity) -> Counted:
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
    return Counted(same, "same", f"{ASSUMPTIONS['same']}: stated, and not contradicted", alike)


def _if_features(labelled: LabelledRows, target: TargetRows) -> Counted:
    sets = propensity(labelled, target, labelled.weight)
    if sets.auc > TOO_FAR:
        return Counted(
            None,
            "features",
            f"labelled rows and target overlap too little (area under the curve {sets.auc:.2f}, expected at most "
            f"{TOO_FAR}): the model extrapolates, and no labelled row shows how large its error is; audit the output",
            sets,
        )
    shares = shares_if_features(labelled, target, sets.ratio)
    return Counted(
        shares, "features", f"{ASSUMPTIONS['features']}: stated by you; no test can check it", sets
    )


def _spread(shares: ShareDraws) -> Vector:
    return np.asarray(shares.draws.std(axis=0))
