"""What changed from one release to the next, and what another model would change in the last one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import TypedDict

from blr.arrays import Array
from blr.census.results import CountChange, count_changes
from blr.decisions import FLAG_MEANINGS
from catalogs.arrays import batch_values, hashed
from catalogs.catalog.catalog import BATCH_ROWS, Catalog
from catalogs.catalog.new_columns import safe_name
from catalogs.errors import CatalogError
from catalogs.files import own_folder
from catalogs.formats import open_annotated
from flows.classification.scoring import Scorer, settled
from flows.documents import utc_now, write_document
from flows.inputs.opening import first_rows
from flows.models.model import Model
from flows.request import PromoteRequest
from flows.runs.manifest import Manifest, Problem, annotated_manifest
from flows.runs.references import check_inside
from flows.runs.results import (
    Difference,
    MovedObject,
    ReleaseReference,
    ReleaseResult,
    SampledChange,
    Summary,
    Transition,
)

# The differences between two annotations of a file: objects with another class, other flags, other probabilities.
# Both files are read in batches.  Rows are matched by their order if the input is the same, otherwise by id.
# Matching by id takes several passes, each over the ids whose hash has one remainder, so that memory is bounded for
# any catalogue. Shapes: n rows, K classes.

MOVED = 0.1
"""Change in the probability of some class from which an object counts as moved."""
ROWS_AT_ONCE = 2_000_000
"""Rows of the old file held in memory when matching by id: some 100 MB."""
MOST_EXAMPLES = 20
"""Most objects of a file that are named, those whose probabilities changed most."""


Annotation = tuple[Path, str, tuple[str, ...]]
"""An annotation: its file, the prefix of its columns, and its classes."""


RowsWithIds = Iterator[tuple[Array, Array]]
"""Batches of an annotation."""


def compare(old: Annotation, new: Annotation, *, id_column: str | None, by_row: bool) -> Difference:
    """Return the differences of a file's annotation from the one before.

    `by_row` says that the rows are the same ones in the same order.  `id_column` names the objects.
    """
    (old_path, old_prefix, old_classes), (new_path, new_prefix, new_classes) = old, new
    shared = [c for c in new_classes if c in old_classes]
    before, after = open_annotated(old_path, old_prefix), open_annotated(new_path, new_prefix)
    known = id_column if id_column in before.names and id_column in after.names else None
    names = ("", *dict.fromkeys([*old_classes, *new_classes]))
    read = partial(_rows, shared=shared, id_column=known, names=names)
    if by_row and before.n_rows == after.n_rows:
        pairs = zip(read(before, old_prefix), read(after, new_prefix), strict=True)
        return replace(total_difference([_difference(a, *b, names) for (a, _), b in pairs]), matched_by="row")
    if known is None:
        nothing = total_difference(())
        return replace(nothing, matched_by="nothing", appeared=after.n_rows, vanished=before.n_rows)
    passes = 1 + before.n_rows // ROWS_AT_ONCE
    parts = [
        part
        for residue in range(passes)
        for part in _by_id(read(before, old_prefix), read(after, new_prefix), names, residue, passes)
    ]
    return replace(total_difference(parts), matched_by="id")


def _difference(old: Array, new: Array, ids: Array, names: Sequence[str]) -> Difference:
    """Return the differences between rows that match; `names` are the classes by number, the first for no class."""
    changed = old["class"] != new["class"]
    codes = old["class"][changed] * len(names) + new["class"][changed]
    pairs, counts = np.unique(codes, return_counts=True)
    gained, lost = (
        {str(flag.name): int(np.count_nonzero(bits & int(flag))) for flag in FLAG_MEANINGS}
        for bits in (new["flags"] & ~old["flags"], old["flags"] & ~new["flags"])
    )
    # An object without a probability before or after has no change of probability: its class changed.
    moves = np.nan_to_num(np.abs(new["p"] - old["p"]).max(axis=1, initial=0.0))
    chosen = np.flatnonzero(changed | (moves > MOVED))
    first = chosen[np.argsort(-moves[chosen], kind="stable")[:MOST_EXAMPLES]]
    return Difference(
        matched_by="",
        compared=len(new),
        appeared=0,
        vanished=0,
        class_changed=int(np.count_nonzero(changed)),
        transitions=tuple(
            Transition(was=names[pair // len(names)], now=names[pair % len(names)], objects=n)
            for pair, n in zip(pairs.tolist(), counts.tolist(), strict=True)
        ),
        flag_changed=int(np.count_nonzero(old["flags"] != new["flags"])),
        flags_gained=gained,
        flags_lost=lost,
        moved=int(np.count_nonzero(moves > MOVED)),
        largest_move=float(moves.max(initial=0.0)),
        examples=tuple(
            MovedObject(
                id=str(ids[i]),  # Text from a catalogue, which has to be escaped where it is shown.
                was=names[old["class"][i]],
                now=names[new["class"][i]],
                moved=round(float(moves[i]), 6),
            )
            for i in first.tolist()
        ),
    )


def _rows(
    catalog: Catalog, prefix: str, *, shared: Sequence[str], id_column: str | None, names: Sequence[str]
) -> RowsWithIds:
    """Yield the rows (n,) of an annotation, and their ids as in the file: class by number, hash of the id, and so on.

    They have the probabilities of the `shared` classes.
    """
    class_column, *others = (
        f"{prefix}{name}" for name in ("class", "flags", *(f"p_{safe_name(c)}" for c in shared))
    )
    read, start = [*others, *([id_column] if id_column else [])], 0
    kind = np.dtype([("hash", "u8"), ("class", "i8"), ("flags", "i8"), ("p", "f4", (len(shared),))])
    for batch in catalog.batches([class_column, *read], BATCH_ROWS):
        rows, values = np.zeros(batch.num_rows, kind), batch_values(batch, read)
        # Classes as numbers: a text for each row would take longer than the classification.
        numbers = pc.index_in(batch.column(class_column).cast(pa.string()), pa.array(names, pa.string()))
        rows["class"], rows["flags"] = numbers.fill_null(0), values[others[0]]
        for k, name in enumerate(others[1:]):
            rows["p"][:, k] = values[name]
        ids = np.ma.getdata(values[id_column]) if id_column else np.arange(start, start + len(rows))
        if id_column:
            rows["hash"] = hashed(ids)
        yield rows, ids
        start += len(rows)


def _by_id(
    before: RowsWithIds, after: RowsWithIds, names: Sequence[str], residue: int, passes: int
) -> Iterator[Difference]:
    """Compare the rows whose hash of the id has that residue; only the first of rows with the same id counts."""
    held = [rows[rows["hash"] % np.uint64(passes) == residue] for rows, _ in before]
    old = np.concatenate(held) if held else np.zeros(0, [("hash", "u8")])
    keys, first = np.unique(old["hash"], return_index=True)
    met, nothing = np.zeros(len(keys), dtype=bool), total_difference(())
    for rows, ids in after:
        mine = np.flatnonzero(rows["hash"] % np.uint64(passes) == residue)
        new = rows[mine]
        place = np.minimum(np.searchsorted(keys, new["hash"]), max(len(keys) - 1, 0))
        there = keys[place] == new["hash"] if len(keys) else np.zeros(len(new), dtype=bool)
        met[place[there]] = True
        found = nothing
        if there.any():
            found = _difference(old[first[place[there]]], new[there], ids[mine[there]], names)
        yield replace(found, appeared=int(np.count_nonzero(~there)))
    yield replace(nothing, vanished=int(np.count_nonzero(~met)))


def total_difference(parts: Sequence[Difference]) -> Difference:
    """Return several differences together, with the examples whose probabilities changed most."""
    transitions, gained, lost = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    for part in parts:
        transitions.update({(t["was"], t["now"]): t["objects"] for t in part.transitions})
        gained.update(part.flags_gained)
        lost.update(part.flags_lost)
    examples = sorted((e for part in parts for e in part.examples), key=lambda e: (-e["moved"], e["id"]))
    return Difference(
        matched_by=", ".join(sorted({part.matched_by for part in parts})),
        compared=sum(part.compared for part in parts),
        appeared=sum(part.appeared for part in parts),
        vanished=sum(part.vanished for part in parts),
        class_changed=sum(transitions.values()),
        transitions=tuple(
            Transition(was=was, now=now, objects=n) for (was, now), n in sorted(transitions.items())
        ),
        flag_changed=sum(part.flag_changed for part in parts),
        flags_gained=dict(gained),
        flags_lost=dict(lost),
        moved=sum(part.moved for part in parts),
        largest_move=round(max((part.largest_move for part in parts), default=0.0), 6),
        examples=tuple(examples[:MOST_EXAMPLES]),
    )


# The reports of releases, such as `_releases/0007.json`: one small file for each release, kept for ever.

RELEASES = "_releases"
SCHEMA_VERSION = 1
MOST_NAMED = 100
"""Most objects that a report names, those whose probabilities changed most."""


class ReleaseFiles(TypedDict):
    """Numbers of files: unchanged ones, annotated ones by the reason, and those without an earlier copy.

    `not_compared` has the number of `files` without an earlier copy, and of their `rows`.
    """

    unchanged: int
    annotated: Mapping[str, int]
    not_compared: Mapping[Literal["files", "rows"], int]


class ReleasedFile(TypedDict):
    """Why a file was annotated, its number of rows, and its difference from the copy before; None for a new file."""

    why: str
    rows: int
    difference: Difference | None


@dataclass(frozen=True, kw_only=True)
class ReleaseReport:
    """What a release has changed since the release `before`, given without its totals; None for the first one.

    `annotated` are the files that were annotated for it, and `retired` those that were moved away.  `deferred` says why
    a file is left for the next run.  `counts` says how many more objects of each class there are, with intervals.
    """

    format: str
    schema_version: int
    release: int
    created: str
    model: str
    specification_hash: str
    before: ReleaseReference | None
    files: ReleaseFiles
    annotated: Mapping[str, ReleasedFile]
    retired: tuple[str, ...]
    quarantined: tuple[Problem, ...]
    deferred: Mapping[str, str]
    difference: Difference
    totals: Summary
    counts: Mapping[str, CountChange] = field(default_factory=dict)


def release_report(
    manifest: Manifest, totals: Summary, done: ReleaseResult, why: Mapping[str, str]
) -> ReleaseReport:
    """Return what a release has changed since the one before; `why` says by name which files were annotated."""
    before = done.before
    annotated = [o for o in manifest.outputs if o.name in why]
    compared = {o.name: o.difference for o in annotated if o.difference is not None}
    new = [o for o in annotated if o.difference is None]
    moved: list[MovedObject] = [{"file": name, **e} for name, d in compared.items() for e in d.examples]
    furthest = sorted(moved, key=lambda e: (-e["moved"], e["file"], e["id"]))[:MOST_NAMED]
    return ReleaseReport(
        format="blr-release",
        schema_version=SCHEMA_VERSION,
        release=manifest.release,
        created=utc_now(),
        model=manifest.model,
        specification_hash=manifest.specification_hash,
        before=before and replace(before, totals=None),
        files=ReleaseFiles(
            unchanged=len(manifest.outputs) - len(annotated),
            annotated=dict(Counter(why[o.name] for o in annotated)),
            not_compared={"files": len(new), "rows": sum(o.n_rows for o in new)},
        ),
        annotated={
            o.name: ReleasedFile(
                why=why[o.name], rows=o.n_rows, difference=o.difference and replace(o.difference, examples=())
            )
            for o in annotated
        },
        retired=done.retired,
        quarantined=manifest.quarantined,
        deferred=done.deferred,
        difference=replace(total_difference(list(compared.values())), examples=tuple(furthest)),
        totals=totals,
        counts=count_changes(
            None if before is None or before.totals is None else before.totals.census, totals.census
        ),
    )


def write_report(folder: Path, report: ReleaseReport) -> Path:
    """Write the report of a release; return where it is.

    A report of the same number may be there already.  That of a killed run is replaced.  That of the same release,
    whose lost files were made again, is kept.
    """
    path = folder / RELEASES / f"{report.release:04d}.json"
    if report.before and report.before.release == report.release and path.is_file():
        return path
    own_folder(path.parent, folder)
    write_document(path, report)
    return path


# What a challenger would change in the last release: both models classify a sample, and nothing is written.

MOST_ROWS = 20_000
MOST_FILES = 20
"""Files and rows of the sample: two models score them in a second or two."""


def in_release(request: PromoteRequest, champion: Model, challenger: Model) -> SampledChange | None:
    """Return what a challenger would change in the last release; None where none is found, or none of it is read.

    That is in the folder which the request names, or in the specification's if that has a release of the name.  The
    first rows of up to twenty files, spread over the release, are read from the inputs, as a release would be made.
    Inputs at URLs, and those that have gone, are left out.  UsageError if the named folder has no manifest.
    """
    folder = request.release
    if folder is None:
        folder = Path(champion.specification.output.folder)
        known = Manifest.read(folder)
        if known is None or known.model_name != champion.name:
            return None
    manifest = annotated_manifest(check_inside(folder, key="release"))
    n_files = len(manifest.outputs)
    spread = np.linspace(0, n_files - 1, min(n_files, MOST_FILES)).round().astype(int)
    places = [
        folder / manifest.outputs[i].input_path for i in spread if "://" not in manifest.outputs[i].input_path
    ]
    inputs = [check_inside(path, key="release") for path in places if path.exists()]
    transitions: Counter[tuple[str, str]] = Counter()
    compared = files = 0
    troubles: list[str] = []
    for path in inputs:
        try:
            limit = MOST_ROWS // len(inputs)
            pairs = [*zip(*(_assigned(model, path, limit) for model in (champion, challenger)), strict=True)]
        except CatalogError as error:
            troubles.append(f"{path.name}: {error}")
            continue
        files += 1
        compared += len(pairs)
        transitions.update(pair for pair in pairs if pair[0] != pair[1])
    if not compared and not troubles:
        return None
    return SampledChange(
        folder=str(folder),
        release=manifest.release,
        n_files=n_files,
        n_rows=sum(o.n_rows for o in manifest.outputs),
        files=files,
        compared=compared,
        changed=sum(transitions.values()),
        transitions=tuple(
            Transition(was=was, now=now, objects=n) for (was, now), n in transitions.most_common()
        ),
        troubles=tuple(troubles),
    )


def _assigned(model: Model, path: Path, limit: int) -> Iterator[str]:
    """Yield the class of each of the first rows of a file, as `reprocess` would write it."""
    scorer = Scorer.of(model, settled(model, model.specification))
    catalog = scorer.choice.open(path)
    here = scorer.on(catalog)
    for batch in first_rows(catalog, here.reader.read, limit):
        yield from here(batch)[scorer.prefix + "class"].tolist()
