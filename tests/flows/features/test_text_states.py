"""Reasons for no value in columns of texts: numbers among which stand '-', 'N/A' or '>23.1', and classes."""

from pathlib import Path

import numpy as np
import pytest

import catalogs
from catalogs.arrays import NO_VALUES, plain_texts
from catalogs.errors import ExpressionError
from catalogs.sky.photometry import State
from flows.errors import SpecificationError, TrainingError
from flows.features.columns import DerivedColumns
from flows.features.reader import FeatureReader, training_reader
from flows.labels.reader import vote_counts
from flows.specification.catalog import Label
from flows.specification.specification import Specification
from flows.specification.toml_file import parse_specification
from tests.flows.verbs import train

MAGS = ["20.5", "-", "", "N/A", ">23.1", " 21 ", "99", "-9999", ">22.9", "19.5"]
KINDS = ["E", "?", "", "S", "E", "S", "hidden", "E", "S", "E"]


def written(folder: Path, times: int = 1) -> Path:
    path = folder / "survey.csv"
    rows = [f"G{i},{i},{m},{k}\n" for i, (m, k) in enumerate(zip(MAGS * times, KINDS * times, strict=True))]
    path.write_text("id,row,mag,kind\n" + "".join(rows))
    return path


def specification(states: str, feature: str) -> Specification:
    head = 'name = "made"\n[catalog]\npaths = ["survey.csv"]\nid = "id"\n'
    return parse_specification(
        f'{head}{states}\n[label]\ncolumn = "kind"\n[features]\n{feature}\n', source="spec.toml"
    )


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


def test_a_column_of_classes(tmp_path: Path) -> None:
    states = 'masked = { kind = ["hidden"] }\nnot_detected = { kind = "blank" }\nsentinels = { kind = "?" }'
    assert read(tmp_path, states, """e = "kind == 'E'" """)[1] == [k == "E" for k in KINDS]
    assert read(tmp_path, states, """e = "kind == 'hidden'" """)[1] == [0] * 10, "it is no class any more"
    assert read(tmp_path, states, 'e = "kind_masked"')[1] == [k == "hidden" for k in KINDS]
    assert read(tmp_path, states, 'e = "kind_not_detected"')[1] == [k == "" for k in KINDS]


def test_texts_that_are_not_stated_are_named(tmp_path: Path) -> None:
    """A text that is in none of the three is no number, and is not taken for a missing one."""
    told = r"masked \(among the numbers are 'N/A', '>23.1', '>22.9'\)"
    with pytest.raises(ExpressionError, match=f"gives text, expected numbers; .*{told}"):
        read(tmp_path, 'sentinels = { mag = "-" }', 'm = "mag"')
    with pytest.raises(ExpressionError, match=r"among the numbers are '-', 'N/A', '>23.1', '>22.9'"):
        read(tmp_path, "", 'm = "mag"')
    with pytest.raises(ExpressionError, match=r"not_detected or masked \(no number, but '.+'\)$"):
        read(tmp_path, "", 'm = "kind"')


def test_the_reasons_are_counted_in_training(tmp_path: Path) -> None:
    written(tmp_path, 20)
    head = 'name = "made"\n[catalog]\npaths = ["survey.csv"]\nid = "id"\n'
    label = '[label]\ncolumn = "kind"\nclasses = { e = "E", s = "S" }\n'
    (tmp_path / "spec.toml").write_text(f'{head}{STATES}{label}[features]\nm = "mag"\n')
    planned = train(tmp_path / "spec.toml", tmp_path / "models", dry_run=True)
    assert planned.training.states == {"mag": {"not_observed": 40, "not_detected": 40}}


@pytest.mark.parametrize("state", ["not_detected", "masked"])
def test_a_text_has_one_meaning(state: str) -> None:
    with pytest.raises(SpecificationError, match=f"got '-' of column 'mag' in sentinels and in {state}"):
        specification(f'sentinels = {{ mag = "-" }}\n{state} = {{ mag = ["N/A", "-"] }}', 'm = "mag"')


def test_votes_among_which_are_texts() -> None:
    """Numbers where the texts are stated, said by name where they are not, and none where there is no value at all."""
    label = Label(votes={"early": "n_e", "late": "n_s"})
    numbers = np.array([1.0, 2.0])
    with pytest.raises(TrainingError, match="texts in column 'n_s', expected numbers"):
        vote_counts(label, {"n_e": numbers, "n_s": np.array(["3", "-"], dtype=object)})
    stated = DerivedColumns().read_text("n_s", np.array(["3", "-"], dtype=object), ["-"])
    assert vote_counts(label, {"n_e": numbers, "n_s": stated}).tolist() == [[1, 3], [0, 0]]
    assert vote_counts(label, {"n_e": numbers, "n_s": np.zeros(2, NO_VALUES)}).tolist() == [[0, 0], [0, 0]]


def test_labels_of_a_batch_without_any() -> None:
    assert plain_texts(np.zeros(2, NO_VALUES)).tolist() == ["", ""]
    assert plain_texts(np.array([1.0, np.inf, np.nan])).tolist() == ["1", "inf", ""]
