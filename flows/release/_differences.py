"""Differences from the last release, by field.

Most objects are found where they were, in the same part of a file of the same name; the others are found by the hashes
of their identifiers, in buckets on the disk where they are many, so that memory does not grow with the catalogue.
Values are compared on a sample, the same objects of both releases.  Limits are robust and allow for the number of
tests.  Shapes: n rows, G groups (files or HEALPix cells).
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from blr.arrays import Array, Floats
from blr.decisions import FLAG_MEANINGS
from catalogs.arrays import column_values, floats, hashed_identifiers, plain
from catalogs.catalog.catalog import Catalog
from catalogs.profile.quality import (
    LEAST_IN_GROUP,
    SIGMA,
    group_means,
    group_medians,
    median,
    outlying,
    share_errors,
)
from catalogs.profile.split import healpix_pixels
from flows.release._contract import MOST_ROWS, Contract, Findings, Opened
from flows.runs.results import CELL_ORDER, MovedObject, Profile, Transition, Verdict

BUCKETS = 32
WHOLE = re.compile(r"u?int")
IN_MEMORY = 1_000_000  # rows of a ledger in memory, some 30 MB; more go to the disk
SAMPLE_ROWS = 40_000  # objects whose values are compared, about
ARCSECONDS = 3.0  # separation from which an identifier has another position
SHIFT = 0.3  # mean shift of the positions of a file that deserves a look, in arcseconds

FARTHEST = 1e100  # largest change, in spreads of a column: the squares of larger ones overflow

CHANGED = 0.15  # share of a file's objects that may change class or flag beyond those of other files
STRANGE = 10  # of the robust spread of its changes: a change beyond it is none of the usual ones
FEW = 0.03  # share of strange changes in a file beyond that of other files

MOST_CHANGED = 2_000  # changed objects of the sample that are attributed to what changed them
MOST_EXAMPLES = 20


ROUNDINGS: Mapping[str, Callable[[Floats], Floats]] = {
    "single precision": lambda x: x.astype(np.float32).astype(float),
    **{f"{k} decimals": partial(np.ndarray.round, decimals=k) for k in range(5)},
}
TEXT_ROWS = 4_096  # first rows of each file whose texts are compared


def class_numbers(column: pa.Array, classes: Sequence[str]) -> Array:
    """Return the classes (n,) by number: from 1 on, 0 for none, -1 for a text that is not among them."""
    known = pa.array(["", *classes], pa.string())
    return np.asarray(pc.index_in(plain(column), known).fill_null(-1), np.int16)


def cells_of(ra: Floats, dec: Floats) -> NDArray[np.int64]:
    """Return the HEALPix cells (n,) in which values are compared; -1 where there is no position."""
    with np.errstate(invalid="ignore"):  # of infinite ones
        return healpix_pixels(ra % 360, dec, CELL_ORDER)


PLACE = [("hash", "u8"), ("row", "u8"), ("ra", "f8"), ("dec", "f8")]
ROW = np.dtype([*PLACE, ("file", "u4"), ("flags", "i4"), ("p", "f4"), ("class", "i2")])
"""A row: the hash of its identifier, file and row, position in degrees, class by number, and so on."""


def rows_of(
    batch: pa.RecordBatch,
    contract: Contract,
    prefix: str,
    position: Sequence[str | None],
    file: int,
    start: int,
) -> Array:
    """Return the rows (n,) of a batch, which are those of a file from row `start` on."""
    names, rows = batch.schema.names, np.zeros(batch.num_rows, ROW)
    rows["file"], rows["row"] = file, np.arange(start, start + len(rows))
    if contract.id in names:
        rows["hash"] = hashed_identifiers(batch.column(contract.id))
    for key, name in zip(("ra", "dec"), position, strict=True):
        number = name in names and (pt.is_floating(t := batch.column(name).type) or pt.is_integer(t))
        values = floats(batch.column(name)) if number else np.nan
        rows[key] = np.degrees(values) if contract.position_unit == "rad" else values
    rows["class"] = class_numbers(batch.column(f"{prefix}class"), contract.classes)
    rows["flags"] = np.nan_to_num(np.ma.filled(column_values(batch.column(f"{prefix}flags")), 0))
    rows["p"] = floats(batch.column(f"{prefix}p_max"))
    return rows


class Ledger:
    """Rows in the order in which they were added; of more than a million, in buckets by the first bits of the hash."""

    def __init__(self, path: Path) -> None:
        self.buckets = [path.with_name(f"{path.name}-{b}") for b in range(BUCKETS)]
        self.held: list[Array] = []
        self.n = self.n_held = self.sequence = 0  # the last tells the order of the identifiers
        self.on_disk = False

    def add(self, rows: Array) -> None:
        """Add rows."""
        self.held.append(rows)
        self.sequence = zlib.crc32(np.ascontiguousarray(rows["hash"]).data, self.sequence)
        self.n, self.n_held = self.n + len(rows), self.n_held + len(rows)
        if self.n_held > (IN_MEMORY // BUCKETS if self.on_disk else IN_MEMORY):
            self.flush()

    def add_file(self, catalog: Catalog, column: str, file: int) -> None:
        """Add the identifiers of all rows of a file."""
        start = 0
        for batch in catalog.batches([column]):
            rows = np.zeros(batch.num_rows, ROW)
            rows["hash"], rows["file"] = hashed_identifiers(batch.column(column)), file
            rows["row"] = np.arange(start, start := start + len(rows))
            self.add(rows)

    def flush(self) -> None:
        """Move the rows into buckets on the disk."""
        rows = np.concatenate([np.zeros(0, ROW), *self.held])
        bucket = (rows["hash"] >> np.uint64(59)).astype(np.uint8)
        ordered = rows.take(np.argsort(bucket, kind="stable"))  # by an index it takes six times as long
        ends = np.cumsum(np.bincount(bucket, minlength=BUCKETS))
        for path, part in zip(self.buckets, np.split(ordered, ends[:-1]), strict=True):
            with path.open("ab") as file:
                part.tofile(file)
        self.held, self.n_held, self.on_disk = [], 0, True

    def parts(self) -> Iterator[Array]:
        """Yield the rows: all at once, or bucket by bucket."""
        if self.on_disk:
            self.flush()
            yield from (np.fromfile(path, ROW) for path in self.buckets)
        else:
            yield np.concatenate([np.zeros(0, ROW), *self.held])

    def beside(self, other: Ledger) -> Iterator[tuple[Array, Array]]:
        """Yield the rows of two ledgers, those with the same identifiers together."""
        if self.on_disk or other.on_disk:
            self.flush()
            other.flush()
        yield from zip(self.parts(), other.parts(), strict=True)

    def report_repeated(self, files: Sequence[str], findings: Findings, name: str) -> None:
        """Report identifiers that occur more than once."""
        findings.ran(name, n=self.n)
        repeated: dict[int, list[int]] = {}
        first: dict[int, str] = {}
        for rows in self.parts():
            hashes = np.sort(rows["hash"])
            if (hashes[1:] == hashes[:-1]).any():
                ordered = rows[np.argsort(rows["hash"], kind="stable")]
                for k in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
                    file, row = (ordered[key][k : k + 2].tolist() for key in ("file", "row"))
                    repeated.setdefault(file[1], []).append(row[1])
                    first.setdefault(file[1], f"row {row[0]:,} of {files[file[0]]}")
        for of, again in repeated.items():
            said = f"{len(again):,} identifiers are there again, such as that of {first[of]}"
            findings.stop(name, said, files[of], "", len(again), 0, "all identifiers", rows=sorted(again))

    def report_others(
        self, other: Ledger, files: Sequence[str], others: Sequence[str], findings: Findings, name: str
    ) -> None:
        """Report identifiers that only one ledger has; `other` has what should be there."""
        alone: dict[tuple[str, str], list[int]] = {}
        for here, there in self.beside(other):
            for rows, of, names, words in (
                (there, here, others, "that must be there are not"),
                (here, there, files, "are not among those that must be there"),
            ):
                strange = rows[~np.isin(rows["hash"], of["hash"])]
                for file, row in zip(strange["file"].tolist(), strange["row"].tolist(), strict=True):
                    alone.setdefault((words, names[file]), []).append(row)
        for (words, place), numbers in alone.items():
            said = f"{len(numbers):,} identifiers {words}"
            findings.stop(name, said, place, "", len(numbers), 0, name, rows=sorted(numbers))


def matched(now: Array, was: Array) -> tuple[Any, Any]:
    """Return the places (m,) of the same identifiers in two lots of rows; of repeated ones the first."""
    ours, theirs = (np.ascontiguousarray(rows["hash"]) for rows in (now, was))
    if np.array_equal(ours, theirs):
        return slice(None), slice(None)
    place = pc.index_in(pa.array(ours), value_set=pa.array(theirs))
    i, j = np.flatnonzero(np.asarray(place.is_valid())), place.drop_null().to_numpy()
    if len(j) and np.bincount(j).max() > 1:
        j, first = np.unique(j, return_index=True)
        i = i[first]
    return i, j


def elements(name: str, size: int) -> list[str]:
    """Return the names of a column's elements; of a column of one value a row, its own."""
    return [name] if size == 1 else [f"{name}[{i}]" for i in range(size)]


