"""The flow `review`: `flows.reviews.selection` on a page of its own.

`review.fn(...)` outside of a flow run does the same work without Prefect.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow
from pydantic import NonNegativeInt

from flows.orchestration.results import RESULTS
from flows.reviews import selection as reviewing
from flows.reviews.selection import ReviewResult

__all__ = ["review"]


@flow(name="review", persist_result=True, result_serializer=RESULTS)
def review(
    out: Path,
    top: NonNegativeInt = 100,
    draw: NonNegativeInt = 0,
    identifier: str | None = None,
    seed: NonNegativeInt = 0,
) -> ReviewResult:
    """Choose objects of annotated catalogues for a human look, and write the review list.

    Args:
        out: Folder that `classify` has written.
        top: Flagged objects, the least certain first.
        draw: Objects drawn of all, in proportion to their mutual information, with a weight.
        identifier: Column that names an object; default: what looks like it.
        seed: Of the draw.
    """
    return reviewing.review(out, top=top, draw=draw, identifier=identifier, seed=seed)
