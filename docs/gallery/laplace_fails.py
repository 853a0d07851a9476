"""A posterior that is no Gaussian.

Two weights of a model whose eight labels are divided without an error.  Green is the exact posterior: no slope below
zero, and a long tail of steep ones, which all fit the labels.  The Laplace approximation (orange) sits at the mode with
the curvature there: it allows slopes that are impossible, and misses steep ones.  The refined one (blue) is the
Gaussian that fits best as a whole.
"""

import numpy as np
from matplotlib.axes import Axes

import blr
from flows.plots.style import new_axes
from flows.plots.weights import plot_posterior_pair


def draw() -> Axes:
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
    plot_posterior_pair(
        axes,
        w,
        share,
        laplace=(q.mean, np.linalg.inv(q.precision)),
        refined=(refined.mean, np.linalg.inv(refined.precision)),
        names=("intercept", "slope"),
    )
    axes.set(xlim=(-10, 10), ylim=(-3, 22))
    return axes
