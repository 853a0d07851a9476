"""What is written to a model's `description.json`, from the metrics and the verdict that its model file holds."""

from __future__ import annotations

from datetime import datetime

from flows.models.description import Metrics
from flows.models.listing import DescriptionFile, has_skill

__all__ = ["description_file"]


def description_file(
    model: str,
    metrics: Metrics,
    *,
    trust: str,
    size: int,
    trained: datetime,
    interval: tuple[float, float] | None = None,
    code_version: str = "",
) -> DescriptionFile:
    """Return the description of a model NAME@VERSION; `interval` is that of its log loss, 95 %."""
    low, high = interval or (None, None)
    return DescriptionFile(
        format="blr-description",
        model=model,
        size=size,
        trained=trained.isoformat(timespec="seconds"),
        code_version=code_version,
        log_loss=metrics.log_loss,
        log_loss_low=low,
        log_loss_high=high,
        judged_on=metrics.n,
        judged_by=metrics.judged_by,
        has_skill=has_skill(metrics.skill, log_loss=metrics.log_loss, baseline=metrics.log_loss_baseline),
        skill=metrics.skill,
        trust=trust,
    )
