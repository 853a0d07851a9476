"""Simulation-based calibration: how often intervals of a logit hold the weights that made the data.

Run `python tests/reference/coverage.py` to make `coverage.json` anew; it takes some ten minutes of a processor.
Weights are drawn from the prior, labels from the weights; whoever then believes the prior is right on average, if the
posterior is computed right (Talts et al. 2018, arXiv:1804.06788).  Only problems that are nearly Gaussian count: the
diagnosis is known before the truth is, so the exact posterior covers just as well there.

Of each interval we keep u, the posterior's distribution function at the truth, which is uniform if all is right: the
central 90 % interval holds the truth where 0.05 < u < 0.95.  Chains are dear and are run on the first problems only;
their coverage on all is the refined posterior's there, plus the mean difference where both were run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from blr.gaussian import GaussianPrior
from blr.posterior.kinds import LaplacePosterior, RefinedPosterior
from blr.posterior.laplace import fit
from blr.posterior.sampling import sample_posterior
from blr.posterior.variational import refine

HERE = Path(__file__).parent
ROWS, M = 8, 4
PROBLEMS = {"binary": 1500, "votes": 1005, "three classes": 700}  # simulated, of which most are green
CHAINED = {"binary": 60, "votes": 60, "three classes": 40}  # of them sampled too
KEPT = 12  # of which every u is kept for the test
CLASSES = {"binary": 2, "three classes": 3, "votes": 3}
N_ROWS = {"binary": 150, "three classes": 150, "votes": 50}


def simulated(name: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Phi (N, M), the targets, and the true weights (M,) or (K, M), drawn from N(0, 1)."""
    N, K = N_ROWS[name], CLASSES[name]
    Phi = np.column_stack([np.ones(N), rng.standard_normal((N, M - 1))])
    w = rng.standard_normal((K, M) if K > 2 else M)
    if name == "binary":
        return Phi, (rng.random(N) < 1 / (1 + np.exp(-Phi @ w))).astype(float), w
    if name == "votes":
        p = np.exp(Phi @ w.T)
        p /= p.sum(axis=1, keepdims=True)
        return Phi, rng.multinomial(rng.integers(1, 12, N), p).astype(float), w
    return Phi, np.argmax(Phi @ w.T + rng.gumbel(size=(N, K)), axis=1), w


def levels(name: str, i: int, kinds: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return each kind's u (ROWS,) of the i-th problem, the logit of the second class against the first at new rows.

    None where the posterior is not nearly Gaussian: `trust.second_order_holds`.
    """
    rng = np.random.default_rng([CLASSES[name], N_ROWS[name], i])
    Phi, t, w = simulated(name, rng)
    new = np.column_stack([np.ones(ROWS), rng.standard_normal((ROWS, M - 1))])
    K = CLASSES[name]
    likelihood = "logistic" if K == 2 else "softmax"
    q = fit(Phi, t, GaussianPrior(0.0, 1.0), likelihood, classes=range(K), threads=1)
    if not q.trust.second_order_holds:
        return None
    truth = new @ (w if K == 2 else w[1] - w[0])
    made = {
        "laplace": lambda: q,
        "refined": lambda: refine(q),
        "sampled": lambda: sample_posterior(q, rng=rng),
    }
    return {kind: level(made[kind](), K, new, truth) for kind in kinds}


def level(q: LaplacePosterior | RefinedPosterior, K: int, new: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the posterior's distribution function of the logit at the truth, (ROWS,)."""
    if q.kind == "sampled":
        theta = q.sample(len(q.draws), np.random.default_rng(0)).reshape(len(q.draws), -1, new.shape[1])
        logit = (theta[:, 0] if K == 2 else theta[:, 1] - theta[:, 0]) @ new.T
        return (logit < truth).mean(axis=0)
    mean, variance = q.logit_moments(new)
    if K > 2:
        load = np.eye(K)[1] - np.eye(K)[0]
        mean, variance = mean @ load, np.einsum("nkl,k,l->n", variance, load, load)
    return ndtr((truth - mean) / np.sqrt(variance))


def held(u: list[np.ndarray], share: float) -> np.ndarray:
    """Return the share of a problem's central intervals that hold the truth; u (problems, ROWS)."""
    return (np.abs(np.asarray(u) - 0.5) < share / 2).mean(axis=1)


def mean_and_error(x: np.ndarray) -> tuple[float, ...]:
    return float(np.mean(x)), float(np.std(x, ddof=1) / np.sqrt(len(x)))


def coverage(found: list[dict[str, np.ndarray]], share: float) -> dict[str, tuple[float, ...]]:
    """Return coverage and its standard error of each kind; `found` are the green problems, the chained ones first."""
    chained = [f for f in found if "sampled" in f]
    cheap = {kind: held([f[kind] for f in found], share) for kind in ("laplace", "refined")}
    out = {kind: mean_and_error(x) for kind, x in cheap.items()}
    sampled = held([f["sampled"] for f in chained], share)
    n, more = len(chained), len(found) - len(chained)
    refined = cheap["refined"]
    # Refined on all, plus sampled less refined on the first n: in terms of independent problems,
    difference = sampled - refined[:n]
    value = float(refined.mean() + difference.mean())
    parts = refined[:n] / len(found) + difference / n, refined[n:] / len(found)
    error = np.sqrt(n * np.var(parts[0], ddof=1) + (more * np.var(parts[1], ddof=1) if more > 1 else 0.0))
    return out | {"sampled": (value, float(error)), "sampled, chained problems only": mean_and_error(sampled)}


def summary(found: Any, simulated_problems: Any) -> Any:
    first = {i: f for i, f in found.items() if i < KEPT}
    problems = list(found.values())
    return {
        "simulated": simulated_problems,
        "green": len(problems),
        "chained": sum("sampled" in f for f in problems),
        "coverage": {
            f"{share:.0%}": {
                kind: {"coverage": c, "error": e} for kind, (c, e) in coverage(problems, share).items()
            }
            for share in (0.5, 0.9)
        },
        "first": {str(i): {kind: np.round(u, 6).tolist() for kind, u in f.items()} for i, f in first.items()},
    }


def main() -> None:
    out = {}
    for name, n in PROBLEMS.items():
        found = {}
        for i in range(n):
            u = levels(name, i, ("laplace", "refined", *(("sampled",) if i < CHAINED[name] else ())))
            if u is not None:
                found[i] = u
            if i % 50 == 49 and i >= CHAINED[name]:
                print(f"{name}: {i + 1} of {n}", file=sys.stderr, end="\r")
        out[name] = summary(found, n)
        for share, kinds in out[name]["coverage"].items():
            for kind, c in kinds.items():
                print(f"{name:14s} {share} {kind:32s} {c['coverage']:.4f} +- {c['error']:.4f}", flush=True)
        (HERE / "coverage.json").write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
