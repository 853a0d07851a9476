"""Simulation-based calibration: how often 90 % intervals of a logit hold the weights that made the data.

Run `python tests/reference/coverage.py` to make `coverage.json` anew; it takes some minutes.  Weights are drawn from
the prior, labels from the weights; whoever then believes the prior is right on average, if the posterior is computed
right (Talts et al. 2018, arXiv:1804.06788).  Only problems whose verdict is green count, which is known before the
truth is.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from blr.laplace import fit
from blr.prior import GaussianPrior
from blr.sampling import sample_posterior
from blr.variational import refine

HERE = Path(__file__).parent
Z = 1.6448536269514722


def simulated(rng, K, N=150, M=4):
    """Return Phi, labels and the true class weights (K, M), or (M,) for two classes."""
    Phi = np.column_stack([np.ones(N), rng.standard_normal((N, M - 1))])
    if K == 2:
        w = rng.standard_normal(M)
        return Phi, (rng.random(N) < 1 / (1 + np.exp(-Phi @ w))).astype(float), w
    w = rng.standard_normal((K, M))
    return Phi, np.argmax(Phi @ w.T + rng.gumbel(size=(N, K)), axis=1), w


def covered(kind, K, rng, rows=6):
    """Return whether each interval at new rows holds the truth, (rows,); None where the verdict is not green."""
    Phi, t, w = simulated(rng, K)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0), "logistic" if K == 2 else "softmax", classes=range(K), threads=1)
    if q.trust.verdict != "green":
        return None
    new = np.column_stack([np.ones(rows), rng.standard_normal((rows, Phi.shape[1] - 1))])
    truth = new @ w if K == 2 else new @ (w[1] - w[0])
    if kind == "sampled":
        draws = sample_posterior(q, rng=rng, n_draws=2048).sample(2048, rng)
        a = (
            draws
            if K == 2
            else draws.reshape(-1, K, Phi.shape[1])[:, 1] - draws.reshape(-1, K, Phi.shape[1])[:, 0]
        )
        low, high = np.quantile(a @ new.T, [0.05, 0.95], axis=0)
        return (truth > low) & (truth < high)
    mean, covariance = (refine(q) if kind == "refined" else q).logit_moments(new)
    if K > 2:
        load = np.eye(K)[1] - np.eye(K)[0]
        mean, covariance = mean @ load, np.einsum("nkl,k,l->n", covariance, load, load)
    return np.abs(truth - mean) < Z * np.sqrt(covariance)


def coverage(kind, K, n, seed=0):
    """Return the share of intervals that hold the truth, its standard error, and the number of green problems."""
    rng = np.random.default_rng(seed)
    found = [c.mean() for c in (covered(kind, K, rng) for _ in range(n)) if c is not None]
    return float(np.mean(found)), float(np.std(found) / np.sqrt(len(found))), len(found)


def main():
    out = {}
    for K in (2, 3):
        for kind, n in (("laplace", 1500), ("refined", 1500), ("sampled", 400)):
            share, error, green = coverage(kind, K, n)
            print(f"{kind:10s} K = {K}: {share:.4f} +- {error:.4f} of {green} green problems")
            out[f"{kind}, {K} classes"] = {"coverage": share, "error": error, "green": green, "simulated": n}
    (HERE / "coverage.json").write_text(json.dumps(out, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
