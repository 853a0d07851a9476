"""The Gaussian posterior as rows grow (Bernstein and von Mises): errors fall as the figure in docs/accuracy.md says."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import blr

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "plot_error.py"
FEW, MANY, DATA_SETS = 64, 512, 6


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_errors_fall_by_the_power_that_is_drawn(script: dict[str, Any]) -> None:
    few, many = (script["medians"](n, DATA_SETS) for n in (FEW, MANY))
    for name, power in (script["PROBABILITIES"] | script["EVIDENCES"]).items():
        found = np.log(many[name] / few[name]) / np.log(MANY / FEW)
        assert found == pytest.approx(power, abs=0.35), name
    assert many["refined"] < 1e-5 < many["plug-in"] < many["Laplace"] < 5e-3


def test_the_truth_is_that_of_a_finer_rule(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    Phi = np.column_stack([np.ones(16), rng.standard_normal(16)])
    t = (rng.random(16) < 0.6).astype(float)
    q = blr.fit(Phi, t, blr.GaussianPrior(0.0, 1.0))
    p, log_evidence = script["truth"](Phi, t, q)
    monkeypatch.setitem(script["truth"].__globals__, "STEP", 0.17)
    finer, finer_evidence = script["truth"](Phi, t, q)
    np.testing.assert_allclose(p, finer, atol=1e-12)
    assert log_evidence == pytest.approx(finer_evidence, abs=1e-11)
