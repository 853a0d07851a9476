"""The hash of what columns hold in some rows: the same from every format, and wherever the batches end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from catalogs.values import batch_values

__all__ = ["ContentHash"]


class ContentHash:
    """Columns hashed one by one, so that the boundaries of batches do not matter."""

    def __init__(self, names: Iterable[str]) -> None:
        self._columns: dict[str, Any] = {name: hashlib.sha256() for name in names}

    def feed(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        for name, values in batch_values(batch, self._columns).items():
            if values.dtype.kind in "OUS":
                self._columns[name].update(
                    b"".join(b"%d:%s" % (len(t), t) for t in (str(v).encode() for v in values.ravel()))
                )
            else:
                plain = np.ma.filled(np.ma.asanyarray(values).astype("<f8"), np.nan)
                one_nan = np.where(np.isnan(plain), np.nan, plain)  # of the many there are
                self._columns[name].update(one_nan.tobytes())

    def hexdigest(self, given: Mapping[str, str] | None = None) -> str:
        """Return the hash of all columns, and of what else was `given` with the rows."""
        digests = {name: column.hexdigest() for name, column in self._columns.items()}
        if given:
            digests[""] = hashlib.sha256(repr(sorted(given.items())).encode()).hexdigest()
        return hashlib.sha256("\n".join(f"{n} {digests[n]}" for n in sorted(digests)).encode()).hexdigest()
