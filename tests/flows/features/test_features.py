"""Columns to features: missing values, reasons in texts, other names, measurement errors; rows that are held out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from blr.missing.patterns import excess, training_noise
from catalogs.arrays import NO_VALUES, plain_texts
from catalogs.catalog.catalog import Catalog, Column
from catalogs.errors import ColumnNotFoundError, ExpressionError
from catalogs.expressions.expression import parse
from catalogs.sky.photometry import State
from flows.cli._models import show_trained
from flows.errors import TrainingError
from flows.features.columns import OurColumns
from flows.features.reader import FeatureReader, apply_sentinels, training_reader
from flows.labels.reader import LabelReader, vote_counts
from flows.models.store import Store
from flows.specification.catalog import Label
from flows.specification.specification import Specification
from flows.specification.toml_file import parse_specification
from tests.flows.conftest import write_parquet
from tests.flows.verbs import classify, train


def reader(**expressions: str) -> FeatureReader:
    return FeatureReader({name: parse(text) for name, text in expressions.items()})


def batch(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def catalog(*names: str) -> Catalog:
    return Catalog("parquet", Path("x.parquet"), tuple(Column(n, pa.float64()) for n in names), ())


def test_what_is_not_finite_is_missing() -> None:
    table = batch(bmag=[15.0, None, np.nan, np.inf, 1.0], jmag=[12.0, 1.0, 1.0, 1.0, 0.0])
    found = reader(b_j="bmag - jmag", ratio="bmag / jmag", plain="bmag").evaluate(table)
    assert found.missing.tolist() == [[False] * 3, [True] * 3, [True] * 3, [True] * 3, [False, True, False]]
    assert found.X[0].tolist() == [3.0, 1.25, 15.0]
    assert np.isfinite(found.X).all()
    assert found.errors is None
    assert found.inside.all()


def test_sentinels_hold_in_the_columns_own_precision() -> None:
    sentinels = {"a": (99.99,), "b": (-9999.0, 99.0)}
    a, b = pa.array([99.99, 1.0], pa.float32()), pa.array([-9999, 5], pa.int16())
    table = batch(a=a, b=b, c=pa.array([-9999.0, 1.0]))
    found = FeatureReader({n: parse(n) for n in "abc"}, sentinels=sentinels).evaluate(table)
    assert found.missing.tolist() == [[True, True, False], [False, False, False]]


def test_an_element_that_was_not_detected_is_said_of_features_that_use_it() -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([99.0, 1.0, 2.0, 99.0, 3.0, 4.0]), 2)
    for text, unseen in (("v[0]", [0]), ("v[1]", [1]), ("v[0] - v[1]", [0, 1]), ("v_not_detected[1]", [1])):
        marked = replace(reader(x=text), columns=OurColumns(not_detected={"v": (99.0,)}))
        found = marked.evaluate(batch(v=vectors))
        assert found.not_detected is not None
        assert np.flatnonzero(found.not_detected).tolist() == unseen
    assert found.X[:, 0].tolist() == [0.0, 1.0, 0.0]


def test_texts_among_numbers_are_sentinels() -> None:
    column = np.array(["1.5", " - ", "", "-2"], dtype=object)
    assert np.array_equal(apply_sentinels(column, ["-"]), [1.5, np.nan, np.nan, -2.0], equal_nan=True)
    assert np.array_equal(apply_sentinels(column, ["-", -2.0]), [1.5, *3 * [np.nan]], equal_nan=True)
    assert apply_sentinels(column, [-2.0]) is column
    words = np.array(["E", "-", "S0"], dtype=object)
    assert apply_sentinels(words, ["-"]).tolist() == ["E", "", "S0"]
    numbers = np.array([1.0, 2.0])
    assert apply_sentinels(numbers, ["-"]) is numbers


def test_a_condition_is_a_feature_and_text_is_none() -> None:
    table = batch(hubble=["E", "Sc"], bmag=[1.0, 2.0])
    assert reader(early="hubble == 'E'").evaluate(table).X[:, 0].tolist() == [1.0, 0.0]
    said = r"feature 'x' = .hubble. gives text, expected numbers; compare"
    with pytest.raises(ExpressionError, match=said):
        reader(x="hubble").evaluate(table)


def test_errors_of_some_features() -> None:
    read = FeatureReader({"b": parse("b"), "j": parse("j")}, errors={"j": parse("s")})
    sigma = read.evaluate(batch(b=[1.0] * 4, j=[1.0, 1.0, np.nan, 1.0], s=[0.1, np.nan, 0.1, -1.0])).errors
    assert sigma.tolist() == [[0, 0.1], [0, 0], [0, 0], [0, 0]]


def test_an_absent_column_is_told_with_its_key_and_the_nearest() -> None:
    with pytest.raises(ColumnNotFoundError, match=r"no column 'jmga', expected by features.b_j.*mean 'jmag'"):
        reader(b_j="bmag - jmga").of(catalog("bmag", "jmag"))
    mapped = FeatureReader({"b": parse("bmag")}, columns=OurColumns({"bmag": "MAG_BB"}))
    with pytest.raises(ColumnNotFoundError, match=r"no column 'MAG_BB'.*did you mean 'MAG_B'"):
        mapped.of(catalog("MAG_B"))
    with pytest.raises(ColumnNotFoundError, match=r"no column 'x', expected by where"):
        FeatureReader({"b": parse("bmag")}, where=parse("x > 1")).of(catalog("bmag"))


LABEL = Label(column="hubble", classes={"late": ("Sc", "Sb"), "early": ("E",)})


def test_labels_group_spellings_in_the_order_given_and_without_classes_each_value_is_one() -> None:
    read = LabelReader.of(LABEL, Counter())
    assert read.classes == ("late", "early")
    assert read.read(np.array(["E", "Sb", "S?", "", "Sc"], dtype=object)).tolist() == [1, 0, -1, -1, 0]
    assert read.read(np.array([], dtype=object)).tolist() == []
    read = LabelReader.of(Label(column="kind"), Counter({"STAR": 3, "GALAXY": 2, "": 9}))
    assert read.classes == ("GALAXY", "STAR")
    assert read.read(np.array(["STAR", "", "GALAXY"], dtype=object)).tolist() == [1, -1, 0]
    with pytest.raises(TrainingError, match=r"'kind' with 101 different values.*list the spellings"):
        LabelReader.of(Label(column="kind"), Counter(str(i) for i in range(101)))


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (np.array([1, 0, 12], dtype=np.int16), ["1", "0", "12"]),
        (np.array([1.0, np.nan, 2.5]), ["1", "", "2.5"]),
        (np.array(["E ", " Sc", ""], dtype=object), ["E", "Sc", ""]),
        (np.ma.MaskedArray([3, 4], mask=[False, True]), ["3", ""]),
        (np.array([True, False]), ["True", "False"]),
        (np.zeros(2, NO_VALUES), ["", ""]),
        (np.array([1.0, np.inf]), ["1", "inf"]),
    ],
)
def test_label_texts(values: Any, texts: list[str]) -> None:
    assert plain_texts(values).tolist() == texts


def test_whether_a_value_is_there_is_no_measurement_by_itself_and_a_stated_non_detection_is() -> None:
    table = batch(bmag=[15.0, None, None, 14.0], jmag=[12.0, 1.0, None, None])
    found = reader(has="isfinite(jmag)", lacks="where(isfinite(jmag), 0, 1)", bmag="bmag").evaluate(table)
    assert found.missing.tolist() == [[False] * 3, [False, False, True], [True] * 3, [False] * 3]
    assert found.X.tolist() == [[1.0, 0.0, 15.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 14.0]]
    stated = OurColumns(not_detected={"jmag": (99.0,)})
    marked = replace(reader(unseen="jmag_not_detected", jmag="jmag"), columns=stated)
    assert marked.evaluate(batch(jmag=[99.0])).missing.tolist() == [[False, True]]


BY_PLACE = """[catalog]
ra = "ra"
dec = "dec"
"""


def prepared(folder: Path, make: Any, lon: Any, lat: Any, more: str = "") -> None:
    """Write the survey with positions, and its specification split by place."""
    make.parquet(folder / "survey.parquet", make.survey(len(lon)) | {"ra": lon, "dec": lat})
    text = make.specification.replace("[catalog]\n", BY_PLACE)
    (folder / "spec.toml").write_text(text + f'[split]\nby = "healpix"\n{more}')


def few_fields(n: int = 900) -> Any:
    """Return places in three fields of a degree, of which pixels of order 5 hold out far more or less than a fifth."""
    rng = np.random.default_rng(3)
    field = rng.choice([0, 1, 2], n, p=[0.6, 0.3, 0.1])
    return np.array([30.0, 150.0, 271.0])[field] + rng.normal(0, 0.3, n), rng.normal(0, 0.3, n) + 20


def test_a_survey_of_few_fields_is_split_by_finer_pixels_and_rows_in_one_place_are_refused(
    folder: Path, make: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared(folder, make, *few_fields())
    told = train(folder / "spec.toml", folder / "models")
    split = told.training.split
    assert split.healpix_order > 5
    assert 0.15 <= split.share <= 0.25
    skill = told.metrics.skill
    assert skill.n_groups < skill.n
    show_trained(told, verbose=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"HEALPix pixels of order {split.healpix_order}: {split.share:.1%} of them" in shown
    prepared(folder, make, *few_fields(), "healpix_order = 9\n")
    assert train(folder / "spec.toml", folder / "models", dry_run=True).training.split.healpix_order == 9
    prepared(folder, make, *few_fields(), "healpix_order = 2\n")
    with pytest.raises(TrainingError, match="whose pixels of order 2 hold"):
        train(folder / "spec.toml", folder / "models", dry_run=True)
    rng = np.random.default_rng(0)
    prepared(folder, make, 30 + rng.normal(0, 0.001, 400), 20 + rng.normal(0, 0.001, 400))
    with pytest.raises(TrainingError, match="got 'healpix', whose pixels of order "):
        train(folder / "spec.toml", folder / "models")


def test_a_column_of_few_values_is_refused_where_the_share_is_far_off(
    folder: Path, make: SimpleNamespace
) -> None:
    columns = make.survey()
    columns["field"] = np.where(np.arange(400) < 360, "a", "b")
    make.parquet(folder / "survey.parquet", columns)
    for share in (0.1, 0.85):  # a name's hash holds it out at one of these
        (folder / "spec.toml").write_text(make.specification + f'[split]\nby = "field"\nheld_out = {share}\n')
        with pytest.raises(TrainingError, match=r"whose 2 different values|without"):
            train(folder / "spec.toml", folder / "models", dry_run=True)


SPECIFICATION = """
name = "noisy"

