"""Bayesian logistic classification that knows when it does not know.

The names below load what they need when they are first used: importing `blr` alone is quick.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "GaussianPrior": "likelihood.prior",
    "Posterior": "posterior.posterior",
    "average": "selection.compare",
    "bridge_evidence": "posterior.bridge",
    "compare": "selection.compare",
    "decide": "decisions",
    "decision_boundary": "boundary",
    "estimate_label_noise": "selection.label_noise",
    "fit": "posterior.laplace",
    "fit_basis": "basis.kinds",
    "fit_evidence": "selection.evidence",
    "fit_sgd": "posterior.laplace",
    "laplace_approximation": "posterior.laplace",
    "leave_one_out": "selection.compare",
    "refine": "posterior.variational",
    "sample_posterior": "posterior.sampling",
    "served": "posterior.repair",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'blr' has no attribute '{name}'; it offers {', '.join(_HOME)}")
    return getattr(import_module(f"blr.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
