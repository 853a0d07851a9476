"""The flow `review`: `flows.reviews.selection` on a page of its own.

`review.fn(...)` outside of a flow run does the same work without Prefect.
"""

from __future__ import annotations

from prefect import flow

from flows.orchestration.results import RESULTS
from flows.orchestration.signature import takes
from flows.reviews import selection as reviewing
from flows.reviews.request import ReviewRequest
from flows.reviews.selection import ReviewResult

__all__ = ["review"]


@flow(name="review", persist_result=True, result_serializer=RESULTS)
@takes(ReviewRequest)
def review(request: ReviewRequest) -> ReviewResult:
    """Choose objects of annotated catalogues for a human look, and write the review list."""
    return reviewing.review(request)
