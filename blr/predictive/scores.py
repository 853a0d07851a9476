"""What a catalogue gets of each row: probabilities, their intervals, entropy and mutual information."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from blr.arrays import Matrix, Vector, html_table
from blr.decisions import Flag
from blr.likelihood.likelihoods import LINKS
from blr.predictive._cubature import normal_nodes
from blr.predictive.mixture import Prediction

# Intervals of class probabilities: what the weights leave open of each.  Shapes: N rows, K classes.
#
# The activation is Gaussian, so that an interval of the probability of two classes is that of the logit, exactly.  Of
# more classes each probability depends on all activations: its quantiles are those over Sobol nodes.

# An end of a 95 % interval errs by 0.02 at worst, where the probability itself is uncertain by 0.3.
_NODES = 512
_BLOCK = 512  # rows at a time: their nodes fill the cache and not the memory


def credible_interval(
    mean: Matrix, covariance: Matrix, share: float = 0.95, *, link: str = "logistic"
) -> tuple[Matrix, Matrix]:
    """Return the lower and the upper end, (N, K) each, of the central `share` of each class probability.

    `mean` and `covariance` of the activation are (N,) and (N,) for two classes, whose `link` counts, else (N, K) and
    (N, K, K); where they are of a mixture, it is taken for a Gaussian of the same moments.
    """
    if not 0 < share < 1:
        raise ValueError(
            f"got {share} as the share inside an interval, expected a number between 0 and 1, such as 0.95"
        )
    tail = (1 - share) / 2
    if mean.ndim == 1:
        by, spread = LINKS[link], -ndtri(tail) * np.sqrt(covariance)
        low, high = mean - spread, mean + spread
        return (
            np.exp(np.stack([by.log_sf(high), by.log_cdf(low)], axis=1)),
            np.exp(np.stack([by.log_sf(low), by.log_cdf(high)], axis=1)),
        )
    ends = [
        _quantiles(mean[i : i + _BLOCK], covariance[i : i + _BLOCK], tail)
        for i in range(0, len(mean), _BLOCK)
    ]
    if not ends:
        return np.empty_like(mean), np.empty_like(mean)
    both = np.concatenate(ends, axis=1)
    return both[0], both[1]


def _quantiles(mean: Matrix, covariance: Matrix, tail: float) -> Matrix:
    """Return both ends (2, n, K) from the probabilities at the nodes.

    In single precision, whose rounding is far below the error of the nodes, and with the nodes last: sorting numbers
    that lie side by side takes a tenth of the time.
    """
    n, K = mean.shape
    values, axes = np.linalg.eigh(covariance)
    root = axes * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    z = normal_nodes(_NODES, K).T.astype(np.float32)
    p = (root.reshape(n * K, K).astype(np.float32) @ z).reshape(n, K, _NODES)
    p += (mean - mean.max(axis=1, keepdims=True))[:, :, None]
    p -= p.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    p.sort(axis=2)
    return np.stack([_sorted_quantile(p, share) for share in (tail, 1 - tail)])


def _sorted_quantile(values: NDArray[np.float32], share: float) -> Matrix:
    """Return the quantile (...) of sorted values (..., S), on the line between the two that are nearest."""
    place = share * (values.shape[-1] - 1)
    below = int(place)
    above = min(below + 1, values.shape[-1] - 1)
    ends = values[..., [below, above]].astype(np.float64)
    return np.asarray(ends[..., 0] + (place - below) * (ends[..., 1] - ends[..., 0]))


# What a classifier says of a batch of rows.  Shapes: N rows, K classes, S draws of the weights.

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
