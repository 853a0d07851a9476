"""Why an object has its class, for `explain` and for a report; and the space of features that reviews look in.

Shapes: n rows, F features, D dimensions of the space.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blr.arrays import Array, Floats, Places
from blr.decisions import FLAG_MEANINGS
from blr.explanation import (
    Contributions,
    contributions,
    distances_from,
    nearest_rows,
    sampled_probability,
)
from blr.predictive.mixture import Scores
from blr.threads import single_threaded_blas
from catalogs.arrays import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.formats import TableChoice
from catalogs.sky.positions import positions, survey_links
from flows.classification._tally import EXPLAINED, object_columns
from flows.classification.scoring import Scorer, annotation_settings, settled
from flows.errors import ModelError, UsageError
from flows.features.reader import FeatureBatch
from flows.inputs.opening import ObjectRow, find_object, opened, read_object
from flows.inputs.source import resolve_sources
from flows.models.model import Model
from flows.models.row_files import ROWS_FILE, labelled_objects
from flows.models.store import Store
from flows.reports.catalogue_page import (
    ClassExample,
    ClassProbabilities,
    Explanation,
    FeatureContribution,
    LikeObject,
    RaisedFlag,
)
from flows.request import ExplainRequest
from flows.runs.manifest import Manifest, identifier_column
from flows.runs.results import DoubtfulObject
from flows.specification.toml_file import read_specification

# The whitened features of a model, as a space with points for annotated rows and labelled objects. A review spreads
# its objects in this space, and looks in it for what is far from all labelled objects.

NearestLabelled = Callable[[Floats], tuple[Floats, Places]]
"""How far points (n, D) are from the labelled objects (n,), and the class of the nearest one (n,)."""


class FeatureSpace(NamedTuple):
    """The whitened features of a model: `scorer` gives the points (n, D) of rows."""

    scorer: Scorer
    nearest_labelled: NearestLabelled


def feature_space(manifest: Manifest, store: Path, specification: Path | None = None) -> FeatureSpace:
    """Return the space of the model that wrote annotated copies.

    `specification` has the [target] that the copies were classified with, where it was not the model's own.
    ModelError if the model is not in the store.
    """
    model = Store.named(store).load(manifest.model)
    wanted = model.specification if specification is None else read_specification(specification)
    scorer = Scorer.of(model, annotation_settings(model, wanted))
    labelled = _labelled(model)
    if not len(labelled):
        raise ModelError(
            f"{model.folder}/{ROWS_FILE}: got no labelled objects of {model.label}, expected those that it "
            "was fitted to; restore the file from a backup, or train the model again"
        )
    known = np.isfinite(labelled["X"])
    from_labelled = distances_from(scorer.classifier.moments.whitened(np.nan_to_num(labelled["X"]), ~known))
    targets = np.asarray(labelled["target"])

    def nearest_labelled(points: Floats) -> tuple[Floats, Places]:
        distance, row = from_labelled(points)
        return distance, targets[row]

    return FeatureSpace(scorer, nearest_labelled)


def _labelled(model: Model) -> Array:
    return labelled_objects(model.folder, classes=len(model.classes), features=len(model.features))


# Contributions and nearest labelled objects of a row, as `explain` and the report show them.

NEAREST = 5
"""Number of labelled objects that are shown."""
LOST = "The model has lost its labelled objects, so none like this one is shown; restore its folder, or train again."
OUTSIDE = "The object does not fulfil the target's condition (target.where), so it gets no class."


def feature_contributions(scorer: Scorer, parts: Contributions, x: Floats) -> tuple[FeatureContribution, ...]:
    """Return the contributions of the features x (F,), the largest first, those of missing features last."""
    model, mean, known = scorer.model, scorer.classifier.moments.mean, ~np.isnan(parts.value)
    return tuple(
        FeatureContribution(
            name=model.features[j],
            expression=model.specification.features[model.features[j]],
            value=float(x[j]) if known[j] else None,
            usual=float(mean[j]),
            contribution=float(parts.value[j]) if known[j] else None,
            std=float(parts.std[j]) if known[j] else None,
        )
        for j in np.argsort(-np.abs(parts.value), kind="stable").tolist()  # NaN last
    )


def nearest_objects(scorer: Scorer, x: Floats, labelled: Array, *, identifier: str) -> tuple[LikeObject, ...]:
    """Return the labelled objects that are nearest to the features x (F,), NaN where one is missing.

    The object itself, by its `identifier`, is not among them.
    """
    spellings = [identifier.encode(), identifier.removesuffix(".0").encode()]  # 7.0 is 7 too
    labelled = labelled[~np.isin(labelled["identifier"], spellings)]
    found = nearest_rows(scorer.classifier, x, labelled["X"], n=NEAREST)
    return tuple(
        LikeObject(
            identifier=labelled["identifier"][i].decode(errors="replace"),
            name=scorer.model.classes[labelled["target"][i]],
            distance=float(distance),
            compared=int(compared),
            ra=finite(labelled["position"][i, 0]),
            dec=finite(labelled["position"][i, 1]),
            links=survey_links(*labelled["position"][i].tolist()),
        )
        for i, distance, compared in zip(*found, strict=True)
    )


def finite(value: float) -> float | None:
    """Return a number, None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None


