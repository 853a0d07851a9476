"""What a classifier says of a batch of rows.  Shapes: N rows, K classes, S draws of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector, html_table
from blr.decisions import Flag
from blr.predictive._intervals import credible_interval
from blr.predictive.mixture import Prediction

__all__ = ["Scores", "joined"]

_SHOWN_ROWS = 10


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """Probabilities, their uncertainty, and flags.

    `probability` (N, K) moderated, `plugin` (N, K) with the weights at the mode and missing features at their mean;
    `logit_mean` (N,) of the second class, for two; `logit_std` and `mutual_information` (N,); `flags` (N,).
    All but the flags are NaN where a row is unclassifiable.  `count_draws` (S, K): the classes' expected counts in this
    batch under draws of the weights, which all rows share; they add up over batches.
    Asked for only: the ends `low` and `high` (N, K) of intervals of the probabilities, and for more than two classes
    `logit_means` (N, K) and `logit_covariance` (N, K, K), the mean of all logits taken away.
    """

    probability: Matrix
    plugin: Matrix
    logit_mean: Vector | None
    logit_std: Vector
    mutual_information: Vector
    flags: NDArray[np.int32]
    count_draws: Matrix
    low: Matrix | None = None
    high: Matrix | None = None
    logit_means: Matrix | None = None
    logit_covariance: Matrix | None = None

    def __repr__(self) -> str:
        n, K = self.probability.shape
        flagged = ", ".join(f"{count} {name}" for name, count in self._flagged()) or "none flagged"
        return f"<Scores: {n} rows, {K} classes; {flagged}>"

    def _repr_html_(self) -> str:
        """Return the first rows as a table."""
        names = [*(f"p{k}" for k in range(self.probability.shape[1])), "logit sd", "information", "flags"]
        columns = [*self.probability.T, self.logit_std, self.mutual_information]
        first = range(min(len(self.flags), _SHOWN_ROWS))
        rows = [
            [*(f"{column[i]:.4f}" for column in columns), Flag(int(self.flags[i])).name or ""] for i in first
        ]
        more = f"; the first {len(rows)} of them" if len(self.flags) > len(rows) else ""
        return html_table(names, rows, repr(self).strip("<>") + more)

    def _flagged(self) -> list[tuple[str, int]]:
        """Return the flags that some rows have, each with the number of rows."""
        counts = [(str(flag.name), int(np.count_nonzero(self.flags & int(flag)))) for flag in Flag]
        return [(name, count) for name, count in counts if count]

    @classmethod
    def of(
        cls,
        prediction: Prediction,
        plugin: Matrix,
        flags: NDArray[np.int32],
        gone: NDArray[np.bool_],
        count_draws: Matrix,
    ) -> Scores:
        """Return the scores of a prediction; rows that are `gone` have no probability and one flag of that kind."""
        flags = flags.copy()
        unsaid = int(
            Flag.LOW_CONFIDENCE | Flag.CLOSE_CALL | Flag.FLIPPED | Flag.OUT_OF_DOMAIN | Flag.UNCERTAIN_INPUT
        )
        flags[gone] = (flags[gone] & ~np.int32(unsaid)) | int(Flag.UNCLASSIFIABLE)
        mean = prediction.mean
        return cls(
            probability=_without(prediction.probability, gone),
            plugin=_without(plugin, gone),
            logit_mean=_without(mean, gone) if mean.ndim == 1 else None,
            logit_std=_without(prediction.logit_std, gone),
            mutual_information=_without(prediction.mutual_information, gone),
            flags=flags,
            count_draws=count_draws,
        )

    def with_intervals(self, prediction: Prediction, share: float, *, link: str) -> Scores:
        """Return the scores with what is asked for only, of the prediction that they came from."""
        gone = np.isnan(self.logit_std)
        mean, covariance = prediction.mean, prediction.covariance
        low, high = credible_interval(mean, covariance, share, link=link)
        scores = replace(self, low=_without(low, gone), high=_without(high, gone))
        if mean.ndim == 1:
            return scores
        return replace(scores, logit_means=_without(mean, gone), logit_covariance=_without(covariance, gone))


def _without(x: Matrix, gone: NDArray[np.bool_]) -> Matrix:
    if not gone.any():
        return x
    out = x.copy()
    out[gone] = np.nan
    return out


def joined(parts: Sequence[Scores]) -> Scores:
    """Return the scores of consecutive batches as one."""
    if len(parts) == 1:
        return parts[0]
    values: dict[str, object] = {}
    for f in fields(Scores):
        arrays = [getattr(p, f.name) for p in parts]
        if f.name == "count_draws":
            values[f.name] = np.sum(arrays, axis=0)
        else:
            values[f.name] = None if arrays[0] is None else np.concatenate(arrays)
    return Scores(**values)  # type: ignore[arg-type]
