"""The verdict on a model: probabilities computed rightly, calibrated, and better than class shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.models.store import Store
from flows.tables import classify_table
from tests.flows.verbs import train

SPECIFICATION = """
name = "separable"
[catalog]
paths = ["survey.parquet"]
id = "name"
[label]
column = "type"
[label.classes]
star = ["star"]
galaxy = ["galaxy"]
[split]
held_out = 0
[features]
"""


@pytest.fixture(scope="module")
def separable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with fifty objects in twelve features, two of which tell their classes apart without error."""
    folder, rng = tmp_path_factory.mktemp("separable"), np.random.default_rng(3)
    x = rng.normal(size=(50, 12))
    star = x[:, 0] + x[:, 1] > 0
    x[:, 0] += np.where(star, 1.0, -1.0)
    columns = {f"x{j}": x[:, j] for j in range(12)}
    named = {"name": [f"o{i}" for i in range(50)], "type": np.where(star, "star", "galaxy").tolist()}
    pq.write_table(pa.table(named | columns), folder / "survey.parquet")
    features = "".join(f'{name} = "{name}"\n' for name in columns)
    (folder / "spec.toml").write_text(SPECIFICATION + features)
    return folder


def with_posterior(folder: Path, kind: str) -> Any:
    (folder / "kind.toml").write_text(
        (folder / "spec.toml")
        .read_text()
        .replace("[features]", f'[select]\nposterior = "{kind}"\n[features]')
    )
    return train(folder / "kind.toml", folder / kind)


@pytest.fixture(scope="module")
def refined(separable: Path) -> Any:
    """Return the result of a training with refined posteriors."""
    return with_posterior(separable, "refined")


def test_a_separable_training_with_refined_posteriors_is_green(separable: Path, refined: Any) -> None:
    told = refined
    assert told.trust.answer("computed").colour == "green"
    assert told.trust.numbers["mean_error"] < 0.01
    assert not Store(separable / "refined").load("separable").classifier.untrusted


def test_a_textbook_posterior_that_is_wrong_is_red_and_flags_the_rows_that_it_may_be_wrong_for(
    separable: Path,
) -> None:
    told = with_posterior(separable, "laplace")
    computed = told.trust.answer("computed")
    assert (computed.colour, told.trust.verdict) == ("red", "red")
    assert "sampled" in computed.advice
    found = classify_table(
        pq.read_table(separable / "survey.parquet"), model=told.model, store=separable / "laplace"
    )
    assert (found["blr_flags"].to_numpy() & 64).any()


def test_the_answers_say_what_a_logistic_regression_reaches(refined: Any) -> None:
    told = refined
    known = told.trust.answer("known")
    assert known.low < known.value < known.high
    assert 0 < told.metrics.log_loss_logistic < told.metrics.log_loss_baseline
    assert "logistic regression removes" in known.says
