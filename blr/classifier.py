"""A classifier of catalogue rows: basis and posterior, the training set's moments and domain, in one scored row.

For each row the predictive integral over the weights (PRML 4.145), over the features that are missing, over the excess
of its measurement errors, and over the models where several are averaged: one mixture, of which every column of an
annotated catalogue is a moment.  Shapes: N rows, F features, K classes, M basis functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from blr.arrays import Mask, Matrix, Places, Vector, as_stored, html_table, plain_fields
from blr.decisions import Flag, flag_confidence, flag_flipped
from blr.member import Designs, Integral, Member, NodeMixture, contrast_std, slope_moments
from blr.missing.moments import ActiveSubspace, Domain, FeatureMoments, excess_spread
from blr.missing.patterns import largest_share, node_blocks, present_errors
from blr.posterior.kinds import SampledPosterior
from blr.predictive.mixture import (
    CONSTANT,
    Prediction,
    Scores,
    Temperature,
    continued,
    far_beyond,
    feature_range,
    joined,
    mix,
    mix_blocks,
    mixed,
    rows_beyond,
    spread,
    stacked,
    with_rows,
)
from blr.predictive.softmax import no_moments

__all__ = ["Classifier", "Member"]
SCORED_AT_ONCE = 16_384
"""Rows scored at a time.  With fewer, threads wait often for Python's lock.  Loops that need the cache go by blocks."""
_NODES_AT_ONCE = 8192  # Rows times nodes, where rows miss features.
_LIMIT_ROWS = 16_384  # of the training set, whose 99.9th percentile is the limit of the domain
_LEAST_ROWS = 4_096  # of them, where classes are many
_LIMIT_WORK = 131_072  # rows times classes
_FEW_NODES, _FEWEST_NODES = 512, 128  # of a member; at each of the nodes over what is missing
_ERROR_EFFECT = 0.1  # in probability, from which errors are flagged
_WRONG = 0.05  # typical error of a probability, above which a row of an untrusted model is flagged
_COUNT_DRAWS = 64  # of the weights, for the error of class counts that all objects share
_COUNTED_ROWS = 256  # of a block, evenly spaced, that are counted under each draw and stand for all
_DOMAIN_QUANTILE = 0.999
_LEAST_LEFT = 0.05  # least 1 - h of a row with the leverage h


