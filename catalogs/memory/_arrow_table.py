"""A table of Arrow's in memory, or of a library that hands over Arrow (Polars, DuckDB): with new columns, Arrow's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from catalogs.catalog.computing import NewValues
from catalogs.catalog.earlier_columns import is_provenance
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import FormatError
from catalogs.memory._stored import Stored
from catalogs.parquet.writer import new_table

__all__ = ["ArrowTable"]


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
