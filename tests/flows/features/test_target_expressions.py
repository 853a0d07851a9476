"""[target]: a model of one survey classifies a catalogue with other columns or other marks of missing values."""

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
from catalogs.errors import CatalogError, OutputExistsError
from flows.errors import SpecificationError
from flows.runs.progress import Listener, listening
from flows.specification.toml_file import parse_specification, read_specification
from flows.training._target import read_target
from tests.flows.conftest import write_parquet as write
from tests.flows.verbs import classify, reprocess, train

SPECIFICATION = """
name = "m"
[catalog]
paths = ["survey.parquet"]
id = "id"
ra = "ra"
dec = "dec"
{catalog}
[label]
column = "kind"
[photometry.i]
flux = "flux_i"
unit = "nanomaggy"
error = "sigma_i"
scale = "pogson"
extinction = {{ e_bv = "ebv", coefficient = 1.6 }}
[features]
g_r = "g - r"
r = "r"
i = "i"
[errors]
r = "e_r"
i = "i_err"
[select]
posterior = "laplace"
[target]
{target}
"""
N = 300
NJY_ZERO = 31.4


def survey() -> dict[str, np.ndarray]:
    """Return magnitudes of two kinds of galaxies, one band as fluxes."""
    rng = np.random.default_rng(3)
    late = rng.random(N) < 0.5
    r = rng.normal(18, 1, N)
    return {
        "id": np.arange(N),
        "ra": rng.uniform(0, 360, N),
        "dec": rng.uniform(-60, 60, N),
        "kind": np.where(late, "late", "early"),
        "g": r + 0.8 - 0.5 * late + rng.normal(0, 0.2, N),
        "r": r,
        "e_r": rng.uniform(0.01, 0.1, N),
        "flux_i": 10 ** (0.4 * (22.5 - r + 0.3)),
        "sigma_i": rng.uniform(0.1, 1, N),
        "ebv": rng.uniform(0, 0.1, N),
    }


def elsewhere() -> dict[str, np.ndarray]:
    """Return the same objects as another survey has them: fluxes in nJy, the i band as a magnitude without dust."""
    ours = survey()
    i = 22.5 - 2.5 * np.log10(ours["flux_i"]) - 1.6 * ours["ebv"]
    flux = {band: 10 ** (0.4 * (NJY_ZERO - ours[band])) for band in "gr"}
    return {
        "objectId": ours["id"],
        "ra": ours["ra"],
        "dec": ours["dec"],
        "PSF-FLUX": np.stack([flux["g"], flux["r"]], axis=1),
        "err r": ours["e_r"] * flux["r"] * np.log(10) / 2.5,
        "I0": i,
        "EI": 2.5 / np.log(10) * ours["sigma_i"] / ours["flux_i"],
    }


