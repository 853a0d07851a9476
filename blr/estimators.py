"""scikit-learn's interface to all this: the default of `blr train`, and one model of a basis.

    DefaultClassifier().fit(X, y).predict_proba(X)
    LaplaceClassifier(basis="polynomial", basis_options={"degree": 2}).fit(X, y).predict_proba(X)

Strings or numbers as classes, `sample_weight` and its routing, pipelines, grid search, `clone` and `set_output` work as
they do with any other estimator.  Features that are missing (NaN, null or masked) are integrated out, as a stored model
does it: the fit sees their mean given the features that are there, a prediction is averaged over their distribution.
Shapes: N rows, F features, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, validate_data

from blr.arrays import Mask, Matrix, Vector, column_names, features_of, masked_as_nan, without_names
from blr.basis.kinds import fit_basis
from blr.candidates.candidate import Candidate
from blr.candidates.training import fit_default
from blr.gaussian import GaussianPrior
from blr.missing.moments import FeatureMoments, excess_spread
from blr.posterior.kinds import Posterior
from blr.posterior.laplace import fit
from blr.posterior.sampling import sample_posterior
from blr.posterior.variational import refine
from blr.predictive.mixture import Prediction, Scores, mix_nodes, with_rows
from blr.selection.evidence import fit_evidence
from blr.threads import default_threads
from blr.trust.verdict import Trust

_POSTERIORS = ("laplace", "refined", "sampled")
_MISSING = ("integrate", "error")
_BLOCK = 8192  # nodes predicted at a time


class UntrustedPosteriorWarning(UserWarning):
    """The verdict on a posterior is red: its probabilities may be far from those of the exact one."""


class _SurveyClassifier(ClassifierMixin, BaseEstimator):
    """What our estimators share: the checks of their rows, and predictions from a `_prediction`."""

    missing: str

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "integrate"
        return tags

    def _training_rows(self, X: ArrayLike, y: ArrayLike) -> tuple[Matrix, NDArray[Any]]:
        """Return features (N, F), NaN where they are missing, and labels (N,)."""
        names = None if _is_frame(X) else column_names(X)
        rows = X if _is_frame(X) else masked_as_nan(without_names(X, "X"))
        rows, labels = validate_data(self, rows, y, dtype=np.float64, ensure_all_finite=self._finite)
        check_classification_targets(labels)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        return rows, labels

    def _weights(
        self, sample_weight: ArrayLike | None, rows: Matrix, labels: NDArray[Any]
    ) -> tuple[Vector | None, Mask]:
        """Learn the classes; return the weights (N,) or None, and a mask of the rows whose weight is not 0."""
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        seen = np.ones(len(rows), dtype=bool) if weight is None else weight > 0
        self.classes_ = np.unique(labels[seen])
        return weight, seen

    def _name(self, f: int) -> str:
        return str(self.feature_names_in_[f]) if hasattr(self, "feature_names_in_") else str(f)

    @property
    def _finite(self) -> bool | str:
        return "allow-nan" if self.missing == "integrate" else True

    def _rows(self, X: ArrayLike) -> Matrix:
        """Return features (N, F) to be classified, in the order of the fit, NaN where they are missing."""
        check_is_fitted(self)
        if _is_frame(X) or column_names(X) is None:
            X = X if _is_frame(X) else masked_as_nan(X)
            return validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=self._finite)
        rows = without_names(features_of(X, getattr(self, "feature_names_in_", None)), "X")
        return check_array(rows, dtype=np.float64, ensure_all_finite=self._finite)

    def _prediction(self, X: ArrayLike) -> Prediction | Scores:
        raise NotImplementedError

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

    def predict_mutual_information(self, X: ArrayLike) -> Vector:
        """Return how much a row's label would tell about the weights, (N,), nats."""
        return self._prediction(X).mutual_information


