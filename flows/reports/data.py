"""What a report of a training shows, as it is stored: numbers, the data of pictures, and sentences on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from typing_extensions import TypedDict

from blr.arrays import Array, Floats, Mask, Places
from blr.classifier import Classifier
from catalogs.errors import printable
from catalogs.profile.quality import Quality
from flows.documents import read_document, template, utc_now
from flows.models import description
from flows.runs.references import user_name


class NotableObject(TypedDict):
    """An object that a person should look at, and why; a position in degrees, None where it is not known."""

    name: str
    ra: float | None
    dec: float | None
    why: str


class Made(TypedDict):
    """When something was made, ISO 8601 in UTC, and by whom."""

    when: str
    who: str


def made_now() -> Made:
    """Return this moment and the user who runs this process."""
    return Made(when=utc_now(), who=user_name())


@dataclass(frozen=True, kw_only=True)
class ReportNotes:
    """Notes beside a model for its report: when it was trained and by whom, and objects to look at."""

    made: Made | None = None
    objects: tuple[NotableObject, ...] = ()


class BoundaryPicture(TypedDict):
    """Probabilities over a grid of two features, the others at their mean given these two.

    Grid of ny times nx nodes: `x` (nx,), `y` (ny,), `moderated` (ny, nx, K).  Labelled objects: `point_x`, `point_y`,
    and `point_class`, index into the classes, each (n,).
    """

    x_name: str
    y_name: str
    x: Array
    y: Array
    moderated: Array
    point_x: Array
    point_y: Array
    point_class: Array


class TrainingPictures(TypedDict):
    """Arrays that pictures of a training are drawn from; without those of a picture that cannot be drawn.

    For the rows that judge: `threshold` (T,) of the class's probability, with `completeness` and `purity` (K, T) of
    the objects above it (NaN for too few objects).  `binned` has, by "magnitude" and by "latitude", the means of bins
    (B,), and counts (3, B, K): the objects of a class, those assigned to it, and both.
    """

    threshold: Array
    completeness: Array
    purity: Array
    magnitude_name: str
    binned: Mapping[str, tuple[Array, Array]]


NOTES = "report-notes.json"


def read_notes(model: description.ModelDescription) -> ReportNotes:
    """Return the notes beside a model; none of a trial, which has no folder."""
    path = None if model.path is None else Path(model.path) / NOTES
    return ReportNotes() if path is None or not path.is_file() else read_document(ReportNotes, path)


class FeatureComparison(TypedDict):
    """A feature in the training set and in the target: counts (B,) in the same bins, with B - 1 edges between them.

    `low` and `high` are the least and the largest value of the labelled rows.
    """

    name: str
    edges: tuple[float, ...]
    training: tuple[int, ...]
    target: tuple[int, ...]
    low: float
    high: float


class FlaggedByInput(TypedDict):
    """Rows in bins of an input of the model (B + 1,), and how many of them have a flag that recommends a look.

    `edges` (B - 1,) lie between the bins; the first bin and the last but one hold what is beyond the labelled rows, and
    the last one rows without a value.
    """

    name: str
    edges: tuple[float, ...]
    n: tuple[int, ...]
    flagged: tuple[int, ...]


NODES: Final = (41, 31)
MOST_POINTS: Final = 800
FEWEST_VALUES: Final = 10  # different values of a feature that make a good axis
MARGIN: Final = 0.3
"""Share by which the picture is wider than the bulk of the data: it shows how confidence decreases outside."""


def boundary_picture(
    classifier: Classifier, X: Floats, missing: Mask, labels: Places, *, names: Sequence[str]
) -> BoundaryPicture | None:
    """Return the picture over the two features that separate the classes most; None with fewer than two that vary.

    The other features have their mean given these two, so that each node is a plausible object.  Features of few
    values, as yes or no, come last.
    `X` (N, F) and `missing` are training rows, `labels` (N,) their class indices, `names` the features'.
    """
    telling = separation(X, missing, labels)
    if np.count_nonzero(telling) < 2:
        return None
    few = [np.unique(X[~missing[:, j], j]).size < FEWEST_VALUES for j in range(len(telling))]
    pair = tuple(sorted(range(len(telling)), key=lambda j: (few[j], -telling[j]))[:2])
    axes = []
    for j, n in zip(pair, NODES, strict=True):
        values = X[~missing[:, j], j]
        low, high = np.quantile(values, (0.005, 0.995))
        margin = MARGIN * (high - low) or np.inf
        axes.append(np.linspace(max(low - margin, values.min()), min(high + margin, values.max()), n))
    x, y = axes
    grid = np.zeros((y.size, x.size, X.shape[1]))
    grid[:, :, pair[0]], grid[:, :, pair[1]] = np.meshgrid(x, y)
    rows = grid.reshape(-1, X.shape[1])
    unknown = np.ones(rows.shape, dtype=bool)
    unknown[:, pair] = False
    scores = classifier.score(classifier.moments.impute(rows, unknown), np.zeros_like(unknown))
    shown = np.flatnonzero(~missing[:, pair].any(axis=1))
    if shown.size > MOST_POINTS:  # evenly spaced, so that no seed is needed
        shown = shown[np.linspace(0, shown.size - 1, MOST_POINTS).astype(np.intp)]
    return BoundaryPicture(
        x_name=names[pair[0]],
        y_name=names[pair[1]],
        x=x,
        y=y,
        moderated=scores.probability.reshape(y.size, x.size, -1),
        point_x=X[shown, pair[0]],
        point_y=X[shown, pair[1]],
        point_class=labels[shown],
    )


def separation(X: Floats, missing: Mask, labels: Places) -> Floats:
    """Return, for each feature (F,), the share of its variance that lies between the classes' means.

    It is computed from the rows that have the feature, and multiplied by the share of these rows: a feature that few
    objects have makes a poor axis.
    """
    share = np.zeros(X.shape[1])
    for j, known in enumerate(~missing.T):
        values, classes = X[known, j], labels[known]
        if values.size and np.ptp(values) > 0:
            counts = np.bincount(classes)
            means = np.bincount(classes, weights=values) / np.maximum(counts, 1)
            between = np.sum(counts * (means - values.mean()) ** 2)
            share[j] = known.mean() * between / np.sum((values - values.mean()) ** 2)
    return share


FEW = 0.05  # share of effective rows below which weights rest on a handful of objects
SHOWN = 8  # most names that a sentence lists
MISSING_WORDS = {"not_observed": "not observed", "not_detected": "not detected", "masked": "masked"}


def training_remarks(training: description.TrainingDescription) -> Iterator[str]:
    """Yield sentences on the catalogue, the labels and the fits."""
    for quality in training.quality:
        yield from quality_remarks(quality)
    yield from missing_words(training.states)
    if training.refitted:
        yield f"Judged on fits to the training rows; the model that is kept has all {training.refitted:,} rows."
    if training.sampled is not None:
        yield (
            f"Fits are of all rows. The model is judged on the held-out ones of a sample of {training.sampled:,} "
            "rows, drawn by hash; pictures, medians, centres of functions and limits of the domain are of it too."
        )
    if training.mean_power is not None:
        more = "more" if training.mean_power > 1 else "less"
        yield (
            f"Left-out rows are {more} certain than the models say: probabilities were raised to the power "
            f"{training.mean_power:.2f} (temperature scaling)."
        )
    yield from label_words(training.labels)
    yield from noise_words(training.label_noise)
    if training.overdispersion > 1:
        yield (
            f"The variance of the votes is {training.overdispersion:.2f} times that of independent votes; "
            "their weight was divided by this factor."
        )


def review_words(labels: description.LabelSummary) -> str:
    """Return the sentence on the answers of reviews: to how many objects, and how many rows have them."""
    answers = f"; reviews have answers to {labels.answered:,} objects" if labels.answered else ""
    return f"{labels.reviewed:,} labels are from review{answers}."


def label_words(labels: description.LabelSummary) -> list[str]:
    """Return sentences on where labels came from, and on those in conflict."""
    sentences = template("remarks-labels.txt.j2", line=printable, number="{:,}".format)
    said = sentences.render(labels=labels, reviewed=review_words(labels))
    return [str(line) for line in said.splitlines()]


def missing_words(states: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield a sentence on why values are missing, where the specification distinguishes the reasons."""
    if states:
        worst = sorted(states.items(), key=lambda entry: (-sum(entry[1].values()), entry[0]))
        shares = (
            f"{name}: " + ", ".join(f"{n[key]:,} {word}" for key, word in MISSING_WORDS.items() if key in n)
            for name, n in worst[:SHOWN]
        )
        more = f"; and {len(states) - SHOWN} more columns" if len(states) > SHOWN else ""
        yield f"Missing in labelled rows, by the reason: {'; '.join(shares)}{more}."


