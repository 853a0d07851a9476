"""Decide about a challenger: put it in the champion's place, reject it, or undo the last promotion.

Each decision is a line of the champion's log, with the person who made it and why; none is ever removed.
"""

from __future__ import annotations

import getpass
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Literal

from flows.errors import ModelError, UsageError
from flows.models.comparison import Comparison, InRelease, compare_stored, gain_words, losses_words
from flows.models.request import PromoteRequest
from flows.models.store import Store
from flows.models.store_folder import champion_before
from flows.runs.lock import exclusive
from flows.runs.model_reference import ModelReference

__all__ = [
    "DecidedPromotion",
    "PromotionResult",
    "RejectedPromotion",
    "UndonePromotion",
    "promote",
    "reject",
    "undo",
]


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
    """A challenger that a person has rejected, or would; `previous` is the champion, which stays."""

    model: str
    status: Literal["rejected", "planned"]
    previous: str | None
    why: str
    who: str | None = None


@dataclass(frozen=True, kw_only=True)
class UndonePromotion:
    """A promotion that was undone, or would be: `model` is the champion again, `previous` is it no longer."""

    model: str
    status: Literal["undone", "planned"]
    previous: str
    who: str
    why: str


DecidedPromotion = PromotionResult | RejectedPromotion | UndonePromotion
"""What `blr models promote` returns."""


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
    place = Store.named(request.store)
    stored = place.find(request.model, newest=True)
    comparison = compare_stored(request, place, stored, in_release=in_release)
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
                f"{place.root}: got {stored.name}@{now} as the champion, expected {expected or 'none'}, with which "
                f"{comparison.challenger} was compared: another version was promoted in the meantime; compare again"
            )
        done = place.promote(stored, why=request.why or _reason(comparison, request), who=_who(request))
    return replace(result, status="promoted", who=done.who, why=done.why)


def _reason(comparison: Comparison, request: PromoteRequest) -> str:
    if comparison.champion_log_loss is None:
        return "the first of its name"
    if request.how != "better":
        return "by hand"
    if comparison.common is not None:
        return f"log loss on {comparison.common.n:,} objects new to both smaller by {gain_words(comparison.common)}"
    return f"{losses_words(comparison)} {comparison.log_loss:.4f} against {comparison.champion_log_loss:.4f}"


def reject(request: PromoteRequest, *, dry_run: bool = False) -> RejectedPromotion:
    """Write down that a model is not to be the champion, and why; the rule then keeps it out.

    UsageError where no reason is given, or the model is the champion.
    """
    place = Store.named(request.store)
    stored = place.find(request.model, newest=True)
    if not request.why:
        raise UsageError(
            f"--why: got no reason to reject {stored.label}, expected one for the champion's log; add --why"
        )
    champion = place.champion(stored.name)
    if champion == stored.version:
        raise UsageError(
            f"{stored.label}: got the champion, which cannot be rejected, expected a challenger; `blr models "
            f"promote {stored.name} --undo` puts the previous champion in its place"
        )
    if not dry_run:
        with exclusive(place.root / stored.name):
            place.reject(stored, why=request.why, who=_who(request))
    previous = None if champion is None else ModelReference(stored.name, champion).label
    return RejectedPromotion(
        model=stored.label,
        status="planned" if dry_run else "rejected",
        previous=previous,
        why=request.why,
        who=_who(request),
    )


def undo(request: PromoteRequest, *, dry_run: bool = False) -> UndonePromotion:
    """Put the champion before the present one in its place again; the log keeps both decisions.

    The version in the request does not count.  ModelError where no champion was before, or it is gone.
    """
    place = Store.named(request.store)
    name = ModelReference.parse(request.model).name
    with exclusive(place.root / name) if not dry_run else nullcontext():
        champion = place.find(name)
        before = champion_before(place.history(name), champion.version)
        if before is None:
            raise ModelError(
                f"{place.root}: got no champion of '{name}' before {champion.label}, expected a previous "
                f"champion to go back to; choose a version with `blr models promote {name}@VERSION`"
            )
        restored = place.at(name, before)
        result = UndonePromotion(
            model=restored.label,
            status="planned",
            previous=champion.label,
            who=_who(request),
            why=request.why or f"the promotion of {champion.label} was undone",
        )
        if not dry_run:
            place.promote(restored, why=result.why, who=result.who, kind="undone")
            result = replace(result, status="undone")
    return result


def _who(request: PromoteRequest) -> str:
    """Return who decides: the person named, or the user of this process."""
    return request.by or getpass.getuser()
