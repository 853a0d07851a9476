"""Rows that are too many for the memory: shards on the disk give the same model as all rows in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from blr.basis.kinds import fit_basis
from blr.gaussian import GaussianPrior
from blr.likelihood.targets import even_confusion
from blr.posterior.laplace import fit
from catalogs.files import StorageError
from catalogs.profile.split import held_out_keys
from flows.engines.engine import ThreadEngine
from flows.labels.source import repeated_in_conflict
from flows.models.store import Store
from flows.reports.data import training_remarks
from flows.training._rows import (
    ArrayWriter,
    StoredRows,
    TrainingShards,
    collected,
    named_pieces,
    row_counts,
)
from tests.flows.verbs import train

MOST = 1000


@pytest.fixture
def few_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 1,000 rows be many, and a shard have 300."""
    monkeypatch.setattr("flows.training._gather.MOST_IN_MEMORY", MOST)
    monkeypatch.setattr("flows.training._rows.SHARD_ROWS", 300)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> Path:
    """Return a folder with a survey of 3,000 rows, some without a feature, and what memory makes of it."""
    folder = tmp_path_factory.mktemp("large")
    columns = make.survey(3000)
    columns["name"][2990:] = columns["name"][:10]  # of which some are of another class there
    make.parquet(folder / "survey.parquet", columns)
    select = '[select]\nby = "stack"\nposterior = "laplace"\n[features]'
    text, _, _ = make.specification.partition("[[candidate]]\nfeatures")
    (folder / "spec.toml").write_text(text.replace("[features]", select))
    train(folder / "spec.toml", folder / "memory")
    return folder


@pytest.mark.usefixtures("few_in_memory")
def test_the_model_of_all_rows(large: Path) -> None:
    told = train(large / "spec.toml", large / "shards")
    expected, found = (Store(large / name).load("morphology") for name in ("memory", "shards"))
    assert found.label == expected.label
    assert not list((large / "shards").rglob(".*"))
    for name in ("training_counts", "held_out_counts", "class_share", "split", "n_selected", "refitted"):
        assert getattr(found.training, name) == getattr(expected.training, name), name
    features = [f | {"median": 0.0} for f in found.training.features]
    assert features == [f | {"median": 0.0} for f in expected.training.features]
    labels = replace(found.training.labels, repeating=expected.training.labels.repeating)
    assert labels == expected.training.labels  # named are those in memory
    assert labels.repeated > 0
    assert told.metrics.n == MOST / 2
    assert told.training.sampled == MOST
    assert any("a sample of 1,000 rows" in text for text in training_remarks(told.training))
    for one, other in zip(found.candidates, expected.candidates, strict=True):
        for name in ("log_evidence", "bic", "effective_parameters"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-3), name
        for name in ("loo", "log_loss"):  # of the rows of the sample
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=0.15), name
    for one, other in zip(found.classifier.members, expected.classifier.members, strict=True):
        own, exact = one.basis.standardisation, other.basis.standardisation
        np.testing.assert_allclose([own.mean, own.scale], [exact.mean, exact.scale], rtol=1e-9)
        sd = np.sqrt(np.diag(other.posterior.gaussian.covariance))
        apart = np.abs(one.posterior.gaussian.mean - other.posterior.gaussian.mean) / sd
        assert apart.max() < 1e-6


def test_a_disk_without_room() -> None:
    full = ArrayWriter(Path("/dev/full"))
    with pytest.raises(StorageError, match=r"No space left on device.*expected enough space for all of them"):
        full.append(np.zeros((100_000, 2)))


def made_rows(n: int) -> Iterator[dict[str, np.ndarray]]:
    for start in range(0, n, 25_000):
        rng = np.random.default_rng(start)
        X, name = rng.normal(size=(25_000, 4)), rng.integers(0, 2**64, 25_000, dtype=np.uint64)
        part = {"X": X, "missing": X > 9, "target": (X[:, 0] > 0).astype(np.int16)}
        yield part | dict.fromkeys(("place", "name", "named"), name)


