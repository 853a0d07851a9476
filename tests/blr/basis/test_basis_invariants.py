"""Properties that every kind of basis has, tested on one table of instances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blr.arrays import Matrix
from blr.basis.base import _BLOCK, Standardisation
from blr.basis.kinds import BASES, basis_from_dict, fit_basis

INSTANCES = {
    "linear": ("linear", {}),
    "principal": ("principal", {"power": 0.25}),
    "quadratic": ("polynomial", {}),
    "cubic": ("polynomial", {"degree": 3}),
    "rbf": ("rbf", {"centres": 12}),
    "rbf, narrow": ("rbf", {"centres": 5, "width": 0.3}),
    "rbf with linear": ("rbf", {"centres": 7, "linear": True}),
    "laplacian": ("laplacian", {"centres": 12}),
    "laplacian, narrow": ("laplacian", {"centres": 5, "width": 0.6}),
    "laplacian with linear": ("laplacian", {"centres": 7, "linear": True}),
    "nystroem": ("nystroem", {"centres": 12}),
    "nystroem, softened": ("nystroem", {"centres": 7, "soften": True}),
    "sigmoid": ("sigmoid", {}),
    "sigmoid, steep": ("sigmoid", {"centres": 3, "width": 0.2}),
    "bspline": ("bspline", {}),
    "bspline, no inner knots": ("bspline", {"knots": 0, "degree": 2}),
    "bspline, broken line": ("bspline", {"degree": 1, "knots": 2}),
    "fourier": ("fourier", {"frequencies": 10}),
    "fourier, long": ("fourier", {"frequencies": 4, "lengthscale": 5.0}),
    "quadratic, softened": ("polynomial", {"soften": True}),
    "rbf, softened": ("rbf", {"centres": 7, "linear": True, "soften": True}),
    "laplacian, softened": ("laplacian", {"centres": 7, "linear": True, "soften": True}),
    "bspline, softened": ("bspline", {"soften": True}),
}
NAMES = ("b_j", "j_k", "axis_ratio")

every = pytest.mark.parametrize("name", INSTANCES)


def galaxies(n: int = 300, seed: int = 0) -> Matrix:
    """Skewed, correlated features of unlike scales."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0.3], [0, 0, 1]])
    X[:, 2] = np.exp(X[:, 2] / 2)
    return X * [0.3, 40.0, 1e-3] + [0.9, -200.0, 0.01]


def fitted(name: str, X: Matrix | None = None, seed: int = 1) -> Any:
    kind, options = INSTANCES[name]
    return fit_basis(kind, galaxies() if X is None else X, rng=np.random.default_rng(seed), **options)


def test_every_kind_is_among_the_instances() -> None:
    own = {"forest"}  # which is learnt from labels, and has no slopes: test_basis_kinds.py
    assert {kind for kind, _ in INSTANCES.values()} | own == set(BASES)


@every
@pytest.mark.parametrize("n", [7, 0])
def test_shapes_and_names_and_the_intercept_first(name: str, n: int) -> None:
    basis, X = fitted(name), galaxies(7, seed=3)[:n]
    assert basis.n_features == 3
    assert basis(X).shape == (n, basis.n_functions)
    assert basis.jacobian(X).shape == (n, basis.n_functions, 3)
    assert basis(X).flags.c_contiguous
    assert basis(X).dtype == np.float64
    assert np.all(basis(X)[:, 0] == 1)
    assert np.all(basis.jacobian(X)[:, 0] == 0)
    names = basis.names(NAMES)
    assert names[0] == "1"
    assert len(names) == len(set(names)) == basis.n_functions
    with pytest.raises(ValueError, match=r"got 2 feature name\(s\) but .* 3"):
        basis.names(NAMES[:2])


@every
def test_jacobian_is_the_derivative(name: str) -> None:
    """Central differences, far outside the training range too."""
    basis = fitted(name)
    mean, scale = galaxies().mean(axis=0), galaxies().std(axis=0)
    X = np.vstack([galaxies(40, seed=5), mean + 6 * scale, galaxies(1)[0] - 4 * scale])
    J = basis.jacobian(X)
    h = 1e-5
    for f in range(3):
        step = h * scale[f] * np.eye(3)[f]
        numeric = (basis(X + step) - basis(X - step)) / (2 * h)
        np.testing.assert_allclose(J[:, :, f] * scale[f], numeric, rtol=1e-6, atol=2e-7)


