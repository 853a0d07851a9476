"""An audit's design, in `audit_design.json`: how its objects are drawn by stratum, at random.

Classes and bins are named; a stratum is known by its place in the design.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from typing_extensions import TypedDict

from blr.arrays import Floats, Places
from blr.census.audit import allocated, cut_levels, level_edges, uncertainty
from catalogs.expressions.expression import Expression, parse
from flows.documents import write_document
from flows.errors import UsageError
from flows.request import AuditDrawRequest
from flows.reviews import _lists as lists
from flows.runs.lock import exclusive
from flows.runs.manifest import Manifest, annotated_manifest
from flows.runs.release_store import output_folder

DESIGN: Final = "audit_design.json"


class AuditStratum(TypedDict):
    """A stratum: objects of one class, the most probable one, whose probability is in [low, high), in one bin.

    `n_drawn` of its `n_rows` objects were drawn.  `bin` is '' where the audit has no bins.
    """

    class_given: str
    low: float
    high: float
    bin: str
    n_rows: int
    n_drawn: int


class DrawnObject(TypedDict):
    """A drawn object: its name, its stratum's place in the design, its probabilities in the order of the classes."""

    id: str
    stratum: int
    probabilities: tuple[float, ...]


class Selection(TypedDict):
    """The objects whose probability of a class is `threshold` or more."""

    class_name: str
    threshold: float


@dataclass(frozen=True, kw_only=True)
class AuditDesign:
    """From what and how the objects were drawn.

    `outputs` is a hash of the annotated copies' bytes: other copies are another population.  `id` is the column that
    names an object, `by` the expression of the bins.
    """

    format: Literal["blr-audit"]
    model: str
    release: int
    outputs: str
    id: str
    seed: int
    by: str | None
    bins: tuple[str, ...]
    classes: tuple[str, ...]
    n_rows: int
    selections: tuple[Selection, ...]
    strata: tuple[AuditStratum, ...]
    objects: tuple[DrawnObject, ...]


@dataclass(frozen=True, kw_only=True)
class AuditDraw:
    """What was drawn, and where the lists are; `files` is empty where nothing was written."""

    status: Literal["planned", "done"]
    model: str
    out: Path
    id: str
    n_rows: int
    n_drawn: int
    bins: tuple[str, ...]
    strata: tuple[AuditStratum, ...]
    remarks: tuple[str, ...]
    files: tuple[Path, ...]


# Two passes over the catalogues: one finds the strata, one draws.  Shapes: K classes, G levels, H strata, n rows.

PER_STRATUM = 16  # objects of a stratum on average, from which follows how many strata there are
MOST_STRATA = 16
DrawnRow = tuple[str, float, float, tuple[float, ...]]
"""A drawn row: name, position, probabilities."""


class _Tally:
    """Rows counted by place: how many (H,), and the sums of their probabilities (H, K)."""

    def __init__(self, places: int, K: int) -> None:
        self.counts, self.sums = np.zeros(places, dtype=np.int64), np.zeros((places, K))

    def add(self, place: Places, probability: Floats) -> None:
        """Count rows by their places (n,) and probabilities (n, K)."""
        places = len(self.counts)
        self.counts += np.bincount(place, minlength=places)
        for k, column in enumerate(probability.T):
            self.sums[:, k] += np.bincount(place, weights=column, minlength=places)


