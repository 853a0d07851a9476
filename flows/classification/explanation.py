"""Why an object has its class, for `explain` and for a report; and the space of features that reviews look in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from blr.classifier import Classifier
from blr.decisions import FLAG_MEANINGS
from blr.explanation.contributions import Contributions, contributions, sampled_probability
from blr.explanation.novelty import Novelty, nearest_rows
from blr.missing.moments import WhitenedSpace
from blr.predictive.scores import Scores
from blr.threads import single_threaded_blas
from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.formats import TableChoice
from catalogs.sky.positions import find_position_columns, positions, survey_links, unit_of_position
from flows.classification._class_shares import chosen_shift, with_shares
from flows.classification.request import ExplainRequest
from flows.classification.scoring import Scorer, annotation_settings
from flows.errors import UsageError
from flows.inputs.opening import ObjectRow, find_object, opened, read_object
from flows.inputs.source import resolve_sources
from flows.models.model import Model
from flows.models.row_files import LabelledObjects
from flows.models.store import Store
from flows.reports.explanation import (
    ClassExample,
    ClassProbabilities,
    Explanation,
    FeatureContribution,
    LikeObject,
    RaisedFlag,
)
from flows.runs.counts import DoubtfulObject
from flows.runs.manifest import Manifest, annotated_manifest
from flows.runs.outputs import identifier_column
from flows.runs.release_store import output_folder
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification

# The whitened features of a model, as a space with points for annotated rows and labelled objects.
#
# A review spreads its objects in this space, and looks in it for what is far from all labelled objects.
# Shapes: n rows, D dimensions.

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """The space of a model's features; `novelty` is None where the model keeps no labelled objects."""

    scorer: Scorer
    whitened: WhitenedSpace
    novelty: Novelty | None
    targets: NDArray[np.intp]  # (N,) the class of each labelled object

    @property
    def read(self) -> tuple[str, ...]:
        """The catalogue's columns that the features need."""
        return self.scorer.reader.read

    @property
    def knows_labelled(self) -> bool:
        """Whether there are labelled objects to compare with."""
        return self.novelty is not None

    def on(self, catalog: Catalog) -> FeatureSpace:
        """Return the space for one catalogue; ColumnNotFoundError where it lacks a column that features need."""
        return replace(self, scorer=self.scorer.on(catalog))

    def points(self, batch: pa.RecordBatch) -> Floats:
        """Return the points (n, D) of a batch's rows."""
        features = self.scorer.reader.evaluate(batch)
        return self.whitened.points(features.X, features.missing)

    def distances(self, points: Floats) -> tuple[Floats, NDArray[np.intp]]:
        """Return how far points (n, D) are from the labelled objects (n,), and the nearest one's class (n,)."""
        assert self.novelty is not None  # noqa: S101  callers ask `knows_labelled`
        distance, row = self.novelty.distance(points)
        return distance, self.targets[row]


def feature_space(out: Path, store: Path, specification: Path | None = None) -> FeatureSpace:
    """Return the space of the model that wrote a folder of annotated copies.

    `specification` has the [target] that the copies were classified with, where it was not the model's own.

    Raises
    ------
    UsageError
        If the folder has no manifest.
    ModelError
        If the model is not in the store.
    """
    with output_folder(out, key="out", publish=False) as folder:
        manifest = annotated_manifest(folder)
    models = Store.named(store)
    stored = models.find(manifest.model)
    model = models.read(stored)
    wanted = model.specification if specification is None else read_specification(specification)
    scorer = Scorer.of(model, annotation_settings(model, wanted))
    whitened = WhitenedSpace(scorer.classifier.moments)
    labelled = LabelledObjects.read(stored.folder, classes=len(model.classes), features=len(model.features))
    return FeatureSpace(
        scorer,
        whitened,
        _novelty(whitened, labelled),
        np.empty(0, dtype=np.intp) if labelled is None else np.asarray(labelled.target),
    )


