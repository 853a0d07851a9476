"""The problem of a fit: its rows or its streams of rows, the objective, its gradient and its Hessian."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from scipy.special import expit

from blr.arrays import Matrix, Vector, as_design, column_names, slices
from blr.gaussian import Gaussian, GaussianPrior, class_mean, exchangeable
from blr.likelihood.likelihoods import (
    Bernoulli,
    Categorical,
    Likelihood,
    MislabelledBernoulli,
    MislabelledCategorical,
    make_likelihood,
)
from blr.likelihood.targets import as_confusion, label_likelihood, resolve_targets
from blr.predictive.softmax import softmax_plugin
from blr.sums import Chunk, ChunkFunction, Data, Rows, Terms, added, chunk_rows, likelihood_terms
from blr.threads import default_threads, ordered_map, single_threaded_blas


@dataclass(frozen=True, eq=False)
class Stream:
    """Chunks (Phi, t, weight) that come from elsewhere (disk, network), read anew at each pass.

    `classes` are as of `fit`, and `binary` says whether there are two, by one activation.
    """

    source: Iterable[Any]
    n_functions: int
    binary: bool = True
    classes: Sequence[Any] | None = None
    threads: int = field(default_factory=default_threads)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the source's chunks, checked, cut to at most the usual size."""
        size = chunk_rows(self.n_functions)
        for Phi, t, weight in self.source:
            matrix = as_design(Phi)
            if matrix.shape[1] != self.n_functions:
                raise ValueError(
                    f"a chunk has {matrix.shape[1]} columns but the first had {self.n_functions}; give all "
                    "chunks the same columns"
                )
            (fraction, w, _), _ = resolve_targets(
                t, binary=self.binary, sample_weight=weight, classes=self.classes
            )
            if len(fraction) != len(matrix):
                raise ValueError(
                    f"a chunk's Phi has {len(matrix)} rows but its targets have {len(fraction)}; give one "
                    "target for each row"
                )
            for part in slices(len(matrix), size):
                yield matrix[part], fraction[part], None if w is None else w[part]

    def accumulate(self, function: ChunkFunction) -> Terms:
        """Return the sum of `function` over one pass of the source."""
        with single_threaded_blas():
            parts = ordered_map(lambda chunk: function(*chunk), self.chunks(), threads=self.threads)
            first = next(parts, None)
            if first is None:
                raise ValueError(
                    "the stream has no chunks; give a list, or an object whose __iter__ starts again, and not a "
                    "generator that has been read already"
                )
            return added(chain([first], parts))


# Data that add themselves up: whatever has `n_functions` and `accumulate`, wherever the rows are.
#
# Targets in the chunks are fractions already: (n,) shares of the second class, or (n, K) shares of the classes.
# Shapes: M columns, K classes.


@dataclass(frozen=True, eq=False)
class Retargeted:
    """Data with other targets, which `targets` makes of theirs."""

    data: Data
    targets: Callable[[Matrix], Matrix]

    @property
    def n_functions(self) -> int:
        """The number of columns."""
        return self.data.n_functions

    @property
    def sample(self) -> Data | None:
        """Rows in memory that stand for all, weights made up; None where the data name none."""
        rows = getattr(self.data, "sample", None)
        return None if rows is None else Retargeted(rows, self.targets)

    def accumulate(self, function: ChunkFunction) -> Terms:
        """Return the sum of `function` over the data with these targets."""
        return self.data.accumulate(lambda Phi, t, weight: function(Phi, self.targets(t), weight))


