"""[target.expressions]: a model of one survey's columns classifies a catalogue that has others in their place.

The slow twin is the same catalogue with the columns written into it before.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from catalogs.errors import CatalogError, ColumnNotFoundError
from flows.errors import SpecificationError
from flows.runs.progress import listening
from flows.specification.toml_file import parse_specification, read_specification
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
    copy = pq.read_table(folder / "out-there" / "there.parquet")
    assert copy.drop([n for n in copy.column_names if n.startswith("blr_")]).equals(pq.read_table(there))


def test_the_models_marks_hold_of_what_is_made(folder: Path) -> None:
    """What an expression gives means what the column's values mean: 99 is not detected, NaN is missing."""
    columns = survey()
    columns["r"][:5] = 99
    write(folder / "survey.parquet", columns, g="mag", r="mag", e_r="mag")
    marked = SPECIFICATION.format(
        catalog="not_detected = { r = [99] }",
        target=TARGET.replace(
            "r = '31.4 - 2.5 * log10(`PSF-FLUX`[1])'",
            "r = 'where(`PSF-FLUX`[1] == 0, 99, 31.4 - 2.5 * log10(`PSF-FLUX`[1]))'",
        ),
    )
    (folder / "spec.toml").write_text(marked)
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


def test_a_column_that_the_expression_needs_and_is_not_there(folder: Path) -> None:
    model = train(folder / "spec.toml", folder / "models").model
    theirs = elsewhere()
    theirs["I"] = theirs.pop("I0")
    there = write(folder / "there.parquet", theirs)
    with pytest.raises(
        ColumnNotFoundError, match=r"no column 'I0', expected by target.expressions.i = 'I0'; did"
    ):
        probabilities(folder, there, model)


def test_an_expression_that_gives_text_is_told_of_by_its_name(folder: Path) -> None:
    (folder / "spec.toml").write_text(
        SPECIFICATION.format(catalog="", target="expressions = { r = 'kind - 1' }")
    )
    model = train(folder / "spec.toml", folder / "models").model
    there = folder / "survey.parquet"
    with pytest.raises(CatalogError, match=r"target.expressions.r: got text where a number"):
        probabilities(folder, there, model)


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


def test_an_element_of_what_is_made_is_refused() -> None:
    text = SPECIFICATION.format(catalog="", target="expressions = { r = 'a' }").replace(
        '"g - r"', '"g - r[1]"'
    )
    with pytest.raises(SpecificationError, match="for a vector column whose elements are features"):
        parse_specification(text, source="x")


def test_units_that_one_side_alone_states_are_told_of(folder: Path) -> None:
    write(folder / "survey.parquet", survey(), g="mag")
    (folder / "spec.toml").write_text(SPECIFICATION.format(catalog="", target=""))
    model = train(folder / "spec.toml", folder / "models").model
    there = write(folder / "there.parquet", survey(), r="nanomaggy")
    notes: list[str] = []
    heard = SimpleNamespace(start=lambda *_: None, advance=lambda _: None, note=notes.append)
    with listening(heard):
        probabilities(folder, there, model)
    told = "\n".join(notes)
    notes.clear()
    assert "column 'r' is in 'nanomaggy', but had no unit in training" in told
    assert "column 'g' is without a unit here, unlike in training ('mag')" in told
    assert (
        told.count("the values are used unchanged; if that is right, state the unit under [target.units]")
        == 1
    )
    (folder / "spec.toml").write_text(
        SPECIFICATION.format(catalog="", target="units = { r = 'mag', g = 'mag' }")
    )
    with listening(heard):
        probabilities(folder, there, model)
    assert "the values are used unchanged" not in "\n".join(notes)


def test_the_files_are_named_whose_unit_is_another(folder: Path) -> None:
    write(folder / "survey.parquet", survey())
    (folder / "spec.toml").write_text(SPECIFICATION.format(catalog="", target=""))
    model = train(folder / "spec.toml", folder / "models").model
    (folder / "release").mkdir()
    for name, unit in (("a", "mag"), ("b", "mag"), ("c", "Jy")):
        write(folder / "release" / f"{name}.parquet", survey(), g=unit, r="mag")
    notes: list[str] = []
    with listening(SimpleNamespace(start=lambda *_: None, advance=lambda _: None, note=notes.append)):
        files = sorted((folder / "release").iterdir())
        classify(files, model=model, store=folder / "models", out=folder / "out")
    assert "\n".join(notes).startswith(
        "column 'g' (c.parquet) is in 'Jy', but had no unit in training; column 'g' (a.parquet, b.parquet), "
        "column 'r' are in 'mag', but had no unit in training: the values are used unchanged"
    )
    target = "paths = ['release']"
    (folder / "spec.toml").write_text(SPECIFICATION.format(catalog="", target=target))
    done = reprocess(folder / "spec.toml", folder / "models", out=folder / "nightly", quiet_seconds=0)
    assert list(done.quarantined) == ["c.parquet"], "one folder is one catalogue, in one unit"
    assert "has also ['g in Jy']" in done.quarantined["c.parquet"]
