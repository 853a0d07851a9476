"""The default run as numerics: arrays in, a classifier out.

    trained = blr.fit_default(X, y, target=X_survey)
    trained.predict_proba(X_survey)

The steps are the fit of each candidate, the choice, the refinement of those that are chosen, and the classifier that
they make, with the numbers that judge it.  `Training` has a method for each, so that a caller may keep what is done;
`fit_default` makes all of them at once.
Shapes: N labelled rows, n of them, T rows of the target, F features, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import (
    Matrix,
    Table,
    Vector,
    column_names,
    features_of,
    masked_as_nan,
    plain_fields,
    require_finite,
    without_names,
)
from blr.basis.kinds import fit_basis, known_kind
from blr.calibration import Skill, calibration_line, log_loss, skill
from blr.candidates._verdict import calibrated, compared_rows, computed, known, logistic_loss, verdict_of
from blr.candidates.candidate import (
    HELD_OUT,
    HELD_OUT_FROM,
    Candidate,
    CandidatePart,
    CandidateRow,
    Selection,
    default_candidates,
)
from blr.candidates.choice import choose, crossed, integrated_share, mixed
from blr.candidates.fits import (
    SILENT,
    FinalMember,
    FittedCandidate,
    Problem,
    Progress,
    fit_candidate,
    refit_candidate,
)
from blr.candidates.rows import (
    LabelledRows,
    TrainingSet,
    overdispersion,
)
from blr.census.shares import class_priors, log_prior_shift
from blr.classifier import Classifier
from blr.explanation import Contributions, contributions
from blr.likelihood.targets import recorded_probability
from blr.missing.patterns import excess, present_errors, training_noise
from blr.predictive.mixture import REACH, Scores, estimate_temperature
from blr.shift import DensityRatio, density_ratio
from blr.threads import single_threaded_blas
from blr.trust.verdict import Trust

MOST_QUADRATIC = 20
"""Most features with products in the comparison of the sets: more features would have hundreds of products."""

FEW_ROWS = 1000
"""Rows below which shares and power that were found from all of them say too small a loss of these."""
DEFAULT = Selection()
Finals = Mapping[int, Mapping[str, Sequence[FinalMember]]]
"""The members of each chosen candidate, by its index and the rows of its fit: "judged", and "kept" of a second fit."""


def compared(data: TrainingSet, X: Matrix, missing: NDArray[np.bool_]) -> DensityRatio:
    """Return how the labelled rows differ from rows X (T, F) of a target, by the features and their products.

    ValueError if there are too few rows.
    """
    other = data.moments.impute(X, missing)
    degree = 2 if other.shape[1] <= MOST_QUADRATIC else 1
    basis = fit_basis("polynomial", np.concatenate([data.filled, other]), degree=degree)
    return density_ratio(basis(data.filled), basis(other), train_weight=data.rows.weight)


def weighted_votes(data: TrainingSet, seed: int) -> tuple[TrainingSet, float]:
    """Return the rows with weights divided by the overdispersion of their votes, and this number; 1 without votes."""
    rows = data.rows
    if rows.votes is None:
        return data, 1.0
    rng, training = np.random.default_rng([seed, 0x70686]), rows.training
    phi = overdispersion(data.filled[training], rows.votes[training], rng=rng)
    if phi == 1:
        return data, phi
    weight = np.ones(len(rows.X)) if rows.weight is None else rows.weight
    return replace(data, rows=replace(rows, weight=weight / phi)), phi


@dataclass(frozen=True, eq=False)
class Training:
    """Candidates, and the rows that they are fitted to and judged on.

    `again` gives the rows of a second fit, which sees those too that judged the first; None for no such fit.
    `target` are rows of the catalogue to classify, features (T, F) and their mask of missing ones.  `class_prior` are
    the shares of the classes there, "em" to estimate them from these rows, None for those of the training rows.
    """

    candidates: tuple[Candidate, ...]
    judged: TrainingSet
    again: Callable[[], TrainingSet] | None = None
    selection: Selection = DEFAULT
    seed: int = 0
    threads: int | None = None
    progress: Progress = SILENT
    target: tuple[Matrix, NDArray[np.bool_]] | None = None
    class_prior: str | Mapping[str, float] | None = None

    @cached_property
    def kept(self) -> TrainingSet:
        """The rows that the model which is kept is fitted to."""
        return self.judged if self.again is None else self.again()

    @property
    def fits(self) -> dict[str, TrainingSet]:
        """The rows of the fits: "judged", and "kept" too if the model is fitted again to all rows."""
        return {"judged": self.judged} | ({} if self.again is None else {"kept": self.kept})

    def _problem(self, index: int, data: TrainingSet) -> Problem:
        return Problem(self.candidates[index], data, self.seed, self.threads)

    def _what(self, index: int) -> str:
        return f"candidate {index + 1} of {len(self.candidates)}"

    def fit(self, index: int) -> FittedCandidate:
        """Fit one candidate, and judge it on rows that its fits have not seen."""
        problem = self._problem(index, self.judged)
        return fit_candidate(problem, self.selection, what=self._what(index), progress=self.progress)

    def choose(self, fitted: Sequence[FittedCandidate]) -> tuple[CandidateRow, ...]:
        """Return the table of the candidates, with each one's share of the model and posterior probability."""
        return choose([one.row for one in fitted], [one.left_out for one in fitted], by=self.selection.by)

    def refine(self, index: int, fitted: Sequence[FittedCandidate]) -> dict[str, list[FinalMember]]:
        """Give a candidate the posterior that the selection asks for; return its members, by their fit."""
        return {
            which: refit_candidate(
                self._problem(index, data),
                fitted[index],
                self.selection,
                same_rows=which == "judged",
                compared=compared_rows(data, self.target) if data is self.kept else None,
                what=self._what(index),
                progress=self.progress,
            )
            for which, data in self.fits.items()
        }

    def trained(
        self, fitted: Sequence[FittedCandidate], table: Sequence[CandidateRow], finals: Finals
    ) -> TrainedClassifier:
        """Return the classifier that the chosen candidates make, and the numbers that judge it."""
        which, shares = [*self.fits][-1], [row.share for row in table]
        rows, judged_share = self.judged.rows, self.judged.class_share
        mixture = mixed([one.left_out for one in fitted], shares)
        integrated = integrated_share(mixture)
        unseen, temperature = mixture.at(integrated), None
        # Where labels may be wrong, these are probabilities of the recorded label, not of the true class.
        scaled = self.selection.temperature == "estimated" and rows.confusion is None
        if scaled:
            temperature = estimate_temperature(unseen, mixture.share)
        if temperature is not None and 2 * len(self.judged.features) > len(unseen):
            # On average a new row is beyond the range in one feature or more, which says nothing of a shift.
            temperature = replace(temperature, reach=REACH)
        p = unseen if temperature is None else temperature.scaled(unseen)
        # Without folds all rows are one group.
        if len(unseen) < FEW_ROWS and (fold := self._problem(0, self.judged).fold).any():
            parts = [one.row for one in fitted], [one.left_out for one in fitted]
            p = crossed(*parts, fold, by=self.selection.by, scaled=scaled)
        is_computed, numbers = computed(
            self._finals(finals, shares, which), temperature, unseen if self.target is None else None
        )

        def build(fits: str) -> Classifier:
            data, members = self.fits[fits], [one.member for one in self._finals(finals, shares, fits)]
            used = sorted({column for member in members for column in member.columns})
            training = data.rows.training
            return Classifier.build(
                [replace(m, columns=tuple(used.index(c) for c in m.columns)) for m in members],
                data.rows.X[training][:, used],
                data.rows.missing[training][:, used],
                features=[data.features[j] for j in used],
                classes=data.classes,
                weight=data.weight,
                low_confidence=self.selection.low_confidence,
                close_call=self.selection.close_call,
                averaged_beyond=self.selection.extrapolation == "averaged",
                untrusted=is_computed.colour == "red",
                temperature=temperature,
                integrated=integrated,
            )

        judged = build("judged")
        plugin, seen = p, np.ones(len(rows.target), dtype=bool)
        if rows.held_out.any():
            seen, used = rows.held_out, self.used(judged)
            self.progress.start("judging the model on held-out objects", int(seen.sum()), "rows")
            scores = judged.score(rows.X[seen][:, used], rows.missing[seen][:, used])
            confusion = rows.confused(seen)
            p, plugin = (recorded_probability(one, confusion) for one in (scores.probability, scores.plugin))
        else:
            self.progress.start("judging the model by left-out rows", len(p), "rows")
        self.progress.advance(len(p))
        group, outcome = None if rows.group is None else rows.group[seen], rows.response[seen]
        if rows.votes is not None:
            outcome = outcome / outcome.sum(axis=1, keepdims=True)
        shown = np.where(np.isfinite(p[:, :1]), p, judged_share)
        simple = logistic_loss(self.judged, outcome)
        line, k = calibration_line(shown, outcome, group=group)
        is_calibrated = calibrated(line, self.judged.classes[k])
        left_out = not rows.held_out.any()
        gain = skill(shown, outcome, class_shares=judged_share, group=group, left_out=left_out)
        is_known = known(gain, simple)
        training, noise = rows.training, dict[str, float]()
        if rows.errors is not None:
            noise = training_noise(rows.errors[training], rows.missing[training], self.judged.features)
        return TrainedClassifier(
            classifier=self._corrected(judged if which == "judged" else build(which), self.kept.class_share),
            judged=None if which == "judged" else self._corrected(judged, judged_share),
            candidates=tuple(table),
            selected=int(np.argmax(shares)),
            trust=verdict_of((is_computed, is_calibrated, is_known), numbers | line),
            log_loss_logistic=simple,
            seen=seen,
            probability=p,
            plugin=plugin,
            outcome=outcome,
            group=group,
            class_share=judged_share,
            class_share_kept=self.kept.class_share,
            noise=noise,
        )

    def run(self) -> TrainedClassifier:
        """Return the classifier of all steps."""
        with single_threaded_blas():
            fitted = [self.fit(index) for index in range(len(self.candidates))]
            table = self.choose(fitted)
            finals = {index: self.refine(index, fitted) for index, row in enumerate(table) if row.share}
            return self.trained(fitted, table, finals)

    def _finals(self, finals: Finals, shares: Sequence[float], which: str) -> list[FinalMember]:
        """Return the members of a fit, each with its weight in the model."""
        return [
            replace(final, member=replace(final.member, weight=shares[index] * final.member.weight))
            for index in finals
            for final in finals[index][which]
        ]

    def used(self, classifier: Classifier) -> list[int]:
        """Return the positions of a classifier's features among those of the rows."""
        return [self.judged.features.index(name) for name in classifier.features]

    def _corrected(self, classifier: Classifier, share: Vector) -> Classifier:
        """Return the classifier with the class shares of the target; `share` (K,) are those of its training rows."""
        prior = self.class_prior
        if prior is None:
            return classifier
        if isinstance(prior, str):
            if prior != "em" or self.target is None:
                raise ValueError(
                    f"got class_prior {prior!r}, expected shares of the classes, or 'em' with rows of the target; "
                    "give these"
                )
            used = self.used(classifier)
            X, missing = self.target
            p = classifier.score(X[:, used], missing[:, used]).probability
            return replace(classifier, log_prior_shift=log_prior_shift(class_priors(p, share), share))
        if set(prior) != set(classifier.classes):
            raise ValueError(
                f"got shares of {', '.join(prior)}, expected one share for each class: "
                f"{', '.join(classifier.classes)}; correct the names"
            )
        shift = log_prior_shift([prior[name] for name in classifier.classes], share)
        return replace(classifier, log_prior_shift=shift)


