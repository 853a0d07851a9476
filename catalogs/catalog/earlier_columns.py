"""The old columns of an annotated copy: those that are kept, and those of an earlier annotation, which go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.catalog.catalog import Catalog, Column, Compute, OldColumns, Partition
from catalogs.catalog.new_columns import (
    OWN,
    NewColumn,
    Provenance,
    check_names,
    selected_column,
    standard_columns,
)
from catalogs.errors import CatalogError

# Which of the old columns an annotated copy has: all, all but our own from before, or a slim few.

Mode = Literal["annotated", "slim"]


def old_columns(cat: Catalog, columns: Sequence[NewColumn], mode: Mode, keep: Sequence[str]) -> OldColumns:
    """Return which old columns copies have, all names checked."""
    if mode == "annotated":
        return OldColumns(check_columns(cat, columns))
    if not keep:
        raise CatalogError(
            "got a slim copy that keeps no old column, expected the identifier and the position, by which "
            "rows join their old columns again; name them, as in keep=('id', 'ra', 'dec')"
        )
    only = tuple(dict.fromkeys([*keep, *(cat.whole.needed if cat.whole else ())]))
    for name in only:
        cat.column(name)
    check_names(only, columns)
    return OldColumns(replaced_columns(cat.names, cat.metadata, columns), only)


def copying(partition: Partition, cat: Catalog, old: OldColumns) -> Partition:
    """Return the partition of which copies have the columns that stay; itself, if all do."""
    if old.only is None and not old.replaced:
        return partition
    if old.only is not None:
        return partition.keeping(old.only, slim=True)
    return partition.keeping([name for name in cat.names if old.stays(name)])


# Columns that an earlier annotation made: known by its provenance, replaced by the next one with such names.
#
# A column of the same name from another source is not replaced: it is an error.  A format without a place for
# provenance (CSV) is searched for whole annotations: all columns of one, next to each other and in order, which no
# other program writes. Users own bits 16 to 23 of our flags: what they have set there is carried over.

KEY = re.compile(r"blr\.((?:previous\.)*)(.+)")
PREVIOUS = "previous."
USER_BITS = 0xFF << 16
"""Bits 16 to 23, which are the users'."""

Level = dict[str, str]
"""The provenance of one annotation: key, without `blr.` and `previous.`, to value."""


def check_columns(cat: Catalog, columns: Sequence[NewColumn]) -> tuple[str, ...]:
    """Return the old columns that the new ones replace; NameClashError where any other has the name of a new one."""
    replaced = replaced_columns(cat.names, cat.metadata, columns)
    check_names([n for n in cat.names if n not in replaced], columns)
    return replaced


def replaced_columns(
    names: Iterable[str], metadata: Mapping[str, str], columns: Sequence[NewColumn]
) -> tuple[str, ...]:
    """Return which of the old names belong to an earlier annotation that shares a name with the new columns."""
    new = {c.name.casefold() for c in columns}
    earlier = {name for level in levels(metadata) if (own := own_names(level)) & new for name in own}
    return tuple(name for name in names if name.casefold() in earlier)


def is_provenance(key: object) -> bool:
    """Say whether a key of a file's or a table's metadata is one of ours."""
    return isinstance(key, str) and KEY.fullmatch(key) is not None


def levels(metadata: Mapping[str, str]) -> list[Level]:
    """Return the provenance of all annotations in a file's metadata, the latest first."""
    by_depth: dict[int, Level] = {}
    for key, value in metadata.items():
        if match := KEY.fullmatch(key):
            by_depth.setdefault(match[1].count(PREVIOUS), {})[match[2]] = value
    return [by_depth.get(i, {}) for i in range(max(by_depth, default=-1) + 1)]


def own_names(level: Level) -> set[str]:
    """Return the names, in small letters, of the columns that an annotation made."""
    return {name.strip().casefold() for name in level.get("columns", "").split(",") if name.strip()}


def annotated_names(metadata: Mapping[str, str]) -> frozenset[str]:
    """Return the names, in small letters, of the columns that earlier annotations made."""
    return frozenset(name for level in levels(metadata) for name in own_names(level))


def recognised_provenance(columns: Sequence[Column]) -> dict[str, str]:
    """Return what the provenance of a file would say of whose its columns are, were there a place for it."""
    annotations = []
    start = 0
    while start < len(columns):
        annotation = annotation_at(columns[start:])
        if annotation:
            annotations.append(", ".join(c.name for c in annotation))
        start += max(1, len(annotation))
    return {f"{OWN}{PREVIOUS * depth}columns": names for depth, names in enumerate(reversed(annotations))}


