"""Class shares of a catalogue that is classified: the model's, given, or estimated from the catalogue itself.

A model stores the class shares of its training, and those that it was corrected for.  Other shares change the
logits of every row by the same amount.  So they are determined before the first row is written, and become part of the
settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from blr.classifier import Classifier
from blr.shift import log_prior_shift
from flows.errors import UsageError
from flows.models.model import Model
from flows.runs.counts import ShiftRecord
from flows.specification.specification import Shift, Specification

__all__ = [
    "chosen_shift",
    "prior_shares",
    "shift_record",
    "with_shares",
]

Floats = NDArray[np.float64]
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
    wanted = stated if asked is None else _asked(asked)
    if wanted.density_weights and not trained.density_weights:
        raise UsageError(
            f"shift.density_weights: got true for {model.label}, whose training rows had no such weights, "
            "expected a model that was trained with them; train it again, or leave the key out"
        )
    if wanted.class_prior is None:
        return trained
    if model.specification.label.noise is not None:
        raise UsageError(
            f"shift.class_prior: got shares for {model.label}, whose labels may be wrong, expected a model "
            "with correct labels, since the true class shares of its training rows are not those of the "
            "labels; leave class_prior out"
        )
    if trained.density_weights:
        raise UsageError(
            f"shift.class_prior: got shares for {model.label}, whose training rows were weighted by density "
            "ratio, expected one of the two, since both would correct the same shift; leave class_prior out, "
            "or train without weights"
        )
    _check_classes(model, wanted.class_prior)
    if not isinstance(wanted.class_prior, str):
        return Shift(class_prior=wanted.class_prior, class_prior_source=wanted.class_prior_source)
    if estimate is None:
        raise UsageError(
            f'shift.class_prior: got "em", but {model.label} was trained without it, expected shares that '
            'stay the same from one release to the next; train again with "em", or give the shares'
        )
    return estimate()


def _asked(asked: Asked) -> Shift:
    try:
        return Shift.model_validate({"class_prior": asked})
    except ValidationError as error:
        raise UsageError(f"class_prior: {error.errors()[0]['ctx']['error']}") from error


def _check_classes(model: Model, prior: Asked) -> None:
    if isinstance(prior, Mapping) and set(prior) != set(model.classes):
        raise UsageError(
            f"shift.class_prior: got shares of {', '.join(prior)}, expected one share for each class of "
            f"{model.label}: {', '.join(model.classes)}; correct the names"
        )
    if model.specification.label.votes is not None:
        raise UsageError(
            f"shift.class_prior: got shares for {model.label}, which was trained on votes, expected a model "
            "with one label for each object: an object with votes for one class may be of another class, so "
            "votes change when the class shares change; leave class_prior out"
        )
    links = {m.posterior.link for m in model.classifier.members} - {"logistic"}
    if links:
        raise UsageError(
            f"shift.class_prior: got shares for {model.label}, whose link is {', '.join(links)}, expected "
            'the logistic link, since shares are applied to logits; train with likelihood = "logistic"'
        )


def shift_record(model: Model, specification: Specification) -> ShiftRecord:
    """Return the record of class shares, and of weights in the training, for the outputs."""
    trained = model.training.shift
    shift = with_shares(model, specification).log_prior_shift
    old = prior_shares(model)
    new = old if shift is None else old * np.exp(shift)
    weights, difference = None, trained.difference
    if model.specification.shift.density_weights and difference is not None:
        target = difference.target
        weights = (
            f"density ratio against {target.name} (sha256 {target.content_hash}): {difference.n_training} rows "
            f"count as {difference.n_effective:.6g}"
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