@dataclass(frozen=True, eq=False, repr=False)
class TrainedClassifier:
    """A classifier, the table of the candidates that it is made of, and the numbers that judge it.

    Parameters
    ----------
    classifier, judged
        The classifier; and the one to which the numbers belong, None if they are the same.
    candidates, selected
        The table of the candidates, and the row that became the model, or the largest part of it.
    trust
        The verdict on its probabilities, with its reasons, numbers and answers.
    log_loss_logistic
        The log loss of a cross-validated logistic regression on the rows that judge; None where labels may be wrong.
    seen, probability, plugin
        The labelled rows (N,) of positive weight that judge: the held-out ones or, without any, all, each left out of
        the fits.  Their probabilities (n, K), moderated and with the weights at the mode.  Where labels may be
        wrong, they are those of the recorded classes.
    outcome, group
        Classes of these rows (n,), or the shares of their votes (n, K); and which of them belong together.
    class_share, class_share_kept
        Shares of the classes (K,) in the training rows that are judged, and in those of the classifier.
    noise
        Root mean square error of each feature in the training rows, by its name, where errors were given.
    labels
        The classes (K,) as the user has them.
    comparison
        How the labelled rows differ from the target; None without one.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = np.where(X[:, 0] + rng.normal(size=200) > 0, "late", "early")
    >>> trained = blr.fit_default(X, y, candidates=["linear"])
    >>> trained.predict([[2.0, 0.0], [-2.0, np.nan]]).tolist()
    ['late', 'early']
    >>> again = blr.TrainedClassifier.from_dict(trained.to_dict())
    >>> bool((again.predict_proba(X) == trained.predict_proba(X)).all())
    True
    """

    classifier: Classifier
    judged: Classifier | None
    candidates: tuple[CandidateRow, ...]
    selected: int
    trust: Trust
    log_loss_logistic: float | None
    seen: NDArray[np.bool_]
    probability: Matrix
    plugin: Matrix
    outcome: Any
    group: NDArray[Any] | None
    class_share: Vector
    class_share_kept: Vector
    noise: Mapping[str, float]
    labels: NDArray[Any] | None = None
    comparison: DensityRatio | None = None

    def __repr__(self) -> str:
        """Return classes, features, the loss and the verdict."""
        what = repr(self.classifier).strip("<>").removeprefix("Classifier: ")
        return f"<TrainedClassifier: {what}; log loss {self.log_loss:.4f} ({self.judged_by}), {self.trust.verdict}>"

    def _repr_html_(self) -> str:
        return self.table().to_html()

    @property
    def judged_by(self) -> Literal["held-out", "left-out"]:
        """Return "held-out" or "left-out": what the rows are that judge."""
        return "left-out" if self.seen.all() else "held-out"

    @cached_property
    def served(self) -> Matrix:
        """The probabilities (n, K) of the rows that judge; a row without any has the shares of the classes."""
        return np.where(np.isfinite(self.probability[:, :1]), self.probability, self.class_share)

    @property
    def log_loss(self) -> float:
        """The mean log loss of the rows that judge, in nats."""
        return float(log_loss(self.served, self.outcome))

    @property
    def skill(self) -> Skill:
        """How much smaller the log loss is than that of the class shares, with its 95 % interval."""
        left_out = self.judged_by == "left-out"
        return skill(
            self.served, self.outcome, class_shares=self.class_share, group=self.group, left_out=left_out
        )

    def table(self) -> Table:
        """Return the candidates as a table: a dictionary of columns, which `pandas.DataFrame` takes as it is."""
        names = ("basis", "n_functions", "share", "log_loss", "loo", "log_evidence", "bic", "verdict")
        columns = {name: [getattr(row, name) for row in self.candidates] for name in names}
        none = {"verdict": ""}
        return Table(
            {n: np.array([none.get(n, np.nan) if x is None else x for x in xs]) for n, xs in columns.items()}
        )

    def score(self, X: ArrayLike, errors: ArrayLike | None = None) -> Scores:
        """Return probabilities, their uncertainty and flags of rows X (N, F), NaN where a feature is missing.

        `errors` (N, F) are the one-sigma errors of the features.  A table may hold its columns in any order.

        Raises
        ------
        ValueError
            If X or the errors have other columns than the features, or an error is negative.
        """
        names = self.classifier.features
        rows, sigma = _features(features_of(X, names), len(names), "X"), None
        missing = np.isnan(rows)
        if errors is not None:
            given = _features(features_of(errors, names), len(names), "errors")
            sigma = excess(present_errors(given, missing), self.noise, names)
        return self.classifier.score(rows, missing, sigma)

    def predict_proba(self, X: ArrayLike, errors: ArrayLike | None = None) -> Matrix:
        """Return the moderated probabilities (N, K); a row without any feature has the shares of the classes."""
        p = self.score(X, errors).probability
        return np.where(np.isfinite(p[:, :1]), p, self.class_share_kept)

    def predict(self, X: ArrayLike, errors: ArrayLike | None = None) -> Any:
        """Return the most probable class of each row, (N,)."""
        labels = np.array(self.classifier.classes) if self.labels is None else self.labels
        return labels[self.predict_proba(X, errors).argmax(axis=1)]

    def explain(self, x: ArrayLike) -> Contributions:
        """Return what each feature of a row (F,) contributes to the logit of its class against the runner-up, in nats.

        Raises
        ------
        ValueError
            If the row has no feature.
        """
        row = np.asarray(x, dtype=np.float64)
        first, second = np.argsort(-self.predict_proba(row[None])[0], kind="stable")[:2].tolist()
        return contributions(self.classifier, row, np.isnan(row), of=first, against=second)

    def to_dict(self) -> dict[str, Any]:
        """Return scalars, strings, lists and arrays that `from_dict` makes the classifier of."""
        return plain_fields(self) | {"labels": None if self.labels is None else self.labels.tolist()}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TrainedClassifier:
        """Return the classifier of `to_dict`."""

        def from_row(row: Mapping[str, Any]) -> CandidateRow:
            own = {"parts": tuple(CandidatePart(**part) for part in row["parts"])}
            return CandidateRow(**{**row, **own, **{n: tuple(row[n]) for n in ("features", "reasons")}})

        arrays: dict[str, Any] = {name: None if d[name] is None else np.asarray(d[name]) for name in _ARRAYS}
        return cls(
            **arrays,
            classifier=Classifier.from_dict(d["classifier"]),
            judged=None if d["judged"] is None else Classifier.from_dict(d["judged"]),
            candidates=tuple(from_row(row) for row in d["candidates"]),
            selected=d["selected"],
            trust=Trust.from_dict(d["trust"]),
            log_loss_logistic=d["log_loss_logistic"],
            noise=dict(d["noise"]),
            labels=None if d["labels"] is None else np.array(d["labels"]),
            comparison=None if d["comparison"] is None else DensityRatio(**d["comparison"]),
        )


