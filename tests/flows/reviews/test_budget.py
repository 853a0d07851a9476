"""A review's budget: weights that hold, no labelled object, no near-duplicates, quotas, and outliers."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

from flows.classification.explanation import feature_space
from flows.errors import UsageError
from flows.models.row_files import LabelledObjects
from flows.models.store import Store
from tests.flows.verbs import classify, review


@pytest.fixture(scope="module")
def release(trained: Path, make: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return copies of the survey with 600 objects without a label, 15 of them quasars: blue, and alike by three."""
    folder = tmp_path_factory.mktemp("release")
    columns, new = make.survey(), make.survey(600, seed=2)
    new["name"] = np.array([f"N{i:05d}" for i in range(600)])
    new["hubble"] = np.full(600, "")
    new["type"][:] = "G"
    new["bmag"][:15] = new["kmag"][:15] - 8 - np.arange(15) // 3
    new["jmag"][:15] = new["kmag"][:15]
    both = {name: np.concatenate([columns[name], new[name]]) for name in columns}
    make.parquet(folder / "all.parquet", both)
    out = folder / "out"
    classify([folder / "all.parquet"], model="morphology", store=trained / "models", out=out)
    return out


@pytest.fixture(scope="module")
def space(trained: Path, release: Path) -> Any:
    return feature_space(release, trained / "models")


def rows(out: Path, name: str = "review") -> list[dict[str, str]]:
    with (out / f"{name}.csv").open(encoding="utf-8") as stream:
        return [*csv.DictReader(stream)]


def names_of_labelled(trained: Path) -> set[str]:
    folder = Store(trained / "models").find("morphology").folder
    return {n.decode() for n in LabelledObjects.read(folder, classes=2, features=2).identifier.tolist()}


def test_a_budget_is_drawn_with_weights_that_stand_for_the_release(
    trained: Path, release: Path, space: Any
) -> None:
    table = pq.read_table(release / "all.parquet").to_pandas().set_index("name")
    sums = []
    for seed in range(8):
        told = review(release, budget=40, seed=seed, space=space)
        chosen = rows(release)
        assert (told.drawn, told.top, len(chosen)) == (40, 0, 40)
        names = [r["name"] for r in chosen]
        assert len(set(names)) == 40
        assert not set(names) & names_of_labelled(trained)
        weight = np.array([float(r["weight"]) for r in chosen])
        assert weight.max() <= 10 * told.n_classified / 40 * (1 + 1e-9)
        sums.append(weight.sum())
        near = space.on(_catalog(release)).points(_batch(release, names))
        gaps = np.linalg.norm(near[:, None] - near, axis=2)[np.triu_indices(40, 1)]
        assert gaps.min() > 0.01
        informed = table.loc[names, "blr_mutual_info"].mean()
        assert informed > table["blr_mutual_info"].mean()
    assert np.mean(sums) == pytest.approx(told.n_classified, rel=0.15)
    assert list(Table.read(release / "review.vot")["name"]) == names


def _catalog(release: Path) -> Any:
    import catalogs

    return catalogs.open(release / "all.parquet")


def _batch(release: Path, names: list[str]) -> Any:
    table = pq.read_table(release / "all.parquet")
    place = {name: i for i, name in enumerate(table["name"].to_pylist())}
    return table.take([place[name] for name in names]).combine_chunks().to_batches()[0]


