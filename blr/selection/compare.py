"""Candidates side by side: evidence, BIC, approximate leave-one-out; averages by evidence or stacking (PRML 3.4).

The evidence compares prior, scaling and features at once, so it ranks models as they are, not bases alone.  The
second-order term is added for all candidates or for none.  A red verdict condemns the Gaussian approximation, not the
model, so it bars none.  Rows are left out by one Newton step from the posterior of all rows.

Evidence asks which model made the data, and its weights go to one model as rows grow, right or not.  Stacking asks
which mixture predicts the left-out rows best: the weights s on the simplex that maximise
Σ_n w_n Σ_k t_nk ln Σ_j s_j p_j(k | x_n, D_-n).  Yao et al. (2018), doi:10.1214/17-BA1091.
Shapes: J models, N or n rows, K classes, C outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Matrix, Table, Vector, slices
from blr.covariances import class_covariances, output_covariances
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import Categorical, unpack
from blr.likelihood.targets import most_likely_class
from blr.posterior.kinds import Posterior, RefinedPosterior
from blr.predictive.expectations import expected_by_class, expected_derivatives
from blr.predictive.mixture import Prediction, mix
from blr.predictive.softmax import softmax_exact
from blr.sums import Terms, activations, chunk_rows, in_classes, many_classes
from blr.threads import single_threaded_blas

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
_GAP = 1e-3  # nats below the maximum at which the search may stop
_MAX_ITER = 200
_TINY = np.finfo(float).tiny


def leave_one_out(q: Posterior) -> tuple[float, float, int]:
    """Return the approximate leave-one-out score of a Laplace or refined posterior: one pass over its data.

    That is the expected log predictive density of a row left out, summed over rows, and its standard error.  Last is
    how many rows carry more than half of their own curvature: the approximation is rough for them.

    A Newton step without the row, from the mode: a' = a - V'(t - y), V' = (I - V R)⁻¹ V; for two classes
    a + h(y - t)/(1 - r h) and s²/(1 - r h).  Vehtari et al. (2016), jmlr.org/papers/v17/14-540, section 3.
    Of a refined posterior y and R are its expectations, which is the row's own term of its precision and mean.

    Raises
    ------
    RuntimeError
        If `q` was loaded from a file: it has no data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> q = blr.fit_evidence(np.column_stack([np.ones(200), X]), t)
    >>> log_density, error, n_influential = blr.leave_one_out(q)
    >>> bool(log_density < q.log_likelihood), n_influential
    (True, 0)
    """

    def term(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        w = np.ones(len(Phi)) if weight is None else weight
        p, influential = _left_out(q, Phi, t, w)
        p, shares = against_records(q, p, t)
        density: Vector = w * np.einsum("nk,nk->n", shares, np.log(np.maximum(p, np.finfo(float).tiny)))
        return float(density.sum()), float((density**2).sum()), len(Phi), int(influential.sum())

    with single_threaded_blas():
        total, squares, n, influential = q.problem.require_data().accumulate(term)
    variance = max(squares - total**2 / n, 0.0) * n / max(n - 1, 1)
    return total, float(np.sqrt(variance)), influential


def leave_one_out_probability(
    q: Posterior, *, records: bool = True, group: ArrayLike | None = None
) -> tuple[Matrix, Matrix, Vector]:
    """Return each row's probabilities without itself (N, K), its shares of the classes (N, K), and its weight (N,).

    As `leave_one_out`, for `stacking_weights`.  Rows of an equal `group` (N,) are left out together.  Where labels
    may be wrong they are the probabilities of what was recorded; without `records` those of the true classes.
    RuntimeError if `q` was loaded from a file, TypeError if its rows came as a stream: both have no rows.
    """
    p, _ = without_each_row(q, group)
    shares, weight = recorded_shares(q)
    return against_records(q, p, q.problem.require_rows().t)[0] if records else p, shares, weight


def without_each_row(q: Posterior, group: ArrayLike | None = None) -> tuple[Matrix, NDArray[np.bool_]]:
    """Return the probabilities (N, K) of each row's classes without itself, and which rows are influential (N,).

    As `leave_one_out_probability`; an influential row carries more than half of its own curvature.
    """
    data, (_, weight) = q.problem.require_rows(), recorded_shares(q)
    step = chunk_rows(data.n_functions)
    parts = [slice(i, i + step) for i in range(0, len(data.Phi), step)]
    with single_threaded_blas():
        found = [_left_out(q, data.Phi[part], data.t[part], weight[part]) for part in parts]
        p, influential = (np.concatenate(x) for x in zip(*found, strict=True))
        for rows in _groups_of_several(group):
            p[rows] = _left_out_together(q, data.Phi[rows], data.t[rows], weight[rows])
    return p, influential


def recorded_shares(q: Posterior) -> tuple[Matrix, Vector]:
    """Return the shares of the classes in each row's record (N, K), and the rows' weights (N,)."""
    data = q.problem.require_rows()
    return _shares(q, data.t), np.ones(len(data.Phi)) if data.weight is None else data.weight


def _shares(q: Posterior, t: Matrix) -> Matrix:
    """Return the shares (n, K) of the classes in targets as the problem of `q` holds them."""
    if q.problem.mislabelled:
        return most_likely_class(t)
    return np.stack([1 - t, t], axis=1) if t.ndim == 1 else t


def against_records(q: Posterior, p: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
    """Return the probabilities (n, K) of what was recorded of rows, and the records' shares of the classes (n, K).

    `p` (n, K) are left-out probabilities of the classes, `t` the rows' targets as the problem of `q` holds them.  They
    differ where labels may be wrong: the recorded class then has the probability of its record, the others the rest.
    """
    shares = _shares(q, t)
    if not q.problem.mislabelled:
        return p, shares
    known = np.einsum("nk,nk->n", p, t)
    rest = np.where(shares > 0, 0.0, p)
    rest *= ((1 - known) / np.maximum(rest.sum(axis=1), np.finfo(float).tiny))[:, None]
    return np.where(shares > 0, known[:, None], rest), shares


def weights(posteriors: Sequence[Posterior], prior_probability: ArrayLike | None = None) -> Vector:
    """Return the posterior probability of each model, (len,): evidence times prior probability."""
    fits = [q.laplace for q in posteriors]
    return rank(
        [fit.log_evidence for fit in fits],
        [fit.second_order for fit in fits],
        [fit.trust.second_order_holds for fit in fits],
        prior_probability,
    )


def compare(
    posteriors: Sequence[Posterior] | Mapping[str, Posterior], prior_probability: ArrayLike | None = None
) -> Comparison:
    """Return the table of candidates side by side: evidence, BIC, left-out predictions, posterior probability.

    Parameters
    ----------
    posteriors
        The candidates, or a mapping of their names to them; all fitted to the same rows, targets and weights.
    prior_probability
        Of each candidate before the data, (n,); by default the same for all.

    Raises
    ------
    ValueError
        If there are no models, the prior probabilities are not one positive number a model, or the fits are of
        different rows, classes or targets, whose evidences do not compare.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> Phi = np.column_stack([np.ones(200), X])
    >>> blr.compare({"one colour": blr.fit_evidence(Phi[:, :2], t), "both": blr.fit_evidence(Phi, t)})
    <Comparison of 2 candidates: best one colour by evidence, one colour by bic, one colour by loo>
    """
    names = list(posteriors) if isinstance(posteriors, Mapping) else None
    fits = list(posteriors.values() if isinstance(posteriors, Mapping) else posteriors)
    weight = weights(fits, prior_probability)
    _require_same_data(fits)
    loo = [leave_one_out(q) for q in fits]
    columns: dict[str, ArrayLike] = {
        "name": names or [f"candidate {i}" for i in range(len(fits))],
        "log_evidence": [q.log_evidence for q in fits],
        "second_order": [q.laplace.second_order for q in fits],
        "bic": [q.bic for q in fits],
        "loo": [density for density, _, _ in loo],
        "loo_standard_error": [error for _, error, _ in loo],
        "effective_parameters": [q.laplace.effective_parameters for q in fits],
        "n_parameters": [q.problem.free_parameters for q in fits],
        "verdict": [q.trust.verdict for q in fits],
        "weight": weight,
    }
    table = Table({name: np.array(column) for name, column in columns.items()})
    first = {"evidence": "weight", "bic": "bic", "loo": "loo"}
    return Comparison(table, {criterion: highest(table[column]) for criterion, column in first.items()})


def _require_same_data(posteriors: Sequence[Posterior]) -> None:
    sizes = {round(q.problem.n_effective, 6) for q in posteriors}
    if len(sizes) > 1:
        raise ValueError(
            "evidences can only be compared on the same rows and weights, got sums of weights "
            f"{sorted(sizes)}; fit all of them to the same rows"
        )
    _require_same_classes(posteriors)
    shares = [_class_weight(q) for q in posteriors]
    for i, share in enumerate(shares):
        if not np.allclose(share, shares[0], rtol=1e-9, atol=1e-9 * shares[0].sum()):
            raise ValueError(
                f"evidences can only be compared on the same targets, got weights of the classes {shares[0].tolist()} "
                f"in the first and {share.tolist()} in number {i}; fit all of them to the same targets"
            )


def _require_same_classes(posteriors: Sequence[Posterior]) -> None:
    names = {q.classes for q in posteriors}
    if len(names) > 1:
        listed = " and ".join(str(list(c)) for c in sorted(names, key=str))
        raise ValueError(
            f"the models have different classes, {listed}; expected the same classes in the same order"
        )


def _class_weight(q: Posterior) -> Vector:
    """Return the rows' weight in each class, (K,): whatever the rows' order, and however votes are split."""

    def terms(_Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        return (
            (np.ones(len(t)) if weight is None else weight)
            @ against_records(q, np.ones((len(t), q.problem.n_classes)), t)[1],
        )

    return np.asarray(q.problem.require_data().accumulate(terms)[0])


def highest(score: ArrayLike) -> int:
    """Return the candidate of the highest score (n,), those of NaN left out."""
    scores = np.asarray(score, dtype=np.float64)
    return int(np.where(np.isnan(scores), -np.inf, scores).argmax())


def average(
    posteriors: Sequence[Posterior], designs: Sequence[ArrayLike], prior_probability: ArrayLike | None = None
) -> Prediction:
    """Return the evidence-weighted mixture of the models' predictions (PRML 3.67).

    `designs` holds each model's design matrix of the same N rows.

    Raises
    ------
    ValueError
        If there is not a design matrix for each model, or these have different numbers of rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> Phi = np.column_stack([np.ones(200), X])
    >>> fits = [blr.fit_evidence(Phi[:, :2], t), blr.fit_evidence(Phi, t)]
    >>> blr.average(fits, [Phi[:5, :2], Phi[:5]]).probability.shape
    (5, 2)
    """
    if len(designs) != len(posteriors):
        raise ValueError(
            f"expected a design matrix for each of {len(posteriors)} posteriors, got {len(designs)}"
        )
    _require_same_classes(posteriors)
    rows = {len(np.asarray(Phi)) for Phi in designs}
    if len(rows) > 1:
        raise ValueError(f"design matrices have {sorted(rows)} rows, expected the same rows in each")
    weight = weights(posteriors, prior_probability)
    candidates = zip(weight, posteriors, designs, strict=True)
    return mix((float(w), q.prediction(Phi)) for w, q, Phi in candidates if w > 0)


@dataclass(frozen=True)
class Comparison:
    """The candidates as columns, all numbers in nats and higher is better; and which of them each criterion puts first.

    `best` has the index of that candidate.
    """

    columns: Table
    best: dict[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """The candidates' names."""
        return tuple(self.columns["name"].tolist())

    def table(self) -> Table:
        """Return the table: a dictionary of columns, which `pandas.DataFrame` takes as it is."""
        return self.columns

    def __repr__(self) -> str:
        first = ", ".join(f"{self.names[i]} by {criterion}" for criterion, i in self.best.items())
        return f"<Comparison of {len(self.names)} candidates: best {first}>"

    def _repr_html_(self) -> str:
        return self.columns.to_html()


