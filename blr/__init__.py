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
    from blr.census.shares import class_priors as class_priors
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
    from blr.shift import density_ratio as density_ratio

    __version__: str

_NAMES = {
    "basis.base": ("Basis",),
    "basis.kinds": ("fit_basis",),
    "boundary": ("decision_boundary",),
    "candidates.candidate": ("Candidate", "Selection"),
    "candidates.training": ("TrainedClassifier", "fit_default"),
    "census.shares": ("class_priors",),
    "classifier": ("Classifier",),
    "decisions": ("Flag", "decide"),
    "estimators": ("DefaultClassifier", "LaplaceClassifier"),
    "gaussian": ("GaussianPrior",),
    "posterior.kinds": ("Posterior",),
    "posterior.laplace": ("fit", "fit_sgd", "laplace_approximation"),
    "posterior.sampling": ("bridge_evidence", "sample_posterior"),
    "posterior.variational": ("refine",),
    "selection.compare": ("average", "compare", "leave_one_out"),
    "selection.evidence": ("fit_evidence",),
    "selection.label_noise": ("estimate_label_noise",),
    "shift": ("density_ratio",),
}
"""The public names of each module."""
_HOME = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__ = list(_HOME)

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("importlib.metadata").version("galaxyblr")
        if name not in _HOME:
            raise AttributeError(f"module 'blr' has no attribute '{name}'; it offers {', '.join(__all__)}")
        return getattr(import_module(f"blr.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*_HOME, "__version__"]
