"""Where a row's label comes from: a column, a separate table joined by identifier or position, or a review's answers.

A label table becomes a file of SQLite, which is made once and then read by any number of processes without locks.
Rows are joined batch by batch: a join reads the identifiers that it is asked for, or the pixels of its rows with their
neighbours.  An object that a table labels twice, differently, has a conflict: it is reported, and has no label.  What
came back from review (`flows.labels.reader`) replaces what the catalogue says.  Before any row is kept, labels are
counted as they are found, and rows of one name with several classes are looked for.
Shapes: n rows of a batch, L labels.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from heapq import merge
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from urllib.parse import quote
from weakref import finalize

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import catalogs
from catalogs.arrays import batch_values, hashed, plain_texts
from catalogs.catalog.catalog import BATCH_ROWS, Catalog
from catalogs.catalog.new_columns import standard_columns
from catalogs.errors import NameClashError, brief, nearest
from catalogs.files import StorageError
from catalogs.profile.split import healpix_pixels, with_neighbouring_pixels
from catalogs.sky.positions import PositionUnit, match_positions, near_others, positions, unit_of_position
from flows.errors import SpecificationError, TrainingError
from flows.features.reader import FeatureReader, in_units_of_the_first, label_columns_reader
from flows.features.split import position_unit
from flows.inputs.source import fetched_sources, resolve_sources
from flows.labels.reader import (
    Conflicts,
    LabelReader,
    Reviews,
    plain_number,
    read_reviews,
    require_exact,
)
from flows.specification.specification import Specification

Array = np.ndarray[Any, Any]


@dataclass
class LabelSource:
    """Labels of batches, and what was met on the way: how many matched, and which objects have two labels."""

    column: str
    identifier: str | None = None
    by_id: LabelNames | None = None
    by_place: LabelPlaces | None = None
    place: tuple[str, str] | None = None
    reviews: Reviews = field(default_factory=Reviews)
    n_reviewed: int = 0
    n_joined: int = 0
    n_unplaced: int = 0
    taken: Array | None = None  # of each labelled place: how many rows have its label, 2 for more
    first_met: str = ""
    numbered: bool = False  # whether identifiers are numbers, in the table or in the catalogue

    @classmethod
    def of(cls, specification: Specification, folder: Callable[[], Path] | None = None) -> LabelSource:
        """Return the source that a specification names; its tables are read.

        `folder` makes the folder for the table's file; without it, the file is temporary, and goes with the source.
        """
        label, catalog, base = specification.label, specification.catalog, Path(specification.base_folder)
        source = cls(
            label.column or "",
            catalog.id,
            place=(catalog.ra, catalog.dec) if catalog.ra and catalog.dec else None,
        )
        if label.table is not None:
            places = resolve_sources([label.table.path], base, key="label.table.path")
            named = (label.table.id, label.table.ra, label.table.dec, label.column)
            with fetched_sources(places[:1]) as (here, *_):
                table = catalogs.open(here.path, columns=[name for name in named if name])
                if folder is None:
                    below = Path(mkdtemp(prefix="blr-labels-"))
                    finalize(source, rmtree, below, ignore_errors=True)
                else:
                    below = folder().absolute()
                file = below / "labels.sqlite"
                if label.table.id is not None:
                    source._join_by_id(table, label.table.id, file)
                else:
                    source._join_by_place(specification, table, file)
        if label.extra:
            with fetched_sources(resolve_sources(label.extra, base, key="label.extra")) as lists:
                source.reviews = read_reviews([one.path for one in lists], catalog.id, label)
        return source

    def compare_with(self, opened: Sequence[Catalog]) -> None:
        """Take the table's names as numbers where identifiers of any of these catalogues are, before a row is read.

        So the label of a row does not depend on the rows before it.
        """
        if self.by_id is None or self.identifier is None:
            return
        types = [catalog.column(self.identifier).datatype for catalog in opened]
        if any(pa.types.is_integer(one) or pa.types.is_floating(one) for one in types):
            self._number_the_names()

    def texts(self, values: Mapping[str, Array], unit: PositionUnit = "deg") -> Array:
        """Return the labels (n,) of rows, '' where it is missing, from the columns under our names."""
        if self.by_id is not None:
            identifiers = values[str(self.identifier)]
            require_exact(identifiers, "catalog.id", str(self.identifier))
            if identifiers.dtype.kind in "iuf":
                self._number_the_names()
            names = plain_texts(identifiers).tolist()
            self.first_met = self.first_met or next((name for name in names if name), "")
            labels = self.by_id.texts(names)
            self.n_joined += int(np.count_nonzero(labels != ""))
        elif self.by_place is not None and self.place:
            ra, dec = (values[name] for name in self.place)
            here = positions(ra, dec, unit)
            labels, numbers = self.by_place.nearest(here.ra, here.dec)
            self._take(self.by_place, *np.unique(numbers[numbers >= 0], return_counts=True))
            self.n_joined += int(np.count_nonzero(labels != ""))
        else:
            labels = plain_texts(values[self.column])
        if not self.reviews.labels:
            return labels
        names = plain_texts(values[str(self.identifier)])
        answers = np.array([self.reviews.labels.get(name, "") for name in names.tolist()], dtype=object)
        self.n_reviewed += int(np.count_nonzero(answers != ""))
        return np.where(answers != "", answers, labels)

    def require_match(self) -> None:
        """Raise `TrainingError` where a table has labels, and no row that was read has one of them."""
        if self.n_joined:
            return
        if self.by_id:
            theirs, ours = brief(self.by_id.first), brief(str(self.first_met))
            raise TrainingError(
                f"label.table: got {len(self.by_id):,} labelled identifiers such as '{theirs}', but "
                f"catalog.id = \"{self.identifier}\" holds others, such as '{ours}', expected the same names "
                "in both; correct label.table.id or catalog.id, or join by position"
            )
        if self.by_place:
            raise TrainingError(
                f"label.table: got {len(self.by_place):,} labelled places, none within "
                f"{self.by_place.radius:g} arcseconds of a row; expected the same part of the sky, equinox and "
                "unit in both; correct label.table.ra and dec, or widen its radius"
            )

    def content(self) -> Iterator[tuple[str, str]]:
        """Yield what tables say, by object or place, in order: part of what makes a model's version."""
        table = self.by_id or self.by_place
        reviewed, last = self.reviews.content, ""
        for name, text in merge(sorted(reviewed.items()), () if table is None else table.content()):
            if name != last or name not in reviewed:  # of a review and a table, the review counts
                yield name, reviewed.get(name, text)
            last = name

    def _take(self, table: LabelPlaces, numbers: Array, rows: Array) -> None:
        """Count that so many rows have the labels of these numbers; counts end at 2, and copies keep theirs."""
        taken = np.zeros(table.n_numbers, np.uint8) if self.taken is None else self.taken.copy()
        taken[numbers] += np.minimum(rows, 2).astype(np.uint8)
        self.taken = np.minimum(taken, 2)

    def _join_by_id(self, table: Catalog, key: str, file: Path) -> None:
        if self.identifier is None:
            raise SpecificationError(
                "label.table: got labels to join by identifier without a catalog.id, expected the column that names "
                'an object; add id = "..." under [catalog]'
            )

        def batches() -> Iterator[Iterator[tuple[str, str]]]:
            for keys, texts in _columns(table, [key, self.column]):
                require_exact(keys, "label.table", key)
                self.numbered |= keys.dtype.kind in "iuf"
                yield zip(plain_texts(keys).tolist(), texts.tolist(), strict=True)

        self.by_id = LabelNames.of(batches(), file)
        if self.numbered:
            self.by_id = self.by_id.numbered()

    def _number_the_names(self) -> None:
        """Make '0001234' of the table the number that it is in the catalogue; two names of one may be in conflict."""
        if self.numbered or self.by_id is None:
            return
        self.by_id, self.numbered = self.by_id.numbered(), True

    def _join_by_place(self, specification: Specification, table: Catalog, file: Path) -> None:
        columns = specification.label.table
        if columns is None or columns.ra is None or columns.dec is None:
            return
        if self.place is None:
            raise SpecificationError(
                "label.table: got labels to join by position without catalog.ra and catalog.dec, expected the "
                "columns of the position; add them under [catalog]"
            )
        unit = unit_of_position(
            table, columns.ra, columns.dec, stated=columns.position_unit, table="[label.table]"
        )
        names = [columns.ra, columns.dec, self.column]

        def batches() -> Iterator[tuple[Array, Array, Array]]:
            for ra, dec, texts in _columns(table, names):
                place = positions(ra, dec, unit)
                self.n_unplaced += int(np.count_nonzero(np.isnan(place.ra) & (texts != "")))
                yield place.ra, place.dec, texts

        self.by_place = LabelPlaces.of(batches(), file, columns.radius, n_rows=table.n_rows)

    @property
    def n_shared(self) -> int:
        """How many labels of a table by position are the nearest of several rows."""
        return 0 if self.taken is None else int(np.count_nonzero(self.taken > 1))

    @property
    def conflicts(self) -> Conflicts:
        """The objects that a table labels twice, differently."""
        table = self.by_id if self.by_id is not None else self.by_place
        return Conflicts() if table is None else table.conflicts


