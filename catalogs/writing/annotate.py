"""Add columns to a catalogue: every partition is copied with them to an output folder, streamed and atomic."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from catalogs.catalog.catalog import (
    BATCH_ROWS,
    Annotation,
    Catalog,
    Checksums,
    Compute,
    OldColumns,
    Progress,
    verified,
)
from catalogs.catalog.computing import CheckedCompute, Computed, NewValues, computed_batches
from catalogs.catalog.earlier_columns import Mode, old_columns, with_user_bits
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.writing.conversion import copies
from catalogs.writing.destination import (
    check_local,
    check_places,
    check_room,
    check_whole,
    destination,
    is_whole,
    make_folder,
)

__all__ = [
    "CheckedCompute",
    "Computed",
    "Mode",
    "NewValues",
    "Written",
    "annotate",
    "computed_batches",
    "finish",
]


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
    warnings = dict.fromkeys((*wrong_sums, *_lost_already(cat, old, form)))
    files = copies(cat, old, form, warnings.setdefault)
    finals = [out / file.key for file in files]
    if form not in {None, cat.format}:
        cat = replace(cat, whole=None)
    check_places(files, finals, overwrite=overwrite)
    check_whole(cat, out, finals, overwrite=overwrite)
    # FITS is not compressed, so there the size of the source tells nothing.
    staying = tuple(name for name in cat.names if old.stays(name))
    check_room(cat, out, columns, OldColumns(only=staying) if form == "fits" else old)
    read, compute = with_user_bits(read, compute, old.replaced, columns)
    annotation = Annotation(
        columns,
        CheckedCompute(tuple(columns), compute),
        read,
        (provenance or Provenance()).covering(columns),
        rows,
        threads or _usable_cpus(),
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


def _lost_already(cat: Catalog, old: OldColumns, form: str | None) -> Iterator[str]:
    """Yield sentences on what a table in memory has lost of what is copied, as it was written down or as it is read."""
    changed = dict(cat.changed)
    if form in {None, cat.format}:
        changed |= {name: what for name, what in cat.read_back.items() if name not in changed}
    yield from (f"'{name}': {what}" for name, what in changed.items() if old.stays(name))
    yield from cat.left_behind


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


def _usable_cpus() -> int:
    """Return how many processors this process may use, which on a shared machine are not all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
