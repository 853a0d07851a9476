"""Class counts of a target under a stated assumption, or the reason why they are not known.

Where the user states no assumption, tests choose: "shares" if labelled rows and target look alike once each class has
its share of the target.  If they differ mildly, the answer spans "shares" and "features"; if they differ much, there
are no counts.

The first test is a logistic model that distinguishes labelled rows from target rows by features and their products; the
fit that classifies a row does not contain it.  The second compares means: where objects of a class look alike in both
sets, the mean of any feature over the target is the sum over classes of share times the class's mean among labelled
rows.  How far these equations miss, over the covariance of the miss, is Hansen's J test (Hansen 1982,
doi:10.2307/1912775); as the covariance is estimated, it has the F distribution of Hotelling's T².  The equations are
more than the shares, which were found without them: so the test also sees labels that are biased too mildly for a model
to distinguish the sets row by row.
Shapes: n labelled rows, N target rows, F features, K classes, S draws, D columns, of which P principal components.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy  # its modules load when used
from scipy.special import expit, fdtrc

from blr.arrays import Matrix, Places, Vector
from blr.census.results import Assumption, StatedAssumption
from blr.census.shares import (
    LEVEL,
    LabelledRows,
    TargetRows,
    central_interval,
    shares_if_features,
    shares_if_same,
    shares_if_shares,
)

ASSUMPTIONS: dict[Assumption, str] = {
    "same": "the labelled rows are a random sample of the target",
    "shares": "objects of a class look alike in both sets, but the class shares may differ",
    "features": "at equal features the classes are equally probable in both sets, but the choice of the labelled "
    "objects may be biased",
}
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
_AREA_APART = 2.576  # standard errors by which the area exceeds one half with that rate
_APART = 4.0  # standard deviations between two estimates of a share that are too many for both to be right
_REMEDY = 'state [shift] assumes = "features" if labelled objects were chosen by their features, or audit the output'
FEWEST_ROWS = 20
FEWEST_OF_CLASS = 2  # fewest labelled rows, of all classes and of each, from which anything is said
MOST_UNSAID = 0.1
"""Share of the target without a label, up to which the counts are given though nothing can be said of these objects."""
_DRAWS_OF_EACH = 200
"""Draws for each class, in which all objects without a label are of it, where nothing is estimated."""
FOLDS = 5
PRECISION = 100.0
"""Prior precision of the weights of standardised features: few rows must not be distinguished by chance."""
MOST_ROWS = 1000  # most rows of each set that are compared; more would not change the answer
MOST_PRODUCTS = 12  # most features whose products are taken; of more, the squares alone
EXPECTED = 0.05  # share of the labelled rows that are farthest from the others
MUCH, FAR = 0.1, 0.6
"""Share of a target so far from labelled rows, and area under the curve of the distances, below which it is no new
class: mildly biased labels have these too."""
_NEWTON_STEPS, _TOLERANCE = 30, 1e-6
FARTHEST = 5.0  # standard deviations at which a feature is cut: one extreme row must not dominate
ROWS_A_COMPONENT = 10
"""Labelled rows, beyond one a class, for each component: with fewer their covariance is not known well enough."""
FARTHEST_SPREAD = 2.0
"""Factor by which a column's variance may differ from the target's.  A value that one object in a hundred has may be
absent among the labelled rows: their spread then says that it never occurs."""
LEAST_SPREAD = 0.25
"""Share of the target's variance in a direction, below which the labelled rows do not say how far means scatter."""
_SAME_COLUMN = 1e-6
"""Eigenvalue, of the largest, below which a component says nothing that others do not say."""


