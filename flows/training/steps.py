"""Train a model: the work itself, with or without Prefect.

Tasks are the ingest, each candidate, the choice, and the saving.  What passes between them is paths, indices
and small dictionaries; rows and fitted candidates wait in a staging folder, so that a killed run goes on.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.classifier import Member
from blr.predictive.temperature import Temperature, estimate_temperature
from blr.threads import single_threaded_blas
from catalogs.catalog.catalog import Catalog
from flows.errors import TrainingError
from flows.features.reader import training_reader
from flows.features.split import split_columns
from flows.features.table_choice import training_table
from flows.inputs.opening import opened_whole
from flows.inputs.resolve import resolve_sources
from flows.models.asdf_file import read_tree, write_tree
from flows.models.model import make_version
from flows.models.store import Store
from flows.runs.interrupt import stop_points
from flows.runs.lock import exclusive
from flows.runs.manifest import write_json
from flows.runs.model_reference import ModelReference
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification
from flows.training._candidates import fit_candidate, refit_candidate
from flows.training._checks import checked_parts
from flows.training._ingest import column_metadata, describe_rows
from flows.training._label_noise import with_label_noise
from flows.training._overdispersion import without_overdispersion
from flows.training._photometry import with_learned_photometry
from flows.training._quality import catalog_qualities
from flows.training._ranking import rank, stacked
from flows.training._rows import Gathered, gather, write_array, write_rows
from flows.training._shift import compared, with_density_weights
from flows.training._staging import (
    StagedTraining,
    filled_features,
    read_described,
    read_drafts,
    write_described,
    write_drafts,
)
from flows.training._target_rows import is_needed, read_shift, read_target, version_content, write_shift
from flows.training.saving import Judged, Kept, make_model, save_model
from flows.version import code_version

__all__ = ["DIRECT", "Request", "Steps", "choose", "fit", "ingest", "refine", "save", "train"]

Json = dict[str, Any]
Row = Mapping[str, Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Request:
    """What is to be trained, and where the model goes: read and checked, so that no later step does it again."""

    specification: Specification
    store: Store
    overwrite: bool = False
    limit: int | None = None
    dry_run: bool = False


def ingest(request: Request) -> Json:
    """Gather the labelled rows into a staging folder; return where they are, and which version they make."""
    given = request.specification
    key = "catalog.paths"
    sources = resolve_sources(given.catalog.paths, Path(given.base_folder), key=key)
    with opened_whole(sources, training_table(given), key=key) as opened:
        return _ingested(request, opened)


def _ingested(request: Request, opened: list[Catalog]) -> Json:
    given, store, limit = request.specification, request.store, request.limit
    specification, gathered = _gathered(given, opened, limit)
    columns = column_metadata(
        opened[0], training_reader(specification, split_by=split_columns(specification)).names
    )
    target = read_target(specification, columns, limit=limit) if is_needed(given) else None
    version = make_version(given, version_content(gathered.content_hash, given, target), code_version())
    found = {"version": version, "exists": store.contains(specification.name, version)}
    if request.dry_run or (found["exists"] and not request.overwrite):
        return found | {
            "training": describe_rows(specification, gathered, opened),
            "classes": [*gathered.classes],
        }
    rows, summary = gathered.rows, Json()
    folder = store.make_folder(specification.name, version, staging=True)
    target = target or read_target(specification, columns, limit=limit)
    tell().start("describing the rows: missing features, differences from the target, quality", 0, "steps")
    with single_threaded_blas():
        moments, filled = filled_features(rows)
        found_shift = None if target is None else compared(specification, rows, filled, target, moments)
        if target is not None and found_shift is not None:
            ratio, summary = found_shift
            write_shift(target, ratio.ratio, folder)
            if specification.shift.density_weights:
                rows = with_density_weights(rows, ratio.ratio)
                moments, filled = filled_features(rows)
        gathered = replace(gathered, rows=rows)
        rows, phi = without_overdispersion(specification, rows, filled)
        rows, noise = with_label_noise(specification, rows, filled, gathered.classes, gathered.annotators)
    write_rows(rows, folder)
    write_array(filled, folder / "filled.npy")
    described = {
        "version": version,
        "classes": [*gathered.classes],
        "training": describe_rows(specification, gathered, opened)
        | {
            "overdispersion": phi,
            "label_noise": noise,
            "shift": summary,
            "quality": catalog_qualities(specification, opened[:MOST_QUALITY], gathered.source, limit=limit),
        },
        "columns": columns,
    }
    write_described(specification, described, folder)
    return found | {"folder": str(folder), "training": described["training"], "classes": described["classes"]}


MOST_QUALITY = 4
"""Catalogues whose quality is looked at, the first of many: each is read once more."""


def _gathered(
    specification: Specification, opened: list[Catalog], limit: int | None
) -> tuple[Specification, Gathered]:
    tell().start("reading labelled rows", sum(c.n_rows for c in opened), "rows")
    learned = with_learned_photometry(specification, opened, limit=limit)
    return learned, gather(learned, opened, limit=limit)


def fit(folder: str, index: int, threads: int | None = None) -> Json:
    """Fit one candidate, unless a run that was killed had done so; return its row of the evidence table."""
    done = Path(folder) / f"candidate-{index:03d}.json"
    if not done.is_file():
        staged = StagedTraining.read(Path(folder))
        try:
            with single_threaded_blas():
                fitted = fit_candidate(staged.specification, index, staged.data, threads=threads)
        except ValueError as error:
            raise TrainingError(
                f"candidate.{index}: got no fit ({error}), expected one; change its basis or features, or drop it"
            ) from error
        if fitted.left_out is not None:
            write_array(fitted.left_out, done.with_suffix(".npy"))
        write_drafts(fitted.drafts, Path(folder), index)
        write_json(done, fitted.row)
    row: Json = json.loads(done.read_text(encoding="utf-8"))
    return row


def choose(folder: str, rows: Sequence[Row]) -> Json:
    """Return which candidates make the model, and each one's posterior probability."""
    by = read_described(Path(folder))[0].select.by
    shares = None
    if by == "stack":
        left_out = [Path(folder) / f"candidate-{index:03d}.npy" for index in range(len(rows))]
        shares = stacked(rows, [np.load(path, allow_pickle=False) for path in left_out])
    choice = asdict(rank(rows, by=by, shares=shares))
    write_json(
        Path(folder) / CHECKED, {str(i): parts for i, parts in checked_parts(choice["members"], rows).items()}
    )
    return choice