def _columns(table: Catalog, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield batches of a label table's columns, the last one as label texts, the others as they are."""
    for name in names:
        if name not in table.names:
            raise SpecificationError(
                f"label.table: got '{name}', which is not a column of {table.path}, expected one of its columns; "
                f"{nearest(name, table.names)}"
            )
    for batch in table.batches(list(names)):
        values = batch_values(batch, names)
        *others, texts = (values[name] for name in names)
        yield (*others, plain_texts(texts))


SHOWN = 20
"""Objects in conflict that are named."""


def place_conflicts(ra: Array, dec: Array, texts: Array, radius: float) -> dict[int, tuple[str, ...]]:
    """Return the labels within the radius of those places where they differ, by the place's index."""
    found = {}
    for i, others in enumerate(near_others(ra, dec, radius=radius)):
        differing = dict.fromkeys([texts[i], *texts[others]])
        if len(differing) > 1:
            found[i] = tuple(sorted(differing))
    return found


CACHE_KILOBYTES = 65_536


@contextmanager
def new_label_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a new file, quickly: if the process ends before the file is complete, nobody reads it.

    StorageError if there is no room on the disk, or the file cannot be made.
    """
    try:
        with closing(sqlite3.connect(_address(path, "nolock=1"), uri=True, isolation_level=None)) as con:
            con.execute("PRAGMA journal_mode = OFF")
            con.execute("PRAGMA synchronous = OFF")
            con.execute(f"PRAGMA cache_size = -{CACHE_KILOBYTES}")
            con.create_function("plain_number", 1, plain_number, deterministic=True)
            con.execute("BEGIN")
            yield con
            con.execute("COMMIT")
    except sqlite3.OperationalError as error:
        raise StorageError(
            f"{path.parent}: got '{error}' while the labels of a table were sorted, expected enough space there "
            "and among temporary files; free some space, or choose a model store on another disk with --store"
        ) from error


def _address(path: Path, how: str) -> str:
    """Return the address of a file; SQLite takes no locks on it, which shared disks may lack."""
    return f"file:{quote(str(path.absolute()))}?{how}"


@contextmanager
def label_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file that nobody writes."""
    with closing(
        sqlite3.connect(_address(path, "mode=ro&immutable=1"), uri=True, isolation_level=None)
    ) as con:
        con.execute("PRAGMA temp_store = MEMORY")
        yield con


def count(con: sqlite3.Connection, table: str) -> int:
    """Return the number of rows of a table."""
    return int(con.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608  our own names


def conflicts_in(con: sqlite3.Connection, suffix: str = "") -> Conflicts:
    """Return the conflicts that the tables `conflicts` and `shown` have, or those of another suffix."""
    names = [n for (n,) in con.execute(f"SELECT name FROM conflicts{suffix} ORDER BY name LIMIT {SHOWN}")]  # noqa: S608
    texts = f"SELECT text FROM shown{suffix} WHERE name = ? ORDER BY row"  # noqa: S608
    shown = {name: tuple(dict.fromkeys(t for (t,) in con.execute(texts, (name,)))) for name in names}
    return Conflicts(count(con, f"conflicts{suffix}"), shown)


PIXEL_ORDERS = (3, 8)
"""Coarsest and finest order of the pixels, whose widths are 7.3 degrees and 14 arcminutes."""
WIDTHS = 4
"""Least width of a pixel, in radii: what is within a radius of a row is then in its pixel or in a neighbour."""
A_PIXEL = 4
"""Least mean number of labels in a pixel, if the table covers the sky: finer pixels take longer than they spare."""
MOST_AT_ONCE = 50_000
"""Approximate number of labels by position that are held at once, without those of neighbouring pixels."""
MOST_PIXELS = 16_384
"""Most pixels that are gone through together for conflicts."""

NAMES = """
CREATE TABLE labels (name TEXT PRIMARY KEY, text TEXT, row INTEGER) WITHOUT ROWID;
INSERT INTO labels SELECT name, min(text), min(row) FROM said GROUP BY name HAVING min(text) = max(text) ORDER BY name;
CREATE TABLE conflicts AS SELECT name FROM said GROUP BY name HAVING min(text) <> max(text) ORDER BY name;
CREATE TABLE shown AS SELECT name, text, min(row) AS row FROM said
    WHERE name IN (SELECT name FROM conflicts ORDER BY name LIMIT {shown}) GROUP BY name, text;
DROP TABLE said;
"""
BY_NUMBER = """
CREATE TABLE numbers AS SELECT plain_number(name) AS name, text, row FROM labels;
CREATE INDEX by_number ON numbers (name, text, row);
CREATE TABLE conflicts_n AS SELECT name FROM conflicts
    UNION SELECT name FROM numbers GROUP BY name HAVING min(text) <> max(text);
CREATE TABLE labels_n (name TEXT PRIMARY KEY, text TEXT, row INTEGER) WITHOUT ROWID;
INSERT INTO labels_n SELECT name, min(text), min(row) FROM numbers
    WHERE name NOT IN (SELECT name FROM conflicts_n) GROUP BY name ORDER BY name;
CREATE TABLE shown_n AS SELECT name, text, row FROM shown
    UNION SELECT name, text, min(row) AS row FROM numbers
    WHERE name IN (SELECT name FROM conflicts_n ORDER BY name LIMIT {shown})
    AND name IN (SELECT name FROM numbers GROUP BY name HAVING min(text) <> max(text)) GROUP BY name, text;
DROP TABLE numbers;
"""
SAME_BY_NUMBER = """
CREATE VIEW labels_n AS SELECT * FROM labels;
CREATE VIEW conflicts_n AS SELECT * FROM conflicts;
CREATE VIEW shown_n AS SELECT * FROM shown;
"""


def _carry_out(con: sqlite3.Connection, statements: str) -> None:
    for statement in statements.format(shown=SHOWN).split(";\n"):
        con.execute(statement)


@dataclass(frozen=True)
class LabelNames:
    """Labels by identifier; where they are `is_numbered`, zeros in front of a number do not count."""

    path: Path
    conflicts: Conflicts
    n: int
    is_numbered: bool = False

    @classmethod
    def of(cls, batches: Iterable[Iterable[tuple[str, str]]], path: Path) -> LabelNames:
        """Write the labels of a table's rows, identifiers with labels, into a file."""
        with new_label_file(path) as con:
            con.execute("CREATE TABLE said (row INTEGER PRIMARY KEY, name TEXT, text TEXT)")
            for pairs in batches:
                con.executemany("INSERT INTO said (name, text) VALUES (?, ?)", (p for p in pairs if all(p)))
            con.execute("CREATE INDEX by_name ON said (name, text)")
            _carry_out(con, NAMES)
            zeros = con.execute("SELECT 1 FROM labels WHERE name GLOB '0?*' LIMIT 1").fetchone()
            _carry_out(con, BY_NUMBER if zeros else SAME_BY_NUMBER)
        return cls._opened(path, is_numbered=False)

    @classmethod
    def _opened(cls, path: Path, *, is_numbered: bool) -> LabelNames:
        suffix = "_n" if is_numbered else ""
        with label_file(path) as con:
            return cls(path, conflicts_in(con, suffix), count(con, f"labels{suffix}"), is_numbered)

    def __len__(self) -> int:
        """L, the number of objects with a label."""
        return self.n

    @property
    def _table(self) -> str:
        return "labels_n" if self.is_numbered else "labels"

    @property
    def first(self) -> str:
        """The first identifier of the table that has a label."""
        with label_file(self.path) as con:
            found = con.execute(f"SELECT name, min(row) FROM {self._table}").fetchone()  # noqa: S608
        return str(found[0] or "")

    def numbered(self) -> LabelNames:
        """Return the labels by whole numbers: '0001234' is 1234, and two names of one number may be in conflict."""
        return self if self.is_numbered else self._opened(self.path, is_numbered=True)

    def texts(self, names: Sequence[str]) -> Array:
        """Return the labels (n,) of objects by identifier, '' of an object without one."""
        wanted = [*map(plain_number, names)] if self.is_numbered else names
        listed = "SELECT value FROM json_each(?)"
        with label_file(self.path) as con:
            joined = f"SELECT name, text FROM {self._table} WHERE name IN ({listed})"  # noqa: S608
            found = dict(con.execute(joined, (json.dumps(wanted),)))
        return np.array([found.get(name, "") for name in wanted], dtype=object)

    def content(self) -> Iterator[tuple[str, str]]:
        """Yield the identifiers with their labels, in order."""
        with label_file(self.path) as con:
            yield from con.execute(f"SELECT name, text FROM {self._table} ORDER BY name")  # noqa: S608


@dataclass(frozen=True)
class LabelPlaces:
    """Labels by position; `radius` is that within which positions match, in arcseconds."""

    path: Path
    radius: float
    order: int
    conflicts: Conflicts
    n: int
    n_numbers: int

    @classmethod
    def of(
        cls,
        batches: Iterable[tuple[Array, Array, Array]],
        path: Path,
        radius: float,
        *,
        n_rows: int,
    ) -> LabelPlaces:
        """Write the labels of a table's rows, right ascension, declination and label, into a file."""
        order = _order(radius, n_rows)
        with new_label_file(path) as con:
            con.execute(
                "CREATE TABLE labels "
                "(number INTEGER PRIMARY KEY, pixel INTEGER, ra REAL, dec REAL, text TEXT, key TEXT)"
            )
            for ra, dec, texts in batches:
                known = np.isfinite(ra) & np.isfinite(dec) & (texts != "")
                columns = (ra[known].tolist(), dec[known].tolist(), texts[known].tolist())
                pixels = healpix_pixels(ra[known], dec[known], order).tolist()
                con.executemany(
                    "INSERT INTO labels (pixel, ra, dec, text, key) VALUES (?, ?, ?, ?, ?)",
                    ((p, r, d, t, f"{r!r} {d!r}") for p, r, d, t in zip(pixels, *columns, strict=True)),
                )
            con.execute("CREATE INDEX by_pixel ON labels (pixel)")
            con.execute("CREATE TABLE pixels (pixel INTEGER PRIMARY KEY, n INTEGER)")
            con.execute("INSERT INTO pixels SELECT pixel, count(*) FROM labels GROUP BY pixel")
            con.execute("CREATE TABLE conflicts (name TEXT PRIMARY KEY, number INTEGER)")
            con.execute("CREATE TABLE shown (name TEXT, text TEXT, row INTEGER)")
            con.execute("CREATE TABLE bad (number INTEGER PRIMARY KEY)")
            _note_conflicts(con, radius, order)
            con.execute("DELETE FROM labels WHERE number IN (SELECT number FROM bad)")
            con.execute("DROP TABLE bad")
            con.execute("CREATE INDEX by_key ON labels (key, text)")
        with label_file(path) as con:
            (largest,) = con.execute("SELECT coalesce(max(number), 0) FROM labels").fetchone()
            return cls(path, radius, order, conflicts_in(con), count(con, "labels"), int(largest) + 1)

    def __len__(self) -> int:
        """L, the number of places with a label."""
        return self.n

    def nearest(self, ra: Array, dec: Array) -> tuple[Array, NDArray[np.intp]]:
        """Return the labels (n,) of the nearest places within the radius, '' where none is, and their numbers or -1."""
        texts, numbers = np.full(len(ra), "", dtype=object), np.full(len(ra), -1, dtype=np.intp)
        pixels = healpix_pixels(ra, dec, self.order)
        with label_file(self.path) as con:
            for group in _groups(con, np.unique(pixels[pixels >= 0])):
                own, place_ra, place_dec, labels = _labels_in(con, group, self.order)
                rows = np.flatnonzero(np.isin(pixels, group))
                index = match_positions(ra[rows], dec[rows], place_ra, place_dec, radius=self.radius)
                rows, index = rows[index >= 0], index[index >= 0]
                texts[rows], numbers[rows] = labels[index], own[index]
        return texts, numbers

    def content(self) -> Iterator[tuple[str, str]]:
        """Yield the places with their labels, in order."""
        with label_file(self.path) as con:
            # Of one place that the table has twice, the later label counts; they do not differ.
            yield from con.execute("SELECT key, max(text) FROM labels GROUP BY key ORDER BY key")


def _order(radius: float, n_rows: int) -> int:
    """Return the finest order whose pixels are wide enough for a radius in arcseconds, and hold labels enough."""
    width, (low, high) = 3600 * np.degrees(np.sqrt(4 * np.pi / 12)), PIXEL_ORDERS
    wide = int(np.floor(np.log2(width / (WIDTHS * radius))))
    filled = int(np.floor(np.log2(max(n_rows, 1) / (12 * A_PIXEL)) / 2))
    return max(low, min(high, wide, filled))


def _groups(con: sqlite3.Connection, pixels: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield groups of pixels, in order and so near each other, with about as many labels as are held at once."""
    _choose(con, pixels)
    counts = con.execute("SELECT pixel, n FROM pixels JOIN chosen USING (pixel) ORDER BY pixel").fetchall()
    if counts:
        present, n = np.array(counts, dtype=np.int64).T
        cuts = np.flatnonzero(np.diff(np.cumsum(n) // MOST_AT_ONCE)) + 1
        starts = np.searchsorted(pixels, present[cuts])
        yield from np.split(pixels, starts)
    else:
        yield pixels  # labels may lie in the neighbours


def _choose(con: sqlite3.Connection, pixels: NDArray[np.int64]) -> None:
    """Fill a table of this connection with pixels, so that others can be joined with it."""
    con.execute("CREATE TEMP TABLE IF NOT EXISTS chosen (pixel INTEGER PRIMARY KEY)")
    con.execute("DELETE FROM chosen")
    con.executemany("INSERT INTO chosen VALUES (?)", ((p,) for p in pixels.tolist()))


def _labels_in(
    con: sqlite3.Connection, pixels: NDArray[np.int64], order: int
) -> tuple[NDArray[np.intp], Array, Array, Array]:
    """Return numbers, right ascensions, declinations and texts (L,) of the labels in pixels and their neighbours."""
    _choose(con, with_neighbouring_pixels(pixels, order))
    rows = con.execute(
        "SELECT number, ra, dec, text FROM chosen JOIN labels USING (pixel) ORDER BY number"
    ).fetchall()
    number, ra, dec, text = zip(*rows, strict=True) if rows else ((), (), (), ())
    return (
        np.array(number, dtype=np.intp),
        np.array(ra, dtype=np.float64),
        np.array(dec, dtype=np.float64),
        np.array(text, dtype=object),
    )


def _note_conflicts(con: sqlite3.Connection, radius: float, order: int) -> None:
    """Write which labels differ from others within the radius, and some of the differing labels."""
    cursor = con.execute("SELECT pixel FROM pixels ORDER BY pixel")
    present = np.fromiter((pixel for (pixel,) in cursor), np.int64)
    some = [present[i : i + MOST_PIXELS] for i in range(0, len(present), MOST_PIXELS)]
    for group in (group for pixels in some for group in _groups(con, pixels)):
        number, ra, dec, texts = _labels_in(con, group, order)
        mine = np.isin(healpix_pixels(ra, dec, order), group)
        for i, differing in place_conflicts(ra, dec, texts, radius).items():
            if not mine[i]:
                continue
            name = f"{ra[i]:.6f} {dec[i]:+.6f}"
            con.execute("INSERT INTO bad VALUES (?)", (int(number[i]),))
            con.execute("INSERT OR IGNORE INTO conflicts VALUES (?, ?)", (name, int(number[i])))
            con.executemany(
                "INSERT INTO shown VALUES (?, ?, ?)", ((name, t, j) for j, t in enumerate(differing))
            )


MOST_KNOWN = 10_000
"""Objects of several classes whose names are looked for: the first of them in the catalogue are named."""


def first_names(catalogs: Iterable[Catalog], column: str, hashes: NDArray[np.uint64]) -> dict[str, int]:
    """Return the first names in the column that have one of the `hashes`, with these: as many as are shown."""
    found: dict[str, int] = {}
    most = min(SHOWN, len(hashes))
    for batch in (batch for catalog in catalogs for batch in catalog.batches([column])):
        texts = plain_texts(batch_values(batch, [column])[column])
        mine = name_hashes(texts)
        for i in np.flatnonzero(np.isin(mine, hashes)).tolist():
            found[texts[i]] = int(mine[i])
            if len(found) == most:
                return found
    return found


def name_hashes(names: Array) -> NDArray[np.uint64]:
    """Return a hash (N,) of each object's name, 0 where it has none."""
    texts = plain_texts(names)
    return np.where(texts == "", np.uint64(0), hashed(texts))


def repeated_in_conflict(
    pieces: Iterable[tuple[NDArray[np.uint64], NDArray[np.integer]]],
    classes: Sequence[str],
    search: Callable[[NDArray[np.uint64]], Mapping[str, int]],
) -> Conflicts:
    """Return the names that have rows of several classes, some of them by name.

    The rows stay: they may be several observations, or two objects whose names were rounded to one.

    `pieces` are hashes of names and class indices of rows, (n,) each; all rows of a name are in one piece.  `search` is
    asked only where there are such names: it returns the first names that have one of these hashes.
    """
    n, known = 0, dict[int, tuple[str, ...]]()
    for hashes, target in pieces:
        order = np.lexsort((target, hashes))
        name, index = hashes[order], target[order]
        differ = (name[1:] == name[:-1]) & (index[1:] != index[:-1]) & (name[1:] != 0)
        repeated = np.unique(name[1:][differ])
        n += len(repeated)
        some = repeated[: MOST_KNOWN - len(known)]
        rows = zip(np.searchsorted(name, some), np.searchsorted(name, some, side="right"), strict=True)
        for one, (first, last) in zip(some.tolist(), rows, strict=True):
            known[one] = tuple(classes[k] for k in np.unique(index[first:last]).tolist())
    found = search(np.array(sorted(known), dtype=np.uint64)) if known else {}
    return Conflicts(n, {name: known[its_hash] for name, its_hash in found.items()})


RARE = 20
"""Rows below which a class may have none that is held out: the other classes' judge the model."""


def label_reader(
    specification: Specification,
    catalogs: Sequence[Catalog],
    source: LabelSource,
    *,
    limit: int | None = None,
) -> LabelReader:
    """Return the classes that the specification lists, or those met; `TrainingError` where two clash as columns.

    Those met come of a pass over the labels alone, so that names that clash are refused before any other work.
    """
    label = specification.label
    seen: Counter[str] = Counter()
    if label.classes or label.votes:
        return LabelReader.of(label, seen)
    general = label_columns_reader(specification)
    for catalog in catalogs:
        general.check(catalog)
    readers = [in_units_of_the_first(general, catalog, catalogs[0]) for catalog in catalogs]
    units = [position_unit(specification, catalog) for catalog in catalogs]
    own = replace(source)  # the counts of `source` are of the rows, once each
    for number, batch in first_batches(catalogs, general, limit):
        reader, n_labels = readers[number], len(seen)
        seen.update(own.texts(reader.values(batch), units[number])[reader.select(batch)].tolist())
        if len(seen) > n_labels:
            check_names(specification, LabelReader.of(label, seen).classes)
    return LabelReader.of(label, seen)


def check_names(specification: Specification, classes: Sequence[str]) -> None:
    """Raise `TrainingError` where columns of classes would have one name."""
    output = specification.output
    if len(classes) < 2:
        return
    try:
        specification.check_sets(len(classes))
    except ValueError as error:
        raise TrainingError(str(error)) from error
    try:
        standard_columns(classes, output.prefix, columns=output.columns)
    except NameClashError as error:
        raise TrainingError(
            f"label.column: {error}; to join classes that differ only in upper and lower case, set "
            "case_sensitive = false under [label]"
        ) from error


def first_batches(
    catalogs: Iterable[Catalog], reader: FeatureReader, limit: int | None
) -> Iterable[tuple[int, pa.RecordBatch]]:
    """Yield what a reader reads of catalogues, of so many rows at most: batches with the catalogues' numbers."""
    left = limit
    for number, catalog in enumerate(catalogs):
        for batch in catalog.batches(reader.read, min(BATCH_ROWS, left or BATCH_ROWS)):
            yield number, batch if left is None else batch.slice(0, left)
            if left is not None:
                left -= batch.num_rows
                if left <= 0:
                    return
