"""A training set unlike the target: how well they can be told apart, weights for the rows, shares for the classes.

Weights are for the fit, and the target is read before it.  Shares move the logits of a fitted model.
Shapes: N labelled rows, T rows of the target, F features, K classes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import catalogs
from blr.basis import fit_basis
from blr.calibration import log_loss
from blr.classifier import Classifier
from blr.missing import FeatureMoments
from blr.shift import DensityRatio, class_priors, density_ratio, log_prior_shift, rescaled
from catalogs.errors import CatalogError
from flows.config import Specification
from flows.content import ContentHash
from flows.errors import SpecificationError, TrainingError, UsageError
from flows.features import target_reader
from flows.inputs import resolve_paths
from flows.manifest import write_json
from flows.progress import tell
from flows.training_rows import TrainingRows, write_array
from flows.units import converted

__all__ = [
    "TARGET_ROWS",
    "StagedShift",
    "TargetRows",
    "compared",
    "corrected",
    "is_needed",
    "read_shift",
    "read_target",
    "target_loss",
    "thinned",
    "version_content",
    "with_density_weights",
    "write_shift",
]

Json = dict[str, Any]
Floats = NDArray[np.float64]

TARGET_ROWS = 50_000
"""Rows of the target that are looked at, at equal distances: the AUC is then known to 0.003."""
MOST_QUADRATIC = 20
"""Features above which the sets are told apart by linear functions alone: the products would be hundreds."""


@dataclass(frozen=True, eq=False)
class TargetRows:
    """Rows of the target: X (T, F) with 0 where `missing` (T, F), and which of how many they are."""

    X: Floats
    missing: NDArray[np.bool_]
    name: str
    n_rows: int
    content_hash: str


@dataclass(frozen=True, eq=False)
class StagedShift:
    """What waits beside the training rows: rows of the target, and the density ratio of the labelled ones (N,)."""

    target: TargetRows | None = None
    ratio: Floats | None = None


def write_shift(target: TargetRows, ratio: Floats, folder: Path) -> None:
    """Write rows of the target and density ratios, each whole or not at all."""
    for name, array in (("target_X", target.X), ("target_missing", target.missing), ("ratio", ratio)):
        write_array(array, folder / f"{name}.npy")
    write_json(folder / STAGED, {key: getattr(target, key) for key in ("name", "n_rows", "content_hash")})


def read_shift(folder: Path) -> StagedShift:
    """Return what `write_shift` wrote, nothing where no target is named."""
    if not (folder / STAGED).is_file():
        return StagedShift()
    X, missing, ratio = (
        np.load(folder / f"{name}.npy", allow_pickle=False)
        for name in ("target_X", "target_missing", "ratio")
    )
    described = json.loads((folder / STAGED).read_text(encoding="utf-8"))
    return StagedShift(TargetRows(X, missing, **described), ratio)


STAGED = "target.json"


def is_needed(specification: Specification) -> bool:
    """Say whether the model itself depends on the target, and not its report alone."""
    return specification.shift.density_weights or specification.shift.class_prior == "em"


def read_target(
    specification: Specification, trained: Mapping[str, Mapping[str, Any]], *, limit: int | None = None
) -> TargetRows | None:
    """Return rows of the target that a specification names, None where it names none.

    `trained` says of the columns what the labelled catalogue does.  A target that only a report asks for may be
    absent or damaged still; what the model depends on may not: SpecificationError, UsageError or CatalogError.
    """
    shift, needed = specification.shift, is_needed(specification)
    named = shift.target or specification.target.paths
    if named is None:
        if needed:
            raise SpecificationError(
                f"shift.{'density_weights' if shift.density_weights else 'class_prior'}: got no target, expected the "
                'catalogue that the training rows are unlike; add target = "..." under [shift], or paths under [target]'
            )
        return None
    try:
        key = "shift.target" if shift.target else "target.paths"
        paths = resolve_paths(named, Path(specification.base_folder), key=key)
        return _read(specification, [catalogs.open(path) for path in paths], trained, limit)
    except (CatalogError, UsageError) as error:
        if needed or shift.target:
            raise
        tell().note(f"not compared with the training rows: {error}")
        return None


def _read(
    specification: Specification,
    opened: list[catalogs.Catalog],
    trained: Mapping[str, Mapping[str, Any]],
    limit: int | None,
) -> TargetRows:
    general = target_reader(specification, specification.features)
    content = ContentHash(general.read)
    n_rows = sum(c.n_rows for c in opened)
    step = max(1, math.ceil(n_rows / (TARGET_ROWS if limit is None else min(limit, TARGET_ROWS))))
    X, missing = (
        [np.empty((0, len(specification.features)))],
        [np.empty((0, len(specification.features)), bool)],
    )
    for catalog in opened:
        reader = converted(general, catalog, trained=trained, stated=specification.target.units)
        for batch in thinned(catalog.batches(reader.read), step):
            content.feed(batch)
            found = reader.evaluate(batch)
            kept = found.inside & ~found.missing.all(axis=1)
            X.append(found.X[kept])
            missing.append(found.missing[kept])
    name = opened[0].path.name if len(opened) == 1 else f"{opened[0].path.name} and {len(opened) - 1} more"
    rows = TargetRows(np.concatenate(X), np.concatenate(missing), name, n_rows, content.hexdigest())
    if not len(rows.X):
        raise CatalogError(
            f"{opened[0].path}: got no row with any feature, inside target.where, expected some; correct the "
            "condition, the columns or the target"
        )
    return rows


def thinned(batches: Iterable[pa.RecordBatch], step: int) -> Iterator[pa.RecordBatch]:
    """Yield every `step`-th row, counted over all batches."""
    first = 0
    for batch in batches:
        yield batch if step == 1 else batch.take(pa.array(np.arange(first, batch.num_rows, step)))
        first = (first - batch.num_rows) % step


def version_content(content_hash: str, specification: Specification, target: TargetRows | None) -> str:
    """Return the hash of all rows that a model depends on, the target's too where it does."""
    if target is None or not is_needed(specification):
        return content_hash
    return hashlib.sha256(f"{content_hash}\n{target.content_hash}".encode()).hexdigest()


