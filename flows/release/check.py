"""The checks of a release: one pass over all of its rows, beside those of its inputs and of the last release.

Each file is read once, batch by batch, with the input that it was made from.  Memory does not grow with the rows.
Shapes: n rows, K classes.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from blr.decisions import Flag
from catalogs.arrays.values import column_values, is_text
from catalogs.catalog.catalog import BATCH_ROWS, Catalog, verified
from catalogs.catalog.earlier_columns import USER_BITS
from catalogs.catalog.new_columns import safe_name
from catalogs.errors import CatalogError
from catalogs.formats import TableChoice, annotated_table
from catalogs.profile.split import healpix_pixels
from flows.classification.scoring import Scorer
from flows.release import _differences as differences
from flows.release._contract import (
    Check,
    ColumnProfile,
    Contract,
    Findings,
    Opened,
    Profile,
    Verdict,
    check_columns,
    check_edits,
)
from flows.release._metadata import check_files, check_metadata, check_summaries
from flows.release._truth import Truth, identifiers
from flows.release.replay import Replayed, negative_controls
from flows.reports.report_table import ReportTable
from flows.runs.counts import MovedObject, Transition
from flows.runs.manifest import MANIFEST
from flows.runs.outputs import Output, file_sha256

__all__ = ["CELL_ORDER", "Checked", "check_release", "check_table", "differing", "map_identifiers"]

Array = np.ndarray[Any, Any]

REPLAY_ROWS = 20_000
"""Rows that are scored again; of smaller releases all are."""
LEAST_A_FILE = 256
"""Least rows of a file that are scored again."""
CELL_ORDER = 3
"""Order of the HEALPix cells in which values are compared: 7.3 degrees."""
TIGHT = 1e-5
"""Difference of sums of probabilities in single precision that counts as rounding."""
CONTROL_BATCHES = 8
"""Batches of which rows are kept for negative controls."""
MADE_ON_EVERY_ROW = {
    "input columns": "input columns are those of the inputs, bit for bit",
    "rows": "as many in each file as in its input",
    "probabilities": "they lie between 0 and 1, and sum to one",
    "class names": "every class is one of the model's",
    "classes": "each is that of the largest probability",
    "flags": "they are those of the probabilities and of the features",
    "ranges": "all values lie in the ranges of the contract",
    "metadata": "they describe the contents",
    "versions": "one version of the code made all files",
    "model": "every row names the model",
    **dict.fromkeys(("columns", "types", "units", "ucds", "descriptions", "nulls"), "the same in all files"),
}


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The checks of a release, the worst first, and what they rest on."""

    name: str
    version: str
    checks: tuple[Check, ...]
    n_rows: int
    n_replayed: int
    seed: int
    last: str | None = None
    compared: int = 0
    class_changed: int = 0
    transitions: tuple[Transition, ...] = ()
    attributed: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[MovedObject, ...] = ()
    controls: Mapping[str, float] = field(default_factory=dict)
    truth: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    checked: str = ""
    digest: str = ""

    @property
    def stops(self) -> tuple[str, ...]:
        """The names of the checks that say stop."""
        return tuple(dict.fromkeys(c.name for c in self.checks if c.verdict == "stop"))

    @property
    def looks(self) -> tuple[str, ...]:
        """The names of the checks that say look."""
        return tuple(dict.fromkeys(c.name for c in self.checks if c.verdict == "look"))


def check_table(checked: Checked) -> ReportTable:
    """Return the checks as a table, the worst first."""
    rows = []
    for c in checked.checks:
        numbers = ("" if value is None else f"{value:.4g}" for value in (c.number, c.limit))
        rows.append((c.verdict, c.name, c.found, c.place, *numbers, c.source))
    return ReportTable(
        title=f"Checks of {checked.name} {checked.version}",
        columns=("verdict", "check", "found", "where", "number", "limit", "limit from"),
        rows=tuple(rows),
        numeric=frozenset({4, 5}),
    )


