"""Add columns to a table in memory: a copy of it, of its own kind, with them behind its own columns.

The old columns, the index and whatever else the library keeps of a table are never converted, so they stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from catalogs.catalog.catalog import BATCH_ROWS, Compute
from catalogs.catalog.computing import CheckedCompute, NewValues, in_order
from catalogs.catalog.earlier_columns import provenance_entries, replaced_columns, with_user_bits
from catalogs.catalog.new_columns import NewColumn, Provenance, check_names
from catalogs.errors import ColumnNotFoundError, nearest
from catalogs.memory.tables import in_memory, provenance_of

__all__ = ["annotate_table"]

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
    for name in read:
        if name not in source.names:
            known = nearest(name, source.names)
            raise ColumnNotFoundError(f"the {type(table).__name__} has no column '{name}'; {known}")
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
