"""The checks of a release: one pass over all of its rows, beside those of its inputs and of the last release.

Each file is read once, batch by batch, with the input that it was made from.  Memory does not grow with the rows.
Shapes: n rows, K classes.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from catalogs.catalog.catalog import BATCH_ROWS, Catalog, verified
from catalogs.errors import CatalogError
from catalogs.formats import TableChoice, annotated_table
from flows.classification.scoring import Scorer
from flows.documents import read_document
from flows.release import _differences as differences
from flows.release._contract import (
    PROFILE,
    Check,
    Contract,
    Findings,
    Opened,
    Profile,
    check_columns,
    check_edits,
)
from flows.release._metadata import check_files, check_metadata, check_summaries
from flows.release._rows import Gathered, RowChecks, add_to_sample, differing, ledger_rows
from flows.release._truth import Truth, identifiers
from flows.release.replay import Replayed, negative_controls
from flows.reports.report_table import ReportTable
from flows.runs.counts import ReleasedObject, Transition
from flows.runs.manifest import MANIFEST
from flows.runs.outputs import Output, file_sha256

__all__ = ["Checked", "check_release", "check_table", "map_identifiers"]

Array = np.ndarray[Any, Any]

REPLAY_ROWS = 20_000
"""Rows that are scored again; of smaller releases all are."""
LEAST_A_FILE = 256
"""Least rows of a file that are scored again."""


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
    examples: tuple[ReleasedObject, ...] = ()
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
    rows = tuple(
        (c.verdict, c.name, c.found, c.place, _shown(c.number), _shown(c.limit), c.source)
        for c in checked.checks
    )
    columns = ("verdict", "check", "found", "where", "number", "limit", "limit from")
    return ReportTable(
        title=f"Checks of {checked.name} {checked.version}",
        columns=columns,
        rows=rows,
        numeric=frozenset({4, 5}),
    )


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def check_release(
    opened: Opened,
    contract: Contract,
    *,
    name: str,
    version: str,
    last: Opened | None,
    last_version: str | None,
    companions: Sequence[Path] = (),
    seed: int = 0,
    truth: Truth | None = None,
    promised: Contract | None = None,
) -> tuple[Checked, Profile]:
    """Check a release against its contract, its inputs, its model and the last release; return checks and profile."""
    findings = Findings()
    check_edits(contract, promised, findings)
    with tempfile.TemporaryDirectory(prefix="blr-release-") as scratch:
        work = _Pass(opened, contract, last, Path(scratch), findings, truth, seed)
        check_files(opened, findings)
        for number, output in enumerate(opened.manifest.outputs):
            work.file(number, output)
        _announce(findings, work)
        work.compare_identifiers()
        for path in companions:
            work.companion(path)
        check_summaries(opened, work.by_file, contract.classes, findings)
        causes = work.compare(last_version)
        controls = work.controls()
        quality = (
            {} if truth is None else truth.report(contract.classes, opened.model, findings, last_version)
        )
        found, profile = work.matched, work.profile()
    if last is not None and last_version is not None:
        compare_shares(
            profile, read_document(Profile, last.folder / PROFILE), findings, f"release {last_version}"
        )
    checked = Checked(
        name=name,
        version=version,
        checks=findings.checks(),
        n_rows=profile.n_rows,
        n_replayed=work.n_replayed,
        seed=seed,
        last=last_version,
        compared=found.compared if found else 0,
        class_changed=found.class_changed if found else 0,
        transitions=found.transitions_of(contract.classes) if found else (),
        attributed=causes,
        examples=found.examples(contract.classes, work.files) if found else (),
        controls=controls,
        truth=quality,
    )
    return checked, profile


def _announce(findings: Findings, work: _Pass) -> None:
    """Note the checks that every row went through."""
    for name, what in (
        ("input columns", "input columns are those of the inputs, bit for bit"),
        ("rows", "as many in each file as in its input"),
        ("probabilities", "they lie between 0 and 1, and sum to one"),
        ("class names", "every class is one of the model's"),
        ("classes", "each is that of the largest probability"),
        ("flags", "they are those of the probabilities and of the features"),
        ("ranges", "all values lie in the ranges of the contract"),
        ("metadata", "they describe the contents"),
        ("versions", "one version of the code made all files"),
        ("model", "every row names the model"),
        *(
            (name, "the same in all files")
            for name in ("columns", "types", "units", "ucds", "descriptions", "nulls")
        ),
    ):
        findings.ran(name, f"{work.n_rows:,} rows in {len(work.files):,} files: {what}")
    findings.ran("replay", f"{work.n_replayed:,} rows scored again by {work.opened.model.label}, to rounding")


class _Pass(Gathered):
    """One pass over the files of a release."""

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
        super().__init__(opened, contract, last, scratch, findings, truth)
        self.seed, self.scratch = seed, scratch
        outputs = opened.manifest.outputs
        self.files = [o.name for o in outputs]
        self.n_rows = self.n_replayed = 0
        self.scorer = Scorer.of(opened.model, opened.settings)
        self.old_scorer = None if last is None else Scorer.of(last.model, last.settings)
        many = sum(o.n_rows for o in outputs) > REPLAY_ROWS
        self.quota = max(LEAST_A_FILE, REPLAY_ROWS // max(1, len(outputs))) if many else None
        self.inputs = differences.Ledger(scratch, "inputs")
        self.inputs_known = True
        self.matched: differences.Matched | None = None

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
        needed = set() if scorer is None else set(scorer.reader.read)
        replayed = None
        if scorer is not None:
            other = self._other_on(catalog) if needed <= set(catalog.names) else None
            replayed = Replayed(scorer, (self.seed, number), self.quota, other=other)
        rows, inputs = RowChecks(self, number, name, scorer), _InputColumns(self, name)
        start = 0
        for batch, original in self._beside(catalog, source, needed, inputs):
            read = None
            if scorer is not None:
                held = batch if needed <= set(batch.schema.names) else original
                read = None if held is None else held.select(list(scorer.reader.read))
            rows.add(batch, read, start, replayed, batch.num_rows / max(1, n_rows))
            start += batch.num_rows
        self.n_rows += start
        inputs.report()
        rows.report()
        self.by_file[name] = rows.counts
        if source is not None:
            self._input_identifiers(number, source)
        if replayed is not None:
            self.n_replayed += replayed.n
            replayed.report(name, self.findings, self.opened.model.label, self.contract.last)

    def _beside(
        self, catalog: Catalog, source: Catalog | None, needed: set[str], inputs: _InputColumns
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        """Yield the batches of a file, each with its input's, whose columns are compared on the way."""
        batches = catalog.batches(catalog.names, BATCH_ROWS)
        beside: Iterator[pa.RecordBatch] = iter(())
        shared: list[str] = []
        if source is not None and source.n_rows == catalog.n_rows:
            new = set(self.opened.manifest.columns)
            shared = [n for n in catalog.names if n in source.names and n not in new]
            further = () if needed <= set(catalog.names) else needed
            beside = source.batches([*dict.fromkeys([*shared, *further])], BATCH_ROWS)
        start = 0
        for batch, original in zip(batches, chain(beside, repeat(None)), strict=False):
            if original is not None:
                inputs.add(batch, original, shared, start)
            yield batch, original
            start += batch.num_rows

    def _scorer_on(self, catalog: Catalog, source: Catalog | None, output: Output) -> Scorer | None:
        """Return the scorer for a file, or for its input where a slim copy lacks what the model reads."""
        scorer = self.scorer
        if output.summary is not None and output.summary.low_confidence is not None:
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

    def _other_on(self, catalog: Catalog) -> Scorer | None:
        """Return the last release's scorer on a file, where it is of another model and has the same columns."""
        other = self.old_scorer
        if other is None or other.model.id == self.opened.model.id or other.columns != self.scorer.columns:
            return None
        try:
            return other.on(catalog) if set(other.reader.read) <= set(self.scorer.reader.read) else None
        except CatalogError:
            return None

    def _input_identifiers(self, number: int, source: Catalog) -> None:
        if self.contract.id is None or self.contract.id not in source.names:
            self.inputs_known = False
        else:
            self.inputs.add_identifiers(map_identifiers(source, self.contract.id), number)

    # After the files

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

    def compare(self, version: str | None) -> Mapping[str, int]:
        """Compare with the last release; return what changed the classes, by how many objects."""
        last, contract, findings = self.last, self.contract, self.findings
        if last is None or version is None or contract.id is None:
            findings.ran("objects", "there is no release to compare with, or no identifier to compare by")
            return {}
        ledger = differences.Ledger(self.scratch, "last")
        sample = differences.Sample(self.numbers, step=int(self.sample.step))
        old_files = [o.name for o in last.manifest.outputs]
        for number, output in enumerate(last.manifest.outputs):
            self._read_last(number, last.data / output.name, last, ledger, sample)
        source = f"release {version}"
        found = self.matched = differences.match(self.ledger, ledger, self.files, old_files, findings)
        differences.report_matched(found, contract.classes, self.files, old_files, findings, source)
        whole = frozenset(c.name for c in contract.columns if re.match(r"u?int", c.datatype))
        comparison = differences.Comparison(self.files, whole, findings, source)
        new, old = self.sample.columns(), sample.columns()
        comparison.same_objects(new, old, self.numbers)
        comparison.new_objects(new, old, self.numbers)
        return attribute(self, last, old_files, found)

    def _read_last(
        self, number: int, path: Path, last: Opened, ledger: differences.Ledger, sample: differences.Sample
    ) -> None:
        """Read the rows of a file of the last release that are compared."""
        contract, prefix = self.contract, last.manifest.prefix or "blr_"
        catalog = annotated_table(prefix).open(path)
        place = last.manifest.position
        named = (contract.id, place.ra if place else contract.ra, place.dec if place else contract.dec)
        if named[0] not in catalog.names:
            return
        wanted = (*named, f"{prefix}class", f"{prefix}flags", f"{prefix}p_max", *self.numbers)
        at = 0
        for batch in catalog.batches([n for n in dict.fromkeys(wanted) if n in catalog.names]):
            rows = ledger_rows(batch, named, contract.classes, prefix, contract.position_unit)
            ledger.add(number, at, rows)
            add_to_sample(sample, batch, rows, number)
            if self.truth is not None:
                self.truth.add("before", rows["hash"], rows["class"], rows["p"])
            at += batch.num_rows

    def controls(self) -> Mapping[str, float]:
        """Score rows that must not get a confident class."""
        if self.control_scorer is None:
            self.findings.look("negative controls", "no rows to make controls of")
            return {}
        sample = pa.Table.from_batches(self.control_rows).combine_chunks().to_batches()[0]
        return negative_controls(self.control_scorer, sample.slice(0, 500), self.findings)


