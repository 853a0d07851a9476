"""Array aliases, and the checks that every public function starts with.

`blr` raises on NaN and infinity; masking them is the caller's business, who knows the columns' names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Matrix",
    "Vector",
    "as_design",
    "as_matrix",
    "as_vector",
    "mid_ranks",
    "require_finite",
    "require_moderate",
    "require_unmasked",
]

Vector = NDArray[np.float64]
"""A float64 array of one dimension."""

Matrix = NDArray[np.float64]
"""A float64 array of two or more dimensions."""


_LARGEST = 1e100


def as_vector(x: ArrayLike, name: str) -> Vector:
    """Return `x` as a finite, contiguous float64 array of shape (N,)."""
    return _checked(x, name, ndim=1, check=require_finite)


def as_matrix(x: ArrayLike, name: str) -> Matrix:
    """Return `x` as a finite, contiguous float64 array of shape (N, M)."""
    return _checked(x, name, ndim=2, check=require_finite)


def as_design(x: ArrayLike) -> Matrix:
    """Return the design matrix `x`, (N, M), as `as_matrix` does, if its numbers are below 1e100 too."""
    return _checked(x, "Phi", ndim=2, check=require_moderate)


def _checked(
    x: ArrayLike, name: str, *, ndim: int, check: Callable[[NDArray[np.float64], str], None]
) -> NDArray[np.float64]:
    require_unmasked(x, name)
    kind = getattr(getattr(x, "dtype", None), "kind", "f")
    if kind == "c":
        raise ValueError(
            f"{name} must be real numbers, got {_describe(x)}; give its real part if that is meant"
        )
    if kind in "mM":
        raise ValueError(f"{name} must be numeric, got {_describe(x)}; give times as numbers of a unit")
    try:
        array = np.ascontiguousarray(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numeric, got {_describe(x)}: {error}") from error
    if np.ndim(x) != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {np.shape(x)}")
    if array.size == 0:
        raise ValueError(f"{name} is empty, got shape {array.shape}; give at least one row and one column")
    check(array, name)
    return array


def require_unmasked(x: Any, name: str) -> None:
    """Raise ValueError where `x` is a masked array with values masked: NumPy would take what lies beneath them."""
    if np.ma.is_masked(x):
        rows = np.flatnonzero(np.ma.getmaskarray(x).reshape(len(x), -1).any(axis=1))
        raise ValueError(
            f"{name} has masked values in {len(rows)} row(s), the first of them row {rows[0]}; expected values "
            "everywhere: leave those rows out, or impute them"
        )


def require_moderate(array: NDArray[np.float64], name: str) -> None:
    """Raise ValueError naming a place where x is not finite, or above 1e100, of which sums of cubes would overflow."""
    flat = array.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        if float(flat @ flat) < _LARGEST**2:  # of a NaN, false: one pass without a temporary
            return
    require_finite(array, name)
    size = np.abs(array)
    if size.max() < _LARGEST:
        return
    place = [int(i) for i in np.unravel_index(size.argmax(), array.shape)]
    raise ValueError(
        f"{name} holds {array[tuple(place)]:.3g} at row {place[0]}{''.join(f', column {c}' for c in place[1:])}; "
        f"expected magnitudes below {_LARGEST:.0e}: give it in another unit, or standardise it"
    )


def require_finite(array: NDArray[np.float64], name: str) -> None:
    """Raise ValueError naming the first row and column that are not finite, and how many there are."""
    # A sum is finite unless some term is not (or it overflows): one pass without a temporary.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum()):
            return
    bad = ~np.isfinite(array)
    count = int(np.count_nonzero(bad))
    if count == 0:  # the sum overflowed
        return
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    rows = int(np.count_nonzero(bad.reshape(len(array), -1).any(axis=1)))
    place = f"row {first[0]}" + (f", column {first[1]}" if len(first) > 1 else "")
    raise ValueError(
        f"{name} holds {count} value(s) that are NaN or infinite, in {rows} row(s), the first "
        f"({array[first]}) at {place}; mask or impute them before fitting"
    )


def _describe(x: Any) -> str:
    dtype = getattr(x, "dtype", None)
    return f"an array of {dtype}" if dtype is not None else type(x).__name__


def mid_ranks(x: ArrayLike) -> Vector:
    """Return the rank of each value (N,), from 1 to N; equal values have the mean of their ranks."""
    _, place, count = np.unique(np.asarray(x, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[place])
