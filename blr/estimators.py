"""scikit-learn's interface to all this: one classifier for two classes and for many.

    LaplaceClassifier(basis="polynomial", basis_options={"degree": 2}).fit(X, y).predict_proba(X)

Strings or numbers as classes, `sample_weight`, pipelines, grid search, `clone` and `set_output` work as they do with
any other estimator.  Shapes: N rows, F features, K classes.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from blr.arrays import Matrix, Vector
from blr.basis.kinds import fit_basis
from blr.likelihood.prior import GaussianPrior
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import fit
from blr.posterior.posterior import Posterior
from blr.posterior.sampling import sample_posterior
from blr.posterior.variational import refine
from blr.predictive.mixture import Prediction
from blr.selection.evidence import fit_evidence

__all__ = ["LaplaceClassifier"]

_POSTERIORS = ("laplace", "refined", "sampled")


class LaplaceClassifier(ClassifierMixin, BaseEstimator):
    """Bayesian logistic regression on basis functions, whose probabilities carry the uncertainty of its weights.

    Parameters
    ----------
    basis
        Kind of basis: "linear", "polynomial", "rbf", "sigmoid", "bspline" or "fourier".
    basis_options
        Its options, such as {"degree": 2}.
    prior_precision
        "evidence": found by evidence maximisation; or a positive number.
    likelihood
        "auto" (logistic for two classes, else softmax), or a link of two classes.
    posterior
        "laplace"; "refined" (Gaussian variational), nearer to the truth for a few more passes; "sampled" (Markov
        chains), the truth where no Gaussian is.  The default is the one that rounding in the data cannot move.
    random_state
        Seed of bases with random parts, and of the chains.

    Attributes
    ----------
    classes_, basis_, posterior_, log_evidence_, bic_
        What was found; `posterior_` is a `blr.Posterior`.
    """

    def __init__(
        self,
        *,
        basis: str = "linear",
        basis_options: dict[str, Any] | None = None,
        prior_precision: float | str = "evidence",
        likelihood: str = "auto",
        posterior: str = "laplace",
        random_state: int | None = 0,
    ) -> None:
        self.basis = basis
        self.basis_options = basis_options
        self.prior_precision = prior_precision
        self.likelihood = likelihood
        self.posterior = posterior
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the weights, and the prior's precision, to X (N, F) and the labels y (N,)."""
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self._check_options()
        weight = (
            None
            if sample_weight is None
            else _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        )
        if weight is not None:
            seen = weight > 0  # a row of weight zero is not there: it names no class and moves no centre
            rows, labels, weight = rows[seen], labels[seen], weight[seen]
        self.classes_, index = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs at least two classes, got one class only: {self.classes_}")
        rng = np.random.default_rng(self.random_state)
        self.basis_ = fit_basis(self.basis, rows, weight=weight, rng=rng, **(self.basis_options or {}))
        self.posterior_ = self._refined(self._fit(self.basis_(rows), index, weight), rng)
        self.log_evidence_, self.bic_ = self.posterior_.log_evidence, self.posterior_.bic
        self.n_iter_ = self.posterior_.n_iter
        return self

    def _check_options(self) -> None:
        if self.posterior not in _POSTERIORS:
            raise ValueError(f"posterior must be one of {', '.join(_POSTERIORS)}, got {self.posterior!r}")
        number = isinstance(self.prior_precision, (int, float, np.integer, np.floating))
        if not number and self.prior_precision != "evidence":
            raise ValueError(
                f"prior_precision must be 'evidence' or a positive number, got {self.prior_precision!r}"
            )

    def _fit(self, Phi: Matrix, index: Any, weight: Vector | None) -> LaplacePosterior:
        K = len(self.classes_)
        name = ("logistic" if K == 2 else "softmax") if self.likelihood == "auto" else self.likelihood
        options: dict[str, Any] = {"sample_weight": weight, "classes": range(K)}
        if self.prior_precision == "evidence":
            return fit_evidence(Phi, index, name, **options)
        return fit(
            Phi, index, GaussianPrior.isotropic(Phi.shape[1], float(self.prior_precision)), name, **options
        )

    def _refined(self, q: LaplacePosterior, rng: np.random.Generator) -> Posterior:
        if self.posterior == "refined":
            return refine(q)
        return sample_posterior(q, rng=rng) if self.posterior == "sampled" else q

    def _prediction(self, X: ArrayLike) -> Prediction:
        check_is_fitted(self)
        return self.posterior_.prediction(self.basis_(validate_data(self, X, dtype=np.float64, reset=False)))

    def predict_proba(self, X: ArrayLike) -> Matrix:
        """Return the moderated probabilities, (N, K)."""
        return self._prediction(X).probability

    def predict_log_proba(self, X: ArrayLike) -> Matrix:
        """Return their logarithms, (N, K)."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def decision_function(self, X: ArrayLike) -> Matrix:
        """Return the logit of the moderated probability of the second class (N,); for more classes their logarithms."""
        p = np.clip(self.predict_proba(X), np.finfo(np.float64).tiny, None)
        return np.log(p[:, 1]) - np.log(p[:, 0]) if len(self.classes_) == 2 else np.log(p)

    def predict(self, X: ArrayLike) -> Any:
        """Return the most probable class of each row, (N,)."""
        p = self.predict_proba(X)
        return self.classes_[p.argmax(axis=1)]

    def predict_logit_std(self, X: ArrayLike) -> Vector:
        """Return the posterior sd of the logit, or of a pair's widest contrast, (N,)."""
        return self._prediction(X).logit_std

    predict_std = predict_logit_std

    def predict_mutual_information(self, X: ArrayLike) -> Vector:
        """Return how much a row's label would tell about the weights, (N,), nats."""
        return self._prediction(X).mutual_information