CHECKED = "checked.json"


def refine(folder: str, index: int, threads: int | None = None) -> str:
    """Give a candidate the posterior that the specification asks for; return the file it waits in.

    It holds the members that are judged, fitted to the training rows, and those that are kept, fitted to all rows where
    the specification asks for that.
    """
    done = Path(folder) / f"member-{index:03d}.asdf"
    if not done.is_file():
        staged = StagedTraining.read(Path(folder))
        row = json.loads((Path(folder) / f"candidate-{index:03d}.json").read_text(encoding="utf-8"))
        checked = json.loads((Path(folder) / CHECKED).read_text(encoding="utf-8")).get(str(index), [])
        kept, drafts = staged.kept, read_drafts(Path(folder), index)
        with single_threaded_blas():
            fitted = {
                which: refit_candidate(
                    staged.specification,
                    index,
                    data,
                    row["parts"],
                    drafts=drafts,
                    checked=checked if which == kept else (),
                    threads=threads,
                )
                for which, data in staged.fits.items()
            }
        tree = {which: [m.member.to_dict() for m in members] for which, members in fitted.items()}
        write_tree(tree | {"checks": [m.check for m in fitted[kept]]}, done)
    return str(done)


def save(folder: str, rows: Sequence[Row], choice: Row, members: Mapping[str, float], store: Store) -> Json:
    """Make the model of its members, save it, and let it be the champion if no model is.

    `members` are files, each with its share in the average.
    """
    staged = StagedTraining.read(Path(folder))
    trees = {path: read_tree(Path(path)) for path in members}

    def of(which: str) -> list[Member]:
        found = ((share, Member.from_dict(d)) for path, share in members.items() for d in trees[path][which])
        return [replace(member, weight=share * member.weight) for share, member in found]

    kept = staged.kept
    shares = dict(choice["members"])
    checks = {
        index: tree["checks"] for (index, _), tree in zip(choice["members"], trees.values(), strict=True)
    }
    left_out, temperature = _mixed_left_out(staged, Path(folder), choice["members"])
    with single_threaded_blas():
        made = make_model(
            staged.specification,
            Judged(
                of("judged"),
                staged.data,
                None if staged.data.rows.held_out.any() else left_out,
                temperature,
            ),
            Kept(of(kept), staged.fits[kept], [check for found in checks.values() for check in found]),
            version=staged.described["version"],
            candidates=[
                {**row, "weight": w, "share": shares.get(i, 0.0), "checks": checks.get(i, [])}
                for i, (row, w) in enumerate(zip(rows, choice["weights"], strict=True))
            ],
            selected=choice["selected"],
            described=staged.described,
            code_version=code_version(),
            shifted=read_shift(Path(folder)),
        )
        stored = save_model(store, made, staged.fits[kept])
    if store.champion(stored.name) is None:
        store.promote(stored, why="the first of its name")
    return store.described(made.model, "trained")


