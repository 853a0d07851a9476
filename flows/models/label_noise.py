"""The record of wrong labels and the sentences on it in a report: shares with intervals, and log losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["WrongLabelShare", "WrongLabels", "noise_words"]


@dataclass(frozen=True, kw_only=True)
class WrongLabelShare:
    """The share of a class' objects that are recorded as another; with its 95 % interval where it is estimated."""

    rate: float
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None


RatesByClass = Mapping[str, WrongLabelShare]


@dataclass(frozen=True, kw_only=True)
class WrongLabels:
    """The record of labels that may be wrong; all fields have their defaults where labels are taken as right."""

    # Where the shares come from; estimated ones differ by class alone, or by annotator too.
    by: Literal["stated", "class", "annotator"] | None = None
    rows: int | None = None  # training rows that they are estimated from
    basis: str | None = None  # the kind of the model of the features that they are estimated with
    rates: RatesByClass = field(default_factory=dict)  # of all annotators together
    confusion: tuple[tuple[float, ...], ...] = ()  # p(recorded | true class), (K, K)
    column: str | None = None  # column with the names of the annotators
    annotators: Mapping[str, RatesByClass] = field(default_factory=dict)
    log_loss: float | None = None  # of the recorded labels' probabilities on the rows that judge, nats
    log_loss_of_true_classes: float | None = None  # of the true classes', against the recorded labels


def noise_words(noise: WrongLabels) -> Iterator[str]:
    """Yield the sentences on what a training noted as `label_noise`; none where labels are taken to be right."""
    if noise.by is None:
        return
    if noise.by == "stated":
        yield f"Labels may be wrong, in shares that the specification states: {_listed(noise.rates)}."
    else:
        yield (
            f"Labels may be wrong, in shares found from {noise.rows:,} training rows with 95 % intervals: "
            f"{_listed(noise.rates)}."
        )
    for name, rates in noise.annotators.items():
        yield f"Wrong labels by {noise.column} '{name}': {_listed(rates)}."
    yield "Probabilities are of the true class, not of what would be recorded."
    if noise.log_loss is not None:
        yield (
            "The labels that judge the model are as wrong as those that train it. Scores are therefore of the "
            f"probability of what was recorded (log loss {noise.log_loss:.4f} nats an object); against the recorded "
            f"labels the probabilities of the true class have {noise.log_loss_of_true_classes:.4f}, which says "
            "little of them where labels are wrong."
        )


def _listed(rates: RatesByClass) -> str:
    return ", ".join(f"{name} {_share_words(share)}" for name, share in rates.items())


def _share_words(share: WrongLabelShare) -> str:
    if share.low is None:
        return f"{share.rate:.1%}"
    return f"{share.rate:.1%} ({share.low:.1%} to {share.high:.1%})"
