"""Twenty boundaries drawn from the posterior.

Each curve is the decision boundary of one draw of the weights.  All of them explain the labels nearly as well as the
best one.  The moderated probability is the average over such curves, so it is sharp where they agree.
"""

import numpy as np

import blr
from flows.plots.axes import SvgAxes, new_axes
from flows.plots.pictures import plot_boundaries, plot_objects


def draw() -> SvgAxes:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(120, 2))
    late = rng.random(120) < 1 / (1 + np.exp(2 * X[:, 0] - 2 * X[:, 1] ** 2 + 1))
    basis = blr.fit_basis("polynomial", X, degree=2)
    q = blr.fit_evidence(basis(X), late)

    extent = (-3.0, 3.0, -3.0, 3.0)
    draws = blr.decision_boundary(
        q, basis, kind="sampled", n_samples=20, rng=rng, extent=extent, resolution=50
    )
    axes = new_axes(6, 4.6)
    plot_objects(
        axes, X[:, 0], X[:, 1], late.astype(int), ["early", "late"], names=("first feature", "second feature")
    )
    plot_boundaries(axes, draws)
    axes.set(xlim=extent[:2], ylim=extent[2:])
    return axes
