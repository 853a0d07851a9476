"""A trial of a classification: the first rows of each catalogue are scored, and nothing is written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from catalogs.catalog import BATCH_ROWS, Catalog
from flows.config import Specification
from flows.inputs import Source
from flows.model import Model
from flows.reading import opened
from flows.scoring import Scorer
from flows.slim import check_copies
from flows.table_choice import target_table
from flows.tally import summarise

__all__ = ["trial"]

SHOWN = 10


def trial(
    sources: Sequence[Source], model: Model, specification: Specification, limit: int
) -> dict[str, Any]:
    """Score the first `limit` rows of each catalogue; return their summary and the first few rows."""
    scorer = Scorer.of(model, specification)
    choice = target_table(specification, model.features)
    shown: list[dict[str, Any]] = []
    for source in sources:
        with opened([source], choice) as catalogs:
            for catalog in catalogs:
                check_copies(catalog, scorer.columns, specification)
                here = scorer.on(catalog)  # its tallies are the scorer's
                for batch in first_rows(catalog, here.reader.read, limit):
                    new = here(batch)
                    shown += _rows(new, SHOWN - len(shown))
    return {"summary": summarise(scorer.tally(), model.classes, model.features), "rows": shown}


def first_rows(catalog: Catalog, columns: Sequence[str], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of a catalogue."""
    left = limit
    for batch in catalog.batches(columns, max(1, min(BATCH_ROWS, limit))):
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows


def _rows(new: Mapping[str, np.ndarray[Any, Any]], n: int) -> list[dict[str, Any]]:
    rows = zip(*(array[:n].tolist() for array in new.values()), strict=True)
    return [{name: _plain(value) for name, value in zip(new, row, strict=True)} for row in rows]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
