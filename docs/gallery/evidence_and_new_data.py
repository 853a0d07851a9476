"""Evidence against loss on new data.

Each point is a polynomial, fitted to the same 120 rows.  Across: the evidence of these rows.  Up: the loss on 20,000
rows that no fit has seen.  More evidence goes with less loss.  So the rows that train can choose as well.
"""

import numpy as np

import blr
from flows.plots.axes import INK, SvgAxes, class_colour, label_axes, new_axes


def draw() -> SvgAxes:
    rng = np.random.default_rng(11)

    def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.uniform(-2, 2, n)
        return x[:, None], rng.random(n) < 1 / (1 + np.exp(1 - 0.8 * x**2 + 0.3 * x))

    (X, t), (new, truth) = rows(120), rows(20_000)
    axes = new_axes(6, 4)
    for degree in (1, 2, 5, 8, 12):
        basis = blr.fit_basis("polynomial", X, degree=degree)
        q = blr.fit_evidence(basis(X), t)
        p = q.predict_proba(basis(new))
        loss = -np.log(np.where(truth, p, 1 - p)).mean()
        axes.plot(q.log_evidence, loss, "o", color=class_colour(0), markersize=7)
        axes.text(q.log_evidence + 0.4, loss + 0.004, f"degree {degree}", va="center", color=INK)
    axes.set(xlim=(-92, -75))
    label_axes(axes, "log evidence of 120 rows (nats)", "log loss of 20,000 new rows (nats)")
    return axes
