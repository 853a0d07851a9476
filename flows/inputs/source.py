"""What the user named: a file, a folder, a pattern or a URL, and the catalogue that it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from catalogs.catalog.catalog import Catalog
from catalogs.files.folders import require_file
from catalogs.formats import tables_of
from catalogs.hats import catalog as hats
from catalogs.remote.listing import Listing
from catalogs.table_choice import TableChoice
from catalogs.writing.conversion import converted_key
from flows.runs.allowed_roots import check_inside
from flows.runs.manifest import Manifest
from flows.runs.outputs import FileState, Output, Quarantined

__all__ = [
    "Brought",
    "InputCatalogue",
    "InputFile",
    "Known",
    "LocalSource",
    "Origin",
    "RemoteSource",
    "Source",
    "check_links",
    "local_sources",
]

# What the user named, as it was found first: a file, a folder or a pattern of this machine, or a URL.
#
# `flows.inputs.resolve` makes these of texts; later code does not check again which kind it is.

Kind = Literal["file", "folder", "hats", "pattern"]


@dataclass(frozen=True)
class Origin:
    """A file at a URL: what its output is called, the URL as it may be shown, the server's word for its state."""

    name: str
    url: str
    tag: str = ""


@dataclass(frozen=True)
class InputFile:
    """One file of an input, and its state when it was looked at."""

    path: Path
    size: int
    mtime_ns: int
    inode: int
    origin: Origin | None = None  # where it was fetched from

    @classmethod
    def at(cls, path: Path, origin: Origin | None = None) -> InputFile:
        """Return the file at a path as it is now; FileNotFoundError where it has gone."""
        seen = path.stat()
        return cls(path, seen.st_size, seen.st_mtime_ns, seen.st_ino, origin)

    def looks_like(self, state: FileState | None) -> bool:
        """Say whether size, time and inode are those of a state that was written down."""
        if state is None:
            return False
        return (self.size, self.mtime_ns, self.inode) == (state.size, state.mtime_ns, state.inode)

    def state(self, known: Iterable[FileState | None] = ()) -> FileState:
        """Return the state, without reading the file: its hash is that of a `known` state that it looks like, or ''."""
        alike = (state.sha256 for state in known if state is not None and self.looks_like(state))
        tag = self.origin.tag if self.origin else ""
        return FileState(next(alike, ""), self.size, self.mtime_ns, self.inode, tag)


@dataclass(frozen=True)
class LocalSource:
    """A file or a folder of this machine; or a pattern, where a pattern is one catalogue of several files."""

    path: Path
    kind: Kind = "file"
    fetched: bool = False  # whether the path is where files from a URL wait

    @classmethod
    def at(cls, path: Path, *, fetched: bool = False) -> LocalSource:
        """Return the source at a path: the only place that asks what lies there."""
        if not require_file(path).is_dir():
            return cls(path, "file", fetched)
        return cls(path, "hats" if hats.sniff(path, b"") else "folder", fetched)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, of HATS or of other files."""
        return self.kind in {"folder", "hats"}

    def files(self, origins: Mapping[Path, Origin] = MappingProxyType({})) -> tuple[InputFile, ...]:
        """Return the files as they are now, without opening them: those of a folder that are named as tables.

        Files that have gone since they were listed are left out.
        """
        paths = tables_of(self.path)[1] if self.is_folder else [self.path]
        return tuple(_there(paths, origins))

    def name_of(self, file: Path) -> str:
        """Return what a file of the source is called: its partition's key."""
        if not self.is_folder:
            return file.name
        if self.kind == "hats":
            return hats.key_of(self.path, file)
        return file.relative_to(self.path).as_posix()


@dataclass(frozen=True)
class RemoteSource:
    """A URL, of which only `catalogs.remote.urls.shown` may be shown: it may hold a password.

    `listing` are the files that its server has just named, where it was asked already.
    """

    url: str = field(repr=False)
    listing: Listing | None = field(default=None, repr=False, compare=False)


Source = LocalSource | RemoteSource


def local_sources(sources: Iterable[Source]) -> list[LocalSource]:
    """Return the sources of this machine."""
    return [source for source in sources if isinstance(source, LocalSource)]


def _there(paths: Iterable[Path], origins: Mapping[Path, Origin]) -> Iterable[InputFile]:
    for path in paths:
        try:
            yield InputFile.at(path, origins.get(path))
        except FileNotFoundError:
            continue


# Inputs at URLs, as a plan sees them: fetched files, and what need not, could not or should not be fetched.


@dataclass(frozen=True)
class Known:
    """What is known of files at URLs from an earlier run of the same model and specification."""

    out: Path = Path()
    before: Manifest | None = None
    form: str | None = None  # of the copies

    def output(self, origin: Origin) -> Output | None:
        """Return the output that is there, if it is of the file as it is; without the server's word nobody knows."""
        # Some text tables have copies of another format, which only their content tells.
        names = (origin.name, converted_key(origin.name, "ecsv")) if self.form is None else (origin.name,)
        listed = next(filter(None, (self.before.find(n) for n in names)), None) if self.before else None
        if listed is None or not origin.tag or not listed.summary:
            return None
        same = (listed.input_path, listed.input.tag) == (origin.url, origin.tag)
        return listed if same and listed.is_in(self.out / listed.name) else None

    def quarantined(self, origin: Origin) -> Quarantined | None:
        """Return why the file, as it is, could not be annotated."""
        known = self.before.find_quarantined(origin.name) if self.before else None
        if known is None or known.input is None or not origin.tag:
            return None
        return known if (known.input_path, known.input.tag) == (origin.url, origin.tag) else None


@dataclass
class Brought:
    """Sources of this machine, where fetched files came from, and the files that were not fetched."""

    sources: list[LocalSource] = field(default_factory=list)
    origins: dict[Path, Origin] = field(default_factory=dict)
    unchanged: list[Output] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    failed: list[tuple[Origin, Exception]] = field(default_factory=list)
    deferred: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)  # of folders of fetched files: their URLs

    def left_out(self) -> Iterator[str]:
        """Yield the names of the outputs of files that were not fetched."""
        yield from (output.name for output in self.unchanged)
        yield from (known.name for known in self.quarantined)
        yield from (origin.name for origin, _ in self.failed)
        yield from self.deferred

    def spoken(self, text: str) -> str:
        """Return a text with URLs in the place of the paths where fetched files wait."""
        return spoken(text, self.shown)


def spoken(text: str, places: Mapping[str, str]) -> str:
    """Return a text in which some paths are called otherwise."""
    for path, called in places.items():
        text = text.replace(path, called)
    return text


# A catalogue that is an input, resolved once: where it is, its files and their states, its table, its copies' format.
#
# All later code uses an `InputCatalogue` unchanged. A task gets it without the list of its files, and opens it without
# looking for files again.


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
