"""Marks of missing values differ between surveys: [target] states those of the catalogue to classify."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

import catalogs
from catalogs.catalog.catalog import ColumnMetadata
from catalogs.errors import OutputExistsError
from flows.errors import SpecificationError
from flows.specification.toml_file import parse_specification
from flows.training._target import read_target
from tests.flows.verbs import classify, reprocess, train

N = 300
NO_UNIT = ColumnMetadata(unit=None, ucd=None, description=None, datatype=None)
STATES = """
sentinels = { g = -9999, r = -9999 }
not_detected = { g = 99 }
masked = { g = -1 }
limits = { g = 23.5 }
"""
SPECIFICATION = """
name = "m"
[catalog]
paths = ["survey.parquet"]
id = "id"
{states}
[label]
column = "kind"
[select]
posterior = "laplace"
[features]
g = "g"
r = "r"
unseen = "g_not_detected"
spoilt = "g_masked"
"""
THEIRS = """
[target]
columns = { g = "MAG_G", r = "MAG_R" }
sentinels = { g = 0, r = "" }
not_detected = { g = [50, 60] }
masked = { g = "blank" }
"""
KINDS = ("measured", "not observed", "not detected", "masked")


def survey() -> dict[str, np.ndarray]:
    """Return magnitudes (NaN where there is none), and why there is none of g: the number of one of KINDS."""
    rng = np.random.default_rng(8)
    late = rng.random(N) < 0.5
    why = rng.choice(4, N, p=[0.7, 0.1, 0.1, 0.1])
    return {
        "id": np.array([f"G{i}" for i in range(N)]),
        "kind": np.where(late, "late", "early"),
        "g": np.where(why == 0, np.round(rng.normal(20 + late, 0.5), 3), np.nan),
        "r": np.where(rng.random(N) < 0.1, np.nan, np.round(rng.normal(19 - 0.5 * late, 0.5), 3)),
        "why": why,
    }


def marked(g: Mapping[str, float], r: float) -> dict[str, np.ndarray]:
    """Return the survey with one mark for each reason."""
    columns = survey()
    for i, kind in enumerate(KINDS[1:], start=1):
        columns["g"][columns["why"] == i] = g[kind]
    columns["r"][np.isnan(columns["r"])] = r
    return columns


def ours() -> dict[str, np.ndarray]:
    """Return the survey with the marks of STATES."""
    return marked({"not observed": -9999, "not detected": 99, "masked": -1}, -9999)


def theirs() -> pa.Table:
    """Return it as another survey has it: other names, two marks for one reason, blank texts for none."""
    columns = marked({"not observed": 0, "not detected": 50, "masked": np.nan}, np.nan)
    columns["g"][np.flatnonzero(columns["g"] == 50)[::2]] = 60
    texts = np.where(np.isnan(columns["r"]), "", columns["r"].astype(str))
    return pa.table({"id": columns["id"], "MAG_G": columns["g"], "MAG_R": texts})


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a folder with a model, its specification, its survey and the other one; and the model's label."""
    folder = tmp_path_factory.mktemp("marks")
    pq.write_table(pa.table(ours()), folder / "survey.parquet")
    pq.write_table(theirs(), folder / "theirs.parquet")
    text = SPECIFICATION.format(states=STATES)
    (folder / "spec.toml").write_text(text)
    (folder / "theirs.toml").write_text(text + THEIRS)
    return folder, train(folder / "spec.toml", folder / "models").model


@pytest.fixture
def trained(trained_once: tuple[Path, str], tmp_path: Path) -> tuple[Path, str]:
    """Return a copy of them, to be written to."""
    folder, model = trained_once
    return Path(shutil.copytree(folder, tmp_path, dirs_exist_ok=True)), model


def classified(folder: Path, model: str, name: str, spec: str, out: str = "out") -> pa.Table:
    path = folder / name
    classify(
        [path], model=model, out=folder / out, store=folder / "models", specification=folder / spec, threads=1
    )
    return catalogs.open(folder / out / name)


