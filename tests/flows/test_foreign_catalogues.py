"""Unusual catalogues: messages name what is odd in them, and nothing is ignored without a message."""

from __future__ import annotations

import time
import tomllib
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

import catalogs
from catalogs.errors import CatalogError
from flows.draft.inspection import StartedSpecification, inspect_catalog
from flows.draft.specification import starting_specification
from flows.errors import TrainingError, UsageError
from tests.flows.verbs import classify, train

N = 600


def galaxies() -> dict[str, Any]:
    """Return two classes that differ in their colours: identifiers, places, three magnitudes."""
    rng = np.random.default_rng(5)
    late = rng.random(N) < 0.5
    r = rng.normal(17, 1, N)
    columns: dict[str, Any] = {
        "id": np.arange(N) + 1237648720142401536,
        "ra": rng.uniform(0, 360, N),
        "dec": rng.uniform(-60, 60, N),
    }
    for band, offset in {"u": 1.6 - 0.5 * late, "g": 0.8 - 0.3 * late, "r": 0.0}.items():
        columns[band] = np.round(r + offset + rng.normal(0, 0.15, N), 4)
    return columns | {"type": np.where(late, "S", "E")}


def started(path: Path, columns: dict[str, Any], label: str = "type") -> StartedSpecification:
    pq.write_table(pa.table(columns), path)
    return starting_specification(catalogs.open(path), label, folder=path.parent)


@pytest.fixture
def classified(trained: Path, tmp_path: Path) -> Callable[..., Any]:
    """Return what classifies files with the model of the survey."""
    return partial(classify, model="morphology", store=trained / "models", out=tmp_path / "out")


def csv_rows(columns: dict[str, Any]) -> list[str]:
    rows = zip(*(map(str, values) for values in columns.values()), strict=True)
    return [",".join(columns), *(",".join(row) for row in rows)]


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        ("-,deg,deg,mag,mag,mag,-", "600 of 601 texts are numbers, but not 'mag'"),
        ("id,ra,dec,u,g,r,type", "600 of 601 texts are numbers, but not 'u'"),
    ],
)
def test_a_row_of_units_and_a_second_row_of_names_are_named(tmp_path: Path, odd: str, told: str) -> None:
    names, *rows = csv_rows(galaxies())
    (tmp_path / "x.csv").write_text("\n".join([names, odd, *rows]) + "\n")
    catalog = catalogs.open(tmp_path / "x.csv")
    with pytest.raises(TrainingError, match=told):
        starting_specification(catalog, "type", folder=tmp_path)
    shown = {c.name: c.not_numbers for c in inspect_catalog(catalog).columns}
    assert shown["u"] == told.replace("'mag'", f"'{odd.split(',')[3]}'")
    assert shown["type"] is None


def test_limits_are_said_to_be_and_codes_are_no_numbers(tmp_path: Path) -> None:
    columns = galaxies()
    columns["u"] = [f">{x:.1f}" if i % 5 == 0 else f"{x:.3f}" for i, x in enumerate(columns["u"])]
    columns["g"] = [">21" if i % 5 == 0 else f"{x:.3f}" for i, x in enumerate(columns["g"])]
    columns["quality"] = ["00D0" if i % 9 == 0 else "0000" for i in range(N)]
    columns["chip"] = ["-" if i % 9 == 0 else f"{i % 60}_{i % 7}" for i in range(N)]  # to Python 5_3 is 53
    start = started(tmp_path / "x.parquet", columns)
    assert start.left_out["chip"] == "text"
    assert "limits, which not_detected = { 'u' = ['>'] } under [catalog] reads" in start.left_out["u"]
    assert '"g" = [">21"]' in start.text
    assert "a limit, better as not_detected" in start.text
    assert "00D0" not in start.text.split("[label]")[0].split("[catalog.sentinels]")[1]


def test_blanks_around_the_names_of_columns_are_parts_of_them(tmp_path: Path) -> None:
    """As pandas leaves them, from CSV with blanks behind the commas."""
    start = started(
        tmp_path / "x.parquet", {f" {name}": values for name, values in galaxies().items()}, " type"
    )
    (tmp_path / "spec.toml").write_text(start.text)
    assert train(tmp_path / "spec.toml", tmp_path / "models", limit=300).name == "x"


