"""Corrections beyond Laplace against whole tensors, against quadrature, and against themselves on part of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

import blr.trust.verdict
from blr.arrays import Vector
from blr.fitting.newton import SolverPrior, maximise
from blr.fitting.problem import Stream
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import (
    LINKS,
    Bernoulli,
    Categorical,
    MislabelledBernoulli,
    MislabelledCategorical,
    unpack,
)
from blr.sums import Rows, likelihood_terms
from blr.trust.verdict import corrections
from tests.blr.conftest import Twin

CASES = {
    **{name: Bernoulli(link) for name, link in LINKS.items()},
    "softmax": Categorical(3),
    "softmax, all activations": Categorical(3, contrasts=False),
}


def fitted(data: Rows, likelihood: Bernoulli | Categorical, precision: float = 1.0) -> Gaussian:
    D = likelihood.n_outputs * data.n_functions
    prior = SolverPrior(np.zeros(D), precision * np.eye(D))
    mode = maximise(lambda w: data.accumulate(likelihood_terms(likelihood, w)), prior, np.zeros(D))
    return Gaussian(mode.theta, mode.precision(prior))


def problem(dense: Twin, likelihood: Bernoulli | Categorical, N: int = 60, M: int = 3) -> Rows:
    make = dense.softmax if isinstance(likelihood, Categorical) else dense.binary
    Phi, t = make(0, N=N, M=M)
    return Rows(Phi, t, np.random.default_rng(0).gamma(2.0, size=N))


def tensors(data: Rows, likelihood: Bernoulli, gaussian: Gaussian) -> tuple[Vector, float]:
    """Return the mean's shift and the second-order term from ψ_ijk and ψ_ijkl in full."""
    C, S = likelihood.n_outputs, gaussian.covariance
    D = len(gaussian.mean)
    third, fourth = np.zeros((D, D, D)), 0.0
    for phi, t, w in zip(data.Phi, data.t, data.weight, strict=True):
        J = np.kron(np.eye(C), phi)
        a = (J @ gaussian.mean)[None]
        packed = likelihood.curvature_along(a, t[None], np.eye(C)[None])
        R = np.stack([unpack(packed[:, :, i], C)[0] for i in range(C)])
        third += w * np.einsum("abc,ai,bj,ck->ijk", R, J, J, J, optimize=True)
        fourth += w * likelihood.fourth_on(a, t[None], (J @ S @ J.T)[None])[0]
    g = np.einsum("ijk,jk->i", third, S)
    sunset = np.einsum("ijk,lmn,il,jm,kn", third, third, S, S, S, optimize=True)
    return -0.5 * S @ g, -fourth / 8 + g @ S @ g / 8 + sunset / 12


@pytest.mark.parametrize("likelihood", CASES.values(), ids=CASES)
def test_equal_the_whole_tensors(dense: Twin, likelihood: Bernoulli | Categorical) -> None:
    data = problem(dense, likelihood)
    gaussian = fitted(data, likelihood)
    found = corrections(data, likelihood, gaussian)
    shift, second_order = tensors(data, likelihood, gaussian)
    assert found[0] == pytest.approx(shift, rel=1e-10, abs=1e-12)
    assert found[2] == pytest.approx(second_order, rel=1e-10)
    assert found[1] == pytest.approx(np.sqrt(shift @ gaussian.precision @ shift), rel=1e-10)
    assert found[3] == 60


@pytest.mark.parametrize(
    "likelihood",
    [*CASES.values(), MislabelledBernoulli(), MislabelledCategorical(3)],
    ids=[*CASES, "mislabelled logistic", "mislabelled softmax"],
)
def test_pairs_of_rows_give_what_slices_of_the_tensor_give(
    dense: Twin, likelihood: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = problem(dense, likelihood)
    if likelihood in (MislabelledBernoulli(), MislabelledCategorical(3)):
        one_hot = data.t if data.t.ndim == 2 else np.stack([1 - data.t, data.t], axis=1)
        data = Rows(data.Phi, 0.9 * one_hot + 0.05, data.weight)
    gaussian = fitted(data, likelihood)
    found = []
    for cube in (-1e9, 1e30):  # pairs that cost nothing, and pairs that cost too much
        monkeypatch.setattr(blr.trust.verdict, "_CUBE", cube)
        monkeypatch.setattr(blr.trust.verdict, "_HELD", 5000)  # in blocks
        found.append(corrections(data, likelihood, gaussian)[2])
    assert found[0] == pytest.approx(found[1], rel=1e-10)


def test_scales_and_collinear_columns_lose_no_digits(dense: Twin) -> None:
    """1, x, x² and x³ of x about 30, by 1e9: a Gram matrix of condition 1e20."""
    Phi, t = dense.binary(0, N=200, M=2)
    x = Phi[:, 1]
    good = np.column_stack([np.ones(200), x, x**2, x**3])
    mix = np.array([[1, 30, 900, 27000], [0, 1, 60, 2700], [0, 0, 1, 90], [0, 0, 0, 1.0]]) * [1, 1e9, 1, 1e-9]
    data = Rows(good, t)
    reference = corrections(data, Bernoulli(), fitted(data, Bernoulli()))
    A = fitted(data, Bernoulli())
    back = np.linalg.inv(mix)
    moved = Gaussian(back @ A.mean, mix.T @ A.precision @ mix)
    found = corrections(Rows(good @ mix, t), Bernoulli(), moved)
    assert found[2] == pytest.approx(reference[2], rel=1e-3)
    assert found[1] == pytest.approx(reference[1], rel=1e-3)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)], ids=["logistic", "softmax"])
