"""Predictions and their mixtures, and what a catalogue gets of each row.

A mixture of predictive distributions, over models, missing features, measurement errors, continuations or
temperatures, is again one: its probability is the mean of the parts', its mutual information H(p) - Σ w E[H], and its
activation's variance comes from the law of total variance.

Beyond the training set's range, where labels say nothing, a prediction mixes two continuations.  One is the models'
own, which goes on along its slope; the other takes each feature at its nearest value within the range, as trees do.
Where labels are of bright objects and the target is faint, the first alone may be sure and wrong; a tenth of it is kept
for the sets where it is right.

Temperature scaling takes probabilities to a power b, p_k^b / Σ_j p_j^b, where left-out rows favour one.  A posterior is
too wide where its prior does not suit the data, for example independent weights for neighbouring pixels.  Its
probabilities are then nearer to even than left-out rows show.  A power b > 1 sharpens probabilities, b < 1 flattens
them; 1 / b is the temperature (Guo et al. 2017, arXiv:1706.04599).  The power of highest likelihood is a bad estimate:
of a hundred rows that the model classifies all correctly, it is infinite.  So the powers have a prior, and b = 1 has
most of it.  Where the posterior favours other powers, predictions are averaged over all powers.
Shapes: N rows, K classes, F features, S powers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from blr.arrays import Matrix, Places, Vector, as_stored, html_table, slices
from blr.decisions import Flag, entropy, mutual_information
from blr.likelihood.likelihoods import LINKS
from blr.missing.patterns import Nodes
from blr.predictive._cubature import normal_nodes
from blr.predictive.binary import binary_integrals
from blr.predictive.softmax import Moments, softmax_exact, widest_contrast

CONSTANT = 0.9
"""Share of the constant continuation."""
REACH = 0.5
"""Part of a feature's range by which new rows may exceed it, where some feature of nearly each one does."""
POWERS = 2.0 ** np.arange(-1.0, 2.5, 0.5)
"""The powers b that are tried: from 1/2 to 4, in steps of a factor √2."""
SPREAD = 0.5
"""Standard deviation of ln b in the prior of the powers other than 1: a Gaussian about 0."""
UNCHANGED = 0.8
"""Prior probability of b = 1."""
FAVOURED = 0.5
"""Posterior probability that the powers other than 1 must exceed together; otherwise probabilities stay as they are."""
TINY = np.finfo(np.float64).tiny
"""Smallest probability whose logarithm is taken."""
# An end of a 95 % interval errs by 0.02 at worst, where the probability itself is uncertain by 0.3.
_NODES = 512
_BLOCK = 512  # rows at a time: their nodes fill the cache and not the memory
_SHOWN_ROWS = 10


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """What a posterior says of N rows.

    `probability` (N, K); `expected_entropy` (N,), E[H] over the posterior, nats; mean and covariance of the activation:
    (N,) and (N,) for two classes, else (N, K) and (N, K, K) with the common shift projected out.
    """

    probability: Matrix
    expected_entropy: Vector
    mean: Matrix
    covariance: Matrix

    def rows(self, chosen: slice | NDArray[np.intp]) -> Prediction:
        """Return the prediction of some of the rows."""
        return Prediction(*(x[chosen] for x in vars(self).values()))

    def raw_moments(self) -> Moments:
        """Return what mixes linearly: the arrays, with the second moment E[a a'] in place of the covariance."""
        second = self.covariance + _square(self.mean)
        return self.probability, self.expected_entropy, self.mean, second

    @property
    def mutual_information(self) -> Vector:
        """H(p) - E[H], (N,), nats: the part of the uncertainty that more labels would take away."""
        return mutual_information(self.probability, self.expected_entropy)

    @property
    def logit_std(self) -> Vector:
        """Sd of the logit (K = 2), or the largest sd of a pair's contrast (K > 2), (N,)."""
        return np.sqrt(self.covariance) if self.covariance.ndim == 1 else widest_contrast(self.covariance)