def quality_remarks(quality: Quality) -> Iterator[str]:
    """Yield sentences on what a reader of the report should know; leaks that the features use come first."""
    for words in leak_words(quality).values():
        yield f"Suspected leakage: the features use {words}."
    for count, what in (
        (quality.repeated_rows, "repeat another row in every column"),
        (quality.repeated_identifiers, "repeat the identifier of another"),
        (quality.repeated_positions, "lie within an arcsecond of another"),
        (quality.positions_without, "have no position"),
        (quality.positions_out_of_range, "have a position out of range"),
    ):
        if count:
            yield f"{count:,} of {quality.n_rows:,} rows {what}."
    if quality.commented_out:
        yield f"{quality.commented_out}."

    # By falling share, then by name: a mapping that was stored and loaded has another order.
    absent, missing, outliers = (
        sorted(shares.items(), key=lambda entry: (-entry[1], entry[0]))
        for shares in (quality.absent, quality.missing, quality.outliers)
    )
    of_files = f"Of {quality.n_files:,} files some lack a column, which has no values there"
    for said, names in (
        (of_files, [f"{name} in {n:,}" for name, n in absent]),
        ("The same in every row", quality.constant),
        ("Columns that are equal in every row", [" = ".join(group) for group in quality.duplicate_columns]),
        ("Missing most", [f"{name} {share:.0%}" for name, share in missing]),
        ("Far outliers", [f"{name} {share:.2%}" for name, share in outliers]),
    ):
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            yield f"{said}: {', '.join(names[:SHOWN])}{more}."


