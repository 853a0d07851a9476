"""The end of a training: the classifier is evaluated and stored, with what its report shows.

Fits to the training rows are judged.  The model that is kept may be a fit of the same kind to all rows.
Shapes: N rows that judge, K classes, T thresholds, B bins.  Rows without probabilities (NaN) get the shares of the
classes, and are counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Vector
from blr.calibration import ReliabilityCurve, calibration_error, log_loss, log_losses, reliability_curve
from blr.candidates.training import TrainedClassifier, Training
from blr.classifier import Classifier
from blr.decisions import errors_caught
from blr.selection.grouping import group_classes
from blr.selection.skill import paired_gain, skill
from catalogs.sky.positions import galactic_latitude
from flows.models.description import Metrics, ReliabilityBin, Review, RiskCurve, TrustSummary
from flows.models.model import Model, write_tree
from flows.models.row_files import row_keys, write_rows
from flows.models.store import REPORT_FILE, SkillSummary, Store, StoredModel
from flows.reports.data import Made, NotableObject, ReportNotes, StoredPictures, TrainReport, boundary_picture
from flows.reports.html import write_report
from flows.reports.report_table import class_words
from flows.reports.tables import model_card
from flows.runs.progress import tell
from flows.training._rows import TrainingRows, rows_at, rows_of
from flows.training._staging import StagedDescription, with_recorded_losses
from flows.training._target import corrected, judged_as_target
from flows.version import code_version

JUDGED_FILE = "judged.asdf"
"""File of the judged classifier, to which the numbers belong, if the model that is kept was fitted to more rows."""


def save_model(
    store: Store,
    described: StagedDescription,
    training: Training,
    trained: TrainedClassifier,
    ratio: Floats | None,
) -> tuple[Model, StoredModel]:
    """Write the report, the card and, last, the model file; return the model, and where it is stored.

    The rows that judge stand for the labelled catalogue; where there is a target, they are also weighted as it is.
    `ratio` (N,) are the density ratios of the labelled rows, None without a comparison.
    """
    seen, specification, rows = trained.seen, described.specification, rows_of(training.judged)
    classifier, share, noted = trained.classifier, trained.class_share, described.training
    judged = classifier if trained.judged is None else trained.judged
    shift = corrected(noted.shift, specification, classifier, trained.class_share_kept)
    shift = judged_as_target(shift, judged, rows, _places(training, judged), share, ratio)
    model = Model(
        name=specification.name,
        version=described.version,
        classes=described.classes,
        features=classifier.features,
        specification=specification,
        classifier=classifier,
        candidates=trained.candidates,
        selected=trained.selected,
        trust=TrustSummary(
            verdict=trained.trust.verdict,
            reasons=tuple(trained.trust.reasons),
            numbers={n: float(x) if np.isfinite(x) else None for n, x in trained.trust.numbers.items()},
            answers=trained.trust.answers,
        ),
        metrics=evaluate(
            trained.probability,
            trained.plugin,
            rows.target[seen],
            class_shares=share,
            classes=described.classes,
            votes=None if rows.votes is None else rows.votes[seen],
            group=trained.group,
            judged_by="held-out" if rows.held_out.any() else "left-out",
            log_loss_logistic=trained.log_loss_logistic,
        ),
        training=replace(
            noted,
            class_share=tuple(trained.class_share_kept.tolist()),
            shift=shift,
            label_noise=with_recorded_losses(noted.label_noise, rows, seen, trained.probability, share),
            refitted=None if trained.judged is None else training.judged.n_rows,
            mean_power=None if classifier.temperature is None else classifier.temperature.mean_power,
        ),
        columns=described.columns,
        code_version=code_version(),
    )
    return model, _written(store, model, training, trained)


def _written(store: Store, model: Model, training: Training, trained: TrainedClassifier) -> StoredModel:
    rows, kept, seen = rows_of(training.judged), rows_of(training.kept), trained.seen
    used = _places(training, model.classifier)
    fitted = kept.training
    tell().start("drawing the report", 2, "parts")
    picture = boundary_picture(
        model.classifier,
        kept.X[fitted][:, used],
        kept.missing[fitted][:, used],
        kept.target[fitted],
        names=model.features,
    )
    tell().advance(1)
    # A row without probabilities gets the shares of the classes.
    p = np.where(np.isfinite(trained.probability[:, :1]), trained.probability, trained.class_share)
    losses, objects = log_losses(p, trained.outcome)[0], rows_at(rows, seen)
    report = TrainReport.of(
        store.described(model, "trained"),
        boundary=picture,
        pictures=judged_pictures(p, objects),
        notes=ReportNotes(made=Made.now(), objects=notable_objects(p, objects, model.classes)),
    )
    folder = store.make_folder(model.name, model.version)
    report.write_parts(folder)
    write_report(report, folder / REPORT_FILE)
    if trained.judged is not None:
        write_tree(trained.judged.to_dict(), folder / JUDGED_FILE)
    write_rows(_stored_rows(model, training, trained, p, losses), folder)
    tell().advance(1)
    return store.save(model, card=model_card(model, report), interval=_interval(losses, trained.group))


def _places(training: Training, classifier: Classifier) -> list[int]:
    """Return the positions of a classifier's features among those of the rows."""
    return [training.judged.features.index(name) for name in classifier.features]


