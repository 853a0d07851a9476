"""Annotated copies: where they go, in which format, and how they are written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa
import pyarrow.types as pt

from catalogs import hats
from catalogs.catalog.catalog import (
    BATCH_ROWS,
    Annotation,
    Catalog,
    Checksums,
    Column,
    Compute,
    NewValues,
    Partition,
    Progress,
    cell_bytes,
    checked,
    computed_batches,
    is_provenance,
    levels,
    provenance_entries,
    replaced_columns,
    verified,
    with_user_bits,
)
from catalogs.catalog.new_columns import NewColumn, Provenance, check_names
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
    return cat.whole is not None and cat.whole == {p.key for p in cat.partitions}


Mode = Literal["annotated", "slim"]
"""Which of the old columns an annotated copy has: all but our own from before that are replaced, or a few."""


def old_columns(
    cat: Catalog, columns: Sequence[NewColumn], mode: Mode, keep: Sequence[str]
) -> tuple[tuple[str, ...], frozenset[str] | None]:
    """Return the old columns that are replaced, and those that alone stay in a slim copy, all names checked."""
    replaced = replaced_columns(cat.names, cat.metadata, columns)
    if mode == "annotated":
        check_names([n for n in cat.names if n not in replaced], columns)
        return replaced, None
    if not keep:
        raise CatalogError(
            "got a slim copy that keeps no old column, expected the identifier and the position, by which "
            "rows join their old columns again; name them, as in keep=('id', 'ra', 'dec')"
        )
    tables = [] if cat.whole is None else hats.tables_of(cat.path)
    needed = [hats.value_of(table.properties, key) for table in tables for key in hats.NEEDED]
    only = tuple(dict.fromkeys([*keep, *filter(None, needed)]))
    for name in only:
        cat.column(name)
    check_names(only, columns)
    return replaced, frozenset(only)


def check_local(out: Path) -> None:
    """Raise CatalogError where the output folder is a URL: nothing of ours writes to those yet."""
    url = url_of(out)
    if url is not None:
        raise CatalogError(
            f"got '{shown(url)}' as output folder, expected a path on this machine, since this cannot be "
            "written to URLs; name a path here, and copy the files afterwards"
        )


def check_places(cat: Catalog, out: Path, files: Mapping[str, Partition], *, overwrite: bool) -> None:
    """Raise where something has the place of a copy, unless it is one that may be replaced, and not the source."""
    places = [(file.path, out / key, overwrite) for key, file in files.items()]
    if is_whole(cat):
        replaces = overwrite and any((out / key).exists() for key in files)
        places.append((cat.path, out / cat.path.resolve().name, replaces))
    for source, place, may_go in places:
        if place.exists() and source.exists() and place.samefile(source):
            raise CatalogError(f"{source} would be replaced by its own annotated copy; choose another folder")
        if place.exists() and not may_go:
            raise OutputExistsError(
                f"{place} exists already{' and is something else' if overwrite else ''}; choose another output folder"
                f"{', or move it away' if overwrite else ', or ask to overwrite it'}"
            )


def needed_bytes(cat: Catalog, annotation: Annotation, form: str) -> int:
    """Return about how many bytes copies take: of slim ones and FITS, the columns' own width without compression."""
    new, old = row_bytes(annotation.columns), row_bytes([c for c in cat.columns if annotation.stays(c.name)])
    # FITS is not compressed, so there the size of another source tells nothing.
    by_width = annotation.slim or (form == "fits" and form != cat.format)
    kept = ((p.n_rows * old if by_width else p.n_bytes, p.n_rows) for p in cat.partitions)
    return sum(old_bytes + n_rows * new + HEADROOM for old_bytes, n_rows in kept)


def row_bytes(columns: Sequence[Column | NewColumn]) -> int:
    """Return about how many bytes a row of those columns takes."""
    return sum(cell_bytes(c.datatype, getattr(c, "width", None) or UNSIZED_TEXT) for c in columns)


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
SAME_FILES = ("hats", "parquet")
"""A format and the one whose files its own are: copies are made as within a format, under the same keys."""
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


def copied(cat: Catalog, form: str | None) -> dict[str, Partition]:
    """Return the partitions that have copies, by the copies' keys; without margins in another format."""
    form = form or USUAL.get(cat.format, cat.format)
    if form not in {cat.format, *TARGETS, USUAL.get(cat.format)}:
        raise CatalogError(
            f"got the format '{form}' for the copy of a catalogue in {cat.format}; expected "
            f"{' or '.join(TARGETS)}, or no format, which keeps {cat.format}"
        )
    if form == cat.format:
        return {p.key: p for p in cat.partitions}
    counted = [p for p in cat.partitions if p.counted] or cat.partitions
    return {p.key if (cat.format, form) == SAME_FILES else converted_key(p.key, form): p for p in counted}


def converted_key(key: str, form: str) -> str:
    """Return the name of a copy in another format."""
    return SUFFIX.sub("", key) + SUFFIXES[form]