def peak_of(n: int, folder: Path) -> float:
    """Return the most megabytes that are held while n rows are collected, split, counted and summed over."""
    folder.mkdir()
    tracemalloc.start()
    try:
        rows, _, stored = collected(
            made_rows(n), 20_000, lambda: folder, lambda places: held_out_keys(places, 0.2)
        )
        assert stored is not None
        stored.add("held_out", lambda shard: held_out_keys(stored.read("place", shard), 0.2))
        stored.add("filled", lambda shard: stored.read("X", shard))
        counts = row_counts(stored.each(), 2)
        assert (counts.training + counts.held_out).sum() == n
        nobody = np.empty(0, np.uint64), np.empty(0, "S1")
        assert repeated_in_conflict(named_pieces(stored, rows), "ab", *nobody)[0] == 0
        # Two threads hold one shard or two, as they happen to meet.
        shards = TrainingShards(stored, 2, ThreadEngine(1), held_out_too=False)
        basis = fit_basis("polynomial", rows["X"], degree=2)
        design = shards.design(basis, (0, 1, 2, 3), rows["X"], rows["target"].astype(int), None)
        (seen,) = design.accumulate(lambda Phi, _t, _w: (len(Phi),))
        assert seen == design.n_effective == pytest.approx(0.8 * n, rel=0.01)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.training._rows.SHARD_ROWS", 16_384)
    monkeypatch.setattr("flows.training._rows.PIECE_ROWS", 100_000)
    few, many = (peak_of(n, tmp_path / str(n)) for n in (200_000, 600_000))
    assert many < few + 8  # 400,000 rows in memory would have 20 MB
    assert few < 30


def test_votes_and_weights_of_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with votes for three classes, weighted, some held out: the fit of the arrays."""
    monkeypatch.setattr("flows.training._rows.SHARD_ROWS", 150)
    rng = np.random.default_rng(4)
    X, votes = rng.normal(size=(1000, 2)), rng.integers(0, 5, (1000, 3)).astype(float)
    votes[:, 0] += 1 + np.round(3 * (X[:, 0] > 0))
    held_out, weight = np.arange(1000) % 5 == 0, rng.uniform(0.5, 2, 1000)
    arrays = {
        "filled": X,
        "votes": votes,
        "held_out": held_out,
        "weight": weight,
        "target": votes.argmax(axis=1),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    own = ~held_out
    shards = TrainingShards(StoredRows(tmp_path), 3, ThreadEngine(2), held_out_too=False)
    basis = fit_basis("linear", X[own])
    design = shards.design(basis, (0, 1), X[own][::3], votes[own][::3], weight[own][::3])
    prior = GaussianPrior.isotropic(3, precision=0.5)
    found = fit(design, None, prior, "softmax", classes=range(3))
    whole = fit(basis(X[own]), votes[own], prior, "softmax", sample_weight=weight[own], classes=range(3))
    np.testing.assert_allclose(found.mean, whole.mean, atol=1e-9)
    assert found.n_effective == pytest.approx(whole.n_effective)
    assert design.sample is not None
    assert design.sample.read((0, 0))[2].sum() == pytest.approx(whole.n_effective)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_annotators_of_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_classes: int) -> None:
    """Rows whose annotators differ in their errors: the fit of the arrays, with a matrix for each row."""
    monkeypatch.setattr("flows.training._rows.SHARD_ROWS", 150)
    rng, K = np.random.default_rng(5), n_classes
    X, who = rng.normal(size=(1000, 2)), rng.integers(0, 3, 1000)
    target = np.digitize(X[:, 0] + 0.5 * rng.normal(size=1000), np.linspace(-0.5, 0.5, K - 1))
    held_out = np.arange(1000) % 5 == 0
    for name, array in (("filled", X), ("annotator", who), ("held_out", held_out), ("target", target)):
        np.save(tmp_path / f"{name}.npy", array)
    own, confusion = ~held_out, even_confusion(rng.uniform(0, 0.3, (3, K)))
    shards = TrainingShards(StoredRows(tmp_path), K, ThreadEngine(2), held_out_too=False, confusion=confusion)
    basis, some = fit_basis("linear", X[own]), slice(None, None, 3)
    by_row, t, kind = confusion[who[own]], target[own], "logistic" if K == 2 else "softmax"
    design = shards.design(basis, (0, 1), X[own][some], t[some], None, by_row[some])
    prior = GaussianPrior.isotropic(3, precision=0.5)
    found = fit(design, None, prior, kind, classes=range(K))
    whole = fit(basis(X[own]), t, prior, kind, classes=range(K), confusion=by_row)
    assert found.problem.mislabelled
    np.testing.assert_allclose(found.mean, whole.mean, atol=1e-7)
    assert found.log_evidence == pytest.approx(whole.log_evidence)
    with pytest.raises(ValueError, match="leave confusion out"):
        fit(design, None, prior, kind, classes=range(K), confusion=0.1)


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
