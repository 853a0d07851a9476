"""Density weights of rows on the disk: those of rows in memory, and bounded memory."""

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
    """A whole training, features missing in some rows: the model of shards is that of memory."""
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
    assert found.training.class_share == pytest.approx(expected.training.class_share, rel=1e-5)
    one, other = found.training.shift, expected.training.shift
    assert one.n_training == other.n_training
    assert other.auc > 0.6
    for name in ("auc", "auc_low", "auc_high", "n_effective"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-5), name
    for first, second in zip(found.candidates, expected.candidates, strict=True):
        for name in ("log_evidence", "bic", "effective_parameters"):
            assert getattr(first, name) == pytest.approx(getattr(second, name), abs=1e-2), name
    for mine, theirs in zip(found.classifier.members, expected.classifier.members, strict=True):
        sd = np.sqrt(np.diag(theirs.posterior.gaussian.covariance))
        apart = np.abs(mine.posterior.gaussian.mean - theirs.posterior.gaussian.mean) / sd
        assert apart.max() < 1e-3