def predicted(
    mean: Matrix,
    covariance: Matrix,
    *,
    link: str = "logistic",
    shift: Vector | None = None,
    most_nodes: int | None = None,
) -> Prediction:
    """Return the prediction of Gaussian activations by the predictive integral.

    Parameters
    ----------
    mean, covariance
        (N,) and (N,), or (N, K) and (N, K, K) with the common shift projected out.
    link
        Of two classes.
    shift
        (K,) added to the activations inside the integral, such as ln of new over old class priors.  Of two classes,
        with the logistic link only: no other activation is a logit.
    most_nodes
        As of `softmax_exact`.

    Raises
    ------
    ValueError
        If there is a shift, and the link is not the logistic one.
    """
    require_logit(link, shift)
    if mean.ndim == 2 and mean.shape[1] == 2:
        # Two classes, however parameterised, are told by their difference; of a centred pair it is twice either.
        mean, covariance = mean[:, 1] - mean[:, 0], 4.0 * covariance[:, 1, 1]
    if shift is not None:
        mean = mean + moved_by(shift, mean.ndim)
    if mean.ndim == 1:
        p, expected = binary_integrals(mean, covariance, link=link)
        return Prediction(np.stack([1 - p, p], axis=1), expected, mean, covariance)
    p, expected = softmax_exact(mean, covariance, most_nodes=most_nodes)
    return Prediction(p, expected, mean, covariance)


def require_logit(link: str, shift: Vector | None) -> None:
    """Raise ValueError where activations are to be shifted by ln of class priors, and are not logits."""
    if shift is not None and link not in ("logistic", "softmax"):
        raise ValueError(
            f"got a shift of class priors for the {link} link, expected the logistic link, since the "
            "logarithm of the priors' ratio is added to logits; fit with likelihood='logistic'"
        )


def require_shift(shift: Vector | None, n_classes: int) -> None:
    """Raise ValueError unless a shift of the activations is a number a class, (K,)."""
    if shift is not None and np.shape(shift) != (n_classes,):
        raise ValueError(
            f"shift has shape {np.shape(shift)}, expected ({n_classes},), one number for each class, as "
            "census.shares.log_prior_shift returns"
        )


def moved_by(shift: Vector | None, ndim: int) -> Vector | float:
    """Return what a shift (K,) adds to activations (N,) of two classes, or (N, K) of all, by their dimensions."""
    if shift is None:
        return 0.0
    return float(shift[1] - shift[0]) if ndim == 1 else shift - shift.mean()


def mix(parts: Iterable[tuple[Vector | float, Prediction]]) -> Prediction:
    """Return the mixture of (weight, prediction) pairs; weights, scalars or (N,), sum to one row by row."""
    total: tuple[Matrix, ...] | None = None
    for weight, part in parts:
        w = np.broadcast_to(np.asarray(weight, dtype=np.float64), part.expected_entropy.shape)
        terms = tuple(w.reshape((-1,) + (1,) * (x.ndim - 1)) * x for x in part.raw_moments())
        total = terms if total is None else tuple(a + b for a, b in zip(total, terms, strict=True))
    if total is None:
        raise ValueError("a mixture needs at least one part, got none; give a posterior")
    return of_moments(*total)


def mixed(parts: Sequence[tuple[float, Prediction]]) -> Prediction:
    """Return the mixture of (weight, prediction) pairs; one alone as it is."""
    return parts[0][1] if len(parts) == 1 else mix(parts)


def mix_nodes(weight: Vector, part: Prediction) -> Prediction:
    """Return the mixture of S parts that lie one behind the other in `part`, S N rows; weights (S,) sum to one.

    It is `mix` of them, for many parts of few rows.
    """
    moments = (x.reshape(len(weight), -1, *x.shape[1:]) for x in part.raw_moments())
    return of_moments(*(np.tensordot(weight, x, axes=1) for x in moments))


def mix_blocks(
    groups: Iterable[Sequence[Nodes]], predict: Callable[[Matrix], Prediction]
) -> Iterator[tuple[NDArray[np.intp], Prediction]]:
    """Yield rows and their mixtures over nodes, for groups of nodes that are predicted together.

    Patterns of missing features are many and have few rows each.  `predict` is of features (N, F).
    """
    for group in groups:
        whole = predict(np.concatenate([nodes.reshape(-1, nodes.shape[2]) for _, nodes, _, _ in group]))
        start = 0
        for rows, nodes, weight, _ in group:
            stop = start + nodes.shape[0] * nodes.shape[1]
            yield rows, mix_nodes(weight, whole.rows(slice(start, stop)))
            start = stop


