"""Basis functions φ_m(x): from features X, shape (N, F), to a design matrix Φ, shape (N, M).

    basis = fit_basis("rbf", X, rng=rng, centres=40)
    Phi = basis(X)

To add a kind, write a subclass of `Basis` in a file of its own and bind it in `BASES`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from numpy.random import Generator
from numpy.typing import ArrayLike

from blr.arrays import as_matrix, as_vector, column_names
from blr.basis._forest import Forest
from blr.basis._kernels import RBF, Fourier, Laplacian, Nystroem, Sigmoid
from blr.basis._polynomial import BSpline, Linear, Polynomial, Principal
from blr.basis.base import Basis, learn_softening, softened

_Kind = type[
    Linear | Polynomial | Principal | RBF | Laplacian | Nystroem | Sigmoid | BSpline | Fourier | Forest
]
BASES: dict[str, _Kind] = {
    basis.kind: basis
    for basis in (Linear, Polynomial, Principal, RBF, Laplacian, Nystroem, Sigmoid, BSpline, Fourier, Forest)
}
"""Every kind of basis by its name."""


def fit_basis(
    kind: str,
    X: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    rng: Generator | None = None,
    soften: bool = False,
    **options: Any,
) -> Basis:
    """Return a basis of a kind in `BASES`, learned from the training features X, shape (N, F).

    `weight` (N,) counts in the standardisation, not in where centres and knots lie.  With `soften` the features go
    through an arcsinh first, about their median in units of their robust spread.  `options` are the
    keywords of that kind's `fit`.  The kinds that draw at random, "rbf", "laplacian", "nystroem",
    "fourier" and "forest", need `rng`; the others ignore it.  A "forest" needs `labels`, and its design matrix for a
    fit is `basis.training_design(X)`.

    Raises
    ------
    ValueError
        If the kind or an option is unknown, X holds NaN, or a kind that draws at random gets no `rng`.

    Examples
    --------
    >>> X = [[1.0, 20.0], [2.0, 21.0], [3.0, 19.0]]
    >>> basis = blr.fit_basis("polynomial", X, degree=2)
    >>> basis(X).shape
    (3, 6)
    >>> basis.names(["u_r", "mag"])
    ('1', 'u_r', 'mag', 'u_r^2', 'u_r mag', 'mag^2')
    """
    basis = known_kind(kind)
    known = set(inspect.signature(basis.fit).parameters) - {"X", "weight"}
    for name in options:
        if name not in known:
            raise ValueError(f"unknown option {_guess(name, known - {'rng'})} of a {kind} basis")
    if "rng" in known:
        if rng is None:
            raise ValueError(
                f"a {kind} basis is drawn at random and needs a generator, got rng=None; pass "
                "rng=numpy.random.default_rng(seed)"
            )
        options["rng"] = rng
    weights = None if weight is None else as_vector(weight, "weight")
    rows, names = as_matrix(X, "X"), column_names(X)
    softening = learn_softening(rows) if soften else None
    fitted = basis.fit(softened(rows, softening), weight=weights, **options)
    return replace(
        fitted, features=names, standardisation=replace(fitted.standardisation, softening=softening)
    )


def basis_from_dict(stored: Mapping[str, Any]) -> Basis:
    """Return the basis whose `to_dict` made `stored`."""
    return known_kind(stored.get("kind")).from_dict(stored)


def known_kind(kind: Any) -> _Kind:
    """Return the basis of a kind; ValueError where no basis has that name."""
    if not isinstance(kind, str) or kind not in BASES:
        raise ValueError(f"unknown kind of basis {_guess(kind, BASES)}")
    return BASES[kind]


def _guess(name: Any, known: Iterable[str]) -> str:
    choices = sorted(known)
    near = get_close_matches(str(name), choices, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{name!r} ({hint}known: {', '.join(choices) or 'none'})"
