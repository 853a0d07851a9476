"""The objects of annotated files as reviews and audits read them, and the lists of some of them that people fill in.

A list is a VOTable and a CSV file with an empty column for the answer, and a page with links to sky surveys.
Shapes: n rows, K classes, D dimensions.
"""

from __future__ import annotations

import base64
import csv
import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from blr.arrays import Floats, Places
from blr.decisions import FLAG_MEANINGS
from catalogs.arrays import batch_values, plain_texts
from catalogs.catalog.new_columns import NewColumn, safe_name
from catalogs.errors import CatalogError, ColumnNotFoundError
from catalogs.expressions.expression import MISSING, Bins, Expression, even_edges, names_between
from catalogs.files import atomic_write_text
from catalogs.formats import open_annotated
from catalogs.metadata.votable_fields import field_xml
from catalogs.sky.positions import PositionUnit, positions, survey_links
from flows.documents import script, template, word_table
from flows.errors import UsageError
from flows.labels.reader import MARK, harmless, list_hash, list_mark, require_exact
from flows.runs.manifest import Manifest, identifier_column, is_labelled

REVIEW: Final = "review"
AUDIT_LIST: Final = "audit"
OUTLIERS: Final = "outliers"
LISTS: Final = word_table("lists.toml")
AUDIT_TITLE: Final = "Audit of {}"  # of the list of a model's audit
DIGITS: Final = frozenset("0123456789")
ListedObject = dict[str, Any]
"""One row: `name`, and the columns of its list."""


def check_unanswered(folder: Path, name: str) -> None:
    """Raise UsageError where a list of that name has answers, which another list would overwrite."""
    path = folder / f"{name}.csv"
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace", newline="") as stream:
        answered = sum(bool((row.get("label") or "").strip()) for row in csv.DictReader(stream))
    if answered:
        raise UsageError(
            f"{path}: got a list with {answered} answers, which would be overwritten; move it to another folder first"
        )


def write_list(
    name: str, rows: Sequence[ListedObject], folder: Path, identifier: str, classes: Sequence[str], title: str
) -> list[Path]:
    """Write a list as CSV, VOTable and HTML, each whole or not at all; return where they are."""
    columns, kinds = LISTS[name]["columns"], LISTS["kinds"]
    key = "id" if identifier in {*columns, MARK, "label"} else identifier
    labels = [*classes, *LISTS[name]["no_class"]]
    # The key that chooses a label is its number or, where labels are digits, the digit itself.
    if any(label in DIGITS for label in labels):
        keys = [label if label in {*DIGITS, "?"} else "" for label in labels]
    else:
        keys = [str(number) if number <= 9 else "" for number in range(1, len(labels) + 1)]
    names = [key, *columns, MARK, "label"]
    asked = list_hash(title, [row["name"] for row in rows])
    values = [[row["name"], *(row[c] for c in columns), list_mark(asked, row["name"]), ""] for row in rows]
    cells = [[_cell(value) for value in row] for row in values]
    paths = [folder / f"{name}.{ending}" for ending in ("csv", "vot", "html")]
    lines = (",".join(map(_quoted, line)) for line in (names, *cells))
    atomic_write_text(paths[0], "".join(f"{line}\n" for line in lines))
    types = [pa.type_for_alias(kinds.get(column, "float64")) for column in columns]
    types = [pa.string(), *types, pa.string(), pa.string()]
    atomic_write_text(paths[1], _votable(dict(zip(names, types, strict=True)), values))
    html = template(f"{name}.html.j2").render(
        script("labelling.js"),
        title=title,
        key=key,
        list=asked,
        columns=names,
        file=f"{name}-answers.csv",
        classes=classes,
        options=dict(zip(labels, keys, strict=True)),
        rows=[(r, c, survey_links(r["ra"], r["dec"])) for r, c in zip(rows, cells, strict=True)],
    )
    atomic_write_text(paths[2], html)
    return paths


