"""The description of the labelled rows before any fit: counts, the quality of features, hashes of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blr.candidates.training import votes_phi
from blr.missing.measurement_errors import training_noise
from blr.threads import single_threaded_blas
from catalogs.catalog.catalog import Catalog, ColumnMetadata
from catalogs.sky.photometry import State
from flows.features.drift import feature_distribution
from flows.models.description import (
    FeatureQuality,
    InputFile,
    LabelledSample,
    LabelSummary,
    TrainingDescription,
)
from flows.models.shift import TargetShift
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._gather import Gathered
from flows.training._label_noise import label_confusion
from flows.training._quality import catalog_qualities
from flows.training._row_counts import RowCounts
from flows.training._rows import TrainingRows, rows_of, write_array, write_rows
from flows.training._shift import compared
from flows.training._staging import fill_shards, stage_shards, training_set, write_moments
from flows.training._target_rows import TargetRows, write_shift

__all__ = ["column_metadata", "label_summary", "labelled_sample", "stage_rows"]

MOST_LABELS = 20
"""Most labels in no class that are reported, the most frequent ones."""


def labelled_sample(
    specification: Specification, gathered: Gathered, catalogs: Sequence[Catalog]
) -> LabelledSample:
    """Return the counts and the table of feature quality, as a model stores them."""
    rows, counts = gathered.rows, gathered.counts
    training = counts.training_weight
    return LabelledSample(
        inputs=tuple(InputFile(name=c.path.name, sha256=c.content_hash(), n_rows=c.n_rows) for c in catalogs),
        content_hash=gathered.content_hash,
        n_read=gathered.n_read,
        n_selected=gathered.n_selected,
        training_counts=tuple(counts.training.tolist()),
        held_out_counts=tuple(counts.held_out.tolist()),
        class_share=tuple((training / training.sum()).tolist()),
        unlabelled=gathered.seen.get("", 0),
        unknown_labels=dict(list(gathered.unknown_labels.items())[:MOST_LABELS]),
        labels=label_summary(gathered),
        split=gathered.split,
        states=_missing_by_reason(gathered),
        features=tuple(
            _quality(specification, j, rows.X[~rows.missing[:, j], j], counts, catalogs)
            for j in range(len(specification.features))
        ),
        noise=_noise(specification, rows),
        distribution=feature_distribution(
            rows.X[rows.training], rows.missing[rows.training], tuple(specification.features)
        ),
    )


def stage_rows(
    specification: Specification,
    gathered: Gathered,
    opened: list[Catalog],
    target: TargetRows | None,
    folder: Path,
    limit: int | None,
) -> TrainingDescription:
    """Write the weighted rows and their filled features into the folder; return the description of the rows."""
    stored, classes, difference = gathered.stored, gathered.classes, None
    tell().start("describing the rows: missing features, differences from the target, quality", 0, "steps")
    with single_threaded_blas():
        data = training_set(specification, gathered.rows, classes, stored)
        if target is not None and stored is not None and specification.shift.density_weights:
            fill_shards(stored, data.moments)
        comparison = None if target is None else compared(specification, data, target, stored)
        if target is not None and comparison is not None:
            rows, ratio, difference = comparison
            write_shift(target, ratio, folder)
            if specification.shift.density_weights:
                data = training_set(specification, rows, classes, stored)
                every = [rows] if stored is None else stored.each()
                gathered = replace(gathered, rows=rows, counts=RowCounts.of_all(every, len(classes)))
        phi = votes_phi(data, specification.seed) if specification.label.overdispersion else 1.0
        rows = gathered.rows
        if phi != 1:
            rows = replace(rows, weight=(np.ones(len(rows.X)) if rows.weight is None else rows.weight) / phi)
            data = replace(data, rows=rows)
        confusion, noise = label_confusion(specification, data, gathered.annotators)
        data = replace(data, rows=replace(rows, confusion=confusion))
    write_rows(rows_of(data), folder)
    write_array(data.filled, folder / "filled.npy")
    write_moments(data.moments, folder)
    if stored is not None:
        stage_shards(specification, stored, data, phi, folder)
    return TrainingDescription(
        **vars(labelled_sample(specification, gathered, opened)),
        overdispersion=phi,
        label_noise=noise,
        shift=TargetShift.of(difference),
        quality=catalog_qualities(specification, opened[:MOST_QUALITY], gathered.source, limit=limit),
        refitted=None,
        sampled=None if stored is None else len(gathered.rows.target),
    )


MOST_QUALITY = 4
"""Most catalogues whose quality is examined, the first ones: each of them is read once more."""


def label_summary(gathered: Gathered) -> LabelSummary:
    """Return how many labels came from tables and reviews, and which objects have labels that differ."""
    source, repeated = gathered.source, gathered.repeated
    weights = np.array([*source.reviews.weights.values()])
    return LabelSummary(
        conflicts=source.conflicts.n,
        conflicting=dict(source.conflicts.shown),
        joined=source.n_joined,
        unplaced=source.n_unplaced,
        shared=source.n_shared,
        reviewed=source.n_reviewed,
        answered=len(source.reviews.labels),
        repeated=None if repeated is None else repeated.n,
        repeating=None if repeated is None else repeated.classes,
        disputed=len(source.reviews.votes),
        disputing=source.reviews.shown_disputes,
        weighted=len(weights),
        weighted_as=float(weights.sum() ** 2 / np.sum(weights**2)) if len(weights) else None,
    )


def _missing_by_reason(gathered: Gathered) -> dict[str, dict[str, int]]:
    """Return, by column and reason, how many labelled rows have no value; only where a reason is known."""
    missing: dict[str, dict[str, int]] = {}
    for (name, state), n in gathered.states.items():
        if n and state is not State.MEASURED:
            missing.setdefault(name, {})[state.name.lower()] = n
    return missing


def _noise(specification: Specification, rows: TrainingRows) -> dict[str, float]:
    """Return the measurement error of the training rows by feature, for features whose errors are stated."""
    if rows.errors is None:
        return {}
    training, names = rows.training, tuple(specification.features)
    noise = training_noise(rows.errors[training], rows.missing[training], names)
    return {name: sigma for name, sigma in noise.items() if name in specification.errors}


def _quality(
    specification: Specification,
    j: int,
    known: NDArray[np.float64],
    counts: RowCounts,
    catalogs: Sequence[Catalog],
) -> FeatureQuality:
    """Return feature j's row of the quality table; `known` are its values, all of them or those of a sample."""
    name, text = list(specification.features.items())[j]
    units = {c.name: c.unit for c in catalogs[0].columns}
    return FeatureQuality(
        name=name,
        expression=text,
        missing=float(counts.missing[j] / counts.n_rows),
        minimum=float(counts.low[j]),
        median=float(np.median(known)),
        maximum=float(counts.high[j]),
        unit=units.get(text.strip()),
    )


def column_metadata(catalog: Catalog, names: Sequence[str]) -> dict[str, ColumnMetadata]:
    """Return the metadata of the columns that a model needs, as the catalogue states them."""
    return {name: ColumnMetadata.of(catalog.column(name)) for name in names}