@dataclass(frozen=True, eq=False)
class Counted:
    """Draws (S, K) of the class shares, with the assumption that they hold under; None where they cannot be said.

    `labelled` are the labelled rows with the weights under it: under "features" a row counts as often as its like is in
    the target, and `unweighted` are the rows as they came, which calibrate probabilities.  `reason` says in words why
    this assumption, or why no shares.  `contradicted`: objects of a class do not look alike in both sets, by a test.
    `alternatives` are the assumptions that the shares span, with as many draws of each; () where they rest on one.
    `counted` (K,) are objects of the target with labels, which the shares hold as they are; None without any.  Where
    hardly any is without, the shares are of labels and `assumes` is None.
    """

    labelled: LabelledRows
    shares: Matrix | None
    assumes: Assumption | None
    reason: str
    contradicted: bool = False
    alternatives: tuple[Counted, ...] = ()
    counted: Vector | None = None
    unweighted: LabelledRows | None = None

    @property
    def scaling(self) -> Vector:
        """The calibration (1 + K,) that led to the shares."""
        return (self.unweighted or self.labelled).scaling

    @property
    def of_labels(self) -> bool:
        """Whether the shares are of labels alone, and nothing is estimated."""
        return self.counted is not None and self.assumes is None

    @property
    def parts(self) -> tuple[tuple[LabelledRows, Matrix], ...]:
        """Labelled rows and draws of the shares under each of the alternatives, or under the one assumption."""
        parts = self.alternatives or (self,)
        return tuple((one.labelled, one.shares) for one in parts if one.shares is not None)

    @property
    def interval(self) -> tuple[Vector, Vector]:
        """The lower and the upper ends (K,) of the central 95 % intervals; of labels alone, of what is possible."""
        assert self.shares is not None  # noqa: S101  the caller has looked
        return central_interval(self.shares, 1.0 if self.of_labels else LEVEL)


def count_classes(
    labelled: LabelledRows, target: TargetRows, *, assumes: StatedAssumption | None = None
) -> Counted:
    """Return the class shares of a target under a stated assumption, or under those that tests leave."""
    lacking = lacking_labels(labelled)
    if not lacking and len(target.weight) < FEWEST_ROWS:
        lacking = (
            f"got {len(target.weight)} classified objects, expected {FEWEST_ROWS} or more; count them by eye"
        )
    if lacking:
        return Counted(labelled, None, assumes, lacking)
    if assumes == "features":
        return _if_features(labelled, target)
    shares = shares_if_shares(labelled, target)
    change = np.clip(shares.mean(axis=0) / labelled.shares, 1 / MOST_CHANGE, MOST_CHANGE)
    weight = labelled.weight * change[labelled.y]
    auc, error, _ = propensity(labelled, target, weight)
    refused = _refusal(labelled, target, weight, (auc, error), assumes)
    if refused:
        return Counted(labelled, None, assumes, refused, contradicted=True)
    seen = _contradiction(labelled, target, shares, auc, error)
    if assumes is None and seen:
        return _spanning(labelled, target, shares, seen)
    if assumes == "same":
        same = shares_if_same(labelled, target)
        apart = _far_apart(same, shares)
        if apart:
            return Counted(labelled, None, assumes, apart)
        shares = same
    if assumes is None:
        said = f"{ASSUMPTIONS['shares']}; no test contradicts it: {_tries(auc, error)}"
    else:
        tests = f"but a test contradicts it, for {seen}; {_REMEDY}" if seen else "and not contradicted"
        said = f"{ASSUMPTIONS[assumes]}{':' if assumes == 'same' else ';'} stated, {tests}"
    return Counted(labelled, shares, assumes or "shares", said, contradicted=bool(seen))


def _contradiction(
    labelled: LabelledRows, target: TargetRows, shares: Matrix, auc: float, error: float
) -> str:
    """Return in words which test contradicts "shares", with its number; '' where none does."""
    means = means_test(labelled, target, shares)
    if means is not None and means[2] < FALSE_ALARMS:
        odds = f"p = {means[2]:.1g}, expected {FALSE_ALARMS} or more"
        return (
            f"the means of features are not those of labelled objects with each class at its share ({odds})"
        )
    return _tries(auc, error) if auc - _AREA_APART * error > 0.5 else ""


def _refusal(
    labelled: LabelledRows, target: TargetRows, weight: Vector, area: tuple[float, float], assumes: str | None
) -> str:
    """Return in words why nothing can be said, where labelled rows count by `weight` (n,); '' where something can."""
    auc, error = area
    if auc - _ONE_SIDED * error > TOLD_APART:
        given = "" if assumes is None else f'"{assumes}" is contradicted: '
        remedy = "Look at a sample of these: `blr audit draw`"
        if propensity(labelled, target, labelled.weight)[0] <= TOO_FAR:  # else that would be refused next
            remedy += (
                ', or state [shift] assumes = "features" if labelled objects were chosen by their features'
            )
        return (
            f"{given}the labelled objects do not look like these, whatever share each class has "
            f"({_tries(auc, error)}), and cannot tell the counts. {remedy}"
        )
    unlike, errors = novelty(labelled, target, weight)
    if assumes is not None or errors <= MOST_NOVELTY:
        return ""
    return (
        f"some objects are unlike every labelled one: {100 * unlike:.1f} % of the target are farther from the "
        f"labels than {100 * EXPECTED:.0f} % of these are from each other ({errors:.1f} standard errors too many); "
        "label some of the outliers that `blr review` lists, which may be of a class without labels, and train again, "
        "or audit"
    )


