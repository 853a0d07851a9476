"""Targets of a fit: one-hot labels, shares of votes, graded answers, and labels that annotators confuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Matrix, Vector, as_matrix, as_vector, column_names, require_moderate, require_unmasked

# Confusion matrices of labels: how often a true class k is recorded as class j, C[k, j] = p(recorded j | true k).
#
# A label that may be wrong is evidence for every class: of a record j the likelihood given the true class k is C[k, j],
# so that a row's label becomes the column C[:, j], (K,).  Shapes: N rows, K classes.

_ROUNDING = 1e-8


def as_confusion(confusion: ArrayLike, n_classes: int) -> Matrix:
    """Return confusion matrices (K, K) or, one a row of data, (N, K, K), checked; a number is a rate for all classes.

    ValueError if the shape does not fit, an entry is no probability, a matrix' rows do not sum to one, or a class is
    recorded as itself half of the time or less: labels then do not say which class is which.
    """
    C = np.asarray(confusion, dtype=np.float64)
    if C.ndim == 0:
        C = even_confusion(np.full(n_classes, float(C)))
    K = n_classes
    if C.ndim not in (2, 3) or C.shape[-2:] != (K, K):
        raise ValueError(
            f"confusion has shape {C.shape}, expected ({K}, {K}), with a row for each true class and a "
            "column for each recorded class, or one such matrix for each data row; a single number is the "
            "share of wrong labels in every class"
        )
    if not (np.isfinite(C).all() and (C >= 0).all() and np.allclose(C.sum(axis=-1), 1.0, atol=_ROUNDING)):
        raise ValueError(
            "confusion holds probabilities of the recorded class given the true one, expected numbers of 0 or more "
            f"whose rows sum to 1; got the row sums {np.unique(C.sum(axis=-1).round(6))[:5].tolist()}"
        )
    right = np.einsum("...kk->...k", C)
    if not (right > 0.5).all():
        raise ValueError(
            f"confusion leaves a class with {right.min():.3g} of its labels right, expected more than 0.5 "
            "for each class: with fewer right labels the classes could change places; correct it"
        )
    return C


def even_confusion(rate: ArrayLike) -> Matrix:
    """Return the matrices (..., K, K) of rates of wrong labels (..., K), spread evenly over the other classes."""
    e = np.asarray(rate, dtype=np.float64)
    K = e.shape[-1]
    C = np.repeat((e / (K - 1))[..., None], K, axis=-1)
    diagonal = np.arange(K)
    C[..., diagonal, diagonal] = 1 - e
    return C


def label_likelihood(recorded: Matrix, confusion: Matrix) -> Matrix:
    """Return p(recorded | true class k), (N, K), of one-hot labels (N, K).

    ValueError if labels are shares of several classes, or the matrices are not one a row.
    """
    hard = (recorded == 0) | (recorded == 1)
    if not hard.all():
        row = int((~hard).any(axis=1).argmax())
        raise ValueError(
            f"confusion needs one recorded class in each row, got shares of several classes in row {row}; "
            "give labels, or leave confusion out"
        )
    if confusion.ndim == 2:
        return np.ascontiguousarray(recorded @ confusion.T)
    if len(confusion) != len(recorded):
        raise ValueError(
            f"confusion has {len(confusion)} matrices, expected one for each of the {len(recorded)} rows; "
            "give one for each row, or one (K, K) for all"
        )
    return np.asarray(np.einsum("nkj,nj->nk", confusion, recorded))


def recorded_probability(p: Matrix, confusion: Matrix | None) -> Any:
    """Return the probabilities of the recorded classes (N, K) from those of the true ones (N, K)."""
    if confusion is None:
        return p
    return p @ confusion if confusion.ndim == 2 else np.einsum("nk,nkj->nj", p, confusion)


def most_likely_class(t: Matrix) -> Vector:
    """Return the recorded classes, one-hot (N, K), of rows' likelihoods t (N, K): the class that explains them best."""
    return np.asarray(np.eye(t.shape[1])[t.argmax(axis=1)])


