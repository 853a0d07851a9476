"""The record of the differences between training set and target, and the sentences on it in a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TypeVar

__all__ = [
    "ESTIMATED",
    "TOLD_APART",
    "ComparedTarget",
    "SetDifference",
    "ShareCorrection",
    "TargetLoss",
    "TargetShift",
    "likeness_words",
    "shift_words",
    "why_no_error",
]

ESTIMATED = "EM over "
"""First words of the source of estimated class shares; the catalogue's name follows."""
FEW = 0.05
"""Share of effective rows below which weights rest on a handful of objects."""
TOLD_APART = 0.55

Part = TypeVar("Part", bound="SetDifference | ShareCorrection | TargetLoss")


@dataclass(frozen=True, kw_only=True)
class ComparedTarget:
    """The catalogue that the labelled rows are compared with."""

    name: str
    n_rows: int
    n_compared: int
    content_hash: str  # of the rows compared


@dataclass(frozen=True, kw_only=True)
class SetDifference:
    """How well objects of the target can be told from training rows, and the effect of weights."""

    target: ComparedTarget
    auc: float  # 0.5 is no difference
    auc_low: float  # of its 90 % interval
    auc_high: float
    advice: str
    density_weights: bool  # whether the training rows are weighted by density ratio
    n_training: int
    n_effective: float  # effective number of the weighted rows


@dataclass(frozen=True, kw_only=True)
class ShareCorrection:
    """Class shares that the probabilities hold for, those of the training rows, and where the former come from."""

    class_prior: Mapping[str, float]
    class_prior_training: Mapping[str, float]
    class_prior_source: str


@dataclass(frozen=True, kw_only=True)
class TargetLoss:
    """Log loss of the held-out rows weighted as the target, in nats an object."""

    n_effective_held_out: float
    log_loss: float
    log_loss_uncorrected: float | None = None  # with the training's class shares; None where these stand


@dataclass(frozen=True, kw_only=True)
class TargetShift:
    """What a training notes of its target: the fields of `SetDifference`, `ShareCorrection` and `TargetLoss`.

    The fields of a missing part are None: where no target was named, no shares were given, or no rows are held out.
    """

    target: ComparedTarget | None = None
    auc: float | None = None
    auc_low: float | None = None
    auc_high: float | None = None
    advice: str | None = None
    density_weights: bool | None = None
    n_training: int | None = None
    n_effective: float | None = None
    class_prior: Mapping[str, float] | None = None
    class_prior_training: Mapping[str, float] | None = None
    class_prior_source: str | None = None
    n_effective_held_out: float | None = None
    log_loss: float | None = None
    log_loss_uncorrected: float | None = None

    @classmethod
    def of(
        cls,
        difference: SetDifference | None = None,
        correction: ShareCorrection | None = None,
        loss: TargetLoss | None = None,
    ) -> TargetShift:
        """Return the record of the given parts."""
        parts = [vars(part) for part in (difference, correction, loss) if part is not None]
        return cls(**{name: value for part in parts for name, value in part.items()})

    @property
    def difference(self) -> SetDifference | None:
        """The difference between training set and target; None without a target."""
        return None if self.auc is None else self._part(SetDifference)

    @property
    def correction(self) -> ShareCorrection | None:
        """The class shares of the target; None where those of the training stand."""
        return None if self.class_prior is None else self._part(ShareCorrection)

    @property
    def loss(self) -> TargetLoss | None:
        """The log loss on rows weighted as the target; None where no rows are held out, or nothing weighs them."""
        return None if self.log_loss is None else self._part(TargetLoss)

    def _part(self, kind: type[Part]) -> Part:
        return kind(**{part.name: getattr(self, part.name) for part in fields(kind)})


def likeness_words(shift: TargetShift) -> Iterator[str]:
    """Yield what a training noted of how like the labels its target is, and what was done; nothing without a target."""
    difference, correction = shift.difference, shift.correction
    if difference is not None:
        yield _difference_words(difference)
        yield from _weight_words(difference)
    if correction is not None:
        yield _share_words(correction)


def shift_words(shift: TargetShift) -> Iterator[str]:
    """Yield the sentences on what a training noted as `shift`; none where no target was named and no shares given."""
    yield from likeness_words(shift)
    if shift.loss is not None:
        yield _loss_words(shift.loss)


def why_no_error(source: str | None) -> str | None:
    """Return why the errors of class counts are not known under class shares of a source; None where they are.

    `source` says in words where the shares come from, None for the shares of the training rows.
    """
    if source is None or not source.startswith(ESTIMATED):
        return None
    return f"the class shares are an estimate ({source}), whose own error the counts' error would lack"


def _difference_words(difference: SetDifference) -> str:
    target = difference.target
    return (
        f"Shown an object of {target.name} and a labelled one, a test picks the labelled one in "
        f"{100 * difference.auc:.1f} of 100 tries ({100 * difference.auc_low:.1f} to {100 * difference.auc_high:.1f} "
        f"at 90 %, {target.n_compared:,} of {target.n_rows:,} objects compared), by chance in 50. "
        f"So {difference.advice}."
    )


def _weight_words(difference: SetDifference) -> Iterator[str]:
    n, effective = difference.n_training, difference.n_effective
    if difference.density_weights:
        yield (
            f"The {n:,} training rows are weighted to look like the target, and count as {effective:,.1f}."
        )
        if effective < FEW * n:
            yield f"That is less than {FEW:.0%} of the rows: the model rests on a handful of them."
    elif difference.auc_low > TOLD_APART:
        yield f"Weighted to look like the target, the {n:,} training rows would tell as much as {effective:,.1f}."


def _share_words(correction: ShareCorrection) -> str:
    old = correction.class_prior_training
    moved = ", ".join(f"{name} {old[name]:.3g} → {new:.3g}" for name, new in correction.class_prior.items())
    return f"Each class has not the share here that it has in the labels ({correction.class_prior_source}): {moved}."


def _loss_words(loss: TargetLoss) -> str:
    uncorrected = loss.log_loss_uncorrected
    what = "the model as it is" if uncorrected is None else "class shares corrected"
    before = "" if uncorrected is None else f", {uncorrected:.4f} without"
    return (
        f"Held-out log loss with the rows weighted as the target, {what}: {loss.log_loss:.4f} nats an object"
        f"{before} ({loss.n_effective_held_out:,.0f} effective rows). All other held-out numbers are of objects as "
        "the labelled ones, with their class shares."
    )