def totals(
    data: Any, *, binary: bool, classes: Sequence[Any] | None, confusion: ArrayLike | None
) -> tuple[Data, tuple[Any, ...], float, bool]:
    """Return what a problem takes over from data that have `accumulate`, checked in one pass over them.

    These are the data themselves, the classes, the rows that they are worth, and whether labels may be wrong.
    There is no such pass where data have `n_effective`, the sum of their weights: they are known then.  Where data say
    that they are `mislabelled`, their targets are likelihoods of what was recorded (n, K) already.
    ValueError if the targets of some chunk are no fractions, or do not fit the classes; if there is a confusion for
    data whose targets are likelihoods already.
    """
    names = (0, 1) if classes is None and binary else tuple(classes or ())
    known = getattr(data, "n_effective", None)
    if known is None or not names:
        known, shares, wrong = data.accumulate(_shares)
        if wrong:
            raise ValueError(
                f"got {int(wrong)} rows with wrong columns, targets or weights; expected finite columns, "
                "targets between 0 and 1 of shape (n,) or (n, K), and weights of 0 or more: correct those "
                "rows or leave them out"
            )
        K = 2 if np.ndim(shares) == 0 else len(shares)
        names = names or tuple(range(K))
        if len(names) != K or (binary and K > 2):
            raise ValueError(
                f"got targets of {K} classes, expected {len(names)}: {list(names)}; name each class once in "
                "classes=, and use 'softmax' for more than two"
            )
    mislabelled = bool(getattr(data, "mislabelled", False))
    if confusion is None:
        return data, names, float(known), mislabelled
    if mislabelled:
        raise ValueError(
            "got a confusion matrix beside data that say they are mislabelled, whose targets are likelihoods of what "
            "was recorded already; leave confusion out"
        )
    matrix = as_confusion(confusion, len(names))
    if matrix.ndim > 2:
        raise ValueError("a stream needs one confusion matrix for all rows, got one a row; give shape (K, K)")
    if (np.diag(matrix) == 1).all():
        return data, names, float(known), False
    return Retargeted(data, partial(_likelihoods, confusion=matrix)), names, float(known), True


def _likelihoods(t: Matrix, confusion: Matrix) -> Matrix:
    """Return the likelihoods of what was recorded (n, K), under a confusion (K, K)."""
    return label_likelihood(np.stack([1 - t, t], axis=1) if t.ndim == 1 else t, confusion)


