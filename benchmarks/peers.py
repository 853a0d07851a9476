"""The classifiers that `bench_labels.py` compares ours with, each with the settings that its users begin with.

All are handed the same numbers; the median of the training rows stands for a missing one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import metadata
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

__all__ = ["GAUSSIAN_PROCESS", "PEERS", "NotRunError", "fitted_probabilities", "version_of"]

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

MOST_TERMS = 2500
"""Most terms of a polynomial: a cross-validated fit of more takes minutes a split."""
GAUSSIAN_PROCESS = "Gaussian process"


class NotRunError(ValueError):
    """A method is left out by a rule of this benchmark."""


def _imputer() -> SimpleImputer:
    return SimpleImputer(strategy="median", keep_empty_features=True)


def _neg_log_loss(model: Any, X: Floats, y: Labels) -> float:
    """Score a fold that may lack a class, which scikit-learn's own scorer refuses."""
    return -float(log_loss(y, model.predict_proba(X), labels=model.classes_))


def _logistic(degree: int) -> Callable[[int], Any]:
    """Return the maker of a logistic regression of `degree` with C by five folds."""

    def make(n_features: int) -> Any:
        terms = comb(n_features + degree, degree) - 1
        if degree > 1 and terms > MOST_TERMS:
            raise NotRunError(f"got {terms} terms of degree {degree}, expected at most {MOST_TERMS}")
        steps = (StandardScaler(), PolynomialFeatures(degree, include_bias=False), StandardScaler())
        model = LogisticRegressionCV(cv=5, scoring=_neg_log_loss, max_iter=2000)
        return make_pipeline(_imputer(), *steps, model)

    return make


def _discriminant(_: int) -> Any:
    return make_pipeline(_imputer(), LinearDiscriminantAnalysis())


def _forest(_: int) -> Any:
    # A hundred trees of pure leaves, the default, have probabilities of 0: these are a forest's better ones.
    return make_pipeline(_imputer(), RandomForestClassifier(500, min_samples_leaf=3, random_state=0))


def _boosting(_: int) -> Any:
    # Early stopping, the default above 10,000 rows only, keeps few rows from being learned by heart.
    return make_pipeline(_imputer(), HistGradientBoostingClassifier(early_stopping=True, random_state=0))


def _catboost(_: int) -> Any:
    from catboost import CatBoostClassifier  # noqa: PLC0415 -- of the group `bench`, which tests do without

    model = CatBoostClassifier(random_seed=0, thread_count=1, allow_writing_files=False, verbose=0)
    return make_pipeline(_imputer(), model)


def _gaussian_process(n_features: int) -> Any:
    # From a length of 1, the default, the search ends in a poor optimum where features are many.
    kernel = ConstantKernel(1.0) * RBF(np.sqrt(n_features))
    return make_pipeline(_imputer(), StandardScaler(), GaussianProcessClassifier(kernel, random_state=0))


PEERS: Mapping[str, Callable[[int], Any]] = {
    "logistic CV, degree 1": _logistic(1),
    "logistic CV, degree 2": _logistic(2),
    "logistic CV, degree 3": _logistic(3),
    "linear discriminant": _discriminant,
    "random forest": _forest,
    "histogram boosting": _boosting,
    "CatBoost": _catboost,
    GAUSSIAN_PROCESS: _gaussian_process,
}
"""Peers by name, each with a function from the number of features to an estimator of scikit-learn's form."""


def fitted_probabilities(name: str, X: Floats, y: Labels, wanted: Floats) -> Floats:
    """Return a peer's probabilities (N, K) of the rows `wanted` (N, F), of classes 0 to K - 1."""
    return np.asarray(PEERS[name](X.shape[1]).fit(X, y).predict_proba(wanted), dtype=np.float64)


def version_of(name: str) -> str:
    """Return the package of a peer with its version."""
    package = "catboost" if name == "CatBoost" else "scikit-learn"
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return package
