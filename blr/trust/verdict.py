"""Can the probabilities of a fit be trusted?  A verdict, its reasons in words, and the numbers behind them.

The verdict is on probabilities: by how much they differ from those of the exact posterior, over training rows.  Of a
Laplace fit this is how far its probabilities move when its mean is moved to that of the posterior (`corrections`).
Green: they err by less than 0.01 on average.  Amber: by less than 0.03.  Red: by more, or there is no posterior.
The shift in posterior sd, the second-order term of the evidence, what that leaves, the Pareto shape and effective
sample size of importance draws, separation and collinear columns are numbers beside it.

Importance draws are smoothed by Pareto's law (Vehtari et al. 2024, JMLR 25(72), arXiv:1507.02646): a generalised Pareto
is fitted to the largest ratios, by Zhang and Stephens (2009, doi:10.1198/tech.2009.08017).  Its shape k tells whether
the posterior has tails that the approximation misses; from 0.7 on averages over the draws are unreliable.  The log
posterior and its gradient are taken at many weights at once, in coordinates that the Gaussian makes white.

What the Laplace approximation leaves out, to the next order, is a shift of the mean and of the evidence.  With ψ the
negative log posterior, Σ = A⁻¹ its inverse Hessian at the mode and ψ_ijk, ψ_ijkl its further derivatives (Tierney and
Kadane 1986, doi:10.1080/01621459.1986.10478240; Shun and McCullagh 1995, doi:10.1111/j.2517-6161.1995.tb02060.x):

    E[w] - w_MAP  ≈  δ = -1/2 Σ g,   g_i = ψ_ijk Σ_jk
    Δ ln p(D)     ≈  -1/8 ψ_ijkl Σ_ij Σ_kl + 1/8 gᵀ Σ g + 1/12 ψ_ijk ψ_lmn Σ_il Σ_jm Σ_kn

The first two terms of the evidence are sums over rows; the third is the squared length of a tensor with D³ entries.
Of few rows it is a sum over pairs of them; of many rows some slices of the tensor are held at a time.
Shapes: n rows, S draws or weights, D = C M weights in the solver's coordinates, C outputs, K classes (1 for two, by the
logit of the second).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from blr import compiled
from blr.arrays import Matrix, Vector, plain_fields, slices
from blr.covariances import OutputMoments, class_covariances, unpacked_blocks
from blr.fitting.newton import Separation, find_collinearity, find_separation
from blr.fitting.problem import Problem, Retargeted
from blr.gaussian import Gaussian, cholesky_of_precision
from blr.likelihood.likelihoods import (
    LOGISTIC,
    Bernoulli,
    Categorical,
    Likelihood,
    MislabelledCategorical,
    unpack,
)
from blr.likelihood.targets import most_likely_class
from blr.predictive.mixture import predicted
from blr.sums import ChunkFunction, Data, Terms, activations, blockwise, evenly_spread, thinned
from blr.threads import single_threaded_blas

_WORK = 5e6  # activations to evaluate: more draws where there are few rows
_DRAWN_ROWS = 2500  # with more rows, every n-th is used: see `laplace_ratios`
_BEYOND_SMOOTHING = 10.0  # shape from which one draw has all the weight
_FEWEST, _MOST = 400, 2000  # draws


def smooth(log_ratio: Vector) -> tuple[Vector, float, float]:
    """Return Pareto-smoothed weights (S,) of log ratios (S,), the shape k, and the effective sample size over S."""
    S = len(log_ratio)
    log_w = log_ratio - log_ratio.max()
    n_tail = int(np.ceil(min(0.2 * S, 3 * np.sqrt(S))))
    order = np.argsort(log_w, kind="stable")
    tail = order[S - n_tail :]
    cutoff = log_w[order[S - n_tail - 1]]
    exceedance = np.exp(log_w[tail]) - np.exp(cutoff)
    k = 0.0
    if exceedance[-1] > 1e-12:  # otherwise all ratios are equal: the approximation is exact
        k, scale = fit_pareto(exceedance)
        if k < _BEYOND_SMOOTHING:
            middle = (np.arange(n_tail) + 0.5) / n_tail
            below = np.log1p(-middle)
            quantile = -scale * below if abs(k) < 1e-12 else scale * np.expm1(-k * below) / k
            log_w[tail] = np.minimum(np.log(np.exp(cutoff) + quantile), 0.0)
    w = np.exp(log_w)
    w /= w.sum()
    return w, k, float(1 / np.sum(w**2)) / S


def fit_pareto(x: Vector) -> tuple[float, float]:
    """Return shape k and scale σ of the generalised Pareto distribution of exceedances x (n,), sorted, positive.

    Zhang and Stephens' posterior mean over a grid, with the weak prior of Vehtari et al. (appendix C) at k = 0.5.
    """
    x = np.maximum(x, 1e-300 * x[-1])  # exceedances that underflowed to 0 become tiny but positive
    n = len(x)
    m = 30 + int(np.sqrt(n))
    j = np.arange(1, m + 1)
    theta = 1 / x[-1] + (1 - np.sqrt(m / (j - 0.5))) / (3 * x[int(n / 4 + 0.5) - 1])
    k = np.log1p(-np.outer(theta, x)).mean(axis=1)
    log_density = n * (np.log(-theta / k) - k - 1)
    weight = np.exp(log_density - log_density.max())
    best = float(theta @ weight / weight.sum())
    shape = float(np.log1p(-best * x).mean())
    return (n * shape + 5.0) / (n + 10.0), -shape / best


def laplace_ratios(data: Data, likelihood: Likelihood, gaussian: Gaussian, n_rows: int) -> Vector:
    """Return ln posterior less ln of its Laplace approximation, up to a constant, at draws from the latter, (S,).

    At the mode, the gradients and curvatures of all rows cancel against the approximation.  So the ratio is the sum
    over rows of ln p minus its own quadratic expansion: terms of third order.  Of a large set every n-th row is enough
    to estimate this sum with a small relative error.
    """
    step = max(1, n_rows // _DRAWN_ROWS)
    S = int(np.clip(_WORK / (n_rows // step * likelihood.n_outputs), _FEWEST, _MOST))
    draws = np.random.default_rng(0).standard_normal((S, len(gaussian.mean))) @ gaussian.inverse_cholesky
    ratio, used = data.accumulate(thinned(_remainders(likelihood, gaussian.mean, draws), step))
    return np.asarray(ratio) * (n_rows / used)


def _remainders(likelihood: Likelihood, theta: Vector, draws: Matrix) -> ChunkFunction:
    """Return the sum over rows of ln p minus its quadratic expansion at theta, for each deviation in `draws` (S, D)."""
    C, S = likelihood.n_outputs, len(draws)
    by_output = np.ascontiguousarray(draws.reshape(S, C, -1).transpose(2, 0, 1).reshape(-1, S * C))

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        n = len(Phi)
        a = activations(Phi, theta, C)
        value, gradient, curvature = likelihood.derivatives(a, t)
        moved = (Phi @ by_output).reshape(n, S, C)
        if C == 1:  # the products of einsum would take half of the time
            quadratic = moved[:, :, 0] * (gradient - 0.5 * curvature * moved[:, :, 0])
        else:
            quadratic = np.einsum("nsc,nc->ns", moved, gradient)
            quadratic -= 0.5 * np.einsum("nsc,ncd,nsd->ns", moved, unpack(curvature, C), moved, optimize=True)
        at = (moved + a[:, None, :]).reshape(n * S, C)
        log_likelihood = likelihood.log_likelihood(at, np.repeat(t, S, axis=0)).reshape(n, S)
        remainder = log_likelihood - value[:, None] - quadratic
        return (remainder.sum(axis=0) if weight is None else weight @ remainder), n

    return blockwise(terms, 4 * S * (C + 1))


# What the log evidence lacks beyond its second-order term.  That may be small because its parts cancel, or because
# there are hardly any rows, and still be wrong by more than it says.  Draws from the Laplace posterior come in pairs
# ±z, in which the cubic of the log posterior, most of the ratio's spread, cancels to first order; they go on until the
# answer is clear.  Shapes: S pairs of D weights.

_PAIRS = 250  # a batch: its activations stay in a core's cache where rows are few
_FEWEST_BATCHES, _MOST_BATCHES = 8, 60  # batches
_CLEAR = 2.5  # standard errors


def evidence_left(
    problem: Problem, laplace: Gaussian, second_order: float, limit: float, n_rows: int
) -> tuple[float, float]:
    """Return what is to be added beyond Laplace and `second_order`, nats, and its standard error.

    Batches of draws end when the size of that is clearly below or above `limit`, or at a second's work at most.
    """
    log_density, D = whitened_density(problem, laplace), len(laplace.mean)
    peak = float(log_density(np.zeros((1, D)))[0][0])
    work = 2 * _PAIRS * n_rows * problem.likelihood.n_outputs
    batches = int(np.clip(_WORK / work, _FEWEST_BATCHES, _MOST_BATCHES))
    rng, ratios = np.random.default_rng(0), np.empty(0)
    left, error = 0.0, np.inf
    for batch in range(batches):
        z = rng.standard_normal((_PAIRS, D))
        log_ratio = log_density(np.concatenate([z, -z]))[0] - peak + 0.5 * np.tile(np.sum(z**2, axis=1), 2)
        # A ratio of the peak's own size is ordinary; what overflows is a posterior wider than this Gaussian by far.
        pairs = np.exp(np.minimum(log_ratio, 600.0)).reshape(2, -1).mean(axis=0)
        ratios = np.concatenate([ratios, pairs])
        mean = float(ratios.mean())
        left = float(np.log(mean)) - second_order
        error = float(ratios.std()) / mean / np.sqrt(len(ratios))
        if batch + 1 >= _FEWEST_BATCHES and abs(abs(left) - limit) > _CLEAR * error:
            break
    return left, error


def whitened_density(problem: Problem, white: Gaussian) -> Callable[[Matrix], tuple[Vector, Matrix]]:
    """Return the log posterior and its gradient in the whitened coordinates z, θ = mean + z L⁻¹."""
    data, prior, U = problem.require_data(), problem.solver_prior, white.inverse_cholesky

    def evaluate(z: Matrix) -> tuple[Vector, Matrix]:
        theta = white.mean + z @ U
        value, gradient = data.accumulate(draw_terms(problem.likelihood, theta))
        away = theta - prior.mean
        pull = prior.pull(away)
        return value - 0.5 * np.einsum("sd,sd->s", away, pull), (gradient - pull) @ U.T

    return evaluate


def log_posterior(problem: Problem, theta: Matrix) -> Vector:
    """Return ln p(D|θ) + ln p(θ) at weights theta (S, D), the prior's constant included: (S,)."""
    prior = problem.solver_prior
    (value,) = problem.require_data().accumulate(draw_terms(problem.likelihood, theta, gradients=False))
    away = theta - prior.mean
    constant = 0.5 * (prior.log_det_precision - len(prior.mean) * np.log(2 * np.pi))
    return np.asarray(value - 0.5 * np.einsum("sd,sd->s", away, prior.pull(away)) + constant)


