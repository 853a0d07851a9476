"""What a verdict is worth: errors of probabilities and evidences, by verdict, over random small problems.

Logistic regression with two weights, 3 to 60 rows, priors from narrow to broad, separable data among them; the truth is
the trapezoid rule over both weights, nothing of ours.  Prints a table of `docs/accuracy.md`; half a minute.

    python benchmarks/bench_verdicts.py [number of problems]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logsumexp

import blr

Floats = NDArray[np.float64]
NEW = np.column_stack([np.ones(13), np.linspace(-6, 6, 13)])
SHARES = 0.5, 0.9, 1.0
COLUMNS = "Laplace, p", "refined, p", "evidence, Laplace", "evidence, second order"


@dataclass(frozen=True)
class Problem:
    """Rows (N, 2), labels (N,), and the prior's variances (2,)."""

    Phi: Floats
    t: NDArray[np.bool_]
    variance: Floats

    def truth(self, mode: Floats, spread: Floats) -> tuple[Floats, float]:
        """Return the probabilities at NEW and ln p(D), on a grid that holds all of the mass."""
        low, high = np.full(2, -60.0), np.full(2, 60.0)
        for n in (121, 121, 301):
            axes = [np.linspace(a, b, n) for a, b in zip(low, high, strict=True)]
            z = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
            W = mode + z @ spread.T
            log_p = log_expit(np.where(self.t, 1, -1) * (W @ self.Phi.T)).sum(axis=1)
            log_p -= 0.5 * (W**2 / self.variance).sum(axis=1)
            inside, step = z[log_p > log_p.max() - 32], np.array([a[1] - a[0] for a in axes])
            low, high = inside.min(axis=0) - 3 * step, inside.max(axis=0) + 3 * step
        total = logsumexp(log_p) + np.log(step.prod()) + np.log(abs(np.linalg.det(spread)))
        keep = log_p > log_p.max() - 32
        share = np.exp(log_p[keep] - logsumexp(log_p[keep]))
        p = share @ expit(W[keep] @ NEW.T)
        return p, float(total - 0.5 * np.log(self.variance).sum() - np.log(2 * np.pi))


def random_problem(seed: int) -> Problem:
    """Return a problem; a seventh of them are separable whatever their rows."""
    rng = np.random.default_rng(seed)
    N = int(rng.integers(3, 60))
    x = rng.normal(size=N) * rng.choice([1, 3])
    t = x > 0.1 if rng.random() < 1 / 7 else rng.random(N) < expit(rng.choice([0, 1]) + x)
    return Problem(np.column_stack([np.ones(N), x]), t, 10.0 ** rng.uniform(-1, 3, 2))


def errors(problem: Problem) -> tuple[str, list[float]]:
    """Return the verdict, and the errors in the order of COLUMNS; of probabilities the largest."""
    q = blr.fit(problem.Phi, problem.t, blr.GaussianPrior(0.0, problem.variance))
    p, log_evidence = problem.truth(q.mean, np.linalg.inv(q.cholesky).T)
    found: list[Any] = [np.abs(x.predict_proba(NEW) - p).max() for x in (q, blr.refine(q))]
    left = q.log_evidence - log_evidence
    return q.trust.verdict, [*found, abs(left), abs(left + q.second_order)]


def main() -> None:
    """Print the table: quantiles of each error, by verdict."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    found = [errors(random_problem(seed)) for seed in range(n)]
    print(f"| verdict | problems | {' | '.join(COLUMNS)} |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    for verdict in ("green", "amber", "red"):
        of = np.array([e for v, e in found if v == verdict])
        cells = [" / ".join(f"{x:.4f}" for x in np.quantile(column, SHARES)) for column in of.T]
        print(f"| {verdict} | {len(of)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
