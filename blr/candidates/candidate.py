"""Candidates: a basis on some of the features with a likelihood; their table, the default ones, and the choice.

The default candidates follow from the numbers of rows, features and classes alone; docs/candidates.md states the rules.

For the model, candidates are ranked by their rows of the table, or mixed so that rows left out of the fits are
predicted best.  A row that lacks features has two predictions: with these at their conditional means, as training rows
are fitted, and with these integrated out.  The model serves a mixture of both, in which the integral has the share that
left-out rows ask for.  Shapes: N training rows, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from blr.arrays import Matrix
from blr.basis.kinds import BASES
from blr.likelihood.targets import recorded_probability
from blr.selection import compare as selection
from blr.selection.compare import stacking_weights
from blr.trust.verdict import second_order_holds

MOST_WEIGHTS = 1000
"""Weights of all classes together that a candidate may have: a fit takes time by their cube."""
MOST_TREE_WEIGHTS = 2000
"""Weights of a forest, which has as many functions as classes, and one: up to 44 classes."""
KERNEL_WIDTH = 0.7
"""Width of the Laplacian kernel is this times F: the median city-block distance of rows is 1.1 F."""
STEPS, FEWEST_STEPS, STEPS_OF_ALL = 12, 6, 120
"""Steps along each feature: a period or an amplitude may cut a class off sharply.  Many features share those of all."""
HELD_OUT_FROM, HELD_OUT = 100_000, 0.2
"""Labelled rows from which a share is held out; of fewer, left-out rows judge: all train, in one fit."""
FEWEST_CENTRES = 20
"""A Gaussian process is not tried with fewer centres, unless rows are as few."""
KERNEL_WORK = 2.5e9
"""Rows times squared weights of a Gaussian process, at most: a Hessian takes some tenths of a second."""
BOOSTED_TREES = 320
MOST_IN_MEMORY = 200_000
"""Rows above which forests are not tried: fits then read the rows from the disk."""


@dataclass(frozen=True)
class Candidate:
    """One of the models that are compared.

    `kind` and `options` are those of `blr.fit_basis`.  Several widths or powers, in a tuple, are tried side by side.
    `features` are the names of those that it uses, None for all.  `soften` takes features through an arcsinh first.

    Examples
    --------
    >>> few = ["linear", blr.Candidate("rbf", {"centres": 20}, soften=True)]
    >>> few[1].kind
    'rbf'
    """

    kind: str = "linear"
    options: Mapping[str, Any] = field(default_factory=dict)
    features: tuple[str, ...] | None = None
    soften: bool = False
    likelihood: str = "logistic"  # link function for two classes; more classes use softmax
    prior_probability: float = 1.0

    @property
    def choices(self) -> tuple[dict[str, Any], ...]:
        """The options of the basis for each width or power that is tried."""
        for name in ("width", "power"):
            if isinstance(self.options.get(name), tuple):
                return tuple({**self.options, name: one} for one in self.options[name])
        return (dict(self.options),)

    def columns(self, features: Sequence[str]) -> tuple[int, ...]:
        """Return the positions of its features among those of a training."""
        return (
            tuple(range(len(features)))
            if self.features is None
            else tuple(map(features.index, self.features))
        )


def default_candidates(n_rows: int, n_features: int, n_classes: int) -> tuple[Candidate, ...]:
    """Return the default candidates for that many labelled rows, features and classes.

    Linear, quadratic, a Gaussian process, steps along each feature, a forest, and boosted trees.
    """
    outputs = max(n_classes - 1, 1)
    candidates = [Candidate()]
    quadratic = math.comb(n_features + 2, 2)
    if quadratic <= max(60, n_rows // 3) and quadratic * outputs <= MOST_WEIGHTS:
        candidates.append(Candidate("polynomial", soften=True))
    else:
        candidates.append(Candidate(soften=True))
    centres = min(_centres(n_rows, n_classes), MOST_WEIGHTS // outputs - 1)
    if centres >= min(FEWEST_CENTRES, n_rows):
        width = round(KERNEL_WIDTH * n_features, 2)
        candidates.append(Candidate("nystroem", {"centres": centres, "width": width}, soften=True))
    if (STEPS * n_features + 1) * outputs <= MOST_WEIGHTS:
        steps = min(STEPS, max(FEWEST_STEPS, STEPS_OF_ALL // n_features))
        candidates.append(Candidate("sigmoid", {"centres": steps}))
    if n_rows <= MOST_IN_MEMORY and (n_classes + 1) * outputs <= MOST_TREE_WEIGHTS:
        candidates.append(Candidate("forest"))
        candidates.append(Candidate("forest", {"boosted": True, "trees": BOOSTED_TREES}))
    return tuple(candidates)


def _centres(n_rows: int, n_classes: int) -> int:
    """Return how many centres of a Gaussian process the rows can carry; of very many rows fewer, to save time."""
    most = 320 if n_classes < 5 else 160
    wanted = min(n_rows, max(100, min(50 + n_rows // 20, most)))
    return min(wanted, max(math.isqrt(int(KERNEL_WORK) // n_rows) // (n_classes - 1), 60))


@dataclass(frozen=True, kw_only=True)
class CandidatePart:
    """One fit of a candidate: what is needed to repeat it, and its share in the candidate."""

    scale: float | None  # standard deviation of the prior; None for that of the highest evidence
    weight: float  # share of the candidate
    width: int  # index into the widths of the basis that are tried


@dataclass(frozen=True, kw_only=True)
class JudgedCandidate:
    """A candidate fitted and judged by itself.

    The evidence and the BIC are of the training rows, in nats, higher is better.  The evidence is of the whole
    mixture of `parts`; BIC, effective parameters and verdict are the best part's.  A number that could not be
    computed is None.
    """

    features: tuple[str, ...]
    basis: str  # in words: "polynomial, degree 2"
    n_functions: int  # M
    log_evidence: float
    second_order: float | None  # nats, to be added to the evidence
    log_likelihood: float | None  # at the best part's mode, nats
    log_occam_factor: float | None  # log evidence minus log likelihood, nats
    bic: float
    loo: float | None  # log density of the training rows, each left out, nats
    loo_standard_error: float | None
    effective_parameters: float | None
    log_loss: float  # mean over the training rows, each left out, nats
    parts: tuple[CandidatePart, ...]  # the best first
    verdict: (
        str | None
    )  # on the best part's Laplace fit: "green", "amber" or "red"; None where nothing asked for it
    reasons: tuple[str, ...]
    numbers: Mapping[str, float | None]  # the diagnostics behind the verdict
    converged: bool
    n_iter: int
    prior_probability: float

    @property
    def comparable(self) -> bool:
        """Whether evidence and BIC compare with other candidates': not of a basis that is learnt from the labels."""
        kind = BASES.get(self.basis.partition(",")[0])
        return kind is None or not kind.learnt_from_labels