def class_examples(scorer: Scorer, objects: Iterable[DoubtfulObject]) -> tuple[ClassExample, ...]:
    """Return why those objects have their class whose features were kept."""
    model, F = scorer.model, len(scorer.model.features)
    pairs = [(one, one.get("features", ())) for one in objects]
    known = [(one, values) for one, values in pairs if len(values) == F and {*values} != {None}]
    if not known:
        return ()
    labelled, examples = _labelled(model), []
    with single_threaded_blas():
        for one, values in known[:EXPLAINED]:  # each file keeps as many
            x = np.array([math.nan if value is None else value for value in values])
            of, against = (model.classes.index(name) for name in one["classes"])
            parts = contributions(scorer.classifier, np.nan_to_num(x), np.isnan(x), of=of, against=against)
            examples.append(
                ClassExample(
                    identifier=one["id"],
                    classes=one["classes"],
                    probabilities=one["probabilities"],
                    contributions=feature_contributions(scorer, parts, x),
                    nearest=nearest_objects(scorer, x, labelled, identifier=one["id"]),
                )
            )
    return tuple(examples)


# Why one object of a catalogue has its class: its row is found, scored, and taken apart.


def explain(request: ExplainRequest) -> Explanation:
    """Return why an object of a catalogue has its class by a stored model, or by the one that annotated it.

    UsageError if no row has the identifier, no column names objects, or no model is named.
    """
    label, folder = _maker(request)
    model = Store.named(folder).load(label)
    stated = request.specification
    settings = settled(model, model.specification if stated is None else read_specification(stated))
    labelled, scorer = _labelled(model), Scorer.of(model, settings)
    named = object_columns(settings).id
    sources = resolve_sources(_catalogues(request.catalogue), Path(), key="CATALOG")
    choice = scorer.choice if request.table is None else TableChoice(request.table, scorer.reader.read)
    with opened(sources, choice) as catalogs, single_threaded_blas():
        looked_in = []
        for catalog in catalogs:
            column = identifier_column(catalog, asked=request.id_column, stated=named, option="--id-column")
            place = find_object(catalog, column, request.identifier)
            if place is not None:
                return _explained(scorer.on(catalog), catalog, column, place, labelled)
            looked_in.append(f"{catalog.path} ({catalog.n_rows:,} rows, column '{column}')")
    shown = ", ".join(looked_in[:3]) + (", ..." if len(looked_in) > 3 else "")
    raise UsageError(
        f"--id: got '{request.identifier}', which no row of {shown} has, expected the "
        "identifier of an object; correct it, or name another column with --id-column"
    )


