"""Catalogues: tables in, tables out, streamed.

The names below load what they need when they are first used: a list of models takes one function of a folder below, and
does not wait for all formats.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# For type checkers and editors; at run time `__getattr__` below imports a name on its first use.
if TYPE_CHECKING:
    from catalogs.catalog.catalog import Catalog as Catalog
    from catalogs.catalog.catalog import Column as Column
    from catalogs.catalog.catalog import Partition as Partition
    from catalogs.catalog.new_columns import NewColumn as NewColumn
    from catalogs.catalog.new_columns import Provenance as Provenance
    from catalogs.catalog.new_columns import standard_columns as standard_columns
    from catalogs.errors import CatalogError as CatalogError
    from catalogs.expressions.expression import parse as parse
    from catalogs.formats import open as open  # noqa: A004  the verb that users expect
    from catalogs.memory.tables import annotate_table as annotate_table
    from catalogs.writing import annotate as annotate

    __version__: str

_HOME = {
    "Catalog": "catalog.catalog",
    "CatalogError": "errors",
    "Column": "catalog.catalog",
    "NewColumn": "catalog.new_columns",
    "Partition": "catalog.catalog",
    "Provenance": "catalog.new_columns",
    "annotate": "writing",
    "annotate_table": "memory.tables",
    "open": "formats",
    "parse": "expressions.expression",
    "standard_columns": "catalog.new_columns",
}
"""The module of each public name."""

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__ = list(_HOME)

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("importlib.metadata").version("galaxyblr")
        if name not in _HOME:
            raise AttributeError(f"module 'catalogs' has no attribute '{name}'; it offers {', '.join(_HOME)}")
        return getattr(import_module(f"catalogs.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*_HOME, "__version__"]
