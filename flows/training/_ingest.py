"""What is known of the labelled rows before any fit: the counts, the features' quality, the inputs' hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.catalog.catalog import Catalog
from catalogs.sky.photometry import State
from flows.features.drift import feature_distribution
from flows.features.measurement_errors import training_noise
from flows.specification.specification import Specification
from flows.training._rows import Gathered, TrainingRows

__all__ = ["column_metadata", "describe_rows"]

MOST_LABELS = 20
"""Labels in no class that are reported, the most frequent first."""


def describe_rows(
    specification: Specification, gathered: Gathered, catalogs: Sequence[Catalog]
) -> dict[str, Any]:
    """Return the counts and the quality table, as a model carries them."""
    rows, K = gathered.rows, len(gathered.classes)
    training = np.bincount(rows.target[rows.training], weights=_weight(rows), minlength=K)
    return {
        "inputs": [{"name": c.path.name, "sha256": c.content_hash(), "n_rows": c.n_rows} for c in catalogs],
        "content_hash": gathered.content_hash,
        "n_read": gathered.n_read,
        "n_selected": gathered.n_selected,
        "training_counts": np.bincount(rows.target[rows.training], minlength=K).tolist(),
        "held_out_counts": np.bincount(rows.target[rows.held_out], minlength=K).tolist(),
        "class_share": (training / training.sum()).tolist(),
        "unlabelled": gathered.seen.get("", 0),
        "unknown_labels": dict(list(gathered.unknown_labels.items())[:MOST_LABELS]),
        "labels": dict(gathered.labels),
        "split": dict(gathered.split),
        "states": _states(gathered),
        "features": [
            _quality(specification, name, rows.X[:, j], rows.missing[:, j], catalogs)
            for j, name in enumerate(specification.features)
        ],
        "noise": _noise(specification, rows),
        "distribution": feature_distribution(
            rows.X[rows.training], rows.missing[rows.training], tuple(specification.features)
        ),
    }


def _states(gathered: Gathered) -> dict[str, dict[str, int]]:
    """Return how many labelled rows miss each column for which reason, where one is known."""
    found: dict[str, dict[str, int]] = {}
    for (name, state), n in gathered.states.items():
        if n and state is not State.MEASURED:
            found.setdefault(name, {})[state.name.lower()] = n
    return found


def _noise(specification: Specification, rows: TrainingRows) -> dict[str, float]:
    """Return the training rows' own measurement errors by feature, where some are stated."""
    if rows.errors is None:
        return {}
    training, names = rows.training, tuple(specification.features)
    return training_noise(rows.errors[training], rows.missing[training], names, specification.errors)


def _weight(rows: TrainingRows) -> NDArray[np.float64] | None:
    return None if rows.weight is None else rows.weight[rows.training]


def _quality(
    specification: Specification,
    name: str,
    x: NDArray[np.float64],
    missing: NDArray[np.bool_],
    catalogs: Sequence[Catalog],
) -> dict[str, Any]:
    """Return a row of the quality table; the range is of the rows that have the feature."""
    known, text = x[~missing], specification.features[name]
    units = {c.name: c.unit for c in catalogs[0].columns}
    return {
        "name": name,
        "expression": text,
        "missing": float(missing.mean()),
        "minimum": float(known.min()),
        "median": float(np.median(known)),
        "maximum": float(known.max()),
        "unit": units.get(text.strip()),
    }


def column_metadata(catalog: Catalog, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what the catalogue says of the columns that a model needs."""
    return {
        name: {"unit": c.unit, "ucd": c.ucd, "description": c.description, "datatype": str(c.datatype)}
        for name in names
        for c in [catalog.column(name)]
    }
