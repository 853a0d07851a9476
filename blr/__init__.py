"""Bayesian logistic classification that knows when it does not know.

The names below load what they need when they are first used: importing `blr` alone is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # and for editors; at run time `__getattr__` below imports a name on its first use
    from blr.basis.base import Basis as Basis
    from blr.basis.kinds import fit_basis as fit_basis
    from blr.boundary import decision_boundary as decision_boundary
    from blr.candidates.candidate import Candidate as Candidate
    from blr.candidates.candidate import Selection as Selection
    from blr.candidates.training import TrainedClassifier as TrainedClassifier
    from blr.candidates.training import fit_default as fit_default
    from blr.classifier import Classifier as Classifier
    from blr.decisions import Flag as Flag
    from blr.decisions import decide as decide
    from blr.estimators import DefaultClassifier as DefaultClassifier
    from blr.estimators import LaplaceClassifier as LaplaceClassifier
    from blr.gaussian import GaussianPrior as GaussianPrior
    from blr.posterior.kinds import Posterior as Posterior
    from blr.posterior.laplace import fit as fit
    from blr.posterior.laplace import fit_sgd as fit_sgd
    from blr.posterior.laplace import laplace_approximation as laplace_approximation
    from blr.posterior.sampling import bridge_evidence as bridge_evidence
    from blr.posterior.sampling import sample_posterior as sample_posterior
    from blr.posterior.variational import refine as refine
    from blr.selection.compare import average as average
    from blr.selection.compare import compare as compare
    from blr.selection.compare import leave_one_out as leave_one_out
    from blr.selection.evidence import fit_evidence as fit_evidence
    from blr.selection.label_noise import estimate_label_noise as estimate_label_noise
    from blr.shift import class_priors as class_priors
    from blr.shift import density_ratio as density_ratio

    __version__: str

_HOME = {
    "Basis": "basis.base",
    "Candidate": "candidates.candidate",
    "Classifier": "classifier",
    "DefaultClassifier": "estimators",
    "Flag": "decisions",
    "GaussianPrior": "gaussian",
    "LaplaceClassifier": "estimators",
    "Posterior": "posterior.kinds",
    "Selection": "candidates.candidate",
    "TrainedClassifier": "candidates.training",
    "average": "selection.compare",
    "bridge_evidence": "posterior.sampling",
    "class_priors": "shift",
    "compare": "selection.compare",
    "decide": "decisions",
    "decision_boundary": "boundary",
    "density_ratio": "shift",
    "estimate_label_noise": "selection.label_noise",
    "fit": "posterior.laplace",
    "fit_basis": "basis.kinds",
    "fit_default": "candidates.training",
    "fit_evidence": "selection.evidence",
    "fit_sgd": "posterior.laplace",
    "laplace_approximation": "posterior.laplace",
    "leave_one_out": "selection.compare",
    "refine": "posterior.variational",
    "sample_posterior": "posterior.sampling",
}
"""The module of each public name."""

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__ = list(_HOME)

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("importlib.metadata").version("galaxyblr")
        if name not in _HOME:
            raise AttributeError(f"module 'blr' has no attribute '{name}'; it offers {', '.join(_HOME)}")
        return getattr(import_module(f"blr.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*_HOME, "__version__"]
