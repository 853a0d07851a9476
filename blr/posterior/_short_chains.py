"""Probabilities of the exact posterior at a few rows, to a stated error: the check of an approximation.

First by importance draws from the approximation, which cost next to nothing, where their Pareto shape lets them be
believed (`importance`); else by short Markov chains that start from draws of the approximation and move in coordinates
that it makes white (`_hamiltonian`).  Chains end when the wanted error is reached, or at a bound on their work.  The
bound counts operations, so that a run gives the same on any machine.
Shapes: P rows at which probabilities are compared, K classes, D = C M weights in the solver's coordinates, S draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blr.arrays import Matrix, Vector
from blr.fitting.problem import Problem
from blr.gaussian import Gaussian
from blr.posterior._hamiltonian import brief_warm_up, effective_size, nested_r_hat
from blr.posterior.ensemble import draw_probabilities
from blr.trust.importance import smooth
from blr.trust.whitened import log_posterior, single_serves, whitened_density

_DRAWS = 16384  # importance draws
_BLOCK = 512  # of them evaluated at once
_FIRST = 2048  # of them that tell whether the others are worth their time
_HOPELESS = 0.3  # of the effective share that is needed, below which the first ones say that they are not
_K_HAT = 0.7
_EFFECTIVE = 2500.0  # independent draws that the weighted ones must be worth
_MANY = 5e4  # N D from which fewer chains are run: the warm-up costs as much for each
_CHAINS = 32, 16
_TOGETHER = 8  # chains whose means are compared as one
_MOVES = 32  # between two looks at what has been reached
_MOST_MOVES = 256
_R_HAT = 1.03  # of a row's probability, below which chains may end
_AT_ONCE = 128  # probabilities whose diagnostics are computed together
_STILL = 1e-3  # sd of a probability below which its row says nothing of the chains
_GRADIENTS = 1600
_OVERHEAD = 2500.0  # operations that a gradient costs whatever its size


@dataclass(frozen=True, eq=False)
class Exact:
    """What is known of the exact posterior: probabilities (P, K) at the rows, their standard errors, and moments.

    `draws` (S, D) lie chain behind chain; importance draws have a share `weight` (S,) each.  `r_hat` and `effective`
    are the worst of all rows; of importance draws R-hat is 1.  `log_evidence` and its error: of importance draws.
    """

    probability: Matrix
    error: Matrix
    mean: Vector
    covariance: Matrix
    draws: Matrix
    r_hat: float
    effective: float
    weight: Vector | None = None
    log_evidence: tuple[float, float] | None = None


def _operations(problem: Problem, n_rows: int) -> float:
    """Return the operations that one chain's gradient costs."""
    outputs = 1 if problem.binary else problem.n_classes
    return n_rows * outputs * (1.0 + problem.n_functions / 100.0)


def _chains(n_rows: int, n_weights: int) -> int:
    return _CHAINS[n_rows * n_weights > _MANY]


def least_work(problem: Problem, n_weights: int, n_rows: int) -> float:
    """Return the operations of 1,600 gradients of all chains: a warm-up takes some 500, a first look as many again.

    Less than these could not check D = `n_weights` weights on n_rows rows, however many these are.
    """
    return _GRADIENTS * (_OVERHEAD + _chains(n_rows, n_weights) * _operations(problem, n_rows))


class _Counted:
    """The log posterior and its gradient in whitened coordinates, and the operations spent on them.

    In single precision, where that serves at the places `start` (C, D) where chains begin.
    """

    def __init__(self, problem: Problem, white: Gaussian, n_rows: int, start: Matrix) -> None:
        theta = white.mean + start @ white.inverse_cholesky
        self._density = whitened_density(problem, white, single=single_serves(problem, theta))
        self._each = _operations(problem, n_rows)
        self.spent = 0.0

    def __call__(self, z: Matrix) -> tuple[Vector, Matrix]:
        self.spent += _OVERHEAD + len(z) * self._each
        return self._density(z)


def importance_work(problem: Problem, n_rows: int) -> float:
    """Return the operations of all importance draws, each of which costs what a gradient does."""
    return _DRAWS * _operations(problem, n_rows)