def _shares(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
    """Return the weight of the rows, that of each class, and how many rows are not as they should be."""
    w = np.ones(len(Phi)) if weight is None else weight
    good = np.isfinite(Phi).all(axis=1) & (w >= 0) & np.isfinite(w)
    good &= ((t >= 0) & (t <= 1)).reshape(len(Phi), -1).all(axis=1)
    return float(w.sum()), w @ t, int((~good).sum())


# The problem of a fit: likelihood, prior, classes and data, in the coordinates that the solver works in.
#
# A softmax whose prior treats all classes alike is solved in K - 1 contrasts; any other model in its own weights.
# Shapes: N rows, M basis functions, K classes, C outputs, D = M or K M weights in order k M + m, C M of them solved
# for.


@dataclass(frozen=True, eq=False)
class Problem:
    """What is fitted; K - 1 contrasts of a softmax where the prior treats classes alike.

    `names` are those of the M functions, where the design matrix came with them.
    """

    likelihood: Likelihood
    prior: GaussianPrior | None
    classes: tuple[Any, ...]
    n_functions: int
    n_effective: float
    data: Data | None = None
    names: tuple[str, ...] | None = None

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    @property
    def binary(self) -> bool:
        """Whether there is one activation a row."""
        return isinstance(self.likelihood, Bernoulli)

    @property
    def mislabelled(self) -> bool:
        """Whether labels may be wrong, and targets are the likelihoods (N, K) of what was recorded."""
        return isinstance(self.likelihood, (MislabelledBernoulli, MislabelledCategorical))

    @property
    def n_weights(self) -> int:
        """D, M or K M."""
        return self.n_functions if self.binary else self.n_classes * self.n_functions

    @property
    def n_solved(self) -> int:
        """Weights in the solver's coordinates, C M."""
        return self.likelihood.n_outputs * self.n_functions

    @property
    def free_parameters(self) -> int:
        """M, or (K - 1) M: what the likelihood can tell apart."""
        return (self.n_classes - 1) * self.n_functions

    @cached_property
    def transform(self) -> Matrix:
        """T (K, C) from outputs to class activations; (1, 1) for two classes."""
        return self.likelihood.transform if isinstance(self.likelihood, Categorical) else np.eye(1)

    @cached_property
    def prior_mean(self) -> Vector:
        """m0 (D,), of all K classes."""
        if self.prior is None:
            return np.zeros(self.n_weights)
        if self.binary or self.prior.size not in (None, self.n_functions):
            return self.prior.resized(self.n_weights)[0]
        return np.tile(self.prior.resized(self.n_functions)[0], self.n_classes)

    @cached_property
    def shared_precision(self) -> Matrix | None:
        """S0⁻¹ (M, M) of each class where all have the same; None for maximum likelihood."""
        if self.prior is None:
            return None
        shared = exchangeable(self.prior, self.n_classes, self.n_functions)
        return None if shared is None else shared.precision(self.n_functions)

    @cached_property
    def solver_prior(self) -> Gaussian:
        """The prior in the solver's coordinates."""
        D = self.n_solved
        if self.prior is None:
            return Gaussian(np.zeros(D), np.zeros((D, D)))
        if self.binary:
            return Gaussian(self.prior_mean, self.prior.precision(D))
        T = self.transform
        mean = (T.T @ self.prior_mean.reshape(self.n_classes, -1)).ravel()
        if T.shape[0] == T.shape[1]:
            return Gaussian(mean, self.prior.precision(D))
        assert self.shared_precision is not None  # noqa: S101  contrasts are taken only then
        blocks = scipy.linalg.block_diag(*[self.shared_precision] * T.shape[1])
        return Gaussian(mean, blocks)

    def design(self, Phi: ArrayLike) -> Matrix:
        """Return Phi (N, M), checked against the model; a batch without rows is no error."""
        empty = np.size(Phi) == 0 and np.ndim(Phi) == 2
        matrix = np.asarray(Phi, dtype=np.float64) if empty else as_design(Phi)
        if matrix.shape[1] != self.n_functions:
            raise ValueError(
                f"design matrix has {matrix.shape[1]} columns but the posterior has {self.n_functions} "
                "weights for each class; build both with the same basis"
            )
        names = None if self.names is None else column_names(Phi)
        if names is not None and names != self.names:
            raise ValueError(
                f"design matrix has the columns {', '.join(names)}, expected {', '.join(self.names or ())}; "
                "give the columns that the posterior was fitted to, in the same order"
            )
        return matrix

    def activations(self, Phi: Matrix, theta: Vector) -> Matrix:
        """Return the activations of the classes, (N,) or (N, K), at the solver's weights theta (C M,)."""
        outputs = Phi @ theta.reshape(self.likelihood.n_outputs, -1).T
        return outputs[:, 0] if self.binary else outputs @ self.transform.T

    def response(self, a: Matrix) -> Matrix:
        """Return the probabilities at activations a, (N,) or (N, K), weights taken as certain."""
        if isinstance(self.likelihood, Bernoulli):
            return expit(a) if self.likelihood.name == "logistic" else np.exp(self.likelihood.link.log_cdf(a))
        return softmax_plugin(a)

    def class_weights(self, theta: Vector) -> Vector:
        """Return the weights of all classes (D,) from the solver's (C M,)."""
        T = self.transform
        return theta if T.shape[0] == T.shape[1] else class_mean(theta, T, self.prior_mean)

    def class_moments(self, mean: Matrix, covariance: Matrix) -> tuple[Matrix, Matrix]:
        """Return moments of the activations, (N,) each or (N, K) and (N, K, K) less their common shift.

        From those of the outputs, (N, C) and (N, C, C).
        """
        if self.binary:
            return mean[:, 0], covariance[:, 0, 0]
        T = self.transform - self.transform.mean(axis=0)
        return mean @ T.T, np.einsum("kc,ncd,ld->nkl", T, covariance, T, optimize=True)

    def evaluate(self, theta: Vector) -> tuple[Any, ...]:
        """Return value, gradient and Hessian of the likelihood at theta: one pass over the data."""
        return self.require_data().accumulate(likelihood_terms(self.likelihood, theta))

    def require_data(self) -> Data:
        """Return the data; RuntimeError where the fit was loaded without them."""
        if self.data is None:
            raise RuntimeError(
                "this posterior was loaded from a file, which does not hold the training data that this "
                "computation needs; compute it before you save, or fit again"
            )
        return self.data

    def require_rows(self) -> Rows:
        """Return the data as rows in memory; RuntimeError as `require_data`, TypeError where they came as a stream."""
        data = self.require_data()
        if not isinstance(data, Rows):
            raise TypeError(
                "got a posterior that was fitted to a stream, expected one fitted to rows in memory; fit an "
                "array of all rows or of a sample"
            )
        return data


def pose(
    Phi: Any,
    t: Any,
    prior: GaussianPrior | None,
    likelihood: str = "logistic",
    *,
    trials: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    confusion: ArrayLike | None = None,
    threads: int | None = None,
) -> Problem:
    """Return the problem of fitting t to Phi (N, M).

    Where t is None, Phi has `accumulate`, or is a re-iterable of (Phi, t, weight) chunks.
    """
    threads, binary = default_threads() if threads is None else threads, likelihood != "softmax"
    if t is None:
        if trials is not None or sample_weight is not None:
            raise ValueError(
                "trials and sample_weight cannot be used with a stream; give the weight in each chunk (Phi, "
                "t, weight), with t as the fraction of successes and weight as the number of trials"
            )
        stream = Phi
        if not hasattr(Phi, "accumulate"):
            stream, classes = _stream(Phi, classes, confusion, binary=binary, threads=threads)
        data, names, n_effective, mislabelled = totals(
            stream, binary=binary, classes=classes, confusion=confusion
        )
        return make_problem(
            likelihood, prior, names, data.n_functions, n_effective, data, mislabelled=mislabelled
        )
    matrix = as_design(Phi)
    (fraction, weight, names), mislabelled = resolve_targets(
        t, binary=binary, trials=trials, sample_weight=sample_weight, classes=classes, confusion=confusion
    )
    if len(fraction) != len(matrix):
        raise ValueError(f"Phi has {len(matrix)} rows but the targets have {len(fraction)}; give one a row")
    n_effective = float(len(fraction) if weight is None else weight.sum())
    rows, M, named = Rows(matrix, fraction, weight, threads), matrix.shape[1], column_names(Phi)
    return make_problem(likelihood, prior, names, M, n_effective, rows, mislabelled=mislabelled, names=named)


def _stream(
    source: Any, classes: Sequence[Any] | None, confusion: ArrayLike | None, *, binary: bool, threads: int
) -> tuple[Stream, tuple[Any, ...]]:
    """Return the stream of a source of chunks, and its classes, which the first chunk tells where none are given."""
    if iter(source) is source:
        raise ValueError(
            "a stream is read several times, and a generator can be read once only; give a list, or an "
            "object whose __iter__ starts again"
        )
    first = next(iter(source), None)
    if first is None:
        raise ValueError("the stream is empty; give at least one chunk (Phi, t, weight)")
    of_parts = isinstance(first, (tuple, list))
    if not of_parts or len(first) != len(("Phi", "t", "weight")) or np.ndim(first[0]) != 2:
        got = f"{type(first).__name__} of {len(first)}" if of_parts else type(first).__name__
        raise ValueError(
            f"without targets (t=None) Phi is a stream of chunks (Phi, t, weight), Phi (n, M) and weight (n,) or None; "
            f"got a first chunk that is a {got}; give such chunks, or t"
        )
    named = np.asarray(first[1]).dtype.kind not in "biuf"
    if (named or not binary) and classes is None and np.ndim(first[1]) == 1:
        raise ValueError("a stream of labels needs classes=, since a chunk may not have every class")
    # A confusion is checked beside the first targets: votes have none.
    shared = None if np.ndim(np.asarray(confusion)) > 2 else confusion
    (_, _, names), _ = resolve_targets(
        first[1], binary=binary, sample_weight=first[2], classes=classes, confusion=shared
    )
    return Stream(source, np.shape(first[0])[1], binary, classes, threads), names


def make_problem(
    name: str,
    prior: GaussianPrior | None,
    classes: tuple[Any, ...],
    M: int,
    n_effective: float,
    data: Data | None,
    *,
    mislabelled: bool = False,
    names: tuple[str, ...] | None = None,
) -> Problem:
    """Return the problem, the prior checked against the M columns and K classes.

    `mislabelled`: of labels that may be wrong, whose targets are likelihoods (N, K).  `names` (M,) of the columns.
    """
    K = len(classes)
    if not n_effective > 0:
        raise ValueError("every row has weight zero; give at least one row a positive sample_weight or trial")
    if prior is not None and not isinstance(prior, GaussianPrior):
        raise TypeError(
            f"prior is a {type(prior).__name__}, expected a GaussianPrior, or None for maximum likelihood; "
            "GaussianPrior(mean, covariance) makes one"
        )
    contrasts = prior is None or exchangeable(prior, K, M) is not None if name == "softmax" else False
    if prior is not None and name != "softmax":
        prior.resized(M)  # a prior of the wrong size is said here, before any work
    made = make_likelihood(name, K, contrasts=contrasts, mislabelled=mislabelled)
    return Problem(made, prior, classes, M, n_effective, data, names)