class LaplaceClassifier(_SurveyClassifier):
    """Bayesian logistic regression on basis functions, whose probabilities carry the uncertainty of its weights.

    Parameters
    ----------
    basis
        Kind of basis: "linear", "polynomial", "rbf", "laplacian", "nystroem", "sigmoid",
        "bspline" or "fourier".
    basis_options
        Its options, such as {"degree": 2}.
    prior_precision
        "evidence": found by evidence maximisation; or a positive number.
    likelihood
        "auto" (logistic for two classes, else softmax), or a link of two classes.
    posterior
        "laplace"; "refined" (Gaussian variational), nearer to the truth for a few more passes; "sampled" (Markov
        chains), the truth where no Gaussian is.  The default is the one that rounding in the data cannot move.
    missing
        "integrate": NaN, null and masked features are missing at random, and are integrated out; "error": they are
        refused.
    n_jobs
        Threads of the fit; None for as many as `blr.threads.default_threads` gives, -1 for one a processor.
    random_state
        Seed of bases with random parts, and of the chains.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, n_iter_
        As of any estimator; names where the features had them.
    basis_, posterior_, moments_
        What was found; `posterior_` is a `blr.Posterior`, `moments_` the normal distribution of the features that
        fills missing ones in.
    log_evidence_, bic_
        Of the Laplace fit, in nats: higher is better.
    trust_
        The verdict on the posterior, with its reasons and numbers; a red one is warned of.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = np.where(X[:, 0] + rng.normal(size=200) > 0, "late", "early")
    >>> X[::10, 1] = np.nan
    >>> model = blr.LaplaceClassifier().fit(X, y)
    >>> model.predict([[2.0, 0.0], [-2.0, np.nan]]).tolist()
    ['late', 'early']
    >>> model.trust_.verdict
    'green'
    """

    def __init__(
        self,
        *,
        basis: str = "linear",
        basis_options: dict[str, Any] | None = None,
        prior_precision: float | str = "evidence",
        likelihood: str = "auto",
        posterior: str = "laplace",
        missing: str = "integrate",
        n_jobs: int | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.basis = basis
        self.basis_options = basis_options
        self.prior_precision = prior_precision
        self.likelihood = likelihood
        self.posterior = posterior
        self.missing = missing
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the weights, and the prior's precision, to X (N, F) and the labels y (N,).

        X is an array or a table (pandas, polars, Arrow, astropy); a table's names go into `feature_names_in_` and into
        `posterior_.summary()`.  A row of which all features are missing tells nothing and is left out.

        Raises
        ------
        ValueError
            If shapes, labels, weights or options do not fit, or a feature is missing everywhere.

        Warns
        -----
        UntrustedPosteriorWarning
            If the verdict on the posterior is red.
        """
        self._check_options()
        rows, labels = self._training_rows(X, y)
        weight, seen = self._weights(sample_weight, rows, labels)
        if len(self.classes_) < 2:
            raise ValueError(
                f"a classifier needs at least two classes, got one class: {self.classes_}; add rows of another class"
            )
        seen &= ~np.isnan(rows).all(axis=1)
        rows, index = rows[seen], np.searchsorted(self.classes_, labels[seen])
        weight = None if weight is None else weight[seen]
        rows = self._filled(rows, weight)
        rng = np.random.default_rng(self.random_state)
        basis = fit_basis(self.basis, rows, weight=weight, rng=rng, **(self.basis_options or {}))
        names = getattr(self, "feature_names_in_", None)
        self.basis_ = basis if names is None else replace(basis, features=tuple(map(str, names)))
        self.posterior_ = self._fit(self.basis_(rows), index, weight, rng)
        self.log_evidence_, self.bic_ = self.posterior_.log_evidence, self.posterior_.bic
        self.n_iter_ = self.posterior_.n_iter
        self.trust_: Trust = self.posterior_.trust
        if self.trust_.verdict == "red":
            remedy = "try posterior='refined' or 'sampled', a stronger prior or fewer basis functions"
            said = (
                f"do not trust the posterior: {self.trust_.reasons[0]} (`trust_.reasons` lists all); {remedy}"
            )
            warnings.warn(said, UntrustedPosteriorWarning, stacklevel=2)
        return self

    def _filled(self, rows: Matrix, weight: Vector | None) -> Matrix:
        """Learn the moments of the training rows (N, F); return them with missing features at their mean."""
        missing = np.isnan(rows)
        everywhere = np.flatnonzero(missing.all(axis=0))
        if len(everywhere):
            raise ValueError(
                f"feature {self._name(int(everywhere[0]))} is missing in every row, expected values in some; "
                "leave it out"
            )
        moments = FeatureMoments.estimate(rows, missing, weight=weight)
        self.moments_ = replace(moments, spread=excess_spread(moments, rows, missing, weight))
        return self.moments_.impute(rows, missing) if missing.any() else rows

    def _check_options(self) -> None:
        if self.posterior not in _POSTERIORS:
            raise ValueError(f"posterior must be one of {', '.join(_POSTERIORS)}, got {self.posterior!r}")
        _check_shared(self.missing, self.n_jobs)
        number = isinstance(self.prior_precision, (int, float, np.integer, np.floating))
        if not number and self.prior_precision != "evidence":
            raise ValueError(
                f"prior_precision must be 'evidence' or a positive number, got {self.prior_precision!r}"
            )

    def _fit(self, Phi: Matrix, index: Any, weight: Vector | None, rng: np.random.Generator) -> Posterior:
        K = len(self.classes_)
        name = ("logistic" if K == 2 else "softmax") if self.likelihood == "auto" else self.likelihood
        threads = default_threads() if self.n_jobs == -1 else self.n_jobs
        options: dict[str, Any] = {"sample_weight": weight, "classes": range(K), "threads": threads}
        if self.prior_precision == "evidence":
            q = fit_evidence(Phi, index, name, **options)
        else:
            prior = GaussianPrior.isotropic(Phi.shape[1], float(self.prior_precision))
            q = fit(Phi, index, prior, name, **options)
        if self.posterior == "laplace":
            return q
        return refine(q) if self.posterior == "refined" else sample_posterior(q, rng=rng)

    def _prediction(self, X: ArrayLike) -> Prediction:
        rows = self._rows(X)
        missing = np.isnan(rows)
        at_mean = self.moments_.impute(rows, missing) if missing.any() else rows
        base = self.posterior_.prediction(self.basis_(at_mean))
        some = np.flatnonzero(missing.any(axis=1))
        parts = []
        for part, nodes, weight, _ in self.moments_.nodes_by_pattern(rows, missing, some, None, most=_BLOCK):
            whole = self.posterior_.prediction(self.basis_(nodes.reshape(-1, rows.shape[1])))
            parts.append((part, mix_nodes(weight, whole)))
        return with_rows(base, parts)


class DefaultClassifier(_SurveyClassifier):
    """The classifier that `blr train` makes by default: candidates compete, and a mixture of them predicts.

    Linear and quadratic logits, a Gaussian process, steps along each feature and a forest are fitted, each with a
    Bayesian posterior of its weights; left-out rows give each its share.

    Parameters
    ----------
    candidates
        Kinds of basis or `blr.Candidate`, in place of the default list.
    held_out
        Share of the groups of rows that judge and are fitted afterwards; by default a fifth of 100,000 rows or more; of
        fewer, all rows judge, each left out of the fits.
    missing
        "integrate": NaN, null and masked features are integrated out; "error": they are refused.
    n_jobs
        Threads of the fits; None for as many as `blr.threads.default_threads` gives, -1 for one a processor.
    random_state
        Seed of all that is drawn at random.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As of any estimator.
    trained_
        The `blr.TrainedClassifier`: candidates' table, verdict, left-out probabilities, `explain`, `to_dict`.
    trust_, log_loss_
        The verdict on the posteriors; and the log loss of the rows that judge, in nats.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = np.where(X[:, 0] + rng.normal(size=200) > 0, "late", "early")
    >>> model = blr.DefaultClassifier(candidates=["linear"]).fit(X, y)
    >>> model.predict([[2.0, 0.0], [-2.0, np.nan]]).tolist()
    ['late', 'early']
    """

    def __init__(
        self,
        *,
        candidates: Sequence[str | Candidate] | None = None,
        held_out: float | None = None,
        missing: str = "integrate",
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.candidates = candidates
        self.held_out = held_out
        self.missing = missing
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        errors: ArrayLike | None = None,
        target: ArrayLike | None = None,
    ) -> Self:
        """Fit the candidates to X (N, F) and the labels y (N,), and mix them.

        Rows of equal `groups` (N,) are held out, or left out, together.  `errors` (N, F) are the features' one-sigma
        errors.  `target` (T, F) are rows to classify, which `trained_.comparison` compares with X.

        Raises
        ------
        ValueError
            If shapes, labels, weights or options do not fit, or a feature is missing everywhere.
        """
        _check_shared(self.missing, self.n_jobs)
        rows, labels = self._training_rows(X, y)
        weight, seen = self._weights(sample_weight, rows, labels)
        self.trained_ = fit_default(
            rows[seen],
            labels[seen],
            sample_weight=None if weight is None else weight[seen],
            group=None if groups is None else np.asarray(groups)[seen],
            errors=None if errors is None else np.asarray(without_names(errors, "errors"))[seen],
            features=[self._name(f) for f in range(rows.shape[1])],
            candidates=self.candidates,
            held_out=self.held_out,
            target=None if target is None else self._rows(target),
            seed=self.random_state,
            threads=default_threads() if self.n_jobs == -1 else self.n_jobs,
        )
        self.trust_, self.log_loss_ = self.trained_.trust, self.trained_.log_loss
        return self

    def _prediction(self, X: ArrayLike) -> Scores:
        used = self._used(X)  # which asks first whether there is a fit
        return self.trained_.score(used)

    def _used(self, X: ArrayLike) -> Matrix:
        """Return the columns (N, F') of the features that the classifier uses."""
        rows = self._rows(X)
        names = [self._name(f) for f in range(self.n_features_in_)]
        return np.asarray(rows[:, [names.index(name) for name in self.trained_.classifier.features]])

    def predict_proba(self, X: ArrayLike) -> Matrix:
        """Return the moderated probabilities, (N, K); rows without any feature have the shares of the classes."""
        used = self._used(X)
        return self.trained_.predict_proba(used)


def _is_frame(X: Any) -> bool:
    """Say whether scikit-learn reads the names and values of X by itself: pandas, polars, Arrow."""
    if hasattr(type(X), "colnames"):  # astropy, whose tables have an `iloc` too
        return False
    return hasattr(type(X), "__dataframe__") or hasattr(type(X), "iloc")


def _check_shared(missing: str, n_jobs: int | None) -> None:
    """Raise ValueError where an option that all estimators have is wrong."""
    if missing not in _MISSING:
        raise ValueError(f"missing must be one of {', '.join(_MISSING)}, got {missing!r}")
    if n_jobs is not None and (n_jobs == 0 or n_jobs < -1):
        raise ValueError(f"n_jobs must be a number of threads, -1 for all, or None, got {n_jobs!r}")
