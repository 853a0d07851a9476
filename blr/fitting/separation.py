"""What keeps a fit from having a mode: classes that the columns separate without error, and collinear columns.

Where a linear function of the columns tells the classes apart, the likelihood has no maximum (Albert and Anderson 1984,
doi:10.1093/biomet/71.1.1): only the prior keeps the weights finite, and no Gaussian describes their posterior.  Both
answers come with a proof.  *No*: probabilities y strictly inside the simplex with Σ (t - y) φ = 0, which a Newton step
towards the maximum usually supplies.  *Yes*: weights W that give every row's own class an activation no lower than any
other's, found by linear programming on the rows nearest to being wrong, to which those that its answer gets wrong are
added until none is left.

Collinear are columns that are linear combinations of the others.  They are found from the Gram matrix of the columns,
scaled to unit length, by a Cholesky factorisation with pivots: a pivot is the square of the sine of the angle between a
column and the span of those before it.  Shapes: M columns, K classes, W (K, M).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import scipy  # its modules load when used
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from blr.arrays import Matrix, Vector
from blr.covariances import class_covariances
from blr.fitting.newton import SolverPrior, maximise
from blr.gaussian import cholesky_of_precision
from blr.likelihood.likelihoods import Bernoulli, Categorical, Likelihood
from blr.sums import ChunkFunction, Data, Terms, activations, blockwise, likelihood_terms

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
_ROUNDING = 1e-15
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


@dataclass(frozen=True, eq=False)
class _Largest:
    """A maximum that adds up."""

    value: Any

    def __add__(self, other: _Largest) -> _Largest:
        return _Largest(np.maximum(self.value, other.value))


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
    flat = SolverPrior(np.zeros(D), np.zeros((D, D)))

    def evaluate(theta: Vector) -> Terms:
        return data.accumulate(likelihood_terms(likelihood, theta))

    if start is not None and _overlaps(data, likelihood, *start, slack=_SLACK):
        return "none", (), ()
    theta = np.zeros(D) if start is None else start[0]
    n = data.accumulate(lambda Phi, _t, _weight: (len(Phi),))[0]
    if _NEWTON_PASSES * (n * D**2 + D**3) > _LARGEST_SEARCH:
        return "unknown", (), ()
    try:
        mode = maximise(evaluate, flat, theta, max_iter=_NEWTON_PASSES)
    except (
        np.linalg.LinAlgError
    ):  # Without a prior, a direction that changes no row's activation is undetermined.
        return _by_program(data, likelihood, theta, n_classes, n_functions)
    if _overlaps(data, likelihood, mode.theta, mode.gradient, mode.hessian):
        return "none", (), ()
    return _by_program(data, likelihood, mode.theta, n_classes, n_functions)


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
    lacking = np.abs(gradient - hessian @ step) + _ROUNDING * np.tile(size, likelihood.n_outputs)
    mending = np.sqrt(2 * widest.value) * (float(np.linalg.norm(np.abs(U) @ lacking)) + slack)
    return int(outside) == 0 and bool(mending < _MENDING)


def _outside(likelihood: Likelihood, theta: Vector, step: Vector, U: Matrix) -> ChunkFunction:
    """Return how many rows leave the simplex, the largest variance of an activation, and Σ |φ| (M,)."""
    C = likelihood.n_outputs
    covariances = class_covariances(U, C)

    def terms(Phi: Matrix, _t: Matrix, weight: Vector | None) -> Terms:
        X = Phi[_counted(weight)]
        y = _probabilities(likelihood, activations(X, theta, C))
        d = class_activations(likelihood, activations(X, step, C))
        relative = 1 + d - np.einsum("nk,nk->n", y, d)[:, None]  # y + R d, as a multiple of y
        variance = np.einsum("ncc->n", covariances(X))
        widest = _Largest(variance.max(initial=0.0))
        return int(np.count_nonzero(relative < _INSIDE)), widest, np.abs(X).sum(axis=0)

    return blockwise(terms, C * len(theta) + 4 * (C + 2))


def _counted(weight: Vector | None) -> Any:
    return slice(None) if weight is None else weight > 0


def class_activations(likelihood: Likelihood, a: Matrix) -> Matrix:
    """Return the activations of all classes (n, K): for two, those of half the logit either way."""
    if isinstance(likelihood, Categorical):
        return a @ likelihood.transform.T
    return a * np.array([-0.5, 0.5])


def _probabilities(likelihood: Likelihood, a: Matrix) -> Matrix:
    full = class_activations(likelihood, a)
    y = np.exp(full - full.max(axis=1, keepdims=True))
    y /= y.sum(axis=1, keepdims=True)
    return y


def _class_weights(likelihood: Likelihood, theta: Vector) -> Matrix:
    return class_activations(likelihood, theta.reshape(likelihood.n_outputs, -1).T).T


@dataclass(frozen=True, eq=False)
class _Constraints:
    """Rows φ (n, M), scaled, the classes that each sets apart, own (n,) above other (n,), and the least margin."""

    Phi: Matrix
    own: NDArray[np.intp]
    other: NDArray[np.intp]
    n_classes: int
    least: float = np.inf

    @property
    def size(self) -> int:
        """Entries of the matrix."""
        return len(self.Phi) * (self.n_classes - 1) * self.Phi.shape[1]

    def matrix(self) -> Matrix:
        """Return the rows (e_own - e_other) ⊗ φ without the first class's columns, which a common shift makes zero."""
        n, M = self.Phi.shape
        A = np.zeros((n, self.n_classes, M))
        A[np.arange(n), self.own] = self.Phi
        A[np.arange(n), self.other] -= self.Phi
        return A[:, 1:].reshape(n, -1)

    def joined(self, new: _Constraints) -> _Constraints:
        """Return these and the new ones."""
        pairs = [(self.Phi, new.Phi), (self.own, new.own), (self.other, new.other)]
        Phi, own, other = (np.concatenate(pair) for pair in pairs)
        return _Constraints(Phi, own, other, self.n_classes)


