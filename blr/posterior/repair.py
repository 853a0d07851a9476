"""The posterior that is served: the refined one where it holds, else what chains put in its place.

The refined Gaussian mostly serves, and where it does not, the Gaussian with the exact posterior's mean and covariance
mostly does, at no cost in prediction: of activations, which are sums of many weights, it errs less than the refined
one, whose covariance is too small.  Only where that fails too are draws served.  (Mixtures of four to sixteen
Gaussians fitted to the draws were no better than one.)

An approximation is checked against probabilities of the exact posterior at a few rows, to a stated error.  First they
come by importance draws from the approximation, which cost next to nothing, where their Pareto shape lets them be
believed (`blr.trust.importance`); else by short Markov chains that start from draws of the approximation and move in
coordinates that it makes white.  Chains end when the wanted error is reached, or at a bound on their work.  The bound
counts operations, so that a run gives the same on any machine.
Shapes: P rows at which probabilities are compared, M columns, K classes, D = C M weights in the solver's coordinates,
S draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector
from blr.covariances import OutputMoments
from blr.fitting.problem import Problem
from blr.gaussian import Gaussian
from blr.posterior.ensemble import averaged, draw_probabilities
from blr.posterior.kinds import MatchedPosterior, Posterior, RefinedPosterior, SampledPosterior
from blr.posterior.sampling import (
    bridge_evidence,
    brief_warm_up,
    centred_at,
    effective_size,
    matched,
    nested_r_hat,
)
from blr.posterior.variational import refine
from blr.sums import evenly_spread
from blr.threads import single_threaded_blas
from blr.trust.importance import log_posterior, single_serves, smooth, whitened_density
from blr.trust.verdict import Finding, Trust, of_probabilities

MEAN_DIFFERENCE, LARGEST_DIFFERENCE = 0.005, 0.03
"""Bounds of the difference in probability between what is served and the exact posterior: mean and largest of rows."""
_TOO_SMALL = 0.001  # typical mean error of refined probabilities, below which nothing is checked
_ERROR = 1e-3  # wanted standard error of a probability, in the mean over rows
_NOISE = 2.0  # standard errors of a row that are allowed on top of the largest difference
_WORK = 6e7, 0.45  # operations for a hundred rows, and the power of rows by which they grow
_THINNED = 256, 512, 1024  # draws served: the fewest that hold the mean of all within the wanted error
_ROWS = 128  # training rows of which points are made, twice as many, where probabilities are compared
_BEYOND = 0.5  # how far points lie beyond a pair's ends, in units of its distance
_R_HAT = 1.05, 1.1  # of probabilities: green below the first, red from the second on
_EFFECTIVE = 100.0  # independent draws for the worst row, below which the chains have not mixed
_DRAWS = 16384  # importance draws
_BLOCK = 512  # of them evaluated at once
_FIRST = 2048  # of them that tell whether the others are worth their time
_HOPELESS = 0.3  # of the effective share that is needed, below which the first ones say that they are not
_K_HAT = 0.7
_WORTH = 2500.0  # independent draws that the weighted ones must be worth
_MANY = 5e4  # N D from which fewer chains are run: the warm-up costs as much for each
_CHAINS = 32, 16
_TOGETHER = 8  # chains whose means are compared as one
_MOVES = 32  # between two looks at what has been reached
_MOST_MOVES = 256
_MIXED = 1.03  # of a row's probability, below which chains may end
_AT_ONCE = 128  # probabilities whose diagnostics are computed together
_STILL = 1e-3  # sd of a probability below which its row says nothing of the chains
_GRADIENTS = 1600
_OVERHEAD = 2500.0  # operations that a gradient costs whatever its size


@dataclass(frozen=True, eq=False)
class Served:
    """The posterior to be served, and how it was arrived at.

    `way`: "unchanged" (refined probabilities typically err too little to look), "confirmed" (the refined posterior
    holds), "matched" (the Gaussian with the exact posterior's moments), "sampled" (draws), "nearest" (neither holds:
    the one of the two that errs less), "unchecked" (a check would take more work than was allowed: the refined one) or
    "failed" (chains did not mix: the refined one, red).
    `reason` says it in words.  `mean_difference` and `largest_difference`: of the refined probabilities
    from the exact ones over rows, NaN where unchecked.  `left` (P, K): the probabilities that are served less the exact
    ones, at the rows of the check, and `left_error` (P,) its standard error; None where unchecked.  `chains`: the exact
    posterior's draws, for `bridge_evidence`; None where no chains were run.
    """

    posterior: Posterior
    way: str
    reason: str
    mean_difference: float = float("nan")
    largest_difference: float = float("nan")
    chains: SampledPosterior | None = None
    importance: tuple[float, float] | None = None
    refined: Gaussian | None = None
    left: Matrix | None = None
    left_error: Vector | None = None

    @cached_property
    def evidence(self) -> tuple[float, float] | None:
        """Ln p(D) and its standard error, nats, by bridge or importance sampling; None where nothing was sampled."""
        if self.chains is None:
            return self.importance
        return bridge_evidence(self.chains, near=self.refined)


def served(
    q: Posterior,
    refined: RefinedPosterior | None = None,
    *,
    rng: np.random.Generator | None = None,
    rows: ArrayLike | None = None,
    work: float | None = None,
    error: float = _ERROR,
    draws: bool = True,
) -> Served:
    """Return the posterior to predict with: the refined one, which is checked, and replaced if it fails.

    Parameters
    ----------
    refined
        `refine(q)`; made where it is not given.
    rng
        Source of randomness; default: seed 0.
    rows
        Design rows (P, M) at which probabilities are to hold, such as a few hundred of the target; default: points
        on the lines through pairs of training rows, and random sums of them.
    work
        Bound on the chains' operations (7 to 25 ns each); default: 6e7 for 100 rows, 1.7e8 for 1,000, and that of
        1,600 gradients at least: 1.5e9 for 6,000 rows, five classes and 90 functions.  Chains that have not mixed by
        then take up to twice as many.  Where 1,600 gradients are more than the bound, no chains are run;
        where a stated bound is below the work of 16,384 importance draws, there are no draws either.
    error
        Standard error of a probability, in the mean over the rows, at which chains may end.
    draws
        Whether draws may be served where no Gaussian holds: they cost some ten times as much in every row.  Otherwise
        the Gaussian that errs less is, and `left` says by how much.

    Raises
    ------
    ValueError
        If there is no prior, or `rows` have another number of columns than the model.
    RuntimeError
        If `q` was loaded from a file: it has no data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> q = blr.fit_evidence(np.column_stack([np.ones(200), X]), t)
    >>> blr.served(q).posterior.kind
    'refined'
    """
    laplace = q.fitted
    refined = refine(laplace) if refined is None else refined
    rng = np.random.default_rng(0) if rng is None else rng
    problem, start = laplace.problem, refined.gaussian
    n_rows, training = evenly_spread(problem.require_data(), _ROWS)
    points = _around(training[:_ROWS], rng) if rows is None else problem.design(rows)
    if refined.converged and float(refined.typical_error(points).mean()) < _TOO_SMALL:
        return Served(refined, "unchanged", "refined probabilities typically err by less than 0.001 here")
    bound = work
    if bound is None:
        by_rows = _WORK[0] * max(1.0, n_rows / 100.0) ** _WORK[1]
        bound = max(by_rows, least_work(problem, len(start.mean), n_rows))
    with single_threaded_blas():
        affordable = work is None or importance_work(problem, n_rows) <= work
        exact = by_importance(problem, start, points, rng) if affordable else None
        repaired = None if exact is None else _gaussian(refined, points, exact, always=not draws)
        if repaired is None and bound < least_work(problem, len(start.mean), n_rows):
            reason = "to compare the refined posterior with the exact one would take too long"
            return Served(refined, "unchecked", reason)
        if repaired is None:
            exact = by_chains(problem, start, points, n_rows, rng, error=error, work=bound, enough=_EFFECTIVE)
            if exact is None or not _mixed(exact):
                return _failed(refined, exact)
            repaired = _gaussian(refined, points, exact, always=not draws)
            repaired = repaired or _sampled(refined, points, exact)
    return repaired


def _around(rows: Matrix, rng: np.random.Generator) -> Matrix:
    """Return points such as new rows may be, of rows (n, M): n on lines through pairs of them, n random sums of all.

    The sums have the rows' mean and covariance.  Of the rows themselves more is known than of new ones: each was
    trained on, which makes its activation's distribution one-sided.
    """
    n = len(rows)
    first, second = rng.integers(0, n, (2, n))
    share = rng.uniform(-_BEYOND, 1 + _BEYOND, (n, 1))
    centre = rows.mean(axis=0)
    sums = centre + rng.standard_normal((n, n)) @ (rows - centre) / np.sqrt(n)
    return np.concatenate([share * rows[first] + (1 - share) * rows[second], sums])


def _mixed(exact: Exact) -> bool:
    return exact.r_hat < _R_HAT[1] and exact.effective > _EFFECTIVE


def _differences(p: Matrix, exact: Exact) -> tuple[float, float, bool]:
    """Return mean and largest difference over rows of probabilities (P, K), and whether they are within the bounds."""
    d = np.abs(p - exact.probability).max(axis=1)
    beyond = d - _NOISE * exact.error.max(axis=1)
    mean = float(d.mean())
    return mean, float(d.max()), mean <= MEAN_DIFFERENCE and float(beyond.max()) <= LARGEST_DIFFERENCE


def _gaussian(refined: RefinedPosterior, points: Matrix, exact: Exact, *, always: bool) -> Served | None:
    """Return what is served if a Gaussian holds: the refined one, else that of the exact moments.

    Where neither holds, None; or, `always`, the one that errs less.
    """
    p = refined.prediction(points).probability
    found = _differences(p, exact)
    mean, largest, holds = found
    source = "chains" if exact.weight is None else "importance draws"
    if holds:
        reason = (
            f"{source} confirm the refined posterior: its probabilities differ by {mean:.4f} on average, at most by "
            f"{largest:.3f}"
        )
        return _served(_judged(refined, exact, reason, p), "confirmed", p, refined, exact, found[:2])
    moments = _moments(refined, exact)
    outputs = OutputMoments(moments, refined.problem.likelihood.n_outputs)
    p_matched = refined.output_probability(*outputs(points))
    mean_left, largest_left, holds = _differences(p_matched, exact)
    if not (holds or always):
        return None
    if not holds and mean <= mean_left:
        reason = (
            f"no Gaussian describes this posterior; the refined one errs least: its probabilities differ by at most "
            f"{largest:.3f}, {mean:.4f} on average"
        )
        return _served(_judged(refined, exact, reason, p), "nearest", p, refined, exact, found[:2])
    reason = (
        f"the refined posterior's probabilities are wrong by up to {largest:.3f}; the Gaussian with the mean "
        f"and covariance of {source} is used: its probabilities differ by at most {largest_left:.3f}, "
        f"{mean_left:.4f} on average"
    )
    ended = {"converged": refined.converged, "n_iter": refined.n_iter, "status": refined.status}
    posterior = MatchedPosterior.of(
        refined.laplace, moments, verdict=_trust(exact, reason, p_matched), **ended
    )
    way = "matched" if holds else "nearest"
    return _served(posterior, way, p_matched, refined, exact, found[:2])


def _judged(refined: RefinedPosterior, exact: Exact, reason: str, p: Matrix) -> RefinedPosterior:
    """Return the refined posterior with the verdict on its probabilities p (P, K)."""
    return replace(refined, verdict=_trust(exact, reason, p))


def _sampled(refined: RefinedPosterior, points: Matrix, exact: Exact) -> Served:
    """Return the fewest draws that give the probabilities of all of them."""
    mean, largest, _ = _differences(refined.prediction(points).probability, exact)
    for n in _THINNED:
        draws, p = _thinned(refined.problem, points, exact, n)
        thinned = float(np.abs(p - exact.probability).max(axis=1).mean())
        if thinned <= _ERROR:
            break
    error = float(exact.error.max(axis=1).mean())
    reason = (
        "no Gaussian describes this posterior (the refined one's probabilities are wrong by up to "
        f"{largest:.3f}): {len(draws)} draws from Markov chains are used, whose probabilities have a "
        f"standard error of {np.hypot(thinned, error):.4f} on average"
    )
    posterior = _with_draws(refined, exact, draws, _trust(exact, reason, p))
    return _served(posterior, "sampled", p, refined, exact, (mean, largest))


def _with_draws(refined: RefinedPosterior, exact: Exact, draws: Matrix, verdict: Trust) -> SampledPosterior:
    ended = {"converged": refined.converged, "n_iter": refined.n_iter, "status": refined.status}
    moments = _moments(refined, exact)
    return SampledPosterior.of(refined.laplace, moments, draws=draws, verdict=verdict, **ended)


def _thinned(problem: Problem, points: Matrix, exact: Exact, n: int) -> tuple[Matrix, Matrix]:
    """Return about n of the draws, and their probabilities (P, K) at the points.

    They are moved to the mean of all, or to their covariance too, whichever errs less: the latter is a linear map,
    which mixes weights of skewed distributions, and of few draws a weight makes the error twice as large.
    """
    some = exact.draws[np.unique(np.linspace(0, len(exact.draws) - 1, n).round().astype(int))]
    choices = (centred_at(some, exact.mean), matched(some, exact.mean, exact.covariance))
    found = [averaged(problem, points, d)[0].probability for d in choices]
    best = int(np.argmin([np.abs(p - exact.probability).max(axis=1).mean() for p in found]))
    return choices[best], found[best]


def _moments(refined: RefinedPosterior, exact: Exact) -> Gaussian:
    """Return the Gaussian with the exact posterior's moments; few draws leave some of the refined covariance."""
    S, D = len(exact.draws) if exact.weight is None else exact.effective, len(exact.mean)
    share = S / (S + D)
    covariance = share * exact.covariance + (1 - share) * refined.gaussian.covariance
    return Gaussian(
        exact.mean, Gaussian(exact.mean, covariance).covariance
    )  # the inverse, whatever the scales