# Nodes over a Gaussian activation a ~ N(m, sd²) for functions of a link: few even for a wide Gaussian.
#
# A link bends at its threshold, and farther off only in proportion to the distance from there.  So a trapezoid rule
# takes equal steps in u(a), du/da = 1/(0.7 sd) + 1/(0.25 sqrt(1 + a²/4)): fine against the Gaussian (2 exp(-2π²/0.7²))
# and against a singularity at ±i, the nearest of all links (exp(-2π 4.2)).  Nodes grow with the logarithm of the sd.
# Shapes: N rows, S nodes.

_REACH = 7.5  # |z| of the outermost nodes: 6e-14 of the mass lie beyond
_STEP = 0.7  # of the Gaussian's sd
_LINK_STEP = 0.25  # in a, at the threshold
_EVEN = (0.35, 1.0, 2.0)  # sd up to which even nodes are few enough: these cost no search for their places
_NEWTON = 6
_NUMBERS = 2**16  # activations at nodes held at a time


def graded_nodes(m: Vector, sd: Vector) -> Iterator[tuple[NDArray[np.intp], Matrix, Matrix]]:
    """Yield rows (n,), their nodes (n, S) and weights (n, S), which sum to one row by row, until all rows were there.

    `m` and `sd` are (N,).
    """
    even = np.searchsorted(_EVEN, sd)
    for k in range(len(_EVEN)):
        z, w = _trapezoid(min(_STEP, _LINK_STEP / _EVEN[k]))
        for rows in _blocks(np.flatnonzero(even == k), len(z)):
            yield rows, m[rows, None] + sd[rows, None] * z, np.broadcast_to(w, (len(rows), len(z)))
    wide = np.flatnonzero(even == len(_EVEN))
    for rows, a, w in _graded(m[wide], sd[wide]):
        yield wide[rows], a, w


def _trapezoid(step: float) -> tuple[Vector, Vector]:
    z = step * np.arange(-np.ceil(_REACH / step), np.ceil(_REACH / step) + 1)
    w = np.exp(-0.5 * z**2)
    return z, w / w.sum()


