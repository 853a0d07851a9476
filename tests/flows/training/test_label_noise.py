"""Labels that may be wrong, from the specification to the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blr.calibration import log_loss
from blr.candidates import choice, training
from blr.candidates.rows import LabelledRows, TrainingSet
from blr.predictive.mixture import Temperature
from flows.errors import SpecificationError, TrainingError
from flows.models.model import read_model
from flows.models.store import Store
from flows.reports.data import noise_words, training_remarks
from flows.specification.catalog import stated_confusion
from flows.specification.toml_file import parse_specification
from flows.training._staging import label_confusion, with_recorded_losses
from tests.flows.candidates import judged
from tests.flows.verbs import train

TEXT = """
name = "m"
catalog = { paths = ["a.fits"], id = "id" }
features = { x = "x" }
"""


def specification(label: str) -> Any:
    return parse_specification(f"{TEXT}\n[label]\n{label}\n", source="spec.toml")


def rows(n: int = 600, flipped: float = 0.2, annotators: int = 0, seed: int = 0) -> Any:
    """Return training rows of two classes of two features, of the second of which a share is recorded as the first."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    truth = (rng.random(n) < 1 / (1 + np.exp(-4 * X[:, 0] - X[:, 1]))).astype(np.intp)
    who = rng.integers(0, annotators, n) if annotators else None
    share = np.where(who == 0, 0.0, flipped) if annotators else flipped
    target = np.where((truth == 1) & (rng.random(n) < share), 0, truth)
    held_out = np.arange(n) % 5 == 0
    labelled = LabelledRows(X, np.zeros((n, 2), bool), target, held_out, annotator=who)
    return TrainingSet.of(labelled, ("x", "y"), ("a", "b"))


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("column = 't'\nnoise = 0.5", "below 0.5"),
        ("column = 't'\nnoise = 0.0", "above 0"),
        ("column = 't'\nnoise = 'some'", '"estimated"'),
        ("column = 't'\nnoise = { a = 0.7 }", "for class 'a'"),
        ("column = 't'\nnoise = { a = { b = 0.4, c = 0.3 } }", "less than 0.5"),
        ("column = 't'\nnoise = { a = { a = 0.8, b = 0.1 } }", "sum to 0.9"),
        ("column = 't'\nclasses = { a = ['1'], b = ['2'] }\nnoise = { bb = 0.1 }", "did you mean 'b'|'b'"),
        ("votes = { a = 'n', b = 'm' }\nnoise = 0.1", "remove noise"),
        ("column = 't'\nannotator = 'who'", "without noise"),
        ("column = 't'\nnoise = 0.1\nannotator = 'who'", "without noise"),
        ("column = 't'\nnoise = 'estimated'\nannotator = 'who'\nextra = ['r.csv']", "beside 'extra'"),
        (
            "column = 't'\nnoise = 0.1\n[shift]\nclass_prior = { a = 0.5, b = 0.5 }",
            r"shift\.class_prior: got shares with label\.noise",
        ),
    ],
)
def test_impossible_shares_of_wrong_labels_are_refused(label: str, said: str) -> None:
    with pytest.raises(SpecificationError, match=said):
        specification(label)


@pytest.mark.parametrize(
    ("noise", "matrix"),
    [
        (0.1, [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]]),
        ({"b": 0.2}, [[1, 0, 0], [0.1, 0.8, 0.1], [0, 0, 1]]),
        ({"a": {"c": 0.3}, "b": {"b": 0.9, "a": 0.1}}, [[0.7, 0, 0.3], [0.1, 0.9, 0], [0, 0, 1]]),
    ],
)
def test_stated_shares_are_a_matrix(noise: dict[str, Any] | float, matrix: list[Any]) -> None:
    assert stated_confusion(noise, ["a", "b", "c"]) == pytest.approx(np.array(matrix), abs=1e-12)


def test_shares_are_told_with_intervals_that_hold_them() -> None:
    given = rows()
    with pytest.raises(TrainingError, match=r"label\.noise: got 'c'"):
        label_confusion(specification("column = 't'\nnoise = { c = 0.1 }"), given)
    found, told = label_confusion(specification("column = 't'\nnoise = 'estimated'"), given)
    rates = told.rates
    assert rates["b"]["low"] < 0.2 < rates["b"]["high"]
    assert rates["a"]["low"] == 0.0
    assert found == pytest.approx(np.array(told.confusion))
    words = " ".join(noise_words(told))
    assert "95 % intervals" in words
    assert "true class" in words


def test_annotators_have_shares_of_their_own() -> None:
    given = rows(n=1500, flipped=0.35, annotators=2)
    text = "column = 't'\nnoise = 'estimated'\nannotator = 'who'"
    found, told = label_confusion(specification(text), given, ("careful", "hasty"))
    careful, hasty = (told.annotators[name]["b"] for name in ("careful", "hasty"))
    assert careful["rate"] < 0.1
    assert hasty["rate"] > 0.2
    assert hasty["low"] < 0.35 < hasty["high"]
    mask = np.arange(1500) < 10
    labelled = replace(given.rows, confusion=found)
    assert labelled.confused(mask)[:, 1, 0] == pytest.approx(
        np.where(given.rows.annotator[:10] == 0, careful["rate"], hasty["rate"])
    )
    p = np.full((10, 2), 0.5)
    losses = with_recorded_losses(told, labelled, judged(p, p, labelled.target[mask], seen=mask))
    assert losses.log_loss == pytest.approx(np.log(2))


def test_a_training_takes_stated_shares(folder: Path) -> None:
    path = folder / "spec.toml"
    text = path.read_text().replace("[label]\n", "[label]\nnoise = 0.1\n")
    assert "noise" in text
    path.write_text(text)
    told = train(path, folder / "models")
    noise = told.training.label_noise
    assert noise.rates["early"]["rate"] == pytest.approx(0.1)
    assert noise.log_loss == pytest.approx(told.metrics.log_loss)
    model = read_model(Store(folder / "models").find("morphology").path)
    assert all(m.posterior.problem.mislabelled for m in model.classifier.members)
    card = (Store(folder / "models").find("morphology").path.parent / "card.md").read_text()
    assert "states: early 10.0%" in card


SHARP = Temperature(np.array([1.5, 2.5]), np.array([0.5, 0.5]))


def test_the_model_is_judged_and_stored_at_its_temperature(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left-out rows are made to ask for a power."""
    asked = []
    monkeypatch.setattr(training, "estimate_temperature", lambda *rows: asked.append(rows) or SHARP)
    monkeypatch.setattr(choice, "estimate_temperature", lambda *_: SHARP)  # of four fifths of the rows
    path = folder / "spec.toml"
    path.write_text(path.read_text().replace("[features]", "[split]\nheld_out = 0\n[features]"))
    result = train(path, folder / "models")
    [(p, shares)] = asked
    assert result.metrics.log_loss == pytest.approx(log_loss(SHARP.scaled(p), shares))
    stored = Store(folder / "models").load("morphology").classifier.temperature
    np.testing.assert_array_equal(stored.power, SHARP.power)
    assert any(
        "to the power 2.00 (temperature scaling)" in text for text in training_remarks(result.training)
    )
