"""Published rows scored again, rows that must not get a confident class, and objects whose class is known.

A row that another model made, or that was changed afterwards, has other probabilities than the model gives it.
Shapes: n rows, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import catalogs
from blr.arrays import Array
from blr.calibration import share_interval
from blr.decisions import Flag
from blr.threads import single_threaded_blas
from catalogs.arrays import column_values, floats, hashed_identifiers, is_text, plain
from catalogs.catalog.catalog import USER_BITS, levels
from catalogs.formats import open_annotated
from flows.classification.scoring import Scorer, settled
from flows.errors import ModelError, UsageError
from flows.models.model import Model, read_model
from flows.models.store import Store
from flows.release._contract import Findings
from flows.release._differences import ROW, class_numbers, matched
from flows.request import ReplayRequest
from flows.runs.results import ReplayResult
from flows.specification.specification import Specification, specification_hash
from flows.specification.toml_file import read_specification

AT_ONCE = 4_096  # rows that are scored at the same time, at least
ROUNDING = 2e-6  # difference of two probabilities in single precision that counts as rounding
RELATIVE = 1e-5
UNSEEN_CONFIDENT = 0.05
"""Share of rows far outside the training range that may get a confident class without a flag."""
SURE = 0.7  # probability from which a class is confident
MARKS = (-999.0, -99.0, 99.0, -9999.0)  # numbers that catalogues write for a missing value


def settings_of(
    model: Model, stated: Specification | None, given: Mapping[str, float], wanted: str
) -> Specification | None:
    """Return the settings whose hash is the `wanted` one, with the class shares that were given or without; or None."""
    for class_prior in (None, given or None):
        with suppress(UsageError):
            settings = settled(model, stated or model.specification, class_prior, sources=tuple)
            if specification_hash(settings) == wanted:
                return settings
    return None


def mismatches(
    published: pa.RecordBatch,
    computed: Mapping[str, Array],
    columns: Sequence[str],
    scorer: Scorer,
    *,
    known: bool = True,
) -> dict[str, tuple[Array, float]]:
    """Return, for each new column that differs, the rows (n,) that do, and the largest difference.

    `known` is False where the limits of the flags may be other ones than the scorer's.
    """
    found: dict[str, tuple[Array, float]] = {}
    prefix, limits = scorer.prefix, scorer.classifier
    p_names = [name for name in columns if name.startswith(f"{prefix}p_") and name != f"{prefix}p_max"]
    p = np.sort(np.stack([np.asarray(computed[name], float) for name in p_names], axis=1), axis=1)
    best, margin = p[:, -1], p[:, -1] - p[:, -2]
    tied = margin < 10 * ROUNDING
    unsure = limits.low_confidence * (2 * best - margin) - best
    edge = tied | (np.minimum(np.abs(unsure), np.abs(margin - limits.close_call)) < 10 * ROUNDING)
    for name in [name for name in columns if name in published.schema.names]:
        want, raw = np.asarray(computed[name]), published.column(name)
        size = 0.0  # of numbers that are exact or not, how many differ
        if is_text(raw.type):
            wrong = (plain(raw).to_numpy(zero_copy_only=False) != want) & ~tied
        elif name == f"{prefix}flags":
            # On the edge, rounding decides these flags, and which of two equal classes is first.
            loose = int(Flag.LOW_CONFIDENCE | Flag.CLOSE_CALL | Flag.FLIPPED) | USER_BITS
            got = np.asarray(column_values(raw), np.int64)
            wrong = ((got ^ want.astype(np.int64)) & ~np.where(edge | (not known), loose, USER_BITS)) != 0
        elif want.dtype.kind in "iub":
            wrong = np.asarray(raw.is_null()) | (np.ma.filled(column_values(raw), 0) != want)
        else:
            numbers, want = floats(raw), want.astype(np.float64)
            away = np.abs(numbers - want)
            wrong = (away > ROUNDING + RELATIVE * np.abs(want)) | (np.isnan(numbers) != np.isnan(want))
            size = float(np.nan_to_num(away[wrong], nan=1.0).max(initial=0.0))
        if wrong.any():
            found[name] = np.flatnonzero(wrong), size or float(wrong.sum())
    return found


class Replayed:
    """The rows of one file that were scored again, and those that differ by column.

    `quota` rows are drawn, or all of them.  `known` is False where the limits of the flags are not.
    """

    def __init__(
        self, scorer: Scorer, seed: tuple[int, int], quota: int | None, *, known: bool = True
    ) -> None:
        self.scorer, self.seed, self.quota, self.known = scorer, seed, quota, known
        self.rng, self.n, self.n_drawn = np.random.default_rng(seed), 0, 0
        self.wrong: dict[str, tuple[list[int], float]] = {}
        self.drawn: list[tuple[pa.RecordBatch, pa.RecordBatch, Array]] = []

    def add(
        self, batch: pa.RecordBatch, read: pa.RecordBatch, strata: Array, start: int, share: float
    ) -> None:
        """Draw rows of each stratum; `strata` (n,) numbers them, `share` is the batch's part of the file."""
        rows = self._drawn(strata, share)
        made = [c.name for c in self.scorer.columns if c.name in batch.schema.names]
        index = pa.array(rows)
        self.drawn.append((batch.select(made).take(index), read.take(index), start + rows))
        self.n_drawn += len(rows)
        if self.n_drawn >= AT_ONCE:
            self.score()

    def score(self) -> None:
        """Score again the rows that were drawn."""
        if not self.n_drawn:
            return
        published, read, rows = zip(*self.drawn, strict=True)
        chosen, inputs = pa.concat_batches(published), pa.concat_batches(read)
        numbers = np.concatenate(rows)
        self.drawn, self.n_drawn = [], 0
        names = tuple(c.name for c in self.scorer.columns)
        with single_threaded_blas():
            computed = self.scorer(inputs)
        self.scorer.tallies.clear()
        self.scorer.counts.clear()
        self.n += len(numbers)
        found = mismatches(chosen, computed, names, self.scorer, known=self.known)
        for name, (where, size) in found.items():
            kept, largest = self.wrong.get(name, ([], 0.0))
            self.wrong[name] = [*kept, *numbers[where].tolist()], max(largest, size)

    def _drawn(self, strata: Array, share: float) -> Array:
        if self.quota is None:
            return np.arange(len(strata))
        lowest = strata.min(initial=0)
        kinds = np.flatnonzero(np.bincount(strata - lowest)) + lowest
        each = max(1, round(self.quota * share / len(kinds)))
        parts = (np.flatnonzero(strata == kind) for kind in kinds)
        drawn = [x if len(x) <= each else self.rng.choice(x, each, replace=False) for x in parts]
        return np.sort(np.concatenate(drawn))

    def report(self, file: str, findings: Findings) -> None:
        """Report what differs."""
        self.score()
        maker = self.scorer.model.label
        source = f"{maker}, seed {self.seed[0]}"
        for name, (rows, size) in self.wrong.items():
            said = f"{maker} gives other values of '{name}' in {len(rows):,} of {self.n:,} rows"
            findings.stop("replay", said, file, name, size, ROUNDING, source, rows=sorted(rows))


