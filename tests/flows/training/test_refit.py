"""The model that is kept is fitted again to all rows, whose basis may have other functions than the judged rows'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blr.classifier import Classifier
from catalogs.profile.split import held_out_keys, name_keys
from flows.models.model import read_tree
from flows.models.store import Store
from flows.request import TrainRequest
from flows.training import steps

SPECIFICATION = """
name = "steps"
[catalog]
paths = ["rows.parquet"]
id = "id"
[label]
column = "kind"
[split]
by = "id"
held_out = 0.2
[features]
x = "x"
code = "code"
[[candidate]]
basis = { kind = "sigmoid", centres = 5 }
"""


def test_a_value_that_only_held_out_rows_have_adds_a_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    names = np.array([f"object {i}" for i in range(400)])
    held_out = held_out_keys(name_keys([names]), 0.2)
    code = np.where(held_out, rng.integers(0, 4, 400), rng.integers(0, 2, 400)).astype(float)
    x = rng.normal(size=400)
    kind = np.where(x + rng.normal(size=400) > 0, "a", "b")
    table = pa.table({"id": names, "x": x, "code": code, "kind": kind})
    pq.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "spec.toml").write_text(SPECIFICATION, encoding="utf-8")
    trained = steps.train(TrainRequest(tmp_path / "spec.toml", tmp_path / "models", threads=1))
    kept = Store(tmp_path / "models").load(trained.model).classifier.members[0]
    judged = Classifier.from_dict(read_tree(Path(trained.path) / "judged.asdf")).members[0]
    assert len(kept.posterior.mean) > len(judged.posterior.mean)
