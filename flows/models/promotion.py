"""Put a challenger in the champion's place: by rule, or because a person says so.

The rule: its log loss on objects that neither model has seen is smaller by a margin, it knows the same classes, and its
own verdict is not red.  Held-out rows are chosen by a salted hash of the object, so that no version of a model has seen
them.  Without such objects (models of earlier versions, no identifiers) the two models' own numbers decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from catalogs.profile.split import HEALPIX_ORDER
from flows.errors import ModelError, UsageError
from flows.models.judged_rows import compare_losses, read_judged_rows
from flows.models.model import Model
from flows.models.request import PromoteRequest
from flows.models.store import Store, StoredModel
from flows.reports.skill import SkillSummary, gain_interval, skill_words
from flows.reports.tables import ReportTable
from flows.runs.lock import exclusive
from flows.runs.model_reference import ModelReference

__all__ = [
    "Comparison",
    "PromotionResult",
    "RejectedPromotion",
    "compare",
    "comparison_table",
    "promote",
]


@dataclass(frozen=True)
class Comparison:
    """A challenger beside the champion; `against` says why the rule keeps the champion, if it does."""

    challenger: str
    champion: str | None
    log_loss: float
    champion_log_loss: float | None
    n_held_out: int
    champion_n_held_out: int | None
    verdict: str
    same_rows: bool
    judged_by: str  # "held-out" or "left-out"
    champion_judged_by: str | None
    skill: str  # in words
    champion_skill: str | None
    against: tuple[str, ...]
    common: SkillSummary | None  # of the challenger over the champion, on objects that neither has seen
    better: bool  # whether the rule prefers the challenger

    @property
    def name(self) -> str:
        """The name that both are versions of."""
        return ModelReference.parse(self.challenger).name


@dataclass(frozen=True, kw_only=True)
class PromotionResult:
    """What was done about a challenger, or would be; `who` and `why` are None where nobody was put in place."""

    model: str
    previous: str | None  # the champion before
    comparison: Comparison
    who: str | None
    why: str | None
    status: Literal["planned", "promoted", "is the champion", "kept"]


@dataclass(frozen=True, kw_only=True)
class RejectedPromotion:
    """A challenger that the person who was asked has rejected."""

    model: str
    status: Literal["rejected"]
    previous: str | None
    why: str


def compare(request: PromoteRequest) -> Comparison:
    """Compare a model with the champion of its name; `NAME` alone means the newest of its versions."""
    place = Store.named(request.store)
    return _compared(place, place.find(request.model, newest=True), request.margin)


def _compared(place: Store, stored: StoredModel, margin: float) -> Comparison:
    challenger, version = place.read(stored), place.champion(stored.name)
    if version is None:
        return _comparison(challenger, None, same_rows=True, against=_alone(challenger))
    in_use = place.at(stored.name, version)
    champion = place.read(in_use)
    same = _rows(challenger) == _rows(champion)
    common = _on_common_rows((challenger, champion), (stored.folder, in_use.folder))
    against = _against(challenger, champion, common, margin)
    return _comparison(challenger, champion, same_rows=same, against=against, common=common)


def _on_common_rows(models: tuple[Model, Model], folders: tuple[Path, Path]) -> SkillSummary | None:
    """Return a challenger's gain over a champion on objects new to both; None where that cannot be said."""
    challenger, champion = models
    if challenger.classes != champion.classes or challenger.label == champion.label:
        return None
    ours, theirs = (read_judged_rows(folder) for folder in folders)
    gain = None if ours is None or theirs is None else compare_losses(ours, theirs)
    return None if gain is None else SkillSummary.of(gain)


def promote(
    request: PromoteRequest, *, instead_of: str | None = None, dry_run: bool = False
) -> PromotionResult:
    """Put a model in the champion's place, unless that is by rule, and the rule against it; return what was done.

    `instead_of` is the champion that whoever decided has seen: another one in its place is an error.  UsageError where
    a person is to be asked: only the flow can.
    """
    if request.how == "ask":
        raise UsageError(
            "how: got 'ask' without Prefect, where nobody can answer, expected 'better' or 'now'; choose one"
        )
    place = Store.named(request.store)
    stored = place.find(request.model, newest=True)
    comparison = _compared(place, stored, request.margin)
    result = PromotionResult(
        model=comparison.challenger,
        previous=comparison.champion,
        comparison=comparison,
        who=None,
        why=request.why,
        status="planned",
    )
    if comparison.champion == comparison.challenger:
        return replace(result, status="is the champion")
    if request.how == "better" and not comparison.better:
        return replace(result, status="kept", why="; ".join(comparison.against))
    if dry_run:
        return result
    with exclusive(place.root / stored.name):
        now = place.champion(stored.name)
        expected = comparison.champion if instead_of is None else instead_of
        if (None if now is None else f"{stored.name}@{now}") != (expected or None):
            raise ModelError(
                f"{place.root}: got {stored.name}@{now} as the champion, expected {expected or 'none'}, which "
                f"{comparison.challenger} was compared with: another one was promoted meanwhile; compare again"
            )
        done = place.promote(stored, why=request.why or _reason(comparison, request))
    return replace(result, status="promoted", who=done.who, why=done.why)