@dataclass(frozen=True, kw_only=True)
class CandidateRow(JudgedCandidate):
    """A row of the evidence table: a candidate beside the others."""

    weight: float  # posterior probability of the candidate
    share: float  # of the model


ENOUGH = 0.05
"""Change of the integral's share, below which the candidates' shares stay the same."""
MOST_ROUNDS = 4
"""Times that the candidates' shares and the integral's are sought in turn."""
MOST_STACKED = 4
"""Candidates in a stack, unless left-out rows ask for more by more than their error: each costs time in every row."""
LEAST_WEIGHT = 1e-3
"""Smallest share of a candidate in a mixture: a smaller one costs as much time, and changes no prediction."""
_WHOLE = (0.1, 0.9)
"""Prior probabilities of the prediction at the conditional means, and of the integral."""
_TINY = np.finfo(float).tiny
_ROUNDING = 1e-12  # nats a row: candidates that say the same differ by less


@dataclass(frozen=True)
class Selection:
    """How a model is made of the candidates; docs/specification.md has the values under [select] and [flags].

    `by`: "evidence", "bic" or "loo" take one candidate; "average" and "stack" mix them.

    Examples
    --------
    >>> blr.Selection(by="evidence").posterior
    'refined'
    """

    by: str = "stack"
    posterior: str = "refined"
    scale: str = "integrated"
    extrapolation: str = "averaged"
    temperature: str = "estimated"
    low_confidence: float = 0.7
    close_call: float = 0.1


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Left-out probabilities of the true classes (N, K), and the weighted `share` (N, K) of the classes in each row.

    `filled` are those at the conditional means of missing features, `integrated` those with the features' excess
    spread integrated out; None where no row lacks any, or the rows are streamed.
    """

    filled: Matrix
    share: Matrix
    integrated: Matrix | None = None

    def at(self, integrated: float) -> Matrix:
        """Return the probabilities (N, K) of the mixture in which the integral has the share `integrated`."""
        if self.integrated is None:
            return self.filled
        return (1 - integrated) * self.filled + integrated * self.integrated

    def recorded(self, confusion: Matrix | None) -> LeftOut:
        """Return the probabilities of the recorded classes, where labels may be wrong."""
        integrated = None if self.integrated is None else recorded_probability(self.integrated, confusion)
        return replace(self, filled=recorded_probability(self.filled, confusion), integrated=integrated)

    def loss(self) -> float:
        """Return the mean log loss, in nats, of the integral."""
        return float(-(self.share * np.log(np.maximum(self.at(1.0), _TINY))).sum() / self.share.sum())

    def log_density(self, n_effective: float) -> tuple[float, float]:
        """Return the log density of rows of so much weight, each left out, in nats, and its standard error.

        The rows here may be a sample of them.
        """
        of_row = (self.share * np.log(np.maximum(self.at(1.0), _TINY))).sum(axis=1)
        scale = n_effective / float(self.share.sum())
        return scale * float(of_row.sum()), scale * float(of_row.std(ddof=1) * np.sqrt(len(of_row)))


def mixed(left_out: Sequence[LeftOut], shares: Sequence[float]) -> LeftOut:
    """Return the left-out probabilities of the mixture of candidates with these shares, which sum to one."""
    filled = sum(s * one.filled for s, one in zip(shares, left_out, strict=True))
    integrated = None
    if any(one.integrated is not None for one in left_out):
        integrated = np.asarray(sum(s * one.at(1.0) for s, one in zip(shares, left_out, strict=True)))
    return LeftOut(np.asarray(filled), left_out[0].share, integrated)


def integrated_share(mixture: LeftOut) -> float:
    """Return the share, 0 to 1, that left-out rows ask for the integral over missing features.

    It is a weight of stacking, with a prior: nearly 1 where few rows lack features.
    """
    if mixture.integrated is None:
        return 1.0
    lacking = (mixture.integrated != mixture.filled).any(axis=1)
    if not lacking.any():
        return 1.0
    both = [mixture.filled[lacking], mixture.integrated[lacking]]
    return float(stacking_weights(both, mixture.share[lacking], prior_probability=_WHOLE)[1])


@dataclass(frozen=True)
class Ranking:
    """The chosen row, each row's posterior probability, and whether the evidence includes the second-order term.

    `members` are the rows that make the model, each with its share: the chosen one, or those of the mixture.
    `integrated` is the share that the integral over missing features has in a prediction.
    """

    selected: int
    members: tuple[tuple[int, float], ...]
    weights: tuple[float, ...]
    second_order_applied: bool
    integrated: float = 1.0

    @property
    def shares(self) -> list[float]:
        """The share of each row in the model, 0 for those that are not in it."""
        shares = dict(self.members)
        return [shares.get(i, 0.0) for i in range(len(self.weights))]


def choose(candidates: Sequence[JudgedCandidate], left_out: Sequence[LeftOut], *, by: str) -> Ranking:
    """Return the ranking of candidates by "evidence", "bic" or "loo", where higher is better, or as a mixture.

    The second-order term is included for all candidates if it holds for all, otherwise for none.  An "average"
    mixes candidates by their posterior probabilities; a "stack" predicts left-out rows best.  A basis that is learnt
    from the labels has no evidence beside others that are not, and so no probability.
    """
    known = [candidate.comparable for candidate in candidates]
    _, weights, applied = selection.rank(
        [
            candidate.log_evidence if one or not any(known) else -np.inf
            for candidate, one in zip(candidates, known, strict=True)
        ],
        [candidate.second_order or 0.0 for candidate in candidates],
        [second_order_holds(candidate.numbers) for candidate in candidates],
        [candidate.prior_probability for candidate in candidates],
    )
    best = selection.highest([_score(one, by) for one in candidates] if by in ("bic", "loo") else weights)
    members = [(best, 1.0)]
    if by in ("average", "stack"):
        shares = _stacked(candidates, left_out) if by == "stack" else weights
        kept = np.flatnonzero(shares >= LEAST_WEIGHT)
        members = list(zip(kept.tolist(), (shares[kept] / shares[kept].sum()).tolist(), strict=True))
        best = int(shares.argmax()) if by == "stack" else best
    ranking = Ranking(best, tuple(members), tuple(weights.tolist()), applied)
    return replace(ranking, integrated=integrated_share(mixed(left_out, ranking.shares)))


def _score(candidate: JudgedCandidate, by: str) -> float:
    """Return the number that ranks a candidate; NaN where it is not known."""
    score = candidate.bic if by == "bic" and candidate.comparable else candidate.loo if by == "loo" else None
    return np.nan if score is None else score


def _stacked(candidates: Sequence[JudgedCandidate], left_out: Sequence[LeftOut]) -> Matrix:
    """Return each candidate's share in the mixture that predicts left-out rows best.

    The integral over missing features has the share that the mixture asks for.  Where more than `MOST_STACKED` have a
    share, the smallest is left out again and again, as long as left-out rows lose less by it than their error.
    """
    prior = np.array([candidate.prior_probability for candidate in candidates])
    integrated, shares = 1.0, prior / prior.sum()
    for _ in range(MOST_ROUNDS):
        unseen = np.stack([one.at(integrated) for one in left_out])
        shares = stacking_weights(unseen, left_out[0].share, prior_probability=prior)
        before, integrated = integrated, integrated_share(mixed(left_out, shares.tolist()))
        if abs(integrated - before) < ENOUGH:
            break
    of_row = left_out[0].share

    def log_density(mixture: Matrix) -> Matrix:
        return np.asarray((of_row * np.log(np.maximum(np.tensordot(mixture, unseen, 1), _TINY))).sum(axis=1))

    every = log_density(shares)
    while (used := np.flatnonzero(shares >= LEAST_WEIGHT)).size > MOST_STACKED:
        kept = used[used != used[shares[used].argmin()]]
        fewer = np.zeros(len(prior))
        fewer[kept] = stacking_weights(unseen[kept], of_row, prior_probability=prior[kept])
        lost = every - log_density(fewer)
        if lost.sum() > lost.std() * np.sqrt(len(lost)) + _ROUNDING * len(lost):
            break
        shares = fewer
    return shares