def _tries(auc: float, error: float) -> str:
    of_100 = f"{100 * auc:.1f} ± {100 * error:.1f} of 100 tries, by chance in 50"
    return f"shown one of each, a test picks the labelled one in {of_100}"


def _spanning(labelled: LabelledRows, target: TargetRows, shares: Matrix, seen: str) -> Counted:
    """Return shares that span "shares", which a test contradicts as `seen`, and "features", which none can check."""
    features = _if_features(labelled, target)
    if features.shares is None:
        said = f'a test contradicts "shares", for {seen}; and "features" gives no count: {features.reason}'
        return Counted(labelled, None, None, said, contradicted=True)
    return Counted(
        labelled,
        np.concatenate([shares, features.shares]),
        "shares or features",
        f"by a test, objects of a class do not look alike in both sets: {seen}. The intervals allow for it: half of "
        f"their draws assume that at equal features the classes are equally probable in both; {_REMEDY}",
        contradicted=True,
        alternatives=(Counted(labelled, shares, "shares", ""), features),
    )


def lacking_labels(labelled: LabelledRows) -> str:
    """Return why labelled rows are too few for any count; '' where they are enough."""
    n, few = len(labelled.y), labelled.class_rows < FEWEST_OF_CLASS
    if n < FEWEST_ROWS:
        return f"got {n} labelled rows that no fit has seen, expected {FEWEST_ROWS} or more; label more"
    if few.any():
        rows = f"fewer than {FEWEST_OF_CLASS} labelled rows that no fit has seen"
        have = "has" if few.sum() == 1 else "have"
        return f"{few.sum()} of {len(few)} classes {have} {rows}; label more objects of these"
    return ""


def _far_apart(same: Matrix, freed: Matrix) -> str:
    """Return in words how far the shares under "same" are from those that are free to differ; '' where near."""
    copied, free = same.mean(axis=0), freed.mean(axis=0)
    apart = np.abs(copied - free) / np.hypot(same.std(axis=0), freed.std(axis=0))
    k = int(apart.argmax())
    if apart[k] <= _APART:
        return ""
    return (
        f'"same" is contradicted: a class has the share {free[k]:.3f} by objects that look like it, '
        f"{copied[k]:.3f} as in the labelled rows, {apart[k]:.1f} standard deviations apart; state [shift] "
        'assumes = "shares", or leave it out'
    )


def _if_features(labelled: LabelledRows, target: TargetRows) -> Counted:
    auc, error, ratio = propensity(labelled, target, labelled.weight)
    if auc > TOO_FAR:
        said = (
            f"the labelled objects overlap too little with these: {_tries(auc, error)}, expected at most "
            f"{100 * TOO_FAR:.0f}. The model would guess; look at a sample of these: `blr audit draw`"
        )
        return Counted(labelled, None, "features", said)
    said = f"{ASSUMPTIONS['features']}: stated by you; no test can check it"
    weighted = replace(labelled, weight=labelled.weight * ratio)
    shares = shares_if_features(labelled, target, ratio)
    return Counted(weighted, shares, "features", said, unweighted=labelled)


def count_with_labels(
    labelled: LabelledRows, target: TargetRows, known: Places, *, assumes: StatedAssumption | None = None
) -> Counted:
    """Return the class shares of a partly labelled target: `known` (N,) is the class of a row, -1 without a label.

    The rows with a label of class k stand, with their weights, for all of the target's objects that have this label.
    The assumption is then one on the objects without a label, and tests compare these alone with the labelled rows.
    """
    K = labelled.n_classes
    has_label = known >= 0
    if not has_label.any() or lacking_labels(labelled):
        return count_classes(labelled, target, assumes=assumes)
    counts = np.rint(np.bincount(known[has_label], target.weight[has_label], minlength=K))
    n_other = max(0, target.n_objects - int(counts.sum()))
    p, weight, X = (values[~has_label] for values in (target.probability, target.weight, target.X))
    others = TargetRows(p, weight, X, n_other)
    if min(n_other, len(others.weight)) < FEWEST_ROWS:
        return _of_labels(labelled, counts, n_other, "" if n_other else "; no other is left")
    found = count_classes(labelled, others, assumes=assumes)
    if found.shares is None and n_other <= MOST_UNSAID * target.n_objects:
        bounds = _of_labels(labelled, counts, n_other, f". No more can be said of them: {found.reason}")
        return replace(bounds, contradicted=found.contradicted)
    said = f"{_labelled(counts)}; of the {n_other:,} others: {found.reason}"
    if found.shares is None:
        return replace(found, reason=said)
    alternatives = tuple(
        replace(one, shares=_with_labels(one.shares, counts, n_other))
        for one in found.alternatives
        if one.shares is not None
    )
    shares = _with_labels(found.shares, counts, n_other)
    return replace(found, shares=shares, reason=said, alternatives=alternatives, counted=counts)


