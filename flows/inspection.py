"""What a file holds: a catalogue's columns with unit, UCD, range and missing share; or a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import catalogs
from catalogs.catalog import Catalog
from catalogs.values import column_values
from flows.model_file import is_model_file, read_model
from flows.store import Store
from flows.trial import first_rows

__all__ = ["inspect_file"]


def inspect_file(path: Path, *, limit: int | None = None) -> dict[str, Any]:
    """Return what a file holds; of a catalogue, what the first `limit` rows show, or all."""
    if is_model_file(path):
        model = read_model(path)
        return {"kind": "model", **Store(path.parent.parent.parent).described(model, "stored")}
    catalog = catalogs.open(path)
    return {
        "kind": "catalogue",
        "path": str(path),
        "format": catalog.format,
        "n_rows": catalog.n_rows,
        "files": len(catalog.partitions),
        "columns": _columns(catalog, limit),
    }


@dataclass
class _Seen:
    """What the rows of one column have shown so far."""

    n: int = 0
    missing: int = 0
    low: float = np.inf
    high: float = -np.inf

    def add(self, values: np.ndarray[Any, Any]) -> None:
        """Count a batch of one value a row."""
        self.n += len(values)
        if values.dtype.kind == "O":
            self.missing += int(np.count_nonzero(values == ""))
            return
        numbers = np.ma.filled(np.ma.asanyarray(values).astype(float), np.nan)
        known = numbers[np.isfinite(numbers)]
        self.missing += len(numbers) - len(known)
        if known.size:
            self.low, self.high = min(self.low, float(known.min())), max(self.high, float(known.max()))


def _columns(catalog: Catalog, limit: int | None) -> list[dict[str, Any]]:
    readable = [c for c in catalog.columns if not c.shape and _is_plain(c.datatype)]
    seen = {c.name: _Seen() for c in readable}
    for batch in first_rows(catalog, list(seen), limit if limit is not None else max(1, catalog.n_rows)):
        for name, counts in seen.items():
            counts.add(column_values(batch.column(name), name=name))
    return [
        {
            "name": c.name,
            "datatype": str(c.datatype),
            "unit": c.unit,
            "ucd": c.ucd,
            "description": c.description,
            **_shown(seen.get(c.name)),
        }
        for c in catalog.columns
    ]


def _is_plain(datatype: pa.DataType) -> bool:
    kinds: Iterable[Any] = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
    )
    return any(is_kind(datatype) for is_kind in kinds)


def _shown(counts: _Seen | None) -> dict[str, float | None]:
    if counts is None or not counts.n:
        return {"missing": None, "minimum": None, "maximum": None}
    numeric = counts.low <= counts.high
    return {
        "missing": counts.missing / counts.n,
        "minimum": counts.low if numeric else None,
        "maximum": counts.high if numeric else None,
    }