def rank(
    log_evidence: ArrayLike,
    second_order: ArrayLike,
    holds: Sequence[bool],
    prior_probability: ArrayLike | None = None,
) -> Vector:
    """Return the posterior probabilities (n,) of candidates by their evidence.

    The second-order terms (n,) count where all of them hold (`trust.second_order_holds`).  `prior_probability` is
    before the data.
    ValueError if there are no candidates, or the prior probabilities are not one positive number each.
    """
    n = len(holds)
    if n == 0:
        raise ValueError("got nothing to compare; give at least one posterior")
    prior = np.ones(n) if prior_probability is None else np.asarray(prior_probability, dtype=np.float64)
    if prior.shape != (n,) or not np.all(prior > 0):
        raise ValueError(f"prior_probability must be {n} positive numbers, got {prior.tolist()!r}")
    ranked = np.asarray(log_evidence, dtype=np.float64)
    if all(holds):
        ranked = ranked + np.asarray(second_order, dtype=np.float64)
    log_weight = ranked + np.log(prior)
    return np.asarray(np.exp(log_weight - np.logaddexp.reduce(log_weight)))


def _left_out(q: Posterior, Phi: Matrix, t: Matrix, w: Vector) -> tuple[Matrix, NDArray[np.bool_]]:
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


def _groups_of_several(group: ArrayLike | None) -> list[NDArray[np.intp]]:
    """Return the rows of each group that has more than one, of groups (N,)."""
    if group is None:
        return []
    _, number, size = np.unique(np.asarray(group), return_inverse=True, return_counts=True)
    order = np.argsort(number, kind="stable")
    return [rows for rows in np.split(order, np.cumsum(size)[:-1]) if len(rows) > 1]