_ARRAYS = ("seen", "probability", "plugin", "outcome", "group", "class_share", "class_share_kept")


def _features(x: Any, n_features: int | None, name: str) -> Matrix:
    """Return features (N, F), NaN where they are missing."""
    rows = np.ascontiguousarray(without_names(masked_as_nan(x), name), dtype=np.float64)
    if rows.ndim != 2 or n_features not in (None, rows.shape[1]):
        raise ValueError(
            f"{name} must be (N, {n_features or 'F'}), got shape {rows.shape}; give a row an object"
        )
    require_finite(np.where(np.isnan(rows), 0.0, rows), name)
    return rows


def _labels(
    y: ArrayLike, classes: Sequence[str] | None
) -> tuple[NDArray[Any], NDArray[np.intp], Matrix | None]:
    """Return the classes (K,), the class indices of the rows (N,), and their votes (N, K) or None."""
    given = np.asarray(y)
    if given.ndim == 2:
        labels = np.array(
            column_names(y) or [str(k) for k in range(given.shape[1])] if classes is None else classes
        )
        votes = _features(y, len(labels), "y")
        if not ((votes >= 0).all() and (votes.sum(axis=1) > 0).all()):
            raise ValueError("y holds votes, expected numbers of 0 or more, and at least one in each row")
        return labels, votes.argmax(axis=1), votes
    none = [name is None or (isinstance(name, float) and math.isnan(name)) for name in given.tolist()]
    without = np.flatnonzero(none)
    if len(without):
        raise ValueError(
            f"y has no label in {len(without)} of {len(given)} rows, such as row {without[0]} ({given[without[0]]}), "
            "expected one for each; leave rows without a label out"
        )
    labels = np.unique(given) if classes is None else np.asarray(classes)
    index = {name: k for k, name in enumerate(labels.tolist())}
    unknown = sorted({str(name) for name in given.tolist() if name not in index})
    if unknown:
        raise ValueError(f"y has the label {unknown[0]!r}, expected one of {', '.join(map(str, labels))}")
    return labels, np.array([index[name] for name in given.tolist()], dtype=np.intp), None