def check_release(
    opened: Opened,
    contract: Contract,
    last: Opened | None,
    *,
    name: str,
    promised: Contract,
    companions: Sequence[Path] = (),
    seed: int = 0,
    truth: Truth | None = None,
) -> tuple[Checked, Profile]:
    """Check a release against its contract, its inputs, its model and the last release; return checks and profile."""
    findings = Findings()
    version = None if last is None else last.version
    check_edits(contract, promised, findings)
    check_files(opened, findings)
    with tempfile.TemporaryDirectory(prefix="blr-release-") as scratch:
        work = _Pass(opened, contract, last, Path(scratch), findings, truth, seed)
        for number, output in enumerate(opened.manifest.outputs):
            work.file(number, output)
        profile = work.profile()
        for check, what in MADE_ON_EVERY_ROW.items():
            findings.ran(check, f"{profile.n_rows:,} rows in {len(work.files):,} files: {what}")
        findings.ran("replay", f"{work.n_replayed:,} rows scored again by {opened.model.label}, to rounding")
        work.compare_identifiers()
        for path in companions:
            work.companion(path)
        check_summaries(opened, work.by_file, contract.classes, findings)
        found = work.compare()
        causes = {} if found is None else work.causes(found)
        controls = work.controls()
    if last is not None:
        differences.report_shares(profile, last.profile(), findings, f"release {version}")
    checked = Checked(
        name=name,
        version=opened.version,
        n_rows=profile.n_rows,
        n_replayed=work.n_replayed,
        seed=seed,
        last=version,
        compared=found.compared if found else 0,
        class_changed=found.class_changed if found else 0,
        transitions=found.transitions_of(contract.classes) if found else (),
        attributed=causes,
        examples=found.examples(contract.classes, work.files) if found else (),
        controls=controls,
        truth={} if truth is None else truth.report(contract.classes, opened.model, findings, version),
        checks=findings.checks(),
    )
    return checked, profile


