"""Left-out predictions by folds: each row's probabilities under a fit that has not seen its fold.

The model is fitted again without the fold, at the same prior and basis, and refined like the one that will be served:
what is stacked is then what is kept.  Shapes: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Matrix
from blr.fitting.newton import maximise
from blr.posterior.kinds import LaplacePosterior, Posterior
from blr.posterior.laplace import posterior_at
from blr.posterior.variational import refine
from blr.threads import single_threaded_blas

__all__ = [
    "Predict",
    "assign_folds",
    "fold_probabilities",
    "fold_probability",
]

Predict = Callable[[Posterior, NDArray[np.intp]], NDArray[np.float64]]
"""What a posterior says of rows, by their numbers (n,): probabilities (n, K), or several of them (n, ..., K)."""


def assign_folds(stratum: ArrayLike, group: ArrayLike | None = None, *, n_folds: int = 5) -> NDArray[np.intp]:
    """Return the fold of each row (N,): the strata are spread evenly, rows of one group stay together.

    Parameters
    ----------
    stratum
        Classes (N,), as integers from 0.
    group
        (N,) 64-bit hashes, equal for rows of one object or field, whose order deals the rows out; default: the rows'
        own order.

    Raises
    ------
    ValueError
        If there are fewer groups than two, or fewer than 2 folds.
    """
    k = np.asarray(stratum, dtype=np.intp)
    named = np.arange(len(k)) if group is None else np.asarray(group)
    _, member = np.unique(named, return_inverse=True)
    n_groups = int(member.max(initial=-1)) + 1
    if n_groups < 2 or n_folds < 2:
        raise ValueError(
            f"got {n_groups} group(s) of rows for {n_folds} folds, expected at least two of each, since each "
            "fold is predicted by a fit to the other folds; give more groups"
        )
    counts = np.zeros((n_groups, int(k.max(initial=0)) + 1), dtype=np.intp)
    np.add.at(counts, (member, k), 1)
    # Dealt out like cards, group by group: rare classes first, then by size, then in the order of the hashes.
    rarity = np.argsort(np.argsort(counts.sum(axis=0), kind="stable"), kind="stable")
    order = np.lexsort((np.arange(n_groups), -counts.sum(axis=1), rarity[counts.argmax(axis=1)]))
    fold_of = np.empty(n_groups, dtype=np.intp)
    fold_of[order] = np.arange(n_groups) % n_folds
    return fold_of[member]


def fold_probability(q: LaplacePosterior, fold: NDArray[np.intp], *, refined: bool = True) -> Matrix:
    """Return each row's probabilities (N, K) under a fit without its fold, with the prior of the Laplace fit `q`.

    `refined`: of the refined posterior, as a draft.

    Raises
    ------
    RuntimeError
        If `q` was loaded from a file: it has no data.
    TypeError
        If its rows came as a stream, which are not kept.
    """
    return next(fold_probabilities([q], fold, refined=refined))


def fold_probabilities(
    fits: Sequence[LaplacePosterior],
    fold: NDArray[np.intp],
    *,
    refined: bool = True,
    predict: Predict | None = None,
) -> Iterator[NDArray[np.float64]]:
    """Yield for each of the fits what `fold_probability` returns; they have the same rows and different priors.

    A refinement begins where that of the fit before ended on the same rows: it has not seen the fold that is left out.
    The first one begins at its own Laplace fit.

    Parameters
    ----------
    fits, fold, refined
        As of `fold_probability`.
    predict
        What is asked of the posterior without a fold, about the rows of the fold; default: the probabilities at
        their rows of the design matrix.
    """
    ended: dict[int, Posterior] = {}
    for q in fits:
        yield _without_each(q, fold, ended, predict, refined=refined)


def _without_each(
    q: LaplacePosterior,
    fold: NDArray[np.intp],
    ended: dict[int, Posterior],
    predict: Predict | None,
    *,
    refined: bool,
) -> NDArray[np.float64]:
    """Return what is predicted of all rows.

    `ended` has where each fold's refinement ended, and is brought up to date.
    """
    data = q.problem.require_rows()
    ask = predict or (lambda served, rows: served.prediction(data.Phi[rows]).probability)
    found: list[tuple[NDArray[np.intp], NDArray[np.float64]]] = []
    with single_threaded_blas():
        for number in np.unique(fold).tolist():
            left = fold == number
            problem = replace(q.problem, data=data.chosen(~left))
            mode = maximise(problem.evaluate, problem.solver_prior, q.mode)
            served: Posterior = posterior_at(problem, mode)
            if refined:
                served = ended[number] = refine(served, start=ended.get(number), draft=True)
            rows = np.flatnonzero(left)
            found.append((rows, ask(served, rows)))
    p = np.empty((len(fold), *found[0][1].shape[1:]))
    for rows, predicted in found:
        p[rows] = predicted
    return p
