"""Predictions of rows without themselves, by one Newton step from the posterior of all rows.

Shapes: n rows, K classes, C outputs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Matrix, Vector
from blr.covariances import class_covariances, output_covariances
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import Categorical, unpack
from blr.posterior.kinds import Posterior, RefinedPosterior
from blr.predictive.expectations import expected_by_class, expected_derivatives
from blr.predictive.softmax import softmax_exact
from blr.sums import activations, in_classes, many_classes

_SIZES = np.array([2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 1 << 30])  # of classes that share a curvature
_NO_SHARE = 1e-7  # share of its curvature that a class may have for nothing
_NUMBERS, _FEWEST_ROWS = 2**20, 64  # covariances of many classes that are held at a time
_HALF = 0.5
# Share of the curvature in a direction that one row may have.  With more the step goes too far: rows that had 0.92 to
# 1.1 were given log probabilities of -2.4 to -130, and refits without them gave -0.04 to -2.5.
_MOST_OWN = 0.9
_MOST_OF_GROUP = 0.99  # share of the curvature of rows of a group that is taken away
_NODES = 256  # of the expectations of a row
# Sobol points of a row's probabilities: these err by 0.001 and, of many classes, by 0.003.
_MOST_NODES, _MOST_NODES_MANY = 1024, 512


def left_out(q: Posterior, Phi: Matrix, t: Matrix, w: Vector) -> tuple[Matrix, NDArray[np.bool_]]:
    """Return the probabilities (n, K) of rows without themselves, and which rows are influential (n,)."""
    likelihood = q.problem.likelihood
    if many_classes(likelihood) and type(likelihood) is Categorical:
        return _left_out_by_class(q, likelihood, Phi, t, w)
    about, C = q if isinstance(q, RefinedPosterior) else q.laplace, q.problem.likelihood.n_outputs
    a = Phi @ about.gaussian.mean.reshape(C, -1).T
    V = output_covariances(Phi, about.gaussian.inverse_cholesky, C)
    if isinstance(about, RefinedPosterior):
        _, g, curvature = expected_derivatives(q.problem.likelihood, a, V, t, most_nodes=_NODES)
    else:
        _, g, curvature = q.problem.likelihood.derivatives(a, t)
    R: Matrix = np.asarray(w[:, None, None] * unpack(curvature, C))
    own = np.asarray(V @ R, dtype=np.float64)
    # A row with all of the curvature in some direction has nothing to be predicted from there; of a search that stopped
    # early it may seem to have more than all.
    most = np.linalg.eigvals(own).real.max(axis=1)
    own *= np.where(most > _MOST_OWN, _MOST_OWN / np.maximum(most, _MOST_OWN), 1.0)[:, None, None]
    left = np.eye(C) - own
    influential = np.linalg.det(left) < 0.5
    V_out = np.asarray(np.linalg.solve(left, V), dtype=np.float64)
    mean = a - np.einsum("ncd,nd->nc", V_out, w[:, None] * g)
    return about.output_probability(mean, V_out, most_nodes=_MOST_NODES), influential


def groups_of_several(group: ArrayLike | None) -> list[NDArray[np.intp]]:
    """Return the rows of each group that has more than one, of groups (N,)."""
    if group is None:
        return []
    _, number, size = np.unique(np.asarray(group), return_inverse=True, return_counts=True)
    order = np.argsort(number, kind="stable")
    return [rows for rows in np.split(order, np.cumsum(size)[:-1]) if len(rows) > 1]


def left_out_together(q: Posterior, Phi: Matrix, t: Matrix, w: Vector) -> Matrix:
    """Return the probabilities (n, K) of rows without all of them, by one Newton step.

    The step is taken in the space of the n C activations or, where these are more, of the D weights.  Of the rows'
    curvature a hundredth stays, so that something is left in every direction.
    """
    about, C = q if isinstance(q, RefinedPosterior) else q.laplace, q.problem.likelihood.n_outputs
    gaussian, (n, M) = about.gaussian, Phi.shape
    a = activations(Phi, gaussian.mean, C)
    if isinstance(about, RefinedPosterior):
        V = output_covariances(Phi, gaussian.inverse_cholesky, C)
        _, g, curvature = expected_derivatives(q.problem.likelihood, a, V, t, most_nodes=_NODES)
    else:
        _, g, curvature = q.problem.likelihood.derivatives(a, t)
    R, g = _MOST_OF_GROUP * w[:, None, None] * unpack(curvature, C), w[:, None] * g
    if n <= M:
        # Whitened activations U J' of all rows and outputs: their products are the covariances.
        U = gaussian.inverse_cholesky.reshape(-1, C, M)
        B = np.einsum("icm,nm->nci", U, Phi, optimize=True).reshape(n * C, -1)
        V_all = B @ B.T
        own = np.einsum("anc,ncd->and", V_all.reshape(n * C, n, C), R).reshape(n * C, n * C)
        V_all = np.linalg.solve(np.eye(n * C) - own, V_all)
        mean = a - (V_all @ g.ravel()).reshape(n, C)
        return about.output_probability(mean, V_all.reshape(n, C, n, C)[np.arange(n), :, np.arange(n)])
    H = np.empty((C, M, C, M))
    for c in range(C):
        for d in range(C):
            H[c, :, d, :] = Phi.T @ (R[:, c, d, None] * Phi)
    left = Gaussian(gaussian.mean, gaussian.precision - H.reshape(C * M, C * M))
    step = left.solve((g.T @ Phi).ravel())
    return about.output_probability(
        a - activations(Phi, step, C), output_covariances(Phi, left.inverse_cholesky, C)
    )


def _left_out_by_class(
    q: Posterior, likelihood: Categorical, Phi: Matrix, t: Matrix, w: Vector
) -> tuple[Matrix, NDArray[np.bool_]]:
    """Return what `left_out` does, for many classes: a row's curvature is that of the few that it may belong to.

    With R that of those classes, and X the columns of V for them, V' = V + X (I - R V_rr)⁻¹ R X'.
    """
    about = q if isinstance(q, RefinedPosterior) else q.laplace
    of_classes, weights = in_classes(likelihood, about.gaussian.mean)
    covariances = class_covariances(
        about.gaussian.inverse_cholesky, likelihood.n_outputs, likelihood.transform
    )
    K = likelihood.n_classes
    p, influential = np.empty((len(Phi), K)), np.empty(len(Phi), dtype=np.bool_)
    size = max(_FEWEST_ROWS, _NUMBERS // K**2)
    for start in range(0, len(Phi), size):
        block = slice(start, start + size)
        a, V = activations(Phi[block], weights, K), covariances(Phi[block])
        if isinstance(about, RefinedPosterior):
            _, g, R = expected_by_class(of_classes, a, V, t[block], most_nodes=_NODES)
        else:
            _, g, y = of_classes.slopes(a, t[block])
            R = unpack(of_classes.second_cumulant(y), K)
        R *= w[block, None, None]
        influential[block] = _without_own_curvature(V, R)
        mean = a - np.einsum("ncd,nd->nc", V, w[block, None] * g)
        p[block] = softmax_exact(mean, V, most_nodes=_MOST_NODES_MANY)[0]
    return p, influential


def _without_own_curvature(V: Matrix, R: Matrix) -> NDArray[np.bool_]:
    """Put (I - V R)⁻¹ V in the place of V (n, K, K), and return which rows are influential (n,)."""
    n = len(V)
    share = np.einsum("nkk->nk", R) * np.einsum("nkk->nk", V)
    order = np.argsort(-share, axis=1)
    ranked = np.take_along_axis(share, order, axis=1)
    few = np.searchsorted(_SIZES, (ranked > _NO_SHARE).sum(axis=1))
    influential = np.empty(n, dtype=np.bool_)
    for i in np.unique(few):
        rows = np.flatnonzero(few == i)
        chosen = order[rows, : _SIZES[i]]
        X = np.take_along_axis(V[rows], chosen[:, None, :], axis=2)
        own = R[rows[:, None, None], chosen[:, :, None], chosen[:, None, :]]
        R_X = np.matmul(own, X.transpose(0, 2, 1))
        own = np.take_along_axis(R_X, chosen[:, None, :], axis=2)
        trace = np.einsum("nrr->n", own)
        # Eigenvalues lie between 0 and 1, and so does what is known of them by their sum.
        near = np.flatnonzero(trace > _MOST_OWN)
        most = np.linalg.eigvals(own[near]).real.max(axis=1, initial=0.0)
        scale = np.where(most > _MOST_OWN, _MOST_OWN / np.maximum(most, _MOST_OWN), 1.0)[:, None, None]
        own[near] *= scale
        R_X[near] *= scale
        left = np.eye(own.shape[1]) - own
        influential[rows] = False
        between = np.flatnonzero(trace > _HALF)  # det is 1 - trace or more
        influential[rows[between]] = np.linalg.det(left[between]) < _HALF
        V[rows] += np.matmul(X, np.linalg.solve(left, R_X))
    return influential
