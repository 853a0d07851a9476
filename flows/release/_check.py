"""The checks of a release: one pass over all of its rows, beside those of its inputs and of the last release.

Each file is read once, batch by batch, with the input that it was made from.  Memory does not grow with the rows.
Shapes: n rows, K classes.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import catalogs
from blr.arrays import Array
from blr.decisions import Flag
from catalogs.arrays import column_values, differing, floats, hashed_identifiers, is_text
from catalogs.catalog.catalog import USER_BITS, Catalog, verified
from catalogs.catalog.new_columns import safe_name
from catalogs.errors import CatalogError, counted
from catalogs.formats import open_annotated
from catalogs.profile.columns import ColumnRange
from flows.classification.scoring import Scorer
from flows.errors import OutputFolderError
from flows.release import _contract as contracts
from flows.release import _differences as differences
from flows.release._contract import MOST_ROWS, TEXTS, Contract, Findings, Opened
from flows.release.replay import Replayed, Truth, negative_controls
from flows.runs.manifest import MANIFEST, Output, file_sha256, without_margins
from flows.runs.results import CELL_ORDER, Checked, Profile, Verdict

ROWS_AT_ONCE = 32_768  # of which a column stays in the cache: memory is not requested anew for each batch
REPLAY_ROWS = 20_000  # rows that are scored again; of smaller releases all are
LEAST_A_FILE = 256  # least rows of a file that are scored again
TIGHT = 1e-5  # difference of sums of probabilities in single precision that counts as rounding
NOT_SCORED = -2
NUMBERS = re.compile(
    r"(?:fixed_size_list<\w+: (?=u?int|float|double|halffloat))?"
    r"(?:u?int|float|double|halffloat|bool|timestamp|date|time|duration|decimal)"
)
BINARY = {"binary", "large_binary"}
NOTHING = np.zeros(0, differences.ROW)
Faults = tuple[str, str | None, str, Any]
EXACT = 2**53  # largest whole number up to which doubles have all digits
MOST_ELEMENTS = 16  # most elements of a vector for them to be compared with the last release
CONTROL_BATCHES = 8  # batches of which rows are kept for negative controls


def check_release(
    opened: Opened, last: Opened | None, *, name: str, promised: Contract, seed: int, truth: Truth | None
) -> tuple[Checked, Profile, Mapping[str, str]]:
    """Check a release against its contract, its inputs, its model and the last release.

    Return the checks, what the release holds, and the SHA-256 of the files that were read.
    """
    contract, version = opened.contract, None if last is None else last.version
    with tempfile.TemporaryDirectory(prefix="blr-release-") as scratch:
        work = _Pass(opened, last, Path(scratch), truth, seed)
        findings = work.findings
        contracts.check_edits(contract, promised, findings)
        contracts.check_files(opened, findings)
        for number, output in enumerate(opened.manifest.outputs):
            work.file(number, output)
        profile = work.profile()
        findings.ran(*contracts.ROW_CHECKS, rows=profile.n_rows, files=counted(len(work.files), "file"))
        findings.ran("replay", n=work.n_replayed, model=opened.model.label)
        work.compare_identifiers([opened.folder / name for name in promised.companions])
        contracts.check_summaries(opened, work.by_file, findings)
        compared = work.compare()
        controls = work.controls()
    if last is not None:
        differences.report_shares(profile, last.profile, findings, f"release {version}")
    checked = Checked(
        name=name,
        version=opened.version,
        n_rows=profile.n_rows,
        n_replayed=work.n_replayed,
        seed=seed,
        last=version,
        **compared,
        controls=controls,
        truth={} if truth is None else truth.report(contract.classes, opened.model, findings, version),
        checks=findings.checks(),
    )
    return checked, profile, work.sums


class _Pass:
    """One pass over the files of a release, and what is gathered of all rows."""

    def __init__(
        self, opened: Opened, last: Opened | None, scratch: Path, truth: Truth | None, seed: int
    ) -> None:
        self.opened, self.last, self.scratch, self.truth, self.seed = opened, last, scratch, truth, seed
        self.findings, self.contract = Findings(), (contract := opened.contract)
        self.files = [o.name for o in opened.manifest.outputs]
        self.counted = {o.name for o in without_margins(opened.manifest.outputs)}
        self.n_replayed, self.sums = 0, dict[str, str]()
        self.scorer = Scorer.of(opened.model, opened.settings)
        self.old_scorer = None if last is None else Scorer.of(last.model, last.settings)
        small = opened.n_rows <= REPLAY_ROWS
        self.quota = None if small else max(LEAST_A_FILE, REPLAY_ROWS // len(self.files))
        # All rows; and of the files in which identifiers are not, row by row, those of the input, these and those.
        ledgers = (differences.Ledger(scratch / name) for name in ("all", "other", "inputs"))
        self.ledger, self.other, self.inputs = ledgers
        self.inputs_known = True
        scorers = filter(None, (self.scorer, self.old_scorer))
        self.read = tuple(dict.fromkeys(name for scorer in scorers for name in scorer.reader.read))
        self.promised = {c.name: c for c in contract.columns}
        self.columns: dict[str, ColumnRange] = {}
        self.by_file: dict[str, Counter[str]] = {}
        # Rows by HEALPix cell, those without one first: all, those with flags, and those of each class.
        self.cells = np.zeros((2 + len(contract.classes), 1 + 12 * 4**CELL_ORDER), np.int64)
        self.control_rows: list[pa.RecordBatch] = []
        self.control_scorer: Scorer | None = None
        # Short vectors are compared by element, and whole numbers that doubles do not hold by their digits.
        left = {contract.id, contract.ra, contract.dec, *contract.made}
        compared = {c.name: c for c in contract.columns if c.name not in left}
        sizes = {name: math.prod(c.shape) for name, c in compared.items() if NUMBERS.match(c.datatype)}
        self.sizes = {name: size for name, size in sizes.items() if size <= MOST_ELEMENTS}
        whole = {name for name, c in compared.items() if differences.WHOLE.match(c.datatype)}
        self.seen = {} if last is None else last.profile.columns
        long = {name for name in whole & self.seen.keys() if (self.seen[name].maximum or 0) > EXACT}
        texts = {c.name for c in contract.columns if c.datatype in TEXTS | BINARY} & {contract.id, *compared}
        self.texts = [c.name for c in contract.columns if c.name in texts | long]
        self.positions = [*filter(None, (contract.ra, contract.dec))]
        n_rows = max(opened.n_rows, 0 if last is None else last.n_rows)
        sizes, step = self.sizes | dict.fromkeys(self.positions, 1), max(1, n_rows // differences.SAMPLE_ROWS)
        self.sample, self.old_sample = differences.Sample(sizes, step), differences.Sample(sizes, step)
        self.found: differences.Differences | None = None
        self.before: dict[str, Iterator[Array]] = {}
        if last is not None and contract.id is not None:
            self.found = differences.Differences(self.files, contract, last, self.findings, scratch)
            known = {o.name for o in without_margins(last.manifest.outputs)}
            files = enumerate(self.found.old_files)
            self.before = {name: self._rows_of_last(last, k) for k, name in files if name in known}

    def _rows_of_last(self, last: Opened, number: int) -> Iterator[Array]:
        """Yield the rows of a file of the last release, batch by batch; keep those of the sample."""
        prefix, place, at, id_ = last.manifest.prefix, last.manifest.position, 0, self.contract.id
        positions = place.ra, place.dec
        wanted = (id_, *positions, *(f"{prefix}{part}" for part in ("class", "flags", "p_max")))
        try:
            catalog = open_annotated(last.data / last.manifest.outputs[number].name, prefix)
            there = {*catalog.names} if id_ in catalog.names else set()
            names = [n for n in dict.fromkeys([*wanted, *self.sample.sizes, *self.read]) if n in there]
            for batch in catalog.batches(names, ROWS_AT_ONCE) if names else ():
                rows = differences.rows_of(batch, self.contract, prefix, positions, number, at)
                read = batch.select([column for column in self.read if column in there])
                self.old_sample.add(batch, rows, read, catalog)
                if self.truth is not None:
                    self.truth.add("before", rows)
                at += batch.num_rows
                yield rows
        except CatalogError as error:
            said = f"release {last.version}: {error}; verify it with `blr release verify`"
            raise OutputFolderError(said) from error

    def file(self, number: int, output: Output) -> None:
        """Check a file: its bytes, its columns, what it says of itself, and its rows."""
        path, contract, findings = self.opened.data / output.name, self.contract, self.findings
        if not path.is_file():
            findings.stop("partitions", "a file of the manifest is not here", output.name)
            return
        sha256 = self.sums[f"{contracts.DATA}/{output.name}"] = file_sha256(path)
        if sha256 != output.sha256:
            said = f"other bytes than were written (sha256 {sha256[:12]}, written {output.sha256[:12]})"
            findings.stop("checksums", said, output.name)
        try:
            catalog = open_annotated(path, contract.prefix)
            # The checksums of Parquet's pages are verified as they are read.
            catalog, wrong = (catalog, ()) if catalog.format == "parquet" else verified(catalog, "warn")
        except CatalogError as error:
            findings.stop("checksums", f"the file cannot be read: {error}", output.name)
            return
        for what in wrong:
            findings.stop("checksums", f"the file's own checksum is wrong: {what}", output.name)
        contracts.check_columns(contract, catalog, output.name, findings)
        source = self._input(output)
        version = self.opened.manifest.code_version
        contracts.check_metadata(self.scorer, output, catalog, source, findings, version=version)
        try:
            _File(self, number, output, catalog, source).check(output)
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
        if not output.input.looks_like(path) and file_sha256(path) != output.input.sha256:
            said = f"the input {path.name} has changed since it was classified"
            self.findings.stop("input columns", said, output.name)
        try:
            return self.scorer.choice.open(path)
        except CatalogError as error:
            self.findings.stop("input columns", f"the input cannot be read: {error}", output.name)
            return None

    # After the files

    def profile(self) -> Profile:
        """Return what the release holds."""
        total = sum((self.by_file.get(name, Counter()) for name in self.counted), Counter[str]())
        return Profile(
            n_rows=total["rows"],
            columns=self.columns,
            files={name: dict(counts) for name, counts in self.by_file.items()},
            classes={name: total[f"class {name}"] for name in self.contract.classes},
            cells={
                str(cell): dict(zip(("rows", "flagged", *self.contract.classes), counts, strict=True))
                for cell, counts in enumerate(self.cells[:, 1:].T.tolist())
                if counts[0]
            },
        )

    def compare_identifiers(self, companions: Sequence[Path]) -> None:
        """Check that each identifier is there once, and that the inputs and the companions have the same."""
        findings, files, id_ = self.findings, self.files, self.contract.id
        if id_ is None:
            findings.look("identifiers", "no identifier is named: rows are known by their order alone")
        else:
            self.ledger.report_repeated(files, findings, "identifiers")
            if self.inputs_known:
                what = "identifiers of the inputs"
                findings.ran(what, n=self.ledger.n)
                self.other.report_others(self.inputs, files, files, findings, what)
        for path in companions:
            name, what = f"companions/{path.name}", f"companion {path.name}"
            catalog = catalogs.open(path, columns=() if id_ is None else (id_,))
            if id_ is None or id_ not in catalog.names:
                findings.stop(what, f"no column '{id_}' names its objects", name)
                continue
            ledger = differences.Ledger(self.scratch / what)
            ledger.add_file(catalog, id_, 0)
            ledger.report_repeated([name], findings, what)
            ledger.report_others(self.ledger, [name], files, findings, what)
            if ledger.n == self.ledger.n and ledger.sequence != self.ledger.sequence:
                findings.look(what, "its rows are in another order than those of the release's files", name)

    def compare(self) -> dict[str, Any]:
        """Compare with the last release; return what `Checked` has of it, nothing without one or an identifier."""
        contract, found = self.contract, self.found
        if found is None:
            said = "there is no release to compare with, or no identifier to compare by"
            self.findings.done["objects"] = contracts.check_of("objects", "pass", said)
            return {}
        for unread in self.before.values():
            for rows in unread:
                found.compare(NOTHING, rows)
        found.compare_others(self.ledger)
        counts = found.report()
        new, old = self.sample.rows(), self.old_sample.rows()
        numbers = [name for name in self.sample.numbers if name not in self.positions]
        found.same_objects(new, old, numbers, self.positions)
        truths = {c.name for c in contract.columns if c.datatype == "bool"}
        found.new_objects(new, old, [name for name in self.sizes if name in numbers and name not in truths])
        found.report_texts()
        return counts | {"attributed": self._causes(new, old)}

    def _causes(self, new: Array, old: Array) -> Mapping[str, int]:
        """Return what changed the classes of objects of the sample: features, model, priors, code, or several.

        Old features are scored with the new model, and new features with the old one.
        """
        if self.last is None or self.old_scorer is None:
            return {}
        _, i, j = np.intersect1d(new["row hash"], old["row hash"], return_indices=True)
        differ = np.flatnonzero(new["row class"][i] != old["row class"][j])[: differences.MOST_CHANGED]
        i, j, classes = i[differ], j[differ], self.contract.classes
        now, by_old = given_classes(self.sample, new[i], (self.scorer, self.old_scorer), classes)
        was, by_new = given_classes(self.old_sample, old[j], (self.old_scorer, self.scorer), classes)
        same_model = self.opened.model.id == self.last.model.id
        kinds = {
            "not known: a release lacks what the model reads": np.minimum(now, was) == NOT_SCORED,
            "code": was != old["row class"][j],
            "features": (by_new == was) & (by_old == now),
            "priors" if same_model else "model": (by_new == now) & (by_old == was),
        }
        found = np.select([*kinds.values()], [*kinds], "features and model together")
        return dict(Counter(found.tolist()))

    def controls(self) -> Mapping[str, float]:
        """Score rows that must not get a confident class."""
        if self.control_scorer is None:
            self.findings.look("negative controls", "no rows to make controls of")
            return {}
        tables = [pa.Table.from_batches([rows]) for rows in self.control_rows]  # a file may have other types
        sample = pa.concat_batches(pa.concat_tables(tables, promote_options="permissive").to_batches())
        return negative_controls(self.control_scorer, sample.slice(0, 500), self.findings)


class _File:
    """A file of a release: the checks of its rows beside those of its input and of the last release; its counts."""

    def __init__(
        self, work: _Pass, number: int, output: Output, catalog: Catalog, source: Catalog | None
    ) -> None:
        self.work, self.number, self.name, self.findings = work, number, output.name, work.findings
        self.contract, self.catalog, self.source = work.contract, catalog, source
        self.counts: Counter[str] = Counter()
        self.expected = np.zeros(len(work.contract.classes))
        self.faults: dict[tuple[str, str, str], tuple[int, list[int]]] = {}
        self.columns: dict[str, ColumnRange] = {}
        self.unknown: set[str] = set()
        self.start = 0
        self.scorer: Scorer | None = None
        self.replayed: Replayed | None = None
        self.read_of = catalog  # or the input, where a slim copy lacks what the model reads
        scorer = work.scorer.with_low_confidence(output.summary.low_confidence)
        holding = [c for c in (catalog, source) if c is not None and {*scorer.reader.read} <= {*c.names}]
        if not holding:
            self.findings.look("replay", "the columns that the model reads are not here", self.name)
            return
        self.read_of = holding[0]
        try:
            self.scorer = scorer.on(self.read_of)
        except CatalogError as error:
            self.findings.stop("units", f"the model cannot read the file: {error}", self.name)
            return
        self.replayed = Replayed(self.scorer, (work.seed, number), work.quota)

    def check(self, output: Output) -> None:
        """Check all rows."""
        work, n_rows, source = self.work, self.catalog.n_rows, self.source
        if n_rows != output.n_rows:
            said = f"{n_rows:,} rows, the manifest says {output.n_rows:,}"
            self.findings.stop("metadata", said, self.name, "", n_rows, output.n_rows, MANIFEST)
        if source is not None and source.n_rows != n_rows:
            said = f"{n_rows:,} rows, its input has {source.n_rows:,}"
            self.findings.stop("rows", said, self.name, "", n_rows, source.n_rows, "the input")
        for batch, original in self._beside_input():
            held = batch if self.read_of is self.catalog else original
            read = None
            if self.scorer is not None and held is not None:
                read = held.select([column for column in work.read if column in held.schema.names])
            self._add(batch, read)
            self.start += batch.num_rows
        self._report()
        work.by_file[self.name] = self.counts
        if self.replayed is not None:
            self.replayed.report(self.name, self.findings)
            work.n_replayed += self.replayed.n

    def _beside_input(self) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        """Yield the batches of the file, each with its input's where something of it is read.

        Columns in the input's bytes are not compared again; texts among them are counted by now, and not decoded.
        """
        work, catalog, source, id_ = self.work, self.catalog, self.source, self.contract.id
        shared: list[str] = []
        same: Mapping[str, int | None] = {}
        if source is not None and source.n_rows == catalog.n_rows:
            names = [column for column in catalog.names if column in source.names]
            shared = [column for column in names if column not in self.contract.made]
            same = catalog.same_columns(source)
        work.inputs_known &= source is not None and id_ in source.names
        unproven, words = [c for c in shared if c not in same], "values are not those of the input"
        beside: Iterator[pa.RecordBatch | None] = repeat(None)
        if shared and source is not None:
            read = [c for c in work.read if self.read_of is source and c in source.names]
            if wanted := dict.fromkeys([*unproven, *read]):
                beside = chain(source.batches([*wanted], ROWS_AT_ONCE), repeat(None))
        needed = {id_, *work.positions, *work.read}
        empty = {c: n for c, n in same.items() if n is not None and c in shared and c not in needed}
        self.columns = {
            c: ColumnRange(n=catalog.n_rows * (c in empty), missing=empty.get(c, 0)) for c in catalog.names
        }
        decoded = [column for column in catalog.names if column not in empty]
        for batch, original in zip(catalog.batches(decoded, ROWS_AT_ONCE), beside, strict=False):
            if original is not None:
                for column in unproven:
                    wrong = differing(batch.column(column), original.column(column))
                    self._fault("input columns", column, words, wrong)
            yield batch, original
        if id_ not in shared or ("input columns", id_, words) in self.faults:
            for ledger, one_of in ((work.inputs, source), (work.other, catalog)):
                if work.inputs_known and one_of is not None and id_ is not None and id_ in one_of.names:
                    ledger.add_file(one_of, id_, self.number)

    def _fault(self, check: str, column: str | None, words: str, wrong: Any) -> None:
        """Note the rows of the batch with a fault; `wrong` (n,) says which."""
        rows = np.flatnonzero(wrong)
        if len(rows):
            n, first = self.faults.get(key := (check, column or "", words), (0, []))
            self.faults[key] = n + len(rows), [*first, *(self.start + rows[:MOST_ROWS]).tolist()][:MOST_ROWS]

    def _add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None) -> None:
        """Check a batch; `read` has the columns that the model reads."""
        work, contract, names = self.work, self.contract, batch.schema.names
        for name in names:
            self.columns[name] += ColumnRange.of(batch.column(name))
        if any(f"{contract.prefix}{part}" not in names for part in ("class", "flags", "p_max", "model")):
            return
        place = (contract.ra, contract.dec)
        rows = differences.rows_of(batch, contract, contract.prefix, place, self.number, self.start)
        if contract.id in names and self.name in work.counted:
            work.ledger.add(rows)
            work.sample.add(batch, rows, batch.select([]) if read is None else read, self.read_of)
            if work.truth is not None:
                work.truth.add("now", rows)
            if work.found is not None:
                if not self.start:
                    self._compare_texts(work.found, rows["hash"], batch)
                before = next(work.before[self.name], NOTHING) if self.name in work.before else NOTHING
                work.found.compare(rows, before)
        for check, column, words, wrong in chain(
            self._faults_of_places(batch, rows),
            self._faults_of_probabilities(batch, rows),
            self._faults_of_features(rows, read),
        ):
            self._fault(check, column, words, wrong)
        self._count(rows)
        if self.replayed is not None and read is not None:
            strata = rows["class"].astype(np.int64) * 2 + (rows["flags"] != 0)
            self.replayed.add(batch, read, strata, self.start, batch.num_rows / self.catalog.n_rows)

    def _compare_texts(self, found: differences.Differences, hashes: Array, batch: pa.RecordBatch) -> None:
        """Compare the texts of the first rows with those of the same file of the last release."""
        last, id_, n = self.work.last, self.contract.id or "", differences.TEXT_ROWS
        if last is None or self.name not in found.old_files:
            return
        old = open_annotated(last.data / self.name, last.manifest.prefix)
        texts = [text for text in self.work.texts if text in old.names and text in self.catalog.names]
        if not texts or id_ not in old.names:
            return
        if not {*texts} <= {*batch.schema.names}:
            batch = next(self.catalog.batches(texts, n))
        for before in old.batches([*dict.fromkeys([id_, *texts])], n):
            was = (hashed_identifiers(before.column(id_)), before)
            found.compare_texts(self.number, (hashes[:n], batch.slice(0, n).select(texts)), was)
            return

    # Each yields checks, their columns, what is wrong, and (n,) in which rows.

    def _faults_of_places(self, batch: pa.RecordBatch, rows: Array) -> Iterator[Faults]:
        contract = self.contract
        if contract.id in batch.schema.names:
            column = batch.column(contract.id)
            blank = pc.equal(pc.binary_length(column), 0) if is_text(column.type) else column.is_null()
            gone = np.asarray(pc.fill_null(blank, True))  # noqa: FBT003  Arrow's own argument
            yield "identifiers", contract.id, "there is no identifier", gone
        with np.errstate(invalid="ignore"):
            yield "ranges", contract.dec, "declinations lie beyond ±90°", np.abs(rows["dec"]) > 90
            turned = (rows["ra"] < -180) | (rows["ra"] > 360)
            yield "ranges", contract.ra, "right ascensions lie outside of −180° to 360°", turned

    def _faults_of_probabilities(self, batch: pa.RecordBatch, rows: Array) -> Iterator[Faults]:
        """Yield faults of probabilities, classes, and the flags that follow from probabilities."""
        contract, prefix = self.contract, self.contract.prefix
        p_names = [f"{prefix}p_{safe_name(name)}" for name in contract.classes]
        if not {*p_names} <= {*batch.schema.names}:
            return
        p, one, most = np.stack([floats(batch.column(n)) for n in p_names]), p_names[0], f"{prefix}p_max"
        missing, total, largest = np.isnan(p), p.sum(axis=0), floats(batch.column(most))  # of p, (K, n)
        gone, unsure = missing.all(axis=0), TIGHT * len(p)
        some = missing.any(axis=0) & ~gone
        self.expected += np.nansum(p, axis=1)
        best = np.nan_to_num(p[0], nan=-1)
        second = np.full_like(best, -1)
        for of_class in np.nan_to_num(p[1:], nan=-1):
            second, best = np.maximum(second, np.minimum(best, of_class)), np.maximum(best, of_class)
        wrong = ((np.abs(largest - best) > TIGHT) & ~gone) | (np.isnan(largest) != gone)
        with np.errstate(invalid="ignore"):
            outside, unlike = ((p < 0) | (p > 1 + TIGHT)).any(axis=0), np.abs(total - 1) > unsure
        yield "probabilities", one, "rows have probabilities of some classes only", some
        yield "probabilities", one, "they lie outside of 0 to 1", outside
        yield "probabilities", one, "they do not sum to one", unlike
        yield "probabilities", most, "it is not the largest probability", wrong
        codes, name = rows["class"].astype(np.int64), f"{prefix}class"
        strange = codes == -1
        if strange.any():
            texts = batch.column(name).take(pa.array(np.flatnonzero(strange)[:1000]))
            self.unknown |= {str(text) for text in texts.cast(pa.string()).to_pylist()}
        own = p[np.maximum(codes - 1, 0), np.arange(len(codes))]
        lower = ~gone & (codes > 0) & (own < best - TIGHT)
        yield "class names", name, "classes are not among the model's", strange
        yield "classes", name, "the class is not that of the largest probability", lower
        yield "classes", name, "rows without probabilities have a class", gone & (codes > 0)
        yield "classes", name, "rows with probabilities have no class", ~gone & (codes == 0)
        flags, name = rows["flags"].astype(np.int64), f"{prefix}flags"
        known = sum(1 << int(bit) for bit in contract.flags) | USER_BITS
        none = (flags & int(Flag.UNCLASSIFIABLE)) > 0
        yield "flags", name, "bits are set that have no meaning", (flags & ~known) != 0
        yield "flags", name, "UNCLASSIFIABLE is not that of the probabilities", none != gone
        stated = self.work.opened.settings.flags
        low = self.scorer.classifier.low_confidence if self.scorer else stated.low_confidence
        for flag, margin in (
            (Flag.LOW_CONFIDENCE, low * (best + second) - best),
            (Flag.CLOSE_CALL, stated.close_call - (best - second)),
        ):
            wrong = (((flags & int(flag)) > 0) != (margin > 0)) & (np.abs(margin) > TIGHT) & ~gone
            yield "flags", name, f"{flag.name} is not that of the probabilities", wrong
        other = np.asarray(column_values(batch.column(f"{prefix}model")) != contract.model_id)
        yield "model", f"{prefix}model", f"rows are of another model than {contract.model}", other

    def _faults_of_features(self, rows: Array, read: pa.RecordBatch | None) -> Iterator[Faults]:
        """Yield faults of the flags that say which features are missing; keep some rows for negative controls."""
        if read is None or self.scorer is None:
            return
        features, flags = self.scorer.reader.evaluate(read), rows["flags"].astype(np.int64)
        name, missing = f"{self.contract.prefix}flags", features.missing
        nothing = missing.all(axis=1) | ~features.inside
        none, some = (flags & int(Flag.UNCLASSIFIABLE)) > 0, (flags & int(Flag.MISSING_INPUT)) > 0
        wrong = (missing.any(axis=1) != some) & ~nothing
        yield "flags", name, "rows without any feature have probabilities", nothing & ~none
        yield "flags", name, "rows with features have no probabilities", ~nothing & none
        yield "flags", name, "MISSING_INPUT is not that of the features", wrong
        if len(self.work.control_rows) < CONTROL_BATCHES:
            self.work.control_rows.append(read.slice(0, 100))
            self.work.control_scorer = self.scorer

    def _count(self, rows: Array) -> None:
        """Count the rows of each class, in all and by cell, and those with each flag."""
        classes, flags, size = self.contract.classes, rows["flags"], self.work.cells.shape[1]
        cells = differences.cells_of(rows["ra"], rows["dec"]) + 1
        of_class = rows["class"].astype(np.int64) + 1  # from -1 on: another text, none, each class
        codes = of_class * size + cells
        n = np.bincount(codes, minlength=(2 + len(classes)) * size).reshape(-1, size)
        flagged = np.bincount(cells[flags != 0], minlength=size)
        if self.name in self.work.counted:
            self.work.cells += [n.sum(axis=0), flagged, *n[2:]]
        self.counts["rows"] += len(flags)
        for name, k in zip(classes, n[2:].sum(axis=1).tolist(), strict=True):
            self.counts[f"class {name}"] += k
        for bit, details in self.contract.flags.items():
            self.counts[f"flag {details['name']}"] += int(np.count_nonzero(flags & (1 << int(bit))))

    def _report(self) -> None:
        findings, contract, work = self.findings, self.contract, self.work
        # Nothing is known of a new field: its largest galaxy may be larger than all of the last release's.
        new_field = work.last is not None and work.last.manifest.find(self.name) is None
        for (check, column, words), (n, rows) in self.faults.items():
            strange = f": {', '.join(sorted(map(repr, self.unknown))[:5])}" if check == "class names" else ""
            said = f"{n:,} rows: {words}{strange}"
            findings.stop(check, said, self.name, column, n, 0, "every row", rows=rows)
        for name, seen in self.columns.items():
            work.columns[name] = work.columns.get(name, ColumnRange()) + seen
            promised, before = work.promised.get(name), work.seen.get(name, seen)
            if promised is None or name == contract.id:
                continue
            if seen.infinite and (name in contract.made or not before.infinite):
                said = f"{seen.infinite:,} values of '{name}' are infinite"
                findings.stop("ranges", said, self.name, name, seen.infinite, 0, promised.source)
            low, high = (seen.minimum, promised.minimum, -1), (seen.maximum, promised.maximum, 1)
            for value, limit, sign in (low, high):
                if value is not None and limit is not None and sign * (value - limit) > TIGHT:
                    said = f"'{name}' reaches {value:.6g}, the contract allows {limit:.6g}"
                    verdict: Verdict = "look" if new_field and name not in contract.made else "stop"
                    findings.add(verdict, "ranges", said, self.name, name, value, limit, promised.source)
        for k, class_name in enumerate(contract.classes):
            self.counts[f"expected {class_name}"] = round(float(self.expected[k]))


def given_classes(
    sample: differences.Sample, rows: Array, scorers: tuple[Scorer, Scorer], classes: Sequence[str]
) -> tuple[Array, Array]:
    """Return the classes (n,) that two scorers give to rows of a sample, by number; of neither where one cannot."""
    found = np.full((2, len(rows)), NOT_SCORED)
    number = {name: k for k, name in enumerate(("", *classes))}
    for part in np.unique(rows["row part"]).tolist():
        mine, (catalog, read) = np.flatnonzero(rows["row part"] == part), sample.read[part]
        with suppress(CatalogError):  # a release that lacks a column
            here = [scorer.on(catalog) for scorer in scorers]
            batch = read.take(pa.array(rows["row at"][mine]))
            given = [scorer(batch)[f"{scorer.prefix}class"].tolist() for scorer in here]
            found[:, mine] = [[number.get(name, -1) for name in names] for names in given]
    return found[0], found[1]
