"""A new Parquet file from Arrow batches, with all that is known of the columns: streamed, atomic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from catalogs.catalog.catalog import Column
from catalogs.catalog.computing import Computed
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.files.atomic import atomic_path
from catalogs.parquet.metadata import SHAPE, annotated_key_values, new_fields

__all__ = ["create"]

COMPRESSION = "zstd"


def create(
    out: Path,
    old: Sequence[Column],
    new: Sequence[NewColumn],
    computed: Iterable[Computed],
    *,
    provenance: Provenance,
    metadata: Mapping[str, str],
    dropped: Sequence[str] = (),
) -> None:
    """Write old and new columns: whole, or not at all.  `metadata` are texts to be kept beside them."""
    # Parquet has nulls, so no value stands for them any more.
    columns = [replace(c, null=None) for c in old]
    pairs = dict(metadata) | annotated_key_values(metadata, columns, new, provenance, dropped=dropped)
    fields = [pa.field(c.name, c.datatype, metadata=described(c)) for c in columns]
    schema = pa.schema([*fields, *new_fields(new)], {k: v for k, v in pairs.items() if v is not None})
    text = [f.name for f in schema if not pt.is_floating(f.type)]
    with (
        atomic_path(out) as temporary,
        pq.ParquetWriter(temporary, schema, compression=COMPRESSION, use_dictionary=text) as writer,
    ):
        for batch, values in computed:
            arrays = [batch.column(c.name).cast(c.datatype) for c in columns]
            arrays += [pa.array(values[c.name], c.datatype) for c in new]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def described(column: Column) -> dict[str, str]:
    """Return what Arrow field metadata says of a column."""
    shape = ",".join(map(str, column.shape)) if len(column.shape) > 1 else ""
    known = {"unit": column.unit, "ucd": column.ucd, "description": column.description, SHAPE: shape}
    return {key: value for key, value in known.items() if value}