@pytest.mark.parametrize("write", [lambda x: f"{x:.5E}".replace("E", "D"), lambda x: f'"{1000 * x:,.1f}"'])
def test_numbers_written_otherwise_are_said_to_be(tmp_path: Path, write: Callable[..., Any]) -> None:
    columns = galaxies()
    columns |= {band: [write(x) for x in columns[band]] for band in "ugr"}
    (tmp_path / "x.csv").write_text("\n".join(csv_rows(columns)) + "\n")
    shown = {c.name: c.not_numbers for c in inspect_catalog(catalogs.open(tmp_path / "x.csv")).columns}
    said = "numbers in another notation, expected one such as 1234.5 or 1.2345e3; convert them"
    assert shown["u"].endswith(said)


def test_values_beyond_float32_warn_of_nothing(tmp_path: Path) -> None:
    columns = galaxies()
    columns["u"] = np.where(np.arange(N) % 50 == 0, 1e300, columns["u"])
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    catalog = catalogs.open(tmp_path / "x.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inspect_catalog(catalog, label="type")
        start = starting_specification(catalog, "type", folder=tmp_path)
        (tmp_path / "spec.toml").write_text(start.text)
        train(tmp_path / "spec.toml", tmp_path / "models", dry_run=True)
    assert tomllib.loads(start.text)["catalog"]["sentinels"] == {"u": [1e300]}


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (("NaN", "E"), r"with the labels 'E' \(\d+\), expected at least two"),
        (("x" * 300, "E"), "64 letters at most"),
        (("a\nb", "E"), r"'a\\nb' .*, printable"),
    ],
)
def test_labels_that_name_no_class_or_are_alone_are_said(
    tmp_path: Path, labels: tuple[str, ...], told: str
) -> None:
    columns = galaxies()
    with pytest.raises(TrainingError, match=r"no column .* beside the label"):
        started(tmp_path / "x.parquet", {"type": columns["type"]})
    columns["type"] = [labels[0] if t == "S" else labels[1] for t in columns["type"]]
    with pytest.raises(TrainingError, match=told) as raised:
        started(tmp_path / "x.parquet", columns)
    assert len(str(raised.value)) < 700


def test_hours_are_suspected_or_read(tmp_path: Path) -> None:
    columns = galaxies()
    columns["ra"] /= 15
    text = started(tmp_path / "x.parquet", columns).text
    assert '# no ra beyond 24: if these are hours, beside degrees, state position_unit = "hours"' in text
    table = Table(columns)
    table["ra"].unit = "h"
    table.write(tmp_path / "x.fits")
    place = inspect_catalog(catalogs.open(tmp_path / "x.fits")).position
    assert (place.unit, place.remarks) == ("hours", ())


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[label]", 'weight = "kmag * 0"\n[label]', "got 0 for all training rows of class 'early'"),
        ("[label]", 'weight = "hubble"\n[label]', "which gives text"),
        ('"bmag - jmag"', '"bmag[0] - jmag"', r"feature 'b_j': .*holds single numbers"),
    ],
)
def test_weights_that_weigh_nothing_and_expressions_that_do_not_fit_the_columns(
    folder: Path, make: SimpleNamespace, old: str, new: str, told: str
) -> None:
    (folder / "spec.toml").write_text(make.specification.replace(old, new))
    with pytest.raises((TrainingError, CatalogError), match=told):
        train(folder / "spec.toml", folder / "models", dry_run=True)


def test_a_target_with_texts_among_its_numbers_or_vectors_as_names_says_so(
    classified: Callable[..., Any], make: SimpleNamespace, tmp_path: Path
) -> None:
    columns = make.survey(50)
    columns["bmag"] = np.where(np.arange(50) == 7, "~", columns["bmag"].astype(str))
    make.parquet(tmp_path / "s.parquet", columns)
    make.parquet(tmp_path / "v.parquet", make.survey(50) | {"name": np.ones((50, 2))})
    for name, told in (
        ("s", r"feature 'b_j'.*'bmag' holds text \(among the numbers are '~'\)"),
        ("v", "got vectors as identifiers or groups, expected one value in each row"),
    ):
        with pytest.raises(CatalogError, match=told):
            classified([tmp_path / f"{name}.parquet"])


