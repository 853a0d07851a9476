"""Why one object of a catalogue has its class: its row is found, scored, and taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from blr.decisions import FLAG_MEANINGS
from blr.explanation.contributions import Contributions, contributions, sampled_probability
from blr.predictive.scores import Scores
from blr.threads import single_threaded_blas
from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.sky.positions import find_position_columns, positions, unit_of_position
from catalogs.sky.survey_links import survey_links
from catalogs.table_choice import TableChoice
from flows.classification._class_shares import chosen_shift
from flows.classification._examples import feature_contributions, finite, nearest_objects
from flows.classification.request import ExplainRequest
from flows.classification.scoring import Scorer, annotation_settings
from flows.errors import UsageError
from flows.inputs.opening import ObjectRow, find_object, opened, read_object
from flows.inputs.source import resolve_sources
from flows.models.model import Model
from flows.models.row_files import LabelledObjects
from flows.models.store import Store
from flows.reports.explanation import (
    ClassProbabilities,
    Explanation,
    RaisedFlag,
)
from flows.runs.manifest import Manifest
from flows.runs.object_names import identifier_column
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification

__all__ = ["explain"]

Floats = NDArray[np.float64]


def explain(request: ExplainRequest) -> Explanation:
    """Return why an object of a catalogue has its class by a stored model, or by the one that annotated it.

    Raises
    ------
    UsageError
        If no row has the identifier, no column names objects, or no model is named.
    """
    label, folder = _maker(request)
    store = Store.named(folder)
    stored = store.find(label)
    model = store.read(stored)
    settings = _settings(model, request.specification)
    labelled = LabelledObjects.read(stored.folder, classes=len(model.classes), features=len(model.features))
    scorer = Scorer.of(model, settings)
    sources = resolve_sources([request.catalogue], Path(), key="CATALOG")
    choice = scorer.choice if request.table is None else TableChoice(request.table, scorer.reader.read)
    with opened(sources, choice) as catalogs, single_threaded_blas():
        looked_in = []
        for catalog in catalogs:
            column = _identifier_column(catalog, settings, request.id_column)
            place = find_object(catalog, column, request.identifier)
            if place is not None:
                return _explained(scorer.on(catalog), catalog, settings, column, place, labelled)
            looked_in.append(f"{catalog.path} ({catalog.n_rows:,} rows, column '{column}')")
    raise UsageError(
        f"--id: got '{request.identifier}', which no row of {', '.join(looked_in)} has, expected the "
        "identifier of an object; correct it, or name another column with --id-column"
    )


def _maker(request: ExplainRequest) -> tuple[str, Path]:
    """Return the model and its store: those asked for, else those that the manifest of an annotated copy names."""
    default = request.store or Path("models")
    if request.model is not None:
        return request.model, default
    path = Path(request.catalogue)
    for out in (path, *path.parents):
        manifest = Manifest.read(out)
        if manifest is not None:
            recorded = out / manifest.store
            known = request.store is None and bool(manifest.store) and recorded.is_dir()
            return manifest.model, recorded if known else default
    raise UsageError(
        f"--model: got none for '{request.catalogue}', which no manifest.json says is an annotated copy, expected the "
        "model that is to give the class; name it, `blr models list` shows them"
    )


def _settings(model: Model, specification: Path | None) -> Specification:
    """Return the settings that the object is scored by: the model's, or another specification's target and flags."""
    wanted = model.specification if specification is None else read_specification(specification)
    plain = annotation_settings(model, wanted)
    return plain.model_copy(update={"shift": chosen_shift(model, wanted.shift)})


def _identifier_column(catalog: Catalog, settings: Specification, asked: str | None) -> str:
    named = settings.catalog.id
    stated = None if named is None else settings.target.columns.get(named, named)
    return identifier_column(catalog, asked=asked, stated=stated, option="--id-column")


def _explained(
    scorer: Scorer,
    catalog: Catalog,
    settings: Specification,
    column: str,
    place: ObjectRow,
    labelled: LabelledObjects | None,
) -> Explanation:
    model = scorer.model
    where = _position_columns(catalog, settings)
    batch = read_object(place, tuple(dict.fromkeys([column, *where, *scorer.reader.read])))
    identifier = str(batch_values(batch, [column])[column][0]).strip()
    ra, dec = _position(catalog, settings, where, batch)
    scores, features = scorer.score(batch)
    inside = bool(features.inside[0])
    flags = int(scores.flags[0]) if inside else 0
    missing = features.missing[0]
    remarks = (
        []
        if inside
        else ["The object does not fulfil the target's condition (target.where), so it gets no class."]
    )
    if labelled is None:
        remarks.append(
            "The model is of an earlier version and keeps no labelled objects; train it again to see them."
        )
    known = inside and not missing.all()
    parts = _of_class(scorer, scores, features.X[0], missing) if known else None
    return Explanation(
        model=model.label,
        file=str(place.partition.path),
        identifier=identifier,
        id_column=column,
        row=place.row,
        n_rows=place.n_rows,
        ra=ra,
        dec=dec,
        links=_links(ra, dec),
        name=None if parts is None else model.classes[parts.of],
        runner_up=None if parts is None else model.classes[parts.against],
        probabilities=_probabilities(scorer, scores, features.X[0], missing) if known else (),
        logit=None if parts is None else parts.logit,
        logit_std=None if parts is None else parts.logit_std,
        reference=None if parts is None else parts.reference,
        shift=None if parts is None else parts.shift,
        contributions=()
        if parts is None
        else feature_contributions(model, scorer.classifier, parts, features.X[0]),
        missing=tuple(name for name, gone in zip(model.features, missing, strict=True) if gone),
        flags=tuple(_flags(flags)),
        nearest=nearest_objects(
            model,
            scorer.classifier,
            np.where(missing, np.nan, features.X[0]),
            labelled,
            identifier=identifier,
        )
        if known and labelled is not None
        else (),
        remarks=tuple(remarks),
    )


def _of_class(scorer: Scorer, scores: Scores, x: Floats, missing: NDArray[np.bool_]) -> Contributions:
    """Return what favours the most probable class over the second one."""
    against, of = np.argsort(scores.probability[0], kind="stable")[-2:].tolist()
    return contributions(scorer.classifier, x, missing, of=of, against=against)


def _probabilities(
    scorer: Scorer, scores: Scores, x: Floats, missing: NDArray[np.bool_]
) -> tuple[ClassProbabilities, ...]:
    sampled = sampled_probability(scorer.classifier, x, missing)
    return tuple(
        ClassProbabilities(
            name=name,
            plugin=float(scores.plugin[0, k]),
            moderated=float(scores.probability[0, k]),
            sampled=float(sampled.probability[k]),
            sampled_error=float(sampled.error[k]),
        )
        for k, name in enumerate(scorer.model.classes)
    )


def _flags(bits: int) -> list[RaisedFlag]:
    return [
        RaisedFlag(bit=int(flag.value).bit_length() - 1, name=str(flag.name), meaning=meaning)
        for flag, meaning in FLAG_MEANINGS.items()
        if bits & int(flag.value)
    ]


def _position_columns(catalog: Catalog, settings: Specification) -> Sequence[str]:
    """Return the columns of right ascension and declination; none where they are not known, or not readable."""
    theirs = settings.target.columns
    stated = [theirs.get(name, name) for name in (settings.catalog.ra, settings.catalog.dec) if name]
    return (
        stated if len(stated) == 2 and {*stated} <= {*catalog.names} else find_position_columns(catalog) or ()
    )


def _position(
    catalog: Catalog, settings: Specification, columns: Sequence[str], batch: pa.RecordBatch
) -> tuple[float | None, float | None]:
    """Return right ascension and declination in degrees; None where they are missing, or their unit is unreadable."""
    if not columns:
        return None, None
    try:
        unit = unit_of_position(catalog, columns[0], columns[1], stated=settings.catalog.position_unit)
    except CatalogError:
        return None, None
    values = batch_values(batch, columns)
    place = positions(values[columns[0]], values[columns[1]], unit)
    return finite(place.ra[0]), finite(place.dec[0])


def _links(ra: float | None, dec: float | None) -> dict[str, str]:
    return {} if ra is None or dec is None else survey_links(ra, dec)
