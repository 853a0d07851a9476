"""Tables in memory as catalogues: opened, and annotated."""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from astropy.table import Table

from catalogs.catalog.catalog import BATCH_ROWS, Catalog, CheckedCompute, Column, Compute, NewValues, in_order
from catalogs.catalog.earlier_columns import (
    is_provenance,
    provenance_entries,
    recognised_provenance,
    replaced_columns,
    with_user_bits,
)
from catalogs.catalog.new_columns import NewColumn, Provenance, check_names
from catalogs.errors import FormatError, require_columns
from catalogs.memory.astropy_table import AstropyTable, Stored
from catalogs.parquet import dataset as parquet
from catalogs.parquet.writer import new_table

# A table of Arrow's in memory, or of a library that hands over Arrow (Polars, DuckDB): with new columns, Arrow's.


@dataclass(frozen=True)
class ArrowTable:
    """A table of Arrow's."""

    table: pa.Table

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(self.table.column_names)

    @property
    def pairs(self) -> dict[str, str]:
        """The table's metadata."""
        return {
            k.decode("utf-8", "replace"): v.decode("utf-8", "replace")
            for k, v in (self.table.schema.metadata or {}).items()
        }

    @property
    def provenance(self) -> dict[str, str]:
        """What earlier annotations left in the metadata."""
        return {k: v for k, v in self.pairs.items() if is_provenance(k)}

    def arrow(self, names: Sequence[str]) -> pa.Table:
        """Return those columns."""
        return self.table.select(list(names))

    def stored(self) -> Stored:
        """Return the table as it is."""
        double = sorted({name for name in self.names if self.names.count(name) > 1})
        if double:
            raise FormatError(
                f"got a table with several columns '{double[0]}', expected different names; rename them"
            )
        return Stored(self.table)

    def annotated(
        self,
        columns: Sequence[NewColumn],
        values: NewValues,
        replaced: Collection[str],
        provenance: Mapping[str, str],
    ) -> pa.Table:
        """Return the table without the columns `replaced`, with the new ones behind the others."""
        kept = [i for i, name in enumerate(self.names) if name not in replaced]
        table, new = self.table.select(kept), new_table(values, columns)
        for field in new.schema:
            table = table.append_column(field, new[field.name])
        rest = {k: v for k, v in (self.table.schema.metadata or {}).items() if not is_provenance(k.decode())}
        return table.replace_schema_metadata({**rest, **provenance})


# Tables in memory, pandas', astropy's and Arrow's, as catalogues: written to a temporary Parquet file once.
#
# So every function works on them as on a file; the temporary file is removed when its partition is no longer used.

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
        from catalogs.memory.pandas_frame import PandasFrame  # noqa: PLC0415 - pandas takes a second to import

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


# Add columns to a table in memory: a copy of it, of its own kind, with them behind its own columns.
#
# The old columns, the index and whatever else the library keeps of a table are never converted, so they stay as they
# are.

AnyTable = TypeVar("AnyTable")


def annotate_table(
    table: AnyTable,
    columns: Sequence[NewColumn],
    compute: Compute,
    *,
    read: Sequence[str],
    provenance: Provenance | None = None,
    rows: int = BATCH_ROWS,
    threads: int = 1,
) -> AnyTable:
    """Return a copy of an astropy, pandas or Arrow table with new columns; the table itself does not change.

    `compute` gets Arrow batches of at most `rows` rows with the columns `read`.  Their names are those of
    `catalogs.open(table)`: `name.ra` for the right ascension of a SkyCoord, and the names of pandas' index levels.
    Masked values of astropy are nulls there.  Columns of an earlier annotation are replaced; the flag bits that belong
    to users are kept.  The provenance goes where the library's writers look for it: lines of HISTORY in astropy's
    `meta`, pandas' `attrs`, or Arrow's schema metadata.  Other tables with an Arrow interface, such as Polars', come
    back as Arrow tables.

    Raises
    ------
    catalogs.CatalogError
        If a column is missing, or a new column has the name of an old one (NameClashError).

    Examples
    --------
    >>> import pandas as pd
    >>> import pyarrow as pa
    >>> colour = catalogs.NewColumn("b_j", pa.float64(), "phot.color", unit="mag", description="B - J")
    >>> galaxies = pd.DataFrame({"bmag": [4.5, 9.0], "jmag": [1.0, 6.0]})
    >>> def b_j(batch):
    ...     return {"b_j": np.subtract(batch["bmag"], batch["jmag"])}
    >>> catalogs.annotate_table(galaxies, [colour], b_j, read=["bmag", "jmag"])["b_j"].tolist()
    [3.5, 3.0]
    """
    source = in_memory(table)
    require_columns(f"the {type(table).__name__}", read, source.names)
    recorded = provenance_of(source)
    replaced = replaced_columns(source.names, recorded, columns)
    check_names([name for name in source.names if name not in replaced], columns)
    read, compute = with_user_bits(read, compute, replaced, columns)
    # Without any column there is nothing to count rows by.
    arrow_table = source.arrow(tuple(dict.fromkeys(read)) or source.names[:1])
    values = computed(arrow_table, columns, lambda batch: compute(batch.select(list(read))), rows, threads)
    entries = provenance_entries(recorded, (provenance or Provenance()).covering(columns), replaced)
    annotated: AnyTable = source.annotated(columns, values, replaced, entries)
    return annotated


def computed(
    table: pa.Table, columns: Sequence[NewColumn], compute: Compute, rows: int, threads: int
) -> NewValues:
    """Return the new columns of all rows."""
    batches = (as_batch(table.slice(start, rows)) for start in range(0, max(1, len(table)), rows))
    parts = list(in_order(batches, CheckedCompute(tuple(columns), compute), threads))
    return {c.name: np.concatenate([values[c.name] for values in parts]) for c in columns}


def as_batch(table: pa.Table) -> pa.RecordBatch:
    """Return rows as one batch, dictionaries decoded, as batches of files are."""
    arrays = [pa.concat_arrays(c.chunks) if c.num_chunks else pa.nulls(0, c.type) for c in table.columns]
    plain = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]
    return pa.record_batch(plain, names=table.column_names)
