"""Our evidence-maximised fit against scikit-learn's Newton-Cholesky point fit at a given penalty, in one run.

Ours finds the prior precision too, and returns the posterior and its evidence; theirs is told C.  Two threads each.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import blr

THREADS = 2
REPEATS = 3


def problem(n: int, m: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return standard normal features with an intercept, and labels drawn from a softmax of them."""
    rng = np.random.default_rng(n + m + k)
    Phi = rng.standard_normal((n, m))
    Phi[:, 0] = 1.0
    activation = Phi @ (0.3 * rng.standard_normal((m, k)))
    return Phi, (activation + rng.gumbel(size=(n, k))).argmax(axis=1)


def seconds(run: Callable[[], object]) -> float:
    """Return the wall time of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(n: int, m: int, k: int, target: float) -> None:
    """Print the ratio of the two, alternating so that a busy machine slows both."""
    Phi, t = problem(n, m, k)
    likelihood = "logistic" if k == 2 else "softmax"
    theirs = LogisticRegression(solver="newton-cholesky", fit_intercept=False, C=1.0)
    ratios, ours_s, theirs_s = [], [], []
    with threadpool_limits(THREADS):
        for _ in range(REPEATS):
            ours_s.append(
                seconds(lambda: blr.fit_evidence(Phi, t, likelihood, classes=range(k), threads=THREADS))
            )
            theirs_s.append(seconds(lambda: theirs.fit(Phi, t)))
            ratios.append(ours_s[-1] / theirs_s[-1])
    print(
        f"fit {n:>9,} x {m} x {k}: evidence-maximised {statistics.median(ours_s):6.2f} s, scikit-learn "
        f"{statistics.median(theirs_s):6.2f} s, ratio {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f}; target {target})"
    )


def main() -> int:
    """Print both sizes."""
    compare(1_000_000, 50, 2, 0.35)
    compare(100_000, 50, 3, 0.5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