def _mixed_left_out(
    staged: StagedTraining, folder: Path, members: Sequence[tuple[int, float]]
) -> tuple[Floats | None, Temperature | None]:
    """Return the rows' left-out probabilities (N, K) under the mixture that makes the model, and its temperature.

    The probabilities are at that temperature.  None and None where nothing was left out.  There is no temperature where
    labels may be wrong: the probabilities are of what was recorded then.
    """
    files = [folder / f"candidate-{index:03d}.npy" for index, _ in members]
    if not all(path.is_file() for path in files):
        return None, None
    parts = [np.load(path, allow_pickle=False) for path in files]
    left_out = np.asarray(sum(share * p for (_, share), (p, _) in zip(members, parts, strict=True)))
    if staged.specification.select.temperature == "none" or staged.data.rows.confusion is not None:
        return left_out, None
    temperature = estimate_temperature(left_out, parts[0][1])
    return left_out if temperature is None else temperature.scaled(left_out), temperature


@dataclass(frozen=True)
class Steps:
    """The tasks; `flows.train` puts Prefect's in their place."""

    ingest: Callable[[Request], Json] = ingest
    fit: Callable[[str, int, int | None], Json] = fit
    choose: Callable[[str, Sequence[Row]], Json] = choose
    refine: Callable[[str, int, int | None], str] = refine
    save: Callable[[str, Sequence[Row], Row, Mapping[str, float], Store], Json] = save


DIRECT = Steps()


def train(
    specification: Specification | str | Path,
    store: str | Path,
    *,
    overwrite: bool = False,
    limit: int | None = None,
    threads: int | None = None,
    dry_run: bool = False,
    steps: Steps = DIRECT,
) -> Json:
    """Fit all candidates of a specification, save the best; return what was done, as JSON can hold it.

    `limit` is a trial: that many rows are read, and nothing is kept.
    """
    place = Store.named(store)
    request = Request(read_specification(specification), place, overwrite, limit, dry_run)
    if limit is not None and not dry_run:
        with tempfile.TemporaryDirectory(prefix="blr-trial-") as folder:
            trial = replace(request, store=Store(Path(folder), temporary=True), overwrite=False)
            return _trained(trial, steps, threads) | {"status": "trial", "path": None}
    return _trained(request, steps, threads)


def _trained(request: Request, steps: Steps, threads: int | None) -> Json:
    specification, store = request.specification, request.store
    found = steps.ingest(request)
    named = ModelReference(specification.name, found["version"])
    if request.dry_run:
        return {"status": "planned", "model": named.label, "store": str(store.root), **found}
    if "folder" not in found:
        return store.described(store.read(store.at(named.name, named.version)), "exists")
    folder, n = found["folder"], len(specification.candidate)
    tell().start("fitting candidates", n, "candidates")
    rows = []
    with exclusive(Path(folder)), stop_points("run the same command again to go on from there") as stop:
        for index in range(n):
            stop()
            rows.append(steps.fit(folder, index, threads))
            tell().advance(1)
        choice = steps.choose(folder, rows)
        members = {steps.refine(folder, index, threads): share for index, share in choice["members"]}
        result = steps.save(folder, rows, choice, members, store)
    shutil.rmtree(folder)
    return result
