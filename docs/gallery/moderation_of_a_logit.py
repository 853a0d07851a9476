"""What moderation does to one probability.

The best weights give a logit, and so a probability.  How well the logit is known is its standard deviation.  With none
the probability stays.  With more of it every probability moves towards one half, and none crosses it.
"""

import numpy as np
from scipy.special import expit

from flows.plots.axes import SvgAxes, class_colour, label_axes, legend, new_axes


def draw() -> SvgAxes:
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    sd = np.linspace(0, 6, 60)
    axes = new_axes(6, 4)
    plugin = (0.6, 0.8, 0.95, 0.99)
    for k, p in enumerate(plugin):
        logit = np.log(p / (1 - p))
        moderated = [weights @ expit(logit + s * nodes) / weights.sum() for s in sd]
        axes.plot(sd, moderated, color=class_colour(k), linewidth=2, label=f"best weights say {p:.2f}")
    axes.set(xlim=(0, 6), ylim=(0.5, 1))
    label_axes(axes, "standard deviation of the logit", "moderated probability")
    legend(axes)
    return axes