def draw_terms(likelihood: Likelihood, theta: Matrix, *, gradients: bool = True) -> ChunkFunction:
    """Return the function of a chunk that gives ln p (S,) at S weights theta (S, D), and its `gradients` (S, D).

    Rows run along the last axis, so that every elementary operation has long contiguous runs.
    """
    T = likelihood.transform if isinstance(likelihood, Categorical) else np.eye(1)
    K, S = len(T), len(theta)
    W = np.einsum("kc,scm->skm", T, theta.reshape(S, T.shape[1], -1)).reshape(S * K, -1)

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        value, pull = _by_rows(likelihood, (W @ Phi.T).reshape(S, K, len(Phi)), t)
        values = np.asarray(value.sum(axis=1) if weight is None else value @ weight)
        if not gradients:
            return (values,)
        if weight is not None:
            pull *= weight
        by_class = (pull.reshape(S * K, len(Phi)) @ Phi).reshape(S, K, -1)
        return values, np.einsum("kc,skm->scm", T, by_class).reshape(S, -1)

    return blockwise(terms, 6 * len(W) if K == 1 else 3 * len(W))


def _by_rows(likelihood: Likelihood, a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
    """Return ln p (S, n) and its gradient by the activations (S, K, n), of a (S, K, n), which is lost, and t."""
    if isinstance(likelihood, MislabelledCategorical):
        return _mislabelled_rows(a, t)
    if isinstance(likelihood, Categorical):
        return _softmax_rows(a, np.ascontiguousarray(t.T))
    if compiled.loops is not None and type(likelihood) is Bernoulli and likelihood.link is LOGISTIC:
        value, pull = np.empty_like(a[:, 0]), np.empty_like(a[:, 0])
        compiled.loops.logistic_rows(a[:, 0], np.ascontiguousarray(t), value, pull, None)
        return value, pull[:, None]
    repeated = np.broadcast_to(t, (len(a), *t.shape)).reshape(-1, *t.shape[1:])
    value, slope, _ = likelihood.derivatives(a.reshape(-1, 1), repeated)
    return value.reshape(len(a), -1), slope.reshape(a.shape)


def _mislabelled_rows(a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
    """Return what `_softmax_rows` does, of likelihoods t (n, K) of what was recorded."""
    a -= a.max(axis=1)[:, None]
    with np.errstate(divide="ignore"):
        q = a + np.log(t).T
    top = q.max(axis=1)
    q = np.exp(q - top[:, None])
    given = q.sum(axis=1)
    np.exp(a, out=a)
    total = a.sum(axis=1)
    a /= -total[:, None]
    a += q / given[:, None]
    return top + np.log(given) - np.log(total), a


def _softmax_rows(a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
    """Return ln p (S, n) and its gradient by the activations (S, K, n), of a (S, K, n), which is lost, and t (K, n)."""
    if compiled.loops is not None and 2 <= len(t) <= compiled.MOST_OUTPUTS:
        value = np.empty((len(a), a.shape[2]))
        compiled.loops.softmax_rows(a, t, value)
        return value, a
    a -= a.max(axis=1)[:, None]
    value = np.einsum("kn,skn->sn", t, a)
    np.exp(a, out=a)
    total = a.sum(axis=1)
    value -= np.log(total)
    a *= (-1 / total)[:, None]
    a += t
    return value, a


MEAN_ERROR = 0.01, 0.03
"""Mean error of probabilities from which a verdict is amber, and from which it is red."""
# Nats, of a term of the evidence's expansion: what is left beyond smaller ones is nothing.
_LOOK_CLOSER = 0.02
_CLOSER_ROWS = 5000
_LEFT = 0.01  # nats beyond the second-order term: 0.015 are promised where it holds
# From which numbers on the second-order term does not hold: what is left beyond 0.12 nats is about its square, 0.015.
_MOST_OF = {"shift": 0.8, "second_order": 0.12, "jitter": 1e-300, "k_hat": 0.7, "evidence_left": _LEFT}
_EFFECTIVE = 0.05
_ROWS = 256  # training rows whose probabilities are compared
_SEPARATION = {"none": 0.0, "quasi": 1.0, "complete": 2.0, "unknown": -1.0}
_LEVELS = ("green", "amber", "red")
_NAMED = 5  # columns or classes in a message
Finding = tuple[str, str]
"""A level and what led to it, in words."""
_FLOPS = 3e9  # for the tensor's slices: beyond, rows are drawn
_DIRECTIONS = 64  # slices of the tensor: all of them up to here, beyond a random orthonormal set
_SLICE_COLUMNS, _FEWEST_COLUMNS = 256, 16  # of each, likewise; of very many weights as few as the work allows
_CUBE = 10  # products that a cube of a pair of rows costs beside its scalar product
_HELD = 2**22  # numbers of the tensor held at a time, by a thread


@dataclass(frozen=True, kw_only=True)
class TrustAnswer:
    """A question that decides whether probabilities may be used: the answer, a number and a sentence."""

    name: str  # "computed", "calibrated" or "known"
    colour: str  # "green", "amber" or "red"
    value: float | None  # the number that decides; None where it is not known
    low: float | None  # its 95 % interval
    high: float | None
    says: str
    advice: str  # the one thing to do about it; "" where it is green


@dataclass(frozen=True)
class Trust:
    """The verdict "green", "amber" or "red", its reasons in words, and numbers by name.

    Of a model it is the worst of the `answers`; a single fit has none.

    Numbers: `mean_error` and `largest_error` of probabilities; and of a Laplace fit `shift` (posterior sd),
    `second_order` (nats), `evidence_left` beyond it (nats), `k_hat`, `effective_draws` (a share), `separation` (0 none,
    1 quasi, 2 complete, -1 too large to tell), `redundant_columns`, `jitter`, `condition` of A scaled to unit diagonal.
    In a stored model, a number that is not finite is None.
    """

    verdict: str
    reasons: tuple[str, ...]
    numbers: Mapping[str, float | None]
    answers: tuple[TrustAnswer, ...] = ()

    @classmethod
    def of(cls, findings: list[Finding], numbers: Mapping[str, float | None]) -> Trust:
        """Return the verdict of the worst finding, the worst findings first."""
        ordered = sorted(findings, key=lambda f: -_LEVELS.index(f[0]))
        verdict = ordered[0][0] if ordered else "green"
        return cls(verdict, tuple(text for _, text in ordered), dict(numbers))

    def answer(self, name: str) -> TrustAnswer:
        """Return the answer of a name: "computed", "calibrated" or "known"."""
        return next(one for one in self.answers if one.name == name)

    @property
    def second_order_holds(self) -> bool:
        """Whether the log evidence with its second-order term is good to 0.015 nats."""
        return second_order_holds(self.numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return strings, lists and numbers."""
        return plain_fields(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Trust:
        """Return the verdict of `to_dict`."""
        answers = tuple(TrustAnswer(**one) for one in d["answers"])
        return cls(d["verdict"], tuple(d["reasons"]), {k: float(v) for k, v in d["numbers"].items()}, answers)


def assess(problem: Problem, gaussian: Gaussian, *, converged: bool, status: str) -> Trust:
    """Return the verdict on the Laplace approximation `gaussian` of the problem's posterior."""
    data = problem.require_data()
    with single_threaded_blas():
        shift, shift_norm, second_order, _, n_rows = corrections(data, problem.likelihood, gaussian)
        _, k_hat, effective = smooth(laplace_ratios(data, problem.likelihood, gaussian, n_rows))
        separation = _separation(problem, gaussian)
        empty, dependent = find_collinearity(data)
    d = np.sqrt(np.diag(gaussian.precision))
    d[d == 0] = 1.0
    values = np.linalg.eigvalsh(gaussian.precision / d[:, None] / d)
    numbers = {
        **_errors(problem, gaussian, shift),
        "shift": shift_norm,
        "second_order": second_order,
        "evidence_left": 0.0,
        "k_hat": k_hat,
        "effective_draws": effective,
        "separation": _SEPARATION[separation[0]],
        "redundant_columns": float(len(empty) + len(dependent)),
        "jitter": gaussian.jitter,
        "condition": float(values[-1] / max(values[0], np.finfo(float).eps)),
    }
    # The term may be small only because its parts cancel.
    largest = max(abs(second_order), 0.5 * shift_norm**2)
    closer = largest >= _LOOK_CLOSER and n_rows <= _CLOSER_ROWS
    if converged and closer and second_order_holds(numbers):
        with single_threaded_blas():
            numbers["evidence_left"], _ = evidence_left(problem, gaussian, second_order, _LEFT, n_rows)
    remedy = "refine the fit (blr.refine), or sample its posterior (blr.sample_posterior)"
    findings = [of_probabilities(numbers, remedy)]
    if not converged:
        findings.insert(0, ("red", f"the search for the mode did not converge: {status}"))
    findings += _of_separation(separation, problem)
    level = "red" if problem.prior is None else "green"
    findings += [(level, f"column(s) {_listed(empty)} hold zeros only")] * bool(empty)
    findings += [
        (level, f"column {column} is a linear combination of column(s) {_listed(others)}")
        for column, others in dependent[:_NAMED]
    ]
    if gaussian.jitter > 0:
        raised = f"its diagonal was raised by {gaussian.jitter:.0e}"
        findings.append(("amber", f"the precision is singular within rounding errors; {raised}"))
    return Trust.of(findings, numbers)


def of_probabilities(numbers: Mapping[str, float], remedy: str) -> Finding:
    """Return what the errors of probabilities say of a fit; `remedy` is what to do where they are not small."""
    mean, largest = numbers["mean_error"], numbers["largest_error"]
    # Written so that NaN is red.
    level = "green" if mean < MEAN_ERROR[0] else "amber" if mean < MEAN_ERROR[1] else "red"
    said = f"probabilities of this fit err by {mean:.3f} on average, at most by {largest:.2f}"
    return level, said if level == "green" else f"{said}: {remedy}"


def second_order_holds(numbers: Mapping[str, float | None]) -> bool:
    """Say whether the numbers of a Laplace fit are those of a nearly Gaussian posterior; False where one is unknown."""
    sizes = [numbers.get(name) for name in _MOST_OF]
    within = all(x is not None and abs(x) < most for x, most in zip(sizes, _MOST_OF.values(), strict=True))
    return within and (numbers.get("effective_draws") or 0.0) >= _EFFECTIVE


def some_rows(data: Data) -> Matrix:
    """Return the design of some 256 training rows, evenly spread, (n, M)."""
    return evenly_spread(data, _ROWS)[1][:_ROWS]


def _errors(problem: Problem, gaussian: Gaussian, shift: Vector) -> dict[str, float]:
    """Return how far probabilities of training rows move, on average and at most, when the mean does."""
    Phi, likelihood = some_rows(problem.require_data()), problem.likelihood
    link = "logistic" if not problem.binary else likelihood.name
    found = [
        predicted(*problem.class_moments(*OutputMoments(q, likelihood.n_outputs)(Phi)), link=link).probability
        for q in (gaussian, Gaussian(gaussian.mean + shift, gaussian.precision))
    ]
    moved = np.abs(found[0] - found[1]).max(axis=1)
    return {"mean_error": float(moved.mean()), "largest_error": float(moved.max())}


def _separation(problem: Problem, gaussian: Gaussian) -> Separation:
    """Return whether the classes are separable: the recorded ones, where labels may be wrong."""
    data, likelihood, prior, start = problem.require_data(), problem.likelihood, problem.solver_prior, None
    if problem.mislabelled:
        data = Retargeted(data, most_likely_class)
    elif likelihood.name == "logistic" or (isinstance(likelihood, Categorical) and likelihood.contrasts):
        # The mode, whose gradient and Hessian follow from the prior.
        gradient = prior.precision @ (gaussian.mean - prior.mean)
        start = gaussian.mean, gradient, gaussian.precision - prior.precision
    one_hot = problem.mislabelled or not problem.binary
    return find_separation(data, problem.n_classes, problem.n_functions, start, one_hot=one_hot)


def _of_separation(separation: Separation, problem: Problem) -> list[Finding]:
    kind, pairs, columns = separation
    if kind == "none":
        return []
    if kind == "unknown":
        return [("green", "it is unknown whether the classes are separable: the test would take too long")]
    level, ending = "green", "only the prior keeps the weights finite"
    if problem.prior is None:
        level, ending = "red", "there is no maximum likelihood"
    classes = ", ".join(f"{problem.classes[j]} and {problem.classes[k]}" for j, k in pairs[:_NAMED])
    how = "without error" if kind == "complete" else "in part of the rows, without error there"
    what = f"{kind} separation: column(s) {_listed(columns)} tell {classes or 'a class'} apart {how}"
    return [(level, f"{what}; {ending}")]


def _listed(columns: tuple[int, ...]) -> str:
    shown = ", ".join(str(c) for c in columns[:_NAMED])
    return shown + (f" and {len(columns) - _NAMED} more" if len(columns) > _NAMED else "")


def corrections(
    data: Data, likelihood: Likelihood, gaussian: Gaussian
) -> tuple[Vector, float, float, int, int]:
    """Return the corrections to the Laplace approximation `gaussian` of the posterior that has this likelihood.

    These are the mean's shift δ (D,), its length in posterior sd, and the evidence's second-order term in nats; then
    come how many rows were used for the tensor, and how many there are.

    The third term is exact where pairs of rows are few, or weights and rows are.  Elsewhere it comes from random
    slices, and from every n-th row, drawn by position: products of a row with itself, which would bias the square, are
    taken out and those of all rows put in.  It is unbiased there.
    """
    U = gaussian.inverse_cholesky
    g, fourth, squares, n = data.accumulate(_row_sums(likelihood, gaussian.mean, U))
    z = U @ g
    sunset, rows = _squared_length(data, likelihood, gaussian, float(squares), int(n))
    second_order = -float(fourth) / 8 + float(z @ z) / 8 + sunset / 12
    return -0.5 * (U.T @ z), 0.5 * float(np.sqrt(z @ z)), second_order, rows, int(n)


def _row_sums(likelihood: Likelihood, theta: Vector, U: Matrix) -> ChunkFunction:
    """Return g (D,), the fourth derivatives on Σ and Σ, the rows' own squared third derivatives, and their number."""
    C = likelihood.n_outputs
    covariances = class_covariances(U, C)

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        a, V = activations(Phi, theta, C), covariances(Phi)
        w = np.ones(len(Phi)) if weight is None else weight
        g = w[:, None] * likelihood.curvature_gradient(a, t, V)
        fourth = float(w @ likelihood.fourth_on(a, t, V))
        squares = float(w**2 @ likelihood.third_squared(a, t, V))
        return (g.T @ Phi).ravel(), fourth, squares, len(Phi)

    return blockwise(terms, C * len(theta) + 4 * (C + 1) ** 2)


def _squared_length(
    data: Data, likelihood: Likelihood, gaussian: Gaussian, own: float, n: int
) -> tuple[float, int]:
    """Return the squared length |Σ_n x_n|² of the third derivative in the metric Σ, and the rows used.

    `own` is Σ_n |x_n|² over all n rows.
    """
    theta, C = gaussian.mean, likelihood.n_outputs
    D, M = len(theta), len(theta) // C
    m, numbers = min(D, _DIRECTIONS), (M * (M + 1) // 2) * (C * (C + 1) // 2)  # of a slice
    of_slices = 2.0 * n * m * numbers
    step = max(1, int(np.ceil(of_slices / _FLOPS)))
    columns = D
    if D > _SLICE_COLUMNS:
        columns = int(np.clip(_FLOPS / (4.0 * m * D**2), _FEWEST_COLUMNS, _SLICE_COLUMNS))
    cubes = len(likelihood.transform) if isinstance(likelihood, Categorical) else 1
    if (n * cubes) ** 2 * (D + _CUBE) < min(of_slices, _FLOPS) + 4.0 * m * D**2 * columns:
        return _over_pairs(data, likelihood, gaussian), n
    # Columns whitened by the outputs' mean precision, ψ = base φ: sums of products of them lose no digits to collinear
    # columns.  U whitens what is left.
    blocks = gaussian.precision.reshape(C, M, C, M)
    L, _ = cholesky_of_precision(np.einsum("cmcn->mn", blocks) / C)
    base = scipy.linalg.solve_triangular(L, np.eye(M), lower=True, check_finite=False)
    U = (gaussian.inverse_cholesky.reshape(D, C, M) @ L).reshape(D, D)
    rng = np.random.default_rng(0)
    first, second = _frame(D, m, rng), _frame(D, columns, rng)
    B, block = U.T @ second, max(1, _HELD // numbers)
    total, drawn, used = 0.0, 0.0, 0
    for start in range(0, m, block):
        slices = _slices(likelihood, theta, base, U, U.T @ first[:, start : start + block])
        G, drawn, used = data.accumulate(thinned(slices, step))
        packed = G.reshape(M * (M + 1) // 2, C * (C + 1) // 2, -1)
        total += sum(
            float(np.sum((U @ (unpacked_blocks(packed[:, :, k], C, M) @ B)) ** 2))
            for k in range(packed.shape[2])
        )
    total *= D / m * D / columns
    if used == n or used < 2:
        return total, used
    return (total - drawn) * (n * (n - 1.0)) / (used * (used - 1.0)) + own, used


def _over_pairs(data: Data, likelihood: Likelihood, gaussian: Gaussian) -> float:
    """Return |Σ_n x_n|² from all pairs of rows: x_n is a sum of cubes, and (u⊗u⊗u)·(v⊗v⊗v) = (u·v)³."""
    U = gaussian.inverse_cholesky

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        u, v = likelihood.third_cubes(activations(Phi, gaussian.mean, likelihood.n_outputs), t)
        u = u if weight is None else weight[:, None] * u
        return [u.ravel()], [np.einsum("njc,nm->njcm", v, Phi).reshape(u.size, -1) @ U.T]

    u, X = (np.concatenate(parts) for parts in data.accumulate(terms))
    total, size = 0.0, max(1, _HELD // len(X))
    for some in slices(len(X), size):
        G = X[some] @ X[some.start :].T  # each pair of blocks once: those beside the diagonal count twice
        twice = np.where(np.arange(G.shape[1]) < len(G), 1.0, 2.0)
        total += float(u[some] @ (G * G * G) @ (twice * u[some.start :]))
    return total


def _slices(likelihood: Likelihood, theta: Vector, base: Matrix, U: Matrix, B: Matrix) -> ChunkFunction:
    """Return the tensor's slices along directions B (D, m), (M(M+1)/2, P m); the rows' own squares; the rows."""
    C, m = likelihood.n_outputs, B.shape[1]
    M = len(theta) // C
    i, j = np.triu_indices(M)
    by_output = B.reshape(C, M, m)
    covariances = class_covariances(U, C)

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        a, Psi = activations(Phi, theta, C), Phi @ base.T
        W = likelihood.curvature_along(a, t, np.stack([Psi @ b for b in by_output], axis=1))
        w = np.ones(len(Phi)) if weight is None else weight
        own = w**2 @ likelihood.third_squared(a, t, covariances(Psi))
        return (Psi[:, i] * Psi[:, j]).T @ (w[:, None] * W.reshape(len(Phi), -1)), float(own), len(Phi)

    return blockwise(terms, len(i) + (C * (C + 1) // 2 + 2 * C) * m + C * len(theta))


def _frame(D: int, m: int, rng: np.random.Generator) -> Matrix:
    """Return m orthonormal directions (D, m): the axes where they are all, else random ones."""
    if m == D:
        return np.eye(D)
    Q, _ = np.linalg.qr(rng.standard_normal((D, m)))
    return Q