def map_identifiers(catalog: Catalog, column: str) -> Iterator[Array]:
    """Yield the hashes of a catalogue's identifiers, batch by batch."""
    return (identifiers(batch.column(column)) for batch in catalog.batches([column]))


class _InputColumns:
    """The input columns of a file beside those of its input."""

    def __init__(self, work: _Pass, name: str) -> None:
        self.work, self.name = work, name
        self.wrong: dict[str, list[int]] = {}
        self.counts: Counter[str] = Counter()

    def add(self, batch: pa.RecordBatch, original: pa.RecordBatch, shared: Sequence[str], start: int) -> None:
        """Compare a batch with the input's, bit for bit."""
        for column in shared:
            bad = differing(batch.column(column), original.column(column))
            if len(bad):
                self.wrong.setdefault(column, []).extend((start + bad[:50]).tolist())
                self.counts[column] += len(bad)

    def report(self) -> None:
        """Report the columns that differ."""
        for column, rows in self.wrong.items():
            said = f"{self.counts[column]:,} values of '{column}' are not those of the input"
            source = "the input, bit for bit"
            self.work.findings.stop(
                "input columns", said, self.name, column, self.counts[column], 0, source, rows=rows
            )


def compare_shares(profile: Profile, before: Profile, findings: Findings, source: str) -> None:
    """Compare the shares of the classes in the whole release, and by cell, with the last release's."""
    name = "class shares"
    findings.ran(name, "they are like the last release's, in all and by HEALPix cell")
    totals = [max(1, sum(one.classes.values())) for one in (profile, before)]
    common = sorted(set(profile.cells) & set(before.cells))
    cells = [c for c in common if min(profile.cells[c]["rows"], before.cells[c]["rows"]) >= 20]
    n, n_before = (np.array([one.cells[c]["rows"] for c in cells], float) for one in (profile, before))
    for of in profile.classes:
        now, was = profile.classes[of] / totals[0], before.classes.get(of, 0) / totals[1]
        said = f"{now:.1%} of the objects are {of}, were {was:.1%}"
        findings.graded(name, said, "", of, now - was, (0.1, 0.3), source)
        shares, earlier = (
            np.array([one.cells[c].get(of, 0) for c in cells], float) / rows
            for one, rows in ((profile, n), (before, n_before))
        )
        change, errors = shares - earlier, np.sqrt(0.25 / n + 0.25 / n_before)
        far = differences.outlying(change, errors, tests=len(cells) * len(profile.classes), floor=0.25)
        for g in np.flatnonzero(far).tolist():
            said = f"{shares[g]:.0%} of {n[g]:,.0f} objects are {of}, were {earlier[g]:.0%}"
            findings.graded(name, said, f"HEALPix cell {cells[g]}", of, float(change[g]), (0.25, 0.5), source)


