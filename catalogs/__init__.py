"""Catalogues: tables in, tables out, streamed."""

from catalogs.annotate import annotate
from catalogs.annotate_table import annotate_table
from catalogs.annotations import NewColumn, Provenance, standard_columns
from catalogs.catalog import Catalog, Column, Partition
from catalogs.errors import CatalogError
from catalogs.expressions import parse
from catalogs.formats import open_catalog as open  # noqa: A004  the verb that users expect

__all__ = [
    "Catalog",
    "CatalogError",
    "Column",
    "NewColumn",
    "Partition",
    "Provenance",
    "annotate",
    "annotate_table",
    "open",
    "parse",
    "standard_columns",
]
