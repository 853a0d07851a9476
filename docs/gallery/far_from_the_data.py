"""Far from the data.

Eighteen labels lie between −2 and 2.  Dashed: the best weights grow surer the further away an object is.  Solid: the
moderated probability levels off.  Shaded: where eight of ten draws of the weights go.
"""

import numpy as np
from scipy.special import expit

import blr
from flows.plots.axes import MUTED, SvgAxes, class_colour, label_axes, legend, new_axes


def draw() -> SvgAxes:
    rng = np.random.default_rng(2)
    x = rng.uniform(-2, 2, 18)
    late = rng.random(18) < expit(0.9 * x)
    basis = blr.fit_basis("linear", x[:, None])
    q = blr.fit(basis(x[:, None]), late, blr.GaussianPrior.isotropic(2, 0.1))

    far = np.linspace(-8, 8, 200)
    Phi = basis(far[:, None])
    low, high = np.quantile(expit(q.sample(400, rng) @ Phi.T), [0.1, 0.9], axis=0)
    axes = new_axes(6.4, 4)
    axes.fill(np.r_[far, far[::-1]], np.r_[low, high[::-1]], color=class_colour(0), alpha=0.15)
    axes.plot(far, q.predict_proba(Phi, "plugin"), "--", color=class_colour(1), label="best weights")
    axes.plot(far, q.predict_proba(Phi), color=class_colour(0), linewidth=2.2, label="moderated")
    axes.plot(x, np.where(late, 1.03, -0.03), "o", color=MUTED, markersize=4)
    axes.set(xlim=(-8, 8), ylim=(-0.06, 1.06))
    label_axes(axes, "feature; circles are labels", "probability of the second class")
    legend(axes)
    return axes
