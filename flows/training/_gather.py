"""The labelled rows of a training, gathered once from the catalogues, and what photometry learns from these.

Batches are taken in the order of the catalogues, so that rows, shards and hashes do not depend on who reads.  An object
whose reviewers differ has a row for each class that they gave it, weighted by the share of the answers.  Names,
positions and magnitudes are kept for people.  The content hash is of the columns' values, in any format and batches.
Shapes: n rows of a batch, m training rows of it, N rows in all, F features.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from blr.arrays import Array, Floats, Mask, Places
from blr.missing.moments import LARGEST_SCALE, SMALLEST_SCALE
from blr.missing.patterns import training_noise
from catalogs.arrays import batch_values, floats, hashed, plain_texts
from catalogs.catalog.catalog import BATCH_ROWS, Catalog, Column
from catalogs.column_names import column_names
from catalogs.expressions.expression import parse
from catalogs.files import atomic_path
from catalogs.profile.split import name_keys
from catalogs.sky.photometry import ZERO_POINT, State, softening_of, unit_factor
from catalogs.sky.positions import NeighbourCounter, PositionUnit, positions
from flows.engines.engine import Engine, LostError, current_engine
from flows.errors import EngineError, SpecificationError, TrainingError
from flows.features.reader import (
    FeatureReader,
    Place,
    check_marks,
    held_out,
    in_units_of_the_first,
    known_place,
    position_unit,
    split_places,
    training_reader,
    training_table,
)
from flows.inputs.opening import Piece, Workers, first_rows, pieces_of, thinned
from flows.labels.reader import (
    Conflicts,
    LabelReader,
    annotator_groups,
    check_classes,
    is_no_label,
    most_voted,
    vote_counts,
)
from flows.labels.source import (
    RARE,
    SHOWN,
    LabelSource,
    first_batches,
    label_reader,
    repeated_in_conflict,
)
from flows.models.description import FeatureQuality, InputFile, LabelledSample, LabelSummary
from flows.runs.drift import feature_distribution
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._rows import (
    MOST_IN_MEMORY,
    Part,
    RowCounts,
    StoredRows,
    TrainingRows,
    check_seen,
    collected,
    held_out_function,
    named_pieces,
    row_counts,
    write_split,
)

# Batches of labelled catalogues as training rows.

LONGEST_IDENTIFIER = 100
"""Most bytes of an identifier that are kept: a column of long texts must not fill the memory."""
BRIGHTEST, FAINTEST = -30.0, 60.0
"""Limits of plausible magnitudes: values outside are taken as marks of missing values."""


def content_hash(columns: Mapping[str, Any], also: Iterable[tuple[str, str]] = ()) -> str:
    """Return the hash of columns that were hashed one by one, so that the boundaries of batches do not matter.

    It is of the texts in `also` too, in order: labels from other tables, by object.
    """
    digests = {name: column.hexdigest() for name, column in columns.items()}
    # Of the list as Python shows it; the list itself is never held.
    listed, n = hashlib.sha256(b"["), 0
    for pair in also:
        listed.update(f"{', ' if n else ''}{pair!r}".encode())
        n += 1
    listed.update(b"]")
    digests |= {"": listed.hexdigest()} if n else {}
    return hashlib.sha256("\n".join(f"{n} {digests[n]}" for n in sorted(digests)).encode()).hexdigest()


def spelled(batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, bytes]:
    """Return columns as bytes, which are the same whatever the format of the file."""

    def of(values: Array) -> bytes:
        if values.dtype.kind in "OUS":
            return b"".join(b"%d:%s" % (len(t), t) for t in (str(v).encode() for v in values.ravel()))
        plain = np.ma.filled(np.ma.asanyarray(values).astype("<f8"), np.nan)
        return np.where(np.isnan(plain), np.nan, plain).tobytes()  # NaN has many bit patterns

    return {name: of(values) for name, values in batch_values(batch, names).items()}


CONTENT = "content-"
"""Prefix of the names of those arrays of a batch that hold a column of its training rows as bytes."""

Met = tuple[int, int, Counter[str], Counter[tuple[str, State]]]
"""What was counted in a batch: rows, those that are selected, their labels, and states of the training rows' values."""


