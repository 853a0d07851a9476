"""The quality of a labelled catalogue, for the report of a training: columns, duplicates, outliers, leaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
