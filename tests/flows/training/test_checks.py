"""A posterior that is compared with the exact one in a training, and the verdict that comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.models.store import Store
from tests.flows.verbs import train

SPECIFICATION = """
name = "separable"
[catalog]
paths = ["survey.parquet"]
id = "name"
[label]
column = "type"
[label.classes]
star = ["star"]
galaxy = ["galaxy"]
[split]
held_out = 0
[features]
"""


@pytest.fixture
def separable(tmp_path: Path) -> Any:
    """Fifty objects in twelve features, two of which tell their classes apart without error."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(50, 12))
    star = x[:, 0] + x[:, 1] > 0
    x[:, 0] += np.where(star, 1.0, -1.0)
    columns = {f"x{j}": x[:, j] for j in range(12)}
    named = {"name": [f"o{i}" for i in range(50)], "type": np.where(star, "star", "galaxy").tolist()}
    pq.write_table(pa.table(named | columns), tmp_path / "survey.parquet")
    features = "".join(f'{name} = "{name}"\n' for name in columns)
    (tmp_path / "spec.toml").write_text(SPECIFICATION + features)
    return tmp_path


def test_a_separable_training_uses_the_posterior_of_the_check(*, separable: bool) -> None:
    told = train(separable / "spec.toml", separable / "models")
    best = told.candidates[told.selected]
    assert best.verdict == "red"  # of the Gaussian at the mode
    said = [reason for row in told.candidates for reason in row.reasons]
    assert any("tell galaxy and star apart" in r or "tell star and galaxy apart" in r for r in said)
    assert not any("column" in reason for reason in said)
    ways = {found.way for row in told.candidates for found in row.checks if found}
    assert ways & {"confirmed", "matched", "sampled"}  # other scales may be less skewed
    assert "failed" not in ways
    assert told.trust.verdict != "red"
    model = Store(separable / "models").load("separable")
    assert not model.classifier.untrusted
    found = [x.log_evidence for row in told.candidates for x in row.checks if x]
    assert all(abs(x - best.log_evidence) < 20 for x in found if x is not None)
    assert any(x is not None for x in found)  # chains give the evidence, too
