"""Properties of every specification that `blr init` writes."""

from __future__ import annotations

import numpy as np

from blr.candidates.candidate import HELD_OUT_FROM
from flows.specification.specification import Specification
from flows.training._rows import TrainingRows

__all__ = ["check_split"]


def check_split(specification: Specification, rows: TrainingRows) -> None:
    """Check that some rows are held out; or of few labels none, and that no class has all rows in one group."""
    if len(rows.target) >= HELD_OUT_FROM:
        assert rows.held_out.any()
        return
    assert specification.split.held_out == 0
    assert not rows.held_out.any()
    assert rows.group is not None
    assert all(len(np.unique(rows.group[rows.target == k])) > 1 for k in np.unique(rows.target))
