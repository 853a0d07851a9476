"""The settings of a classification, and the scores of a batch of rows under them: the new columns of a copy."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial, reduce
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from blr.arrays import Array, Floats, Mask
from blr.census.prediction_sets import NO_SET, SetRule, learn_sets, set_bits
from blr.census.shares import class_priors
from blr.classifier import SCORED_AT_ONCE, Classifier
from blr.decisions import FLAG_MEANINGS, Flag, entropy, flag_confidence, most_probable, pairwise_confidence
from blr.missing.patterns import excess
from blr.predictive.mixture import Scores
from blr.threads import default_threads, single_threaded_blas
from catalogs.arrays import batch_values
from catalogs.catalog.catalog import BATCH_ROWS, Catalog, in_order
from catalogs.catalog.new_columns import CREDIBLE, NewColumn, Provenance, standard_columns
from catalogs.errors import CatalogError, DamagedFileError, NameClashError
from catalogs.formats import TableChoice
from catalogs.writing import copied, old_columns
from flows.classification._class_shares import (
    BIASED,
    Selections,
    census_table,
    chosen_rows,
    chosen_shift,
    may_be_biased,
    prior_shares,
    selection_entries,
    selections_of,
    shift_record,
    with_shares,
)
from flows.classification._tally import (
    CensusRows,
    ObjectSurvey,
    census_rows,
    counted_by_input,
    map_input,
    object_columns,
    tally_of,
    total,
)
from flows.errors import ModelError, SpecificationError, UsageError
from flows.features.columns import OurColumns
from flows.features.reader import (
    FeatureBatch,
    FeatureReader,
    check_target_marks,
    converted,
    target_reader,
    target_table,
)
from flows.inputs.opening import find_files, open_source, thinned
from flows.inputs.source import InputCatalogue, LocalSource
from flows.models.description import ESTIMATED
from flows.models.model import Model
from flows.models.row_files import KnownLabels, unseen_rows
from flows.runs.drift import feature_counts
from flows.runs.manifest import MANIFEST, REPORT, SUMMARY, SelectedColumn
from flows.runs.results import ClassSetRule, FeatureCounts, PredictionSets, Tally, summed
from flows.specification.specification import CensusTable, Shift, Specification, specification_hash
from flows.specification.specification import Output as OutputTable
from flows.version import code_version

# The columns that `output.columns = "full"` adds, in their order, and those that a slim copy keeps.


def full_arrays(scores: Scores) -> list[Array]:
    """Return the further columns, (n,) each, of scores with intervals; NaN where a row is unclassifiable."""
    assert scores.low is not None and scores.high is not None  # noqa: PT018, S101  scored with `credible`
    known = ~np.isnan(scores.probability[:, 0])
    uncertainty = np.full(len(known), np.nan)
    uncertainty[known] = entropy(scores.probability[known])
    arrays = [x for ends in zip(scores.plugin.T, scores.low.T, scores.high.T, strict=True) for x in ends]
    arrays.append(uncertainty)
    means, covariance = scores.logit_means, scores.logit_covariance
    if means is not None and covariance is not None:
        pairs = combinations_with_replacement(range(means.shape[1]), 2)
        arrays += [*means.T, *(covariance[:, a, b] for a, b in pairs)]
    return arrays


def _kept(specification: Specification) -> dict[str, str]:
    """Return our names of id and position, each with its key."""
    catalog = specification.catalog
    keyed = {"catalog.id": catalog.id, "catalog.ra": catalog.ra, "catalog.dec": catalog.dec}
    return {name: key for key, name in keyed.items() if name}


# Prediction sets of a classification, learnt from the model's unseen rows, and their description in outputs.

STATED_ZERO = "in every set: the specification states the threshold 0"

Sets = tuple[PredictionSets, SetRule | None]
"""How prediction sets are made, and the rule, which is None where no share can be stated."""


def sets_of(model: Model, specification: Specification) -> Sets | None:
    """Return the prediction sets that a specification asks for; None where it does not.

    UsageError where the model has no rows to learn them from.
    """
    level, thresholds = specification.output.sets, specification.output.set_thresholds
    if level is None:
        return None
    K, F = len(model.classes), len(model.features)
    if thresholds:  # which hold for the probabilities in the copies
        if set(thresholds) != set(model.classes):
            raise UsageError(
                f"output.set_thresholds: got thresholds of {', '.join(thresholds)}, expected one threshold for "
                f"each class of {model.label}: {', '.join(model.classes)}; correct the names"
            )
        least = np.array([thresholds[name] for name in model.classes])
        rule = SetRule(level, least, np.zeros(K, np.intp), np.zeros(K))
        reason = (
            "the specification states the thresholds; the share holds if they come from these objects, this model and "
            "these class shares, for example from an audit"
        )
        return _record(model, rule, "stated", reason), rule
    learnt = _learnt(model.folder, K, F, level)
    if learnt is None:
        raise UsageError(
            f"output.sets: got {level:g} for {model.label}, whose folder has no labelled rows with left-out "
            "probabilities, expected a model in a store, trained by this version; train it again, or remove the key"
        )
    if may_be_biased(model, specification):
        return PredictionSets(level=level, source="cannot be said", reason=BIASED), None
    source = model.metrics.judged_by
    reason = (
        f"learnt class by class from the {source} probabilities of the labelled rows; the share holds where the "
        "objects of a class look like its labelled objects, for any class shares"
    )
    return _record(model, learnt, source, reason), learnt


@lru_cache(maxsize=4)
def _learnt(folder: Path | None, classes: int, features: int, level: float) -> SetRule | None:
    rows = unseen_rows(folder, classes=classes, features=features)
    if rows is None:
        return None
    return learn_sets(rows.probability, rows.y, level=level, weight=rows.weight)


def _record(
    model: Model, rule: SetRule, source: Literal["left-out", "held-out", "stated"], reason: str
) -> PredictionSets:
    stated, needed = source == "stated", math.ceil(rule.level / (1 - rule.level) - 1e-9)
    classes: dict[str, ClassSetRule] = {}
    for k, name in enumerate(model.classes):
        classes[name] = ClassSetRule(
            bit=k,
            rows=int(rule.rows[k]),
            effective=float(rule.effective[k]),
            least=float(rule.least[k]) or None,
            spread=0.0 if stated else float(rule.spread[k]),
        )
        if not rule.least[k] > 0:
            why = f"{rule.effective[k]:.3g} labelled rows, at least {needed} are needed at {rule.level:g}"
            if rule.effective[k] >= needed:
                why = "too many labelled rows of the class have probability zero for it"
            classes[name]["remark"] = STATED_ZERO if stated else f"in every set: {why}"
    return PredictionSets(level=rule.level, source=source, reason=reason, classes=classes)


@lru_cache(maxsize=2)
def _labels(folder: Path | None, classes: int) -> KnownLabels | None:
    """Return the labels of a model, which are read once: a version never changes."""
    return KnownLabels.read(folder, classes=classes)


# The new columns of a batch of a catalogue; only this module applies a model to rows of a catalogue. Several threads
# run it at once.  Counts are kept for each batch and added exactly, so that their order does not matter. Shapes: n
# rows, K classes, F features.

BUDGET_ROWS, MOST_BUDGET_ROWS = 4096, 262_144
"""Rows within a review budget, and all rows, from which its threshold is found where a catalogue has more: the share
that is flagged then has a relative standard error of 1/64."""
MOST_KEPT_ROWS = 131_072
"""Most rows of a catalogue whose scores are kept from that search, and not computed again."""
CONFIDENCE_BINS = 1 << 20
"""Bins of [0.5, 1] for the threshold of a review budget: steps of 5e-7, for catalogues of any size."""


@dataclass(frozen=True)
class Scorer:
    """A model with what it reads from a catalogue, the columns that it adds, and the tallies of the batches so far."""

    model: Model
    specification: Specification
    classifier: Classifier
    reader: FeatureReader
    choice: TableChoice  # of a file that holds several
    columns: tuple[NewColumn, ...]
    sets: Sets | None = None  # where prediction sets are asked for
    selections: Selections = field(default_factory=dict)  # those that are asked for
    by_input: tuple[int, Floats] | None = None  # the feature by which flagged rows are counted, and its bins
    tallies: list[Tally] = field(default_factory=list)
    counts: list[FeatureCounts] = field(default_factory=list)
    survey: ObjectSurvey | None = None  # of the objects' names and places; None where nobody asks
    census_step: int = 0  # every n-th classified row is kept for the census; 0 for none
    census: list[CensusRows] = field(default_factory=list)
    # Labels of the training, by which the census counts rows of the same objects, and the column of identifiers.
    known: tuple[KnownLabels, str] | None = None
    # Scores that the threshold of a review budget was found from, by the digest of the batch's features.
    scored: dict[bytes, Scores] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model, specification: Specification) -> Scorer:
        """Return the scorer of a model for the target catalogue, flags and prefix of a specification."""
        flags, output = specification.flags, specification.output
        classifier = with_shares(model, specification)
        classifier = replace(classifier, low_confidence=flags.low_confidence, close_call=flags.close_call)
        reader, selections = target_reader(specification, model.features), selections_of(model, specification)
        with_sets = output.sets is not None
        selected = [column.class_name for column, _ in selections.values()]
        try:
            columns = standard_columns(
                model.classes, output.prefix, columns=output.columns, sets=with_sets, selected=selected
            )
        except NameClashError as error:
            raise ModelError(f"the model {model.label}: {error}, and train again") from error
        return cls(
            model,
            specification,
            classifier,
            reader,
            target_table(specification, reader),
            columns,
            sets_of(model, specification),
            selections,
            map_input(model),
        )

    def on(self, catalog: Catalog) -> Scorer:
        """Return the scorer for one catalogue, whose columns are those needed, in units that are known."""
        target = self.specification.target
        reader = converted(self.reader, catalog, trained=self.model.columns, stated=target.units)
        check_target_marks(target, catalog)
        return replace(self, reader=reader)

    @property
    def prefix(self) -> str:
        """What the names of the new columns begin with."""
        return self.specification.output.prefix

    @property
    def kept(self) -> tuple[str, ...]:
        """The catalogue's names of id and position, as far as the specification names them: slim copies keep these."""
        return OurColumns(self.specification.target.columns).read(_kept(self.specification))

    @property
    def selected(self) -> dict[str, SelectedColumn]:
        """The columns that select objects, by name."""
        return {name: column for name, (column, _) in self.selections.items()}

    def check_copies(self, catalog: Catalog) -> None:
        """Raise a `CatalogError` where copies cannot have the new columns beside the old ones, or the input's name."""
        output = self.specification.output
        if output.mode != "annotated":
            ours = OurColumns(self.specification.target.columns)
            for name, key in _kept(self.specification).items():
                ours.check(catalog, name, wanted_by=f"{key} of slim copies")
        # Columns of an earlier annotation are replaced.
        old_columns(catalog, self.columns, output.mode, self.kept)
        if own := {MANIFEST, SUMMARY, REPORT}.intersection(copied(catalog, output.form)):
            raise CatalogError(
                f"got an input whose copy would be called {min(own)}, expected another name, since a run writes a file "
                "of its own by that name; rename the input"
            )

    def with_low_confidence(self, threshold: float) -> Scorer:
        """Return a scorer with another threshold."""
        return replace(self, classifier=self.classifier.with_low_confidence(threshold))

    def tally(self) -> Tally:
        """Return the counts so far."""
        K, F = len(self.model.classes), len(self.model.features)
        nothing = tally_of(np.empty((0, K)), np.empty((0, K)), np.empty(0, np.int32), np.empty((0, F), bool))
        return total([*self.tallies, nothing])

    def drift(self) -> FeatureCounts:
        """Return how the features of the rows so far are distributed, for comparison with the training's."""
        F = len(self.model.features)
        return summed([*self.counts, self._counted(np.empty((0, F)), np.empty((0, F), bool))])

    def _counted(self, X: Floats, missing: Mask) -> FeatureCounts:
        return feature_counts(X, missing, self.model.training.distribution, self.model.features)

    def kept_for_census(self, step: int, catalog: Catalog) -> Scorer:
        """Return a scorer that keeps every so many classified rows of a catalogue for the census.

        Rows of objects that the labels in the model's folder name are kept with their class.
        """
        column = object_columns(self.specification).id
        labels = _labels(self.model.folder, len(self.model.classes)) if column in catalog.names else None
        known = None if labels is None or column is None else (labels, column)
        return replace(self, census_step=max(1, step), census=[], known=known)

    @property
    def read(self) -> tuple[str, ...]:
        """The columns of the catalogue that are read."""
        named = () if self.known is None else (self.known[1],)
        surveyed = () if self.survey is None else self.survey.read
        return tuple(dict.fromkeys((*self.reader.read, *surveyed, *named)))

    def census_rows(self) -> CensusRows:
        """Return the rows kept for the census so far, in an order that does not depend on the threads."""
        width = 2 + len(self.model.classes) + len(self.model.features)
        rows = np.concatenate([np.empty((0, width), np.float32), *self.census])
        return rows[np.lexsort(rows.T[::-1])]

    def points(self, batch: pa.RecordBatch) -> Floats:
        """Return the whitened features (n, D) of a batch's rows: points, in which 1 is a typical difference."""
        features = self.reader.evaluate(batch)
        return self.classifier.moments.whitened(features.X, features.missing)

    def _keep_for_census(self, batch: pa.RecordBatch, probability: Floats, X: Floats, inside: Mask) -> None:
        """Keep some of the rows inside, with probabilities (n, K) at the class shares of the training."""
        known = None
        if self.known is not None:
            labels, column = self.known
            place = np.flatnonzero(inside)
            known = labels.classes(X, lambda rows: batch_values(batch, (column,))[column][place[rows]])
        shift = self.classifier.log_prior_shift
        if shift is not None:
            moved = probability * np.exp(-shift)
            probability = moved / moved.sum(axis=1, keepdims=True)
        self.census.append(census_rows(probability, X, self.census_step, known))

    def score(self, batch: pa.RecordBatch, *, credible: float | None = None) -> tuple[Scores, FeatureBatch]:
        """Return the scores of the rows inside `where`, and the features of all."""
        features = self.reader.evaluate(batch)
        kept = self.scored.pop(_digest(features), None) if self.scored and credible is None else None
        if kept is None:
            return self._scores(self.classifier, features, credible=credible), features
        low = flag_confidence(kept.probability, low_confidence=self.classifier.low_confidence)
        bit = np.int32(Flag.LOW_CONFIDENCE)
        return replace(kept, flags=(kept.flags & ~bit) | (low & bit)), features

    def _scores(
        self, classifier: Classifier, features: FeatureBatch, *, credible: float | None = None
    ) -> Scores:
        inside = features.inside
        noise = self.model.training.noise
        errors = (
            None if features.errors is None else excess(features.errors[inside], noise, self.model.features)
        )
        unseen = None if features.not_detected is None else features.not_detected[inside]
        return classifier.score(*features.within, errors, not_detected=unseen, credible=credible)

    def _at_training_shares(self, scores: Scores, features: FeatureBatch) -> Floats:
        """Return the probabilities (n, K) that learnt sets and selections are of; they are known without a shift."""
        learnt = self.sets is not None and self.sets[1] is not None and self.sets[0].source != "stated"
        if self.classifier.log_prior_shift is None or not (learnt or self.selections):
            return scores.probability
        return self._scores(replace(self.classifier, log_prior_shift=None), features).probability

    def _sets(self, p: Floats, unmoved: Floats, inside: Mask) -> Mask | None:
        """Return which classes are in the prediction sets, (n, K) of all rows; None where there are no sets."""
        record, rule = self.sets or (None, None)
        if record is None or rule is None:
            return None
        return _spread(rule.contains(p if record.source == "stated" else unmoved), inside, fill=True)

    def __call__(self, batch: pa.RecordBatch) -> Mapping[str, Array]:
        """Return the new columns of a batch, and count it."""
        full = self.specification.output.columns == "full"
        scores, features = self.score(batch, credible=CREDIBLE if full else None)
        inside, (X, missing) = features.inside, features.within
        unmoved = self._at_training_shares(scores, features)
        sets = self._sets(scores.probability, unmoved, inside)
        self.counts.append(self._counted(X, missing))
        flags = _spread(scores.flags, inside, int(Flag.UNCLASSIFIABLE))
        p = _spread(scores.probability, inside, np.nan)
        unlike = np.flatnonzero((flags & int(Flag.OUT_OF_DOMAIN | Flag.BEYOND_LABELS)) != 0)
        marks = self.reader.marks(batch.take(unlike)) if len(unlike) else {}
        tally = tally_of(p, scores.count_draws, flags, missing, sets, marks)
        if self.by_input is not None:
            j, edges = self.by_input
            tally = counted_by_input(tally, X[:, j], missing[:, j], scores.flags, edges)
        self.tallies.append(tally)
        if self.survey is not None:
            information = _spread(scores.mutual_information, inside, np.nan)
            self.survey.add(batch, p, information, flags, features)
        X = np.where(missing, np.nan, X) if missing.any() else X
        if self.census_step:
            self._keep_for_census(batch, scores.probability, X, inside)
        arrays = [
            np.array(["", *self.model.classes])[np.where(np.isnan(p[:, 0]), 0, most_probable(p) + 1)],
            *p.T,
            reduce(np.maximum, p.T),  # a tenth of the time of a maximum along rows
            *(
                _spread(values, inside, np.nan)
                for values in (scores.logit_mean, scores.logit_std, scores.mutual_information)
                if values is not None
            ),
            flags,
            np.full(len(p), self.model.id),
            *(_spread(x, inside, np.nan) for x in (full_arrays(scores) if full else [])),
            *([] if self.sets is None else [np.full(len(p), NO_SET) if sets is None else set_bits(sets, p)]),
            *(
                _spread(chosen_rows(column, unmoved[:, k], X, self.model.features), inside, fill=False)
                for column, _ in self.selections.values()
                for k in [self.model.classes.index(column.class_name)]
            ),
        ]
        return {
            column.name: array if array.dtype.kind == "U" else array.astype(column.datatype.to_pandas_dtype())
            for column, array in zip(self.columns, arrays, strict=True)
        }