def test_one_weight_by_quadrature(likelihood: Bernoulli | Categorical) -> None:
    """In one dimension both corrections take the error down by an order of magnitude."""
    rng = np.random.default_rng(1)
    Phi = rng.normal(0.5, 1.0, size=(40, 1))
    K = 3 if isinstance(likelihood, Categorical) else 2
    t = np.eye(K)[rng.integers(0, K, 40)] if K == 3 else (rng.random(40) < 0.8).astype(float)
    if K == 3:  # along one contrast; the other is held by its prior
        prior = SolverPrior(np.zeros(2), np.diag([0.1, 1e12]))
    else:
        prior = SolverPrior(np.zeros(1), 0.1 * np.eye(1))
    data = Rows(Phi, t)
    D = len(prior.mean)
    mode = maximise(lambda w: data.accumulate(likelihood_terms(likelihood, w)), prior, np.zeros(D))
    gaussian = Gaussian(mode.theta, mode.precision(prior))
    found = corrections(data, likelihood, gaussian)
    sd = np.sqrt(gaussian.covariance[0, 0])

    def density(x: float, power: int = 0) -> float:
        w = mode.theta.copy()
        w[0] = x
        value = data.accumulate(likelihood_terms(likelihood, w, hessian=False))[0] - prior.energy(w)
        return x**power * np.exp(value - mode.log_likelihood + prior.energy(mode.theta))

    ends = mode.theta[0] - 12 * sd, mode.theta[0] + 12 * sd
    mass = quad(density, *ends, epsabs=0, epsrel=1e-11)[0]
    mean = quad(lambda x: density(x, 1), *ends, epsabs=0, epsrel=1e-11)[0] / mass
    error = np.log(mass / (np.sqrt(2 * np.pi) * sd))
    assert found[2] == pytest.approx(error, rel=0.1, abs=1e-4)
    assert found[0][0] == pytest.approx(mean - mode.theta[0], rel=0.1)


@pytest.mark.parametrize("K", [2, 4])
def test_some_rows_tell_the_term_of_all(dense: Twin, monkeypatch: pytest.MonkeyPatch, K: int) -> None:
    likelihood = Bernoulli() if K == 2 else Categorical(K)
    Phi, t = dense.binary(0, N=4000, M=8) if K == 2 else dense.softmax(0, N=4000, M=8, K=K)
    data = Rows(Phi, t)
    gaussian = fitted(data, likelihood)
    exact = corrections(data, likelihood, gaussian)
    monkeypatch.setattr(blr.trust.verdict, "_FLOPS", 3e5 if K == 2 else 6e6)
    part = corrections(data, likelihood, gaussian)
    assert exact[3] == 4000
    assert part[3] <= 1000
    assert part[2] == pytest.approx(exact[2], abs=2e-4)
    assert part[1] == exact[1]


def test_a_stream_and_any_number_of_threads_give_the_same(dense: Twin) -> None:
    likelihood = Categorical(3)
    data = problem(dense, likelihood, N=700)
    gaussian = fitted(data, likelihood)
    one = corrections(Rows(data.Phi, data.t, data.weight, 1), likelihood, gaussian)
    two = corrections(Rows(data.Phi, data.t, data.weight, 2), likelihood, gaussian)
    assert one[2] == two[2]
    chunks = [(data.Phi[i : i + 99], data.t[i : i + 99], data.weight[i : i + 99]) for i in range(0, 700, 99)]
    stream = Stream(chunks, lambda t, w: (t, w), 3, 2)
    assert corrections(stream, likelihood, gaussian)[2] == pytest.approx(one[2], rel=1e-11)
