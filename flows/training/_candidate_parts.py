"""The parts of a candidate: the widths of its basis and the scales of its prior that matter, each with its share.

The shares are in proportion to the evidence.  Left-out probabilities come from the posterior that the model will use,
so that candidates are compared by it.  Shapes: N training rows, F features used, M basis functions, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

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
from blr.selection.evidence import fit_evidence
from blr.selection.prior_scale import fit_scales
from blr.selection.relevance import with_relevant_heights, with_relevant_widths
from blr.sums import Rows
from flows.models.candidates import CandidatePart
from flows.specification.basis import BasisKeywords
from flows.training._shards import DesignShards, TrainingShards, fit_targets

__all__ = ["CandidateProblem", "Part", "Response", "fitted_parts"]

Floats = NDArray[np.float64]

MOST_PARTS = 2
LEAST_PART = 0.1
"""Smallest share of a part, relative to the best one: every part costs the same time in each prediction."""
COMMON_WIDTH = 0.7
"""Width at which the search for one width a feature starts, divided by the square root of the number of features."""


class Response(TypedDict):
    """Targets and likelihood: the keywords, besides the design matrix, of every fit in `blr`."""

    t: Any  # (N,) class indices, or (N, K) votes; None where the design matrix holds them
    likelihood: str
    sample_weight: Floats | None  # (N,)
    classes: Sequence[int]
    confusion: Floats | None  # (K, K) or (N, K, K); None where labels are right


@dataclass(frozen=True, eq=False)
class CandidateProblem:
    """The inputs of every fit of a candidate: features X (N, F), targets, and the options of its basis.

    `widths` are the keywords of each basis that is tried.  Rows of an equal `group` (N,)
    belong together.  `response` are the keywords of every fit besides the design
    matrix.  Where there are `shards`, fits use the rows and the feature `columns` there; X and `response` are then
    those of a sample.
    """

    X: Floats
    kind: str
    widths: tuple[BasisKeywords, ...]
    soften: bool
    response: Response
    weight: Floats | None
    generator: Callable[[], np.random.Generator]
    threads: int | None
    columns: tuple[int, ...] = ()
    shards: TrainingShards | None = None
    group: NDArray[np.uint64] | None = None

    def basis(
        self, width: int, *, known: Sequence[float] | None = None, on_step: Callable[[], None] | None = None
    ) -> Basis:
        """Return the basis with one of the widths.

        Where the width of bumps or the height of steps is "each", every feature has its own.  These are the `known`
        values (F,) of an earlier fit, or else those of the highest evidence.
        """
        keywords = self.widths[width].copy()
        each = keywords.pop("height", None) == "each" or keywords.get("width") == "each"
        if keywords.get("width") == "each":
            keywords["width"] = COMMON_WIDTH * np.sqrt(self.X.shape[1])
        own = {"labels": self.response["t"], "group": self.group} if self.kind == "forest" else {}
        basis = fit_basis(
            self.kind, self.X, weight=self.weight, rng=self.generator(), soften=self.soften, **keywords, **own
        )
        if self.shards is not None:
            basis = replace(basis, standardisation=self.shards.standardised(basis, self.columns, self.X))
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

    def design(self, basis: Basis) -> Floats | DesignShards:
        """Return the design matrix: an array, or one of rows on the disk that is computed shard by shard."""
        if self.shards is None:
            return basis.training_design(self.X)
        own = self.response["confusion"] if self.shards.confusion is not None else None
        return self.shards.design(basis, self.columns, self.X, self.response["t"], self.weight, own)

    @property
    def fitted(self) -> Response:
        """Keywords of a fit to the rows of `design`; without what `design` holds itself."""
        if self.shards is None:
            return self.response
        held: Response = {**self.response, "t": None, "sample_weight": None}
        return held if self.shards.confusion is None else {**held, "confusion": None}

    def at_scale(self, basis: Basis, scale: float | None) -> LaplacePosterior:
        """Return the Laplace fit with a standard deviation of the prior; None for that of the highest evidence."""
        if scale is None:
            return fit_evidence(self.design(basis), threads=self.threads, **self.fitted)
        prior = GaussianPrior.isotropic(basis.n_functions, precision=scale**-2, intercept=0)
        return fit(self.design(basis), prior=prior, threads=self.threads, **self.fitted)

    def sampled(self, q: Posterior, basis: Basis, some: slice) -> Posterior:
        """Return a posterior whose data are some of the rows in memory, so that it is judged on these."""
        weight, confusion = self.response["sample_weight"], self.response["confusion"]
        if confusion is not None and confusion.ndim > 2:
            confusion = confusion[some]
        t, own_weight = fit_targets(
            self.response["t"][some],
            None if weight is None else weight[some],
            q.problem.n_classes,
            binary=q.problem.binary,
            confusion=confusion if q.problem.mislabelled else None,
        )
        data = Rows(basis(self.X[some]), t, own_weight, threads=1)
        own: Any = q  # a dataclass, whatever its kind
        judged: Posterior = replace(own, problem=replace(q.problem, data=data))
        return judged


@dataclass(frozen=True, eq=False)
class Part:
    """A width of the basis and a scale of the prior, with the fit and its share in the candidate.

    `width` is the index of the width.  `scale` is the standard deviation of the prior, None for that of the highest
    evidence.  `laplace` is the Laplace fit, and `served` the posterior that the candidate is judged by.
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
        """What a later fit of the same part needs; with `widths` or `heights` if each feature has its own."""
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
    """Return the parts that matter, the best first, and the log evidence of all parts together.

    `integrated` asks for several scales of the prior, weighted by evidence; otherwise there is one, of the highest.
    """
    parts: list[Part] = []
    for width in range(len(problem.widths)):
        basis = problem.basis(width, on_step=on_step)
        if not integrated:
            q = problem.at_scale(basis, None)
            parts.append(Part(width, None, basis, q, q, q.log_evidence))
            continue
        scales = fit_scales(problem.design(basis), threads=problem.threads, **problem.fitted)
        log_weight = scales.log_evidence + np.log(scales.weight)
        for w, s, q in zip(log_weight.tolist(), scales.scale.tolist(), scales.posteriors, strict=True):
            parts.append(Part(width, s, basis, q, q, w))
    log_evidence = float(logsumexp([part.log_weight for part in parts]) - np.log(len(problem.widths)))
    kept = sorted(_shared(parts), key=lambda part: -part.weight)[:MOST_PARTS]
    return _refined(kept, on_step) if refined else _shared(kept), log_evidence


