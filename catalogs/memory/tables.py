"""Tables in memory, pandas', astropy's and Arrow's, as catalogues: written to a temporary Parquet file once.

So every function works on them as on a file; the temporary file is removed when its partition is no longer used.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from astropy.table import Table

from catalogs.catalog.catalog import Catalog, Column
from catalogs.catalog.computing import NewValues
from catalogs.catalog.earlier_columns import recognised_provenance
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import FormatError
from catalogs.memory._arrow_table import ArrowTable
from catalogs.memory._stored import Stored
from catalogs.memory.astropy_table import AstropyTable
from catalogs.parquet import dataset as parquet

__all__ = ["FILE_NAME", "InMemory", "in_memory", "open_table", "provenance_of"]

FILE_NAME = "table.parquet"


class InMemory(Protocol):
    """A table in memory of some library."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that its columns have as a catalogue's."""
        ...

    @property
    def provenance(self) -> Mapping[str, str]:
        """What earlier annotations left in it."""
        ...

    def arrow(self, names: Sequence[str]) -> pa.Table:
        """Return the values of those columns."""
        ...

    def stored(self) -> Stored:
        """Return the whole table as a file has it."""
        ...

    def annotated(
        self,
        columns: Sequence[NewColumn],
        values: NewValues,
        replaced: Collection[str],
        provenance: Mapping[str, str],
    ) -> Any:
        """Return a copy of the library's own kind, without the columns `replaced`, with new ones behind the others."""
        ...


def in_memory(table: Any) -> InMemory:
    """Return a table in memory by what its library is."""
    if isinstance(table, Table):
        return AstropyTable(table)
    pandas = sys.modules.get("pandas")  # A caller with a frame has imported pandas already.
    if pandas is not None and isinstance(table, pandas.DataFrame):
        from catalogs.memory._pandas_frame import PandasFrame  # noqa: PLC0415 - pandas takes a second to import

        return PandasFrame(table)
    if not hasattr(table, "__arrow_c_stream__"):
        raise FormatError(
            f"got {type(table).__name__}; expected the path of a catalogue, or a pandas, astropy or Arrow table"
        )
    try:
        return ArrowTable(pa.table(table))
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise FormatError(
            f"got a {type(table).__name__} that Arrow cannot convert to a table: {' '.join(str(error).split())}; "
            "expected columns of one type and different names: rename or convert them"
        ) from error


def open_table(table: Any) -> Catalog:
    """Return a table in memory as a catalogue of one partition; it says what of the table Parquet has not."""
    source = in_memory(table)
    stored = source.stored()
    # Without a dictionary the order of categories would be lost, and those that no row has.
    categories = [f.name for f in stored.table.schema if pa.types.is_dictionary(f.type)]
    folder = Path(tempfile.mkdtemp(prefix="blr-table-"))
    pq.write_table(stored.table, folder / FILE_NAME, compression="NONE", use_dictionary=categories)
    catalog = parquet.open_file(folder / FILE_NAME)
    weakref.finalize(catalog.partitions[0], shutil.rmtree, folder, ignore_errors=True)
    metadata = {**catalog.metadata, **provenance_of(source)}
    return replace(
        catalog,
        metadata=metadata,
        changed=stored.changed,
        left_behind=stored.left_behind,
        read_back=stored.read_back,
    )


def provenance_of(table: InMemory) -> dict[str, str]:
    """Return what a table says of earlier annotations; where it says nothing, whose columns look like a whole one.

    Readers of FITS, Parquet and VOTable do not give all of a file's metadata to the tables that they make.
    """
    return dict(table.provenance) or recognised_provenance([Column(n, pa.null()) for n in table.names])