@dataclass(frozen=True)
class RowReading:
    """Turns the batches of one catalogue into training rows.

    `names` are the columns whose content decides the version of the model, `place` has those of the position, where
    all catalogues have one, and `brightness` the one of the magnitude by which the report shows performance, if any.
    """

    specification: Specification
    reader: FeatureReader
    names: tuple[str, ...]
    place: Place | None
    brightness: tuple[str, ...]
    unit: PositionUnit

    def read(self, batch: pa.RecordBatch, labels: LabelReader, source: LabelSource) -> tuple[Part, Met]:
        """Return the training rows of a batch, and what was counted on the way; the source gives their labels."""
        specification, label = self.specification, self.specification.label
        selected, values = self.reader.select(batch), self.reader.values(batch)
        counts = vote_counts(label, values) if label.votes else None
        votes = (*(label.votes or ()),)
        texts = source.texts(values, self.unit) if counts is None else most_voted(counts, votes)
        chosen = selected & (labels.read(texts) >= 0)
        row, given, reviewed, shared = _row_labels(specification, source, labels, values, texts, chosen)
        rows = batch.take(pa.array(row))
        own, identifier = self.reader.values(rows), specification.catalog.id
        weight = _weights(specification, own)
        if weight is not None and not weight.all():  # rows of weight zero would move ranges and knots
            some = np.flatnonzero(weight)
            row, given, shared, weight = row[some], given[some], shared[some], weight[some]
            reviewed = None if reviewed is None else reviewed[some]
            rows = batch.take(pa.array(row))
            own = self.reader.values(rows)
        features = self.reader.evaluate(rows)
        if reviewed is not None:
            weight = reviewed if weight is None else weight * reviewed
        part: Part = {
            "X": features.X,
            "missing": features.missing,
            "target": labels.read(given).astype(np.int16),
            "place": split_places(specification, own, self.unit),
            "weight": weight,
            "votes": None if counts is None else counts[row],
            "errors": features.errors,
            "annotators": None if label.annotator is None else plain_texts(own[label.annotator]).astype(str),
        }
        if self.place is not None:
            ra, dec, unit = self.place
            sky = positions(own[ra], own[dec], unit)
            part["position"] = np.stack([sky.ra, sky.dec], axis=1)
        for name in self.brightness:
            if own[name].dtype.kind in "iuf":
                known = (magnitude := floats(own[name])) > BRIGHTEST
                part["magnitude"] = np.where(known & (magnitude < FAINTEST), magnitude, np.nan)
        if identifier in own:
            part["name"] = name_keys([own[identifier]])
            called = plain_texts(own[identifier])
            shown = [text.encode()[:LONGEST_IDENTIFIER] for text in called.tolist()]
            part["identifier"] = np.array(shown, dtype=np.bytes_)
            if counts is None:
                part["named"] = np.where(shared | (called == ""), np.uint64(0), hashed(called))
        part |= {CONTENT + n: np.frombuffer(text, np.uint8) for n, text in spelled(rows, self.names).items()}
        met = Counter(texts[selected].tolist())
        counted = (batch.num_rows, int(selected.sum()), met, self.reader.count_states(rows))
        return {name: array for name, array in part.items() if array is not None}, counted


def _readings(specification: Specification, catalogs: Sequence[Catalog]) -> list[RowReading]:
    """Return the reading of each catalogue, in the units of the first one."""
    plain = training_reader(specification)
    table = specification.catalog
    places = [known_place(table, catalog) for catalog in catalogs]
    if None in places:
        places = [None for _ in catalogs]
    featured = {name for expression in plain.features.values() for name in expression.names}
    # The catalogue's first magnitude; those that features use go before others.
    used = {name for text in specification.features.values() for name in parse(text).names}
    common = set[str].intersection(*(set(c.names) for c in catalogs))
    found = [c.name for c in catalogs[0].columns if c.name in common and _is_magnitude(c)]
    magnitude = sorted(found, key=lambda name: name not in used)[:1]
    # A magnitude that features use is read as theirs, so that its unit is converted.  A magnitude from which
    # [photometry] makes another one is not read a second time.
    brightness = tuple(name for name in magnitude if name in featured or name not in plain.names)
    more = dict.fromkeys((places[0] or ())[:2], "catalog.ra and catalog.dec")
    more |= dict.fromkeys(set(brightness) - featured, "the report")
    general = replace(plain, also=more | dict(plain.also))
    readers = (in_units_of_the_first(general, catalog, catalogs[0]) for catalog in catalogs)
    units = (position_unit(specification, catalog) for catalog in catalogs)
    return [
        RowReading(specification, reader, plain.names, place, brightness, unit)
        for reader, place, unit in zip(readers, places, units, strict=True)
    ]


