"""Annotated copies: where they go, in which format, and how they are written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.types as pt

from catalogs.catalog.catalog import (
    BATCH_ROWS,
    Annotation,
    Catalog,
    Checksums,
    Column,
    Compute,
    Mode,
    NewValues,
    OldColumns,
    Partition,
    Progress,
    cell_bytes,
    checked,
    computed_batches,
    copying,
    is_provenance,
    levels,
    old_columns,
    provenance_entries,
    verified,
    with_user_bits,
)
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.errors import CatalogError, OutputExistsError
from catalogs.files import StorageError, atomic_folder, check_free_space, sweep
from catalogs.fits import writing as fits_writing
from catalogs.fits.fields import FitsField
from catalogs.fits.writing import fits_names, meta_cards
from catalogs.metadata.astropy_header import ASTROPY
from catalogs.metadata.fits_cards import block_cards, prose_cards
from catalogs.parquet import metadata as parquet_create
from catalogs.remote.urls import shown, url_of
from catalogs.text import table as text

HEADROOM = 1 << 20
"""Bytes a partition for what no estimate knows: headers, padding, statistics."""

UNSIZED_TEXT = 16
"""Bytes a row that a text of unstated width is taken to need."""


def is_whole(cat: Catalog) -> bool:
    """Say whether this is all of a catalogue that is more than its partitions."""
    return cat.whole is not None and cat.whole.keys == {p.key for p in cat.partitions}


@contextmanager
def destination(cat: Catalog, out: Path) -> Iterator[Path]:
    """Give the folder to write to: for a whole catalogue one that is temporary until all is there."""
    make_folder(out)
    if cat.whole is None or not is_whole(cat):
        yield out
        return
    with atomic_folder(out / cat.whole.name) as folder:
        yield folder


def check_local(out: Path) -> None:
    """Raise CatalogError where the output folder is a URL: nothing of ours writes to those yet."""
    url = url_of(out)
    if url is not None:
        raise CatalogError(
            f"got '{shown(url)}' as output folder, expected a path on this machine, since this cannot be "
            "written to URLs; name a path here, and copy the files afterwards"
        )


def check_places(
    cat: Catalog, out: Path, files: Sequence[Copyable], finals: Sequence[Path], *, overwrite: bool
) -> None:
    """Raise where something has the place of a copy, unless it is one that may be replaced, and not the source."""
    places = [(file.path, final, overwrite) for file, final in zip(files, finals, strict=True)]
    if cat.whole is not None and is_whole(cat):
        places.append((cat.path, out / cat.whole.name, overwrite and any(final.exists() for final in finals)))
    for source, place, may_go in places:
        if place.exists() and source.exists() and place.samefile(source):
            raise CatalogError(f"{source} would be replaced by its own annotated copy; choose another folder")
        if place.exists() and not may_go:
            raise OutputExistsError(
                f"{place} exists already{' and is something else' if overwrite else ''}; choose another output folder"
                f"{', or move it away' if overwrite else ', or ask to overwrite it'}"
            )


def needed_bytes(cat: Catalog, columns: Sequence[NewColumn], old: OldColumns) -> int:
    """Return about how many bytes copies take: of slim ones, the columns' own width without compression."""
    new = row_bytes(columns)
    only = None if old.only is None else row_bytes([cat.column(name) for name in old.only])
    kept = ((p.n_bytes if only is None else p.n_rows * only, p.n_rows) for p in cat.partitions)
    return sum(old_bytes + n_rows * new + HEADROOM for old_bytes, n_rows in kept)


def row_bytes(columns: Sequence[Column | NewColumn]) -> int:
    """Return about how many bytes a row of those columns takes."""
    widths = (c.width if isinstance(c, NewColumn) else None for c in columns)
    return sum(
        cell_bytes(c.datatype, width or UNSIZED_TEXT) for c, width in zip(columns, widths, strict=True)
    )


