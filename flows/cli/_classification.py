"""`blr classify`, `reprocess`, `status`, `review`, `explain`, `map` and `census`: catalogues and what is known of them.

Each command imports its own work, so that none waits for what another one needs.
"""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from catalogs.errors import counted
from flows.cli import _printing as printing
from flows.request import ClassifyRequest, ExplainRequest, ReprocessRequest, ReviewRequest
from flows.runs.progress import speed
from flows.runs.results import ClassificationResult, ReleaseResult

if TYPE_CHECKING:
    from flows.reports.catalogue_page import Explanation
    from flows.reviews.selection import ReviewResult
    from flows.runs.manifest import FolderStatus
    from flows.runs.results import CensusResult, MappedFraction, MapResult

PARTLY = 3  # exit status of a run that quarantined some of its files
TO_LOOK_AT = {"LOW_CONFIDENCE": "of low confidence", "OUT_OF_DOMAIN": "unlike the training set"}
"""Flags whose objects a person should look at, in words."""


def run_annotation(
    request: ClassifyRequest | ReprocessRequest,
    *,
    dry_run: bool,
    prefect: bool | None,
    json: bool,
    quiet: bool,
) -> None:
    """Classify or reprocess, as a flow where Prefect is wanted."""
    from flows.classification import steps
    from flows.specification.toml_file import read_specification

    name = "classify"
    people: Callable[[Any], None] = _show_classified
    if isinstance(request, ReprocessRequest):
        name, people = "reprocess", _show_reprocessed
        request = replace(request, specification=read_specification(request.specification))
    began, work = time.monotonic(), partial(getattr(steps, name), dry_run=dry_run)
    result = printing.flow_or_work(name, work, request, dry_run=dry_run, prefect=prefect, quiet=quiet)
    _end(result, time.monotonic() - began, request.store, people, json=json)


def _show_classified(result: ClassificationResult) -> None:
    from flows.reports.counts import census_tables, class_count_table, flag_table, set_tables, trouble_table

    if result.summary:
        counts = ("all files", result.summary)
        printing.print_tables(class_count_table(*counts), flag_table(*counts), *set_tables(*counts))
        if result.status != "trial" and (census := result.summary.census) is not None:
            tables = census_tables(census)
            if not any(chosen.stated for c in census.classes.values() for chosen in c.selections):
                tables.pop("selections", None)  # those by usual thresholds are in the report
            printing.print_tables(*tables.values())
    if result.status != "trial" and (result.quarantined or result.deferred):
        printing.print_tables(trouble_table(result))
    _say_release(result)


def _show_reprocessed(result: ReleaseResult) -> None:
    from flows.reports.counts import run_tables, trouble_table

    if result.status != "nothing to do" and not (result.status == "planned" and result.up_to_date):
        printing.print_tables(*run_tables(result).values())
    elif result.quarantined or result.deferred:
        printing.print_tables(trouble_table(result))
    _say_release(result)


def _say_release(result: ClassificationResult) -> None:
    """Say what became of a run, where its outputs are, and what is odd."""
    from flows.reports.catalogue_page import use_lines
    from flows.reports.counts import classification_message

    printing.say(*use_lines(result), classification_message(result))
    if result.status == "trial":
        return
    places = (result.out, result.report, result.published if result.status != "planned" else None)
    printing.say(f"By {result.model}: {', '.join(str(place) for place in places if place)}")
    printing.say(*result.repeats)


def _end(result: Any, seconds: float, store: Path, people: Callable[[Any], None], *, json: bool) -> None:
    """Show a result, how fast files were annotated and what needs a look; leave with the status of the quarantined."""
    from flows.reports.answers import suspected_marks
    from flows.runs.manifest import Manifest

    printing.show(result, people, json=json)
    if result.status == "done" and result.summary is not None and not json:
        rows = sum(file["n_rows"] for file in result.files.values() if file["to_do"])
        if rows:
            printing.say(f"{counted(rows, 'row')} in {seconds:,.1f} s{speed(rows, seconds, 'rows')}")
        counts = {words: result.summary.flags[name]["count"] for name, words in TO_LOOK_AT.items()}
        looks = " and ".join(f"{n:,} {words}" for words, n in counts.items() if n)
        for finding in suspected_marks(result.summary):
            printing.say(f"{finding.what}. {finding.advice}")
        printing.say(f"To be looked at: {looks or 'none'}, of {counted(result.summary.n_rows, 'object')}")
        census, out = result.summary.census, result.published or result.out
        labelled = 0 if census is None else sum(c.labelled for c in census.classes.values())
        if labelled == result.summary.n_rows:  # reviews ask for labels
            printing.say_next("blr", "census", out)
        elif looks:
            named = () if store == Path("models") else ("--store", store)
            manifest = Manifest.read(Path(result.out))
            unnamed = ("--id", "COLUMN") if manifest is not None and manifest.position.id is None else ()
            printing.say_next("blr", "review", out, *named, *unnamed, "--budget", 100)
    if result.status != "trial" and result.quarantined:
        raise typer.Exit(PARTLY)


def run_status(*, folder: Path, json: bool) -> None:
    """Show the state of each file of a release; leave with the status of a run that quarantined some of them."""
    from flows.runs.manifest import read_status
    from flows.runs.release_store import output_folder

    with output_folder(folder, key="FOLDER", publish=False) as here:
        status = read_status(here)
    printing.show(status, _show_status, json=json)
    if status.quarantined:
        raise typer.Exit(PARTLY)