def spread(q: Prediction, rows: NDArray[np.intp], flat: Matrix) -> Prediction:
    """Return a prediction with covariances (n, K, K) of class activations added to those of some rows (n,)."""
    covariance = q.covariance.copy()
    covariance[rows] += 4 * flat[:, 1, 1] if covariance.ndim == 1 else flat
    return replace(q, covariance=covariance)


def stacked(parts: Sequence[Prediction]) -> Prediction:
    """Return predictions of several sets of rows as one."""
    return Prediction(*(np.concatenate(x) for x in zip(*(vars(p).values() for p in parts), strict=True)))


def of_moments(probability: Matrix, expected_entropy: Vector, mean: Matrix, second: Matrix) -> Prediction:
    """Return the prediction with the second moment E[a a'] of its activation."""
    covariance = second - _square(mean)
    if covariance.ndim == 1:
        covariance = np.maximum(covariance, 0.0)  # what rounding leaves of a variance of zero
    return Prediction(probability, expected_entropy, mean, covariance)


def replaced(base: Prediction, rows: NDArray[np.intp], part: Prediction) -> Prediction:
    """Return a prediction in which `rows` are those of `part`."""
    whole = Prediction(*(x.copy() for x in vars(base).values()))
    for old, new in zip(vars(whole).values(), vars(part).values(), strict=True):
        old[rows] = new
    return whole


def with_rows(base: Prediction, parts: Sequence[tuple[NDArray[np.intp], Prediction]]) -> Prediction:
    """Return the prediction `base` with those of some rows replaced."""
    if not parts:
        return base
    return replaced(base, np.concatenate([rows for rows, _ in parts]), stacked([p for _, p in parts]))


def _square(mean: Matrix) -> Matrix:
    return mean**2 if mean.ndim == 1 else mean[:, :, None] * mean[:, None, :]


def feature_range(X: Matrix, missing: NDArray[np.bool_]) -> Matrix:
    """Return the least and the largest value of each feature, (2, F), over the rows that have it."""
    return np.stack([np.where(missing, np.inf, X).min(axis=0), np.where(missing, -np.inf, X).max(axis=0)])


def rows_beyond(support: Matrix | None, X: Matrix) -> tuple[Places, Matrix]:
    """Return the rows that are beyond the range (2, F) in some feature, and the nearest points within it.

    Without a range no row is beyond it.
    """
    if support is None:
        return np.empty(0, dtype=np.intp), X[:0]
    outside = np.zeros(len(X), dtype=np.bool_)
    for x, low, high in zip(X.T, *support, strict=True):  # far quicker than along rows
        outside |= (low > x) | (high < x)
    rows = np.flatnonzero(outside)
    return rows, np.clip(X[rows], *support)


def far_beyond(support: Matrix | None, X: Matrix, reach: float) -> Places:
    """Return the rows that are beyond the range (2, F) in some feature by more than `reach` times its width."""
    if support is None:
        return np.empty(0, dtype=np.intp)
    width = reach * (support[1] - support[0])
    return rows_beyond(support + np.stack([-width, width]), X)[0]


def continued(base: Prediction, rows: Places, constant: Prediction) -> Prediction:
    """Return a prediction in which that of `rows` is mixed with the `constant` continuation of these rows."""
    own = base.rows(rows)
    return replaced(base, rows, mix([(1 - CONSTANT, own), (CONSTANT, constant)]))