def _is_magnitude(column: Column) -> bool:
    """Say whether a column holds a magnitude in each row: by its UCD or, without one, by its unit and name."""
    ucd, name = (column.ucd or "").lower(), column.name
    if pa.types.is_nested(column.datatype):
        return False
    if ucd:
        return "phot.mag" in ucd and "stat.error" not in ucd and "color" not in ucd
    named = column_names().magnitude.fits(name)
    return named and (column.unit or "mag").strip().lower() in {"mag", "mags"} and "err" not in name.lower()


def _row_labels(
    specification: Specification,
    source: LabelSource,
    labels: LabelReader,
    values: Mapping[str, Array],
    texts: NDArray[np.object_],
    chosen: Mask,
) -> tuple[Places, NDArray[np.object_], Floats | None, Mask]:
    """Return, for each training row (m,), its number in the batch, its label, its weight, and if its object has more.

    They are made of the rows in the mask `chosen` (n,), whose labels are the `texts` (n,).  Reviews give the weights,
    which are None where all are 1 in every batch; an object whose reviewers differ has several rows.
    """
    row, identifier, reviews = np.flatnonzero(chosen), specification.catalog.id, source.reviews
    if identifier is None or not (reviews.votes or reviews.weights):
        return row, texts[row], None, np.zeros(len(row), dtype=bool)
    found: list[tuple[int, str, float, bool]] = []
    for i, name in zip(row.tolist(), plain_texts(values[identifier][row]).tolist(), strict=True):
        weight = reviews.weights.get(name, 1.0)
        known = {text: share for text, share in reviews.votes.get(name, {}).items() if labels.knows(text)}
        for text, share in (known or {str(texts[i]): 1.0}).items():
            found.append((i, text, weight * share / (sum(known.values()) or 1.0), len(known) > 1))
    return (
        np.array([i for i, *_ in found], dtype=np.intp),
        np.array([text for _, text, *_ in found], dtype=object),
        np.array([weight for *_, weight, _ in found], dtype=np.float64),
        np.array([shared for *_, shared in found], dtype=bool),
    )


def _weights(specification: Specification, values: Mapping[str, Array]) -> Floats | None:
    """Return the weights (m,) that the specification gives training rows; None where it gives none."""
    text = specification.catalog.weight
    if text is None:
        return None
    weight = parse(text).evaluate(values)
    if weight.dtype.kind not in "biuf":
        raise TrainingError(
            f'catalog.weight: got "{text}", which gives text, expected numbers of 0 or more; choose another column'
        )
    weight = np.asarray(np.broadcast_to(floats(weight), next(iter(values.values())).shape[:1]))
    bad = int((~(np.isfinite(weight) & (weight >= 0))).sum())
    if bad:
        raise TrainingError(
            f'catalog.weight: got {bad} training rows where "{text}" is negative or missing, expected a weight of '
            "0 or more in each; leave such rows out with catalog.where"
        )
    return weight


# Workers that read: each writes the batches of its piece into the folder, and reports what it counted.


def reading_workers(
    specification: Specification, catalogs: Sequence[Catalog], *, limit: int | None = None
) -> Workers | None:
    """Return the workers that read the rows; None where this process does: a trial, few rows, or one piece."""
    engine = current_engine(1)
    if limit is not None or not engine.is_remote or sum(c.n_rows for c in catalogs) <= MOST_IN_MEMORY:
        return None
    pieces = pieces_of(catalogs, training_table(specification))
    return partial(handed_out, engine, pieces) if len(pieces) > 1 else None


