"""The commands as functions of a request's fields and of further arguments: `dry_run`, `steps`, `step`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flows.classification import steps as classification
from flows.classification import steps as reprocessing
from flows.models import promotion
from flows.request import ClassifyRequest, PromoteRequest, ReprocessRequest, ReviewRequest, TrainRequest
from flows.reviews import selection
from flows.reviews._lists import LISTS
from flows.training import steps as training


def listed(name: str, *values: Any) -> dict[str, Any]:
    """Return a row of a list of objects, of its name and of the list's columns."""
    return dict(zip(("name", *LISTS[name]["columns"]), values, strict=True))


def verb(request: type, work: Callable[..., Any]) -> Callable[..., Any]:
    """Return the work as a function of the request's fields and of what else it takes."""
    of_work = [p.name for p in inspect.signature(work).parameters.values() if p.kind is p.KEYWORD_ONLY]

    def call(*args: Any, **named: Any) -> Any:
        for_work = {name: named.pop(name) for name in of_work if name in named}
        return work(request(*args, **named), **for_work)

    return call


def train(*args: Any, dry_run: bool = False, **named: Any) -> Any:
    return verb(TrainRequest, training.plan if dry_run else training.train)(*args, **named)


classify = verb(ClassifyRequest, classification.classify)
reprocess = verb(ReprocessRequest, reprocessing.reprocess)
review = verb(ReviewRequest, selection.review)


def promote(*args: Any, how: str = "now", **named: Any) -> Any:
    return verb(PromoteRequest, promotion.promote)(*args, how=how, **named)
