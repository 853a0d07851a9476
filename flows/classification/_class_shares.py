"""Class shares of a catalogue that is classified, and the columns that select objects under these shares.

A model stores the class shares of its training, and those that it was corrected for.  Other shares change the
logits of every row by the same amount.  So they are determined before the first row is written, and become part of the
settings.  Shapes: n rows, K classes, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from blr.arrays import Floats, Mask
from blr.census.bins import learnt_thresholds
from blr.census.purity import Selection, learnt_threshold
from blr.census.shares import LabelledRows, log_prior_shift
from blr.classifier import Classifier
from catalogs.catalog.new_columns import selected_column
from catalogs.expressions.expression import Bins, Expression, even_edges, parse
from flows.errors import SpecificationError, UsageError
from flows.models.model import Model
from flows.models.row_files import unseen_rows
from flows.runs.manifest import SelectedColumn
from flows.runs.results import ShiftRecord
from flows.specification.specification import CensusTable, Flags, Shift, Specification

Asked = str | Mapping[str, float]
Estimate = Callable[[], Shift]


def prior_shares(model: Model) -> Floats:
    """Return the class shares (K,) of the training rows, which the fit of the model assumes for all objects."""
    return np.asarray(model.training.class_share)


def with_shares(model: Model, specification: Specification) -> Classifier:
    """Return the model's classifier for the class shares that the settings give; by default, as it was trained."""
    prior = specification.shift.class_prior
    if not isinstance(prior, Mapping):
        return model.classifier
    shift = log_prior_shift([prior[name] for name in model.classes], prior_shares(model))
    return replace(model.classifier, log_prior_shift=shift)


def chosen_shift(
    model: Model, stated: Shift, *, asked: Asked | None = None, estimate: Estimate | None = None
) -> Shift:
    """Return the table [shift] of a classification: the model's, unless other class shares are `stated` or `asked` for.

    `estimate` finds the shares where "em" is asked for that the model was not trained with.
    """
    trained, stated = (s.model_copy(update={"assumes": None}) for s in (model.specification.shift, stated))
    if asked is None and (stated == trained or (stated.class_prior is None and not stated.density_weights)):
        return trained
    try:
        wanted = stated if asked is None else Shift.model_validate({"class_prior": asked})
    except ValidationError as error:
        raise UsageError(f"class_prior: {error.errors()[0]['ctx']['error']}") from error
    if wanted.density_weights and not trained.density_weights:
        raise UsageError(
            f"shift.density_weights: got true for {model.label}, whose training rows had no such weights, "
            "expected a model that was trained with them; train it again, or leave the key out"
        )
    if wanted.class_prior is None:
        return trained
    if why := _why_no_shares(model, wanted.class_prior, weighted=trained.density_weights):
        raise UsageError(f"shift.class_prior: got shares {why}")
    if not isinstance(wanted.class_prior, str):
        return Shift(class_prior=wanted.class_prior, class_prior_source=wanted.class_prior_source)
    if estimate is None:
        raise UsageError(
            f'shift.class_prior: got "em", but {model.label} was trained without it, expected shares that '
            'stay the same from one release to the next; train again with "em", or give the shares'
        )
    return estimate()


def _why_no_shares(model: Model, prior: Asked, *, weighted: bool) -> str:
    """Return why other class shares cannot be used with a model; '' where they can."""
    label, remedy = model.specification.label, "leave class_prior out"
    if label.noise is not None:
        why = "whose labels may be wrong, expected a model with correct labels, as wrong ones do not tell the shares"
    elif weighted:
        why = "whose training rows were weighted by density ratio, expected one of the two, as both correct one shift"
        remedy = "leave class_prior out, or train without weights"
    elif isinstance(prior, Mapping) and set(prior) != set(model.classes):
        known = ", ".join(model.classes)
        return f"of {', '.join(prior)}, expected one share for each class of {model.label}: {known}; correct the names"
    elif label.votes is not None:
        why = "which was trained on votes, expected a model with one label for each object, as votes depend on shares"
    elif links := {m.posterior.link for m in model.classifier.members} - {"logistic"}:
        why = f"whose link is {', '.join(links)}, expected the logistic link, since shares are applied to logits"
        remedy = 'train with likelihood = "logistic"'
    else:
        return ""
    return f"for {model.label}, {why}; {remedy}"


