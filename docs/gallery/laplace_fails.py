"""A posterior that is no Gaussian.

Two weights of a model whose eight labels are divided without an error.  Green is the exact posterior: no slope below
zero, and a long tail of steep ones, which all fit the labels.  The Laplace approximation (orange) sits at the mode with
the curvature there: it allows slopes that are impossible, and misses steep ones.  The refined one (blue) is the
Gaussian that fits best as a whole.
"""

import numpy as np

import blr
from flows.plots.axes import CLASSES, SvgAxes, label_axes, legend, new_axes
from flows.plots.pictures import contour_lines


def draw() -> SvgAxes:
    x = np.array([-2.0, -1.4, -0.9, -0.3, 0.4, 0.8, 1.5, 2.2])
    Phi = np.column_stack([np.ones(8), x])
    t = x > 0
    q = blr.fit(Phi, t, blr.GaussianPrior.isotropic(2, 0.02))
    refined = blr.refine(q)

    # Two weights are few enough for a grid: the exact posterior is the likelihood times the prior.
    a, b = np.meshgrid(np.linspace(-12, 12, 90), np.linspace(-2, 30, 120))
    w = np.column_stack([a.ravel(), b.ravel()])
    log_density = -np.logaddexp(0, -np.where(t, 1, -1) * (w @ Phi.T)).sum(axis=1) - 0.01 * (w**2).sum(axis=1)
    share = np.exp(log_density - log_density.max())
    axes = new_axes(6, 4.6)
    ranked = np.sort(share)[::-1]
    held = np.cumsum(ranked) / ranked.sum()
    for inside in (0.393, 0.865):  # one and two sigma of a Gaussian in two dimensions
        level = ranked[np.searchsorted(held, inside)]
        for line in contour_lines(a[0], b[:, 0], share.reshape(a.shape), level):
            axes.plot(*line.T, color=CLASSES[2], linewidth=2.2, label="exact" if inside < 0.5 else None)
        for fit, form, colour, name in (
            (q, "--", CLASSES[1], "Laplace"),
            (refined, "-", CLASSES[0], "refined"),
        ):
            angle = np.linspace(0, 2 * np.pi, 73)
            circle = np.sqrt(-2 * np.log(1 - inside)) * np.array([np.cos(angle), np.sin(angle)])
            ring = fit.mean[:, None] + np.linalg.cholesky(np.linalg.inv(fit.precision)) @ circle
            axes.plot(*ring, form, color=colour, label=name if inside < 0.5 else None)
    label_axes(axes, "intercept", "slope")
    legend(axes)
    axes.set(xlim=(-10, 10), ylim=(-3, 22))
    return axes