def test_file_names_that_no_report_could_hold_are_refused(
    classified: Callable[..., Any], make: SimpleNamespace, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    odd = make.parquet(tmp_path / "in" / "a.parquet", make.survey(50)).rename(tmp_path / "in/\udcff.parquet")
    for named in (odd, tmp_path / "in", tmp_path / "in" / "*"):
        with pytest.raises(CatalogError, match=r"in/\\udcff\.parquet' is no UTF-8, .*: rename it"):
            classified([named])


def test_copies_inside_their_catalogue_are_refused(
    classified: Callable[..., Any], make: SimpleNamespace, tmp_path: Path
) -> None:
    """The next run would take them for the catalogue."""
    (tmp_path / "release").mkdir()
    make.parquet(tmp_path / "release" / "a.parquet", make.survey(50))
    for name in ("annotated", "deep/er"):
        with pytest.raises(UsageError, match="an output folder inside the catalogue"):
            classified([tmp_path / "release"], out=tmp_path / "release" / name)
    for _ in range(2):  # what begins so is no data
        told = classified([tmp_path / "release"], out=tmp_path / "release" / "_annotated")
        assert told.summary.n_rows == 50


def test_a_catalogue_without_rows_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,u,g,type\n")
    catalog = catalogs.open(tmp_path / "x.csv")
    with pytest.raises(UsageError, match="has no rows"):
        starting_specification(catalog, "type", folder=tmp_path)
    with pytest.raises(UsageError, match="has no rows"):
        inspect_catalog(catalog, label="type")
    assert inspect_catalog(catalog).n_rows == 0


def test_thousands_of_columns_are_looked_at(tmp_path: Path) -> None:
    """The time grew with the square of their number: to minutes for these."""
    rng = np.random.default_rng(1)
    columns = {f"c{i}": rng.random(10) for i in range(5000)}
    pq.write_table(pa.table(columns | {"type": ["E", "S"] * 5}), tmp_path / "x.parquet")
    start = time.process_time()
    told = inspect_catalog(catalogs.open(tmp_path / "x.parquet"))
    assert len(told.columns) == 5001
    assert time.process_time() - start < 30


@pytest.mark.parametrize("form", ["parquet", "fits"])
def test_notes_beside_a_damaged_file_are_still_notes(
    classified: Callable[..., Any], make: SimpleNamespace, tmp_path: Path, form: str
) -> None:
    """They failed in its place, and with them the whole folder, for want of the features' columns."""
    release = tmp_path / "release"
    release.mkdir()
    write = make.parquet if form == "parquet" else make.fits
    for i in range(3):
        write(release / f"p{i}.{form}", make.survey(50, seed=i))
    (release / "README.txt").write_text("hello world\n")
    if form == "parquet":
        (release / "files.csv").write_text("name,rows\np0.parquet,50\n")
    whole = (release / f"p1.{form}").read_bytes()
    (release / f"p1.{form}").write_bytes(whole[: len(whole) // 2])
    told = classified([release])
    assert [*told.quarantined] == [f"p1.{form}"]
    assert told.summary.n_rows == 100


def test_a_specification_that_notepad_wrote(folder: Path, make: SimpleNamespace) -> None:
    text = make.specification.replace("\n", "\r\n")
    (folder / "spec.toml").write_text(text, encoding="utf-8-sig", newline="")
    assert train(folder / "spec.toml", folder / "models", dry_run=True).status == "planned"


@pytest.mark.parametrize(
    ("kinds", "listed"),
    [
        (np.int64, "a = [0], b = 1"),
        (np.float32, "a = [0.0], b = [1]"),
        (bool, "a = false, b = [true]"),
        (str, 'a = "0", b = ["1"]'),
    ],
)
def test_classes_may_be_listed_as_the_numbers_that_they_are(
    folder: Path, make: SimpleNamespace, kinds: type, listed: str
) -> None:
    columns = make.survey()
    codes = np.isin(columns["hubble"], ["E", "S0"])
    columns["code"] = codes.astype(np.int64).astype(str) if kinds is str else codes.astype(kinds)
    make.parquet(folder / "survey.parquet", columns)
    text = make.specification.replace('column = "hubble"', 'column = "code"')
    start = text.index("classes = {")
    text = text[:start] + f"classes = {{ {listed} }}\n" + text[text.index("\n", start) + 1 :]
    (folder / "spec.toml").write_text(text)
    told = train(folder / "spec.toml", folder / "models", dry_run=True)
    assert told.classes == ("a", "b")
    assert told.training.unlabelled == 0