def make_folder(folder: Path) -> None:
    """Make the folder, and clear it of what a killed run has left there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"the folder {folder} cannot be made: {error.strerror}; choose another output folder"
        ) from error
    sweep(folder)


# What the other format has no place for is reported, never left out silently.

TARGETS = {"parquet": ".parquet", "fits": ".fits"}
USUAL = {"ascii": "ecsv"}
"""Formats of which no copies are written, and what copies are written as."""
SUFFIXES = {**TARGETS, "ecsv": ".ecsv"}
SUFFIX = re.compile(
    r"(?:\.(?:fits?|fts|parquet|parq|pq|vot|votable|xml|ecsv|csv|tsv|txt|dat|tab|tbl|mrt|cat))?(?:\.gz|\.bz2)?$",
    re.IGNORECASE,
)

BATCH_BYTES = 1 << 26
"""Of all columns together, of which there may be very many."""

LONGEST_REMARK = 200
DESCRIBING = re.compile(
    r"ARROW:schema|IVOA\.VOTable-Parquet\..*|table_meta_yaml|pandas|PANDAS_ATTRS|table::len::.*|blr\..*|fits\..*"
    r"|type\..*|layout|delimiter|encoding|version|extname"
)
"""Metadata that describe columns, provenance or the old file, which are written in the new format's own way."""

Tell = Callable[[str], object]
"""Takes a sentence on what a copy leaves behind."""


def copies(cat: Catalog, old: OldColumns, form: str | None, tell: Tell) -> Sequence[Copyable]:
    """Return the files of which copies are made, in their own format or as `form`."""
    form = form or USUAL.get(cat.format, cat.format)
    if form not in {cat.format, *TARGETS, USUAL.get(cat.format)}:
        raise CatalogError(
            f"got the format '{form}' for the copy of a catalogue in {cat.format}; expected "
            f"{' or '.join(TARGETS)}, or no format, which keeps {cat.format}"
        )
    if form != cat.format and cat.whole is not None:
        tell(f"only the rows are written, as plain {form} files; margins, maps and properties are left out")
    files = copied(cat, form)
    if form == cat.format or (cat.format, form) == ("hats", "parquet"):
        return [copying(p, cat, old) for p in files.values()]
    return [Converting(key, p.path, p, cat, old, form, tell) for key, p in files.items()]


def copied(cat: Catalog, form: str | None) -> dict[str, Partition]:
    """Return the partitions that have copies, by the copies' keys; without margins in another format."""
    form = form or USUAL.get(cat.format, cat.format)
    if form == cat.format:
        return {p.key: p for p in cat.partitions}
    counted = [p for p in cat.partitions if p.counted] or cat.partitions
    same_files = (cat.format, form) == ("hats", "parquet")
    return {p.key if same_files else converted_key(p.key, form): p for p in counted}


def converted_key(key: str, form: str) -> str:
    """Return the name of a copy in another format."""
    return SUFFIX.sub("", key) + SUFFIXES[form]