def _blocks(rows: NDArray[np.intp], n: int) -> Iterator[NDArray[np.intp]]:
    size = max(1, _NUMBERS // n)
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _graded(m: Vector, sd: Vector) -> Iterator[tuple[NDArray[np.intp], Matrix, Matrix]]:
    first, last = _place(m - _REACH * sd, sd), _place(m + _REACH * sd, sd)
    # Rows that take about as many nodes go together.
    count = 8 * np.ceil((last - first + 1) / 8).astype(np.intp)
    for n in np.unique(count):
        for rows in _blocks(np.flatnonzero(count == n), int(n)):
            u = 0.5 * (first[rows] + last[rows])[:, None] + np.arange(n) - 0.5 * (n - 1)
            yield rows, *_at(u, m[rows, None], sd[rows, None])


def _place(a: Vector, sd: Vector) -> Vector:
    return a / (_STEP * sd) + 2 / _LINK_STEP * np.arcsinh(a / 2)


def _at(u: Matrix, m: Matrix, sd: Matrix) -> tuple[Matrix, Matrix]:
    near, far = 2 / _LINK_STEP, 2 / (_STEP * sd)
    # u = far sinh x + near x, a = 2 sinh x, is convex above 0: Newton's steps from above stay there.
    x = np.minimum(np.abs(u) / near, np.arcsinh(np.abs(u) / far))
    for _ in range(_NEWTON):
        up = np.exp(x)
        down = 1 / up
        x -= (0.5 * far * (up - down) + near * x - np.abs(u)) / (0.5 * far * (up + down) + near)
    a = 2 * np.sinh(np.copysign(x, u))
    w = np.exp(-0.5 * ((a - m) / sd) ** 2) / (far + near / np.cosh(x))
    return a, w / w.sum(axis=1, keepdims=True)


# Targets of a fit: labels, soft labels, successes out of trials, vote counts, with sample weights.
#
# All become fractions with a weight a row, since n votes of which t are for a class count in the likelihood as n rows
# do: weight n and fraction t/n.  The multinomial coefficient, the same for all models, is left out of every likelihood.
# Labels that may be wrong become the likelihood of each true class, by their confusion matrix.


Targets = tuple[Matrix, Vector | None, tuple[Any, ...]]
"""Fractions (N,) for two classes or (N, K), a weight a row or None for ones, and the classes' names."""


def resolve_targets(
    t: ArrayLike,
    *,
    binary: bool,
    trials: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    confusion: ArrayLike | None = None,
) -> tuple[Targets, bool]:
    """Return the targets of `t`: (N,) labels, soft labels or successes; (N, K) one-hot, soft or counts.

    `confusion` (K, K), or (N, K, K), is p(recorded | true class).  Unless it leaves every label right, labels may be
    wrong, as the second result says, and the fractions (N, K) are the likelihoods p(recorded | true class) instead.
    ValueError if labels are not among the classes, fractions not within [0, 1], successes not within the trials, counts
    or weights negative, or there is one class only; if `confusion` is no such matrix, or stands beside votes or shares.
    """
    if classes is not None and len(set(classes)) < len(classes):
        raise ValueError(f"classes are {list(classes)}, expected each once; drop the repeated ones")
    columns = column_names(t)
    if columns is not None:  # a table of votes: by default the classes are its columns
        t, classes = as_matrix(t, "targets"), columns if classes is None else classes
    require_unmasked(t, "targets")
    array = np.asarray(t)
    if array.size == 0:
        raise ValueError(f"targets are empty, got shape {array.shape}; give at least one row")
    if binary:
        fraction, weight, names = _binary(array, trials, classes)
    elif array.ndim == 1:
        if trials is not None:
            raise ValueError(
                "trials can only be used with the successes of two classes; for K classes give the vote "
                "counts as t of shape (N, K)"
            )
        fraction, weight, names = _one_hot(array, classes)
    else:
        fraction, weight, names = _counts(array, classes)
    if len(names) < 2:
        raise ValueError(f"a classifier needs at least two classes, got {list(names)}; add rows of another")
    known = None if confusion is None else as_confusion(confusion, len(names))
    mislabelled = known is not None and not (np.einsum("...kk->...k", known) == 1).all()
    if known is not None and mislabelled:
        if weight is not None:
            raise ValueError(
                "confusion needs one recorded class in each row, got votes or trials; give labels, or leave "
                "confusion out"
            )
        hard = np.stack([1 - fraction, fraction], axis=1) if fraction.ndim == 1 else fraction
        fraction = label_likelihood(hard, known)
    return (fraction, _combined(weight, sample_weight, len(fraction)), names), mislabelled


def _combined(weight: Vector | None, sample_weight: ArrayLike | None, n: int) -> Vector | None:
    if sample_weight is not None:
        own = as_vector(sample_weight, "sample_weight")
        if len(own) != n:
            raise ValueError(f"sample_weight has {len(own)} rows but the targets have {n}; give one a row")
        if own.min() < 0:
            raise ValueError(f"sample_weight must not be negative, got {own.min()} at row {own.argmin()}")
        weight = own if weight is None else weight * own
    if weight is not None:
        require_moderate(weight, "sample_weight times trials")
    return weight


def _binary(t: Any, trials: ArrayLike | None, classes: Sequence[Any] | None) -> Targets:
    if classes is not None and len(classes) > 2:
        raise ValueError(
            f"a binary likelihood has two classes, got {len(classes)}: {list(classes)}; use 'softmax'"
        )
    if t.ndim == 2:
        if t.shape[1] != 2:
            raise ValueError(f"targets of two classes must be (N,) or (N, 2), got {t.shape}; use 'softmax'")
        fraction, weight, names = _counts(t, classes)
        return np.ascontiguousarray(fraction[:, 1]), weight, names
    if trials is None and _are_names(t, classes):
        fraction, _, names = _one_hot(t, classes)
        if len(names) > 2:
            raise ValueError(f"a binary likelihood needs two classes, got {list(names)}; use 'softmax'")
        return np.ascontiguousarray(fraction[:, -1]), None, names
    successes = as_vector(t, "targets")
    names = (0, 1) if classes is None else tuple(classes)
    if trials is None:
        _require_fractions(successes)
        return successes, None, names
    n = as_vector(trials, "trials")
    if n.shape != successes.shape:
        raise ValueError(
            f"trials have {len(n)} rows but the targets have {len(successes)}; give one number of trials for each row"
        )
    if n.min() < 0:
        raise ValueError(f"trials must not be negative, got {n.min()} at row {int(n.argmin())}")
    wrong = (successes < 0) | (successes > n)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"successes must lie between 0 and the trials, got {successes[row]} of {n[row]} at row {row} "
            f"({int(wrong.sum())} such rows)"
        )
    return np.divide(successes, n, out=np.zeros_like(n), where=n > 0), n, names