def annotation_at(columns: Sequence[Column]) -> Sequence[Column]:
    """Return the columns of the annotation that begins with the first of these; none, unless all of one are there."""
    if not columns[0].name.endswith("class"):
        return ()
    prefix, names = columns[0].name.removesuffix("class"), [c.name for c in columns]
    ends_at = names.index(f"{prefix}p_max") if f"{prefix}p_max" in names else 0
    # The names of classes in columns are safe already, and so make the same columns again.
    classes = [name.removeprefix(f"{prefix}p_") for name in names[1:ends_at]]
    kinds: tuple[Literal["full", "standard"], ...] = ("full", "standard")
    for extent, sets in product(kinds, (True, False)):
        try:
            expected = standard_columns(classes, prefix, columns=extent, sets=sets)
        except CatalogError:
            return ()
        if names[: len(expected)] == [c.name for c in expected] and all(map(may_hold, columns, expected)):
            return columns[: len(expected) + _n_selected(columns[len(expected) :], classes, prefix)]
    return ()


def _n_selected(columns: Sequence[Column], classes: Sequence[str], prefix: str) -> int:
    """Return how many columns of selections follow an annotation, in the order of the classes."""
    n = 0
    for made in (selected_column(name, prefix) for name in classes):
        if n < len(columns) and columns[n].name == made.name and may_hold(columns[n], made):
            n += 1
    return n


def may_hold(column: Column, new_column: NewColumn) -> bool:
    """Say whether text of a column that we made could have been taken for what was found: '1' for a number."""
    if pt.is_string(new_column.datatype):
        return True
    if pt.is_boolean(new_column.datatype):
        return bool(pt.is_boolean(column.datatype) or pt.is_string(column.datatype))
    whole = pt.is_null(column.datatype) or pt.is_integer(column.datatype)
    return whole or (pt.is_floating(new_column.datatype) and pt.is_floating(column.datatype))


def provenance_entries(
    old: Mapping[str, str], provenance: Provenance, replaced: Iterable[str] = ()
) -> dict[str, str]:
    """Return all `blr.` metadata of an annotated copy: the new provenance, and what is left of earlier annotations.

    Whoever annotated the file before is not forgotten: annotations whose columns stay become `previous` ones, of those
    that are replaced the model is named.
    """
    gone = {name.casefold() for name in replaced}
    staying = [level for level in levels(old) if not own_names(level) & gone]
    first = with_replaced_models(old, provenance.metadata(prefix=""), replaced)
    result = {OWN + key: value for key, value in first.items()}
    for depth, level in enumerate(staying, 1):
        # What all of them share (the meanings of flags) is not repeated.
        differing = {key: value for key, value in level.items() if first.get(key) != value}
        result |= {f"{OWN}{PREVIOUS * depth}{key}": value for key, value in differing.items()}
    return result


def with_replaced_models(
    old: Mapping[str, str], entries: Mapping[str, str], replaced: Iterable[str]
) -> dict[str, str]:
    """Return the entries with the models, other than theirs, whose columns are replaced."""
    gone = {name.casefold() for name in replaced}
    model_lists = [
        level.get(key, "")
        for level in levels(old)
        if own_names(level) & gone
        for key in ("model", "replaced_models")
    ]
    models = (m for text in model_lists for m in text.split(", ") if m and m != entries.get("model"))
    names = ", ".join(dict.fromkeys(models))
    return dict(entries) | ({"replaced_models": names} if names else {})


def with_user_bits(
    read: Sequence[str], compute: Compute, replaced: Sequence[str], columns: Sequence[NewColumn]
) -> tuple[Sequence[str], Compute]:
    """Return what to read and to compute, so that the users' bits of replaced flags are carried over."""
    names = {name.casefold(): name for name in replaced}
    flags = [c.name for c in columns if c.name.endswith("flags") and pt.is_integer(c.datatype)]
    new = next((name for name in flags if name.casefold() in names), None)
    if new is None:
        return read, compute
    old = names[new.casefold()]

    def carried(batch: pa.RecordBatch) -> Mapping[str, np.ndarray[Any, Any]]:
        new_columns = compute(batch.select(list(read)))
        values = new_columns[new]
        if not np.issubdtype(values.dtype, np.integer):
            return new_columns  # This is an error, which another check reports.
        kept = users_bits(batch.column(old)).astype(values.dtype)
        return {**new_columns, new: (values & ~values.dtype.type(USER_BITS)) | kept}

    return tuple(dict.fromkeys([*read, old])), carried


def users_bits(flags: pa.Array) -> np.ndarray[Any, Any]:
    """Return the users' bits; none where there is no number."""
    if not (pt.is_integer(flags.type) or pt.is_floating(flags.type)):
        return np.zeros(len(flags), np.int64)
    whole = pc.fill_null(pc.if_else(pc.is_finite(flags), flags, None), 0).cast(pa.int64(), safe=False)
    return np.asarray(whole.to_numpy(zero_copy_only=False)) & USER_BITS