def compared(
    specification: Specification,
    rows: TrainingRows,
    filled: Floats,
    target: TargetRows,
    moments: FeatureMoments,
) -> tuple[DensityRatio, Json]:
    """Return density ratios of all labelled rows (N,), and what is told of the difference.

    `filled` (N, F) are the features, the missing ones at their conditional mean, to which `moments` bring the target's.
    """
    other = moments.impute(target.X, target.missing)
    degree = 2 if filled.shape[1] <= MOST_QUADRATIC else 1
    basis = fit_basis("polynomial", np.concatenate([filled, other]), degree=degree)
    try:
        found = density_ratio(basis(filled), basis(other), train_weight=rows.weight)
    except ValueError as error:
        raise TrainingError(f"shift.target: {error}") from error
    training = rows.training
    weight = rescaled(found.ratio[training], None if rows.weight is None else rows.weight[training])
    return found, {
        "target": {
            "name": target.name,
            "n_rows": target.n_rows,
            "n_compared": len(target.X),
            "content_hash": target.content_hash,
        },
        "auc": found.auc,
        "auc_low": found.auc_low,
        "auc_high": found.auc_high,
        "advice": found.advice,
        "density_weights": specification.shift.density_weights,
        "n_training": int(training.sum()),
        "n_effective": float(weight.sum()),
    }


def with_density_weights(rows: TrainingRows, ratio: Floats) -> TrainingRows:
    """Return the rows weighted by density ratio (N,): those that fits see sum to their effective number."""
    training = rows.training
    weight = ratio if rows.weight is None else ratio * rows.weight
    weight = weight.copy()
    given = None if rows.weight is None else rows.weight[training]
    weight[training] = rescaled(ratio[training], given)
    return replace(rows, weight=weight)


def corrected(
    specification: Specification, classifier: Classifier, share: Floats, target: TargetRows | None
) -> tuple[Classifier, Json]:
    """Return the classifier for the class shares of the target, and what is told of them; as it was where none are.

    `share` (K,) is that of the training rows.
    """
    prior = specification.shift.class_prior
    if prior is None:
        return classifier, {}
    if prior == "em":
        assert target is not None  # noqa: S101  read_target has said so
        columns = _columns(specification, classifier)
        p = classifier.score(target.X[:, columns], target.missing[:, columns]).probability
        found = class_priors(p, share)
        shift, source = found.log_shift, f"EM over {target.name}"
    else:
        if set(prior) != set(classifier.classes):
            raise TrainingError(
                f"shift.class_prior: got shares of {', '.join(prior)}, expected one of each class: "
                f"{', '.join(classifier.classes)}; correct the names"
            )
        shift = log_prior_shift([prior[name] for name in classifier.classes], share)
        source = specification.shift.class_prior_source or "as given"
    used = share * np.exp(shift)
    told = {
        "class_prior": dict(zip(classifier.classes, (used / used.sum()).tolist(), strict=True)),
        "class_prior_training": dict(zip(classifier.classes, share.tolist(), strict=True)),
        "class_prior_source": source,
    }
    return replace(classifier, log_prior_shift=shift), told


def target_loss(
    specification: Specification,
    classifier: Classifier,
    rows: TrainingRows,
    share: Floats,
    ratio: Floats | None,
) -> Json:
    """Return the log loss that held-out rows, weighted as the target, show: with class shares corrected, and without.

    Weights are those of the classes where shares are corrected, else the density ratio (N,) where there is one.
    `share` (K,) are the classes' in the training.
    """
    held_out, truth, shift = rows.held_out, rows.target[rows.held_out], classifier.log_prior_shift
    weight = np.ones(len(truth)) if rows.weight is None else rows.weight[held_out]
    if shift is not None:
        weight = weight * np.exp(shift)[truth]
    elif ratio is None:
        return {}
    elif not specification.shift.density_weights:  # they are in the rows' weights then
        weight = weight * ratio[held_out]
    columns = _columns(specification, classifier)
    X, missing = rows.X[held_out][:, columns], rows.missing[held_out][:, columns]

    def loss(judged: Classifier, shares: Floats) -> float:
        p = judged.score(X, missing).probability
        return log_loss(np.where(np.isnan(p[:, :1]), shares, p), truth, weight=weight)

    told = {"n_effective_held_out": float(weight.sum() ** 2 / (weight**2).sum())}
    if shift is None:
        return told | {"log_loss": loss(classifier, share)}
    new = share * np.exp(shift)
    return told | {
        "log_loss": loss(classifier, new / new.sum()),
        "log_loss_uncorrected": loss(replace(classifier, log_prior_shift=None), share),
    }


def _columns(specification: Specification, classifier: Classifier) -> list[int]:
    """Return where the classifier's features are among all."""
    names = list(specification.features)
    return [names.index(name) for name in classifier.features]
