"""A catalogue that is an input, resolved once: where it is, its files and their states, its table, its copies' format.

All later code uses an `InputCatalogue` unchanged. A task gets it without the list of its files, and opens it without
looking for files again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from catalogs.catalog.catalog import Catalog
from catalogs.table_choice import TableChoice
from flows.inputs.source import InputFile, LocalSource, Origin
from flows.runs.allowed_roots import check_inside

__all__ = ["InputCatalogue", "check_links"]


@dataclass(frozen=True)
class InputCatalogue:
    """A source, with what of it is read and how; equal to another one of the same state.

    `stamp` tells one state of the files from another.  `left_out` are files that are not read, and why: somebody is
    still writing them, or they are known to be damaged.  The copies are to be in the format `form`, None for the same.
    """

    source: LocalSource
    choice: TableChoice
    form: str | None = None
    without: tuple[str, ...] = ()  # keys of files that are not opened
    stamp: str = ""
    files: tuple[InputFile, ...] = field(default=(), compare=False)
    left_out: Mapping[Path, str] = field(default_factory=lambda: MappingProxyType({}), compare=False)

    @classmethod
    def of(
        cls,
        source: LocalSource,
        choice: TableChoice,
        *,
        form: str | None = None,
        origins: Mapping[Path, Origin] = MappingProxyType({}),
    ) -> InputCatalogue:
        """Return the catalogue at a source as it is now; `origins` says where fetched files came from."""
        files = source.files(origins)
        states = "".join(f"{f.path}\0{f.size} {f.mtime_ns} {f.inode}\n" for f in files)
        return cls(source, choice, form, stamp=sha256(states.encode()).hexdigest(), files=files)

    def leaving_out(self, why: Mapping[Path, str]) -> InputCatalogue:
        """Return the catalogue without the files that are not to be read."""
        mine = {file.path: why[file.path] for file in self.files if file.path in why}
        return replace(self.lacking(mine), left_out=mine) if mine else self

    def lacking(self, files: Mapping[Path, object]) -> InputCatalogue:
        """Return the catalogue that is opened without some more of its folder's files."""
        keys = {self.source.name_of(file) for file in files} if self.source.is_folder else set()
        return replace(self, without=tuple(sorted({*self.without, *keys})))

    def read(self) -> Iterator[InputFile]:
        """Yield the files that are not left out."""
        return (file for file in self.files if file.path not in self.left_out)

    def file(self, path: Path) -> InputFile:
        """Return one of the files; as it is now if it was not listed, which parts of HATS need not be."""
        return self._by_path.get(path) or InputFile.at(path)

    @cached_property
    def _by_path(self) -> dict[Path, InputFile]:
        return {file.path: file for file in self.files}

    def unlisted(self) -> InputCatalogue:
        """Return the catalogue without the list of its files: all that it takes to open it, however many they are."""
        return replace(self, files=(), left_out={})


def check_links(catalog: Catalog, source: LocalSource, *, key: str | None = None) -> Catalog:
    """Return an opened catalogue; UsageError where a link in its folder leads out of the configured roots.

    `key` says who named it.  Fetched files are no links.
    """
    for partition in () if source.fetched else catalog.partitions:
        check_inside(partition.path, key=key or str(source.path))
    return catalog
