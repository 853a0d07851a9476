"""Samples of a posterior by Hamiltonian Monte Carlo, as draws of the weights, with the tests of their convergence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy  # its modules load when used
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from blr.arrays import Matrix, Vector, mid_ranks
from blr.gaussian import cholesky_of_precision

# Thinning of draws: fewer of them, with the mean and covariance of all.
#
# Shapes: C chains of n draws of D weights, S draws kept.

_ENOUGH = 4  # draws a weight from which they have a covariance of their own


def evenly(draws: Matrix, n_draws: int) -> Matrix:
    """Return about `n_draws` of the draws (C, n, D), as many of each chain, evenly spaced: (S, D)."""
    chains, n, D = draws.shape
    chosen = np.unique(np.linspace(0, n - 1, min(n, n_draws // chains)).round().astype(int))
    return draws[:, chosen].reshape(-1, D)


def centred_at(kept: Matrix, mean: Vector) -> Matrix:
    """Return the kept draws (S, D), moved to the mean of all, which these know better."""
    return np.asarray(kept + (mean - kept.mean(axis=0)))


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


@dataclass(frozen=True, eq=False)
class Convergence:
    """R-hat and effective sample sizes of each quantity, (D,)."""

    r_hat: Vector
    ess_bulk: Vector
    ess_tail: Vector


def convergence(draws: Matrix) -> Convergence:
    """Return the diagnostics of draws (C, n, D), n at least 8."""
    halves = _split(draws)
    normal = _rank_normalised(halves)
    folded = _rank_normalised(np.abs(halves - np.median(halves, axis=(0, 1))))
    low, high = np.quantile(halves, [0.05, 0.95], axis=(0, 1))
    tails = [effective_size((halves <= q).astype(np.float64)) for q in (low, high)]
    return Convergence(
        np.maximum(_r_hat(normal), _r_hat(folded)), effective_size(normal), np.minimum(tails[0], tails[1])
    )


def nested_r_hat(draws: Matrix, together: int) -> Vector:
    """Return R-hat between groups of `together` chains, split in halves, of draws (C, n, D): (D,).

    For many short chains, whose own means are too noisy to compare (Margossian et al. 2024, arXiv:2110.13017).  Of
    quantities without long tails, such as probabilities.
    """
    C, n, D = draws.shape
    groups = C // together
    halves = _split(draws[: groups * together])
    return _r_hat(halves.reshape(2 * groups, together * (n // 2), D))


def _split(draws: Matrix) -> Matrix:
    """Return each chain's halves as chains of their own, (2 C, n // 2, D)."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


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
    size = C * n / np.maximum(tau, 1 / np.log10(C * n))
    return np.where(total > 0, size, float(C * n))


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
# Iterations, and steps at most, of a warm-up in coordinates known to serve.
_BRIEF = ((40, 8), (15, _MOST_STEPS))
_SETTLE = 50  # iterations that find the step size for coordinates just changed


@dataclass(frozen=True, eq=False)
class State:
    """Positions x (C, D) in the adapted coordinates, log density (C,) and its gradient (C, D) there."""

    x: Matrix
    log_density: Vector
    gradient: Matrix


