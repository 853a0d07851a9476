"""The quality of a labelled catalogue, for the report of a training: columns, duplicates, outliers, leaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from catalogs.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.expressions import parse
from catalogs.positions import unit_of_position
from catalogs.profile import readable
from catalogs.quality import Places, Quality, quality
from flows.config import Label, Specification
from flows.inspection import found_leaks
from flows.labels import LabelReader, label_texts

__all__ = ["catalog_quality", "quality_remarks"]

SHOWN = 8


def catalog_quality(
    specification: Specification, catalog: Catalog, *, limit: int | None = None
) -> dict[str, Any]:
    """Return the quality of a labelled catalogue, as JSON can hold it."""
    name = _label_column(specification.label, catalog)
    read = partial(_classes_read, specification.label)
    found, seen = quality(
        catalog,
        identifier=specification.catalog.id,
        places=_places(specification, catalog),
        limit=limit,
        choice=None if name is None else lambda values: read(values[name]) != "",
    )
    told = found.to_dict() | {"catalogue": catalog.path.name}
    if name is None:
        return told
    used = {name for text in specification.features.values() for name in parse(text).names}
    leaks = found_leaks(catalog, seen, name, read(seen.chosen[name]))[0]
    return told | {"leaks": [Quality.leak(leak) | {"used": used.issuperset(leak.columns)} for leak in leaks]}


def _label_column(label: Label, catalog: Catalog) -> str | None:
    """Return the column of the class, one value a row; None where the class stands elsewhere, or in several."""
    known = label.table is None and label.column in catalog.names
    return label.column if known and readable(catalog.column(str(label.column))) else None


def _classes_read(label: Label, values: Any) -> Any:
    """Return the class (n,) of each label, '' where it has none."""
    texts = label_texts(values)
    if label.classes is None:
        return texts
    reader = LabelReader.of(label, Counter())
    return np.array(["", *reader.classes], dtype=object)[reader.read(texts) + 1]


def _places(specification: Specification, catalog: Catalog) -> Places | None:
    """Return the columns of the position; None without any, or where their unit is not known."""
    given = specification.catalog
    if given.ra is None or given.dec is None:
        return None
    try:
        unit = unit_of_position(catalog, given.ra, given.dec, stated=given.position_unit)
    except CatalogError:
        return None  # who needs positions refuses; who does not need not state their unit
    return Places(given.ra, given.dec, unit)


def quality_remarks(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a reader of the report should know, in sentences; the leaks that the features hold first."""
    return tuple(_remarks(found)) if found else ()


def _remarks(found: Mapping[str, Any]) -> Iterator[str]:
    n = found["n_rows"]
    for leak in found["leaks"]:
        if leak["used"] and (len(leak["columns"]) == 1 or leak["derived"]):
            columns = ", ".join(leak["columns"])
            told = f"tell {leak['gain']:.0%} of the class"
            if leak["derived"]:
                told += f", by {leak['combination']}, to which no smaller set comes near"
            yield f"Suspected leakage: the features use {columns}, which {told}."
    for key, what in (
        ("repeated_identifiers", "repeat the identifier of another"),
        ("repeated_positions", "lie within an arcsecond of another"),
        ("positions_without", "have no position"),
        ("positions_out_of_range", "have a position out of range"),
    ):
        if found[key]:
            yield f"{found[key]:,} of {n:,} rows {what}."
    yield from _absences(found)
    if found["constant"]:
        yield f"The same in every row: {_some(found['constant'])}."
    for group in found["duplicate_columns"][:SHOWN]:
        yield f"Columns that are equal in every row: {', '.join(group)}."
    if found["missing"]:
        worst = _largest_first(found["missing"])
        yield f"Missing most: {_some([f'{name} {share:.0%}' for name, share in worst])}."
    if found["outliers"]:
        furthest = _largest_first(found["outliers"])
        yield f"Far outliers: {_some([f'{name} {share:.2%}' for name, share in furthest])}."


def _absences(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield which columns some of the files lack."""
    if found["absent"]:
        names = [f"{name} in {n:,}" for name, n in _largest_first(found["absent"])]
        yield f"Of {found['n_files']:,} files some lack a column, which has no values there: {_some(names)}."


def _some(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _largest_first(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the entries by share, then name: stored and loaded, a mapping has another order."""
    return sorted(shares.items(), key=lambda entry: (-entry[1], entry[0]))
