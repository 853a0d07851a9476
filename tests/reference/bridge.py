"""Reference evidences of separable problems of one to nine weights, by quadrature and long importance sampling.

Run `python -m tests.reference.bridge` to make `bridge.json` anew; it takes some minutes.  Nothing here comes from
`blr`.  Two weights: the trapezoid rule on a grid.  More: importance sampling from a mixture of Student's t and shifted
copies of it, fitted to the draws of a first round by their weights, until the standard error is below 0.004 nats.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp

from tests.reference.posteriors import Problem, by_grid, data_of, design

RESULTS = Path(__file__).parent / "bridge.json"
DOF = 5.0
ROUNDS, BATCH = 6, 100_000
ENOUGH, MOST = 0.003, 12_000_000


def student(x: int, centre: float, L: np.ndarray) -> Any:
    """Return ln density of Student's t of scale L at x (S, D)."""
    D = len(centre)
    z = np.linalg.solve(L, (x - centre).T)
    constant = gammaln((DOF + D) / 2) - gammaln(DOF / 2) - 0.5 * D * np.log(DOF * np.pi)
    return constant - np.log(np.diag(L)).sum() - 0.5 * (DOF + D) * np.log1p(np.sum(z**2, axis=0) / DOF)


def by_importance(problem: Any, rng: np.random.Generator) -> Any:
    """Return ln evidence and its standard error."""
    centre, S = problem.gaussian()
    L = 1.5 * np.linalg.cholesky(S)

    def batch() -> Any:
        t = rng.standard_normal((BATCH, problem.D)) * np.sqrt(DOF / rng.chisquare(DOF, (BATCH, 1)))
        W = centre + t @ L.T
        log_p = np.concatenate([problem.log_joint(part) for part in np.array_split(W, 50)])
        return W, log_p - student(W, centre, L)

    for _ in range(ROUNDS):  # the proposal moves to the posterior's own mean and covariance
        W, ratio = batch()
        r = np.exp(ratio - ratio.max())
        r = np.minimum(r, np.sort(r)[-50]) if len(r) > 50 else r
        r /= r.sum()
        centre = r @ W
        d = W - centre
        L = 1.05 * np.linalg.cholesky((d.T * r) @ d)
    ratios = np.empty(0)
    while True:
        ratios = np.concatenate([ratios, batch()[1]])
        r = np.exp(ratios - ratios.max())
        error = float(r.std() / r.mean() / np.sqrt(len(r)))
        if error < ENOUGH or len(ratios) >= MOST:
            return logsumexp(ratios) - np.log(len(ratios)), error


def problems() -> Iterator[Any]:
    """Yield separable problems of two to nine weights, under narrow and broad priors."""
    rng = np.random.default_rng(71)
    for M, variance in ((2, 9.0), (2, 400.0), (4, 9.0), (6, 9.0), (6, 625.0), (9, 9.0), (9, 100.0)):
        Phi = design(rng, 60, M)
        t = Phi @ rng.normal(0, 1, M) > 0
        prior = [1e4, *[variance] * (M - 1)]
        yield Problem(f"{M} weights, prior variance {variance:g}", "logistic", Phi, t, 0.0, prior, Phi[:5])
    Phi = design(rng, 60, 3)
    label = np.argmax(Phi @ rng.normal(0, 1, (3, 3)), axis=1)
    yield Problem("three classes, nine weights", "softmax", Phi, np.eye(3)[label], 0.0, 9.0, Phi[:5])


def main() -> None:
    """Write the results."""
    rng, out = np.random.default_rng(9), []
    for problem in problems():
        value, error = by_grid(problem)[2:] if problem.D <= 2 else by_importance(problem, rng)
        print(f"{problem.name:32s} ln evidence {value:.4f} +- {error:.1e}", flush=True)
        prior = {"prior_variance": np.diag(problem.covariance).tolist()}
        found = {"log_evidence": round(float(value), 5), "error": round(float(error), 5)}
        out.append(data_of(problem) | prior | found)
    RESULTS.write_text(json.dumps(out), encoding="utf-8")


if __name__ == "__main__":
    main()
