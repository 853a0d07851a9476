"""A new ECSV file from Arrow batches: streamed, atomic, under the header that astropy would write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.catalog.catalog import Column
from catalogs.catalog.computing import Computed
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.files.atomic import atomic_path
from catalogs.metadata.astropy_header import entry_line
from catalogs.text._ecsv import ECSV_MARK, annotated_header
from catalogs.text._writer import quoted, value_lines

__all__ = ["create"]

BLANK = " "


def create(
    out: Path,
    old: Sequence[Column],
    new: Sequence[NewColumn],
    computed: Iterable[Computed],
    *,
    provenance: Provenance,
    header: str | None,
    dropped: Sequence[str] = (),
    slim: bool = False,
) -> None:
    """Write the old columns that stay and the new ones, whole or not at all.

    `header` is astropy's YAML on all old columns, the `dropped` ones too; a `slim` copy has none of its metadata.
    """
    yaml = header or "\n".join(["datatype:", *map(entry_line, old)])
    head = [ECSV_MARK + b" 1.0\n", b"# ---\n", *(f"# {line}\n".encode() for line in yaml.splitlines())]
    names = BLANK.join(quoted(name, BLANK) for name in [*(c.name for c in old), *(c.name for c in new)])
    with atomic_path(out) as temporary, temporary.open("wb") as stream:
        for line in annotated_header(head, new, provenance, dropped=dropped if header else (), slim=slim):
            stream.write(line)
        stream.write(names.encode() + b"\n")
        for batch, values in computed:
            texts = [texts_of(batch.column(c.name)) for c in old]
            added = pa.array(value_lines(values, new, BLANK, nan="nan"), pa.binary())
            rows = pc.binary_join_element_wise(*(t.cast(pa.binary()) for t in texts), added, BLANK.encode())
            stream.write(b"".join(row + b"\n" for row in rows.to_pylist()))


def texts_of(column: pa.Array) -> pa.Array:
    """Return values as ECSV has them: the shortest that reads back as the same, and "" for none."""
    if pt.is_boolean(column.type):
        values = column.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 -- the value
        texts = pa.array(np.where(values, "True", "False"))
    elif pt.is_string(column.type) or pt.is_large_string(column.type):
        words = column.fill_null("").to_pylist()
        texts = pa.array([quoted(word, BLANK) for word in words], pa.string())
    else:
        texts = column.cast(pa.string())
    return pc.if_else(column.is_valid(), texts, '""').cast(pa.string())
