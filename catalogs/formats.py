"""Which format a file has, which of its tables is meant; opens it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from catalogs import hats
from catalogs.catalog.catalog import ONE_ANNOTATED, Catalog, annotated_names, apart, require_same_units
from catalogs.errors import CatalogError, DamagedFileError, FormatError, require_alone
from catalogs.files import (
    COMPRESSED_SUFFIXES,
    expand,
    files_below,
    is_pattern,
    open_bytes,
    what_is_there,
)
from catalogs.files import missing as not_there
from catalogs.fits import table as fits
from catalogs.parquet import dataset as parquet
from catalogs.parquet.dataset import is_parquet
from catalogs.remote.remote_file import Listing, remote_listing
from catalogs.remote.urls import is_remote
from catalogs.text import table as text
from catalogs.text.sniff import SUFFIXES as ASCII_SUFFIXES
from catalogs.text.sniff import is_delimited_text, is_readme, is_votable, layout_of

HEAD_BYTES = 65536
VAGUE = (".txt", ".xml", *ASCII_SUFFIXES)
"""Suffixes that notes and logs beside a catalogue's files have too."""


@dataclass(frozen=True)
class Format:
    """A format: its files' suffixes, how its content is recognised, how it is opened."""

    suffixes: tuple[str, ...]
    sniff: Callable[[Path, bytes], bool]
    open: Callable[[Path, str | int | None, Sequence[str], Sequence[str]], Catalog]
    """From a path, the table, the columns that it has, and texts for no value; a format takes what it has a use for."""
    folders: bool = False  # whether one catalogue may be a folder
    by_name: bool = True  # whether the name does where the content does not tell


def _late(name: str) -> ModuleType:
    """Return a module that imports astropy: it is slow to import, and most files are read without it."""
    return import_module(f"catalogs.{name}")


FORMATS = {
    # Before Parquet, which its files are.
    "hats": Format((), hats.sniff, lambda path, table, *_: hats.open(path, table), folders=True),
    "parquet": Format(
        parquet.SUFFIXES, parquet.sniff, lambda path, table, *_: parquet.open(path, table), folders=True
    ),
    "fits": Format(
        fits.SUFFIXES, fits.sniff, lambda path, table, columns, _: fits.open(path, table, columns=columns)
    ),
    "votable": Format(
        tuple(s + c for s in (".vot", ".votable", ".xml") for c in COMPRESSED_SUFFIXES),
        lambda path, head: is_votable(path),  # noqa: ARG005 -- compressed files are inflated first
        lambda path, table, columns, _: _late("votable.table").open(path, table, columns=columns),
    ),
    "ascii": Format(
        ASCII_SUFFIXES,
        lambda path, head: layout_of(path) is not None,  # noqa: ARG005 -- compressed files are inflated first
        lambda path, table, _, missing: _late("text.ascii").open(path, table, missing=missing),
        by_name=False,
    ),
    # Text is last: nearly anything could be text.
    "text": Format(
        text.SUFFIXES,
        is_delimited_text,
        lambda path, table, _, missing: text.open(path, table, missing=missing),
    ),
}
"""In the order in which content is compared with them."""


def open(  # noqa: A001 - the verb of all formats
    source: Any, table: str | int | None = None, *, columns: Sequence[str] = (), missing: Sequence[str] = ()
) -> Catalog:
    """Open a catalogue: a file, a folder, a pattern such as `release/*.fits`, or a table in memory.

    Parquet files may also be at a URL such as `https://...` or `s3://...`.

    `table` is the name or the number of the table in a file that has several.  Without it the file must have exactly
    one table with all of the `columns`.  `missing` lists texts that mean "no value" in
    numeric columns of text files.

    Raises
    ------
    catalogs.CatalogError
        If nothing is there, or it is not clear which table is meant.  FormatError if no format can read it.
        DamagedFileError if the file is truncated or contradicts itself.

    Examples
    --------
    >>> from astropy.table import Table
    >>> catalogs.open(Table({"bmag": [4.36, 9.03]})).n_rows
    2
    >>> catalogs.open("survey.fits")  # doctest: +SKIP
    <Catalog survey.fits (fits): 10,521 rows, 12 columns>
    """
    if not isinstance(source, str | Path):
        from catalogs.memory.tables import open_table  # noqa: PLC0415 -- see `_votable`

        return open_table(source)
    if is_remote(str(source)):
        listing = remote_listing(str(source), parquet.SUFFIXES)
        if not isinstance(listing, Path):
            return open_listing(listing, table)
        source = listing
    path, options = Path(source), (table, tuple(columns), tuple(missing))
    if path.is_file():
        return format_of(path).open(path, *options)
    if path.is_dir() or is_pattern(path):
        return open_several(path, *options)
    raise not_there(path)


def open_listing(listing: Listing, table: str | int | None = None) -> Catalog:
    """Open the Parquet files of a listing as one catalogue."""
    require_alone(listing.root, table)
    root, files = Path(PurePosixPath(listing.root).name), listing.all_files()
    catalog = parquet.opened_together(root, [file.key for file in files], files)
    return replace(catalog, path=Path(listing.name))