def _show_status(status: FolderStatus) -> None:
    from flows.reports.counts import status_table

    printing.print_tables(status_table(status))
    printing.say(
        f"{status.out} is at release {status.release}, {status.quarantined:,} quarantined, by {status.model}"
    )


def run_review(request: ReviewRequest, *, dry_run: bool, prefect: bool | None, json: bool) -> None:
    """Review, as a flow where Prefect is wanted."""
    from flows.reviews.selection import review

    work = partial(review, dry_run=dry_run)
    result = printing.flow_or_work("review", work, request, dry_run=dry_run, prefect=prefect, quiet=False)
    printing.show(result, show_reviewed, json=json)


def show_reviewed(result: ReviewResult) -> None:
    """Show who was chosen, and where the list is."""
    ways = ((result.top, "the least certain of those flagged"), (result.drawn, "drawn"))
    said = " and ".join(f"{n:,} {how}" for n, how in ways if n) or "No object chosen"
    said += f", of {result.n_classified:,} classified objects that the model was not trained on"
    if not result.n_classified:
        said = "No object to choose: the model was trained on each one that is classified"
    outliers = f", and {result.outliers} outliers" if result.outliers else ""
    printing.say(f"{said}{outliers}: {printing.files_words(result.files)}")
    printing.say(*result.remarks)
    page = next((path for path in result.files if path.suffix == ".html"), None)
    if page is not None and (result.top or result.drawn):
        printing.say(
            f"Next: open {page} in a browser, label, and name the answers in the specification: [label] extra"
        )


def run_explain(request: ExplainRequest, *, json: bool) -> None:
    """Explain an object, on standard output or as a page."""
    from catalogs.files import atomic_write_text
    from flows.classification.explanation import explain
    from flows.reports.catalogue_page import explanation_page

    with printing.shown_progress(quiet=True):
        explained = explain(request)
    if request.html is not None:
        atomic_write_text(request.html, explanation_page(explained))
    printing.show(explained, _show_explanation, json=json)
    if request.html is not None and not json:
        printing.say(f"The page is {request.html}")


def _show_explanation(explained: Explanation) -> None:
    from flows.reports import catalogue_page as page

    printing.say(*page.explanation_sentences(explained))
    if explained.links:
        printing.say(f"Look at it: {', '.join(explained.links.values())}")
    if explained.probabilities:
        templates = ("{name}", "{plugin:.4f}", "{moderated:.4f}", "{sampled:.4f} ± {sampled_error:.4f}")
        rows = printing.formatted(templates, explained.probabilities)
        kinds = ("class", "plug-in", "moderated", "sampled ± error of the mean")
        printing.print_table("Probabilities", kinds, rows, note=page.OF_PROBABILITIES)
    if explained.name is not None:
        title = f"What speaks for {explained.name} against {explained.runner_up}"
        columns = ("feature", "value", "usual", page.CONTRIBUTION)
        contributions = map(page.contribution_row, explained.contributions)
        said = page.logit_sentence(explained)
        printing.print_table(title, columns, contributions, remark=said, note=page.OF_CONTRIBUTIONS)
    of_object = ("{identifier}", "{name}", "{distance:.2f}", "{compared}", "{link}")
    linked = ({**o, "link": next(iter(o["links"].values()), "")} for o in explained.nearest)
    like = ("object", "class", "distance", "features compared", "link")
    printing.print_table("Labelled objects that are like it", like, printing.formatted(of_object, linked))


MAPPED = ("objects", "of those labelled", "by the classifier", "by the labels", "95 % interval")


def show_map(result: MapResult) -> None:
    """Show the fraction of all and by bins, and where the maps are."""
    title = f"{result.what.capitalize()} of {result.class_name}"
    printing.print_table(title, MAPPED, [_mapped(result.whole)])
    for quantity in result.over:
        unit = f", {quantity['unit']}" if quantity["unit"] else ""
        rows = [(f"{part['start']:.4g}", f"{part['stop']:.4g}", *_mapped(part)) for part in quantity["bins"]]
        printing.print_table(f"{title} over {quantity['expression']}{unit}", ("from", "to", *MAPPED), rows)
    for remark in result.remarks:
        printing.say(remark[:1].upper() + remark[1:])
    printing.say(f"{result.cells:,} pixels of order {result.order}: {printing.files_words(result.files)}")


def _mapped(part: MappedFraction) -> tuple[str, ...]:
    shares = ("–" if value is None else f"{value:.3f}" for value in (part["expected"], part["fraction"]))
    low, high = part["low"], part["high"]
    interval = "–" if low is None or high is None else f"{low:.3f} to {high:.3f}"
    return (f"{part['objects']:,.0f}", f"{part['k']:,} of {part['n']:,}", *shares, interval)


def show_census(result: CensusResult) -> None:
    """Show the census of an output folder, and where it was written."""
    from flows.reports.catalogue_page import REPORT_KEPT
    from flows.reports.counts import census_tables

    printing.print_tables(*census_tables(result.census).values())
    files: Sequence[Path | str] = [path for path in (result.written, result.report) if path is not None]
    said = f"written to {printing.files_words(files)}" if files else "nothing written"
    printing.say(f"Release {result.release} of {result.out}, by {result.model}: {said}")
    if result.written is not None and result.report is None:
        printing.say(REPORT_KEPT)