def _held_out(share: float | None, n: int, group: NDArray[Any] | None, seed: int) -> NDArray[np.bool_]:
    """Return the rows (N,) that are held out: those of a share of the groups, drawn at random."""
    if share is None:
        share = HELD_OUT if n >= HELD_OUT_FROM else 0.0
    if not 0 <= share < 1:
        raise ValueError(f"held_out must be a share from 0 to below 1, got {share}")
    _, of_row = np.unique(np.arange(n) if group is None else group, return_inverse=True)
    drawn = np.random.default_rng([seed, 0x73706C]).random(int(of_row.max()) + 1) < share
    return np.asarray(drawn[of_row])


def fit_default(
    X: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    group: ArrayLike | None = None,
    errors: ArrayLike | None = None,
    features: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    candidates: Sequence[str | Candidate] | None = None,
    held_out: float | None = None,
    target: ArrayLike | None = None,
    class_prior: str | Mapping[str, float] | None = None,
    selection: Selection = DEFAULT,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> TrainedClassifier:
    """Train a classifier as `blr train` does: candidates compete, and a mixture of them is judged on unseen rows.

    Parameters
    ----------
    X
        Features (N, F), an array or a table; NaN, null and masked values are missing and are integrated out.
    y
        Labels (N,), or votes for each class (N, K).
    sample_weight, group
        Weights of the rows (N,), of which those of weight zero are left out; and labels (N,) equal for rows that belong
        together, such as those of one object.
    errors
        One-sigma errors of the features (N, F), NaN for an unknown one: a row to classify is widened by what its errors
        exceed these.
    features, classes
        Names of the features, by default those of the table; and of the classes, in order, by default those in y.
    candidates
        Kinds of basis, such as "linear", or `blr.Candidate`; by default the list that `blr init` writes.
    held_out
        Share of the groups that no fit sees until the model is judged, which is then fitted once more to all rows; by
        default a fifth of 100,000 rows or more, and none of fewer: then all rows judge, each left out of the fits.
    target
        Rows of the catalogue to classify (T, F), which are compared with the labelled ones.
    class_prior
        Shares of the classes in the target, by name; "em": estimated from its rows.
    selection
        How the model is made of the candidates; by default they are stacked.
    seed, threads, progress
        Seed of all that is drawn at random; threads of the fits; and what receives its progress.

    Raises
    ------
    ValueError
        If shapes, labels, weights or names do not fit, a class has no training rows, or a feature no values.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = np.where(X[:, 0] + rng.normal(size=200) > 0, "late", "early")
    >>> trained = blr.fit_default(X, y, candidates=["linear"], features=["u_r", "mag"])
    >>> trained.judged_by, trained.trust.verdict, trained.skill.verdict
    ('left-out', 'green', 'better')
    """
    names = features if features is not None else column_names(X)
    given = (
        None if candidates is None else tuple(Candidate(c) if isinstance(c, str) else c for c in candidates)
    )
    for one in given or ():
        known_kind(one.kind)
    values = _features(X, None if names is None else len(names), "X")
    named = tuple(f"x{j}" for j in range(values.shape[1])) if names is None else tuple(map(str, names))
    labels, index, votes = _labels(y, classes)
    n = len(values)
    for name, value in {"y": index, "sample_weight": sample_weight, "group": group, "errors": errors}.items():
        if value is not None and (got := len(without_names(value, name))) != n:
            raise ValueError(f"X has {n} rows, but {name} has {got}; give one for each row")
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight is not None and not (np.isfinite(weight) & (weight >= 0)).all():
        raise ValueError("sample_weight holds negative or missing numbers, expected 0 or more in each row")
    together = None if group is None else np.unique(np.asarray(group), return_inverse=True)[1]
    missing = np.isnan(values)
    rows = LabelledRows(
        X=np.where(missing, 0.0, values),
        missing=missing,
        target=index,
        held_out=_held_out(held_out, n, together, seed),
        weight=weight,
        votes=votes,
        errors=None
        if errors is None
        else present_errors(_features(errors, values.shape[1], "errors"), missing),
        group=together,
    )
    if weight is not None:
        rows = rows.of(weight > 0)  # those of weight zero would move ranges and knots
    n = len(rows.X)
    _check_rows(rows, named, labels)
    data = TrainingSet.of(rows, named, [str(label) for label in labels])
    other = None
    if target is not None:
        wanted = _features(features_of(target, names), values.shape[1], "target")
        other = np.where(np.isnan(wanted), 0.0, wanted), np.isnan(wanted)
    with single_threaded_blas():
        comparison = None if other is None else compared(data, *other)
        data, _ = weighted_votes(data, seed)
        training = Training(
            given or default_candidates(n, len(named), len(labels)),
            data,
            data.of_all if rows.held_out.any() else None,
            selection,
            seed,
            threads,
            progress,
            other,
            class_prior,
        )
        return replace(training.run(), labels=labels, comparison=comparison)


def _check_rows(rows: LabelledRows, features: Sequence[str], labels: NDArray[Any]) -> None:
    """Raise ValueError where no model can be fitted to the rows."""
    training = rows.training
    weight = None if rows.weight is None else rows.weight[training]
    of_class = np.bincount(rows.target[training], weights=weight, minlength=len(labels))
    if len(labels) < 2:
        raise ValueError(f"got one class ({labels[0]}), expected at least two; add rows of another class")
    if not of_class.all():
        raise ValueError(
            f"class {labels[int(of_class.argmin())]} has no training rows of positive weight, expected some of each "
            "class; hold other rows out, or leave the class out"
        )
    nowhere = np.flatnonzero(rows.missing[training].all(axis=0))
    if len(nowhere):
        raise ValueError(
            f"feature {features[int(nowhere[0])]} is missing in every training row, expected values in some; "
            "leave it out"
        )
    X = np.where(rows.missing[training], np.nan, rows.X[training])
    if (np.nanmin(X, axis=0) == np.nanmax(X, axis=0)).all():
        raise ValueError(
            f"each feature ({', '.join(features)}) has one value in all training rows, expected one that differs "
            "between rows; add such a feature"
        )
