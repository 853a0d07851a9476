"""Which of the old columns the copies of a catalogue keep: all of them, or id and position."""

from __future__ import annotations

from catalogs.annotations import NewColumn
from catalogs.catalog import Catalog
from catalogs.old_columns import copying, old_columns
from catalogs.own_columns import check_columns
from flows.config import Specification

__all__ = ["check_copies", "kept_columns"]


def kept_columns(specification: Specification) -> tuple[str, ...]:
    """Return the catalogue's names of id and position, as far as the specification names them."""
    catalog, theirs = specification.catalog, specification.target.columns
    return tuple(theirs.get(name, name) for name in (catalog.id, catalog.ra, catalog.dec) if name)


def check_copies(catalog: Catalog, columns: tuple[NewColumn, ...], specification: Specification) -> None:
    """Raise a `CatalogError` where copies of the catalogue cannot have the new columns beside the old ones."""
    if specification.output.mode == "annotated":
        check_columns(catalog, columns)  # an earlier annotation's are replaced
        return
    old = old_columns(catalog, columns, "slim", kept_columns(specification))
    for partition in catalog.partitions:
        copying(partition, catalog, old)
