"""An audit is drawn: objects by stratum, at random, for a person to classify; and the answers are read."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import catalogs
from blr.census.strata import allocated, cut_levels, level_edges, uncertainty
from catalogs.arrays.values import batch_values
from catalogs.errors import brief, nearest
from catalogs.expressions.expression import Expression, parse
from flows.documents import write_document
from flows.errors import UsageError
from flows.labels.reader import is_doubtful, label_texts, require_exact
from flows.labels.reviews import MARK, listed_name, plain
from flows.reviews._files import AUDIT_NAME, Listed, audit_title, check_unanswered, write_audit_lists
from flows.reviews._population import (
    Bins,
    ClassifiedRows,
    ObjectTable,
    ValueSample,
    annotated_manifest,
    classified_rows,
    object_tables,
)
from flows.reviews.audits import DESIGN, AuditDesign, AuditDraw, AuditStratum, DrawnObject, Selection
from flows.reviews.request import AuditDrawRequest
from flows.runs.lock import exclusive
from flows.runs.manifest import Manifest
from flows.runs.release_store import output_folder

__all__ = [
    "OTHER",
    "UNDECIDED",
    "Answers",
    "Drawing",
    "DrawnRow",
    "draw_audit",
    "draw_sample",
    "outputs_hash",
    "read_answers",
    "read_labels",
    "selections_of",
]

# Answers of people to the objects of a list, by the object's name.

OTHER = -1
"""The place of the answer "other": of no class of the model."""
UNDECIDED = -2
"""The place of an answer that says that nobody can tell."""
OTHER_WORD = "other"
COLUMNS = ("label", "class")
"""Columns that may hold the answer."""
SHOWN = 5


@dataclass(frozen=True)
class Answers:
    """The place of each object's class by the object's name, in the order of the classes; `OTHER`, or `UNDECIDED`."""

    places: Mapping[str, int]


def read_answers(
    paths: Sequence[Path], identifier: str, drawn: Sequence[str], classes: Sequence[str], asked: str
) -> Answers:
    """Return the answers in tables to objects that were drawn; what is blank is no answer.

    `asked` is the hash of the list that asked; rows that bear the mark of a list bear that of this one.

    UsageError where an answer is no class, is of an object that was not drawn, or contradicts another.
    """
    times = Counter(drawn)
    places: dict[str, int] = {}
    for path in paths:
        texts = _texts(path, identifier, tuple(times), asked)
        strange = [name for name, _ in texts if name not in times]
        if strange:
            shown = ", ".join(f"'{brief(name)}'" for name in strange[:SHOWN])
            raise UsageError(
                f"{path}: got answers to {len(strange)} objects that were not drawn ({shown}), expected "
                "answers to the objects of the list only, since others have no weight; remove their rows"
            )
        for name, count in Counter(name for name, _ in texts).items():
            if count > times[name]:
                raise UsageError(
                    f"{path}: got {count} answers to '{brief(name)}', expected one for each row of the list; "
                    "remove the others, even if they agree"
                )
        for name, text in texts:
            place = _place(text, classes)
            if place is None:
                raise UsageError(
                    f"{path}: got '{brief(text)}' for '{brief(name)}', expected a class of the model, 'other' for an "
                    f"object of no class, or '?' for one that cannot be decided; {nearest(text, classes)}"
                )
            if places.setdefault(name, place) != place:
                raise UsageError(
                    f"{path}: got '{brief(text)}' for '{brief(name)}', but a different answer in an earlier "
                    "row, expected one answer for each object; make them equal, or answer '?'"
                )
    return Answers(places)


def read_labels(path: Path, identifier: str, classes: Sequence[str], drawn: Sequence[str]) -> dict[str, str]:
    """Return the classes of the drawn objects that a table of labels knows; contradictions are left out."""
    known, contradicted = set(drawn), set()
    labels: dict[str, str] = {}
    for name, text in _texts(path, identifier, drawn):
        place = _place(text, classes)
        if name not in known or place is None or place < 0:
            continue
        if labels.setdefault(name, classes[place]) != classes[place]:
            contradicted.add(name)
    return {name: label for name, label in labels.items() if name not in contradicted}


def _place(text: str, classes: Sequence[str]) -> int | None:
    """Return the place of an answer; None where it is no class."""
    if text in classes:
        return classes.index(text)
    folded = [name.casefold() for name in classes]
    if folded.count(text.casefold()) == 1:
        return folded.index(text.casefold())
    if text.casefold() == OTHER_WORD:
        return OTHER
    return UNDECIDED if is_doubtful(text) else None


def _texts(
    path: Path, identifier: str, drawn: Sequence[str], asked: str | None = None
) -> list[tuple[str, str]]:
    """Return the names and the answers of a table, as far as there is one; `asked` is the hash of its list."""
    table = catalogs.open(path)
    key = next((name for name in (identifier, "id") if name in table.names), None)
    if key is None:
        raise UsageError(
            f"{path}: got a table without the column '{identifier}', which names the objects; "
            f"{nearest(identifier, table.names)}"
        )
    column = next((name for name in COLUMNS if name in table.names), None)
    if column is None:
        raise UsageError(
            f"{path}: got a table without the column 'label', which holds the answers; {nearest('label', table.names)}"
        )
    texts: list[tuple[str, str]] = []
    # A program that read 007 as a number has written 7.
    by_number = {_number(name): name for name in reversed(drawn)}
    marked = [MARK] if MARK in table.names else []
    for batch in table.batches([key, column, *marked]):
        values = batch_values(batch, [key, column, *marked])
        require_exact(values[key], str(path), key)
        numbered = values[key].dtype.kind in "iuf"
        names = label_texts(values[key]).tolist()
        marks = label_texts(values[MARK]).tolist() if marked else [""] * len(names)
        for read, text, mark in zip(names, label_texts(values[column]).tolist(), marks, strict=True):
            if not (read and text):
                continue
            known = by_number.get(_number(read), read) if numbered else read
            name = listed_name(known, mark) if marked else known
            if name is None or (mark and asked and not mark.startswith(f"{asked}-")):
                raise UsageError(
                    f"{path}: got an answer to '{brief(read)}' of another list or object than its '{MARK}' names, "
                    "expected answers to the list that was drawn last, each beside its object; copy them into that list"
                )
            texts.append((name, plain(text) if marked else text))
    return texts


def _number(name: str) -> str:
    return name.lstrip("0") or "0" if name.isdecimal() else name


# A stratified random sample of annotated catalogues, in two passes and bounded memory.
#
# The first pass counts classes by their probability and finds the strata; the second counts the strata, and keeps of
# each the objects with the smallest random numbers.  Shapes: K classes, G levels, H strata, n rows.

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Places = NDArray[np.intp]

PER_STRATUM = 16
"""Objects of a stratum on average, from which follows how many strata there are."""
MOST_STRATA = 16


@dataclass(frozen=True)
class DrawnRow:
    """A drawn row, with all that the lists and the design say of it."""

    name: str
    ra: float
    dec: float
    stratum: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Drawing:
    """The strata, their bins, and the drawn rows in random order."""

    n_rows: int
    bins: Bins
    strata: tuple[AuditStratum, ...]
    rows: tuple[DrawnRow, ...]


@dataclass(frozen=True, eq=False)
class _Cuts:
    """Which stratum a row is of: of each class, bin and piece (K, B, P).  `piece` (K, G) is -1 at empty levels."""

    edges: Floats
    piece: Places
    n_pieces: int
    bins: Bins

    def places(self, rows: ClassifiedRows) -> Places:
        """Return the place (n,) of each row's stratum, of K B P."""
        level = _levels(rows, self.edges)
        within = self.piece[rows.given, level]
        by = self.bins.places(rows.by, len(rows.given))
        return (rows.given * len(self.bins.names) + by) * self.n_pieces + within

    def range(self, k: int, piece: int) -> tuple[float, float]:
        """Return from where to where the probability of the class reaches in a piece."""
        levels = np.flatnonzero(self.piece[k] == piece)
        bounds = np.concatenate([[0.0], self.edges, [1.0]])
        return float(bounds[levels[0]]), float(bounds[levels[-1] + 1])


