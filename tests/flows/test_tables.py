"""Tables in memory get the same results as a file of the same rows, and keep their type."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import MaskedColumn, QTable, Table
from astropy.units import mag

from catalogs.errors import ColumnNotFoundError
from flows.errors import ModelError, SpecificationError, TrainingError, UsageError
from flows.specification.specification import Candidate
from flows.specification.toml_file import parse_specification, read_specification
from flows.tables import classifier_from, classify_table, partition_classifier
from tests.flows.verbs import classify

MODEL = "morphology"


def from_file(trained: Path, folder: Path, **options: Any) -> pa.Table:
    survey = trained / "survey.parquet"
    classify([survey], model=MODEL, store=trained / "models", out=folder / "out", **options)
    return pq.read_table(folder / "out" / "survey.parquet")


def values(table: Any) -> dict[str, np.ndarray]:
    names = [n for n in getattr(table, "column_names", None) or list(table.columns) if n.startswith("blr_")]
    return {n: np.asarray(table[n]) for n in names}


def assert_same(found: Any, expected: pa.Table) -> None:
    here, there = values(found), values(expected)
    assert list(here) == list(there)
    for name, column in there.items():
        np.testing.assert_array_equal(here[name], column, err_msg=name)


@pytest.mark.parametrize("kind", ["astropy", "pandas", "arrow"])
def test_a_table_gets_what_a_file_gets(trained: Path, tmp_path: Path, kind: str) -> None:
    survey = pq.read_table(trained / "survey.parquet")
    made = {"astropy": lambda: Table(survey.to_pydict()), "pandas": survey.to_pandas, "arrow": lambda: survey}
    table = made[kind]()
    found = classify_table(table, model=MODEL, store=trained / "models")
    assert type(found) is type(table)
    assert_same(found, from_file(trained, tmp_path))
    again = classify_table(found, model=MODEL, store=trained / "models", threads=2)
    assert_same(again, from_file(trained, tmp_path))


def test_what_a_notebook_has_stays(trained: Path) -> None:
    frame = pq.read_table(trained / "survey.parquet").to_pandas().set_index("name")
    frame.attrs["made by"] = "me"
    found = classify_table(frame, model=MODEL, store=trained / "models")
    pd.testing.assert_frame_equal(found[frame.columns], frame)
    assert found.attrs["made by"] == "me"
    assert any("morphology@" in str(said) for said in found.attrs.values())


@pytest.mark.parametrize("asked", [{"early": 0.9, "late": 0.1}, "em"])
def test_class_shares(trained: Path, tmp_path: Path, asked: dict[str, float] | str) -> None:
    table = pq.read_table(trained / "survey.parquet")
    found = classify_table(table, model=MODEL, store=trained / "models", class_prior=asked)
    assert_same(found, from_file(trained, tmp_path, class_prior=asked))


def test_a_specification_and_a_budget(trained: Path, tmp_path: Path) -> None:
    spec = tmp_path / "other.toml"
    more = "[flags]\nbudget = 0.1\n[output]\ncolumns = 'full'\n"
    spec.write_text((trained / "spec.toml").read_text() + more)
    pq.write_table(pq.read_table(trained / "survey.parquet"), tmp_path / "survey.parquet")
    table = pq.read_table(trained / "survey.parquet")
    found = classify_table(table, model=MODEL, store=trained / "models", specification=spec)
    assert_same(found, from_file(trained, tmp_path, specification=spec))


def test_units_of_quantities_are_converted(trained: Path, tmp_path: Path) -> None:
    table = QTable(pq.read_table(trained / "survey.parquet").to_pydict())
    table["kmag"] = table["kmag"] * mag
    found = classify_table(table, model=MODEL, store=trained / "models")
    assert found["kmag"].unit == mag
    assert_same(found, from_file(trained, tmp_path))


def test_what_is_wrong_is_said(trained: Path) -> None:
    table = pq.read_table(trained / "survey.parquet").drop(["bmag"])
    said = r"^the Table has no column 'bmag', expected by features.b_j"
    with pytest.raises(ColumnNotFoundError, match=said):
        classify_table(table, model=MODEL, store=trained / "models")
    with pytest.raises(ModelError, match="got no model 'nobody'"):
        classify_table(table, model="nobody", store=trained / "models")
    with pytest.raises(ModelError, match=r"modells: got no model .*; correct the path"):
        classify_table(table, model=MODEL, store=trained / "modells")


ASKED = {
    "label": "hubble",
    "features": {"b_j": "bmag - jmag", "j_k": "jmag - kmag"},
    "classes": {"early": ["E", "S0"], "late": ["Sb", "Sc"]},
    "object_id": "name",
}


def test_a_classifier_from_a_table_is_the_one_that_a_file_trains(trained: Path, tmp_path: Path) -> None:
    frame = pq.read_table(trained / "survey.parquet").to_pandas()
    own = classifier_from(
        frame,
        **ASKED,
        candidates=["linear", {"features": ["b_j"], "basis": {"kind": "polynomial", "degree": 2}}],
        options={
            "catalog": {"where": "type == 'G'", "sentinels": {"jmag": [-9999, 99.0]}},
            "split": {"held_out": 0.2},
        },
        name="morphology",
    )
    expected = classify_table(frame, model=MODEL, store=trained / "models")
    found = own.classify(frame)
    for name in ("blr_class", "blr_p_early", "blr_logit_std", "blr_flags"):
        np.testing.assert_array_equal(found[name], expected[name])
    asked, given = own.model.specification, read_specification(trained / "spec.toml")
    for table in ("label", "features", "candidate", "select", "seed"):
        assert getattr(asked, table) == getattr(given, table)
    assert repr(own).startswith("<Model morphology@")
    assert "early" in own._repr_html_()
    assert own.report.is_file()
    own.classify_files([trained / "survey.fits"], out=tmp_path / "out")
    copy = Table.read(tmp_path / "out" / "survey.fits")
    np.testing.assert_array_equal(copy["blr_p_early"], found["blr_p_early"])
    folder = own.store
    del own
    assert not folder.exists()


def test_votes_errors_units_and_masks_of_an_astropy_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    colour, n = rng.normal(size=200), 200
    smooth = rng.binomial(20, 1 / (1 + np.exp(-2 * colour)))
    galaxies = QTable({"a b": MaskedColumn(colour, mask=rng.random(n) < 0.1), "e": np.full(n, 0.1)})
    galaxies["u"] = colour * 1000 * (mag / 1000)
    galaxies["smooth"], galaxies["featured"] = smooth, 20 - smooth
    own = classifier_from(
        galaxies,
        label={"smooth": "smooth", "featured": "featured"},
        features=["a b", "u"],
        errors={"u": "e"},
        candidates=["linear"],
        options={"select": {"posterior": "laplace", "scale": "maximised"}},
        store=tmp_path / "models",
    )
    assert own.model.classes == ("smooth", "featured")
    assert own.model.features == ("a b", "u")
    assert own.model.training.noise["u"] == pytest.approx(0.1)
    assert own.report.is_relative_to(tmp_path / "models")
    again = galaxies[:5]
    again["u"] = again["u"].to(mag)
    p = own.classify(galaxies)["blr_p_smooth"]
    np.testing.assert_allclose(own.classify(again)["blr_p_smooth"], p[:5])
    stored = classify_table(galaxies, model="table", store=tmp_path / "models")
    np.testing.assert_array_equal(stored["blr_p_smooth"], p)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"features": ["bmg"]},
            ColumnNotFoundError,
            "no column 'bmg', expected by features.bmg .*did you mean 'bmag'",
        ),
        (
            {"candidates": ["lineer"]},
            SpecificationError,
            "classifier_from: candidate.0.basis: got kind 'lineer'",
        ),
        ({"options": {"selct": {}}}, SpecificationError, "classifier_from: selct: got an unknown key"),
        (
            {"label": "type"},
            TrainingError,
            "label.classes.early: got no training row with 'E' or 'S0' in column 'type'",
        ),
    ],
)
def test_what_is_no_training_is_said_and_leaves_nothing(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    error: type[Any],
    message: str,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    frame = pq.read_table(trained / "survey.parquet").to_pandas()
    with pytest.raises(error, match=message):
        classifier_from(frame, **ASKED | {"candidates": ["linear"]} | change)
    assert not list(tmp_path.glob("blr-store-*"))


def test_without_candidates_those_of_blr_init_compete(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [Candidate(basis={"kind": "polynomial", "degree": 2}), Candidate(transform="arcsinh")]
    fitted, asked = [candidate.fitted for candidate in few], []
    monkeypatch.setattr("flows.tables.default_candidates", lambda *sizes: asked.append(sizes) or fitted)
    frame = pq.read_table(trained / "survey.parquet").to_pandas()
    own = classifier_from(frame, **ASKED | {"object_id": None})
    assert asked == [(own.description.metrics.n, 2, 2)]
    assert list(own.model.specification.candidate) == few
    assert own.model.specification.split.by == "bmag"


def test_partitions_get_what_a_file_gets(trained: Path, tmp_path: Path) -> None:
    """On frames of any part of the rows, without rows too, after a journey to a worker; the index may be read."""
    from distributed.protocol.pickle import dumps, loads

    classifier = partition_classifier(model=MODEL, store=trained / "models")
    frame = pq.read_table(trained / "survey.parquet").to_pandas()
    expected = from_file(trained, tmp_path)
    travelled = loads(dumps(classifier))
    parts = [travelled(frame.iloc[:150]), travelled(frame.iloc[150:].set_index("bmag")).reset_index()]
    found = pd.concat(parts)
    assert [c.name for c in classifier.columns] == list(values(expected))
    assert_same(found, expected)
    meta = classifier(frame.iloc[:0])
    assert (len(meta), meta.dtypes.to_dict()) == (0, parts[0].dtypes.to_dict())
    with pytest.raises(ColumnNotFoundError, match="no column 'bmag'"):
        classifier(frame.drop(columns="bmag"))


def test_partitions_know_no_other_rows(trained: Path, make: SimpleNamespace) -> None:
    for addition, key in (
        ("[flags]\nbudget = 0.1", "flags.budget"),
        ('[shift]\nclass_prior = "em"', "shift.class_p"),
    ):
        specification = parse_specification(f"{make.specification}\n{addition}\n", source="spec.toml")
        with pytest.raises(UsageError, match=f"{key}.*all rows"):
            partition_classifier(model=MODEL, store=trained / "models", specification=specification)