def scorer_for(
    model: Model, specification: Specification, catalog: Catalog, *, threads: int | None = None
) -> Scorer:
    """Return the scorer of a catalogue; a review budget needs a pass over its rows first, by so many threads."""
    scorer = Scorer.of(model, specification).on(catalog)
    if specification.flags.budget is None:
        return scorer
    with single_threaded_blas():
        lowest = budget_threshold(scorer, catalog, specification.flags.budget, threads or default_threads())
    return scorer.with_low_confidence(lowest)


def _digest(features: FeatureBatch) -> bytes:
    """Return what is equal for equal features of equally many rows."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (features.X, features.missing, features.errors, features.inside, features.not_detected):
        digest.update(b"none" if part is None else np.ascontiguousarray(part).data)
    return digest.digest()


def _spread(values: Array, inside: Mask, fill: float) -> Array:
    """Return values of the rows inside as values of all rows, `fill` elsewhere."""
    if inside.all():
        return values
    whole = np.full((len(inside), *values.shape[1:]), fill, dtype=values.dtype)
    whole[inside] = values
    return whole


def rows_at_once(catalog: Catalog) -> int:
    """Return rows a batch: about an eighth of a small catalogue, so that threads share it."""
    return min(BATCH_ROWS, SCORED_AT_ONCE * max(1, math.ceil(catalog.n_rows / (8 * SCORED_AT_ONCE))))


def budget_threshold(scorer: Scorer, catalog: Catalog, budget: float, threads: int) -> float:
    """Return the `low_confidence` that flags the least certain `budget` of a catalogue's classified rows, or less.

    Of many rows evenly spaced ones are scored, for a budget of 10 % 41,000: it then flags 10.0 ± 0.15 %.
    """
    edges = np.linspace(0.5, 1.0, CONFIDENCE_BINS + 1)
    counts = np.zeros(CONFIDENCE_BINS, dtype=np.int64)
    enough = min(MOST_BUDGET_ROWS, math.ceil(BUDGET_ROWS / budget))
    step = 1 if catalog.n_rows <= MOST_KEPT_ROWS else -(-catalog.n_rows // enough)
    batches = thinned(catalog.batches(scorer.reader.read, rows_at_once(catalog)), step)
    scored = {}
    with closing(in_order(batches, scorer.score, threads)) as found:
        for scores, features in found:
            if step == 1:
                scored[_digest(features)] = scores
            p = scores.probability
            counts += np.histogram(pairwise_confidence(p[~np.isnan(p[:, 0])]), edges)[0]
    scorer.scored.update(scored)
    allowed = int(budget * counts.sum())
    return float(edges[np.searchsorted(np.cumsum(counts), allowed, side="right")])


def flag_names() -> dict[int, tuple[str, str]]:
    """Return each flag's bit, name and meaning."""
    return {
        int(flag.value).bit_length() - 1: (str(flag.name), meaning) for flag, meaning in FLAG_MEANINGS.items()
    }