class _Pass:
    """One pass over the files of a release, and what is gathered of all rows."""

    def __init__(
        self,
        opened: Opened,
        contract: Contract,
        last: Opened | None,
        scratch: Path,
        findings: Findings,
        truth: Truth | None,
        seed: int,
    ) -> None:
        self.opened, self.contract, self.last, self.scratch = opened, contract, last, scratch
        self.findings, self.truth, self.seed = findings, truth, seed
        self.files = [o.name for o in opened.manifest.outputs]
        self.n_replayed = 0
        self.scorer = Scorer.of(opened.model, opened.settings)
        self.old_scorer = None if last is None else Scorer.of(last.model, last.settings)
        self.quota = None
        if opened.n_rows > REPLAY_ROWS:
            self.quota = max(LEAST_A_FILE, REPLAY_ROWS // len(self.files))
        self.ledger, self.inputs = (differences.Ledger(scratch, name) for name in ("release", "inputs"))
        self.inputs_known = True
        self.columns: dict[str, _Counted] = {}
        self.by_file: dict[str, Counter[str]] = {}
        self.cells: dict[int, Counter[str]] = {}
        self.control_rows: list[pa.RecordBatch] = []
        self.control_scorer: Scorer | None = None
        left = {contract.id, contract.ra, contract.dec, *contract.made}
        self.numbers = tuple(
            c.name
            for c in contract.columns
            if not c.shape and c.name not in left and re.match(r"u?int|float|double|halffloat", c.datatype)
        )
        n_rows = max(opened.n_rows, 0 if last is None else last.n_rows)
        self.sample = differences.Sample(self.numbers, n_rows=n_rows)

    # One file

    def file(self, number: int, output: Output) -> None:
        """Check a file, row by row beside its input."""
        path, contract, findings = self.opened.data / output.name, self.contract, self.findings
        if not path.is_file():
            findings.stop("partitions", "a file of the manifest is not here", output.name)
            return
        sha256 = file_sha256(path)
        if sha256 != output.sha256:
            said = f"other bytes than were written (sha256 {sha256[:12]}, written {output.sha256[:12]})"
            findings.stop("checksums", said, output.name)
        try:
            catalog, wrong = verified(annotated_table(contract.prefix).open(path), "warn")
        except CatalogError as error:
            findings.stop("checksums", f"the file cannot be read: {error}", output.name)
            return
        for what in wrong:
            findings.stop("checksums", f"the file's own checksum is wrong: {what}", output.name)
        check_columns(contract, catalog, output.name, findings)
        source = self._input(output)
        check_metadata(self.opened, output, catalog, source, findings)
        try:
            self._rows(number, output, catalog, source)
        except CatalogError as error:
            findings.stop("checksums", f"the file cannot be read to its end: {error}", output.name)
        except (pa.ArrowInvalid, ValueError, KeyError, TypeError) as error:
            findings.stop("types", f"rows that cannot be checked: {error!r:.200}", output.name)

    def _input(self, output: Output) -> Catalog | None:
        """Return the input of a file; None where it is no longer there, which is reported."""
        path = self.opened.data / output.input_path
        if "://" in output.input_path or not path.is_file():
            self.inputs_known = False
            said = f"the input {output.input_path} is not here to be compared"
            self.findings.look("input columns", said, output.name)
            return None
        if file_sha256(path) != output.input.sha256:
            said = f"the input {path.name} has changed since it was classified"
            self.findings.stop("input columns", said, output.name)
        try:
            return self.scorer.choice.open(path)
        except CatalogError as error:
            self.findings.stop("input columns", f"the input cannot be read: {error}", output.name)
            return None

    def _rows(self, number: int, output: Output, catalog: Catalog, source: Catalog | None) -> None:
        """Check the rows of a file, beside its input's where they are as many."""
        name, n_rows = output.name, catalog.n_rows
        if n_rows != output.n_rows:
            said = f"{n_rows:,} rows, the manifest says {output.n_rows:,}"
            self.findings.stop("metadata", said, name, "", n_rows, output.n_rows, MANIFEST)
        if source is not None and source.n_rows != n_rows:
            said = f"{n_rows:,} rows, its input has {source.n_rows:,}"
            self.findings.stop("rows", said, name, "", n_rows, source.n_rows, "the input")
        scorer = self._scorer_on(catalog, source, output)
        rows = _RowChecks(self, number, name, scorer)
        if scorer is not None:
            other = self._other_on(catalog, scorer)
            rows.replayed = Replayed(scorer, (self.seed, number), self.quota, other=other)
        for batch, original in self._beside(catalog, source, rows):
            read = None
            if scorer is not None:
                needed = list(scorer.reader.read)
                held = batch if set(needed) <= set(batch.schema.names) else original
                read = None if held is None else held.select(needed)
            rows.add(batch, read, batch.num_rows / n_rows)
            rows.start += batch.num_rows
        rows.report()
        self.by_file[name] = rows.counts
        if rows.replayed is not None:
            self.n_replayed += rows.replayed.n
            rows.replayed.report(name, self.findings, self.opened.model.label, self.contract.last)

    def _beside(
        self, catalog: Catalog, source: Catalog | None, rows: _RowChecks
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        """Yield the batches of a file, each with its input's, whose columns are compared on the way."""
        id_, new = self.contract.id, set(self.opened.manifest.columns)
        if source is None or id_ is None or id_ not in source.names:
            self.inputs_known = False
        beside: Iterator[pa.RecordBatch | None] = repeat(None)
        shared: list[str] = []
        if source is not None and source.n_rows == catalog.n_rows:
            shared = [column for column in catalog.names if column in source.names and column not in new]
            read = () if rows.scorer is None else rows.scorer.reader.read
            further = [column for column in read if column not in catalog.names]
            beside = chain(source.batches([*shared, *further], BATCH_ROWS), repeat(None))
        if source is not None and self.inputs_known and id_ is not None and id_ not in shared:
            self.inputs.add_identifiers(map_identifiers(source, id_), rows.number)
        for batch, original in zip(catalog.batches(catalog.names, BATCH_ROWS), beside, strict=False):
            if original is not None:
                for column in shared:
                    wrong = differing(batch.column(column), original.column(column))
                    rows.fault("input columns", column, "values are not those of the input", wrong)
                if id_ in shared:
                    self.inputs.add(rows.number, rows.start, {"hash": identifiers(original.column(id_))})
            yield batch, original

    def _scorer_on(self, catalog: Catalog, source: Catalog | None, output: Output) -> Scorer | None:
        """Return the scorer for a file, or for its input where a slim copy lacks what the model reads."""
        scorer = self.scorer
        if output.summary.low_confidence is not None:
            scorer = scorer.with_low_confidence(output.summary.low_confidence)
        for one in (catalog, source):
            if one is not None and set(scorer.reader.read) <= set(one.names):
                try:
                    return scorer.on(one)
                except CatalogError as error:
                    self.findings.stop("units", f"the model cannot read the file: {error}", output.name)
                    return None
        self.findings.look("replay", "the columns that the model reads are not here", output.name)
        return None

    def _other_on(self, catalog: Catalog, scorer: Scorer) -> Scorer | None:
        """Return the last release's scorer on a file, where it is of another model and reads no further columns."""
        other, columns = self.old_scorer, set(scorer.reader.read)
        if other is None or other.model.id == self.opened.model.id or other.columns != scorer.columns:
            return None
        if not set(other.reader.read) <= columns <= set(catalog.names):
            return None
        try:
            return other.on(catalog)
        except CatalogError:
            return None

    # After the files

    def profile(self) -> Profile:
        """Return what the release holds."""
        total: Counter[str] = Counter()
        for counts in self.by_file.values():
            total.update(counts)
        return Profile(
            n_rows=total["rows"],
            columns={name: counted.profile() for name, counted in self.columns.items()},
            files={name: dict(counts) for name, counts in self.by_file.items()},
            classes={name: total[f"class {name}"] for name in self.contract.classes},
            flags={flag.name: total[f"flag {flag.name}"] for flag in self.contract.flags.values()},
            cells={str(cell): dict(counts) for cell, counts in sorted(self.cells.items())},
        )

    def compare_identifiers(self) -> None:
        """Check that each identifier is there once, and that they are those of the inputs."""
        if self.contract.id is None:
            said = "the specification names no identifier: rows are known by their order alone"
            self.findings.look("identifiers", said)
            return
        differences.report_repeated(self.ledger, self.files, self.findings, "identifiers")
        if self.inputs_known:
            what = "identifiers of the inputs"
            differences.report_other_rows(
                self.ledger, self.inputs, self.files, self.files, self.findings, what
            )

    def companion(self, path: Path) -> None:
        """Check that a table has the objects of the release, each once."""
        column, name, what = self.contract.id, f"companions/{path.name}", f"companion {path.name}"
        catalog = TableChoice(columns=() if column is None else (column,)).open(path)
        if column is None or column not in catalog.names:
            self.findings.stop(what, f"no column '{column}' names its objects", name)
            return
        ledger = differences.Ledger(self.scratch, what)
        ledger.add_identifiers(map_identifiers(catalog, column), 0)
        differences.report_repeated(ledger, [name], self.findings, what)
        differences.report_other_rows(ledger, self.ledger, [name], self.files, self.findings, what)

    def compare(self) -> differences.Matched | None:
        """Compare with the last release; None where there is none, or no identifier to compare by."""
        last, contract, findings = self.last, self.contract, self.findings
        if last is None or contract.id is None:
            findings.ran("objects", "there is no release to compare with, or no identifier to compare by")
            return None
        ledger = differences.Ledger(self.scratch, "last")
        sample = differences.Sample(self.numbers, step=int(self.sample.step))
        old_files = [o.name for o in last.manifest.outputs]
        for number, name in enumerate(old_files):
            self._read_last(number, last, name, ledger, sample)
        source = f"release {last.version}"
        found = differences.match(self.ledger, ledger, self.files, old_files, findings)
        differences.report_matched(found, contract.classes, self.files, old_files, findings, source)
        whole = frozenset(c.name for c in contract.columns if re.match(r"u?int", c.datatype))
        comparison = differences.Comparison(self.files, whole, findings, source)
        new, old = self.sample.columns(), sample.columns()
        comparison.same_objects(new, old, self.numbers)
        comparison.new_objects(new, old, self.numbers)
        return found

    def _read_last(
        self, number: int, last: Opened, name: str, ledger: differences.Ledger, sample: differences.Sample
    ) -> None:
        """Read the rows of a file of the last release that are compared."""
        prefix, place = last.manifest.prefix or "blr_", last.manifest.position
        catalog = annotated_table(prefix).open(last.data / name)
        positions = (place.ra, place.dec) if place else (self.contract.ra, self.contract.dec)
        if self.contract.id not in catalog.names:
            return
        wanted = (
            *(self.contract.id, *positions),
            *(f"{prefix}class", f"{prefix}flags", f"{prefix}p_max"),
            *self.numbers,
        )
        at = 0
        for batch in catalog.batches([n for n in dict.fromkeys(wanted) if n in catalog.names]):
            rows = ledger_rows(batch, self.contract, prefix, positions)
            ledger.add(number, at, rows)
            add_to_sample(sample, batch, rows, number)
            if self.truth is not None:
                self.truth.add("before", rows["hash"], rows["class"], rows["p"])
            at += batch.num_rows

    def causes(self, found: differences.Matched) -> Mapping[str, int]:
        """Return what changed the classes of objects: features, model, priors, code, or several together.

        Old features are scored with the new model, and new features with the old one.
        """
        causes: Counter[str] = Counter()
        if self.last is None or self.old_scorer is None:
            return {}
        new_rows = scored(self.opened, (self.scorer, self.old_scorer), [new for new, _ in found.changed])
        old_rows = scored(self.last, (self.old_scorer, self.scorer), [old for _, old in found.changed])
        same_model = self.opened.model.id == self.last.model.id
        for a, b in found.changed:
            new, old = (
                rows.get((int(x["file"]), int(x["row"]))) for rows, x in ((new_rows, a), (old_rows, b))
            )
            if new is None or old is None:
                causes["not known: a release lacks what the model reads"] += 1
                continue
            (now, by_old), (was, by_new) = new, old
            if was != b["class"]:
                causes["code"] += 1
            elif by_new == was and by_old == now:
                causes["features"] += 1
            elif by_new == now and by_old == was:
                causes["priors" if same_model else "model"] += 1
            else:
                causes["features and model together"] += 1
        return dict(causes)

    def controls(self) -> Mapping[str, float]:
        """Score rows that must not get a confident class."""
        if self.control_scorer is None:
            self.findings.look("negative controls", "no rows to make controls of")
            return {}
        sample = pa.Table.from_batches(self.control_rows).combine_chunks().to_batches()[0]
        return negative_controls(self.control_scorer, sample.slice(0, 500), self.findings)


class _RowChecks:
    """The checks of each row of a file, and its counts."""

    def __init__(self, work: _Pass, number: int, name: str, scorer: Scorer | None) -> None:
        self.work, self.number, self.name, self.scorer = work, number, name, scorer
        self.replayed: Replayed | None = None
        self.counts: Counter[str] = Counter()
        self.expected = np.zeros(len(work.contract.classes))
        self.faults: dict[tuple[str, str, str], list[int]] = {}
        self.n_faults: Counter[tuple[str, str, str]] = Counter()
        self.local: dict[str, _Counted] = {}
        self.unknown: set[str] = set()
        self.start = 0

    def fault(self, check: str, column: str | None, words: str, wrong: Any) -> None:
        """Note the rows of the batch with a fault; `wrong` (n,) says which."""
        rows = np.flatnonzero(wrong)
        if len(rows):
            key = (check, column or "", words)
            self.faults.setdefault(key, []).extend((self.start + rows[:50]).tolist())
            self.n_faults[key] += len(rows)

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None, share: float) -> None:
        """Check a batch; `read` has the columns that the model reads, `share` is the batch's part of the file."""
        work, contract, names = self.work, self.work.contract, batch.schema.names
        for name in names:
            self.local.setdefault(name, _Counted()).add(batch.column(name))
        if any(f"{contract.prefix}{part}" not in names for part in ("class", "flags", "p_max", "model")):
            return
        rows = ledger_rows(batch, contract, contract.prefix, (contract.ra, contract.dec))
        if contract.id in names:
            work.ledger.add(self.number, self.start, rows)
            add_to_sample(work.sample, batch, rows, self.number)
            column = batch.column(contract.id)
            blank = pc.equal(pc.binary_length(column), 0) if is_text(column.type) else column.is_null()
            gone = np.asarray(pc.fill_null(blank, True))  # noqa: FBT003  Arrow's own argument
            self.fault("identifiers", contract.id, "there is no identifier", gone)
            if work.truth is not None:
                work.truth.add("now", rows["hash"], rows["class"], rows["p"])
        with np.errstate(invalid="ignore"):
            beyond, turned = np.abs(rows["dec"]) > 90, (rows["ra"] < -180) | (rows["ra"] > 360)
            self.fault("ranges", contract.dec, "declinations lie beyond ±90°", beyond)
            self.fault("ranges", contract.ra, "right ascensions lie outside of −180° to 360°", turned)
            self._probabilities(batch, rows)
        if read is not None and self.scorer is not None:
            features = self.scorer.reader.evaluate(read)
            self._flags_of_features(rows, features.missing, features.inside)
            if len(work.control_rows) < CONTROL_BATCHES:
                work.control_rows.append(read.slice(0, 100))
                work.control_scorer = self.scorer
        self._count(rows)
        if self.replayed is not None and read is not None:
            strata = rows["class"].astype(np.int64) * 2 + (rows["flags"] != 0)
            self.replayed.add(batch, read, strata, self.start, share)

    def _probabilities(self, batch: pa.RecordBatch, rows: Mapping[str, Array]) -> None:
        """Check probabilities, classes, and the flags that follow from probabilities."""
        contract, prefix, fault = self.work.contract, self.work.contract.prefix, self.fault
        p_names = [f"{prefix}p_{safe_name(name)}" for name in contract.classes]
        if not {*p_names} <= {*batch.schema.names}:
            return
        p = np.stack([floats(batch.column(name)) for name in p_names], axis=1)
        gone, one = np.isnan(p).all(axis=1), p_names[0]
        some = np.isnan(p).any(axis=1) & ~gone
        fault("probabilities", one, "rows have probabilities of some classes only", some)
        fault("probabilities", one, "they lie outside of 0 to 1", ((p < 0) | (p > 1 + TIGHT)).any(axis=1))
        fault("probabilities", one, "they do not sum to one", np.abs(p.sum(axis=1) - 1) > TIGHT * p.shape[1])
        best, most = np.nan_to_num(p, nan=-1).max(axis=1), floats(batch.column(f"{prefix}p_max"))
        wrong = ((np.abs(most - best) > TIGHT) & ~gone) | (np.isnan(most) != gone)
        fault("probabilities", f"{prefix}p_max", "it is not the largest probability", wrong)
        codes, name = rows["class"].astype(np.int64), f"{prefix}class"
        strange = codes == -1
        if strange.any():
            texts = batch.column(name).take(pa.array(np.flatnonzero(strange)[:1000]))
            self.unknown |= {str(text) for text in texts.cast(pa.string()).to_pylist()}
            fault("class names", name, "classes are not among the model's", strange)
        of_class = p[np.arange(len(p)), np.maximum(codes - 1, 0)]
        lower = ~gone & (codes > 0) & (of_class < best - TIGHT)
        fault("classes", name, "the class is not that of the largest probability", lower)
        fault("classes", name, "rows without probabilities have a class", gone & (codes > 0))
        fault("classes", name, "rows with probabilities have no class", ~gone & (codes == 0))
        flags, name = rows["flags"].astype(np.int64), f"{prefix}flags"
        known = sum(1 << int(bit) for bit in contract.flags) | USER_BITS
        fault("flags", name, "bits are set that have no meaning", (flags & ~known) != 0)
        none = (flags & int(Flag.UNCLASSIFIABLE)) > 0
        fault("flags", name, "UNCLASSIFIABLE is not that of the probabilities", none != gone)
        stated = self.work.opened.settings.flags
        low = self.scorer.classifier.low_confidence if self.scorer else stated.low_confidence
        two = np.sort(np.nan_to_num(p), axis=1)[:, -2:]
        for flag, margin in (
            (Flag.LOW_CONFIDENCE, low * two.sum(axis=1) - two[:, 1]),
            (Flag.CLOSE_CALL, stated.close_call - (two[:, 1] - two[:, 0])),
        ):
            wrong = (((flags & int(flag)) > 0) != (margin > 0)) & (np.abs(margin) > TIGHT) & ~gone
            fault("flags", name, f"{flag.name} is not that of the probabilities", wrong)
        other = np.asarray(column_values(batch.column(f"{prefix}model")) != contract.model_id)
        fault("model", f"{prefix}model", f"rows are of another model than {contract.model}", other)
        self.expected += np.nan_to_num(p).sum(axis=0)

    def _flags_of_features(self, rows: Mapping[str, Array], missing: Array, inside: Array) -> None:
        """Check the flags that say which features are missing, on every row."""
        flags, name = rows["flags"].astype(np.int64), f"{self.work.contract.prefix}flags"
        nothing = missing.all(axis=1) | ~inside
        none, some = (flags & int(Flag.UNCLASSIFIABLE)) > 0, (flags & int(Flag.MISSING_INPUT)) > 0
        self.fault("flags", name, "rows without any feature have probabilities", nothing & ~none)
        self.fault("flags", name, "rows with features have no probabilities", ~nothing & none)
        wrong = (missing.any(axis=1) != some) & ~nothing
        self.fault("flags", name, "MISSING_INPUT is not that of the features", wrong)

    def _count(self, rows: Mapping[str, Array]) -> None:
        contract, codes, flags = self.work.contract, rows["class"], rows["flags"]
        self.counts["rows"] += len(codes)
        for k, name in enumerate(contract.classes, 1):
            self.counts[f"class {name}"] += int(np.count_nonzero(codes == k))
        for bit, details in contract.flags.items():
            self.counts[f"flag {details.name}"] += int(np.count_nonzero(flags & (1 << int(bit))))
        order = np.argsort(rows["cell"], kind="stable")
        cells, first = np.unique(rows["cell"][order], return_index=True)
        for cell, here in zip(cells.tolist(), np.split(order, first[1:]), strict=True):
            total = self.work.cells.setdefault(cell, Counter()) if cell >= 0 else Counter()
            total["rows"] += len(here)
            total["flagged"] += int(np.count_nonzero(flags[here]))
            numbers = np.bincount(np.maximum(codes[here], 0), minlength=len(contract.classes) + 1)
            total.update(dict(zip(contract.classes, numbers[1:].tolist(), strict=True)))

    def report(self) -> None:
        """Report the faults of the file."""
        findings, contract, last = self.work.findings, self.work.contract, self.work.last
        # Nothing is known of a new field: its largest galaxy may be larger than all of the last release's.
        new_field = last is not None and last.manifest.find(self.name) is None
        for (check, column, words), rows in self.faults.items():
            n = self.n_faults[check, column, words]
            strange = f": {', '.join(sorted(map(repr, self.unknown))[:5])}" if check == "class names" else ""
            said = f"{n:,} rows: {words}{strange}"
            findings.stop(check, said, self.name, column, n, 0, "every row", rows=rows)
        for name, counted in self.local.items():
            self.work.columns.setdefault(name, _Counted()).join(counted)
            promised = contract.column(name)
            if promised is None or counted.minimum > counted.maximum or name == contract.id:
                continue
            for value, limit, sign in (
                (counted.minimum, promised.minimum, -1),
                (counted.maximum, promised.maximum, 1),
            ):
                if limit is not None and sign * (value - limit) > TIGHT:
                    said = f"'{name}' reaches {value:.6g}, the contract allows {limit:.6g}"
                    verdict: Verdict = "look" if new_field and name not in contract.made else "stop"
                    findings.add(verdict, "ranges", said, self.name, name, value, limit, promised.source)
        for k, class_name in enumerate(contract.classes):
            self.counts[f"expected {class_name}"] = round(float(self.expected[k]))


@dataclass
class _Counted:
    """Counts of a column: values, missing ones, and the range of the numbers."""

    n: int = 0
    missing: int = 0
    minimum: float = np.inf
    maximum: float = -np.inf

    def add(self, column: pa.Array) -> None:
        """Count a batch."""
        self.n += len(column)
        self.missing += column.null_count
        if is_text(column.type):
            self.missing += int(pc.sum(pc.equal(pc.binary_length(column), 0)).as_py() or 0)
        elif pt.is_integer(column.type) or pt.is_floating(column.type):
            known = floats(column.drop_null())
            known = known[np.isfinite(known)]
            self.missing += len(column) - column.null_count - len(known)
            self.minimum = min(self.minimum, float(known.min(initial=np.inf)))
            self.maximum = max(self.maximum, float(known.max(initial=-np.inf)))

    def join(self, other: _Counted) -> None:
        """Add the counts of another file."""
        self.n, self.missing = self.n + other.n, self.missing + other.missing
        self.minimum, self.maximum = min(self.minimum, other.minimum), max(self.maximum, other.maximum)

    def profile(self) -> ColumnProfile:
        """Return what was counted."""
        ends = (self.minimum, self.maximum) if self.minimum <= self.maximum else (None, None)
        return ColumnProfile(n=self.n, missing=self.missing, minimum=ends[0], maximum=ends[1])


def floats(column: pa.Array) -> NDArray[np.float64]:
    """Return numbers (n,) in double precision, NaN where they are missing."""
    return np.ma.filled(np.ma.asanyarray(column_values(column)).astype(np.float64), np.nan)


def map_identifiers(catalog: Catalog, column: str) -> Iterator[Array]:
    """Yield the hashes of a catalogue's identifiers, batch by batch."""
    return (identifiers(batch.column(column)) for batch in catalog.batches([column]))


def differing(copy: pa.Array, source: pa.Array) -> NDArray[np.bool_]:
    """Return which rows (n,) of two columns differ, in any bit of a value or in what is null."""
    everywhere = np.ones(len(copy), bool)
    if len(copy) != len(source):
        return everywhere
    if copy.type != source.type:
        try:
            source = source.cast(copy.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return everywhere
    gone = np.asarray(copy.is_null()) != np.asarray(source.is_null())
    if pt.is_floating(copy.type):
        a, b = (np.ascontiguousarray(x.fill_null(0.0).to_numpy(zero_copy_only=False)) for x in (copy, source))
        bits = f"u{a.dtype.itemsize}"
        return np.asarray((a.view(bits) != b.view(bits)) | gone)
    if copy.equals(source):
        return ~everywhere
    if pt.is_nested(copy.type):
        pairs = zip(copy.to_pylist(), source.to_pylist(), strict=True)
        return np.array([repr(x) != repr(y) for x, y in pairs])
    return np.asarray(pc.fill_null(pc.not_equal(copy, source), False)) | gone  # noqa: FBT003  Arrow's own argument


def add_to_sample(
    sample: differences.Sample, batch: pa.RecordBatch, rows: Mapping[str, Array], number: int
) -> None:
    """Add the rows of a batch that belong to the sample."""
    chosen = np.flatnonzero(rows["hash"] % sample.step == 0)
    picked = {}
    for name in sample.names:
        known = name in batch.schema.names
        values = floats(batch.column(name).take(pa.array(chosen))) if known else np.full(len(chosen), np.nan)
        picked[name] = np.where(np.isfinite(values), values, np.nan)
    kept = {"hash": rows["hash"][chosen], "file": np.full(len(chosen), number), "cell": rows["cell"][chosen]}
    sample.add(**kept, **picked)


def ledger_rows(
    batch: pa.RecordBatch, contract: Contract, prefix: str, position: tuple[str | None, str | None]
) -> dict[str, Array]:
    """Return what a ledger keeps of each row (n,): hash, position in degrees, class by number, flags, probability."""
    n, names, id_ = batch.num_rows, batch.schema.names, contract.id
    hashes = np.zeros(n, np.uint64) if id_ not in names else identifiers(batch.column(id_))
    rows: dict[str, Array] = {"hash": hashes}
    for key, name in zip(("ra", "dec"), position, strict=True):
        number = name in names and (pt.is_floating(t := batch.column(name).type) or pt.is_integer(t))
        values = floats(batch.column(name)) if number else np.zeros(n)
        rows[key] = np.degrees(values) if contract.position_unit == "rad" else values
    text = pc.utf8_rtrim(batch.column(f"{prefix}class").cast(pa.string()).fill_null(""), characters=" ")
    codes = pc.index_in(text, pa.array(["", *contract.classes], pa.string())).fill_null(-1)
    rows["class"] = np.asarray(codes, np.int16)
    rows["flags"] = np.nan_to_num(floats(batch.column(f"{prefix}flags"))).astype(np.int32)
    rows["p"] = floats(batch.column(f"{prefix}p_max")).astype(np.float32)
    known = np.isfinite(rows["ra"]) & (np.abs(rows["dec"]) <= 90)
    rows["cell"] = np.full(n, -1, np.int64)
    if set(position) <= set(names) and known.any():
        rows["cell"][known] = healpix_pixels(rows["ra"][known] % 360, rows["dec"][known], CELL_ORDER)
    return rows


def scored(
    opened: Opened, scorers: tuple[Scorer, Scorer], rows: Sequence[np.void]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the classes, by number, that two scorers give to rows of a release, by file and row."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for file in sorted({int(row["file"]) for row in rows}):
        wanted = np.sort([int(row["row"]) for row in rows if row["file"] == file])
        path = opened.data / opened.manifest.outputs[file].name
        with suppress(CatalogError):  # a release that lacks a column: its objects count as not known
            catalog = annotated_table(opened.manifest.prefix or "blr_").open(path)
            here = [scorer.on(catalog) for scorer in scorers]
            start = 0
            for batch in catalog.batches(
                list(dict.fromkeys(name for scorer in here for name in scorer.reader.read))
            ):
                places = wanted[(wanted >= start) & (wanted < start + batch.num_rows)] - start
                if len(places):
                    part = batch.take(pa.array(places))
                    codes = [class_numbers(scorer, part) for scorer in here]
                    for row, now, other in zip(places.tolist(), *codes, strict=True):
                        found[file, start + row] = (now, other)
                start += batch.num_rows
    return found


def class_numbers(scorer: Scorer, batch: pa.RecordBatch) -> list[int]:
    """Return the classes (n,) of rows, 0 for none and then in the order of the model's classes."""
    names = ["", *scorer.model.classes]
    classes = scorer(batch.select(list(scorer.reader.read)))[f"{scorer.prefix}class"]
    return [names.index(str(name)) for name in classes]