def _reason(comparison: Comparison, request: PromoteRequest) -> str:
    if comparison.champion_log_loss is None:
        return "the first of its name"
    if request.how != "better":
        return "by hand"
    if comparison.common is not None:
        return f"log loss on {comparison.common.n:,} objects new to both smaller by {_gain_words(comparison.common)}"
    return f"{_words(comparison)} {comparison.log_loss:.4f} against {comparison.champion_log_loss:.4f}"


def _comparison(
    challenger: Model,
    champion: Model | None,
    *,
    same_rows: bool,
    against: tuple[str, ...],
    common: SkillSummary | None = None,
) -> Comparison:
    return Comparison(
        challenger=challenger.label,
        champion=None if champion is None else champion.label,
        log_loss=challenger.metrics.log_loss,
        champion_log_loss=None if champion is None else champion.metrics.log_loss,
        n_held_out=challenger.metrics.n,
        champion_n_held_out=None if champion is None else champion.metrics.n,
        verdict=challenger.trust.verdict,
        same_rows=same_rows,
        judged_by=challenger.metrics.judged_by,
        champion_judged_by=None if champion is None else champion.metrics.judged_by,
        skill=_skill(challenger),
        champion_skill=None if champion is None else _skill(champion),
        against=against,
        common=common,
        better=not against,
    )


def _alone(challenger: Model) -> tuple[str, ...]:
    """Return what speaks against a model whatever the champion."""
    reasons = []
    if challenger.trust.verdict == "red":
        reasons.append(f"its verdict is red: {'; '.join(challenger.trust.reasons)}")
    if not math.isfinite(challenger.metrics.log_loss):
        reasons.append(f"its {challenger.metrics.judged_by} log loss is not finite")
    return tuple(reasons)


def _against(
    challenger: Model, champion: Model, common: SkillSummary | None, margin: float
) -> tuple[str, ...]:
    """Return what speaks against a model in the champion's place."""
    reasons = [*_alone(challenger)]
    if challenger.classes != champion.classes:
        reasons.append(f"its classes are {', '.join(challenger.classes)}, not {', '.join(champion.classes)}")
    if common is not None:
        gain, what = common.gain, f"log loss on {common.n:,} objects that neither model has seen"
    else:
        gain = champion.metrics.log_loss - challenger.metrics.log_loss
        what = f"{challenger.metrics.judged_by} log loss"
    if not gain >= margin:
        reasons.append(f"its {what} is better by {gain:.4f} nats an object, less than {margin:g}")
    return tuple(reasons)


def _gain_words(common: SkillSummary) -> str:
    return f"{common.gain:.4f} nats ({common.level:.0%} interval {gain_interval(common)})"


def _words(comparison: Comparison, what: str = "log loss") -> str:
    """Return what is compared: "held-out log loss", or, of models judged in two ways, how each was."""
    other = comparison.champion_judged_by
    if other in (None, comparison.judged_by):
        return f"{comparison.judged_by} {what}"
    return f"{what} ({comparison.judged_by}; the champion's {other})"


def _skill(model: Model) -> str:
    metrics = model.metrics
    return skill_words(
        metrics.skill,
        log_loss=metrics.log_loss,
        baseline=metrics.log_loss_baseline,
        rows=metrics.judged_by,
    )


def _rows(model: Model) -> tuple[object, ...]:
    """Return what decides which rows are held out: equal for models that were tested on the same ones."""
    spec = model.specification
    inputs = tuple(file.sha256 for file in model.training.inputs)
    split = model.training.split
    order = HEALPIX_ORDER if split is None else split.healpix_order
    by_place = order if spec.split.by == "healpix" else None
    asked = spec.split.model_copy(update={"healpix_order": by_place})
    label = spec.label.model_copy(
        update={"noise": None, "annotator": None}
    )  # rows are the same however labels err
    return (inputs, spec.catalog.where, spec.catalog.id, label, asked)


def comparison_table(comparison: Comparison) -> ReportTable:
    """Return the comparison for the person who decides."""
    old, common = comparison.champion_log_loss, comparison.common
    new_to_both = (
        ()
        if common is None
        else (
            (
                f"log loss on {common.n:,} objects new to both",
                f"{common.baseline - common.gain:.4f}",
                f"{common.baseline:.4f}",
            ),
            ("gain there", _gain_words(common), ""),
        )
    )
    return ReportTable(
        title=f"{comparison.challenger} in the place of {comparison.champion or 'nobody'}",
        columns=("", "challenger", "champion"),
        rows=(
            (_words(comparison), f"{comparison.log_loss:.4f}", "–" if old is None else f"{old:.4f}"),
            (
                _words(comparison, "objects"),
                f"{comparison.n_held_out:,}",
                f"{comparison.champion_n_held_out or 0:,}",
            ),
            *new_to_both,
            ("skill", comparison.skill, comparison.champion_skill or "–"),
            ("verdict on the approximation", comparison.verdict, ""),
        ),
        numeric=frozenset({1, 2}),
        note=(
            "By rule it would be promoted."
            if comparison.better
            else f"By rule not: {'; '.join(comparison.against)}."
        )
        + (
            "" if comparison.same_rows or common is not None else " The two were tested on different objects."
        ),
    )