def provenance(scorer: Scorer, input_sha256: str) -> Provenance:
    """Return the entries on the model for a file's metadata, which are the same in two equal runs."""
    model, shift = scorer.model, shift_record(scorer.model, scorer.specification)
    entries = {
        "model": model.label,
        "model_id": str(model.id),
        "specification_hash": specification_hash(scorer.specification),
        "version": code_version(),
        "input_sha256": input_sha256,
    }
    for key in ("class_priors", "class_priors_training"):
        if shares := getattr(shift, key):
            entries[key] = ", ".join(f"{name} {share:.6g}" for name, share in shares.items())
    for key in ("class_priors_source", "training_weights"):
        if (text := getattr(shift, key)) is not None:
            entries[key] = text
    if scorer.sets is not None:
        record = scorer.sets[0]
        entries |= {
            "set_level": f"{record.level:g}",
            "set_source": record.source,
            "set_reason": record.reason,
        }
        if always := [name for name, rule in record.classes.items() if rule["least"] is None]:
            entries["set_always"] = ", ".join(always)
        entries |= {f"set_bit_{k}": name for k, name in enumerate(model.classes)}
    entries |= selection_entries(scorer.selections)
    return Provenance(entries | {"columns_read": ", ".join(scorer.reader.read)}, flag_names())