TARGET = """
columns = { id = "objectId" }
[target.expressions]
g = '31.4 - 2.5 * log10(`PSF-FLUX`[0])'
r = '31.4 - 2.5 * log10(`PSF-FLUX`[1])'
e_r = '2.5 / log(10) * `err r` / `PSF-FLUX`[1]'
i = 'I0'
i_err = 'EI'
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "survey.parquet", survey(), g="mag", r="mag", e_r="mag")
    (tmp_path / "spec.toml").write_text(SPECIFICATION.format(catalog="", target=TARGET))
    return tmp_path


def probabilities(folder: Path, path: Path, model: str) -> np.ndarray:
    spec = read_specification(folder / "spec.toml")
    out = folder / f"out-{path.stem}"
    done = classify([path], model=model, out=out, store=folder / "models", specification=spec, overwrite=True)
    assert done.status == "done"
    return pq.read_table(out / path.name)["blr_p_early"].to_numpy()


def test_another_surveys_fluxes_are_classified_as_the_same_objects(folder: Path) -> None:
    model = train(folder / "spec.toml", folder / "models").model
    theirs = elsewhere()
    there = write(folder / "there.parquet", theirs, I0="mag", EI="mag")
    found = probabilities(folder, there, model)
    (folder / "spec.toml").write_text(SPECIFICATION.format(catalog="", target=""))
    ours = probabilities(folder, folder / "survey.parquet", model)
    np.testing.assert_allclose(found, ours, atol=1e-5)
    text = SPECIFICATION.format(catalog="", target="expressions = { r = 'kind - 1' }")
    (folder / "spec.toml").write_text(text)
    with pytest.raises(CatalogError, match=r"target.expressions.r: got text where a number"):
        probabilities(folder, folder / "survey.parquet", model)
    copy = pq.read_table(folder / "out-there" / "there.parquet")
    assert copy.drop([n for n in copy.column_names if n.startswith("blr_")]).equals(pq.read_table(there))


def test_the_models_marks_hold_of_what_is_made(folder: Path) -> None:
    """What an expression gives means what the column's values mean: 99 is not detected, NaN is missing."""
    columns = survey()
    columns["r"][:5] = 99
    write(folder / "survey.parquet", columns, g="mag", r="mag", e_r="mag")
    measured = "31.4 - 2.5 * log10(`PSF-FLUX`[1])"
    target = TARGET.replace(f"r = '{measured}'", f"r = 'where(`PSF-FLUX`[1] == 0, 99, {measured})'")
    text = SPECIFICATION.format(catalog="not_detected = { r = [99] }", target=target)
    (folder / "spec.toml").write_text(text)
    model = train(folder / "spec.toml", folder / "models").model
    theirs = elsewhere()
    theirs["PSF-FLUX"][:3, 1] = 0
    theirs["PSF-FLUX"][3:6, 1] = -1
    there = write(folder / "there.parquet", theirs)
    probabilities(folder, there, model)
    flags = pq.read_table(folder / "out-there" / "there.parquet")["blr_flags"].to_numpy()
    assert np.flatnonzero(flags & 256).tolist() == [0, 1, 2]
    assert np.flatnonzero(flags & 16).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("unit", "trained", "remedy"),
    [
        ("nJy", "mag", "expressions = { r = '31.4 - 2.5 * log10(`flux r`)' }"),
        ("mag", "nanomaggy", "expressions = { r = '10 ** (0.4 * (22.5 - `flux r`))' }"),
        ("K", "mag", "else convert it, or compute it from the target's columns under [target.expressions]"),
    ],
)
def test_the_remedy_for_a_unit_is_one_that_works(folder: Path, unit: str, trained: str, remedy: str) -> None:
    columns = survey()
    if trained == "nanomaggy":
        columns["r"] = 10 ** (0.4 * (22.5 - columns["r"]))
    write(folder / "survey.parquet", columns, r=trained)
    text = SPECIFICATION.format(catalog="", target="columns = { r = 'flux r' }")
    (folder / "spec.toml").write_text(text)
    model = train(folder / "spec.toml", folder / "models").model
    theirs = survey()
    if unit == "nJy":
        theirs["r"] = 10 ** (0.4 * (NJY_ZERO - theirs["r"]))
    theirs["flux r"] = theirs.pop("r")
    there = write(folder / "there.parquet", theirs, **{"flux r": unit})
    with pytest.raises(CatalogError) as refused:
        probabilities(folder, there, model)
    assert remedy in str(refused.value)
    if remedy.startswith("expressions"):
        (folder / "spec.toml").write_text(SPECIFICATION.format(catalog="", target=remedy))
        found = probabilities(folder, there, model)
        (folder / "spec.toml").write_text(SPECIFICATION.format(catalog="", target=""))
        ours = probabilities(folder, folder / "survey.parquet", model)
        np.testing.assert_allclose(found, ours, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("expressions = { x = 'a' }", "target.expressions: got 'x', expected the name"),
        ("expressions = { ra = 'a' }", "for the name or the position of the objects"),
        ("columns = { r = 'a' }\nexpressions = { r = 'a' }", "got 'r' under .target.columns. too"),
        ("expressions = { i_err = 'a' }", "got the error of the magnitude 'i' without the magnitude"),
        ("expressions = { r = 'os.system(1)' }", "target.expressions.r"),
    ],
)
def test_what_cannot_be_made(target: str, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        parse_specification(SPECIFICATION.format(catalog="", target=target), source="x")
    element = SPECIFICATION.format(catalog="", target="expressions = { r = 'a' }").replace("- r", "- r[1]")
    with pytest.raises(SpecificationError, match="got an expression for a vector"):
        parse_specification(element, source="x")


def test_units_that_one_side_alone_states_are_told_of(folder: Path) -> None:
    write(folder / "survey.parquet", survey(), g="mag")
    (folder / "spec.toml").write_text(SPECIFICATION.format(catalog="", target=""))
    model = train(folder / "spec.toml", folder / "models").model
    there = write(folder / "there.parquet", survey(), r="nanomaggy")
    notes: list[str] = []
    heard = Listener()
    heard.note = notes.append
    with listening(heard):
        probabilities(folder, there, model)
    told = "\n".join(notes)
    notes.clear()
    assert "column 'r': in 'nanomaggy', but had no unit in training" in told
    assert "column 'g': without a unit here, unlike in training ('mag')" in told
    said = "the values are used unchanged; if that is right, state the unit under [target.units]"
    assert told.count(said) == 1
    text = SPECIFICATION.format(catalog="", target="units = { r = 'mag', g = 'mag' }")
    (folder / "spec.toml").write_text(text)
    with listening(heard):
        probabilities(folder, there, model)
    assert "the values are used unchanged" not in "\n".join(notes)


def test_a_file_of_a_release_in_another_unit_is_quarantined(folder: Path) -> None:
    write(folder / "survey.parquet", survey())
    (folder / "spec.toml").write_text(SPECIFICATION.format(catalog="", target=""))
    train(folder / "spec.toml", folder / "models")
    (folder / "release").mkdir()
    for name, unit in (("a", "mag"), ("b", "mag"), ("c", "Jy")):
        write(folder / "release" / f"{name}.parquet", survey(), g=unit, r="mag")
    target = "paths = ['release']"
    (folder / "spec.toml").write_text(SPECIFICATION.format(catalog="", target=target))
    done = reprocess(folder / "spec.toml", folder / "models", out=folder / "nightly", quiet_seconds=0)
    assert list(done.quarantined) == ["c.parquet"], "one folder is one catalogue, in one unit"
    assert "'g' is in 'mag' in the first and in 'Jy' in the second" in done.quarantined["c.parquet"]


NO_UNIT = ColumnMetadata(unit=None, ucd=None, description=None, datatype=None)
STATES = """
sentinels = { g = -9999, r = -9999 }
not_detected = { g = 99 }
masked = { g = -1 }
limits = { g = 23.5 }
"""
MARKED = """
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


def marked_survey() -> dict[str, np.ndarray]:
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
    columns = marked_survey()
    for i, kind in enumerate(KINDS[1:], start=1):
        columns["g"][columns["why"] == i] = g[kind]
    columns["r"][np.isnan(columns["r"])] = r
    return columns


def ours() -> dict[str, np.ndarray]:
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
    text = MARKED.format(states=STATES)
    (folder / "spec.toml").write_text(text)
    (folder / "theirs.toml").write_text(text + THEIRS)
    return folder, train(folder / "spec.toml", folder / "models").model


@pytest.fixture
def trained(trained_once: tuple[Path, str], tmp_path: Path) -> tuple[Path, str]:
    folder, model = trained_once
    return Path(shutil.copytree(folder, tmp_path, dirs_exist_ok=True)), model


def classified(folder: Path, model: str, name: str, spec: str, out: str = "out") -> pa.Table:
    given = {"store": folder / "models", "specification": folder / spec, "threads": 1}
    classify([folder / name], model=model, out=folder / out, **given)
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
    why = marked_survey()["why"]
    assert np.array_equal((expected["blr_flags"] & 256) > 0, why == 2), "flag 8"
    pc.write_csv(theirs(), folder / "theirs.csv")
    table = Table({n: theirs()[n].to_numpy(zero_copy_only=False) for n in ("MAG_G",)})
    table["MAG_R"] = np.array(theirs()["MAG_R"].to_pylist())
    table.write(folder / "theirs.fits")
    for name in ("theirs.parquet", "theirs.csv", "theirs.fits"):
        found = new_columns(classified(folder, model, name, "theirs.toml", f"out-{name}"))
        assert_equal(found, expected)
    (folder / "other.toml").write_text((folder / "theirs.toml").read_text().replace("[50, 60]", "50"))
    with pytest.raises(OutputExistsError, match="outputs of another specification"):
        classified(folder, model, "theirs.parquet", "other.toml", "out-theirs.parquet")


def test_columns_that_it_does_not_name_have_the_models_marks(trained: tuple[Path, str]) -> None:
    folder, model = trained
    expected = new_columns(classified(folder, model, "survey.parquet", "spec.toml"))
    columns = ours()
    columns["r"][columns["r"] == -9999] = 99.0
    pq.write_table(pa.table(columns), folder / "mixed.parquet")
    (folder / "mixed.toml").write_text(MARKED.format(states=STATES) + "[target]\nsentinels = { r = 99 }\n")
    assert_equal(new_columns(classified(folder, model, "mixed.parquet", "mixed.toml", "mixed")), expected)
    # -9999 is then a value as any other, as the training's marks of r are replaced.
    columns["r"][0] = -9999
    pq.write_table(pa.table(columns), folder / "mixed.parquet")
    found = new_columns(classified(folder, model, "mixed.parquet", "mixed.toml", "mixed-2"))
    assert found["blr_flags"][0] & 8, "out of domain"
    assert not found["blr_flags"][0] & 16 or marked_survey()["why"][0] > 0


def test_the_comparison_at_the_training_goes_by_them(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    text, read = MARKED.format(states=STATES), []
    for said in ('[target]\npaths = ["survey.parquet"]\n', THEIRS + 'paths = ["theirs.parquet"]\n'):
        specification = parse_specification(text + said, source="x", base_folder=str(folder))
        read.append(read_target(specification, dict.fromkeys(("g", "r"), NO_UNIT)))
    (X, missing, _), (theirs, lacking, _) = read
    assert missing.sum() > N / 5
    np.testing.assert_array_equal(theirs, X)
    np.testing.assert_array_equal(lacking, missing)


@pytest.mark.parametrize("key", ["sentinels", "not_detected", "masked"])
def test_marks_that_would_mark_nothing_are_refused(trained: tuple[Path, str], key: str) -> None:
    folder, model = trained
    text = MARKED.format(states="").replace("_not_detected", "").replace("_masked", "")
    with pytest.raises(SpecificationError, match=rf"target\.{key}: got 'gg', expected the name.*mean 'g'"):
        parse_specification(f"{text}[target]\n{key} = {{ gg = 1 }}\n", source="x")
    (folder / "quoted.toml").write_text(MARKED.format(states=STATES) + f'[target]\n{key} = {{ r = "-99" }}\n')
    told = rf"target\.{key}: got the text '-99' for 'r', .* write -99 w"
    with pytest.raises(SpecificationError, match=told):
        classified(folder, model, "survey.parquet", "quoted.toml", "quoted")


@pytest.mark.parametrize("said", ['columns = { z = "Z" }', 'units = { z = "mag" }', "sentinels = { z = 1 }"])
def test_names_that_the_model_does_not_know_are_refused(trained: tuple[Path, str], said: str) -> None:
    """Although the specification that comes with the target has a feature of that column."""
    folder, model = trained
    (folder / "z.toml").write_text(MARKED.format(states=STATES) + f'z = "z"\n[target]\n{said}\n')
    told = rf"with the model {model}, target\.\w+: got 'z', expected the name"
    with pytest.raises(SpecificationError, match=told):
        classified(folder, model, "survey.parquet", "z.toml", "z")


def test_a_value_has_one_meaning_in_the_target_too(trained: tuple[Path, str]) -> None:
    """In the specification as it is written, and with the marks of the model that it is used with."""
    folder, model = trained
    text = MARKED.format(states=STATES)
    said = "[target]\nsentinels = { g = 99 }\n"
    told = r"target: got 99.0 of column 'g' in sentinels and in not_detected.*\[\] for none"
    with pytest.raises(SpecificationError, match=told):
        parse_specification(text + said, source="x")
    parse_specification(text + said + "not_detected = { g = [] }\n", source="x")
    bare = MARKED.format(states=STATES.replace("{ g = 99 }", "{ g = 98 }")) + said
    parse_specification(bare, source="x")
    (folder / "bare.toml").write_text(bare)
    with pytest.raises(SpecificationError, match=told):
        classified(folder, model, "survey.parquet", "bare.toml", "bare")


@pytest.mark.parametrize("key", ["not_detected", "masked"])
def test_a_column_of_the_training_does_not_become_an_indicator(key: str) -> None:
    text = MARKED.format(states="") + "[target]\n"
    parse_specification(f"{text}{key} = {{ r = 1 }}\n", source="x")
    told = f"target.{key}: got 'g', but the model uses the column 'g_{key}'"
    with pytest.raises(SpecificationError, match=told):
        parse_specification(f"{text}{key} = {{ g = 1 }}\n", source="x")
