"""Errors found by a second look.

Somebody looks at objects again, the least certain first.  The curve is the share of all errors that is found by then;
in random order it would be the dotted line.
"""

import numpy as np

import blr
from flows.plots.axes import SvgAxes, new_axes
from flows.plots.pictures import plot_errors_caught


def draw() -> SvgAxes:
    rng = np.random.default_rng(9)
    X = rng.normal(size=(5000, 3))
    late = rng.random(5000) < 1 / (1 + np.exp(-2 * X @ [1.0, -1.0, 0.5]))
    basis = blr.fit_basis("linear", X[:400])
    p = blr.fit_evidence(basis(X[:400]), late[:400]).predict_proba(basis(X[400:]))
    wrong = (p > 0.5) != late[400:]
    order = np.argsort(np.abs(p - 0.5))
    reviewed = np.linspace(0, 1, 101)
    caught = (
        np.interp(reviewed * len(p), np.arange(len(p) + 1), np.r_[0, np.cumsum(wrong[order])]) / wrong.sum()
    )
    return plot_errors_caught(new_axes(5.2, 4.4), reviewed, caught)
