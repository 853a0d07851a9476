"""Left-out probabilities of the mixture of candidates, and the temperature that is estimated from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blr.predictive.temperature import Temperature, estimate_temperature
from flows.training._left_out import LeftOut, mixed
from flows.training._ranking import Ranking
from flows.training._staging import StagedTraining

__all__ = ["mixed_left_out"]

Floats = NDArray[np.float64]


def mixed_left_out(
    staged: StagedTraining, folder: Path, ranking: Ranking
) -> tuple[Floats | None, Temperature | None]:
    """Return the left-out probabilities (N, K) of the mixture that makes the model, and its temperature.

    The `ranking` says which candidates are in the mixture.  `folder` has a file of left-out probabilities for each
    candidate; where one is missing, since rows were held out instead, both results are None.

    The probabilities that are returned include the temperature.  It is None where the rows favour none, where
    `select.temperature` is "none", and where labels may be wrong: then the probabilities are those of the recorded
    label, not of the true class.
    """
    files = [folder / f"candidate-{index:03d}.npy" for index in range(len(ranking.weights))]
    if not all(path.is_file() for path in files):
        return None, None
    mixture = mixed([LeftOut.read(path) for path in files], ranking.shares)
    left_out = mixture.at(ranking.integrated)
    if staged.specification.select.temperature == "none" or staged.data.rows.confusion is not None:
        return left_out, None
    temperature = estimate_temperature(left_out, mixture.share)
    return left_out if temperature is None else temperature.scaled(left_out), temperature
