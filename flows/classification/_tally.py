"""What is gathered while rows are classified: counts of classes and flags, the sky, doubtful objects, census rows.

Threads count batches in any order.  So floating-point numbers are summed by `math.fsum`, which is exact, so that the
order does not matter.  Shapes: n rows, K classes, F features, S draws of the weights, P pixels.
"""

from __future__ import annotations

import base64
import math
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from blr.arrays import Floats, Places
from blr.decisions import FLAG_MEANINGS, WORTH_A_LOOK, most_probable
from catalogs.arrays import batch_values
from catalogs.catalog.catalog import Catalog, Column
from catalogs.errors import CatalogError
from catalogs.expressions.expression import parse
from catalogs.files import atomic_path, check_links, own_folder
from catalogs.profile.quality import is_magnitude
from catalogs.profile.split import healpix_pixels
from catalogs.sky.positions import Positions, positions
from flows.features.reader import FeatureBatch, Place
from flows.models.description import FeatureQuality
from flows.models.model import Model
from flows.runs.manifest import ObjectColumns, is_labelled
from flows.runs.results import (
    ClassEstimate,
    Counts,
    DoubtfulObject,
    FlagCount,
    PredictionSets,
    SkyCounts,
    Tally,
    summed,
)
from flows.specification.specification import Specification

Flags = NDArray[np.int32]
"""The bits of rows (n,)."""


def object_columns(specification: Specification) -> ObjectColumns:
    """Return the target's columns of identifier and position that the specification names, and the position's unit."""
    catalog, theirs = specification.catalog, specification.target.columns
    ours = {"id": catalog.id, "ra": catalog.ra, "dec": catalog.dec}
    named = {key: theirs.get(name, name) for key, name in ours.items() if name}
    return ObjectColumns(**named, unit=catalog.position_unit or None)


def tally_of(
    p: Floats,
    draws: Floats,
    flags: Flags,
    missing: NDArray[np.bool_],
    sets: NDArray[np.bool_] | None = None,
    marks: Mapping[str, int] = MappingProxyType({}),
) -> Tally:
    """Count a batch: p (n, K), NaN where unclassified; draws (S, K); flags (n,); missing (n, F); sets (n, K)."""
    classified = ~np.isnan(p[:, 0])
    known, counted = p if classified.all() else p[classified], dict[str, Any]()
    if sets is not None:
        sizes = np.bincount(sets[classified].sum(axis=1), minlength=sets.shape[1] + 1)
        counted = {
            "set_sizes": tuple(sizes.tolist()),
            "in_sets": tuple(sets[classified].sum(axis=0).tolist()),
        }
    bits = {str(flag.name): int(flag.value) for flag in FLAG_MEANINGS}
    return Tally(
        n_rows=len(p),
        n_classified=len(known),
        assigned=tuple(np.bincount(most_probable(known), minlength=p.shape[1]).tolist()),
        # A column each: a sum over rows of two takes ten times as long, and one by BLAS depends on where they lie.
        expected=tuple(float(x.sum()) for x in known.T),
        variance=tuple(float(x.sum()) for x in (known * (1 - known)).T),
        draws=tuple(map(tuple, draws.tolist())),
        flags={name: int(np.count_nonzero(flags & bit)) for name, bit in bits.items()},
        missing=tuple(int(np.count_nonzero(column)) for column in missing.T),
        marks=marks,
        **counted,
    )


def map_input(model: Model) -> tuple[int, Floats] | None:
    """Return the magnitude by which flagged rows are counted, and the edges of its bins (E,); None where none varies.

    It is the one that most labelled rows have.  The bins are tenths of the training rows, in the range of the labelled
    rows, and what lies beyond both of its ends.
    """
    quality, trained = {f["name"]: f for f in model.training.features}, model.training.distribution
    known = [j for j, name in enumerate(model.features) if trained[name].edges]
    bright = [j for j in known if _is_magnitude(model, quality[model.features[j]])]
    if not bright:
        return None
    chosen = min(bright, key=lambda j: quality[model.features[j]]["missing"])
    name = model.features[chosen]
    ends = quality[name]["minimum"], np.nextafter(quality[name]["maximum"], np.inf)
    return chosen, np.unique([*ends, *trained[name].edges])


