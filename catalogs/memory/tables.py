"""Tables in memory as catalogues: opened, and annotated; astropy's as Arrow tables and back.

What changes of an astropy table on the way is said.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from astropy.table import Column as AstropyColumn
from astropy.table import MaskedColumn, Table
from astropy.table.meta import get_yaml_from_table
from astropy.table.serialize import represent_mixins_as_columns
from astropy.utils.data_info import serialize_context_as
from yaml import YAMLError

from catalogs.catalog.catalog import (
    BATCH_ROWS,
    Catalog,
    Column,
    Compute,
    NewValues,
    checked,
    in_order,
    is_provenance,
    provenance_entries,
    recognised_provenance,
    replaced_columns,
    with_user_bits,
)
from catalogs.catalog.new_columns import NewColumn, Provenance, check_names
from catalogs.errors import FormatError, require_columns, require_once
from catalogs.metadata.astropy_header import (
    ASTROPY,
    ASTROPY_LENGTH,
    SERIALIZED,
    arrow_array,
    change,
    pairs_in,
)
from catalogs.metadata.fits_cards import meta_provenance, with_provenance, without_provenance
from catalogs.parquet import dataset as parquet
from catalogs.parquet.metadata import new_fields, text_pairs
from catalogs.parquet.writer import new_table

New = Mapping[NewColumn, np.ndarray[Any, Any]]
"""New columns with their values (n,)."""

Stored = tuple[pa.Table, Mapping[str, str], tuple[str, ...]]
"""A table as Parquet holds it, and what `Catalog` says of one: `changed` and `left_behind`."""


class InMemory:
    """A table in memory: Arrow's, or of a library that hands over Arrow (Polars, DuckDB), which becomes Arrow's."""

    def __init__(self, table: Any) -> None:
        self.table = table

    @property
    def names(self) -> tuple[str, ...]:
        """The names that its columns have as a catalogue's."""
        return tuple(self.table.column_names)

    @property
    def provenance(self) -> dict[str, str]:
        """What earlier annotations left in it."""
        return {k: v for k, v in text_pairs(self.table.schema.metadata).items() if is_provenance(k)}

    def arrow(self, names: Sequence[str]) -> pa.Table:
        """Return the values of those columns."""
        return self.table.select(list(names))

    def stored(self) -> Stored:
        """Return the whole table as a file has it."""
        require_once("the table", self.names)
        return self.table, {}, ()

    def annotated(self, new: New, replaced: Collection[str], provenance: Mapping[str, str]) -> Any:
        """Return a copy of the library's own kind, without the columns `replaced`, with new ones behind the others."""
        table = self.table.select([i for i, name in enumerate(self.names) if name not in replaced])
        added = new_table({c.name: values for c, values in new.items()}, list(new))
        for made in added.schema:
            table = table.append_column(made, added[made.name])
        rest = {k: v for k, v in (self.table.schema.metadata or {}).items() if not is_provenance(k.decode())}
        return table.replace_schema_metadata({**rest, **provenance})


# Tables in memory, pandas', astropy's and Arrow's, as catalogues: written to a temporary Parquet file once.  So every
# function works on them as on a file; the temporary file is removed when its partition is no longer used.

FILE_NAME = "table.parquet"


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
        return InMemory(pa.table(table))
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise unconverted(table, error) from error


def unconverted(table: Any, error: Exception) -> FormatError:
    """Return the error for a table that is not Arrow's to convert."""
    return FormatError(
        f"got a {type(table).__name__} that Arrow cannot convert to a table: {' '.join(str(error).split())}; "
        "expected columns of one type and different names: rename or convert them"
    )


def open_table(table: Any) -> Catalog:
    """Return a table in memory as a catalogue of one partition; it says what of the table Parquet has not."""
    source = in_memory(table)
    stored, changed, left_behind = source.stored()
    # Without a dictionary the order of categories would be lost, and those that no row has.
    categories = [f.name for f in stored.schema if pa.types.is_dictionary(f.type)]
    folder = Path(tempfile.mkdtemp(prefix="blr-table-"))
    try:
        pq.write_table(stored, folder / FILE_NAME, compression="NONE", use_dictionary=categories)
    except pa.ArrowException as error:
        shutil.rmtree(folder)
        raise unconverted(table, error) from error
    catalog = parquet.open_file(folder / FILE_NAME)
    weakref.finalize(catalog.partitions[0], shutil.rmtree, folder, ignore_errors=True)
    metadata = {**catalog.metadata, **provenance_of(source)}
    return replace(catalog, metadata=metadata, changed=changed, left_behind=left_behind)


def provenance_of(table: InMemory) -> dict[str, str]:
    """Return what a table says of earlier annotations; where it says nothing, whose columns look like a whole one.

    Readers of FITS, Parquet and VOTable do not give all of a file's metadata to the tables that they make.
    """
    return dict(table.provenance) or recognised_provenance([Column(n, pa.null()) for n in table.names])


# Add columns to a table in memory: a copy of it, of its own kind, with them behind its own columns.  The old columns,
# the index and whatever else the library keeps of a table are never converted, so they stay as they are.

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

    def work(part: pa.Table) -> NewValues:
        arrays = [pa.concat_arrays(c.chunks) if c.num_chunks else pa.nulls(0, c.type) for c in part.columns]
        plain = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]
        batch = pa.record_batch(plain, names=part.column_names)  # as batches of files are
        return checked(columns, compute(batch.select(list(read))), batch.num_rows)

    starts = range(0, max(1, len(arrow_table)), rows)
    parts = list(in_order((arrow_table.slice(start, rows) for start in starts), work, threads))
    new = {c: np.concatenate([part[c.name] for part in parts]) for c in columns}
    entries = provenance_entries(recorded, (provenance or Provenance()).covering(columns), replaced)
    annotated: AnyTable = source.annotated(new, replaced, entries)
    return annotated


