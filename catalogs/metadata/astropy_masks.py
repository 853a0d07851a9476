"""Masks that astropy writes to Parquet: not as nulls, but as columns of truth values beside those that they mask.

A masked element is not a value, whatever its content; the columns of masks stay columns like others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.metadata.astropy_header import EcsvHeaderError, read_items

__all__ = ["SERIALIZED", "masked", "masks_of", "pairs_in"]

SERIALIZED = "__serialized_columns__"
"""Key of `meta` under which astropy says how columns are made of those that are stored."""


@lru_cache(maxsize=64)
def masks_of(text: str) -> Mapping[str, str]:
    """Return, from astropy's YAML of a table, the columns that have masks, and the columns that these are."""
    if SERIALIZED not in text or "mask:" not in text:
        return {}
    try:
        items = read_items(text)
    except EcsvHeaderError:
        return {}
    return {data: mask for item in items if item.key == SERIALIZED for data, mask in pairs_in(item.value)}


def pairs_in(serialized: Any, seen: set[int] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the names of data and their masks, however deep in what a column is made of.

    A mapping that is `seen` is not looked into again: YAML can hold a mapping many times, and in itself.
    """
    seen = set() if seen is None else seen
    if not isinstance(serialized, dict) or id(serialized) in seen:
        return
    seen.add(id(serialized))
    data, mask = (serialized.get(key) for key in ("data", "mask"))
    if isinstance(data, dict) and isinstance(mask, dict) and {"name"} == data.keys() == mask.keys():
        yield str(data["name"]), str(mask["name"])
    for part in serialized.values():
        yield from pairs_in(part, seen)


def masked(array: pa.Array, mask: pa.Array) -> pa.Array:
    """Return values with nulls where the mask is true; vectors element by element."""
    if pt.is_fixed_size_list(array.type) and pt.is_fixed_size_list(mask.type):
        values = masked(array.flatten(), mask.flatten())
        return pa.FixedSizeListArray.from_arrays(values, type=array.type)
    if not pt.is_boolean(mask.type) or len(mask) != len(array):
        return array
    return pc.if_else(mask.fill_null(False), pa.scalar(None, array.type), array)  # noqa: FBT003 -- the value
