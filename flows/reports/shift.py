"""What a report says of a training set and its target: how unlike they are, what was done, what it is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["ESTIMATED", "shift_words", "why_no_error"]

ESTIMATED = "EM over "
"""How the source of class shares begins that were estimated; the catalogue's name follows."""
FEW = 0.05
"""Share of effective rows below which weights rest on a handful of objects."""
TOLD_APART = 0.55

Told = Mapping[str, Any]


def shift_words(shift: Told) -> Iterator[str]:
    """Yield the sentences on what a training noted as `shift`; none where no target was named and no shares given."""
    if "auc" in shift:
        yield _difference(shift)
        yield from _weights(shift)
    if "class_prior" in shift:
        yield _shares(shift)
    if "log_loss" in shift:
        yield _loss(shift)


def why_no_error(shift: Mapping[str, Any]) -> str | None:
    """Return why the errors of class counts are not known under the shares of a `shift_record`; None where they are."""
    source = str(shift.get("class_priors_source", ""))
    if not source.startswith(ESTIMATED):
        return None
    return f"the class shares are an estimate ({source}), whose own error the counts' error would lack"


def _difference(shift: Told) -> str:
    target = shift["target"]
    advice = shift["advice"]
    if shift["auc_low"] > TOLD_APART and not shift["density_weights"] and "class_prior" not in shift:
        advice += (
            " (shift.density_weights; or shift.class_prior, where the classes look the same and only their shares "
            "differ)"
        )
    return (
        f"Training set against {target['name']} ({target['n_compared']:,} of {target['n_rows']:,} rows compared): "
        f"an object of the target is distinguished from a training one with an AUC of {shift['auc']:.3f} "
        f"({shift['auc_low']:.3f} to {shift['auc_high']:.3f}, 90 %; 0.5 is no difference); {advice}."
    )


def _weights(shift: Told) -> Iterator[str]:
    n, effective = shift["n_training"], shift["n_effective"]
    if shift["density_weights"]:
        yield (
            f"The {n:,} training rows are weighted by density ratio, clipped at the 99th percentile, and count as "
            f"{effective:,.1f}, the effective sample size of the weights."
        )
        if effective < FEW * n:
            yield f"That is less than {FEW:.0%} of the rows: the model rests on a handful of them."
    elif shift["auc_low"] > TOLD_APART:
        yield f"Weighted by density ratio, the {n:,} training rows would count as {effective:,.1f}."


def _shares(shift: Told) -> str:
    old = shift["class_prior_training"]
    moved = ", ".join(f"{name} {old[name]:.3g} → {new:.3g}" for name, new in shift["class_prior"].items())
    return f"Class shares are corrected from the training's to the target's ({shift['class_prior_source']}): {moved}."


def _loss(shift: Told) -> str:
    what = "class shares corrected" if "log_loss_uncorrected" in shift else "the model as it is"
    before = f", {shift['log_loss_uncorrected']:.4f} without" if "log_loss_uncorrected" in shift else ""
    return (
        f"Held-out log loss with the rows weighted as the target, {what}: {shift['log_loss']:.4f} nats an object"
        f"{before} ({shift['n_effective_held_out']:,.0f} effective rows). All other held-out numbers are of objects as "
        "the labelled ones, with their class shares."
    )
