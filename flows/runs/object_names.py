"""Which column of a catalogue names its objects."""

from __future__ import annotations

from catalogs.catalog.catalog import Catalog
from catalogs.errors import nearest
from flows.errors import UsageError

__all__ = ["identifier_column"]

ID_NAMES = ("id", "name", "objid", "object_id", "source_id", "objectid")
"""Names that columns of identifiers have in many catalogues, in lower case."""


def identifier_column(catalog: Catalog, *, asked: str | None, stated: str | None, option: str) -> str:
    """Return the column that names objects: the one `asked` for, else the one `stated`, else the first that fits.

    A column fits by its UCD or its name.  UsageError if no column fits, or if the catalogue lacks the one asked for;
    `option` is the option that names the column.
    """
    by_ucd = [c.name for c in catalog.columns if (c.ucd or "").lower().startswith("meta.id")]
    by_name = [c.name for c in catalog.columns if c.name.lower() in ID_NAMES]
    known = [stated] if stated in catalog.names else []
    column = asked or next(iter((*known, *by_ucd, *by_name)), None)
    if column is None or column not in catalog.names:
        raise UsageError(
            f"{catalog.path}: got {'no column that names an object' if column is None else repr(column)}, "
            f"expected the column with the names of the objects; name it with {option}; "
            f"{nearest(column or 'id', catalog.names)}"
        )
    return column
