"""What is said of a model's skill: whether it predicts better than the class shares alone, by how much, how surely.

The trust verdict is about the approximation alone; a green model may predict nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from blr.selection.skill import Skill

__all__ = ["gain_interval", "has_skill", "read_skill", "skill_tree", "skill_words"]


def skill_tree(skill: Skill) -> dict[str, Any]:
    """Return the skill as JSON can hold it, with its verdict; an interval that is not known has ends of None."""
    tree = {key: x if math.isfinite(x) else None for key, x in asdict(skill).items()}
    return tree | {"verdict": skill.verdict}


def read_skill(tree: Mapping[str, Any] | None) -> Skill | None:
    """Return the skill of `skill_tree`; None of a model that was stored without."""
    if tree is None:
        return None
    low, high = (
        end if tree[key] is None else tree[key] for key, end in (("low", -math.inf), ("high", math.inf))
    )
    return Skill(
        **{key: tree[key] for key in ("gain", "baseline", "level", "n", "n_groups")}, low=low, high=high
    )


def has_skill(skill: Skill | None, *, log_loss: float, baseline: float) -> bool:
    """Say whether a model is known to be better than the class shares; without an interval, by its log loss."""
    return log_loss < baseline if skill is None else skill.verdict == "better"


def gain_interval(skill: Skill) -> str:
    """Return the interval of the gain, "0.102 to 0.134", in nats."""
    if not math.isfinite(skill.low):
        return "not known"
    return f"{_signed(skill.low)} to {_signed(skill.high)}"


def skill_words(skill: Skill | None, *, log_loss: float, baseline: float, rows: str = "held-out") -> str:
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
        f"No skill shown: {on} it predicts no better than the class shares alone, as far as they can tell: gain "
        f"{_signed(gain)} nats an object; {interval}."
    )


def _signed(value: float) -> str:
    return f"{value:.4f}".replace("-", "−")