@dataclass(frozen=True)
class Converting:
    """A partition of which copies are of another format, under another key."""

    key: str
    path: Path
    source: Partition
    catalog: Catalog
    old: OldColumns
    form: str
    tell: Tell

    @property
    def columns(self) -> tuple[Column, ...]:
        """The old columns that stay."""
        return tuple(c for c in self.catalog.columns if self.old.stays(c.name))

    def write_annotated(self, out: Path, annotation: Annotation) -> None:
        """Write the old columns that stay and the new ones to `out`, streamed and atomic."""
        new, read = annotation.columns, list(annotation.read)
        width = max(1, sum(cell_bytes(c.datatype) for c in self.columns))
        rows = min(annotation.rows, max(1, BATCH_BYTES // width))
        needed = list(dict.fromkeys([*(c.name for c in self.columns), *read]))

        def compute(batch: pa.RecordBatch) -> NewValues:
            return annotation.compute(batch.select(read))

        whole = replace(annotation, read=needed, compute=compute, rows=rows)
        texts = self.beside()
        everything = (out, self.columns, new, computed_batches(self.source, whole))
        if self.form == "parquet":
            parquet_create.create(
                *everything, provenance=annotation.provenance, metadata=texts, dropped=self.old.replaced
            )
            return
        if self.form == "ecsv":
            text.create(
                *everything,
                provenance=annotation.provenance,
                header=texts.get(ASTROPY),
                dropped=[c.name for c in self.catalog.columns if not self.old.stays(c.name)],
                slim=self.old.only is not None,
            )
            return
        added = [*map(FitsField.of_new, new)]
        layout = fits_writing.Layout(self.fields(rows, new), added, self.source.n_rows)
        # Each text takes the space of the longest, which is known only after the pass over the rows.
        rows = max(1, min(rows, BATCH_BYTES // layout.row.itemsize))
        computed = computed_batches(self.source, replace(whole, rows=rows))
        # The provenance of this and of earlier annotations, the latest last.
        annotations = levels(provenance_entries(texts, annotation.provenance, self.old.replaced))
        history = [card for level in reversed(annotations) for card in block_cards(level)]
        remarks = [*self.remarks(texts), *history]
        name = texts.get("extname") or SUFFIX.sub("", out.name)
        summed = not self.source.verified()[1]
        fits_writing.create(out, layout, computed, name=name, remarks=remarks, summed=summed)

    def beside(self) -> dict[str, str]:
        """Return the texts that go with the columns; tell what is left behind."""
        texts = {k: v for k, v in self.catalog.metadata.items() if k != "hdu"}
        more, left = self.source.beside_the_columns()
        for sentence in left:
            self.tell(sentence)
        return {**texts, **more}

    def fields(self, rows: int, new: Sequence[NewColumn]) -> list[FitsField]:
        """Return the old columns as FITS has them, after a pass over those whose widths or nulls are unknown."""
        # Durations have the unit of their numbers.
        stated = [replace(c, unit=c.datatype.unit) if pt.is_duration(c.datatype) else c for c in self.columns]
        fields = [*map(FitsField.of, stated)]
        for batch in self.source.batches([c.name for c in stated], rows):
            for field in fields:
                field.add(batch.column(field.name))
        for field in fields:
            for what in field.losses():
                self.tell(f"'{field.name}': {what}")
        for field, name in zip(fields, self.fits_names(new), strict=True):
            field.name = name
            field.settle()
        return fields

    def fits_names(self, new: Sequence[NewColumn]) -> Sequence[str]:
        """Return the old columns' names as FITS has them; tell which are others."""
        old = [c.name for c in self.columns]
        names = fits_names(old, [c.name for c in new])
        for number, (before, name) in enumerate(zip(old, names, strict=True), 1):
            if name != before:
                which = f"'{before}'" if before.strip() else f"column {number}, which has no name,"
                self.tell(f"{which} is called '{name}', since names in FITS are ASCII and not empty")
        return names

    def remarks(self, texts: Mapping[str, str]) -> list[bytes]:
        """Return the source's metadata as cards: what has no keyword as COMMENT; tell which are too long for that."""
        names = [c.name for c in self.columns]
        cards = meta_cards(texts[ASTROPY], names, self.old.replaced, self.tell) if ASTROPY in texts else []
        for sentence in parquet_create.pandas_left(texts):
            self.tell(sentence)
        own: dict[str, Any] = {k: v for k, v in texts.items() if not DESCRIBING.fullmatch(k)}
        own |= {k: v for k, v in parquet_create.pandas_attributes(texts).items() if not is_provenance(k)}
        for key, said in own.items():
            value = said if isinstance(said, str) else json.dumps(said)
            if len(value) > LONGEST_REMARK:
                self.tell(f"the metadata '{key}', of {len(value):,} characters, are left out")
            else:
                cards += prose_cards("COMMENT", [f"{key} = {value}"])
        return cards


Copyable = Partition | Converting
"""A file of which an annotated copy can be made: its `path`, the copy's `key`, and how it is written."""


class Written(tuple[Path, ...]):  # noqa: SLOT001 -- a tuple has no room for slots that hold anything
    """The files that were written; `warnings` says what of the old ones they could not take over."""

    warnings: tuple[str, ...]

    def __new__(cls, files: Iterable[Path], warnings: Iterable[str] = ()) -> Self:
        """Make a tuple of the files."""
        written = super().__new__(cls, files)
        written.warnings = tuple(warnings)
        return written


def annotate(
    cat: Catalog,
    out: Path,
    columns: Sequence[NewColumn],
    compute: Compute,
    *,
    read: Sequence[str],
    provenance: Provenance | None = None,
    rows: int = BATCH_ROWS,
    threads: int | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
    mode: Mode = "annotated",
    keep: Sequence[str] = (),
    form: str | None = None,
    checksums: Checksums = "quarantine",
) -> Written:
    """Copy all partitions of a catalogue, margins too, to the folder `out` and add columns; return the files written.

    `compute` gets a record batch with the columns `read` and n rows.  It returns an array (n,) for each new column.

    A copy has the file's name, or its path below the catalogue's root.  Columns of an earlier annotation are replaced;
    the flag bits that belong to users are kept.  With `mode="slim"` a copy has only the old columns in `keep`, such as
    identifier and position.  A HATS catalogue appears at once, when all its files are written; `finish` completes one
    that was annotated in parts.  `form` is the format of the copies, "parquet" or "fits", where it is not the input's.
    The result's `warnings` list what that format has no place for.  `checksums` says what happens to a file that has
    other checksums than it states: "quarantine" raises, "warn" copies it with a warning, "ignore" without one.  The
    copy's checksums do not match then either.

    Raises
    ------
    catalogs.CatalogError
        Before anything is written: ColumnNotFoundError if a column of `read` is missing, NameClashError if a column of
        another maker has the name of a new one, OutputExistsError if a copy exists and `overwrite` is not set, and
        StorageError if the disk has too little room.  Later: DamagedFileError if a file is damaged or has changed.
    ValueError, TypeError
        If `compute` returns arrays of another length or type.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from astropy.table import Table
    >>> Table({"bmag": [4.5, 9.0], "jmag": [1.0, 6.0]}).write("survey.fits")
    >>> colour = catalogs.NewColumn("b_j", pa.float64(), "phot.color", unit="mag", description="B - J")
    >>> def b_j(batch):
    ...     return {"b_j": np.subtract(batch["bmag"], batch["jmag"])}
    >>> survey = catalogs.open("survey.fits")
    >>> (copy,) = catalogs.annotate(survey, Path("out"), [colour], b_j, read=["bmag", "jmag"])
    >>> catalogs.open(copy).names
    ('bmag', 'jmag', 'b_j')
    """
    check_local(out)
    cat, wrong_sums = verified(cat, checksums)
    old = old_columns(cat, columns, mode, keep)
    for name in read:
        cat.column(name)
    # A table in memory has lost something when it was written down.
    lost = (f"'{name}': {what}" for name, what in cat.changed.items() if old.stays(name))
    warnings = dict.fromkeys((*wrong_sums, *lost, *cat.left_behind))
    files = copies(cat, old, form, warnings.setdefault)
    finals = [out / file.key for file in files]
    if form not in {None, cat.format}:
        cat = replace(cat, whole=None)
    check_places(cat, out, files, finals, overwrite=overwrite)
    # FITS is not compressed, so there the size of the source tells nothing.
    staying = tuple(name for name in cat.names if old.stays(name))
    check_free_space(out, needed_bytes(cat, columns, OldColumns(only=staying) if form == "fits" else old))
    read, compute = with_user_bits(read, compute, old.replaced, columns)
    usable_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    annotation = Annotation(
        columns,
        lambda batch: checked(columns, compute(batch), batch.num_rows),
        read,
        (provenance or Provenance()).covering(columns),
        rows,
        threads or usable_cpus,
        progress,
    )
    with destination(cat, out) as folder:
        for file in files:
            make_folder((folder / file.key).parent)
            file.write_annotated(folder / file.key, annotation)
        if is_whole(cat):
            left_out = finish(cat, folder, columns, provenance=provenance, mode=mode, keep=keep)
            warnings |= dict.fromkeys(left_out)
    return Written(finals, warnings)


def finish(
    cat: Catalog,
    folder: Path,
    columns: Sequence[NewColumn],
    *,
    provenance: Provenance | None = None,
    mode: Mode = "annotated",
    keep: Sequence[str] = (),
) -> Sequence[str]:
    """Write what a catalogue has beside its partitions, all of which lie annotated in `folder` at their keys.

    For who annotates them one by one (`replace(cat, partitions=...)`), on several machines or to go on later.
    Nothing has to be done for formats without such; doing it again gives the same.  Returns what had to be left out.
    """
    if cat.whole is None:
        return ()
    recorded = (provenance or Provenance()).covering(columns)
    return cat.whole.finish(folder, columns, recorded, old_columns(cat, columns, mode, keep))
