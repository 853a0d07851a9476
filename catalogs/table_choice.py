"""Which table is opened of a file that holds several, as FITS files and VOTables may."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.formats import open_catalog

__all__ = ["TableChoice", "annotated_table"]


@dataclass(frozen=True)
class TableChoice:
    """A name or number; without it the `usual` one, where it has the columns, or the only table that has them."""

    table: str | int | None = None
    columns: tuple[str, ...] = ()
    usual: str | int | None = None

    def open(self, path: str | Path) -> Catalog:
        """Open that table of a file, or of each file of a folder."""
        if self.table is None and self.usual is not None:
            with suppress(CatalogError):
                catalog = open_catalog(path, self.usual, columns=self.columns)
                if {*self.columns} <= {*catalog.names}:
                    return catalog
        return open_catalog(path, self.table, columns=self.columns)


def annotated_table(prefix: str) -> TableChoice:
    """Return which table of an annotated copy has our columns."""
    return TableChoice(None, (f"{prefix}flags",))
