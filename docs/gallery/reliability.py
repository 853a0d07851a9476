"""Reliability.

Each point is a bin of objects that the fit has not seen.  Across is what the model said, up is what was seen, with 90 %
intervals.  On the dashed line 70 % means 70 %.
"""

import numpy as np

import blr
from blr.calibration import reliability_curve
from flows.plots.axes import SvgAxes, new_axes
from flows.plots.pictures import plot_reliability


def draw() -> SvgAxes:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(6000, 4))
    late = rng.random(6000) < 1 / (1 + np.exp(-X @ [1.0, -0.8, 0.5, 0.0]))
    basis = blr.fit_basis("linear", X[:300])
    q = blr.fit_evidence(basis(X[:300]), late[:300])
    curve = reliability_curve(q.predict_proba(basis(X[300:])), late[300:], bins=12)
    return plot_reliability(
        new_axes(4.6, 4.6),
        curve["predicted"],
        curve["observed"],
        curve["low"],
        curve["high"],
        label="probability of the second class",
    )
