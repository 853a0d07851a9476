"""Mid-ranks against SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

from blr.arrays import mid_ranks


@pytest.mark.parametrize("x", [[], [3.0], [2, 2, 2], [0.0, -0.0, 1.0], [5, 1, 5, -np.inf, 2, np.inf]])
def test_small(x: list[Any]) -> None:
    assert np.array_equal(mid_ranks(x), rankdata(x))


def test_with_many_ties() -> None:
    x = np.random.default_rng(3).integers(0, 50, 1000) / 7
    assert np.array_equal(mid_ranks(x), rankdata(x))
