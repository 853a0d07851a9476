"""What pandas writes about a frame into the metadata of Parquet: its index, its attributes, the types of its columns.

https://pandas.pydata.org/docs/development/developer.html#storing-pandas-dataframe-objects-in-apache-parquet-format
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from catalogs.catalog.earlier_columns import is_provenance

PANDAS = "pandas"
"""Key of the metadata."""

TEXT_NAMES = {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object"}
TEXT_TYPES = re.compile(r"unicode|string|empty|mixed.*")


def attributes(pairs: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of a frame that pandas wrote."""
    try:
        return dict(json.loads(pairs.get(PANDAS, "{}")).get("attributes") or {})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def attribute_texts(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a frame that pandas wrote, as texts or as JSON, without our provenance."""
    return {
        k: v if isinstance(v, str) else json.dumps(v)
        for k, v in attributes(pairs).items()
        if not is_provenance(k)
    }


def left_behind(pairs: Mapping[str, str]) -> Iterator[str]:
    """Yield what pandas says of a frame and no other format does: which columns are its index, the order of classes."""
    try:
        described = json.loads(pairs.get(PANDAS, "{}"))
        index = [name for name in described.get("index_columns", ()) if isinstance(name, str)]
        ordered = [
            c["name"] for c in described.get("columns", ()) if (c.get("metadata") or {}).get("ordered")
        ]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return
    if index:
        yield f"pandas' note that {', '.join(index)} are the index of the frame is left out"
    if ordered:
        yield f"the order of the categories of {', '.join(map(str, ordered))} is left out"


def with_columns(text: str, dropped: Collection[str]) -> str:
    """Return pandas' description of a table without some columns and with new ones; as it is, if it cannot be read."""
    try:
        tree = json.loads(text)
        tree["columns"] = [c for c in tree["columns"] if c.get("field_name", c.get("name")) not in dropped]
        # A RangeIndex is described by a mapping, any other by its column's name.
        tree["index_columns"] = [i for i in tree["index_columns"] if isinstance(i, dict) or i not in dropped]
        # Names that were numbers or tuples are text in the file; ours are no such, so that pandas could read none.
        levels = tree.get("column_indexes", ())
        if len(levels) > 1 or not all(TEXT_TYPES.fullmatch(level["pandas_type"]) for level in levels):
            tree["column_indexes"] = [{**TEXT_NAMES, "metadata": {"encoding": "UTF-8"}}]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return text
    return text if tree == json.loads(text) else json.dumps(tree)