def negative_controls(scorer: Scorer, sample: pa.RecordBatch, findings: Findings) -> dict[str, float]:
    """Score rows that no object has; return the share of each kind that got a confident class without a flag.

    The rows are those of a sample whose numbers are missing, marked, shuffled, or far outside the training range.
    """
    name, source, n = "negative controls", "made rows", sample.num_rows
    if n < 5:
        findings.look(name, f"only {n} rows to make controls of")
        return {}
    nothing, prefix = [pa.nulls(n, kind) for kind in sample.schema.types], scorer.prefix
    marks = {f"{mark:g}": _filled(sample, lambda x, m=mark: np.full(len(x), m)) for mark in MARKS}
    rates: dict[str, float] = {}
    with single_threaded_blas():
        for kind, batch in {
            "blank": pa.RecordBatch.from_arrays(nothing, sample.schema.names),
            "NaN": _filled(sample, lambda x: np.full(len(x), np.nan)),
            "shuffled": _filled(sample, np.random.default_rng(0).permutation),
            **marks,
        }.items():
            computed = scorer(batch)
            rates[kind] = _sure(computed[f"{prefix}p_max"], computed[f"{prefix}flags"])
        features = scorer.reader.evaluate(sample)
        far, trained = features.X.copy(), scorer.model.training.distribution
        for k, feature in enumerate(scorer.model.features):
            edges = trained[feature].edges or (-1.0, 1.0)
            far[:, k] = max(edges) + 20 * ((max(edges) - min(edges)) or abs(max(edges)) or 1.0)
        scores = scorer.classifier.score(far, np.zeros_like(features.missing), None)
        rates["out of range"] = _sure(scores.probability.max(axis=1), scores.flags)
    findings.ran(name, rates=", ".join(f"{kind} {rate:.0%}" for kind, rate in rates.items()))
    for kind, limit in {"blank": 0.0, "NaN": 0.0, "out of range": UNSEEN_CONFIDENT}.items():
        if rates[kind] > limit:
            said = f"{rates[kind]:.0%} of {n:,} {kind} rows get a confident class without a flag"
            findings.stop(name, said, "", kind, rates[kind], limit, source)
    if sure := [kind for kind in marks if rates[kind] > UNSEEN_CONFIDENT]:
        said = (
            f"rows of {', '.join(sure)} in all columns get confident classes: state such marks as sentinels"
        )
        findings.look(name, said, "", "", max(rates[kind] for kind in sure), UNSEEN_CONFIDENT, source)
    return rates