def _is_magnitude(model: Model, feature: FeatureQuality) -> bool:
    """Say whether a feature is a magnitude, or made of one alone."""
    expression = parse(feature["expression"])
    if len(expression.names) != 1 or expression.tells_presence:
        return False
    (name,) = expression.names
    said = model.columns.get(name)
    if said is None:
        return name in model.specification.photometry
    column = Column(name, pa.float64(), unit=said.unit, ucd=said.ucd, description=said.description)
    return is_magnitude(column, np.array([feature["median"]]))


def counted_by_input(
    tally: Tally, x: Floats, missing: NDArray[np.bool_], flags: Flags, edges: Floats
) -> Tally:
    """Return the tally of a batch with its counts by an input, x (n,), in the bins between the edges."""
    n = len(edges) + 2
    place = np.where(missing, n - 1, np.searchsorted(edges, x, side="right"))
    flagged = (flags & WORTH_A_LOOK) != 0
    counts = np.bincount(place + n * flagged, minlength=2 * n).reshape(2, n)
    return replace(
        tally, by_input=tuple(counts.sum(axis=0).tolist()), flagged_by_input=tuple(counts[1].tolist())
    )


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies, which does not depend on their order."""
    counted = list(tallies)
    return summed([t for t in counted if t.n_rows] or counted[:1])  # a tally without rows has no draws


def with_few_digits(tally: Tally) -> Tally:
    """Return a tally whose draws have seven digits, as many as the record of a file needs."""
    return replace(tally, draws=tuple(tuple(float(f"{n:.7g}") for n in row) for row in tally.draws))


def summarise(
    tally: Tally,
    classes: Sequence[str],
    features: Sequence[str],
    *,
    no_error: str | None = None,
    sets: PredictionSets | None = None,
) -> Counts:
    """Return the counts that people read: classes with errors, shares of flags and of missing features.

    `no_error` says why the errors of the counts are not known; they are None then.  `sets` is how prediction sets were
    made.
    """
    shared = np.var(np.array(tally.draws), axis=0, ddof=1) if len(tally.draws) > 1 else np.zeros(len(classes))
    n = max(1, tally.n_rows)
    return Counts(
        n_rows=tally.n_rows,
        n_classified=tally.n_classified,
        classes={
            name: ClassEstimate(
                assigned=tally.assigned[k],
                expected=tally.expected[k],
                error=math.sqrt(tally.variance[k] + float(shared[k])) if no_error is None else None,
                error_objects=math.sqrt(tally.variance[k]) if no_error is None else None,
                error_weights=math.sqrt(float(shared[k])) if no_error is None else None,
            )
            for k, name in enumerate(classes)
        },
        no_error=no_error,
        flags={
            str(flag.name): FlagCount(
                bit=int(flag.value).bit_length() - 1, meaning=meaning, count=count, share=count / n
            )
            for flag, meaning in FLAG_MEANINGS.items()
            for count in [tally.flags[str(flag.name)]]
        },
        missing={name: tally.missing[j] / n for j, name in enumerate(features)},
        sets=sets and sets.counted(tally.set_sizes, tally.in_sets),
        marks=dict(sorted(tally.marks.items(), key=lambda one: -one[1])),
    )


# The objects and the sky counts that a classification's report shows, gathered while rows are classified. Memory is
# bounded: counts in HEALPix pixels, and the few objects whose labels would teach most.

ORDER: Final = 4
"""Order of the pixels of maps: 3,072 pixels of 3.7 degrees."""
MOST_OBJECTS: Final = 20
MOST_SORTED: Final = 10_000
"""Most rows of a batch that are sorted, and compared with the labelled ones."""
ENOUGH: Final = 3 * MOST_OBJECTS
"""Most rows of a batch that are kept: more than objects, since an object may be in several rows."""
_ROUNDED: Final = 1e-6
"""How far the mutual information of kept objects may be rounded."""
EXPLAINED: Final = 3
"""Number of objects whose features are kept, so that the report can say why they have their class."""


@dataclass(frozen=True)
class ObjectSurvey:
    """The columns with names and positions of objects, None without them, and the counts so far.

    Objects that are `labelled` are not proposed for a review.
    """

    classes: tuple[str, ...]
    identifier: str | None
    place: Place | None
    labelled: pa.Array | None = None

    counted: list[SkyCounts] = field(default_factory=list)
    objects: list[DoubtfulObject] = field(default_factory=list)
    # Held while a thread adds objects.
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def of(
        cls, catalog: Catalog, specification: Specification, classes: tuple[str, ...], labelled: pa.Array
    ) -> ObjectSurvey:
        """Return the survey of a catalogue; positions whose unit is not known are left out."""
        named = object_columns(specification)
        known = named.id if named.id in catalog.names else None
        place = None
        with suppress(CatalogError):
            place = named.place(catalog) if {named.ra, named.dec} <= {*catalog.names} else None
        return cls(classes, known, place, labelled)

    @property
    def read(self) -> tuple[str, ...]:
        """The columns to be read."""
        return tuple(name for name in (self.identifier, *(self.place or ())[:2]) if name is not None)

    def add(
        self,
        batch: pa.RecordBatch,
        p: Floats,
        information: Floats,
        flags: Flags,
        features: FeatureBatch | None = None,
    ) -> None:
        """Count a batch: p (n, K), mutual information (n,), NaN where unclassified; flags (n,); its features."""
        if not self.read or not batch.num_rows:
            return
        values = batch_values(batch, self.read)
        at = Positions(*np.full((2, batch.num_rows), np.nan))
        if self.place is not None:
            at = positions(values[self.place[0]], values[self.place[1]], self.place[2])
            self.counted.append(
                _sky_counts(healpix_pixels(at.ra, at.dec, ORDER), p, flags, len(self.classes))
            )
        if self.identifier is not None:
            names = values[self.identifier]
            found = list(self._doubtful(names, at, p, information, flags, features))
            with self.lock:
                self.objects[:] = most_doubtful([*self.objects, *found])

    def sky(self) -> SkyCounts | None:
        """Return the counts by pixel so far; None where positions are not known."""
        return total_sky(self.counted)

    def doubtful(self) -> tuple[DoubtfulObject, ...]:
        """Return the objects whose labels would teach most, the first one most; the first few have their features."""
        found = most_doubtful(self.objects)
        rest = [one.copy() for one in found[EXPLAINED:]]
        for one in rest:
            one.pop("features", None)
        return (*found[:EXPLAINED], *rest)

    def _doubtful(
        self,
        names: Any,
        at: Positions,
        p: Floats,
        information: Floats,
        flags: Flags,
        features: FeatureBatch | None,
    ) -> Iterable[DoubtfulObject]:
        # Objects below the last one that is kept by now cannot be kept.
        least = self.objects[-1]["mutual_information"] if len(self.objects) == MOST_OBJECTS else 0.0
        known = np.flatnonzero((information >= least - _ROUNDED) & ((flags & WORTH_A_LOOK) != 0))
        if len(known) > MOST_SORTED:
            known = np.sort(known[np.argpartition(-information[known], MOST_SORTED)[:MOST_SORTED]])
        order = known[np.argsort(-information[known], kind="stable")]
        if self.labelled is not None:
            texts = np.array([str(names[i]).strip() for i in order.tolist()], dtype=object)
            order = order[~is_labelled(texts, self.labelled)]
        for i in order[:ENOUGH].tolist():
            first, second = np.argsort(-p[i], kind="stable")[:2].tolist()
            one = DoubtfulObject(
                id=str(names[i]).strip(),
                ra=float(at.ra[i]) if np.isfinite(at.ra[i]) else None,
                dec=float(at.dec[i]) if np.isfinite(at.dec[i]) else None,
                classes=(self.classes[first], self.classes[second]),
                probabilities=(round(float(p[i, first]), 6), round(float(p[i, second]), 6)),
                mutual_information=round(float(information[i]), 6),
                flags=int(flags[i]),
            )
            if features is not None:
                pairs = zip(features.X[i].tolist(), features.missing[i].tolist(), strict=True)
                one["features"] = tuple(None if gone else float(f"{value:.9g}") for value, gone in pairs)
            yield one


def most_doubtful(objects: Iterable[DoubtfulObject]) -> tuple[DoubtfulObject, ...]:
    """Return the objects of the largest mutual information, each name once."""
    chosen: dict[str, DoubtfulObject] = {}
    for one in sorted(
        objects, key=lambda o: (-o["mutual_information"], o["id"], o["ra"] or 0.0, o["dec"] or 0.0)
    ):
        if one["id"] not in ("", "--"):
            chosen.setdefault(one["id"], one)
    return tuple(islice(chosen.values(), MOST_OBJECTS))


def total_sky(parts: Sequence[SkyCounts]) -> SkyCounts | None:
    """Return the sum of counts; None where there are no counts."""
    some = [part for part in parts if part["pixels"]]
    if not some:
        return None
    pixels, place = np.unique(np.concatenate([part["pixels"] for part in some]), return_inverse=True)
    columns = np.concatenate(
        [np.column_stack([part["n"], part["flagged"], np.asarray(part["assigned"])]) for part in some]
    )
    sums = np.zeros((len(pixels), columns.shape[1]), dtype=np.int64)
    np.add.at(sums, place, columns)
    return _of_columns(pixels, sums)


def _sky_counts(pixels: NDArray[np.int64], p: Floats, flags: Flags, n_classes: int) -> SkyCounts:
    placed = pixels >= 0
    found, place = np.unique(pixels[placed], return_inverse=True)
    classified = np.isfinite(p[placed, 0])
    best = np.where(classified, np.nan_to_num(p[placed]).argmax(axis=1), 0)
    assigned = np.bincount(place[classified] * n_classes + best[classified], minlength=len(found) * n_classes)
    flagged = np.bincount(place[(flags[placed] & WORTH_A_LOOK) != 0], minlength=len(found))
    n = np.bincount(place, minlength=len(found))
    return _of_columns(found, np.column_stack([n, flagged, assigned.reshape(len(found), n_classes)]))


def _of_columns(pixels: NDArray[np.int64], columns: NDArray[np.int64]) -> SkyCounts:
    return SkyCounts(
        order=ORDER,
        pixels=tuple(pixels.tolist()),
        n=tuple(columns[:, 0].tolist()),
        flagged=tuple(columns[:, 1].tolist()),
        assigned=tuple(map(tuple, columns[:, 2:].tolist())),
    )


# Classified rows for the census: a sample taken while files are annotated, the same for any number of threads. Each
# file gives evenly spaced rows of each batch, which its staged record carries.  With the files' final names, the
# sample of all files is kept as `_census/rows.parquet` in the output folder: later releases leave most files alone.

CENSUS_ROWS_FILE = "_census/rows.parquet"
"""In a separate folder, so that patterns such as `OUT/*.parquet` do not match it."""
MOST_ROWS = 20_000
"""Most rows of all files together; more would not change the intervals, since the labelled rows are far fewer."""
FEWEST_OF_FILE = 20

UNKNOWN = -1
"""Class of a row that has no label."""
LARGEST = 1e18
"""Largest feature of a row that is kept: of larger ones, such as numbers in the wrong byte order, squares overflow."""


CensusRows = NDArray[np.float32]
"""Rows (n, 2 + K + F): weight, known class, probabilities of the K classes, and features.

