"""Tables in memory, pandas', astropy's and Arrow's, as catalogues: written to a temporary Parquet file once.

So every verb works on them as on a file; the file goes when nothing uses its partition any more.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from astropy.table import Table
from astropy.table.serialize import represent_mixins_as_columns

from catalogs import parquet
from catalogs.astropy_arrow import arrow_array, change
from catalogs.catalog import Catalog
from catalogs.errors import FormatError

__all__ = ["FILE_NAME", "arrow_table", "open_table"]

FILE_NAME = "table.parquet"


def open_table(table: Any) -> Catalog:
    """Return a table in memory as a catalogue of one partition; `changed` says what of it Arrow has not."""
    arrow = arrow_table(table)
    folder = Path(tempfile.mkdtemp(prefix="blr-table-"))
    pq.write_table(arrow, folder / FILE_NAME, compression="NONE", use_dictionary=False)
    catalog = parquet.open_file(folder / FILE_NAME)
    weakref.finalize(catalog.partitions[0], shutil.rmtree, folder, ignore_errors=True)
    return replace(catalog, changed=changes(table)) if isinstance(table, Table) else catalog


def changes(table: Table) -> dict[str, str]:
    """Return what becomes of the values of an astropy table's columns, of those that are not as they were."""
    plain = represent_mixins_as_columns(table)
    found = {name: change(np.ma.asanyarray(plain[name].data)) for name in plain.colnames}
    return {name: what for name, what in found.items() if what}


def arrow_table(table: Any) -> pa.Table:
    """Return a table in memory as Arrow, units and descriptions as field metadata."""
    if isinstance(table, Table):
        return from_astropy(table)
    # pandas, Polars and others hand over Arrow themselves; pandas is slow to import, so it is not asked for.
    if not hasattr(table, "__arrow_c_stream__"):
        raise FormatError(
            f"got {type(table).__name__}; expected the path of a catalogue, or a pandas, astropy or Arrow table"
        )
    try:
        found = pa.table(with_named_index(table))
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise FormatError(
            f"got a {type(table).__name__} of which Arrow makes no table: {' '.join(str(error).split())}; expected "
            "columns of one type and different names: rename or convert them"
        ) from error
    double = sorted({name for name in found.column_names if found.column_names.count(name) > 1})
    if double:
        raise FormatError(
            f"got a table with several columns '{double[0]}', expected different names; rename them"
        )
    return found


def with_named_index(table: Any) -> Any:
    """Return a table, pandas' with the named levels of its index as columns, which Arrow would hide."""
    index = getattr(table, "index", None)
    named = {name for name in getattr(index, "names", ()) if name is not None}
    for double in (True, False):
        levels = [name for name in named if (name in table.columns) == double]
        table = table.reset_index(level=levels, drop=double) if levels else table
        named.difference_update(levels)
    return table


def from_astropy(table: Table) -> pa.Table:
    """Return an astropy table; times, coordinates and quantities as the columns that they are stored in."""
    plain = represent_mixins_as_columns(table)
    fields, arrays = [], []
    for name in plain.colnames:
        column = plain[name]
        array = arrow_array(np.ma.asanyarray(column.data))
        known = {
            "unit": str(column.unit or ""),
            "ucd": str(column.meta.get("ucd") or ""),
            "description": column.description or "",
        }
        fields.append(pa.field(name, array.type, metadata={k: v for k, v in known.items() if v}))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