def format_of(path: Path) -> Format:
    """Return the format of a file or folder: by what it holds, else by its name."""
    if path.is_symlink() and not path.exists():
        raise not_there(path)
    head = b""
    if path.is_file():
        with open_bytes(path) as stream:
            head = stream.read(HEAD_BYTES)
    for candidate in FORMATS.values():
        if candidate.sniff(path, head):
            return candidate
    for candidate in FORMATS.values():
        if path.is_file() and candidate.by_name and path.name.lower().endswith(candidate.suffixes):
            return candidate
    plain = {name: [s for s in f.suffixes if s.count(".") == 1] for name, f in FORMATS.items()}
    readable = "; ".join(f"{name}: {' '.join(suffixes) or 'a folder'}" for name, suffixes in plain.items())
    raise FormatError(
        f"the format of {path} is unknown; expected one of {readable}; convert other tables: `from "
        f"astropy.table import Table; Table.read('{path.name}', format=...).write('catalogue.fits')` reads "
        "HDF5 and others, and pandas reads more"
    )


def open_several(
    path: Path, table: str | int | None, columns: Sequence[str], missing: Sequence[str]
) -> Catalog:
    """Open a folder or a pattern: as one catalogue where its format knows folders, else file by file."""
    if path.is_dir():
        whole = next((f for f in FORMATS.values() if f.folders and f.sniff(path, b"")), None)
        if whole is FORMATS["parquet"]:  # other tables would be left out in silence
            other = [s for key in ("fits", "votable") for s in FORMATS[key].suffixes if s != ".xml"]
            stray = next((p for p in files_below(path) if p.name.lower().endswith(tuple(other))), None)
            if stray is not None:
                raise FormatError(
                    f"{path} holds Parquet files and {stray.relative_to(path)}, expected files of one format; name "
                    f"them one by one, or by a pattern such as '{path}/*.parquet'"
                )
        if whole is not None:
            return whole.open(path, table, columns, missing)
    root, files = tables_of(path)
    if not files:
        # In the place of a file, such as `x.fits`, it is one that cannot be read.
        named = path.name.lower().endswith(all_suffixes())
        raise (DamagedFileError if named else FormatError)(
            f"{path.absolute()} holds no catalogue, expected files with the ending of one, such as .fits or .parquet; "
            f"{what_is_there(path / '*')}"
        )
    return open_files(root, files, lambda file: format_of(file).open(file, table, columns, missing))


def open_files(root: Path, files: Sequence[Path], open_one: Callable[[Path], Catalog]) -> Catalog:
    """Open files below a root as one catalogue; `open_one` opens each of those that are not all Parquet."""
    if all(format_of(f) is FORMATS["parquet"] for f in files):
        return parquet.open_files(root, files)
    return joined(root, files, [open_one(f) for f in files])


def tables_of(path: Path) -> tuple[Path, list[Path]]:
    """Return the root and the files of a folder or a pattern; of a folder without notes that lie beside its tables."""
    root, files = expand(path, lambda file: file.name.lower().endswith(all_suffixes()) or is_parquet(file))
    return root, without_notes(files) if path.is_dir() else files


def without_notes(files: Sequence[Path]) -> list[Path]:
    """Return the files of a folder that are its tables; without others, all files.

    Texts beside tables are notes: a README.txt beside any table, a list in CSV beside Parquet.
    """
    files = [f for f in files if not is_readme(f)] or files
    beside = FORMATS["text"].suffixes if any(map(is_parquet, files)) else ()
    sure = [f for f in files if not f.name.lower().endswith((*VAGUE, *beside))]
    return sure or list(files)


@cache
def all_suffixes() -> tuple[str, ...]:
    """Return the suffixes of all formats."""
    return tuple(s for f in FORMATS.values() for s in f.suffixes)


def joined(root: Path, files: Sequence[Path], catalogs: Sequence[Catalog]) -> Catalog:
    """Return catalogues of the same columns as one; what is known of columns is the first one's."""
    first = catalogs[0]
    for catalog in catalogs[1:]:
        odd, what = sorted(set(first.names) ^ set(catalog.names)), ""
        if catalog.format != first.format or odd:
            what = f"only one of them has {odd}" if odd else f"{first.format} and {catalog.format}"
        elif annotated_names(first.metadata) != annotated_names(catalog.metadata):
            what = ONE_ANNOTATED
        if what:
            raise apart(first.path, catalog.path, what)
        require_same_units(first.path, first.columns, catalog.path, catalog.columns)
    partitions = tuple(
        replace(partition, key=file.relative_to(root).as_posix())
        for file, catalog in zip(files, catalogs, strict=True)
        for partition in catalog.partitions
    )
    return replace(first, path=root, partitions=partitions)


@dataclass(frozen=True)
class TableChoice:
    """A name or number; without it the `usual` one, where it has the columns, or the only table that has them."""

    table: str | int | None = None
    columns: tuple[str, ...] = ()
    usual: str | int | None = None

    def open(self, path: str | Path) -> Catalog:
        """Open that table of a file, or of each file of a folder."""
        if self.table is None and self.usual is not None:
            with suppress(CatalogError):
                catalog = open(path, self.usual, columns=self.columns)
                if {*self.columns} <= {*catalog.names}:
                    return catalog
        return open(path, self.table, columns=self.columns)


def open_annotated(source: str | Path, prefix: str) -> Catalog:
    """Open an annotated copy: the table that has our columns."""
    return open(source, columns=(f"{prefix}flags",))
