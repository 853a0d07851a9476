"""What each polynomial gains and pays.

The data come from a parabola.  Blue bars: what each degree gains in fit.  Orange bars: what it pays for all
the other curves that it could have fitted too.  The circle is both together, and lies furthest right for the parabola.
"""

import numpy as np

import blr
from flows.plots.axes import CLASSES, INK, SvgAxes, label_axes, legend, new_axes


def draw() -> SvgAxes:
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
    better, dearer = np.subtract(gain, min(gain)), np.subtract(cost, max(cost))
    for j, (up, down) in enumerate(zip(better, dearer, strict=True)):
        first = j == 0
        axes.fill(
            [0, up, up, 0],
            [j - 0.35, j - 0.35, j, j],
            color=CLASSES[0],
            alpha=0.85,
            label="better fit" if first else None,
        )
        axes.fill(
            [0, down, down, 0],
            [j, j, j + 0.35, j + 0.35],
            color=CLASSES[1],
            alpha=0.85,
            label="cost of freedom (Occam factor)" if first else None,
        )
    axes.plot(better + dearer, range(len(fits)), "o", color=INK, markersize=7, label="evidence: their sum")
    axes.set(ylim=(len(fits) - 0.5, -0.5))
    axes.set_yticks(range(len(fits)), list(fits))
    label_axes(axes, "nats, against the worst fit and the smallest cost", "")
    legend(axes)
    return axes