[catalog]
paths = ["train.parquet"]
id = "name"

[label]
column = "type"
classes = { early = ["early"], late = ["late"] }

[features]
colour = "colour"

[errors]
colour = "sigma"
"""
HERE, THERE = 0.5, 2.0
"""Errors of the training rows, and of a noisier survey."""


def write(path: Path, sigma: float, rng: np.random.Generator) -> np.ndarray:
    """Write galaxies whose true colours, with that error, are the same in all surveys; return which are late."""
    n = 1200
    true = rng.normal(0, 1, n)
    late = rng.random(n) < 1 / (1 + np.exp(-4 * true))
    columns = {
        "name": [f"G{i:05d}" for i in range(n)],
        "type": np.where(late, "late", "early"),
        "colour": true + rng.normal(0, sigma, n),
        "sigma": np.full(n, sigma),
    }
    pq.write_table(pa.table(columns), path)
    return late


def scored(folder: Path, name: str, store: str) -> tuple[np.ndarray, np.ndarray]:
    out = folder / f"{store}-{name}"
    classify([folder / f"{name}.parquet"], model="noisy", store=folder / store, out=out)
    table = pq.read_table(out / f"{name}.parquet")
    return table["blr_p_late"].to_numpy().astype(float), table["blr_flags"].to_numpy()


def test_noisier_rows_than_in_training_get_less_certain_and_better_probabilities(tmp_path: Path) -> None:
    """Rows as noisy as those get the same as without errors."""
    rng = np.random.default_rng(0)
    surveys = (("train", HERE), ("same", HERE), ("far", THERE))
    late = {n: write(tmp_path / f"{n}.parquet", sigma, rng) for n, sigma in surveys}
    (tmp_path / "spec.toml").write_text(SPECIFICATION)
    (tmp_path / "without.toml").write_text(SPECIFICATION.partition("[errors]")[0])
    train(tmp_path / "spec.toml", tmp_path / "models")
    train(tmp_path / "without.toml", tmp_path / "without")
    assert Store(tmp_path / "models").load("noisy").training.noise == {"colour": pytest.approx(HERE)}
    p, flags = scored(tmp_path, "same", "models")
    np.testing.assert_array_equal(p, scored(tmp_path, "same", "without")[0])
    assert not (flags & 128).any()
    p, flags = scored(tmp_path, "far", "models")
    plain, _ = scored(tmp_path, "far", "without")
    assert np.abs(p - 0.5).mean() < np.abs(plain - 0.5).mean() - 0.05
    assert (flags & 128).any()

    def loss(q: np.ndarray) -> float:
        return float(-np.mean(np.log(np.where(late["far"], q, 1 - q))))

    assert loss(p) < loss(plain) - 0.05


def test_noise_is_of_the_rows_that_have_the_feature_and_excess_of_variances() -> None:
    errors, missing = np.array([[3.0, 1.0], [4.0, 0.0]]), np.array([[False, False], [False, True]])
    found = training_noise(errors, missing, ("a", "b"))
    assert found == pytest.approx({"a": np.sqrt(12.5), "b": 1.0})
    assert training_noise(errors, missing | True, ("a", "b")) == {}
    found = excess(np.array([[5.0, 1.0], [3.0, 0.0]]), {"a": 4.0}, ("a", "b"))
    np.testing.assert_allclose(found, [[3, 1], [0, 0]])


STATED = {
    "flux": '[photometry.q]\nflux = "flux"\ninverse_variance = "ivar"\nsoftening = 1e-10\n',
    "magnitude": '[photometry.q]\nmagnitude = "mag"\ninverse_variance = "ivar"\n',
    "error": '[photometry.q]\nmagnitude = "mag"\nerror = "sigma"\n',
    "plain": "",
}


@pytest.mark.parametrize("errors", ["[errors]\nq = {}\n", ""])
@pytest.mark.parametrize("kind", STATED)
def test_a_value_without_any_weight_is_missing(tmp_path: Path, kind: str, errors: str) -> None:
    """Surveys write an inverse variance of 0, or an infinite error, beside values that they did not measure."""
    error = '"q_err"' if STATED[kind] else '"sigma"'
    head, feature = SPECIFICATION.partition("[features]")[0], "q" if STATED[kind] else "mag"
    text = f'{head}{STATED[kind]}[features]\nq = "{feature}"\n{errors.format(error)}'
    ivar, sigma = np.array([0.0, 4.0, np.nan]), np.array([np.inf, 0.5, np.nan])
    columns = {"name": list("abc"), "type": ["late"] * 3, "ivar": ivar, "sigma": sigma}
    columns |= {"flux": np.full(3, 20.0), "mag": np.full(3, 19.0)}
    catalog = catalogs.open(write_parquet(tmp_path / "train.parquet", columns, flux="nanomaggy"))
    reader = training_reader(parse_specification(text, source="x")).of(catalog)
    found = reader.evaluate(next(catalog.batches(reader.read)))
    told = bool(STATED[kind] or errors)
    assert found.missing[:, 0].tolist() == [told, False, False], "an error that is not there says nothing"
    if errors:
        assert found.errors is not None
        assert (found.errors[:, 0] > 0).tolist() == [False, True, False]


MAGS = ["20.5", "-", "", "N/A", ">23.1", " 21 ", "99", "-9999", ">22.9", "19.5"]
KINDS = ["E", "?", "", "S", "E", "S", "hidden", "E", "S", "E"]


def written(folder: Path, times: int = 1) -> Path:
    path = folder / "survey.csv"
    rows = [f"G{i},{i},{m},{k}\n" for i, (m, k) in enumerate(zip(MAGS * times, KINDS * times, strict=True))]
    path.write_text("id,row,mag,kind\n" + "".join(rows))
    return path


def specification(states: str, feature: str) -> Specification:
    head = 'name = "made"\n[catalog]\npaths = ["survey.csv"]\nid = "id"\n'
    text = f'{head}{states}\n[label]\ncolumn = "kind"\n[features]\n{feature}\n'
    return parse_specification(text, source="spec.toml")


def read(
    folder: Path, states: str, feature: str, rows: int = 100
) -> tuple[FeatureReader, list[float], list[bool]]:
    """Return the reader, the feature with NaN where it is missing, and which rows were not detected."""
    reader = training_reader(specification(states, feature))
    cat = catalogs.open(written(folder))
    assert str(cat.column("mag").datatype) == "string"
    found = [reader.evaluate(b) for b in cat.batches(cat.names, rows)]
    X = np.concatenate([np.where(f.missing, np.nan, f.X)[:, 0] for f in found])
    unseen = [n for f in found if f.not_detected is not None for n in f.not_detected.tolist()]
    return reader, X.tolist(), unseen


STATES = """
sentinels = { mag = ["N/A", -9999] }
not_detected = { mag = [">", 99] }
masked = { mag = ["-"] }
"""
NAN = np.nan


@pytest.mark.parametrize("rows", [100, 4, 1])
def test_a_column_of_numbers_with_texts_among_them(tmp_path: Path, rows: int) -> None:
    """Whatever the batches, some of which hold no number at all."""
    _, X, unseen = read(tmp_path, STATES, 'm = "mag"', rows)
    np.testing.assert_array_equal(X, [20.5, NAN, NAN, NAN, NAN, 21, NAN, NAN, NAN, 19.5])
    assert [i for i, one in enumerate(unseen) if one] == [4, 6, 8], "flag 8"
    _, X, _ = read(tmp_path, STATES + "limits = { mag = 24 }", 'm = "mag"', rows)
    np.testing.assert_array_equal(X, [20.5, NAN, NAN, NAN, 24, 21, 24, NAN, 24, 19.5])
    assert read(tmp_path, STATES, 'm = "mag_masked"', rows)[1] == [0, 1, *[0] * 8]
    assert read(tmp_path, STATES, 'm = "mag_not_detected"', rows)[1] == [0, 0, 0, 0, 1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("state", ["not_detected", "masked"])
def test_blank_is_the_empty_text(tmp_path: Path, state: str) -> None:
    states = STATES.replace(f"{state} = {{ mag = [", f'{state} = {{ mag = ["blank", ')
    reader, X, _ = read(tmp_path, states, f'm = "mag_{state}"')
    marked = {"not_detected": {2, 4, 6, 8}, "masked": {1, 2}}[state]
    assert [i for i, one in enumerate(X) if one] == sorted(marked)
    cat = catalogs.open(tmp_path / "survey.csv")
    counts = reader.count_states(next(cat.batches(cat.names)))
    assert counts["mag", State[state.upper()]] == len(marked)
    assert counts["mag", State.NOT_OBSERVED] == 2
    assert counts["mag", State.MEASURED] == 3


def test_texts_that_are_not_stated_are_named(tmp_path: Path) -> None:
    """A text that is in none of the three is no number, and is not taken for a missing one."""
    told = r"masked \(among the numbers are 'N/A', '>23.1', '>22.9'\)"
    with pytest.raises(ExpressionError, match=f"gives text, expected numbers; .*{told}"):
        read(tmp_path, 'sentinels = { mag = "-" }', 'm = "mag"')
    with pytest.raises(ExpressionError, match=r"among the numbers are '-', 'N/A', '>23.1', '>22.9'"):
        read(tmp_path, "", 'm = "mag"')
    with pytest.raises(ExpressionError, match=r"not_detected or masked \(no number, but '.+'\)$"):
        read(tmp_path, "", 'm = "kind"')


def test_votes_among_which_are_texts() -> None:
    """Numbers where the texts are stated, said by name where they are not, and none where there is no value at all."""
    label = Label(votes={"early": "n_e", "late": "n_s"})
    numbers = np.array([1.0, 2.0])
    with pytest.raises(TrainingError, match="texts in column 'n_s', expected numbers"):
        vote_counts(label, {"n_e": numbers, "n_s": np.array(["3", "-"], dtype=object)})
    stated = OurColumns().read_text("n_s", np.array(["3", "-"], dtype=object), ["-"])
    assert vote_counts(label, {"n_e": numbers, "n_s": stated}).tolist() == [[1, 3], [0, 0]]
    assert vote_counts(label, {"n_e": numbers, "n_s": np.zeros(2, NO_VALUES)}).tolist() == [[0, 0], [0, 0]]
