"""Differences from the last release, by field, and from objects whose class is known.

Rows are matched through their identifiers' hashes, in buckets that lie on the disk, so that memory does not grow with
the catalogue.  Values are compared on a sample, the same objects of both releases.  Limits are robust and allow for the
number of tests.  Shapes: n rows, G groups (files or HEALPix cells).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray
from scipy.special import ndtri

from blr.decisions import FLAG_MEANINGS
from catalogs.arrays import column_values, decoded, hashed, hashed_strings
from catalogs.catalog.catalog import Catalog
from catalogs.formats import TableChoice
from catalogs.profile.split import healpix_pixels
from flows.errors import UsageError
from flows.models.model import Model
from flows.release._contract import MOST_ROWS, Findings, Profile, Verdict
from flows.runs.results import MovedObject, Transition

Array = np.ndarray[Any, Any]


class Truth:
    """Objects whose class is known, by the hashes of their identifiers, and the classes that releases give them."""

    def __init__(self, hashes: Array, labels: Array) -> None:
        self.hashes, first = np.unique(hashes, return_index=True)
        self.labels = labels[first]
        self.found: dict[str, list[Array]] = {"now": [], "before": []}

    @classmethod
    def read(cls, path: Path, id_column: str, label: str, classes: Sequence[str]) -> Truth:
        """Read a table of labels; UsageError where it lacks the columns or has none of the classes."""
        catalog = TableChoice(columns=(label,)).open(path)
        names = {name.casefold(): name for name in catalog.names}
        if label not in catalog.names or id_column.casefold() not in names:
            raise UsageError(
                f"--truth: got {path} with the columns {', '.join(catalog.names[:8])}, expected '{id_column}' and "
                f"'{label}'; name the column of the classes with --truth-column"
            )
        hashes, labels = [], []
        for batch in catalog.batches([names[id_column.casefold()], label]):
            hashes.append(identifiers(batch.column(0)))
            labels.append(class_numbers(batch.column(1), classes))
        codes = np.concatenate([np.empty(0, np.int16), *labels])
        if not (codes > 0).any():
            raise UsageError(
                f"--truth-column: got no class of the model in '{label}' of {path}, expected {', '.join(classes)}"
            )
        return cls(np.concatenate(hashes)[codes > 0], codes[codes > 0])

    def add(self, release: str, hashes: Array, classes: Array, p: Array) -> None:
        """Note the classes (n,) and probabilities (n,) that a release gives to known objects among its rows."""
        place, there = places_of(hashes, self.hashes)
        columns = (self.labels[place[there]], classes[there], p[there])
        self.found[release].append(np.stack([x.astype(np.float64) for x in columns], axis=1))

    def report(
        self, classes: Sequence[str], model: Model, findings: Findings, last: str | None
    ) -> dict[str, tuple[float, float, float]]:
        """Report purity, completeness and calibration; return each with its 95 % interval."""
        now, before = (np.concatenate([np.empty((0, 3)), *self.found[key]]) for key in ("now", "before"))
        findings.ran("truth", f"{len(now):,} objects whose class is known agree with the release")
        quality: dict[str, tuple[float, float, float]] = {}
        if len(now) < 10:
            findings.look("truth", f"only {len(now)} objects of the release have a label")
            return quality
        known = f"{len(now):,} known objects"
        confusion = np.asarray(model.metrics.confusion, float)
        for k, name in enumerate(classes):
            mine, given = now[:, 0] == k + 1, now[:, 1] == k + 1
            right = float((mine & given).sum())
            for what, of in (("purity", float(given.sum())), ("completeness", float(mine.sum()))):
                if of:
                    quality[f"{what} of {name}"] = (right / of, *_interval(right, of))
            if not mine.any() or not confusion.size or confusion[k].sum() < 10:
                continue
            value, low, high = quality[f"completeness of {name}"]
            expected = confusion[k, k] / confusion[k].sum()
            said = (
                f"completeness of {name} is {value:.0%} ({low:.0%} to {high:.0%}), {expected:.0%} at training"
            )
            findings.graded("truth", said, "", name, max(0.0, expected - high), (0.1, 0.25), known)
        p = now[np.isfinite(now[:, 2])]
        stated, observed = float(p[:, 2].mean()), float((p[:, 0] == p[:, 1]).mean())
        error = float(np.sqrt(np.mean(p[:, 2] * (1 - p[:, 2])) / len(p)))
        quality["calibration"] = (observed - stated, -1.96 * error, 1.96 * error)
        said = f"{observed:.0%} of the classes are right, their probabilities say {stated:.0%}"
        findings.graded(
            "calibration", said, "", "", observed - stated, (max(0.05, 4 * error), max(0.2, 4 * error)), known
        )
        if len(before) >= 10:
            was, right = (float((x[:, 0] == x[:, 1]).mean()) for x in (before, now))
            spread = float(np.sqrt(0.25 / len(now) + 0.25 / len(before)))
            gain = right - was
            quality["right since the last release"] = (gain, gain - 1.96 * spread, gain + 1.96 * spread)
            said = f"{right:.1%} of known objects have their class, {was:.1%} in release {last}"
            findings.graded("truth", said, "", "", max(0.0, was - right), (0.02, max(0.1, 3 * spread)), known)
        return quality


def _interval(right: float, of: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    z, p = 1.96, right / of
    centre, half = p + z * z / (2 * of), z * np.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return float((centre - half) / (1 + z * z / of)), float((centre + half) / (1 + z * z / of))


def identifiers(column: pa.Array) -> Array:
    """Return the hashes (n,) of identifiers, the same whatever the width of the numbers; padding does not count."""
    if pt.is_string(column.type) or pt.is_large_string(column.type):
        return hashed_strings(pc.ascii_rtrim(column.fill_null(""), characters=" \0"))
    values = column_values(column)
    if values.dtype.kind in "iub" and not np.ma.isMaskedArray(values):
        return hashed(values.astype(np.int64))
    return hashed(np.ma.filled(values, 0) if values.dtype.kind != "O" else values)


def _as_texts(column: pa.Array) -> pa.Array:
    """Return texts, bytes or whole numbers as texts without padding."""
    binary = pt.is_binary(column.type) or pt.is_large_binary(column.type)
    text = decoded(column) if binary else column
    return pc.ascii_rtrim(text.cast(pa.string()).fill_null(""), characters=" \0")


def class_numbers(column: pa.Array, classes: Sequence[str]) -> Array:
    """Return the classes (n,) by number: from 1 on, 0 for none, -1 for a text that is not among them."""
    text = pc.ascii_rtrim(column.cast(pa.string()).fill_null(""), characters=" ")
    return np.asarray(pc.index_in(text, pa.array(["", *classes], pa.string())).fill_null(-1), np.int16)


def places_of(hashes: Array, known: Array) -> tuple[Array, Array]:
    """Return the places (n,) of hashes among those `known`, which are sorted, and whether (n,) they are there."""
    if not len(known):
        return np.zeros(len(hashes), np.intp), np.zeros(len(hashes), bool)
    place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return place, known[place] == hashes


Floats = NDArray[np.float64]

ROW = np.dtype(
    [
        ("hash", "u8"),
        ("file", "u4"),
        ("row", "u8"),
        ("ra", "f8"),
        ("dec", "f8"),
        ("class", "i2"),
        ("flags", "i4"),
        ("p", "f4"),
    ]
)
BUCKETS = 32
IN_MEMORY = 1_000_000
"""Rows of a ledger in memory, some 42 MB; more go to the disk."""
SAMPLE_ROWS = 40_000
"""Objects whose values are compared, about."""
ARCSECONDS = 3.0
"""Separation from which an identifier has another position."""
SIGMA = 1.4826
"""Standard deviation of a Gaussian by its median absolute deviation."""
FARTHEST = 1e100
"""Largest change, in spreads of a column: the squares of larger ones overflow."""
LEAST_IN_GROUP = 10
CHANGED = 0.15
"""Share of a file's objects that may change class or flag beyond those of other files."""
ALARMS = 0.01
"""Expected false alarms of a family of tests, at most."""
MOST_CHANGED = 2_000
"""Changed objects of the sample that are attributed to what changed them."""
MOST_EXAMPLES = 20
TEXT_ROWS = 4_096
"""First rows of each file whose texts are compared."""
CELL_ORDER = 3
"""Order of the HEALPix cells in which values are compared: 7.3 degrees."""