class _Strata:
    """Which stratum a row is of: of each class, bin and piece (K, B, P), from a first pass over the rows.

    `piece` (K, G) is -1 at empty levels.  `share` (K,) is that of each class.
    """

    def __init__(
        self,
        tables: Sequence[lists.ObjectTable],
        request: AuditDrawRequest,
        by: Expression | None,
        selections: Sequence[Selection],
    ) -> None:
        self.classes = classes = tables[0].classes
        self.edges = level_edges(sorted({s["threshold"] for s in selections}))
        K, G = len(classes), len(self.edges) + 1
        tally, sample = _Tally(K * G, K), lists.ValueSample(np.random.default_rng([request.seed, 1]))
        for table in tables:
            for rows in table.rows(by=by):
                tally.add(rows.given * G + self._levels(rows), rows.probability)
                if rows.by is not None:
                    sample.add(rows.by)
        counts = tally.counts
        if not counts.any():
            raise UsageError(
                "OUT: no row has a class, so nothing can be drawn; the flag UNCLASSIFIABLE tells why"
            )
        self.bins = lists.ALL if by is None else lists.bins_of(by.text, sample, request.bins, request.edges)
        self.share = np.maximum(tally.sums.sum(axis=0) / counts.sum(), 1 / request.n)
        deviation = uncertainty(tally.sums / np.maximum(counts, 1)[:, None], self.share).reshape(K, G)
        begins = np.zeros((K, G), dtype=bool)
        for s in selections:
            level = np.searchsorted(self.edges, s["threshold"], side="right")
            begins[classes.index(s["class_name"]), level] = True
        wanted = min(request.n // PER_STRATUM, MOST_STRATA) // len(self.bins.names)
        self.piece = cut_levels(counts.reshape(K, G), deviation, wanted, begins)
        self.n_pieces = int(self.piece.max()) + 1

    def _levels(self, rows: lists.ObjectRows) -> Places:
        given = rows.probability[np.arange(len(rows.given)), rows.given]
        return np.searchsorted(self.edges, given, side="right")

    def places(self, rows: lists.ObjectRows) -> Places:
        """Return the place (n,) of each row's stratum, of K B P."""
        within = self.piece[rows.given, self._levels(rows)]
        return (rows.given * len(self.bins.names) + rows.places(self.bins)) * self.n_pieces + within

    def stratum(self, at: int, n_rows: int, n_drawn: int) -> AuditStratum:
        """Return the stratum at a place: its class, its bin, and from where to where the probability reaches."""
        rest, piece = divmod(at, self.n_pieces)
        k, b = divmod(rest, len(self.bins.names))
        levels = np.flatnonzero(self.piece[k] == piece)
        bounds = np.concatenate([[0.0], self.edges, [1.0]])
        return AuditStratum(
            class_given=self.classes[k],
            low=float(bounds[levels[0]]),
            high=float(bounds[levels[-1] + 1]),
            bin=self.bins.names[b],
            n_rows=n_rows,
            n_drawn=n_drawn,
        )


def _drawn_rows(
    tables: Sequence[lists.ObjectTable], n: int, seed: int, by: Expression | None, cuts: _Strata
) -> tuple[list[AuditStratum], list[tuple[int, DrawnRow]]]:
    """Return the strata, and `n` rows drawn from them in random order, each with its stratum's place.

    A stratum's rows with the smallest random numbers are a random sample of any size up to `n`.
    """
    places = len(cuts.classes) * len(cuts.bins.names) * cuts.n_pieces
    tally, largest = _Tally(places, len(cuts.classes)), np.full(places, np.inf)
    lowest: list[list[tuple[float, DrawnRow]]] = [[] for _ in range(places)]
    rng = np.random.default_rng([seed, 0])
    for table in tables:
        for rows in table.rows(by=by):
            place = cuts.places(rows)
            tally.add(place, rows.probability)
            key = rng.random(len(place))
            for i in np.flatnonzero(key < largest[place]).tolist():
                p = tuple(rows.probability[i].tolist())
                row = (str(rows.names[i]), float(rows.ra[i]), float(rows.dec[i]), p)
                lowest[place[i]].append((float(key[i]), row))
            for at in np.unique(place).tolist():
                lowest[at] = sorted(lowest[at])[:n]
                largest[at] = lowest[at][-1][0] if len(lowest[at]) == n else np.inf
    filled = np.flatnonzero(tally.counts)
    counts = tally.counts[filled]
    try:
        sizes = allocated(counts, uncertainty(tally.sums[filled] / counts[:, None], cuts.share), n)
    except ValueError as error:
        raise UsageError(
            f"--n: got {n} objects for {len(filled)} strata of class, probability and bin, expected at least "
            f"two for each stratum; draw {2 * len(filled)} or more, or use fewer bins"
        ) from error
    strata, drawn = [], []
    for h, (at, size) in enumerate(zip(filled.tolist(), sizes.tolist(), strict=True)):
        strata.append(cuts.stratum(at, int(counts[h]), size))
        drawn += [(h, row) for _, row in lowest[at][:size]]
    return strata, [drawn[i] for i in rng.permutation(len(drawn))]


def draw_audit(request: AuditDrawRequest, *, dry_run: bool = False) -> AuditDraw:
    """Draw objects of a folder that `classify` has written, and write the lists; return what was drawn.

    UsageError where the folder has no classes, an expression or a class is not known, or a list is there already.
    """
    with output_folder(request.out, key="out", publish=not dry_run) as folder:
        return _drawn(request, folder, dry_run=dry_run)


def _drawn(request: AuditDrawRequest, folder: Path, *, dry_run: bool) -> AuditDraw:
    manifest = annotated_manifest(folder)
    _check_free(folder, overwrite=request.overwrite)
    classes = tuple(manifest.classes)
    selections = selections_of(request.threshold or (), classes)
    tables = lists.object_tables(folder, manifest, request.identifier)
    if not tables:
        raise UsageError(
            f"{folder}: got a folder without annotated catalogues; classify a catalogue into it first"
        )
    by = parse(request.by) if request.by is not None else None
    cuts = _Strata(tables, request, by, selections)
    strata, drawn = _drawn_rows(tables, request.n, request.seed, by, cuts)
    identifier = tables[0].identifier
    design = AuditDesign(
        format="blr-audit",
        model=manifest.model,
        release=manifest.release,
        outputs=outputs_hash(manifest),
        id=identifier,
        seed=request.seed,
        by=request.by,
        bins=() if by is None else cuts.bins.names,
        classes=classes,
        n_rows=sum(s["n_rows"] for s in strata),
        selections=selections,
        strata=tuple(strata),
        objects=tuple(DrawnObject(id=name, stratum=h, probabilities=p) for h, (name, _, _, p) in drawn),
    )
    files: list[Path] = []
    if not dry_run:
        listed: list[lists.ListedObject] = []
        for h, (name, ra, dec, _) in drawn:
            share = strata[h]["n_drawn"] / strata[h]["n_rows"]
            row = {"name": name, "ra": ra, "dec": dec, "stratum": h}
            listed.append(row | {"inclusion_probability": share, "weight": 1 / share})
        with exclusive(folder):
            _check_free(folder, overwrite=request.overwrite)
            write_document(folder / DESIGN, design)
            title = lists.AUDIT_TITLE.format(manifest.model)
            files = lists.write_list(lists.AUDIT_LIST, listed, folder, identifier, classes, title)
            files.append(folder / DESIGN)
    return AuditDraw(
        status="planned" if dry_run else "done",
        model=manifest.model,
        out=folder,
        id=identifier,
        n_rows=design.n_rows,
        n_drawn=len(drawn),
        bins=design.bins,
        strata=design.strata,
        remarks=tuple(table.remark for table in tables if table.remark),
        files=tuple(files),
    )


def selections_of(thresholds: Sequence[tuple[str, float]], classes: Sequence[str]) -> tuple[Selection, ...]:
    """Return selections by class and threshold, each once; UsageError where a class is not known."""
    for name, _ in thresholds:
        if name not in classes:
            raise UsageError(f"--threshold: got the class '{name}', expected one of {', '.join(classes)}")
    once = dict.fromkeys((name, float(value)) for name, value in thresholds)
    return tuple(Selection(class_name=name, threshold=value) for name, value in once)


def outputs_hash(manifest: Manifest) -> str:
    """Return a hash of the names and the bytes of all annotated copies."""
    lines = sorted(f"{output.name} {output.sha256}" for output in manifest.outputs)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _check_free(folder: Path, *, overwrite: bool) -> None:
    """Raise UsageError where a list would be lost: an earlier one, or one with answers whatever the options."""
    there = [folder / name for name in (f"{lists.AUDIT_LIST}.csv", DESIGN) if (folder / name).exists()]
    if there and not overwrite:
        raise UsageError(
            f"{there[0]}: an audit was drawn here already; estimate from it (`blr audit estimate`), "
            "or draw another with --overwrite, after which the answers to this one no longer count"
        )
    lists.check_unanswered(folder, lists.AUDIT_LIST)
