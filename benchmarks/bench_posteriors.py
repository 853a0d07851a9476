"""How far each posterior's probabilities, and the evidence, are from the truth on the reference problems.

The truth is that of `tests/reference/posteriors.py`: grids, slice sampling and importance sampling, nothing of ours.
Prints the tables of `docs/accuracy.md`; half a minute without the chains, some two with them.

    python benchmarks/bench_posteriors.py [--no-chains]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import blr
from blr.posterior.variational import mean_shift

REFERENCES = Path(__file__).parent.parent / "tests" / "reference" / "posteriors.json"
Problem = dict[str, Any]
Floats = NDArray[np.float64]


def fitted(problem: Problem) -> blr.Posterior:
    """Return the Laplace fit."""
    softmax = problem["likelihood"] == "softmax"
    return blr.fit(
        np.array(problem["Phi"]),
        np.array(problem["t"]),
        blr.GaussianPrior(problem["prior_mean"], np.array(problem["prior_covariance"])),
        problem["likelihood"],
        sample_weight=problem["weight"],
        classes=range(len(problem["t"][0]) if softmax else 2),
    )


METHODS: dict[str, Callable[[blr.Posterior, Floats], Floats]] = {
    "plug-in": lambda q, new: q.predict_proba(new, "plugin"),
    "Laplace": lambda q, new: q.predict_proba(new),
    "mean-shifted": lambda q, new: mean_shift(q).predict_proba(new),
    "refined": lambda q, new: blr.refine(q).predict_proba(new),
    "sampled": lambda q, new: blr.sample_posterior(q).predict_proba(new),
}


def errors(problem: Problem, q: blr.Posterior, names: list[str]) -> list[tuple[float, float]]:
    """Return the largest and the mean error in probability of each method."""
    new, truth = np.array(problem["test"]), np.array(problem["probability"])
    found = (np.abs(METHODS[name](q, new) - truth) for name in names)
    return [(float(d.max()), float(d.mean())) for d in found]


def lines(problems: list[Problem], names: list[str]) -> Iterator[str]:
    """Yield the two tables, of probabilities and of evidences, in Markdown."""
    fits = [fitted(problem) for problem in problems]
    kinds = ["yes" if q.trust.second_order_holds else "no" for q in fits]
    yield "| problem | nearly Gaussian | known to | " + " | ".join(names) + " |"
    yield "|---" * (3 + len(names)) + "|"
    all_errors = []
    for problem, q, kind in zip(problems, fits, kinds, strict=True):
        found = errors(problem, q, names)
        all_errors.append([mean for _, mean in found])
        cells = [f"{worst:.4f} / {mean:.4f}" for worst, mean in found]
        yield f"| {problem['name']} | {kind} | {problem['error']:.4f} | " + " | ".join(cells) + " |"
    for kind in ("yes", "no"):
        chosen = [e for e, v in zip(all_errors, kinds, strict=True) if v == kind]
        if chosen:
            cells = [f"{m:.4f}" for m in np.mean(chosen, axis=0)]
            yield f"| mean of the {len(chosen)} means of {kind} | | | " + " | ".join(cells) + " |"
    yield ""
    yield "| problem | nearly Gaussian | true ln evidence | known to | Laplace | with the second-order term |"
    yield "|---|---|---|---|---|---|"
    for problem, q, kind in zip(problems, fits, kinds, strict=True):
        truth, known = problem["log_evidence"], problem["log_evidence_error"]
        plain = q.log_evidence - truth
        second = f"{plain + q.second_order:+.4f}"
        shown = second if kind == "yes" else f"({second})"
        yield f"| {problem['name']} | {kind} | {truth:.3f} | {known:.4f} | {plain:+.4f} | {shown} |"


def main() -> int:
    """Print the tables."""
    names = [name for name in METHODS if name != "sampled" or "--no-chains" not in sys.argv]
    for line in lines(json.loads(REFERENCES.read_text(encoding="utf-8")), names):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