@dataclass(frozen=True, eq=False, repr=False)
class Classifier:
    """A trained classifier: everything that turns features into probabilities and flags.

    Parameters
    ----------
    features, classes
        Names of the F columns of X, and of the K classes.
    members
        The models; their weights sum to one.
    moments, domain
        Of the training set's features: what is missing is integrated out under the one, what is strange is seen by
        the other.
    logit_std_limit
        The training set's 99.9th percentile; a row beyond it is out of the domain.
    log_prior_shift
        (K,) ln of target over training class priors, added to the activations inside the integral; None for none.
    low_confidence, close_call
        Thresholds of the flags.
    untrusted
        Whether the model's probabilities are not computed rightly; rows that may be wrong are flagged.
    support
        (2, F) the least and the largest value of each feature in the training set.  Beyond them labels say nothing, and
        the prediction is mixed of the models' extrapolation and that at the nearest value within.  None for the first.
    temperature
        Powers that the probabilities of rows within `support`, or its reach, are taken to; None for as they are.
    integrated
        (F,) shares, 0 to 1, of the integral over a missing feature; the rest is at its conditional mean.  A row has the
        largest share of the features that it lacks.  None for the integral alone.

    Examples
    --------
    >>> model = flows.Store(Path("models")).load("morphology").classifier  # doctest: +SKIP
    >>> model.score(X, np.isnan(X)).probability  # doctest: +SKIP
    """

    features: tuple[str, ...]
    classes: tuple[str, ...]
    members: tuple[Member, ...]
    moments: FeatureMoments
    domain: Domain
    logit_std_limit: float = float("inf")
    log_prior_shift: Vector | None = None
    low_confidence: float = 0.7
    close_call: float = 0.1
    untrusted: bool = False
    support: Matrix | None = None
    temperature: Temperature | None = None
    integrated: Vector | None = None

    @classmethod
    def build(
        cls,
        members: Sequence[Member],
        X: Matrix,
        missing: Mask,
        *,
        features: Sequence[str],
        classes: Sequence[str],
        weight: Vector | None = None,
        low_confidence: float = 0.7,
        close_call: float = 0.1,
        untrusted: bool = False,
        averaged_beyond: bool = False,
        temperature: Temperature | None = None,
        integrated: float = 1.0,
    ) -> Classifier:
        """Return the classifier of fitted members, its moments, domain and limits taken from the training rows.

        X (N, F) and missing (N, F) are of the features that some member uses, in the order of `features`.
        `averaged_beyond`: whether there is a `support`.  `integrated`: the share of features that some row lacks.
        """
        moments = FeatureMoments.estimate(X, missing, weight=weight)
        domain = Domain.estimate(X, missing, moments)
        moments = replace(moments, spread=excess_spread(moments, X, missing, weight))
        model = cls(
            tuple(features),
            tuple(classes),
            tuple(members),
            moments,
            domain,
            low_confidence=low_confidence,
            close_call=close_call,
            untrusted=untrusted,
            support=feature_range(X, missing) if averaged_beyond else None,
            temperature=temperature,
            integrated=None if integrated == 1 else np.where(missing.any(axis=0), integrated, 1.0),
        )
        most = int(np.clip(_LIMIT_WORK // len(classes), _LEAST_ROWS, _LIMIT_ROWS))
        some = slice(None, None, -(-len(X) // most))
        filled = moments.impute(X[some], missing[some])
        w = np.ones(len(filled)) if weight is None else weight[some]
        return replace(
            model, logit_std_limit=float(np.quantile(model._logit_std(filled, w), _DOMAIN_QUANTILE))
        )

    def with_low_confidence(self, threshold: float) -> Classifier:
        """Return the classifier with another threshold, and what it has found of its members by now."""
        other = replace(self, low_confidence=threshold)
        vars(other).update({k: v for k, v in vars(self).items() if k not in self.__dataclass_fields__})
        return other

    def score(
        self,
        X: Matrix,
        missing: Mask,
        errors: Matrix | None = None,
        *,
        not_detected: Mask | None = None,
        credible: float | None = None,
    ) -> Scores:
        """Return probabilities, their uncertainty and flags of N rows.

        Parameters
        ----------
        X, missing
            Features (N, F); what X holds where `missing` is set does not matter.
        errors
            One-sigma errors (N, F) in excess of the training set's; NaN or zero for none.
        not_detected
            Rows (N,) with a band that was looked at and not seen.
        credible
            Share of the posterior in intervals of the probabilities, which take longer; None for none.
        """
        if X.shape[1:] != (len(self.features),) or missing.shape != X.shape:
            wanted = f"{len(self.features)} features {list(self.features)}"
            raise ValueError(f"expected X and missing of {wanted}, got shapes {X.shape} and {missing.shape}")
        errors = None if errors is None else present_errors(errors, missing)
        undetected = np.zeros(len(X), dtype=bool) if not_detected is None else not_detected
        parts = []
        for start in range(0, max(len(X), 1), SCORED_AT_ONCE):
            rows = slice(start, start + SCORED_AT_ONCE)
            e = None if errors is None else errors[rows]
            parts.append(self._score(X[rows], missing[rows], e, undetected[rows], credible))
        return joined(parts)

    def _score(
        self,
        X: Matrix,
        missing: Mask,
        errors: Matrix | None,
        undetected: Mask,
        credible: float | None,
    ) -> Scores:
        lacking = np.zeros(len(X), dtype=bool)
        if missing.any():
            lacking |= missing.any(axis=1)
        gone = lacking.copy()
        gone[lacking] = missing[lacking].all(axis=1)
        filled = self.moments.impute(X, missing, limits=self.support)
        prediction, plugin, point_std = self._without_errors(filled, missing, lacking & ~gone)
        moved = np.zeros(len(X), dtype=bool)
        if errors is not None:
            exact = prediction.probability
            prediction = self._integrated(prediction, X, missing, (errors > 0).any(axis=1) & ~gone, errors)
            moved = np.abs(prediction.probability - exact).max(axis=1) > _ERROR_EFFECT
        beyond, _ = rows_beyond(self.support, filled)
        if self.temperature is not None:
            kept = beyond[far_beyond(self.support, filled[beyond], self.temperature.reach)]
            prediction = self.temperature.prediction(prediction, self.log_prior_shift, kept=kept)
        p = prediction.probability
        # How far probabilities may be computed wrongly, which of a trusted model they are not.
        doubted = self._designs(filled) if self.untrusted else ()
        error = sum((m.weight * m.posterior.typical_error(Phi) for m, Phi in doubted), np.zeros(len(X)))
        flags = flag_confidence(p, low_confidence=self.low_confidence, close_call=self.close_call)
        flags |= flag_flipped(p, plugin)
        for flag, where in (
            (Flag.OUT_OF_DOMAIN, self.domain.outside(X, missing) | (point_std > self.logit_std_limit)),
            (Flag.MISSING_INPUT, lacking),
            (Flag.UNCERTAIN_INPUT, moved),
            (Flag.NOT_DETECTED, undetected),
            (Flag.BEYOND_LABELS, beyond),
            (Flag.UNTRUSTED_MODEL, error > _WRONG),
        ):
            flags[where] |= int(flag)
        known = p[~gone] if gone.any() else p
        expected = np.array([x.sum() for x in known.T])
        draws = np.concatenate([expected + x - x.mean(axis=0) for x in self._counts(filled, ~gone)])
        scores = Scores.of(prediction, plugin, flags, gone, draws)
        link = self.members[0].posterior.link
        return scores if credible is None else scores.with_intervals(prediction, credible, link=link)

    def _without_errors(self, X: Matrix, missing: Mask, lacking: Mask) -> Integral:
        """Return the integral over what the `lacking` rows (N,) miss, of X (N, F) with that at its mean."""
        chosen = np.flatnonzero(lacking)
        if self._joint is None or not len(chosen):
            point, plugin = self._point(X)
            return self._integrated(point, X, missing, lacking), plugin, point.logit_std
        parts = list[tuple[Places, Integral]]()
        if len(whole := np.flatnonzero(~lacking)):
            point, plugin = self._point(X[whole])
            parts.append((whole, (point, plugin, point.logit_std)))
        found = self._subspace.nodes(X, missing, chosen, most=_NODES_AT_ONCE)
        parts += self._joint.by_dimension(found, _NODES_AT_ONCE, largest_share(self.integrated, missing))
        order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
        prediction = stacked([prediction for _, (prediction, _, _) in parts]).rows(order)
        plugin = np.concatenate([plugin for _, (_, plugin, _) in parts])[order]
        std = np.concatenate([std for _, (_, _, std) in parts])[order]
        return spread(prediction, chosen, self._subspace.left_out(X, missing, chosen)), plugin, std

    def _point(self, X: Matrix) -> tuple[Prediction, Matrix]:
        """Return the prediction at given features, and the plug-in's."""
        # Two classes, and one member, are exact by themselves.
        if self._joint is not None and len(self.members) > 1 and len(self.classes) > 2:
            prediction, plugin, _ = self._joint(X[None], 0)
            return prediction, plugin
        predictions, plugin = list[tuple[float, Prediction]](), np.zeros((len(X), len(self.classes)))
        for member, Phi in self._designs(X):
            predictions.append((member.weight, self._prediction(member, Phi)))
            plugin += member.weight * member.posterior.plugin(Phi)
        prediction, (beyond, inside) = mixed(predictions), rows_beyond(self.support, X)
        if len(beyond):
            prediction = continued(prediction, beyond, self._as_they_extrapolate(inside))
            constant = sum(m.weight * m.posterior.plugin(Phi) for m, Phi in self._designs(inside))
            plugin[beyond] = (1 - CONSTANT) * plugin[beyond] + CONSTANT * constant
        return prediction, plugin

    def _counts(self, X: Matrix, counted: Mask) -> Iterator[Matrix]:
        """Yield counts of the rows `counted` (N,) under each member's draws, from some of them that stand for all."""
        rows = np.flatnonzero(counted)
        if not len(rows):
            yield np.zeros((_COUNT_DRAWS, len(self.classes)))
            return
        some = rows[:: max(1, len(rows) // _COUNTED_ROWS)]
        for member, Phi in self._designs(X[some]):
            deviations = self._deviations[self.members.index(member)]
            if len(deviations):
                under = member.posterior.counts_under(Phi, deviations, shift=self.log_prior_shift)
                yield under * (len(rows) / len(some))

    def _predict(self, X: Matrix) -> Prediction:
        beyond, inside = rows_beyond(self.support, X)
        q = self._as_they_extrapolate(X, _FEWEST_NODES)
        return continued(q, beyond, self._as_they_extrapolate(inside, _FEWEST_NODES)) if len(beyond) else q

    def _as_they_extrapolate(self, X: Matrix, most_nodes: int | None = None) -> Prediction:
        return mixed([(m.weight, self._prediction(m, Phi, most_nodes)) for m, Phi in self._designs(X)])

    def _prediction(self, member: Member, Phi: Matrix, most_nodes: int | None = None) -> Prediction:
        most = most_nodes or (_FEW_NODES if len(self.members) > 1 else None)
        # What becomes of it are columns of float32.
        return member.posterior.prediction(Phi, shift=self.log_prior_shift, single=True, most_nodes=most)

    def _logit_std(self, X: Matrix, weight: Vector) -> Vector:
        """Return the largest sd (N,) of a contrast of the logits of training rows X (N, F), each without itself.

        A row, counted `weight` (N,) times, narrows its own activations, by much where features are many and labels few.
        Without the row their covariance V would be V / (1 - h): h = tr(R V) is its leverage, R = diag p - p pᵀ.
        """
        N, K = len(X), len(self.classes)
        mean, second = no_moments(N, K)[2:]
        for member, Phi in self._designs(X):
            outputs, V = member.moments(Phi, single=True)
            a, p = outputs @ member.loads.T, member.posterior.plugin(Phi)
            spread = member.loads @ V @ member.loads.T
            h = np.einsum("nk,nkk->n", p, spread) - np.einsum("nk,nkl,nl->n", p, spread, p)
            spread /= np.maximum(1 - weight * h, _LEAST_LEFT)[:, None, None]
            mean += member.weight * a
            second += member.weight * (spread + a[:, :, None] * a[:, None, :])
        return contrast_std(mean, second)

    def _integrated(
        self, base: Prediction, X: Matrix, missing: Mask, where: Mask, errors: Matrix | None = None
    ) -> Prediction:
        """Integrate what is missing, and errors (N, F), out of the rows `where` (N,); others stay as they are."""
        chosen = np.flatnonzero(where)
        whole = self._over(self.moments, base, X, missing, chosen, errors)
        share = largest_share(self.integrated, missing[chosen])
        partly = missing[chosen].any(axis=1) & (share < 1)
        rows, s = chosen[partly], share[partly]
        held = base if errors is None else self._over(self.moments.held, base, X, missing, rows, errors)
        return with_rows(whole, [(rows, mix([(1 - s, held.rows(rows)), (s, whole.rows(rows))]))])

    def _over(
        self,
        moments: FeatureMoments,
        base: Prediction,
        X: Matrix,
        missing: Mask,
        chosen: Places,
        errors: Matrix | None,
    ) -> Prediction:
        if not len(chosen):
            return base  # without the slopes, which take seconds where features are hundreds
        if errors is None:
            found = self._subspace.nodes(X, missing, chosen, most=_NODES_AT_ONCE)
        else:
            found = moments.nodes_by_pattern(
                X, missing, chosen, errors, most=_NODES_AT_ONCE, limits=self.support
            )
        if self._joint is None:
            whole = with_rows(base, list(mix_blocks(node_blocks(found, _NODES_AT_ONCE), self._predict)))
        else:
            parts = self._joint.by_dimension(found, _NODES_AT_ONCE, np.ones(len(X)))
            whole = with_rows(base, [(rows, prediction) for rows, (prediction, _, _) in parts])
        left_out = None if errors is not None else self._subspace.left_out(X, missing, chosen)
        return whole if left_out is None else spread(whole, chosen, left_out)

    @cached_property
    def _designs(self) -> Designs:
        return Designs(self.members)

    @cached_property
    def _subspace(self) -> ActiveSubspace:
        return ActiveSubspace.of(self.moments, self.support, partial(slope_moments, self.members))

    @cached_property
    def _joint(self) -> NodeMixture | None:
        """None where a member has draws, or its activations are no logits."""
        posteriors = [m.posterior for m in self.members]
        logits = all(q.link in ("logistic", "softmax") for q in posteriors)
        drawn = any(isinstance(q, SampledPosterior) for q in posteriors)
        return NodeMixture(self.members, self.log_prior_shift, self.support) if logits and not drawn else None

    @cached_property
    def _deviations(self) -> tuple[Matrix, ...]:
        """Draws of each member's weights about their mean, in number proportional to its share."""
        rng = np.random.default_rng(0)  # the same for every batch and run: the draws are shared by all rows
        share = np.array([m.weight for m in self.members])
        up_to = np.rint(np.cumsum(share / share.sum()) * _COUNT_DRAWS)
        counts = np.diff(up_to, prepend=0).astype(int).tolist()
        return tuple(m.posterior.deviations(k, rng) for m, k in zip(self.members, counts, strict=True))

    def __repr__(self) -> str:
        what = f"classes {', '.join(self.classes)}; features {', '.join(self.features)}"
        return f"<Classifier: {what}; {len(self.members)} model(s){', untrusted' if self.untrusted else ''}>"

    def _repr_html_(self) -> str:
        rows = [member.described(self.features) for member in self.members]
        return html_table(["share", "basis", "features", "posterior"], rows, repr(self).strip("<>"))

    def to_dict(self) -> dict[str, Any]:
        """Return scalars, strings, lists and arrays that `from_dict` makes the classifier of."""
        return plain_fields(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Classifier:
        """Return the classifier of `to_dict`."""
        F, K = len(d["features"]), len(d["classes"])
        temperature = d["temperature"]
        return cls(
            features=tuple(d["features"]),
            classes=tuple(d["classes"]),
            members=tuple(Member.from_dict(m) for m in d["members"]),
            moments=FeatureMoments.from_dict(d["moments"]),
            domain=Domain.from_dict(d["domain"]),
            temperature=None if temperature is None else Temperature.from_dict(temperature),
            logit_std_limit=d["logit_std_limit"],
            log_prior_shift=None if d["log_prior_shift"] is None else as_stored(d, "log_prior_shift", (K,)),
            low_confidence=d["low_confidence"],
            close_call=d["close_call"],
            untrusted=d["untrusted"],
            support=None if d["support"] is None else as_stored(d, "support", (2, F)),
            integrated=None if d["integrated"] is None else as_stored(d, "integrated", (F,)),
        )
