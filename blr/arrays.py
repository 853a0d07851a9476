"""Array types, tables of named columns, and the checks that every public function starts with.

A matrix may come as a table: a pandas or polars frame, an astropy or Arrow table, a structured array, a mapping of
columns.  None of their libraries is imported: any object with a list of names that returns a column for each name
counts as a table. `blr` raises on NaN and infinity; the caller, who knows the columns' names, masks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = np.ndarray[Any, Any]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]
"""Indices of rows, columns, classes or bins."""

Vector = NDArray[np.float64]
"""A float64 array of one dimension."""

Matrix = NDArray[np.float64]
"""A float64 array of two or more dimensions."""

_LARGEST = 1e100


class NamedMatrix(np.ndarray[tuple[int, ...], np.dtype[np.float64]]):
    """A matrix whose columns have `names`; rows taken of it keep them, whatever is computed of it is a plain array."""

    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, matrix: Matrix, names: Sequence[str]) -> NamedMatrix:
        """Return a view of a matrix (N, M) with M names."""
        named = matrix.view(cls)
        named.names = tuple(names)
        return named

    def __array_finalize__(self, source: Any) -> None:
        names = getattr(source, "names", None)
        fits = names is not None and self.ndim == 2 and self.shape[1] == len(names)
        self.names = names if fits else None

    def __array_wrap__(self, array: Any, *_: Any) -> Any:
        return array[()] if array.ndim == 0 else np.asarray(array)


class Table(dict[str, NDArray[Any]]):
    """Columns of equal length by name: what `pandas.DataFrame`, `astropy.table.Table` and `pyarrow.table` take."""

    def __repr__(self) -> str:
        rows = self._rows
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows
        )

    def to_html(self) -> str:
        """Return the table as HTML, as notebooks show it."""
        first, *rest = self._rows
        return html_table(first, rest)

    _repr_html_ = to_html

    @property
    def _rows(self) -> list[list[str]]:
        columns = [[name, *map(_cell, values.tolist())] for name, values in self.items()]
        return [list(row) for row in zip(*columns, strict=True)]


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def html_table(names: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Return an HTML table with a caption, for notebooks; the texts are escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def column_names(x: Any) -> tuple[str, ...] | None:
    """Return the names of a table's columns, or those of a `NamedMatrix`; None for any other array."""
    if isinstance(x, NamedMatrix):
        return x.names
    columns = _columns(x)
    return None if columns is None else tuple(columns)


def features_of(x: Any, names: Sequence[str] | None) -> Any:
    """Return the columns of a table that are called `names`, in their order; any other array as it is.

    ValueError if the table lacks one of them.
    """
    columns = None if names is None else _columns(x)
    if names is None or columns is None:
        return x
    absent = [n for n in names if n not in columns]
    if absent:
        raise ValueError(
            f"X has no column {absent[0]!r}, expected {', '.join(names)}; got {', '.join(columns) or 'none'}"
        )
    return {n: columns[n] for n in names}


def _columns(x: Any) -> dict[str, Any] | None:
    """Return the columns of a table by name; None for any other array."""
    if isinstance(x, np.ndarray):
        names: Any = x.dtype.names
    elif isinstance(x, Mapping):
        names = list(x)
    else:  # Looked up in the class, because a frame has its columns as attributes.
        lists = (name for name in ("column_names", "colnames", "columns") if hasattr(type(x), name))
        names = next((list(getattr(x, name)) for name in lists), None)
    if names is None:
        return None
    if len({str(n) for n in names}) < len(names):
        raise ValueError(
            f"a table has the columns {', '.join(map(str, names))}, expected each name once; rename the "
            "repeated columns"
        )
    return {str(n): x[n] for n in names}


def without_names(x: Any, name: str) -> Any:
    """Return a table as a matrix (N, F), NaN where values are masked or null; any other array as it is.

    ValueError if the table has no columns, or one that is not a number a row.
    """
    columns = _columns(x)
    if columns is None:
        return x
    if not columns:
        raise ValueError(f"{name} is a table without columns, expected at least one; choose its columns")
    parts = []
    for key, column in columns.items():
        values = column.filled(np.nan) if hasattr(column, "unmasked") else column  # a masked Quantity
        parts.append(_as_float(masked_as_nan(values), f"column {key!r} of {name}"))
        if parts[-1].ndim != 1:
            raise ValueError(
                f"column {key!r} of {name} must hold one number in each row, got shape {parts[-1].shape}; "
                "give each of its parts as a column"
            )
    return np.column_stack(parts)


def masked_as_nan(x: Any) -> Any:
    """Return a masked array as float64, NaN where it is masked; any other as it is."""
    return np.ma.filled(x.astype(np.float64), np.nan) if isinstance(x, np.ma.MaskedArray) else x


def plain_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass for a file: tuples are lists, and other dataclasses are dictionaries too."""
    return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return plain_fields(value) if is_dataclass(value) else value


def as_stored(stored: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the array of a name as finite float64; ValueError where its shape is not the one expected."""
    array = np.asarray(stored[name], dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"the stored '{name}' has the shape {array.shape}, expected {shape}")
    require_finite(np.atleast_1d(array), f"the stored '{name}'")
    return array


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
    if ndim == 2:
        x = without_names(x, name)
    require_unmasked(x, name)
    array = _as_float(x, name)
    if np.ndim(x) != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {np.shape(x)}")
    if array.size == 0:
        raise ValueError(f"{name} is empty, got shape {array.shape}; give at least one row and one column")
    check(array, name)
    return array


def _as_float(x: Any, name: str) -> NDArray[np.float64]:
    dtype = getattr(x, "dtype", None)
    if getattr(dtype, "kind", "f") in "cmM":
        raise ValueError(f"{name} must be real numbers, got {dtype}; convert times to numbers, such as days")
    try:
        return np.ascontiguousarray(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numeric, got {dtype or type(x).__name__}: {error}") from error


def require_unmasked(x: Any, name: str) -> None:
    """Raise ValueError where `x` is a masked array with values masked: NumPy would take what lies beneath them."""
    if np.ma.is_masked(x):
        rows = np.flatnonzero(np.ma.getmaskarray(x).reshape(len(x), -1).any(axis=1))
        raise ValueError(
            f"{name} has masked values in {len(rows)} row(s), the first of them row {rows[0]}; expected a "
            "value in every row; leave those rows out, or impute the values"
        )


def require_moderate(array: NDArray[np.float64], name: str) -> None:
    """Raise ValueError naming a place where x is not finite, or above 1e100, of which sums of cubes would overflow."""
    flat = array.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        # A comparison with NaN is false, so one pass without a temporary array is enough.
        if float(flat @ flat) < _LARGEST**2:
            return
    require_finite(array, name)
    size = np.abs(array)
    if size.max() < _LARGEST:
        return
    place = [int(i) for i in np.unravel_index(size.argmax(), array.shape)]
    raise ValueError(
        f"{name} holds {array[tuple(place)]:.3g} at row {place[0]}{''.join(f', column {c}' for c in place[1:])}; "
        f"expected absolute values below {_LARGEST:.0e}; give it in another unit, or standardise it"
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


def slices(n: int, size: int) -> Iterator[slice]:
    """Return the slices of n rows, `size` rows at a time."""
    return (slice(start, start + size) for start in range(0, n, size))


def mid_ranks(x: ArrayLike) -> Vector:
    """Return the rank of each value (N,), from 1 to N; equal values have the mean of their ranks."""
    _, place, count = np.unique(np.asarray(x, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[place])
