"""Derive RULES of blr/predictive/_cubature.py: for each number of nodes, the best step and how wide an axis it serves.

The worst case along an axis is that of two classes: E[σ(m + r z)] over all m, r the axis's range.  A rule's reach is
the largest r whose error in the probability stays below the tolerance and in the entropy below four times that.  Run:

    python tests/reference/cubature_rules.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from blr.predictive._cubature import STRETCH, axis_rule

FINE = (3, 5, 7, 9, 11, 13, 17)
COARSE = (21, 27, 35, 45)
TOLERANCE = {**dict.fromkeys(FINE, 2.5e-5), **dict.fromkeys(COARSE, 1.0e-4)}
RANGES = np.geomspace(0.3, 20.0, 140)


def entropy(a: Any) -> Any:
    a = np.abs(a)
    return np.log1p(np.exp(-a)) + a * expit(-a)


def exact(r: float) -> Any:
    """Return means, and the expectations of σ and of H(σ) at each, by a fine trapezoid rule."""
    m = np.linspace(0.0, 5 * r + 4, 101)
    z = np.arange(-9.0, 9.0, min(0.1, 0.25 / r))
    weight = np.exp(-(z**2) / 2)
    weight /= weight.sum()
    a = m[:, None] + r * z
    return m, expit(a) @ weight, entropy(a) @ weight


def reach(n: int, step: int, truth: Any) -> Any:
    z, weight = axis_rule(n, step)
    found = 0.0
    for r, (m, p, h) in zip(RANGES, truth, strict=True):
        a = m[:, None] + r * z
        error = np.abs(expit(a) @ weight - p).max(), np.abs(entropy(a) @ weight - h).max()
        if max(error[0], error[1] / 4) > TOLERANCE[n]:
            break
        found = r
    return found


def main() -> None:
    truth = [exact(r) for r in RANGES]
    for n in TOLERANCE:
        farthest = np.linspace(2.5, 5.0, 51)
        steps = STRETCH * np.arcsinh(farthest / STRETCH) / (n // 2) if n > 5 else [0.0]
        best = max((reach(n, step, truth), step) for step in steps)
        print(f"    ({n}, {best[1]:.4f}, {best[0]:.3f}),")


if __name__ == "__main__":
    main()