def _served(
    posterior: Posterior,
    way: str,
    p: Matrix,
    refined: RefinedPosterior,
    exact: Exact,
    difference: tuple[float, float],
) -> Served:
    """Return what is served in one of the ways, with its probabilities p (P, K) at the rows of the check."""
    (reason,) = posterior.trust.reasons[:1]
    chains = None if exact.weight is not None else _with_draws(refined, exact, exact.draws, posterior.trust)
    return Served(
        posterior,
        way,
        reason,
        *difference,
        chains=chains,
        importance=exact.log_evidence,
        refined=refined.gaussian,
        left=p - exact.probability,
        left_error=exact.error.max(axis=1),
    )


def _trust(exact: Exact, reason: str, p: Matrix) -> Trust:
    """Return the verdict of what is served, with probabilities p (P, K): green, or amber where chains are short."""
    off = np.hypot(np.abs(p - exact.probability), exact.error).max(axis=1)
    numbers = {"mean_error": float(off.mean()), "largest_error": float(off.max())}
    findings: list[Finding] = [
        ("green", reason),
        of_probabilities(numbers, "sample the posterior (blr.sample_posterior)"),
    ]
    if not exact.r_hat < _R_HAT[0]:
        findings.append(
            ("amber", f"the chains disagree a little (R-hat {exact.r_hat:.3f}, above {_R_HAT[0]})")
        )
    ordered = Trust.of(findings, _numbers(exact) | numbers)
    return replace(ordered, reasons=(reason, *(r for r in ordered.reasons if r != reason)))