def _novelty(whitened: WhitenedSpace, labelled: LabelledObjects | None) -> Novelty | None:
    if labelled is None or not len(labelled.target):
        return None
    return Novelty.of(whitened.points(np.nan_to_num(labelled.X), ~np.isfinite(labelled.X)))


# Contributions and nearest labelled objects of a row, as `explain` and the report show them.  Shapes: F features.

NEAREST = 5
"""Number of labelled objects that are shown."""


def feature_contributions(
    model: Model, classifier: Classifier, parts: Contributions, x: Floats
) -> tuple[FeatureContribution, ...]:
    """Return the contributions of the features x (F,), the largest first, those of missing features last."""
    mean = classifier.moments.mean
    found = [
        FeatureContribution(
            name=name,
            expression=model.specification.features[name],
            value=None if math.isnan(parts.value[j]) else float(x[j]),
            usual=float(mean[j]),
            contribution=None if math.isnan(parts.value[j]) else float(parts.value[j]),
            std=None if math.isnan(parts.value[j]) else float(parts.std[j]),
        )
        for j, name in enumerate(model.features)
    ]
    return tuple(
        sorted(found, key=lambda c: -abs(c.contribution) if c.contribution is not None else math.inf)
    )


def nearest_objects(
    model: Model, classifier: Classifier, x: Floats, labelled: LabelledObjects, *, identifier: str
) -> tuple[LikeObject, ...]:
    """Return the labelled objects that are nearest to the features x (F,), NaN where one is missing.

    The object itself, by its `identifier`, is not among them.
    """
    labelled = labelled.but(identifier)
    found = nearest_rows(classifier, x, labelled.X, n=NEAREST)
    return tuple(
        LikeObject(
            identifier=labelled.identifier[i].decode(errors="replace"),
            name=model.classes[labelled.target[i]],
            distance=float(distance),
            compared=int(compared),
            ra=finite(labelled.position[i, 0]),
            dec=finite(labelled.position[i, 1]),
            links=survey_links(*labelled.position[i].tolist()),
        )
        for i, distance, compared in zip(found.row, found.distance, found.compared, strict=True)
    )


def finite(value: float) -> float | None:
    """Return a number, None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None


# Why some objects of a classification have their class: examples for the report.
#
# They are the objects whose features the survey has kept, so that no catalogue is read again.  Shapes: F features.


def class_examples(
    model: Model, specification: Specification, folder: Path, objects: Iterable[DoubtfulObject]
) -> tuple[ClassExample, ...]:
    """Return why those objects have their class whose features are known; `folder` is the model's."""
    F = len(model.features)
    known = [one for one in objects if len(one.features) == F and any(x is not None for x in one.features)]
    if not known:
        return ()
    labelled = LabelledObjects.read(folder, classes=len(model.classes), features=F)
    with single_threaded_blas():
        return tuple(_examples(model, with_shares(model, specification), labelled, known))


def _examples(
    model: Model, classifier: Classifier, labelled: LabelledObjects | None, objects: list[DoubtfulObject]
) -> Iterator[ClassExample]:
    for one in objects:
        x = np.array([math.nan if value is None else value for value in one.features])
        missing = np.isnan(x)
        of, against = (model.classes.index(name) for name in one.classes)
        parts = contributions(classifier, np.nan_to_num(x), missing, of=of, against=against)
        yield ClassExample(
            identifier=one.id,
            classes=one.classes,
            probabilities=one.probabilities,
            contributions=feature_contributions(model, classifier, parts, x),
            nearest=()
            if labelled is None
            else nearest_objects(model, classifier, x, labelled, identifier=one.id),
        )


# Why one object of a catalogue has its class: its row is found, scored, and taken apart.


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
    sampled, error = sampled_probability(scorer.classifier, x, missing)
    return tuple(
        ClassProbabilities(
            name=name,
            plugin=float(scores.plugin[0, k]),
            moderated=float(scores.probability[0, k]),
            sampled=float(sampled[k]),
            sampled_error=float(error[k]),
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