def read_piece(
    readings: Sequence[RowReading], labels: LabelReader, source: LabelSource, folder: Path, piece: Piece
) -> tuple[list[Met], LabelSource]:
    """Read a piece on a worker, write its batches into the folder, and return what was met and the source's counts."""
    check_seen(folder)
    reading, source = readings[piece.catalog], source.counting()
    counted: list[Met] = []
    for batch in piece.partition.batches(reading.reader.read, BATCH_ROWS):
        part, met = reading.read(batch, labels, source)
        # At once to its final name: another worker may have begun this file, or may still write it.
        path = folder / f"{piece.number:06d}-{len(counted):04d}.npz"
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, **part)
        counted.append(met)
    return counted, source.counts_alone()


R = TypeVar("R")


def handed_out(
    engine: Engine, pieces: Sequence[Piece], work: Callable[[Piece], R]
) -> Generator[tuple[Piece, R]]:
    """Yield each piece with what the workers of an engine found in it, in catalogue order; what comes early waits.

    Where the caller closes the iterator early, work that has begun is finished, and no other begins.

    EngineError if the workers of a piece were killed each time; and as `Engine.map` does.
    """
    waiting: dict[int, R] = {}
    following = 0
    with closing(engine.map(work, pieces)) as results:
        for piece, result in results:
            if isinstance(result, LostError):
                raise EngineError(f"{piece.partition.path}: {result}")
            waiting[piece.number] = result
            while following in waiting:
                yield pieces[following], waiting.pop(following)
                following += 1


def read_by_workers(
    readings: Sequence[RowReading], labels: LabelReader, source: LabelSource, folder: Path, workers: Workers
) -> Iterator[tuple[Part, Met]]:
    """Yield the batches of catalogues in their order; the source of labels gets the counts of the workers."""
    for piece, (batches, counted) in workers(partial(read_piece, readings, labels, source, folder)):
        source.add(counted)
        for j, met in enumerate(batches):
            path = folder / f"{piece.number:06d}-{j:04d}.npz"
            with np.load(path, allow_pickle=False) as stored:
                part = {name: stored[name] for name in stored.files}
            path.unlink()
            yield part, met


# All rows together, and what has to hold of them.


@dataclass(frozen=True)
class Gathered:
    """The labelled rows, their description, and what a training needs beside it."""

    rows: TrainingRows  # all of them, or a sample where they are too many for the memory
    sample: LabelledSample
    classes: tuple[str, ...]
    source: LabelSource  # where the labels came from; its tables are read
    annotators: tuple[str, ...]
    stored: StoredRows | None = None  # all rows, if `rows` are a sample of them