def by_importance(problem: Problem, start: Gaussian, rows: Matrix, rng: np.random.Generator) -> Exact | None:
    """Return what importance draws from `start` tell of rows (P, M); None where they are not to be believed."""
    D = len(start.mean)
    constant = 0.5 * (start.log_det_precision - D * np.log(2 * np.pi))

    def drawn(n: int) -> tuple[Matrix, Vector]:
        z = rng.standard_normal((n, D))
        draws = start.mean + z @ start.inverse_cholesky
        single = single_serves(problem, draws)
        blocks = np.array_split(draws, max(1, n // _BLOCK))
        log_joint = np.concatenate([log_posterior(problem, x, single=single) for x in blocks])
        return draws, np.asarray(log_joint + 0.5 * np.einsum("sd,sd->s", z, z) - constant)

    draws, log_ratio = drawn(_FIRST)
    if smooth(log_ratio).effective < _HOPELESS * _EFFECTIVE / _DRAWS:
        return None
    others, log_ratio_of_others = drawn(_DRAWS - _FIRST)
    draws, log_ratio = np.concatenate([draws, others]), np.concatenate([log_ratio, log_ratio_of_others])
    smoothed = smooth(log_ratio)
    size = smoothed.effective * _DRAWS
    if not (smoothed.k_hat < _K_HAT and size > _EFFECTIVE):
        return None
    w, top = smoothed.weight, log_ratio.max()
    p = _probabilities(problem, rows, draws)
    mean = p @ w
    error = np.sqrt(np.einsum("kps,s->kp", (p - mean[:, :, None]) ** 2, w**2))
    centre = w @ draws
    away = draws - centre
    evidence = float(top + np.log(np.mean(np.exp(log_ratio - top)))), float(np.sqrt(1 / size - 1 / _DRAWS))
    return Exact(mean.T, error.T, centre, (away.T * w) @ away, draws, 1.0, size, w, evidence)


def by_chains(
    problem: Problem,
    start: Gaussian,
    rows: Matrix,
    n_rows: int,
    rng: np.random.Generator,
    *,
    error: float,
    work: float,
    enough: float = 0.0,
) -> Exact | None:
    """Return what chains from `start` tell of rows (P, M).

    They end when the standard error of a probability is below `error` in the mean over the rows, or `work` operations
    (7 to 25 ns each) are spent, the data having n_rows rows; or twice these, while the worst row has fewer independent
    draws than `enough`.  None if they do not suffice for a first look.
    """
    D = len(start.mean)
    first = rng.standard_normal((_chains(n_rows, D), D))
    density = _Counted(problem, start, n_rows, first)
    sampler, state = brief_warm_up(density, first, rng)
    blocks: list[tuple[Matrix, Matrix]] = []
    warm, looks = density.spent, 1
    while len(blocks) * _MOVES < _MOST_MOVES:
        needed = density.spent + (density.spent - warm) / max(len(blocks), 1)
        if needed > work and (needed > 2 * work or not blocks or _of_chains(blocks).effective > enough):
            break
        state, z, _, _ = sampler.run(state, _MOVES, rng)
        draws = start.mean + z @ start.inverse_cholesky
        p = _probabilities(problem, rows, draws.reshape(-1, D))
        blocks.append((draws, p.reshape(*p.shape[:2], *draws.shape[:2])))
        if len(blocks) >= looks:
            looks *= 2
            exact = _of_chains(blocks)
            if float(exact.error.mean()) < error and exact.r_hat < _R_HAT:
                return exact
    return _of_chains(blocks) if blocks else None


def _of_chains(blocks: list[tuple[Matrix, Matrix]]) -> Exact:
    """Return what blocks of draws (C, n, D) and their rows' probabilities (K, P, C, n) tell."""
    draws = np.concatenate([z for z, _ in blocks], axis=1)
    p = np.concatenate([part for _, part in blocks], axis=3)
    (C, n, D), (K, P) = draws.shape, p.shape[:2]
    mean, square = p.mean(axis=(2, 3)), np.einsum("kpcn,kpcn->kp", p, p) / (C * n)
    spread = np.sqrt(np.maximum(square - mean**2, 0.0))
    size, r_hat = _diagnosed(p[1:].reshape(-1, C, n))
    size, moving = np.maximum(size, 1.0), spread[1:].ravel() > _STILL
    flat = draws.reshape(-1, D)
    return Exact(
        mean.T,
        spread.T / np.sqrt(size.reshape(K - 1, P).min(axis=0))[:, None],
        flat.mean(axis=0),
        np.cov(flat.T).reshape(D, D),
        flat,
        float(r_hat[moving].max(initial=1.0)),
        float(size[moving].min(initial=C * n)),
    )


def _diagnosed(p: Matrix) -> tuple[Vector, Vector]:
    """Return effective size and R-hat of probabilities (Q, C, n), (Q,) each: some at a time, in the cache."""
    found = []
    for start in range(0, len(p), _AT_ONCE):
        # Contiguous: passes along a chain would else jump through memory.
        by_chain = np.ascontiguousarray(p[start : start + _AT_ONCE].transpose(1, 2, 0))
        found.append((effective_size(by_chain), nested_r_hat(by_chain, _TOGETHER)))
    sizes, r_hats = zip(*found, strict=True)
    return np.concatenate(sizes), np.concatenate(r_hats)


def _probabilities(problem: Problem, rows: Matrix, draws: Matrix) -> Matrix:
    """Return the probabilities (K, P, S) at each of the draws."""
    return np.concatenate([p for _, p in draw_probabilities(problem, rows, draws)], axis=1)
