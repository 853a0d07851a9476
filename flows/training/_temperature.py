"""Left-out probabilities of the mixture of candidates, and the temperature that is estimated from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blr.predictive.temperature import Temperature, estimate_temperature
from flows.training._staging import StagedTraining

__all__ = ["mixed_left_out"]

Floats = NDArray[np.float64]


def mixed_left_out(
    staged: StagedTraining, folder: Path, members: Sequence[tuple[int, float]]
) -> tuple[Floats | None, Temperature | None]:
    """Return the left-out probabilities (N, K) of the mixture that makes the model, and its temperature.

    `members` are the candidates in the mixture, each an index and a share.  `folder` has a file of left-out
    probabilities for each candidate; where one is missing, since rows were held out instead, both results are None.

    The probabilities that are returned include the temperature.  It is None where the rows favour none, where
    `select.temperature` is "none", and where labels may be wrong: then the probabilities are those of the recorded
    label, not of the true class.
    """
    files = [folder / f"candidate-{index:03d}.npy" for index, _ in members]
    if not all(path.is_file() for path in files):
        return None, None
    parts = [np.load(path, allow_pickle=False) for path in files]
    left_out = np.asarray(sum(share * p for (_, share), (p, _) in zip(members, parts, strict=True)))
    if staged.specification.select.temperature == "none" or staged.data.rows.confusion is not None:
        return left_out, None
    temperature = estimate_temperature(left_out, parts[0][1])
    return left_out if temperature is None else temperature.scaled(left_out), temperature
