"""Units followed from labelled catalogues to the target: fluxes, errors, limits; each remedy does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from catalogs.catalog.catalog import ColumnMetadata
from catalogs.errors import CatalogError
from catalogs.expressions.expression import parse
from catalogs.sky.photometry import unit_factor
from flows.errors import SpecificationError
from flows.features.reader import converted, target_reader, training_reader
from flows.specification.toml_file import parse_specification
from flows.training._gather import gather, with_learned_photometry
from tests.flows.conftest import write_parquet as write
from tests.flows.verbs import classify, train

HEAD = """
name = "m"
[catalog]
paths = ["survey.parquet"]
id = "id"
"""
LABEL = '[label]\ncolumn = "kind"\n[select]\nposterior = "laplace"\n'
BAND = '[photometry.m]\nflux = "flux"\nerror = "sigma"\n{}\n[features]\nm = "m"\n[errors]\nm = "m_err"\n'
N = 240


def survey(factor: float = 1.0) -> dict[str, np.ndarray]:
    """Return fluxes in nanomaggies times a factor; every row has an error of its own."""
    rng = np.random.default_rng(6)
    late = rng.random(N) < 0.5
    sigma = rng.uniform(0.1, 3, N) * factor
    flux = 10 ** rng.normal(1.2 + 0.4 * late, 0.3) * factor
    return {
        "id": np.array([f"G{i}" for i in range(N)]),
        "kind": np.where(late, "late", "early"),
        "flux": flux,
        "sigma": sigma,
        "ivar": sigma**-2,
        "mag": 22.5 - 2.5 * np.log10(flux / factor),
    }


def metadata(unit: str) -> ColumnMetadata:
    return ColumnMetadata(unit=unit, ucd=None, description=None, datatype="double")


def learned(folder: Path, text: str, *names: str) -> tuple[Any, np.ndarray, np.ndarray]:
    opened = [catalogs.open(folder / f"{name}.parquet") for name in names]
    specification = parse_specification(text, source="spec.toml", base_folder=str(folder))
    found = with_learned_photometry(specification, opened)
    rows = gather(found, opened).rows
    assert rows.errors is not None
    return found, rows.X, rows.errors


NJY = unit_factor("nanomaggy", "nJy")


def test_units_stated_of_a_targets_fluxes_are_taken(tmp_path: Path) -> None:
    """Where the target says none, says a wrong one, or one that nobody can read: what the error's remedy states."""
    write(tmp_path / "survey.parquet", survey(), flux="nanomaggy")
    text = HEAD + LABEL + BAND.format("")
    (tmp_path / "spec.toml").write_text(text)
    told = train(tmp_path / "spec.toml", tmp_path / "models")
    for name, unit in (("none", ""), ("wrong", "mJy"), ("odd", "counts of ours"), ("mag", "mag")):
        write(tmp_path / f"{name}.parquet", survey(NJY), flux=unit)

    def p(name: str, spec: Path) -> np.ndarray:
        out = tmp_path / f"out-{name}"
        path = tmp_path / f"{name}.parquet"
        classify([path], model=told.model, out=out, store=tmp_path / "models", specification=spec)
        return pq.read_table(out / path.name)["blr_p_late"].to_numpy()

    here = p("survey", tmp_path / "spec.toml")
    with pytest.raises(CatalogError, match="got a flux in 'counts of ours'") as refused:
        p("odd", tmp_path / "spec.toml")
    remedy = re.search(r"units = \{.*\} under \[target\]", str(refused.value))
    assert remedy
    assert remedy[0] == 'units = { "flux" = "nanomaggy" } under [target]'
    (tmp_path / "stated.toml").write_text(text + '[target]\nunits = { flux = "nJy" }\n')
    for name in ("none", "wrong", "odd", "mag"):
        np.testing.assert_allclose(p(name, tmp_path / "stated.toml"), here, atol=1e-6)


