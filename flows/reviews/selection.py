"""The objects that a person should see: the doubtful ones, the unlike ones, and as many as a budget allows.

The highest mutual information alone collects outliers and noise.  A draw in proportion to it, whose inclusion
probability is written down as a weight, stands for the whole catalogue.  Shapes: n rows, D dimensions, H strata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from blr.arrays import Floats, Mask, Places
from blr.census.spread import informed_sizes, spread_sample
from blr.decisions import WORTH_A_LOOK
from blr.explanation import MOST_COMPARED, relative
from catalogs.errors import ColumnNotFoundError
from catalogs.expressions.expression import Bins, Expression, parse
from flows.request import ReviewRequest
from flows.reviews import _lists as lists
from flows.runs.manifest import annotated_manifest, read_labelled_names
from flows.runs.release_store import output_folder

if TYPE_CHECKING:
    from flows.classification.explanation import FeatureSpace, NearestLabelled
    from flows.classification.scoring import Scorer

SEARCHED = 100_000
"""Objects among which outliers are looked for, at random: a type that is 0.3 % of a release is among them 300 times."""
AT_ONCE = 1024  # objects whose novelty is found together
SPARE = 10  # candidates for each outlier that is wanted: some are on the other list, or appear twice


class OutlierSearch:
    """The objects most unlike all labelled ones, such as new types and artefacts; of near-duplicates one alone.

    First `sample` all rows, then `add` them.
    """

    def __init__(self, n: int, radius: float, rng: np.random.Generator) -> None:
        self._n, self._most, self._radius, self._rng = n, n * SPARE, radius, rng
        self._rows: list[lists.ListedObject] = []
        self._points = np.empty((0, 0))
        self._sampled, self._n_rows = lists.RandomSample(MOST_COMPARED, rng), 0
        self._tree: scipy.spatial.cKDTree | None = None

    def sample(self, points: Floats) -> None:
        """Take the points (n, D) of a batch into the random sample of all, with which each is compared."""
        self._n_rows += len(points)
        self._sampled.add(points)

    def add(self, rows: lists.ObjectRows, points: Floats, nearest_labelled: NearestLabelled) -> None:
        """Take the rows of a batch, with their points (n, D)."""
        looked_at = np.flatnonzero(self._rng.random(len(points)) * self._n_rows < SEARCHED)
        if not looked_at.size:
            return
        self._tree = scipy.spatial.cKDTree(self._sampled.values) if self._tree is None else self._tree
        distance, nearest = nearest_labelled(points[looked_at])
        names = np.array([*rows.classes, ""])[np.minimum(nearest, len(rows.classes))]
        # The farthest first: of most others the novelty then need not be known.
        order = np.argsort(-distance, kind="stable")
        for start in range(0, len(order), AT_ONCE):
            some = order[start : start + AT_ONCE]
            at = points[looked_at[some]]
            least = self._rows[-1]["novelty"] if len(self._rows) == self._most else 0.0
            novelty = relative(distance[some], at, self._tree, least=least)
            ranked = np.argsort(-novelty, kind="stable")
            ranked = ranked[novelty[ranked] > least]
            picked = ranked[apart(at[ranked], self._radius, self._most)]
            both = list(self._rows)
            for i in picked.tolist():
                far = {"novelty": float(novelty[i]), "distance": float(distance[some[i]])}
                both.append(rows.listed(int(looked_at[some[i]]), **far, nearest_class=str(names[some[i]])))
            joined = np.concatenate([self._points.reshape(-1, at.shape[1]), at[picked]])
            ranked = np.argsort([-row["novelty"] for row in both], kind="stable")
            kept = ranked[apart(joined[ranked], self._radius, self._most)]
            self._rows, self._points = [both[i] for i in kept.tolist()], joined[kept]

    def found(self, listed: set[str]) -> list[lists.ListedObject]:
        """Return the outliers, the most unlike first, each object once; those that are `listed` are left out."""
        once: dict[str, lists.ListedObject] = {}
        for row in self._rows:
            if row["name"] not in listed:
                once.setdefault(row["name"], row)
        return [*once.values()][: self._n]


def apart(points: Floats, radius: float, most: int) -> Places:
    """Return the first points (m,) of (n, D) farther than the radius from all chosen before; `most` at most."""
    left, chosen = np.arange(len(points)), list[int]()
    while left.size and len(chosen) < most:
        first = left[0]
        chosen.append(int(first))
        difference = points[left] - points[first]
        left = left[np.einsum("nd,nd->n", difference, difference) > radius**2]
    return np.array(chosen, dtype=np.intp)


POOL, POOL_OF_ONE = 10_000, 20  # objects in the pool: so many, or so many for each that is wanted
NEAR = 0.05  # distance of near-duplicates: that of two labelled objects, drawn at random, is 1
LEAST_P = 1e-3  # least probability of a class where probabilities are what objects are spread over
NO_SPACE = (
    "spread over the probabilities only, and without a list of outliers, since the copies lack columns of the "
    'features; write full copies, not slim ones, with mode = "annotated" under [output], or name with --spec the '
    "specification that they were classified with"
)


Drawn = tuple[list[lists.ListedObject], list[lists.ListedObject], int, tuple[str, ...]]
"""The list in random order, the outliers, the farthest first, the number of rows to choose from, and remarks."""


def _budget_drawn(
    tables: Sequence[lists.ObjectTable],
    labelled: pa.Array | None,
    request: ReviewRequest,
    space: FeatureSpace,
) -> Drawn:
    """Return objects that are drawn where labels help most, and spread over the features.

    The first pass adds up mutual information by stratum; the second draws a pool of bounded size in proportion to it,
    of which `blr.census.spread` draws the list.
    """
    budget, rng = request.budget or 0, np.random.default_rng([request.seed, 2])
    by, bins = _bins(tables, labelled, request, rng)
    scorers: Sequence[Scorer | None] = [None] * len(tables)
    remarks: tuple[str, ...] = ()
    try:
        scorers = [space.scorer.on(table.catalog) for table in tables]
    except ColumnNotFoundError:
        remarks = (NO_SPACE,)
    search = None
    if any(scorers) and request.outliers:
        search = OutlierSearch(request.outliers, NEAR, rng)
    kinds = len(bins.names)

    def stratum(rows: lists.ObjectRows) -> Places:
        """Return the bin (n,) of each row, or its class and bin."""
        place = rows.places(bins)
        return np.asarray(rows.probability.argmax(axis=1) * kinds + place) if request.per_class else place

    n_strata = kinds * (len(tables[0].classes) if request.per_class and tables else 1)
    count, total = np.zeros(n_strata, dtype=np.int64), np.zeros(n_strata)
    for table, there in zip(tables, scorers, strict=True):
        also = there.reader.read if there and search else ()
        for rows in table.rows(by=by, also=also, labelled=labelled):
            place = stratum(rows)
            count += np.bincount(place, minlength=n_strata)
            total += np.bincount(place, weights=rows.information, minlength=n_strata)
            if search is not None:
                search.sample(_points(rows, there))
    mean = total / np.maximum(count, 1)
    most = max(POOL, POOL_OF_ONE * budget) / max(int(np.count_nonzero(count)), 1)
    rate = np.where(count > most, most / np.maximum(count, 1), np.inf)  # of a row of mean size
    passed = rng.random(n_strata)
    pool: list[lists.ObjectRows] = []
    # Of the pool: size, first probability, point, stratum.
    parts: list[tuple[Floats, Floats, Floats, Places]] = []
    for table, there in zip(tables, scorers, strict=True):
        for rows in table.rows(by=by, also=there.reader.read if there else (), labelled=labelled):
            place = stratum(rows)
            size = informed_sizes(rows.information, mean[place])
            first = np.minimum(1.0, size * rate[place])
            index = np.flatnonzero(_taken(place, first, passed))
            pool.append(rows.taken(index))
            points = _points(rows, there)
            parts.append((size[index], first[index], points[index], place[index]))
            if search is not None:
                search.add(rows, points, space.nearest_labelled)
    chosen = _drawn_within(pool, parts, shared_out(budget, count), rng)
    outliers = [] if search is None else search.found({row["name"] for row in chosen})
    return chosen, outliers, int(count.sum()), remarks


def _points(rows: lists.ObjectRows, scorer: Scorer | None) -> Floats:
    """Return rows as points (n, D) in the space of the features, or in that of the probabilities."""
    return np.log(np.maximum(rows.probability, LEAST_P)) if scorer is None else scorer.points(rows.rest)


def _bins(
    tables: Sequence[lists.ObjectTable],
    labelled: pa.Array | None,
    request: ReviewRequest,
    rng: np.random.Generator,
) -> tuple[Expression | None, Bins]:
    """Return the expression and its bins, from a pass of their own; one bin without it."""
    if request.by is None:
        return None, lists.ALL
    by, sample = parse(request.by), lists.ValueSample(rng)
    for table in tables:
        for rows in table.rows(by=by, labelled=labelled):
            if rows.by is not None:
                sample.add(rows.by)
    return by, lists.bins_of(by.text, sample, request.bins, request.edges)


def shared_out(budget: int, count: NDArray[np.int64]) -> Places:
    """Return how many objects to draw of each stratum (H,): equally many, but of a small stratum all that it has."""
    quota = np.zeros(len(count), dtype=np.intp)
    left = min(budget, int(count.sum()))
    while left:
        # What cannot be shared equally goes to the strata of most rows.
        free = [h for h in np.argsort(-count, kind="stable").tolist() if quota[h] < count[h]]
        share = max(left // len(free), 1)
        for h in free:
            more = min(share, int(count[h] - quota[h]), left)
            quota[h] += more
            left -= more
    return quota


def _taken(place: Places, first: Floats, passed: Floats) -> Mask:
    """Return which rows (n,) of a batch a systematic sample takes, by stratum, with probabilities `first` (n,).

    `passed` (H,) is how far each stratum has come, modulo 1, and moves on.
    """
    taken = first >= 1.0
    for h in np.unique(place).tolist():
        mine = np.flatnonzero(place == h)
        marks = np.concatenate([[passed[h]], passed[h] + np.cumsum(first[mine])])
        taken[mine] |= np.floor(marks[1:]) > np.floor(marks[:-1])
        passed[h] = marks[-1] % 1.0
    return taken


def _drawn_within(
    pool: Sequence[lists.ObjectRows],
    parts: Sequence[tuple[Floats, Floats, Floats, Places]],
    quota: Places,
    rng: np.random.Generator,
) -> list[lists.ListedObject]:
    """Return the objects of the list in random order, so that its beginning is a random sample too."""
    if not pool:
        return []
    size, first, points, stratum = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    objects = [(rows, i) for rows in pool for i in range(len(rows.names))]
    # Rows without a name are objects of their own.
    names = [str(rows.names[i]) or f"\0{k}" for k, (rows, i) in enumerate(objects)]
    _, groups = np.unique(names, return_inverse=True)
    row, probability, _ = spread_sample(size, first, points, groups, stratum, quota, radius=NEAR, rng=rng)
    order = rng.permutation(len(row))
    drawn = zip(row[order].tolist(), probability[order].tolist(), strict=True)
    return [rows.listed(i, how="drawn", weight=1 / p) for k, p in drawn for rows, i in [objects[k]]]


UNKNOWN = (
    "the list may contain objects that have a label, since the folder has no names of labelled objects; "
    "train and classify again with id under [catalog]"
)


@dataclass(frozen=True, kw_only=True)
class ReviewResult:
    """Which objects were chosen for a human look, and where the lists are.

    `id` is the column that names an object, None where there are no catalogues.  `top` counts those chosen by their
    flags and `drawn` those drawn, of all `n_classified` that have no label; `outliers` counts those of a list of their
    own.  `files` is empty where nothing was written.
    """

    status: Literal["planned", "done"]
    model: str
    out: Path
    id: str | None
    n_classified: int
    top: int
    drawn: int
    outliers: int
    remarks: tuple[str, ...]
    files: tuple[Path, ...]


def review(request: ReviewRequest, *, dry_run: bool = False) -> ReviewResult:
    """Write the review list of a folder that `classify` has written; return what was done.

    With a budget, its objects are drawn where labels help most and spread over the features, and the outliers there
    are listed besides.  Without, the `top` flagged objects, the least certain first.  Objects that the model was
    trained on are in no list.

    UsageError if the folder has no annotated catalogues, a list has answers already, or the options exclude each
    other.
    """
    request.check()
    with output_folder(request.out, key="out", publish=not dry_run) as folder:
        return _reviewed(request, folder, dry_run=dry_run)


def _reviewed(request: ReviewRequest, folder: Path, *, dry_run: bool) -> ReviewResult:
    for name in (lists.REVIEW, lists.OUTLIERS) if request.budget is not None else (lists.REVIEW,):
        lists.check_unanswered(folder, name)
    manifest, labelled = annotated_manifest(folder), read_labelled_names(folder)
    tables, classes = lists.object_tables(folder, manifest, request.identifier), tuple(manifest.classes)
    if request.budget is None:
        chosen, outliers, n_rows, more = _chosen(tables, labelled, request)
    else:
        from flows.classification.explanation import feature_space  # noqa: PLC0415 -- only a budget needs it

        store = manifest.model_store(folder, request.store)
        space = feature_space(manifest, store, request.specification)
        chosen, outliers, n_rows, more = _budget_drawn(tables, labelled, request, space)
    remarks = [*(t.remark for t in tables if t.remark), *more]
    if request.budget is not None and len(chosen) < request.budget:
        n_all = sum(t.catalog.n_rows for t in tables)
        remarks.append(
            f"the list has {len(chosen):,} of the {request.budget:,} objects of the budget: the model was trained on "
            f"{n_all - n_rows:,} of {n_all:,}, and of repeats and near-duplicates one is listed"
        )
    identity = tables[0].identifier if tables else None
    files: list[Path] = []
    if not dry_run:
        key, model = identity or "id", manifest.model
        files = lists.write_list(lists.REVIEW, chosen, folder, key, classes, f"Review of {model}")
        if request.budget is not None:
            files += lists.write_list(lists.OUTLIERS, outliers, folder, key, classes, f"Outliers of {model}")
    how = Counter(row["how"] for row in chosen)
    return ReviewResult(
        status="planned" if dry_run else "done",
        model=manifest.model,
        out=folder,
        id=identity,
        n_classified=n_rows,
        top=how["top"],
        drawn=how["drawn"],
        outliers=len(outliers),
        remarks=(*remarks, *([] if labelled else [UNKNOWN])),
        files=tuple(files),
    )


def _chosen(tables: Sequence[lists.ObjectTable], labelled: pa.Array | None, request: ReviewRequest) -> Drawn:
    """Return the least certain flagged objects; no outliers."""
    best: list[tuple[float, int, lists.ListedObject]] = []
    n = 0
    for table in tables:
        for rows in table.rows(labelled=labelled):
            flagged, p_max = np.flatnonzero(rows.flags & WORTH_A_LOOK), rows.probability.max(axis=1)
            order = flagged[np.argsort(p_max[flagged], kind="stable")]
            first = order[_first_of_each(rows.names[order], request.n_top)]
            best += [(float(p_max[i]), n + int(i), rows.listed(int(i), how="top", weight=1.0)) for i in first]
            best.sort(key=lambda entry: entry[:2])
            best = [best[i] for i in _first_of_each([entry[2]["name"] for entry in best], request.n_top)]
            n += len(p_max)
    return [row for _, _, row in best], [], n, ()


def _first_of_each(names: Iterable[str], most: int) -> list[int]:
    """Return where the first `most` different names are: what was observed twice is looked at once."""
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if len(first) == most:
            break
        first.setdefault(name, i)
    return [*first.values()]
