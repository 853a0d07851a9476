"""`blr train`, `blr models show`, `blr models promote` and `blr demo`: models, and what a person reads of them."""

# ruff: noqa: PLC0415 -- Prefect reads its settings as it is imported: they come first

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from catalogs.remote.urls import is_remote
from flows.cli import _printing as printing
from flows.errors import UsageError
from flows.models import promotion
from flows.models.description import ModelDescription, TrainingPlan, TrainingResult
from flows.models.promotion import PromotionResult
from flows.models.store import Store
from flows.orchestration.settings import connect
from flows.reports import tables
from flows.reports.answers import answer_lines, training_answers
from flows.reports.data import noise_words, read_notes, review_words, shift_words
from flows.request import PromoteRequest, TrainRequest
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification


def run_train(
    request: TrainRequest, *, dry_run: bool, prefect: bool | None, json: bool, quiet: bool, verbose: bool
) -> None:
    """Train, as a flow where Prefect is wanted."""
    from flows.training import steps as training

    typed, wanted = request, read_specification(request.specification)  # a wrong one is an error at once
    request = replace(typed, specification=wanted)
    work: Callable[[TrainRequest], TrainingResult] = training.plan if dry_run else training.train
    result = printing.flow_or_work("train", work, request, dry_run=dry_run, prefect=prefect, quiet=quiet)
    printing.show(result, partial(show_trained, verbose=verbose), json=json)
    if not json and not isinstance(result, TrainingPlan) and result.path:
        _say_next(typed, wanted, result)


def _say_next(request: TrainRequest, wanted: Specification, model: ModelDescription) -> None:
    """Print the command that uses a model: on the specification's target, else on the labelled catalogue."""
    target, labelled = wanted.target.paths, wanted.catalog.paths
    store = () if request.store == Path("models") else ("--store", request.store)
    label = model.name if model.champion in {None, model.version} else model.model
    if target not in {None, labelled} and label == model.name:
        printing.say_next("blr", "reprocess", request.specification, *store)
        return
    paths = [p if is_remote(p) else Path(wanted.base_folder, p) for p in target or labelled]
    printing.say_next("blr", "classify", *paths, "--model", label, *store, "--out", "annotated")


def show_trained(result: TrainingResult, *, verbose: bool = False) -> None:
    """Show a training, what it would do, or a stored model: the report's answers; its tables if `verbose`."""
    if isinstance(result, TrainingPlan):
        _show_plan(result)
        return
    if result.trust.answer("known").colour != "green":
        printing.say(result.skill_words)
    if result.training.labels.answered:
        printing.say(review_words(result.training.labels))
    if verbose:
        printing.print_tables(
            tables.label_table(result),
            *tables.class_tables(result),
            tables.performance_table(result),
            tables.review_table(result),
            tables.candidate_table(result),
        )
        printing.say(*noise_words(result.training.label_noise), *shift_words(result.training.shift))
    printing.say(tables.trained_words(result))
    answers = training_answers(result, read_notes(result).objects)
    printing.say(*answer_lines(answers), *tables.grouping_lines(result))
    if result.path:
        printing.say(f"Model, card and report: {result.path}")
    if result.history:
        printing.print_tables(tables.decision_table(result.history))
    if result.champion not in (None, result.version):
        champion = f"{result.name}@{result.champion}"
        printing.say(f"The champion is still {champion}: `blr models promote {result.model}` changes that")


def _show_plan(plan: TrainingPlan) -> None:
    printing.say(f"{plan.model} would be trained" + (", but is in the store already" if plan.exists else ""))
    counts = zip(plan.classes, plan.training.training_counts, plan.training.held_out_counts, strict=True)
    rows = [(c, f"{n:,}", f"{h:,}") for c, n, h in counts]
    printing.print_table("Labelled objects", ("class", "training", "held out"), rows)
    if plan.training.split.asked:
        printing.say(f"Held out by a salted hash {tables.split_words(plan.training.split)}")
    else:
        printing.say(tables.NONE_HELD_OUT)


def run_show(*, reference: str, store: Path, json: bool) -> None:
    """Show a model."""
    place = Store.named(store)
    model = place.load(reference)
    history = tuple(place.history(model.name))
    stored = replace(place.described(model, "stored"), history=history)
    printing.show(stored, partial(show_trained, verbose=True), json=json)


def run_promote(
    request: PromoteRequest, *, if_better: bool, reject: bool, undo: bool, dry_run: bool, json: bool
) -> None:
    """Promote a model, reject it or undo a promotion; a Prefect server that is configured or runs hears of it."""
    if reject + undo + if_better > 1:
        raise UsageError("got several of --if-better, --reject and --undo, expected one; choose one")
    if undo:
        result = promotion.undo(request, dry_run=dry_run)
    elif reject:
        result = promotion.reject(request, dry_run=dry_run)
    else:
        from flows.classification.release_changes import in_release

        wanted = replace(request, how="better" if if_better else "now")
        result = promotion.promote(wanted, dry_run=dry_run, in_release=in_release if dry_run else None)
    if result.status in {"promoted", "undone"} and connect(console_level="CRITICAL") is not None:
        from flows.orchestration.run_page import model_promoted

        model_promoted(result.model, previous=result.previous, who=result.who, why=result.why)
    printing.show(result, _show_promoted, json=json)


def _show_promoted(result: PromotionResult) -> None:
    if result.status == "planned" and result.comparison is not None:
        printing.print_tables(*tables.comparison_tables(result.comparison))
    printing.say(tables.promotion_words(result))


def run_demonstration(*, out: Path, prefect: bool | None, json: bool, quiet: bool) -> None:
    """Run the demonstration, its flows as flows of one Prefect server unless it is direct."""
    from flows.classification import steps as classification
    from flows.demo.steps import run_demo
    from flows.training import steps as training

    if as_flow := prefect is not False:
        with printing.shown_progress(quiet=quiet):
            printing.connect_or_start()

    def shown(name: str, work: Callable[[Any], Any], request: Any) -> Any:
        with printing.shown_progress(quiet=quiet):  # a bar of its own: tables are printed between the bars
            return printing.run_flow(name, request) if as_flow else work(request)

    result = run_demo(
        out,
        train=partial(shown, "train", training.train),
        classify=partial(shown, "classify", classification.classify),
        show=(lambda _: None) if json else printing.say,
    )
    printing.show(result, lambda _: None, json=json)
