"""A model's skill in words: whether, and by how much, it predicts better than the class shares alone.

It is one of the questions of a model's verdict (`flows.models.description.TrustSummary`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blr.selection.skill import Skill

__all__ = ["SkillSummary", "gain_interval", "has_skill", "skill_words"]


@dataclass(frozen=True, kw_only=True)
class SkillSummary:
    """A model's skill in a form for JSON, with its verdict; `blr.selection.skill.Skill` explains the fields.

    Ends of an interval that is not known are None.
    """

    gain: float
    low: float | None
    high: float | None
    baseline: float
    level: float
    n: int
    n_groups: int
    verdict: str  # "better", "worse" or "none shown"

    @classmethod
    def of(cls, skill: Skill) -> SkillSummary:
        """Return the summary of a skill."""
        low, high = (end if math.isfinite(end) else None for end in (skill.low, skill.high))
        return cls(**{**vars(skill), "low": low, "high": high}, verdict=skill.verdict)


def has_skill(skill: SkillSummary | None, *, log_loss: float, baseline: float) -> bool:
    """Say whether a model is known to be better than the class shares; without an interval, by its log loss."""
    return log_loss < baseline if skill is None else skill.verdict == "better"


def gain_interval(skill: SkillSummary) -> str:
    """Return the interval of the gain, "0.102 to 0.134", in nats."""
    if skill.low is None or skill.high is None:
        return "not known"
    return f"{_signed(skill.low)} to {_signed(skill.high)}"


def skill_words(
    skill: SkillSummary | None, *, log_loss: float, baseline: float, rows: str = "held-out"
) -> str:
    """Return the sentence on the skill; `rows` says how objects were kept from the fit, "held-out" or "left-out"."""
    gain = baseline - log_loss
    much = f"{abs(gain):.4f} nats an object ({abs(gain) / baseline:.1%} of {baseline:.4f})"
    if skill is None:
        head, side = ("Skill", "better") if gain > 0 else ("No skill", "no better")
        by = f"by {_signed(gain)} nats an object"
        return f"{head}: it predicts {rows} objects {side} than the class shares alone, {by}."
    interval = f"{skill.level:.0%} interval of the gain {gain_interval(skill)}"
    on = f"on {skill.n:,} {rows} objects"
    if skill.n_groups < skill.n:
        on += f" in {skill.n_groups:,} groups"
    if skill.verdict == "better":
        return f"Skill: {on} it predicts better than the class shares alone, by {much}; {interval}."
    if skill.verdict == "worse":
        return f"No skill: {on} it predicts worse than the class shares alone, by {much}; {interval}."
    return (
        f"No skill shown: {on} it predicts no better than the class shares alone, within the uncertainty: "
        f"gain {_signed(gain)} nats an object; {interval}."
    )


def _signed(value: float) -> str:
    return f"{value:z.4f}".replace("-", "−")
