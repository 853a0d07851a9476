"""The sampled posterior: draws from Markov chains that leave the exact posterior invariant.

For problems that no Gaussian describes, such as separable ones.  Chains start from the Laplace posterior and move by
Hamiltonian steps in its whitened coordinates (`_hamiltonian`); how well they mixed is in `trust` (`_convergence`).
Predictions average over the draws.  D = C M weights in the solver's coordinates, S draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blr.arrays import Matrix
from blr.fitting.problem import Problem
from blr.gaussian import Gaussian
from blr.posterior._hamiltonian import Convergence, convergence, effective_size, evenly, matched, warm_up
from blr.posterior.ensemble import draw_probabilities
from blr.posterior.kinds import LaplacePosterior, Posterior, SampledPosterior
from blr.sums import evenly_spread
from blr.threads import single_threaded_blas
from blr.trust.verdict import Finding, Trust
from blr.trust.whitened import whitened_density

# Number of chains for N D up to: long chains where a move is dear, many where it is not.
_CHAINS = ((1e5, 32), (1e6, 16), (np.inf, 8))
_BLOCK = 64  # moves of every chain between two looks at what has been reached
_MOST_BLOCKS = 64
_WORK = 2e9  # products N D S that are always affordable: draws that every problem gets
_FEWEST = 2048
_ERROR = 0.002  # in the probability of a training row: draws go on until the standard error is below
_ROWS = 256  # training rows whose probabilities are watched
_HOPELESS = 1.5  # R-hat from which longer chains would not help
_R_HAT = 1.01, 1.05  # green below the first, red from the second on
_ESS = 400.0, 100.0  # green above the first, red below the second


@dataclass(frozen=True, eq=False)
class _Run:
    """Draws (chains, n, D) in the solver's coordinates, their log densities (chains, n), and acceptance by block."""

    draws: Matrix
    log_density: Matrix
    acceptance: tuple[float, ...]

    @property
    def n_draws(self) -> int:
        return int(self.draws.shape[0] * self.draws.shape[1])

    @cached_property
    def convergence(self) -> Convergence:
        return convergence(np.concatenate([self.draws, self.log_density[:, :, None]], axis=2))


def sample_posterior(
    q: Posterior,
    *,
    n_draws: int = 8192,
    rng: np.random.Generator | None = None,
    chains: int | None = None,
    on_step: Callable[[], None] | None = None,
) -> SampledPosterior:
    """Return the sampled posterior of the problem that `q` is a fit of.

    Chains go on until the standard error of every training row's probability is below 0.002, or the affordable number
    of draws is reached, whichever is later.  Of these `n_draws` are kept, evenly spaced, and moved to the mean and the
    covariance of all.  Evidence and BIC stay those of the Laplace fit; `trust` is the chains' own.

    Parameters
    ----------
    n_draws
        Draws kept, at most; predictions take time in proportion.
    rng
        Source of randomness; default: seed 0.
    chains
        Chains run side by side; default: 8 to 32, fewer where the data are many.
    on_step
        Called after each block of draws.

    Raises
    ------
    ValueError
        If there is no prior, without which there may be no posterior; or fewer than 2 chains or draws.
    RuntimeError
        If `q` was loaded from a file: it has no data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> q = blr.fit_evidence(np.column_stack([np.ones(200), X]), t)
    >>> s = blr.sample_posterior(q, n_draws=200, rng=rng)
    >>> s.draws.shape[1], s.trust.verdict
    (3, 'green')
    """
    laplace = q.fitted
    n_rows, watched = evenly_spread(laplace.problem.require_data(), _ROWS)
    size = n_rows * len(laplace.gaussian.mean)
    chains = next(c for most, c in _CHAINS if size <= most) if chains is None else chains
    if n_draws < chains or chains < 2:
        raise ValueError(
            f"n_draws must be at least the number of chains, and that at least 2, got {n_draws} draws and "
            f"{chains} chains; leave both out for the defaults"
        )
    rng = np.random.default_rng(0) if rng is None else rng
    with single_threaded_blas():
        run = _run(laplace, chains, int(_WORK / size), watched, rng, on_step)
    flat = run.draws.reshape(-1, run.draws.shape[2])
    kept = evenly(run.draws, n_draws)
    mean, covariance = flat.mean(axis=0), np.cov(flat.T).reshape(len(flat.T), -1)
    trust = _verdict(run)
    mixed = trust.verdict != "red"
    return SampledPosterior.of(
        laplace,
        Gaussian(mean, Gaussian(mean, covariance).covariance),  # the inverse, whatever the scales
        draws=matched(kept, mean, covariance),
        converged=laplace.converged and mixed,
        n_iter=run.draws.shape[1],
        status="converged" if mixed else "the chains did not converge",
        verdict=trust,
    )