def shift_record(model: Model, specification: Specification) -> ShiftRecord:
    """Return the record of class shares, and of weights in the training, for the outputs."""
    trained = model.training.shift
    shift = with_shares(model, specification).log_prior_shift
    old = prior_shares(model)
    new = old if shift is None else old * np.exp(shift)
    weights, target = None, trained.target
    if model.specification.shift.density_weights and target is not None:
        weights = (
            f"density ratio against {target['name']} (sha256 {target['content_hash']}): {trained.n_training} rows "
            f"count as {trained.n_effective:.6g}"
        )
    record = ShiftRecord(class_priors=_by_class(model, new / new.sum()), training_weights=weights)
    if shift is None:
        return record
    stated = specification.shift
    source = stated.class_prior_source if isinstance(stated.class_prior, Mapping) else None
    return replace(
        record,
        class_priors_training=_by_class(model, old),
        class_priors_source=source or trained.class_prior_source or "as given",
    )


def _by_class(model: Model, shares: Floats) -> dict[str, float]:
    return dict(zip(model.classes, shares.tolist(), strict=True))


# Bins of an expression over a model's features, for labelled rows and for classified ones.


def bins_of(text: str, values: NDArray[Any], *, bins: int, edges: Sequence[float] | None) -> Bins:
    """Return the bins between `edges`, or `bins` with equal numbers of values (n,); one if all are equal."""
    found = () if values.dtype.kind == "b" else even_edges(values, bins) if edges is None else tuple(edges)
    return Bins.between(text, found) if found or values.dtype.kind == "b" else Bins((text,))


def bin_values(by: Expression, features: Sequence[str], X: Floats) -> NDArray[Any]:
    """Return the values of an expression for rows (n, F)."""
    columns = {name: X[:, j] for j, name in enumerate(features) if name in by.names}
    with np.errstate(all="ignore"):
        values = np.broadcast_to(by.evaluate(columns), (len(X),))
    return values if values.dtype.kind == "b" else np.asarray(values, dtype=np.float64)


def of_features(model: Model, by: str, *, key: str) -> Expression:
    """Return the expression; SpecificationError where it is of anything but the model's features."""
    expression = parse(by)
    unknown = sorted(set(expression.names) - set(model.features))
    if unknown or not expression.names:
        raise SpecificationError(
            f"{key}: got '{by}', which needs '{unknown[0] if unknown else 'a feature'}', expected an "
            f"expression over the model's features ({', '.join(model.features)}), since labelled rows are "
            "kept with their features only; make it a feature, and train again"
        )
    return expression


def check_asked(model: Model, flags: Flags) -> None:
    """Raise SpecificationError where a purity or completeness is asked for of a class that the model does not know."""
    for key, stated in (("purity", flags.purity), ("completeness", flags.completeness)):
        unknown = [name for name in stated if name not in model.classes]
        if unknown:
            raise SpecificationError(
                f"flags.{key}: got the class '{unknown[0]}', expected one of {', '.join(model.classes)}; correct "
                "the name"
            )


def census_table(model: Model, wanted: Specification) -> CensusTable:
    """Return the bins that are wanted, by default those that the model was trained with."""
    return wanted.census if wanted.census.by else model.specification.census


# Columns that select objects by their probability, with thresholds for a stated purity or completeness. The
# thresholds are known before the first row is written.  They are learnt from labelled rows that the model has not
# seen, for the class shares of the copies.  A class has one threshold, or one in each bin of an expression over
# features.

BIASED = (
    'the labels may be biased (shift.assumes = "features", or density_weights): objects of a class look different in '
    "the target, so labelled ones do not show how often a class is found there"
)


def may_be_biased(model: Model, specification: Specification) -> bool:
    """Say whether labelled objects of a class are said to be unlike those of the target."""
    shifts = (specification.shift, model.specification.shift)
    return "features" in (s.assumes for s in shifts) or shifts[1].density_weights


Selections = Mapping[str, tuple[SelectedColumn, Selection]]
"""The columns that select objects, by name, in the order of the classes; and what labelled rows expect of each."""


def chosen_rows(column: SelectedColumn, p: Floats, X: Floats, features: Sequence[str]) -> Mask:
    """Return which rows (n,) a column selects, by the probability (n,) of its class and the features (n, F)."""
    single = p.astype(np.float32)  # as the copies have it
    return np.asarray(single >= row_thresholds(column, features, X).astype(np.float32))


