"""`blr review`."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from flows.cli._flow_runs import runs_as_flow
from flows.cli._options import ReviewOptions
from flows.cli._printing import say, show
from flows.cli._progress import shown_progress
from flows.reviews import selection as reviewing
from flows.reviews.request import ReviewRequest

__all__ = ["run_review"]


def run_review(request: ReviewRequest, options: ReviewOptions) -> None:
    """Review, as a flow where Prefect is wanted."""
    with shown_progress(quiet=False):
        if options.dry_run or not runs_as_flow(options.prefect):
            space = None
            if request.budget is not None:  # else nothing is drawn
                from flows.classification.feature_space import feature_space

                space = feature_space(request.out, request.store, request.specification)
            result = reviewing.review(request, space=space, dry_run=options.dry_run)
        else:
            from flows.review import review

            result = review(**vars(request))
    show(result, show_reviewed, json=options.json)


def show_reviewed(result: reviewing.ReviewResult) -> None:
    """Show who was chosen, and where the list is."""
    files = ", ".join(str(path) for path in result.files) or "nothing written"
    say(f"{_chosen_words(result)}{f', and {result.outliers} outliers' if result.outliers else ''}: {files}")
    for remark in result.remarks:
        say(remark)
    pages = [path for path in result.files if path.suffix == ".html"]
    if pages:
        say(
            f"Next: open {pages[0]} in a browser, label, and name the answers in the specification: [label] extra"
        )


def _chosen_words(result: reviewing.ReviewResult) -> str:
    """Return how many objects were chosen, in which ways, and from which ones."""
    if not result.n_classified:
        return "No object to choose: the model was trained on each one that is classified"
    ways = ((result.top, "the least certain of those flagged"), (result.drawn, "drawn"))
    said = " and ".join(f"{n:,} {how}" for n, how in ways if n) or "No object chosen"
    return f"{said}, of {result.n_classified:,} classified objects that the model was not trained on"
