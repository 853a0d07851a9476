"""Forty labels in a plane.

Shades and solid lines are moderated probabilities, dashed lines those of the best weights alone.
Where labels are dense, both agree.  Away from them the solid lines open like a fan: there the data say little about
the weights, and the probability stays near one half.
"""

import numpy as np

import blr
from flows.plots.axes import SvgAxes, new_axes
from flows.plots.pictures import plot_contours, plot_objects


def draw() -> SvgAxes:
    rng = np.random.default_rng(3)
    late = rng.random(40) < 0.5
    X = np.where(late[:, None], [0.5, -0.4], [-0.5, 0.4]) + rng.normal(size=(40, 2)) * 0.7
    basis = blr.fit_basis("linear", X)
    q = blr.fit_evidence(basis(X), late)

    x, y = np.linspace(-6, 6, 80), np.linspace(-5, 5, 70)
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    moderated, plugin = (
        np.stack([1 - p, p], axis=-1).reshape(70, 80, 2)
        for p in (q.predict_proba(basis(grid)), q.predict_proba(basis(grid), "plugin"))
    )
    axes = new_axes(6, 4.6)
    plot_objects(
        axes, X[:, 0], X[:, 1], late.astype(int), ["early", "late"], names=("first feature", "second feature")
    )
    return plot_contours(axes, x, y, moderated, plugin, of=1, classes=["early", "late"])
