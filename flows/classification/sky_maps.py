"""Maps over the sky of the fraction of a class, or of the contamination or completeness of a selection.

Two passes over the annotated copies: one for the pixels, the quantities' ranges and the objects whose class is known,
to which the fraction's model is fitted; and one for the sums by pixel and by bin.  Shapes: n rows, S draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blr.census.fraction_map import Fractions
from blr.threads import single_threaded_blas
from catalogs.catalog.catalog import Catalog
from catalogs.catalog.new_columns import safe_name
from catalogs.errors import OutputExistsError, nearest
from catalogs.files.atomic import own_folder
from catalogs.table_choice import annotated_table
from flows.classification._map_sums import (
    KnownObjects,
    MapColumns,
    MapRows,
    MapSums,
    Survey,
    bin_of,
    fitted,
    map_columns,
    map_rows,
    read_known,
    sky_maps,
    summed,
    surveyed,
    write_map,
)
from flows.classification.map_results import MapBin, MappedFraction, MappedQuantity, MapResult
from flows.classification.request import MapRequest
from flows.documents import write_document
from flows.errors import UsageError
from flows.runs.allowed_roots import check_inside, check_output
from flows.runs.manifest import Manifest, ObjectColumns
from flows.runs.release_store import output_folder

__all__ = ["make_map"]

FINEST_ORDER = 8
"""Pixels of 14 arcminutes: 786,432 of them."""


@dataclass(frozen=True)
class _Work:
    """What is mapped: the request, the folder, the copies with their columns, and the objects whose class is known."""

    request: MapRequest
    folder: Path
    manifest: Manifest
    copies: tuple[tuple[Catalog, MapColumns], ...]
    known: KnownObjects | None

    def rows(self) -> Iterator[MapRows]:
        """Yield the rows of all copies."""
        request = self.request
        for catalog, columns in self.copies:
            yield from map_rows(
                catalog,
                columns,
                class_name=request.class_name,
                order=request.order,
                threshold=request.threshold,
            )


def make_map(request: MapRequest, *, dry_run: bool = False) -> MapResult:
    """Write the map of a class in a folder that `classify` has written; return what was found.

    UsageError where the folder, the class or a column is not there; OutputExistsError where the map is.
    """
    with output_folder(request.out, key="out", publish=not dry_run) as folder:
        return _mapped(_prepared(request, folder), dry_run=dry_run)


def _mapped(work: _Work, *, dry_run: bool) -> MapResult:
    """Write the map of a folder of this machine."""
    request, files = work.request, _files(work.request, work.folder)
    if not request.overwrite and not dry_run and (there := next((f for f in files if f.exists()), None)):
        raise OutputExistsError(
            f"{there} exists already; choose another --folder, or replace it with --overwrite"
        )
    with single_threaded_blas():
        survey = surveyed(
            work.rows,
            work.known,
            class_name=request.class_name,
            what=request.what,
            n_rows=sum(catalog.n_rows for catalog, _ in work.copies),
            n_quantities=len(request.over or []),
        )
        model = fitted(survey.labelled, what=request.what, order=request.order, seed=request.seed)
        sums = summed(work.rows, survey, model)
    result = _result(work, survey, sums)
    if dry_run:
        return result
    own_folder(files[0].parent, work.folder if request.folder is None else files[0].parent)
    write_map(
        files[0],
        files[1],
        survey,
        sums.cells,
        what=request.what,
        class_name=request.class_name,
        order=request.order,
        made_by={"model": work.manifest.model, "model_id": str(work.manifest.model_id)},
    )
    done = replace(result, status="done", files=files)
    write_document(files[2], done)
    return done


def _prepared(request: MapRequest, folder: Path) -> _Work:
    manifest = Manifest.read(folder)
    if manifest is None or manifest.prefix is None:
        raise UsageError(
            f"{folder}: got a folder without a manifest, expected a folder of annotated catalogues; run `blr "
            "classify` with --out first"
        )
    classes = tuple(manifest.details.classes)
    if request.class_name not in classes:
        raise UsageError(
            f"--class: got '{request.class_name}', expected one of {', '.join(classes)}; "
            f"{nearest(request.class_name, classes)}"
        )
    if request.order > FINEST_ORDER:
        raise UsageError(
            f"--order: got {request.order}, expected at most {FINEST_ORDER}; choose a coarser map"
        )
    # The margins of a HATS catalogue repeat objects of the other files.
    once = [o for o in manifest.outputs if not (o.summary and o.summary.repeats_rows)]
    maps = sky_maps(request.sky_map or [])
    copies = []
    for output in once:
        catalog = annotated_table(manifest.prefix).open(folder / output.name)
        columns = map_columns(
            catalog,
            prefix=manifest.prefix,
            class_name=request.class_name,
            identifier=request.identifier,
            known=manifest.details.position or ObjectColumns(),
            over=request.over or [],
            maps=maps,
        )
        copies.append((catalog, columns))
    known = None
    if request.labels is not None:
        identifier = next((c.identifier for _, c in copies if c.identifier), None)
        if identifier is None:
            raise UsageError(
                "--id: got no column that names the objects, expected a column that the copies and the "
                "labels both have; name it"
            )
        path = check_inside(request.labels, key="--labels")
        known = read_known(path, label=request.label, identifier=identifier, classes=classes)
    return _Work(request, folder, manifest, tuple(copies), known)


def _files(request: MapRequest, folder: Path) -> tuple[Path, ...]:
    """Return where map, table and result go."""
    place = folder / "maps" if request.folder is None else check_output(request.folder, key="--folder")
    name = f"{safe_name(request.class_name)}-{request.what}"
    return place / f"{name}.fits", place / f"{name}-hats", place / f"{name}.json"


def _result(work: _Work, survey: Survey, sums: MapSums) -> MapResult:
    request, labelled, known = work.request, survey.labelled, work.known
    trial, success = labelled.counts(request.what)
    over = []
    for j, (text, edges, fractions) in enumerate(
        zip(request.over or [], survey.edges, sums.bins, strict=True)
    ):
        place = bin_of(labelled.rows.X[:, j], edges)
        bins = []
        for b in range(len(edges) - 1):
            inside = place == b
            shown = _fraction(fractions, b, k=success & inside, n=trial & inside)
            bins.append(MapBin(start=float(edges[b]), stop=float(edges[b + 1]), **vars(shown)))
        over.append(MappedQuantity(expression=text, unit=_unit(work, j), bins=tuple(bins)))
    return MapResult(
        status="planned",
        model=work.manifest.model,
        out=work.folder,
        class_name=request.class_name,
        what=request.what,
        order=request.order,
        n_classified=survey.n_classified,
        cells=len(survey.pixels),
        labelled=len(trial),
        unanswered=known.unanswered if known else 0,
        unmatched=survey.unmatched,
        whole=_fraction(sums.whole, 0, k=success, n=trial),
        over=tuple(over),
        remarks=tuple(_remarks(work, survey)),
        files=(),
    )


def _unit(work: _Work, j: int) -> str | None:
    """Return the unit of a quantity, None where it has none or nobody says."""
    catalog, columns = work.copies[0]
    units = {c.name: c.unit for c in catalog.columns} | {name: m.unit for name, m in columns.maps.items()}
    expression = columns.over[j]
    return expression.unit({name: units.get(name) for name in expression.names})


def _fraction(fractions: Fractions, i: int, *, k: NDArray[np.bool_], n: NDArray[np.bool_]) -> MappedFraction:
    values = (fractions.expected[i], fractions.fraction[i], fractions.low[i], fractions.high[i])
    expected, fraction, low, high = (float(x) if np.isfinite(x) else None for x in values)
    return MappedFraction(
        objects=float(fractions.whole[i]),
        k=int(k.sum()),
        n=int(n.sum()),
        expected=expected,
        fraction=fraction,
        low=low,
        high=high,
    )


def _remarks(work: _Work, survey: Survey) -> Iterator[str]:
    known = work.known
    if known is None:
        yield (
            "no labels were given, so the fraction is the classifier's and has no interval; name a table with --labels"
        )
        return
    if not survey.labelled.counts(work.request.what)[0].any():
        yield "the fraction has no interval, since none of its objects has a label; label some of them"
    if known.unanswered:
        yield f"{known.unanswered} objects of the labels have no class and are left out"
    if known.chosen:
        yield (
            f"{known.chosen} objects were chosen because they are uncertain, and not drawn at random; they "
            "do not represent others and are left out"
        )
    if survey.unmatched:
        yield f"{survey.unmatched} objects of the labels are not among the classified ones with a position"