@every
def test_activations_of_unmixed_functions_are_those_of_the_design_matrix(name: str) -> None:
    basis = fitted(name)
    Z, W = np.random.default_rng(3).normal(size=(2, 20, basis.n_features)), np.ones((2, basis.n_functions))
    W[1] = np.random.default_rng(4).normal(size=basis.n_functions)
    U, Phi = basis.unmixed(Z.reshape(40, -1), 2), basis.of_standardised(Z.reshape(40, -1))
    np.testing.assert_allclose(basis.mixed(U), Phi, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(U @ basis.unmixed_weights(W).T, Phi @ W.T, rtol=1e-8, atol=1e-8)


@every
def test_dict_round_trip_is_exact(name: str) -> None:
    basis, X = fitted(name), galaxies(50, seed=7)
    stored = basis.to_dict()
    plain = (bool, int, float, str, np.ndarray)
    for value in stored.values():
        assert isinstance(value, plain) or all(isinstance(v, plain) for v in value)
    again = basis_from_dict(stored)
    assert type(again) is type(basis)
    assert again.names(NAMES) == basis.names(NAMES)
    np.testing.assert_array_equal(again(X), basis(X))
    np.testing.assert_array_equal(again.jacobian(X), basis.jacobian(X))
    with pytest.raises(ValueError, match="read-only"):
        again.to_dict()["mean"][0] = 0


@every
def test_units_of_the_features_do_not_matter(name: str) -> None:
    """A change of units from 1e-12 to 1e12, and of origin, leaves the functions of the same object."""
    scale, shift = np.array([1e-12, 1e12, 1e5]), np.array([1e-12, -3e13, 0])
    X, new = galaxies(), galaxies(50, seed=8)
    here, there = fitted(name, X), fitted(name, X * scale + shift)
    assert there.n_functions == here.n_functions
    np.testing.assert_allclose(there(new * scale + shift), here(new), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        there.jacobian(new * scale + shift) * scale, here.jacobian(new), rtol=1e-8, atol=1e-8
    )


@every
def test_rows_do_not_see_each_other(name: str) -> None:
    """Over the edge of a block, and one at a time."""
    basis, X = fitted(name), galaxies(_BLOCK + 3, seed=9)
    whole = basis(X)
    alone = np.vstack([basis(x[None]) for x in X[_BLOCK - 2 :]])
    # A product of one row is not rounded as one of many.
    np.testing.assert_allclose(whole[_BLOCK - 2 :], alone, rtol=1e-12, atol=3e-14)
    pieces = np.vstack([basis.jacobian(X[:10]), basis.jacobian(X[10:])])
    np.testing.assert_allclose(basis.jacobian(X), pieces, rtol=1e-11, atol=1e-11)


@every
def test_absurd_values_stay_finite(name: str) -> None:
    """A forgotten sentinel is for the domain to report; here it must not become NaN or a warning."""
    X = np.array([[1e300, -1e300, 1e308], [-1.7e308, 1e30, 0.0]])
    basis = fitted(name)
    assert np.all(np.isfinite(basis(X)))
    assert np.all(np.isfinite(basis.jacobian(X) * basis.standardisation.scale))


@every
@pytest.mark.parametrize(
    "X",
    [
        np.array([[1.0, 2.0, 3.0]]),
        np.full((20, 3), 0.1),
        np.column_stack([np.full(30, 1e9), np.linspace(0, 1, 30), np.arange(30) % 2]),
        np.repeat(galaxies(2), 10, axis=0),
        galaxies(40)[:, [0, 0, 0]],
        np.column_stack([np.linspace(0, 1e-9, 25) + 1, np.r_[np.zeros(24), 1], np.arange(25.0)]),
    ],
    ids=[
        "one row",
        "constant",
        "constant column and binary",
        "two rows many times",
        "same column",
        "extreme",
    ],
)
def test_degenerate_training_sets(name: str, X: Matrix) -> None:
    basis, new = fitted(name, X), galaxies(10, seed=2)
    assert basis.n_functions >= 1
    assert np.all(np.isfinite(basis(X)))
    assert np.all(np.isfinite(basis(new)))
    assert np.all(np.isfinite(basis.jacobian(new)))
    assert basis_from_dict(basis.to_dict()).n_functions == basis.n_functions


@every
def test_wrong_columns_and_nan_are_refused(name: str) -> None:
    basis = fitted(name)
    with pytest.raises(ValueError, match=r"X has 2 column\(s\) but .* 3 feature"):
        basis(galaxies(4)[:, :2])
    with pytest.raises(ValueError, match=r"X has 2 column\(s\)"):
        basis(np.empty((0, 2)))
    with pytest.raises(ValueError, match="column 1"):
        basis(np.array([[1.0, np.nan, 2.0]]))
    with pytest.raises(ValueError, match="dimension"):
        basis(np.zeros(3))


def test_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'polinomial' \(did you mean 'polynomial'\? known: .*rbf"):
        fit_basis("polinomial", galaxies())
    with pytest.raises(ValueError, match="unknown kind of basis None"):
        basis_from_dict({"mean": [0.0]})
    with pytest.raises(ValueError, match=r"unknown option 'degree' \(known: none\)"):
        fit_basis("linear", galaxies(), degree=1)
    with pytest.raises(
        ValueError, match=r"unknown option 'centers' \(did you mean 'centres'\?.* of a rbf basis"
    ):
        fit_basis("rbf", galaxies(), rng=np.random.default_rng(0), centers=3)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("polynomial", {"degree": 0}, "degree must be a whole number of 1 or more, got 0"),
        ("polynomial", {"degree": 2.0}, "degree must be a whole number"),
        ("polynomial", {"degree": 60}, "more than 10000; lower the degree"),
        ("principal", {"power": -0.1}, "power must be a number from 0 to 2, got -0.1"),
        ("principal", {"power": 2.5}, "power must be a number from 0 to 2"),
        ("rbf", {"centres": 0}, "centres must be a whole number"),
        ("rbf", {"width": 0.0}, "width must be a positive number, in standard deviations, got 0.0"),
        (
            "laplacian",
            {"width": [1.0, 2.0, 3.0]},
            "width must be a positive number, in standard deviations, got",
        ),
        ("sigmoid", {"width": float("nan")}, "width must be a positive number"),
        ("bspline", {"knots": -1}, "knots must be a whole number of 0 or more"),
        ("bspline", {"degree": 0}, "degree must be a whole number"),
        ("fourier", {"frequencies": 0}, "frequencies must be a whole number"),
        ("fourier", {"lengthscale": "long"}, "lengthscale must be a positive number"),
    ],
)
def test_bad_values_say_what_was_expected(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_basis(kind, galaxies(), rng=np.random.default_rng(0), **options)


@pytest.mark.parametrize("kind", ["rbf", "laplacian", "nystroem", "fourier"])
def test_random_kinds_ask_for_a_generator(kind: str) -> None:
    with pytest.raises(ValueError, match=r"pass rng=numpy\.random\.default_rng"):
        fit_basis(kind, galaxies())


@every
def test_a_damaged_description_is_refused(name: str) -> None:
    stored = fitted(name).to_dict()
    with pytest.raises(ValueError, match="has the keys"):
        basis_from_dict({**stored, "surplus": 1})
    with pytest.raises(ValueError, match="has the keys"):
        basis_from_dict({key: value for key, value in stored.items() if key != "mean"})
    with pytest.raises(ValueError, match="positive scale"):
        basis_from_dict({**stored, "scale": -np.ones(3)})
    with pytest.raises(ValueError, match=f"got kind '{stored['kind']}'; use basis_from_dict"):
        BASES["linear" if stored["kind"] != "linear" else "fourier"].from_dict(stored)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("rbf", {"centres": np.zeros((2, 2))}, "got 2 column.s. of centres"),
        ("nystroem", {"centres": np.zeros((12, 2))}, "got 2 column.s. of centres, expected 3"),
        ("nystroem", {"components": np.zeros((2, 2))}, "a row of components for each centre"),
        ("fourier", {"directions": np.zeros((2, 2))}, "got 2 column.s. of directions"),
        ("bspline", {"breakpoints": [np.array([0.0, 1.0])]}, "breakpoints of 1 feature"),
        ("bspline", {"breakpoints": [np.array([1.0, 0.0])] * 3}, "must increase"),
        ("sigmoid", {"feature": np.array([9])}, "each sigmoid needs"),
    ],
)
def test_damaged_fields_are_refused(name: str, damage: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        basis_from_dict({**fitted(name).to_dict(), **damage})


@pytest.mark.parametrize("name", ["quadratic", "quadratic, softened"])
@pytest.mark.parametrize("varying", [[], [1], [0, 2]])
def test_rows_that_share_values_are_standardised_as_others(name: str, varying: list[int]) -> None:
    kind, options = INSTANCES[name]
    z = fit_basis(kind, galaxies(), **options).standardisation
    X = np.tile(galaxies(7, seed=1), (4, 1))
    X[:, varying] = galaxies(28, seed=2)[:, varying]
    np.testing.assert_array_equal(z.of_sets(X, 4), z(X))


def test_rare_values_stay_near() -> None:
    """A pixel that is lit in one row of a hundred is two units from the others, not ten."""
    X = np.zeros((100, 3))
    X[0, 0], X[:30, 1], X[:, 2] = 3.0, 1.0, np.arange(100)
    learned = Standardisation.learn(X)
    np.testing.assert_allclose(learned.scale, [1.5, X[:, 1].std(), X[:, 2].std()])
    assert np.ptp(learned(X)[:, 0]) == pytest.approx(2)
    twice = Standardisation.learn(np.vstack([X, X[:1]]))
    weighted = Standardisation.learn(X, np.r_[2.0, np.ones(99)])
    np.testing.assert_allclose(weighted.scale, twice.scale)


@pytest.mark.parametrize("constant", [0.0, 0.1, -1e12, 1e-12, 3.3e300])
def test_constant_features_have_scale_one(constant: float) -> None:
    learned = Standardisation.learn(np.full((11, 1), constant))
    assert learned.scale[0] == 1
    np.testing.assert_allclose(learned.mean, constant, rtol=1e-15)