def _labelled(counts: Vector) -> str:
    return f"{counts.sum():,.0f} objects have a label and are counted by it"


def _with_labels(others: Matrix, counts: Vector, n_other: int) -> Matrix:
    """Return the shares among all objects, from `counts` (K,) by label and the shares among the others."""
    return np.asarray((counts + n_other * others) / (counts.sum() + n_other))


def _of_labels(labelled: LabelledRows, counts: Vector, n_other: int, why: str) -> Counted:
    """Return the shares by label, where the others are not estimated, and why: each class in turn gets all of them."""
    each = np.repeat(np.eye(labelled.n_classes), _DRAWS_OF_EACH, axis=0)
    shares = _with_labels(each, counts, n_other)
    left = f". The other {n_other:,} may be of any class, which the intervals hold" if n_other else ""
    of_class = (Counted(labelled, shares, "shares", ""),)
    return Counted(
        labelled, shares, None, f"{_labelled(counts)}{left}{why}", alternatives=of_class, counted=counts
    )


def propensity(labelled: LabelledRows, target: TargetRows, row_weight: Vector) -> tuple[float, float, Vector]:
    """Return how well a model distinguishes the two sets where labelled rows count by `row_weight` (n,).

    That is the probability that a target row looks more like the target than a labelled one does, 0.5 where both look
    alike; its standard error without any difference; and how much more frequent objects like a labelled row are in the
    target (n,), with a mean of one.
    """
    near, far = _spaced(len(labelled.y)), _spaced(len(target.weight))
    Phi = _design(labelled.X[near], target.X[far])
    n, N = len(near), len(far)
    is_target = np.concatenate([np.zeros(n), np.ones(N)])
    of_set = [row_weight[near], target.weight[far]]
    worth = [float(w.sum() ** 2 / (w**2).sum()) for w in of_set]
    even = min(worth)
    weight = np.concatenate([w / w.sum() * even for w in of_set])
    fold = np.arange(n + N) % FOLDS
    log_ratio = np.empty(n + N)
    areas = []
    for k in range(FOLDS):
        out = fold == k
        log_ratio[out] = Phi[out] @ _logistic(Phi[~out], is_target[~out], weight[~out])
        areas.append(_area(log_ratio[out], is_target[out] > 0, weight[out]))
    area = float(np.mean(areas))
    ratio = np.ones(len(labelled.y))
    ratio[near] = np.exp(log_ratio[:n])
    if len(near) < len(ratio):
        ratio = np.interp(np.arange(len(ratio)), near, ratio[near])
    error = float(np.sqrt((1 / worth[0] + 1 / worth[1]) / 12))
    return area, error, ratio / ratio.mean()


def novelty(labelled: LabelledRows, target: TargetRows, row_weight: Vector) -> tuple[float, float]:
    """Return the share of the target that is unlike every labelled row, as objects of a class without labels are.

    It lies farther from its nearest labelled row than `EXPECTED` of the labelled rows, which count by `row_weight`
    (n,), do from theirs.  The second number is by how many standard errors that, or the distance of all, is too much;
    0 if it is little.
    """
    near, far = _spaced(len(labelled.y)), _spaced(len(target.weight))
    Z, missing = standardised(labelled.X[near], target.X[far])
    points, n = np.column_stack([Z, missing]), len(near)
    tree = scipy.spatial.cKDTree(points[:n])
    own = np.asarray(tree.query(points[:n], k=2)[0])[:, 1]
    other = np.asarray(tree.query(points[n:], k=1)[0])
    weight, of_target = row_weight[near], target.weight[far]
    order = np.argsort(own, kind="stable")
    below = np.cumsum(weight[order]) / weight.sum()
    limit = own[order][min(int(np.searchsorted(below, 1 - EXPECTED)), n - 1)]
    share = float(of_target @ (other > limit) / of_target.sum())
    worth = sum(float((w**2).sum() / w.sum() ** 2) for w in (weight, of_target))
    tail = (share - EXPECTED) / np.sqrt(EXPECTED * (1 - EXPECTED) * worth)
    is_target = np.arange(len(points)) >= n
    area = _area(np.concatenate([own, other]), is_target, np.concatenate([weight / n, of_target]))
    found = [tail] * (share > MUCH) + [(area - 0.5) / np.sqrt(worth / 12)] * (area > FAR)
    return share, float(max(found, default=0.0))


