"""Binary predictive integrals against adaptive quadrature, closed forms and symmetries."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, log_expit, ndtr

from blr.decisions import entropy
from blr.likelihood.likelihoods import LINKS
from blr.predictive import binary as predictive
from blr.predictive.binary import (
    binary_exact,
    binary_expected_entropy,
    binary_integrals,
    binary_plugin,
    binary_probit,
)

SDS = (0.0, 1e-6, 0.1, 0.4999, 0.5001, 0.9999, 1.0001, 1.9999, 2.0001, 3.0, 5.0, 10.0, 20.0, 50.0)
MEANS = np.concatenate([np.linspace(-60, 60, 81), [-1e-9, 1e-9]])


def expectation(f: Callable[..., Any], mean: float, sd: float) -> float:
    """Return E[f(a)] by adaptive quadrature, split where the Gaussian, σ and their product may bend."""
    if sd == 0:
        return f(mean)
    cuts = sorted({-12.0, 12.0, *np.clip([-mean / sd, -4.0, 0.0, 4.0, np.clip(sd, 0, 11)], -12, 12)})
    parts = [
        quad(
            lambda z: f(mean + sd * z) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi),
            *ends,
            epsabs=1e-13,
            epsrel=1e-11,
            limit=200,
        )[0]
        for ends in itertools.pairwise(cuts)
    ]
    return sum(parts)


def logistic_entropy(a: float) -> float:
    return -log_expit(abs(a)) + abs(a) * expit(-abs(a))


@pytest.mark.parametrize("sd", SDS)
def test_exact_logistic_against_quadrature(sd: float) -> None:
    found = binary_exact(MEANS, np.full(MEANS.shape, sd**2))
    truth = [expectation(expit, m, sd) for m in MEANS]
    np.testing.assert_allclose(found, truth, rtol=0, atol=3e-9)


@pytest.mark.parametrize("sd", SDS)
def test_the_lower_tail_keeps_its_relative_accuracy(sd: float) -> None:
    means = np.linspace(-60, -5, 12)
    found = binary_exact(means, np.full(means.shape, sd**2))
    # σ(a) = e^a σ(-a): after the shift of the mean the integrand is of order one.
    truth = [
        np.exp(m + sd**2 / 2) * expectation(expit, -m - sd**2, sd) if m < -(sd**2) else np.nan for m in means
    ]
    shifted = ~np.isnan(truth)
    np.testing.assert_allclose(found[shifted], np.array(truth)[shifted], rtol=1e-5)
    unshifted = [expectation(expit, m, sd) for m in means[~shifted]]
    np.testing.assert_allclose(found[~shifted], unshifted, rtol=5e-3)


@pytest.mark.parametrize("sd", SDS)
def test_expected_entropy_against_quadrature(sd: float) -> None:
    found = binary_expected_entropy(MEANS, np.full(MEANS.shape, sd**2))
    truth = [expectation(logistic_entropy, m, sd) for m in MEANS]
    np.testing.assert_allclose(found, truth, rtol=0, atol=5e-8)


@pytest.mark.parametrize("sd", [1e-3, 0.03, 0.3, 1.0, 1.9])
def test_mutual_information_keeps_its_relative_accuracy_when_small(sd: float) -> None:
    means = np.array([-12.0, -6.0, -3.0, 0.0, 1.0, 9.0])
    p = binary_exact(means, np.full(6, sd**2))
    found = entropy(np.stack([1 - p, p], axis=1)) - binary_expected_entropy(means, np.full(6, sd**2))

    def divergence(a: float, q: float) -> float:
        y, x = expit(a), expit(-a)
        return y * (log_expit(a) - np.log(q)) + x * (log_expit(-a) - np.log1p(-q))

    truth = np.array(
        [expectation(lambda a, q=q: divergence(a, q), m, sd) for m, q in zip(means, p, strict=True)]
    )
    np.testing.assert_allclose(found, truth, rtol=1e-5, atol=3e-15)


def test_mutual_information_is_not_negative() -> None:
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(0, 20, 4000), rng.gamma(0.3, 20, 4000)
    p = binary_exact(mean, variance)
    assert (entropy(np.stack([1 - p, p], axis=1)) - binary_expected_entropy(mean, variance)).min() > -1e-14


def test_no_variance_is_the_plugin() -> None:
    np.testing.assert_allclose(binary_exact(MEANS, 0 * MEANS), binary_plugin(MEANS), rtol=4e-15)
    np.testing.assert_allclose(binary_probit(MEANS, 0 * MEANS), binary_plugin(MEANS), rtol=4e-15)
    np.testing.assert_array_equal(binary_plugin(MEANS), expit(MEANS))


def test_probit_formula() -> None:
    mean, variance = np.array([-3.0, 0.5, 40.0]), np.array([0.0, 2.0, 900.0])
    formula = 1 / (1 + np.exp(-mean / np.sqrt(1 + np.pi * variance / 8)))
    np.testing.assert_allclose(binary_probit(mean, variance), formula, rtol=1e-12)


def test_probit_formula_errs_by_as_much_as_stated() -> None:
    mean, sd = (x.ravel() for x in np.meshgrid(np.linspace(0, 40, 161), np.geomspace(0.1, 50, 40)))
    error = np.abs(binary_probit(mean, sd**2) - binary_exact(mean, sd**2))
    assert 0.017 < error.max() < 0.0185


def test_probit_link_is_a_closed_form() -> None:
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(0, 5, 50), rng.gamma(1, 5, 50)
    found = binary_exact(mean, variance, link="probit")
    np.testing.assert_allclose(found, ndtr(mean / np.sqrt(1 + variance)), rtol=1e-14)
    by_nodes = predictive._quadrature(mean, variance, ndtr)
    np.testing.assert_allclose(by_nodes, found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("link", ["cauchit", "cloglog"])
@pytest.mark.parametrize("sd", [0.0, 0.3, 1.0, 4.1, 50.0])
def test_other_links_against_quadrature(link: str, sd: float) -> None:
    means = np.array([-30.0, -4.0, -0.3, 0.0, 1.0, 6.0, 900.0])
    found = binary_exact(means, np.full(means.shape, sd**2), link=link)
    f = LINKS[link].log_cdf
    truth = [expectation(lambda a: float(np.exp(f(a))), m, sd) for m in means]
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-8)


@pytest.mark.parametrize("link", ["probit", "cauchit", "cloglog"])
def test_expected_entropy_of_other_links(link: str) -> None:
    means, sd = np.array([-900.0, -2.0, 0.0, 0.7, 5.0]), 1.3

    def h(a: float) -> float:
        p, q = np.exp(LINKS[link].log_cdf(a)), np.exp(LINKS[link].log_sf(a))
        return -(p * np.log(max(p, 1e-300)) + q * np.log(max(q, 1e-300)))

    found = binary_expected_entropy(means, np.full(5, sd**2), link=link)
    np.testing.assert_allclose(found, [expectation(h, m, sd) for m in means], rtol=0, atol=1e-7)


@pytest.mark.parametrize("link", ["logistic", "probit", "cloglog"])
def test_both_integrals_at_once_are_each_by_itself(link: str) -> None:
    mean, sd = (x.ravel() for x in np.meshgrid([-40.0, -2.0, 0.0, 0.3, 9.0], [0.0, 0.4, 0.9, 1.8, 6.0]))
    p, h = binary_integrals(mean, sd**2, link=link)
    np.testing.assert_allclose(p, binary_exact(mean, sd**2, link=link), rtol=1e-15)
    np.testing.assert_allclose(h, binary_expected_entropy(mean, sd**2, link=link), rtol=1e-15)


@given(st.floats(0.01, 40), st.floats(0.01, 30))
def test_moderation_pulls_towards_one_half_but_never_across(mean: float, sd: float) -> None:
    moderated = binary_exact(np.array([mean]), np.array([sd**2]))[0]
    assert 0.5 < moderated <= binary_plugin(np.array([mean]))[0] + 3e-9


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(0, 4, 20_000), rng.gamma(0.5, 3, 20_000)
    together = binary_exact(mean, variance)
    order = rng.permutation(20_000)
    np.testing.assert_allclose(binary_exact(mean[order], variance[order]), together[order], rtol=1e-15)


def test_arguments_are_left_alone() -> None:
    mean, variance = np.linspace(-3, 3, 9), np.linspace(0, 9, 9)
    kept = mean.copy(), variance.copy()
    binary_exact(mean, variance)
    binary_expected_entropy(mean, variance)
    np.testing.assert_array_equal(mean, kept[0])
    np.testing.assert_array_equal(variance, kept[1])


def test_empty_batches() -> None:
    none = np.zeros(0)
    for f in (binary_exact, binary_probit, binary_expected_entropy):
        assert f(none, none).shape == (0,)
    assert binary_exact(none, none, link="cauchit").shape == (0,)


def test_errors_say_what_to_do() -> None:
    one = np.ones(1)
    with pytest.raises(
        ValueError, match=r"variance has a negative entry, -1\.0, at row 0; give variances, not sd"
    ):
        binary_exact(one, -one)
    with pytest.raises(ValueError, match=r"mean has shape \(1,\) but variance \(2,\)"):
        binary_exact(one, np.ones(2))
    with pytest.raises(ValueError, match=r"mean has shape \(1, 1\); expected \(N,\)"):
        binary_exact(one[:, None], one)
    with pytest.raises(ValueError, match="unknown link 'tobit'; expected one of logistic, probit"):
        binary_exact(one, one, link="tobit")
    with pytest.raises(ValueError, match="mean holds 1 value"):
        binary_exact(np.array([np.nan]), one)


def test_a_variance_below_zero_by_rounding_is_zero() -> None:
    assert binary_exact(np.ones(2), np.array([-1e-12, 4.0]))[0] == binary_plugin(np.ones(1))[0]