# The settings of a classification, which copies depend on: the class shares may be estimated from the catalogues.

EM_ROWS = 100_000
"""Rows that shares are estimated from, at equal distances over all files."""
DIGITS = 8
"""Decimals of an estimated share: it is rounded, so that later runs find the same settings."""


def settled(
    model: Model,
    wanted: Specification,
    class_prior: str | Mapping[str, float] | None = None,
    *,
    sources: Callable[[], Sequence[LocalSource]] | None = None,
) -> Specification:
    """Return the settings of a classification, with class shares.

    `sources` gives what the shares can be estimated from, where "em" asks for this.  Where the labels are said to be
    biased and a column rests on labels that are not, the settings say so.
    """
    settings = annotation_settings(model, wanted)
    estimate = None if sources is None else partial(estimated_shares, model, settings, sources)
    shift = chosen_shift(model, wanted.shift, asked=class_prior, estimate=estimate)
    stated = wanted.shift.assumes or model.specification.shift.assumes
    if stated == "features" and (settings.output.sets is not None or settings.output.selected):
        shift = shift.model_copy(update={"assumes": "features"})
    return settings.model_copy(update={"shift": shift})


def annotation_settings(model: Model, wanted: Specification) -> Specification:
    """Return the model's specification, with what another one says of target, checksums, flags, output and bins.

    `SpecificationError` where that target is of columns that the model does not know, or contradicts its marks.
    Class shares are still the model's (`chosen_shift`).  A file's annotation does not depend on the places of inputs
    and outputs, nor on questions to the census that no column answers, so these are left out.
    """
    checksums, selected = {"checksums": wanted.catalog.checksums}, wanted.output.selected
    unasked = wanted.flags.model_copy(update={"purity": {}, "completeness": {}})
    update = {
        "catalog": model.specification.catalog.model_copy(update=checksums),
        "target": wanted.target.model_copy(update={"paths": None}),
        "flags": wanted.flags if selected else unasked,
        "census": census_table(model, wanted) if selected == "bins" else CensusTable(),
        "shift": model.specification.shift.model_copy(update={"assumes": None}),
        "output": wanted.output.model_copy(update={"folder": OutputTable().folder}),
    }
    settings = model.specification.model_copy(update=update)
    try:
        settings.check_target()
        settings.check_sets(len(model.classes))
    except ValueError as error:
        raise SpecificationError(f"with the model {model.label}, {error}") from error
    return settings


