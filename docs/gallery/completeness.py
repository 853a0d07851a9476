"""Completeness against the threshold.

Take all objects whose probability of a class is at least a threshold.  A low one keeps nearly all objects of the
class, a high one loses many.  Purity has the same kind of picture, and rises instead.
"""

import numpy as np

import blr
from flows.plots.axes import SvgAxes, new_axes
from flows.plots.pictures import plot_threshold_curves


def draw() -> SvgAxes:
    rng = np.random.default_rng(7)
    late = rng.random(4000) < 0.3
    X = np.where(late[:, None], 0.9, -0.4) + rng.normal(size=(4000, 2))
    basis = blr.fit_basis("linear", X[:500])
    p = blr.fit_evidence(basis(X[:500]), late[:500]).predict_proba(basis(X[500:]))
    threshold = np.linspace(0, 1, 101)
    share = [[(q[own] >= c).mean() for c in threshold] for q, own in ((1 - p, ~late[500:]), (p, late[500:]))]
    return plot_threshold_curves(new_axes(5.6, 4), threshold, share, ["early", "late"], what="completeness")