@pytest.mark.parametrize(
    ("column", "unit", "factor"),
    [
        ("sigma", "uJy", 1e-3),
        ("sigma", "", 1.0),
        ("sigma", "of the flux", 1.0),
        ("ivar", "uJy^-2", 1e6),
        ("ivar", "1/nanomaggy^2", NJY**2),
        ("ivar", "nJy", 1.0),
        ("ivar", "1/flux^2", 1.0),
    ],
)
def test_an_error_in_another_unit_is_brought_to_its_fluxs(
    tmp_path: Path, column: str, unit: str, factor: float
) -> None:
    key = {"sigma": "error", "ivar": "inverse_variance"}[column]
    text = HEAD + LABEL + BAND.format("").replace('error = "sigma"', f'{key} = "{column}"')
    write(tmp_path / "survey.parquet", survey(NJY), flux="nJy")
    plain, X, errors = learned(tmp_path, text, "survey")
    columns = survey(NJY)
    columns[column] = columns[column] * factor
    write(tmp_path / "other.parquet", columns, flux="nJy", **{column: unit})
    other, there, sigma = learned(tmp_path, text, "other")
    assert other.photometry["m"].softening == pytest.approx(plain.photometry["m"].softening, rel=1e-9)
    np.testing.assert_allclose(there, X, rtol=1e-9)
    np.testing.assert_allclose(sigma, errors, rtol=1e-9)
    if column == "ivar":
        by_hand = text.replace('inverse_variance = "ivar"', 'error = "1 / sqrt(ivar)"')
        if unit != "nJy":
            np.testing.assert_allclose(learned(tmp_path, by_hand, "other")[2], errors, rtol=1e-9)


def test_an_error_that_is_none_of_a_flux_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "survey.parquet", survey(), flux="nanomaggy", sigma="mag", ivar="mag^-2")
    for text in (BAND, BAND.replace('error = "sigma"', 'inverse_variance = "ivar"')):
        with pytest.raises(CatalogError, match=r"photometry\.m\..*'mag.*, expected nanomaggy"):
            learned(tmp_path, HEAD + LABEL + text.format(""), "survey")


def test_a_unit_that_nobody_reads_is_stated_and_one_that_is_read_is_not_overruled(tmp_path: Path) -> None:
    write(tmp_path / "survey.parquet", survey(NJY), flux="nJy")
    text = HEAD + LABEL + BAND
    _, X, _ = learned(tmp_path, text.format(""), "survey")
    write(tmp_path / "odd.parquet", survey(NJY), flux="calibrated")
    with pytest.raises(CatalogError, match=r"got a flux in 'calibrated'.*unit = \"nanomaggy\" under \[phot"):
        learned(tmp_path, text.format(""), "odd")
    np.testing.assert_allclose(learned(tmp_path, text.format('unit = "nJy"'), "odd")[1], X)
    write(tmp_path / "wrong.parquet", survey(NJY), flux="Jy")
    with pytest.raises(SpecificationError, match=r"got 'nJy', but .* in 'Jy'") as refused:
        learned(tmp_path, text.format('unit = "nJy"'), "wrong")
    remedy = re.search(r'flux = "[^"]*"', str(refused.value))
    assert remedy
    scaled = text.replace('flux = "flux"', remedy[0]).replace('"sigma"', '"1e-9 * sigma"')
    np.testing.assert_allclose(learned(tmp_path, scaled.format(""), "wrong")[1], X, rtol=1e-9)


def test_labelled_catalogues_in_several_units_are_one(tmp_path: Path) -> None:
    text = HEAD + LABEL + '[features]\nm = "mag"\n[errors]\nm = "0.1 * mag"\n'
    columns = survey()
    write(tmp_path / "one.parquet", columns, mag="mag")
    _, X, errors = learned(tmp_path, text.replace("survey", "one"), "one")
    parts = {"first": slice(100), "second": slice(100, N)}
    for name, rows in parts.items():
        part = {key: values[rows] for key, values in columns.items()}
        times, unit = (1000, "mmag") if name == "second" else (1, "mag")
        write(tmp_path / f"{name}.parquet", part | {"mag": part["mag"] * times}, mag=unit)
    _, both, sigma = learned(tmp_path, text, *parts)
    np.testing.assert_allclose(both, X, rtol=1e-9)
    np.testing.assert_allclose(sigma, errors, rtol=1e-9)
    write(tmp_path / "second.parquet", survey(), mag="nJy")
    with pytest.raises(CatalogError, match="got column 'mag' in 'nJy', expected 'mag', in which the first"):
        learned(tmp_path, text, *parts)