def estimated_shares(
    model: Model, settings: Specification, sources: Callable[[], Sequence[LocalSource]]
) -> Shift:
    """Return the shares of the classes in catalogues, by EM over the model's probabilities at the training's shares."""
    unmoved = replace(model, classifier=replace(model.classifier, log_prior_shift=None))
    scorer, places = Scorer.of(unmoved, settings.model_copy(update={"shift": Shift()})), sources()
    tolerated = (DamagedFileError, OSError)  # such files are quarantined later
    catalogues = [InputCatalogue.of(source, scorer.choice) for source in places]
    files, failed = find_files(catalogues, scorer.reader.of, tolerated=tolerated)
    if failed and not files:
        raise next(iter(failed.values()))
    step = max(1, math.ceil(sum(partition.n_rows for *_, partition, _ in files) / EM_ROWS))
    parts = [np.empty((0, len(model.classes)))]
    with single_threaded_blas():
        for catalogue, _, partition, _ in files:
            here = scorer.on(open_source(catalogue))
            batches = thinned(partition.batches(here.reader.read), step)
            parts.extend(here.score(batch)[0].probability for batch in batches)
    p = np.concatenate(parts)
    try:
        shares = class_priors(p, prior_shares(model))
    except ValueError as error:
        raise UsageError(
            f'class_prior: got "em", but the shares cannot be estimated from these rows: {error}'
        ) from error
    rounded = np.round(shares, DIGITS)
    first = files[0][0].source.path.name
    name = first if len(places) == 1 else f"{first} and {len(places) - 1} more"
    return Shift(
        class_prior=dict(zip(model.classes, rounded.tolist(), strict=True)),
        class_prior_source=f"{ESTIMATED}{name}"[:200],
    )