SAMPLED = [("row hash", "u8"), *((f"row {key}", "i8") for key in ("file", "class", "cell", "part", "at"))]


class Sample:
    """The rows whose hashes are multiples of `step`: the same objects in every release.

    Each has its numbers, of which a column has so many (`sizes`), and what models read of it: `read` has these rows of
    each batch, with its catalogue; "row part" and "row at" are a row's place there.
    """

    def __init__(self, sizes: Mapping[str, int], step: int) -> None:
        self.sizes, self.step = sizes, np.uint64(step)
        self.numbers = tuple(dict.fromkeys(e for name, size in sizes.items() for e in elements(name, size)))
        self.parts = [np.zeros(0, [*SAMPLED, *((name, "f8") for name in self.numbers)])]
        self.read: list[tuple[Catalog, pa.RecordBatch]] = []

    def add(self, batch: pa.RecordBatch, rows: Array, read: pa.RecordBatch, catalog: Catalog) -> None:
        """Add the rows of a batch that belong to the sample; `read` has the columns that models read, of `catalog`."""
        chosen = np.flatnonzero(rows["hash"] % self.step == 0)
        index, n, names = pa.array(chosen), len(chosen), {*batch.schema.names}
        part = np.zeros(n, self.parts[0].dtype)
        for key in ("hash", "file", "class"):
            part[f"row {key}"] = rows[key][chosen]
        part["row cell"] = cells_of(rows["ra"][chosen], rows["dec"][chosen])
        for name, size in self.sizes.items():
            values = floats(batch.column(name).take(index)) if name in names else np.empty(0)
            if values.size != n * size:  # it is absent, or has other vectors
                values = np.full(n * size, np.nan)
            for element, x in zip(elements(name, size), values.reshape(n, size).T, strict=True):
                part[element] = np.where(np.isfinite(x), x, np.nan)
        part["row part"], part["row at"] = len(self.read), np.arange(n)
        self.parts.append(part)
        self.read.append((catalog, read.take(index)))

    def rows(self) -> Array:
        """Return the sample, in the order of the hashes, each once."""
        whole = np.concatenate(self.parts)
        return whole[np.unique(whole["row hash"], return_index=True)[1]]


