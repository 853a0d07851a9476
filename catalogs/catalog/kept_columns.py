"""Which of the old columns an annotated copy has: all, all but our own from before, or a slim few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from catalogs.catalog.catalog import Catalog, OldColumns, Partition, Selectable
from catalogs.catalog.earlier_columns import check_columns, replaced_columns
from catalogs.catalog.new_columns import NewColumn, check_names
from catalogs.errors import CatalogError

__all__ = ["Mode", "copying", "old_columns"]

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
    if not isinstance(partition, Selectable):
        what = f"a copy without its old {', '.join(old.replaced)}" if old.only is None else "a slim copy"
        raise CatalogError(
            f"{cat.path}: {what} cannot be written as {cat.format}; convert the catalogue to Parquet or FITS first"
        )
    if old.only is not None:
        return partition.keeping(old.only, slim=True)
    return partition.keeping([name for name in cat.names if old.stays(name)])