def gather(
    specification: Specification,
    catalogs: Sequence[Catalog],
    *,
    limit: int | None = None,
    folder: Callable[[], Path] | None = None,
    workers: Workers | None = None,
) -> Gathered:
    """Return the labelled rows of the catalogues; `TrainingError` where no model can be fitted to them.

    For a trial, only `limit` rows are read.  `folder` makes the folder for rows that are too many for the memory;
    without it, all rows are held in memory, and this process reads them.  `workers` as of `reading_workers`.
    """
    place = None if folder is None else cache(folder)
    seen, states, read = Counter[str](), Counter[tuple[str, State]](), Counter[str]()
    readings = _readings(specification, catalogs)
    first, content = readings[0], {name: hashlib.sha256() for name in readings[0].names}
    check_marks(specification, catalogs)
    source = LabelSource.of(specification, catalogs)
    if workers is not None:
        tell().note(current_engine(1).description)
    labels = label_reader(specification, catalogs, source, limit=limit, workers=workers)

    if workers is None or place is None:
        opened = first_batches(catalogs, first.reader, limit)
        batches: Iterable[tuple[Part, Met]] = (readings[i].read(batch, labels, source) for i, batch in opened)
    else:
        batches = read_by_workers(readings, labels, source, place().absolute(), workers)

    def parts() -> Iterator[Part]:
        for part, (n, n_selected, met, states_met) in batches:
            tell().advance(n)
            read.update(rows=n, selected=n_selected)
            seen.update(met)
            states.update(states_met)
            for name, column in content.items():
                column.update(part.pop(CONTENT + name))
            yield part

    part, met_annotators, stored = collected(parts(), MOST_IN_MEMORY, place, held_out_function(specification))
    source.require_match(trial=limit is not None)
    held, group, split, refusal = held_out(specification, part["place"], trial=limit is not None)
    alike = ("weight", "votes", "errors", "name", "identifier", "position", "magnitude")
    rows = TrainingRows(
        X=part["X"],
        missing=part["missing"],
        target=part["target"].astype(np.intp),
        held_out=held,
        group=group,
        magnitude_name=np.array("".join(first.brightness)),
        **{name: part.get(name) for name in alike},
    )
    if stored is not None:
        split = write_split(specification, stored, split)
        rows = replace(rows, number=part["number"].astype(np.intp))
    rows, annotators = _with_annotators(rows, part.get("annotators"), met_annotators, stored)
    every = [rows] if stored is None else stored.each()
    counts = row_counts(every, len(labels.classes))
    _check_rows(specification, counts, labels, seen, refusal)
    unknown = _unknown_labels(specification, labels, seen)
    pieces, repeated = named_pieces(stored, part), None
    if pieces is not None:
        repeated = repeated_in_conflict(pieces, labels.classes, part["named"], part["identifier"])
    missing: dict[str, dict[str, int]] = {}
    for (name, state), n in states.items():
        if n and state is not State.MEASURED:
            missing.setdefault(name, {})[state.name.lower()] = n
    training, unlabelled, names = rows.training, unknown.pop("", 0), tuple(specification.features)
    missing_features = rows.missing[training]
    noise = {} if rows.errors is None else training_noise(rows.errors[training], missing_features, names)
    sample = LabelledSample(
        inputs=tuple(InputFile(name=c.path.name, sha256=c.content_hash(), n_rows=c.n_rows) for c in catalogs),
        content_hash=content_hash(content, source.content()),
        n_read=read["rows"],
        n_selected=read["selected"],
        training_counts=tuple(counts.training.tolist()),
        held_out_counts=tuple(counts.held_out.tolist()),
        class_share=tuple((counts.weight / counts.weight.sum()).tolist()),
        unlabelled=unlabelled,
        unknown_labels=dict(unknown.most_common(MOST_LABELS)),
        labels=_label_summary(source, repeated, _doubled(rows)),
        split=split,
        states=missing,
        features=_features(specification, rows, counts, catalogs[0]),
        noise={name: sigma for name, sigma in noise.items() if name in specification.errors},
        distribution=feature_distribution(rows.X[training], missing_features, names),
    )
    return Gathered(rows, sample, labels.classes, source, annotators, stored)


def _unknown_labels(specification: Specification, labels: LabelReader, seen: Counter[str]) -> Counter[str]:
    """Return how many rows have each label of no class; those that say 'not known' are together under ''."""
    unknown: Counter[str] = Counter()
    for text, n in seen.items():
        if not labels.knows(text):
            unknown["" if is_no_label(specification.label, text) else text] += n
    return unknown


MOST_LABELS = 20
"""Most labels in no class that are reported, the most frequent ones."""


def _doubled(rows: TrainingRows) -> int:
    """Return how many objects in memory are at the place of one that the split does not keep with them."""
    if rows.position is None or rows.group is None:
        return 0
    neighbours = NeighbourCounter()
    neighbours.add(*rows.position[np.unique(rows.group, return_index=True)[1]].T)
    return neighbours.near_another


