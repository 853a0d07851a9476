"""A trial of a classification: the first rows of each catalogue are scored, and nothing is written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flows.classification._output_columns import check_copies
from flows.classification._tally import summarise
from flows.classification.scoring import Scorer
from flows.inputs.opening import first_rows, opened
from flows.inputs.source import Source
from flows.models.model import Model
from flows.runs.results import ClassificationTrial, Value
from flows.specification.specification import Specification

__all__ = ["trial"]

SHOWN = 10
"""Most rows that are shown."""

Row = Mapping[str, Value]


def trial(
    sources: Sequence[Source], model: Model, specification: Specification, limit: int
) -> ClassificationTrial:
    """Score the first `limit` rows of each catalogue; return their counts and the first few rows."""
    scorer = Scorer.of(model, specification)
    shown: list[Row] = []
    for source in sources:
        with opened([source], scorer.choice) as catalogs:
            for catalog in catalogs:
                check_copies(catalog, scorer.columns, specification)
                here = scorer.on(catalog)  # it adds to the tallies of `scorer`
                for batch in first_rows(catalog, here.reader.read, limit):
                    new = here(batch)
                    shown += _rows(new, SHOWN - len(shown))
    sets = None if scorer.sets is None else scorer.sets.record
    counts = summarise(scorer.tally(), model.classes, model.features, sets=sets)
    return ClassificationTrial(status="trial", model=model.label, summary=counts, rows=tuple(shown))


def _rows(new: Mapping[str, np.ndarray[Any, Any]], n: int) -> list[Row]:
    rows = zip(*(array[:n].tolist() for array in new.values()), strict=True)
    return [{name: _plain(value) for name, value in zip(new, row, strict=True)} for row in rows]


def _plain(value: Value) -> Value:
    return None if isinstance(value, float) and math.isnan(value) else value
