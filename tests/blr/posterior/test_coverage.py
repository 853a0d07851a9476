"""Intervals of the logit hold the truth as often as they say: the stored run's shares, and some of its problems again.

The run is `tests/reference/coverage.py`'s: thousands of simulated problems a kind, whose verdicts are green.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

REFERENCE = Path(__file__).parents[2] / "reference"
STORED = json.loads((REFERENCE / "coverage.json").read_text(encoding="utf-8"))
KINDS = ("binary", "votes", "three classes")


@pytest.fixture(scope="module")
def harness() -> dict[str, Any]:
    return runpy.run_path(str(REFERENCE / "coverage.py"))


@pytest.mark.parametrize("problems", KINDS)
@pytest.mark.parametrize("posterior", ["refined", "sampled"])
def test_ninety_per_cent_intervals_hold_ninety_per_cent(problems: str, posterior: str) -> None:
    found = STORED[problems]["coverage"]["90%"][posterior]
    assert found["error"] < (0.007 if posterior == "refined" else 0.01)
    assert found["coverage"] == pytest.approx(0.9, abs=0.02)
    half = STORED[problems]["coverage"]["50%"][posterior]
    assert half["coverage"] == pytest.approx(0.5, abs=0.02 + 2 * half["error"])
    assert STORED[problems]["green"] > 500  # or the verdict leaves nothing to be right about


@pytest.mark.parametrize("problems", KINDS)
def test_the_stored_run_is_this_codes(harness: dict[str, Any], problems: str) -> None:
    for i, stored in list(STORED[problems]["first"].items())[:4]:
        found = harness["levels"](problems, int(i), ("laplace", "refined"))
        for kind, u in found.items():
            np.testing.assert_allclose(u, stored[kind], atol=2e-4, err_msg=f"{kind}, problem {i}")


def test_chains_again(harness: dict[str, Any]) -> None:
    """Other processors round otherwise, and chains part: by their own error, some 0.005, at most."""
    i, stored = next(iter(STORED["binary"]["first"].items()))
    found = harness["levels"]("binary", int(i), ("sampled",))["sampled"]
    np.testing.assert_allclose(found, stored["sampled"], atol=0.03)
