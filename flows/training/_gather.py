"""The labelled rows of a training, gathered once from the catalogues.

The hash is of what columns hold: the same from every format, and wherever batches end.
Shapes: N rows, F features.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.expressions.expression import parse
from catalogs.profile.split import SplitSummary, name_keys
from catalogs.sky.photometry import State, floats
from catalogs.sky.positions import PositionUnit
from flows.errors import TrainingError
from flows.features.reader import FeatureReader, training_reader
from flows.features.sentinels import check_marks
from flows.features.split import Chosen, held_out, position_unit, split_columns, split_places
from flows.features.units import in_units_of_the_first
from flows.labels.annotators import annotator_groups
from flows.labels.classes import RARE, first_batches, label_reader
from flows.labels.conflicts import RepeatedNames, name_hashes, repeated_in_conflict
from flows.labels.reader import LabelReader, check_classes, label_texts
from flows.labels.source import LabelSource
from flows.labels.votes import VoteReader, most_voted
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._ballots import cast_ballots
from flows.training._collected import MOST_IN_MEMORY, Collected, Part, joined
from flows.training._objects import identifiers, magnitude_column, magnitudes, place_columns, places
from flows.training._row_counts import RowCounts
from flows.training._rows import TrainingRows
from flows.training._stored_places import NamedRows, named_pieces, put_on_sides, side_by_row
from flows.training._stored_rows import StoredRows

__all__ = ["ContentHash", "Gathered", "gather"]

Floats = NDArray[np.float64]


class ContentHash:
    """Columns hashed one by one, so that the boundaries of batches do not matter."""

    def __init__(self, names: Iterable[str]) -> None:
        self._columns = {name: hashlib.sha256() for name in names}

    def feed(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        for name, values in batch_values(batch, self._columns).items():
            if values.dtype.kind in "OUS":
                self._columns[name].update(
                    b"".join(b"%d:%s" % (len(t), t) for t in (str(v).encode() for v in values.ravel()))
                )
            else:
                plain = np.ma.filled(np.ma.asanyarray(values).astype("<f8"), np.nan)
                one_nan = np.where(np.isnan(plain), np.nan, plain)  # of the many there are
                self._columns[name].update(one_nan.tobytes())

    def hexdigest(self, also: Mapping[str, str] | None = None) -> str:
        """Return the hash of all columns, and of what `also` came with the rows."""
        digests = {name: column.hexdigest() for name, column in self._columns.items()}
        if also:
            digests[""] = hashlib.sha256(repr(sorted(also.items())).encode()).hexdigest()
        return hashlib.sha256("\n".join(f"{n} {digests[n]}" for n in sorted(digests)).encode()).hexdigest()


@dataclass(frozen=True)
class Gathered:
    """The rows, and what was met on the way to them."""

    rows: TrainingRows  # all of them, or a sample where they are too many for the memory
    classes: tuple[str, ...]
    content_hash: str  # of the columns' values in the rows: the same from FITS and from Parquet
    n_read: int
    n_selected: int
    seen: Counter[str]  # labels of the selected rows, '' where it is missing
    source: LabelSource  # where the labels came from, its tables read
    repeated: RepeatedNames | None  # names with rows of several classes; None where objects have no names
    states: Mapping[tuple[str, State], int]  # labelled rows by column and state
    split: SplitSummary
    annotators: tuple[str, ...]
    counts: RowCounts
    stored: StoredRows | None = None  # all rows, where `rows` are a sample of them

    @property
    def unknown_labels(self) -> dict[str, int]:
        """Labels that are in no class, by frequency, the empty one left out."""
        return {text: n for text, n in self.seen.most_common() if text}


def gather(
    specification: Specification,
    catalogs: Sequence[Catalog],
    *,
    limit: int | None = None,
    folder: Callable[[], Path] | None = None,
) -> Gathered:
    """Return the labelled rows of the catalogues; `TrainingError` where they cannot carry a fit.

    `limit` reads that many rows only, for a trial.  `folder` makes a place for rows that are too many for the memory,
    which all rows are held in without it.
    """
    label = specification.label
    plain = training_reader(specification, split_by=split_columns(specification))
    located = place_columns(specification, catalogs)
    # A column of the features stays theirs, so that its unit is converted; one behind photometry is not read twice.
    featured = {name for expression in plain.features.values() for name in expression.names}
    brightness = tuple(
        name
        for name in magnitude_column(specification, catalogs)
        if name in featured or name not in plain.names
    )
    more = dict.fromkeys(located, "catalog.ra and catalog.dec") | dict.fromkeys(
        set(brightness) - featured, "the report"
    )
    general = replace(plain, also=more | dict(plain.also))
    source, votes = LabelSource.of(specification), VoteReader.of(label) if label.votes else None
    seen: Counter[str] = Counter()
    states: Counter[tuple[str, State]] = Counter()
    content = ContentHash(plain.names)
    collected = Collected(_most_in_memory(specification), folder, side_by_row(specification))
    n_read, n_selected = 0, 0
    for catalog in catalogs:
        general.check(catalog)
    check_marks(specification, catalogs)
    labels = label_reader(specification, catalogs, source, limit=limit)
    for catalog, batch in first_batches(catalogs, general, limit):
        reader = in_units_of_the_first(general, catalog, catalogs[0])
        unit = position_unit(specification, catalog)
        tell().advance(batch.num_rows)
        n_read += batch.num_rows
        selected = reader.select(batch)
        n_selected += int(selected.sum())
        values = reader.values(batch)
        counts = None if votes is None else votes.counts(values)
        texts = source.texts(values, unit) if counts is None else most_voted(counts, tuple(label.votes or ()))
        seen.update(texts[selected].tolist())
        chosen = selected & (labels.read(texts) >= 0)
        ballots = cast_ballots(specification, source.reviews, labels, values, texts, chosen)
        cast = ballots.row
        rows = batch.take(pa.array(cast))
        states.update(reader.count_states(rows))
        part = _part(
            specification,
            reader,
            rows,
            labels.read(ballots.texts),
            None if counts is None else counts[cast],
            unit,
        )
        named = None
        if counts is None and specification.catalog.id in values:
            hashed = name_hashes(values[specification.catalog.id][cast])
            named = np.where(ballots.shared, np.uint64(0), hashed)
        collected.add(
            replace(
                part,
                weight=ballots.weighted(part.weight),
                identifier=identifiers(specification, values, cast),
                position=places(specification, catalog, located, values, cast),
                magnitude=magnitudes(brightness, values, cast),
                named=named,
            )
        )
        content.feed(rows)
    source.require_match()
    stored, parts = collected.finish(), collected.parts
    split = held_out(specification, joined(parts, "place"), trial=limit is not None)
    rows, annotators = _joined(parts, split, "".join(brightness))
    if stored is not None:
        split = replace(split, summary=put_on_sides(specification, stored, split.summary))
    counts_of = RowCounts.of_all([rows] if stored is None else stored.each(), len(labels.classes))
    _check(specification, counts_of, labels, seen, split)
    for text in [text for text in seen if labels.knows(text)]:
        del seen[text]
    return Gathered(
        rows,
        labels.classes,
        content.hexdigest(source.labels_by_object),
        n_read,
        n_selected,
        seen,
        source,
        _repeated(specification, catalogs, named_pieces(stored, parts), labels),
        states,
        split.summary,
        annotators,
        counts_of,
        stored,
    )


def _most_in_memory(specification: Specification) -> int | None:
    """Return how many rows are held in memory; None for all: weights by density and annotators need them."""
    whole = specification.shift.density_weights or specification.label.annotator is not None
    return None if whole else MOST_IN_MEMORY


def _repeated(
    specification: Specification,
    catalogs: Sequence[Catalog],
    pieces: Iterable[NamedRows] | None,
    labels: LabelReader,
) -> RepeatedNames | None:
    """Return which objects have rows of several classes, by the hashes of their names; None without names."""
    name = specification.catalog.id
    if name is None or pieces is None:
        return None
    batches = (batch for catalog in catalogs for batch in catalog.batches([name]))
    names = (batch_values(batch, [name])[name] for batch in batches)
    return repeated_in_conflict(pieces, labels.classes, names)


def _part(
    specification: Specification,
    reader: FeatureReader,
    batch: pa.RecordBatch,
    target: NDArray[np.intp],
    votes: Floats | None,
    unit: PositionUnit,
) -> Part:
    """Return the contribution of a batch that holds training rows only."""
    features = reader.evaluate(batch)
    values = reader.values(batch)
    text = specification.catalog.weight
    weight = None if text is None else _weight(text, values)
    if weight is not None and not (np.isfinite(weight) & (weight >= 0)).all():
        bad = int((~(np.isfinite(weight) & (weight >= 0))).sum())
        raise TrainingError(
            f'catalog.weight: got {bad} training rows where "{text}" is negative or missing, expected a weight of 0 '
            "or more in each; leave such rows out with catalog.where"
        )
    place = split_places(specification, values, unit)
    column = specification.label.annotator
    who = None if column is None else label_texts(values[column])
    identifier = specification.catalog.id
    name = name_keys([values[identifier]]) if identifier in values else None
    index = target.astype(np.int16)
    return Part(features.X, features.missing, index, place, weight, votes, features.errors, who, name)


def _weight(text: str, values: Mapping[str, np.ndarray[Any, Any]]) -> Floats:
    weight = parse(text).evaluate(values)
    if weight.dtype.kind not in "biuf":
        raise TrainingError(
            f'catalog.weight: got "{text}", which gives text, expected numbers of 0 or more; name another column'
        )
    return np.asarray(np.broadcast_to(floats(weight), next(iter(values.values())).shape[:1]))


def _joined(parts: Sequence[Part], chosen: Chosen, magnitude: str) -> tuple[TrainingRows, tuple[str, ...]]:
    """Return the rows of all parts, and who labelled them."""
    alike = ("weight", "votes", "errors", "name", "identifier", "position", "magnitude")
    who = joined(parts, "annotators")
    annotator, annotators = (None, ()) if who is None else annotator_groups(who, ~chosen.held_out)
    rows = TrainingRows(
        X=joined(parts, "X"),
        missing=joined(parts, "missing"),
        target=joined(parts, "target").astype(np.intp),
        held_out=chosen.held_out,
        group=chosen.group,
        annotator=annotator,
        magnitude_name=np.array(magnitude),
        **{name: joined(parts, name) for name in alike},
    )
    return rows, annotators


def _check(
    specification: Specification, counts: RowCounts, labels: LabelReader, seen: Counter[str], split: Chosen
) -> None:
    of_class = counts.training + counts.held_out
    check_classes(specification.label, labels, seen, of_class.tolist())
    _check_places(specification, counts)
    if split.refusal:
        raise TrainingError(split.refusal)
    parts = [("training", counts.training, 1), ("held-out", counts.held_out, RARE)]
    for part, own, fewest in parts if specification.split.held_out else parts[:1]:
        for name, n, count in zip(labels.classes, of_class, own, strict=True):
            if not count and n >= fewest:
                raise TrainingError(
                    f"split: got class '{name}' without {part} rows ({int(own.sum())} {part} rows in all), expected "
                    "some of each class; change split.held_out or split.by, or merge the class with another"
                )
    if not counts.training_weight.all():
        raise TrainingError(
            "catalog.weight: got 0 for all training rows of class "
            f"'{labels.classes[int(np.argmin(counts.training_weight))]}', "
            "expected more in some of each class; correct the weight, or leave the class out"
        )
    for j, name in enumerate(specification.features):
        if counts.missing_in_training[j] == counts.n_training:
            text = specification.features[name]
            raise TrainingError(
                f'features.{name}: got no value of "{text}" in any of the {counts.n_training} training rows, '
                "expected some; check the expression and the sentinels, or leave the feature out"
            )


def _check_places(specification: Specification, counts: RowCounts) -> None:
    """Raise `TrainingError` where a split by position has all rows on one side, as without any position."""
    nothing_asked = not specification.split.held_out
    if specification.split.by != "healpix" or nothing_asked or (counts.n_held_out and counts.n_training):
        return
    ra, dec = specification.catalog.ra, specification.catalog.dec
    raise TrainingError(
        f"split.by: got 'healpix', by which all {counts.n_rows} labelled rows are on one side, expected places all "
        f"over the sky: '{ra}' and '{dec}' hold no position that can be read, or one field; state "
        'position_unit = "deg" (or "rad", "sexagesimal", "hours") under [catalog], or split by \'id\''
    )