def attribute(
    work: _Pass, last: Opened, old_files: Sequence[str], found: differences.Matched
) -> Mapping[str, int]:
    """Return what changed the classes of objects: features, model, priors, code, or several together.

    Old features are scored with the new model, and new features with the old one.
    """
    causes: Counter[str] = Counter()
    if not found.changed or work.old_scorer is None:
        return {}
    new_rows = _scored(
        work.opened, (work.scorer, work.old_scorer), [(c.file, c.row) for c in found.changed], work.files
    )
    old_rows = _scored(
        last, (work.old_scorer, work.scorer), [(c.old_file, c.old_row) for c in found.changed], old_files
    )
    same_model = work.opened.model.id == last.model.id
    for change in found.changed:
        new, old = new_rows.get((change.file, change.row)), old_rows.get((change.old_file, change.old_row))
        if new is None or old is None:
            causes["not known: a release lacks what the model reads"] += 1
            continue
        (now, by_old), (was, by_new) = new, old
        if was != change.was:
            causes["code"] += 1
        elif by_new == was and by_old == now:
            causes["features"] += 1
        elif by_new == now and by_old == was:
            causes["priors" if same_model else "model"] += 1
        else:
            causes["features and model together"] += 1
    return dict(causes)


def _scored(
    opened: Opened, scorers: tuple[Scorer, Scorer], rows: Sequence[tuple[int, int]], files: Sequence[str]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the classes, by number, that two scorers give to some rows of a release."""
    wanted: dict[int, list[int]] = {}
    for file, row in rows:
        wanted.setdefault(file, []).append(row)
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for file, chosen in wanted.items():
        catalog = annotated_table(opened.manifest.prefix or "blr_").open(opened.data / files[file])
        try:
            here = [scorer.on(catalog) for scorer in scorers]
            names = list(dict.fromkeys(name for scorer in here for name in scorer.reader.read))
            start = 0
            for batch in catalog.batches(names):
                places = np.array(
                    sorted(r - start for r in chosen if 0 <= r - start < batch.num_rows), np.int64
                )
                if len(places):
                    part = batch.take(pa.array(places))
                    codes = [_class_numbers(s, part) for s in here]
                    for k, row in enumerate(places.tolist()):
                        found[file, start + row] = (int(codes[0][k]), int(codes[1][k]))
                start += batch.num_rows
        except CatalogError:
            continue  # a release that lacks a column; those objects are counted as not known
    return found


def _class_numbers(scorer: Scorer, batch: pa.RecordBatch) -> Array:
    """Return the classes (n,) of rows, 0 for none and then in the order of the model's classes."""
    best = scorer(batch.select(list(scorer.reader.read)))[f"{scorer.prefix}class"]
    names = ["", *scorer.model.classes]
    return np.array([names.index(str(name)) for name in best])
