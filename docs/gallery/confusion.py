"""Confusion of three classes.

Rows are true classes, columns assigned ones.  Each row sums to 100 %; the small numbers are objects.
"""

import numpy as np

import blr
from flows.plots.axes import SvgAxes, new_axes
from flows.plots.pictures import plot_confusion


def draw() -> SvgAxes:
    rng = np.random.default_rng(2)
    kind = rng.choice(3, 2000, p=[0.5, 0.35, 0.15])
    X = np.array([[0.0, 0.0], [1.6, 0.4], [0.6, 2.0]])[kind] + rng.normal(size=(2000, 2)) * 0.8
    basis = blr.fit_basis("linear", X[:500])
    q = blr.fit_evidence(basis(X[:500]), kind[:500], likelihood="softmax")
    assigned = q.predict_proba(basis(X[500:])).argmax(axis=1)
    counts = np.zeros((3, 3), int)
    np.add.at(counts, (kind[500:], assigned), 1)
    return plot_confusion(new_axes(5, 4.6), counts, ["spiral", "elliptical", "irregular"])
