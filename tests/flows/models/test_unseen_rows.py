"""The labelled rows that a model keeps with their probabilities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.errors import ModelError
from flows.models.row_files import JudgedRows, UnseenRows
from flows.models.store import Store


def made(n: int = 7) -> UnseenRows:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 2))
    X[0, 1] = np.nan
    probability = rng.dirichlet(np.ones(3), n)
    probability[-1] = np.nan
    return UnseenRows(probability, np.arange(n) % 3, rng.random(n), X)


def test_rows_come_back_as_they_went(tmp_path: Path) -> None:
    rows = made()
    rows.write(tmp_path)
    again = UnseenRows.read(tmp_path, classes=3, features=2)
    for name in ("probability", "target", "weight", "X"):
        np.testing.assert_array_equal(getattr(again, name), getattr(rows, name))
    assert UnseenRows.read(tmp_path / "elsewhere", classes=3, features=2) is None


def test_of_many_rows_evenly_spaced_ones_are_kept() -> None:
    rows = made(10)
    np.testing.assert_array_equal(rows.kept(4).target, rows.target[[0, 3, 6, 9]])
    assert rows.kept(10) is rows


@pytest.mark.parametrize(("classes", "features"), [(2, 2), (3, 1)])
def test_rows_of_another_model_are_refused(tmp_path: Path, classes: int, features: int) -> None:
    made().write(tmp_path)
    wanted = f"of 3 classes and 2 features, expected {classes} classes and {features} features"
    with pytest.raises(ModelError, match=wanted):
        UnseenRows.read(tmp_path, classes=classes, features=features)


def test_another_table_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"probability": [0.5]}), tmp_path / UnseenRows.FILE)
    with pytest.raises(ModelError, match="cannot be read as the table of rows that no fit has seen"):
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
