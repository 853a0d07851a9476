"""The files of a source: their states, and the catalogue that they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from catalogs.catalog.catalog import Catalog, Partition
from catalogs.errors import CatalogError, FormatError
from catalogs.formats import FORMATS, format_of, open_files, tables_of
from catalogs.hats import catalog as hats
from catalogs.text import ascii_layout as ascii_tables
from catalogs.writing.conversion import USUAL, converted_key, copied
from flows.errors import UsageError
from flows.inputs.source import InputCatalogue, InputFile, check_links

__all__ = ["OpenedFile", "copy_name", "copy_name_of", "find_files", "open_source"]

# The files of what the user named, opened as catalogues; damaged ones are set aside, not in the way of the others.
#
# A folder or a pattern is one catalogue of many files.  Where it does not open, each file is tried by itself, and the
# catalogue is opened without those that fail.

Check = Callable[[Catalog], None]


@dataclass(frozen=True)
class OpenedFile:
    """One file that was opened: its state, its partition, and the catalogue as it was opened; `name` is its copy's."""

    catalogue: InputCatalogue
    file: InputFile
    partition: Partition
    name: str


@dataclass
class _Search:
    """What is opened, and what fails, on the way through the catalogues."""

    check: Check
    tolerated: tuple[type[Exception], ...]
    opened: list[OpenedFile] = field(default_factory=list)
    failed: dict[Path, Exception] = field(default_factory=dict)

    def look(self, catalogue: InputCatalogue) -> None:
        """Open a catalogue, as far as it can be."""
        try:
            if catalogue.source.is_folder or any(catalogue.read()):
                self._add(catalogue)
        except self.tolerated as error:
            if catalogue.source.is_folder:
                self._look_at_each(catalogue, error)
            else:
                self.failed[catalogue.source.path] = error

    def _look_at_each(self, catalogue: InputCatalogue, why: Exception) -> None:
        """Open a folder without the files that fail by themselves; if it still fails, without those unlike most."""
        failing, names = self._tried(catalogue)
        if not names:
            raise why
        if failing:
            with suppress(*self.tolerated):
                self._add(catalogue.lacking(failing))
                self.failed |= failing
                return
        failing |= _unlike_most(names)
        self.failed |= failing
        self._add(catalogue.lacking(failing))

    def _add(self, catalogue: InputCatalogue) -> None:
        catalog = open_source(catalogue)
        self.check(catalog)
        check_links(catalog, catalogue.source)
        for name, partition in copied(catalog, catalogue.form).items():
            if name.startswith("."):
                raise UsageError(
                    f"{partition.path}: got a hidden file, expected a name without a '.' before it, since the copy "
                    "would be hidden in the output folder too; rename the file"
                )
            with suppress(FileNotFoundError):  # it has gone since it was opened
                self.opened.append(OpenedFile(catalogue, catalogue.file(partition.path), partition, name))

    def _tried(self, catalogue: InputCatalogue) -> tuple[dict[Path, Exception], dict[Path, frozenset[str]]]:
        """Return why files of a folder fail by themselves, and the columns of the others."""
        failing: dict[Path, Exception] = {}
        names: dict[Path, frozenset[str]] = {}
        for file in _with_rows(catalogue):
            try:
                catalog = catalogue.choice.open(file)
                self.check(catalog)
                names[file] = frozenset(catalog.names)
            except self.tolerated as error:
                failing[file] = error
        return failing, names


def _with_rows(catalogue: InputCatalogue) -> Iterator[Path]:
    """Yield the files of a folder that are there, are to be read, and have rows."""
    if catalogue.source.kind != "hats":
        yield from (file.path for file in catalogue.read())
        return
    for file in hats.files_with_rows(catalogue.source.path):
        if file not in catalogue.left_out and file.exists():
            yield file


def find_files(
    catalogues: Iterable[InputCatalogue], check: Check, *, tolerated: tuple[type[Exception], ...]
) -> tuple[list[OpenedFile], dict[Path, Exception]]:
    """Return the files of the catalogues, opened and checked, and why others failed.

    Errors that are not `tolerated` in a file end the search.
    """
    search = _Search(check, tolerated)
    for catalogue in catalogues:
        search.look(catalogue)
    return search.opened, search.failed


def copy_name_of(file: Path, catalogues: Sequence[InputCatalogue]) -> str:
    """Return what the copy of a file that was not opened would be called."""
    folders = [c for c in catalogues if c.source.is_folder and c.source.path in file.parents]
    one = folders[0] if folders else next(c for c in catalogues if c.source.path == file)
    return copy_name(one.source.name_of(file), one.form, file)


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
    """Say whether a file is a blank-separated or fixed-width table; by its name, where its content does not say it."""
    try:
        return format_of(path) is FORMATS[ascii_tables.ASCII]
    except FormatError:
        return path.name.lower().endswith(ascii_tables.SUFFIXES)


@lru_cache(maxsize=4)
def open_source(catalogue: InputCatalogue) -> Catalog:
    """Return an input, opened, without some of a folder's files.

    Remembered for one state of its files, since a folder of a thousand takes seconds, and each of them is asked for.
    """
    path, without, choice = catalogue.source.path, catalogue.without, catalogue.choice
    if not without:
        return choice.open(path)
    if catalogue.source.kind == "hats":
        return hats.open_without(path, without)
    root, files = tables_of(path)
    kept = [f for f in files if f.relative_to(root).as_posix() not in without]
    if not kept:
        raise FormatError(f"{path}: none of its files can be read; correct or replace them")
    return open_files(root, kept, choice.open)


def _unlike_most(names: Mapping[Path, frozenset[str]]) -> dict[Path, Exception]:
    """Return the files that have other columns than most."""
    usual, _ = Counter(names.values()).most_common(1)[0]
    return {file: _odd(file, columns, usual) for file, columns in names.items() if columns != usual}


def _odd(file: Path, names: frozenset[str], usual: frozenset[str]) -> CatalogError:
    lacks, more = sorted(usual - names), sorted(names - usual)
    what = " and ".join([f"lacks {lacks}"] * bool(lacks) + [f"has also {more}"] * bool(more))
    return FormatError(
        f"{file} {what}, but the other files of its folder do not, expected the same columns in all; correct the file"
    )
