"""The labelled rows of a training, gathered once from the catalogues.

The hash is of what columns hold: the same from every format, and wherever batches end.
Shapes: N rows, F features.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from flows.training._objects import identifiers, magnitude_column, magnitudes, place_columns, places
from flows.training._rows import TrainingRows

__all__ = ["ContentHash", "Gathered", "gather"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


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

    rows: TrainingRows
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

    @property
    def unknown_labels(self) -> dict[str, int]:
        """Labels that are in no class, by frequency, the empty one left out."""
        return {text: n for text, n in self.seen.most_common() if text}


@dataclass(frozen=True, eq=False)
class _Part:
    """What one batch contributes."""

    X: Floats
    missing: Mask
    texts: NDArray[np.object_]
    place: NDArray[np.int64] | NDArray[np.uint64]
    weight: Floats | None
    votes: Floats | None = None
    errors: Floats | None = None
    annotators: NDArray[np.object_] | None = None
    name: NDArray[np.uint64] | None = None
    identifier: NDArray[np.bytes_] | None = None
    position: Floats | None = None
    magnitude: Floats | None = None


def gather(
    specification: Specification, catalogs: Sequence[Catalog], *, limit: int | None = None
) -> Gathered:
    """Return the labelled rows of the catalogues; `TrainingError` where they cannot carry a fit.

    `limit` reads that many rows only, for a trial.
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
    parts, hashes, n_read, n_selected = [], [], 0, 0
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
            specification, reader, rows, ballots.texts, None if counts is None else counts[cast], unit
        )
        parts.append(
            replace(
                part,
                weight=ballots.weighted(part.weight),
                identifier=identifiers(specification, values, cast),
                position=places(specification, catalog, located, values, cast),
                magnitude=magnitudes(brightness, values, cast),
            )
        )
        if counts is None and specification.catalog.id in values:
            hashed = name_hashes(values[specification.catalog.id][cast])
            hashes.append(np.where(ballots.shared, np.uint64(0), hashed))
        content.feed(rows)
    source.require_match()
    split = held_out(specification, np.concatenate([p.place for p in parts]), trial=limit is not None)
    rows = _joined(parts, labels, split)
    who = [p.annotators for p in parts if p.annotators is not None]
    annotator, annotators = annotator_groups(np.concatenate(who), rows.training) if who else (None, ())
    rows = replace(rows, annotator=annotator, magnitude_name=np.array("".join(brightness)))
    _check(specification, rows, labels, seen, split)
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
        _repeated(specification, catalogs, hashes, rows, labels),
        states,
        split.summary,
        annotators,
    )


def _repeated(
    specification: Specification,
    catalogs: Sequence[Catalog],
    hashes: Sequence[NDArray[np.uint64]],
    rows: TrainingRows,
    labels: LabelReader,
) -> RepeatedNames | None:
    """Return which objects have rows of several classes, by the hashes of their names; None without names."""
    name = specification.catalog.id
    if name is None or not hashes:
        return None
    batches = (batch for catalog in catalogs for batch in catalog.batches([name]))
    names = (batch_values(batch, [name])[name] for batch in batches)
    return repeated_in_conflict(np.concatenate(hashes), rows.target, labels.classes, names)


def _part(
    specification: Specification,
    reader: FeatureReader,
    batch: pa.RecordBatch,
    texts: NDArray[np.object_],
    votes: Floats | None,
    unit: PositionUnit,
) -> _Part:
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
    return _Part(features.X, features.missing, texts, place, weight, votes, features.errors, who, name)


def _weight(text: str, values: Mapping[str, np.ndarray[Any, Any]]) -> Floats:
    weight = parse(text).evaluate(values)
    if weight.dtype.kind not in "biuf":
        raise TrainingError(
            f'catalog.weight: got "{text}", which gives text, expected numbers of 0 or more; name another column'
        )
    return np.asarray(np.broadcast_to(floats(weight), next(iter(values.values())).shape[:1]))


def _joined(parts: Sequence[_Part], labels: LabelReader, chosen: Chosen) -> TrainingRows:
    weights = [p.weight for p in parts if p.weight is not None]
    votes = [p.votes for p in parts if p.votes is not None]
    errors = [p.errors for p in parts if p.errors is not None]
    names = [p.name for p in parts if p.name is not None]
    identifier = [p.identifier for p in parts if p.identifier is not None]
    position = [p.position for p in parts if p.position is not None]
    magnitude = [p.magnitude for p in parts if p.magnitude is not None]
    return TrainingRows(
        X=np.concatenate([p.X for p in parts]),
        missing=np.concatenate([p.missing for p in parts]),
        target=labels.read(np.concatenate([p.texts for p in parts])),
        held_out=chosen.held_out,
        group=chosen.group,
        weight=np.concatenate(weights) if weights else None,
        votes=np.concatenate(votes) if votes else None,
        errors=np.concatenate(errors) if errors else None,
        name=np.concatenate(names) if len(names) == len(parts) else None,
        identifier=np.concatenate(identifier) if len(identifier) == len(parts) else None,
        position=np.concatenate(position) if len(position) == len(parts) else None,
        magnitude=np.concatenate(magnitude) if len(magnitude) == len(parts) else None,
    )


def _check(
    specification: Specification, rows: TrainingRows, labels: LabelReader, seen: Counter[str], split: Chosen
) -> None:
    K = len(labels.classes)
    check_classes(specification.label, labels, seen, np.bincount(rows.target, minlength=K).tolist())
    _check_places(specification, rows)
    if split.refusal:
        raise TrainingError(split.refusal)
    counts = np.bincount(rows.target, minlength=K)
    parts = [("training", rows.training, 1), ("held-out", rows.held_out, RARE)]
    for part, mask, fewest in parts if specification.split.held_out else parts[:1]:
        for name, n, count in zip(
            labels.classes, counts, np.bincount(rows.target[mask], minlength=K), strict=True
        ):
            if not count and n >= fewest:
                raise TrainingError(
                    f"split: got class '{name}' without {part} rows ({int(mask.sum())} {part} rows in all), expected "
                    "some of each class; change split.held_out or split.by, or merge the class with another"
                )
    if rows.weight is not None:
        total = np.bincount(rows.target[rows.training], rows.weight[rows.training], minlength=K)
        if not total.all():
            raise TrainingError(
                f"catalog.weight: got 0 for all training rows of class '{labels.classes[int(np.argmin(total))]}', "
                "expected more in some of each class; correct the weight, or leave the class out"
            )
    for j, name in enumerate(specification.features):
        if rows.missing[rows.training, j].all():
            text = specification.features[name]
            raise TrainingError(
                f'features.{name}: got no value of "{text}" in any of the {int(rows.training.sum())} training rows, '
                "expected some; check the expression and the sentinels, or leave the feature out"
            )


def _check_places(specification: Specification, rows: TrainingRows) -> None:
    """Raise `TrainingError` where a split by position has all rows on one side, as without any position."""
    nothing_asked = not specification.split.held_out
    if specification.split.by != "healpix" or nothing_asked or rows.held_out.all() != rows.held_out.any():
        return
    ra, dec = specification.catalog.ra, specification.catalog.dec
    raise TrainingError(
        f"split.by: got 'healpix', by which all {len(rows.target)} labelled rows are on one side, expected places all "
        f"over the sky: '{ra}' and '{dec}' hold no position that can be read, or one field; state "
        'position_unit = "deg" (or "rad", "sexagesimal", "hours") under [catalog], or split by \'id\''
    )