def _run(
    laplace: LaplacePosterior,
    chains: int,
    affordable: int,
    watched: Matrix,
    rng: np.random.Generator,
    on_step: Callable[[], None] | None,
) -> _Run:
    problem, white = laplace.problem, laplace.gaussian
    U = white.inverse_cholesky
    sampler, state = warm_up(whitened_density(problem, white), rng.standard_normal((chains, len(U))), rng)
    blocks: list[tuple[Matrix, Matrix, float]] = []
    enough = int(np.clip(affordable, _FEWEST, _MOST_BLOCKS // 4 * _BLOCK * chains)) // (_BLOCK * chains)
    while True:
        while len(blocks) < enough:
            state, z, value, accepted = sampler.run(state, _BLOCK, rng)
            blocks.append((white.mean + z @ U, value, accepted))
            if on_step is not None:
                on_step()
        run = _joined(blocks)
        r_hat = float(run.convergence.r_hat.max())
        if (
            enough >= _MOST_BLOCKS
            or r_hat > _HOPELESS
            or (r_hat < _R_HAT[0] and _known(problem, watched, run))
        ):
            return run
        enough *= 2


def _joined(blocks: list[tuple[Matrix, Matrix, float]]) -> _Run:
    draws, value, accepted = zip(*blocks, strict=True)
    return _Run(np.concatenate(draws, axis=1), np.concatenate(value, axis=1), accepted)


def _known(problem: Problem, rows: Matrix, run: _Run) -> bool:
    """Whether the probabilities of the rows are known well enough."""
    chains, n, D = run.draws.shape
    for _, p in draw_probabilities(problem, rows, run.draws.reshape(-1, D)):
        by_chain = p[1:].reshape(-1, chains, n).transpose(1, 2, 0)
        error = by_chain.std(axis=(0, 1)) / np.sqrt(effective_size(by_chain))
        if not np.all(error < _ERROR):
            return False
    return True


def _verdict(run: _Run) -> Trust:
    diagnostics = run.convergence
    r_hat = float(diagnostics.r_hat.max())
    ess = float(min(diagnostics.ess_bulk.min(), diagnostics.ess_tail.min()))
    findings: list[Finding] = []
    if not r_hat < _R_HAT[0]:
        level = "amber" if r_hat < _R_HAT[1] else "red"
        findings.append((level, f"the chains disagree (R-hat {r_hat:.3f}, above {_R_HAT[0]})"))
    if not ess > _ESS[0]:
        level = "amber" if ess > _ESS[1] else "red"
        findings.append((level, f"the draws are worth {ess:.0f} independent ones, fewer than {_ESS[0]:.0f}"))
    numbers = {
        "r_hat": r_hat,
        "ess_bulk": float(diagnostics.ess_bulk.min()),
        "ess_tail": float(diagnostics.ess_tail.min()),
        "draws": float(run.n_draws),
        "acceptance": float(np.mean(run.acceptance)),
    }
    return Trust.of(findings, numbers)
