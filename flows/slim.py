"""What the copies of a catalogue keep of it: all old columns or id and position, in its format or another."""

from __future__ import annotations

from catalogs.annotations import NewColumn
from catalogs.catalog import Catalog
from catalogs.conversion import copies
from catalogs.old_columns import old_columns
from catalogs.own_columns import check_columns
from flows.column_mapping import ColumnMapping
from flows.config import Specification

__all__ = ["check_copies", "kept_columns"]


def kept_columns(specification: Specification) -> tuple[str, ...]:
    """Return the catalogue's names of id and position, as far as the specification names them."""
    return ColumnMapping(specification.target.columns).read(_kept(specification))


def _kept(specification: Specification) -> dict[str, str]:
    """Return our names of id and position, each with its key."""
    given = specification.catalog
    keyed = {"catalog.id": given.id, "catalog.ra": given.ra, "catalog.dec": given.dec}
    return {name: key for key, name in keyed.items() if name}


def check_copies(catalog: Catalog, columns: tuple[NewColumn, ...], specification: Specification) -> None:
    """Raise a `CatalogError` where copies of the catalogue cannot have the new columns beside the old ones."""
    mode, form = specification.output.mode, specification.output.form
    if mode == "annotated":
        check_columns(catalog, columns)  # an earlier annotation's are replaced
    else:
        mapping = ColumnMapping(specification.target.columns)
        for name, key in _kept(specification).items():
            mapping.check(catalog, name, wanted_by=f"{key} of slim copies")
    copies(catalog, old_columns(catalog, columns, mode, kept_columns(specification)), form, lambda _: None)
