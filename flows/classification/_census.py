"""The census of a release: the rows that it rests on, the questions to it, and its counts, by bins where asked for."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from blr.census.bin_selections import bin_selection, bin_taken, bin_threshold, joined_selection
from blr.census.bins import BinnedRows, BinShares, bin_shares
from blr.census.counts import Counted, count_with_labels
from blr.census.purity import Selection, n_selected, selection, threshold_for
from blr.census.results import (
    Assumption,
    BinCensus,
    BinCount,
    BinnedSelection,
    Census,
    CensusBins,
    ClassCensus,
    SelectionCensus,
    SelectionQuality,
)
from blr.census.rows import LabelledRows, TargetRows
from blr.census.shares import LEVEL, Alternative
from catalogs.expressions.expression import parse
from catalogs.files.atomic import atomic_path, check_links, own_folder, sweep
from flows.classification._class_shares import Bins, bin_values, known_labels, of_features, row_thresholds
from flows.errors import ModelError, SpecificationError
from flows.models.model import Model
from flows.models.row_files import UnseenRows
from flows.runs.counts import CensusAsked
from flows.runs.manifest import SelectedColumn
from flows.runs.outputs import Output, without_margins
from flows.specification.specification import CensusTable, Specification

# Classified rows for the census: a sample taken while files are annotated, the same for any number of threads.
#
# Each file gives evenly spaced rows of each batch, which its staged record carries.  With the files' final names, the
# sample of all files is kept as `_census/rows.parquet` in the output folder: later releases leave most
# files alone.
# Shapes: n rows, K classes, F features.

CENSUS_ROWS_FILE = "_census/rows.parquet"
"""In a separate folder, so that patterns such as `OUT/*.parquet` do not match it."""
MOST_ROWS = 20_000
"""Most rows of all files together; more would not change the intervals, since the labelled rows are far fewer."""
FEWEST_OF_FILE = 20

Singles = NDArray[np.float32]


UNKNOWN = -1
"""Class of a row that has no label."""


@dataclass(frozen=True, eq=False)
class CensusRows:
    """Rows as a `matrix` (n, 2 + K + F): weight, known class, probabilities of the K `classes`, and features.

    The probabilities are at the training's class shares, and a missing feature is NaN.  The weight is how many
    classified rows a row stands for.  The known class is the place of the class by the row's label, -1 without one; a
    row with a label stands for rows with this label.
    """

    matrix: Singles
    classes: int

    @classmethod
    def of(
        cls,
        probability: NDArray[np.float64],
        X: NDArray[np.float64],
        step: int,
        known: NDArray[np.intp] | None = None,
    ) -> CensusRows:
        """Return every so many rows of a batch, of those that have probabilities; `known` (n,) are classes by label."""
        labels = np.full(len(probability), UNKNOWN) if known is None else known
        classified = ~np.isnan(probability[:, 0])
        groups = [np.flatnonzero(classified & (labels == k)) for k in np.unique(labels[classified])]
        chosen = [rows[step // 2 :: step] if len(rows) > step // 2 else rows[:1] for rows in groups]
        each = [np.full(len(some), len(rows) / len(some)) for rows, some in zip(groups, chosen, strict=True)]
        rows, weight = np.concatenate([np.empty(0, np.intp), *chosen]), np.concatenate([np.empty(0), *each])
        matrix = np.column_stack([weight, labels[rows], probability[rows], X[rows]])
        return cls(matrix.astype(np.float32), probability.shape[1])

    @property
    def weight(self) -> Singles:
        """How many rows each one stands for, (n,)."""
        return self.matrix[:, 0]

    @property
    def known(self) -> Singles:
        """The classes by label, (n,)."""
        return self.matrix[:, 1]

    def sorted(self) -> CensusRows:
        """Return the rows sorted by their values, since threads add batches in any order."""
        return CensusRows(self.matrix[np.lexsort(self.matrix.T[::-1])], self.classes)

    def thinned(self, most: int) -> CensusRows:
        """Return about `most` rows at most, evenly spaced, whose weights represent all rows of each known class."""
        n = len(self.weight)
        if n <= most:
            return self
        parts = []
        for k in np.unique(self.known):
            rows = self.matrix[self.known == k]
            few = max(1, round(most / n * len(rows)))
            chosen = rows[np.linspace(0, len(rows) - 1, few).round().astype(np.intp)]
            chosen[:, 0] *= rows[:, 0].sum(dtype=np.float64) / chosen[:, 0].sum(dtype=np.float64)
            parts.append(chosen)
        return CensusRows(np.concatenate(parts), self.classes)

    def text(self) -> str:
        """Return the rows as a text, for a record in JSON."""
        values = zlib.compress(self.matrix.astype("<f4").tobytes())
        return base64.b64encode(values).decode("ascii")

    @classmethod
    def of_text(cls, text: str, *, classes: int, features: int) -> CensusRows | None:
        """Return the rows of a text; None where it holds no rows of so many classes and features."""
        width = 2 + classes + features
        try:
            values = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<f4")
        except (ValueError, zlib.error):
            return None
        return None if len(values) % width else cls(values.reshape(-1, width), classes)


def rows_a_file(n_files: int) -> int:
    """Return how many rows each file gives, for a number of files."""
    return max(FEWEST_OF_FILE, MOST_ROWS // max(n_files, 1))


def joined(parts: Sequence[CensusRows]) -> CensusRows:
    """Return the rows of one part or more together."""
    return CensusRows(np.concatenate([part.matrix for part in parts]), parts[0].classes)


def write_census_rows(folder: Path, rows: Mapping[str, CensusRows]) -> None:
    """Write the rows of each file, by the hash of its copy; if there are too many rows, fewer of each file."""
    total = sum(len(part.weight) for part in rows.values())
    share = min(1.0, MOST_ROWS / max(total, 1))
    kept = {
        name: part.thinned(max(1, round(share * len(part.weight)))) for name, part in sorted(rows.items())
    }
    names = [name for name, part in kept.items() for _ in range(len(part.weight))]
    matrix = joined(list(kept.values())).matrix
    table = pa.table(
        {
            "copy_sha256": pa.array(names, pa.string()).dictionary_encode(),
            "values": pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1]),
        }
    )
    path = folder / CENSUS_ROWS_FILE
    own_folder(path.parent, folder)
    sweep(path.parent)  # removes a half-written file of a killed run
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary)


def read_census_rows(folder: Path, *, classes: int, features: int) -> dict[str, CensusRows]:
    """Return the rows of each copy in a folder by its hash; empty if the file is lost or is of another model."""
    check_links(folder / CENSUS_ROWS_FILE, folder)
    try:
        table = pq.ParquetFile(folder / CENSUS_ROWS_FILE).read()
        values = table["values"].combine_chunks()
        matrix = values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), values.type.list_size)
        names = np.asarray(table["copy_sha256"].to_pylist(), dtype=str)
    except (OSError, pa.ArrowException, KeyError, ValueError, AttributeError):
        return {}
    if matrix.shape[1] != 2 + classes + features:
        return {}
    order = np.argsort(names, kind="stable")
    matrix, (unique, first) = matrix[order], np.unique(names[order], return_index=True)
    parts = np.split(matrix, first[1:]) if len(unique) else []
    return {str(name): CensusRows(part, classes) for name, part in zip(unique, parts, strict=True)}


# The questions of a specification to the census.


Selected = Mapping[str, SelectedColumn]
"""The columns of selections, by name."""


def census_asked(model: Model, wanted: Specification) -> CensusAsked:
    """Return the questions to a census with a model; SpecificationError for a class that it does not know."""
    purity, completeness = wanted.flags.purity, wanted.flags.completeness
    for key, stated in (("purity", purity), ("completeness", completeness)):
        unknown = [name for name in stated if name not in model.classes]
        if unknown:
            raise SpecificationError(
                f"flags.{key}: got the class '{unknown[0]}', expected one of {', '.join(model.classes)}; correct "
                "the name"
            )
    asked = CensusAsked(
        assumes=wanted.shift.assumes or model.specification.shift.assumes,
        purity=dict(purity),
        completeness=dict(completeness),
    )
    table = census_table(model, wanted)
    if table.by is None:
        return asked
    return binned(asked, model, table.by, bins=table.bins, edges=table.edges, key="census.by")


def binned(
    asked: CensusAsked, model: Model, by: str, *, bins: int, edges: Sequence[float] | None, key: str
) -> CensusAsked:
    """Return the questions, by bins; SpecificationError for an expression of anything but features."""
    of_features(model, by, key=key)
    return replace(asked, by=by, bins=bins, edges=None if edges is None else tuple(edges))


def census_table(model: Model, wanted: Specification) -> CensusTable:
    """Return the bins that are wanted, by default those that the model was trained with."""
    return wanted.census if wanted.census.by else model.specification.census


# The census by bins of an expression over features: class counts, purity and completeness of each bin.
#
# Labelled rows and rows of the target are kept with their features, so that any such expression can be used later.
# Shapes: n rows, F features.

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

THRESHOLDS = (0.5, 0.8, 0.95)
"""Probabilities at which purity and completeness of every class are given."""
REASON = (
    "under the same assumption as the whole; each bin is shrunk towards the value that the whole predicts for it, so "
    "the intervals hold in 95 % of all bins on average, but not in each bin; the bins add up to the whole"
)


def census_bins(
    model: Model,
    labelled: LabelledRows,
    target: TargetRows,
    counted: Counted,
    asked: CensusAsked,
    selected: Selected,
) -> CensusBins | None:
    """Return the census of each bin; None where no bins were asked for."""
    if asked.by is None:
        return None
    by = parse(asked.by)
    if counted.of_labels:
        why = "nearly all objects have labels of the training: count those of each bin"
        return CensusBins(by=by.text, reason=why, bins=())
    of_target, of_labelled = (bin_values(by, model.features, rows.X) for rows in (target, labelled))
    bins = Bins.of(by.text, of_target, bins=asked.bins, edges=asked.edges)
    if len(bins.names) < 2:
        return CensusBins(
            by=by.text, reason=f"'{by.text}' has the same value in all rows, so there are no bins", bins=()
        )
    places = BinnedRows(bins.places(of_labelled), bins.places(of_target), len(bins.names))
    shares = bin_shares(labelled, target, counted, places)
    if counted.assumes == "features":
        asked, selected = CensusAsked(), {}
    stated = {c: list(_stated(shares, k, model, asked, selected)) for k, c in enumerate(model.classes)}
    return CensusBins(
        by=by.text,
        reason=REASON,
        bins=tuple(
            _bin(shares, b, name, stated, counted)
            for b, name in enumerate(bins.names)
            if shares.n_objects[b] or shares.n_labelled[b]
        ),
        selections={
            c: tuple(_joined(shares, k, bins.names, text, by_bin) for text, by_bin in own)
            for k, c in enumerate(model.classes)
            if (
                own := [(text, by_bin) for text, key, by_bin in stated[c] if not key]
            )  # a column has its own bins
        },
    )


_Stated = tuple[str, str, Mapping[int, tuple[float | None, Selection]]]
"""What is stated, the column of the copies or '', and by bin the threshold (None: the column's) and its selection."""


def _stated(
    shares: BinShares, k: int, model: Model, asked: CensusAsked, selected: Selected
) -> Iterator[_Stated]:
    """Yield the columns of class k, then the thresholds of the bins for stated values."""
    name, every = model.classes[k], range(shares.places.n_bins)
    for key, column in selected.items():
        if column.class_name == name:
            taken = [
                rows.probability[:, k] >= row_thresholds(column, model.features, rows.X)
                for rows in (shares.target, shares.labelled)
            ]
            found = {b: (column.threshold, bin_taken(shares, b, k, *taken)) for b in every}
            yield column.stated, key, found
    for what, by_class in (("purity", asked.purity), ("completeness", asked.completeness)):
        if name in by_class:
            tried = {b: bin_threshold(shares, b, k, **{what: by_class[name]}) for b in every}
            reached = {b: one for b, one in tried.items() if one is not None}
            yield f"{what} {by_class[name]:g}", "", reached


def _bin(
    shares: BinShares, b: int, name: str, stated: Mapping[str, Sequence[_Stated]], counted: Counted
) -> BinCensus:
    n = float(shares.n_objects[b])
    (low, high), mean = shares.interval(), shares.draws.mean(axis=0)
    return BinCensus(
        name=name,
        objects=round(n),
        labelled=int(shares.n_labelled[b]),
        classes={
            c: BinCount(
                count=float(mean[b, k] * n),
                low=float(low[b, k] * n),
                high=float(high[b, k] * n),
                selections=()
                if counted.assumes == "features"  # as in the census of all bins together
                else tuple(_bin_selections(shares, b, k, of_class)),
            )
            for k, (c, of_class) in enumerate(stated.items())
        },
    )


def _bin_selections(
    shares: BinShares, b: int, k: int, stated: Sequence[_Stated]
) -> Iterator[SelectionCensus]:
    """Yield purity and completeness of class k in a bin at each threshold, then at its threshold for a stated value."""
    for threshold in THRESHOLDS:
        found = bin_selection(shares, b, k, threshold)
        if found.n_selected:
            yield said_selection(found, threshold)
    for text, key, by_bin in stated:
        if b in by_bin and by_bin[b][1].n_selected:
            least, found = by_bin[b]
            yield said_selection(found, least, text, key)


def _joined(
    shares: BinShares,
    k: int,
    names: Sequence[str],
    stated: str,
    by_bin: Mapping[int, tuple[float | None, Selection]],
) -> BinnedSelection:
    chosen = {b: found for b, (_, found) in by_bin.items()}
    return BinnedSelection(
        stated=stated,
        thresholds={names[b]: t for b, (t, _) in by_bin.items() if t is not None},
        **vars(_quality(joined_selection(shares, k, chosen))),
    )


def said_selection(
    found: Selection, threshold: float | None, stated: str = "", column: str = ""
) -> SelectionCensus:
    """Return what is said of a selection."""
    return SelectionCensus(threshold=threshold, stated=stated, column=column, **vars(_quality(found)))


def _quality(found: Selection) -> SelectionQuality:
    purity, completeness = found.interval(found.purity), found.interval(found.completeness)
    return SelectionQuality(
        objects=found.n_selected,
        purity=float(found.purity.mean()),
        purity_low=purity[0],
        purity_high=purity[1],
        completeness=float(found.completeness.mean()),
        completeness_low=completeness[0],
        completeness_high=completeness[1],
    )


# The census of an output folder: class counts, purity and completeness, under an assumption that is named.
#
# Where no count is reliable, the census has none, and states the reason.  Shapes: n rows, K classes.


def folder_census(
    model: Model,
    stored: Path,
    out: Path,
    outputs: Sequence[Output],
    *,
    asked: CensusAsked,
    selected: Selected,
    keep: bool = False,
) -> Census:
    """Return the census of the outputs in a folder; `stored` is the model's folder.

    `keep` says whether the rows are to be written, those of staged outputs too.  Margins of HATS are left out, since
    they repeat rows.
    """
    sizes = {"classes": len(model.classes), "features": len(model.features)}
    counted = [o for o in without_margins(outputs) if o.summary.tally.n_classified]
    kept = read_census_rows(out, **sizes)
    rows = {
        o.sha256: CensusRows.of_text(o.census_rows, **sizes) if o.census_rows else kept.get(o.sha256)
        for o in counted
    }
    known = {name: part for name, part in rows.items() if part is not None}
    if keep and known:
        write_census_rows(out, known)
    n_objects = sum(o.summary.tally.n_classified for o in counted)
    return census_of(model, stored, list(rows.values()), n_objects=n_objects, asked=asked, selected=selected)


def census_of(
    model: Model,
    folder: Path,
    rows: Sequence[CensusRows | None],
    *,
    n_objects: int,
    asked: CensusAsked,
    selected: Selected,
) -> Census:
    """Return the census of `n_objects` classified objects; `rows` are a sample of them, a part for each file.

    `folder` is that of the model, with its unseen rows.  A file has no rows (None) if an earlier version annotated it.
    """
    assumes = asked.assumes
    parts = [part for part in rows if part is not None]
    if len(parts) < len(rows):
        return unsaid(
            model,
            n_objects,
            assumes,
            f"{len(rows) - len(parts)} of {len(rows)} files were classified by an earlier version, which "
            "kept no rows for a census; classify them again, with --overwrite",
        )
    try:
        unseen = UnseenRows.read(folder, classes=len(model.classes), features=len(model.features))
    except ModelError as error:
        return unsaid(model, n_objects, assumes, str(error))
    lacking = _lacking(model, unseen)
    if unseen is None or lacking or not parts:
        return unsaid(model, n_objects, assumes, lacking or "no object was classified")
    labelled, (target, known) = known_labels(unseen), _target(joined(parts), n_objects)
    counted = count_with_labels(labelled, target, known, assumes=assumes)
    if counted.shares is None:
        said = unsaid(model, n_objects, counted.assumes, counted.reason)
        return replace(said, contradicted=counted.contradicted)
    return _census(model, counted, labelled, target, asked, selected)


def unsaid(model: Model, n_objects: int, assumes: Assumption | None, reason: str) -> Census:
    """Return a census without counts, with the reason."""
    said = ClassCensus(
        count=None, low=None, high=None, source="cannot be said", assumes=assumes, reason=reason
    )
    return Census(
        n_rows=n_objects,
        level=LEVEL,
        classes=dict.fromkeys(model.classes, said),
        other_labels=model.training.other_labels,
    )


def _lacking(model: Model, unseen: UnseenRows | None) -> str:
    """Return why no census is possible with this model; '' where it can."""
    label = model.specification.label
    if label.votes is not None:
        return "the model was trained on votes, which do not state the class of any object; audit the output"
    if label.noise is not None:
        return "the model's labels may be wrong, so they cannot calibrate counts; audit the output"
    if unseen is None:
        return f"{model.label} was trained by an earlier version, which kept no unseen rows; train it again"
    return ""


def _target(rows: CensusRows, n_objects: int) -> tuple[TargetRows, NDArray[np.intp]]:
    """Return the rows of the target, and their classes (N,) by label, -1 without one."""
    K = rows.classes
    values = rows.matrix.astype(np.float64)
    weight, p, X = values[:, 0], values[:, 2 : 2 + K], values[:, 2 + K :]
    known = np.isfinite(p).all(axis=1) & (weight > 0)
    p = np.maximum(p[known], 0.0)
    target = TargetRows(p / p.sum(axis=1, keepdims=True), weight[known], X[known], n_objects)
    return target, rows.known[known].astype(np.intp)


def _census(
    model: Model,
    counted: Counted,
    labelled: LabelledRows,
    target: TargetRows,
    asked: CensusAsked,
    selected: Selected,
) -> Census:
    shares = counted.shares
    assert shares is not None  # noqa: S101
    n = target.n_objects
    low, high = shares.interval()
    return Census(
        n_rows=n,
        level=LEVEL,
        contradicted=counted.contradicted,
        other_labels=model.training.other_labels,
        classes={
            name: ClassCensus(
                count=float(shares.mean[k] * n),
                low=float(low[k] * n),
                high=float(high[k] * n),
                source="labels" if counted.of_labels else "model",
                assumes=counted.assumes,
                reason=counted.reason,
                selections=()
                if counted.assumes
                == "features"  # The completeness among biased labels is not that of the target.
                else tuple(_selections(k, model, counted.parts(labelled), target, asked, selected)),
                labelled=0 if counted.counted is None else int(counted.counted[k]),
            )
            for k, name in enumerate(model.classes)
        },
        bins=census_bins(model, labelled, target, counted, asked, selected),
    )


def _selections(
    k: int,
    model: Model,
    parts: Sequence[Alternative],
    target: TargetRows,
    asked: CensusAsked,
    selected: Selected,
) -> Iterator[SelectionCensus]:
    """Yield purity and completeness of class k: at each threshold, in its column, and for stated values."""
    name = model.classes[k]
    labelled, draws, others = parts[0].labelled, parts[0].shares.draws, parts[1:]

    def found(chosen: np.ndarray, n: int) -> Selection:
        return selection(
            labelled,
            chosen,
            k,
            draws,
            n_selected=n,
            n_objects=target.n_objects,
            n_seen=target.n_effective,
            others=others,
        )

    for threshold in THRESHOLDS:
        n = n_selected(target, k, threshold)
        if n:
            yield said_selection(found(labelled.probability[:, k] >= threshold, n), threshold)
    for key, column in selected.items():
        if column.class_name == name:
            n = n_selected(target, k, row_thresholds(column, model.features, target.X))
            chosen = labelled.probability[:, k] >= row_thresholds(column, model.features, labelled.X)
            if n:
                yield said_selection(found(chosen, n), column.threshold, column.stated, key)
    for what, stated in (("purity", asked.purity), ("completeness", asked.completeness)):
        if name in stated:
            pure, complete = (stated[name] if what == of else None for of in ("purity", "completeness"))
            best = threshold_for(
                labelled, target, k, draws, purity=pure, completeness=complete, others=others
            )
            if best is not None:
                yield said_selection(best[1], best[0], f"{what} {stated[name]:g}")