The probabilities are at the training's class shares, and a missing feature is NaN.  The weight is how many classified
rows a row stands for.  The known class is the place of the class by the row's label, -1 without one; a row with a label
stands for rows with this label.
"""


def census_rows(probability: Floats, X: Floats, step: int, known: Places | None = None) -> CensusRows:
    """Return every so many rows of a batch, of those that have probabilities; `known` (n,) are classes by label."""
    labels = np.full(len(probability), UNKNOWN) if known is None else known
    classified = ~np.isnan(probability[:, 0])
    present = np.flatnonzero(np.bincount(labels[classified] - UNKNOWN)) + UNKNOWN
    groups = [np.flatnonzero(classified & (labels == k)) for k in present]
    chosen = [rows[step // 2 :: step] if len(rows) > step // 2 else rows[:1] for rows in groups]
    each = [np.full(len(some), len(rows) / len(some)) for rows, some in zip(groups, chosen, strict=True)]
    rows, weight = np.concatenate([np.empty(0, np.intp), *chosen]), np.concatenate([np.empty(0), *each])
    features = np.clip(X[rows], -LARGEST, LARGEST)
    return np.column_stack([weight, labels[rows], probability[rows], features]).astype(np.float32)


def thinned_rows(rows: CensusRows, most: int) -> CensusRows:
    """Return about `most` rows at most, evenly spaced, whose weights represent all rows of each known class."""
    if len(rows) <= most:
        return rows
    parts = []
    for k in np.unique(rows[:, 1]):
        some = rows[rows[:, 1] == k]
        few = max(1, round(most / len(rows) * len(some)))
        chosen = some[np.linspace(0, len(some) - 1, few).round().astype(np.intp)]
        chosen[:, 0] *= some[:, 0].sum(dtype=np.float64) / chosen[:, 0].sum(dtype=np.float64)
        parts.append(chosen)
    return np.concatenate(parts)


def rows_text(rows: CensusRows) -> str:
    """Return the rows as a text, for a record in JSON."""
    return base64.b64encode(zlib.compress(rows.astype("<f4").tobytes())).decode("ascii")


def rows_of_text(text: str, width: int) -> CensusRows | None:
    """Return the rows of a text; None where it holds no rows of so many numbers."""
    try:
        values = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<f4")
    except (ValueError, zlib.error):
        return None
    return None if len(values) % width else values.reshape(-1, width)


def rows_a_file(n_files: int) -> int:
    """Return how many rows each file gives, for a number of files."""
    return max(FEWEST_OF_FILE, MOST_ROWS // max(n_files, 1))


def write_census_rows(folder: Path, rows: Mapping[str, CensusRows]) -> None:
    """Write the rows of each file, by the hash of its copy; if there are too many rows, fewer of each file."""
    share = min(1.0, MOST_ROWS / max(sum(map(len, rows.values())), 1))
    kept = {name: thinned_rows(part, max(1, round(share * len(part)))) for name, part in sorted(rows.items())}
    names = [name for name, part in kept.items() for _ in range(len(part))]
    matrix = np.concatenate([*kept.values()])
    table = pa.table(
        {
            "copy_sha256": pa.array(names, pa.string()).dictionary_encode(),
            "values": pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1]),
        }
    )
    path = folder / CENSUS_ROWS_FILE
    own_folder(path.parent, folder)
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary)


def read_census_rows(folder: Path, width: int) -> dict[str, CensusRows]:
    """Return the rows of each copy in a folder by its hash; empty if the file is lost or is of another model."""
    check_links(folder / CENSUS_ROWS_FILE, folder)
    try:
        table = pq.ParquetFile(folder / CENSUS_ROWS_FILE).read()
        values = table["values"].combine_chunks()
        matrix = values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), values.type.list_size)
        names = np.asarray(table["copy_sha256"].to_pylist(), dtype=str)
    except (OSError, pa.ArrowException, KeyError, ValueError, AttributeError):
        return {}
    if matrix.shape[1] != width:
        return {}
    order = np.argsort(names, kind="stable")
    matrix, (unique, first) = matrix[order], np.unique(names[order], return_index=True)
    parts = np.split(matrix, first[1:]) if len(unique) else []
    return {str(name): part for name, part in zip(unique, parts, strict=True)}
