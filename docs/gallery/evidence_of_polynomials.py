"""What each polynomial gains and pays.

The data come from a parabola.  Blue bars: what each degree gains in fit.  Orange bars: what it pays for all
the other curves that it could have fitted too.  The diamond is both together, and lies furthest right for the parabola.
"""

import numpy as np
from matplotlib.axes import Axes

import blr
from flows.plots.evidence import plot_evidence
from flows.plots.style import new_axes


def draw() -> Axes:
    rng = np.random.default_rng(11)
    x = rng.uniform(-2, 2, 120)
    t = rng.random(120) < 1 / (1 + np.exp(1 - 0.8 * x**2 + 0.3 * x))
    fits = {}
    for degree in (1, 2, 3, 5, 8, 12):
        basis = blr.fit_basis("polynomial", x[:, None], degree=degree)
        fits[f"degree {degree}"] = blr.fit_evidence(basis(x[:, None]), t)
    axes = new_axes(6.4, 4)
    gain, cost = (
        [getattr(q, name) for q in fits.values()] for name in ("log_likelihood", "log_occam_factor")
    )
    plot_evidence(axes, list(fits), gain, cost)
    axes.set_xlim(-15, 36)
    return axes
