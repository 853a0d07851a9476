"""Moderated prediction with its variance and mutual information against predict_proba without, in one run."""

from __future__ import annotations

import statistics
import sys

import numpy as np
from bench_fit import problem, seconds
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import blr

REPEATS = 5
ROWS = 262_144


def compare(m: int, k: int) -> None:
    """Print the ratio for M columns and K classes, one thread each: catalogues are split over threads by rows."""
    Phi, t = problem(20_000, m, k)
    likelihood = "logistic" if k == 2 else "softmax"
    q = blr.fit_evidence(Phi, t, likelihood, classes=range(k))
    theirs = LogisticRegression(fit_intercept=False).fit(Phi, t)
    rows = np.random.default_rng(0).standard_normal((ROWS, m))
    ratios, ours_s = [], []
    with threadpool_limits(1):
        for _ in range(REPEATS):
            ours_s.append(seconds(lambda: q.prediction(rows).mutual_information))
            ratios.append(ours_s[-1] / seconds(lambda: theirs.predict_proba(rows)))
    nanoseconds = 1e9 * statistics.median(ours_s) / ROWS
    print(
        f"predict M = {m}, K = {k}: {nanoseconds:6.0f} ns a row with variance and mutual information; ratio to "
        f"scikit-learn's plug-in predict_proba {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    )


def main() -> int:
    """Print binary, three and five classes."""
    for m, k in ((50, 2), (50, 3), (50, 5)):
        compare(m, k)
    return 0


if __name__ == "__main__":
    sys.exit(main())