def _catalogues(name: str) -> list[str]:
    """Return the files and catalogues of a folder of annotated copies, whatever their formats; else the one named."""
    manifest = Manifest.read(Path(name))
    names = {} if manifest is None else dict.fromkeys(Path(o.name).parts[0] for o in manifest.outputs)
    return [str(Path(name, one)) for one in names] or [name]


def _maker(request: ExplainRequest) -> tuple[str, Path]:
    """Return the model and its store: those asked for, else those that the manifest of an annotated copy names."""
    if request.model is not None:
        return request.model, request.store or Path("models")
    path = Path(request.catalogue)
    for out in (path, *path.parents):
        manifest = Manifest.read(out)
        if manifest is not None:
            return manifest.model, manifest.model_store(out, request.store)
    raise UsageError(
        f"--model: got none for '{request.catalogue}', which no manifest.json says is an annotated copy, expected the "
        "model that is to give the class; name it, `blr models list` shows them"
    )


def _explained(
    scorer: Scorer, catalog: Catalog, column: str, place: ObjectRow, labelled: Array
) -> Explanation:
    model, (partition, row, n_rows) = scorer.model, place
    where = None
    with suppress(CatalogError):  # whose unit cannot be read
        where = object_columns(scorer.specification).place(catalog)
    names = [column, *(where or ())[:2]]
    batch = read_object(place, tuple(dict.fromkeys([*names, *scorer.reader.read])))
    values = batch_values(batch, [*dict.fromkeys(names)])
    ra = dec = None
    if where is not None:
        at = positions(values[where[0]], values[where[1]], where[2])
        ra, dec = finite(at.ra[0]), finite(at.dec[0])
    scores, features = scorer.score(batch)
    inside = bool(features.inside[0])
    flags = int(scores.flags[0]) if inside else 0
    missing = features.missing[0]
    found = Explanation(
        model=model.label,
        file=str(partition.path),
        identifier=str(values[column][0]).strip(),
        id_column=column,
        row=row,
        n_rows=n_rows,
        ra=ra,
        dec=dec,
        links={} if ra is None or dec is None else survey_links(ra, dec),
        name=None,
        runner_up=None,
        probabilities=(),
        logit=None,
        logit_std=None,
        reference=None,
        shift=None,
        contributions=(),
        missing=tuple(name for name, gone in zip(model.features, missing, strict=True) if gone),
        flags=tuple(
            RaisedFlag(bit=int(flag.value).bit_length() - 1, name=str(flag.name), meaning=meaning)
            for flag, meaning in FLAG_MEANINGS.items()
            if flags & int(flag.value)
        ),
        nearest=(),
        remarks=() if inside else (OUTSIDE,),
    )
    return _of_class(found, scorer, scores, features, labelled) if inside and not missing.all() else found


def _of_class(
    found: Explanation, scorer: Scorer, scores: Scores, features: FeatureBatch, labelled: Array
) -> Explanation:
    """Return an explanation with what favours the most probable class over the second one."""
    model, classifier, x, missing = scorer.model, scorer.classifier, features.X[0], features.missing[0]
    against, of = np.argsort(scores.probability[0], kind="stable")[-2:].tolist()
    parts = contributions(classifier, x, missing, of=of, against=against)
    known = np.where(missing, np.nan, x)
    sampled, error = sampled_probability(classifier, x, missing)
    return replace(
        found,
        name=model.classes[of],
        runner_up=model.classes[against],
        probabilities=tuple(
            ClassProbabilities(
                name=name,
                plugin=float(scores.plugin[0, k]),
                moderated=float(scores.probability[0, k]),
                sampled=float(sampled[k]),
                sampled_error=float(error[k]),
            )
            for k, name in enumerate(model.classes)
        ),
        logit=parts.logit,
        logit_std=parts.logit_std,
        reference=parts.reference,
        shift=parts.shift,
        contributions=feature_contributions(scorer, parts, x),
        nearest=nearest_objects(scorer, known, labelled, identifier=found.identifier),
        remarks=() if len(labelled) else (LOST,),
    )