@dataclass(frozen=True, eq=False)
class Hamiltonian:
    """Coordinates z = centre + x W, a step size, and the most steps of a trajectory; W of None is the identity."""

    evaluate: Evaluate
    centre: Vector
    W: Matrix | None
    step: float
    most_steps: int = _MOST_STEPS

    def at(self, z: Matrix) -> State:
        """Return the state at positions z (C, D) as given."""
        away = z - self.centre
        return self._state(away if self.W is None else np.asarray(np.linalg.solve(self.W.T, away.T).T))

    def positions(self, x: Matrix) -> Matrix:
        """Return z of x."""
        return self.centre + (x if self.W is None else x @ self.W)

    def _state(self, x: Matrix) -> State:
        value, gradient = self.evaluate(self.positions(x))
        return State(x, value, gradient if self.W is None else gradient @ self.W.T)

    def move(self, state: State, rng: np.random.Generator) -> tuple[State, Vector]:
        """Return the next state, and the probability with which each chain's trajectory was taken, (C,)."""
        # Length and number of steps do not depend on where the chains are: the density stays invariant.
        length = _QUARTER * rng.uniform(1 - _JITTER, 1 + _JITTER)
        step = self.step * rng.uniform(0.9, 1.1)
        if rng.random() < _SMALL[0]:
            step, length = step / _SMALL[1], length / _SMALL[2]
        momentum = rng.standard_normal(state.x.shape)
        end, final = self._leapfrog(
            state, momentum, step, n=int(np.clip(round(length / step), 1, self.most_steps))
        )
        change = end.log_density - state.log_density
        change = change + 0.5 * (np.sum(momentum**2, axis=1) - np.sum(final**2, axis=1))
        probability = np.exp(np.minimum(np.where(np.isfinite(change), change, -np.inf), 0.0))
        accepted = rng.random(len(change)) < probability
        chosen = accepted[:, None]
        moved = State(
            np.where(chosen, end.x, state.x),
            np.where(accepted, end.log_density, state.log_density),
            np.where(chosen, end.gradient, state.gradient),
        )
        return moved, probability

    def _leapfrog(self, state: State, momentum: Matrix, step: float, n: int) -> tuple[State, Matrix]:
        p = momentum + 0.5 * step * state.gradient
        for i in range(n):
            state = self._state(state.x + step * p)
            p = p + (step if i < n - 1 else 0.5 * step) * state.gradient
        return state, p

    def run(self, state: State, n: int, rng: np.random.Generator) -> tuple[State, Matrix, Matrix, float]:
        """Return the state after n moves, positions z (C, n, D), log densities (C, n), and mean acceptance."""
        z, value, accepted = [], [], 0.0
        for _ in range(n):
            state, probability = self.move(state, rng)
            z.append(self.positions(state.x))
            value.append(state.log_density)
            accepted += float(probability.mean()) / n
        return state, np.stack(z, axis=1), np.stack(value, axis=1), accepted

    def settled(self, state: State, n: int, rng: np.random.Generator) -> tuple[Hamiltonian, State, Matrix]:
        """Return this with a step size found in n moves by dual averaging, the state then, and positions (C, n, D)."""
        target, mean, error = np.log(10 * self.step), 0.0, 0.0
        log_step, sampler, z = np.log(self.step), self, []
        for i in range(1, n + 1):
            state, probability = sampler.move(state, rng)
            z.append(self.positions(state.x))
            share = 1 / (i + 10)
            accepted = 1 / float(np.mean(1 / np.maximum(probability, _LEAST)))
            error = (1 - share) * error + share * (_ACCEPTANCE - accepted)
            log_step = target - np.sqrt(i) / 0.05 * error
            weight = i**-0.75
            mean = weight * log_step + (1 - weight) * mean
            sampler = replace(self, step=float(np.exp(np.clip(log_step, -12.0, 1.0))))
        return replace(self, step=float(np.exp(np.clip(mean, -12.0, 1.0)))), state, np.stack(z, axis=1)


def brief_warm_up(evaluate: Evaluate, start: Matrix, rng: np.random.Generator) -> tuple[Hamiltonian, State]:
    """Return a sampler whose step size alone is adapted, and its state, from draws `start` (C, D).

    Short trajectories find the step size, which takes a tenth of the work of whole ones.
    """
    D = start.shape[1]
    sampler = Hamiltonian(evaluate, np.zeros(D), None, 0.5 * D**-0.25)
    state = sampler.at(start)
    for n, most in _BRIEF:
        sampler, state, _ = replace(sampler, most_steps=most).settled(state, n, rng)
    return sampler, state


def warm_up(evaluate: Evaluate, start: Matrix, rng: np.random.Generator) -> tuple[Hamiltonian, State]:
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
        positions = sampler.positions(state.x)
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
