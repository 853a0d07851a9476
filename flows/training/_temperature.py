"""Left-out probabilities of the mixture of candidates, and the temperature that is estimated from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from blr.predictive.temperature import Temperature, estimate_temperature
from flows.training._left_out import LeftOut, mixed
from flows.training._ranking import Ranking
from flows.training._staging import StagedTraining

__all__ = ["mixed_left_out"]

Floats = NDArray[np.float64]


def mixed_left_out(
    staged: StagedTraining, left_out: Sequence[LeftOut], ranking: Ranking
) -> tuple[Floats, Temperature | None]:
    """Return the left-out probabilities (N, K) of the mixture that makes the model, and its temperature.

    The `ranking` says which candidates are in the mixture; `left_out` are those of all candidates.

    The probabilities that are returned include the temperature.  It is None where the rows favour none, where
    `select.temperature` is "none", and where labels may be wrong: then the probabilities are those of the recorded
    label, not of the true class.
    """
    mixture = mixed(left_out, ranking.shares)
    p = mixture.at(ranking.integrated)
    if staged.specification.select.temperature == "none" or staged.data.rows.confusion is not None:
        return p, None
    temperature = estimate_temperature(p, mixture.share)
    return p if temperature is None else temperature.scaled(p), temperature