def _label_summary(source: LabelSource, repeated: Conflicts | None, doubled: int) -> LabelSummary:
    """Return how many labels came from tables and reviews, and which objects have labels that differ."""
    reviews, weights = source.reviews, np.array([*source.reviews.weights.values()])
    table = source.by_place if source.by_id is None else source.by_id
    n_conflicts, conflicting = (0, {}) if table is None else table.conflicts
    return LabelSummary(
        conflicts=n_conflicts,
        conflicting=dict(conflicting),
        joined=source.n_joined,
        unplaced=source.n_unplaced,
        shared=0 if source.taken is None else int(np.count_nonzero(source.taken > 1)),
        reviewed=source.n_reviewed,
        answered=len(reviews.answers),
        doubled=doubled,
        repeated=None if repeated is None else repeated[0],
        repeating=None if repeated is None else repeated[1],
        disputed=len(reviews.votes),
        disputing={name: tuple(reviews.votes[name]) for name in sorted(reviews.votes)[:SHOWN]},
        weighted=len(weights),
        weighted_as=float(weights.sum() ** 2 / np.sum(weights**2)) if len(weights) else None,
    )


def _features(
    specification: Specification, rows: TrainingRows, counts: RowCounts, first: Catalog
) -> tuple[FeatureQuality, ...]:
    """Return the table of feature quality, of all counted rows; medians are of the rows in memory."""
    units = {c.name: c.unit for c in first.columns}
    n_rows = int(counts.training.sum() + counts.held_out.sum())
    return tuple(
        FeatureQuality(
            name=name,
            expression=text,
            missing=float(counts.missing[j] / n_rows),
            minimum=float(counts.low[j]),
            median=float(np.median(rows.X[~rows.missing[:, j], j])),
            maximum=float(counts.high[j]),
            unit=units.get(text.strip()),
        )
        for j, (name, text) in enumerate(specification.features.items())
    )


def _with_annotators(
    rows: TrainingRows, who: NDArray[np.int32] | None, met: Mapping[str, int], stored: StoredRows | None
) -> tuple[TrainingRows, tuple[str, ...]]:
    """Return the rows with the groups of their annotators, and the names of the groups; stored rows get them too."""
    if who is None:
        return rows, ()
    every: Iterable[tuple[Array, Mask]] = [(who, rows.held_out)]
    if stored is not None:
        read = stored.read
        every = ((read("annotators", shard), read("held_out", shard)) for shard in stored.shards)
    counts = np.sum([np.bincount(some[~out], minlength=len(met)) for some, out in every], axis=0)
    group, names = annotator_groups(tuple(met), counts)
    if stored is not None:
        stored.add("annotator", lambda shard: group[stored.read("annotators", shard)])
    return replace(rows, annotator=group[who]), names


def _check_rows(
    specification: Specification,
    counts: RowCounts,
    labels: LabelReader,
    seen: Counter[str],
    refusal: str,
) -> None:
    """Raise `TrainingError` where no model can be fitted to rows of these counts."""
    of_class = counts.training + counts.held_out
    if specification.catalog.weight is not None:
        named = labels.read(np.array([*seen], dtype=object))
        for k in np.flatnonzero(of_class == 0):
            if k in named:
                raise TrainingError(
                    f"catalog.weight: got 0 for all training rows of class '{labels.classes[k]}', expected a positive "
                    "weight for some rows of each class; correct the weight, or leave the class out"
                )
    check_classes(specification.label, labels, seen, of_class.tolist())
    if refusal:
        raise TrainingError(refusal)
    parts = [("training", counts.training, 1), ("held-out", counts.held_out, RARE)]
    for part, own, fewest in parts if specification.split.held_out else parts[:1]:
        for name, n, count in zip(labels.classes, of_class, own, strict=True):
            if not count and n >= fewest:
                raise TrainingError(
                    f"split: got class '{name}' without {part} rows ({int(own.sum())} {part} rows in all), expected "
                    "rows of each class; change split.held_out or split.by, or merge the class with another"
                )
    _check_features(specification, counts)


def _check_features(specification: Specification, counts: RowCounts) -> None:
    """Raise `TrainingError` where a feature has no values, or such that their squares are no numbers."""
    for j, name in enumerate(specification.features):
        if counts.missing_in_training[j] == counts.training.sum():
            raise TrainingError(
                f'features.{name}: got no value of "{specification.features[name]}" in any of the '
                f"{counts.training.sum()} training rows, expected values in some; check the expression and the "
                "sentinels, or leave the feature out"
            )
        size = max(abs(counts.low[j]), abs(counts.high[j]))
        if size and not SMALLEST_SCALE < size < LARGEST_SCALE:
            raise TrainingError(
                f"features.{name}: got values from {counts.low[j]:.3g} to {counts.high[j]:.3g}, expected sizes between "
                f"{SMALLEST_SCALE:.0e} and {LARGEST_SCALE:.0e}; state values that mean 'not measured' under "
                "catalog.sentinels, or give the feature in another unit"
            )