@dataclass(frozen=True, eq=False)
class Temperature:
    """The powers b that probabilities are taken to (inverse temperatures), each with a share of the average.

    `power` is (S,).  `share` (S,) sums to one.  Rows that are beyond the labels' range in no feature by more than
    `reach` times its width are scaled too.
    """

    power: Vector
    share: Vector
    reach: float = 0.0

    @property
    def mean_power(self) -> float:
        """Mean of the powers by their shares: about the factor by which logits grow."""
        return float(self.power @ self.share)

    def scaled(self, p: Matrix, shift: Vector | None = None) -> Matrix:
        """Return the probabilities p (N, K) taken to the powers, and averaged over these.

        `shift` (K,) is ln of new over old class priors, where `p` includes it already: it is not taken to the power.
        """
        log_p = np.log(np.maximum(p, TINY))
        total = np.zeros_like(log_p)
        for power, share in zip(self.power, self.share, strict=True):
            a = power * log_p
            if shift is not None:
                a = a + (1 - power) * shift
            e = np.exp(a - a.max(axis=1, keepdims=True))
            total += share / e.sum(axis=1, keepdims=True) * e
        return total

    def prediction(
        self, base: Prediction, shift: Vector | None = None, *, kept: NDArray[np.intp] | None = None
    ) -> Prediction:
        """Return a prediction with its probabilities scaled, as by `scaled`, except in the rows `kept`.

        `kept` holds the indices of rows that stay as they are.  The ratio of the expected entropy to the entropy stays
        the same, and so does that of the mutual information.  The activation's mean, less the shift, and standard
        deviation are multiplied by the mean power.
        """
        p, power = self.scaled(base.probability, shift), self.mean_power
        ratio = entropy(p) / np.maximum(entropy(base.probability), TINY)
        mean = base.mean * power + (1 - power) * moved_by(shift, base.mean.ndim)
        scaled = Prediction(p, base.expected_entropy * ratio, mean, base.covariance * power**2)
        return scaled if kept is None or not len(kept) else replaced(scaled, kept, base.rows(kept))

    def to_dict(self) -> dict[str, Any]:
        """Return the powers, their shares and the reach, for `from_dict`."""
        return {"power": self.power, "share": self.share, "reach": self.reach}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Temperature:
        """Return the temperature that `to_dict` stored."""
        shape = (np.size(stored["power"]),)
        reach = float(stored.get("reach", 0.0))
        return cls(as_stored(stored, "power", shape), as_stored(stored, "share", shape), reach)


def estimate_temperature(p: Matrix, shares: Matrix) -> Temperature | None:
    """Return all powers with their posterior probabilities; None where these do not favour a power other than 1.

    Parameters
    ----------
    p
        Probabilities (N, K) of left-out rows, from fits that did not see them.
    shares
        Known classes of the rows (N, K): the share of each class (1 and 0 for a single label), times the row's weight.
    """
    log_p = np.log(np.maximum(p, TINY))
    changed = POWERS != 1.0
    prior = np.exp(-0.5 * (np.log(POWERS) / SPREAD) ** 2) * changed
    prior = (1 - UNCHANGED) * prior / prior.sum() + UNCHANGED * ~changed
    log_likelihood = np.array([_log_likelihood(power * log_p, shares) for power in POWERS])
    log_posterior = np.log(prior) + log_likelihood
    posterior = np.exp(log_posterior - log_posterior.max())
    posterior /= posterior.sum()
    return Temperature(POWERS.copy(), posterior) if posterior[changed].sum() > FAVOURED else None


def _log_likelihood(a: Matrix, shares: Matrix) -> float:
    top = a.max(axis=1, keepdims=True)
    log_total = top + np.log(np.exp(a - top).sum(axis=1, keepdims=True))
    return float((shares * (a - log_total)).sum())


# Intervals of class probabilities: what the weights leave open of each.  Shapes: N rows, K classes.
#
# The activation is Gaussian, so that an interval of the probability of two classes is that of the logit, exactly.  Of
# more classes each probability depends on all activations: its quantiles are those over Sobol nodes.


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
    low, high = np.empty_like(mean), np.empty_like(mean)
    for rows in slices(len(mean), _BLOCK):
        low[rows], high[rows] = _quantiles(mean[rows], covariance[rows], tail)
    return low, high


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
    # Each end lies on the line between the two nodes that are nearest.
    place = np.array([tail, 1 - tail]) * (_NODES - 1)
    below = place.astype(int)
    low, high = (p[..., np.minimum(i, _NODES - 1)].astype(np.float64) for i in (below, below + 1))
    return np.moveaxis(low + (place - below) * (high - low), 2, 0)


# What a classifier says of a batch of rows.  Shapes: N rows, K classes, S draws of the weights.


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
        counts = [(np.count_nonzero(self.flags & int(flag)), flag.name) for flag in Flag]
        flagged = ", ".join(f"{count} {name}" for count, name in counts if count) or "none flagged"
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
