"""Where annotated copies go: whether they may, whether they fit, and under which names they are written first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from catalogs.catalog.catalog import Catalog, Column, Copyable, OldColumns, cell_bytes, n_bytes
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError, OutputExistsError
from catalogs.files.atomic import StorageError, atomic_folder, check_free_space, sweep
from catalogs.remote.urls import shown, url_of

__all__ = [
    "SLIM_BYTES",
    "check_local",
    "check_places",
    "check_room",
    "check_whole",
    "destination",
    "is_whole",
    "make_folder",
    "needed_bytes",
]

HEADROOM = 1 << 20
"""Bytes a partition for what no estimate knows: headers, padding, statistics."""

UNSIZED_TEXT = 16
"""Bytes a row that a text of unstated width is taken to need."""

SLIM_BYTES = 24
"""Bytes of an id and a position."""


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


def check_places(files: Sequence[Copyable], finals: Sequence[Path], *, overwrite: bool) -> None:
    """Raise where a file has the place of a copy, unless it may be replaced and is not the source."""
    for file, final in zip(files, finals, strict=True):
        if not final.exists():
            continue
        if file.path.exists() and final.samefile(file.path):
            raise CatalogError(
                f"{file.path} would be replaced by its own annotated copy; choose another output folder"
            )
        if not overwrite:
            raise OutputExistsError(
                f"{final} exists already; choose another output folder, or ask to overwrite it"
            )


def check_whole(cat: Catalog, out: Path, finals: Sequence[Path], *, overwrite: bool) -> None:
    """Raise where a folder has the place of a whole catalogue, unless it is one that may be replaced."""
    if cat.whole is None or not is_whole(cat) or not (place := out / cat.whole.name).exists():
        return
    if place.samefile(cat.path):
        raise CatalogError(
            f"{cat.path} would be replaced by its own annotated copy; choose another output folder"
        )
    if not overwrite or not any(final.exists() for final in finals):
        raise OutputExistsError(
            f"{place} exists already{' and is something else' if overwrite else ''}; choose another output folder"
            f"{', or move it away' if overwrite else ', or ask to overwrite it'}"
        )


def check_room(cat: Catalog, out: Path, columns: Sequence[NewColumn], old: OldColumns) -> None:
    """Raise `StorageError` where the copies have no room; it names the slim mode, where that would have."""
    try:
        check_free_space(out, needed_bytes(cat, columns, old))
    except StorageError as error:
        if old.only is not None:
            raise
        raise StorageError(
            f"{error}; or ask for slim copies (mode 'slim': id, position and the new columns, some "
            f"{slim_share(cat, columns, old):.0%} of that)"
        ) from error


def needed_bytes(cat: Catalog, columns: Sequence[NewColumn], old: OldColumns) -> int:
    """Return about how many bytes copies take: of slim ones, the columns' own width without compression."""
    new = row_bytes(columns)
    only = None if old.only is None else row_bytes([cat.column(name) for name in old.only])
    return sum(
        (n_bytes(p) if only is None else p.n_rows * only) + p.n_rows * new + HEADROOM for p in cat.partitions
    )


def row_bytes(columns: Sequence[Column | NewColumn]) -> int:
    """Return about how many bytes a row of those columns takes."""
    return sum(
        cell_bytes(c.datatype, (isinstance(c, NewColumn) and c.width) or UNSIZED_TEXT) for c in columns
    )


def slim_share(cat: Catalog, columns: Sequence[NewColumn], old: OldColumns) -> float:
    """Return the share of the whole copies' size that slim ones take, with an id and a position."""
    n_rows = sum(p.n_rows for p in cat.partitions)
    slim = n_rows * (SLIM_BYTES + row_bytes(columns))
    return min(1.0, slim / needed_bytes(cat, columns, old))


def make_folder(folder: Path) -> None:
    """Make the folder, and clear it of what a killed run has left there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"the folder {folder} cannot be made: {error.strerror}; choose another output folder"
        ) from error
    sweep(folder)
