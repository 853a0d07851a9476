"""Stochastic gradient ascent to the mode, for streams that cannot be read twice (PRML 3.1.3, 4.3.2).

Robbins-Monro steps on mini-batches, each preconditioned by the curvature seen so far, and the average of the iterates
(Polyak and Juditsky 1992, doi:10.1137/0330046): the average is as good as the exact mode to the order of its own
uncertainty.  The prior's gradient counts with its share of each batch, batch/N, N the rows so far or as stated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from blr.arrays import Matrix, Vector
from blr.fitting.newton import Mode, SolverPrior, newton_step
from blr.likelihood.likelihoods import Likelihood
from blr.sums import Chunk, likelihood_terms
from blr.threads import single_threaded_blas

_DECAY = 0.7  # of the step, between 1/2 and 1 as averaging wants
_FADING = 0.6  # of the curvature's memory
_RECENCY = 2.0  # weight of the iterates in the average grows as the step's number to this less one
_BATCHES = 150  # from which the average lies within a posterior sd a weight: of 55 batches it did in half of the cases
_RIDGE = 1.0  # relative, on the first batches' curvature, which need not have full rank
_BATCH = 128


@dataclass
class _Run:
    """The state of an ascent: iterate, sums over the rows so far, average of the later iterates."""

    theta: Vector
    curvature: Matrix
    weight: float = 0.0
    step: int = 0
    average: Vector | None = None
    log_likelihood: float = 0.0

    def advance(self, likelihood: Likelihood, prior: SolverPrior, batch: Chunk, n_rows: float | None) -> None:
        n = float(len(batch[0]) if batch[2] is None else batch[2].sum())
        if n == 0:
            return  # Rows of weight zero are left out.
        value, gradient, hessian = likelihood_terms(likelihood, self.theta)(*batch)
        self.step += 1
        self.weight += n
        self.log_likelihood += value
        total = n_rows or self.weight
        # The curvature at the start is not that at the mode: older batches fade at the pace at which steps shrink.
        self.curvature = self.curvature + self.step**-_FADING * (hessian / n - self.curvature)
        g = gradient / n - prior.precision @ (self.theta - prior.mean) / total
        scale = self.curvature + prior.precision / total
        direction, _ = newton_step(g, scale + _RIDGE / self.step * np.diag(np.diag(scale).clip(min=1e-300)))
        self.theta = self.theta + self.step**-_DECAY * _bounded(direction, scale)
        # Later iterates count for more, so that the start is forgotten without a burn-in to choose.
        share = min(1.0, _RECENCY / (self.step + _RECENCY - 1))
        self.average = (
            self.theta if self.average is None else self.average + share * (self.theta - self.average)
        )


def _bounded(direction: Vector, scale: Matrix) -> Vector:
    """Return the direction, shortened where it would move the activations by more than a few units at once."""
    length = float(np.sqrt(direction @ scale @ direction))
    return direction if length < 1 else direction / length


def _batches(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    for Phi, t, weight in chunks:
        for i in range(0, len(Phi), _BATCH):
            part = slice(i, i + _BATCH)
            yield Phi[part], t[part], None if weight is None else weight[part]


def ascend(
    chunks: Iterator[Chunk], likelihood: Likelihood, prior: SolverPrior, *, n_rows: float | None = None
) -> tuple[Mode, float]:
    """Return the averaged iterate after one pass over the chunks, the curvature met on the way, and the weight seen.

    The log likelihood is that of each batch under the weights before it was learnt from: a predictive one, below that
    at the mode.  `converged` says that the stream was long enough for averaging, 150 batches and 100 rows a weight: the
    result then lies about half a posterior sd from the mode, root mean square a weight (0.9 at most in 36 problems).
    """
    D = len(prior.mean)
    run = _Run(prior.mean.copy(), np.zeros((D, D)))
    with single_threaded_blas():
        for batch in _batches(chunks):
            run.advance(likelihood, prior, batch, n_rows)
    if run.average is None:
        raise ValueError("the stream is empty; give at least one chunk (Phi, t, weight)")
    scale = n_rows or run.weight
    g = np.zeros(D)
    enough = run.weight >= 100 * D and run.step >= _BATCHES
    status = "one pass, averaged iterate" if enough else f"only {run.weight:.0f} rows for {D} weights"
    mode = Mode(
        run.average, run.log_likelihood, g, scale * run.curvature, float("nan"), enough, run.step, status
    )
    return mode, run.weight
