"""The sampled posterior: draws from Markov chains that leave the exact posterior invariant, and its evidence.

For problems that no Gaussian describes, such as separable ones.  Chains start from the Laplace posterior and move by
Hamiltonian steps in its whitened coordinates; how well they mixed is in `trust`.  Predictions average over the draws.

The log evidence, with its Monte Carlo error, comes by bridge sampling:

    p(D) = E_g[h p*] / E_p[h g],   h = 1 / (s1 p* + s2 p(D) g)

The optimal bridge of Meng and Wong (1996, Statistica Sinica 6, 831), iterated to its fixed point; p* = p(D|θ) p(θ), g a
Gaussian.  Half of the draws fit the Gaussian, the other half enter the estimate, then they change places (Gronau et al.
2017, doi:10.1016/j.jmp.2017.09.005).  The posterior is folded about its centre first, (p*(m + Lx) + p*(m - Lx)) / 2,
which has the same integral and no skewness (warp III of Meng and Schilling 2002, doi:10.1198/106186002457).
Shapes: S draws of D = C M weights in the solver's coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy  # its modules load when used
from scipy.linalg import solve_triangular
from scipy.special import expit, logsumexp, ndtri

from blr.arrays import Matrix, Vector, mid_ranks
from blr.fitting.problem import Problem
from blr.gaussian import Gaussian, cholesky_of_precision
from blr.posterior.kinds import LaplacePosterior, Posterior, SampledPosterior, draw_probabilities
from blr.sums import evenly_spread
from blr.threads import single_threaded_blas
from blr.trust.verdict import Finding, Trust, log_posterior, whitened_density

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


def sample_posterior(
    q: Posterior,
    *,
    n_draws: int = 8192,
    rng: np.random.Generator | None = None,
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
    on_step
        Called after each block of draws.

    Raises
    ------
    ValueError
        If there is no prior, without which there may be no posterior; or fewer draws than chains, which are 8 to 32,
        fewer where the data are many.
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
    chains = next(c for most, c in _CHAINS if size <= most)
    if n_draws < chains:
        raise ValueError(
            f"n_draws must be at least the number of chains, got {n_draws} draws and {chains} chains; leave it out for "
            "the default"
        )
    rng = np.random.default_rng(0) if rng is None else rng
    with single_threaded_blas():
        draws, acceptance, found = _run(laplace, chains, int(_WORK / size), watched, rng, on_step)
    flat = draws.reshape(-1, draws.shape[2])
    kept = evenly(draws, n_draws)
    # Each half by itself first: a bridge needs halves that know nothing of each other, and of two that have the moments
    # of the whole the one lies where the other does not.
    halves = zip(
        np.split(kept, [len(kept) // chains * (chains // 2)]), np.split(draws, [chains // 2]), strict=True
    )
    kept = np.concatenate(
        [matched(some, *_moments(every.reshape(-1, flat.shape[1]))) for some, every in halves]
    )
    mean, covariance = _moments(flat)
    trust = _verdict(len(flat), acceptance, *found)
    mixed = trust.verdict != "red"
    return SampledPosterior.of(
        laplace,
        Gaussian(mean, Gaussian(mean, covariance).covariance),  # the inverse, whatever the scales
        draws=matched(kept, mean, covariance),
        converged=laplace.converged and mixed,
        n_iter=draws.shape[1],
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
) -> tuple[Matrix, Vector, tuple[Vector, Vector, Vector]]:
    """Return draws (chains, n, D) in the solver's coordinates, acceptance by block, and their `convergence`."""
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
        draws = np.concatenate([x for x, _, _ in blocks], axis=1)
        log_density = np.concatenate([value for _, value, _ in blocks], axis=1)
        found = convergence(np.concatenate([draws, log_density[:, :, None]], axis=2))
        r_hat = float(found[0].max())
        end = enough >= _MOST_BLOCKS or r_hat > _HOPELESS
        if end or (r_hat < _R_HAT[0] and _known(problem, watched, draws)):
            return draws, np.array([accepted for _, _, accepted in blocks]), found
        enough *= 2


def _known(problem: Problem, rows: Matrix, draws: Matrix) -> bool:
    """Whether the probabilities of the rows are known well enough."""
    chains, n, D = draws.shape
    for _, p in draw_probabilities(problem, rows, draws.reshape(-1, D)):
        by_chain = p[1:].reshape(-1, chains, n).transpose(1, 2, 0)
        error = by_chain.std(axis=(0, 1)) / np.sqrt(effective_size(by_chain))
        if not np.all(error < _ERROR):
            return False
    return True