class Ledger:
    """Rows by the hashes of their identifiers, in buckets."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        self.held: list[Array] = []
        self.n = self.held_rows = 0
        self.on_disk = False
        self.sequence = 0  # a hash of the identifiers in their order
        self.order = np.zeros(0, np.intp)  # of the hashes of rows in memory, once they are sorted

    def add(self, file: int, start: int, columns: Mapping[str, Array]) -> None:
        """Add rows of a file from row `start` on; columns that are not given are 0."""
        rows = np.zeros(len(columns["hash"]), ROW)
        rows["file"], rows["row"] = file, np.arange(start, start + len(rows))
        for name in set(columns) & set(ROW.names or ()):
            rows[name] = columns[name]
        self.held.append(rows)
        places = np.arange(self.n, self.n + len(rows), dtype=np.uint64)
        mixed = hashed(columns["hash"] + places * np.uint64(0x9E3779B97F4A7C15))
        self.sequence = (self.sequence + int(mixed.sum())) % 2**64
        self.n += len(rows)
        self.held_rows += len(rows)
        if self.held_rows > IN_MEMORY:
            self._flush()

    def add_identifiers(self, catalog: Catalog, column: str, file: int) -> None:
        """Add the hashes of a catalogue's identifiers, batch by batch."""
        start = 0
        for batch in catalog.batches([column]):
            self.add(file, start, {"hash": identifiers(batch.column(column))})
            start += batch.num_rows

    def _flush(self) -> None:
        for rows in self.held:
            bucket = rows["hash"] >> np.uint64(59)
            for b in np.unique(bucket).tolist():
                with self._bucket(b).open("ab") as file:
                    rows[bucket == b].tofile(file)
        self.held, self.held_rows, self.on_disk = [], 0, True

    def _bucket(self, b: int) -> Path:
        return self.path.with_name(f"{self.path.name}-{b}")

    def buckets(self, like: Ledger | None = None) -> Iterator[Array]:
        """Yield the rows, bucket by bucket, each in the order of the hashes: of `like`'s, if these have the same."""
        if self.on_disk:
            self._flush()
            for b in range(BUCKETS):
                rows = np.fromfile(self._bucket(b), ROW) if self._bucket(b).exists() else np.zeros(0, ROW)
                yield rows.take(np.argsort(rows["hash"], kind="stable"))
            return
        if len(self.order) < self.n:
            whole = np.concatenate(self.held)
            hashes = whole["hash"].copy()  # beside each other, which is faster to sort
            self.order = self.order if like is None or len(like.order) != self.n else like.order
            ordered = hashes.take(self.order)
            if len(ordered) < self.n or (ordered[1:] < ordered[:-1]).any():
                self.order = sorted_order(hashes)
            self.held = [whole.take(self.order)]  # a tenth of the time of whole[order]
        whole = self.held[0] if self.held else np.zeros(0, ROW)
        ends = np.arange(1, BUCKETS, dtype=np.uint64) << np.uint64(59)
        yield from np.split(whole, np.searchsorted(whole["hash"], ends))


