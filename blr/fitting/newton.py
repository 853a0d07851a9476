"""The search for the mode of the log posterior, under a Gaussian prior of any mean: Newton's method, steps on batches.

Newton's method (IRLS; PRML 4.3.3) solves (ΦᵀRΦ + S0⁻¹) Δw = Φᵀ(t - y) - S0⁻¹(w - m0): the step form, since R⁻¹ of the
textbook's working response overflows.  The search stops on the Newton decrement, the distance to the mode in posterior
standard deviations, which, unlike |Δw|, does not depend on the features' scales.  The result states how the search
ended; no exception is raised.

Streams that cannot be read twice have Robbins-Monro steps on mini-batches (PRML 3.1.3, 4.3.2), each preconditioned by
the curvature seen so far, and the average of the iterates (Polyak and Juditsky 1992, doi:10.1137/0330046): the average
is as good as the exact mode to the order of its own uncertainty.  The prior's gradient counts with its share of each
batch, batch/N, N the rows so far.

Two things keep a fit from having a mode.  Where a linear function of the columns tells the classes apart, the
likelihood has no maximum (Albert and Anderson 1984, doi:10.1093/biomet/71.1.1): only the prior keeps the weights
finite, and no Gaussian describes their posterior.  Both answers come with a proof.  *No*: probabilities y strictly
inside the simplex with Σ (t - y) φ = 0, which a Newton step towards the maximum usually supplies.  *Yes*: weights W
that give every row's own class an activation no lower than any other's, found by linear programming on the rows nearest
to being wrong, to which those that its answer gets wrong are added until none is left.

Collinear are columns that are linear combinations of the others.  They are found from the Gram matrix of the columns,
scaled to unit length, by a Cholesky factorisation with pivots: a pivot is the square of the sine of the angle between a
column and the span of those before it.  Shapes: M columns, K classes, W (K, M).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import scipy  # its modules load when used
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from blr.arrays import Matrix, Vector
from blr.covariances import class_covariances
from blr.gaussian import Gaussian, cholesky_of_precision
from blr.likelihood.likelihoods import Bernoulli, Categorical, Likelihood
from blr.sums import Chunk, ChunkFunction, Data, Terms, activations, blockwise, likelihood_terms
from blr.threads import single_threaded_blas

_MAX_HALVINGS = 40
# Steps that did not halve the decrement: huge weights beside a broad prior round the gradient coarsely.
_IDLE = 5
_ROUNDING = 64 * np.finfo(float).eps
_DECAY = 0.7  # of the step, between 1/2 and 1 as averaging wants
_FADING = 0.6  # of the curvature's memory
_RECENCY = 2.0  # weight of the iterates in the average grows as the step's number to this less one
_BATCHES = 150  # from which the average lies within a posterior sd a weight: of 55 batches it did in half of the cases
_RIDGE = 1.0  # relative, on the first batches' curvature, which need not have full rank
_BATCH = 128


@dataclass(frozen=True, eq=False)
class Mode:
    """Where the search ended: θ (D,), ln p(D|θ), its gradient and Hessian there, and how it went."""

    theta: Vector
    log_likelihood: float
    gradient: Vector
    hessian: Matrix
    converged: bool
    n_iter: int
    status: str


def newton_step(gradient: Vector, A: Matrix) -> tuple[Vector, float]:
    """Return A⁻¹ g and the decrement sqrt(gᵀA⁻¹g); an indefinite A is shifted until it descends."""
    shift = 0.0
    while True:
        try:
            L, _ = cholesky_of_precision(A + np.diag(shift * np.diag(A).clip(min=1e-300)) if shift else A)
            break
        except np.linalg.LinAlgError:
            if shift > 1e6:
                raise
            d = np.diag(A)  # a negative one changes its sign: no scale but its own is known
            A = A + np.diag(np.where(d < 0, -2 * d, np.where(d == 0, 1.0, 0.0)))
            shift = max(1e-3, 10 * shift)
    z = scipy.linalg.solve_triangular(L, gradient, lower=True, check_finite=False)
    step: Vector = scipy.linalg.solve_triangular(L, z, lower=True, trans=1, check_finite=False)
    return step, float(np.sqrt(z @ z))


def maximise(
    evaluate: Callable[[Vector], Terms],
    prior: Gaussian,
    start: Vector,
    *,
    evaluated: Terms | None = None,
    tolerance: float = 1e-9,
    max_iter: int = 100,
    close: float = 0.0,
) -> Mode:
    """Return the mode of ln p(D|θ) - energy(θ), from `start`.

    `evaluate` gives the value, the gradient (D,) and the Hessian (D, D) of -ln p(D|θ); `evaluated` is what it
    gave at `start`, where that is known.  Converged is a decrement below
    `tolerance`, evaluated where the search ended, or rounding's floor.  From a decrement below `close`, the last step
    is taken without another pass: value and gradient are then those of the quadratic model, the Hessian is kept.
    """
    theta = np.array(start, dtype=np.float64)
    value, gradient, hessian = evaluate(theta) if evaluated is None else evaluated
    n_iter, status, previous, idle = 1, "iterations exhausted", np.inf, 0
    while True:
        g = gradient - prior.precision @ (theta - prior.mean)
        step, decrement = newton_step(g, hessian + prior.precision)
        objective = value - prior.energy(theta)
        # Near the mode each decrement is about the square of the last; a small one that stops falling is rounding
        # error.
        idle = idle + 1 if decrement > 0.5 * previous else 0
        stalled = idle > 0 and decrement < (1e-6 if idle < _IDLE else 1e-4)
        near = tolerance <= decrement < close and not stalled
        if near:
            value += float(gradient @ step - 0.5 * step @ (hessian @ step))  # as the quadratic model says
            gradient = gradient - hessian @ step
            theta, n_iter = theta + step, n_iter + 1
        if near or decrement < tolerance or stalled:
            return Mode(theta, value, gradient, hessian, True, n_iter, "converged")  # noqa: FBT003
        if n_iter >= max_iter:
            break
        accepted = _search(evaluate, prior, theta, step, objective, float(g @ step))
        if accepted is None:
            status = "no step increases the posterior"
            break
        theta, (value, gradient, hessian) = accepted
        previous, n_iter = decrement, n_iter + 1
    return Mode(theta, value, gradient, hessian, decrement < 1e-6, n_iter, status)


def _search(
    evaluate: Callable[[Vector], Terms],
    prior: Gaussian,
    theta: Vector,
    step: Vector,
    objective: float,
    slope: float,
) -> tuple[Vector, Terms] | None:
    """Halve the step until the objective increases enough (Armijo), within rounding."""
    length = 1.0
    for _ in range(_MAX_HALVINGS):
        trial = theta + length * step
        terms = evaluate(trial)
        gain = terms[0] - prior.energy(trial) - objective
        if gain >= 1e-4 * length * slope - _ROUNDING * abs(objective):  # NaN compares false: halve on
            return trial, terms
        length *= 0.5
    return None


def ascend(chunks: Iterator[Chunk], likelihood: Likelihood, prior: Gaussian) -> tuple[Mode, float]:
    """Return the averaged iterate after one pass over the chunks, the curvature met on the way, and the weight seen.

    The log likelihood is that of each batch under the weights before it was learnt from: a predictive one, below that
    at the mode.  `converged` says that the stream was long enough for averaging, 150 batches and 100 rows a weight: the
    result then lies about half a posterior sd from the mode, root mean square a weight (0.9 at most in 36 problems).
    """
    batches = (
        (Phi[i : i + _BATCH], t[i : i + _BATCH], None if weight is None else weight[i : i + _BATCH])
        for Phi, t, weight in chunks
        for i in range(0, len(Phi), _BATCH)
    )
    D = len(prior.mean)
    theta, curvature, average = prior.mean.copy(), np.zeros((D, D)), prior.mean
    seen = log_likelihood = 0.0
    step = 0
    with single_threaded_blas():
        for batch in batches:
            n = float(len(batch[0]) if batch[2] is None else batch[2].sum())
            if n == 0:
                continue  # Rows of weight zero are left out.
            value, gradient, hessian = likelihood_terms(likelihood, theta)(*batch)
            step += 1
            seen += n
            log_likelihood += value
            # The curvature at the start is not that at the mode: older batches fade at the pace at which steps shrink.
            curvature = curvature + step**-_FADING * (hessian / n - curvature)
            g = gradient / n - prior.precision @ (theta - prior.mean) / seen
            scale = curvature + prior.precision / seen
            direction, _ = newton_step(g, scale + _RIDGE / step * np.diag(np.diag(scale).clip(min=1e-300)))
            # No step moves the activations by more than a few units at once.
            length = max(1.0, float(np.sqrt(direction @ scale @ direction)))
            theta = theta + step**-_DECAY * (direction / length)
            # Later iterates count for more, so that the start is forgotten without a burn-in to choose.
            share = min(1.0, _RECENCY / (step + _RECENCY - 1))
            average = theta if step == 1 else average + share * (theta - average)
    if not step:
        raise ValueError("the stream is empty; give at least one chunk (Phi, t, weight)")
    enough = seen >= 100 * D and step >= _BATCHES
    status = "one pass, averaged iterate" if enough else f"only {seen:.0f} rows for {D} weights"
    return Mode(average, log_likelihood, np.zeros(D), seen * curvature, enough, step, status), seen


_TOLERANCE = 1e-7  # of margins, for columns scaled to one: that of the linear program
_NEWTON_PASSES = 20
_LARGEST_SEARCH = 2e9  # operations of these passes: a second, so that a verdict costs no more than its fit
_ROUNDS = 8
_METHODS: tuple[Literal["highs", "highs-ipm"], ...] = ("highs", "highs-ipm")
_MOST_STEPS = 4  # of a method, for each row and column: where the simplex method ends, it takes some two
# Entries of its matrix: a second of work, so that a verdict costs no more than its fit.
_LARGEST_PROGRAM = 300_000
_LARGEST_WIDEST = 30_000
_INSIDE = 1e-6  # how far within the simplex y has to be
_SLACK = 1e-6  # of a mode that was searched for, in posterior sd
_SUM_ROUNDING = 1e-15
_MENDING = 0.1  # of the distance to the simplex's border
Program = Callable[[Matrix], Vector | None]
"""Weights w that a matrix A of constraints allows; None where zero is the only one."""
_PIVOT = 1e-12  # Below this, rounding errors of the Gram matrix decide.
_TAKES_PART = 1e-4  # of a unit column, in the combination that makes up another

Separation = tuple[str, tuple[tuple[int, int], ...], tuple[int, ...]]
"""What was found: "none", "quasi" (some rows only), "complete", or "unknown" where it was too much to tell.