def _verdict(n_draws: int, acceptance: Vector, r_hats: Vector, bulk: Vector, tail: Vector) -> Trust:
    r_hat, ess_bulk, ess_tail = float(r_hats.max()), float(bulk.min()), float(tail.min())
    ess = min(ess_bulk, ess_tail)
    findings: list[Finding] = []
    if not r_hat < _R_HAT[0]:
        level = "amber" if r_hat < _R_HAT[1] else "red"
        findings.append((level, f"the chains disagree (R-hat {r_hat:.3f}, above {_R_HAT[0]})"))
    if not ess > _ESS[0]:
        level = "amber" if ess > _ESS[1] else "red"
        findings.append((level, f"the draws are worth {ess:.0f} independent ones, fewer than {_ESS[0]:.0f}"))
    numbers = {"r_hat": r_hat, "ess_bulk": ess_bulk, "ess_tail": ess_tail}
    return Trust.of(findings, numbers | {"draws": float(n_draws), "acceptance": float(acceptance.mean())})


# Thinning of draws: fewer of them, with the mean and covariance of all.
#
# Shapes: C chains of n draws of D weights, S draws kept.

_ENOUGH = 4  # draws a weight from which they have a covariance of their own


def evenly(draws: Matrix, n_draws: int) -> Matrix:
    """Return about `n_draws` of the draws (C, n, D), as many of each chain, evenly spaced: (S, D)."""
    chains, n, D = draws.shape
    chosen = np.unique(np.linspace(0, n - 1, min(n, n_draws // chains)).round().astype(int))
    return draws[:, chosen].reshape(-1, D)


def _moments(draws: Matrix) -> tuple[Vector, Matrix]:
    D = draws.shape[1]
    return draws.mean(axis=0), np.cov(draws.T).reshape(D, D)


def matched(kept: Matrix, mean: Vector, covariance: Matrix) -> Matrix:
    """Return the kept draws (S, D), moved to the mean and covariance of all: what these know better is not thrown away.

    Of fewer than four draws a weight the mean alone is moved.
    """
    own = kept.mean(axis=0)
    if len(kept) < _ENOUGH * len(mean):
        return kept + (mean - own)
    L, _ = cholesky_of_precision(np.cov(kept.T).reshape(covariance.shape))
    target, _ = cholesky_of_precision(covariance)
    return np.asarray(mean + solve_triangular(L, (kept - own).T, lower=True).T @ target.T)


# Whether chains have converged, and how many independent draws they are worth.
#
# Rank-normalised split R-hat and effective sample sizes, of the bulk and of the tails (Vehtari, Gelman, Simpson,
# Carpenter and Bürkner 2021, doi:10.1214/20-BA1221).  Shapes: draws (C, n, D), C chains of n draws of D quantities.


def convergence(draws: Matrix) -> tuple[Vector, Vector, Vector]:
    """Return R-hat and the effective sample sizes of bulk and tail, (D,) each, of draws (C, n, D), n at least 8."""
    half = draws.shape[1] // 2
    halves = np.concatenate([draws[:, :half], draws[:, -half:]])  # chains of their own, (2 C, n // 2, D)
    normal = _rank_normalised(halves)
    folded = _rank_normalised(np.abs(halves - np.median(halves, axis=(0, 1))))
    low, high = np.quantile(halves, [0.05, 0.95], axis=(0, 1))
    tails = [effective_size((halves <= q).astype(np.float64)) for q in (low, high)]
    return np.maximum(_r_hat(normal), _r_hat(folded)), effective_size(normal), np.minimum(*tails)


def _rank_normalised(x: Matrix) -> Matrix:
    flat = x.reshape(-1, x.shape[2])
    rank = np.stack([mid_ranks(column) for column in flat.T], axis=1)
    return np.asarray(ndtri((rank - 0.375) / (len(flat) + 0.25))).reshape(x.shape)


def _variances(x: Matrix) -> tuple[Vector, Vector]:
    """Return the variance within chains and its estimate from all of them, (D,) each."""
    n = x.shape[1]
    within = x.var(axis=1, ddof=1).mean(axis=0)
    return within, (n - 1) / n * within + x.mean(axis=1).var(axis=0, ddof=1)


def _r_hat(x: Matrix) -> Vector:
    within, total = _variances(x)
    # A quantity that never moves (a direction held by its prior alone may not) has converged.
    return np.sqrt(np.divide(total, within, out=np.ones_like(total), where=within > 0))


def effective_size(x: Matrix) -> Vector:
    """Return how many independent draws the mean of x (C, n, D) is worth, (D,): Geyer's initial monotone sequence."""
    C, n, _ = x.shape
    within, total = _variances(x)
    autocovariance = _mean_autocovariance(x) * (n / (n - 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1 - (within - autocovariance) / total
    rho[0] = 1.0
    even = rho[: n - n % 2].reshape(n // 2, 2, -1).sum(axis=1)
    # From the first pair that is not positive on nothing counts; pairs before it may not rise.
    positive = np.cumprod(even > 0, axis=0, dtype=bool)
    tau = -1 + 2 * np.where(positive, np.minimum.accumulate(even, axis=0), 0.0).sum(axis=0)
    return np.where(total > 0, C * n / np.maximum(tau, 1 / np.log10(C * n)), float(C * n))


def _mean_autocovariance(x: Matrix) -> Matrix:
    """Return the autocovariance at lags 0 to n - 1, its mean over the chains, (n, D)."""
    C, n, _ = x.shape
    size = scipy.fft.next_fast_len(2 * n, real=True)
    power = np.zeros((size // 2 + 1, x.shape[2]))
    for chain in x:  # the transform back is linear: one of the mean serves for all chains
        spectrum = scipy.fft.rfft(chain - chain.mean(axis=0), size, axis=0)
        power += spectrum.real**2 + spectrum.imag**2
    return np.asarray(scipy.fft.irfft(power, size, axis=0)[:n]) / (n * C)


# Hamiltonian Monte Carlo of several chains at once, each of which leaves the density exactly invariant.
#
# Leapfrog trajectories with a Metropolis step at the end (Duane et al. 1987; Neal 2011, arXiv:1206.1901).  Chains move
# in lockstep, so that one evaluation of the gradient is a matrix product for all of them.  In coordinates of unit
# covariance a quarter of a turn gives an independent draw; its length is jittered, so that no direction comes back to
# where it was. Step size (by dual averaging, Hoffman and Gelman 2014) and coordinates are adapted while warming up,
# then fixed. Shapes: C chains, D coordinates.

Evaluate = Callable[[Matrix], tuple[Vector, Matrix]]
"""Log density (C,) and gradient (C, D) at positions (C, D)."""
_ACCEPTANCE = 0.65  # harmonic mean over the chains: one that is stuck where the density is narrow counts
_LEAST = 1e-3  # of a chain in that mean
_QUARTER = np.pi / 2
_JITTER = 0.4
# Share of moves whose step is smaller by the second and length by the third: for narrow places.
_SMALL = (0.1, 4.0, 2.0)
_MOST_STEPS = 64
_STAGES = (60, 120, 240)  # iterations of each attempt at coordinates, of which the later half is looked at
_SETTLE = 50  # iterations that find the step size for coordinates just changed


_State = tuple[Matrix, Vector, Matrix]
"""Positions x (C, D) in the adapted coordinates, log density (C,) and its gradient (C, D) there."""


@dataclass(frozen=True, eq=False)
class Hamiltonian:
    """Hamiltonian moves of all chains at once, with steps in coordinates x, where z = centre + x W are the target's.

    `evaluate` gives log density and gradient at z; `step` is the size of a leapfrog step in x.
    """

    evaluate: Evaluate
    centre: Vector
    W: Matrix
    step: float

    def at(self, z: Matrix) -> _State:
        """Return the state at positions z (C, D) as given."""
        return self._state(np.asarray(np.linalg.solve(self.W.T, (z - self.centre).T).T))

    def positions(self, x: Matrix) -> Matrix:
        """Return z of x."""
        return np.asarray(self.centre + x @ self.W)

    def _state(self, x: Matrix) -> _State:
        value, gradient = self.evaluate(self.positions(x))
        return x, value, gradient @ self.W.T

    def move(self, state: _State, rng: np.random.Generator) -> tuple[_State, Vector]:
        """Return the next state, and the probability with which each chain's trajectory was taken, (C,)."""
        # Length and number of steps do not depend on where the chains are: the density stays invariant.
        length = _QUARTER * rng.uniform(1 - _JITTER, 1 + _JITTER)
        step = self.step * rng.uniform(0.9, 1.1)
        if rng.random() < _SMALL[0]:
            step, length = step / _SMALL[1], length / _SMALL[2]
        momentum = rng.standard_normal(state[0].shape)
        n = int(np.clip(round(length / step), 1, _MOST_STEPS))
        end, p = state, momentum + 0.5 * step * state[2]
        for i in range(n):
            end = self._state(end[0] + step * p)
            p = p + (step if i < n - 1 else 0.5 * step) * end[2]
        change = end[1] - state[1] + 0.5 * (np.sum(momentum**2, axis=1) - np.sum(p**2, axis=1))
        probability = np.exp(np.minimum(np.where(np.isfinite(change), change, -np.inf), 0.0))
        accepted = rng.random(len(change)) < probability
        x, gradient = (np.where(accepted[:, None], end[i], state[i]) for i in (0, 2))
        return (x, np.where(accepted, end[1], state[1]), gradient), probability

    def run(self, state: _State, n: int, rng: np.random.Generator) -> tuple[_State, Matrix, Matrix, float]:
        """Return the state after n moves, positions z (C, n, D), log densities (C, n), and mean acceptance."""
        z, value, accepted = [], [], 0.0
        for _ in range(n):
            state, probability = self.move(state, rng)
            z.append(self.positions(state[0]))
            value.append(state[1])
            accepted += float(probability.mean()) / n
        return state, np.stack(z, axis=1), np.stack(value, axis=1), accepted

    def settled(self, state: _State, n: int, rng: np.random.Generator) -> tuple[Hamiltonian, _State, Matrix]:
        """Return this with a step size found in n moves by dual averaging, the state then, and positions (C, n, D)."""
        target, mean, error = np.log(10 * self.step), 0.0, 0.0
        log_step, sampler, z = np.log(self.step), self, []
        for i in range(1, n + 1):
            state, probability = sampler.move(state, rng)
            z.append(self.positions(state[0]))
            share = 1 / (i + 10)
            accepted = 1 / float(np.mean(1 / np.maximum(probability, _LEAST)))
            error = (1 - share) * error + share * (_ACCEPTANCE - accepted)
            log_step = target - np.sqrt(i) / 0.05 * error
            weight = i**-0.75
            mean = weight * log_step + (1 - weight) * mean
            sampler = replace(self, step=float(np.exp(np.clip(log_step, -12.0, 1.0))))
        return replace(self, step=float(np.exp(np.clip(mean, -12.0, 1.0)))), state, np.stack(z, axis=1)


def warm_up(evaluate: Evaluate, start: Matrix, rng: np.random.Generator) -> tuple[Hamiltonian, _State]:
    """Return a sampler adapted to the density, and its state, from positions `start` (C, D) in coordinates near white.

    Coordinates are changed to those of the draws' own covariance while that is not the identity within its error.
    """
    D = start.shape[1]
    W = np.eye(D)
    sampler = Hamiltonian(evaluate, np.zeros(D), W, 0.5 * D**-0.25)
    state = sampler.at(start)
    for n in _STAGES:
        sampler, state, z = sampler.settled(state, n, rng)
        recent = z[:, n // 2 :].reshape(-1, D)
        factor, white = _covariance_factor((recent - sampler.centre) @ np.linalg.inv(W))
        if white:
            break
        positions = sampler.positions(state[0])
        W = factor @ W
        sampler = replace(sampler, centre=recent.mean(axis=0), W=W, step=0.5 * D**-0.25)
        state = sampler.at(positions)
        sampler, state, _ = sampler.settled(state, _SETTLE, rng)
    return sampler, state


def _covariance_factor(x: Matrix) -> tuple[Matrix, bool]:
    """Return the upper factor of the covariance of draws x (n, D), and whether it is the identity within its error."""
    n, D = x.shape
    # Draws are correlated: a third of them counts.  The shrinkage is that of a covariance of n / 3 draws.
    share = n / 3 / (n / 3 + D)
    covariance = np.cov(x.T).reshape(D, D)
    values = np.linalg.eigvalsh(covariance)
    width = np.sqrt(3 * D / n)
    white = values[-1] < 1.8 * (1 + width) ** 2 and values[0] > 0.5 * max(1 - width, 0.1) ** 2
    return np.linalg.cholesky(share * covariance + (1 - share) * np.mean(values) * np.eye(D)).T, bool(white)


_FEWEST_DRAWS = 64  # draws
_MOST_ITERATIONS = 500
_SETTLED = 1e-8  # nats
_AT_ONCE = 512  # weights whose densities are evaluated at once
_STRETCHES = 4  # of consecutive draws, by which their autocorrelation is judged
_OVERLAP = 2.0  # factor of the stated error's square: the two halves share chains and fits


def _log_ratio(problem: Problem, centre: Vector, L: Matrix, x: Matrix) -> Vector:
    """Return ln of the folded posterior, not normalised, over the standard normal, at x (S, D): (S,)."""
    D = x.shape[1]
    parts = []
    for block in np.array_split(x, max(1, len(x) // _AT_ONCE)):
        step = block @ L.T
        both = log_posterior(problem, np.concatenate([centre + step, centre - step]))
        parts.append(logsumexp(both.reshape(2, -1), axis=0) - np.log(2.0))
    scale = float(np.log(np.diag(L)).sum()) + 0.5 * D * np.log(2 * np.pi)
    return np.concatenate(parts) + scale + 0.5 * np.einsum("sd,sd->s", x, x)


def bridge_evidence(q: SampledPosterior, *, rng: np.random.Generator | None = None) -> tuple[float, float]:
    """Return ln p(D) of the problem that `q` is a sampled posterior of, and its standard error, both in nats.

    Parameters
    ----------
    q
        What `sample_posterior` gives; draws of one chain lie one behind the other.
    rng
        Source of the Gaussian's draws; default: seed 0.

    Raises
    ------
    ValueError
        If `q` has no draws, or fewer than 64.
    RuntimeError
        If `q` was loaded from a file: it has no data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> q = blr.fit_evidence(np.column_stack([np.ones(200), X]), t)
    >>> log_evidence, error = blr.bridge_evidence(blr.sample_posterior(q, n_draws=200, rng=rng))
    >>> bool(abs(log_evidence - q.log_evidence) < 0.2), bool(error < 0.1)
    (True, True)
    """
    n_draws = len(getattr(q, "draws", ()))  # a caller without type checks may hand over another kind
    if n_draws < _FEWEST_DRAWS:
        raise ValueError(
            f"bridge sampling needs a posterior with {_FEWEST_DRAWS} draws or more, got one with {n_draws or 'none'}; "
            "sample it with sample_posterior"
        )
    rng = np.random.default_rng(0) if rng is None else rng
    half = n_draws // 2
    parts = q.draws[:half], q.draws[half:]
    with single_threaded_blas():
        estimates = [_estimate(q.problem, fitted, used, rng) for fitted, used in (parts, parts[::-1])]
    value, variance = np.mean(estimates, axis=0)
    spread = 0.25 * (estimates[0][0] - estimates[1][0]) ** 2  # of the mean, as the two halves tell it
    return float(value), float(np.sqrt(max(0.5 * _OVERLAP * variance, spread)))


def _estimate(
    problem: Problem, fitted: Matrix, used: Matrix, rng: np.random.Generator
) -> tuple[float, float]:
    """Return ln p(D) and its variance by the draws `used`, with the Gaussian of the draws `fitted`."""
    centre, covariance = _moments(fitted)
    share = len(fitted) / (len(fitted) + len(centre))
    # Of few draws the covariance is shrunk to its own diagonal.
    L, _ = cholesky_of_precision(share * covariance + (1 - share) * np.diag(np.diag(covariance)))
    x = np.asarray(np.linalg.solve(L, (used - centre).T).T)
    of_draws = _log_ratio(problem, centre, L, x)
    of_gaussian = _log_ratio(problem, centre, L, rng.standard_normal(used.shape))
    n2 = len(of_gaussian)
    n1 = float(min(_size(of_draws), n2))
    odds = np.log(n1 / n2)
    value = float(np.median(of_draws))
    for _ in range(_MOST_ITERATIONS):
        # expit(odds + l - value) = s1 p / (s1 p + s2 g): the share of the posterior at a point.
        # The floor keeps the logarithm finite where the two densities do not overlap at all.
        above = logsumexp(np.log(np.maximum(expit(odds + of_gaussian - value), 1e-300)))
        below = logsumexp(np.log(np.maximum(expit(-odds - of_draws + value), 1e-300)))
        change = above - np.log(n2) - (below - np.log(len(of_draws))) - odds
        value += change
        if abs(change) < _SETTLED:
            break
    shares = expit(odds + of_gaussian - value), expit(-odds - of_draws + value)
    of_posterior, of_normal = (float(share.var() / share.mean() ** 2) for share in shares)
    return value, of_posterior / n2 + of_normal / min(_size(shares[1]), n2)


def _size(x: Vector) -> float:
    """Return how many independent draws the mean of x (S,), chain after chain, is worth."""
    n = len(x) // _STRETCHES
    return float(effective_size(x[: n * _STRETCHES].reshape(_STRETCHES, n, 1))[0])
