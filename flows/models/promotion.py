"""Champion and challenger: what the rule says, what a person who decides has to know, and the decision.

The rule: the challenger's log loss on objects that neither model has seen is smaller by a margin, it knows the same
classes, its own verdict is not red, and nobody has rejected it.  Held-out rows are chosen by a salted hash of the
object, so that no version of a model has seen them.  Without such objects, as without identifiers, the two models' own
numbers decide.  Each decision is a line of the champion's log, with the person who made it and why; none is ever
removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Literal

from flows.errors import ModelError, UsageError
from flows.models.model import Model
from flows.models.row_files import ClassChange, compare_classes, compare_losses, judged_rows
from flows.models.store import (
    REPORT_FILE,
    Promotion,
    SkillSummary,
    Store,
    StoredModel,
    champion_before,
    gain_interval,
    skill_words,
    standing_vetoes,
    veto_words,
)
from flows.request import PromoteRequest
from flows.runs.lock import exclusive
from flows.runs.references import name_and_version, user_name
from flows.runs.results import SampledChange

InRelease = Callable[[PromoteRequest, Model, Model], SampledChange | None]
"""What a challenger would change in the last release, of the request, the champion and the challenger."""


@dataclass(frozen=True, kw_only=True)
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
    champion_verdict: str | None = None
    classes: tuple[ClassChange, ...] = ()  # on the objects that neither has seen
    # what it would change in the last release; None where there is none to look at
    in_release: SampledChange | None = None
    vetoes: tuple[Promotion, ...] = ()  # who has rejected the challenger
    report: str | None = None  # path of the challenger's report
    champion_report: str | None = None

    @property
    def name(self) -> str:
        """The name that both are versions of."""
        return name_and_version(self.challenger)[0]


def compare(request: PromoteRequest, *, in_release: InRelease | None = None) -> Comparison:
    """Compare a model with the champion of its name; `NAME` alone means the newest of its versions.

    `in_release` says what the model would change in the last release; without it nothing is said of that.
    """
    place = Store.named(request.store)
    stored = place.find(request.model, newest=True)
    challenger, in_use = stored.read(), place.in_use(stored.name)
    champion = None if in_use is None else in_use.read()
    another = in_use is not None and in_use.version != stored.version
    common: SkillSummary | None = None
    classes: tuple[ClassChange, ...] = ()
    if in_use and champion and another and challenger.classes == champion.classes:
        ours, theirs = judged_rows(stored.folder), judged_rows(in_use.folder)
        if ours is not None and theirs is not None and (gain := compare_losses(ours, theirs)):
            common, classes = SkillSummary.of(gain), compare_classes(ours, theirs, challenger.classes)
    vetoes = standing_vetoes(place.history(stored.name), stored.version)
    against = _against(challenger, champion, vetoes, common, request.margin)
    metrics, before = challenger.metrics, champion.metrics if champion else None
    return Comparison(
        challenger=challenger.label,
        champion=champion.label if champion else None,
        log_loss=metrics.log_loss,
        champion_log_loss=before.log_loss if before else None,
        n_held_out=metrics.n,
        champion_n_held_out=before.n if before else None,
        verdict=challenger.trust.verdict,
        same_rows=champion is None or _rows(challenger) == _rows(champion),
        judged_by=metrics.judged_by,
        champion_judged_by=before.judged_by if before else None,
        skill=skill_words(metrics.skill, metrics.judged_by),
        champion_skill=skill_words(before.skill, before.judged_by) if before else None,
        against=against,
        common=common,
        better=not against,
        champion_verdict=champion.trust.verdict if champion else None,
        classes=classes,
        in_release=in_release(request, champion, challenger) if in_release and champion and another else None,
        vetoes=vetoes,
        report=_report(stored),
        champion_report=_report(in_use) if in_use else None,
    )


def _report(stored: StoredModel) -> str | None:
    path = stored.folder / REPORT_FILE
    return str(path) if path.is_file() else None


SEEN = 5e-5
"""Least gain that four digits show."""


def _against(
    challenger: Model,
    champion: Model | None,
    vetoes: tuple[Promotion, ...],
    common: SkillSummary | None,
    margin: float,
) -> tuple[str, ...]:
    """Return what speaks against a model, for every champion and in the place of this one."""
    reasons = [veto_words(veto) for veto in vetoes]
    if challenger.trust.verdict == "red":
        reasons.append(f"its verdict is red: {'; '.join(challenger.trust.reasons)}")
    if not math.isfinite(challenger.metrics.log_loss):
        reasons.append(f"its {challenger.metrics.judged_by} log loss is not finite")
    if champion is None:
        return tuple(reasons)
    if challenger.classes != champion.classes:
        reasons.append(f"its classes are {', '.join(challenger.classes)}, not {', '.join(champion.classes)}")
    if common is not None:
        gain, what = common.gain, f"log loss on {common.n:,} objects that neither model has seen"
    else:
        gain = champion.metrics.log_loss - challenger.metrics.log_loss
        what = f"{challenger.metrics.judged_by} log loss"
    if not gain >= margin:
        words = "no better, expected by"
        if gain >= SEEN:
            words = f"better by {gain:.4f} nats an object, less than"
        elif gain <= -SEEN:
            words = f"worse by {-gain:.4f} nats an object, expected better by"
        reasons.append(f"its {what} is {words} {margin:g}")
    return tuple(reasons)


def gain_words(common: SkillSummary) -> str:
    """Return a gain with its interval."""
    return f"{common.gain:z.4f} nats ({common.level:.0%} interval {gain_interval(common)})"


def losses_words(comparison: Comparison, what: str = "log loss") -> str:
    """Return what is compared: "held-out log loss", or, of models judged in two ways, how each was."""
    other = comparison.champion_judged_by
    if other in (None, comparison.judged_by):
        return f"{comparison.judged_by} {what}"
    return f"{what} ({comparison.judged_by}; the champion's {other})"


def _rows(model: Model) -> tuple[object, ...]:
    """Return what decides which rows are held out: equal for models that were tested on the same ones."""
    spec, split = model.specification, model.training.split
    inputs = tuple(file["sha256"] for file in model.training.inputs)
    order = split.healpix_order if spec.split.by == "healpix" else None
    asked = spec.split.model_copy(update={"healpix_order": order})
    # Rows are the same however labels err.
    right = spec.label.model_copy(update={"noise": None, "annotator": None})
    return (inputs, spec.catalog.where, spec.catalog.id, right, asked)


@dataclass(frozen=True, kw_only=True)
class PromotionResult:
    """What was decided about a model, or would be; `kind` is what was asked for.

    `previous` is the champion before, which a rejected challenger leaves in its place.  `who` and `why` are None where
    nobody was put in place.  `comparison` is that of a promotion.
    """

    model: str
    previous: str | None
    comparison: Comparison | None = None
    who: str | None
    why: str | None
    status: Literal["planned", "promoted", "is the champion", "kept", "rejected", "undone"]
    kind: Literal["promoted", "rejected", "undone"]


def promote(
    request: PromoteRequest,
    *,
    instead_of: str | None = None,
    dry_run: bool = False,
    in_release: InRelease | None = None,
) -> PromotionResult:
    """Put a model in the champion's place, unless that is by rule, and the rule against it; return what was done.

    `instead_of` is the champion that whoever decided has seen: another one in its place is an error.  UsageError where
    a person is to be asked: only the flow can.
    """
    if request.how == "ask":
        raise UsageError(
            "how: got 'ask' without Prefect, whose page shows the question, expected 'better' or 'now'; "
            "choose one of them"
        )
    comparison = compare(request, in_release=in_release)
    result = PromotionResult(
        model=comparison.challenger,
        previous=comparison.champion,
        comparison=comparison,
        who=None,
        why=request.why,
        status="planned",
        kind="promoted",
    )
    if comparison.champion == comparison.challenger:
        return replace(result, status="is the champion")
    if request.how == "better" and not comparison.better:
        return replace(result, status="kept", why="; ".join(comparison.against))
    if dry_run:
        return result
    place = Store.named(request.store)
    stored = place.find(comparison.challenger)
    with exclusive(place.root / stored.name):
        now, last = place.in_use(stored.name), place.champion(stored.name)
        expected = comparison.champion if instead_of is None else instead_of
        if (now and now.label) != (expected or None):
            raise ModelError(
                f"{place.root}: got {stored.name}@{last} as the champion, expected {expected or 'none'}, with which "
                f"{comparison.challenger} was compared: another version was promoted in the meantime; compare again"
            )
        common, before = comparison.common, comparison.champion_log_loss
        if before is None:
            why = "the first of its name" if last is None else f"the champion {last} is gone"
        elif request.how != "better":
            why = "by hand"
        elif common is not None:
            why = f"log loss on {common.n:,} objects new to both smaller by {gain_words(common)}"
        else:
            why = f"{losses_words(comparison)} {comparison.log_loss:.4f} against {before:.4f}"
        done = place.promote(stored, why=request.why or why, who=request.by or user_name())
    return replace(result, status="promoted", who=done.who, why=done.why)


def reject(request: PromoteRequest, *, dry_run: bool = False) -> PromotionResult:
    """Write down that a model is not to be the champion, and why; the rule then keeps it out.

    UsageError where no reason is given, or the model is the champion.
    """
    place = Store.named(request.store)
    stored = place.find(request.model, newest=True)
    if not request.why:
        raise UsageError(
            f"--why: got no reason to reject {stored.label}, expected one for the champion's log; add --why"
        )
    champion, who = place.champion(stored.name), request.by or user_name()
    if champion == stored.version:
        raise UsageError(
            f"{stored.label}: got the champion, which cannot be rejected, expected a challenger; `blr models "
            f"promote {stored.name} --undo` puts the previous champion in its place"
        )
    if not dry_run:
        with exclusive(place.root / stored.name):
            place.reject(stored, why=request.why, who=who)
    previous = None if champion is None else f"{stored.name}@{champion}"
    return PromotionResult(
        model=stored.label,
        previous=previous,
        who=who,
        why=request.why,
        status="planned" if dry_run else "rejected",
        kind="rejected",
    )


def undo(request: PromoteRequest, *, dry_run: bool = False) -> PromotionResult:
    """Put the champion before the present one in its place again; the log keeps both decisions.

    The version in the request does not count.  ModelError where no champion was before, or it is gone.
    """
    place = Store.named(request.store)
    name, _ = name_and_version(request.model)
    with exclusive(place.root / place.known(name)) if not dry_run else nullcontext():
        champion = place.find(name)
        before = champion_before(place.history(name), champion.version)
        if before is None:
            raise ModelError(
                f"{place.root}: got no champion of '{name}' before {champion.label}, expected a previous "
                f"champion to go back to; choose a version with `blr models promote {name}@VERSION`"
            )
        restored = place.find(f"{name}@{before}")
        who, why = request.by or user_name(), request.why or f"the promotion of {champion.label} was undone"
        if not dry_run:
            place.promote(restored, why=why, who=who, kind="undone")
        return PromotionResult(
            model=restored.label,
            previous=champion.label,
            who=who,
            why=why,
            status="planned" if dry_run else "undone",
            kind="undone",
        )