def _left_out_together(q: Posterior, Phi: Matrix, t: Matrix, w: Vector) -> Matrix:
    """Return the probabilities (n, K) of rows without all of them, by one Newton step.

    The step is taken in the space of the n C activations or, where these are more, of the D weights.  Of the rows'
    curvature a hundredth stays, so that something is left in every direction; more where a refined posterior, whose
    precision is an estimate, seems to have less than these rows alone give.
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
        own = np.einsum("amc,mcd->amd", V_all.reshape(n * C, n, C), R).reshape(n * C, n * C)
        if np.trace(own) > _MOST_OF_GROUP:  # the sum of its eigenvalues
            values, vectors = np.linalg.eigh(R)
            root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
            V_rows = V_all.reshape(n, C, n, C)
            K = np.einsum("mca,mcnd,ndb->manb", root, V_rows, root, optimize=True).reshape(n * C, n * C)
            own *= min(1.0, _MOST_OF_GROUP / float(np.linalg.eigvalsh(K)[-1]))  # the largest of V R
        V_all = np.linalg.solve(np.eye(n * C) - own, V_all)
        mean = a - (V_all @ g.ravel()).reshape(n, C)
        return about.output_probability(mean, V_all.reshape(n, C, n, C)[np.arange(n), :, np.arange(n)])
    H = np.empty((C, M, C, M))
    for c in range(C):
        for d in range(C):
            H[c, :, d, :] = Phi.T @ (R[:, c, d, None] * Phi)
    own = H.reshape(C * M, C * M)
    left = Gaussian(gaussian.mean, gaussian.precision - own)
    if not left.proper:
        most = scipy.linalg.eigh(own, gaussian.precision, eigvals_only=True, subset_by_index=[C * M - 1] * 2)
        left = Gaussian(gaussian.mean, gaussian.precision - own * min(1.0, _MOST_OF_GROUP / float(most[0])))
    step = left.solve((g.T @ Phi).ravel())
    return about.output_probability(
        a - activations(Phi, step, C), output_covariances(Phi, left.inverse_cholesky, C)
    )


def _left_out_by_class(
    q: Posterior, likelihood: Categorical, Phi: Matrix, t: Matrix, w: Vector
) -> tuple[Matrix, NDArray[np.bool_]]:
    """Return what `_left_out` does, for many classes: a row's curvature is that of the few that it may belong to.

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
    for block in slices(len(Phi), size):
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


