"""Rows of a target that have a label of the training: the census counts them by it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from flows.classification._tally import CensusRows, joined, read_census_rows, write_census_rows
from flows.classification.census_taking import table_census, take_census
from flows.request import CensusRequest
from tests.flows.verbs import classify

EARLY, LATE = ["E", "S0"], ["Sb", "Sc"]


@pytest.fixture(scope="module")
def both(make: SimpleNamespace) -> dict[str, np.ndarray]:
    """Return the survey that the model was trained on, and 2,000 objects more."""
    first, more = make.survey(), make.survey(2000, seed=5)
    more["name"] = np.array([f"H{i:05d}" for i in range(2000)])
    return {name: np.concatenate([first[name], more[name]]) for name in first}


def counted(columns: dict[str, np.ndarray]) -> dict[str, int]:
    """Return the labels that the model was trained on, of objects that have features."""
    known = (columns["type"] == "G") & (columns["jmag"] > 0) & np.char.startswith(columns["name"], "G")
    return {
        name: int(np.isin(columns["hubble"][known], texts).sum())
        for name, texts in (("early", EARLY), ("late", LATE))
    }


def test_rows_with_a_label_are_counted_by_it(
    trained: Path, tmp_path: Path, make: SimpleNamespace, both: dict[str, np.ndarray]
) -> None:
    make.parquet(tmp_path / "both.parquet", both)
    classify([tmp_path / "both.parquet"], "morphology", trained / "models", tmp_path / "out")
    census = json.loads((tmp_path / "out" / "summary.json").read_text())["census"]
    labels = counted(both)
    for name, count in census["classes"].items():
        assert count["labelled"] == labels[name]
        assert labels[name] <= count["low"] <= count["count"] <= count["high"]
        assert count["source"] == "model"
        assert f"{sum(labels.values()):,} objects have a label and are counted by it" in count["reason"]
    assert sum(c["count"] for c in census["classes"].values()) == pytest.approx(census["n_rows"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "by label" in page
    assert "objects have a label and are counted by it" in page
    again = take_census(CensusRequest(tmp_path / "out", store=trained / "models"), dry_run=True).census
    assert {n: c.labelled for n, c in again.classes.items()} == labels
    table = table_census(pd.DataFrame(both), model="morphology", store=trained / "models")
    assert {n: c.labelled for n, c in table.classes.items()} == labels


def test_where_all_objects_have_labels_nothing_is_estimated(trained: Path, make: SimpleNamespace) -> None:
    survey = make.survey()
    known = np.isin(survey["hubble"], EARLY + LATE) & (survey["type"] == "G") & (survey["jmag"] > 0)
    labelled = {name: column[known] for name, column in survey.items()}
    found = table_census(pd.DataFrame(labelled), model="morphology", store=trained / "models")
    labels = counted(labelled)
    assert {n: (c.count, c.low, c.high) for n, c in found.classes.items()} == {
        n: pytest.approx((k, k, k)) for n, k in labels.items()
    }
    assert {c.source for c in found.classes.values()} == {"labels"}
    assert {c.assumes for c in found.classes.values()} == {None}


def test_other_objects_with_the_same_names_are_not_known(trained: Path, make: SimpleNamespace) -> None:
    others = make.survey(400, seed=9)  # G00000 is another galaxy here
    found = table_census(pd.DataFrame(others), model="morphology", store=trained / "models")
    assert {c.labelled for c in found.classes.values()} == {0}


def test_the_weights_of_each_class_add_up_to_its_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    p, X, known = rng.dirichlet(np.ones(3), 5000), rng.normal(size=(5000, 2)), rng.choice([-1, 0, 2], 5000)
    p[::50] = np.nan
    batches = [
        CensusRows.of(p[i : i + 700], X[i : i + 700], 9, known[i : i + 700]) for i in range(0, 5000, 700)
    ]
    rows = joined(batches)
    truth = {k: int(np.sum((known == k) & ~np.isnan(p[:, 0]))) for k in (-1, 0, 2)}
    write_census_rows(tmp_path, {"a": rows.thinned(40)})
    stored = read_census_rows(tmp_path, classes=3, features=2)["a"]
    for some in (rows, rows.sorted(), rows.thinned(40), stored):
        assert {k: round(float(some.weight[some.known == k].sum())) for k in truth} == truth
    assert len(stored.weight) == 40


def test_rows_whose_numbers_are_in_another_byte_order_do_not_end_a_census(
    trained: Path, make: SimpleNamespace
) -> None:
    """Such numbers, up to 1e308, are beyond single precision, in which rows of a census are kept."""
    survey = make.survey(400, seed=9)
    name = next(
        name
        for name, values in survey.items()
        if np.asarray(values).dtype == float and name not in {"ra", "dec"}
    )
    survey[name] = np.asarray(survey[name]).astype(">f8").view("<f8").astype(float)
    found = table_census(pd.DataFrame(survey), model="morphology", store=trained / "models")
    assert found.classes
