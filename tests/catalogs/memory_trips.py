"""What becomes of tables in memory: annotated as they are, and written to Parquet and FITS, thing by thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from astropy.table import Table
from astropy.table.serialize import represent_mixins_as_columns

import catalogs
from catalogs.annotations import NewColumn

__all__ = ["NEW", "compute", "first_name", "same_column"]

NEW = (
    NewColumn("blr_p", pa.float32(), "stat.probability", description="a share"),
    NewColumn("blr_class", pa.string(), "src.class", width=4),
)
KEPT, SILENT = "kept", "CHANGED SILENTLY"


def compute(batch: pa.RecordBatch) -> Mapping[str, Any]:
    """Return new columns, the first of them what was read."""
    read = batch.column(batch.schema.names[0]).to_numpy(zero_copy_only=False)
    return {"blr_p": read.astype(np.float32), "blr_class": np.full(batch.num_rows, "late")}


def same_column(old: Any, new: Any) -> bool:
    """Say whether a column of an astropy table is the same: class, type, values, masks, unit and other words."""
    return parts_of(old) == parts_of(new)


def parts_of(column: Any, *, order: bool = True) -> tuple[Any, ...]:
    """Return a column as text; a byte order is no matter where files have their own."""
    plain = represent_mixins_as_columns(Table([column], names=["c"], copy=False))
    about = [[str(getattr(column.info, key) or "") for key in ("unit", "format", "description", "meta")]]
    for name in plain.colnames:
        values = plain[name]
        dtype = values.dtype if order else values.dtype.newbyteorder("=")
        cells = np.ma.getdata(values).astype(dtype).tolist()
        about.append(
            [str(dtype), str(cells), str(np.ma.getmaskarray(values).tolist()), type(values).__name__]
        )
    return type(column).__name__, about, repr(plain.meta.get("__serialized_columns__"))


def first_name(frame: pd.DataFrame) -> str:
    """Return the name that the rows' numbers have as a catalogue's column."""
    return catalogs.open(frame).names[0] if frame.columns.nlevels > 1 else "row"
