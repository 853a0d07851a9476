"""The files of what the user named, opened as catalogues; damaged ones are set aside, not in the way of the others.

A folder or a pattern is one catalogue of many files.  Where it does not open, each file is tried by itself, and the
catalogue is opened without those that fail.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from catalogs.catalog.catalog import Catalog, Partition
from catalogs.errors import CatalogError, FormatError
from catalogs.formats import FORMATS, format_of, joined, tables_of
from catalogs.hats import catalog as hats
from catalogs.parquet import dataset as parquet
from catalogs.text import ascii as ascii_tables
from catalogs.writing.conversion import USUAL, converted_key, copied
from flows.inputs.table_choice import TableChoice
from flows.runs.allowed_roots import check_inside

__all__ = ["Found", "copy_name", "files_of", "find_files", "name_of", "open_source"]

Check = Callable[[Catalog], None]


@dataclass(frozen=True)
class Found:
    """One file that was opened: the partition, and what was opened, without which of its files, and in what state.

    `name` is its copy's.
    """

    source: Path
    without: tuple[str, ...]
    stamp: str
    partition: Partition
    name: str


@dataclass
class _Search:
    """What is found, and what fails, on the way through the sources."""

    check: Check
    choice: TableChoice
    form: str | None
    left_out: Mapping[Path, str]
    tolerated: tuple[type[Exception], ...]
    found: list[Found] = field(default_factory=list)
    failed: dict[Path, Exception] = field(default_factory=dict)

    def look(self, path: Path) -> None:
        """Open a source, as far as it can be."""
        if path.is_dir():
            self._look_below(path)
        elif path.exists() and path not in self.left_out:  # it may have gone since it was listed
            try:
                self._add(path, ())
            except self.tolerated as error:
                self.failed[path] = error

    def _look_below(self, folder: Path) -> None:
        bad = [file for file in self.left_out if folder in file.parents]
        try:
            self._add(folder, _keys(folder, bad))
        except self.tolerated as error:
            self._look_at_each(folder, bad, error)

    def _look_at_each(self, folder: Path, bad: Collection[Path], why: Exception) -> None:
        """Open a folder without the files that fail by themselves; if it still fails, without those unlike most."""
        failing, names = self._tried(folder, bad)
        if not names:
            raise why
        if failing:
            with suppress(*self.tolerated):
                self._add(folder, _keys(folder, [*bad, *failing]))
                self.failed |= failing
                return
        failing |= _unlike_most(names)
        self.failed |= failing
        self._add(folder, _keys(folder, [*bad, *failing]))

    def _add(self, path: Path, without: tuple[str, ...]) -> None:
        stamp = _stamp(path)
        catalog = open_source(str(path), without, stamp, self.choice)
        self.check(catalog)
        for name, partition in copied(catalog, self.form).items():
            check_inside(partition.path, key=str(path))
            self.found.append(Found(path, without, stamp, partition, name))

    def _tried(
        self, folder: Path, bad: Collection[Path]
    ) -> tuple[dict[Path, Exception], dict[Path, frozenset[str]]]:
        """Return why files of a folder fail by themselves, and the columns of the others."""
        failing: dict[Path, Exception] = {}
        names: dict[Path, frozenset[str]] = {}
        for file in hats.files_with_rows(folder) if hats.sniff(folder, b"") else files_of(folder):
            if file in bad or not file.exists():
                continue
            try:
                catalog = self.choice.open(file)
                self.check(catalog)
                names[file] = frozenset(catalog.names)
            except self.tolerated as error:
                failing[file] = error
        return failing, names


def find_files(
    paths: Sequence[Path],
    check: Check,
    *,
    choice: TableChoice,
    form: str | None = None,
    left_out: Mapping[Path, str],
    tolerated: tuple[type[Exception], ...],
) -> tuple[list[Found], dict[Path, Exception]]:
    """Return the files of the sources, opened and checked, and why others failed.

    Copies are to be in the format `form`.  Files that are `left_out` are not touched.  Errors that are not `tolerated`
    in a file end the search.
    """
    search = _Search(check, choice, form, left_out, tolerated)
    for path in paths:
        search.look(path)
    return search.found, search.failed


def files_of(path: Path) -> Iterator[Path]:
    """Yield the files of a source without opening them: itself, or those of a folder that are named as tables."""
    if not path.is_dir():
        yield path
        return
    yield from tables_of(path)[1]


def name_of(file: Path, source: Path) -> str:
    """Return what a file of a source is called: its partition's key."""
    if not source.is_dir():
        return file.name
    return hats.key_of(source, file) if hats.sniff(source, b"") else file.relative_to(source).as_posix()


def copy_name(name: str, form: str | None, path: Path | None = None) -> str:
    """Return what the copy of a file that was not opened would be called, as far as its name says what it holds.

    Where the file is at a `path`, its content says it.
    """
    if form is None and path is not None and path.is_file() and _is_ascii(path):
        form = USUAL[ascii_tables.ASCII]
    if form is None or (form in FORMATS and name.lower().endswith(FORMATS[form].suffixes)):
        return name
    return converted_key(name, form)


def _is_ascii(path: Path) -> bool:
    """Say whether a file is a blank-separated or fixed-width table; by its name, where that cannot be told."""
    try:
        return format_of(path) is FORMATS[ascii_tables.ASCII]
    except FormatError:
        return path.name.lower().endswith(ascii_tables.SUFFIXES)


@lru_cache(maxsize=4)
def open_source(
    path: str,
    without: tuple[str, ...],
    stamp: str,  # noqa: ARG001
    choice: TableChoice,
) -> Catalog:
    """Return the catalogue at a path, without some of a folder's files; `stamp` tells one state of it from another.

    Remembered, since a folder of a thousand files takes seconds, and each of its files is asked for.
    """
    if not without:
        return choice.open(path)
    if hats.sniff(Path(path), b""):
        return hats.open_without(Path(path), without)
    root, files = tables_of(Path(path))
    kept = [f for f in files if f.relative_to(root).as_posix() not in without]
    if not kept:
        raise FormatError(f"{path}: got no file that can be read, expected some; correct or replace them")
    if all(format_of(f) is FORMATS["parquet"] for f in kept):
        return parquet.open_files(root, kept)
    return joined(root, kept, [choice.open(f) for f in kept])


def _stamp(path: Path) -> str:
    """Return what changes when a source does: a hash of names, sizes and times."""
    total = hashlib.sha256()
    for file in files_of(path):
        with suppress(FileNotFoundError):  # gone since it was listed
            seen = file.stat()
            total.update(f"{file}\0{seen.st_size} {seen.st_mtime_ns} {seen.st_ino}\n".encode())
    return total.hexdigest()


def _keys(path: Path, files: Collection[Path]) -> tuple[str, ...]:
    return tuple(sorted(name_of(file, path) for file in files))


def _unlike_most(names: Mapping[Path, frozenset[str]]) -> dict[Path, Exception]:
    """Return the files that have other columns than most."""
    usual, _ = Counter(names.values()).most_common(1)[0]
    return {file: _odd(file, found, usual) for file, found in names.items() if found != usual}


def _odd(file: Path, names: frozenset[str], usual: frozenset[str]) -> CatalogError:
    lacks, more = sorted(usual - names), sorted(names - usual)
    what = " and ".join([f"lacks {lacks}"] * bool(lacks) + [f"has also {more}"] * bool(more))
    return FormatError(
        f"{file} {what}, unlike the other files of its folder, expected the same columns; correct it"
    )
