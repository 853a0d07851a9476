"""Labels from tables, reviews and votes; magnitudes from fluxes; what was not detected; units of the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from catalogs.errors import CatalogError
from catalogs.sky.photometry import asinh_magnitude
from flows.errors import SpecificationError, TrainingError
from flows.features.reader import training_reader
from flows.labels.source import LabelSource
from flows.reports.data import label_words, missing_words, quality_remarks
from flows.specification.toml_file import parse_specification
from flows.training._gather import gather, with_learned_photometry
from flows.training._staging import catalog_quality
from tests.flows.conftest import write_parquet as write
from tests.flows.verbs import train

HEAD = """
name = "made"
[catalog]
paths = ["survey.parquet"]
id = "id"
ra = "ra"
dec = "dec"
"""
TAIL = """
[features]
x = "x"
"""


def survey(n: int = 300, *, seed: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    late = rng.random(n) < 0.5
    p = 1 / (1 + np.exp(-(x := rng.normal(2.0 * late - 1, 1.0))))
    votes = rng.binomial(40, p)
    return {
        "id": np.array([f"G{i}" for i in range(n)]),
        "ra": rng.uniform(0, 360, n),
        "dec": rng.uniform(-60, 60, n),
        "x": x,
        "kind": np.where(late, "Late ", "early"),
        "n_late": votes,
        "n_early": 40 - votes,
        "f_late": votes / 40,
        "f_early": 1 - votes / 40,
        "n": np.full(n, 40),
        "flux": 10 ** rng.normal(1, 0.5, n) * (1 + late) + rng.normal(0, 0.3, n),
        "flux_ivar": np.full(n, 1 / 0.3**2),
        "ebv": rng.uniform(0, 0.1, n),
    }


@pytest.fixture
def made(tmp_path: Path) -> Path:
    write(tmp_path / "survey.parquet", survey(), flux="nanomaggy")
    return tmp_path


def gathered(folder: Path, label: str, features: str = TAIL) -> Any:
    specification = parse_specification(HEAD + label + features, source="here", base_folder=str(folder))
    return gather(specification, [catalogs.open(folder / "survey.parquet")])


def test_case_and_blanks_of_labels(made: Path) -> None:
    columns = survey()
    columns["kind"] = np.array([k.upper() if i % 2 else k for i, k in enumerate(columns["kind"])])
    write(made / "survey.parquet", columns)
    found = gathered(made, '[label]\ncolumn = "kind"\ncase_sensitive = false\n')
    assert {c.lower() for c in found.classes} == {"early", "late"}
    assert len(found.rows.target) == 300
    assert not found.sample.unknown_labels
    listed = '[label]\ncolumn = "kind"\ncase_sensitive = false\nclasses = { a = ["LATE"], b = ["Early"] }\n'
    assert len(gathered(made, listed).rows.target) == 300


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("LATE", "class '[Ll][Aa][Tt][Ee]' would clash with class '[Ll][Aa][Tt][Ee]'"),
        ("ea-rly", "class 'ea_rly' would clash with class 'ea-rly'"),
        ("max", "class 'max' would clash with the column 'blr_p_max'"),
    ],
)
def test_labels_that_columns_cannot_tell_apart(made: Path, label: str, told: str) -> None:
    """Said before weights are looked at, which are impossible here, and so before rows are split or fitted."""
    columns = survey()
    columns["kind"] = np.append(columns["kind"][:-2], ["ea_rly", label])  # one row: too few for a split
    write(made / "survey.parquet", columns)
    text = HEAD + 'weight = "0 - 1"\n[label]\ncolumn = "kind"\n' + TAIL
    (made / "spec.toml").write_text(text)
    remedy = r".*rename the class under \[label.classes\] in .*case_sensitive"
    with pytest.raises(TrainingError, match=told + remedy):
        train(made / "spec.toml", made / "models")
    assert not [*made.glob("models/**/*.npy")]
    excluded = text.replace('column = "kind"', f'column = "kind"\nexclude = ["{label}", "ea_rly"]')
    (made / "spec.toml").write_text(excluded)
    with pytest.raises(TrainingError, match=r"catalog\.weight"):
        train(made / "spec.toml", made / "models")


def test_names_that_match_nothing_are_said_so(made: Path) -> None:
    columns = survey()
    pq.write_table(pa.table({"name": ["'G0", "'G1"], "kind": ["early", "Late"]}), made / "labels.parquet")
    by_name = '[label]\ncolumn = "kind"\ntable = { path = "labels.parquet", id = "name" }\n'
    said = r"2 labelled identifiers such as ''G0', but .* holds others, such as 'G0'"
    with pytest.raises(TrainingError, match=said):
        gathered(made, by_name)
    places = {"RA": columns["ra"][:9] + 1, "DE": columns["dec"][:9], "kind": columns["kind"][:9]}
    pq.write_table(pa.table(places), made / "labels.parquet")
    by_place = '[label]\ncolumn = "kind"\ntable = { path = "labels.parquet", ra = "RA", dec = "DE" }\n'
    with pytest.raises(TrainingError, match="9 labelled places, none within 1 arcseconds"):
        gathered(made, by_place)


@pytest.mark.parametrize("rounded", ["labels", "survey"])
@pytest.mark.parametrize(("bits", "kind"), [(53, "float64"), (24, "float32"), (11, "float16")])
def test_names_that_were_rounded_are_refused(made: Path, rounded: str, bits: int, kind: str) -> None:
    """As pandas writes 64-bit identifiers beside empty ones: 128 objects may have the same."""
    columns = survey()
    names = 2**bits + np.arange(300) * 7
    stated = {"labels": names, "survey": names} | {rounded: names.astype(kind)}
    write(made / "survey.parquet", columns | {"id": stated["survey"]})
    pq.write_table(pa.table({"name": stated["labels"], "kind": columns["kind"]}), made / "labels.parquet")
    with pytest.raises(
        TrainingError, match=rf"got floating-point identifiers above 2\^{bits} in '(name|id)'"
    ):
        gathered(made, '[label]\ncolumn = "kind"\ntable = { path = "labels.parquet", id = "name" }\n')


def test_the_unit_of_a_label_tables_positions_is_stated_with_it(made: Path) -> None:
    columns = survey()
    places = {"RA": columns["ra"], "DE": columns["dec"], "kind": columns["kind"]}
    label = '[label]\ncolumn = "kind"\n[label.table]\npath = "labels.parquet"\nra = "RA"\ndec = "DE"\n'
    write(made / "labels.parquet", places, RA="furlong", DE="furlong")
    with pytest.raises(CatalogError, match=r"furlong.* position_unit = \"deg\" .*under \[label\.table\]"):
        gathered(made, label)
    assert gathered(made, label + 'position_unit = "deg"\n').sample.labels.joined == 300
    radians = places | {"RA": np.radians(columns["ra"]), "DE": np.radians(columns["dec"])}
    write(made / "labels.parquet", radians)
    found = gathered(made, label + 'position_unit = "rad"\n')
    assert found.sample.labels.joined == 300
    assert found.sample.labels.unplaced == 0
    away = np.where(np.arange(300) < 5, 95.0, columns["dec"])
    write(made / "labels.parquet", places | {"DE": away})
    found = gathered(made, label)
    assert (found.sample.labels.joined, found.sample.labels.unplaced) == (295, 5)
    assert "5 labels of the table have no position, or one out of range." in label_words(found.sample.labels)


def test_rows_that_share_a_label_by_position_are_counted(made: Path) -> None:
    """Whichever batch each is in: the label is nearest to both."""
    columns = survey()
    for one, other in ((3, 4), (3, 299), (10, 11)):
        columns["ra"][other], columns["dec"][other] = columns["ra"][one], columns["dec"][one] + 0.3 / 3600
    write(made / "survey.parquet", columns)
    alone = np.delete(np.arange(300), (4, 299, 11))
    for k in range(3):
        write(made / f"labels-{k}.parquet", {n: columns[n][alone[k::3]] for n in ("ra", "dec", "kind")})
    table = 'table = { path = "labels-*.parquet", ra = "ra", dec = "dec" }'
    found = gathered(made, f'[label]\ncolumn = "kind"\n{table}\n')
    assert (found.sample.labels.joined, found.sample.labels.shared) == (300, 2)
    (told,) = label_words(found.sample.labels)
    assert told.startswith("2 labels of the table are the nearest of several rows")
    narrow = gathered(made, f'[label]\ncolumn = "kind"\n{table[:-2]}, radius = 0.1 }}\n')
    assert (narrow.sample.labels.joined, narrow.sample.labels.shared) == (297, 0)


def test_rows_of_one_name_and_several_classes_are_reported(made: Path) -> None:
    columns = survey()
    kinds = {k: columns["kind"][k].strip() for k in (3, 9)}
    columns["id"][[4, 5]] = columns["id"][3], columns["id"][3]
    columns["kind"][[3, 4, 5]] = "early", "Late", "early"
    columns["id"][10], columns["kind"][10] = columns["id"][9], kinds[9]  # twice the same: no conflict
    columns["id"][[20, 21]] = ""
    columns["kind"][[20, 21]] = "early", "Late"  # nameless ones are not one object
    write(made / "survey.parquet", columns)
    found = gathered(made, '[label]\ncolumn = "kind"\n')
    assert found.sample.labels.repeated == 1
    assert found.sample.labels.repeating == {"G3": ("Late", "early")}
    assert len(found.rows.target) == 300
    (told,) = label_words(found.sample.labels)
    assert told == "1 identifiers have rows of several classes, which were kept: G3: Late, early."


@pytest.mark.parametrize("where", ["column", "id", "place", "votes"])
def test_leaks_are_looked_for_wherever_the_classes_are(made: Path, where: str) -> None:
    """`x` tells of the class; `answer` gives it away, and is a feature."""
    columns = survey()
    answer = (columns["kind"] == "Late ") + np.linspace(0, 0.1, 300)
    few = {name: columns[name] for name in ("id", "ra", "dec", "kind")}
    late = np.round(40 * answer / 1.1)
    columns |= {"answer": answer, "n_late": late, "n_early": 40 - late}
    write(made / "labels.parquet", few)
    if where != "column":
        del columns["kind"]
    write(made / "survey.parquet", columns)
    table = '[label.table]\npath = "labels.parquet"\n'
    label = {
        "column": 'column = "kind"\n',
        "id": f'column = "kind"\n{table}id = "id"\n',
        "place": f'column = "kind"\n{table}ra = "ra"\ndec = "dec"\n',
        "votes": '[label.votes]\nearly = "n_early"\nlate = "n_late"\n',
    }[where]
    text = f'{HEAD}[label]\n{label}{TAIL}answer = "answer"\n'
    specification = parse_specification(text, source="here", base_folder=str(made))
    opened = catalogs.open(made / "survey.parquet")
    found = catalog_quality(specification, opened, LabelSource.of(specification, [opened]))
    alone = {leak.columns[0]: leak.used for leak in found.leaks if len(leak.columns) == 1}
    voted = {"n_late": False, "n_early": False} if where == "votes" else {}
    assert alone | voted == {"answer": True, "n_late": False, "n_early": False}
    assert "the features use answer, which tell" in " ".join(quality_remarks(found))


def test_answers_of_a_review_replace_labels(made: Path) -> None:
    (made / "review.csv").write_text("id,label\nG0,early\nG1,early\n")
    label = '[label]\ncolumn = "kind"\nextra = ["review.csv"]\n'
    found = gathered(made, label)
    assert found.sample.labels.reviewed == 2
    assert [found.classes[k] for k in found.rows.target[:2]] == ["early", "early"]
    before = found.sample.content_hash
    (made / "review.csv").write_text("id,label\nG0,Late\nG1,early\n")
    assert gathered(made, label).sample.content_hash != before  # another training: another version
    (made / "review.csv").write_text("id,label\nG300,Late\n")
    with pytest.raises(TrainingError, match=r"answers to 1 objects such as 'G300', but .* such as 'G0'"):
        gathered(made, label)
    write(made / "survey.parquet", survey() | {"id": np.arange(300)})
    (made / "review.csv").write_text("id,label\n007,Late\n300,Late\n")  # as texts
    assert gathered(made, label).sample.labels.reviewed == 1


@pytest.mark.parametrize(
    ("column", "classes"),
    [
        ("kind", '{ red = ["early"], blue = ["Late"] }'),
        ("f_late", '{ red = ["..0.5"], blue = ["0.5.."] }'),
        ("f_late", '{ red = ["0.0..0.5"], blue = ["0.5..0.7", "0.7.."] }'),
    ],
)
def test_answers_of_a_review_may_be_names_of_classes(made: Path, column: str, classes: str) -> None:
    (made / "review.csv").write_text("id,label\nG0,red\nG1,blue\nG2,red\nG3,blue\n")
    found = gathered(made, f'[label]\ncolumn = "{column}"\nclasses = {classes}\nextra = ["review.csv"]\n')
    assert [found.classes[k] for k in found.rows.target[:4]] == ["red", "blue", "red", "blue"]
    assert not found.sample.unknown_labels


def test_fractions_without_a_total_are_not_taken_for_votes(made: Path) -> None:
    columns = survey()
    columns["f_late"] = columns["f_late"] * 0.999  # as rounding leaves them: their sum is less than a vote
    write(made / "survey.parquet", columns)
    votes = '[label.votes]\nearly = "f_early"\nlate = "f_late"\n'
    said = r'fractions up to 1 without a total, .*total = "\.\.\.".*fewest_votes = 0'
    with pytest.raises(TrainingError, match=said):
        gathered(made, votes)
    shares = gathered(made, f"[label]\nfewest_votes = 0\n{votes}").rows.votes
    np.testing.assert_allclose(shares, np.stack([columns["f_early"], columns["f_late"]], axis=1))
    write(made / "survey.parquet", survey())
    counts = gathered(made, '[label.votes]\nearly = "n_early"\nlate = "n_late"\n').rows
    assert np.allclose(gathered(made, f'[label]\ntotal = "n"\n{votes}').rows.votes, counts.votes)
    assert np.array_equal(counts.target, (counts.votes[:, 1] > counts.votes[:, 0]).astype(int))


FLUX = """
[photometry.mag]
flux = "flux"
inverse_variance = "flux_ivar"
extinction = { e_bv = "ebv", system = "sdss", band = "r" }
[features]
m = "mag"
"""


def test_magnitudes_of_fluxes_with_learned_softening(made: Path) -> None:
    columns = survey()
    spec = parse_specification(HEAD + '[label]\ncolumn = "kind"\n' + FLUX, source="x", base_folder=str(made))
    catalog = catalogs.open(made / "survey.parquet")
    learned = with_learned_photometry(spec, [catalog])
    band = learned.photometry["mag"]
    assert band.unit == "nanomaggy"
    assert band.softening == pytest.approx(0.3e-9)
    batch = next(catalog.batches(catalog.names))
    found = training_reader(learned).of(catalog).evaluate(batch)
    free = columns["flux"] * 10 ** (0.4 * 2.285 * columns["ebv"])
    assert np.allclose(found.X[:, 0], asinh_magnitude(free, 0.3e-9))


def test_three_reasons_for_no_value_are_kept_apart(made: Path) -> None:
    columns = survey()
    columns["x"][:10], columns["x"][10:30], columns["x"][30:35] = 99.0, -99.0, -1.0
    columns["x"][35:37] = np.nan
    write(made / "survey.parquet", columns)
    states = "sentinels = { x = -99.0 }\nnot_detected = { x = 99.0 }\nlimits = { x = 3.0 }\n"
    states += 'masked = { x = [-1, "blank"] }\n'
    features = TAIL + 'unseen = "x_not_detected"\nspoilt = "x_masked"\n'
    (made / "spec.toml").write_text(HEAD + states + '[label]\ncolumn = "kind"\n' + features)
    specification = parse_specification((made / "spec.toml").read_text(), source="x", base_folder=str(made))
    catalog = catalogs.open(made / "survey.parquet")
    found = training_reader(specification).evaluate(next(catalog.batches(catalog.names)))
    row = np.arange(300)
    assert np.array_equal(found.X[:, 0] == 3.0, row < 10)
    assert np.array_equal(found.missing[:, 0], (row >= 10) & (row < 37))
    assert np.array_equal(found.X[:, 1], row < 10)
    assert np.array_equal(found.X[:, 2], (row >= 30) & (row < 37))
    assert np.array_equal(found.not_detected, row < 10), "flag 8 is not of the masked ones"
    planned = train(made / "spec.toml", made / "models", dry_run=True)
    counts = {"not_observed": 20, "not_detected": 10, "masked": 7}
    assert planned.training.states == {"x": counts}
    told = "Missing in labelled rows, by the reason: x: 20 not observed, 10 not detected, 7 masked."
    assert list(missing_words(planned.training.states)) == [told]


@pytest.mark.parametrize("key", ["sentinels", "not_detected", "masked"])
def test_marks_of_a_column_that_is_not_there_are_refused(made: Path, key: str) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(600)), 2)
    pq.write_table(pa.table(survey()).append_column("v", vectors), made / "survey.parquet")
    label = '[label]\ncolumn = "kind"\n'
    for name, hint in (("flxu", "did you mean 'flux'"), ("v[0]", "without an index")):
        said = rf"catalog\.{key}: got '.*', which is not a column.*{hint}"
        with pytest.raises(SpecificationError, match=said):
            gathered(made, f'{key} = {{ "{name}" = -99 }}\n{label}')
    said = rf"catalog\.{key}: got the text '-99' for 'x', .*write -99 without"
    with pytest.raises(SpecificationError, match=said):
        gathered(made, f'{key} = {{ x = ["-", "-99"] }}\n{label}')
    assert len(gathered(made, f"{key} = {{ flux = -99, v = -99 }}\n{label}").rows.X) == 300
    assert len(gathered(made, f'{key} = {{ x = "-", kind = "99", flux = "blank" }}\n{label}').rows.X) == 300


def test_a_value_has_one_meaning() -> None:
    text = f'{HEAD}sentinels = {{ x = 99 }}\nmasked = {{ x = [1, 99.0] }}\n[label]\ncolumn = "kind"\n{TAIL}'
    with pytest.raises(SpecificationError, match=r"got 99\.0 of column 'x' in sentinels and in masked"):
        parse_specification(text, source="x")
    parse_specification(text.replace("x =", "y =", 1), source="x")


def test_a_split_by_places_that_nobody_reads_says_how_to_state_them(made: Path) -> None:
    """Degrees as texts, as of a CSV file with '-' among them."""
    columns, label = survey(), '[split]\nby = "healpix"\n[label]\ncolumn = "kind"\n'
    expected = gathered(made, label).rows.held_out
    texts = {name: np.array([repr(float(x)) for x in columns[name]], dtype=object) for name in ("ra", "dec")}
    write(made / "survey.parquet", columns | texts)
    said = r"'ra' and 'dec' hold positions in few places.* position_unit = \"deg\""
    with pytest.raises(TrainingError, match=said):
        gathered(made, label)
    texts["ra"][0] = "-"
    write(made / "survey.parquet", columns | texts)
    found = gathered(made, 'position_unit = "deg"\n' + label).rows.held_out
    assert np.array_equal(found[1:], expected[1:])


@pytest.mark.parametrize("padded", ["labels", "survey"])
def test_identifiers_with_zeros_in_front_are_the_numbers_that_they_are(made: Path, padded: str) -> None:
    """In all files of labels."""
    columns = survey()
    numbers, texts = np.arange(300) + 95, np.array([f"{i:010d}" for i in range(95, 395)])
    write(made / "survey.parquet", columns | {"id": texts if padded == "survey" else numbers})
    names = texts if padded == "labels" else numbers
    again = [*names, "0095"] if padded == "labels" else [*names, 95]
    kinds = [*columns["kind"], "other"]
    for k in range(2):
        pq.write_table(pa.table({"name": again[k::2], "kind": kinds[k::2]}), made / f"labels-{k}.parquet")
    table = 'table = { path = "labels-*.parquet", id = "name" }\n'
    found = gathered(made, '[label]\ncolumn = "kind"\nexclude = ["other"]\n' + table)
    assert len(found.rows.target) == 299
    assert found.sample.labels.conflicts == 1