def _shared(parts: Sequence[Part]) -> list[Part]:
    """Return the parts with their shares, the best first; parts that are too small to matter are left out."""
    log_weight = np.array([part.log_weight for part in parts])
    kept = np.flatnonzero(log_weight > log_weight.max() + np.log(LEAST_PART))
    share = np.exp(log_weight[kept] - logsumexp(log_weight[kept]))
    shared = [replace(parts[i], weight=float(w)) for i, w in zip(kept.tolist(), share, strict=True)]
    return sorted(shared, key=lambda part: -part.weight)


def _refined(parts: Sequence[Part], on_step: Callable[[], None]) -> list[Part]:
    """Return the parts with drafts of their refined posteriors.

    Their shares are computed from the variational lower bounds: Laplace's evidence is far off where classes are
    separable.  All parts have bounds, so that a bound is never compared with an evidence.
    """
    refined, ended = [], dict[int, Posterior]()
    for part in parts:
        # The refined posterior of another scale and the same width is a better start than the Laplace fit.
        served = refine(part.laplace, start=ended.get(part.width), draft=True, on_step=on_step)
        ended[part.width] = served
        bound = part.log_weight + served.elbo - part.laplace.log_evidence
        refined.append(replace(part, served=served, log_weight=bound))
    return _shared(refined)