def _spaced(n: int) -> Places:
    return np.unique(np.linspace(0, n - 1, min(n, MOST_ROWS)).round().astype(np.intp))


def _design(X: Matrix, other: Matrix) -> Matrix:
    """Return an intercept, standardised features, their products, and which are missing, of both sets of rows."""
    Z, missing = standardised(X, other)
    i, j = np.triu_indices(Z.shape[1]) if Z.shape[1] <= MOST_PRODUCTS else (np.arange(Z.shape[1]),) * 2
    columns = np.hstack([Z, Z[:, i] * Z[:, j], missing])
    spread = columns.std(axis=0)
    columns = (columns - columns.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    return np.column_stack([np.ones(len(columns)), columns])


def covariate_scales(X: Matrix) -> tuple[Vector, Vector]:
    """Return mean and standard deviation (F,) of the covariates X (N, F), NaN for what is missing."""
    known = np.isfinite(X)
    n = np.maximum(known.sum(axis=0), 1)
    centre = np.where(known, X, 0.0).sum(axis=0) / n
    variance = (np.where(known, X - centre, 0.0) ** 2).sum(axis=0) / n
    return centre, np.where(variance > 0, np.sqrt(variance), 1.0)


def standardised(X: Matrix, other: Matrix) -> tuple[Matrix, Matrix]:
    """Return the features (n + N, F) of both sets in standard deviations, cut at five, and which are missing (1.0).

    A missing feature has its mean, 0.
    """
    both = np.vstack([X, other])
    centre, scale = covariate_scales(both)
    Z = np.nan_to_num((both - centre) / scale)
    return np.clip(Z, -FARTHEST, FARTHEST), np.isnan(both).astype(np.float64)


def _logistic(Phi: Matrix, t: Vector, weight: Vector) -> Vector:
    """Return the weights (M,) of a logistic model with a Gaussian prior on all but the intercept, by Newton's method.

    The steps are bounded by the prior, whose precision is that of tens of rows: no search along them is needed.
    """
    precision = np.concatenate([[1e-4], np.full(Phi.shape[1] - 1, PRECISION)])
    w = np.zeros(Phi.shape[1])
    for _ in range(_NEWTON_STEPS):
        p = expit(Phi @ w)
        gradient = Phi.T @ (weight * (t - p)) - precision * w
        hessian = (Phi * (weight * p * (1 - p))[:, None]).T @ Phi + np.diag(precision)
        step = np.linalg.solve(hessian, gradient)
        w = w + step
        if np.abs(step).max() < _TOLERANCE:
            break
    return w


def _area(score: Vector, positive: np.ndarray, weight: Vector) -> float:
    """Return the weighted area under the ROC curve, ties shared."""
    values, place = np.unique(score, return_inverse=True)
    above = np.bincount(place, np.where(positive, weight, 0.0), minlength=len(values))
    below = np.bincount(place, np.where(positive, 0.0, weight), minlength=len(values))
    under = np.cumsum(below) - below / 2
    total = above.sum() * below.sum()
    return float(above @ under / total) if total > 0 else 0.5


def means_test(labelled: LabelledRows, target: TargetRows, shares: Matrix) -> tuple[float, int, float] | None:
    """Return the statistic, the number of components, and the probability of so much or more where "shares" holds.

    The statistic says how far the means of so many principal components of the features miss, given draws (S, K) of the
    class shares of the target; where "shares" holds it has the F distribution.  None where there are too few rows.

    The target's mean m, class means μ_k and within-class covariances V_k are of standardised features and of which are
    missing.  With expected shares π the miss is r = m - Σ π_k μ_k, and its covariance
    Σ V_k (π_k² / n_k + π_k / N) + μ' cov(π) μ.
    """
    freedom = float(labelled.class_rows.sum()) - labelled.n_classes
    columns = np.hstack(standardised(labelled.X, target.X))
    columns = columns - columns.mean(axis=0)
    varies = columns.std(axis=0) > _SAME_COLUMN
    columns = columns[:, varies] / columns.std(axis=0)[varies]
    most = int(freedom / ROWS_A_COMPONENT)
    if most < 1 or not columns.shape[1]:
        return None
    # The first principal components.
    value, direction = np.linalg.eigh(columns.T @ columns / len(columns))
    P = min(most, int((value > _SAME_COLUMN * value[-1]).sum()))
    rotation = direction[:, ::-1][:, :P]
    ours, theirs = columns[: len(labelled.y)], columns[len(labelled.y) :]
    pi, cov_pi = shares.mean(axis=0), np.cov(shares.T)
    m = target.mean(theirs)
    mean, V = _class_moments(ours, labelled)
    V = _as_spread_as(V, pi, target.mean((theirs - m) ** 2) - pi @ (mean - pi @ mean) ** 2)
    spread = pi**2 / labelled.class_rows + pi / target.n_effective
    C = rotation.T @ (np.einsum("k,kij->ij", spread, V) + mean.T @ cov_pi @ mean) @ rotation
    between = ((mean - pi @ mean) * pi[:, None]).T @ (mean - pi @ mean)
    theirs_within = ((theirs - m) * target.weight[:, None]).T @ (theirs - m) / target.weight.sum() - between
    ours_within = np.einsum("k,kij->ij", pi, V)
    C += spread.sum() * _lacking(*(rotation.T @ W @ rotation for W in (ours_within, theirs_within)))
    C += _SAME_COLUMN * np.trace(C) / P * np.eye(P)
    miss = rotation.T @ (m - pi @ mean)
    statistic = float(miss @ np.linalg.solve(C, miss)) * (freedom - P + 1) / (freedom * P)
    return statistic, P, float(fdtrc(P, freedom - P + 1, statistic))


def _class_moments(columns: Matrix, labelled: LabelledRows) -> tuple[Matrix, Matrix]:
    """Return the means (K, D) and the covariances (K, D, D) of the classes.

    The covariance of a class of few rows is shrunk to the one within all classes, which counts as D + 1 rows.
    """
    K, D = labelled.n_classes, columns.shape[1]
    mean, W = np.empty((K, D)), np.empty((K, D, D))
    for k in range(K):
        weight = np.where(labelled.y == k, labelled.weight, 0.0)
        weight = weight * (labelled.class_rows[k] / weight.sum())
        mean[k] = weight @ columns / weight.sum()
        centred = columns - mean[k]
        W[k] = (centred * weight[:, None]).T @ centred
    pooled = W.sum(axis=0) / (labelled.class_rows.sum() - K)
    rows = labelled.class_rows[:, None, None]
    return mean, (W + (D + 1) * pooled) / (rows - 1 + D + 1)


def _lacking(ours: Matrix, theirs: Matrix) -> Matrix:
    """Return how much smaller than the target's some covariances (P, P) are, in the directions where they hardly vary.

    Two colours that share a band are missing together, unless a row lacks another band too.  Where no labelled row
    does, their two flags of missing values are equal, and the labelled rows do not say how the flags differ.
    """
    value, axes = np.linalg.eigh(theirs)
    axes = axes * np.sqrt(np.maximum(value, _SAME_COLUMN * value[-1]))  # theirs = axes axes'
    inverse = np.linalg.inv(axes)
    share, directions = np.linalg.eigh(inverse @ ours @ inverse.T)
    directions = axes @ directions
    return directions * np.where(share < LEAST_SPREAD, 1.0 - share, 0.0) @ directions.T


def _as_spread_as(V: Matrix, pi: Vector, variance: Vector) -> Matrix:
    """Return covariances (K, D, D), raised in columns that spread much less than in the target's classes (D,)."""
    found = pi @ np.diagonal(V, axis1=1, axis2=2)
    lacking = variance > FARTHEST_SPREAD * found
    scale = np.sqrt(np.where(lacking & (found > 0), variance / np.maximum(found, 1e-300), 1.0))
    V = V * np.outer(scale, scale)
    return V + np.diag(np.where(lacking & (found <= 0), variance, 0.0))