Groups = tuple[str, Floats, Floats, Array]
"""What the groups are, and their values, numbers and labels (G,)."""


class Differences:
    """What differs from the last release, by file of the new one or of the old one.

    `whole` are columns of integers; `examples` are those of the objects with another class whose probability changed
    most.
    """

    def __init__(
        self, files: Sequence[str], contract: Contract, last: Opened, findings: Findings, scratch: Path
    ) -> None:
        self.files, self.findings, self.source = files, findings, f"release {last.version}"
        self.whole = {c.name for c in contract.columns if WHOLE.match(c.datatype)}
        self.old_files = [output.name for output in last.manifest.outputs]
        # Rows that were found nowhere so far.
        self.new, self.old = Ledger(scratch / "new"), Ledger(scratch / "old")
        self.compared = 0
        self.transitions: Counter[tuple[int, int]] = Counter()
        self.examples: list[MovedObject] = []
        self.classes = ("", *contract.classes, "another text")  # which has the number -1
        self.seen, self.changed = np.zeros(len(files)), dict[tuple[str, str, str], Array]()
        self.moved: dict[int, tuple[int, float, list[int]]] = {}
        self.shifts = np.zeros((4, len(files)))  # in right ascension and declination, their squares, how many
        self.texts: dict[str, list[tuple[int, int, int, int, int]]] = {}
        # By file: objects that were in another file, which is still here; and the last of those files.
        numbers = {name: k for k, name in enumerate(files)}
        self.home = np.array([numbers.get(name, -1) for name in self.old_files], int)
        self.strangers, self.came_from = np.zeros(len(files)), np.zeros(len(files), int)
        self.old_rows, self.old_gone = np.zeros(len(self.old_files)), np.zeros(len(self.old_files))

    def compare(self, now: Array, was: Array) -> None:
        """Compare rows with those of the same part of the last release; keep what is there only, or here only."""
        self.old_rows += np.bincount(was["file"], minlength=len(self.old_files))
        for ledger, alone in zip((self.new, self.old), self._compared(now, was), strict=True):
            if len(alone):
                ledger.add(alone)

    def _compared(self, now: Array, was: Array) -> tuple[Array, Array]:
        """Count the same objects of two lots of rows; return the other rows of each."""
        i, j = matched(now, was)
        self._count(now[i], was[j])
        others = [np.ones(len(rows), bool) for rows in (now, was)]
        others[0][i], others[1][j] = False, False
        return now[others[0]], was[others[1]]

    def compare_others(self, ledger: Ledger) -> None:
        """Compare the rows that were elsewhere; `ledger` has all rows of the release."""
        fresh = [np.zeros(0, ROW)]
        for now, was in self.new.beside(self.old):
            new, gone = self._compared(now, was)
            self.old_gone += np.bincount(gone["file"], minlength=len(self.old_files))
            if sum(map(len, fresh)) < IN_MEMORY:
                fresh.append(new)
        self._report_twice(np.concatenate(fresh), ledger)

    def _count(self, a: Array, b: Array) -> None:
        """Count rows of the new release, `a` (n,), beside the same objects of the old one, `b` (n,)."""
        G = len(self.files)
        self.compared += len(a["hash"])
        self.seen += np.bincount(a["file"], minlength=G)
        home = self.home[b["file"]]
        away = (home >= 0) & (home != a["file"])
        self.strangers += np.bincount(a["file"][away], minlength=G)
        self.came_from[a["file"][away]] = b["file"][away]
        flips = np.flatnonzero(a["class"] != b["class"])
        changes = {("class changes", "", "objects have another class"): a["file"][flips]}
        other = np.flatnonzero(a["flags"] != b["flags"])
        files, mine, theirs = a["file"][other], a["flags"][other], b["flags"][other]
        for flag in FLAG_MEANINGS:
            for verb, bits in (("gained", mine & ~theirs), ("lost", theirs & ~mine)):
                key = ("flag changes", str(flag.name), f"objects {verb} the flag {flag.name}")
                changes[key] = files[bits & int(flag) > 0]
        for key, of in changes.items():
            self.changed[key] = self.changed.get(key, 0) + np.bincount(of, minlength=G)
        self.transitions.update(zip(b["class"][flips].tolist(), a["class"][flips].tolist(), strict=True))
        moved = np.abs(np.nan_to_num(a["p"][flips] - b["p"][flips]).astype(float))
        most = np.argsort(-moved, kind="stable")[:MOST_EXAMPLES]
        for k, change in zip(flips[most].tolist(), moved[most].tolist(), strict=True):
            was, now = self.classes[b["class"][k]], self.classes[a["class"][k]]
            file, place = self.files[a["file"][k]], f"row {a['row'][k]}"
            self.examples.append(MovedObject(file=file, id=place, was=was, now=now, moved=round(change, 4)))
        self.examples = sorted(self.examples, key=lambda one: -one["moved"])[:MOST_EXAMPLES]
        self._count_positions(a, b)

    def _count_positions(self, a: Array, b: Array) -> None:
        """Note by file how many objects moved, how far the farthest did, in which rows; sum the others' shifts."""
        with np.errstate(invalid="ignore"):  # of infinite positions
            dra = a["ra"] - b["ra"]
            dra -= 360 * np.rint(dra / 360)  # quicker than a remainder
            dra *= np.cos(np.radians(np.clip(b["dec"], -90, 90))) * 3600
            ddec = (a["dec"] - b["dec"]) * 3600
            squares = dra**2 + ddec**2
        far, near = squares > ARCSECONDS**2, np.flatnonzero(squares <= ARCSECONDS**2)
        files = a["file"][near]
        sums = (np.bincount(files, x[near], len(self.files)) for x in (dra, ddec, squares))
        self.shifts += [*sums, np.bincount(files, minlength=len(self.files))]
        for file in np.unique(a["file"][far]).tolist():
            n, farthest, rows = self.moved.get(file, (0, 0.0, []))
            mine = far & (a["file"] == file)
            rows = sorted([*rows, *a["row"][mine].tolist()])[:MOST_ROWS]
            self.moved[file] = n + int(mine.sum()), max(farthest, float(squares[mine].max() ** 0.5)), rows

    def _report_twice(self, fresh: Array, ledger: Ledger) -> None:
        """Report new identifiers at the position of another object: an overlap that is there twice."""

        def square(rows: Any) -> Array:
            return np.rint(rows["dec"] * 1e4) * 4e6 + np.rint(rows["ra"] * 1e4)

        wanted = np.unique(square(fresh))  # those without a position are NaN, which equals nothing
        there = [x[np.isin(x, wanted)] for x in map(square, ledger.parts())] if len(wanted) else []
        places, n = np.unique(np.concatenate([np.empty(0), *there]), return_counts=True)
        twice = np.isin(square(fresh), places[n > 1])
        for file in np.unique(fresh["file"][twice]).tolist():
            mine = fresh["row"][twice & (fresh["file"] == file)]
            verdict: Verdict = "stop" if len(mine) > max(3, 0.01 * self.seen[file]) else "look"
            said = f"{len(mine):,} new identifiers have the position of another object"
            where = (self.files[file], "", len(mine), 3, self.source)
            self.findings.add(verdict, "new objects", said, *where, rows=sorted(mine.tolist()))

    def compare_texts(
        self, file: int, now: tuple[Array, pa.RecordBatch], was: tuple[Array, pa.RecordBatch]
    ) -> None:
        """Compare the texts of objects among the first rows of a file, which have hashes; report those cut short."""
        _, i, j = np.intersect1d(now[0], was[0], return_indices=True)
        for name in now[1].schema.names if len(i) >= 2 * LEAST_IN_GROUP else ():
            a, b = (plain(x.column(name).take(pa.array(k)), " \0") for x, k in ((now[1], i), (was[1], j)))
            changed, known = pc.not_equal(a, b), b.unique()
            new, old = a.filter(changed), b.filter(changed)
            pairs = [*zip(new[:MOST_CHANGED].to_pylist(), old[:MOST_CHANGED].to_pylist(), strict=True)]
            cut = [f"'{text}' became '{part}'" for part, text in pairs if part and text.startswith(part)]
            raw = (plain(x.column(name), padding="") for x in (now[1], was[1]))
            padded, before = (pc.sum(pc.ends_with(texts, " ")).as_py() or 0 for texts in raw)
            if padded > before + max(5, CHANGED * len(i)):
                said = f"{padded:,} texts of '{name}' have blanks at their ends, {before:,} had them before"
                self._stop("values", said, file, name, padded, before)
            if len(cut) >= max(5, len(pairs) / 2):
                said = f"{len(cut):,} of {len(i):,} texts of '{name}' are cut short: {cut[0]}"
                self._stop("values", said, file, name, len(cut), 5)
            of_others = pc.sum(pc.is_in(new, value_set=known)).as_py() or 0
            strange = len(new) - of_others if len(known) <= len(i) / 4 else 0  # of words that are used again
            self.texts.setdefault(name, []).append((file, len(i), len(new), of_others, strange))

    def report_texts(self) -> None:
        """Report columns of texts that changed, and files that stand out; texts of other objects are faults."""
        for name, counts in self.texts.items():
            files, n, changed, of_others, strange = np.array(counts).T
            share, shares, middle = changed.sum() / n.sum(), changed / n, median(changed / n)
            said = f"{share:.1%} of the texts of '{name}' are other ones than in the last release"
            self.findings.graded("values", said, (0.05, np.inf), "", name, share, source=self.source)
            far = outlying(shares, share_errors(shares, n), tests=len(n) * len(self.texts), floor=CHANGED)
            far &= shares > middle + CHANGED
            swapped, unknown = (far & (x > 0.8 * changed) for x in (of_others, strange))
            kinds: tuple[tuple[Array, str, Verdict], ...] = (
                (swapped, "; they are those of other objects", "stop"),
                (unknown & ~swapped, "; no object had such a text before", "stop"),
                (far & ~swapped & ~unknown, "", "look"),
            )
            for some, more, verdict in kinds:
                said = f"{{x:.1%}} of the texts of '{{name}}' are other ones, elsewhere {middle:.1%}{more}"
                group = ("file", shares, n, files)
                self._unlike("values", said, name, group, some, middle + CHANGED, verdict)

    def report(self) -> dict[str, Any]:
        """Report what changed by field: objects that vanished, classes, flags; return what `Checked` has of it."""
        n, findings, source, changed = self.compared, self.findings, self.source, self.transitions.total()
        findings.ran("positions")
        for file, (moved, farthest, rows) in self.moved.items():
            said = f"{moved:,} objects have another position than before, up to {farthest:,.0f}″ away"
            where = (self.files[file], "", farthest, ARCSECONDS, "the last release")
            findings.stop("positions", said, *where, rows=rows)
        self._report_shifts()
        findings.ran("objects", n=n)
        for g in np.flatnonzero(self.old_gone).tolist():
            gone, rows = self.old_gone[g], self.old_rows[g]
            verdict: Verdict = "stop" if gone > max(3, 0.05 * rows) else "look"
            said = f"{gone:,.0f} of {rows:,.0f} objects of the last release are not here"
            findings.add(verdict, "objects", said, self.old_files[g], "", gone / rows, 0.05, source)
        shares = self.strangers / np.maximum(self.seen, 1)
        for g in np.flatnonzero(shares > 0.05).tolist():
            verdict = "stop" if shares[g] > 0.5 and median(shares) < 0.05 else "look"
            said = f"{shares[g]:.0%} of the objects were in {self.old_files[self.came_from[g]]} before"
            findings.add(verdict, "objects", said, self.files[g], "", shares[g], 0.05, source)
        if n:
            findings.ran("class changes", "flag changes", n=n, changed=changed, share=changed / n)
            self._report_changes()
        else:
            findings.look("objects", "no object of the last release is here", "", "", 0, 0, source)
        moves = Counter({(self.classes[a], self.classes[b]): k for (a, b), k in self.transitions.items()})
        found = {"transitions": transitions_of(moves), "examples": tuple(self.examples)}
        return found | {"compared": n, "class_changed": changed}

    def _report_shifts(self) -> None:
        """Report files whose positions are shifted as a whole, unlike those of other files."""
        known = np.flatnonzero(self.shifts[3] >= LEAST_IN_GROUP)
        *sums, squares, n = self.shifts[:, known]
        means, errors = [shift / n for shift in sums], np.sqrt(squares) / n
        for what, shifts in zip(("right ascension", "declination"), means, strict=True):
            middle = median(shifts)
            said = f"all objects moved by {middle:+.2f}″ in {what}"
            self.findings.graded("positions", said, (SHIFT, np.inf), "", "", middle, source=self.source)
            far = outlying(shifts, errors, tests=2 * len(n), floor=SHIFT)
            said = f"{{n:,.0f}} objects moved by {{x:+.2f}}″ in {what}, elsewhere {middle:+.2f}″"
            self._unlike("positions", said, "", ("file", shifts, n, known), far, SHIFT)

    def _report_changes(self) -> None:
        """Report changes of classes and flags, in the whole release and in files that are unlike the others."""
        n, names = self.compared, ("no class", *self.classes[1:])
        moves = "; ".join(f"{names[a]} to {names[b]}: {k:,}" for (a, b), k in self.transitions.most_common(4))
        known = np.flatnonzero(self.seen >= 5)
        for (check, flag, words), counts in self.changed.items():
            share = float(counts.sum() / n)
            more, limits = ("", (0.1, 0.4)) if flag else (f": {moves}", (0.05, 0.3))
            said = f"{share:.1%} of the {words}{more}"
            self.findings.graded(check, said, limits, "", flag, share, source=self.source)
            shares, seen = counts[known] / self.seen[known], self.seen[known]
            middle, tests = median(shares), len(known) * len(self.changed)
            far = outlying(shares, share_errors(shares, seen), tests=tests, floor=CHANGED) & (shares > middle)
            said = f"{{x:.1%}} of the {{n:,.0f}} {words}, elsewhere {middle:.1%}"
            self._unlike(check, said, flag, ("file", shares, seen, known), far, middle + CHANGED)

    def same_objects(self, new: Array, old: Array, names: Sequence[str], positions: Sequence[str]) -> None:
        """Compare the values of the same objects; of positions, with how many digits they are written."""
        _, i, j = np.intersect1d(new["row hash"], old["row hash"], return_indices=True)
        self.findings.ran("values", "missing values", columns=len(names), n=len(i))
        if len(i) < 20:
            return
        groups = {"file": new["row file"][i], "cell": new["row cell"][i]}
        tests = len(names) * sum(len(np.unique(codes)) for codes in groups.values())
        for name in (*names, *positions):
            self._rounded(name, new[name][i], old[name][j], groups["file"])
        unchanged: dict[str, set[int]] = {}  # columns that changed in most files, and where they did not
        for name in names:
            a, b = new[name][i], old[name][j]
            self._missing(name, a, b, groups, tests)
            both = np.isfinite(a) & np.isfinite(b)
            if both.sum() >= 20:
                a, b, kept = a[both], b[both], {what: codes[both] for what, codes in groups.items()}
                self._values(name, a, b, kept, tests)
                shares, n, labels = group_means((a != b).astype(float), kept["file"])
                self._other_values(name, shares, n, labels, tests)
                if median(shares) > 0.9 and len(shares) >= 4:
                    unchanged[name] = {*labels[(shares == 0) & (n >= 20)].tolist()}
        for file in set.intersection(*unchanged.values()) if unchanged else ():
            said = f"no value of {', '.join(map(repr, unchanged))} changed, elsewhere nearly all did"
            self._stop("values", said, file, next(iter(unchanged)), 0, 0.9)

    def _rounded(self, name: str, a: Floats, b: Floats, files: Array) -> None:
        """Report numbers that became those of single precision, or of few decimals."""
        known = np.isfinite(a) & np.isfinite(b)
        for form, cut in ROUNDINGS.items():
            with np.errstate(over="ignore"):
                same = [(cut(x[known]) == x[known]).astype(float) for x in (a, b)]
            (now, _, labels), (was, _, _) = (group_means(x, files[known]) for x in same)
            lost = np.flatnonzero((now > 0.99) & (was < 0.5))
            for g in lost.tolist():
                said = (
                    f"'{name}' has lost digits: {now[g]:.0%} of its values are of {form}, were {was[g]:.0%}"
                )
                self._stop("values", said, labels[g], name, now[g], 0.99)
            if len(lost):
                return

    def _missing(self, name: str, a: Floats, b: Floats, groups: Mapping[str, Array], tests: int) -> None:
        """Report values that the last release had and this one lacks, and missing ones that became one number."""
        gone, came = np.isnan(a) & ~np.isnan(b), ~np.isnan(a) & np.isnan(b)
        net, check, lost = gone.astype(float) - came, "missing values", "that were there are missing"
        share = max(0.0, float(net.mean()))
        said = f"{share:.1%} of the values of '{name}' {lost}"
        self.findings.graded(check, said, (0.02, 0.1), "", name, share, source=self.source)
        for what, codes in groups.items():
            values, n, labels = group_means(net, codes)
            errors, middle = np.sqrt(np.maximum(np.abs(values), 1 / n) / n), median(values)
            far = outlying(values, errors, tests=tests, floor=0.05) & (values > middle)
            said = f"{{x:.1%}} of the values of '{{name}}' {lost}, elsewhere {middle:.1%}"
            self._unlike(check, said, name, (what, values, n, labels), far, 0.05)
        filled, times = np.unique(a[came], return_counts=True)
        k = int(times.argmax()) if len(times) else 0
        if len(times) and times[k] >= max(5, 0.2 * np.isnan(b).sum()):
            file = int(groups["file"][came & (a == filled[k])][0])
            said = f"{times[k]:,} values of '{name}' that were missing are now {filled[k]:g}"
            self._stop(check, said, file, name, times[k], 5)

    def _values(self, name: str, a: Floats, b: Floats, groups: Mapping[str, Array], tests: int) -> None:
        """Report a column whose values moved, spread or wrapped, in all or in some groups."""
        wrapped = np.isin(np.abs(a - b), [2.0**8, 2.0**16, 2.0**32]) & (name in self.whole)
        if wrapped.any():
            k = int(np.flatnonzero(wrapped)[0])
            said = f"{wrapped.sum():,} values of '{name}' overflowed: {b[k]:,.0f} became {a[k]:,.0f}"
            self._stop("values", said, groups["file"][k], name, wrapped.sum(), 0)
            return
        low, high = np.quantile(b, [0.25, 0.75])
        scale = (high - low) / 1.349 or float(b.std()) or max(abs(float(b[0])), 1.0)
        moved = np.clip((a - b) / scale, -FARTHEST, FARTHEST)
        middle = float(np.median(moved))
        spread = SIGMA * float(np.median(np.abs(moved - middle)))
        said = f"'{name}' moved by {middle:+.2f} spreads: its median is {np.median(a):.4g}, was {np.median(b):.4g}"
        wrong = self.findings.graded("values", said, (0.1, 0.5), "", name, middle, source=self.source)
        said = f"'{name}' of the same objects differs by {spread:.2f} of its spread, up and down"
        if wrong or self.findings.graded("values", said, (0.3, 0.6), "", name, spread, source=self.source):
            return
        for what, codes in groups.items():
            values, widths, errors, n, labels = group_medians(moved, codes)
            far, near = (outlying(values, 1.253 * errors, tests=tests, floor=floor) for floor in (0.15, 0.05))
            said = f"'{{name}}' of {{n:,.0f}} objects moved by {{x:+.2f}} spreads, elsewhere {middle:+.2f}"
            group = (what, values, n, labels)
            self._unlike("values", said, name, group, far, 0.15)
            self._unlike("values", said, name, group, near & ~far, 0.05, "look")
            wide = outlying(widths, widths / np.sqrt(n), tests=tests, floor=0.4) & (widths > spread)
            said = f"'{{name}}' of {{n:,.0f}} objects differs by {{x:.2f}} spreads, elsewhere {spread:.2f}"
            self._unlike("values", said, name, (what, widths, n, labels), wide, 0.4)
            strange, _, _ = group_means((np.abs(moved - middle) > STRANGE * spread).astype(float), codes)
            usual = median(strange)
            some = outlying(strange, share_errors(strange, n), tests=tests, floor=FEW) & (strange > usual)
            some &= ~(far | near | wide)
            said = f"{{x:.1%}} of the values of '{{name}}' moved {STRANGE} times as far as others, usual: {usual:.1%}"
            verdict: Verdict = "stop" if spread else "look"
            self._unlike("values", said, name, (what, strange, n, labels), some, usual + FEW, verdict)

    def _other_values(self, name: str, shares: Floats, n: Floats, labels: Array, tests: int) -> None:
        """Report files whose values changed where those of most files did not, if no other finding names them."""
        middle, named = median(shares), {c.file for c in self.findings.found if c.field == name}
        far = outlying(shares, share_errors(shares, n), tests=tests, floor=CHANGED) & (shares > middle)
        far &= np.array([not {self.files[label], ""} & named for label in labels], bool)
        said = f"{{x:.1%}} of the values of '{{name}}' are other ones, elsewhere {middle:.1%}"
        group = ("file", shares, n, labels)
        self._unlike("values", said, name, group, far, middle + CHANGED, "look")

    def new_objects(self, new: Array, old: Array, names: Sequence[str]) -> None:
        """Report fields of new objects whose medians lie beyond the last release's values, or that lack a column."""
        fresh, check = ~np.isin(new["row hash"], old["row hash"]), "new objects"
        self.findings.ran(check, n=int(fresh.sum()))
        codes = new["row file"][fresh]
        for name in names:
            values, before = new[name][fresh], old[name][np.isfinite(old[name])]
            if len(before) < 50:
                continue
            ends, known = np.quantile(before, [0.02, 0.98]), np.isfinite(values)
            medians, _, _, n, labels = group_medians(values[known], codes[known])
            said = "the median of '{name}' of {n:,.0f} new objects is {x:.4g}, beyond 96 % of before"
            for end, beyond in zip(ends, (medians < ends[0], medians > ends[1]), strict=True):
                self._unlike(check, said, name, ("file", medians, n, labels), beyond & (n >= 20), end)
            shares, n, labels = group_means((~known).astype(float), codes)
            earlier = 1 - len(before) / max(1, len(old[name]))
            said = f"{{x:.0%}} of the values of '{{name}}' of new objects are missing, before {earlier:.0%}"
            far = (shares > 0.95) & (n >= 20) & (earlier < 0.5)
            self._unlike(check, said, name, ("file", shares, n, labels), far, 0.95)

    def _unlike(
        self,
        check: str,
        words: str,
        name: str,
        group: Groups,
        some: Array,
        limit: float,
        verdict: Verdict = "stop",
    ) -> None:
        """Note some groups, which are unlike the others; their numbers and values go into the words."""
        what, values, n, labels = group
        for g in np.flatnonzero(some).tolist():
            said = words.format(name=name, n=n[g], x=values[g])
            place = self.files[labels[g]] if what == "file" else f"HEALPix cell {labels[g]}"
            self.findings.add(verdict, check, said, place, name, values[g], limit, self.source)

    def _stop(self, check: str, said: str, file: int, *about: Any) -> None:
        self.findings.stop(check, said, self.files[file], *about, self.source)


