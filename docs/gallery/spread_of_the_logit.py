"""How well the logit is known.

The standard deviation of the logit, over the feature of the picture before.  It is small where labels are, and grows
beyond them.  An object whose logit is known worse than those of nearly all training rows has the flag OUT_OF_DOMAIN.
"""

import numpy as np
from scipy.special import expit

import blr
from flows.plots.axes import MUTED, SvgAxes, class_colour, label_axes, new_axes


def draw() -> SvgAxes:
    rng = np.random.default_rng(2)
    x = rng.uniform(-2, 2, 18)
    late = rng.random(18) < expit(0.9 * x)
    basis = blr.fit_basis("linear", x[:, None])
    q = blr.fit(basis(x[:, None]), late, blr.GaussianPrior.isotropic(2, 0.1))
    far = np.linspace(-8, 8, 200)
    axes = new_axes(6.4, 3.4)
    axes.plot(far, q.logit_moments(basis(far[:, None]))[1] ** 0.5, color=class_colour(0), linewidth=2.2)
    axes.plot(x, np.zeros(18), "o", color=MUTED, markersize=4)
    axes.set(xlim=(-8, 8), ylim=(-0.5, 8))
    label_axes(axes, "feature; circles are labels", "standard deviation of the logit")
    return axes
