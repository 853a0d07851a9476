"""A model whose left-out rows favour sharper probabilities: they are judged, stored and reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blr.calibration import log_loss
from blr.candidates import training
from blr.predictive.mixture import Temperature
from flows.models.store import Store
from flows.reports.data import TrainReport
from tests.flows.verbs import train

SHARP = Temperature(np.array([1.5, 2.5]), np.array([0.5, 0.5]))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have left-out rows ask for a power; return what they were."""
    rows = []

    def estimate(p: Any, shares: Any) -> Any:
        rows.append((p, shares))
        return SHARP

    monkeypatch.setattr(training, "estimate_temperature", estimate)
    return rows


def spec(folder: Path, more: str) -> Any:
    path = folder / "spec.toml"
    path.write_text(path.read_text().replace("[features]", f"{more}\n[features]"))
    return path


def test_the_model_is_judged_and_stored_at_its_temperature(folder: Path, asked: dict[str, float]) -> None:
    result = train(spec(folder, "[split]\nheld_out = 0"), folder / "models")
    [(p, shares)] = asked
    assert result.metrics.log_loss == pytest.approx(log_loss(SHARP.scaled(p), shares))
    stored = Store(folder / "models").load("morphology").classifier.temperature
    np.testing.assert_array_equal(stored.power, SHARP.power)
    assert any("to the power 2.00 (temperature scaling)" in text for text in TrainReport.of(result).remarks)


def test_no_temperature_is_estimated_where_none_is_wanted(folder: Path, asked: dict[str, float]) -> None:
    result = train(spec(folder, '[split]\nheld_out = 0\n[select]\ntemperature = "none"'), folder / "models")
    assert not asked
    assert result.training.mean_power is None
    assert Store(folder / "models").load("morphology").classifier.temperature is None