def sorted_order(hashes: Array) -> Array:
    """Return the order (n,) of hashes, equal ones as they are: by their first 16 bits, which is fast, then by all."""
    order = np.argsort((hashes >> np.uint64(48)).astype(np.uint16), kind="stable")
    return order.take(np.argsort(hashes.take(order), kind="stable"))


def elements(name: str, size: int) -> list[str]:
    """Return the names of a column's elements; of a column of one value a row, its own."""
    return [name] if size == 1 else [f"{name}[{i}]" for i in range(size)]


class Sample:
    """The rows whose hashes are multiples of `step`: the same objects in every release.

    Each has its numbers, of which a column has so many (`sizes`), and what models read of it: `read` and `catalogs`
    have the rows of each batch, and whose they are; "part" and "at" are a row's place there.
    """

    def __init__(self, sizes: Mapping[str, int], *, n_rows: int = 0, step: int = 0) -> None:
        self.sizes = sizes
        self.names = [e for name, size in sizes.items() for e in elements(name, size)]
        self.step = np.uint64(step or max(1, n_rows // SAMPLE_ROWS))
        self.parts: list[dict[str, Array]] = []
        self.read: list[pa.RecordBatch] = []
        self.catalogs: list[Catalog] = []

    def add(
        self,
        batch: pa.RecordBatch,
        rows: Mapping[str, Array],
        file: int,
        read: pa.RecordBatch,
        catalog: Catalog,
    ) -> None:
        """Add the rows of a batch that belong to the sample; `read` has the columns that models read, of `catalog`."""
        chosen = np.flatnonzero(rows["hash"] % self.step == 0)
        index, n = pa.array(chosen), len(chosen)
        part = {name: np.full(n, np.nan) for name in self.names}
        for name in self.sizes.keys() & {*batch.schema.names}:
            values = floats(batch.column(name).take(index))
            matrix = np.where(np.isfinite(values), values, np.nan).reshape(n, -1).T
            part |= dict(zip(elements(name, self.sizes[name]), matrix, strict=False))
        part |= {name: rows[name][chosen] for name in ("hash", "class")}
        part["cell"] = cells_of(rows["ra"][chosen], rows["dec"][chosen])
        part |= {"file": np.full(n, file), "part": np.full(n, len(self.parts)), "at": np.arange(n)}
        self.parts.append(part)
        self.read.append(read.take(index))
        self.catalogs.append(catalog)

    def columns(self) -> dict[str, Array]:
        """Return the sample, in the order of the hashes, each once."""
        kinds = {"hash": np.uint64, **dict.fromkeys(("cell", "class", "file", "part", "at"), np.int64)}
        whole = {
            name: np.concatenate(
                [np.empty(0, kinds.get(name, np.float64)), *(part[name] for part in self.parts)]
            )
            for name in (*kinds, *self.names)
        }
        _, first = np.unique(whole["hash"], return_index=True)
        return {name: values[first] for name, values in whole.items()}


def report_repeated(ledger: Ledger, files: Sequence[str], findings: Findings, name: str) -> None:
    """Report identifiers that occur more than once."""
    findings.ran(name, f"{ledger.n:,} identifiers, each once")
    repeated: dict[int, list[int]] = {}
    first: dict[int, str] = {}
    for rows in ledger.buckets():
        twice = np.flatnonzero(rows["hash"][1:] == rows["hash"][:-1])
        for before, again in zip(rows[twice], rows[twice + 1], strict=True):
            repeated.setdefault(int(again["file"]), []).append(int(again["row"]))
            first.setdefault(int(again["file"]), f"row {before['row']:,} of {files[before['file']]}")
    for file, again in repeated.items():
        said = f"{len(again):,} identifiers are there again, such as that of {first[file]}"
        findings.stop(name, said, files[file], "", len(again), 0, "all identifiers", rows=sorted(again))


def report_other_rows(
    ledger: Ledger, other: Ledger, files: Sequence[str], others: Sequence[str], findings: Findings, name: str
) -> None:
    """Report identifiers that one of two ledgers lacks; `other` has what should be there."""
    alone: dict[tuple[bool, int], list[int]] = {}
    for here, there in zip(ledger.buckets(), other.buckets(), strict=True):
        for rows, of, lost in ((there, here, True), (here, there, False)):
            for row in rows[~places_of(rows["hash"], of["hash"])[1]]:
                alone.setdefault((lost, int(row["file"])), []).append(int(row["row"]))
    for (lost, file), numbers in alone.items():
        words = "that must be there are not" if lost else "are not among those that must be there"
        said, place = f"{len(numbers):,} identifiers {words}", (others if lost else files)[file]
        findings.stop(name, said, place, "", len(numbers), 0, name, rows=sorted(numbers))


def outlying(values: Floats, errors: Floats, *, tests: int, floor: float) -> Array:
    """Return which groups (G,) are unlike the others, by more than `floor`.

    The scatter is the errors' and that of the groups; `tests` is how many groups are looked at in all.
    """
    centre = float(np.median(values)) if len(values) >= 4 else 0.0
    scatter = SIGMA * float(np.median(np.abs(values - centre))) if len(values) >= 4 else 0.0
    away = np.abs(values - centre)
    return (away > -ndtri(ALARMS / (2 * max(1, tests))) * np.hypot(errors, scatter)) & (away > floor)


class Differences:
    """What differs from the last release, by file of the new one or of the old one; `whole` are columns of integers.

    `examples` are those whose probability changed most among the objects with another class: file, row, the classes
    before and now by number, and the change.
    """

    def __init__(
        self,
        files: Sequence[str],
        old_files: Sequence[str],
        whole: frozenset[str],
        findings: Findings,
        source: str,
    ) -> None:
        self.files, self.old_files, self.whole = files, old_files, whole
        self.findings, self.source = findings, source
        self.compared = 0
        self.transitions: Counter[tuple[int, int]] = Counter()
        self.examples: list[tuple[int, int, int, int, float]] = []
        self.seen, self.changed = np.zeros(len(files)), dict[tuple[str, str, str], Array]()
        self.moved: dict[int, tuple[int, float, list[int]]] = {}
        self.texts: dict[str, list[tuple[int, int, int, int]]] = {}
        self.old_rows, self.old_gone = np.zeros(len(old_files)), np.zeros(len(old_files))

    def match(self, new: Ledger, old: Ledger) -> None:
        """Match two releases by identifier; report positions that moved, and count what changed."""
        self.findings.ran("positions", "every object of the last release is where it was")
        for here, there in zip(new.buckets(), old.buckets(like=new), strict=True):
            ours, theirs = here["hash"].copy(), there["hash"].copy()  # beside each other, which is faster
            place, both = places_of(ours, theirs)
            both[1:] &= ours[1:] != ours[:-1]  # of repeated identifiers, the first
            gone = ~places_of(theirs, ours)[1]
            self.old_rows += np.bincount(there["file"], minlength=len(self.old_files))
            self.old_gone += np.bincount(there["file"][gone], minlength=len(self.old_files))
            a, b = here.take(np.flatnonzero(both)), there.take(place[both])
            self._count(a, b)
            self._note_moved(a, b)
        for file, (n, farthest, rows) in self.moved.items():
            said = f"{n:,} objects have another position than before, up to {farthest:,.0f}″ away"
            where = (self.files[file], "", farthest, ARCSECONDS, "the last release")
            self.findings.stop("positions", said, *where, rows=rows)

    def _count(self, a: Array, b: Array) -> None:
        """Count rows of the new release, `a` (n,), beside the same objects of the old one, `b` (n,)."""
        self.compared += len(a)
        self.seen += np.bincount(a["file"], minlength=len(self.files))
        flips = a["class"] != b["class"]
        changes = {("class changes", "", "objects have another class"): a["file"][flips]}
        other = np.flatnonzero(a["flags"] != b["flags"])
        files, now, was = a["file"][other], a["flags"][other], b["flags"][other]
        for flag in FLAG_MEANINGS:
            for verb, mine in (("gained", now & ~was), ("lost", was & ~now)):
                key = ("flag changes", str(flag.name), f"objects {verb} the flag {flag.name}")
                changes[key] = files[mine & int(flag) > 0]
        for key, of in changes.items():
            counts = np.bincount(of, minlength=len(self.files))
            self.changed[key] = self.changed.get(key, 0) + counts
        self.transitions.update(zip(b["class"][flips].tolist(), a["class"][flips].tolist(), strict=True))
        a, b = a[flips], b[flips]
        moved = np.abs(np.nan_to_num(a["p"] - b["p"]).astype(float))
        for k in np.argsort(-moved, kind="stable")[:MOST_EXAMPLES].tolist():
            numbers = (a["file"][k], a["row"][k], b["class"][k], a["class"][k])
            self.examples.append((*map(int, numbers), round(float(moved[k]), 4)))  # type: ignore[arg-type]
        self.examples = sorted(self.examples, key=lambda one: -one[-1])[:MOST_EXAMPLES]

    def _note_moved(self, a: Array, b: Array) -> None:
        """Note by file how many objects moved, how far the farthest did, and in which rows they are."""
        dra = np.abs(a["ra"] - b["ra"]) % 360
        dra = np.minimum(dra, 360 - dra) * np.cos(np.radians(np.clip(b["dec"], -90, 90)))
        far = np.hypot(dra, a["dec"] - b["dec"]) * 3600
        a, far = a[far > ARCSECONDS], far[far > ARCSECONDS]
        for file in np.unique(a["file"]).tolist():
            n, farthest, rows = self.moved.get(file, (0, 0.0, []))
            mine = a["file"] == file
            rows = sorted([*rows, *a["row"][mine].tolist()])[:MOST_ROWS]
            self.moved[file] = n + int(mine.sum()), max(farthest, float(far[mine].max())), rows

    def compare_texts(
        self, file: int, now: tuple[Array, pa.RecordBatch], was: tuple[Array, pa.RecordBatch]
    ) -> None:
        """Compare the texts of objects among the first rows of a file, which have hashes; report those cut short."""
        _, i, j = np.intersect1d(now[0], was[0], return_indices=True)
        for name in now[1].schema.names if len(i) >= 2 * LEAST_IN_GROUP else ():
            a, b = (
                _as_texts(batch.column(name)).take(pa.array(rows))
                for batch, rows in ((now[1], i), (was[1], j))
            )
            changed = pc.not_equal(a, b)
            new, old = a.filter(changed), b.filter(changed)
            pairs = [*zip(new[:MOST_CHANGED].to_pylist(), old[:MOST_CHANGED].to_pylist(), strict=True)]
            cut = [
                f"'{before}' became '{text}'" for text, before in pairs if text and before.startswith(text)
            ]
            if len(cut) >= max(5, len(pairs) / 2):
                said = f"{len(cut):,} of {len(i):,} texts of '{name}' are cut short: {cut[0]}"
                self._note("values", said, "file", file, name, len(cut), 5)
            of_others = pc.sum(pc.is_in(new, value_set=b.unique())).as_py() or 0
            self.texts.setdefault(name, []).append((file, len(i), len(new), of_others))

    def report_texts(self) -> None:
        """Report columns of texts that changed, and files that stand out; texts of other objects are faults."""
        for name, counts in self.texts.items():
            files, n, changed, of_others = np.array(counts).T
            share, shares, middle = changed.sum() / n.sum(), changed / n, _median(changed / n)
            said = f"{share:.1%} of the texts of '{name}' are other ones than in the last release"
            self.findings.graded("values", said, "", name, share, (0.05, np.inf), self.source)
            errors = np.sqrt(np.maximum(shares * (1 - shares), 1 / n) / n)
            far = outlying(shares, errors, tests=len(n) * len(self.texts), floor=CHANGED)
            for g in np.flatnonzero(far & (shares > middle + CHANGED)).tolist():
                said = f"{shares[g]:.1%} of the texts of '{name}' are other ones, elsewhere {middle:.1%}"
                swapped = of_others[g] > 0.8 * changed[g]
                said += "; they are those of other objects" if swapped else ""
                place = (self.files[files[g]], name, shares[g], middle + CHANGED, self.source)
                self.findings.add("stop" if swapped else "look", "values", said, *place)

    def report(self, classes: Sequence[str]) -> dict[str, Any]:
        """Report what changed by field: objects that vanished, classes, flags; return what `Checked` has of it."""
        n, findings, source = self.compared, self.findings, self.source
        findings.ran("objects", f"all of the {n:,} objects of the last release are here")
        for g in np.flatnonzero(self.old_gone).tolist():
            gone, rows = self.old_gone[g], self.old_rows[g]
            verdict: Verdict = "stop" if gone > max(3, 0.05 * rows) else "look"
            said = f"{gone:,.0f} of {rows:,.0f} objects of the last release are not here"
            findings.add(verdict, "objects", said, self.old_files[g], "", gone / rows, 0.05, source)
        if n:
            self._report_changes(classes)
        else:
            findings.look("objects", "no object of the last release is here", "", "", 0, 0, source)
        names = ("", *classes)
        return {
            "compared": n,
            "class_changed": self.transitions.total(),
            "transitions": tuple(
                Transition(was=names[was], now=names[now], objects=k)
                for (was, now), k in self.transitions.most_common()
            ),
            "examples": tuple(
                MovedObject(
                    file=self.files[file], id=f"row {row}", was=names[was], now=names[now], moved=moved
                )
                for file, row, was, now, moved in self.examples
            ),
        }

    def _report_changes(self, classes: Sequence[str]) -> None:
        """Report changes of classes and flags, in the whole release and in files that are unlike the others."""
        n, flipped = self.compared, self.transitions.total()
        said = f"{flipped:,} of {n:,} objects have another class ({flipped / n:.2%})"
        self.findings.ran("class changes", said)
        self.findings.ran("flag changes", "no field gained or lost flags beyond the others")
        names = ("no class", *classes)
        moves = "; ".join(f"{names[a]} to {names[b]}: {k:,}" for (a, b), k in self.transitions.most_common(4))
        for (check, flag, words), counts in self.changed.items():
            share = float(counts.sum() / n)
            more, limits = ("", (0.1, 0.4)) if flag else (f": {moves}", (0.05, 0.3))
            said = f"{share:.1%} of the {words}{more}"
            self.findings.graded(check, said, "", flag, share, limits, self.source)
        known = np.flatnonzero(self.seen >= 5)
        for (check, flag, words), counts in self.changed.items():
            shares, seen = counts[known] / self.seen[known], self.seen[known]
            errors = np.sqrt(np.maximum(shares * (1 - shares), 1 / seen) / seen)
            middle, tests = _median(shares), len(known) * len(self.changed)
            far = outlying(shares, errors, tests=tests, floor=CHANGED) & (shares > middle)
            for g in np.flatnonzero(far).tolist():
                said = f"{shares[g]:.1%} of the {seen[g]:,.0f} {words}, elsewhere {middle:.1%}"
                where = (self.files[known[g]], flag, shares[g], middle + CHANGED, self.source)
                self.findings.stop(check, said, *where)

    def same_objects(
        self,
        new: Mapping[str, Array],
        old: Mapping[str, Array],
        names: Sequence[str],
        positions: Sequence[str],
    ) -> None:
        """Compare the values of the same objects; of positions, with how many digits they are written."""
        _, i, j = np.intersect1d(new["hash"], old["hash"], return_indices=True)
        self.findings.ran("values", f"{len(names)} columns of {len(i):,} objects agree with the last release")
        self.findings.ran("missing values", "no field lacks values that the last release had")
        if len(i) < 20:
            return
        groups = {"file": new["file"][i].astype(np.int64), "cell": new["cell"][i].astype(np.int64)}
        tests = len(names) * sum(len(np.unique(codes)) for codes in groups.values())
        for name in (*names, *positions):
            self._rounded(name, new[name][i], old[name][j], groups["file"])
        for name in names:
            a, b = new[name][i], old[name][j]
            self._missing(name, a, b, groups, tests)
            both = np.isfinite(a) & np.isfinite(b)
            if both.sum() >= 20:
                kept = {what: codes[both] for what, codes in groups.items()}
                self._values(name, a[both], b[both], kept, tests)
                self._other_values(name, a[both] != b[both], kept["file"], tests)

    def _rounded(self, name: str, a: Floats, b: Floats, files: Array) -> None:
        """Report numbers in double precision that became those of single precision."""
        known = np.isfinite(a) & np.isfinite(b)
        with np.errstate(over="ignore"):
            single = [(x[known].astype(np.float32) == x[known]).astype(float) for x in (a, b)]
        (now, _, labels), (was, _, _) = (_group_means(x, files[known]) for x in single)
        for g in np.flatnonzero((now > 0.99) & (was < 0.5)).tolist():
            said = f"'{name}' has lost digits: {now[g]:.0%} of its values are of single precision, were {was[g]:.0%}"
            self._note("values", said, "file", labels[g], name, now[g], 0.99)

    def _missing(self, name: str, a: Floats, b: Floats, groups: Mapping[str, Array], tests: int) -> None:
        """Report values that the last release had and this one lacks, and missing ones that became one number."""
        gone, came = np.isnan(a) & ~np.isnan(b), ~np.isnan(a) & np.isnan(b)
        net, check = gone.astype(float) - came, "missing values"
        lost = f"of the values of '{name}' that were there are missing"
        share = max(0.0, float(net.mean()))
        self.findings.graded(check, f"{share:.1%} {lost}", "", name, share, (0.02, 0.1), self.source)
        for what, codes in groups.items():
            values, n, labels = _group_means(net, codes)
            errors, middle = np.sqrt(np.maximum(np.abs(values), 1 / n) / n), _median(values)
            far = outlying(values, errors, tests=tests, floor=0.05) & (values > middle)
            for g in np.flatnonzero(far).tolist():
                said = f"{values[g]:.1%} {lost}, elsewhere {middle:.1%}"
                self._note(check, said, what, labels[g], name, values[g], 0.05)
        filled, times = np.unique(a[came], return_counts=True)
        k = int(times.argmax()) if len(times) else 0
        if len(times) and times[k] >= max(5, 0.2 * np.isnan(b).sum()):
            file = int(groups["file"][came & (a == filled[k])][0])
            said = f"{times[k]:,} values of '{name}' that were missing are now {filled[k]:g}"
            self._note(check, said, "file", file, name, times[k], 5)

    def _values(self, name: str, a: Floats, b: Floats, groups: Mapping[str, Array], tests: int) -> None:
        """Report a column whose values moved, spread or wrapped, in all or in some groups."""
        wrapped = np.isin(np.abs(a - b), [2.0**8, 2.0**16, 2.0**32]) & (name in self.whole)
        if wrapped.any():
            k = int(np.flatnonzero(wrapped)[0])
            said = f"{wrapped.sum():,} values of '{name}' overflowed: {b[k]:,.0f} became {a[k]:,.0f}"
            self._note("values", said, "file", groups["file"][k], name, wrapped.sum(), 0)
            return
        low, high = np.quantile(b, [0.25, 0.75])
        scale = (high - low) / 1.349 or float(b.std()) or max(abs(float(b[0])), 1.0)
        moved = np.clip((a - b) / scale, -FARTHEST, FARTHEST)
        middle = float(np.median(moved))
        spread = SIGMA * float(np.median(np.abs(moved - middle)))
        said = f"'{name}' moved by {middle:+.2f} spreads: its median is {np.median(a):.4g}, was {np.median(b):.4g}"
        wrong = self.findings.graded("values", said, "", name, middle, (0.1, 0.5), self.source)
        said = f"'{name}' of the same objects differs by {spread:.2f} of its spread, up and down"
        if wrong or self.findings.graded("values", said, "", name, spread, (0.3, 0.6), self.source):
            return
        for what, codes in groups.items():
            values, widths, errors, n, labels = _group_medians(moved, codes)
            far, near = (outlying(values, 1.253 * errors, tests=tests, floor=floor) for floor in (0.15, 0.05))
            for g in np.flatnonzero(near).tolist():
                said = f"'{name}' of {n[g]:,.0f} objects moved by {values[g]:+.2f} spreads, elsewhere {middle:+.2f}"
                verdict: Verdict = "stop" if far[g] else "look"
                limit = 0.15 if far[g] else 0.05
                self._note("values", said, what, labels[g], name, values[g], limit, verdict=verdict)
            wide = outlying(widths, widths / np.sqrt(n), tests=tests, floor=0.4) & (widths > spread)
            for g in np.flatnonzero(wide).tolist():
                said = f"'{name}' of {n[g]:,.0f} objects differs by {widths[g]:.2f} spreads, elsewhere {spread:.2f}"
                self._note("values", said, what, labels[g], name, widths[g], 0.4)

    def _other_values(self, name: str, changed: Array, files: Array, tests: int) -> None:
        """Report files whose values changed where those of most files did not, if no other finding names them."""
        shares, n, labels = _group_means(changed.astype(float), files)
        errors, middle = np.sqrt(np.maximum(shares * (1 - shares), 1 / n) / n), _median(shares)
        far = outlying(shares, errors, tests=tests, floor=CHANGED) & (shares > middle)
        named = {(c.field, c.file) for c in self.findings.found}
        for g in np.flatnonzero(far).tolist():
            if not {(name, self.files[labels[g]]), (name, "")} & named:
                said = f"{shares[g]:.1%} of the values of '{name}' are other ones, elsewhere {middle:.1%}"
                limit = middle + CHANGED
                self._note("values", said, "file", labels[g], name, shares[g], limit, verdict="look")

    def new_objects(self, new: Mapping[str, Array], old: Mapping[str, Array], names: Sequence[str]) -> None:
        """Report fields of new objects whose medians lie beyond the last release's values, or that lack a column."""
        fresh, check = ~np.isin(new["hash"], old["hash"]), "new objects"
        self.findings.ran(check, f"{fresh.sum():,} new objects of the sample are like the last release's")
        codes = new["file"][fresh].astype(np.int64)
        for name in names:
            values, before = new[name][fresh], old[name][np.isfinite(old[name])]
            if len(before) < 50:
                continue
            ends, known = np.quantile(before, [0.02, 0.98]), np.isfinite(values)
            medians, _, _, n, labels = _group_medians(values[known], codes[known])
            for g in np.flatnonzero(((medians < ends[0]) | (medians > ends[1])) & (n >= 20)).tolist():
                said = f"the median of '{name}' of {n[g]:,.0f} new objects is {medians[g]:.4g}, beyond 96 % of before"
                self._note(check, said, "file", labels[g], name, medians[g], ends[int(medians[g] > ends[1])])
            shares, n, labels = _group_means((~known).astype(float), codes)
            earlier = 1 - len(before) / max(1, len(old[name]))
            for g in np.flatnonzero((shares > 0.95) & (n >= 20) & (earlier < 0.5)).tolist():
                said = f"{shares[g]:.0%} of the values of '{name}' of new objects are missing, before {earlier:.0%}"
                self._note(check, said, "file", labels[g], name, shares[g], 0.95)

    def _note(
        self, check: str, said: str, what: str, label: int, *about: Any, verdict: Verdict = "stop"
    ) -> None:
        """Note a fault, or what to look at, in a file or in a HEALPix cell: the column, the number and its limit."""
        place = self.files[label] if what == "file" else f"HEALPix cell {label}"
        where: tuple[Any, ...] = (place, *about, self.source)
        self.findings.add(verdict, check, said, *where)


def report_shares(profile: Profile, before: Profile, findings: Findings, source: str) -> None:
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
        far = outlying(change, errors, tests=len(cells) * len(profile.classes), floor=0.25)
        for g in np.flatnonzero(far).tolist():
            said = f"{shares[g]:.0%} of {n[g]:,.0f} objects are {of}, were {earlier[g]:.0%}"
            findings.graded(name, said, f"HEALPix cell {cells[g]}", of, float(change[g]), (0.25, 0.5), source)


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else 0.0


def _group_means(values: Floats, codes: Array) -> tuple[Floats, Floats, list[int]]:
    """Return the mean (G,) of each group of ten or more, the numbers of values, and the groups' codes."""
    inside = codes >= 0
    n = np.bincount(codes[inside])
    labels = np.flatnonzero(n >= LEAST_IN_GROUP)
    sums = np.bincount(codes[inside], weights=values[inside], minlength=len(n))
    return sums[labels] / n[labels], n[labels].astype(float), labels.tolist()


def _group_medians(values: Floats, codes: Array) -> tuple[Floats, Floats, Floats, Floats, list[int]]:
    """Return the median (G,) of each group of ten or more, its spread, the mean's error, numbers, and codes."""
    n = np.bincount(codes + 1)[1:]  # a code below 0 is of no group
    kept = (codes >= 0) & (n[codes] >= LEAST_IN_GROUP)
    labels, group, n = np.unique(codes[kept], return_inverse=True, return_counts=True)
    values, first = values[kept], np.cumsum(n) - n

    order = np.argsort(group, kind="stable")

    def medians(x: Floats) -> Floats:
        ordered = x.take(order)
        for part in np.split(ordered, first[1:]):
            part.sort()  # in its place
        return np.asarray((ordered[first + (n - 1) // 2] + ordered[first + n // 2]) / 2)

    middle = medians(values)
    spread = SIGMA * medians(np.abs(values - middle[group]))
    mean = np.bincount(group, weights=values, minlength=len(n)) / n
    squares = np.bincount(group, weights=(values - mean[group]) ** 2, minlength=len(n))
    return middle, spread, np.sqrt(squares) / n, n.astype(float), labels.tolist()


def cells_of(ra: Floats, dec: Floats) -> NDArray[np.int64]:
    """Return the HEALPix cells (n,) in which values are compared; -1 where there is no position."""
    with np.errstate(invalid="ignore"):  # of infinite ones
        return healpix_pixels(ra % 360, dec, CELL_ORDER)


def floats(column: pa.Array) -> Floats:
    """Return numbers, (n,) or (n, k), in double precision, NaN where they are missing; times count their units."""
    if pt.is_temporal(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return np.ma.filled(np.ma.asanyarray(column_values(column)).astype(np.float64), np.nan)
