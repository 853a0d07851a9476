"""Candidates side by side: evidence, BIC, approximate leave-one-out; averaging by evidence (PRML 3.4, 4.4.1).

The evidence compares prior, scaling and features at once, so it ranks models as they are, not bases alone.  The
second-order term is added for all candidates or for none.  A red verdict condemns the Gaussian approximation, not the
model, so it bars none.
Shapes: N rows, K classes, C outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector
from blr.likelihood.targets import most_likely_class
from blr.posterior.kinds import Posterior
from blr.predictive.mixture import Prediction, mix
from blr.selection._comparison import Comparison, Ranking, Row, rank
from blr.selection._left_out import groups_of_several, left_out, left_out_together
from blr.sums import Terms, chunk_rows
from blr.threads import single_threaded_blas

__all__ = [
    "Comparison",
    "LeaveOneOut",
    "Ranking",
    "Row",
    "against_records",
    "average",
    "compare",
    "leave_one_out",
    "leave_one_out_probability",
    "rank",
    "recorded_shares",
    "weights",
]


@dataclass(frozen=True)
class LeaveOneOut:
    """Expected log predictive density of a row left out, summed over rows, with its standard error.

    `n_influential` rows carry more than half of their own curvature: the approximation is rough for them.
    """

    log_density: float
    standard_error: float
    n_influential: int


def leave_one_out(q: Posterior) -> LeaveOneOut:
    """Return the approximate leave-one-out score of a Laplace or refined posterior: one pass over its data.

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
    >>> score = blr.leave_one_out(q)
    >>> bool(score.log_density < q.log_likelihood), score.n_influential
    (True, 0)
    """

    def term(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        w = np.ones(len(Phi)) if weight is None else weight
        p, influential = left_out(q, Phi, t, w)
        p, shares = against_records(q, p, t)
        density: Vector = w * np.einsum("nk,nk->n", shares, np.log(np.maximum(p, np.finfo(float).tiny)))
        return float(density.sum()), float((density**2).sum()), len(Phi), int(influential.sum())

    with single_threaded_blas():
        total, squares, n, influential = q.problem.require_data().accumulate(term)
    variance = max(squares - total**2 / n, 0.0) * n / max(n - 1, 1)
    return LeaveOneOut(total, float(np.sqrt(variance)), influential)


def leave_one_out_probability(
    q: Posterior, *, records: bool = True, group: ArrayLike | None = None
) -> tuple[Matrix, Matrix, Vector]:
    """Return each row's probabilities without itself (N, K), its shares of the classes (N, K), and its weight (N,).

    As `leave_one_out`, for `stacking_weights`.  Rows of an equal `group` (N,) are left out together.
    Where labels may be wrong they are the probabilities of what was
    recorded; without `records` those of the true classes.

    Raises
    ------
    RuntimeError
        If `q` was loaded from a file: it has no data.
    TypeError
        If its rows came as a stream, which are not kept.
    """
    data = q.problem.require_rows()
    shares, weight = recorded_shares(q)
    step = chunk_rows(data.n_functions)
    parts = [slice(i, i + step) for i in range(0, len(data.Phi), step)]
    with single_threaded_blas():
        p = [left_out(q, data.Phi[part], data.t[part], weight[part])[0] for part in parts]
        p_left = np.concatenate(p)
        for rows in groups_of_several(group):
            p_left[rows] = left_out_together(q, data.Phi[rows], data.t[rows], weight[rows])
    return against_records(q, p_left, data.t)[0] if records else p_left, shares, weight


def recorded_shares(q: Posterior) -> tuple[Matrix, Vector]:
    """Return the shares of the classes in each row's record (N, K), and the rows' weights (N,).

    Raises
    ------
    RuntimeError, TypeError
        As `leave_one_out_probability`.
    """
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


def _ranked(posteriors: Sequence[Posterior], prior_probability: ArrayLike | None) -> Ranking:
    fits = [q.laplace for q in posteriors]
    return rank(
        [fit.log_evidence for fit in fits],
        [fit.second_order for fit in fits],
        [fit.trust.second_order_holds for fit in fits],
        prior_probability,
    )


def weights(posteriors: Sequence[Posterior], prior_probability: ArrayLike | None = None) -> Vector:
    """Return the posterior probability of each model, (len,): evidence times prior probability.

    Raises
    ------
    ValueError
        If there are no models, or the prior probabilities are not one positive number a model.
    """
    return _ranked(posteriors, prior_probability).weight


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
        As `weights`; or if the fits are of different rows, classes or targets, whose evidences do not compare.

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
    ranking = _ranked(fits, prior_probability)
    _require_same_data(fits)
    named = zip(names or [f"candidate {i}" for i in range(len(fits))], fits, ranking.weight, strict=True)
    rows = tuple(_row(name, q, float(w)) for name, q, w in named)
    best = {
        "evidence": ranking.best(ranking.weight),
        "bic": ranking.best([r.bic for r in rows]),
        "loo": ranking.best([r.loo for r in rows]),
    }
    return Comparison(rows, best, ranking.second_order_applied)


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


def _row(name: str, q: Posterior, weight: float) -> Row:
    loo = leave_one_out(q)
    return Row(
        name=name,
        log_evidence=q.log_evidence,
        second_order=q.laplace.second_order,
        bic=q.bic,
        loo=loo.log_density,
        loo_standard_error=loo.standard_error,
        effective_parameters=q.laplace.effective_parameters,
        n_parameters=q.problem.free_parameters,
        verdict=q.trust.verdict,
        weight=weight,
    )


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