def new_columns(catalog: Any) -> dict[str, np.ndarray]:
    names = [n for n in catalog.names if n.startswith("blr_")]
    batches = pa.Table.from_batches(catalog.batches(names))
    return {n: batches[n].to_numpy() for n in names}


def assert_equal(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name in found:
        # Text formats hold the digits of a float32, which are read as float64.
        values = found[name].astype(expected[name].dtype)
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


def test_the_targets_marks_are_those_of_the_training_converted_by_hand(trained: tuple[Path, str]) -> None:
    """Whatever format has them: every new column, flags too, is that of a file with the training's marks."""
    folder, model = trained
    expected = new_columns(classified(folder, model, "survey.parquet", "spec.toml"))
    why = survey()["why"]
    assert np.array_equal((expected["blr_flags"] & 256) > 0, why == 2), "flag 8"
    pc.write_csv(theirs(), folder / "theirs.csv")
    table = Table({n: theirs()[n].to_numpy(zero_copy_only=False) for n in ("MAG_G",)})
    table["MAG_R"] = np.array(theirs()["MAG_R"].to_pylist())
    table.write(folder / "theirs.fits")
    for name in ("theirs.parquet", "theirs.csv", "theirs.fits"):
        found = new_columns(classified(folder, model, name, "theirs.toml", f"out-{name}"))
        assert_equal(found, expected)


def test_without_them_the_marks_are_magnitudes(trained: tuple[Path, str]) -> None:
    """What the key is for: the same file, of which only the names are told, comes out otherwise."""
    folder, model = trained
    expected = new_columns(classified(folder, model, "survey.parquet", "spec.toml"))
    (folder / "names.toml").write_text(
        SPECIFICATION.format(states=STATES) + THEIRS[: THEIRS.index("sentinels")]
    )
    found = new_columns(classified(folder, model, "theirs.parquet", "names.toml", "names"))
    differs = np.abs(found["blr_p_late"] - expected["blr_p_late"]) > 0.01
    why = survey()["why"]
    assert differs[why > 0].mean() > 0.5
    assert not differs[why == 0].any()


def test_columns_that_it_does_not_name_have_the_models_marks(trained: tuple[Path, str]) -> None:
    folder, model = trained
    expected = new_columns(classified(folder, model, "survey.parquet", "spec.toml"))
    columns = ours()
    columns["r"][columns["r"] == -9999] = 99.0
    pq.write_table(pa.table(columns), folder / "mixed.parquet")
    (folder / "mixed.toml").write_text(
        SPECIFICATION.format(states=STATES) + "[target]\nsentinels = { r = 99 }\n"
    )
    assert_equal(new_columns(classified(folder, model, "mixed.parquet", "mixed.toml", "mixed")), expected)
    # -9999 is then a value as any other, as the training's marks of r are replaced.
    columns["r"][0] = -9999
    pq.write_table(pa.table(columns), folder / "mixed.parquet")
    found = new_columns(classified(folder, model, "mixed.parquet", "mixed.toml", "mixed-2"))
    assert found["blr_flags"][0] & 8, "out of domain"
    assert not found["blr_flags"][0] & 16 or survey()["why"][0] > 0


def test_other_marks_are_another_specification(trained: tuple[Path, str]) -> None:
    folder, model = trained
    classified(folder, model, "theirs.parquet", "theirs.toml")
    (folder / "other.toml").write_text((folder / "theirs.toml").read_text().replace("[50, 60]", "50"))
    with pytest.raises(OutputExistsError, match="outputs of another specification"):
        classified(folder, model, "theirs.parquet", "other.toml")
    text = (folder / "theirs.toml").read_text() + 'paths = ["theirs.parquet"]\n[output]\nfolder = "release"\n'
    expected = new_columns(classified(folder, model, "theirs.parquet", "theirs.toml", "again"))
    done = []
    for said in (text, text, text.replace("[50, 60]", "50")):
        (folder / "release.toml").write_text(said)
        told = reprocess(folder / "release.toml", store=folder / "models", model=model, quiet_seconds=0)
        done.append(told.files["theirs.parquet"]["to_do"])
        found = new_columns(catalogs.open(folder / "release" / "theirs.parquet"))
        if len(done) < 3:
            assert_equal(found, expected)
    assert done == [True, False, True]
    assert not np.array_equal(found["blr_p_late"], expected["blr_p_late"])


def test_the_comparison_at_the_training_goes_by_them(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    text = SPECIFICATION.format(states=STATES)
    read = {
        name: read_target(
            parse_specification(text + said, source="x", base_folder=str(folder)),
            dict.fromkeys(("g", "r"), NO_UNIT),
        )
        for name, said in {
            "ours": '[target]\npaths = ["survey.parquet"]\n',
            "theirs": THEIRS + 'paths = ["theirs.parquet"]\n',
        }.items()
    }
    assert read["ours"].missing.sum() > N / 5
    np.testing.assert_array_equal(read["theirs"].X, read["ours"].X)
    np.testing.assert_array_equal(read["theirs"].missing, read["ours"].missing)


@pytest.mark.parametrize("key", ["sentinels", "not_detected", "masked"])
def test_marks_that_would_mark_nothing_are_refused(trained: tuple[Path, str], key: str) -> None:
    folder, model = trained
    text = SPECIFICATION.format(states="")
    with pytest.raises(SpecificationError, match=rf"target\.{key}: got 'gg', expected the name.*mean 'g'"):
        parse_specification(
            f"{text.replace('_not_detected', '').replace('_masked', '')}[target]\n{key} = {{ gg = 1 }}\n",
            source="x",
        )
    (folder / "quoted.toml").write_text(
        SPECIFICATION.format(states=STATES) + f'[target]\n{key} = {{ r = "-99" }}\n'
    )
    with pytest.raises(
        SpecificationError, match=rf"target\.{key}: got the text '-99' for 'r', .* write -99 w"
    ):
        classified(folder, model, "survey.parquet", "quoted.toml", "quoted")


@pytest.mark.parametrize("said", ['columns = { z = "Z" }', 'units = { z = "mag" }', "sentinels = { z = 1 }"])
def test_names_that_the_model_does_not_know_are_refused(trained: tuple[Path, str], said: str) -> None:
    """Although the specification that comes with the target has a feature of that column."""
    folder, model = trained
    (folder / "z.toml").write_text(SPECIFICATION.format(states=STATES) + f'z = "z"\n[target]\n{said}\n')
    with pytest.raises(
        SpecificationError, match=rf"with the model {model}, target\.\w+: got 'z', expected the name"
    ):
        classified(folder, model, "survey.parquet", "z.toml", "z")


def test_a_value_has_one_meaning_in_the_target_too(trained: tuple[Path, str]) -> None:
    """In the specification as it is written, and with the marks of the model that it is used with."""
    folder, model = trained
    text = SPECIFICATION.format(states=STATES)
    said = "[target]\nsentinels = { g = 99 }\n"
    told = r"target: got 99.0 of column 'g' in sentinels and in not_detected.*\[\] for none"
    with pytest.raises(SpecificationError, match=told):
        parse_specification(text + said, source="x")
    parse_specification(text + said + "not_detected = { g = [] }\n", source="x")
    bare = SPECIFICATION.format(states=STATES.replace("{ g = 99 }", "{ g = 98 }")) + said
    parse_specification(bare, source="x")
    (folder / "bare.toml").write_text(bare)
    with pytest.raises(SpecificationError, match=told):
        classified(folder, model, "survey.parquet", "bare.toml", "bare")


@pytest.mark.parametrize("key", ["not_detected", "masked"])
def test_a_column_of_the_training_does_not_become_an_indicator(key: str) -> None:
    text = SPECIFICATION.format(states="") + "[target]\n"
    parse_specification(f"{text}{key} = {{ r = 1 }}\n", source="x")
    with pytest.raises(
        SpecificationError, match=f"target.{key}: got 'g', but the model uses the column 'g_{key}'"
    ):
        parse_specification(f"{text}{key} = {{ g = 1 }}\n", source="x")
