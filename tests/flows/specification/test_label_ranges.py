"""Classes of numbers by ranges: T types and fractions, as specifications write them and as `blr init` begins with."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import catalogs
from catalogs.arrays import plain_texts
from flows.draft.inspection import starting_classes
from flows.draft.specification import starting_specification
from flows.labels.reader import LabelReader
from flows.specification.catalog import Label
from tests.flows.verbs import train

N = 700


def read(classes: dict[str, list[str]], values: list[float], exclude: tuple[str, ...] = ()) -> list[int]:
    label = Label(column="t", classes=classes, exclude=exclude)
    return LabelReader.of(label, Counter()).read(plain_texts(np.array(values))).tolist()


def test_a_range_holds_its_lower_end_only() -> None:
    early_late = {"early": ["..0"], "late": ["0..9.5", "10"]}
    assert read(early_late, [-5.2, -0.0, 0.0, 3.3, 9.5, 10, 11, np.nan]) == [0, 1, 1, 1, -1, 1, -1, -1]


def test_marks_are_in_no_open_range_and_spellings_go_first() -> None:
    assert read({"a": ["..0"], "b": ["0.."]}, [-99, -9999, 99.9, 1e3]) == [-1, -1, -1, 1]
    assert read({"a": ["..5", "7"], "b": ["5..7", "7.5.."]}, [7, 6, 8]) == [0, 1, 1]
    assert read({"a": ["..5"], "b": ["5.."]}, [4, 5, 6], ("5",)) == [0, -1, 1]


def test_texts_that_are_no_ranges_are_spellings() -> None:
    label = Label(column="t", classes={"a": ["S..", ".."], "b": ["E"]})
    assert LabelReader.of(label, Counter()).ranges == ()
    assert LabelReader.of(label, Counter()).knows("S..")


@pytest.mark.parametrize(
    ("classes", "told"),
    [
        ({"a": ["..1"], "b": ["0.."]}, "'..1' and '0..' overlap"),
        ({"a": ["3..1"], "b": ["4.."]}, "whose lower end is not the first"),
    ],
)
def test_ranges_that_cannot_be_are_refused(classes: dict[str, list[str]], told: str) -> None:
    with pytest.raises(ValidationError, match=told.replace(".", r"\.")):
        Label(column="t", classes=classes)


@pytest.mark.parametrize(
    ("values", "cut"),
    [
        (np.round(np.linspace(-5, 9, 150), 1), 0),  # T types
        (np.tile(np.arange(-6, 11), 20), 0),
        (np.round(np.linspace(0, 1, 500), 3), 0.5),  # fractions of votes
        (np.linspace(0, 98, 300), 50),
        (np.linspace(9.1, 11.3, 300), 10.2),
        (np.arange(60), 30),  # counts of votes
        (1e6 + np.linspace(0, 1, 300), 1e6 + 150 / 299),
    ],
)
def test_numbers_in_order_are_cut_in_two(values: np.ndarray, cut: float) -> None:
    found = starting_classes(Counter([*plain_texts(values).tolist(), *["-99"] * 40, *["?"] * 3]))
    assert found.cut == cut
    shown = f"{cut:.0f}" if float(cut).is_integer() else repr(cut)
    assert [c.spellings for c in found.kept] == [(f"..{shown}",), (f"{shown}..",)]
    assert [c.rows for c in found.kept] == [np.sum(values < cut), np.sum(values >= cut)]


def test_marks_are_nines_and_no_other_numbers() -> None:
    assert set(starting_classes({"1": 50, "2": 60, "99.3": 40, "99.9": 40, "-9.5": 30}).doubtful) == {"99.9"}


@pytest.mark.parametrize("codes", [range(1, 15), (-9, 0, 1, 2), (0.5, 1, 1.5, 2), (-1, *range(12))])
def test_codes_are_classes_each(codes: range | tuple[Any, ...]) -> None:
    assert starting_classes({f"{x:g}": 50 for x in codes}).cut is None


@pytest.mark.parametrize("kind", [np.float32, pytest.param(np.float64, marks=pytest.mark.long)])
def test_t_types_train_as_init_writes_them(tmp_path: Path, kind: type) -> None:
    rng = np.random.default_rng(3)
    t = rng.uniform(-5, 9, N)
    r = rng.normal(16, 1, N)
    columns = {
        "id": np.arange(N) + 10**9,
        "t": np.where(rng.random(N) < 0.1, -99, np.round(t, 1)).astype(kind),
    }
    columns |= {"mag_g": r + 0.8 - 0.05 * t + rng.normal(0, 0.1, N), "mag_r": r}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    start = starting_specification(catalogs.open(tmp_path / "x.parquet"), "t", folder=tmp_path)
    written = tomllib.loads(start.text)["label"]["classes"]
    assert written == {"below_0": ["..0"], "from_0": ["0.."]}
    assert "renamed" not in start.text
    head, *candidates = start.text.split("[[candidate]]")
    some = candidates[:2] if kind is np.float32 else candidates  # `make long` trains all
    (tmp_path / "spec.toml").write_text("[[candidate]]".join([head, *some]))
    told = train(tmp_path / "spec.toml", tmp_path / "models")
    assert told.metrics.log_loss < 0.7 * told.metrics.log_loss_baseline
    assert sum(start.classes.values()) == np.sum(columns["t"] > -90)
