"""The names of objects: the column that has them, and the names of those that have a label already."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from catalogs.catalog.catalog import Catalog
from catalogs.errors import nearest
from catalogs.files.atomic import atomic_path, check_links, own_folder, sweep
from flows.errors import UsageError

# Which column of a catalogue names its objects.

ID_NAMES = ("id", "name", "objid", "object_id", "source_id", "objectid")
"""Names that columns of identifiers have in many catalogues, in lower case."""


def identifier_column(catalog: Catalog, *, asked: str | None, stated: str | None, option: str) -> str:
    """Return the column that names objects: the one `asked` for, else the one `stated`, else the first that fits.

    A column fits by its UCD or its name.  UsageError if no column fits, or if the catalogue lacks the one asked for;
    `option` is the option that names the column.
    """
    by_ucd = [c.name for c in catalog.columns if (c.ucd or "").lower().startswith("meta.id")]
    by_name = [c.name for c in catalog.columns if c.name.lower() in ID_NAMES]
    known = [stated] if stated in catalog.names else []
    column = asked or next(iter((*known, *by_ucd, *by_name)), None)
    if column is None or column not in catalog.names:
        raise UsageError(
            f"{catalog.path}: got {'no column that names an object' if column is None else repr(column)}, "
            f"expected the column with the names of the objects; name it with {option}; "
            f"{nearest(column or 'id', catalog.names)}"
        )
    return column


# The names of objects that have a label already, so that nobody is asked about them again.
#
# `classify` keeps the names of its model's labelled objects beside the copies, in `_labelled/names.parquet`.

PLACE = ("_labelled", "names.parquet")
"""Path of the names in an output folder."""


class LabelledNames:
    """The names of labelled objects."""

    def __init__(self, names: pa.Array) -> None:
        self._names = names

    @classmethod
    def of(cls, names: Iterable[str]) -> LabelledNames:
        """Return the names without repeats and empty ones."""
        return cls(pa.array(sorted({name for name in names if name}), pa.string()))

    def __len__(self) -> int:
        return len(self._names)

    def among(self, names: NDArray[np.object_]) -> NDArray[np.bool_]:
        """Return a mask (n,) of the names that belong to labelled objects."""
        found = pc.is_in(pa.array(names.tolist(), pa.string()), value_set=self._names)
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)


def write_labelled_names(names: list[str], out: Path) -> None:
    """Write the names into an output folder, whole or not at all; empty ones are left out."""
    path = out.joinpath(*PLACE)
    own_folder(path.parent, out)
    sweep(path.parent)  # removes a half-written file of a killed run
    known = sorted({name for name in names if name})
    with atomic_path(path) as temporary:
        pq.write_table(pa.table({"name": pa.array(known, pa.string())}), temporary)


def read_labelled_names(out: Path) -> LabelledNames | None:
    """Return the names in an output folder; None if an earlier version classified it, or the model stores no names."""
    path = out.joinpath(*PLACE)
    check_links(path, out)
    if not path.exists():
        return None
    return LabelledNames(pq.ParquetFile(path).read()["name"].combine_chunks().cast(pa.string()))
