"""The quality of a labelled catalogue, for the report of a training: columns, duplicates, outliers, leaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.expressions.expression import parse
from catalogs.profile.columns import Profile, as_numbers, readable, uneven_presence
from catalogs.profile.leaks import Leak
from catalogs.profile.quality import Places, about_the_distance, is_magnitude, quality
from catalogs.sky.positions import unit_of_position
from catalogs.text.table import commented_out
from flows.features.leaks import found_leaks, without_sentinels
from flows.features.reader import apply_sentinels, label_columns_reader
from flows.features.split import position_unit
from flows.labels.reader import LabelReader, most_voted, vote_counts
from flows.labels.source import LabelSource
from flows.models.description import CatalogueQuality, SuspectedLeak
from flows.specification.specification import Specification

Array = np.ndarray[Any, Any]

SHOWN = 8
"""Most names that a sentence of the report lists."""


def catalog_qualities(
    specification: Specification,
    catalogs: Sequence[Catalog],
    source: LabelSource,
    *,
    limit: int | None = None,
) -> tuple[CatalogueQuality, ...]:
    """Return the quality of labelled catalogues."""
    own = replace(source)  # a copy: the counts of `source` are those of the gathered rows
    return tuple(_quality(specification, catalog, own, limit) for catalog in catalogs)


def _quality(
    specification: Specification, catalog: Catalog, source: LabelSource, limit: int | None
) -> CatalogueQuality:
    read = _class_reader(specification, catalog, source)
    measured, seen = quality(
        catalog,
        identifier=specification.catalog.id,
        places=_places(specification, catalog),
        limit=limit,
        choice=None if read is None else lambda values: read(values) != "",
    )
    leaks: list[Leak] = []
    used = {name for text in specification.features.values() for name in parse(text).names}
    suspects: dict[str, str] = {}
    if read is not None:
        labels = read(seen.chosen)
        leaks, _ = found_leaks(catalog, seen, specification.label.column or "", labels)
        alone = {leak.columns[0] for leak in leaks if len(leak.columns) == 1}
        suspects = _suspects(seen, labels, [n for n in seen.chosen if n in used - alone])
    return CatalogueQuality(
        **vars(measured),
        leaks=tuple(SuspectedLeak(**vars(leak), used=used.issuperset(leak.columns)) for leak in leaks),
        catalogue=catalog.path.name,
        commented_out=commented_out(catalog),
        suspects=suspects,
        repeated_rows=seen.repeated_rows,
    )


def _suspects(seen: Profile, labels: Array, names: Sequence[str]) -> dict[str, str]:
    """Return the columns that may tell how objects were chosen, by their presence or as distances, each with why.

    `blr init` keeps such columns as features and calls them suspects; `labels` (n,) are the classes of the chosen rows.
    """
    values = {n: without_sentinels(seen, n) for n in names}
    why = {n: p.shown for n, p in uneven_presence(values, labels).items()}
    for name in names:
        column = seen.columns[name].column
        if about_the_distance(column) and not is_magnitude(column, as_numbers(values[name])):
            why[name] = "; ".join([*([why[name]] if name in why else []), "a distance"])
    return {name: why[name] for name in names if name in why}


def _class_reader(
    specification: Specification, catalog: Catalog, source: LabelSource
) -> Callable[[Mapping[str, Array]], Array] | None:
    """Return a function from columns to the classes (n,) of rows, '' where the class is missing.

    The classes may be in a column, in a separate table, or given by votes.  None where the catalogue lacks a column
    that the function needs, or where the column does not hold one value a row.
    """
    label = specification.label
    needed = replace(label_columns_reader(specification), where=None).names
    if not all(name in catalog.names and readable(catalog.column(name)) for name in needed):
        return None
    if label.votes is not None:
        marks, names = specification.catalog.sentinels, tuple(label.votes)
        return lambda values: most_voted(
            vote_counts(label, {n: apply_sentinels(values[n], marks.get(n, ())) for n in needed}), names
        )
    unit = position_unit(specification, catalog)
    if label.classes is None:
        return lambda values: source.texts(values, unit)
    reader = LabelReader.of(label, Counter())
    classes = np.array(["", *reader.classes], dtype=object)
    return lambda values: classes[reader.read(source.texts(values, unit)) + 1]


def _places(specification: Specification, catalog: Catalog) -> Places | None:
    """Return the columns of the position; None where none are named, or where their unit is not known."""
    place = specification.catalog
    if place.ra is None or place.dec is None:
        return None
    try:
        unit = unit_of_position(catalog, place.ra, place.dec, stated=place.position_unit)
    except CatalogError:
        return None  # the report can do without positions; what needs them raises this error itself
    return Places(place.ra, place.dec, unit)


def quality_remarks(quality: CatalogueQuality) -> tuple[str, ...]:
    """Return sentences on what a reader of the report should know; leaks that the features use come first."""
    return tuple(_remarks(quality))


def _remarks(quality: CatalogueQuality) -> Iterator[str]:
    n = quality.n_rows
    for words in leak_words(quality).values():
        yield f"Suspected leakage: the features use {words}."
    for count, what in (
        (quality.repeated_rows, "repeat another row in every column"),
        (quality.repeated_identifiers, "repeat the identifier of another"),
        (quality.repeated_positions, "lie within an arcsecond of another"),
        (quality.positions_without, "have no position"),
        (quality.positions_out_of_range, "have a position out of range"),
    ):
        if count:
            yield f"{count:,} of {n:,} rows {what}."
    yield from _absences(quality)
    if quality.constant:
        yield f"The same in every row: {_some(quality.constant)}."
    for group in quality.duplicate_columns[:SHOWN]:
        yield f"Columns that are equal in every row: {', '.join(group)}."
    if quality.missing:
        worst = _largest_first(quality.missing)
        yield f"Missing most: {_some([f'{name} {share:.0%}' for name, share in worst])}."
    if quality.outliers:
        furthest = _largest_first(quality.outliers)
        yield f"Far outliers: {_some([f'{name} {share:.2%}' for name, share in furthest])}."


def leak_words(quality: CatalogueQuality) -> dict[str, str]:
    """Return the columns that the features use and that may give the class away, each set with how, in a clause."""
    return {
        ", ".join(leak.columns): _leak_words(leak)
        for leak in quality.leaks
        if leak.used and (len(leak.columns) == 1 or leak.derived)
    }


def _leak_words(leak: SuspectedLeak) -> str:
    columns = ", ".join(leak.columns)
    if leak.derived:
        return (
            f"{columns}, which tell {leak.gain:.0%} of the class, by {leak.combination}; every smaller set tells "
            "much less"
        )
    if leak.combination:
        return f"{columns}, which is {leak.combination}, to rounding: the label in other numbers"
    return f"{columns}, which tells {leak.gain:.0%} of the class by itself"


def _absences(quality: CatalogueQuality) -> Iterator[str]:
    """Yield sentences on commented-out lines, which may be rows, and on columns that some files lack."""
    if quality.commented_out:
        yield f"{quality.commented_out}."
    if quality.absent:
        names = [f"{name} in {n:,}" for name, n in _largest_first(quality.absent)]
        yield f"Of {quality.n_files:,} files some lack a column, which has no values there: {_some(names)}."


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _largest_first(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the entries by falling share, then by name: a mapping that was stored and loaded has another order."""
    return sorted(shares.items(), key=lambda entry: (-entry[1], entry[0]))