MOST_ROWS = 1_000_000
"""Most rows whose flux errors are held; of more rows, those of every n-th one are."""


def with_learned_photometry(
    specification: Specification,
    catalogs: Sequence[Catalog],
    *,
    limit: int | None = None,
    workers: Workers | None = None,
) -> Specification:
    """Return the specification with every softening and unit stated; `workers` read the flux errors of whole files.

    A softening is the median flux error of the rows that fulfil `where`: of every n-th row, if there are more than a
    million.  Held-out rows count too: the softening sets the scale of a feature, and does not depend on any class.
    """
    if not specification.photometry:
        return specification
    general = training_reader(specification)
    readers = [in_units_of_the_first(general, catalog, catalogs[0]) for catalog in catalogs]
    units = readers[0].columns.units
    for name, band in specification.photometry.items():
        said = [r.columns.units[name] for r in readers if name in r.columns.units]
        if band.unit is not None and said and band.unit not in said:
            factor = unit_factor(band.unit, said[0])
            raise SpecificationError(
                f"photometry.{name}.unit: got '{band.unit}', but the catalogue says that the flux is in '{said[0]}'; "
                f'remove unit, or, if the catalogue is wrong, scale the flux and its error: flux = "{factor:g} * '
                f'({band.flux})"'
            )
    rows = [catalog.n_rows if limit is None else min(limit, catalog.n_rows) for catalog in catalogs]
    learned: dict[str, dict[str, float]] = {}
    bands = specification.photometry.items()
    wanted = [n for n, b in bands if b.flux is not None and b.scale == "asinh" and b.softening is None]
    if wanted and any(rows):  # softenings have to be learned
        # Flux errors need the bands and the condition alone.  The first catalogue's unit is that of all errors, so that
        # their median has a meaning.
        own = [replace(r, features={}, errors={}, also=dict.fromkeys(wanted, "photometry")) for r in readers]
        factors = [{n: unit_factor(r.columns.units[n], units[n]) for n in wanted} for r in readers]
        step = -(-sum(rows) // MOST_ROWS)
        if workers is None:
            starts = np.cumsum([0, *rows]).tolist()
            parts = [
                _flux_errors(own[i], factors[i], step, starts[i], first_rows(catalog, own[i].read, rows[i]))
                for i, catalog in enumerate(catalogs)
            ]
        else:
            parts = [errors for _, errors in workers(partial(_errors_of_piece, own, factors, step))]
        for name in wanted:
            errors = np.concatenate([part[name] for part in parts])
            learned[name] = {"softening": softening_of(errors, ZERO_POINT[units[name]])}
    complete = {
        n: b.model_copy(update={"unit": units.get(n, b.unit), **learned.get(n, {})}) for n, b in bands
    }
    return specification.model_copy(update={"photometry": complete})


def _flux_errors(
    reader: FeatureReader,
    factor: Mapping[str, float],
    step: int,
    start: int,
    batches: Iterable[pa.RecordBatch],
) -> dict[str, Floats]:
    """Return the errors (n,) of each band, of every `step`-th row of a catalogue; `start` is the first row's number."""
    found = {name: [np.empty(0)] for name in factor}
    for batch in thinned(batches, step, start=start):
        chosen = batch.filter(pa.array(reader.select(batch)))
        values = reader.values(chosen, reader.names)
        for name in factor:
            found[name].append(factor[name] * reader.columns.sigma(name, values))
    return {name: np.concatenate(arrays) for name, arrays in found.items()}


def _errors_of_piece(
    readers: Sequence[FeatureReader], factors: Sequence[Mapping[str, float]], step: int, piece: Piece
) -> dict[str, Floats]:
    reader, factor = readers[piece.catalog], factors[piece.catalog]
    return _flux_errors(reader, factor, step, piece.first, piece.partition.batches(reader.read))