def _by_program(data: Data, likelihood: Likelihood, theta: Vector, K: int, M: int) -> Separation:
    (parts,) = data.accumulate(lambda Phi, _t, _w: (_Largest(np.abs(Phi).max(axis=0)),))
    scale = np.where(parts.value > 0, parts.value, 1.0)
    limit = min(4 * (K - 1) * M + 100, _LARGEST_PROGRAM // ((K - 1) * M))
    start = _class_weights(likelihood, theta) * scale
    start /= max(float(np.abs(start).max()), 1e-300)
    working = _worst(data, start, scale, limit, above=np.inf)
    if working.least > 100 * _TOLERANCE:
        return _described(data, start, scale)
    (total,) = data.accumulate(_summed(scale, K))
    W = _cut(data, working, scale, limit, lambda A: _steepest(A, total))
    if isinstance(W, str):
        return W, (), ()
    # The widest margin only improves the wording of the finding, and its linear program is slower.
    wide = _cut(data, working, scale, limit, _widest) if working.size <= _LARGEST_WIDEST else "unknown"
    return _described(data, W if isinstance(wide, str) else wide, scale)


def _described(data: Data, W: Matrix, scale: Vector) -> Separation:
    """Return the separation that W shows; "none" where it sets nothing apart by more than the tolerance."""
    strict, total = data.accumulate(_strict_rows(W, scale))
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


def _cut(data: Data, working: _Constraints, scale: Vector, limit: int, program: Program) -> Matrix | str:
    """Return W (K, M) of scaled columns that no row contradicts, "none" where zero is the only one, or "unknown"."""
    M = len(scale)
    for _ in range(_ROUNDS):
        A = working.matrix()
        if A.size > 2 * _LARGEST_PROGRAM:
            return "unknown"
        try:
            solution = program(A)
        except _UnsolvedError:
            return "unknown"
        if solution is None:
            return "none"
        W = np.concatenate([np.zeros((1, M)), solution.reshape(-1, M)])
        broken = _worst(data, W, scale, limit, above=-_TOLERANCE)
        if len(broken.Phi) == 0:
            return W
        working = working.joined(broken)
    return "unknown"


def _steepest(A: Matrix, total: Vector) -> Vector | None:
    """Return w within [-1, 1] with A w >= 0 and the largest sum of margins `total` · w; None if that is zero.

    The sum is over all rows: one over those of A alone would miss what only the others show.
    """
    cost = -total / max(float(np.abs(total).max()), 1e-300)
    w = _optimum(cost, -A)
    return None if w @ cost > -1e-9 else w


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


def _margins(W: Matrix, scale: Vector, Phi: Matrix, t: Matrix) -> tuple[Matrix, NDArray[np.bool_], Matrix]:
    """Return scaled rows (n, M), the classes each has a share in and its least own activation over each, (n, K)."""
    X = Phi / scale
    a = X @ W.T
    share = (np.stack([1 - t, t], axis=1) if t.ndim == 1 else t) > 0
    own = np.where(share, a, np.inf).min(axis=1)
    return X, share, own[:, None] - a


def _worst(data: Data, W: Matrix, scale: Vector, limit: int, *, above: float) -> _Constraints:
    """Return the constraints with the least margins below `above`, about `limit` of them."""

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        counted = _counted(weight)
        X, share, margin = _margins(W, scale, Phi[counted], t[counted])
        own = np.where(share, X @ W.T, np.inf).argmin(axis=1)
        # No constraint of a class against itself; equality against another class in which the row has a share.
        margin[np.arange(len(X)), own] = np.inf
        rows, other = np.nonzero(margin < above)
        first = np.argsort(margin[rows, other], kind="stable")[:limit]
        return ([(margin[rows[i], other[i]], X[rows[i]], own[rows[i]], other[i]) for i in first],)

    (constraints,) = data.accumulate(blockwise(terms, 4 * len(W)))
    constraints = sorted(constraints, key=lambda c: float(c[0]))[:limit]
    X = np.array([c[1] for c in constraints]).reshape(-1, W.shape[1])
    own, other = (np.array([c[i] for c in constraints], dtype=np.intp) for i in (2, 3))
    return _Constraints(X, own, other, len(W), float(constraints[0][0]) if constraints else np.inf)


def _summed(scale: Vector, K: int) -> ChunkFunction:
    """Return the sum of all rows' margins as a function of w, ((K - 1) M,)."""

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        counted = _counted(weight)
        _, share, _ = _margins(np.zeros((K, len(scale))), scale, Phi[counted], t[counted])
        alone = share & (share.sum(axis=1) == 1)[:, None]
        sign = K * alone.astype(float) - alone.sum(axis=1, keepdims=True)
        return ((sign.T @ (Phi[counted] / scale))[1:].ravel(),)

    return blockwise(terms, 4 * K)


def _strict_rows(W: Matrix, scale: Vector) -> ChunkFunction:
    """Return how many rows of class j are set apart from k (K, K), and how many there are (K,)."""

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        counted = _counted(weight)
        _, share, margin = _margins(W, scale, Phi[counted], t[counted])
        apart = margin > 100 * _TOLERANCE
        return share.T.astype(float) @ apart.astype(float), share.sum(axis=0).astype(float)

    return blockwise(terms, 4 * len(W))


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
