"""Density weights of rows on the disk: nearly those of rows in memory, from a sample of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from flows.models.store import Store
from tests.flows.verbs import train


@pytest.mark.parametrize("more", ["", pytest.param("\nrefit = false", marks=pytest.mark.long)])
def test_a_training_with_density_weights(
    make: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """A whole training, features missing in some rows: weights from a third of the rows are nearly those from all."""
    columns = make.survey(3000)
    make.parquet(tmp_path / "survey.parquet", columns)
    bright = np.flatnonzero(columns["bmag"] > np.nanmedian(columns["bmag"]))[:900]
    make.parquet(tmp_path / "target.parquet", {name: column[bright] for name, column in columns.items()})
    text, _, _ = make.specification.partition("[[candidate]]\nfeatures")
    shift = f'[split]{more}\n[shift]\ntarget = "target.parquet"\ndensity_weights = true\n'
    spec = tmp_path / "spec.toml"
    spec.write_text(text.replace("[features]", f'[select]\nposterior = "laplace"\n{shift}[features]'))
    train(spec, tmp_path / "memory")
    monkeypatch.setattr("flows.training._gather.MOST_IN_MEMORY", 1000)
    monkeypatch.setattr("flows.training._rows.SHARD_ROWS", 300)
    train(spec, tmp_path / "shards")
    expected, found = (Store(tmp_path / name).load("morphology") for name in ("memory", "shards"))
    assert found.label == expected.label
    assert (found.training.sampled, expected.training.sampled) == (1000, None)
    assert found.training.class_share == pytest.approx(expected.training.class_share, rel=0.05)
    one, other = found.training.shift, expected.training.shift
    assert one.n_training == other.n_training
    assert other.auc > 0.6
    assert one.auc == pytest.approx(other.auc, abs=0.03)
    assert one.n_effective == pytest.approx(other.n_effective, rel=0.1)
    assert found.metrics.log_loss == pytest.approx(expected.metrics.log_loss, abs=0.05)
