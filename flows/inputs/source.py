"""What the user named, as it was found first: a file, a folder or a pattern of this machine, or a URL.

`flows.inputs.resolve` makes these of texts; later code does not check again which kind it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from catalogs.files.folders import require_file
from catalogs.formats import tables_of
from catalogs.hats import catalog as hats
from catalogs.remote.listing import Listing
from flows.runs.outputs import FileState

__all__ = ["InputFile", "LocalSource", "Origin", "RemoteSource", "Source", "local_sources"]

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
