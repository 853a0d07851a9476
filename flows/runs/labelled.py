"""The names of objects that have a label already, so that nobody is asked about them again.

`classify` keeps the names of its model's labelled objects beside the copies, in `_labelled/names.parquet`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from catalogs.files.atomic import atomic_path, check_links, own_folder, sweep

__all__ = ["LabelledNames", "read_labelled_names", "write_labelled_names"]

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