def _interval(losses: Vector, group: NDArray[np.uint64] | None) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of losses (n,), from 0 on; None where it cannot be computed."""
    mean = paired_gain(np.zeros(len(losses)), losses, group=group)
    # Student's interval of few rows may reach below 0, where no log loss is: cut there, it holds the same.
    return (max(0.0, mean.low), mean.high) if np.isfinite(mean.low) else None


def _stored_rows(
    model: Model, training: Training, trained: TrainedClassifier, p: Floats, losses: Floats
) -> dict[str, Any]:
    """Return the columns of the labelled rows beside a model; those of rows that judge are empty elsewhere.

    `p` (n, K) and `losses` (n,) are the probabilities and log losses of the rows that judge.
    """
    rows, kept, seen = rows_of(training.judged), rows_of(training.kept), trained.seen
    used, label, N = _places(training, model.classifier), model.specification.label, len(rows.target)

    def of_all(values: Any, empty: float) -> Any:
        whole = np.full((N, *values.shape[1:]), empty, values.dtype)
        whole[seen] = values
        return whole

    columns: dict[str, Any] = {
        "identifier": np.zeros(N, dtype="S1") if rows.identifier is None else rows.identifier,
        "position": np.full((N, 2), np.nan) if rows.position is None else rows.position,
        "target": rows.target,
        "X": np.where(kept.missing[:, used], np.nan, kept.X[:, used]),
        "fitted": kept.training,
        "judged": seen,
    }
    if rows.name is not None and rows.group is not None:
        assigned = of_all(p.argmax(axis=1).astype(np.int16), -1)
        columns |= {"name": rows.name, "group": rows.group, "log_loss": of_all(losses, np.nan)}
        columns["assigned"] = assigned
    if label.votes is None:
        columns["probability"] = of_all(trained.probability, np.nan)
        columns["weight"] = np.ones(N) if rows.weight is None else rows.weight
    # Labels of objects with names, held-out ones too, where labels are the classes.
    if rows.identifier is not None and label.votes is None and label.noise is None:
        names = [name.decode(errors="replace") for name in rows.identifier.tolist()]
        columns["key"], columns["features"] = row_keys(np.array(names, dtype=object), columns["X"])
    return columns


REVIEWED: Final = (0.05, 0.1, 0.2)
"""Shares of the least certain objects whose review is reported."""
BINS: Final = 12
"""Bins of the reliability curve."""
CURVE: Final = np.linspace(0, 1, 201)
"""Shares of reviewed objects at which the curve of the errors found is computed."""

Floats = NDArray[np.float64]


def evaluate(
    probability: Floats,
    plugin: Floats,
    truth: NDArray[np.intp],
    *,
    class_shares: Floats,
    classes: tuple[str, ...],
    votes: Floats | None = None,
    group: NDArray[np.uint64] | None = None,
    judged_by: Literal["held-out", "left-out"] = "held-out",
    log_loss_logistic: float | None = None,
) -> Metrics:
    """Return the performance on rows that no fit saw.

    `probability` and `plugin` (N, K) are the moderated and the plug-in probabilities, `truth` (N,) class indices.
    `class_shares` (K,) are those of the training rows, which a baseline predicts for every object.  Where the targets
    are `votes` (N, K), losses and reliability compare with each object's shares of the votes, and any class but the one
    with most votes is wrong.  Rows of equal `group` (N,) count as one in the interval of the skill.
    """
    outcome = truth if votes is None else votes / votes.sum(axis=1, keepdims=True)
    known = np.isfinite(probability[:, 0])
    # An object without any measured feature gets the shares of the classes, so that every model is judged on all rows.
    p, q = (np.where(known[:, None], x, class_shares) for x in (probability, plugin))
    wrong = p.argmax(axis=1) != truth
    said, happened, what = _statement(p, outcome, wrong, classes)
    curve = reliability_curve(said, happened, bins=BINS)
    return Metrics(
        n=len(truth),
        n_unclassified=int(np.sum(~known)),
        log_loss=log_loss(p, outcome),
        log_loss_plugin=log_loss(q, outcome),
        log_loss_baseline=log_loss(np.broadcast_to(class_shares, p.shape), outcome),
        accuracy=float(np.mean(~wrong)),
        calibration_error=calibration_error(p, outcome),
        reliability=_bins(curve),
        reliability_of=what,
        reviews=_reviews(p, q, wrong),
        risk=RiskCurve(
            reviewed=tuple(CURVE.tolist()),
            moderated=tuple(errors_caught(p.max(axis=1), wrong, CURVE).tolist()),
            plugin=tuple(errors_caught(q.max(axis=1), wrong, CURVE).tolist()),
        ),
        judged_by=judged_by,
        log_loss_logistic=log_loss_logistic,
        skill=SkillSummary.of(skill(p, outcome, class_shares=class_shares, group=group)),
        confusion=_confusion(truth, p.argmax(axis=1), len(classes)),
        grouping=group_classes(p, truth) if len(classes) > 2 and votes is None else None,
    )


def _confusion(
    truth: NDArray[np.intp], assigned: NDArray[np.intp], n_classes: int
) -> tuple[tuple[int, ...], ...]:
    """Return the confusion matrix (K, K): numbers of rows by true class and by assigned class."""
    pairs = np.bincount(truth * n_classes + assigned, minlength=n_classes**2)
    return tuple(map(tuple, pairs.reshape(n_classes, n_classes).tolist()))


def _statement(
    p: Floats, outcome: NDArray[np.intp] | Floats, wrong: NDArray[np.bool_], classes: tuple[str, ...]
) -> tuple[Floats, Floats, str]:
    """Return the probability whose reliability is drawn (N,), whether its class is the true one (N,), and its name."""
    if len(classes) == 2:
        happened = outcome[:, 1] if outcome.ndim == 2 else (outcome == 1)
        return p[:, 1], happened.astype(float), f"probability of {classes[1]}"
    return p.max(axis=1), (~wrong).astype(float), "probability of the most probable class"


def _bins(curve: ReliabilityCurve) -> tuple[ReliabilityBin, ...]:
    columns = (curve.predicted, curve.observed, curve.low, curve.high, curve.count)
    return tuple(
        ReliabilityBin(predicted=said, observed=seen, low=low, high=high, n=n)
        for said, seen, low, high, n in zip(*(c.tolist() for c in columns), strict=True)
    )


def _reviews(p: Floats, q: Floats, wrong: NDArray[np.bool_]) -> tuple[Review, ...]:
    """Return the share of all wrong classes that reviews of the least certain objects find, for both probabilities."""
    moderated = errors_caught(p.max(axis=1), wrong, REVIEWED)
    plugin = errors_caught(q.max(axis=1), wrong, REVIEWED)
    return tuple(
        Review(share=share, moderated=float(m), plugin=float(r), random=share)
        for share, m, r in zip(REVIEWED, moderated, plugin, strict=True)
    )


Indices = NDArray[np.intp]

THRESHOLDS: Final = np.linspace(0.0, 1.0, 101)
OBJECT_BINS: Final = 8
"""Bins of magnitude or latitude, with about as many objects in each."""
FEWEST: Final = 100
"""Fewest objects with a magnitude, or with a position, that are binned."""
FEWEST_TAKEN: Final = 10
"""Fewest objects above a threshold whose purity is shown: that of fewer would be mostly noise."""
MOST_OBJECTS: Final = 20
"""Most notable objects that the report lists."""


def judged_pictures(probability: Floats, objects: TrainingRows) -> StoredPictures:
    """Return the arrays of the pictures, from the probabilities (N, K) of the rows that judge."""
    truth = objects.target
    completeness, purity = threshold_curves(probability, truth)
    assigned, K = probability.argmax(axis=1), probability.shape[1]
    latitude = None if objects.position is None else np.abs(galactic_latitude(*objects.position.T))
    magnitude_centres, magnitude_counts = _binned(objects.magnitude, truth, assigned, K)
    latitude_centres, latitude_counts = _binned(latitude, truth, assigned, K)
    return StoredPictures(
        threshold=THRESHOLDS,
        completeness=completeness,
        purity=purity,
        magnitude_name="" if objects.magnitude_name is None else str(objects.magnitude_name),
        magnitude_centres=magnitude_centres,
        magnitude_counts=magnitude_counts,
        latitude_centres=latitude_centres,
        latitude_counts=latitude_counts,
    )


def threshold_curves(probability: Floats, truth: Indices) -> tuple[Floats, Floats]:
    """Return completeness and purity (K, T) of the objects whose probability of a class reaches a threshold."""
    K = probability.shape[1]
    completeness, purity = np.full((2, K, len(THRESHOLDS)), np.nan)
    for k in range(K):
        own = truth == k
        below = np.searchsorted(np.sort(probability[:, k]), THRESHOLDS, side="left")
        own_below = np.searchsorted(np.sort(probability[own, k]), THRESHOLDS, side="left")
        taken, found = len(truth) - below, own.sum() - own_below
        np.divide(found, own.sum(), out=completeness[k], where=own.sum() > 0)
        np.divide(found, taken, out=purity[k], where=taken >= FEWEST_TAKEN)
    return completeness, purity


def _binned(
    x: Floats | None, truth: Indices, assigned: Indices, n_classes: int
) -> tuple[Floats, NDArray[np.int64]] | tuple[None, None]:
    """Return the means (B,) of bins of about equal counts, and counts (3, B, K); None for few known values.

    The counts are of objects by true class, by assigned class, and by both where they agree.
    """
    known = None if x is None else np.isfinite(x)
    if x is None or known is None or known.sum() < FEWEST:
        return None, None
    edges = np.unique(np.quantile(x[known], np.linspace(0, 1, OBJECT_BINS + 1)))
    if len(edges) < 3:
        return None, None
    place = np.clip(np.searchsorted(edges, x[known], side="right") - 1, 0, len(edges) - 2)
    t, a = truth[known], assigned[known]
    shape = (len(edges) - 1, n_classes)

    def counts(rows: Any, classes: Indices) -> NDArray[np.int64]:
        cells = np.bincount(place[rows] * n_classes + classes[rows], minlength=shape[0] * n_classes)
        return cells.reshape(shape)

    every = np.ones(len(t), dtype=bool)
    means = np.bincount(place, weights=x[known]) / np.maximum(np.bincount(place), 1)
    return means, np.stack([counts(every, t), counts(every, a), counts(t == a, t)])


def notable_objects(
    probability: Floats, objects: TrainingRows, classes: tuple[str, ...]
) -> tuple[NotableObject, ...]:
    """Return the objects to whose label the model gives least: the label may be wrong, or the features not enough."""
    names, truth = objects.identifier, objects.target
    if names is None or not (names != b"").any():
        return ()
    place = np.full((len(truth), 2), np.nan) if objects.position is None else objects.position
    rows = np.arange(len(truth))
    own = np.where(np.isfinite(probability[rows, truth]), probability[rows, truth], np.inf)
    assigned = np.nan_to_num(probability, nan=-1.0).argmax(axis=1)
    wrong = np.flatnonzero(assigned != truth)
    order = wrong[np.argsort(own[wrong], kind="stable")]
    chosen: dict[str, NotableObject] = {}
    for i in order:
        if len(chosen) == MOST_OBJECTS:
            break
        name = names[i].decode(errors="replace")
        label, given = (class_words(classes[at[i]]) for at in (truth, assigned))
        why = (
            f"labelled {label}, to which the model gives {_percent(probability[i, truth[i]])}; "
            f"it gives {given} {_percent(probability[i, assigned[i]])}"
        )
        ra, dec = (float(x) if np.isfinite(x) else None for x in place[i])
        chosen.setdefault(name, NotableObject(name=name, ra=ra, dec=dec, why=why))
    return tuple(chosen.values())


def _percent(share: float) -> str:
    """Return a probability as a percentage; a small one is never shown as zero."""
    return "less than 0.1%" if share < 0.001 else f"{share:.1%}"