Then come the classes (j, k) of which rows are separated without an error, and the columns that do it, the weightiest
first.
"""


def find_separation(
    data: Data,
    n_classes: int,
    n_functions: int,
    start: tuple[Vector, Vector, Matrix] | None = None,
    *,
    one_hot: bool = False,
) -> Separation:
    """Return whether the rows' classes are separable.

    `one_hot`: two classes whose targets are (N, 2), as a softmax has them; more classes always have one column each.
    `start`: weights (C M,) of the logistic model, or of the softmax in contrasts, and the likelihood's gradient and
    Hessian there, where a fit has left them.  Whatever the link of the fit, separation is the data's.
    """
    likelihood: Likelihood = Categorical(n_classes) if n_classes > 2 or one_hot else Bernoulli()
    D = likelihood.n_outputs * n_functions
    flat = Gaussian(np.zeros(D), np.zeros((D, D)))
    if start is not None and _overlaps(data, likelihood, *start, slack=_SLACK):
        return "none", (), ()
    theta = np.zeros(D) if start is None else start[0]
    n = data.accumulate(lambda Phi, _t, _weight: (len(Phi),))[0]
    if _NEWTON_PASSES * (n * D**2 + D**3) > _LARGEST_SEARCH:
        return "unknown", (), ()
    # Without a prior, a direction that changes no activation is undetermined.
    with suppress(np.linalg.LinAlgError):
        mode = maximise(
            lambda at: data.accumulate(likelihood_terms(likelihood, at)), flat, theta, max_iter=_NEWTON_PASSES
        )
        theta = mode.theta
        if _overlaps(data, likelihood, theta, mode.gradient, mode.hessian):
            return "none", (), ()
    return _by_program(data, likelihood, theta, n_classes, n_functions)


def _overlaps(
    data: Data,
    likelihood: Likelihood,
    theta: Vector,
    gradient: Vector,
    hessian: Matrix,
    *,
    slack: float = 0.0,
) -> bool:
    """Whether the Newton step gives y inside the simplex with Σ (t - y) φ = 0, which no separable data allow.

    What the sum may lack, by rounding and by `slack` posterior sd, must be mended by steps that keep y inside.
    """
    try:
        L, _ = cholesky_of_precision(hessian)
    except np.linalg.LinAlgError:
        return False  # a Hessian told by A - S0⁻¹ is rounding where the prior outweighs the data by far
    U = solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
    step = U.T @ (U @ gradient)
    outside, widest, size = data.accumulate(_outside(likelihood, theta, step, U))
    lacking = np.abs(gradient - hessian @ step) + _SUM_ROUNDING * np.tile(size, likelihood.n_outputs)
    mending = np.sqrt(2 * max(widest)) * (float(np.linalg.norm(np.abs(U) @ lacking)) + slack)
    return int(outside) == 0 and bool(mending < _MENDING)


def _outside(likelihood: Likelihood, theta: Vector, step: Vector, U: Matrix) -> ChunkFunction:
    """Return how many rows leave the simplex, each block's largest variance of an activation, and Σ |φ| (M,)."""
    C = likelihood.n_outputs
    covariances = class_covariances(U, C)

    def terms(Phi: Matrix, _t: Matrix, weight: Vector | None) -> Terms:
        X = Phi if weight is None else Phi[weight > 0]
        a = class_activations(likelihood, activations(X, theta, C))
        y = np.exp(a - a.max(axis=1, keepdims=True))
        y /= y.sum(axis=1, keepdims=True)
        d = class_activations(likelihood, activations(X, step, C))
        relative = 1 + d - np.einsum("nk,nk->n", y, d)[:, None]  # y + R d, as a multiple of y
        variance = np.einsum("ncc->n", covariances(X))
        return int(np.count_nonzero(relative < _INSIDE)), [variance.max(initial=0.0)], np.abs(X).sum(axis=0)

    return blockwise(terms, C * len(theta) + 4 * (C + 2))


