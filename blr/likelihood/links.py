"""Links of binary regression: a latent threshold θ ~ p(θ) and y = f(a) = ∫_{-∞}^{a} p(θ) dθ (PRML 4.113).

Each gives ln f and ln(1 - f), stable in both tails, and their first four derivatives, which the gradient, the
Hessian and the corrections beyond Laplace need.  All work elementwise on arrays of any shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import erfcx, log_expit, log_ndtr

from blr.arrays import Vector

Derivatives = tuple[Vector, Vector, Vector, Vector]
"""First to fourth derivative with respect to the activation."""


@dataclass(frozen=True)
class Link:
    """A link by its name and the logarithm of its two sides.

    `log_cdf` is ln f(a), `log_sf` ln(1 - f(a)); the derivative functions return those of the same logarithms.
    """

    name: str
    log_cdf: Callable[[Vector], Vector]
    log_sf: Callable[[Vector], Vector]
    log_cdf_derivatives: Callable[[Vector], Derivatives]
    log_sf_derivatives: Callable[[Vector], Derivatives]

    def __reduce__(self) -> Any:
        """Copy and pickle (scikit-learn does, for worker processes) by name: functions made here have no other."""
        return (_named, (self.name,)) if LINKS.get(self.name) is self else super().__reduce__()

    @classmethod
    def symmetric(
        cls, name: str, log_cdf: Callable[[Vector], Vector], derivatives: Callable[[Vector], Derivatives]
    ) -> Link:
        """Return the link of a threshold density that is even: 1 - f(a) = f(-a)."""

        def mirrored(a: Vector) -> Derivatives:
            d1, d2, d3, d4 = derivatives(-a)
            return -d1, d2, -d3, d4

        return cls(name, log_cdf, lambda a: log_cdf(-a), derivatives, mirrored)


def _named(name: str) -> Link:
    return LINKS[name]


def _logistic(a: Vector) -> Derivatives:
    e = np.exp(-np.abs(a))
    y = np.where(a >= 0, 1.0, e) / (1 + e)
    r = e / (1 + e) ** 2
    return np.where(a >= 0, e, 1.0) / (1 + e), -r, -r * (1 - 2 * y), -r * (1 - 6 * r)


_PROBIT_FAR = 30.0


def _probit(a: Vector) -> Derivatives:
    # The inverse Mills ratio p/f through erfcx neither over- nor underflows on the left; on the right it tends to 0.
    with np.errstate(over="ignore"):
        ratio = np.sqrt(2 / np.pi) / erfcx(-a / np.sqrt(2))
    s = a + ratio
    second = -ratio * s
    third = ratio * (s * (s + ratio) - 1)
    fourth = ratio * (3 * s + ratio - s**3 - 4 * ratio * s**2 - ratio**2 * s)
    # On the far left those cancel down to rounding: there the derivatives of the asymptotic series of ln f.
    u = 1 / np.minimum(a, -_PROBIT_FAR)
    third = np.where(a < -_PROBIT_FAR, u**3 * (-2 + u**2 * (24 - u**2 * (300 - 4144 * u**2))), third)
    fourth = np.where(a < -_PROBIT_FAR, u**4 * (6 - u**2 * (120 - u**2 * (2100 - 37296 * u**2))), fourth)
    return ratio, second, third, fourth


def _from_ratios(q0: Vector, q1: Vector, q2: Vector, q3: Vector) -> Derivatives:
    """Return the derivatives of ln f from those of the density, q_j = p^(j) / f."""
    return (
        q0,
        q1 - q0**2,
        q2 - 3 * q0 * q1 + 2 * q0**3,
        q3 - 4 * q0 * q2 - 3 * q1**2 + 12 * q0**2 * q1 - 6 * q0**4,
    )


def _cauchit_log_cdf(a: Vector) -> Vector:
    # arctan(1/|a|)/pi keeps the left tail's relative precision, which 1/2 + arctan(a)/pi loses.
    with np.errstate(divide="ignore"):
        tail = np.arctan2(1.0, np.abs(a)) / np.pi
    return np.where(a < 0, np.log(tail), np.log1p(-tail))


def _cauchit(a: Vector) -> Derivatives:
    u = 1 / (1 + a**2)
    f = np.exp(_cauchit_log_cdf(a))
    p = u / np.pi
    return _from_ratios(
        p / f, -2 * a * u * p / f, (6 * a**2 - 2) * u**2 * p / f, 24 * a * (1 - a**2) * u**3 * p / f
    )


def _cloglog_log_cdf(a: Vector) -> Vector:
    # f = 1 - exp(-e^a): ln f is a - e^a/2 on the left, where e^a itself would vanish.
    return np.where(a < -30.0, a, np.log(-np.expm1(-np.exp(np.clip(a, -30.0, 700.0)))))


def _cloglog(a: Vector) -> Derivatives:
    m = np.exp(np.clip(a, -700.0, 700.0))
    # p/f = m / (e^m - 1); the further derivatives of p bring factors (1-m), (1-3m+m²), (1-7m+6m²-m³).
    with np.errstate(over="ignore"):
        q0 = m / np.expm1(m)
    small = np.where(q0 > 0, m, 0.0)  # where q0 is 0, infinity times 0 is meant to be 0
    return _from_ratios(
        q0, q0 * (1 - small), q0 * (1 - 3 * small + small**2), q0 * (1 - 7 * small + 6 * small**2 - small**3)
    )


def _cloglog_sf(a: Vector) -> Derivatives:
    m = -np.exp(np.minimum(a, 700.0))
    return m, m, m, m


LOGISTIC = Link.symmetric("logistic", log_expit, _logistic)
"""The logistic density; f = σ."""

PROBIT = Link.symmetric("probit", log_ndtr, _probit)
"""The normal density; f = Φ = (1 + erf(a/√2))/2."""

CAUCHIT = Link.symmetric("cauchit", _cauchit_log_cdf, _cauchit)
"""The Cauchy density: outliers pull little; its log likelihood is not concave."""

CLOGLOG = Link("cloglog", _cloglog_log_cdf, lambda a: -np.exp(np.minimum(a, 700.0)), _cloglog, _cloglog_sf)
"""The Gumbel density of minima: complementary log-log."""

LINKS: Mapping[str, Link] = MappingProxyType({k.name: k for k in (LOGISTIC, PROBIT, CAUCHIT, CLOGLOG)})
