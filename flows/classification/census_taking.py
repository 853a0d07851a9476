"""The census of a release: the questions to it, its counts, by bins where asked for, and a census taken anew.

Shapes: n rows, K classes, F features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import catalogs
from blr.arrays import Floats
from blr.census.bins import BinShares, bin_selection, bin_shares, bin_taken, bin_threshold, joined_selection
from blr.census.counts import Counted, count_with_labels
from blr.census.purity import Parts, Selection, n_selected, selection, threshold_for
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
    StatedAssumption,
)
from blr.census.shares import LEVEL, LabelledRows, TargetRows
from blr.threads import single_threaded_blas
from catalogs.expressions.expression import parse
from flows.classification._class_shares import (
    bin_values,
    bins_of,
    census_table,
    check_asked,
    of_features,
    row_thresholds,
)
from flows.classification._tally import (
    CensusRows,
    read_census_rows,
    rows_a_file,
    rows_of_text,
    write_census_rows,
)
from flows.classification.scoring import annotation_settings, rows_at_once, scorer_for
from flows.documents import read_document, write_document
from flows.errors import ModelError, OutputFolderError, UsageError
from flows.models.model import Model
from flows.models.row_files import unseen_rows
from flows.models.store import Store
from flows.reports.catalogue_page import rewrite_census
from flows.request import CensusRequest
from flows.runs.lock import exclusive
from flows.runs.manifest import SUMMARY, Manifest, Output, SelectedColumn, annotated_manifest, without_margins
from flows.runs.release_store import output_folder
from flows.runs.results import CensusAsked, CensusResult, Summary
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification

__all__ = ["table_census", "take_census"]

# The questions of a specification to the census.

Selected = Mapping[str, SelectedColumn]
"""The columns of selections, by name."""


def census_asked(model: Model, wanted: Specification) -> CensusAsked:
    """Return the questions to a census with a model; SpecificationError for a class that it does not know."""
    check_asked(model, wanted.flags)
    asked = CensusAsked(
        assumes=wanted.shift.assumes or model.specification.shift.assumes,
        purity=dict(wanted.flags.purity),
        completeness=dict(wanted.flags.completeness),
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


# The census by bins of an expression over features: class counts, purity and completeness of each bin. Labelled rows
# and rows of the target are kept with their features, so that any such expression can be used later.

THRESHOLDS = (0.5, 0.8, 0.95)
"""Probabilities at which purity and completeness of every class are given."""
REASON = (
    "under the same assumption as the whole; each bin is shrunk towards the value that the whole predicts for it, so "
    "the intervals hold in 95 % of all bins on average, but not in each bin; the bins add up to the whole"
)


def census_bins(
    model: Model, target: TargetRows, counted: Counted, asked: CensusAsked, selected: Selected
) -> CensusBins | None:
    """Return the census of each bin; None where no bins were asked for."""
    if asked.by is None:
        return None
    by = parse(asked.by)
    if counted.of_labels:
        why = "nearly all objects have labels of the training: count those of each bin"
        return CensusBins(by=by.text, reason=why, bins=())
    of_target, of_labelled = (bin_values(by, model.features, rows.X) for rows in (target, counted.labelled))
    bins = bins_of(by.text, of_target, bins=asked.bins, edges=asked.edges)
    if len(bins.names) < 2:
        return CensusBins(
            by=by.text, reason=f"'{by.text}' has the same value in all rows, so there are no bins", bins=()
        )
    places = bins.places(of_labelled), bins.places(of_target)
    shares = bin_shares(target, counted, *places, len(bins.names))
    if counted.assumes == "features":
        asked, selected = CensusAsked(), {}
    stated = {c: list(_stated(shares, k, model, asked, selected)) for k, c in enumerate(model.classes)}
    joined = {  # a column has its own bins
        c: tuple(_joined(shares, k, bins.names, one) for one in stated[c] if not one[1])
        for k, c in enumerate(model.classes)
    }
    return CensusBins(
        by=by.text,
        reason=REASON,
        bins=tuple(
            _bin(shares, b, name, stated, counted)
            for b, name in enumerate(bins.names)
            if shares.n_objects[b] or shares.n_labelled[b]
        ),
        selections={c: own for c, own in joined.items() if own},
    )


_Stated = tuple[str, str, Mapping[int, tuple[float | None, Selection]]]
"""What is stated, the column of the copies or '', and by bin the threshold (None: the column's) and its selection."""


def _stated(
    shares: BinShares, k: int, model: Model, asked: CensusAsked, selected: Selected
) -> Iterator[_Stated]:
    """Yield the columns of class k, then the thresholds of the bins for stated values."""
    name, every = model.classes[k], range(len(shares.n_objects))
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
            tried = {b: bin_threshold(shares, b, k, (what, by_class[name])) for b in every}
            reached = {b: one for b, one in tried.items() if one is not None}
            yield f"{what} {by_class[name]:g}", "", reached


def _bin(
    shares: BinShares, b: int, name: str, stated: Mapping[str, Sequence[_Stated]], counted: Counted
) -> BinCensus:
    n = float(shares.n_objects[b])
    (low, high), mean = shares.interval, shares.draws.mean(axis=0)
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


def _bin_selections(shares: BinShares, b: int, k: int, stated: Sequence[_Stated]) -> list[SelectionCensus]:
    """Return purity and completeness of class k in a bin at each threshold, then at those for stated values."""
    tried: list[tuple[Selection, float | None, str, str]]
    tried = [(bin_selection(shares, b, k, least), least, "", "") for least in THRESHOLDS]
    tried += [(by_bin[b][1], by_bin[b][0], text, key) for text, key, by_bin in stated if b in by_bin]
    return [said_selection(*one) for one in tried if one[0].n_selected]


def _joined(shares: BinShares, k: int, names: Sequence[str], one: _Stated) -> BinnedSelection:
    stated, _, by_bin = one
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


# The census of an output folder: class counts, purity and completeness, under an assumption that is named. Where no
# count is reliable, the census has none, and states the reason.


def folder_census(
    model: Model,
    out: Path,
    outputs: Sequence[Output],
    *,
    asked: CensusAsked,
    selected: Selected,
    keep: bool = False,
) -> Census:
    """Return the census of the outputs in a folder.

    `keep` says whether the rows are to be written, those of staged outputs too.  Margins of HATS are left out, since
    they repeat rows.
    """
    width = 2 + len(model.classes) + len(model.features)
    counted = [o for o in without_margins(outputs) if o.summary.tally.n_classified]
    kept = read_census_rows(out, width)
    rows = {
        o.sha256: rows_of_text(o.census_rows, width) if o.census_rows else kept.get(o.sha256) for o in counted
    }
    known = {name: part for name, part in rows.items() if part is not None}
    if keep and known:
        write_census_rows(out, known)
    n_objects = sum(o.summary.tally.n_classified for o in counted)
    return census_of(model, list(rows.values()), n_objects=n_objects, asked=asked, selected=selected)


def census_of(
    model: Model, rows: Sequence[CensusRows | None], *, n_objects: int, asked: CensusAsked, selected: Selected
) -> Census:
    """Return the census of `n_objects` classified objects; `rows` are a sample of them, a part for each file.

    A file whose rows are lost has None.
    """
    assumes, labelled = asked.assumes, None
    parts = [part for part in rows if part is not None]
    if len(parts) < len(rows):
        why = (
            f"{len(rows) - len(parts)} of {len(rows)} files have lost the rows that a census needs; classify them "
            "again, with --overwrite"
        )
    else:
        try:
            labelled = unseen_rows(model.folder, classes=len(model.classes), features=len(model.features))
            why = _lacking(model, labelled)
        except ModelError as error:
            why = str(error)
    if labelled is None or why or not parts:
        return unsaid(model, n_objects, assumes, why or "no object was classified")
    values = np.concatenate(parts).astype(np.float64)
    weight, p, X = values[:, 0], values[:, 2 : 2 + len(model.classes)], values[:, 2 + len(model.classes) :]
    known = np.isfinite(p).all(axis=1) & (weight > 0)
    p = np.maximum(p[known], 0.0)
    target = TargetRows(p / p.sum(axis=1, keepdims=True), weight[known], X[known], n_objects)
    counted = count_with_labels(labelled, target, values[known, 1].astype(np.intp), assumes=assumes)
    if counted.shares is None:
        said = unsaid(model, n_objects, counted.assumes, counted.reason)
        return replace(said, contradicted=counted.contradicted)
    return _census(model, target, counted, asked, selected)


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


def _lacking(model: Model, unseen: LabelledRows | None) -> str:
    """Return why no census is possible with this model; '' where it can."""
    label = model.specification.label
    if label.votes is not None:
        return "the model was trained on votes, which do not state the class of any object; audit the output"
    if label.noise is not None:
        return "the model's labels may be wrong, so they cannot calibrate counts; audit the output"
    if unseen is None:
        return f"{model.label} has lost its labelled rows; restore its folder, or train it again"
    return ""


def _census(
    model: Model, target: TargetRows, counted: Counted, asked: CensusAsked, selected: Selected
) -> Census:
    assert counted.shares is not None  # noqa: S101
    n = target.n_objects
    (low, high), mean = counted.interval, counted.shares.mean(axis=0)
    return Census(
        n_rows=n,
        level=LEVEL,
        contradicted=counted.contradicted,
        other_labels=model.training.other_labels,
        classes={
            name: ClassCensus(
                count=float(mean[k] * n),
                low=float(low[k] * n),
                high=float(high[k] * n),
                source="labels" if counted.of_labels else "model",
                assumes=counted.assumes,
                reason=counted.reason,
                # The completeness among biased labels is not that of the target.
                selections=()
                if counted.assumes == "features"
                else tuple(_selections(k, model, target, counted.parts, asked, selected)),
                labelled=0 if counted.counted is None else int(counted.counted[k]),
            )
            for k, name in enumerate(model.classes)
        },
        bins=census_bins(model, target, counted, asked, selected),
    )


def _selections(
    k: int, model: Model, target: TargetRows, parts: Parts, asked: CensusAsked, selected: Selected
) -> Iterator[SelectionCensus]:
    """Yield purity and completeness of class k: at each threshold, in its column, and for stated values."""
    name = model.classes[k]
    labelled = parts[0][0]
    p, n_objects, n_seen = labelled.probability[:, k], target.n_objects, target.n_effective
    rules: list[tuple[float | Floats, float | Floats, float | None, str, str]] = [
        (threshold, threshold, threshold, "", "") for threshold in THRESHOLDS
    ]
    for key, column in selected.items():
        if column.class_name == name:
            own = row_thresholds(column, model.features, target.X)
            of_labels = row_thresholds(column, model.features, labelled.X)
            rules.append((own, of_labels, column.threshold, column.stated, key))
    for of_target, of_labelled, threshold, stated, key in rules:
        if n := n_selected(target, k, of_target):
            found = selection(parts, p >= of_labelled, k, n_selected=n, n_objects=n_objects, n_seen=n_seen)
            yield said_selection(found, threshold, stated, key)
    for what, wanted in (("purity", asked.purity), ("completeness", asked.completeness)):
        if name in wanted and (best := threshold_for(parts, target, k, (what, wanted[name]))) is not None:
            yield said_selection(best[1], best[0], f"{what} {wanted[name]:g}")


# A new census of an output folder, and the census of a table in memory.


def take_census(request: CensusRequest, *, dry_run: bool = False) -> CensusResult:
    """Return the census of an output folder; write it into summary, report and manifest unless `dry_run`.

    UsageError if nothing was classified into the folder; OutputFolderError if another run works in it, or its census is
    from an audit; ModelError if the store has not the model that the folder was made by.
    """
    with output_folder(request.out, key="out", publish=not dry_run) as out:
        manifest = annotated_manifest(out)
        model = Store.named(manifest.model_store(out, request.store)).load(manifest.model)
        asked, selected = _asked(manifest, model, request), manifest.selected
        census = folder_census(model, out, manifest.outputs, asked=asked, selected=selected)
        report = None
        if not dry_run:
            known = read_document(Summary, out / SUMMARY).census
            if known is not None and any(c.source == "audit" for c in known.classes.values()):
                raise OutputFolderError(
                    f"{out / SUMMARY}: got a census from an audit, which the model's census would replace; print the "
                    "model's census with --dry-run, or read it in audit.json"
                )
            with exclusive(out):
                if annotated_manifest(out) != manifest:
                    raise OutputFolderError(
                        f"{out}: another run changed this folder during the census; run the same command again"
                    )
                summary = read_document(Summary, out / SUMMARY).with_census(census)
                write_document(out / SUMMARY, summary)
                report = rewrite_census(out, census)
                totals = manifest.totals.with_census(census)
                replace(manifest, totals=totals, census_asked=asked).write(out)  # the manifest last, as ever
    return CensusResult(
        out=out,
        model=manifest.model,
        release=manifest.release,
        census=census,
        written=None if dry_run else out / SUMMARY,
        report=report,
    )


def table_census(
    table: object,
    *,
    model: str,
    store: str | Path = "models",
    assumes: StatedAssumption | None = None,
    by: str | None = None,
    bins: int = 4,
    edges: Sequence[float] | None = None,
) -> Census:
    """Return the census of an astropy, pandas or Arrow table, or of a catalogue's path, by a model of the store.

    `by` is an expression over features whose `bins`, or those between `edges`, are counted one by one.
    """
    loaded = Store.named(store).load(model)
    asked = census_asked(loaded, loaded.specification)
    asked = asked if assumes is None else replace(asked, assumes=assumes)
    if by is not None:
        asked = binned(asked, loaded, by, bins=bins, edges=edges, key="by")
    catalog = catalogs.open(table)
    settings = annotation_settings(loaded, loaded.specification)
    step = max(1, catalog.n_rows // rows_a_file(1))
    scorer = scorer_for(loaded, settings, catalog).kept_for_census(step, catalog)
    with single_threaded_blas():
        for batch in catalog.batches(scorer.read, rows_at_once(catalog)):
            scorer(batch)
    n_objects = scorer.tally().n_classified
    return census_of(loaded, [scorer.census_rows()], n_objects=n_objects, asked=asked, selected={})


def _asked(manifest: Manifest, model: Model, request: CensusRequest) -> CensusAsked:
    """Return the questions of a request; those that it leaves out are taken from the earlier census."""
    asked = manifest.census_asked
    if request.specification is not None:
        asked = census_asked(model, read_specification(request.specification))
    if request.assumes is not None:
        asked = replace(asked, assumes=request.assumes)
    if request.by is not None:
        return binned(asked, model, request.by, bins=request.bins, edges=request.edges, key="--by")
    if request.edges is not None:
        raise UsageError(
            "--edges: got edges without --by, expected the expression whose bins they limit; add --by"
        )
    return asked