def _numbers(exact: Exact) -> dict[str, float]:
    return {
        "r_hat": exact.r_hat,
        "effective_draws": exact.effective,
        "draws": float(len(exact.draws)),
        "standard_error": float(exact.error.max(axis=1).mean()),
    }


def _failed(refined: RefinedPosterior, exact: Exact | None) -> Served:
    """Return the refined posterior, its verdict red: chains were run, and do not say how wrong it is."""
    reason = "Markov chains that should check the refined posterior would take too long"
    if exact is not None:
        reason = (
            "Markov chains that should check the refined posterior did not mix "
            f"(R-hat {exact.r_hat:.3f}, {exact.effective:.0f} independent draws)"
        )
    trust = Trust.of([("red", reason)], {})
    return Served(replace(refined, verdict=trust), "failed", reason)


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
    if smooth(log_ratio)[2] < _HOPELESS * _WORTH / _DRAWS:
        return None
    others, log_ratio_of_others = drawn(_DRAWS - _FIRST)
    draws, log_ratio = np.concatenate([draws, others]), np.concatenate([log_ratio, log_ratio_of_others])
    w, k_hat, effective = smooth(log_ratio)
    size, top = effective * _DRAWS, log_ratio.max()
    if not (k_hat < _K_HAT and size > _WORTH):
        return None
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
            if float(exact.error.mean()) < error and exact.r_hat < _MIXED:
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
