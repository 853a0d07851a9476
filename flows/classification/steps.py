"""The steps of `classify`: a plan, a trial on a few rows, or the whole work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from blr.threads import default_threads
from flows.classification._census_wish import CensusWish, census_table, with_stated_bias, without_wish
from flows.classification._class_shares import chosen_shift, estimated_shares
from flows.classification._jobs import Policy, hashes_on
from flows.classification._output_columns import check_copies
from flows.classification._plan import Plan, known_outputs, make_plan
from flows.classification._tally import summarise
from flows.classification._tasks import ClassificationRequest
from flows.classification.execution import DIRECT, Steps, execute
from flows.classification.request import ClassifyRequest
from flows.classification.scoring import Scorer
from flows.engines.choice import EngineChoice
from flows.errors import SpecificationError
from flows.inputs.fetching import fetching
from flows.inputs.opening import first_rows, opened
from flows.inputs.resolve import check_no_copies_below, resolve_sources
from flows.inputs.source import LocalSource, Source
from flows.models.model import Model
from flows.models.store import Store
from flows.runs.allowed_roots import OutputFolder, check_scheduler
from flows.runs.release_store import output_folder
from flows.runs.results import ClassificationResult, ClassificationTrial, Value, published
from flows.specification.specification import Output as OutputTable
from flows.specification.specification import Shift, Specification
from flows.specification.toml_file import read_specification

__all__ = ["DIRECT", "Steps", "annotation_settings", "chosen_engine", "classify", "settled", "trial"]

# The engine that a classification runs on: the request's, else the specification's, else threads.


def chosen_engine(asked: str | None, specification: Specification | None) -> EngineChoice:
    """Return the engine that is `asked` for, else that of the specification, whose paths start at its folder.

    Raises
    ------
    UsageError
        If a text names no engine, or one that this machine's settings do not allow.
    """
    stated = None if specification is None else specification.run.engine
    base = Path() if specification is None else Path(specification.base_folder)
    choice, key = EngineChoice.chosen(asked, stated, base=base)
    check_scheduler(choice.file, choice.address, key=key)
    return choice


# A trial of a classification: the first rows of each catalogue are scored, and nothing is written.

SHOWN = 10
"""Most rows that are shown."""

Row = Mapping[str, Value]


def trial(
    sources: Sequence[Source], model: Model, specification: Specification, limit: int
) -> ClassificationTrial:
    """Score the first `limit` rows of each catalogue; return their counts and the first few rows."""
    scorer = Scorer.of(model, specification)
    shown: list[Row] = []
    for source in sources:
        with opened([source], scorer.choice) as catalogs:
            for catalog in catalogs:
                check_copies(catalog, scorer.columns, specification)
                here = scorer.on(catalog)  # it adds to the tallies of `scorer`
                for batch in first_rows(catalog, here.reader.read, limit):
                    new = here(batch)
                    shown += _rows(new, SHOWN - len(shown))
    sets = None if scorer.sets is None else scorer.sets.record
    counts = summarise(scorer.tally(), model.classes, model.features, sets=sets)
    return ClassificationTrial(status="trial", model=model.label, summary=counts, rows=tuple(shown))


def _rows(new: Mapping[str, np.ndarray[Any, Any]], n: int) -> list[Row]:
    rows = zip(*(array[:n].tolist() for array in new.values()), strict=True)
    return [{name: _plain(value) for name, value in zip(new, row, strict=True)} for row in rows]


def _plain(value: Value) -> Value:
    return None if isinstance(value, float) and math.isnan(value) else value


# The steps of a classification with a stored model, with or without Prefect.
#
# A task is a group of files.  Tasks pass on paths and small values, never rows.  Files are annotated in a staging
# folder.  They get their final names together, once all are whole; `manifest.json` is written last.


def classify(
    request: ClassifyRequest, *, dry_run: bool = False, steps: Steps = DIRECT
) -> ClassificationResult:
    """Annotate catalogues with a model of the store; return what was done.

    The request's `specification` replaces the target, flags and output that the model was trained with, and its class
    shares where it gives some; `class_prior` does that alone, and `output_format` chooses the copies' format alone.
    """
    publish = not dry_run and request.limit is None
    with output_folder(request.out, key="out", publish=publish) as folder:
        return published(_classified(request, folder, dry_run=dry_run, steps=steps), request.out)


def _classified(
    request: ClassifyRequest, folder: OutputFolder, *, dry_run: bool, steps: Steps
) -> ClassificationResult:
    """Annotate catalogues into a folder of this machine."""
    place = Store.named(request.store)
    stored = place.find(request.model)
    loaded = place.read(stored)
    settings, limit = _wanted(loaded, request), request.limit
    wish = CensusWish.of(loaded, settings)
    sources = resolve_sources([str(c) for c in request.catalogues], Path(), key="CATALOG")
    policy: Policy = "overwrite" if request.overwrite else "add"
    if limit is None:
        check_no_copies_below(sources, folder)
    resumable = not dry_run and limit is None
    where = chosen_engine(request.engine, _stated(request))
    with (
        fetching(
            folder, run=steps.identify(), mark_crashed=steps.mark_crashed, resumable=resumable
        ) as mirror,
        where.opened(request.threads or default_threads()) as engine,
    ):
        settings = settled(
            loaded, settings, request.class_prior, sources=lambda: mirror.bring(sources).sources
        )
        if limit is not None:
            return trial(sources, loaded, settings, limit)
        verify = request.verify

        def plan() -> Plan:
            brought = mirror.bring(sources, known_outputs(folder, loaded, settings, verify=verify))
            return make_plan(
                brought, loaded, settings, folder, policy=policy, verify=verify, hashes=hashes_on(engine)
            )

        work = ClassificationRequest(model=stored, specification=settings, threads=request.threads, wish=wish)
        return execute(plan, loaded, work, steps, engine=engine, dry_run=dry_run)


def _stated(request: ClassifyRequest) -> Specification | None:
    """Return the specification that was named in the request."""
    return None if request.specification is None else read_specification(request.specification)


def _wanted(model: Model, request: ClassifyRequest) -> Specification:
    """Return the specification of a classification: the model's or another, with the format asked for."""
    wanted = _stated(request) or model.specification
    if request.output_format is None:
        return wanted
    output = wanted.output.model_copy(update={"format": request.output_format})
    return wanted.model_copy(update={"output": output})


