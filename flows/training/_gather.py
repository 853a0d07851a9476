"""The labelled rows of a training, gathered once from the catalogues, and what photometry learns from these.

The content hash is a hash of the columns' values: it depends neither on the file format nor on where batches end.
Softenings of asinh magnitudes and units of fluxes are added to the specification that the model stores, so that its
magnitudes are the same in every catalogue.
Shapes: N rows, n of them, F features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalogs.catalog.catalog import Catalog
from catalogs.profile.split import SplitSummary
from catalogs.sky.photometry import ZERO_POINT, State, softening_of, unit_factor
from flows.engines.engine import current_engine
from flows.errors import SpecificationError, TrainingError
from flows.features.reader import FeatureReader, check_marks, training_reader, training_table
from flows.features.split import Chosen, held_out
from flows.features.units import in_units_of_the_first
from flows.inputs.opening import Piece, Workers, first_rows, pieces_of, thinned
from flows.labels.classes import (
    RARE,
    NameSearch,
    first_batches,
    label_reader,
    repeated_in_conflict,
)
from flows.labels.reader import AnnotatorNames, Conflicts, LabelReader, annotator_groups, check_classes
from flows.labels.source import LabelSource
from flows.runs.progress import tell
from flows.specification.specification import Specification
from flows.training._reading import BatchOfRows, ByEngine, ContentHash, Readers, RowReading, read_by_workers
from flows.training._rows import (
    MOST_IN_MEMORY,
    Collected,
    NamedRows,
    Part,
    RowCounts,
    StoredRows,
    TrainingRows,
    held_out_function,
    joined,
    named_pieces,
    write_split,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gathered:
    """The labelled rows, and what was counted and found while they were read."""

    rows: TrainingRows  # all of them, or a sample where they are too many for the memory
    classes: tuple[str, ...]
    content_hash: str  # of the columns' values in these rows: the same for FITS and Parquet
    n_read: int
    n_selected: int
    seen: Counter[str]  # labels in no class, of the selected rows; '' counts rows without a label
    source: LabelSource  # where the labels came from; its tables are read
    repeated: Conflicts | None  # names with rows of several classes; None where objects have no names
    states: Mapping[tuple[str, State], int]  # numbers of labelled rows by column and state of its value
    split: SplitSummary
    annotators: tuple[str, ...]
    counts: RowCounts
    stored: StoredRows | None = None  # all rows, if `rows` are a sample of them

    @property
    def unknown_labels(self) -> dict[str, int]:
        """Labels that are in no class with their numbers, the most frequent first; without the empty one."""
        return {text: n for text, n in self.seen.most_common() if text}


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
    readers, place = Readers.of(specification, catalogs), None if folder is None else cache(folder)
    seen: Counter[str] = Counter()
    states: Counter[tuple[str, State]] = Counter()
    content = ContentHash(readers.names)
    source = LabelSource.of(specification, place)
    collected = Collected(MOST_IN_MEMORY, place, held_out_function(specification))
    n_read, n_selected = 0, 0
    for catalog in catalogs:
        readers.general.check(catalog)
    check_marks(specification, catalogs)
    source.compare_with(catalogs)
    if workers is not None:
        tell().note(current_engine(1).description)
    labels = label_reader(specification, catalogs, source, limit=limit, workers=workers)
    readings = [RowReading.of(specification, readers, labels, c, catalogs[0]) for c in catalogs]
    if workers is None or place is None:
        batches = _read_here(readings, source, limit)
    else:
        batches = read_by_workers(readings, source, workers, place())
    for batch in batches:
        counted = batch.counted
        tell().advance(counted.n_read)
        n_read += counted.n_read
        n_selected += counted.n_selected
        seen.update(counted.seen)
        states.update(counted.states)
        collected.add(batch.part)
        content.feed(batch.content)
    source.require_match()
    stored, parts = collected.finish(), collected.parts
    split = held_out(specification, joined(parts, "place"), trial=limit is not None)
    rows = _joined(parts, split, "".join(readers.brightness))
    if stored is not None:
        split = replace(split, summary=write_split(specification, stored, split.summary))
        rows = replace(rows, number=joined(parts, "number").astype(np.intp))
    rows, annotators = _with_annotators(rows, joined(parts, "annotators"), collected.annotators, stored)
    counts_of = RowCounts.of_all([rows] if stored is None else stored.each(), len(labels.classes))
    _check_rows(specification, counts_of, labels, seen, split)
    for text in [text for text in seen if labels.knows(text)]:
        del seen[text]
    return Gathered(
        rows,
        labels.classes,
        content.hexdigest(source.content()),
        n_read,
        n_selected,
        seen,
        source,
        _repeated(specification, catalogs, named_pieces(stored, parts), labels, workers),
        states,
        split.summary,
        annotators,
        counts_of,
        stored,
    )


def reading_workers(
    specification: Specification, catalogs: Sequence[Catalog], *, limit: int | None = None
) -> Workers | None:
    """Return the workers that read the rows; None where this process does: a trial, few rows, or one piece."""
    engine = current_engine(1)
    if limit is not None or not engine.is_remote or sum(c.n_rows for c in catalogs) <= MOST_IN_MEMORY:
        return None
    pieces = pieces_of(catalogs, training_table(specification))
    return Workers(ByEngine(engine), pieces) if len(pieces) > 1 else None


def _read_here(
    readings: Sequence[RowReading], source: LabelSource, limit: int | None
) -> Iterator[BatchOfRows]:
    """Yield the batches of catalogues, read by this process; at most `limit` rows in all."""
    for number, batch in first_batches([r.catalog for r in readings], readings[0].readers.general, limit):
        yield readings[number].read(batch, source)


def _repeated(
    specification: Specification,
    catalogs: Sequence[Catalog],
    pieces: Iterable[NamedRows] | None,
    labels: LabelReader,
    workers: Workers | None,
) -> Conflicts | None:
    """Return which objects have rows of several classes, by the hashes of their names; None without names."""
    name = specification.catalog.id
    if name is None or pieces is None:
        return None
    return repeated_in_conflict(
        pieces, labels.classes, lambda hashes: NameSearch(name, hashes).through(catalogs, workers)
    )


def _joined(parts: Sequence[Part], chosen: Chosen, magnitude: str) -> TrainingRows:
    """Return the rows of all parts as one."""
    alike = ("weight", "votes", "errors", "name", "identifier", "position", "magnitude")
    return TrainingRows(
        X=joined(parts, "X"),
        missing=joined(parts, "missing"),
        target=joined(parts, "target").astype(np.intp),
        held_out=chosen.held_out,
        group=chosen.group,
        magnitude_name=np.array(magnitude),
        **{name: joined(parts, name) for name in alike},
    )


def _with_annotators(
    rows: TrainingRows, who: NDArray[np.int32] | None, met: AnnotatorNames, stored: StoredRows | None
) -> tuple[TrainingRows, tuple[str, ...]]:
    """Return the rows with the groups of their annotators, and the names of the groups; stored rows get them too.

    `who` (N,) are the annotators of the rows by the numbers of `met`; None where the specification names no column.
    """
    if who is None:
        return rows, ()
    counts = np.zeros(len(met.names), dtype=np.intp)
    if stored is None:
        counts += np.bincount(who[rows.training], minlength=len(counts))
    else:
        for shard in stored.shards:
            training = ~stored.read("held_out", shard)
            counts += np.bincount(stored.read("annotators", shard)[training], minlength=len(counts))
    group, names = annotator_groups(met.names, counts)
    if stored is not None:
        stored.add("annotator", lambda shard: group[stored.read("annotators", shard)])
    return replace(rows, annotator=group[who]), names


def _check_rows(
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
                    "rows of each class; change split.held_out or split.by, or merge the class with another"
                )
    if not counts.training_weight.all():
        raise TrainingError(
            "catalog.weight: got 0 for all training rows of class "
            f"'{labels.classes[int(np.argmin(counts.training_weight))]}', expected a positive weight for "
            "some rows of each class; correct the weight, or leave the class out"
        )
    for j, name in enumerate(specification.features):
        if counts.missing_in_training[j] == counts.n_training:
            text = specification.features[name]
            raise TrainingError(
                f'features.{name}: got no value of "{text}" in any of the {counts.n_training} training '
                "rows, expected values in some rows; check the expression and the sentinels, or leave the "
                "feature out"
            )


def _check_places(specification: Specification, counts: RowCounts) -> None:
    """Raise `TrainingError` where a split by position leaves one side empty, as it does without readable positions."""
    nothing_asked = not specification.split.held_out
    if specification.split.by != "healpix" or nothing_asked or (counts.n_held_out and counts.n_training):
        return
    ra, dec = specification.catalog.ra, specification.catalog.dec
    raise TrainingError(
        f"split.by: got 'healpix', which puts all {counts.n_rows} labelled rows on one side of the split, "
        f"expected rows in many places of the sky: '{ra}' and '{dec}' hold no readable position, or "
        'positions of one small field only; state position_unit = "deg" (or "rad", "sexagesimal", '
        "\"hours\") under [catalog], or split by 'id'"
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
    for catalog in catalogs:
        general.check(catalog)
    readers = [in_units_of_the_first(general, catalog, catalogs[0]) for catalog in catalogs]
    units = readers[0].derived.units
    _check_stated(specification, [reader.derived.units for reader in readers])
    rows = [catalog.n_rows if limit is None else min(limit, catalog.n_rows) for catalog in catalogs]
    learned: dict[str, dict[str, float]] = {}
    wanted = _without_softening(specification)
    if wanted and any(rows):
        work = FluxErrors.of(readers, wanted, step=-(-sum(rows) // MOST_ROWS))
        if workers is None:
            parts = [*_errors_here(work, catalogs, rows)]
        else:
            parts = [errors for _, errors in workers.in_order(work)]
        for name in wanted:
            errors = np.concatenate([part[name] for part in parts])
            learned[name] = {"softening": softening_of(errors, ZERO_POINT[units[name]])}
    bands = {
        name: band.model_copy(update={"unit": units.get(name, band.unit), **learned.get(name, {})})
        for name, band in specification.photometry.items()
    }
    return specification.model_copy(update={"photometry": bands})


def _without_softening(specification: Specification) -> tuple[str, ...]:
    """Return the bands whose softening has to be learned."""
    return tuple(
        name
        for name, band in specification.photometry.items()
        if band.flux is not None and band.scale == "asinh" and band.softening is None
    )


@dataclass(frozen=True, eq=False)
class FluxErrors:
    """Reads the flux errors of bands, of every `step`-th row; `readers` are those of each catalogue.

    All are in the first catalogue's unit, so that their median has a meaning: `factors` brings each catalogue's to it.
    """

    readers: tuple[FeatureReader, ...]
    factors: tuple[Mapping[str, float], ...]
    bands: tuple[str, ...]
    step: int

    @classmethod
    def of(cls, readers: Sequence[FeatureReader], bands: tuple[str, ...], *, step: int) -> FluxErrors:
        """Return the work for catalogues by their readers, of which it needs the bands and the condition alone."""
        own = (replace(r, features={}, errors={}, also=dict.fromkeys(bands, "photometry")) for r in readers)
        first = readers[0].derived.units
        factors = ({n: unit_factor(r.derived.units[n], first[n]) for n in bands} for r in readers)
        return cls(tuple(own), tuple(factors), bands, step)

    def __call__(self, piece: Piece) -> dict[str, Floats]:
        """Return the errors (n,) of each band in a piece."""
        batches = piece.partition.batches(self.readers[piece.catalog].read)
        return self.among(batches, piece.catalog, start=piece.first)

    def among(self, batches: Iterable[pa.RecordBatch], catalog: int, *, start: int) -> dict[str, Floats]:
        """Return the errors (n,) of each band in batches of a catalogue; `start` is the number of their first row."""
        reader, found = self.readers[catalog], {name: [np.empty(0)] for name in self.bands}
        for batch in thinned(batches, self.step, start=start):
            chosen = batch.filter(pa.array(reader.select(batch)))
            values = reader.values(chosen, reader.names)
            for name in self.bands:
                found[name].append(self.factors[catalog][name] * reader.derived.sigma(name, values))
        return {name: np.concatenate(arrays) for name, arrays in found.items()}


def _errors_here(
    work: FluxErrors, catalogs: Sequence[Catalog], rows: Sequence[int]
) -> Iterator[dict[str, Floats]]:
    """Yield the errors of the first `rows` of each catalogue, read by this process."""
    start = 0
    for number, (catalog, n) in enumerate(zip(catalogs, rows, strict=True)):
        yield work.among(first_rows(catalog, work.readers[number].read, n), number, start=start)
        start += n


def _check_stated(specification: Specification, by_catalogue: Sequence[Mapping[str, str]]) -> None:
    """Raise SpecificationError where the stated unit of a flux differs from that of every catalogue."""
    for name, band in specification.photometry.items():
        said = [units[name] for units in by_catalogue if name in units]
        if band.unit is not None and said and band.unit not in said:
            factor = unit_factor(band.unit, said[0])
            raise SpecificationError(
                f"photometry.{name}.unit: got '{band.unit}', but the catalogue says that the flux is in "
                f"'{said[0]}'; remove unit, or, if the catalogue is wrong, scale the flux: flux = "
                f'"{factor:g} * ({band.flux})", and its error likewise'
            )
