"""Bayesian logistic classification that knows when it does not know.

The names below load what they need when they are first used: importing `blr` alone is quick.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "GaussianPrior": "prior",
    "Posterior": "posterior",
    "average": "selection",
    "bridge_evidence": "bridge",
    "compare": "selection",
    "decide": "decisions",
    "decision_boundary": "boundary",
    "estimate_label_noise": "label_noise",
    "fit": "laplace",
    "fit_basis": "basis",
    "fit_evidence": "evidence",
    "fit_sgd": "laplace",
    "laplace_approximation": "laplace",
    "leave_one_out": "selection",
    "refine": "variational",
    "sample_posterior": "sampling",
    "served": "repair",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'blr' has no attribute '{name}'; it offers {', '.join(_HOME)}")
    return getattr(import_module(f"blr.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