def settled(
    model: Model,
    wanted: Specification,
    class_prior: str | Mapping[str, float] | None,
    *,
    sources: Callable[[], Sequence[LocalSource]],
) -> Specification:
    """Return the settings of a classification, with class shares; `sources` gives what they are estimated from."""
    plain = annotation_settings(model, wanted)

    def estimate() -> Shift:
        unmoved = replace(model, classifier=replace(model.classifier, log_prior_shift=None))
        scorer = Scorer.of(unmoved, plain.model_copy(update={"shift": Shift()}))
        return estimated_shares(model, sources(), scorer)

    shift = chosen_shift(model, wanted.shift, asked=class_prior, estimate=estimate)
    return with_stated_bias(plain.model_copy(update={"shift": shift}), model, wanted)


def annotation_settings(model: Model, wanted: Specification) -> Specification:
    """Return the model's specification, with what another one says of target, checksums, flags, output and bins.

    `SpecificationError` where that target is of columns that the model does not know, or contradicts its marks.
    Class shares are still the model's (`chosen_shift`).
    Without the places of inputs and outputs: a file's annotation does not depend on what lies beside it.
    """
    checksums = {"checksums": wanted.catalog.checksums}
    update = {
        "catalog": model.specification.catalog.model_copy(update=checksums),
        "target": wanted.target.model_copy(update={"paths": None}),
        "flags": wanted.flags,
        "census": census_table(model, wanted),
        "output": wanted.output.model_copy(update={"folder": OutputTable().folder}),
    }
    settings = without_wish(model.specification.model_copy(update=update))
    try:
        settings.check_target()
        settings.check_sets(len(model.classes))
    except ValueError as error:
        raise SpecificationError(f"with the model {model.label}, {error}") from error
    return settings
