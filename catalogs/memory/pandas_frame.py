"""A pandas frame in memory: to Arrow with its index and attributes, a copy with new columns, and one of LSDB's parts.

Imported only where there is a frame, since pandas takes a second to import.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow as pa

from catalogs.catalog.catalog import Compute, checked, is_provenance
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import ColumnNotFoundError, nearest, require_once
from catalogs.memory.tables import InMemory, New, Stored, unconverted
from catalogs.parquet.metadata import PANDAS


class PandasFrame(InMemory):
    """A frame of pandas, or of a library that builds on it; levels of the index are columns behind the others."""

    @property
    def keeps_index(self) -> bool:
        """Whether the index is more than the rows' numbers, which a few words of metadata say."""
        index = self.table.index
        return any(name is not None for name in index.names) or not isinstance(index, pd.RangeIndex)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names as text, then those of the index; a level that has none, or a column's, gets one."""
        own = tuple(map(str, self.table.columns))
        levels = [
            f"__index_level_{i}__" if name is None or str(name) in own else str(name)
            for i, name in enumerate(self.table.index.names)
        ]
        return (*own, *(levels if self.keeps_index else ()))

    @property
    def provenance(self) -> dict[str, str]:
        """What earlier annotations left in the attributes."""
        return {str(k): v for k, v in self.table.attrs.items() if is_provenance(k) and isinstance(v, str)}

    def arrow(self, names: Sequence[str]) -> pa.Table:
        """Return those columns."""
        n = self.table.shape[1]
        chosen = [i for i, name in enumerate(self.names[:n]) if name in names]
        index = bool({*self.names[n:]} & {*names})
        return self.converted(self.table.iloc[:, chosen], keep_index=index).select(list(names))

    def stored(self) -> Stored:
        """Return all columns, with pandas' own words on the table, from which it makes the index again."""
        table = self.converted(self.table, keep_index=self.keeps_index or None)
        changed = {name: what for name, series in self.series() if (what := becomes(series))}
        described = json.loads(table.schema.metadata[PANDAS.encode()])
        for column in described["columns"]:
            try:
                pd.api.types.pandas_dtype(column["numpy_type"])
            except (TypeError, NotImplementedError):
                column["numpy_type"] = "object"  # lists of Arrow's, whose own names pandas does not know
            integers = pa.types.is_integer(table.schema.field(column["field_name"]).type)
            if column["numpy_type"] == "object" and integers:  # with None they would come back as floats
                column["numpy_type"] = "Int64"
        described["attributes"], left = self.attributes()
        table = table.replace_schema_metadata({PANDAS: json.dumps(described), **self.provenance})
        names = (*self.table.columns, *self.table.columns.names, *self.table.index.names)
        if odd := [name for name in names if not (name is None or isinstance(name, str))]:
            left.append(f"names of columns that are not text become text ({odd[0]!r} becomes '{odd[0]}')")
        return table, changed, tuple(left)

    def series(self) -> Iterator[tuple[str, pd.Series]]:
        """Yield the columns by their names as text."""
        for i in range(self.table.shape[1]):
            yield self.names[i], self.table.iloc[:, i]

    def converted(self, frame: pd.DataFrame, *, keep_index: bool | None) -> pa.Table:
        """Return a frame as Arrow, values that it does not know as others; an index of None is in words only."""
        plain = frame.copy(deep=False)
        for i in range(frame.shape[1]):
            if has_intervals(frame.iloc[:, i].dtype):
                plain.isetitem(i, frame.iloc[:, i].cat.rename_categories(str).array)

        def text(name: Any) -> str | None:
            return None if name is None else str(name)

        plain.columns = pd.Index([str(c) for c in frame.columns], dtype="str", name=text(frame.columns.name))
        plain.index = frame.index.set_names([text(name) for name in frame.index.names])
        plain.attrs = {}
        require_once("the table", plain.columns)
        try:
            return pa.Table.from_pandas(plain, preserve_index=keep_index)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise unconverted(frame, error) from error

    def attributes(self) -> tuple[dict[str, Any], list[str]]:
        """Return what JSON holds of the attributes, and words on the others."""
        own: dict[Any, Any] = {k: v for k, v in self.table.attrs.items() if not is_provenance(k)}
        kept, left = {}, []
        for k, v in own.items():
            with suppress(TypeError, ValueError):
                if repr(json.loads(json.dumps({k: v}))) == repr({k: v}):
                    kept[k] = v
            if k not in kept:
                what = f"the attribute {k!r}, of type {type(v).__name__}, is left out"
                left.append(f"{what}, since JSON cannot hold it unchanged")
        return kept, left

    def annotated(self, new: New, replaced: Collection[str], provenance: Mapping[str, str]) -> pd.DataFrame:
        """Return a copy of the frame without the columns `replaced`, with the new ones behind the others."""
        kept = [i for i, (name, _) in enumerate(self.series()) if name not in replaced]
        labels: Any = [c.name for c in new]
        if self.table.columns.nlevels > 1:
            blank = [""] * (self.table.columns.nlevels - 1)
            labels = pd.MultiIndex.from_tuples([(c.name, *blank) for c in new])
        of = [(a.astype(object), "str") if a.dtype.kind == "T" else (a, None) for a in new.values()]
        series = [pd.Series(values, dtype=dtype) for values, dtype in of]
        made = pd.concat(series, axis=1).set_axis(labels, axis=1).set_axis(self.table.index, axis=0)
        both = pd.concat([self.table.iloc[:, kept], made], axis=1)
        both.columns.names = self.table.columns.names
        both.attrs = {k: v for k, v in self.table.attrs.items() if not is_provenance(k)} | dict(provenance)
        return both


def has_intervals(dtype: Any) -> bool:
    """Say whether values are categories of intervals, as of `pandas.cut`."""
    return isinstance(dtype, pd.CategoricalDtype) and isinstance(dtype.categories.dtype, pd.IntervalDtype)


def becomes(series: pd.Series) -> str | None:
    """Return what a column becomes in Parquet; None where it is as it was."""
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype) and not pd.api.types.is_string_dtype(dtype.categories.dtype):
        what = "their names" if has_intervals(dtype) else "plain values"
        return f"categories that are not text become {what}"
    return None


# The computation of an annotation on pandas frames, as LSDB's and Dask's `map_partitions` hand them out.
#
# `catalog.map_partitions(partial(annotated_frame, columns=columns, compute=compute, read=read))` gives what `annotate`
# writes.  It is for work that goes on in LSDB; to write an annotated catalogue, `annotate` takes a fifth of the time.


def annotated_frame(
    frame: pd.DataFrame, columns: Sequence[NewColumn], compute: Compute, read: Sequence[str]
) -> pd.DataFrame:
    """Return a copy of the frame with the new columns, as Arrow's types.

    `read` are the columns that `compute` needs; the index may be one.
    """
    flat = frame.reset_index() if set(read) & set(frame.index.names) else frame
    for name in read:
        if name not in flat.columns:
            known = nearest(name, map(str, flat.columns))
            raise ColumnNotFoundError(f"the frame has no column '{name}'; {known}")
    batch = pa.RecordBatch.from_pandas(flat[list(read)], preserve_index=False)
    values = checked(columns, compute(batch), batch.num_rows)
    new = {c.name: pa.array(values[c.name], c.datatype) for c in columns}
    return frame.assign(**{name: pd.arrays.ArrowExtensionArray(array) for name, array in new.items()})
