"""The page of times says what was measured, with this version."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import bench_speed  # noqa: E402  scripts are no package
import speed_page  # noqa: E402
import speed_units  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "speed.json"


def test_the_page_is_of_this_version_and_of_what_was_measured(tmp_path: Path) -> None:
    stored = speed_page.read_results(RESULTS)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert set(stored) == set(bench_speed.PARTS), "run: make bench"
    assert {part["machine"]["code"] for part in stored.values()} == {version}, "run: make bench"
    speed_page.write_page(tmp_path / "RESULTS.md", stored)
    assert (tmp_path / "RESULTS.md").read_text() == (ROOT / "benchmarks" / "RESULTS.md").read_text()
    speed_page.draw_slopes(tmp_path / "slopes.svg", stored)
    assert (ROOT / "docs" / "pictures" / "slopes.svg").exists()


def test_a_ratio_is_of_one_round() -> None:
    row = bench_speed.measured("ours", "theirs", [1.0, 4.0, 9.0], [1.0, 2.0, 3.0], goal=1.5)
    assert (row.ratio, row.least, row.most) == (2.0, 1.0, 3.0)
    assert (row.seconds, row.unit_seconds) == (4.0, 2.0)


@pytest.mark.parametrize("k", [2, 3])
def test_the_rows_are_correlated_and_of_unit_scale(k: int) -> None:
    Phi, t = speed_units.polynomial(4000, 50, k)
    assert Phi.shape == (4000, 50)
    assert set(t) == set(range(k))
    assert Phi[:, 1:].std(axis=0) == pytest.approx(1.0)
    assert 1e3 < np.linalg.cond(Phi.T @ Phi) < 1e8