def class_activations(likelihood: Likelihood, a: Matrix) -> Matrix:
    """Return the activations of all classes (n, K): for two, those of half the logit either way."""
    if isinstance(likelihood, Categorical):
        return a @ likelihood.transform.T
    return a * np.array([-0.5, 0.5])


def _by_program(data: Data, likelihood: Likelihood, theta: Vector, K: int, M: int) -> Separation:
    (parts,) = data.accumulate(lambda Phi, _t, _w: ([np.abs(Phi).max(axis=0)],))
    largest = np.max(parts, axis=0)
    scale = np.where(largest > 0, largest, 1.0)
    limit = min(4 * (K - 1) * M + 100, _LARGEST_PROGRAM // ((K - 1) * M))
    start = class_activations(likelihood, theta.reshape(likelihood.n_outputs, -1).T).T * scale
    start /= max(float(np.abs(start).max()), 1e-300)
    A, least = _worst(data, start, scale, limit, above=np.inf)
    if least > 100 * _TOLERANCE:
        return _described(data, start, scale)

    def margins(*chunk: Any) -> Terms:
        X, share, _ = _margins(np.zeros((K, M)), scale, *chunk)
        alone = share & (share.sum(axis=1) == 1)[:, None]
        sign = K * alone.astype(float) - alone.sum(axis=1, keepdims=True)
        return ((sign.T @ X)[1:].ravel(),)

    # All rows' margins as a function of w, ((K - 1) M,).
    (total,) = data.accumulate(blockwise(margins, 4 * K))
    cost = -total / max(float(np.abs(total).max()), 1e-300)

    def steepest(A: Matrix) -> Vector | None:
        w = _optimum(cost, -A)
        return None if w @ cost > -1e-9 else w

    # The sum of margins is over all rows: one over those of A alone would miss what only the others show.
    W = _cut(data, A, scale, limit, steepest)
    if isinstance(W, str):
        return W, (), ()
    # The widest margin only improves the wording of the finding, and its linear program is slower.
    wide = _cut(data, A, scale, limit, _widest) if A.size <= _LARGEST_WIDEST else "unknown"
    return _described(data, W if isinstance(wide, str) else wide, scale)


def _described(data: Data, W: Matrix, scale: Vector) -> Separation:
    """Return the separation that W shows; "none" where it sets nothing apart by more than the tolerance."""

    def apart(*chunk: Any) -> Terms:
        _, share, margin = _margins(W, scale, *chunk)
        shared = share.astype(float)
        return shared.T @ (margin > 100 * _TOLERANCE).astype(float), shared.sum(axis=0)

    # How many rows of class j are set apart from k (K, K), and how many there are (K,).
    strict, total = data.accumulate(blockwise(apart, 4 * len(W)))
    if not np.any(strict):
        return "none", (), ()
    present = np.flatnonzero(total).tolist()
    pairs = list(combinations(present, 2))
    complete = len(present) == len(W) and all(
        strict[j, k] == total[j] and strict[k, j] == total[k] for j, k in pairs
    )
    pairs = [(j, k) for j, k in pairs if strict[j, k] or strict[k, j]]
    spread = np.abs(W - W.mean(axis=0)).max(axis=0)
    columns = tuple(int(m) for m in np.argsort(-spread, kind="stable")[:5] if spread[m] > 0.1 * spread.max())
    return "complete" if complete else "quasi", tuple(pairs), columns


class _UnsolvedError(Exception):
    """A linear program of which no method found the end."""


def _cut(data: Data, A: Matrix, scale: Vector, limit: int, program: Program) -> Matrix | str:
    """Return W (K, M) of scaled columns that no row contradicts, "none" where zero is the only one, or "unknown".

    A has the constraints to begin with.
    """
    M = len(scale)
    for _ in range(_ROUNDS):
        if A.size > 2 * _LARGEST_PROGRAM:
            return "unknown"
        try:
            solution = program(A)
        except _UnsolvedError:
            return "unknown"
        if solution is None:
            return "none"
        W = np.concatenate([np.zeros((1, M)), solution.reshape(-1, M)])
        broken, _ = _worst(data, W, scale, limit, above=-_TOLERANCE)
        if len(broken) == 0:
            return W
        A = np.concatenate([A, broken])
    return "unknown"


def _widest(A: Matrix) -> Vector | None:
    """Return w within [-1, 1] with the largest least A w; None if that is zero."""
    padded = np.column_stack([-A, np.ones(len(A))])
    cost = np.zeros(padded.shape[1])
    cost[-1] = -1.0
    w = _optimum(cost, padded)
    return None if w[-1] < 10 * _TOLERANCE else w[:-1]


def _optimum(cost: Vector, A: Matrix) -> Vector:
    """Return w within [-1, 1] with A w <= 0 and the least `cost` · w.

    All constraints meet at zero.  There the simplex method may go round in circles for ever, so it is stopped, and the
    interior point method goes in its place.
    """
    most = _MOST_STEPS * sum(A.shape)
    for how in _METHODS:
        found: Any = scipy.optimize.linprog(
            cost, A_ub=A, b_ub=np.zeros(len(A)), bounds=(-1, 1), method=how, options={"maxiter": most}
        )
        if found.status == 0:
            return np.asarray(found.x)
    raise _UnsolvedError


def _margins(
    W: Matrix, scale: Vector, Phi: Matrix, t: Matrix, weight: Vector | None
) -> tuple[Matrix, NDArray[np.bool_], Matrix]:
    """Return scaled rows (n, M), the classes each has a share in and its least own activation over each, (n, K)."""
    if weight is not None:
        Phi, t = Phi[weight > 0], t[weight > 0]
    X = Phi / scale
    a = X @ W.T
    share = (np.stack([1 - t, t], axis=1) if t.ndim == 1 else t) > 0
    own = np.where(share, a, np.inf).min(axis=1)
    return X, share, own[:, None] - a


def _worst(data: Data, W: Matrix, scale: Vector, limit: int, *, above: float) -> tuple[Matrix, float]:
    """Return the constraints with the least margins below `above`, about `limit` of them, and the least margin.

    A constraint is a row (e_own - e_other) ⊗ φ, scaled, without the first class's columns, which a common shift makes
    zero: the row's own class lies above another.
    """

    def terms(*chunk: Any) -> Terms:
        X, share, margin = _margins(W, scale, *chunk)
        own = np.where(share, X @ W.T, np.inf).argmin(axis=1)
        # No constraint of a class against itself; equality against another class in which the row has a share.
        margin[np.arange(len(X)), own] = np.inf
        rows, other = np.nonzero(margin < above)
        first = np.argsort(margin[rows, other], kind="stable")[:limit]
        return ([(margin[rows[i], other[i]], X[rows[i]], own[rows[i]], other[i]) for i in first],)

    (constraints,) = data.accumulate(blockwise(terms, 4 * len(W)))
    constraints = sorted(constraints, key=lambda c: float(c[0]))[:limit]
    A = np.zeros((len(constraints), *W.shape))
    for row, (_, x, own, other) in zip(A, constraints, strict=True):
        row[own] = x
        row[other] -= x
    return A[:, 1:].reshape(len(A), W[1:].size), float(constraints[0][0]) if constraints else np.inf


Empty = tuple[int, ...]
Dependent = tuple[tuple[int, tuple[int, ...]], ...]
"""Each dependent column with those that make it up: ((j, (i, ...)), ...)."""


def find_collinearity(data: Data) -> tuple[Empty, Dependent]:
    """Return which columns of rows with positive weight are redundant: those of zeros, and other dependent ones."""

    def gram(Phi: Matrix, _t: Matrix, weight: Vector | None) -> Terms:
        X = Phi if weight is None else Phi[weight > 0]
        return (X.T @ X,)

    (G,) = data.accumulate(gram)
    length = np.sqrt(np.diag(G))
    used = np.flatnonzero(length > 0)
    C = G[np.ix_(used, used)] / length[used, None] / length[used]
    L, pivot, rank, _ = scipy.linalg.lapack.dpstrf(C, tol=_PIVOT, lower=1)
    order = pivot - 1
    share = scipy.linalg.solve_triangular(L[:rank, :rank], L[rank:, :rank].T, lower=True, trans=1).T
    dependent = tuple(
        (
            int(used[order[rank + i]]),
            tuple(sorted(used[order[np.flatnonzero(np.abs(row) > _TAKES_PART)]].tolist())),
        )
        for i, row in enumerate(share)
    )
    return tuple(np.flatnonzero(length == 0).tolist()), tuple(sorted(dependent))