def row_thresholds(column: SelectedColumn, features: Sequence[str], X: Floats) -> Floats:
    """Return the threshold (n,) of each row with features X (n, F), NaN where missing; infinite in a bin without."""
    if column.threshold is not None:
        return np.full(len(X), column.threshold)
    bins = Bins.between(column.by, column.edges)
    of_bin = np.array([column.thresholds.get(name, np.inf) for name in bins.names])
    return np.asarray(of_bin[bins.places(bin_values(parse(column.by), features, X))])


def selections_of(model: Model, specification: Specification) -> Selections:
    """Return the selections that a specification asks for.

    UsageError where the model has no rows to learn thresholds from, or no threshold reaches a stated value.
    """
    flags, output = specification.flags, specification.output
    if not output.selected:
        return {}
    if may_be_biased(model, specification):
        raise UsageError(f"output.selected: got true, but {BIASED}; remove the key, and audit the output")
    if _labelled(model.folder, len(model.classes), len(model.features)) is None:
        raise UsageError(
            f"output.selected: got true for {model.label}, whose folder has no labelled rows with left-out "
            "probabilities, expected a model in a store, trained by this version; train it again, or remove the key"
        )
    shares = shift_record(model, specification).class_priors
    at = tuple(shares[name] for name in model.classes)
    asked = specification.census if output.selected == "bins" else None
    if asked is not None:
        of_features(model, asked.by or "", key="census.by")
    check_asked(model, flags)
    chosen: dict[int, tuple[SelectedColumn, Selection]] = {}
    for what, by_class in (("purity", flags.purity), ("completeness", flags.completeness)):
        for name, value in by_class.items():
            k = model.classes.index(name)
            found = _learnt(model.folder, model.features, k, name, at, what, value, asked)
            if found is None:
                raise UsageError(
                    f"flags.{what}: got {value:g} of '{name}', expected a value that some threshold reaches for the "
                    "labelled rows that the model has not seen; state a smaller value, or remove output.selected"
                )
            chosen[k] = found
    names = [selected_column(name, output.prefix).name for name in model.classes]
    return {names[k]: chosen[k] for k in sorted(chosen)}


@lru_cache(maxsize=4)
def _labelled(folder: Path | None, classes: int, features: int) -> LabelledRows | None:
    rows = unseen_rows(folder, classes=classes, features=features)
    return None if rows is None or not rows.class_rows.all() else rows


@lru_cache(maxsize=64)
def _learnt(
    folder: Path | None,
    features: tuple[str, ...],
    k: int,
    name: str,
    shares: tuple[float, ...],
    what: str,
    value: float,
    bins: CensusTable | None,
) -> tuple[SelectedColumn, Selection] | None:
    rows = _labelled(folder, len(shares), len(features))
    if rows is None:
        return None
    column = SelectedColumn(class_name=name, threshold=None, stated=f"{what} {value:g}")
    if bins is None or bins.by is None:
        found = learnt_threshold(rows, k, np.array(shares), (what, value))
        return None if found is None else (replace(column, threshold=found[0]), found[1])
    by = parse(bins.by)
    values = bin_values(by, features, rows.X)
    own = bins_of(by.text, values, bins=bins.bins, edges=bins.edges)
    learnt = learnt_thresholds(rows, own.places(values), len(own.names), k, np.array(shares), (what, value))
    if learnt is None:
        return None
    of_bin, expected = learnt
    thresholds = {own.names[b]: t for b, t in of_bin.items()}
    return replace(column, by=by.text, edges=own.edges, thresholds=thresholds), expected


def selection_entries(selections: Selections) -> Mapping[str, str]:
    """Return the entries of a file's metadata on the columns of selections."""
    entries = {}
    for key, (column, of) in selections.items():
        draws = of.purity if column.stated.startswith("purity") else of.completeness
        low, high = of.interval(draws)
        if column.threshold is None:
            bins = Bins.between(column.by, column.edges).names
            of_bins = (f"{b}: {column.thresholds.get(b, 'none selected')}" for b in bins)
            least = f"its bin's, {'; '.join(of_bins)}"
        else:
            least = repr(column.threshold)
        entries[f"threshold_{key}"] = (
            f"p of {column.class_name} >= {least}, for {column.stated}; expected {draws.mean():.4f} "
            f"({low:.4f} to {high:.4f}, 95 %)"
        )
    if selections:
        entries["thresholds_from"] = (
            "labelled rows that the model has not seen, at these class shares; probabilities at those of the training"
        )
    return entries
