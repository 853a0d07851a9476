"""The rows of the evidence table: a candidate, the parts that it is a mixture of, and the checks of its posteriors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CandidatePart", "CandidateRow", "JudgedCandidate", "PosteriorCheck"]


@dataclass(frozen=True, kw_only=True)
class CandidatePart:
    """One fit of a candidate: what is needed to repeat it, and its share in the candidate."""

    scale: float | None  # standard deviation of the prior; None for that of the highest evidence
    weight: float  # share of the candidate
    width: int  # index into the widths of the basis that are tried
    widths: tuple[float, ...] | None = None  # (F,), where each feature has its own
    heights: tuple[float, ...] | None = None  # (F,) of the steps, where each feature has its own


@dataclass(frozen=True, kw_only=True)
class PosteriorCheck:
    """How a refined posterior compares with the exact one, and what is served; None where it is not known."""

    largest_difference: float | None  # of probabilities
    log_evidence: float | None  # nats
    log_evidence_error: float | None  # one sigma, nats
    mean_difference: float | None
    reason: str  # why it is served in this way
    reasons: tuple[str, ...]  # of the verdict
    verdict: str  # on what is served: "green", "amber" or "red"
    way: str  # "unchanged", "confirmed", "matched", "sampled", "unchecked" or "failed"


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
    parts: tuple[CandidatePart, ...]  # the best first; empty in models of earlier versions
    verdict: (
        str | None
    )  # on the Gaussian approximation: "green", "amber" or "red"; None where nothing asked for it
    reasons: tuple[str, ...]
    numbers: Mapping[str, float | None]  # the diagnostics behind the verdict
    converged: bool
    n_iter: int
    prior_probability: float


@dataclass(frozen=True, kw_only=True)
class CandidateRow(JudgedCandidate):
    """A row of the evidence table: a candidate beside the others."""

    weight: float  # posterior probability of the candidate
    share: float | None  # of the model; None in models of earlier versions
    checks: tuple[PosteriorCheck | None, ...]  # of each part that is kept; none for a candidate that is not