def test_outliers_are_listed_apart_each_kind_once(release: Path, space: Any) -> None:
    told = review(release, budget=10, outliers=5, space=space)
    found = rows(release, "outliers")
    assert told.outliers == len(found) == 5
    drawn = {r["name"] for r in rows(release)}
    kinds = [int(r["name"][1:]) // 3 for r in found if int(r["name"][1:]) < 15]
    assert len(kinds) >= 4
    assert len(set(kinds)) == len(kinds)  # of three that are alike, one
    assert not drawn & {r["name"] for r in found}
    novelty = [float(r["novelty"]) for r in found]
    assert novelty == sorted(novelty, reverse=True)
    page = (release / "outliers.html").read_text(encoding="utf-8")
    assert "other?" in page
    assert {r["nearest_class"] for r in found} <= {"early", "late"}


def test_quotas_by_class_and_by_magnitude(release: Path, space: Any) -> None:
    review(release, budget=30, per_class=True, by="kmag", edges=[11.0], space=space)
    chosen = rows(release)
    table = pq.read_table(release / "all.parquet").to_pandas().set_index("name")
    bright = table.loc[[r["name"] for r in chosen], "kmag"].to_numpy() < 11
    early = np.array([r["class_given"] == "early" for r in chosen])
    assert sorted(np.bincount(2 * early + bright, minlength=4).tolist()) == [7, 7, 8, 8]
    with pytest.raises(UsageError, match="got no --budget"):
        review(release, per_class=True)
    with pytest.raises(UsageError, match="expected one way to choose"):
        review(release, budget=3, draw=2)


def test_without_the_features_objects_are_spread_over_probabilities(
    trained: Path, make: SimpleNamespace, space: Any, tmp_path: Path
) -> None:
    spec = tmp_path / "slim.toml"
    spec.write_text(make.specification + '\n[output]\nmode = "slim"\n')
    out = tmp_path / "out"
    survey = make.parquet(tmp_path / "s.parquet", make.survey(200, seed=5))
    classify([survey], model="morphology", store=trained / "models", out=out, specification=spec)
    told = review(out, budget=12, space=space, dry_run=True)
    assert told.drawn == 12
    assert told.outliers == 0
    assert any("slim copies" in remark for remark in told.remarks)


def test_a_release_without_objects_and_one_of_many_files(
    trained: Path, make: SimpleNamespace, space: Any, tmp_path: Path
) -> None:
    """All of whose objects have a label; and files that share a budget, in slices of a random order."""
    none = tmp_path / "none"
    classify([trained / "survey.parquet"], model="morphology", store=trained / "models", out=none)
    table = pq.read_table(none / "survey.parquet")
    names = pa.table({"name": pa.array(table["name"].to_pylist(), pa.string())})
    pq.write_table(names, none / "_labelled" / "names.parquet")
    told = review(none, budget=5, space=space)
    assert (told.drawn, told.outliers, told.n_classified) == (0, 0, 0)
    short = (
        "the list has 0 objects, fewer than the budget of 5: 400 of 400 objects are left out, since the model was "
        "trained on them"
    )
    assert set(told.remarks) == {*_places(told), short}
    assert rows(none) == rows(none, "outliers") == []
    for i in range(3):
        columns = make.survey(50, seed=10 + i)
        columns["name"] = np.array([f"{i}-{name}" for name in columns["name"]])
        make.parquet(tmp_path / f"part{i}.parquet", columns)
    out = tmp_path / "out"
    classify(sorted(tmp_path.glob("part*")), model="morphology", store=trained / "models", out=out)
    assert review(out, budget=20, space=space).drawn == 20
    assert {r["name"][0] for r in rows(out)} == {"0", "1", "2"}


def _places(told: Any) -> tuple[str, ...]:
    return tuple(remark for remark in told.remarks if "positions" in remark)


def test_a_list_with_answers_is_not_overwritten(
    trained: Path, make: SimpleNamespace, space: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    survey = make.parquet(tmp_path / "s.parquet", make.survey(100, seed=8))
    classify([survey], model="morphology", store=trained / "models", out=out)
    review(out, budget=5, outliers=2, space=space)
    review(out, budget=5, outliers=2, space=space)
    path = out / "outliers.csv"
    path.write_text(path.read_text().rstrip("\n") + "other?\n")
    with pytest.raises(
        UsageError, match=r"outliers\.csv: got a list with 1 answers.*move it to another folder first"
    ):
        review(out, budget=5, space=space)
    assert review(out, top=3).top >= 0  # the other list has none