def stacking_weights(
    left_out: ArrayLike,
    share: ArrayLike,
    *,
    prior_probability: ArrayLike | None = None,
) -> Vector:
    """Return the models' weights (J,), which sum to one.

    Few rows overfit the weights too, so each model has a prior of its own: a Dirichlet density that counts as J rows,
    shared out by prior probability, which the models explain alone.  The objective is concave, and Newton's
    steps climb it until the gradient bounds what is left by 0.001 nats.

    `left_out` (J, N, K) are the probabilities of each row under each model without the row, as of
    `leave_one_out_probability`; `share` (N, K) the classes' shares in each row, times its weight and trials, and
    `prior_probability` (J,) the models'.
    """
    p, t = np.asarray(left_out, dtype=np.float64), np.asarray(share, dtype=np.float64)
    prior = np.ones(len(p)) if prior_probability is None else np.asarray(prior_probability, dtype=np.float64)
    mass = t.ravel()
    rows = np.maximum(p.reshape(len(p), -1)[:, mass > 0], _TINY)  # (J, outcomes that were seen)
    mass = mass[mass > 0]
    count = len(p) * prior / prior.sum()
    s: Vector = prior / prior.sum()

    def objective(s: Vector) -> float:
        return float(mass @ np.log(s @ rows) + count @ np.log(s))

    value = objective(s)
    for _ in range(_MAX_ITER):
        ratio = rows / (s @ rows)
        gradient = ratio @ mass + count / s
        # Concave: the maximum is no more than this above.
        if gradient.max() - s @ gradient < _GAP:
            break
        # Newton's step, along which the weights still sum to one.
        inverse = np.linalg.inv((ratio * mass) @ ratio.T + np.diag(count / s**2))
        step = inverse @ (gradient - (inverse.sum(axis=0) @ gradient) / inverse.sum())
        length = min(1.0, 0.9 / max(float((-step / s).max()), _TINY))
        while (after := objective(s + length * step)) < value and length > _TINY:
            length /= 2
        s, value = s + length * step, after
    return s / s.sum()
