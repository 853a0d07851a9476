"""Sums over chunks of rows, against one dense product; the same to the last bit whatever the number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.differentiate import jacobian

import blr.sums
from blr.arrays import Matrix, Vector
from blr.covariances import output_covariances
from blr.fitting.problem import Stream
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import Bernoulli, Categorical
from blr.sums import Rows, chunk_rows, likelihood_terms, skewness_term
from tests.blr import dense


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even small data into many chunks and groups."""
    monkeypatch.setattr(blr.sums, "_CHUNK_BYTES", 64)
    monkeypatch.setattr(blr.sums, "_MIN_ROWS", 16)
    monkeypatch.setattr(blr.sums, "_GROUP", 3)


@pytest.fixture(params=["logistic", "softmax", "many classes", "cauchit"])
def case(request: pytest.FixtureRequest) -> tuple[Any, ...]:
    """Return a likelihood, Phi, t, weights of the rows, and weights of the model."""
    rng = np.random.default_rng(3)
    if request.param in {"softmax", "many classes"}:
        K = 4 if request.param == "softmax" else 11
        Phi, t = dense.softmax(0, N=501, M=5, K=K)
        likelihood = Categorical(K)
    else:
        Phi, t = dense.binary(0, N=501, M=5)
        likelihood = (
            Bernoulli()
            if request.param == "logistic"
            else Bernoulli(blr.likelihood.likelihoods.LINKS["cauchit"])
        )
    theta = 0.5 * rng.standard_normal(5 * likelihood.n_outputs)
    return likelihood, Phi, t, rng.gamma(2.0, size=len(Phi)), theta


def dense_terms(
    likelihood: Bernoulli, Phi: Matrix, t: Vector, weight: Vector, theta: Vector
) -> tuple[float, Vector, Matrix]:
    """Return value, gradient and Hessian with one Kronecker product a row."""
    C = likelihood.n_outputs
    value, gradient, packed = likelihood.derivatives(Phi @ theta.reshape(C, -1).T, t)
    R = blr.likelihood.likelihoods.unpack(packed, C)
    H = sum(w * np.kron(r, np.outer(p, p)) for w, r, p in zip(weight, R, Phi, strict=True))
    return weight @ value, np.einsum("n,nc,nm->cm", weight, gradient, Phi).ravel(), H


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_chunks_add_up_to_the_dense_sum(case: dict[str, Any] | tuple[Any, ...], threads: int) -> None:
    likelihood, Phi, t, weight, theta = case
    found = Rows(Phi, t, weight, threads).accumulate(likelihood_terms(likelihood, theta))
    for ours, theirs in zip(found, dense_terms(likelihood, Phi, t, weight, theta), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-11, abs=1e-11)


@pytest.mark.usefixtures("small_chunks")
def test_not_a_bit_depends_on_the_threads(case: dict[str, Any] | tuple[Any, ...]) -> None:
    likelihood, Phi, t, weight, theta = case
    runs = [Rows(Phi, t, weight, k).accumulate(likelihood_terms(likelihood, theta)) for k in (1, 2, 3, 8)]
    for run in runs[1:]:
        for ours, theirs in zip(run, runs[0], strict=True):
            assert np.array_equal(ours, theirs)


def test_without_weights_and_hessian(case: dict[str, Any] | tuple[Any, ...]) -> None:
    likelihood, Phi, t, _, theta = case
    value, gradient = Rows(Phi, t).accumulate(likelihood_terms(likelihood, theta, hessian=False))
    expected = dense_terms(likelihood, Phi, t, np.ones(len(Phi)), theta)
    assert value == pytest.approx(expected[0], rel=1e-12)
    assert gradient == pytest.approx(expected[1], rel=1e-11, abs=1e-11)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("C", [1, 2, 5, 10, 20])
def test_output_covariances_are_rows_of_a_quadratic_form(C: int) -> None:
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((40, 3))  # three blocks of rows, the last one not full
    S = dense.covariance(rng, C * 3)
    U = Gaussian(np.zeros(C * 3), np.linalg.inv(S)).inverse_cholesky
    found = output_covariances(Phi, U, C)
    for n in range(len(Phi)):
        J = np.kron(np.eye(C), Phi[n])
        assert found[n] == pytest.approx(J @ S @ J.T, rel=1e-11)


@pytest.mark.parametrize("gap", [1e-2, 1e-5])
def test_collinear_columns_do_not_cost_the_digits_of_many_covariances(gap: float) -> None:
    """The terms of φ'A⁻¹φ cancel to 1/gap² of their size, which whitened rows never meet."""
    rng, C = np.random.default_rng(0), 10
    Phi = rng.standard_normal((50, 3))
    Phi[:, 2] = Phi[:, 1] + gap * Phi[:, 2]
    A = np.kron(np.eye(C) + 0.1, Phi.T @ Phi + 1e-12 * np.eye(3))
    U = Gaussian(np.zeros(C * 3), A).inverse_cholesky
    for V, phi in zip(output_covariances(Phi, U, C), Phi, strict=True):
        Z = U @ np.kron(np.eye(C), phi[:, None])
        sd = np.linalg.norm(Z, axis=0)
        assert np.abs(V - Z.T @ Z).max() < max(1e-11, 16 * np.finfo(float).eps / gap) * sd.max() ** 2


def test_skewness_is_the_gradient_of_the_traced_hessian(case: dict[str, Any] | tuple[Any, ...]) -> None:
    likelihood, Phi, t, weight, theta = case
    Phi, t, weight = Phi[:25], t[:25], weight[:25]
    S = dense.covariance(np.random.default_rng(1), len(theta))
    U = Gaussian(theta, np.linalg.inv(S)).inverse_cholesky
    (g,) = Rows(Phi, t, weight).accumulate(skewness_term(likelihood, theta, U))

    def trace(x: np.ndarray) -> np.ndarray:
        H = [dense_terms(likelihood, Phi, t, weight, v)[2] for v in x.reshape(len(theta), -1).T]
        return np.array([np.trace(h @ S) for h in H]).reshape(x.shape[1:])

    assert g == pytest.approx(jacobian(trace, theta).df, rel=1e-6, abs=1e-6)


def test_chunk_boundaries_depend_on_the_columns_alone() -> None:
    assert chunk_rows(1) == 2**18
    assert chunk_rows(50) == 4096
    assert chunk_rows(10**6) == 256


def test_every_nth_row_makes_up_for_the_rest() -> None:
    Phi, t = dense.binary(0, N=101)
    part = Rows(Phi, t).every(4)
    assert len(part.Phi) == 26
    assert part.weight.tolist() == [4.0] * 26
    assert part.Phi.flags.c_contiguous
    assert np.array_equal(Rows(Phi, t, t + 1).every(4).weight, 4 * (t[::4] + 1))


def test_a_stream_that_is_used_up_says_so() -> None:
    stream = Stream([], 2)
    with pytest.raises(ValueError, match="the stream has no chunks"):
        stream.accumulate(likelihood_terms(Bernoulli(), np.zeros(2)))


def test_an_error_in_a_chunk_reaches_the_caller() -> None:
    def fails(*_chunk) -> None:  # noqa: ANN002  a chunk is what comes
        raise ZeroDivisionError("in a thread")

    with pytest.raises(ZeroDivisionError, match="in a thread"):
        Rows(np.ones((10**5, 50)), np.ones(10**5), threads=2).accumulate(fails)
