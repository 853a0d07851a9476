"""`blr explain`."""

from __future__ import annotations

from dataclasses import replace

from catalogs.files.atomic import atomic_write_text
from flows.classification.explanation import explain
from flows.classification.request import ExplainRequest
from flows.cli._printing import plain_table, print_tables, say, show
from flows.cli._progress import shown_progress
from flows.reports.explanation import (
    CONTRIBUTION,
    OF_CONTRIBUTIONS,
    OF_PROBABILITIES,
    Explanation,
    explanation_page,
    explanation_sentences,
    logit_sentence,
)

__all__ = ["run_explain"]


def run_explain(request: ExplainRequest, *, json: bool) -> None:
    """Explain an object, on standard output or as a page."""
    with shown_progress(quiet=True):
        explained = explain(request)
    if request.html is not None:
        atomic_write_text(request.html, explanation_page(explained))
    show(explained, _show_explanation, json=json)
    if request.html is not None and not json:
        say(f"The page is {request.html}")


def _show_explanation(explained: Explanation) -> None:
    for sentence in explanation_sentences(explained):
        say(sentence)
    if explained.links:
        say(f"Look at it: {', '.join(explained.links.values())}")
    tables = []
    if explained.name is not None:
        rows = [
            (
                c.name,
                "missing" if c.value is None else f"{c.value:.4g}",
                f"{c.usual:.4g}",
                "" if c.contribution is None else f"{c.contribution:+.2f} ± {c.std:.2f}",
            )
            for c in explained.contributions
        ]
        title = f"What speaks for {explained.name} against {explained.runner_up}"
        table = plain_table(title, ("feature", "value", "usual", CONTRIBUTION), rows)
        tables.append(replace(table, remark=logit_sentence(explained), note=OF_CONTRIBUTIONS))
    probabilities = [
        (p.name, f"{p.plugin:.4f}", f"{p.moderated:.4f}", f"{p.sampled:.4f} ± {p.sampled_error:.4f}")
        for p in explained.probabilities
    ]
    if probabilities:
        columns = ("class", "plug-in", "moderated", "sampled ± error of the mean")
        table = plain_table("Probabilities", columns, probabilities)
        tables.insert(0, replace(table, note=OF_PROBABILITIES))
    nearest = [
        (o.identifier, o.name, f"{o.distance:.2f}", str(o.compared), next(iter(o.links.values()), ""))
        for o in explained.nearest
    ]
    of_objects = ("object", "class", "distance", "features compared", "link")
    tables.append(plain_table("Labelled objects that are like it", of_objects, nearest))
    print_tables(*tables)