def transitions_of(moves: Counter[tuple[str, str]]) -> tuple[Transition, ...]:
    """Return how many objects went from which class to which, the most first."""
    return tuple(Transition(was=was, now=now, objects=n) for (was, now), n in moves.most_common())


def report_shares(profile: Profile, before: Profile, findings: Findings, source: str) -> None:
    """Compare the shares of the classes in the whole release, and by cell, with the last release's."""
    name = "class shares"
    findings.ran(name)
    both, shared = (profile, before), {*profile.cells} & {*before.cells}
    cells = sorted(c for c in shared if min(p.cells[c]["rows"] for p in both) >= 20)
    n, n_before = (np.array([p.cells[c]["rows"] for c in cells], float) for p in both)
    for of in profile.classes:
        now, was = (p.classes.get(of, 0) / max(1, sum(p.classes.values())) for p in both)
        said = f"{now:.1%} of the objects are {of}, were {was:.1%}"
        findings.graded(name, said, (0.1, 0.3), "", of, now - was, source=source)
        shares, earlier = (
            np.array([p.cells[c].get(of, 0) / p.cells[c]["rows"] for c in cells]) for p in both
        )
        change, errors = shares - earlier, np.sqrt(0.25 / n + 0.25 / n_before)
        far = outlying(change, errors, tests=len(cells) * len(profile.classes), floor=0.25)
        for g in np.flatnonzero(far).tolist():
            said = f"{shares[g]:.0%} of {n[g]:,.0f} objects are {of}, were {earlier[g]:.0%}"
            place = f"HEALPix cell {cells[g]}"
            findings.graded(name, said, (0.25, 0.5), place, of, float(change[g]), source=source)