@pytest.mark.parametrize(
    ("column", "unit", "other", "factor"), [("mag", "mag", "mmag", 1e3), ("flux", "nanomaggy", "nJy", NJY)]
)
def test_a_limit_is_in_the_unit_of_the_catalogues_that_it_is_stated_for(
    tmp_path: Path, column: str, unit: str, other: str, factor: float
) -> None:
    """The training's is converted, a target's own is not, and a mark is compared as it is written."""
    band = '[photometry.m]\nflux = "flux"\nsoftening = 1e-10\n' if column == "flux" else ""
    states = f"not_detected = {{ {column} = -9 }}\nlimits = {{ {column} = 20.5 }}\n"
    text = f'{HEAD}{states}{LABEL}{band}[features]\nf = "{"m" if band else "mag"}"\n'
    limit = 22.5 * factor

    def marked(mark: float, said: str, times: float) -> Any:
        columns = survey()
        columns[column] = np.where(np.arange(N) < 9, mark, columns[column] * times)
        return catalogs.open(write(tmp_path / f"{said}{mark}.parquet", columns, **{column: said}))

    def specified(target: str = "") -> Any:
        return parse_specification(text + target, source="x", base_folder=str(tmp_path))

    def values(reader: Any, catalog: Any) -> np.ndarray:
        return reader.evaluate(next(catalog.batches(catalog.names))).X

    def in_other(specification: Any, mark: float) -> np.ndarray:
        catalog, trained = marked(mark, other, factor), {column: metadata(unit)}
        plain = target_reader(specification, ["f"])
        return values(converted(plain, catalog, trained=trained, stated={}), catalog)

    here = marked(-9, unit, 1.0)
    model = with_learned_photometry(specified(), [here])
    np.testing.assert_allclose(in_other(model, -9), values(training_reader(model).of(here), here), rtol=1e-9)
    stated = in_other(specified(f"[target]\nlimits = {{ {column} = {limit} }}\n"), -9)
    np.testing.assert_allclose(in_other(specified(), limit), stated, rtol=1e-9)


def test_a_targets_limit_needs_one_in_training() -> None:
    text = HEAD + LABEL + "[features]\nf = 'mag'\n[target]\nlimits = { mag = 22 }\n"
    said = r"target.limits: got 'mag', expected a column of catalog.limits"
    with pytest.raises(SpecificationError, match=said):
        parse_specification(text, source="x")


@pytest.mark.parametrize("told", ["photometry", "ucd", ""])
def test_magnitudes_without_a_unit_refuse_fluxes(tmp_path: Path, told: str) -> None:
    """By what the specification calls them, or their UCD; of a column of which neither says a word nothing is known."""
    band = '[photometry.m]\nmagnitude = "mag"\n' if told == "photometry" else ""
    (tmp_path / "spec.toml").write_text(f'{HEAD}{LABEL}{band}[features]\nf = "{"m" if band else "mag"}"\n')
    table = pa.table(survey())
    field = table.schema.field("mag").with_metadata({"ucd": "phot.mag;em.opt.R"} if told == "ucd" else {})
    place = table.column_names.index("mag")
    pq.write_table(table.set_column(place, field, table["mag"]), tmp_path / "survey.parquet")
    model = train(tmp_path / "spec.toml", tmp_path / "models").model

    def classified(unit: str) -> str:
        path = write(tmp_path / "target.parquet", survey(), mag=unit)
        return classify([path], model=model, out=tmp_path / f"out-{unit}", store=tmp_path / "models").status

    assert classified("mag") == "done"
    if told:
        with pytest.raises(CatalogError, match="got column 'mag' in 'nanomaggy', expected 'mag'"):
            classified("nanomaggy")
    else:
        assert classified("nanomaggy") == "done"


def test_nothing_is_computed_with_a_unit_that_nobody_reads() -> None:
    assert parse("a * b").unit({"a": "furlongs of ours", "b": "Jy"}) is None
    assert parse("1 / sqrt(a)").unit({"a": "furlongs of ours"}) is None
