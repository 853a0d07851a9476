"""A candidate for tests of what is done with candidates: change what matters with `dataclasses.replace`."""

from __future__ import annotations

from blr.candidates.candidate import CandidateRow

CANDIDATE = CandidateRow(
    features=("b_j",),
    basis="linear",
    n_functions=2,
    log_evidence=-10.0,
    second_order=0.0,
    log_likelihood=-8.0,
    log_occam_factor=-2.0,
    bic=0.0,
    loo=None,
    loo_standard_error=None,
    effective_parameters=2.0,
    log_loss=0.5,
    parts=(),
    verdict="green",
    reasons=(),
    numbers={},
    converged=True,
    n_iter=5,
    prior_probability=1.0,
    weight=1.0,
    share=0.0,
)
