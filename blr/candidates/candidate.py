"""Candidates: a basis on some of the features with a likelihood; the default ones, and their table.

The default candidates follow from the numbers of rows, features and classes alone; docs/candidates.md states the rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blr.basis.kinds import BASES

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
        return tuple(range(len(features)) if self.features is None else map(features.index, self.features))


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
    # As many centres as the rows can carry; of very many rows fewer, to save time.
    wanted = max(100, min(50 + n_rows // 20, 320 if n_classes < 5 else 160))
    quick = max(math.isqrt(int(KERNEL_WORK) // n_rows) // (n_classes - 1), 60)
    centres = min(n_rows, wanted, quick, MOST_WEIGHTS // outputs - 1)
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


@dataclass(frozen=True, kw_only=True)
class CandidatePart:
    """One fit of a candidate: what is needed to repeat it, and its share in the candidate."""

    scale: float | None  # standard deviation of the prior; None for that of the highest evidence
    weight: float  # share of the candidate
    width: int  # index into the widths of the basis that are tried


@dataclass(frozen=True, kw_only=True)
class CandidateRow:
    """A row of the evidence table: a candidate fitted and judged, beside the others once one was chosen.

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
    verdict: str | None  # on the best part's Laplace fit, such as "green"; None where nothing asked for it
    reasons: tuple[str, ...]
    numbers: Mapping[str, float | None]  # the diagnostics behind the verdict
    converged: bool
    n_iter: int
    prior_probability: float
    weight: float  # posterior probability of the candidate
    share: float  # of the model

    @property
    def comparable(self) -> bool:
        """Whether evidence and BIC compare with other candidates': not of a basis that is learnt from the labels."""
        kind = BASES.get(self.basis.partition(",")[0])
        return kind is None or not kind.learnt_from_labels


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
