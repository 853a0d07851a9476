"""The rows of a release's file: what must hold in each of them, and what is counted of them.

Shapes: n rows, K classes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from blr.decisions import Flag
from catalogs.arrays.values import column_values, is_text
from catalogs.catalog.earlier_columns import USER_BITS
from catalogs.catalog.new_columns import safe_name
from catalogs.profile.split import healpix_pixels
from flows.classification.scoring import Scorer
from flows.release._contract import ColumnProfile, Contract, Findings, Opened, Profile
from flows.release._differences import Ledger, Sample
from flows.release._truth import Truth, identifiers
from flows.release.replay import Replayed

__all__ = ["CELL_ORDER", "Counted", "Gathered", "RowChecks", "add_to_sample", "differing", "ledger_rows"]

Array = np.ndarray[Any, Any]

CELL_ORDER = 3
"""Order of the HEALPix cells in which values are compared: 7.3 degrees."""
TIGHT = 1e-5
"""Difference of sums of probabilities in single precision that counts as rounding."""
CONTROL_BATCHES = 8
"""Batches of which rows are kept for negative controls."""


@dataclass
class Counted:
    """Counts of a column."""

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

    def join(self, other: Counted) -> None:
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


def differing(copy: pa.Array, source: pa.Array) -> NDArray[np.intp]:
    """Return the rows (n,) in which two columns differ, in any bit of a value or in what is null."""
    if len(copy) != len(source):
        return np.arange(len(copy))
    if copy.type != source.type:
        try:
            source = source.cast(copy.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return np.arange(len(copy))
    if pt.is_floating(copy.type):
        gone = np.asarray(copy.is_null()) != np.asarray(source.is_null())
        a, b = (np.ascontiguousarray(x.fill_null(0.0).to_numpy(zero_copy_only=False)) for x in (copy, source))
        bits = f"u{a.dtype.itemsize}"
        return np.flatnonzero((a.view(bits) != b.view(bits)) | gone)
    if copy.equals(source):
        return np.empty(0, np.intp)
    if pt.is_nested(copy.type):
        a, b = copy.to_pylist(), source.to_pylist()
        return np.array([i for i, (x, y) in enumerate(zip(a, b, strict=True)) if repr(x) != repr(y)], np.intp)
    unequal = pc.fill_null(pc.not_equal(copy, source), False)  # noqa: FBT003  Arrow's own argument
    gone = np.asarray(copy.is_null()) != np.asarray(source.is_null())
    return np.flatnonzero(np.asarray(unequal) | gone)


def add_to_sample(sample: Sample, batch: pa.RecordBatch, rows: Mapping[str, Array], number: int) -> None:
    """Add the rows of a batch that belong to the sample."""
    chosen = np.flatnonzero(rows["hash"] % sample.step == 0)
    picked = {}
    for name in sample.names:
        known = name in batch.schema.names
        values = floats(batch.column(name).take(pa.array(chosen))) if known else np.full(len(chosen), np.nan)
        picked[name] = np.where(np.isfinite(values), values, np.nan)
    sample.add(
        hash=rows["hash"][chosen], file=np.full(len(chosen), number), cell=rows["cell"][chosen], **picked
    )


def ledger_rows(
    batch: pa.RecordBatch,
    named: tuple[str | None, str | None, str | None],
    classes: Sequence[str],
    prefix: str,
    unit: str | None,
) -> dict[str, Array]:
    """Return what a ledger keeps of each row (n,): hash, position in degrees, class by number, flags, probability."""
    n, names = batch.num_rows, batch.schema.names
    id_, ra, dec = named
    rows: dict[str, Array] = {
        "hash": np.zeros(n, np.uint64) if id_ not in names else identifiers(batch.column(id_))
    }
    for key, name in (("ra", ra), ("dec", dec)):
        number = name in names and (pt.is_floating(t := batch.column(name).type) or pt.is_integer(t))
        values = floats(batch.column(name)) if number else np.zeros(n)
        rows[key] = np.degrees(values) if unit == "rad" else values
    text = pc.utf8_rtrim(batch.column(f"{prefix}class").cast(pa.string()).fill_null(""), characters=" ")
    rows["class"] = np.asarray(
        pc.index_in(text, pa.array(["", *classes], pa.string())).fill_null(-1), np.int16
    )
    rows["flags"] = np.nan_to_num(floats(batch.column(f"{prefix}flags"))).astype(np.int32)
    rows["p"] = floats(batch.column(f"{prefix}p_max")).astype(np.float32)
    known = np.isfinite(rows["ra"]) & (np.abs(rows["dec"]) <= 90)
    rows["cell"] = np.full(n, -1, np.int64)
    if {ra, dec} <= set(names) and known.any():
        rows["cell"][known] = healpix_pixels(rows["ra"][known] % 360, rows["dec"][known], CELL_ORDER)
    return rows


class Gathered:
    """What is gathered of all rows of a release."""

    def __init__(
        self,
        opened: Opened,
        contract: Contract,
        last: Opened | None,
        scratch: Path,
        findings: Findings,
        truth: Truth | None,
    ) -> None:
        self.opened, self.contract, self.last, self.findings, self.truth = (
            opened,
            contract,
            last,
            findings,
            truth,
        )
        self.columns: dict[str, Counted] = {}
        self.by_file: dict[str, Counter[str]] = {}
        self.cells: dict[int, Counter[str]] = {}
        self.control_rows: list[pa.RecordBatch] = []
        self.control_scorer: Scorer | None = None
        self.ledger = Ledger(scratch, "release")
        left = {contract.id, contract.ra, contract.dec, *contract.made}
        self.numbers = tuple(
            c.name
            for c in contract.columns
            if not c.shape and c.name not in left and re.match(r"u?int|float|double|halffloat", c.datatype)
        )
        sizes = [sum(o.n_rows for o in one.manifest.outputs) for one in (opened, last) if one is not None]
        self.sample = Sample(self.numbers, n_rows=max(sizes))

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


class RowChecks:
    """The checks of each row of a file, and its counts."""

    def __init__(self, work: Gathered, number: int, name: str, scorer: Scorer | None) -> None:
        self.work, self.number, self.name, self.scorer = work, number, name, scorer
        self.counts: Counter[str] = Counter()
        self.expected = np.zeros(len(work.contract.classes))
        self.faults: dict[tuple[str, str, str], list[int]] = {}
        self.n_faults: Counter[tuple[str, str, str]] = Counter()
        self.local: dict[str, Counted] = {}
        self.unknown: set[str] = set()
        self.start = 0

    def fault(self, check: str, column: str | None, words: str, wrong: Any) -> None:
        """Note the rows (n,) of the batch with a fault."""
        rows = np.flatnonzero(wrong)
        if len(rows):
            key = (check, column or "", words)
            self.faults.setdefault(key, []).extend((self.start + rows[:50]).tolist())
            self.n_faults[key] += len(rows)

    def add(
        self,
        batch: pa.RecordBatch,
        read: pa.RecordBatch | None,
        start: int,
        replayed: Replayed | None,
        share: float,
    ) -> None:
        """Check a batch; `read` has the columns that the model reads."""
        work, contract, names = self.work, self.work.contract, batch.schema.names
        self.start = start
        for name in names:
            self.local.setdefault(name, Counted()).add(batch.column(name))
        prefix = contract.prefix
        if any(f"{prefix}{part}" not in names for part in ("class", "flags", "p_max", "model")):
            return
        named = (contract.id, contract.ra, contract.dec)
        rows = ledger_rows(batch, named, contract.classes, prefix, contract.position_unit)
        if contract.id in names:
            work.ledger.add(self.number, start, rows)
            add_to_sample(work.sample, batch, rows, self.number)
            column = batch.column(contract.id)
            blank = pc.equal(pc.binary_length(column), 0) if is_text(column.type) else column.is_null()
            gone = np.asarray(column.is_null()) | np.asarray(pc.fill_null(blank, True))  # noqa: FBT003
            self.fault("identifiers", contract.id, "there is no identifier", gone)
            if work.truth is not None:
                work.truth.add("now", rows["hash"], rows["class"], rows["p"])
        with np.errstate(invalid="ignore"):
            self.fault(
                "ranges", contract.dec, "declinations lie beyond ±90°", np.asarray(np.abs(rows["dec"]) > 90)
            )
            turned = np.asarray((rows["ra"] < -180) | (rows["ra"] > 360))
            self.fault("ranges", contract.ra, "right ascensions lie outside of −180° to 360°", turned)
            self._probabilities(batch, rows)
        if read is not None and self.scorer is not None:
            features = self.scorer.reader.evaluate(read)
            self._flags_of_features(rows, features.missing, features.inside)
            if len(work.control_rows) < CONTROL_BATCHES:
                work.control_rows.append(read.slice(0, 100))
                work.control_scorer = self.scorer
        self._count(rows)
        if replayed is not None and read is not None:
            strata = rows["class"].astype(np.int64) * 2 + (rows["flags"] != 0)
            replayed.add(batch, read, strata, start, share)

    def _probabilities(self, batch: pa.RecordBatch, rows: Mapping[str, Array]) -> None:
        """Check probabilities, classes, and the flags that follow from probabilities."""
        contract, prefix, fault = self.work.contract, self.work.contract.prefix, self.fault
        p_names = [f"{prefix}p_{safe_name(name)}" for name in contract.classes]
        if not {*p_names} <= {*batch.schema.names}:
            return
        p = np.stack([floats(batch.column(name)) for name in p_names], axis=1)
        gone, one = np.isnan(p).all(axis=1), p_names[0]
        fault(
            "probabilities",
            one,
            "rows have probabilities of some classes only",
            np.isnan(p).any(axis=1) & ~gone,
        )
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
        self.fault(
            "flags",
            name,
            "MISSING_INPUT is not that of the features",
            (missing.any(axis=1) != some) & ~nothing,
        )

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
        findings, contract = self.work.findings, self.work.contract
        for (check, column, words), rows in self.faults.items():
            n = self.n_faults[check, column, words]
            strange = f": {', '.join(sorted(map(repr, self.unknown))[:5])}" if check == "class names" else ""
            findings.stop(
                check, f"{n:,} rows: {words}{strange}", self.name, column, n, 0, "every row", rows=rows
            )
        for name, counted in self.local.items():
            self.work.columns.setdefault(name, Counted()).join(counted)
            promised = contract.column(name)
            if promised is None or counted.minimum > counted.maximum or name == contract.id:
                continue
            for value, limit, sign in (
                (counted.minimum, promised.minimum, -1),
                (counted.maximum, promised.maximum, 1),
            ):
                if limit is not None and sign * (value - limit) > TIGHT:
                    said = f"'{name}' reaches {value:.6g}, the contract allows {limit:.6g}"
                    findings.stop("ranges", said, self.name, name, value, limit, promised.source)
        for k, class_name in enumerate(contract.classes):
            self.counts[f"expected {class_name}"] = round(float(self.expected[k]))
