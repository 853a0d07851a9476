"""The parts of a candidate: the widths of its basis and the scales of its prior that matter, each with its share.

Shares follow the evidence.  Left-out probabilities are of the posterior that will be served, so that candidates are
compared by what is kept.  Shapes: N training rows, F features used, M basis functions, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from blr.basis.base import Basis
from blr.basis.kinds import fit_basis
from blr.basis.rbf import RBF
from blr.basis.sigmoid import Sigmoid
from blr.likelihood.prior import GaussianPrior
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import fit
from blr.posterior.posterior import Posterior
from blr.posterior.variational import refine
from blr.selection.compare import leave_one_out_probability, recorded_shares
from blr.selection.evidence import fit_evidence
from blr.selection.folds import fold_probabilities
from blr.selection.prior_scale import fit_scales
from blr.selection.relevance import with_relevant_heights, with_relevant_widths
from flows.reports.candidates import CandidatePart
from flows.specification.basis import BasisKeywords

__all__ = ["CandidateProblem", "Part", "Response", "fitted_parts", "left_out"]

Floats = NDArray[np.float64]

MOST_PARTS = 3
LEAST_PART = 0.1
"""Share of the best part below which a width or scale is left out: each costs as much time in every prediction."""
COMMON_WIDTH = 0.7
"""Times the root of the number of features: where the search for a width a feature starts."""
FOLD_WORK = 1e8
"""Rows times the squared number of weights, above which folds cost too much where one step serves as well."""
MOST_INFLUENTIAL = 0.01
"""One step is trusted where at most this share of the rows hold more than half of their own curvature."""


class Response(TypedDict):
    """What fits are of: keywords of every fit in `blr` beside the design matrix."""

    t: Floats | NDArray[np.intp]  # (N,) class indices, or (N, K) votes
    likelihood: str
    sample_weight: Floats | None  # (N,)
    classes: Sequence[int]
    confusion: Floats | None  # (K, K) or (N, K, K); None for right labels


@dataclass(frozen=True, eq=False)
class CandidateProblem:
    """What every fit of a candidate is given: features X (N, F), targets, and how its basis is made.

    `widths` are the keywords of each basis that is to be tried; `response` those of every fit beside the design matrix.
    """

    X: Floats
    kind: str
    widths: tuple[BasisKeywords, ...]
    soften: bool
    response: Response
    weight: Floats | None
    generator: Callable[[], np.random.Generator]
    threads: int | None

    def basis(
        self, width: int, *, known: Sequence[float] | None = None, on_step: Callable[[], None] | None = None
    ) -> Basis:
        """Return the basis of one of the widths.

        Where that is "each", or the height of steps is, the widths or heights are those `known` (F,) from before, else
        those of a search by evidence.
        """
        keywords = self.widths[width].copy()
        each = keywords.pop("height", None) == "each" or keywords.get("width") == "each"
        if keywords.get("width") == "each":
            keywords["width"] = COMMON_WIDTH * np.sqrt(self.X.shape[1])
        basis = fit_basis(
            self.kind, self.X, weight=self.weight, rng=self.generator(), soften=self.soften, **keywords
        )
        found = None if known is None else np.asarray(known, dtype=np.float64)
        if each and isinstance(basis, RBF):
            if found is not None:
                return replace(basis, width=found)
            return with_relevant_widths(basis, self.X, threads=self.threads, on_step=on_step, **self.response)
        if each and isinstance(basis, Sigmoid):
            if found is not None:
                return replace(basis, height=found)
            return with_relevant_heights(basis, self.X, threads=self.threads, **self.response)
        return basis

    def at_scale(self, Phi: Floats, scale: float | None) -> LaplacePosterior:
        """Return the Laplace fit at a standard deviation of the prior, None for where the evidence is highest."""
        if scale is None:
            return fit_evidence(Phi, threads=self.threads, **self.response)
        prior = GaussianPrior.isotropic(Phi.shape[1], precision=scale**-2, intercept=0)
        return fit(Phi, prior=prior, threads=self.threads, **self.response)


@dataclass(frozen=True, eq=False)
class Part:
    """A width and a scale: the basis, its Laplace fit, the posterior to be judged, and their share.

    `width` is an index; `scale` the prior's standard deviation, None for where the evidence is highest.
    """

    width: int
    scale: float | None
    basis: Basis
    laplace: LaplacePosterior
    served: Posterior
    log_weight: float
    weight: float = 1.0

    @property
    def described(self) -> CandidatePart:
        """What a later fit of the same part needs; `widths` or `heights` where each feature has its own."""
        widths = heights = None
        if isinstance(self.basis, RBF) and np.ndim(self.basis.width) == 1:
            widths = tuple(np.asarray(self.basis.width).tolist())
        if isinstance(self.basis, Sigmoid) and np.any(self.basis.height != 1):
            heights = tuple(self.basis.height.tolist())
        return CandidatePart(
            scale=self.scale, weight=self.weight, width=self.width, widths=widths, heights=heights
        )


def fitted_parts(
    problem: CandidateProblem, *, integrated: bool, refined: bool, on_step: Callable[[], None]
) -> tuple[list[Part], float]:
    """Return the parts that matter, the best first, and the log evidence of the whole.

    `integrated`: over the prior's scale; else it is where the evidence is highest.
    """
    parts: list[Part] = []
    for width in range(len(problem.widths)):
        basis = problem.basis(width, on_step=on_step)
        Phi = basis(problem.X)
        if not integrated:
            q = problem.at_scale(Phi, None)
            parts.append(Part(width, None, basis, q, q, q.log_evidence))
            continue
        scales = fit_scales(Phi, threads=problem.threads, **problem.response)
        log_weight = scales.log_evidence + np.log(scales.weight)
        for w, s, q in zip(log_weight.tolist(), scales.scale.tolist(), scales.posteriors, strict=True):
            parts.append(Part(width, s, basis, q, q, w))
    log_evidence = float(logsumexp([part.log_weight for part in parts]) - np.log(len(problem.widths)))
    kept = sorted(_shared(parts), key=lambda part: -part.weight)[:MOST_PARTS]
    return _refined(kept, on_step) if refined else _shared(kept), log_evidence


def _shared(parts: Sequence[Part]) -> list[Part]:
    """Return the parts with their shares, those left out that are too small to matter; the best first."""
    log_weight = np.array([part.log_weight for part in parts])
    kept = np.flatnonzero(log_weight > log_weight.max() + np.log(LEAST_PART))
    share = np.exp(log_weight[kept] - logsumexp(log_weight[kept]))
    shared = [replace(parts[i], weight=float(w)) for i, w in zip(kept.tolist(), share, strict=True)]
    return sorted(shared, key=lambda part: -part.weight)


def _refined(parts: Sequence[Part], on_step: Callable[[], None]) -> list[Part]:
    """Return the parts with drafts of their refined posteriors.

    Their shares follow the lower bounds instead of Laplace's evidences, which are wild where classes are separable.
    Bounds are compared with bounds only.
    """
    refined, ended = [], dict[int, Posterior]()
    for part in parts:
        # Of another scale, and the same width: nearer than the Laplace fit.
        served = refine(part.laplace, start=ended.get(part.width), draft=True, on_step=on_step)
        ended[part.width] = served
        bound = part.log_weight + served.elbo - part.laplace.log_evidence
        refined.append(replace(part, served=served, log_weight=bound))
    return _shared(refined)


def _by_width(parts: Sequence[Part]) -> list[list[Part]]:
    """Return the parts of each width: they share a design matrix."""
    return [
        [part for part in parts if part.width == width] for width in sorted({part.width for part in parts})
    ]


def left_out(
    parts: Sequence[Part],
    fold: NDArray[np.intp],
    *,
    n_influential: int,
    refined: bool,
    on_part: Callable[[], None],
) -> tuple[Floats, str]:
    """Return the rows' left-out probabilities and weighted shares of classes (2, N, K), and how they were found.

    Probabilities are of the true classes, also where labels may be wrong.
    By refitting without each `fold` (N,); by one step from the whole fit where folds would cost too much, and few rows
    (`n_influential`, of the first part) are so influential that one step is rough.
    """
    share, weight = recorded_shares(parts[0].laplace)
    dear = len(share) * float(parts[0].laplace.problem.n_solved) ** 2 > FOLD_WORK
    one_step = dear and n_influential <= MOST_INFLUENTIAL * len(share)
    p = np.zeros_like(share)
    for alike in _by_width(parts):
        unseen: Iterator[Floats]
        if one_step:
            unseen = (leave_one_out_probability(part.served, records=False)[0] for part in alike)
        else:
            unseen = fold_probabilities([part.laplace for part in alike], fold, refined=refined)
        for part, probability in zip(alike, unseen, strict=True):
            p += part.weight * probability
            on_part()
    return np.stack([p, weight[:, None] * share]), "one step" if one_step else "folds"
