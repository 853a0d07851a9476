"""The labelled rows that a model keeps with their probabilities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.errors import ModelError
from flows.models.row_files import ROWS_FILE, JudgedRows, UnseenRows
from flows.models.store import Store


def test_another_table_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"probability": [0.5]}), tmp_path / ROWS_FILE)
    with pytest.raises(ModelError, match="cannot be read as the table of labelled rows"):
        UnseenRows.read(tmp_path, classes=2, features=1)


def test_a_training_keeps_them(trained: Path) -> None:
    """They are the rows that the model was judged on: their losses are those of the judgement."""
    stored = Store(trained / "models")
    model, folder = stored.load("morphology"), stored.find("morphology").folder
    rows = UnseenRows.read(folder, classes=len(model.classes), features=len(model.features))
    known = np.isfinite(rows.probability[:, 0])
    assert len(known) == model.metrics.n
    assert np.sum(~known) == model.metrics.n_unclassified
    losses = -np.log(rows.probability[known, rows.target[known]])
    judged = JudgedRows.read(folder).log_loss
    assert np.isin(losses.round(9), judged.round(9)).all()