def draw_sample(
    tables: Sequence[ObjectTable],
    classes: Sequence[str],
    n: int,
    *,
    seed: int,
    by: Expression | None = None,
    n_bins: int = 3,
    edges: Sequence[float] | None = None,
    selections: Sequence[Selection] = (),
) -> Drawing:
    """Return `n` rows drawn from strata of class, probability and bin; UsageError where there are too few for those."""
    level_at = level_edges(sorted({s.threshold for s in selections}))
    counts, probability, sample = _survey(tables, classes, by, level_at, seed)
    n_rows = int(counts.sum())
    if not n_rows:
        raise UsageError(
            "OUT: no row has a class, so nothing can be drawn; the flag UNCLASSIFIABLE tells why"
        )
    bins = Bins.of(by.text, sample, n_bins, edges) if by is not None else Bins()
    share = np.maximum(probability.sum(axis=(0, 1)) / n_rows, 1 / n)
    deviation = uncertainty(probability / np.maximum(counts, 1)[..., None], share)
    begins = np.zeros(counts.shape, dtype=bool)
    for s in selections:
        begins[classes.index(s.class_name), np.searchsorted(level_at, s.threshold, side="right")] = True
    wanted = min(n // PER_STRATUM, MOST_STRATA) // len(bins.names)
    piece = cut_levels(counts, deviation, wanted, begins)
    cuts = _Cuts(level_at, piece, int(piece.max()) + 1, bins)
    return _drawn_objects(tables, classes, n, seed, by, cuts, share)


def _levels(rows: ClassifiedRows, edges: Floats) -> Places:
    given = rows.probability[np.arange(len(rows.given)), rows.given]
    return np.searchsorted(edges, given, side="right")


def _survey(
    tables: Sequence[ObjectTable], classes: Sequence[str], by: Expression | None, edges: Floats, seed: int
) -> tuple[Counts, Floats, ValueSample]:
    """Return rows (K, G) and sums of probabilities (K, G, K) by class and level, and values of the expression."""
    K, G = len(classes), len(edges) + 1
    counts, probability = np.zeros(K * G, dtype=np.int64), np.zeros((K * G, K))
    sample = ValueSample.empty(np.random.default_rng([seed, 1]))
    for rows in _all_rows(tables, classes, by):
        cell = rows.given * G + _levels(rows, edges)
        counts += np.bincount(cell, minlength=K * G)
        for k in range(K):
            probability[:, k] += np.bincount(cell, weights=rows.probability[:, k], minlength=K * G)
        if rows.by is not None:
            sample.add(rows.by)
    return counts.reshape(K, G), probability.reshape(K, G, K), sample


def _all_rows(
    tables: Sequence[ObjectTable], classes: Sequence[str], by: Expression | None
) -> Iterator[ClassifiedRows]:
    for table in tables:
        yield from classified_rows(table, classes, by)


def _drawn_objects(
    tables: Sequence[ObjectTable],
    classes: Sequence[str],
    n: int,
    seed: int,
    by: Expression | None,
    cuts: _Cuts,
    share: Floats,
) -> Drawing:
    """Count the strata, and draw of each."""
    K, B = len(classes), len(cuts.bins.names)
    most = K * B * cuts.n_pieces
    counts, probability = np.zeros(most, dtype=np.int64), np.zeros((most, K))
    lowest = _Lowest(n, most)
    rng = np.random.default_rng([seed, 0])
    for rows in _all_rows(tables, classes, by):
        place = cuts.places(rows)
        counts += np.bincount(place, minlength=most)
        for k in range(K):
            probability[:, k] += np.bincount(place, weights=rows.probability[:, k], minlength=most)
        lowest.add(rows, place, rng.random(len(place)))
    filled = np.flatnonzero(counts)
    mean = probability[filled] / counts[filled, None]
    try:
        sizes = allocated(counts[filled], uncertainty(mean, share), n)
    except ValueError as error:
        raise UsageError(
            f"--n: got {n} objects for {len(filled)} strata of class, probability and bin, expected at least "
            f"two for each stratum; draw {2 * len(filled)} or more, or use fewer bins"
        ) from error
    strata, picked = [], []
    for h, (at, size) in enumerate(zip(filled.tolist(), sizes.tolist(), strict=True)):
        k, rest = divmod(at, B * cuts.n_pieces)
        b, piece = divmod(rest, cuts.n_pieces)
        low, high = cuts.range(k, piece)
        strata.append(
            AuditStratum(
                class_given=classes[k],
                low=low,
                high=high,
                bin=cuts.bins.names[b],
                n_rows=int(counts[at]),
                n_drawn=size,
            )
        )
        picked += [(key, row) for key, row in lowest.rows(at, size, h)]
    order = rng.permutation(len(picked))
    return Drawing(int(counts.sum()), cuts.bins, tuple(strata), tuple(picked[i][1] for i in order))


class _Lowest:
    """The rows with the smallest random numbers of each place, `n` at most: a random sample of any smaller size."""

    def __init__(self, n: int, places: int) -> None:
        self._n = n
        self._heaps: list[list[tuple[float, DrawnRow]]] = [[] for _ in range(places)]
        self._largest = np.full(places, np.inf)

    def add(self, rows: ClassifiedRows, place: Places, key: Floats) -> None:
        """Take the rows of a batch, their places and random numbers (n,)."""
        for i in np.flatnonzero(key < self._largest[place]).tolist():
            at = int(place[i])
            heap, entry = self._heaps[at], (-float(key[i]), _row(rows, i))
            if len(heap) < self._n:
                heapq.heappush(heap, entry)
            elif entry > heap[0]:
                heapq.heapreplace(heap, entry)
            if len(heap) == self._n:
                self._largest[at] = -heap[0][0]

    def rows(self, place: int, size: int, stratum: int) -> list[tuple[float, DrawnRow]]:
        """Return that many rows of a place, as of this stratum."""
        first = sorted(self._heaps[place], reverse=True)[:size]
        return [(-key, DrawnRow(r.name, r.ra, r.dec, stratum, r.probabilities)) for key, r in first]


def _row(rows: ClassifiedRows, i: int) -> DrawnRow:
    return DrawnRow(
        str(rows.names[i]),
        float(rows.ra[i]),
        float(rows.dec[i]),
        -1,
        tuple(rows.probability[i].tolist()),
    )


# Draw an audit: a stratified random sample of annotated catalogues, written as a list that people fill in.


def draw_audit(request: AuditDrawRequest, *, dry_run: bool = False) -> AuditDraw:
    """Draw objects of a folder that `classify` has written, and write the lists; return what was drawn.

    UsageError where the folder has no classes, an expression or a class is not known, or a list is there already.
    """
    with output_folder(request.out, key="out", publish=not dry_run) as folder:
        return _drawn(request, folder, dry_run=dry_run)


def _drawn(request: AuditDrawRequest, folder: Path, *, dry_run: bool) -> AuditDraw:
    """Draw from the copies in a folder of this machine."""
    manifest, prefix = annotated_manifest(folder)
    _check_free(folder, overwrite=request.overwrite)
    classes = tuple(manifest.classes)
    if not classes:
        raise UsageError(
            f"{folder}: got a manifest without classes, since an earlier version wrote it; run `blr "
            "classify` again with --overwrite"
        )
    selections = selections_of(request.threshold or (), classes)
    tables = object_tables(folder, manifest, prefix, request.identifier)
    if not tables:
        raise UsageError(
            f"{folder}: got a folder without annotated catalogues; classify a catalogue into it first"
        )
    by: Expression | None = parse(request.by) if request.by is not None else None
    drawing = draw_sample(
        tables,
        classes,
        request.n,
        seed=request.seed,
        by=by,
        n_bins=request.bins,
        edges=request.edges,
        selections=selections,
    )
    identifier = tables[0].identifier
    names = [row.name for row in drawing.rows]
    labels = read_labels(request.labels, identifier, classes, names) if request.labels else {}
    files: list[Path] = []
    if not dry_run:
        design = _design(request, manifest, identifier, classes, selections, drawing)
        with exclusive(folder):
            _check_free(folder, overwrite=request.overwrite)
            rows = _listed(drawing, labels)
            write_document(folder / DESIGN, design)
            files = write_audit_lists(rows, folder, identifier, classes, audit_title(manifest.model))
            files.append(folder / DESIGN)
    return AuditDraw(
        status="planned" if dry_run else "done",
        model=manifest.model,
        out=folder,
        id=identifier,
        n_rows=drawing.n_rows,
        n_drawn=len(drawing.rows),
        n_labelled=sum(name in labels for name in names),
        bins=() if by is None else drawing.bins.names,
        strata=drawing.strata,
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


def _design(
    request: AuditDrawRequest,
    manifest: Manifest,
    identifier: str,
    classes: tuple[str, ...],
    selections: tuple[Selection, ...],
    drawing: Drawing,
) -> AuditDesign:
    return AuditDesign(
        format="blr-audit",
        model=manifest.model,
        release=manifest.release,
        outputs=outputs_hash(manifest),
        id=identifier,
        seed=request.seed,
        by=request.by,
        bins=() if request.by is None else drawing.bins.names,
        classes=classes,
        n_rows=drawing.n_rows,
        selections=selections,
        strata=drawing.strata,
        objects=tuple(
            DrawnObject(id=row.name, stratum=row.stratum, probabilities=row.probabilities)
            for row in drawing.rows
        ),
    )


def _listed(drawing: Drawing, labels: dict[str, str]) -> list[Listed]:
    rows = []
    for row in drawing.rows:
        stratum = drawing.strata[row.stratum]
        share = stratum.n_drawn / stratum.n_rows
        rows.append(
            Listed(row.name, row.ra, row.dec, row.stratum, share, 1 / share, labels.get(row.name, ""))
        )
    return rows


def _check_free(folder: Path, *, overwrite: bool) -> None:
    """Raise UsageError where a list would be lost: an earlier one, or one with answers whatever the options."""
    there = [folder / name for name in (f"{AUDIT_NAME}.csv", DESIGN) if (folder / name).exists()]
    if there and not overwrite:
        raise UsageError(
            f"{there[0]}: an audit was drawn here already; estimate from it (`blr audit estimate`), "
            "or draw another with --overwrite, after which the answers to this one no longer count"
        )
    check_unanswered(folder, AUDIT_NAME)