def convert(
    cat: Catalog, source: Partition, form: str, out: Path, annotation: Annotation, tell: Tell
) -> None:
    """Write the old columns that stay and the new ones to `out` in another format, streamed and atomic."""
    old, read = [c for c in cat.columns if annotation.stays(c.name)], list(annotation.read)
    rows = min(annotation.rows, max(1, BATCH_BYTES // max(1, sum(cell_bytes(c.datatype) for c in old))))
    needed = list(dict.fromkeys([*(c.name for c in old), *read]))

    def compute(batch: pa.RecordBatch) -> NewValues:
        return annotation.compute(batch.select(read))

    whole = replace(annotation, read=needed, compute=compute, rows=rows)
    more, left = source.beside_the_columns()
    for sentence in left:
        tell(sentence)
    texts = {k: v for k, v in cat.metadata.items() if k != "hdu"} | dict(more)
    if form == "parquet":
        parquet_create.create(out, old, whole, computed_batches(source, whole), metadata=texts)
    elif form == "ecsv":
        dropped = [c.name for c in cat.columns if not annotation.stays(c.name)]
        computed = computed_batches(source, whole)
        text.create(out, old, whole, computed, header=texts.get(ASTROPY), dropped=dropped)
    else:
        convert_to_fits(source, old, texts, out, whole, tell)


def convert_to_fits(
    source: Partition,
    old: Sequence[Column],
    texts: Mapping[str, str],
    out: Path,
    annotation: Annotation,
    tell: Tell,
) -> None:
    """Write a FITS table of old and new columns, with the texts that go with the old ones as cards."""
    new = [*map(FitsField.of_new, annotation.columns)]
    layout = fits_writing.Layout(fits_fields(source, old, annotation, tell), new, source.n_rows)
    # Each text takes the space of the longest, which is known only after the pass over the rows.
    rows = max(1, min(annotation.rows, BATCH_BYTES // layout.row.itemsize))
    computed = computed_batches(source, replace(annotation, rows=rows))
    remarks = fits_remarks(texts, [c.name for c in old], annotation.replaced, tell)
    # The provenance of this and of earlier annotations, the latest last.
    for level in reversed(levels(provenance_entries(texts, annotation.provenance, annotation.replaced))):
        remarks += block_cards(level)
    name = texts.get("extname") or SUFFIX.sub("", out.name)
    fits_writing.create(out, layout, computed, name=name, remarks=remarks, summed=not source.verified()[2])


def fits_fields(
    source: Partition, old: Sequence[Column], annotation: Annotation, tell: Tell
) -> list[FitsField]:
    """Return the old columns as FITS has them, after a pass over those whose widths or nulls are unknown."""
    # Durations have the unit of their numbers.
    stated = [replace(c, unit=c.datatype.unit) if pt.is_duration(c.datatype) else c for c in old]
    fields = [*map(FitsField.of, stated)]
    for batch in source.batches([c.name for c in stated], annotation.rows):
        for field in fields:
            field.add(batch.column(field.name))
    for field in fields:
        for what in field.losses():
            tell(f"'{field.name}': {what}")
    names = fits_names([c.name for c in old], [c.name for c in annotation.columns])
    for number, (field, name) in enumerate(zip(fields, names, strict=True), 1):
        if name != field.name:
            which = f"'{field.name}'" if field.name.strip() else f"column {number}, which has no name,"
            tell(f"{which} is called '{name}', since FITS names are ASCII, not empty, of up to 68 characters")
        field.name = name
        field.settle()
    return fields


def fits_remarks(
    texts: Mapping[str, str], names: Sequence[str], replaced: Sequence[str], tell: Tell
) -> list[bytes]:
    """Return the source's metadata as cards: what has no keyword as COMMENT; tell which are too long for that."""
    cards = meta_cards(texts[ASTROPY], names, replaced, tell) if ASTROPY in texts else []
    for sentence in parquet_create.pandas_left(texts):
        tell(sentence)
    own: dict[str, Any] = {k: v for k, v in texts.items() if not DESCRIBING.fullmatch(k)}
    own |= {k: v for k, v in parquet_create.pandas_attributes(texts).items() if not is_provenance(k)}
    for key, said in own.items():
        value = said if isinstance(said, str) else json.dumps(said)
        if len(value) > LONGEST_REMARK:
            tell(f"the metadata '{key}', of {len(value):,} characters, are left out")
        else:
            cards += prose_cards("COMMENT", [f"{key} = {value}"])
    return cards


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
    replaced, only = old_columns(cat, columns, mode, keep)
    for name in read:
        cat.column(name)
    read, computing = with_user_bits(read, compute, replaced, columns)
    usable_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def values_of(batch: pa.RecordBatch) -> NewValues:
        return checked(columns, computing(batch), batch.num_rows)

    threads, recorded = threads or usable_cpus, (provenance or Provenance()).covering(columns)
    annotation = Annotation(columns, values_of, read, recorded, rows, threads, progress, replaced, only)
    # A table in memory has lost something when it was written down.
    lost = (f"'{name}': {what}" for name, what in cat.changed.items() if annotation.stays(name))
    warnings = dict.fromkeys((*wrong_sums, *lost, *cat.left_behind))
    files, form = copied(cat, form), form or USUAL.get(cat.format, cat.format)
    same = form == cat.format or (cat.format, form) == SAME_FILES
    if form != cat.format and cat.whole is not None:
        warnings[
            f"only the rows are written, as plain {form} files; margins, maps and properties are left out"
        ] = None
        cat = replace(cat, whole=None)
    check_places(cat, out, files, overwrite=overwrite)
    check_free_space(out, needed_bytes(cat, annotation, form))
    make_folder(out)
    whole = is_whole(cat)  # it appears when all is there
    with atomic_folder(out / cat.path.resolve().name) if whole else nullcontext(out) as folder:
        for key, file in files.items():
            make_folder((folder / key).parent)
            if same:
                file.write_annotated(folder / key, annotation)
            else:
                convert(cat, file, form, folder / key, annotation, warnings.setdefault)
        if whole:
            warnings |= dict.fromkeys(hats.finish(cat.path, files.keys(), folder, annotation))
    return Written((out / key for key in files), warnings)


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
    replaced, only = old_columns(cat, columns, mode, keep)
    # No rows are left to compute anything for.
    annotation = Annotation(columns, lambda _: {}, (), recorded, replaced=replaced, only=only)
    return hats.finish(cat.path, cat.whole, folder, annotation)
