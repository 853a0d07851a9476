"""The figure of error against the number of rows: `docs/error.svg`, and its slopes in print.

One family of problems, logistic with an intercept and a slope and the prior N(0, 1), labels drawn at w = (0.4, 1.2).
Two weights let the truth be had by the trapezoid rule, to more digits than any error shown: in whitened coordinates the
posterior is smooth and falls off fast, where the rule converges exponentially (Trefethen and Weideman 2014,
doi:10.1137/130932132).  Lines are medians over data sets, of the mean error in probability over rows from -3 to 3, and
of the error of the log evidence.

    python benchmarks/plot_error.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logsumexp

import blr
from blr.posterior.variational import mean_shift

Floats = NDArray[np.float64]

FIGURE = Path(__file__).parent.parent / "docs" / "error.svg"
WEIGHTS = np.array([0.4, 1.2])
NEW = np.column_stack([np.ones(13), np.linspace(-3, 3, 13)])
SIZES = tuple(2**k for k in range(4, 13))
DATA_SETS = 15
STEP, REACH = 0.3, 12.0  # of the rule, in posterior sd
PROBABILITIES = {"plug-in": -1, "Laplace": -1, "mean-shifted": -2, "refined": -2}
EVIDENCES = {"evidence, Laplace": -1, "evidence, second order": -2}
"""What is shown, with the power of N that it should fall by."""


def truth(Phi: Floats, t: Floats, q: blr.Posterior) -> tuple[Floats, float]:
    """Return the probabilities at the new rows and the log evidence, by the trapezoid rule about the mode."""
    axis = np.arange(-REACH, REACH + STEP / 2, STEP)
    L = np.linalg.inv(q.cholesky).T  # A⁻¹ = L Lᵀ
    W = q.mean + np.stack([g.ravel() for g in np.meshgrid(axis, axis)], axis=1) @ L.T
    parts = [log_joint(part, Phi, t) for part in np.array_split(W, 64)]
    log_p = np.concatenate(parts)
    log_mass = float(logsumexp(log_p))
    p = np.exp(log_p - log_mass) @ expit(W @ NEW.T)
    return p, log_mass + float(2 * np.log(STEP) + np.linalg.slogdet(L)[1])


def log_joint(W: Floats, Phi: Floats, t: Floats) -> Floats:
    """Return ln p(D, w) of weights W (S, 2) under the prior N(0, 1)."""
    prior = -0.5 * np.sum(W**2, axis=1) - np.log(2 * np.pi)
    return np.asarray(log_expit((2 * t - 1)[:, None] * (Phi @ W.T)).sum(axis=0) + prior)


def errors(n: int, seed: int) -> dict[str, float]:
    """Return each method's error on one data set of n rows."""
    rng = np.random.default_rng([n, seed])
    Phi = np.column_stack([np.ones(n), rng.standard_normal(n)])
    t = (rng.random(n) < expit(Phi @ WEIGHTS)).astype(float)
    q = blr.fit(Phi, t, blr.GaussianPrior(0.0, 1.0), threads=1)
    p, log_evidence = truth(Phi, t, q)
    found = {
        "plug-in": q.predict_proba(NEW, "plugin"),
        "Laplace": q.predict_proba(NEW),
        "mean-shifted": mean_shift(q).predict_proba(NEW),
        "refined": blr.refine(q).predict_proba(NEW),
    }
    out = {name: float(np.abs(x - p).mean()) for name, x in found.items()}
    out["evidence, Laplace"] = abs(q.log_evidence - log_evidence)
    out["evidence, second order"] = abs(q.log_evidence + q.second_order - log_evidence)
    return out


def medians(n: int, data_sets: int = DATA_SETS) -> dict[str, float]:
    """Return the median error of each method over data sets of n rows."""
    found = [errors(n, seed) for seed in range(data_sets)]
    return {name: float(np.median([f[name] for f in found])) for name in found[0]}


def slope(sizes: Floats, error: Floats) -> float:
    """Return the power of N by least squares in logarithms, over the upper half of the sizes."""
    half = slice(len(sizes) // 2, None)
    return float(np.polyfit(np.log(sizes[half]), np.log(error[half]), 1)[0])


def drawn(found: dict[int, dict[str, float]]) -> Figure:
    """Return the figure: probabilities on the left, evidences on the right, dotted lines of the expected slopes."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "blr", "font.size": 9})
    sizes, middle = np.array(list(found), dtype=float), len(found) // 2
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    titles = ("mean error in probability", "error of ln evidence, nats")
    for axes, title, expected in zip(figure.subplots(1, 2), titles, (PROBABILITIES, EVIDENCES), strict=True):
        for name, power in expected.items():
            error = np.array([found[n][name] for n in found])
            axes.loglog(sizes, error, marker="o", markersize=3, label=name.removeprefix("evidence, "))
            line = error[middle] * (sizes / sizes[middle]) ** power
            axes.loglog(sizes, line, ":", color="0.6", linewidth=1)
        axes.set(title=title, xlabel="rows N")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        axes.legend(frameon=False)
    return figure


def main() -> int:
    """Write the figure and print the numbers."""
    found = {n: medians(n) for n in SIZES}
    names = [*PROBABILITIES, *EVIDENCES]
    print("| N | " + " | ".join(names) + " |")
    print("|---" * (1 + len(names)) + "|")
    for n, values in found.items():
        print(f"| {n:,} | " + " | ".join(f"{values[name]:.1e}" for name in names) + " |")
    sizes = np.array(SIZES, dtype=float)
    powers = [slope(sizes, np.array([found[n][name] for n in SIZES])) for name in names]
    print("| power of N | " + " | ".join(f"{x:.2f}" for x in powers) + " |")
    drawn(found).savefig(FIGURE, metadata={"Date": None, "Creator": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