def _votable(columns: Mapping[str, pa.DataType], rows: Sequence[Sequence[Any]]) -> str:
    """Return a VOTable of columns with these types, in BINARY2: astropy's writer is slow to import."""

    def stored(value: Any, of: pa.DataType) -> bytes:
        if of != pa.string():
            return struct.pack(">d" if of == pa.float64() else ">q", value)
        text = value.encode("utf-16-be", "replace")
        return struct.pack(">I", len(text) // 2) + text

    described = (NewColumn(name, of, description=LISTS["meanings"].get(name)) for name, of in columns.items())
    fields = "".join(f"{field_xml(column, '')}\n" for column in described)
    no_nulls = bytes(-(-len(columns) // 8))
    cells = (no_nulls + b"".join(map(stored, row, columns.values())) for row in rows)
    stream = base64.b64encode(b"".join(cells)).decode()
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<VOTABLE version="1.3" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">\n<RESOURCE type="results">\n'
        f'<TABLE nrows="{len(rows)}">\n{fields}<DATA><BINARY2><STREAM encoding="base64">{stream}</STREAM></BINARY2>'
        "</DATA>\n</TABLE>\n</RESOURCE>\n</VOTABLE>\n"
    )


def _cell(value: object) -> str:
    """Return a value as CSV has it; a text is made harmless, a number that is not known is blank."""
    if isinstance(value, str):
        return harmless(value)
    return "" if isinstance(value, float) and math.isnan(value) else str(value)


def _quoted(cell: str) -> str:
    """Return a cell in quotation marks where it needs them; `csv` leaves a CR alone, which ends a line elsewhere."""
    return '"' + cell.replace('"', '""') + '"' if any(c in cell for c in ',"\r\n') else cell


SCORES = ("class", "mutual_info", "flags")
MOST_KINDS = 20  # most bins of an expression whose values are texts or conditions
SAMPLED = 100_000  # values from which the edges between bins of as many objects are estimated


class ObjectRows:
    """Classified rows of a batch: texts and numbers, (n,) each, probabilities (n, K), and the place of the class given.

    `by` has the values of an expression, where they were asked for.
    """

    def __init__(self, table: ObjectTable, batch: pa.RecordBatch, labelled: pa.Array | None) -> None:
        """Take the rows that have a class, without those of objects that are `labelled`."""
        values, place = batch_values(batch, table.plain), table.place
        require_exact(values[table.identifier], f"{table.catalog.path}: --id", table.identifier)
        names = plain_texts(values[table.identifier])
        p = np.column_stack([np.asarray(values[name], dtype=np.float64) for name in table.chances])
        kept = np.isfinite(p).all(axis=1)
        if labelled is not None:
            kept &= ~is_labelled(names, labelled)
        at = positions(values[place[0]][kept], values[place[1]][kept], place[2]) if place else None
        classes, information, flags = (values[table.prefix + name][kept] for name in SCORES)
        index = {name: k for k, name in enumerate(table.classes)}
        given = np.array([index.get(name, -1) for name in plain_texts(classes).tolist()], dtype=np.intp)
        nowhere = np.full(len(given), np.nan)
        self.classes, self.names = table.classes, names[kept]
        self.ra: Floats = at.ra if at else nowhere
        self.dec: Floats = at.dec if at else nowhere
        self.given: Places = np.where(given < 0, p[kept].argmax(axis=1), given)
        self.probability: Floats = p[kept]
        self.information: Floats = np.maximum(np.asarray(information, dtype=np.float64), 0.0)
        self.flags = np.asarray(flags, dtype=np.int64)
        self.rest = batch.filter(pa.array(kept))
        self.by: NDArray[Any] | None = None

    def places(self, bins: Bins) -> Places:
        """Return the bin (n,) of each row."""
        if self.by is None:
            return np.zeros(len(self.given), dtype=np.intp)
        return bins.places(self.by if bins.kinds else np.asarray(self.by, dtype=np.float64))

    def taken(self, rows: Places) -> ObjectRows:
        """Return some of the rows, with what lists say of them and no other columns."""
        some = copy(self)
        for name in ("names", "ra", "dec", "given", "probability", "information", "flags"):
            setattr(some, name, getattr(self, name)[rows])
        some.by = some.rest = None
        return some

    def listed(self, i: int, **more: Any) -> ListedObject:
        """Return what lists say of a row."""
        p, flags = self.probability[i], int(self.flags[i])
        second = int(np.argsort(p, kind="stable")[-2])
        return {
            "name": str(self.names[i]),
            "ra": float(self.ra[i]),
            "dec": float(self.dec[i]),
            "class_given": self.classes[self.given[i]],
            "p_max": float(p.max()),
            "runner_up": self.classes[second],
            "p_runner_up": float(p[second]),
            "mutual_info": float(self.information[i]),
            "flags": flags,
            "flag_names": ", ".join(str(flag.name) for flag in FLAG_MEANINGS if flags & int(flag.value)),
            **more,
        }


class ObjectTable:
    """An annotated catalogue, with the column `identifier` that says which object a row is of.

    `place` names the columns of positions and their unit; `remark` says why it has no positions.
    """

    def __init__(self, path: Path, manifest: Manifest, identifier: str | None) -> None:
        """Open a catalogue; UsageError where no column names an object."""
        self.classes, self.prefix = tuple(manifest.classes), manifest.prefix or ""
        self.catalog, known = open_annotated(path, self.prefix), manifest.position
        self.identifier = identifier_column(self.catalog, asked=identifier, stated=known.id, option="--id")
        self.chances = [f"{self.prefix}p_{safe_name(name)}" for name in self.classes]
        self.place: tuple[str, str, PositionUnit] | None = None
        try:
            self.place = known.place(self.catalog)
            self.remark = "" if self.place else f"{self.catalog.path}: no columns of positions, so no links"
        except CatalogError as error:  # a list without links is useful; a link to the wrong place is not
            self.remark = f"no links: {error}, then train and classify again"
        scores = [self.prefix + name for name in SCORES]
        self.plain = dict.fromkeys([self.identifier, *(self.place or ())[:2], *scores, *self.chances])

    def rows(
        self, *, by: Expression | None = None, also: Sequence[str] = (), labelled: pa.Array | None = None
    ) -> Iterator[ObjectRows]:
        """Yield the rows that have a class, batch by batch, without those of objects that are `labelled`.

        `also` are further columns of `rest`.  UsageError where a column of the expression is not there.
        """
        if by is not None:
            try:
                by.check_names(self.catalog.names)
            except ColumnNotFoundError as error:
                raise UsageError(
                    f"--by: {self.catalog.path}: {error}; slim copies have identifier, position and new columns only; "
                    'write full copies with mode = "annotated" under [output]'
                ) from error
        wanted = [*self.plain, *(by.names if by else ()), *also]
        for batch in self.catalog.batches(list(dict.fromkeys(wanted))):
            rows = ObjectRows(self, batch, labelled)
            rows.by = by.evaluate_batch(rows.rest) if by else None
            yield rows


def object_tables(folder: Path, manifest: Manifest, identifier: str | None) -> list[ObjectTable]:
    """Return the catalogues of a folder, each row once: margins of HATS repeat objects of the other files."""
    names = [output.name for output in manifest.outputs if output.summary.counted]
    return [ObjectTable(folder / name, manifest, identifier) for name in names]


class RandomSample:
    """A random sample of the rows that went by, at most so many, as `values` (n, ...)."""

    def __init__(self, most: int, rng: np.random.Generator) -> None:
        self._most, self._rng, self._keys = most, rng, np.empty(0)
        self.values: Floats = np.empty(0)

    def add(self, values: Floats) -> None:
        """Take the rows (n, ...) of a batch."""
        keys = np.concatenate([self._keys, self._rng.random(len(values))])
        both = np.concatenate([self.values, values]) if len(self._keys) else values
        kept = np.argsort(keys, kind="stable")[: self._most]
        self._keys, self.values = keys[kept], both[kept]


class ValueSample:
    """Values of an expression that went by: how often each text, or a random sample of the numbers."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.numbers, self.kinds, self.n_missing = RandomSample(SAMPLED, rng), Counter[str](), 0

    def add(self, values: NDArray[Any]) -> None:
        """Take the values of a batch (n,)."""
        if values.dtype.kind in "fiu":
            numbers = np.asarray(values, dtype=np.float64)
            known = np.isfinite(numbers)
            self.n_missing += int(np.count_nonzero(~known))
            self.numbers.add(numbers[known])
            return
        self.kinds.update(text or MISSING for text in plain_texts(values).tolist())
        if len(self.kinds) > MOST_KINDS:
            raise UsageError(
                f"--by: got an expression with more than {MOST_KINDS} different texts, expected a number, a "
                "condition, or a few texts; group them in a condition such as field in ['A', 'B']"
            )


ALL: Final = Bins(("",))  # the one bin of all rows, where there is no expression


def bins_of(text: str, sample: ValueSample, n: int, edges: Sequence[float] | None) -> Bins:
    """Return `n` bins of about as many objects each, or those between the edges; UsageError where there is one."""
    if sample.kinds:
        kinds = tuple(sorted(sample.kinds))
        return Bins(tuple(f"{text}: {kind}" for kind in kinds), (), kinds)
    edges = even_edges(sample.numbers.values, n) if edges is None else tuple(edges)
    names = names_between(edges, text)
    if len(set(names)) < 2:
        raise UsageError(
            f"--by: got '{text}', which has the same value in all rows, expected an expression that "
            "varies; leave --by out"
        )
    return Bins((*names, *([f"{text}: {MISSING}"] if sample.n_missing else [])), edges)
