"""The flow `review`: `flows.reviews.selection` on a page of its own.

`review.fn(...)` outside of a flow run does the same work without Prefect.
"""

from __future__ import annotations

from catalogs.errors import counted
from flows.orchestration.run_page import completed, flow_of, run_logged
from flows.request import ReviewRequest
from flows.reviews import selection as reviewing
from flows.reviews.selection import ReviewResult


def _name(request: ReviewRequest) -> str:
    return f"review {request.out}: {counted(request.n_objects, 'object')}"


@flow_of(ReviewRequest, _name, reviewing.review)
def review(request: ReviewRequest) -> ReviewResult:
    """Choose objects of annotated catalogues for a human look, and write the review list."""
    with run_logged():
        result = reviewing.review(request)
    lists = ", ".join(path.name for path in result.files)
    chosen = f"{result.top:,} flagged and {result.drawn:,} drawn of {counted(result.n_classified, 'object')}"
    chosen += f", {result.outliers:,} outliers" if result.outliers else ""
    return completed(result, f"{chosen}, by {result.model}; lists: {lists or 'none'}.")
