"""Density weights of rows on the disk: those of rows in memory, and bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from blr.basis.kinds import fit_basis
from blr.candidates.rows import density_weights, density_weights_of_all
from blr.shift import density_ratio
from flows.engines.engine import ThreadEngine
from flows.models.store import Store
from flows.training._rows import WEIGHT_OF_ALL, StoredRows, TrainingRows
from flows.training._shards import RATIO, compare_shards, weight_shards
from tests.flows.verbs import train


def drawn(n: int, seed: int) -> tuple[TrainingRows, np.ndarray]:
    """Return n labelled rows, weighted, of which a fifth is held out, and rows of a target that is shifted."""
    rng = np.random.default_rng(seed)
    X, target = rng.normal(size=(n, 2)), rng.normal([0.8, 0.2], [0.7, 1.1], (400, 2))
    held_out, weight = rng.random(n) < 0.2, rng.uniform(0.5, 2, n)
    label = (X[:, 0] > 0).astype(np.intp)
    return TrainingRows(X, np.zeros((n, 2), bool), label, held_out, weight), target


def stored_in(folder: Path, rows: TrainingRows, *, weighted: bool) -> StoredRows:
    arrays = {"filled": rows.X, "target": rows.target, "held_out": rows.held_out}
    for name, array in (arrays | ({"weight": rows.weight} if weighted else {})).items():
        np.save(folder / f"{name}.npy", array)
    return StoredRows(folder)


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("weighted", [True, False])
def test_ratios_and_weights_are_those_of_rows_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, degree: int, weighted: Any
) -> None:
    monkeypatch.setattr("flows.training._rows.SHARD_ROWS", 150)
    rows, target = drawn(2000, 3)
    if not weighted:
        rows = TrainingRows(rows.X, rows.missing, rows.target, rows.held_out)
    basis = fit_basis("polynomial", np.concatenate([rows.X, target]), degree=degree)
    expected = density_ratio(basis(rows.X), basis(target), train_weight=rows.weight)
    weight = density_weights(rows, expected.ratio)
    own = TrainingRows(rows.X, rows.missing, rows.target, rows.held_out, weight)
    of_all = density_weights_of_all(own, expected.ratio).weight

    stored = stored_in(tmp_path, rows, weighted=weighted)
    number = np.arange(0, 2000, 3)
    some = TrainingRows(
        rows.X[number],
        rows.missing[number],
        rows.target[number],
        rows.held_out[number],
        None if rows.weight is None else rows.weight[number],
        number=number,
    )
    found = compare_shards(stored, some, some.X, target, ThreadEngine(2), degree=degree)
    n_training, n_effective = weight_shards(stored)
    for name in ("auc", "auc_low", "auc_high"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-5)
    assert found.advice == expected.advice
    # The search for the prior's precision ends within a tolerance, and starts at the mode of the sample.
    everyone = np.arange(2000)
    np.testing.assert_allclose(stored.at(RATIO, everyone), expected.ratio, rtol=1e-3)
    np.testing.assert_allclose(stored.at("weight", everyone), weight, rtol=1e-3)
    np.testing.assert_allclose(stored.at(WEIGHT_OF_ALL, everyone), of_all, rtol=1e-3)
    assert n_training == rows.training.sum()
    assert n_effective == pytest.approx(weight[rows.training].sum(), rel=1e-4)
    kept = {"filled", "target", "held_out", "weight", WEIGHT_OF_ALL, RATIO}
    assert {path.stem for path in tmp_path.iterdir()} == kept


def test_too_few_rows_of_the_target(tmp_path: Path) -> None:
    rows, target = drawn(50, 1)
    stored = stored_in(tmp_path, rows, weighted=False)
    with pytest.raises(ValueError, match="got 50 training rows and 3 target rows"):
        compare_shards(stored, rows, rows.X, target[:3], ThreadEngine(1), degree=1)


def peak_of(n: int, folder: Path) -> float:
    """Return the most megabytes that are held while n rows on the disk, of them a sample of 5,000, get weights."""
    folder.mkdir()
    rows, target = drawn(n, 2)
    stored = stored_in(folder, rows, weighted=False)
    number = np.sort(np.random.default_rng(4).choice(n, 5_000, replace=False))
    some = TrainingRows(
        rows.X[number], rows.missing[number], rows.target[number], rows.held_out[number], number=number
    )
    del rows
    tracemalloc.start()
    try:
        compare_shards(stored, some, some.X, target, ThreadEngine(1), degree=2)
        weight_shards(stored)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.training._rows.SHARD_ROWS", 2_048)
    few, many = (peak_of(n, tmp_path / str(n)) for n in (10_000, 40_000))
    assert many < few + 0.2  # one array of numbers of the rows that were added would have 0.24 MB
    assert few < 3


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
    one, other = found.training.shift.difference, expected.training.shift.difference
    assert one is not None
    assert other is not None
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