def _are_names(t: Any, classes: Sequence[Any] | None) -> bool:
    if t.dtype.kind not in "biuf":
        return True
    # Numbers are fractions unless the classes say that they are labels, such as 1 and 2, or 1 and 0.
    numbered = classes is not None and all(isinstance(c, (Real, np.bool_)) for c in classes)
    if classes is None or not numbered or tuple(classes) == (0, 1):
        return False
    if t.dtype.kind == "f" and set(classes) == {0, 1}:
        raise ValueError(
            f"targets are floats and the classes {list(classes)}, so 1.0 may be the label of the first class or a "
            "share of the second; give integers or booleans if they are labels, or classes=[0, 1] if they are shares"
        )
    return bool(t.dtype.kind in "biu")


def _require_fractions(t: Vector) -> None:
    wrong = (t < 0) | (t > 1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"targets of a binary likelihood must lie in [0, 1], got {t[row]} at row {row} "
            f"({int(wrong.sum())} such rows); give trials= with successes, integers and classes= for labels, or use "
            "'softmax'"
        )


def _one_hot(labels: Any, classes: Sequence[Any] | None) -> tuple[Matrix, None, tuple[Any, ...]]:
    if labels.dtype.kind == "f":
        as_vector(labels, "labels")
    try:
        present, index = np.unique(labels, return_inverse=True)
    except TypeError as error:  # what cannot be sorted: None, or numbers beside strings
        kinds = sorted({type(c).__name__ for c in labels.tolist()})
        raise ValueError(
            f"labels are of several types, got {', '.join(kinds)}; expected all strings, all numbers or all "
            "booleans: convert them to one type, and leave out rows without a label"
        ) from error
    distinct = tuple(present.tolist())
    if classes is None:
        names: tuple[Any, ...] = distinct
        columns = np.arange(len(distinct))
    else:
        names = tuple(classes)
        unknown = [c for c in distinct if c not in names]
        if unknown:
            raise ValueError(f"labels {unknown[:5]} are not among the classes {list(names)}; add them")
        columns = np.array([names.index(c) for c in distinct])
    fraction = np.zeros((len(labels), len(names)))
    fraction[np.arange(len(labels)), columns[index.ravel()]] = 1.0
    return fraction, None, names


def _counts(t: Any, classes: Sequence[Any] | None) -> Targets:
    counts = as_matrix(t, "targets")
    K = counts.shape[1]
    names = tuple(range(K)) if classes is None else tuple(classes)
    if len(names) != K:
        raise ValueError(f"targets have {K} columns but there are {len(names)} classes: {list(names)}")
    if K < 2:
        raise ValueError("a classifier needs at least two classes, got targets of one column")
    if counts.min() < 0:
        row = int(counts.min(axis=1).argmin())
        raise ValueError(f"counts must not be negative, got {counts[row].min()} at row {row}")
    total = counts.sum(axis=1)
    if np.allclose(total, 1.0, rtol=0, atol=1e-12):
        return counts, None, names
    return (
        np.divide(counts, total[:, None], out=np.full_like(counts, 1 / K), where=total[:, None] > 0),
        total,
        names,
    )