class AstropyTable(InMemory):
    """A table of astropy's; times, coordinates and quantities are the columns that astropy stores them in."""

    @cached_property
    def plain(self) -> Table:
        """The table with columns of arrays only; its `meta` says how the others are made of them again.

        Masks of times and quantities are columns too, as in astropy's own Parquet, which could not do without.
        """
        structured = any(c.info.dtype is not None and c.info.dtype.names for c in self.table.itercols())
        try:
            with serialize_context_as(None if structured else "parquet"):
                return represent_mixins_as_columns(self.table, () if structured else (MaskedColumn,))
        except (TypeError, ValueError) as error:
            raise FormatError(
                f"got an astropy table that astropy cannot write to a file: {' '.join(str(error).split())}; "
                "expected columns that `Table.write` takes: rename or convert them"
            ) from error

    @cached_property
    def masks(self) -> dict[str, str]:
        """The parts of times and quantities that have masks, and the columns that these are."""
        serialized = self.plain.meta.get(SERIALIZED, {})
        return {data: mask for column in serialized.values() for data, mask in pairs_in(column)}

    def values(self, column: AstropyColumn) -> np.ma.MaskedArray[Any, Any]:
        """Return the values of a column of arrays, masked."""
        texts = column.dtype.kind in "SU" and isinstance(column, MaskedColumn)
        if texts and column.fill_value in {"", b""}:  # as in FITS, whose file then gives the same
            return np.ma.asanyarray(column.filled().data)
        if column.name in self.masks:
            return np.ma.MaskedArray(column.data, self.plain[self.masks[column.name]].data)
        return np.ma.asanyarray(column.data)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(self.plain.colnames)

    @property
    def provenance(self) -> dict[str, str]:
        """What earlier annotations left in `meta`."""
        return meta_provenance(self.table.meta)

    def arrow(self, names: Sequence[str]) -> pa.Table:
        """Return those columns: units, UCDs and descriptions as field metadata."""
        arrays, columns = [], []
        for c in (self.plain[name] for name in names):
            try:
                arrays.append(flattened(arrow_array(self.values(c))))
            except (pa.ArrowException, ValueError, TypeError, RecursionError) as error:
                raise FormatError(
                    f"'{c.name}', of {c.dtype}, has no single type that Arrow knows: "
                    f"{' '.join(str(error).split())}; expected numbers, texts, or arrays of one kind: convert or "
                    "remove the column"
                ) from error
            shape = (*c.shape[1:], *([2] if c.dtype.kind == "c" else []))
            known = (str(c.unit or ""), str(c.meta.get("ucd") or ""), c.description)
            columns.append(Column(c.name, arrays[-1].type, *known, shape=shape))
        return pa.Table.from_arrays(arrays, schema=new_fields(columns))

    def stored(self) -> Stored:
        """Return all columns, with astropy's own words on the table, from which it makes times and the like again."""
        indices = (", ".join(index.id) for index in self.table.indices)
        left = [f"the index of {names} is left out: `Table.add_index` makes it again" for names in indices]
        described = Table(self.plain, copy=False)
        described.meta = keepable(without_provenance(self.plain.meta), left, "the table's metadata")
        for c in described.itercols():
            c.meta = keepable(c.meta, left, f"'{c.name}': its metadata")
        table = self.arrow(self.names)
        pairs = {ASTROPY: "\n".join(get_yaml_from_table(described)), **self.provenance}
        pairs |= {
            # Where it is told and texts are null, astropy reads 'None'; where it is not, astropy refuses them.
            ASTROPY_LENGTH + c.name: str(c.dtype.itemsize // (4 if c.dtype.kind == "U" else 1))
            for c in described.itercols()
            if c.dtype.kind in "SU" and not table[c.name].null_count
        }
        changed = {c.name: what for c in self.plain.itercols() if (what := change(np.ma.asanyarray(c.data)))}
        return table.replace_schema_metadata(pairs), changed, tuple(left)

    def annotated(self, new: New, replaced: Collection[str], provenance: Mapping[str, str]) -> Table:
        """Return a copy of the table without the columns `replaced`, with the new ones behind the others."""
        table = self.table.copy()
        table.remove_columns([name for name in table.colnames if name in replaced])
        for c, values in new.items():
            about = {"unit": c.unit, "description": c.description, "meta": {"ucd": c.ucd} if c.ucd else None}
            table[c.name] = AstropyColumn(values, **about)
        table.meta = with_provenance(table.meta, provenance)
        return table


def flattened(array: pa.Array) -> pa.Array:
    """Return vectors of several dimensions as flat ones, as astropy's own Parquet has them."""
    if not pa.types.is_fixed_size_list(array.type) or not pa.types.is_fixed_size_list(array.type.value_type):
        return array
    inner, size = array, 1
    while pa.types.is_fixed_size_list(inner.type):
        size *= inner.type.list_size
        inner = inner.values
    return pa.FixedSizeListArray.from_arrays(inner, size)


def keepable(meta: Mapping[str, Any], left: list[str], what: str) -> dict[str, Any]:
    """Return the metadata that YAML can hold; tell of the others."""
    kept = {}
    for key, value in meta.items():
        try:
            get_yaml_from_table(Table(meta={key: value}))
        except (YAMLError, TypeError, ValueError):
            left.append(
                f"{what} '{key}', of type {type(value).__name__}, are left out, since YAML cannot hold them"
            )
        else:
            kept[key] = value
    return kept