def _sure(best: Array, flags: Array) -> float:
    return float(np.mean((np.nan_to_num(best, nan=0.0) >= SURE) & (flags == 0)))


def _filled(batch: pa.RecordBatch, change: Any) -> pa.RecordBatch:
    arrays = [
        pa.array(change(floats(c))) if pa.types.is_integer(c.type) or pa.types.is_floating(c.type) else c
        for c in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


class Truth:
    """Objects whose class is known, by the hashes of their identifiers, and the classes that releases give them."""

    def __init__(self, hashes: Array, labels: Array) -> None:
        hashes, first = np.unique(hashes, return_index=True)
        self.known = np.zeros(len(hashes), ROW)
        self.known["hash"], self.known["class"] = hashes, labels[first]
        self.found: dict[str, list[Array]] = {"now": [], "before": []}

    @classmethod
    def read(cls, path: Path, id_column: str, label: str, classes: Sequence[str]) -> Truth:
        """Read a table of labels; UsageError where it lacks the columns or has none of the classes."""
        catalog = catalogs.open(path, columns=(label,))
        names = {name.casefold(): name for name in catalog.names}
        if label not in catalog.names or id_column.casefold() not in names:
            said = f"expected '{id_column}' and '{label}'; name the column of classes with --truth-column"
            raise UsageError(f"--truth: got {path} with {', '.join(catalog.names[:8])}, {said}")
        hashes, labels = [], []
        for batch in catalog.batches([names[id_column.casefold()], label]):
            hashes.append(hashed_identifiers(batch.column(0)))
            labels.append(class_numbers(batch.column(1), classes))
        codes = np.concatenate([np.empty(0, np.int16), *labels])
        if not (codes > 0).any():
            said = f"got no class of the model in '{label}', expected {', '.join(classes)}"
            raise UsageError(f"--truth-column: {said}")
        return cls(np.concatenate(hashes)[codes > 0], codes[codes > 0])

    def add(self, release: str, rows: Array) -> None:
        """Note the classes and probabilities that a release gives to known objects among its rows."""
        i, j = matched(rows, self.known)
        columns = (self.known["class"][j], rows["class"][i], rows["p"][i])
        self.found[release].append(np.stack([x.astype(np.float64) for x in columns], axis=1))

    def report(
        self, classes: Sequence[str], model: Model, findings: Findings, last: str | None
    ) -> dict[str, tuple[float, float, float]]:
        """Report purity, completeness and calibration; return each with its 95 % interval."""
        now, before = (np.concatenate([np.empty((0, 3)), *self.found[key]]) for key in ("now", "before"))
        findings.ran("truth", n=len(now))
        quality: dict[str, tuple[float, float, float]] = {}
        if len(now) < 10:
            findings.look("truth", f"only {len(now)} objects of the release have a label")
            return quality
        known, confusion = f"{len(now):,} known objects", np.asarray(model.metrics.confusion, float)
        for k, name in enumerate(classes):
            mine, given = now[:, 0] == k + 1, now[:, 1] == k + 1
            right = int((mine & given).sum())
            for what, of in (("purity", int(given.sum())), ("completeness", int(mine.sum()))):
                if of:
                    low, high = map(float, share_interval(right, of))
                    quality[f"{what} of {name}"] = (right / of, low, high)
            if mine.any() and confusion.size and confusion[k].sum() >= 10:
                value, low, high = quality[f"completeness of {name}"]
                trained = confusion[k, k] / confusion[k].sum()
                said = f"completeness of {name} is {value:.0%} ({low:.0%} to {high:.0%}), {trained:.0%} at training"
                findings.graded("truth", said, (0.1, 0.25), "", name, max(0.0, trained - high), source=known)
        p = now[np.isfinite(now[:, 2])]
        stated, observed = float(p[:, 2].mean()), float((p[:, 0] == p[:, 1]).mean())
        error = float(np.sqrt(np.mean(p[:, 2] * (1 - p[:, 2])) / len(p)))
        quality["calibration"] = (observed - stated, -1.96 * error, 1.96 * error)
        said = f"{observed:.0%} of the classes are right, their probabilities say {stated:.0%}"
        limits = (max(0.05, 4 * error), max(0.2, 4 * error))
        findings.graded("calibration", said, limits, "", "", observed - stated, source=known)
        if len(before) >= 10:
            was, share = (float((x[:, 0] == x[:, 1]).mean()) for x in (before, now))
            spread, gain = float(np.sqrt(0.25 / len(now) + 0.25 / len(before))), share - was
            quality["right since the last release"] = (gain, gain - 1.96 * spread, gain + 1.96 * spread)
            said = f"{share:.1%} of known objects have their class, {was:.1%} in release {last}"
            limits = (0.02, max(0.1, 3 * spread))
            findings.graded("truth", said, limits, "", "", max(0.0, -gain), source=known)
        return quality


def replay_file(request: ReplayRequest) -> ReplayResult:
    """Score rows of an annotated file again, by a model that is named, or by the one that the file names.

    The rows are spread over the classes.
    """
    path = Path(request.file)
    entries = (levels(catalogs.open(path).metadata) or [{}])[0]
    model = _named_model(request, entries)
    stated = None if request.specification is None else read_specification(request.specification)
    text = entries.get("class_priors", "")
    given = {name: float(share) for name, share in (part.rsplit(" ", 1) for part in text.split(", ") if part)}
    settings = settings_of(model, stated, given, entries.get("specification_hash", ""))
    known = settings is not None and settings.flags.budget is None  # each budget has a limit of its own
    if settings is None:
        shares = given if {*given} <= {*model.classes} else {}
        settings = settled(model, stated or model.specification, shares or None, sources=tuple)
    scorer = Scorer.of(model, settings)
    catalog = open_annotated(path, scorer.prefix)
    scorer, read = scorer.on(catalog), list(scorer.reader.read)
    names = dict.fromkeys([*read, *(c.name for c in scorer.columns if c.name in catalog.names)])
    quota = None if catalog.n_rows <= request.rows else request.rows
    replayed = Replayed(scorer, (request.seed, 0), quota, known=known)
    start = 0
    for batch in catalog.batches([*names]):
        strata = class_numbers(batch.column(f"{scorer.prefix}class"), model.classes)
        replayed.add(batch, batch.select(read), strata, start, batch.num_rows / catalog.n_rows)
        start += batch.num_rows
    replayed.score()
    return ReplayResult(
        file=str(path),
        model=model.label,
        rows=replayed.n,
        differ={name: len(rows) for name, (rows, _) in replayed.wrong.items()},
        largest={name: size for name, (_, size) in replayed.wrong.items()},
        agrees=not replayed.wrong and replayed.n > 0,
    )


def _named_model(request: ReplayRequest, entries: Mapping[str, str]) -> Model:
    """Return the model to replay with: a file, one of the store, or the one that the file names."""
    if request.model is not None and Path(request.model).is_file():
        return read_model(Path(request.model))
    if request.model is None:
        for folder in [*Path(request.file).absolute().parents][:4]:
            if (folder / "model.asdf").is_file():
                return read_model(folder / "model.asdf")
    reference = request.model or entries.get("model", "")
    if not reference:
        raise ModelError(f"{request.file}: got a file that names no model; name one with --model")
    return Store.named(request.store).load(reference)