def leak_words(quality: Quality) -> dict[str, str]:
    """Return the columns that the features use and that may give the class away, each set with how, in a clause."""
    said = {}
    for leak in quality.leaks:
        if leak.used and (len(leak.columns) == 1 or leak.derived):
            columns, how = ", ".join(leak.columns), f"which tells {leak.gain:.0%} of the class by itself"
            if leak.derived:
                how = f"which tell {leak.gain:.0%} of the class, by {leak.combination}; smaller sets tell much less"
            elif leak.combination:
                how = f"which is {leak.combination}, to rounding: the label in other numbers"
            said[columns] = f"{columns}, {how}"
    return said


def noise_words(noise: description.WrongLabels) -> Iterator[str]:
    """Yield the sentences on what a training noted as `label_noise`; none where labels are taken to be right."""
    if noise.by is None:
        return
    found = f"found from {noise.rows or 0:,} training rows with 95 % intervals"
    known = "that the specification states" if noise.by == "stated" else found
    yield f"Labels may be wrong, in shares {known}: {_listed(noise.rates)}."
    for name, rates in noise.annotators.items():
        yield f"Wrong labels by {noise.column} '{name}': {_listed(rates)}."
    yield "Probabilities are of the true class, not of what would be recorded."
    if noise.log_loss is not None:
        yield (
            "The labels that judge the model are as wrong as those that train it. Scores are therefore of the "
            f"probability of what was recorded (log loss {noise.log_loss:.4f} nats an object); probabilities of the "
            f"true class have {noise.log_loss_of_true_classes:.4f} against the recorded labels, which says little "
            "where labels are wrong."
        )


def _listed(rates: description.RatesByClass) -> str:
    return ", ".join(
        f"{name} {s['rate']:.1%}" + (f" ({s['low']:.1%} to {s['high']:.1%})" if "low" in s else "")
        for name, s in rates.items()
    )


def likeness_words(shift: description.TargetShift) -> Iterator[str]:
    """Yield what a training noted of how like the labels its target is, and what was done; nothing without a target."""
    target, auc, low, high = shift.target, shift.auc, shift.auc_low, shift.auc_high
    if target is not None and auc is not None and low is not None and high is not None:
        yield (
            f"Shown an object of {target['name']} and a labelled one, a test picks the labelled one in "
            f"{100 * auc:.1f} of 100 tries ({100 * low:.1f} to {100 * high:.1f} at 90 %, {target['n_compared']:,} of "
            f"{target['n_rows']:,} objects compared), by chance in 50. So {shift.advice}."
        )
        n, effective = shift.n_training or 0, shift.n_effective or 0.0
        if shift.density_weights:
            few = ""
            if effective < FEW * n:
                few = f": less than {FEW:.0%}, so the model rests on a handful of them"
            yield (
                f"The {n:,} training rows are weighted to look like the target, and count as {effective:,.1f}{few}."
            )
        elif low > description.TOLD_APART:
            yield f"Weighted to look like the target, the {n:,} training rows would tell as much as {effective:,.1f}."
    old = shift.class_prior_training
    if shift.class_prior is not None and old is not None:
        moved = ", ".join(f"{name} {old[name]:.3g} → {new:.3g}" for name, new in shift.class_prior.items())
        yield f"Each class has not the share here that it has in the labels ({shift.class_prior_source}): {moved}."


def shift_words(shift: description.TargetShift) -> Iterator[str]:
    """Yield the sentences on what a training noted as `shift`; none where no target was named and no shares given."""
    yield from likeness_words(shift)
    if shift.log_loss is not None:
        what = "the model as it is"
        if shift.log_loss_uncorrected is not None:
            what = f"class shares corrected ({shift.log_loss_uncorrected:.4f} without)"
        yield (
            f"Held-out log loss with the rows weighted as the target, {what}: {shift.log_loss:.4f} nats an object "
            f"({shift.n_effective_held_out:,.0f} effective rows). All other held-out numbers are of objects as the "
            "labelled ones, with their class shares."
        )
